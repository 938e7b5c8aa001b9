"""A new version of a vocabulary: what it changes, and what follows when it is applied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Dataset, LabelEditor, Labels, Tagger
from longtail.data.vocabulary import format_vocabulary
from longtail.errors import DataError
from longtail.tagger.register import Register
from longtail.tagger.vocabulary_diff import Moved, Renamed, Updated, apply_vocabulary, compare_vocabulary, match_labels
from longtail.topk import NO_LABEL

OLD = Labels(
    ("animals", "cats", "dogs", "plants", "sea"),
    uris=("x:1", "x:2", "x:3", "x:4", "x:5"),
    parents=((), ("animals",), ("animals",), (), ()),
    texts=("", "purr", "bark", "", ""),
)
NEW = Labels(  # in another order
    ("beasts", "dogs", "felines", "life", "plants"),
    uris=("x:1", "x:3", "x:2", "x:9", "x:4"),
    parents=(("life",), ("beasts",), ("beasts",), (), ("life",)),
    texts=("", "woof", "purr", "", ""),
)
COUNTS = np.array([4, 3, 2, 0, 5], np.int32)


def test_every_kind_of_change_is_found() -> None:
    diff = compare_vocabulary(Register.from_labels(OLD), NEW, COUNTS)
    assert diff.renamed == (Renamed("animals", "beasts"), Renamed("cats", "felines"))
    assert diff.moved == (
        Moved("beasts", (), ("life",)),
        Moved("plants", (), ("life",)),
    )  # not those whose parent is renamed
    assert (diff.gone, diff.new, diff.restored) == (("sea",), ("life",), ())
    assert diff.updated == (Updated("dogs", ("description",)),) and diff.unchanged == 0
    assert diff.needs_training == ("life", "plants")
    assert str(diff) == "2 renamed, 2 moved, 1 gone, 1 new, 1 updated"
    assert diff.to_json()["updated"] == [{"label": "dogs", "what": ("description",)}]
    assert diff.to_json()["moved"][0] == {"label": "beasts", "old": (), "new": ("life",)}


def test_applying_it_takes_everything_over_and_keeps_ids() -> None:
    register, ids = apply_vocabulary(Register.from_labels(OLD), NEW)
    labels = register.labels
    assert labels.names == ("beasts", "felines", "dogs", "plants", "sea", "life")
    assert labels.uris == ("x:1", "x:2", "x:3", "x:4", "x:5", "x:9")
    assert labels.parents == (("life",), ("beasts",), ("beasts",), ("life",), (), ())
    assert labels.texts == ("", "purr", "woof", "", "", "")
    assert labels.former_names == (("animals",), ("cats",), (), (), (), ())
    assert register.target.tolist() == [0, 1, 2, 3, NO_LABEL, 5] and ids.tolist() == [0, 2, 1, 5, 3]
    again = compare_vocabulary(register, NEW, COUNTS)
    assert again.is_empty and again.unchanged == 5 and str(again) == "nothing changes"


def test_a_label_that_comes_back_is_restored() -> None:
    register, _ = apply_vocabulary(Register.from_labels(OLD), NEW)
    diff = compare_vocabulary(register, OLD, COUNTS)
    assert diff.restored == ("sea",) and diff.gone == ("life",)
    back, _ = apply_vocabulary(register, OLD)
    assert back.labels.names == (*OLD.names, "life") and back.is_active.tolist() == [True] * 5 + [False]


def test_names_can_be_exchanged_and_given_to_new_labels() -> None:
    old = Labels(("a", "b", "c"), uris=("x:1", "x:2", "x:3"))
    register, _ = apply_vocabulary(Register.from_labels(old), Labels(("b", "a", "c"), uris=("x:1", "x:2", "x:4")))
    assert register.labels.names == ("b", "a", "c (retired)", "c")
    assert register.target.tolist() == [0, 1, NO_LABEL, 3]
    assert register.labels.keys["x:3"] == 2


def test_merged_labels_stay_merged(train: Dataset) -> None:
    tagger = Tagger("popularity").fit(train)
    editor = LabelEditor(tagger)
    editor.merge("sea", into="metal")
    diff = editor.sync(Labels((*train.labels.names, "birds")))
    assert diff.new == ("birds",) and not diff.gone and not diff.restored
    assert "sea" not in {tag.label for tag in tagger.predict(["x"], 9)[0]}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (Labels(("a", "b")), Labels(("b", "a")), [1, 0]),
        (Labels(("a",), uris=("x:1",)), Labels(("a",), uris=("x:2",)), [None]),  # another URI: another label
        (Labels(("a",)), Labels(("a",), uris=("x:2",)), [0]),
        (Labels(("a",), notations=("1.2",)), Labels(("b",), notations=("1.2",)), [0]),
        (Labels(("a",), alt_names=(("b",),)), Labels(("b",)), [0]),
        (Labels(("a",), former_names=(("b",),)), Labels(("b",)), [0]),
        (Labels(("a",), alt_names=(("b",),)), Labels(("b", "a")), [None, 0]),  # the name counts more
        (Labels(("a", "b"), alt_names=(("c",), ("c",))), Labels(("c",)), [None]),  # shared by two
    ],
)
def test_labels_are_matched_by_the_surest_evidence(old: Labels, new: Labels, expected: list[int | None]) -> None:
    assert match_labels(old, new) == expected


@given(st.permutations(range(6)), st.sets(st.integers(0, 5), min_size=1), st.lists(st.booleans(), min_size=6, max_size=6))
def test_a_match_by_uri_is_exact(order: list[int], kept: set[int], renamed: list[bool]) -> None:
    old = Labels(tuple("abcdef"), uris=tuple(f"x:{i}" for i in range(6)))
    ids = [i for i in order if i in kept]
    new = Labels(tuple(f"new {i}" if renamed[i] else old.names[i] for i in ids), uris=tuple(f"x:{i}" for i in ids))
    register, found = apply_vocabulary(Register.from_labels(old), new)
    assert found.tolist() == ids
    assert np.flatnonzero(register.is_active).tolist() == sorted(kept)
    diff = compare_vocabulary(Register.from_labels(old), new, np.ones(6, np.int32))
    assert len(diff.renamed) == sum(renamed[i] for i in ids) and len(diff.gone) == 6 - len(ids) and not diff.new


def test_a_vocabulary_without_a_common_label_is_refused() -> None:
    register = Register.from_labels(OLD)
    with pytest.raises(DataError, match=r'v\.tsv: the vocabulary has no label of the tagger .*"animals".*"x"'):
        compare_vocabulary(register, Labels(("x", "y")), COUNTS, "v.tsv")
    with pytest.raises(DataError, match="no label of the tagger"):
        apply_vocabulary(register, Labels(("x", "y")))


def test_columns_that_the_vocabulary_does_not_have_are_kept() -> None:
    register, _ = apply_vocabulary(Register.from_labels(OLD), Labels(OLD.names))
    assert register.labels == OLD
    fuller, _ = apply_vocabulary(Register.from_labels(Labels(OLD.names)), OLD)
    assert fuller.labels == OLD


def test_skos_is_followed_from_disk(train: Dataset, tmp_path: Path) -> None:
    names = train.labels.names
    labels = Labels(names, uris=tuple(f"http://x/{name}" for name in names))
    Tagger("popularity").fit(Dataset(train.Y, labels, texts=train.texts)).save(tmp_path / "model")
    concepts = "".join(
        f'<http://x/{name}> a skos:Concept ; skos:prefLabel "{name}s"@en, "le {name}"@fr ; skos:altLabel "{name}let"@en .\n'
        for name in (*names[1:], "bird")
    )
    (tmp_path / "v.ttl").write_text(f"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n{concepts}")
    editor = LabelEditor(tmp_path / "model")
    assert editor.diff(tmp_path / "v.ttl") == editor.sync(tmp_path / "v.ttl", reason="version 2")
    assert editor.notes  # about the language
    tagger = longtail.load(tmp_path / "model")
    active = {name for name, on in zip(tagger.labels.names, tagger.register.is_active, strict=True) if on}
    assert active == {f"{name}s" for name in (*names[1:], "bird")}
    assert tagger.register.history[-1].summary == "3 renamed, 1 gone, 1 new, 3 updated, from v.ttl"
    assert editor.sync(tmp_path / "v.ttl").is_empty and len(editor.history) == 1  # nothing to log
    assert editor.diff(tmp_path / "v.ttl", language="fr").renamed


def test_former_names_survive_a_vocabulary_file(tmp_path: Path) -> None:
    register, _ = apply_vocabulary(Register.from_labels(OLD), NEW)
    (tmp_path / "v.tsv").write_text(format_vocabulary(register.labels))
    assert longtail.read_vocabulary(tmp_path / "v.tsv") == (register.labels, ())
