"""The settings of APLC-XLNet that depend on the data: the paper's values by corpus, and ours. This does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.features.pretrained import SCRATCH_ENCODERS, STATIC_VECTORS
from longtail.nn.settings import TrainingPlan, choose_batch

WORDS = "words"  # the encoder that reads feature vectors; all others read tokens
BAG_ENCODERS = (WORDS, "bag", *STATIC_VECTORS)  # sums of the vectors of features or tokens; they predict without torch
HEAD_SHARE = 0.8  # of the labels
_WIDE, _NARROW = 512, 256  # dimensions of the vectors of features or tokens
_MAX_VECTOR_VALUES = 2**26  # of all wide vectors of features: 256 MB
_MAX_EPOCHS, _MIN_EPOCHS = 20, 5
_SAMPLES_PER_TRAINING = 100_000  # samples that the epochs of a bag show in all, within these limits


@dataclass(frozen=True, kw_only=True)
class AplcPlan(TrainingPlan):
    """The settings of APLC that depend on the data, with their values filled in."""

    width: int  # of words, and of an encoder from scratch
    hidden: int
    proportions: tuple[float, ...]  # of the labels, in the head and in each tail
    max_length: int | None  # None: no maximum
    token_weights: str  # of a bag
    dropout: float
    init: str
    hidden_rate: float
    head_rate: float
    sparse_part: bool = False


def _take_from_paper(
    hidden: int, n_clusters: int, max_length: int, rates: tuple[float, float, float], batch: int, epochs: int
) -> AplcPlan:
    rate, hidden_rate, head_rate = rates
    return AplcPlan(
        width=768,
        hidden=hidden,
        proportions=divide_evenly(n_clusters),
        max_length=max_length,
        token_weights="mean",
        dropout=0.1,
        init="random",
        rate=rate,
        hidden_rate=hidden_rate,
        head_rate=head_rate,
        batch=batch,
        epochs=epochs,
    )


def divide_evenly(n_clusters: int, head: float | None = None) -> tuple[float, ...]:
    """The shares of head and tails: all the same, or this one for the head and the rest evenly for the tails.

    >>> divide_evenly(4), divide_evenly(3, 0.5), divide_evenly(1, 0.5)
    ((0.25, 0.25, 0.25, 0.25), (0.5, 0.25, 0.25), (1.0,))
    """
    if n_clusters == 1 or head is None:
        return (1 / n_clusters,) * n_clusters
    return (head, *((1 - head) / (n_clusters - 1),) * (n_clusters - 1))


# Tables 2 and 3, by the number of training samples and of labels; rates of encoder, hidden layer and output layer.
PAPER_PLANS = {
    (15_449, 3_956): _take_from_paper(768, 2, 512, (5e-5, 1e-4, 2e-3), 12, 8),  # EURLex-4k
    (1_186_239, 13_330): _take_from_paper(768, 2, 256, (5e-5, 1e-4, 2e-3), 48, 8),  # AmazonCat-13k
    (14_146, 30_938): _take_from_paper(768, 2, 512, (1e-5, 1e-4, 1e-3), 12, 6),  # Wiki10-31k
    (1_779_881, 501_008): _take_from_paper(512, 4, 128, (5e-5, 1e-4, 2e-3), 96, 15),  # Wiki-500k
    (490_449, 670_091): _take_from_paper(384, 4, 128, (5e-5, 1e-4, 2e-3), 28, 20),  # Amazon-670k
}


def choose_plan(encoder: str, n_samples: int) -> AplcPlan:
    """Our values. Those of a bag were compared on held-out texts; those of other encoders are first guesses."""
    bag, scratch = encoder in BAG_ENCODERS, encoder in SCRATCH_ENCODERS
    epochs = min(max(_SAMPLES_PER_TRAINING // n_samples, _MIN_EPOCHS), _MAX_EPOCHS)
    return AplcPlan(
        width=_WIDE if bag else _NARROW,
        hidden=512,
        proportions=divide_evenly(2, HEAD_SHARE),
        max_length=None if encoder in (WORDS, "bag") else 256,
        token_weights="tfidf" if encoder == "bag" else "mean",
        dropout=0.2 if bag else 0.5,
        init="pifa" if bag else "random",
        rate=0.7 if bag else 1e-3 if scratch else 1e-4,
        hidden_rate=0.002,
        head_rate=0.003 if bag else 0.002,
        batch=choose_batch(n_samples, 16, 128),
        epochs=epochs if bag else _MAX_EPOCHS,
    )


def choose_width(n_features: int) -> int:
    """The dimension of the vectors of features: 512, or 256 if there are many features.

    Training has about five copies of these vectors: weights, two moments of Adam, an average, and the best weights so far.

    >>> choose_width(100_000), choose_width(400_000)
    (512, 256)
    """
    return _WIDE if n_features * _WIDE <= _MAX_VECTOR_VALUES else _NARROW
