"""The hierarchy of the labels: which labels are broader than which, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from longtail.kernels import Bools


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Labels and their parents. A label may have several; cycles do no harm.

    >>> hierarchy = Hierarchy.from_names([(), ("animals",), ("cats",)], {"animals": 0, "cats": 1, "kittens": 2})
    >>> hierarchy.find_descendants([1]).tolist(), hierarchy.add_ancestors(sp.csr_array([[0, 0, 1]])).toarray().tolist()
    ([False, True, True], [[1, 1, 1]])
    """

    parents: sp.csr_array  # [n_labels, n_labels] 1 where the second label is a parent of the first

    @classmethod
    def from_names(cls, parents: Sequence[Sequence[str]], ids: Mapping[str, int]) -> Hierarchy:
        """Build a hierarchy; parents that are no labels are left out.

        :param parents: [n_labels] The names of the parents of each label.
        :param ids: The id of each label, by name.
        """
        pairs = [(child, ids[name]) for child, names in enumerate(parents) for name in names if name in ids]
        children, above = np.array(pairs, np.int64).reshape(-1, 2).T
        matrix = sp.csr_array((np.ones(len(children), np.int32), (children, above)), shape=(len(parents), len(parents)))
        return cls(matrix)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.parents.shape[0])

    @cached_property
    def children(self) -> sp.csr_array:
        """[n_labels, n_labels] 1 where the second label is a child of the first."""
        return sp.csr_array(self.parents.T)

    @cached_property
    def root(self) -> int | None:
        """The label that is above all others, and so says nothing about a sample; None if there is none."""
        top = np.flatnonzero(np.diff(self.parents.indptr) == 0)
        has_root = len(top) == 1 and self.n_labels > 1 and self.find_descendants(top).all()
        return int(top[0]) if has_root else None

    def add_ancestors(self, Y: sp.csr_array) -> sp.csr_array:
        """Add to the labels of each row their parents, the parents of these, and so on [n, n_labels]."""
        found = sp.csr_array((np.ones(Y.nnz, np.int32), Y.indices, Y.indptr), shape=Y.shape)
        while True:
            more = sp.csr_array(found + found @ self.parents)
            if more.nnz == found.nnz:
                return found
            found = sp.csr_array((np.ones(more.nnz, np.int32), more.indices, more.indptr), shape=more.shape)

    def widen(self, n_labels: int) -> Hierarchy:
        """Return the hierarchy with further labels that have no parents."""
        if n_labels == self.n_labels:
            return self
        indptr = np.append(self.parents.indptr, np.full(n_labels - self.n_labels, self.parents.nnz))
        return Hierarchy(sp.csr_array((self.parents.data, self.parents.indices, indptr), shape=(n_labels, n_labels)))

    def find_descendants(self, labels: ArrayLike) -> Bools:
        """[n_labels] Which labels are among the given ones or below one of them."""
        found, step = np.zeros(self.n_labels, bool), np.asarray(labels, np.int64)
        while len(step):
            found[step] = True
            below = np.unique(self.children[step].indices)
            step = below[~found[below]]
        return found
