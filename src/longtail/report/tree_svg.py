"""A label tree as an SVG drawing: the root at the left, labels at the right."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import east_asian_width

from longtail.html import escape
from longtail.kernels import Ints
from longtail.labelspace.tree import LabelTree

_MAX_LEAVES = 60  # rows of a drawing
_ROW_HEIGHT, _DEPTH_WIDTH, _MARGIN, _CHAR_WIDTH = 18, 26, 20, 7.5  # pixels
_MAX_NAME = 48  # characters
_N_EXAMPLE_LABELS = 5  # shown for a node whose children are not drawn
_STYLE = "path{fill:none;stroke:#8a94a6;stroke-width:1.2}text{font:12px sans-serif;fill:#1d2433}.sum{fill:#5b6575}"


def draw_tree(tree: LabelTree, names: Sequence[str], counts: Ints | None = None, leaves: int = _MAX_LEAVES) -> str:
    """Draw a tree with the names of its labels.

    A large tree is opened from the root down, the node with the most labels first, until it has ``leaves`` ends. An end that
    is not a label shows its number of labels and the most frequent of them. Of a root with more children, only the first
    ones are drawn.

    >>> tree = LabelTree([2, 2, 0, 0, 0], [-1, -1, 0, 1, 2])
    >>> draw_tree(tree, ["sea", "iron", "zinc"]).count("<text")
    3
    """
    opened = _choose_open_nodes(tree, leaves)
    ends = _list_ends(tree, opened)
    n_more, ends = len(ends) - leaves, ends[:leaves]
    row = {node: float(i) for i, node in enumerate(ends)}
    for node in sorted(opened, reverse=True):  # from below: children have higher numbers
        children = [row[c] for c in range(tree.first_child[node], tree.first_child[node + 1]) if c in row]
        row[node] = (children[0] + children[-1]) / 2
    x = {node: _MARGIN + _DEPTH_WIDTH * int(tree.depth[node]) for node in row}
    y = {node: _MARGIN + _ROW_HEIGHT * at for node, at in row.items()}
    lines = [f'<path d="M{x[up]} {y[up]:g}V{y[node]:g}H{x[node]}"/>' for node in row if (up := int(tree.parent[node])) >= 0]
    titles = {node: _title(tree, node, names, counts) for node in ends}
    for node, text in titles.items():
        kind = ' class="sum"' if tree.n_children[node] else ""
        lines.append(f'<text x="{x[node] + 5}" y="{y[node] + 4:g}"{kind}>{escape(text)}</text>')
    if n_more > 0:
        place = f'x="{_MARGIN + _DEPTH_WIDTH + 5}" y="{_MARGIN + _ROW_HEIGHT * leaves + 4}"'
        lines.append(f'<text {place} class="sum">… {n_more:,} more</text>')
    width = max(x[node] + 5 + _measure_text(text) for node, text in titles.items()) + _MARGIN
    size = f'width="{width:.0f}" height="{2 * _MARGIN + _ROW_HEIGHT * (len(ends) - (n_more <= 0))}"'
    style = f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}', *lines, "</svg>"]) + "\n"


def _title(tree: LabelTree, node: int, names: Sequence[str], counts: Ints | None) -> str:
    labels = tree.list_labels(node, counts)
    shown = ", ".join(_shorten(names[label]) for label in labels[:_N_EXAMPLE_LABELS])
    if not tree.n_children[node]:
        return shown
    return f"{len(labels):,} labels: {shown}" + (", …" if len(labels) > _N_EXAMPLE_LABELS else "")


def _measure_text(text: str) -> float:
    """Width in pixels, with a margin for wide fonts. Chinese, Japanese and Korean characters are twice as wide."""
    return _CHAR_WIDTH * sum(1 + (east_asian_width(character) in "WF") for character in text)


def _choose_open_nodes(tree: LabelTree, leaves: int) -> set[int]:
    """The inner nodes whose children are drawn: those with the most labels, as long as their children fit."""
    opened, n_ends = {0}, int(tree.n_children[0])
    candidates = [child for child in range(1, 1 + n_ends) if tree.n_children[child]]
    while candidates:
        node = max(candidates, key=lambda node: (int(tree.n_labels_below[node]), -node))
        candidates.remove(node)
        if n_ends + tree.n_children[node] - 1 <= leaves:
            opened.add(node)
            n_ends += int(tree.n_children[node]) - 1
            candidates += [c for c in range(tree.first_child[node], tree.first_child[node + 1]) if tree.n_children[c]]
    return opened


def _list_ends(tree: LabelTree, opened: set[int]) -> list[int]:
    """The ends of the drawing from top to bottom."""
    ends, stack = [], [0]
    while stack:
        node = stack.pop()
        if node in opened:
            stack += range(tree.first_child[node + 1] - 1, tree.first_child[node] - 1, -1)
        else:
            ends.append(node)
    return ends


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
