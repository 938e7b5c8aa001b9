"""Linear models over a label tree: one per inner node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.features.mlp import Doubles, compute_secant_slope
from longtail.kernels import Bools, Ints, kernel
from longtail.labelspace.tree import LabelTree
from longtail.linear.tree_weights import TreeWeights
from longtail.linear.weight_search import WeightArrays
from longtail.state import State

LINKS = {"squared_hinge": 0, "logistic": 1}  # which link function turns margins into probabilities, by loss
_LOGISTIC_LINK = 1

TreeArrays = tuple[Ints, Ints, int, WeightArrays]  # first_child, label, max_children: see LabelTree; and the weights


@dataclass(frozen=True)
class LinearTree:
    """A label tree with the linear classifiers of its inner nodes."""

    tree: LabelTree
    weights: TreeWeights

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return {"n_children": self.tree.n_children, "label": self.tree.label, **self.weights.state()}

    @classmethod
    def from_state(cls, state: State, n_labels: int, n_features: int) -> LinearTree:
        """The inverse of ``state``, for this number of labels and of features of the samples."""
        tree = LabelTree.from_state(state, n_labels)
        return cls(tree, TreeWeights.from_state(state, tree, n_features))

    def slopes(self, x: sp.csr_array, label: int, loss: str, origin: Doubles | None = None) -> tuple[Doubles, float, float]:
        """The slope of log P(label) for each feature of one sample (integrated gradients, Sundararajan et al. 2017).

        A slope is the mean gradient on the straight line from the origin to x. Margins are linear on this line, so the
        mean gradient of a node is the secant of its link function, and Σ (x − origin) · slopes is exactly the difference of
        the log-probabilities at both ends.

        :param origin: [nnz] Values of the features of x at the start of the line. None: zeros, a sample without features.
        :returns: The slopes [nnz], log P(label) for x, and log P(label) at the origin.
        """
        slopes, value, empty = np.zeros(x.nnz), 0.0, 0.0
        node = int(np.flatnonzero(self.tree.label == label)[0])
        while node > 0:
            parent = int(self.tree.parent[node])
            weights = self.weights.get_child_weights(parent, node - int(self.tree.first_child[parent]), x.indices)
            bias = float(self.weights.bias[node])
            start = bias if origin is None else bias + float(weights @ origin)
            end = bias + float(weights @ x.data)
            slopes += weights * compute_secant_slope(lambda margin: log_probability(margin, LINKS[loss]), start, end)
            value, empty = value + log_probability(end, LINKS[loss]), empty + log_probability(start, LINKS[loss])
            node = parent
        return slopes, value, empty

    @cached_property
    def arrays(self) -> TreeArrays:
        """The arguments that the search kernels take."""
        return self.tree.first_child, self.tree.label, int(self.tree.n_children.max()), self.weights.arrays

    def select_arrays(self, allowed: Bools | None) -> TreeArrays:
        """The same for a search that visits only nodes with an allowed label at or below them; None: all nodes."""
        if allowed is None:
            return self.arrays
        first_child, _, max_children, weights = self.arrays
        return first_child, self.tree.close_nodes(allowed), max_children, weights


@kernel
def log_probability(margin: float, link: int) -> float:
    """The log-probability of a child, given its margin.

    For the logistic loss that of the sigmoid. For the squared hinge loss P = exp(−gap³) with gap = max(0, 1 − margin), as in
    PECOS: small gaps change the product along a path little, large ones much (docs/methods/plt.md).

    :param link: A value of ``LINKS``.
    """
    if link == _LOGISTIC_LINK:
        return -np.log1p(np.exp(-margin)) if margin > -30 else margin
    gap = max(np.float32(0), np.float32(1) - margin)
    return -gap * gap * gap  # type: ignore[return-value]  # float() would make it double precision in kernels
