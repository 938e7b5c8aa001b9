"""What the GLaS paper proves about low-dimensional label vectors, by the code that predicts."""

from __future__ import annotations

from math import ceil, log
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from longtail.linear.quantised import QuantisedTable
from longtail.models.glas.cooccurrence import compute_cooccurrence
from longtail.models.glas.model import Glas
from longtail.models.glas.regularisers import glas_loss


def score_all(E: NDArray[Any], V: NDArray[Any], Y: NDArray[Any]) -> NDArray[Any]:
    """Scores [n, n_labels] of a restored model with these weights; input i selects row i of E."""
    model = Glas(relu=False, loss="margin").restore(
        {
            **{"label_counts": Y.sum(axis=0).astype(np.int32), "sizes": np.array([len(E), len(E)])},
            **{f"E.{name}": array for name, array in QuantisedTable.quantise(E.astype(np.float32)).state().items()},
            **{"index.vectors": np.hstack([V, np.zeros((len(V), 1))]).astype(np.float16)},
            **{"shift": np.zeros(E.shape[1], np.float32), "seen": np.arange(len(V), dtype=np.int32)},
        }
    )
    best = model.topk(sp.eye_array(len(E), dtype=np.float32, format="csr"), len(V))
    scores = np.full(Y.shape, np.nan)
    np.put_along_axis(scores, best.ids, best.scores, axis=1)
    return scores


def test_theorem_2_1_few_dimensions_separate_many_labels() -> None:
    """V of ±1/√d, φ(x) = the sum of its labels' vectors: positives score at least 2/3, negatives at most 1/3.

    The label sets have rank 600, more than d. d = 18 s ln(4 |S| K), as the first claim has it; the proof prints d without
    K, although its union bound is over labels too.
    """
    random = np.random.default_rng(0)
    K, n, s = 750, 600, 2
    d = ceil(18 * s * log(4 * n * K))
    Y, rows = np.zeros((n, K), bool), np.arange(n)
    Y[rows, rows] = Y[rows, n + random.permutation(n) % (K - n)] = True  # one label for itself, one shared by four samples
    assert (Y.sum(axis=1) == s).all() and d < n
    V = (random.choice([-1, 1], (K, d)) / np.sqrt(d)).astype(np.float32)
    scores = score_all(Y.astype(np.float32) @ V, V, Y)
    rounding = 0.5 * s / 127 + 2e-3  # of E to int8, and of V to float16
    assert scores[Y].min() >= 2 / 3 - rounding and scores[~Y].max() <= 1 / 3 + rounding
    assert np.abs(V @ V.T - np.eye(K)).max() <= np.sqrt(2 * log(4 * K**2) / d)  # claim 5


def test_theorem_b_1_inner_products_are_geometric_means() -> None:
    """v_y = Σ e_x / √A_yy over the label's samples: exactly √(F(y|y') F(y'|y)); and nearly so after a random projection."""
    random = np.random.default_rng(1)
    n, K, a = 60, 40, 4
    Y = np.zeros((n, K), np.float32)
    for y in range(K):
        Y[random.permutation(n // 2)[: random.integers(1, a + 1)], y] = 1
    U = compute_cooccurrence(sp.csr_array(Y), "geometric").toarray()
    V = (Y / np.sqrt(Y.sum(axis=0))).T  # [K, n]
    assert ((U > 0) & (U < 1)).sum() > 50
    assert np.allclose(V @ V.T, U, atol=1e-6)
    assert np.allclose(V.T, np.where(Y > 0, 1 / np.sqrt(Y.sum(axis=0)), 0))  # the score of x = e_x
    ones = torch.ones(K)
    assert glas_loss(torch.tensor(V), torch.tensor(U), ones).item() < 1e-12  # the optimum of the regulariser
    arithmetic = torch.tensor(compute_cooccurrence(sp.csr_array(Y)).toarray())
    assert glas_loss(torch.tensor(V), arithmetic, ones).item() > 1e-4

    epsilon, d = 1 / (2 * np.sqrt(a)), ceil(12 * a * log(K * n))
    projection = random.normal(size=(n, d)) / np.sqrt(d)
    low = V @ projection  # [K, d]
    scores = score_all(projection, low, Y)
    assert scores[Y > 0].min() > epsilon > scores[Y == 0].max()
    assert np.abs(low @ low.T - U).max() < epsilon
    assert np.linalg.norm(low, axis=1).max() < 1 + epsilon and np.linalg.norm(projection, axis=1).max() < 1 + epsilon
