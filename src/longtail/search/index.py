"""LabelIndex: search over label vectors, exact for few labels and approximate for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.errors import DataError, SettingError
from longtail.kernels import Bools, Floats, kernel
from longtail.search.ann import CellIndex
from longtail.search.exact import ExactIndex
from longtail.state import SavedPart, State, check_array
from longtail.topk import TopK

_MAX_EXACT_LABELS = 20_000  # up to here, exact search is about as fast as approximate search
_MAX_VALUE = 1e15  # sums of products of such values still fit into float32


@dataclass(frozen=True)
class LabelIndex:
    """Label vectors prepared for search by inner product.

    >>> index = LabelIndex.build(np.array([[1, 0], [0, 1], [1, 1]]))
    >>> best = index.topk(np.array([[2, 1], [-1, 1]]), k=2)
    >>> best.ids.tolist(), best.scores.tolist()
    ([[2, 0], [1, 2]], [[3.0, 2.0], [1.0, 0.0]])
    """

    search: ExactIndex | CellIndex

    @classmethod
    def build(
        cls,
        V: ArrayLike,
        *,
        exact_up_to: int = _MAX_EXACT_LABELS,
        recall: float = 0.99,
        queries: ArrayLike | None = None,
        seed: int = 0,
    ) -> LabelIndex:
        """Build an index of label vectors.

        :param V: [n_labels, d] Label vectors. A float32 array is stored without a copy.
        :param exact_up_to: With more labels than this, the search is approximate.
        :param recall: The share of the exact top 10 that approximate search should find.
        :param queries: [n, d] Typical queries, from which the index learns how far it must search. None: label vectors.
        :param seed: Seed of the approximate index.
        """
        if not 0 < recall <= 1:
            raise SettingError(f"recall is {recall}", hint="It must be above 0 and at most 1")
        V = check_vectors(V, "label vectors")
        if not V.size:
            raise DataError(f"the label vectors have the shape {V.shape}", hint="Give at least one label and one dimension")
        if len(V) <= exact_up_to:
            return cls(ExactIndex.build(V))
        if queries is not None:
            queries = check_vectors(queries, "queries", V.shape[1])
        return cls(CellIndex.build(V, seed=seed, recall=recall, queries=queries))

    @property
    def n_labels(self) -> int:
        """Number of label vectors."""
        return len(self.search.V)

    def get_vector(self, label: int | np.integer[Any]) -> Floats:
        """The vector of a label [d]."""
        vector: Floats = self.search.V[label]
        return vector

    def topk(self, Q: ArrayLike, k: int, threads: int | None = None, allowed: Bools | None = None) -> TopK:
        """The k labels with the largest inner products for each query [n, d], or all labels if there are fewer.

        :param allowed: [n_labels] Which labels are searched for, at least one. None: all.
        """
        if k < 1:
            raise SettingError(f"k is {k}", hint="It must be a positive integer")
        Q = check_vectors(Q, "queries", self.search.V.shape[1])
        if allowed is None:
            return self.search.topk(Q, min(k, self.n_labels), threads)
        candidates = np.flatnonzero(allowed)
        return self.search.topk(Q, min(k, len(candidates)), threads, candidates)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return self.search.state()

    @classmethod
    def from_state(cls, state: State, n_labels: int | None = None, dimension: int | None = None) -> LabelIndex:
        """The inverse of ``state``, for this number of label vectors of this dimension. They may be in half precision."""
        vectors = check_array(state, "vectors", "f2 f4", (n_labels, dimension))
        kind = CellIndex if "centres" in state else ExactIndex
        checked = SavedPart({**state, "vectors": check_vectors(vectors, "label vectors")}, getattr(state, "path", ""))
        return cls(kind.from_state(checked))


def check_vectors(V: ArrayLike, name: str, dimension: int | None = None) -> Floats:
    """Convert vectors to a contiguous float32 array.

    :param V: [n, d] Vectors.
    :param name: What they are, for error messages.
    :param dimension: The d that they must have, if any.
    :raises DataError: If they are not a matrix of finite numbers of that dimension.
    """
    array = np.asarray(V)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        found = f"the {name} are an array of {array.dtype} with {array.ndim} dimensions"
        raise DataError(found, hint="Give a two-dimensional array of numbers with one row per vector")
    if dimension is not None and array.shape[1] != dimension:
        raise DataError(f"the {name} have dimension {array.shape[1]}", hint=f"The label vectors have dimension {dimension}")
    vectors: Floats = np.ascontiguousarray(array, np.float32)
    if (row := _find_invalid_row(vectors)) >= 0:
        hint = f"Give finite numbers of at most {_MAX_VALUE:g}"
        raise DataError(f"the {name} contain a number that is not finite or too large", where=f"row {row}", hint=hint)
    return vectors


@kernel
def _find_invalid_row(V: Floats) -> int:
    """The first row with NaN, infinity or too large a value; -1 if there is none."""
    for i in range(len(V)):
        for j in range(V.shape[1]):
            if not abs(V[i, j]) <= _MAX_VALUE:
                return i
    return -1
