from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.labelspace.grow import build_huffman_tree
from longtail.labelspace.tree import LabelTree
from longtail.report.tree_svg import draw_tree

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[tuple[str, float, float]]:
    """What is written, from top to bottom: text, x, y."""
    found = ET.fromstring(picture).iter(f"{SVG}text")
    return [(node.text or "", float(node.attrib["x"]), float(node.attrib["y"])) for node in found]


def test_a_small_tree_computed_by_hand() -> None:
    """sea is next to {iron, zinc}; each line goes from the parent's row to the child's."""
    tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 0, 1, 2]))
    picture = draw_tree(tree, ["sea", "iron & steel", "zinc"])
    assert [text for text, _, _ in texts(picture)] == ["iron & steel", "zinc", "sea"]
    (x_iron, y_iron), (x_zinc, y_zinc), (x_sea, y_sea) = ((x, y) for _, x, y in texts(picture))
    assert x_iron == x_zinc > x_sea and y_zinc - y_iron == y_sea - y_zinc == 18
    lines = [path.attrib["d"] for path in ET.fromstring(picture).iter(f"{SVG}path")]
    assert set(lines) == {"M46 29V20H72", "M46 29V38H72", "M20 42.5V29H46", "M20 42.5V56H46"}


@given(st.integers(2, 200), st.integers(2, 40), st.integers(0, 100))
def test_a_large_tree_is_summarised_and_no_label_is_lost(n_labels: int, leaves: int, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(1, 1000, n_labels)
    names = [f"label{i}" for i in range(n_labels)]
    found = texts(draw_tree(build_huffman_tree(counts), names, counts, leaves))
    assert len(found) == min(n_labels, leaves)
    sizes = [int(text.split(" labels: ")[0]) if " labels: " in text else 1 for text, _, _ in found]
    assert sum(sizes) == n_labels
    shown = [text.split(" labels: ")[-1].removesuffix(", …").split(", ") for text, _, _ in found]
    assert all(len(row) == min(size, 5) for row, size in zip(shown, sizes, strict=True))
    assert all(counts[names.index(row[0])] == max(counts[names.index(name)] for name in row) for row in shown)
    assert max(counts[names.index(name)] for row in shown for name in row) == counts.max()
    rows = [y for _, _, y in found]
    assert len(set(rows)) == len(rows) and rows == sorted(rows)


def test_the_first_children_of_a_very_wide_root_are_drawn() -> None:
    tree = LabelTree(np.array([100, *[0] * 100]), np.array([-1, *range(100)]))
    found = [text for text, _, _ in texts(draw_tree(tree, [f"n{i}" for i in range(100)], leaves=10))]
    assert found == [*(f"n{i}" for i in range(10)), "… 90 more"]


def test_the_drawing_is_wide_enough_for_wide_characters() -> None:
    tree = LabelTree(np.array([2, 0, 0]), np.array([-1, 0, 1]))
    narrow, wide = (float(ET.fromstring(draw_tree(tree, [name, "sea"])).attrib["width"]) for name in ("iron", "銅鉄金銀"))
    assert wide - narrow == 4 * 7.5


def test_a_closed_node_lists_its_most_frequent_labels() -> None:
    tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 0, 1, 2]))
    counts = np.array([9, 3, 5], np.int32)
    assert tree.draw(["sea", "iron", "zinc"], counts=counts, depth=1) == "3 labels\n├─ 2 labels: zinc, iron\n└─ sea"
    assert [text for text, _, _ in texts(draw_tree(tree, ["sea", "iron", "zinc"], counts, leaves=2))] == [
        "2 labels: zinc, iron",
        "sea",
    ]
