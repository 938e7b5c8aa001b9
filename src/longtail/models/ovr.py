"""One-vs-rest: a sparse linear classifier for each label (Babbar and Schölkopf, DiSMEC, WSDM 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import append_constant, get_column_rows, pack_columns, unpack_columns
from longtail.features.text import PUBLISHED_FEATURES
from longtail.kernels import Bools, Floats, Ints, kernel, map_parallel
from longtail.linear.held_out import predict_by_part
from longtail.linear.node import LABELS_PER_BLOCK, NodeTrainer, prune_weights
from longtail.linear.settings import LossSettings
from longtail.linear.solver import SOLVERS
from longtail.linear.trial import DEFAULT_C, choose_C, pack_C, resume_C, unpack_C
from longtail.linear.update import UpdateSamples, update_labels
from longtail.model import Model, Valid
from longtail.progress import Progress, Stage
from longtail.search.topk_kernels import NO_SCORE, ROWS_PER_CALL, insert_topk, make_empty_topk
from longtail.settings import settings
from longtail.sharding.tasks import Inputs
from longtail.state import State, check_array
from longtail.topk import HeldOut, TopK


@settings
class OneVsRestSettings(LossSettings):
    """Settings of one-vs-rest. Scores are margins with the squared hinge loss and probabilities with the logistic loss."""

    prune: float = 0.05
    eps: float = 0.1


class OneVsRest(OneVsRestSettings, Model):
    """A linear classifier for each label: the most accurate linear method, for up to some thousand labels.

    For each label, min ½‖w‖² + C Σᵢ max(0, 1 − yᵢ (w·xᵢ + b))², or the logistic loss instead of the squared hinge. Then
    weights with a magnitude below ``prune`` are dropped.

    Presets: ``paper`` is DiSMEC on single words (C 1, weights below 0.01 dropped). ``best`` lets the training data decide C
    and whether pairs of words are used, and drops weights below 0.05, which did not change the accuracy on held-out data.

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> OneVsRest().fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "paper": {"loss": "squared_hinge", "C": 1.0, "prune": 0.01, **PUBLISHED_FEATURES},
        "best": {},
    }

    can_shard = True
    chosen_C: float | None = None  # the value of C that ``fit`` used; None: an older version did not save it

    @property
    def score_meaning(self) -> Literal["probability", "margin"]:
        """Probability for the logistic loss, otherwise the margin w·x + b."""
        return "probability" if self.loss == "logistic" else "margin"

    @property
    def quick_settings(self) -> dict[str, Any]:
        """A C that needs no trial."""
        return {"C": self.C or DEFAULT_C[self.loss]}

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        C, self.decisions = choose_C(self.C, self.fit_quick, X, Y, self.loss, self.seed, self.threads, self.n_names)
        self.chosen_C = C
        # A block takes as many passes as its slowest label, and that depends on frequency: sort labels by frequency.
        by_frequency = np.argsort(-self.label_counts, kind="stable")
        order: Ints = by_frequency[self.label_counts[by_frequency] > 0].astype(np.int32)
        trainer = NodeTrainer(self.loss, C, self.eps, self.max_passes, self.prune, self.seed)
        parts = []
        self.bias = np.full(self.n_labels, -np.inf, np.float32)  # labels without samples are never predicted
        with progress.stage("labels", len(order)) as stage:
            for labels, W, bias in self._solve(trainer, X, Y.tocsc(), order, stage):
                parts.append(W)
                self.bias[labels] = bias
        W = sp.hstack(parts, format="csr")
        self.W = sp.csr_array((W.data, order[W.indices], W.indptr), shape=(self.n_features, self.n_labels))
        self.W.sort_indices()

    def _solve(
        self, trainer: NodeTrainer, X: sp.csr_array, Y: sp.csc_array, order: Ints, stage: Stage
    ) -> Iterator[tuple[Ints, sp.csr_array, Floats]]:
        """Yield labels with their weights and biases: by blocks, or by shards, which are consecutive blocks."""
        if self.cluster is None:
            for labels, W, bias in solve_blocks(trainer, X, Y, order, self.threads):
                yield labels, W, bias
                stage.advance(len(labels))
            return
        inputs = {"X": X, "Y": pack_columns(Y), "labels": {"order": order}}
        work = np.diff(np.append(np.arange(0, len(order), LABELS_PER_BLOCK), len(order)))  # labels of each block
        for first, end, found in self.cluster.run(solve_shard, inputs, asdict(trainer), work, stage):
            labels = order[first * LABELS_PER_BLOCK : end * LABELS_PER_BLOCK]
            arrays = (found["data"], found["indices"], found["indptr"])
            yield labels, sp.csr_array(arrays, shape=(X.shape[1], len(labels))), found["bias"]

    def _update(
        self, X: sp.csr_array, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress
    ) -> str:
        samples = UpdateSamples.collect(X, Y, known, old, self.n_samples, self.label_counts)
        changed = samples.find_changed_labels()
        changed = changed[self.count_labels(Y)[changed] > 0]  # a label that was only rejected is never predicted
        W = sp.csr_array((self.W.data, self.W.indices, self.W.indptr), shape=(self.n_features, Y.shape[1]))
        bias = np.full(Y.shape[1], -np.inf, np.float32)
        bias[: self.n_labels] = self.bias
        C, note = resume_C(self.C or self.chosen_C, self.loss)
        trainer = NodeTrainer(self.loss, C, self.eps, self.max_passes, self.prune, self.seed)
        self.W, self.bias = update_labels(samples, changed, W, bias, trainer, self.threads, progress)
        return f"{len(changed):,} of {Y.shape[1]:,} labels trained{note}"

    def predict_held_out(self, X: sp.csr_array, Y: sp.csr_array, k: int) -> HeldOut | None:
        """Predict training samples with a second model that is fitted to a part of the others."""
        fit = partial(self.fit_quick, cluster=self.cluster, **{**self.get_params(), "C": self.chosen_C})
        return predict_by_part(fit, X, Y, k, seed=self.seed, n_names=self.n_names)

    def _topk(self, X: sp.csr_array, k: int, allowed: Bools | None) -> TopK:
        bias = self.bias if allowed is None else np.where(allowed, self.bias, NO_SCORE)
        best = select_topk(X, self.W, bias, k, self.threads)
        return best if self.score_meaning == "margin" else TopK(best.ids, 1 / (1 + np.exp(-best.scores)))

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """The weights of the label: Σ x · slopes plus the bias is the margin, or the log-odds for the logistic loss."""
        weights: NDArray[np.float64] = self.W[x.indices][:, [label]].toarray().ravel().astype(np.float64)
        return weights

    def _state(self) -> State:
        weights = {"indptr": self.W.indptr, "indices": self.W.indices, "data": self.W.data, "bias": self.bias}
        return weights | pack_C(self.chosen_C)

    def _restore(self, state: State) -> None:
        indices = check_array(state, "indices", "i4 i8", (None,), minimum=0, maximum=self.n_labels - 1)
        indptr = check_array(state, "indptr", "i4 i8", (self.n_features + 1,), grows_to=len(indices))
        arrays = (check_array(state, "data", "f4", indices.shape), indices, indptr)
        self.W = sp.csr_array(arrays, shape=(self.n_features, self.n_labels))
        self.bias, self.chosen_C = check_array(state, "bias", "f4", (self.n_labels,)), unpack_C(state)


