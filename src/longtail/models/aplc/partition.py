"""Partition of the labels by frequency: the clusters of APLC (Ye, Chen, Wang, Davison; ICML 2020, section 3.3).

The head holds the most frequent labels, each tail rarer ones than the cluster before. All labels of the head are scored for
every text, those of a tail only where needed; the vectors of tail i have 1/q^i of the dimension of those of the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from longtail.errors import DataError, SettingError
from longtail.kernels import Floats, Ints, Longs

_MAX_CUTS = 256  # ranks that are tried as cuts, evenly spaced in the logarithm
_MIN_DIM = 2  # of a tail's vectors: LayerNorm of one dimension is constant

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Partition:
    """The labels of the head and of each tail. Labels without training samples are in no cluster.

    >>> partition = partition_by_shares([3, 0, 9, 1, 5], [0.5, 0.5])
    >>> partition.order.tolist(), partition.sizes.tolist(), partition.place.tolist()
    ([2, 4, 0, 3], [2, 2], [2, -1, 0, 3, 1])
    """

    order: Ints  # [n] labels, cluster after cluster; ascending within a cluster, so that ties go to the smaller label
    ends: Longs  # [1 + n_tails] where each cluster ends in that order
    n_labels: int  # including those that are in no cluster

    @property
    def sizes(self) -> Longs:
        """The number of labels of the head and of each tail."""
        return np.diff(self.ends, prepend=0)

    @property
    def n_tails(self) -> int:
        """The number of tails, K in the paper."""
        return len(self.ends) - 1

    @property
    def place(self) -> Longs:
        """The position of each label in the order [n_labels]; −1 for those in no cluster."""
        place = np.full(self.n_labels, -1, np.int64)
        place[self.order] = np.arange(len(self.order))
        return place

    def add_labels(self, labels: Ints, label_counts: Ints) -> Partition:
        """The partition with further labels: each in the first cluster that has a label with as few samples, or in the last.

        :param label_counts: [n_labels] Samples of each label.

        >>> partition = partition_by_shares([3, 0, 9, 1, 5], [0.5, 0.5])
        >>> partition.add_labels(np.array([1], np.int32), np.array([3, 6, 9, 1, 5])).order.tolist()
        [1, 2, 4, 0, 3]
        """
        clusters = np.split(self.order, self.ends[:-1])
        fewest = np.array([label_counts[cluster].min() for cluster in clusters[:-1]])
        place = [int(np.append(np.flatnonzero(label_counts[label] >= fewest), len(fewest))[0]) for label in labels]
        clusters = [np.sort(np.append(cluster, labels[np.array(place) == t])) for t, cluster in enumerate(clusters)]
        ends = np.cumsum([len(cluster) for cluster in clusters])
        return Partition(np.concatenate(clusters).astype(np.int32), ends, self.n_labels)


@dataclass(frozen=True)
class ClusterLogOdds:
    """The log-odds in the training data that a sample has a label of a tail, and a label given its cluster."""

    tails: Floats  # [n_tails]
    labels: list[Floats]  # for the head and each tail, in the order of the partition

    @classmethod
    def count(cls, partition: Partition, Y: sp.csr_array) -> ClusterLogOdds:
        """Count the samples of clusters and labels. Half a sample is added on either side.

        >>> Y = sp.csr_array([[1, 0], [1, 0], [1, 1], [0, 1]])
        >>> counted = ClusterLogOdds.count(partition_at_ranks([3, 2], [1, 2]), Y)
        >>> np.exp([counted.tails, *counted.labels]).round(1).ravel()  # 2.5 / 2.5, 3.5 / 1.5, and in the tail 2.5 / 0.5
        array([1. , 2.3, 5. ], dtype=float32)
        """
        Y = Y[:, partition.order]
        counts, starts = np.bincount(Y.indices, minlength=Y.shape[1]), [0, *partition.ends]
        n_in = [Y.shape[0], *(np.count_nonzero(np.diff(Y[:, a:b].indptr)) for a, b in pairwise(starts[1:]))]
        return cls.from_counts([counts[a:b] for a, b in pairwise(starts)], n_in)

    @classmethod
    def from_counts(cls, counts: Sequence[NDArray[Any]], n_in: Sequence[int]) -> ClusterLogOdds:
        """Compute them from the samples of each label of each cluster, and the samples of the head (all) and each tail."""
        labels = [_log_odds(some, n) for some, n in zip(counts, n_in, strict=True)]
        return cls(_log_odds(np.array(n_in[1:]), n_in[0]), labels)


def _log_odds(counts: NDArray[Any], n: int) -> Floats:
    out: Floats = np.log((counts + 0.5) / (n - counts + 0.5)).astype(np.float32)
    return out


def partition_at_ranks(label_counts: ArrayLike, ends: ArrayLike) -> Partition:
    """Cut the labels, sorted by descending number of samples, at these ranks. Empty clusters are left out."""
    ranked = _rank_labels(label_counts)
    ends = np.unique(np.clip(ends, 1, len(ranked)))
    clusters = np.split(ranked, ends[:-1])
    return Partition(
        np.concatenate([np.sort(cluster) for cluster in clusters]), ends.astype(np.int64), len(np.asarray(label_counts))
    )


def _rank_labels(label_counts: ArrayLike) -> Ints:
    """The labels that have samples, by descending number of samples; ties are broken by the smaller label."""
    counts = np.asarray(label_counts)
    if not counts.any():
        raise DataError("no label has a sample", hint="Give at least one sample with a label")
    return np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].astype(np.int32)


def partition_by_shares(label_counts: ArrayLike, shares: Sequence[float]) -> Partition:
    """Head and tails with these shares of the labels. The paper uses two halves, or four quarters for many labels."""
    parts = np.asarray(shares, float)
    if not len(parts) or not (parts > 0).all() or abs(parts.sum() - 1) > 1e-6:
        raise SettingError(f"the shares are {list(shares)}", hint="They must be positive and add up to 1")
    n = np.count_nonzero(np.asarray(label_counts))
    return partition_at_ranks(label_counts, [*(np.cumsum(parts[:-1]) * n).round().astype(int), n])


def compute_cluster_dims(d: int, q: float, n_tails: int) -> list[int]:
    """d/q^i: the dimensions of the vectors of the head (i = 0) and of the tails."""
    _check_q(q)
    out = [int(d / q**i) for i in range(n_tails + 1)]
    if out[-1] < _MIN_DIM:
        hint = f"It must be at least {_MIN_DIM}: use fewer clusters, a smaller q or a larger hidden layer"
        raise SettingError(f"with d={d} and q={q}, the vectors of tail {n_tails} have dimension {out[-1]}", hint=hint)
    return out


def _check_q(q: float) -> None:
    if not q >= 1:
        raise SettingError(f"q is {q}", hint="It must be at least 1")


def count_parameters(sizes: ArrayLike, d: int, q: float) -> int:
    """d(l_h + K) + Σ_i (d/q^i)(d + l_i) (eq. 6): the parameters of head, clusters and tails.

    >>> count_parameters([1978, 1978], d=768, q=2)  # EURLex-4k
    2574336
    """
    head, *tails = np.asarray(sizes).tolist()
    dims = compute_cluster_dims(d, q, len(tails))[1:]
    return int(d * (head + len(tails)) + sum(dim * (d + size) for dim, size in zip(dims, tails, strict=True)))


def estimate_cost(sizes: ArrayLike, q: float, touched: ArrayLike = 1.0) -> float:
    """l_h + Σ_i p_i l_i / q^i (eq. 12), in units of N_b·d; without tails it is the number of labels (eq. 13).

    touched: p_i, the probability that a batch has a label in each tail. L / cost is the saving in time (eq. 14), and with
    p = 1 that in parameters (eq. 9).
    """
    sizes = np.asarray(sizes, float)
    return float(sizes[0] + (np.asarray(touched) * sizes[1:] / q ** np.arange(1.0, len(sizes))).sum())


def estimate_touch_probabilities(label_counts: ArrayLike, partition: Partition, n_samples: int, batch: int) -> Doubles:
    """p_i = 1 − Π_j (1 − f_j / n)^N_b over the labels j of tail i: the probability that a batch needs it.

    N_b is the size of the batch. Labels are assumed to be independent; if they co-occur, the probability is lower.

    >>> counts = [4, 2, 2]
    >>> estimate_touch_probabilities(counts, partition_at_ranks(counts, [1, 3]), n_samples=4, batch=1).round(9).tolist()
    [0.75]
    """
    never = _log_probability_of_none(np.asarray(label_counts)[partition.order], n_samples)
    return -np.expm1(batch * np.diff(never[partition.ends]))


def _log_probability_of_none(counts: ArrayLike, n_samples: int) -> Doubles:
    """The log-probability that a sample has none of the first 0, 1, … n labels [n + 1]."""
    share = np.minimum(np.asarray(counts) / n_samples, 1 - 1e-12)  # below 1, so that the logarithm is finite
    return np.concatenate([[0.0], np.cumsum(np.log1p(-share))])


def find_cheapest_partition(
    label_counts: ArrayLike,
    n_samples: int,
    *,
    d: int,
    q: float = 2.0,
    max_tails: int = 3,
    batch: int = 1,
    share: float = 0.75,
    max_parameters: int | None = None,
) -> Partition:
    """Cut where the expected cost of a step is lowest, l_h + K + Σ_i p_i (l_i + d) / q^i (eq. 11; eq. 12 simplifies it).

    Eq. 12 omits the fixed cost of a tail, so it would allow too many tails. The cost also ignores accuracy: by it alone, the
    head would hold one label and the last tail the rest. Therefore each cluster but the last must hold at least ``share`` of
    the label occurrences that the clusters before it left (in the paper's fig. 2, a fifth of the labels hold 0.75 of them).
    Up to 256 ranks are tried as cuts; among these, the result is optimal.

    :param d: Dimension of the input.
    :param q: Factor by which the dimension falls from each cluster to the next.
    :param batch: N_b of ``estimate_touch_probabilities``. 1 is right for AplcHead, where only samples with a label in a tail
        enter its loss.
    :param share: See above.
    :param max_parameters: By eq. 6.

    >>> find_cheapest_partition([900, 90, 9, 1], 1000, d=4).sizes.tolist()
    [1, 3]
    """
    if max_tails < 0 or batch < 1 or not 0 < share < 1:
        found = f"max_tails is {max_tails}, batch {batch} and share {share}"
        raise SettingError(found, hint="They must be at least 0, at least 1, and between 0 and 1")
    _check_q(q)
    counts = np.asarray(label_counts)
    ranked = counts[_rank_labels(counts)]
    n, limit = len(ranked), np.inf if max_parameters is None else max_parameters
    never, seen = _log_probability_of_none(ranked, n_samples), np.concatenate([[0], np.cumsum(ranked)])
    ranks = choose_ranks(n)

    def allowed(start: int, end: int) -> bool:
        return end == n or bool(seen[end] - seen[start] >= share * (seen[n] - seen[start]))

    # For each rank, the partitions of the labels up to it into the head and i tails: rows of cost, parameters and cuts.
    partial = {end: np.array([[end, d * end, end]], float) for end in ranks if allowed(0, end)}
    complete = [partial.get(n, np.zeros((0, 3)))]
    for i in range(1, max_tails + 1):
        if (dim := int(d / q**i)) < _MIN_DIM:
            break
        longer: dict[int, list[Doubles]] = {end: [] for end in ranks}
        for start, before in partial.items():
            for end in ranks[ranks.index(start) + 1 :]:
                if allowed(start, end):
                    touched = -np.expm1(batch * (never[end] - never[start]))
                    more = 1 + touched * (end - start + d) / q**i, dim * (d + end - start) + d
                    longer[end].append(np.column_stack([before[:, :2] + more, before[:, 2:], np.full(len(before), end)]))
        partial = {end: _keep_undominated(np.vstack(found), limit) for end, found in longer.items() if found}
        complete.append(partial.get(n, np.zeros((0, 3))))
    best = [_keep_undominated(found, limit)[0] for found in complete if (found[:, 1] <= limit).any()]
    if not best:
        hint = "Allow more, or use a larger q, more clusters or a smaller share"
        raise SettingError(f"no partition of {n} labels has at most {max_parameters} parameters", hint=hint)
    return partition_at_ranks(counts, min(best, key=lambda row: float(row[0]))[2:].astype(np.int64))


def choose_ranks(n: int) -> list[int]:
    """The ranks of n labels that are tried as cuts: all, or 256 of more than that."""
    ranks = np.geomspace(1, n, _MAX_CUTS).round() if n > _MAX_CUTS else np.arange(1, n + 1)
    return [int(rank) for rank in np.unique(ranks)]


def _keep_undominated(rows: Doubles, limit: float) -> Doubles:
    """The rows within the limit of parameters, cheapest first, that have fewer parameters than every cheaper one."""
    rows = rows[rows[:, 1] <= limit]
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    if limit == np.inf:  # then parameters do not matter
        return rows[:1]
    fewest_before = np.concatenate([[np.inf], np.minimum.accumulate(rows[:, 1])[:-1]])
    return rows[rows[:, 1] < fewest_before]
