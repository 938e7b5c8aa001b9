"""Search for the most probable labels of APLC (Ye et al., ICML 2020), exact without scoring every tail.

A label j of tail t has probability σ(a_t) σ(b_j) ≤ σ(a_t). So tails are searched by descending a_t, and those whose σ(a_t)
is below the k-th best probability so far are skipped, which cannot change the result. Within a tail, labels are ordered by
b_j, so this is a search by inner product. With a sparse part (``linear.sparse_part``), all tails are searched.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.kernels import Bools, Floats, Ints, Longs, fast_kernel, map_parallel
from longtail.linear.sparse_part import SparsePart
from longtail.search.exact import ExactIndex, inner_product
from longtail.search.exact_sum import search_sum
from longtail.search.index import check_vectors
from longtail.state import State, check_array, get_array
from longtail.topk import NO_LABEL, TopK

_EPSILON = 1e-5  # of LayerNorm, as in torch
_TEXTS_PER_BLOCK = 64  # whose scores of a sparse part for all labels are in memory at a time

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class TailSearch:
    """The logits b of a tail: inner products of ReLU(LayerNorm(project · h)) and the label vectors."""

    project: Floats  # [width, d]
    gain: Floats  # [width]
    shift: Floats  # [width]
    index: ExactIndex  # of [n_labels, width + 1]; the last column is the bias

    def topk(self, H: Floats, k: int, threads: int | None, places: Longs | None) -> TopK:
        """The labels with the largest b; of those at the given places in the tail, if any are given."""
        n_labels = len(self.index.V) if places is None else len(places)
        return self.index.topk(self.project_texts(H), min(k, n_labels), threads, places)

    def project_texts(self, H: Floats) -> Floats:
        """[n, width + 1] The input of the label vectors, and 1 for the bias."""
        P = np.empty((len(H), len(self.project)), np.float32)
        _project(H, self.project, self.gain, self.shift, P)
        return _append_one(P)


@dataclass(frozen=True)
class ClusterSearch:
    """A trained head, prepared for search. A text gets the same bits alone and among others."""

    head: ExactIndex  # of [n_labels, d + 1]; the last column is the bias
    clusters: Floats  # [n_tails, d + 1] a = clusters · (h, 1)
    tails: list[TailSearch]
    order: Ints  # [n] labels, cluster after cluster; ascending within

    @cached_property
    def starts(self) -> list[int]:
        """Where the labels of each tail start in the order."""
        sizes = [len(self.head.V), *(len(tail.index.V) for tail in self.tails[:-1])]
        return list(accumulate(sizes))

    @classmethod
    def from_state(cls, state: State, n_labels: int | None = None) -> ClusterSearch:
        """Restore what ``state`` returned, or ``AplcHead.arrays`` after training, for this number of labels (None: any)."""

        def get(name: str, *shape: int | None) -> Floats:
            return np.ascontiguousarray(check_array(state, name, "f2 f4", shape, finite=True), np.float32)

        def index(prefix: str, dimension: int | None) -> ExactIndex:
            vectors = check_array(state, f"{prefix}vectors", "f2 f4", (None, dimension))
            joined = np.column_stack([vectors, get(f"{prefix}bias", len(vectors))])
            return ExactIndex.build(check_vectors(joined, "label vectors"))

        head, tails = index("", None), []
        clusters = get("clusters", None, head.V.shape[1] - 1)
        for t in range(1, len(clusters) + 1):
            project = get(f"tail{t}.project", None, clusters.shape[1])
            width = len(project)
            gain, shift = (get(f"tail{t}.{name}", width) for name in ("gain", "shift"))
            tails.append(TailSearch(project, gain, shift, index(f"tail{t}.", width)))
        n = len(head.V) + sum(len(tail.index.V) for tail in tails)
        order = get_array(state, "order")
        if n_labels is not None:
            check_array(state, "order", "i4", (n,), minimum=0, maximum=n_labels - 1, distinct=True)
        return cls(head, np.column_stack([clusters, get("cluster_bias", len(clusters))]), tails, order)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        out = {"vectors": self.head.V[:, :-1], "bias": self.head.V[:, -1], "order": self.order}
        out |= {"clusters": self.clusters[:, :-1], "cluster_bias": self.clusters[:, -1]}
        for t, tail in enumerate(self.tails, 1):
            parts = {"project": tail.project, "gain": tail.gain, "shift": tail.shift}
            parts |= {"vectors": tail.index.V[:, :-1], "bias": tail.index.V[:, -1]}
            out |= {f"tail{t}.{name}": part for name, part in parts.items()}
        return out

    def log_odds(self, H: Floats, label: int) -> Doubles:
        """The logit of a label's probability for each text vector [n, d]."""
        place = int(np.flatnonzero(self.order == label)[0])
        out, H1 = np.empty((len(H), 1), np.float32), _append_one(H)
        if place < len(self.head.V):
            _multiply(H1, self.head.V[place, None], out)
            return out[:, 0].astype(np.float64)
        t = bisect_right(self.starts, place) - 1
        tail, a = self.tails[t], np.empty_like(out)
        _multiply(H1, self.clusters[t, None], a)
        _multiply(tail.project_texts(H), tail.index.V[place - self.starts[t], None], out)
        return _chain_logits(a.astype(np.float64), out)[:, 0]

    def _find_places(self, allowed: Bools | None) -> list[Longs | None]:
        """The places of the allowed labels in the head and in each tail; None: all."""
        if allowed is None:
            return [None] * (1 + len(self.tails))
        return [np.flatnonzero(part) for part in np.split(allowed[self.order], self.starts[: len(self.tails)])]

    def topk(self, H: Floats, k: int, threads: int | None = None, allowed: Bools | None = None) -> TopK:
        """The k most probable labels of each text vector [n, d] with their probabilities; all labels if there are fewer.

        :param allowed: [n_labels] Which labels are searched for; a cluster without any of them is skipped. None: all.
        """
        if k < 1:
            raise SettingError(f"k is {k}", hint="It must be a positive integer")
        H = check_vectors(H, "text vectors", self.head.V.shape[1] - 1)
        H1 = _append_one(H)
        in_head, *in_tails = self._find_places(allowed)
        k = min(k, len(self.order) if allowed is None else int(np.count_nonzero(allowed[self.order])))
        best = _BestLabels.empty(len(H), k)
        n_head = len(self.head.V) if in_head is None else len(in_head)
        if n_head:
            found = self.head.topk(H1, min(k, n_head), threads, in_head)
            best.add(np.arange(len(H)), self.order[found.ids], found.scores.astype(np.float64))
        A = np.empty((len(H), len(self.tails)), np.float32)
        _multiply(H1, self.clusters, A)
        visits = np.argsort(-A, axis=1, kind="stable")  # [n, n_tails]
        for turn in range(len(self.tails)):
            bound = np.take_along_axis(A, visits[:, turn, None], axis=1)[:, 0]
            candidate = bound >= best.z[:, -1]  # z of a tail's label is at most a
            for t, tail in enumerate(self.tails):
                places, rows = in_tails[t], np.flatnonzero(candidate & (visits[:, turn] == t))
                if len(rows) and (places is None or len(places)):
                    found = tail.topk(H[rows], k, threads, places)
                    labels = self.order[self.starts[t] + found.ids]
                    best.add(rows, labels, _chain_logits(A[rows, t, None].astype(np.float64), found.scores))
        return best.topk()

    def topk_sum(
        self, H: Floats, sparse: SparsePart, X: sp.csr_array, k: int, threads: int | None, allowed: Bools | None
    ) -> TopK:
        """The same with a sparse part: the logit of a label is the mean of its two logits.

        :param sparse: Its labels are numbered as in ``order``.
        :param X: The features of the texts [n, n_features].
        """
        H1, places = _append_one(H), self._find_places(allowed)
        k = min(k, len(self.order) if allowed is None else int(np.count_nonzero(allowed[self.order])))
        best, A = _BestLabels.empty(len(H), k), np.empty((len(H), len(self.tails)), np.float32)
        _multiply(H1, self.clusters, A)

        def search(start: int) -> None:
            texts, first = np.arange(start, min(start + _TEXTS_PER_BLOCK, len(H))), 0
            clusters = [(self.head, H1[texts], None)]
            clusters += [(tail.index, tail.project_texts(H[texts]), A[texts, t]) for t, tail in enumerate(self.tails)]
            scores = sparse.score(X[texts])  # [n, n_labels]
            for (index, Q, gates), inside in zip(clusters, places, strict=True):
                cluster = slice(first, first + len(index.V))
                n_labels = len(index.V) if inside is None else len(inside)
                if n_labels:
                    found = search_sum(index, Q, scores[:, cluster].__getitem__, min(k, n_labels), 1, inside, gates)
                    logits = sparse.average_logits(found.scores.astype(np.float64))
                    best.add(texts, self.order[cluster][found.ids], logits)
                first = cluster.stop

        for _ in map_parallel(search, range(0, len(H), _TEXTS_PER_BLOCK), threads if len(H) > _TEXTS_PER_BLOCK else 1):
            pass
        return best.topk()


