"""Labels in a head and tails by frequency: the clusters of APLC (Ye, Chen, Wang, Davison; ICML 2020, section 3.3).

The head holds the most frequent labels, each tail rarer ones than the one before. A text is compared with all of the head,
and with a tail only where that is called for; the vectors of tail i are q^i times narrower than those of the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.errors import DataError, SettingError
from longtail.kernels import Ints, Longs

CANDIDATES = 256  # places at which a cut is tried, evenly spaced in the logarithm of the rank
NARROWEST = 2  # of a tail's vectors: LayerNorm makes nothing of one number

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Partition:
    """Which labels the head and each tail hold. Labels without a sample are in none: there is nothing to learn of them.

    >>> partition = by_proportions([3, 0, 9, 1, 5], [0.5, 0.5])
    >>> partition.order.tolist(), partition.sizes.tolist(), partition.place.tolist()
    ([2, 4, 0, 3], [2, 2], [2, -1, 0, 3, 1])
    """

    order: Ints  # [n] labels, cluster after cluster; within a cluster ascending, so that ties go to the smaller label
    ends: Longs  # [1 + n_tails] where each cluster ends in that order
    n_labels: int  # with those that are in no cluster

    @property
    def sizes(self) -> Longs:
        """Labels of the head, and of each tail."""
        return np.diff(self.ends, prepend=0)

    @property
    def n_tails(self) -> int:
        """K in the paper."""
        return len(self.ends) - 1

    @property
    def place(self) -> Longs:
        """[n_labels] where each label stands in the order; −1 for those in no cluster."""
        place = np.full(self.n_labels, -1, np.int64)
        place[self.order] = np.arange(len(self.order))
        return place


def cut(label_counts: ArrayLike, ends: ArrayLike) -> Partition:
    """Cut the labels, by descending number of samples, at these ranks; clusters that would be empty are left out."""
    ranked = ranked_labels(label_counts)
    ends = np.unique(np.clip(ends, 1, len(ranked)))
    clusters = np.split(ranked, ends[:-1])
    return Partition(
        np.concatenate([np.sort(cluster) for cluster in clusters]), ends.astype(np.int64), len(np.asarray(label_counts))
    )


def ranked_labels(label_counts: ArrayLike) -> Ints:
    """The labels that have a sample, those with most first; ties by the smaller label."""
    counts = np.asarray(label_counts)
    if not counts.any():
        raise DataError("no label has a sample", hint="Give at least one")
    return np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].astype(np.int32)


def by_proportions(label_counts: ArrayLike, proportions: Sequence[float]) -> Partition:
    """Head and tails with these shares of the labels; the paper takes two halves, or four quarters of many labels."""
    shares = np.asarray(proportions, float)
    if not len(shares) or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise SettingError(f"the proportions are {list(proportions)}", hint="Give numbers above 0 that add up to 1")
    n = np.count_nonzero(np.asarray(label_counts))
    return cut(label_counts, [*(np.cumsum(shares[:-1]) * n).round().astype(int), n])


def widths(d: int, q: float, n_tails: int) -> list[int]:
    """d/q^i: how wide the vectors of the head (i = 0) and of the tails are."""
    check_decay(q)
    out = [int(d / q**i) for i in range(n_tails + 1)]
    if out[-1] < NARROWEST:
        hint = f"At least {NARROWEST} are needed: take fewer tails, a smaller q or a larger d"
        raise SettingError(f"with d={d} and q={q}, tail {n_tails} gets vectors of {out[-1]} numbers", hint=hint)
    return out


def check_decay(q: float) -> None:
    """Tails are not wider than the head."""
    if not q >= 1:
        raise SettingError(f"q is {q}", hint="It must be at least 1")


def n_parameters(sizes: ArrayLike, d: int, q: float) -> int:
    """d(l_h + K) + Σ_i (d/q^i)(d + l_i) (eq. 6): the matrices of the head, of the clusters and of the tails.

    >>> n_parameters([1978, 1978], d=768, q=2)  # EURLex-4k
    2574336
    """
    head, *tails = np.asarray(sizes).tolist()
    narrow = widths(d, q, len(tails))[1:]
    return int(d * (head + len(tails)) + sum(width * (d + size) for width, size in zip(narrow, tails, strict=True)))


def cost(sizes: ArrayLike, q: float, touched: ArrayLike = 1.0) -> float:
    """l_h + Σ_i p_i l_i / q^i (eq. 12), in units of N_b·d; without tails it is the number of labels (eq. 13).

    touched: p_i, how likely a batch needs each tail. L / cost is the saving in time (eq. 14), and with p = 1 the one in
    parameters (eq. 9).
    """
    sizes = np.asarray(sizes, float)
    return float(sizes[0] + (np.asarray(touched) * sizes[1:] / q ** np.arange(1.0, len(sizes))).sum())


def touch_probabilities(label_counts: ArrayLike, partition: Partition, n_samples: int, batch: int) -> Doubles:
    """p_i = 1 − Π_j (1 − f_j / n)^N_b over the labels j of tail i: how likely a batch of N_b samples needs that tail.

    From the frequencies alone, as if labels came independently. Labels that come together make it less.

    >>> counts = [4, 2, 2]
    >>> touch_probabilities(counts, cut(counts, [1, 3]), n_samples=4, batch=1).round(9).tolist()
    [0.75]
    """
    never = log_never(np.asarray(label_counts)[partition.order], n_samples)
    return -np.expm1(batch * np.diff(never[partition.ends]))


def log_never(counts: ArrayLike, n_samples: int) -> Doubles:
    """[n + 1] log of the probability that a sample has none of the first 0, 1, … n labels."""
    share = np.minimum(np.asarray(counts) / n_samples, 1 - 1e-12)  # of a label that all have: almost sure
    return np.concatenate([[0.0], np.cumsum(np.log1p(-share))])


def cheapest(
    label_counts: ArrayLike,
    n_samples: int,
    *,
    d: int,
    q: float = 2.0,
    most_tails: int = 3,
    batch: int = 1,
    share: float = 0.75,
    most_parameters: int | None = None,
) -> Partition:
    """Cut where a step is expected to cost least, l_h + K + Σ_i p_i (l_i + d) / q^i (eq. 11; eq. 12 is short for it).

    Eq. 12 leaves out what a tail costs by itself, and nothing would keep it from having too many. Nor does the cost know
    of accuracy: by it alone, the head would hold one label and the narrowest tail the rest. Therefore each cluster but the
    last must hold at least ``share`` of the label occurrences that the ones before it left (in the paper's fig. 2, a fifth
    of the labels hold 0.75 of them). batch: N_b, for p_i as ``touch_probabilities`` has it; 1 is right where only samples
    that touch a tail are compared with it, as AplcHead does. most_parameters: by eq. 6. Cuts are tried at CANDIDATES
    places, and the best of those is found for certain.

    >>> cheapest([900, 90, 9, 1], 1000, d=4).sizes.tolist()
    [1, 3]
    """
    if most_tails < 0 or batch < 1 or not 0 < share < 1:
        found = f"most_tails is {most_tails}, batch {batch} and share {share}"
        raise SettingError(found, hint="Give at least 0, at least 1, and a number between 0 and 1")
    check_decay(q)
    counts = np.asarray(label_counts)
    ranked = counts[ranked_labels(counts)]
    n, limit = len(ranked), np.inf if most_parameters is None else most_parameters
    never, seen = log_never(ranked, n_samples), np.concatenate([[0], np.cumsum(ranked)])
    places = tried(n)

    def allowed(start: int, end: int) -> bool:
        return end == n or bool(seen[end] - seen[start] >= share * (seen[n] - seen[start]))

    # For each place, the ways to fill the head and i tails up to it: rows of cost, parameters and cuts.
    ways = {end: np.array([[end, d * end, end]], float) for end in places if allowed(0, end)}
    whole = [ways.get(n, np.zeros((0, 3)))]
    for i in range(1, most_tails + 1):
        if (width := int(d / q**i)) < NARROWEST:
            break
        longer: dict[int, list[Doubles]] = {end: [] for end in places}
        for start, before in ways.items():
            for end in places[places.index(start) + 1 :]:
                if allowed(start, end):
                    touched = -np.expm1(batch * (never[end] - never[start]))
                    more = 1 + touched * (end - start + d) / q**i, width * (d + end - start) + d
                    longer[end].append(np.column_stack([before[:, :2] + more, before[:, 2:], np.full(len(before), end)]))
        ways = {end: undominated(np.vstack(found), limit) for end, found in longer.items() if found}
        whole.append(ways.get(n, np.zeros((0, 3))))
    best = [undominated(found, limit)[0] for found in whole if (found[:, 1] <= limit).any()]
    if not best:
        hint = "Allow more, or take a larger q, more tails or a smaller share"
        raise SettingError(f"no cut of {n} labels has {most_parameters} parameters or fewer", hint=hint)
    return cut(counts, min(best, key=lambda way: float(way[0]))[2:].astype(np.int64))


def tried(n: int) -> list[int]:
    """Ranks at which a cut may be, of n labels: all of few labels."""
    places = np.geomspace(1, n, CANDIDATES).round() if n > CANDIDATES else np.arange(1, n + 1)
    return [int(place) for place in np.unique(places)]


def undominated(ways: Doubles, limit: float) -> Doubles:
    """The ways within the limit of parameters, cheapest first, that have fewer parameters than every cheaper one."""
    ways = ways[ways[:, 1] <= limit]
    ways = ways[np.lexsort((ways[:, 1], ways[:, 0]))]
    if limit == np.inf:  # then parameters do not matter
        return ways[:1]
    fewest_before = np.concatenate([[np.inf], np.minimum.accumulate(ways[:, 1])[:-1]])
    return ways[ways[:, 1] < fewest_before]