def solve_blocks(
    trainer: NodeTrainer, X: sp.csr_array, Y: sp.csc_array, order: Ints, threads: int | None
) -> Iterator[tuple[Ints, sp.csr_array, Floats]]:
    """Train the classifiers of labels, in blocks. Yields the labels, the weights and the biases of each block.

    :param trainer: The settings.
    :param X: [n_samples, n_features] The samples.
    :param Y: [n_samples, n_labels] Their labels.
    :param order: The labels, in the order in which they form blocks.
    """
    indptr, indices, data = append_constant(X.indptr, X.indices, X.data, X.shape[1])
    blocks = [order[i : i + LABELS_PER_BLOCK] for i in range(0, len(order), LABELS_PER_BLOCK)]

    def solve(labels: Ints) -> tuple[Ints, sp.csr_array, Floats]:
        signs = np.full((X.shape[0], len(labels)), -1, np.int8)
        for b, label in enumerate(labels):
            signs[get_column_rows(Y, label), b] = 1
        weight = np.ones(len(labels), np.float32)
        W, alpha = np.zeros((X.shape[1] + 1, len(labels)), np.float32), np.zeros(signs.shape, np.float32)
        options = (trainer.C, trainer.eps, trainer.max_passes, trainer.seed)
        SOLVERS[trainer.loss](indptr, indices, data, signs, weight, np.ones(len(signs), np.float32), W, alpha, *options)
        return labels, prune_weights(W[:-1], trainer.prune), W[-1].copy()

    return map_parallel(solve, blocks, threads)


