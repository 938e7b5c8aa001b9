"""The separator of labels is what the column as a whole supports, never what occurs in one row."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.data.label_cells import find_separator, split_cells
from longtail.errors import DataError

LABELS = ["fruit", "sea", "metal", "music", "red", "old"]


def draw(separator: str, n: int = 60, most: int = 3) -> list[str]:
    rng = random.Random(1)
    return [separator.join(rng.sample(LABELS, rng.randint(1, most))) for _ in range(n)]


@pytest.mark.parametrize("separator", ["|", ";", ",", "\t", "; ", ", "])
def test_lists_that_recur_are_split(separator: str) -> None:
    cells = draw(separator)
    assert find_separator(cells) == separator.strip(" ")
    assert split_cells(cells).labels == [cell.split(separator) for cell in cells]


@pytest.mark.parametrize("odd", ["fruit|sea", "fruit; sea", "sea,red"])
def test_one_row_does_not_decide(odd: str) -> None:
    cells = draw("|", most=1)
    cells[17] = odd
    found = split_cells(cells)
    assert found.labels[17] == [odd] and found.separator == "none" and "1 contain" in found.note


def test_one_odd_character_does_not_change_the_separator_of_the_column() -> None:
    cells = draw(", ")
    cells[17] += " | x"
    assert find_separator(cells) == ","
    cells = draw(";")
    cells[3], cells[9] = "fruit, fresh", "fruit, dried"
    assert split_cells(cells).labels[3] == ["fruit, fresh"]


@pytest.mark.parametrize(
    "names",
    [
        ["Smith, John", "Smith, Mary", "Brown, John", "Brown, Mary"],
        ["Women", "Women, Black", "Women, Young", "Men"],
        ["New York, NY", "Austin, TX", "Albany, NY"],
    ],
)
def test_commas_inside_names_survive(names: list[str]) -> None:
    cells = names * 15
    assert split_cells(cells).labels == [[cell] for cell in cells]
    both = [f"{a}; {b}" for a, b in pairwise(cells)]
    assert split_cells(both).labels == [cell.split("; ") for cell in both]


def test_lists_of_different_lengths_are_not_names() -> None:
    rng = random.Random(0)
    cells = [", ".join(f"word {rng.randrange(10**6)}" for _ in range(rng.randint(1, 6))) for _ in range(60)]
    assert find_separator(cells) == ","  # though nothing recurs
    with pytest.raises(DataError, match="--separator"):
        find_separator(["a, b", "c, d, e", "f", "g, h", "i, j, k, l", "m, n, o"])


def test_few_cells() -> None:
    assert split_cells(["Smith, John", "Brown", "Miller"]).labels == [["Smith, John"], ["Brown"], ["Miller"]]
    assert split_cells(["fruit|red", "sea", ""]).labels == [["fruit", "red"], ["sea"], []]
    assert split_cells(["fruit;green", "flower", "fruit", "flower"]).labels[0] == ["fruit", "green"]
    assert split_cells(["a,b"]).labels == [["a", "b"]]
    with pytest.raises(DataError, match=r'whether "," separates labels, as in the cell "red, ripe".*Set --separator'):
        split_cells(["red, ripe", "old, grey"])


def test_a_list_that_never_varies_is_a_name() -> None:
    cells = ["economy; finance", "history", "sports", "history"] * 10
    assert split_cells(cells).labels[0] == ["economy; finance"]
    with pytest.raises(DataError, match="--separator"):
        split_cells(["economy; finance"] * 10 + ["history"] * 5)
    assert split_cells([*cells, "economy; sports"]).labels[0] == ["economy", "finance"]


def test_mixed_evidence_is_an_error() -> None:
    cells = [f"name {i}, place {i}" for i in range(30)] + ["a, b", "b, a", "a, c", "c, a", "b"] * 4
    with pytest.raises(DataError, match=r"train.csv: it is not clear whether .* Set --separator"):
        split_cells(cells, where="train.csv")
    assert len(split_cells(cells, ",").labels[0]) == 2 and len(split_cells(cells, "none").labels[0]) == 1


def test_lists_and_uris() -> None:
    assert split_cells(['["a", "b, c"]', "", "[]"]).labels == [["a", "b, c"], [], []]
    assert split_cells(["['a', 'b']", '["it\'s"]', "[1, 2]"]).labels == [["a", "b"], ["it's"], ["1", "2"]]
    assert split_cells(["<c#><.net>", "<c#>"]).labels == [["c#", ".net"], ["c#"]]
    assert split_cells(["[a]", "b"]).labels == [["[a]"], ["b"]]


NAME = st.text("abcdefgh ", min_size=1, max_size=6).map(str.strip).filter(bool)


@given(st.lists(st.lists(NAME, max_size=4), min_size=1), st.sampled_from("|;,\t"))
def test_a_given_separator_gives_the_labels_back(rows: list[list[str]], separator: str) -> None:
    assert split_cells([separator.join(row) for row in rows], separator).labels == rows


@given(st.lists(st.text(max_size=12)))
def test_nothing_but_blank_is_ever_lost(cells: list[str]) -> None:
    try:
        found = split_cells(cells)
    except DataError as error:
        assert "--separator" in str(error)
        return
    assert len(found.labels) == len(cells)
    assert all(
        bool(re.sub(r"[|;,\s]", "", cell)) <= bool(names) or "[" in cell
        for cell, names in zip(cells, found.labels, strict=True)
    )
