"""Training of APLC-XLNet (Ye, Chen, Wang, Davison; ICML 2020).

The three parts of the network have separate learning rates (section 4.1): it "is infeasible to train the model with the
same".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.features.bags import fit_idf, weigh_tokens
from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Ints, Longs
from longtail.models.aplc.frozen_layers import TrainingTexts, prepare_texts
from longtail.models.aplc.network import AplcNetwork, partition_labels
from longtail.models.aplc.partition import ClusterLogOdds
from longtail.models.aplc.plan import AplcPlan
from longtail.models.aplc.settings import AplcSettings
from longtail.models.aplc.start import start_at_centroids
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.encoder_factory import encoder_to_arrays, make_encoder
from longtail.nn.encoders import BagEncoder, TextEncoder, group_by_layer
from longtail.nn.loop import LoopPlan, TrainingRun, plan_loop, train
from longtail.nn.losses import list_positives
from longtail.nn.optim import JointOptimizer, LazyAdam, split_parameters
from longtail.nn.schedule import add_warm_up
from longtail.nn.validation import mean_precision
from longtail.progress import Progress
from longtail.state import State

_LAYERS = 2  # of an encoder from scratch, by default


def make_optimizer(net: AplcNetwork, settings: AplcSettings, plan: AplcPlan, *, encoder: bool = True) -> JointOptimizer:
    """AdamW with three learning rates; token vectors are trained by an Adam that updates only the used rows.

    With ``unfreeze``, the first epoch trains no layer of the encoder, the second its last, and so on (ULMFiT, 2018).

    :param encoder: Whether the encoder is trained.
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
            start = {"unfreeze_epoch": epoch} if settings.unfreeze else {}
            dense = [parameter for parameter in layer if parameter not in in_tables]
            groups += [{"params": dense, "lr": plan.rate, **start}] if dense else []
        if tables:
            sparse = [LazyAdam(tables, lr=plan.rate)]
            sparse[0].param_groups[0] |= {"unfreeze_epoch": len(layers)} if settings.unfreeze else {}
    return JointOptimizer(*sparse, torch.optim.AdamW(groups, weight_decay=0.0, fused=True))


def fit_aplc(
    rows: TokenRows,
    Y: sp.csr_array,
    label_counts: Ints,
    n_tokens: int,
    settings: AplcSettings,
    plan: AplcPlan,
    valid: tuple[TokenRows, sp.csr_array] | None,
    progress: Progress,
) -> tuple[State, TrainingRun]:
    """Train the network; return the arrays for prediction, and the run.

    :param rows: Tokens of the training texts.
    :param n_tokens: Size of the vocabulary.
    :param valid: Tokens and labels of held-out texts.
    """
    torch.manual_seed(settings.seed)
    device = find_device(settings.device)
    sizes = {"width": plan.width, "layers": settings.layers or _LAYERS}
    encoder = make_encoder(settings.encoder, n_tokens, **sizes, dropout=settings.encoder_dropout or 0.0).to(device)
    if isinstance(encoder, BagEncoder):
        encoder.idf = fit_idf(rows, n_tokens) if plan.token_weights == "tfidf" else None
        if settings.rate is None and not settings.paper:
            plan = replace(plan, rate=plan.rate / encoder.width**0.5 / _sum_weights(encoder, rows))
    partition = partition_labels(label_counts, Y.shape[0], settings, plan)
    log_odds = ClusterLogOdds.count(partition, Y) if settings.bias else None
    net = AplcNetwork(encoder, partition, settings, plan, log_odds).to(device)

    is_bag = isinstance(encoder, BagEncoder)

    def batches(rng: np.random.Generator) -> list[Longs]:
        if is_bag:  # it needs no padding, so the texts of a batch need not be of similar length
            return np.array_split(rng.permutation(len(rows)), -(-len(rows) // plan.batch))
        return make_length_batches(rows.lengths, rng, batch=plan.batch)

    def train_on(
        texts: TrainingTexts, held_out: TrainingTexts | None, optimizer: JointOptimizer, loop: LoopPlan
    ) -> TrainingRun:
        def loss(some: Longs) -> Tensor:
            return net.head.loss(net.embed(texts.encode(some)), list_positives(Y[some], device))

        def metric() -> float:
            assert valid is not None and held_out is not None
            return mean_precision(net.rank(held_out.encode_all()), valid[1])

        return train(net, batches, loss, optimizer, loop, metric=metric if valid else None, progress=progress)

    steps = len(batches(np.random.default_rng(0)))
    pairs = [(rows, Y), *([valid] if valid else [])]
    loop = plan_loop(settings, plan, steps, (a for x, y in pairs for a in (x.ids, x.indptr, y.indptr, y.indices)))
    loop = replace(loop, schedule=add_warm_up(settings.schedule, settings.warm_up or 0.0))
    with torch_threads(1 if is_bag else settings.threads):  # with one thread, the results of a bag are reproducible
        texts = prepare_texts(encoder, net.encoder, rows, settings.cache)
        held_out = prepare_texts(encoder, net.encoder, valid[0], settings.cache) if valid else None
        if plan.init == "pifa":
            net.eval()
            start_at_centroids(net, texts.encode, Y, partition, settings.init_scale)
        if settings.head_epochs:
            net.eval()
            first = replace(loop, epochs=settings.head_epochs, log=None, checkpoint=None, name="epochs of the head")
            optimizer = make_optimizer(net, settings, plan, encoder=False)
            train_on(texts.freeze(), held_out and held_out.freeze(), optimizer, first)
        run = train_on(texts, held_out, make_optimizer(net, settings, plan), loop)
    return _collect_arrays(encoder, net), run


def _sum_weights(bag: BagEncoder, rows: TokenRows) -> float:
    """The mean sum of the token weights of a text.

    A step of Adam moves each value of each token vector by about the rate, and so those of the vector of a text by up to
    this many times the rate: a long text with TF-IDF weights of length 1 moves further than a short one.
    """
    weights = weigh_tokens(rows, len(bag.table.weight), bag.idf)
    return max(float(weights.sum()) / len(rows), 1.0)


def _collect_arrays(encoder: TextEncoder, net: AplcNetwork) -> State:
    """All that prediction needs."""
    out = {f"encoder.{name}": array for name, array in encoder_to_arrays(encoder).items()}
    if isinstance(encoder, BagEncoder) and encoder.idf is not None:
        out["idf"] = encoder.idf
    out |= {f"head.{name}": array for name, array in net.head.arrays().items()}
    hidden = {"hidden": net.hidden.weight, "shift": net.hidden.bias}
    return {**out, **{name: value.detach().cpu().numpy().copy() for name, value in hidden.items()}}
