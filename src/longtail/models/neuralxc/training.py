"""Training of NeuralXC: all networks jointly by eq. 1, or in stages (Srinivasan, Rao and Agarwal, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import normalize

from longtail.data.holdout import find_sampled_labels
from longtail.kernels import Ints, Longs
from longtail.labelspace.centroids import compute_log_odds
from longtail.linear.sparse_part import SparsePart
from longtail.linear.sparse_training import choose_scale, fit_sparse_part
from longtail.model import Valid
from longtail.models.neuralxc.network import NeuralXCNetwork, NeuralXCWeights
from longtail.models.neuralxc.settings import NeuralXCPlan, NeuralXCSettings
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.loop import train
from longtail.nn.loop_plan import plan_loop
from longtail.nn.optim import JointOptimizer, LazyAdam, RowSgd, split_parameters
from longtail.nn.ranks import get_rank
from longtail.nn.sparse_embedding import drop_entries
from longtail.nn.validation import MeanPrecision, mean_precision, rank_by_inner_product
from longtail.progress import Progress

History = list[dict[str, float]]  # one row per epoch

_SAMPLES_PER_BLOCK = 4096  # encoded at a time to initialise label vectors


class NeuralXCStage(NamedTuple):
    """Networks that are trained together."""

    name: str
    networks: list[torch.nn.Module]
    loss: Callable[[Longs], Tensor]


class NeuralXCTraining:
    """The networks, the batches of an epoch, and the loss of a batch."""

    def __init__(
        self,
        X: sp.csr_array,
        Y: sp.csr_array,
        settings: NeuralXCSettings,
        plan: NeuralXCPlan,
        outputs: Ints | None = None,
    ) -> None:
        """Initialise the networks.

        :param outputs: The features that ψᵢ reconstructs. None: as many as the plan says, the most frequent ones.
        """
        torch.manual_seed(settings.seed)
        self.X, self.Y, self.settings, self.plan = X, Y, settings, plan
        if outputs is None and plan.n_reconstructed < X.shape[1]:
            counts = np.bincount(X.indices, minlength=X.shape[1])
            outputs = np.sort(np.argsort(-counts, kind="stable")[: plan.n_reconstructed]).astype(np.int32)
        self.outputs = outputs
        self.targets = X if outputs is None else sp.csr_array(X[:, outputs])  # what ψᵢ reconstructs
        n_features, n_labels = X.shape[1], Y.shape[1]
        self.net = NeuralXCNetwork(n_features, n_labels, settings, plan).to(find_device(settings.device))
        is_mean = settings.reduction == "mean"
        self.per_feature: float = 1 / plan.n_reconstructed if is_mean else 1.0  # factor of a sum over features
        self.per_label: float = 1 / n_labels if is_mean else 1.0
        label_counts = np.bincount(Y.indices, minlength=n_labels)
        self.seen: Ints = np.flatnonzero(label_counts).astype(np.int32)  # labels that have samples
        self.ranked = self.seen  # labels to rank on held-out samples
        if settings.prior_bias:
            self.net.label_decoder.bias.data.copy_(torch.tensor(compute_log_odds(label_counts, Y.shape[0])))
        if plan.label_init == "centroids":
            self._init_label_vectors()

    @torch.no_grad()
    def _init_label_vectors(self) -> None:
        """Initialise the last layer of ψₒ with centroids: labels start where their samples are."""
        last = self.net.label_decoder
        total = np.zeros(last.output_layer.shape, np.float32)
        n_samples = self.X.shape[0]
        for rows in np.array_split(np.arange(n_samples), n_samples // _SAMPLES_PER_BLOCK + 1):
            total += self.Y[rows].T.tocsr() @ normalize(self.net.embed(self.X[rows]), dim=1).cpu().numpy()
        last.output_layer.data.copy_(self.plan.init_norm * normalize(torch.from_numpy(total), dim=1))

    @property
    def n_steps(self) -> int:
        """Number of batches per epoch."""
        return int(max(self.X.shape[0] // self.plan.batch, 1))

    def batches(self, rng: np.random.Generator) -> Iterator[Longs]:
        """Yield the rows of each batch of an epoch, in random order."""
        yield from np.array_split(rng.permutation(self.X.shape[0]), self.n_steps)

    def loss(self, rows: Longs) -> Tensor:
        """Return the loss of a batch: eq. 1, plus γ ‖f(φᵢ(x)) − φₒ(y)‖².

        Eq. 1 is α ‖ψᵢ(φᵢ(x)) − x‖² + β ‖ψₒ(φₒ(y)) − y‖² + BCE(ψₒ(f(φᵢ(x))), y).
        """
        net, x, y = self.net, self.X[rows], self.Y[rows]
        alpha, beta, gamma = self.settings.weights
        code = net.encoder(self.drop_features(x))  # [B, a]
        latent = net.regressor(code)  # [B, b]
        total: Tensor = self.per_label * net.label_decoder.bce(latent, y)
        if alpha:
            error = net.decoder.squared_error(code, self.targets[rows], self.plan.output_activation)
            total = total + alpha * self.per_feature * error
        if (beta or gamma) and self.plan.label_encoder_in_loss:
            label_code = net.label_encoder(y)  # [B, b]
            if beta:
                error = net.label_decoder.squared_error(label_code, y, "sigmoid")
                total = total + beta * self.per_label * error
            if gamma:
                total = total + gamma * _squared_distance(latent, label_code)
        return total

    def input_loss(self, rows: Longs) -> Tensor:
        """Return the loss of the input autoencoder alone: ‖ψᵢ(φᵢ(x)) − x‖²."""
        net, x = self.net, self.X[rows]
        code = net.encoder(self.drop_features(x))
        return self.per_feature * net.decoder.squared_error(code, self.targets[rows], self.plan.output_activation)

    def label_loss(self, rows: Longs) -> Tensor:
        """Return the loss of the label autoencoder alone: ‖ψₒ(φₒ(y)) − y‖²."""
        net, y = self.net, self.Y[rows]
        return self.per_label * net.label_decoder.squared_error(net.label_encoder(y), y, "sigmoid")

    def regressor_loss(self, rows: Longs) -> Tensor:
        """Return the loss of the regressor between fixed codes: ‖f(φᵢ(x)) − φₒ(y)‖²."""
        with torch.no_grad():
            code, label_code = self.net.encoder(self.X[rows]), self.net.label_encoder(self.Y[rows])
        return _squared_distance(self.net.regressor(code), label_code)

    def stages(self) -> list[NeuralXCStage]:
        """List what is trained: all networks together, or one after the other as the paper's text describes it."""
        net = self.net
        if self.settings.mode == "joint":
            return [NeuralXCStage("epochs", [net], self.loss)]
        return [
            NeuralXCStage("inputs", [net.encoder, net.decoder], self.input_loss),
            NeuralXCStage("labels", [net.label_encoder, net.label_decoder], self.label_loss),
            NeuralXCStage("regressor", [net.regressor], self.regressor_loss),
        ]

    def drop_features(self, X: sp.csr_array) -> sp.csr_array:
        """Keep each feature with probability ``keep_prob`` (input dropout)."""
        if self.settings.keep_prob == 1:
            return X
        indptr, indices, data = drop_entries(X.indptr, X.indices, X.data, self.settings.keep_prob)
        return sp.csr_array((data, indices, indptr), shape=X.shape)

    def build_optimizer(self, networks: list[torch.nn.Module]) -> JointOptimizer:
        """Build Adam with L2 as published, or SGD or lazy Adam for the first layer of φᵢ and AdamW for all other layers."""
        rate, label_rate, decay = self.plan.rate, self.plan.label_rate, self.settings.weight_decay
        tables, dense = split_parameters(torch.nn.ModuleList(networks))
        if self.plan.optimizer == "adam":
            return JointOptimizer(torch.optim.Adam(dense, lr=rate, weight_decay=decay, fused=True))
        optimizers: list[torch.optim.Optimizer] = []
        if first := [table for table in tables if table is self.net.encoder.table]:
            optimizers.append((RowSgd if self.plan.optimizer == "sgd" else LazyAdam)(first, lr=rate))
        if others := [table for table in tables if table is not self.net.encoder.table]:
            optimizers.append(LazyAdam(others, lr=label_rate))
        last = [self.net.label_decoder.bias, self.net.label_decoder.output_layer]  # label vectors and their biases
        groups = [
            {"params": [p for p in dense if any(p is one for one in last)], "lr": label_rate},
            {"params": [p for p in dense if not any(p is one for one in last)], "lr": self.plan.inner_rate},
        ]
        groups = [group for group in groups if group["params"]]
        return JointOptimizer(*optimizers, torch.optim.AdamW(groups, weight_decay=decay, fused=True))

    @torch.no_grad()
    def validate(self, X: sp.csr_array, Y: sp.csr_array, sparse: SparsePart | None = None) -> MeanPrecision:
        """Return the mean of P@1, P@3 and P@5 on held-out samples, in percent. sparse: added to the logits."""
        last = self.net.label_decoder
        others = None if sparse is None else lambda X: torch.tensor(sparse.score(X), device=last.bias.device)
        vectors = last.output_layer, last.bias, last.bias
        return mean_precision(rank_by_inner_product(self.net.embed, *vectors, self.ranked, X, others), Y)

    def fit_sparse_part(self, valid: Valid | None, progress: Progress) -> SparsePart | None:
        """Fit a sparse part to the same samples, and choose its weight in the sum on held-out samples."""
        part = fit_sparse_part(self.X, self.Y, self.settings.seed, self.settings.threads, progress)
        validate = None if valid is None else lambda each: self.validate(*valid, each).of_samples
        return choose_scale(part, validate, is_optional=self.settings.sparse_part is None, progress=progress)


