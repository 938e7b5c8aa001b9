"""Continue the training of NeuralXC on new samples.

The label encoder φₒ is not part of a saved model, as predictions do not need it. So the terms of eq. 1 that need it are left
out; by default, their weight is 0.01.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from longtail.kernels import Floats, Ints, Longs
from longtail.models.neuralxc.network import NeuralXCWeights
from longtail.models.neuralxc.settings import NeuralXCPlan, NeuralXCSettings
from longtail.models.neuralxc.training import NeuralXCTraining
from longtail.nn.continuation import (
    NewSamples,
    Pace,
    Paces,
    divide_randomly,
    start_new_labels,
    train_further,
)
from longtail.nn.devices import torch_threads
from longtail.nn.losses import known_loss
from longtail.progress import Progress

PACES = Paces(replay=Pace(epochs=4, rate=0.5, new_share=0.5), alone=Pace(epochs=3, rate=0.1))


def continue_neuralxc(
    samples: NewSamples,
    weights: NeuralXCWeights,
    new: Ints,
    log_odds: Floats,
    settings: NeuralXCSettings,
    plan: NeuralXCPlan,
    progress: Progress,
) -> NeuralXCWeights:
    """Continue to train the networks on new and replayed samples.

    :param weights: Their weights, with rows of zeros for new labels.
    :param new: The new labels.
    :param log_odds: Their log-odds [len(new)].
    """
    plan = _keep_widths(replace(plan, label_init="random", label_encoder_in_loss=False), weights)
    outputs = weights.autoencoder.outputs
    training = NeuralXCTraining(samples.X, samples.Y, settings, plan, outputs)
    net = training.net
    net.load(weights)
    if len(new):
        last, rows = net.label_decoder, np.arange(samples.Y.shape[0])
        V, bias = start_new_labels(samples, rows, lambda some: net.embed(samples.X[some]), new, log_odds)
        at = torch.from_numpy(new).long().to(last.bias.device)
        last.output_layer.data[at], last.bias.data[at] = V, bias

    def partial_loss(rows: Longs) -> Tensor:
        H, last = net.embed(samples.X[rows]), net.label_decoder

        def score(row: Tensor, label: Tensor) -> Tensor:
            return (H[row] * last.take_outputs(label)).sum(1) + last.bias[label]

        return training.per_label * known_loss(score, *samples.get_known(rows), H.device)

    networks = [net.encoder, net.decoder, net.regressor, net.label_decoder]
    with torch_threads(settings.threads):
        optimizer, divide = training.build_optimizer(networks), divide_randomly(plan.batch)
        train_further(net, samples, divide, (training.loss, partial_loss), optimizer, settings, progress)
    return net.export(plan.output_activation, outputs)


def _keep_widths(plan: NeuralXCPlan, weights: NeuralXCWeights) -> NeuralXCPlan:
    """The plan with the widths that the networks have: the paper's depend on the number of labels."""
    between = [W.shape[1] for W in weights.regressor.weights]
    return replace(
        plan,
        encoder_widths=tuple(W.shape[1] for W in weights.autoencoder.encoder.weights),
        n_reconstructed=weights.autoencoder.decoder.weights[-1].shape[1],
        regressor_widths=tuple(between[:-1]),
        label_encoder_widths=tuple([between[-1], *(W.shape[1] for W in weights.label_decoder.weights)][::-1]),
    )
