"""Exact top-k of a sum of scores, against a dense computation."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.search.exact import ExactIndex
from longtail.search.exact_sum import search_sum


@pytest.mark.parametrize("n_queries", [1, 3, 150])  # few queries use 8-bit copies of the vectors, many come in blocks
@pytest.mark.parametrize("n_allowed", [None, 6, 200])
def test_finds_the_same_labels_as_a_dense_computation(n_queries: int, n_allowed: int | None) -> None:
    random = np.random.default_rng(0)
    V, Q = random.normal(size=(500, 20)).astype(np.float32), random.normal(size=(n_queries, 20)).astype(np.float32)
    others = (10 * random.random((n_queries, 500)) * (random.random((n_queries, 500)) < 0.05)).astype(np.float32)
    candidates = None if n_allowed is None else np.sort(random.permutation(500)[:n_allowed])
    Z = Q @ V.T + others
    if candidates is not None:
        Z[:, np.setdiff1d(np.arange(500), candidates)] = -np.inf
    best = search_sum(ExactIndex.build(V), Q, lambda part: others[part], 5, 1, candidates)
    expected = np.argsort(-Z, axis=1)[:, :5]
    assert np.array_equal(best.ids, expected)
    assert np.allclose(best.scores, np.take_along_axis(Z, expected, 1), atol=1e-4)


def test_few_and_many_queries_get_the_same_bits_and_ties_the_smaller_id() -> None:
    random = np.random.default_rng(0)
    V, Q = random.normal(size=(300, 16)).astype(np.float32), random.normal(size=(70, 16)).astype(np.float32)
    V[200:] = V[:100]
    others = np.tile(random.random((70, 100)).astype(np.float32), 3)
    index = ExactIndex.build(V)
    many = search_sum(index, Q, lambda part: others[part], 8, 1)
    for i in range(5):
        one = search_sum(index, Q[[i]], lambda part, i=i: others[[i]], 8, 1)
        assert np.array_equal(one.ids[0], many.ids[i]) and np.array_equal(one.scores[0], many.scores[i])
    for ids in many.ids:
        assert all(ids.tolist().index(i % 100 if i >= 200 else i) <= at for at, i in enumerate(ids) if i >= 200)


@pytest.mark.parametrize("n_queries", [2, 70])
def test_a_gate_limits_the_probability_of_all_labels(n_queries: int) -> None:
    random = np.random.default_rng(0)
    V, Q = random.normal(size=(200, 12)).astype(np.float32), random.normal(size=(n_queries, 12)).astype(np.float32)
    others, gates = random.normal(size=(n_queries, 200)).astype(np.float32), 4 * random.normal(size=n_queries)
    both = 1 / (1 + np.exp(-gates[:, None])) / (1 + np.exp(-(Q @ V.T).astype(np.float64)))
    Z = np.log(both) - np.log1p(-both) + others
    best = search_sum(ExactIndex.build(V), Q, lambda part: others[part], 6, 1, gates=gates.astype(np.float32))
    assert np.array_equal(best.ids, np.argsort(-Z, axis=1)[:, :6])
    assert np.allclose(best.scores, np.sort(Z, axis=1)[:, :-7:-1], atol=1e-4)
