"""Label co-occurrence as in section 3.2 of the GLaS paper."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import SettingError
from longtail.models.glas.cooccurrence import MEASURES, compute_cooccurrence, take_submatrix

Y = sp.csr_array(
    np.array(
        [
            [1, 1, 0, 0],
            [1, 1, 0, 0],
            [1, 0, 1, 0],
            [1, 0, 0, 0],
            [0, 0, 0, 0],
        ],
        np.float32,
    )
)  # label 0 four times, 1 twice, 2 once, 3 never


def random_sets(seed: int, n_labels: int = 7) -> sp.csr_array:
    """Random label sets; some labels have no sample, some samples have no label."""
    random = np.random.default_rng(seed)
    return sp.csr_array((random.random((12, n_labels)) < random.choice([0, 0.2, 0.6], n_labels)).astype(np.float32))


def test_arithmetic_means_by_hand() -> None:
    """F(1|0) = 2/4 and F(0|1) = 2/2; F(2|0) = 1/4 and F(0|2) = 1/1."""
    expected = [[1, 0.75, 0.625, 0], [0.75, 1, 0, 0], [0.625, 0, 1, 0], [0, 0, 0, 0]]
    assert compute_cooccurrence(Y).toarray().tolist() == expected


def test_geometric_means_by_hand() -> None:
    half = 0.5**0.5
    expected = [[1, half, 0.5, 0], [half, 1, 0, 0], [0.5, 0, 1, 0], [0, 0, 0, 0]]
    assert np.allclose(compute_cooccurrence(Y, "geometric").toarray(), expected, atol=1e-7)


@given(st.integers(0, 10_000))
def test_matches_counting(seed: int) -> None:
    """½(A Z⁻¹ + Z⁻¹ A) of section 3.2, and √(F(y|y') F(y'|y)) of theorem B.1, by counting."""
    sets = random_sets(seed).toarray().astype(bool)
    n_labels = sets.shape[1]
    F = np.zeros((n_labels, n_labels))  # F[y, other] = F(y | other)
    for y in range(n_labels):
        for other in range(n_labels):
            if sets[:, other].any():
                F[y, other] = sets[sets[:, other], y].mean()
    assert np.allclose(compute_cooccurrence(random_sets(seed)).toarray(), (F + F.T) / 2, atol=1e-6)
    assert np.allclose(compute_cooccurrence(random_sets(seed), "geometric").toarray(), np.sqrt(F * F.T), atol=1e-6)


@pytest.mark.parametrize("measure", MEASURES)
@given(st.integers(0, 10_000))
def test_is_symmetric_with_ones_for_labels_with_samples(measure: str, seed: int) -> None:
    sets = random_sets(seed)
    U = compute_cooccurrence(sets, measure)
    dense = U.toarray()
    assert np.array_equal(dense, dense.T) and dense.min() >= 0 and dense.max() <= 1 and U.dtype == np.float32
    assert np.array_equal(dense.diagonal(), sets.sum(axis=0) > 0)
    assert U.nnz == ((sets.T @ sets) > 0).sum()  # only pairs that co-occur are stored


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.float64])
def test_the_dtype_of_the_labels_does_not_matter(dtype: type) -> None:
    many = sp.csr_array(np.ones((300, 2), np.float32))  # more than a byte can count
    for sets in (Y, many):
        assert np.array_equal(compute_cooccurrence(sets.astype(dtype)).toarray(), compute_cooccurrence(sets).toarray())
    assert compute_cooccurrence(many.astype(dtype)).toarray().tolist() == [[1, 1], [1, 1]]


def test_does_not_change_its_input() -> None:
    before = Y.copy()
    compute_cooccurrence(Y)
    assert np.array_equal(before.toarray(), Y.toarray()) and before.dtype == Y.dtype


@given(st.integers(0, 10_000), st.permutations(range(7)), st.integers(0, 7))
def test_submatrix_is_dense(seed: int, order: list[int], n: int) -> None:
    U = compute_cooccurrence(random_sets(seed))
    labels = np.array(order[:n], np.int32)
    found = take_submatrix(U, labels)
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    assert np.array_equal(found, U.toarray()[np.ix_(labels, labels)])


def test_jaccard_by_hand() -> None:
    """Labels 0 and 1 occur together twice, and either of them in four samples."""
    expected = [[1, 0.5, 0.25, 0], [0.5, 1, 0, 0], [0.25, 0, 1, 0], [0, 0, 0, 0]]
    assert compute_cooccurrence(Y, "jaccard").toarray().tolist() == expected


def test_normalised_pmi_by_hand() -> None:
    """P(0) = 4/5, P(1) = P(0, 1) = 2/5, P(2) = P(0, 2) = 1/5."""
    with_1, with_2 = log(5 / 4) / log(5 / 2), log(5 / 4) / log(5)
    expected = [[1, with_1, with_2, 0], [with_1, 1, 0, 0], [with_2, 0, 1, 0], [0, 0, 0, 0]]
    assert np.allclose(compute_cooccurrence(Y, "pmi").toarray(), expected, atol=1e-6)
    apart = sp.csr_array(
        np.array([[1, 1], [1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    )  # less often together than by chance
    assert compute_cooccurrence(apart, "pmi").toarray()[0, 1] == 0


def test_rejects_unknown_measures() -> None:
    with pytest.raises(SettingError, match=r'no measure "geometrical" of co-occurrence\. Did you mean "geometric"'):
        compute_cooccurrence(Y, "geometrical")
