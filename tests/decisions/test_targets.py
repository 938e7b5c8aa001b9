"""Targets: how they are written, and how sets are cut out of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.decisions.targets import Target, list_targets
from longtail.errors import SettingError
from longtail.tagger.sets import resolve_target
from longtail.topk import NO_LABEL, TopK, keep_above, keep_labels


@pytest.mark.parametrize("text", [*list_targets(), "precision=0.95", "count=2.5", "threshold=-1"])
def test_a_target_is_written_as_it_is_read(text: str) -> None:
    assert str(Target.parse(text)) == text
    assert Target.parse(Target.parse(text)) == Target.parse(text)


def test_case_and_spaces_do_not_matter() -> None:
    assert Target.parse(" Precision = 0.90") == Target("precision", 0.9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("micro", 'no target "micro". Did you mean "micro-f1"'),
        ("precison=0.9", 'Did you mean "precision=0.9"'),
        ("", "there is no target"),
        ("micro-f1=0.5", "has no value"),
        ("precision", "needs a value. Write precision=0.9"),
        ("precision=", "is not a number"),
        ("recall=many", '"many" in the target "recall=many" is not a number'),
        ("precision=90", "precision is 90. It must be a number between 0 and 1"),
        ("recall=1", "between 0 and 1"),
        ("recall=nan", "between 0 and 1"),
        ("count=0", "above 0"),
        ("count=-3", "above 0"),
        ("threshold=inf", "It must be a number"),
    ],
)
def test_a_target_that_cannot_be_read_is_an_error_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message.replace("(", r"\(").replace("?", r"\?")):
        Target.parse(text)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (0.5, r"the target is 0.5. Pass threshold=0.5"),
        (0, r"the target is 0. Pass threshold=0"),
        (["recall"], r"Pass one of expected-f1"),
    ],
)
def test_a_target_that_is_no_text_is_an_error_with_a_hint(target: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        resolve_target(target, None, True, 0.5)


@given(st.integers(0, 10_000))
def test_sets_keep_the_labels_of_a_mask_in_their_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    ids = np.array([random.permutation(9)[:5] for _ in range(4)])
    ids[0, 3:] = NO_LABEL
    topk = TopK(ids, np.where(ids == NO_LABEL, -np.inf, -np.sort(-random.random((4, 5)))))
    mask = random.random((4, 5)) < 0.5
    sets = keep_labels(topk, mask)
    for row in range(4):
        kept = mask[row] & (ids[row] != NO_LABEL)
        n = int(kept.sum())
        assert sets.ids[row, :n].tolist() == ids[row][kept].tolist()
        assert sets.scores[row, :n].tolist() == topk.scores[row][kept].tolist()
        assert (sets.ids[row, n:] == NO_LABEL).all() and np.isneginf(sets.scores[row, n:]).all()


def test_a_threshold_keeps_equal_scores_and_never_padding() -> None:
    topk = TopK(np.array([[3, 1, NO_LABEL], [2, 0, 1]]), np.array([[0.5, 0.2, -np.inf], [0.4, 0.3, 0.1]]))
    assert keep_above(topk, 0.5).ids.tolist() == [[3], [NO_LABEL]]
    assert keep_above(topk, -1e30).ids.tolist() == topk.ids.tolist()
    assert keep_above(topk, 2.0).ids.tolist() == [[NO_LABEL], [NO_LABEL]]