@dataclass
class _BestLabels:
    """The best labels found so far, by the logit of their probability; ties are broken by the smaller label."""

    ids: Ints  # [n, k]
    z: Doubles  # [n, k]

    @classmethod
    def empty(cls, n: int, k: int) -> _BestLabels:
        """No label has been found yet."""
        return cls(np.full((n, k), NO_LABEL, np.int32), np.full((n, k), -np.inf))

    def add(self, rows: Longs, ids: Ints, z: Doubles) -> None:
        """Add candidates [len(rows), any number] to some rows."""
        k = self.ids.shape[1]
        ids, z = np.hstack([self.ids[rows], ids]), np.hstack([self.z[rows], z])
        order = np.lexsort((ids, -z), axis=1)[:, :k]
        self.ids[rows], self.z[rows] = np.take_along_axis(ids, order, axis=1), np.take_along_axis(z, order, axis=1)

    def topk(self) -> TopK:
        """The labels with their probabilities; ties after rounding are broken by the smaller label again."""
        scores = np.exp(-np.logaddexp(0, -self.z)).astype(np.float32)
        order = np.lexsort((self.ids, -scores), axis=1)
        return TopK(np.take_along_axis(self.ids, order, axis=1), np.take_along_axis(scores, order, axis=1))


def _append_one(H: Floats) -> Floats:
    """Text vectors with a constant 1 at the end, which is multiplied with the bias."""
    return np.column_stack([H, np.ones(len(H), np.float32)])


