"""Ranking metrics, slices of label frequency, and the evaluation that combines them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import DataError, SettingError
from longtail.labelspace.frequency import slice_by_frequency
from longtail.labelspace.propensity import compute_inverse_propensity
from longtail.metrics.evaluate import evaluate
from longtail.metrics.ranking import score_samples
from longtail.metrics.slices import count_labels, score_slices
from longtail.topk import TopK, find_hits


def topk(*rows: list[int]) -> TopK:
    ids = np.array(rows)
    return TopK(ids, np.tile(-np.arange(ids.shape[1], dtype=float), (len(ids), 1)))


def test_one_sample_by_hand() -> None:
    """The true labels are 0 and 2; the predictions are 2 (correct), 1 (wrong), 0 (correct)."""
    Y, w = sp.csr_array([[1, 0, 1]]), np.array([4.0, 1.0, 2.0])
    values = score_samples(topk([2, 1, 0]), Y, w, (1, 2, 3)).values()
    second, third = 1 / np.log2(3), 1 / np.log2(4)
    expected = {
        "P@1": 1, "P@2": 1 / 2, "P@3": 2 / 3,
        "recall@1": 1 / 2, "recall@2": 1 / 2, "recall@3": 1,
        "nDCG@1": 1, "nDCG@2": 1 / (1 + second), "nDCG@3": (1 + third) / (1 + second),
        "PSP@1": 2 / 4, "PSP@2": 2 / 6, "PSP@3": 6 / 6,
        "PSnDCG@1": 2 / 4, "PSnDCG@2": 2 / (4 + 2 * second), "PSnDCG@3": (2 + 4 * third) / (4 + 2 * second),
    }  # fmt: skip
    assert values == pytest.approx({name: 100 * v for name, v in expected.items()})


def test_psp_is_a_ratio_of_sums_not_a_mean_of_ratios() -> None:
    Y, w = sp.csr_array([[1, 0], [0, 1]]), np.array([1.0, 9.0])
    assert score_samples(topk([0], [0]), Y, w, (1,)).values()["PSP@1"] == pytest.approx(100 * 1 / 10)


def test_a_sample_without_labels_counts_and_scores_zero() -> None:
    Y = sp.csr_array([[1, 0], [0, 0]])
    values = score_samples(topk([0], [0]), Y, np.ones(2), (1,)).values()
    assert values["P@1"] == values["nDCG@1"] == values["recall@1"] == 50
    assert values["PSP@1"] == 100  # a sample without labels adds nothing to either sum


def slow_reference(ids: np.ndarray, Y: np.ndarray, w: np.ndarray, k: int) -> dict[str, float]:  # type: ignore[type-arg]
    """Compute the definitions on dense arrays, sample by sample."""
    p, r, n, ps_got, ps_best, pn_got, pn_best = [], [], [], [], [], [], []
    for row, y in zip(ids, Y, strict=True):
        gains = [y[label] if label >= 0 else 0 for label in row[:k]]
        weights = [w[label] * g if label >= 0 else 0 for label, g in zip(row[:k], gains, strict=True)]
        best = sorted(w[y > 0], reverse=True)[:k]
        discount = [1 / np.log2(rank + 2) for rank in range(k)]
        ideal = sum(discount[: int(min(k, y.sum()))])
        p.append(sum(gains) / k)
        r.append(sum(gains) / y.sum() if y.any() else 0)
        n.append(sum(g * d for g, d in zip(gains, discount, strict=False)) / ideal if y.any() else 0)
        ps_got.append(sum(weights))
        ps_best.append(sum(best))
        if y.any():
            pn_got.append(sum(g * d for g, d in zip(weights, discount, strict=False)) / ideal)
            pn_best.append(sum(g * d for g, d in zip(best, discount, strict=False)) / ideal)
    ratio = sum(ps_got) / sum(ps_best) if sum(ps_best) else 0
    ratio_n = sum(pn_got) / sum(pn_best) if sum(pn_best) else 0
    values = {"P": np.mean(p), "recall": np.mean(r), "nDCG": np.mean(n), "PSP": ratio, "PSnDCG": ratio_n}
    return {f"{name}@{k}": 100 * float(v) for name, v in values.items()}


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 7), st.integers(1, 5))
def test_agrees_with_the_slow_reference(seed: int, n_samples: int, n_labels: int, width: int) -> None:
    random = np.random.default_rng(seed)
    Y = (random.random((n_samples, n_labels)) < 0.4).astype(float)
    ids = np.array([np.resize(np.append(random.permutation(n_labels), [-1] * 5), width) for _ in range(n_samples)])
    w = 1 + random.random(n_labels)
    scores = score_samples(topk(*ids.tolist()), sp.csr_array(Y), w, (1, 3, 5))
    for k in (1, 3, 5):
        expected = slow_reference(ids, Y, w, k)
        assert {name: scores.values()[name] for name in expected} == pytest.approx(expected)
    assert scores.values()["nDCG@1"] == pytest.approx(scores.values()["P@1"])


@given(st.integers(0, 1000))
def test_parts_of_the_slices_add_up_to_precision(seed: int) -> None:
    random = np.random.default_rng(seed)
    Y = sp.csr_array((random.random((20, 30)) < 0.2).astype(float))
    counts = random.integers(0, 300, 30).astype(np.int32)
    best = topk(*[random.permutation(30)[:5].tolist() for _ in range(20)])
    slices = score_slices(count_labels(best, Y, 5), best.n_samples, counts, 5)
    total = sum(part["part of P@5"] for part in slices.values())
    assert total == pytest.approx(score_samples(best, Y, np.ones(30), (5,)).values()["P@5"])
    assert sum(part["labels"] for part in slices.values()) == 30
    assert sum(part["true"] for part in slices.values()) == Y.nnz


def test_counts_of_each_label() -> None:
    labels = count_labels(topk([0, 1], [0, 2]), sp.csr_array([[1, 0, 0, 1], [0, 0, 1, 0]]), 2)
    assert labels.true.tolist() == [1, 0, 1, 1]
    assert labels.predicted.tolist() == [2, 1, 1, 0]
    assert labels.correct.tolist() == [1, 0, 1, 0]
    assert labels.coverage() == pytest.approx(200 / 3)


def test_slices_by_training_frequency() -> None:
    slices = slice_by_frequency([0, 1, 9, 10, 99, 100])
    assert {name: mask.nonzero()[0].tolist() for name, mask in slices.items()} == {
        "unseen": [0], "tail": [1, 2], "torso": [3, 4], "head": [5],
    }  # fmt: skip


def test_propensity_by_hand() -> None:
    """N = e³ gives C = 2 · 2.5^0.55; a label with one sample then has the weight 1 + 2."""
    w = compute_inverse_propensity([1], n_samples=int(np.exp(3)))
    assert w[0] == pytest.approx(1 + (np.log(int(np.exp(3))) - 1) * (2.5 / 2.5) ** 0.55)
    assert np.all(np.diff(compute_inverse_propensity([0, 1, 10, 1000], 5000)) < 0)
    assert compute_inverse_propensity([1], 1)[0] == 1
    with pytest.raises(SettingError, match="must not be negative"):
        compute_inverse_propensity([1], 10, 0.5, -2)


def test_labels_without_training_samples_count_as_missed() -> None:
    Y = sp.csr_array([[0, 0, 1]])
    result = evaluate(topk([0]), Y, label_counts=np.array([5, 5], np.int32), n_train=10, ks=(1,))
    assert result.values["P@1"] == 0 and result.slices["unseen"]["true"] == 1


def test_training_data_may_have_more_labels_than_test_data() -> None:
    Y = sp.csr_array([[1, 0]])
    result = evaluate(topk([0]), Y, label_counts=np.full(9, 5, np.int32), n_train=10, ks=(1,), sets=topk([0]))
    assert result.values["P@1"] == result.values["micro-F1"] == 100 and result.slices["tail"]["labels"] == 9


def test_invalid_predictions_are_refused() -> None:
    with pytest.raises(DataError, match="2 rows of predictions for 1 samples"):
        find_hits(topk([0], [0]), sp.csr_array([[1]]))
    with pytest.raises(DataError, match="predicted twice"):
        find_hits(topk([0, 0]), sp.csr_array([[1]]))
    with pytest.raises(SettingError, match="at least 1"):
        score_samples(topk([0]), sp.csr_array([[1]]), np.ones(1), (0,))


def test_a_k_above_the_number_of_labels_takes_no_memory() -> None:
    values = score_samples(topk([0, 1]), sp.csr_array([[1, 0]]), np.ones(2), (1, 10**9)).values()
    assert values["P@1000000000"] == pytest.approx(100 / 10**9) and values["nDCG@1000000000"] == 100


def test_a_million_labels_stay_sparse() -> None:
    """A dense matrix would have 2 · 10⁹ cells."""
    random = np.random.default_rng(0)
    n, n_labels = 2000, 1_000_000
    Y = sp.csr_array((np.ones(5 * n), random.integers(0, n_labels, 5 * n), np.arange(0, 5 * n + 1, 5)), shape=(n, n_labels))
    Y.sum_duplicates()
    best = TopK(Y.indices[Y.indptr[:-1]][:, None], np.ones((n, 1)))
    counts = np.ones(n_labels, np.int32)
    assert evaluate(best, Y, label_counts=counts, n_train=n, ks=(1,)).values["P@1"] == 100


def test_an_evaluation_is_shown_by_its_main_metrics() -> None:
    Y = sp.csr_array([[1, 0], [1, 1]])
    counts = np.array([5, 500], np.int32)
    result = evaluate(topk([0, 1], [1, 0]), Y, label_counts=counts, n_train=600, ks=(1, 2), sets=topk([0, 1], [1, 0]))
    assert repr(result) == "Evaluation(P@1 100.00, P@2 75.00, nDCG@2 100.00, PSP@2 100.00; 2 samples)"
    html = result._repr_html_()
    assert html.count("<table>") == 3 and "75.00 [" in html and "micro-F1" in html
    assert ">head<" in html and ">unseen<" not in html  # slices without labels are not shown
