"""The one way to search label vectors: exact for few labels, approximate for many."""
# mypy: disable-error-code="arg-type,return-value"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.errors import DataError, SettingError
from longtail.kernels import Floats, kernel
from longtail.search.ann import CellIndex
from longtail.search.exact import ExactIndex
from longtail.topk import TopK

EXACT_UP_TO = 20_000  # labels; up to here, computing all scores is about as fast
LARGEST = 1e15  # products of such numbers, added up, still fit into float32


@dataclass(frozen=True)
class LabelIndex:
    """Label vectors made ready for search by inner product.

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
        exact_up_to: int = EXACT_UP_TO,
        recall: float = 0.99,
        queries: ArrayLike | None = None,
        seed: int = 0,
    ) -> LabelIndex:
        """Make an index of label vectors V [n_labels, d].

        exact_up_to: with more labels, the search is approximate. recall: the share of the true ten best that it should
        find. queries: vectors [n, d] such as will be asked for, which tell how far it must search; label vectors if left
        out. seed: makes it reproducible. V is not copied if it is a float32 array already.
        """
        if not 0 < recall <= 1:
            raise SettingError(f"recall is {recall}", hint="It must be above 0 and at most 1")
        V = checked_vectors(V, "label vectors")
        if not V.size:
            raise DataError(f"the label vectors have the shape {V.shape}", hint="Give at least one label and one column")
        if len(V) <= exact_up_to:
            return cls(ExactIndex.build(V))
        if queries is not None:
            queries = checked_vectors(queries, "queries", V.shape[1])
        return cls(CellIndex.build(V, seed=seed, recall=recall, queries=queries))

    @property
    def n_labels(self) -> int:
        """Number of label vectors."""
        return len(self.search.V)

    def vector(self, label: int | np.integer[Any]) -> Floats:
        """The vector of a label [d]."""
        vector: Floats = self.search.V[label]
        return vector

    def topk(self, Q: ArrayLike, k: int, threads: int | None = None) -> TopK:
        """The k labels with the largest inner products for each query [n, d], and all labels if there are fewer."""
        if k < 1:
            raise SettingError(f"k is {k}", hint="It must be at least 1")
        Q = checked_vectors(Q, "queries", self.search.V.shape[1])
        return self.search.topk(Q, min(k, self.n_labels), threads)

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it as plain arrays."""
        return self.search.state()

    @classmethod
    def restored(cls, state: dict[str, NDArray[Any]]) -> LabelIndex:
        """From what ``state`` gave."""
        kind = CellIndex if "centres" in state else ExactIndex
        return cls(kind.restored(state))


def checked_vectors(V: ArrayLike, name: str, width: int | None = None) -> Floats:
    """A float32 table of finite numbers, of this width if one is given."""
    V = np.asarray(V)
    if V.ndim != 2 or V.dtype.kind not in "fiub":
        found = f"the {name} are an array of {V.dtype} with {V.ndim} dimensions"
        raise DataError(found, hint="Give a table of numbers, a row for each vector")
    if width is not None and V.shape[1] != width:
        raise DataError(f"the {name} have {V.shape[1]} columns", hint=f"The label vectors have {width}")
    V = np.ascontiguousarray(V, np.float32)
    if (row := first_bad(V)) >= 0:
        raise DataError(f"the {name} hold a number that is not finite, or too large", where=f"row {row}")
    return V


@kernel
def first_bad(V: Floats) -> int:
    """The first row with NaN, infinity or a number too large; -1 if all are well."""
    for i in range(len(V)):
        for j in range(V.shape[1]):
            if not abs(V[i, j]) <= LARGEST:
                return i
    return -1
