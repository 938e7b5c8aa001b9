from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.kernels import Floats
from longtail.search.ann import CellIndex
from longtail.search.exact import inner_product, search_blockwise
from longtail.search.index import LabelIndex
from longtail.search.sign_codes import N_BIT_PLANES, count_ones, fill_planes, scan_codes
from longtail.topk import TopK


def make_clusters(n: int, d: int = 64, seed: int = 0) -> tuple[Floats, Floats]:
    """Label vectors around 50 centres, and queries near some of the labels."""
    random = np.random.default_rng(seed)
    V = random.standard_normal((50, d))[random.integers(0, 50, n)] + 0.5 * random.standard_normal((n, d))
    Q = V[random.integers(0, n, 200)] + 0.3 * random.standard_normal((200, d))
    return V.astype(np.float32), Q.astype(np.float32)


def compute_recall(found: TopK, truth: TopK) -> float:
    return float(np.mean([len(np.intersect1d(a, b)) / truth.k for a, b in zip(found.ids, truth.ids, strict=True)]))


@pytest.mark.parametrize("d", [16, 64, 100, 130])
@pytest.mark.parametrize("lengths", ["equal", "different"])
def test_recall_reaches_the_target(d: int, lengths: str) -> None:
    V, Q = make_clusters(6000, d)
    if lengths == "different":  # inner products then favour long vectors
        V *= np.random.default_rng(1).lognormal(0, 0.3, (len(V), 1)).astype(np.float32)
    index = CellIndex.build(V, recall=0.99)
    for k in (1, 10, 100):
        assert compute_recall(index.topk(Q, k), search_blockwise(V, Q, k)) > 0.985


def test_sample_queries_calibrate_how_far_to_search() -> None:
    V, _ = make_clusters(6000)
    far = np.random.default_rng(5).standard_normal((400, 64)).astype(np.float32)  # not near any cluster
    index = CellIndex.build(V, queries=far[:200])
    assert index.reach != CellIndex.build(V).reach
    assert compute_recall(index.topk(far[200:], 10), search_blockwise(V, far[200:], 10)) > 0.98


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 70), st.integers(1, 80))
def test_scores_are_exact_and_sorted(seed: int, n: int, d: int, k: int) -> None:
    random = np.random.default_rng(seed)
    V, Q = random.integers(-2, 3, (n, d)).astype(np.float32), random.integers(-2, 3, (5, d)).astype(np.float32)
    best = LabelIndex.build(V, exact_up_to=0, seed=seed).topk(Q, k)
    assert best.k == min(n, k)
    for q, ids, scores in zip(Q, best.ids, best.scores, strict=True):
        found = ids[ids >= 0]
        assert len(set(found.tolist())) == len(found)
        assert scores[ids >= 0].tolist() == [inner_product(q, V[label]) for label in found]
        order = list(zip(-scores, np.where(ids < 0, n, ids), strict=True))
        assert order == sorted(order)
    if k >= n:
        assert (np.sort(best.ids, axis=1) == np.arange(n)).all()  # all labels


def test_the_estimate_is_unbiased_with_the_stated_deviation() -> None:
    """RaBitQ, theorem 3.2: over random rotations the mean is exact and the standard deviation is 0.6 times the factor."""
    random = np.random.default_rng(0)
    n, d = 4000, 128
    V = random.standard_normal((n, d)).astype(np.float32)
    index = CellIndex.build(V)
    q = random.standard_normal(d).astype(np.float32)
    q /= np.linalg.norm(q)
    planes = np.empty((N_BIT_PLANES, d // 64), np.uint64)
    step, total = fill_planes(q, index.rotation, planes)
    errors = []
    for c in range(len(index.centres)):
        start, end = index.cell_start[c], index.cell_start[c + 1]
        sums = np.empty(end - start, np.int32)
        scan_codes(planes, 1.0, 0.0, 0.0, index.signs[2 * start : 2 * end], index.factor[start:end], sums)
        estimate = index.centres[c] @ q + index.factor[start:end] * step * (2 * sums - total)
        true = V[index.ids[start:end]] @ q
        errors.append((estimate - true)[index.factor[start:end] > 0] / index.factor[start:end][index.factor[start:end] > 0])
    error = np.concatenate(errors)
    assert abs(error.mean()) < 0.05 and 0.57 < error.std() < 0.65


@given(st.integers(0, 2**64 - 1))
def test_count_ones(x: int) -> None:
    assert count_ones(np.uint64(x)) == x.bit_count()


def test_equal_vectors_and_empty_cells() -> None:
    V = np.tile(np.array([[1, 0], [0, 1], [0, 0]], np.float32), (40, 1))
    best = CellIndex.build(V).topk(np.array([[1, 0], [0, 0]], np.float32), 5)
    assert (best.ids[0] % 3 == 0).all() and best.scores.tolist() == [[1] * 5, [0] * 5]


def test_one_label() -> None:
    index = LabelIndex.build([[1.0, 2.0]], exact_up_to=0)
    assert index.topk([[1, 1], [0, 0]], 3).ids.tolist() == [[0], [0]]


def test_threads_and_batches_do_not_change_results() -> None:
    V, Q = make_clusters(3000)
    index = LabelIndex.build(V, exact_up_to=100)
    one = index.topk(Q, 10, threads=1)
    many = index.topk(Q, 10, threads=3)
    alone = index.topk(Q[70:71], 10)
    assert np.array_equal(one.ids, many.ids) and np.array_equal(one.scores, many.scores)
    assert np.array_equal(one.ids[70:71], alone.ids) and np.array_equal(one.scores[70:71], alone.scores)


def test_the_seed_determines_the_index() -> None:
    V, _ = make_clusters(3000)
    first, again, other = (LabelIndex.build(V, exact_up_to=0, seed=seed).state() for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["centres"], other["centres"])


def test_state_round_trip() -> None:
    V, Q = make_clusters(3000)
    index = LabelIndex.build(V, exact_up_to=0)
    state = {name: array.copy() for name, array in index.state().items()}
    before, after = index.topk(Q, 10), LabelIndex.from_state(state).topk(Q, 10)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("kind", ["random", "similar"])
def test_the_best_of_the_allowed_labels_are_found(share: float, kind: str) -> None:
    """Also if the allowed labels are similar to each other, and so far from most queries."""
    V, Q = make_clusters(6000)
    random = np.random.default_rng(1)
    order = np.argsort(V @ random.standard_normal(64)) if kind == "similar" else random.permutation(6000)
    allowed = np.zeros(6000, bool)
    allowed[order[: int(share * 6000)]] = True
    index, candidates = LabelIndex.build(V, exact_up_to=0), np.flatnonzero(allowed)
    for k in (1, 10):
        found, truth = index.topk(Q, k, allowed=allowed), search_blockwise(V, Q, k, candidates=candidates)
        assert allowed[found.ids].all() and compute_recall(found, truth) > 0.985
    assert set(truth.ids[0]) <= set(candidates.tolist())
    few = index.topk(Q[:2], 10**6, allowed=allowed)
    assert few.k == len(candidates) and all(np.array_equal(np.sort(row), candidates) for row in few.ids)
