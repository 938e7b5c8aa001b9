"""A label tree as a picture: a dendrogram in SVG, the root at the left, labels at the right."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from longtail.kernels import Ints
from longtail.labelspace.tree import LabelTree

LEAVES = 60  # most rows of a picture
ROW, STEP, MARGIN, LETTER = 18, 26, 20, 7.0  # pixels: between two rows, between two depths, around, of a letter
LONGEST = 48  # letters of a name, before it is cut
STYLE = "path{fill:none;stroke:#8a94a6;stroke-width:1.2}text{font:12px sans-serif;fill:#1d2433}.sum{fill:#5b6575}"


def tree_svg(tree: LabelTree, names: Sequence[str], counts: Ints | None = None, leaves: int = LEAVES) -> str:
    """The tree with the names of its labels.

    A large tree is drawn from the root down, the node with the most labels opened first, until it has so many ends; what
    lies below an end is summed up by the number of its labels and the one with the highest of the ``counts`` of samples.
    Of a root with more children than that, the first are drawn.

    >>> tree = LabelTree([2, 2, 0, 0, 0], [-1, -1, 0, 1, 2])
    >>> tree_svg(tree, ["sea", "iron", "zinc"]).count("<text")
    3
    """
    sizes, first = tree.summed_up(counts)
    opened = opened_nodes(tree, sizes, leaves)
    ends = in_order(tree, opened)
    n_more, ends = len(ends) - leaves, ends[:leaves]
    row = {node: float(i) for i, node in enumerate(ends)}
    for node in sorted(opened, reverse=True):  # from below: children have higher numbers
        mine = [row[c] for c in range(tree.first_child[node], tree.first_child[node + 1]) if c in row]
        row[node] = (mine[0] + mine[-1]) / 2
    x = {node: MARGIN + STEP * int(tree.depth[node]) for node in row}
    y = {node: MARGIN + ROW * at for node, at in row.items()}
    lines = [f'<path d="M{x[up]} {y[up]:g}V{y[node]:g}H{x[node]}"/>' for node in row if (up := int(tree.parent[node])) >= 0]
    shown = {node: shortened(names[first[node]]) for node in ends}
    titles = {node: f"{sizes[node]:,} labels: {name}, …" if tree.n_children[node] else name for node, name in shown.items()}
    for node, text in titles.items():
        kind = ' class="sum"' if tree.n_children[node] else ""
        lines.append(f'<text x="{x[node] + 5}" y="{y[node] + 4:g}"{kind}>{escape(text)}</text>')
    if n_more > 0:
        lines.append(f'<text x="{MARGIN + STEP + 5}" y="{MARGIN + ROW * leaves + 4}" class="sum">… {n_more:,} more</text>')
    width = max(x[node] + 5 + LETTER * len(text) for node, text in titles.items()) + MARGIN
    size = f'width="{width:.0f}" height="{2 * MARGIN + ROW * (len(ends) - (n_more <= 0))}"'
    style = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}', *lines, "</svg>"]) + "\n"


def opened_nodes(tree: LabelTree, sizes: Ints, leaves: int) -> set[int]:
    """The inner nodes whose children are drawn: those with the most labels, as long as there is room for the children."""
    opened, n_ends = {0}, int(tree.n_children[0])
    reach = [child for child in range(1, 1 + n_ends) if tree.n_children[child]]
    while reach:
        node = max(reach, key=lambda node: (int(sizes[node]), -node))
        reach.remove(node)
        if n_ends + tree.n_children[node] - 1 <= leaves:
            opened.add(node)
            n_ends += int(tree.n_children[node]) - 1
            reach += [c for c in range(tree.first_child[node], tree.first_child[node + 1]) if tree.n_children[c]]
    return opened


def in_order(tree: LabelTree, opened: set[int]) -> list[int]:
    """The ends of the picture from top to bottom."""
    ends, stack = [], [0]
    while stack:
        node = stack.pop()
        if node in opened:
            stack += range(tree.first_child[node + 1] - 1, tree.first_child[node] - 1, -1)
        else:
            ends.append(node)
    return ends


def shortened(name: str) -> str:
    """A name that does not make the picture much wider than the others."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
