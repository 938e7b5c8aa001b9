"""Similarity of label names and texts: hand-computed cases, and what must hold for any names."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import Labels
from longtail.features import name_similarity
from longtail.features.label_names import list_forms
from longtail.features.name_similarity import EVIDENCE, MAX_LABELS_PER_FORM, NameIndex, Rarity, hash_parts, hash_word

needs_vectors = pytest.mark.skipif(find_spec("wordllama") is None, reason="wordllama is not installed")
WORDS, PARTS, COVERAGE, VECTORS, SIMILAR = range(len(EVIDENCE))
TEXTS = ["the red sea", "the black sea", "a red rose", "the end"]


def compare(labels: Labels, text: str, vectors: str | None = None) -> np.ndarray:
    index = NameIndex(labels, np.arange(len(labels), dtype=np.int32), Rarity.count(TEXTS), vectors)
    return index.compare([text])[0]


def test_the_evidence_of_words_is_the_cosine_of_tfidf() -> None:
    idf = {"red": np.log(5 / 3) + 1, "sea": np.log(5 / 3) + 1, "dead": np.log(5) + 1}
    found = compare(Labels(("dead sea",)), "red seas")
    length = np.hypot(idf["dead"], idf["sea"]) * np.hypot(idf["red"], idf["sea"])
    assert found[0, WORDS] == pytest.approx(idf["sea"] ** 2 / length, rel=1e-5)
    assert found[0, COVERAGE] == pytest.approx(idf["sea"] ** 2 / (idf["dead"] ** 2 + idf["sea"] ** 2), rel=1e-5)


def test_a_whole_name_is_covered_and_parts_of_words_are_found() -> None:
    found = compare(Labels(("Red Sea", "seaside", "lake")), "sailing on the red sea")
    assert found[:, COVERAGE].tolist() == [pytest.approx(1), 0, 0]
    assert found[1, WORDS] == 0 < found[1, PARTS] < found[0, PARTS] and found[2, PARTS] == 0
    assert not found[:, [VECTORS, SIMILAR]].any()


def test_other_names_former_names_and_descriptions_count() -> None:
    labels = Labels(
        ("a1", "b1", "c1"), alt_names=(("rose",), (), ()), former_names=((), ("rose",), ()), texts=("", "", "a red rose")
    )
    found = compare(labels, "rose")
    assert found[0, COVERAGE] == found[1, COVERAGE] == pytest.approx(1)
    assert 0 < found[2, COVERAGE] < 1


def test_forms_that_many_labels_share_count_only_as_names() -> None:
    names = tuple(f"{city} -- Fiction" for city in "abcdefghij"[: MAX_LABELS_PER_FORM + 1])
    found = compare(Labels((*names, "Fiction")), "fiction")
    assert (found[:-1, COVERAGE] < 1).all() and found[-1, COVERAGE] == pytest.approx(1)


@pytest.mark.filterwarnings("ignore")
@needs_vectors
def test_static_vectors_find_similar_words() -> None:
    found = compare(Labels(("ships", "bread")), "a boat in the harbour", "wordllama")
    assert found[0, WORDS] == 0
    assert found[0, VECTORS] > found[1, VECTORS] and found[0, SIMILAR] > found[1, SIMILAR]
    same = compare(Labels(("boat",)), "boat", "wordllama")
    assert same[0, [VECTORS, SIMILAR]] == pytest.approx([1, 1], abs=1e-5)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5, unique=True), st.text(max_size=30))
def test_evidence_is_between_0_and_1(names: list[str], text: str) -> None:
    found = compare(Labels(tuple(names)), text)
    assert found.shape == (len(names), len(EVIDENCE))
    assert np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1 + 1e-5


def test_hashes_are_the_same_on_every_machine() -> None:
    assert hash_word("sea") == 114_999
    assert len(hash_parts("sea")) == 3 + 2 + 1  # <se sea ea>, <sea sea>, <sea>
    assert name_similarity.N_BUCKETS == 2**18


def test_a_name_has_forms() -> None:
    assert list_forms("Java (island)") == [["java"], ["java", "island"]]
    assert list_forms("use::editing") == [["editing"], ["use"], ["use", "editing"]]
    assert list_forms("…") == []
