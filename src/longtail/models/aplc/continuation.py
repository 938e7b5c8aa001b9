"""Continue the training of APLC-XLNet on new texts. New labels join the cluster of labels that are as frequent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from longtail.kernels import Ints, Longs
from longtail.models.aplc.network import AplcNetwork
from longtail.models.aplc.partition import ClusterLogOdds, Partition
from longtail.models.aplc.plan import AplcPlan
from longtail.models.aplc.settings import AplcSettings
from longtail.models.aplc.training import AplcTraining, make_optimizer
from longtail.nn.continuation import (
    NewSamples,
    Pace,
    Paces,
    divide_by_length,
    divide_randomly,
    start_new_labels,
    train_further,
)
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.encoder_factory import restore_encoder
from longtail.nn.encoders import BagEncoder
from longtail.nn.losses import known_loss
from longtail.progress import Progress
from longtail.state import State, extract_part

_ALONE = Pace(epochs=2, rate=0.03)
PACES = Paces(replay=Pace(epochs=3, rate=0.2, new_share=0.5), alone=_ALONE)
PACES_OF_WORDS = Paces(replay=Pace(epochs=4, rate=1.0, new_share=0.5), alone=_ALONE)  # for encoder=words


def continue_aplc(
    samples: NewSamples,
    arrays: State,
    label_counts: Ints,
    n_samples: int,
    settings: AplcSettings,
    plan: AplcPlan,
    progress: Progress,
) -> tuple[State, Ints]:
    """Continue to train a network on new and replayed texts. Returns the arrays for prediction, and the new labels.

    :param arrays: Its arrays for prediction.
    :param label_counts: Texts of each label, with the new ones [n_labels].
    :param n_samples: Number of texts, with the new ones.
    """
    torch.manual_seed(settings.seed)
    encoder = restore_encoder(arrays).to(find_device(settings.device))
    if isinstance(encoder, BagEncoder):
        encoder.idf = arrays.get("idf")
    head = extract_part(arrays, "head.")
    before = _find_partition(head, len(label_counts))
    new = np.setdiff1d(np.flatnonzero(label_counts), before.order).astype(np.int32)
    partition = before.add_labels(new, label_counts)
    log_odds = _estimate_log_odds(partition, label_counts, n_samples) if settings.bias else None
    plan = replace(plan, hidden=len(arrays["hidden"]))  # that of paper=True depends on the number of samples
    training = AplcTraining(encoder, partition, samples.X, samples.Y, settings, plan, log_odds)
    net = training.net
    with torch.no_grad():
        net.hidden.weight.copy_(torch.from_numpy(arrays["hidden"].astype(np.float32)))
        net.hidden.bias.copy_(torch.from_numpy(arrays["shift"]))
    net.head.load(head)
    net.eval()
    with torch_threads(training.n_threads):
        texts = training.prepare(samples.X)
        if len(new):
            _start_in_clusters(training, samples, texts.encode, new, log_odds)

        def partial_loss(rows: Longs) -> Tensor:
            H = net.embed(texts.encode(rows))
            total = known_loss(lambda row, label: net.head.score_pairs(H, row, label), *samples.get_known(rows), H.device)
            return total if settings.normalise == "batch" else total / net.head.sizes[0]  # about the terms of a text

        batch = training.plan.batch
        divide = divide_randomly(batch) if training.is_bag else divide_by_length(samples.X.lengths, batch)
        losses = training.make_loss(texts), partial_loss
        train_further(net, samples, divide, losses, make_optimizer(net, training.plan), settings, progress)
    return training.collect_arrays(), new


def _find_partition(head: State, n_labels: int) -> Partition:
    sizes = [len(head["bias"]), *(len(head[f"tail{t}.bias"]) for t in range(1, len(head["clusters"]) + 1))]
    return Partition(head["order"].astype(np.int32), np.cumsum(sizes), n_labels)


def _estimate_log_odds(partition: Partition, label_counts: Ints, n_samples: int) -> ClusterLogOdds:
    """The log-odds of tails and labels by the texts of each label; a text of a tail is taken to have one label of it."""
    counts = [label_counts[labels] for labels in np.split(partition.order, partition.ends[:-1])]
    n_in = [n_samples, *(min(int(some.sum()), n_samples) for some in counts[1:])]
    return ClusterLogOdds.from_counts(counts, n_in)


def _start_in_clusters(
    training: AplcTraining,
    samples: NewSamples,
    encode: Callable[[Longs], Tensor],
    new: Ints,
    log_odds: ClusterLogOdds | None,
) -> None:
    """Start the vectors of new labels; without biases with the mean length of the others of their cluster."""
    net, partition, Y = training.net, training.partition, training.Y
    starts = [0, *partition.ends]
    for t, (project, V, bias) in enumerate(net.head.get_layers()):
        cluster = partition.order[starts[t] : starts[t + 1]]
        mine = np.intersect1d(cluster, new)
        rows = np.flatnonzero(np.diff(Y[:, cluster].indptr)) if t else np.arange(Y.shape[0])  # texts of the cluster
        if not len(mine) or not len(rows):
            continue
        inside = partition.place[mine] - starts[t]
        at = torch.from_numpy(inside).to(V.device)
        embed = partial(_embed, net, project, encode)
        if log_odds is None:
            vectors, _ = start_new_labels(samples, rows, embed, mine, np.zeros(len(mine), np.float32))
            others = torch.from_numpy(np.flatnonzero(~np.isin(cluster, mine))).to(V.device)
            V.data[at] = normalize(vectors, dim=1) * V.data[others].norm(dim=1).mean()
        else:
            V.data[at], bias.data[at] = start_new_labels(samples, rows, embed, mine, log_odds.labels[t][inside])


def _embed(net: AplcNetwork, project: torch.nn.Module, encode: Callable[[Longs], Tensor], rows: Longs) -> Tensor:
    """The input of the label vectors of a cluster [n, width]."""
    out: Tensor = project(net.embed(encode(rows)))
    return out
