"""The partition of labels into head and tails: sizes, parameters and costs of the paper, and the cheapest partition."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import DataError, SettingError
from longtail.models.aplc import partition
from longtail.models.aplc.partition import (
    compute_cluster_dims,
    count_parameters,
    estimate_cost,
    estimate_touch_probabilities,
    find_cheapest_partition,
    partition_at_ranks,
    partition_by_shares,
)

HALVES, QUARTERS = (0.5, 0.5), (0.25, 0.25, 0.25, 0.25)


def test_frequent_labels_come_first_and_ties_go_by_label() -> None:
    found = partition_at_ranks([1, 7, 0, 2, 2, 2], [1, 3, 5])
    assert [cluster.tolist() for cluster in np.split(found.order, found.ends[:-1])] == [[1], [3, 4], [0, 5]]
    assert found.sizes.tolist() == [1, 2, 2] and found.n_tails == 2 and found.n_labels == 6
    assert found.place.tolist() == [3, 0, -1, 1, 2, 4]  # label 2 has no sample


def test_shares_are_of_labels_that_have_samples() -> None:
    counts = [9, 8, 7, 6, 5, 4, 3, 2, 0, 0]
    assert partition_by_shares(counts, QUARTERS).sizes.tolist() == [2, 2, 2, 2]
    assert partition_by_shares(counts, [0.7, 0.2, 0.1]).sizes.tolist() == [6, 1, 1]
    assert partition_by_shares(counts, [1.0]).sizes.tolist() == [8]


def test_too_few_labels_give_fewer_clusters_and_always_a_head() -> None:
    assert partition_by_shares([4], HALVES).sizes.tolist() == [1]
    assert partition_by_shares([4, 3], QUARTERS).sizes.tolist() == [1, 1]
    assert partition_by_shares([4, 3, 2], [0.01, 0.99]).sizes.tolist() == [1, 2]


@pytest.mark.parametrize("bad", [[], [0.5, 0.4], [1.5, -0.5], [1.0, 0.0]])
def test_shares_must_add_up_to_one(bad: list[float]) -> None:
    with pytest.raises(SettingError, match="the shares are"):
        partition_by_shares([1, 2, 3], bad)


def test_at_least_one_label_must_have_a_sample() -> None:
    for find in (lambda c: partition_by_shares(c, HALVES), lambda c: find_cheapest_partition(c, 5, d=8)):
        with pytest.raises(DataError, match="no label has a sample"):
            find([0, 0])


@pytest.mark.parametrize(
    ("n_labels", "d", "shares", "millions", "dense"),
    [
        (3_956, 768, HALVES, 2.57, 3.04),  # EURLex-4k
        (13_330, 768, HALVES, 7.97, 10.24),  # AmazonCat-13k
        (30_938, 768, HALVES, 18.12, 23.76),  # Wiki10-31k
        (501_008, 512, QUARTERS, 120.5, 256.5),  # Wiki-500k
        (670_091, 384, QUARTERS, 120.8, 257.3),  # Amazon-670k
    ],
)
def test_parameters_of_the_papers_settings(
    n_labels: int, d: int, shares: tuple[float, ...], millions: float, dense: float
) -> None:
    """Eq. 6 with table 2, and eq. 7, which is the cost when all tails are touched."""
    sizes = partition_by_shares(np.ones(n_labels, int), shares).sizes
    n = count_parameters(sizes, d, q=2)
    assert n / 1e6 == pytest.approx(millions, rel=2e-3) and d * n_labels / 1e6 == pytest.approx(dense, rel=2e-3)
    dims = compute_cluster_dims(d, 2, len(shares) - 1)[1:]
    assert n - d * estimate_cost(sizes, q=2) == sum(d + d * width for width in dims)  # omitted by eq. 7


def test_parameters_and_cost_by_hand() -> None:
    assert count_parameters([3, 5], d=4, q=2) == 4 * (3 + 1) + 2 * (4 + 5)
    assert count_parameters([3], d=4, q=2) == 12
    assert estimate_cost([2, 4, 8], q=2) == 2 + 4 / 2 + 8 / 4
    assert estimate_cost([2, 4, 8], q=2, touched=[0.5, 0.25]) == 2 + 0.5 * 4 / 2 + 0.25 * 8 / 4
    assert estimate_cost([14], q=2) == 14


def test_dimensions_fall_by_q_to_at_least_two() -> None:
    assert compute_cluster_dims(768, 2, 3) == [768, 384, 192, 96]
    assert compute_cluster_dims(10, 1.5, 2) == [10, 6, 4]
    assert compute_cluster_dims(8, 1, 2) == [8, 8, 8]
    with pytest.raises(SettingError, match="the vectors of tail 3 have dimension 1"):
        compute_cluster_dims(8, 2, 3)
    with pytest.raises(SettingError, match=r"q is 0\.5"):
        compute_cluster_dims(8, 0.5, 1)


def test_touch_probabilities_by_hand() -> None:
    counts = [8, 5, 1, 1]
    found = partition_at_ranks(counts, [1, 2, 4])
    assert estimate_touch_probabilities(counts, found, n_samples=10, batch=1) == pytest.approx([0.5, 1 - 0.9**2])
    assert estimate_touch_probabilities(counts, found, n_samples=10, batch=3) == pytest.approx([1 - 0.5**3, 1 - 0.9**6])


def test_a_tail_with_a_label_of_all_samples_is_always_touched() -> None:
    assert estimate_touch_probabilities([4, 4], partition_at_ranks([4, 4], [1, 2]), n_samples=4, batch=1) == pytest.approx(
        [1]
    )


def eq_11(counts: list[int], ends: tuple[int, ...], n_samples: int, d: int, q: float, batch: int) -> float:
    """l_h + K + Σ_i p_i (l_i + d) / q^i."""
    found = partition_at_ranks(counts, ends)
    p = estimate_touch_probabilities(counts, found, n_samples, batch)
    total = float(found.sizes[0] + found.n_tails)
    return total + sum(p[i] * (size + d) / q ** (i + 1) for i, size in enumerate(found.sizes[1:].tolist()))


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=9),
    st.integers(0, 3),
    st.sampled_from([1, 4]),
    st.sampled_from([0.1, 0.5, 0.9]),
    st.none() | st.floats(0.3, 1.2),
    st.sampled_from([1.0, 2.0, 3.0]),
)
def test_the_cheapest_partition_is_that_of_an_exhaustive_search(
    counts: list[int], max_tails: int, batch: int, share: float, cap: float | None, q: float
) -> None:
    counts, n, d = sorted(counts, reverse=True), len(counts), 16
    limit = None if cap is None else int(cap * d * n) + d
    every = []
    for ends in ((*cuts, n) for k in range(max_tails + 1) for cuts in combinations(range(1, n), k)):
        if int(d / q ** (len(ends) - 1)) < 2:
            continue
        starts = [0, *ends[:-1]]
        enough = all(sum(counts[a:b]) >= share * sum(counts[a:]) for a, b in zip(starts, ends, strict=True))
        if enough and (limit is None or count_parameters(partition_at_ranks(counts, ends).sizes, d, q) <= limit):
            every.append(eq_11(counts, ends, 50, d, q, batch))
    arguments = {"d": d, "q": q, "max_tails": max_tails, "batch": batch, "share": share, "max_parameters": limit}
    if not every:
        with pytest.raises(SettingError, match="no partition"):
            find_cheapest_partition(counts, 50, **arguments)  # type: ignore[arg-type]
        return
    found = find_cheapest_partition(counts, 50, **arguments)  # type: ignore[arg-type]
    assert eq_11(counts, tuple(found.ends.tolist()), 50, d, q, batch) == pytest.approx(min(every))
    assert limit is None or count_parameters(found.sizes, d, q) <= limit


def test_a_limit_of_parameters_can_cost_time() -> None:
    """One tail of rare labels is rarely scored, so it is cheap; the limit forces shorter vectors."""
    counts = [900, *[1] * 1000]
    free = find_cheapest_partition(counts, 10**6, d=64, max_tails=3, share=0.3)
    limit = int(0.8 * count_parameters(free.sizes, 64, 2))
    tight = find_cheapest_partition(counts, 10**6, d=64, max_tails=3, share=0.3, max_parameters=limit)
    assert free.n_tails < tight.n_tails and count_parameters(tight.sizes, 64, 2) <= limit


def test_many_labels_are_cut_at_the_ranks_that_are_tried() -> None:
    counts = np.maximum(10**6 / np.arange(1, 300_001), 1).astype(int)
    found = find_cheapest_partition(counts, 10**6, d=256, share=0.5)
    assert set(found.ends.tolist()) <= set(partition.choose_ranks(300_000)) and found.n_tails == 3
    left = np.concatenate([[counts.sum()], counts.sum() - np.cumsum(counts)[found.ends[:-1] - 1]])
    assert (left[1:] <= 0.5 * left[:-1]).all()  # each cluster has its share of the rest


@pytest.mark.parametrize("bad", [{"max_tails": -1}, {"batch": 0}, {"share": 0.0}, {"share": 1.0}])
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="max_tails is"):
        find_cheapest_partition([1, 2], 5, d=8, **bad)  # type: ignore[arg-type]


def test_q_below_one_is_refused() -> None:
    with pytest.raises(SettingError, match="q is 0"):
        find_cheapest_partition([1, 2], 5, d=8, q=0)
