from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.labelspace.grow import huffman_tree
from longtail.labelspace.tree import LabelTree
from longtail.report.tree_svg import tree_svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[tuple[str, float, float]]:
    """What is written, from top to bottom: text, x, y."""
    found = ET.fromstring(picture).iter(f"{SVG}text")
    return [(node.text or "", float(node.attrib["x"]), float(node.attrib["y"])) for node in found]


def test_a_small_tree_by_hand() -> None:
    """sea stands beside {iron, zinc}; each line goes from the parent's row to the child's."""
    tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 0, 1, 2]))
    picture = tree_svg(tree, ["sea", "iron & steel", "zinc"])
    assert [text for text, _, _ in texts(picture)] == ["iron & steel", "zinc", "sea"]
    (x_iron, y_iron), (x_zinc, y_zinc), (x_sea, y_sea) = ((x, y) for _, x, y in texts(picture))
    assert x_iron == x_zinc > x_sea and y_zinc - y_iron == y_sea - y_zinc == 18
    lines = [path.attrib["d"] for path in ET.fromstring(picture).iter(f"{SVG}path")]
    assert set(lines) == {"M46 29V20H72", "M46 29V38H72", "M20 42.5V29H46", "M20 42.5V56H46"}


@given(st.integers(2, 200), st.integers(2, 40), st.integers(0, 100))
def test_a_large_tree_is_summed_up_and_no_label_gets_lost(n_labels: int, leaves: int, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(1, 1000, n_labels)
    names = [f"label{i}" for i in range(n_labels)]
    found = texts(tree_svg(huffman_tree(counts), names, counts, leaves))
    assert len(found) == min(n_labels, leaves)
    sizes = [int(text.split(" labels: ")[0]) if " labels: " in text else 1 for text, _, _ in found]
    assert sum(sizes) == n_labels
    shown = [text.split(" labels: ")[-1].removesuffix(", …") for text, _, _ in found]
    assert max(counts[names.index(name)] for name in shown) == counts.max()
    rows = [y for _, _, y in found]
    assert len(set(rows)) == len(rows) and rows == sorted(rows)


def test_of_a_very_wide_root_the_first_children_are_drawn() -> None:
    tree = LabelTree(np.array([100, *[0] * 100]), np.array([-1, *range(100)]))
    found = [text for text, _, _ in texts(tree_svg(tree, [f"n{i}" for i in range(100)], leaves=10))]
    assert found == [*(f"n{i}" for i in range(10)), "… 90 more"]


def test_what_is_not_opened_tells_its_most_frequent_label() -> None:
    tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 0, 1, 2]))
    counts = np.array([9, 3, 5], np.int32)
    assert tree.drawn(["sea", "iron", "zinc"], counts=counts, depth=1) == "3 labels\n├─ 2 labels: zinc, …\n└─ sea"
    assert [text for text, _, _ in texts(tree_svg(tree, ["sea", "iron", "zinc"], counts, leaves=2))] == [
        "2 labels: zinc, …",
        "sea",
    ]