def solve_shard(inputs: Inputs, settings: dict[str, Any], first: int, end: int) -> State:
    """Train a range of blocks of labels."""
    labels = inputs["labels"]["order"][first * LABELS_PER_BLOCK : end * LABELS_PER_BLOCK]
    Y = unpack_columns(inputs["Y"], inputs["X"].shape[0])
    _, parts, bias = zip(*solve_blocks(NodeTrainer(**settings), inputs["X"], Y, labels, 1), strict=True)
    W = sp.hstack(parts, format="csr")
    return {"indptr": W.indptr, "indices": W.indices, "data": W.data, "bias": np.concatenate(bias)}


def select_topk(X: sp.csr_array, W: sp.csr_array, bias: Floats, k: int, threads: int | None) -> TopK:
    """The k labels with the largest scores ``X @ W + bias`` for each sample.

    Labels with a bias of minus infinity are excluded. Each thread holds the scores of one sample at a time.

    :param X: [n_samples, n_features] The samples.
    :param W: [n_features, n_labels] The weights.
    :param bias: [n_labels]

    >>> X, W = sp.csr_array(np.eye(2, dtype=np.float32)), sp.csr_array(np.array([[1, 3, 2], [0, 0, 1]], np.float32))
    >>> select_topk(X, W, np.zeros(3, np.float32), k=2, threads=1).ids.tolist()
    [[1, 2], [2, 0]]
    """
    n_samples = X.shape[0]
    ids, scores = make_empty_topk(n_samples, k)

    def work(start: int) -> None:
        rows = slice(start, min(start + ROWS_PER_CALL, n_samples))
        x_indptr = X.indptr[start : rows.stop + 1]
        _topk_rows(x_indptr, X.indices, X.data, W.indptr, W.indices, W.data, bias, ids[rows], scores[rows])

    threads = threads if n_samples > ROWS_PER_CALL else 1
    for _ in map_parallel(work, range(0, n_samples, ROWS_PER_CALL), threads):
        pass
    return TopK(ids, scores)


@kernel
def _topk_rows(
    x_indptr: Ints,
    x_indices: Ints,
    x_data: Floats,
    w_indptr: Ints,
    w_indices: Ints,
    w_data: Floats,
    bias: Floats,
    ids: Ints,
    scores: Floats,
) -> None:
    """Fill empty ids and scores [n_rows, k]: sum the weights of the sample's features, then keep the k largest totals."""
    total = np.empty(len(bias), np.float32)
    for row in range(len(ids)):
        total[:] = bias
        for p in range(x_indptr[row], x_indptr[row + 1]):
            feature, value = x_indices[p], x_data[p]
            for q in range(w_indptr[feature], w_indptr[feature + 1]):
                total[w_indices[q]] += value * w_data[q]
        n_found = 0
        for label in range(len(total)):
            if total[label] > scores[row, -1]:  # a tie with the last one is lost: its id is smaller
                n_found = insert_topk(label, total[label], ids[row], scores[row], n_found)
