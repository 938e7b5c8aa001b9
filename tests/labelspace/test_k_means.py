from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.kernels import Floats
from longtail.labelspace import k_means
from longtail.labelspace.k_means import assign_dense, cluster_sparse, fit_dense_centres


def make_blobs(n_blobs: int, size: int, seed: int = 0) -> Floats:
    """Vectors around well separated points; those of a blob follow each other."""
    random = np.random.default_rng(seed)
    return (np.repeat(10 * np.eye(n_blobs), size, axis=0) + random.normal(0, 0.1, (n_blobs * size, n_blobs))).astype(
        np.float32
    )


def compute_error(V: Floats, centres: Floats) -> float:
    return float(np.square(V - centres[assign_dense(V, centres)[0]]).sum(axis=1).mean())


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 10))
def test_dense_vectors_are_assigned_to_the_nearest_centre(seed: int, n: int, k: int) -> None:
    random = np.random.default_rng(seed)
    V, centres = random.normal(size=(n, 5)).astype(np.float32), random.normal(size=(k, 5)).astype(np.float32)
    distance = np.linalg.norm(V[:, None] - centres, axis=2)
    cluster, _ = assign_dense(V, centres)
    assert np.allclose(distance[np.arange(n), cluster], distance.min(axis=1), atol=1e-5)


def test_blocks_do_not_change_the_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    V = make_blobs(5, 20)
    whole = assign_dense(V, V[::7])[0]
    monkeypatch.setattr(k_means, "_DENSE_ROWS_PER_BLOCK", 9)
    assert np.array_equal(assign_dense(V, V[::7])[0], whole)


def test_more_rounds_reduce_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    V = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    errors = []
    for rounds in (0, 1, 2, 8):
        monkeypatch.setattr(k_means, "_MAX_DENSE_ROUNDS", rounds)
        errors.append(compute_error(V, fit_dense_centres(V, 12, np.random.default_rng(1))))
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.8 * errors[0]


def test_centres_without_vectors_stay() -> None:
    V = np.zeros((6, 3), np.float32)  # all vectors are assigned to the first of six equal centres
    assert np.array_equal(fit_dense_centres(V, 6, np.random.default_rng(0)), V)


def test_sparse_clusters_do_not_depend_on_threads_and_separate_blobs() -> None:
    V = make_blobs(4, 700)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    rows = np.arange(0, len(V), 2, dtype=np.int32)
    one, three = (cluster_sparse(sp.csr_array(V), rows, 12, seed=0, threads=threads) for threads in (1, 3))
    assert np.array_equal(one, three)
    blob = rows // 700
    assert all(len(np.unique(blob[one == cluster])) == 1 for cluster in np.unique(one))