def _chain_logits(a: Doubles, b: Floats) -> Doubles:
    """The logit z of a product of probabilities, σ(z) = σ(a) σ(b), as ``losses.chain_logits`` computes it."""
    out: Doubles = a - np.logaddexp(0, np.logaddexp(0, a) - b)
    return out


@fast_kernel
def _multiply(H: Floats, W: Floats, out: Floats) -> None:
    """H Wᵀ, one inner product at a time, so that a result does not depend on the number of texts."""
    for i in range(len(H)):
        for j in range(len(W)):
            out[i, j] = inner_product(H[i], W[j])


@fast_kernel
def _project(H: Floats, project: Floats, gain: Floats, shift: Floats, out: Floats) -> None:
    """ReLU(LayerNorm(project · h)) of each text vector h."""
    _multiply(H, project, out)
    width = out.shape[1]
    for i in range(len(out)):
        mean, square = 0.0, 0.0
        for j in range(out.shape[1]):
            mean += out[i, j]
        mean /= width
        for j in range(out.shape[1]):
            square += (out[i, j] - mean) ** 2
        scale = 1 / np.sqrt(square / width + _EPSILON)
        for j in range(out.shape[1]):
            out[i, j] = max(0.0, (out[i, j] - mean) * scale * gain[j] + shift[j])
