"""Training of GLaS: algorithm 2 of Guo et al. (NeurIPS 2019), and the variants that did better on held-out data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from longtail.data.holdout import find_sampled_labels
from longtail.kernels import Floats, Ints, Longs
from longtail.linear.sparse_part import SparsePart
from longtail.linear.sparse_training import choose_scale, fit_sparse_part
from longtail.model import Valid
from longtail.models.glas.cooccurrence import compute_cooccurrence, take_submatrix
from longtail.models.glas.network import GlasNetwork, GlasWeights
from longtail.models.glas.plan import DEFAULT_DIM, DEFAULT_HARDEST, GlasPlan
from longtail.models.glas.regularisers import REGULARISERS, gravity_loss
from longtail.models.glas.settings import GlasSettings
from longtail.models.glas.start import start_from_labels
from longtail.nn.continuation import NewSamples, Pace, Paces, divide_randomly, start_new_labels, train_further
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.divided_rows import DividedRows, collect_rows, find_rows, pays_to_divide, sum_over_ranks
from longtail.nn.loop import train
from longtail.nn.loop_plan import plan_loop
from longtail.nn.losses import SAMPLED_LOSSES, full_loss, keep_hardest, known_loss, list_positives, margin_loss
from longtail.nn.optim import JointOptimizer, LazyAdam, RowAdagrad, RowOptimizer, RowSgd, split_parameters
from longtail.nn.ranks import gather_labels, get_rank
from longtail.nn.sparse_embedding import drop_entries
from longtail.nn.validation import MeanPrecision, mean_precision, rank_by_inner_product
from longtail.progress import Progress

_OPTIMIZERS: dict[str, type[RowOptimizer]] = {"sgd": RowSgd, "adagrad": RowAdagrad, "adam": LazyAdam}
_SAMPLES_PER_BLOCK = 4096  # embedded at a time to initialise label vectors
_MIN_PROBABILITY = 1e-9  # of drawing a label, so that its logarithm is finite
_MIN_SAMPLES, _MAX_SHARE = 0.1, 0.5  # bounds of a label's frequency: samples, and share of all samples
PACES = Paces(  # of updates
    replay=Pace(epochs=6, rate=0.5, new_share=0.5), alone=Pace(epochs=2, rate=0.03), feedback=Pace(epochs=3, rate=0.1)
)


class GlasTraining:
    """The network, the batches of an epoch, and the loss of a batch."""

    def __init__(
        self, X: sp.csr_array, Y: sp.csr_array, settings: GlasSettings, plan: GlasPlan, words: Floats | None = None
    ) -> None:
        """Initialise the network.

        :param words: Pretrained vectors of the features [n_features, dim]. None: start at random.
        """
        torch.manual_seed(settings.seed)
        self.X, self.Y, self.settings, self.plan = X, Y, settings, plan
        dim = settings.dim or DEFAULT_DIM
        if words is None and plan.init == "svd":
            words = start_from_labels(X, Y, dim, settings.seed)
        self.net = GlasNetwork(
            X.shape[1],
            Y.shape[1],
            dim if words is None else words.shape[1],
            relu=plan.relu,
            second_layer=settings.second_layer,
            weight_norm=settings.weight_norm,
            unit_inputs=settings.unit_inputs,
            label_bias=settings.label_bias,
            sparse_labels=plan.negatives != "all",
            divided_features=pays_to_divide(X.shape[1], plan.batch),
            divided_labels=pays_to_divide(Y.shape[1], plan.batch),
        ).to(find_device(settings.device))
        if words is not None:
            self.net.features.weight.data.copy_(torch.from_numpy(words[find_rows(self.net.features.weight)]))
        self.U = compute_cooccurrence(Y, settings.cooccurrence or "arithmetic") if settings.uses_cooccurrence else None
        self.labelled = np.flatnonzero(np.diff(Y.indptr))  # samples that have a label to draw
        self.seen: Ints = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
        self.ranked = self.seen  # labels to rank on held-out samples
        log_q = np.log(np.maximum(_compute_draw_probabilities(Y), _MIN_PROBABILITY))  # [n_labels]
        strength = 0.5 if settings.logq_correction is None else settings.logq_correction
        self.correction = torch.tensor(strength * log_q, dtype=torch.float32, device=self.net.features.weight.device)
        if settings.label_bias and (plan.loss == "bce" or plan.negatives == "all"):
            self._init_bias()
        if plan.init != "random":
            self.net.set_label_vectors(self.compute_directions(), plan.init_norm)

    def _init_bias(self) -> None:
        """Initialise biases with the log-odds of the label frequencies.

        With PIFA and binary cross-entropy, all get those of the mean frequency: the vectors of frequent labels are near
        those of most samples already.
        """
        n_samples, n_labels = self.Y.shape
        share = np.bincount(self.Y.indices, minlength=n_labels) / n_samples
        if self.plan.init == "pifa" and self.plan.loss == "bce":
            share = np.full_like(share, share.mean())
        else:
            share = np.maximum(share, _MIN_SAMPLES / n_samples)
        share = np.minimum(share, _MAX_SHARE)
        self.net.bias.data.copy_(torch.tensor(np.log(share / (1 - share)))[find_rows(self.net.bias)])

    @torch.no_grad()
    def compute_directions(self) -> Tensor:
        """Return unit vectors of labels by PIFA [n_labels, dim]: from the centroid of all samples towards the label's.

        If ranks divide the labels, those of this rank.
        """
        V = self.net.label_rows
        total, own = torch.zeros(len(V), len(self.net.shift)), find_rows(V)
        n_samples = self.X.shape[0]
        for rows in np.array_split(np.arange(n_samples), n_samples // _SAMPLES_PER_BLOCK + 1):
            H = self.net.embed(self.X[rows]).cpu()
            total += torch.from_numpy(self.Y[rows][:, own].T.tocsr() @ H.numpy())
        centre = sum_over_ranks(total.sum(0)) if isinstance(V, DividedRows) else total.sum(0)
        return normalize(normalize(total, dim=1) - normalize(centre, dim=0), dim=1)

    @property
    def n_steps(self) -> int:
        """Number of batches per epoch."""
        return max(len(self.labelled) // self.plan.batch, 1)

    def batches(self, rng: np.random.Generator) -> Iterator[Longs]:
        """Yield the rows of each batch of an epoch, in random order."""
        yield from np.array_split(rng.permutation(self.labelled), self.n_steps)

    def loss(self, rows: Longs) -> Tensor:
        """Return the data loss of a batch plus λ times the regulariser (algorithm 2)."""
        y = self.Y[rows]
        H = self.net.embed(self.drop_features(self.X[rows]))  # [B, dim]
        labels, drawn, counts = self.draw_labels(y)
        if self.plan.negatives == "all":
            total = full_loss(self.plan.loss, H, self.net.label_vectors(), self.net.bias, list_positives(y, H.device))
        else:
            total = self.sampled_loss(H, y, labels, drawn)
        if not self.settings.reg_weight:
            return total
        return total + self.settings.reg_weight * self.reg_loss(H, labels, counts)

    def draw_labels(self, y: sp.csr_array) -> tuple[Ints, Tensor, Tensor]:
        """Draw one positive label of each sample, uniformly.

        :returns: The C different labels drawn, which of them each sample drew [B], and how often each was drawn [C]. If
            ranks divide a batch, the labels are those of the whole batch.
        """
        at = y.indptr[:-1] + (torch.rand(y.shape[0]).numpy() * np.diff(y.indptr)).astype(np.int64)
        own = y.indices[at]
        labels, counts = np.unique(gather_labels(own), return_counts=True)
        drawn = np.searchsorted(labels, own)
        device = self.net.bias.device
        return labels, torch.tensor(drawn, device=device), torch.tensor(counts, device=device).float()

    def sampled_loss(self, H: Tensor, y: sp.csr_array, labels: Ints, drawn: Tensor) -> Tensor:
        """Return the loss of the drawn positives against the drawn labels that a sample does not have."""
        V = self.net.label_vectors(labels)  # [C, dim]
        scores = H @ V.T + self.net.bias[labels] - self.correction[labels]  # [B, C]
        is_negative = torch.tensor(y[:, labels].toarray() == 0, device=H.device)  # [B, C]
        if self.plan.negatives == "hardest":
            is_negative = keep_hardest(scores, is_negative, self.settings.n_hardest or DEFAULT_HARDEST)
        own = scores.gather(1, drawn[:, None])[:, 0]  # [B]
        if self.plan.loss == "margin":
            return margin_loss(own, scores, is_negative, self.settings.margin or 1.0).mean()
        return SAMPLED_LOSSES[self.plan.loss](own, scores, is_negative).mean()

    def reg_loss(self, H: Tensor, labels: Ints, counts: Tensor) -> Tensor:
        """Return the regulariser over the labels drawn for the batch, or over as many drawn uniformly (eq. 2 to 4)."""
        if self.settings.regulariser == "gravity":
            return gravity_loss(H, self.net.label_vectors(labels), counts)
        if self.settings.reg_sampling == "uniform":
            n = min(len(H), len(self.seen))
            labels = np.sort(self.seen[torch.randperm(len(self.seen))[:n].numpy()])
            counts = torch.ones(n, device=H.device)
        V = normalize(self.net.label_directions(labels), dim=1)  # [n, dim]
        U = torch.zeros(0) if self.U is None else torch.tensor(take_submatrix(self.U, labels), device=H.device)
        return REGULARISERS[self.settings.regulariser or "glas"](V, U, counts)

    def drop_features(self, X: sp.csr_array) -> sp.csr_array:
        """Keep each feature with probability ρ (input dropout, section 3.3)."""
        keep_prob = self.settings.keep_prob
        if keep_prob == 1:
            return X
        indptr, indices, data = drop_entries(X.indptr, X.indices, X.data, keep_prob)
        if self.settings.rescale:
            data = data / np.float32(keep_prob)
        return sp.csr_array((data, indices, indptr), shape=X.shape)

    def build_optimizer(self) -> JointOptimizer:
        """Build the optimiser: the chosen one for E, Adam for everything else."""
        net, label_rate = self.net, self.plan.label_rate
        _, dense = split_parameters(net)
        dense = [parameter for parameter in dense if parameter.requires_grad]
        parts: list[torch.optim.Optimizer] = [_OPTIMIZERS[self.plan.optimizer](net.features, lr=self.plan.rate)]
        if net.label_table is not None:
            parts.append(LazyAdam(net.label_table, lr=label_rate))
        return JointOptimizer(*parts, torch.optim.AdamW(dense, lr=label_rate, weight_decay=0.0))

    @torch.no_grad()
    def validate(self, X: sp.csr_array, Y: sp.csr_array, sparse: SparsePart | None = None) -> MeanPrecision:
        """Return the mean of P@1, P@3 and P@5 on held-out samples, in percent. sparse: added to the scores."""
        net, device = self.net, self.net.bias.device
        others = None if sparse is None else lambda X: torch.tensor(sparse.score(X), device=device)
        bias = net.bias if isinstance(net.bias, DividedRows) else net.bias[find_rows(net.label_rows)]
        vectors = net.label_vectors(), bias, net.label_rows
        return mean_precision(rank_by_inner_product(net.embed, *vectors, self.ranked, X, others), Y)

    def add_sparse_part(self, weights: GlasWeights, valid: Valid | None, progress: Progress) -> GlasWeights:
        """Fit a sparse part to the same samples, and choose its weight in the sum on held-out samples."""
        part = fit_sparse_part(self.X, self.Y, self.settings.seed, self.settings.threads, progress)
        validate = None if valid is None else lambda each: self.validate(*valid, each).of_samples
        is_optional = self.settings.sparse_part is None
        return weights._replace(sparse=choose_scale(part, validate, is_optional=is_optional, progress=progress))


def _compute_draw_probabilities(Y: sp.csr_array) -> NDArray[np.float64]:
    """Return the probability that the label drawn for a random sample is this one, for each label [n_labels]."""
    labels_per_sample = np.diff(Y.indptr)
    share = np.repeat(1 / np.maximum(labels_per_sample, 1), labels_per_sample)
    out: NDArray[np.float64] = sp.csr_array((share, Y.indices, Y.indptr), Y.shape).sum(axis=0) / Y.shape[0]
    return out


def fit_glas(
    X: sp.csr_array,
    Y: sp.csr_array,
    settings: GlasSettings,
    plan: GlasPlan,
    valid: Valid | None,
    words: Floats | None,
    n_names: int,
    progress: Progress,
) -> tuple[GlasWeights, list[dict[str, float]]]:
    """Train the network; return its weights and one row of history per epoch.

    :param words: Pretrained vectors of the features [n_features, dim]. None: start at random.
    :param n_names: The last rows that are names of labels.
    """
    training = GlasTraining(X, Y, settings, plan, words)
    training.ranked = find_sampled_labels(Y, n_names)
    data = (array for part in (X, Y, *(valid or ())) for array in (part.indptr, part.indices, part.data))
    loop = replace(plan_loop(settings, plan, training.n_steps, data), average=plan.average)
    metric = (lambda: training.validate(*valid)) if valid is not None else None
    with torch_threads(settings.threads):
        run = train(
            training.net, training.batches, training.loss, training.build_optimizer(), loop, metric=metric, progress=progress
        )
        collect_rows(training.net)
        weights = training.net.export()
        if plan.sparse_part and get_rank() == 0:
            weights = training.add_sparse_part(weights, valid, progress)
    return weights, run.history


def continue_glas(
    samples: NewSamples,
    settings: GlasSettings,
    plan: GlasPlan,
    weights: GlasWeights,
    new: Ints,
    log_odds: Floats,
    progress: Progress,
) -> GlasWeights:
    """Continue to train a network on new and replayed samples.

    :param weights: Its weights, with rows of zeros for new labels.
    :param new: The new labels.
    :param log_odds: Their log-odds among all samples [len(new)].
    """
    training = GlasTraining(samples.X, samples.Y, settings, replace(plan, init="random"), np.zeros_like(weights.E))
    net = training.net
    net.load(weights)
    if len(new):
        _start_labels(training, samples, weights, new, log_odds)
    _keep_absent_labels(net, samples)

    def partial_loss(rows: Longs) -> Tensor:
        H = net.embed(samples.X[rows])

        def score(row: Tensor, label: Tensor) -> Tensor:
            return (H[row] * net.label_vectors(label.cpu().numpy())).sum(1) + net.bias[label]

        return known_loss(score, *samples.get_known(rows), H.device)

    losses = training.loss, partial_loss
    with torch_threads(settings.threads):
        train_further(net, samples, divide_randomly(plan.batch), losses, training.build_optimizer(), settings, progress)
    return net.export()


def _start_labels(training: GlasTraining, samples: NewSamples, weights: GlasWeights, new: Ints, log_odds: Floats) -> None:
    """Start the vectors of new labels: at a logistic regression if scores are log-odds, otherwise as in training.

    Vectors that start at the centroids, as all do in training, have no negative samples yet: they would be predicted too
    often. Without a common scale of the scores, they get the mean length and bias of the other labels.
    """
    net, settings = training.net, training.settings
    if training.plan.loss == "bce" and settings.label_bias and settings.weight_norm == "none":
        rows = np.arange(samples.Y.shape[0])
        vectors, bias = start_new_labels(samples, rows, lambda some: net.embed(samples.X[some]), new, log_odds)
        net.start_labels(new, vectors, bias)
        return
    known = np.setdiff1d(np.flatnonzero(np.abs(weights.V).sum(axis=1)), new)
    norm = float(np.linalg.norm(weights.V[known], axis=1).mean())
    net.start_labels(new, training.compute_directions()[new] * norm, torch.tensor(weights.bias[known].mean()))


def _keep_absent_labels(net: GlasNetwork, samples: NewSamples) -> None:
    """Keep the vectors and biases of labels that no available sample has.

    They would be forgotten: all available samples are negative ones. Those in a table stay anyway, since a step uses only
    the labels of its samples.
    """
    if net.label_matrix is None:
        return
    is_present = np.zeros(samples.Y.shape[1], bool)
    is_present[samples.Y.indices] = True
    if samples.known is not None:
        is_present[samples.known.indices] = True
    kept = torch.from_numpy(is_present).to(net.bias)
    net.label_matrix.register_hook(lambda slope: slope * kept[:, None])  # type: ignore[no-untyped-call]
    if net.bias.requires_grad:
        net.bias.register_hook(lambda slope: slope * kept)  # type: ignore[no-untyped-call]
