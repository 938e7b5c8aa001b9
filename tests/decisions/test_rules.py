"""The search for the best labels for which constraints hold, against hand-computed results and a slow computation."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail import Constraints, Labels
from longtail.decisions.constraints import combine_constraints
from longtail.decisions.rules import Search
from longtail.kernels import Bools, Longs
from longtail.topk import NO_LABEL, TopK

NAMES = ("a", "b", "c", "d", "e", "f")
PARENTS = ((), ("a",), ("b",), ("a",), (), ("e",))  # a > b > c, a > d, e > f


def make_search(scores: Any, calls: list[int] | None = None) -> Search:
    """A search that ranks the scores [n, n_labels]; -inf is never found."""
    scores = np.asarray(scores, np.float32)

    def search(rows: Longs, k: int, allowed: Bools | None) -> TopK:
        part = scores[rows] if allowed is None else np.where(allowed, scores[rows], -np.inf)
        if calls is not None:
            calls.append(len(rows))
        n_allowed = scores.shape[1] if allowed is None else int(allowed.sum())
        ids = np.argsort(-part, axis=1, kind="stable")[:, : min(k, n_allowed)]
        best = np.take_along_axis(part, ids, 1)
        return TopK(np.where(np.isneginf(best), NO_LABEL, ids), best)

    return search


def find(scores: Any, k: int, seen: Bools | None = None, calls: list[int] | None = None, **constraints: Any) -> list[Any]:
    """The labels of each row with their scores, without padding."""
    rules = combine_constraints(Labels(NAMES, parents=PARENTS), [Constraints(**constraints)])
    assert rules is not None
    best = rules.search(make_search(scores, calls), len(scores), k, np.ones(6, bool) if seen is None else seen)
    rows = zip(best.ids.tolist(), best.scores.tolist(), strict=True)
    return [
        [(NAMES[i], round(score, 3)) for i, score in zip(ids, values, strict=True) if i != NO_LABEL] for ids, values in rows
    ]


ROW = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]


def test_denied_labels_make_room_for_others() -> None:
    assert find([ROW], 2, deny=["a"]) == [[("b", 0.8), ("c", 0.7)]]


def test_only_the_best_of_a_group_stays_and_others_follow() -> None:
    assert find([ROW], 3, at_most_one=[["a", "b", "c"]]) == [[("a", 0.9), ("d", 0.6), ("e", 0.5)]]
    assert find([ROW], 3, at_most_one=[["a", "b"], ["b", "c"]]) == [[("a", 0.9), ("c", 0.7), ("d", 0.6)]]
    assert find([ROW], 3, at_most_one=[["?"]]) == [[("a", 0.9)]]  # nothing else is left


def test_the_search_goes_deeper_only_for_samples_that_lack_labels() -> None:
    calls: list[int] = []
    found = find([ROW, ROW[::-1]], 2, calls=calls, at_most_one=[["a", "b", "c"]])
    assert found == [[("a", 0.9), ("d", 0.6)], [("f", 0.9), ("e", 0.8)]] and calls == [2, 1]


def test_required_labels_keep_their_scores_and_replace_the_last() -> None:
    assert find([ROW], 3, required=["f"]) == [[("a", 0.9), ("b", 0.8), ("f", 0.4)]]
    assert find([ROW], 3, required=["b"]) == [[("a", 0.9), ("b", 0.8), ("c", 0.7)]]
    assert find([ROW], 1, required=["e", "f"]) == [[("e", 0.5), ("f", 0.4)]]  # more than k
    assert find([ROW], 2, allow=["c"], required=["f"]) == [[("c", 0.7), ("f", 0.4)]]


def test_a_required_label_that_is_never_predicted_comes_last() -> None:
    seen = np.array(NAMES) != "f"
    never = [*ROW[:5], -np.inf]
    assert find([never], 2, seen, required=["f"]) == [[("a", 0.9), ("f", 0.0)]]
    margins = [0.5, -1, -2, -3, -4, -np.inf]
    assert find([margins], 3, seen, required=["f"]) == [[("a", 0.5), ("b", -1.0), ("f", -2.0)]]  # as the third label


def test_the_required_label_of_a_group_is_the_one_that_stays() -> None:
    assert find([ROW], 2, required=["c"], at_most_one=[["a", "b", "c"]]) == [[("c", 0.7), ("d", 0.6)]]


def test_parents_get_the_score_of_their_best_child() -> None:
    low_parents = [0.1, 0.2, 0.9, 0.3, 0.05, 0.4]  # c is far better than its parents b and a
    assert find([low_parents], 4, with_parents=True) == [[("a", 0.9), ("b", 0.9), ("c", 0.9), ("e", 0.4)]]
    assert find([ROW], 3, with_parents=True) == [[("a", 0.9), ("b", 0.8), ("c", 0.7)]]  # scores that agree stay


def test_parents_that_may_not_be_predicted_are_not_added() -> None:
    low_parents = [0.1, 0.2, 0.9, 0.3, 0.05, 0.4]
    assert find([low_parents], 2, deny=["b"], with_parents=True) == [[("a", 0.9), ("c", 0.9)]]
    assert find([low_parents], 3, allow=["c", "f"], with_parents=True) == [[("c", 0.9), ("f", 0.4)]]


def test_a_parent_without_samples_is_added() -> None:
    never = [-np.inf, 0.2, 0.9, 0.3, 0.05, 0.4]
    assert find([never], 3, np.array(NAMES) != "a", with_parents=True) == [[("a", 0.9), ("b", 0.9), ("c", 0.9)]]


def test_a_required_label_comes_with_its_parents() -> None:
    low = [0.3, 0.2, 0.1, 0.6, 0.9, 0.8]
    assert find([low], 4, required=["c"], with_parents=True) == [[("e", 0.9), ("a", 0.6), ("b", 0.1), ("c", 0.1)]]
    assert [name for name, _ in find([low], 1, required=["c"], with_parents=True)[0]] == ["a", "b", "c"]
    assert [name for name, _ in find([low], 2, required=["c"], deny=["b"], with_parents=True)[0]] == ["a", "c"]


def complete(sets: list[list[int]], scores: list[float], **constraints: Any) -> list[str]:
    """The names of a set of labels after ``complete``."""
    rules = combine_constraints(Labels(NAMES, parents=PARENTS), [Constraints(**constraints)])
    assert rules is not None
    found = rules.search(make_search([scores]), 1, max(len(rules.required), 1), np.ones(6, bool))
    best = rules.complete(TopK(sets, np.take([*scores, -np.inf], sets)), found)
    return [NAMES[i] for i in best.ids[0] if i != NO_LABEL]


def test_sets_are_completed_by_required_labels_and_parents() -> None:
    assert complete([[0, NO_LABEL]], ROW, required=["f"]) == ["a", "f"]
    assert complete([[0, 5]], ROW, required=["f"]) == ["a", "f"]
    assert complete([[NO_LABEL]], ROW, required=["c"], with_parents=True) == ["a", "b", "c"]
    assert complete([[5, 2]], ROW, with_parents=True) == ["a", "b", "c", "e", "f"]
    assert complete([[5, 2]], ROW, with_parents=True, deny=["b"]) == ["a", "c", "e", "f"]


def test_a_required_label_excludes_others_before_a_set_is_completed() -> None:
    rules = combine_constraints(Labels(NAMES), [Constraints(required=["d"], at_most_one=[["a", "d"]])])
    assert rules is not None
    best = rules.without_required().search(make_search([ROW]), 1, 2, np.ones(6, bool))
    assert best.ids.tolist() == [[1, 2]]  # neither "a", which "d" excludes, nor "d" in place of a better label


def solve(scores: list[float], k: int, rules: Constraints) -> list[tuple[str, float]]:
    """A slow computation, label by label, for scores without ties."""
    allowed = [n for n in NAMES if (rules.allow is None or n in rules.allow or n in rules.required) and n not in rules.deny]
    ranked = sorted(allowed, key=lambda n: -scores[NAMES.index(n)])
    kept: list[str] = []
    for name in ranked:
        rivals = {other for group in rules.at_most_one if name in group for other in group}
        if name in rules.required or not rivals & ({*kept, *rules.required} - {name}):
            kept.append(name)
    others = [name for name in kept if name not in rules.required][: max(k - len(rules.required), 0)]
    chosen = [name for name in kept if name in {*others, *rules.required}]
    return [(name, round(scores[NAMES.index(name)], 3)) for name in chosen]


@given(
    st.permutations([0.1, 0.25, 0.4, 0.55, 0.7, 0.85]),
    st.integers(1, 6),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.sets(st.sampled_from(NAMES), max_size=1),
    st.lists(st.sets(st.sampled_from(NAMES), min_size=2).map(sorted), max_size=2),
)
def test_the_result_is_that_of_a_slow_computation(
    scores: list[float], k: int, allow: set[str], required: set[str], groups: list[list[str]]
) -> None:
    rules = Constraints(allow=sorted(allow), required=sorted(required), at_most_one=groups)
    expected = solve(scores, k, rules)
    assert find([scores], k, allow=rules.allow, required=rules.required, at_most_one=groups) == [expected]


@given(
    st.lists(st.integers(0, 9), min_size=6, max_size=6),
    st.integers(1, 6),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
)
def test_with_parents_every_label_comes_with_its_parents(values: list[int], k: int, required: list[str]) -> None:
    (found,) = find([[value / 10 for value in values]], k, required=required, with_parents=True)
    names = [name for name, _ in found]
    assert len(found) >= k and set(required) <= set(names)
    assert len(found) == k or required
    assert all(parent in names for name in names for parent in PARENTS[NAMES.index(name)])
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


def test_k_above_the_number_of_labels() -> None:
    assert len(find([ROW], 100, with_parents=True)[0]) == 6
    assert [name for name, _ in find([ROW], 100, at_most_one=[["a", "b"]])[0]] == ["a", "c", "d", "e", "f"]
