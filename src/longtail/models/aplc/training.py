"""Training of APLC-XLNet (Ye, Chen, Wang, Davison; ICML 2020).

The three parts of the network have separate learning rates (section 4.1): it "is infeasible to train the model with the
same".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.features.bags import fit_idf, weigh_tokens
from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Ints, Longs
from longtail.models.aplc.frozen_layers import TrainingTexts, prepare_texts
from longtail.models.aplc.network import AplcNetwork, partition_labels
from longtail.models.aplc.partition import ClusterLogOdds, Partition
from longtail.models.aplc.plan import WORDS, AplcPlan
from longtail.models.aplc.settings import AplcSettings, Texts
from longtail.models.aplc.start import start_at_centroids
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.divided_rows import collect_rows, pays_to_divide
from longtail.nn.encoder_factory import encoder_to_arrays, make_encoder
from longtail.nn.encoders import BagEncoder, TextEncoder, group_by_layer
from longtail.nn.loop import Metric, TrainingRun, train
from longtail.nn.loop_plan import LoopPlan, plan_loop
from longtail.nn.losses import list_positives
from longtail.nn.optim import JointOptimizer, LazyAdam, split_parameters
from longtail.nn.schedule import add_warm_up
from longtail.nn.validation import mean_precision
from longtail.progress import Progress
from longtail.state import State

HeldOut = tuple[Texts, sp.csr_array]  # held-out texts and their labels

_LAYERS = 2  # of an encoder from scratch, by default


def make_optimizer(net: AplcNetwork, plan: AplcPlan, *, encoder: bool = True, unfreeze: bool = False) -> JointOptimizer:
    """AdamW with three learning rates; token vectors are trained by an Adam that updates only the used rows.

    :param encoder: Whether the encoder is trained.
    :param unfreeze: The first epoch trains no layer of the encoder, the second its last, and so on (ULMFiT, 2018).
    """
    groups: list[dict[str, Any]] = [
        {"params": list(net.hidden.parameters()), "lr": plan.hidden_rate},
        {"params": list(net.head.parameters()), "lr": plan.head_rate},
    ]
    sparse = []
    if encoder and net.encoder is not None:
        tables, _ = split_parameters(net.encoder)
        in_tables = {table.weight for table in tables}
        layers = group_by_layer(net.encoder)
        for epoch, layer in enumerate(layers, 1):
            start = {"unfreeze_epoch": epoch} if unfreeze else {}
            dense = [parameter for parameter in layer if parameter not in in_tables]
            groups += [{"params": dense, "lr": plan.rate, **start}] if dense else []
        if tables:
            sparse = [LazyAdam(tables, lr=plan.rate)]
            sparse[0].param_groups[0] |= {"unfreeze_epoch": len(layers)} if unfreeze else {}
    return JointOptimizer(*sparse, torch.optim.AdamW(groups, weight_decay=0.0, fused=True))


class AplcTraining:
    """The network, the batches of an epoch, and the loss of a batch."""

    def __init__(
        self,
        encoder: TextEncoder,
        partition: Partition,
        rows: Texts,
        Y: sp.csr_array,
        settings: AplcSettings,
        plan: AplcPlan,
        log_odds: ClusterLogOdds | None,
    ) -> None:
        """Initialise all layers but the encoder's.

        :param rows: Tokens or features of the training texts.
        :param log_odds: Where the biases start; None if there are none.
        """
        self.encoder, self.partition, self.rows, self.Y, self.settings = encoder, partition, rows, Y, settings
        self.is_bag = isinstance(encoder, BagEncoder)
        if isinstance(encoder, BagEncoder) and settings.rate is None and not settings.paper:
            plan = replace(plan, rate=plan.rate / encoder.width**0.5 / _sum_weights(encoder, rows))
        self.plan = plan
        self.device = find_device(settings.device)
        self.net = AplcNetwork(encoder, partition, settings, plan, log_odds).to(self.device)

    @property
    def n_threads(self) -> int | None:
        """CPU threads: with one, the results of a bag are reproducible."""
        return 1 if self.is_bag else self.settings.threads

    def prepare(self, rows: Texts) -> TrainingTexts:
        """Texts that the network in training encodes."""
        return prepare_texts(self.encoder, self.net.encoder, rows, self.settings.cache)

    def batches(self, rng: np.random.Generator) -> list[Longs]:
        """The rows of each batch of an epoch, in random order."""
        if self.is_bag:  # it needs no padding, so the texts of a batch need not be of similar length
            n_texts = self.Y.shape[0]
            return np.array_split(rng.permutation(n_texts), -(-n_texts // self.plan.batch))
        return make_length_batches(self.rows.lengths, rng, batch=self.plan.batch)

    def make_loss(self, texts: TrainingTexts) -> Callable[[Longs], Tensor]:
        """Make a function that returns the loss of a batch of these texts."""
        net = self.net
        return lambda some: net.head.loss(net.embed(texts.encode(some)), list_positives(self.Y[some], self.device))

    def make_metric(self, held_out: TrainingTexts, Y: sp.csr_array) -> Metric:
        """Make a function that returns the mean of P@1, P@3 and P@5 on held-out texts."""
        return lambda: mean_precision(self.net.rank(held_out.encode_all()), Y)

    def fit(self, valid: HeldOut | None, progress: Progress) -> TrainingRun:
        """Start at the centroids if the settings say so, and train: first the head alone if they say so."""
        texts, settings, net = self.prepare(self.rows), self.settings, self.net
        held_out = self.prepare(valid[0]) if valid else None
        loop = self._plan_loop(valid)
        if self.plan.init == "pifa":
            net.eval()
            start_at_centroids(net, texts.encode, self.Y, self.partition, settings.init_scale)

        def run(
            texts: TrainingTexts, held_out: TrainingTexts | None, optimizer: JointOptimizer, loop: LoopPlan
        ) -> TrainingRun:
            metric = self.make_metric(held_out, valid[1]) if held_out and valid else None
            return train(net, self.batches, self.make_loss(texts), optimizer, loop, metric=metric, progress=progress)

        if settings.head_epochs:
            net.eval()
            first = replace(loop, epochs=settings.head_epochs, log=None, checkpoint=None, name="epochs of the head")
            optimizer = make_optimizer(net, self.plan, encoder=False, unfreeze=settings.unfreeze)
            run(texts.freeze(), held_out and held_out.freeze(), optimizer, first)
        return run(texts, held_out, make_optimizer(net, self.plan, unfreeze=settings.unfreeze), loop)

    def _plan_loop(self, valid: HeldOut | None) -> LoopPlan:
        steps = len(self.batches(np.random.default_rng(0)))
        pairs = [(self.rows, self.Y), *([valid] if valid else [])]
        data = (array for x, y in pairs for array in (*_list_arrays(x), y.indptr, y.indices))
        n_runs = 2 if self.settings.head_epochs else 1
        loop = plan_loop(self.settings, self.plan, steps, data, n_runs=n_runs)
        return replace(loop, schedule=add_warm_up(self.settings.schedule, self.settings.warm_up or 0.0))

    def collect_arrays(self) -> State:
        """All that prediction needs."""
        out = {f"encoder.{name}": array for name, array in encoder_to_arrays(self.encoder).items()}
        if isinstance(self.encoder, BagEncoder) and self.encoder.idf is not None:
            out["idf"] = self.encoder.idf
        out |= {f"head.{name}": array for name, array in self.net.head.arrays().items()}
        hidden = {"hidden": self.net.hidden.weight, "shift": self.net.hidden.bias}
        return {**out, **{name: value.detach().cpu().numpy().copy() for name, value in hidden.items()}}


def fit_aplc(
    rows: Texts,
    Y: sp.csr_array,
    label_counts: Ints,
    n_inputs: int,
    settings: AplcSettings,
    plan: AplcPlan,
    valid: HeldOut | None,
    progress: Progress,
) -> tuple[State, list[dict[str, float]]]:
    """Train the network; return the arrays for prediction, and one row of history per epoch.

    :param rows: Tokens or features of the training texts.
    :param n_inputs: Number of different tokens, or of features.
    :param valid: Tokens or features, and labels, of held-out texts.
    """
    torch.manual_seed(settings.seed)
    sizes = {"width": plan.width, "layers": settings.layers or _LAYERS}
    kind = "bag" if settings.encoder == WORDS else settings.encoder  # of features rather than of tokens
    divided, dropout = pays_to_divide(n_inputs, plan.batch), settings.encoder_dropout or 0.0
    encoder = make_encoder(kind, n_inputs, **sizes, dropout=dropout, divided=divided)
    encoder = encoder.to(find_device(settings.device))
    if isinstance(encoder, BagEncoder) and isinstance(rows, TokenRows):
        encoder.idf = fit_idf(rows, n_inputs) if plan.token_weights == "tfidf" else None
    partition = partition_labels(label_counts, Y.shape[0], settings, plan)
    log_odds = ClusterLogOdds.count(partition, Y) if settings.bias else None
    training = AplcTraining(encoder, partition, rows, Y, settings, plan, log_odds)
    with torch_threads(training.n_threads):
        run = training.fit(valid, progress)
    collect_rows(training.net)
    return training.collect_arrays(), run.history


def _list_arrays(rows: Texts) -> tuple[NDArray[Any], ...]:
    return (rows.ids, rows.indptr) if isinstance(rows, TokenRows) else (rows.indptr, rows.indices, rows.data)


def _sum_weights(bag: BagEncoder, rows: Texts) -> float:
    """The mean sum of the weights of a text's features or tokens.

    A step of Adam moves each value of each vector of a token by about the rate, and so those of the vector of a text by up
    to this many times the rate: a long text with TF-IDF weights of length 1 moves further than a short one.
    """
    weights = weigh_tokens(rows, bag.table.n_rows, bag.idf) if isinstance(rows, TokenRows) else abs(rows)
    return max(float(weights.sum()) / int(weights.shape[0]), 1.0)
