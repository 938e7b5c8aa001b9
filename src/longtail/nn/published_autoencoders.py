"""The autoencoders of NeuralXC and HierarchicalXC as published (Srinivasan, Rao and Agarwal, section 3). Needs no torch."""

from __future__ import annotations

import re
from typing import NamedTuple

from longtail.errors import SettingError
from longtail.features.mlp import halve_widths

PUBLISHED = "published"  # value of a setting: as in the paper
BATCH, WEIGHT_DECAY = 64, 1e-4  # of the paper's code, for all corpora
EPOCHS = 25  # the paper does not give them
_WIDTHS = re.compile(r"[1-9]\d{0,6}(-[1-9]\d{0,6})*")

Widths = tuple[int, ...]  # of the layers of a network, without its input


class PublishedNetwork(NamedTuple):
    """The networks that the paper's code uses for one corpus."""

    encoder: Widths  # φᵢ; ψᵢ mirrors it
    label_encoder: Widths  # φₒ; ψₒ mirrors it
    regressor: Widths  # hidden layers of f
    output_activation: str  # of ψᵢ
    rate: float  # of Adam


# by (n_features, n_labels)
PUBLISHED_NETWORKS = {
    (1836, 159): PublishedNetwork((1152, 600, 256), (96, 32), (112,), "sigmoid", 3e-4),  # Bibtex
    (500, 983): PublishedNetwork((250, 125), (326, 163, 82), (104,), "sigmoid", 3e-4),  # Delicious
    (120, 101): PublishedNetwork((100, 50), (75, 50, 32), (41,), "sigmoid", 1e-3),  # Mediamill
    (5000, 3993): PublishedNetwork((2500, 1250, 500), (1331, 443, 141), (325,), "relu", 3e-4),  # EURLex-4K
}


def choose_network(n_features: int, n_labels: int) -> PublishedNetwork:
    """Return the published network for data of this size, or one by the same rule: widths halved from layer to layer.

    >>> choose_network(500, 983).encoder, choose_network(2000, 300)[:3]
    ((250, 125), ((1000, 500, 256), (150, 75), (165,)))
    """
    if (n_features, n_labels) in PUBLISHED_NETWORKS:
        return PUBLISHED_NETWORKS[n_features, n_labels]
    code, label_code = min(max(n_features // 4, 1), 256), min(max(n_labels // 4, 1), 128)
    widths = tuple(halve_widths(n_features, code)), tuple(halve_widths(n_labels, label_code))
    return PublishedNetwork(*widths, ((code + label_code) // 2,), "sigmoid", 3e-4)


def parse_widths(name: str, text: str) -> Widths:
    """Parse the layer widths of a setting; empty for ``published`` and for a regressor without hidden layers.

    >>> parse_widths("encoder", "1152-600-256"), parse_widths("regressor", "")
    ((1152, 600, 256), ())
    """
    if text == PUBLISHED or (text == "" and name == "regressor"):
        return ()
    if not _WIDTHS.fullmatch(text):
        raise SettingError(f'{name} is "{text}"', hint=f'Give layer widths such as "512-256", or "{PUBLISHED}"')
    return tuple(int(width) for width in text.split("-"))