def fit_neuralxc(
    X: sp.csr_array,
    Y: sp.csr_array,
    settings: NeuralXCSettings,
    plan: NeuralXCPlan,
    valid: Valid | None,
    n_names: int,
    progress: Progress,
) -> tuple[NeuralXCWeights, History]:
    """Train the networks; return their weights and the history of the last stage.

    :param n_names: The last rows that are names of labels.
    """
    training = NeuralXCTraining(X, Y, settings, plan)
    training.ranked = find_sampled_labels(Y, n_names)
    with torch_threads(settings.threads):
        history = _train_stages(training, valid, progress)
        weights = training.net.export(plan.output_activation, training.outputs)
        if settings.wants_sparse_part(len(training.seen)) and get_rank() == 0:
            weights = weights._replace(sparse=training.fit_sparse_part(valid, progress))
    return weights, history


def _train_stages(training: NeuralXCTraining, valid: Valid | None, progress: Progress) -> History:
    """Train all stages; return the history of the last one. What only training needs is freed before weights are copied."""
    X, Y, settings = training.X, training.Y, training.settings
    data = [array for part in (X, Y, *(valid or ())) for array in (part.indptr, part.indices, part.data)]
    metric = (lambda: training.validate(*valid)) if valid is not None else None
    stages, history = training.stages(), []
    loop = plan_loop(settings, training.plan, training.n_steps, data, n_runs=len(stages))
    for stage in stages:
        of_stage = replace(loop, name=stage.name)
        if settings.checkpoint and len(stages) > 1:
            of_stage.checkpoint = f"{settings.checkpoint}-{stage.name}"
        optimizer, score = training.build_optimizer(stage.networks), metric if stage is stages[-1] else None
        run = train(training.net, training.batches, stage.loss, optimizer, of_stage, metric=score, progress=progress)
        history = run.history
    return history


def _squared_distance(first: Tensor, second: Tensor) -> Tensor:
    """Return ‖first − second‖², averaged over a batch."""
    return (first - second).square().sum(1).mean()
