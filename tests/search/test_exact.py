from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from longtail.errors import DataError, SettingError
from longtail.kernels import Floats
from longtail.search import exact
from longtail.search.exact import ExactIndex, inner_product, search_blockwise
from longtail.search.index import LabelIndex
from longtail.search.topk_kernels import make_empty_topk
from longtail.topk import TopK

NUMBERS = st.floats(-(2.0**49), 2.0**49, width=32) | st.integers(-3, 3).map(float)  # the latter for ties


def tables(d: int) -> st.SearchStrategy[Floats]:
    return st.integers(1, 40).flatmap(lambda n: arrays(np.float32, (n, d), elements=NUMBERS))


def brute_force(V: Floats, Q: Floats, k: int) -> TopK:
    """All scores by the same inner product, sorted by score, then id."""
    S = np.array([[inner_product(q, v) for v in V] for q in Q], np.float32)
    order = np.argsort(-S, axis=1, kind="stable")[:, :k]
    return TopK(order, np.take_along_axis(S, order, axis=1))


def same(first: TopK, second: TopK) -> bool:
    return np.array_equal(first.ids, second.ids) and np.array_equal(first.scores, second.scores)


@given(st.integers(1, 5).flatmap(lambda d: st.tuples(tables(d), tables(d))), st.integers(1, 50))
def test_single_and_blockwise_search_are_bit_identical_to_brute_force(VQ: tuple[Floats, Floats], k: int) -> None:
    V, Q = VQ
    k = min(k, len(V))
    expected = brute_force(V, Q, k)
    index = ExactIndex.build(V)
    assert same(search_blockwise(V, Q, k), expected)
    for i in range(len(Q)):
        assert same(index.topk(Q[i : i + 1], k), TopK(expected.ids[i : i + 1], expected.scores[i : i + 1]))


@pytest.mark.parametrize("d", [1, 63, 256, 1000])
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e10])
def test_exact_for_usual_dimensions_and_extreme_values(d: int, size: float) -> None:
    random = np.random.default_rng(d)
    V = (size * random.standard_normal((300, d)) * random.lognormal(size=(300, 1))).astype(np.float32)
    Q = (V[:6] + size * random.standard_normal((6, d))).astype(np.float32)
    expected = brute_force(V, Q, 7)
    assert same(search_blockwise(V, Q, 7), expected)
    assert same(ExactIndex.build(V).topk(Q[:2], 7), TopK(expected.ids[:2], expected.scores[:2]))


def test_the_bound_skips_most_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the scores that the pure Python version of the kernel computes."""
    V = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)
    index, calls = ExactIndex.build(V), []
    monkeypatch.setattr(exact, "inner_product", lambda a, b: calls.append(0) or inner_product(a, b))  # type: ignore[func-returns-value]
    q_codes, step, norm, lost = exact.round_query(V[0])
    ids, scores = make_empty_topk(1, 5)
    rows = (V, index.codes, index.scale, index.error)
    exact.scan_labels.py_func(V[0], q_codes, step, norm, lost, index.every_label, *rows, ids[0], scores[0])  # type: ignore[attr-defined]
    assert ids[0, 0] == 0 and len(calls) < 100


@pytest.mark.parametrize("n_queries", [1, 5, 257])
def test_the_block_size_does_not_change_results(n_queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    V, Q = random.standard_normal((26, 4)).astype(np.float32), random.standard_normal((n_queries, 4)).astype(np.float32)
    whole = search_blockwise(V, Q, 26)
    for size in (1, 5, 13, 25, 26, 27):
        monkeypatch.setattr(exact, "_LABELS_PER_BLOCK", size)
        assert same(search_blockwise(V, Q, 26), whole)


def test_threads_and_batches_do_not_change_results() -> None:
    random = np.random.default_rng(0)
    V, Q = random.standard_normal((500, 32)).astype(np.float32), random.standard_normal((700, 32)).astype(np.float32)
    index = LabelIndex.build(V)
    one = index.topk(Q, 10, threads=1)
    assert same(index.topk(Q, 10, threads=3), one)
    alone = [index.topk(Q[i : i + 1], 10) for i in range(len(Q))]
    assert same(TopK(np.vstack([a.ids for a in alone]), np.vstack([a.scores for a in alone])), one)


def test_ties_are_broken_by_the_smaller_id() -> None:
    V = np.array([[0, 1], [1, 0], [1, 0], [0, 1], [1, 0]], np.float32)
    for n in (1, 9):
        best = LabelIndex.build(V).topk(np.tile([1.0, 0.0], (n, 1)), 4)
        assert best.ids.tolist() == [[1, 2, 4, 0]] * n


def test_zero_vectors_large_k_and_no_queries() -> None:
    V = np.array([[0, 0], [3, 4]], np.float32)
    index = LabelIndex.build(V)
    assert index.topk([[0, 0]], 2).ids.tolist() == [[0, 1]]  # a zero query: all scores are 0
    assert index.topk([[-1, -1]], 9).ids.tolist() == [[0, 1]]  # a zero label vector; k above the number of labels
    assert index.topk(np.empty((0, 2)), 1).ids.shape == (0, 1)
    assert LabelIndex.build([[2.0]]).topk([[3.0]], 1).scores.tolist() == [[6.0]]


def test_state_round_trip() -> None:
    V = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    index = LabelIndex.build(V)
    assert same(LabelIndex.from_state(index.state()).topk(V, 5), index.topk(V, 5))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e20])
def test_values_must_be_finite_and_not_too_large(bad: float) -> None:
    V = np.ones((3, 2), np.float32)
    V[1, 1] = bad
    with pytest.raises(DataError, match="row 1"):
        LabelIndex.build(V)
    with pytest.raises(DataError, match="row 1"):
        LabelIndex.build(np.ones((3, 2))).topk(V, 1)


def test_invalid_input_is_rejected() -> None:
    index = LabelIndex.build(np.ones((3, 2)))
    with pytest.raises(DataError, match="dimension 3"):
        index.topk(np.ones((1, 3)), 1)
    with pytest.raises(DataError, match="1 dimensions"):
        index.topk(np.ones(2), 1)
    with pytest.raises(SettingError, match="k is 0"):
        index.topk(np.ones((1, 2)), 0)
    with pytest.raises(SettingError, match="threads is 0"):
        index.topk(np.ones((999, 2)), 1, threads=0)
    with pytest.raises(SettingError, match="recall is 0"):
        LabelIndex.build(np.ones((3, 2)), recall=0)
    for shape in ((0, 2), (2, 0)):
        with pytest.raises(DataError, match="shape"):
            LabelIndex.build(np.ones(shape))


@given(
    st.integers(1, 5).flatmap(lambda d: st.tuples(tables(d), tables(d))),
    st.sets(st.integers(0, 39), min_size=1),
    st.integers(1, 50),
)
def test_the_search_among_candidates_is_that_of_an_index_of_these(
    VQ: tuple[Floats, Floats], chosen: set[int], k: int
) -> None:
    V, Q = VQ
    candidates = np.array(sorted({label % len(V) for label in chosen}))
    k = min(k, len(candidates))
    part = brute_force(V[candidates], Q, k)
    expected = TopK(candidates[part.ids], part.scores)
    index = ExactIndex.build(V)
    assert same(search_blockwise(V, Q, k, candidates=candidates), expected)
    for i in range(len(Q)):
        one = index.topk(Q[i : i + 1], k, candidates=candidates)
        assert same(one, TopK(expected.ids[i : i + 1], expected.scores[i : i + 1]))
