"""The network of APLC-XLNet (Ye, Chen, Wang, Davison; ICML 2020): encoder, hidden layer, adaptive label clusters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from longtail.kernels import Ints
from longtail.models.aplc.frozen_layers import take_trainable
from longtail.models.aplc.head import AplcHead
from longtail.models.aplc.partition import ClusterLogOdds, Partition, find_cheapest_partition, partition_by_shares
from longtail.models.aplc.plan import AplcPlan
from longtail.models.aplc.settings import AplcSettings
from longtail.nn.divided_rows import pays_to_divide
from longtail.nn.encoders import TextEncoder
from longtail.topk import TopK


class AplcNetwork(torch.nn.Module):
    """tanh(W e(x) + b) of an encoder's vectors e(x), and the output layer. It has the encoder's trained layers only."""

    def __init__(
        self,
        encoder: TextEncoder,
        partition: Partition,
        settings: AplcSettings,
        plan: AplcPlan,
        log_odds: ClusterLogOdds | None = None,
    ) -> None:
        super().__init__()
        self.encoder = take_trainable(encoder, settings.trained_layers)
        self.hidden, self.dropout = torch.nn.Linear(encoder.width, plan.hidden), torch.nn.Dropout(plan.dropout)
        self.head = AplcHead(
            plan.hidden,
            partition,
            settings.q,
            log_odds=log_odds,
            cluster_negatives=settings.cluster_negatives,
            normalise=settings.normalise,
            divided=pays_to_divide(len(partition.order), plan.batch),
        )

    def embed(self, V: Tensor) -> Tensor:
        """From the encoder's vectors [B, width] to the input of the output layer [B, d_h]."""
        out: Tensor = self.dropout(torch.tanh(self.hidden(V)))
        return out

    def rank(self, V: Tensor) -> Callable[[slice], TopK]:
        """Make a function that returns the five best labels of a slice of the texts with vectors V [n, width]."""
        return lambda part: self.head.topk(self.embed(V[part]), 5)


def partition_labels(label_counts: Ints, n_samples: int, settings: AplcSettings, plan: AplcPlan) -> Partition:
    """Divide the labels into head and tails: by proportions (Table 2), or where a step costs least."""
    if settings.partition == "cheapest":
        return find_cheapest_partition(
            label_counts,
            n_samples,
            d=plan.hidden,
            q=settings.q,
            max_tails=len(plan.proportions) - 1,
            max_parameters=settings.max_parameters,
        )
    return partition_by_shares(label_counts, plan.proportions)
