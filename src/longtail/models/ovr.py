"""One-vs-rest: a linear classifier for each label, kept sparse (Babbar and Schölkopf, DiSMEC, WSDM 2017)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, parallel
from longtail.linear.node import BLOCK, sparse, with_constant
from longtail.linear.scores import topk_linear
from longtail.linear.solver import SOLVERS
from longtail.model import Model, Valid
from longtail.progress import Progress
from longtail.settings import MAX_SEED, Settings, setting, settings
from longtail.state import State
from longtail.topk import TopK


@settings
class OneVsRestSettings(Settings):
    """Settings of one-vs-rest."""

    loss: str = setting(
        "squared_hinge",
        "Loss: squared_hinge, or logistic, whose scores are probabilities.",
        paper="squared_hinge",
        choices=SOLVERS,
    )
    C: float = setting(1.0, "Weight of the loss against the regulariser, as in liblinear.", paper="1", positive=True)
    prune: float = setting(0.05, "Weights whose magnitude is below this are dropped.", paper="0.01", minimum=0)
    eps: float = setting(0.1, "Stop when no gradient is larger than this.", paper="0.1 (liblinear)", positive=True)
    max_passes: int = setting(100, "Maximum number of passes over the training data.", positive=True)
    seed: int = setting(0, "Seed of the order in which samples are visited.", minimum=0, maximum=MAX_SEED)
    threads: int | None = setting(None, "Threads. None: all cores.", positive=True)


class OneVsRest(OneVsRestSettings, Model):
    """A linear classifier for each label: the most accurate linear method, for up to some thousand labels.

    For each label l, min ½‖w‖² + C Σᵢ max(0, 1 − yᵢ (w·xᵢ + b))², then weights below ``prune`` are dropped.

    Presets: ``paper`` is DiSMEC on single words (C 1, weights below 0.01 dropped); ``best`` adds word pairs and drops more
    weights, which cost no accuracy on held-out training data.
    Nothing is chosen on validation data, so none is held out.

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> OneVsRest().fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "paper": {"loss": "squared_hinge", "C": 1.0, "prune": 0.01, "ngrams": 1},
        "best": {},
    }

    @property
    def score_meaning(self) -> Literal["probability", "margin"]:
        """Probability under the logistic loss, otherwise the signed distance from the decision."""
        return "probability" if self.loss == "logistic" else "margin"

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        indptr, indices, data = with_constant(X.indptr, X.indices, X.data, X.shape[1])
        columns = Y.tocsc()
        # Labels of one block stop together, so those that need about as many passes share one: sort by frequency.
        order = np.argsort(-self.label_counts, kind="stable")
        order = order[self.label_counts[order] > 0].astype(np.int32)
        blocks = [order[i : i + BLOCK] for i in range(0, len(order), BLOCK)]

        def solve(labels: NDArray[Any]) -> tuple[sp.csr_array, Floats]:
            signs = np.full((X.shape[0], len(labels)), -1, np.int8)
            for b, label in enumerate(labels):
                signs[columns.indices[columns.indptr[label] : columns.indptr[label + 1]], b] = 1
            setting = (np.ones(len(labels), np.float32), X.shape[1] + 1, self.C, self.eps, self.max_passes, self.seed)
            W, _ = SOLVERS[self.loss](indptr, indices, data, signs, *setting)
            return sparse(W[:-1], self.prune), W[-1].copy()

        parts = []
        self.bias = np.full(self.n_labels, -np.inf, np.float32)  # labels without examples are never predicted
        with progress.stage("labels", len(order)) as stage:
            for labels, (W, bias) in zip(blocks, parallel(solve, blocks, self.threads), strict=True):
                parts.append(W)
                self.bias[labels] = bias
                stage.advance(len(labels))
        W = sp.hstack(parts, format="csr")
        self.W = sp.csr_array((W.data, order[W.indices], W.indptr), shape=(self.n_features, self.n_labels))
        self.W.sort_indices()

    def _topk(self, X: sp.csr_array, k: int) -> TopK:
        best = topk_linear(X, self.W, self.bias, k, self.threads)
        return best if self.score_meaning == "margin" else TopK(best.ids, 1 / (1 + np.exp(-best.scores)))

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """The label's weights: with the bias, Σ x · slopes is the margin, or the log-odds under the logistic loss."""
        weights: NDArray[np.float64] = self.W[x.indices][:, [label]].toarray().ravel().astype(np.float64)
        return weights

    def _state(self) -> State:
        return {"indptr": self.W.indptr, "indices": self.W.indices, "data": self.W.data, "bias": self.bias}

    def _restore(self, state: State) -> None:
        arrays = (state["data"], state["indices"], state["indptr"])
        self.W = sp.csr_array(arrays, shape=(self.n_features, len(state["bias"])))
        self.bias = state["bias"]
