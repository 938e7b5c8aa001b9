"""The settings of GLaS that depend on the data: what None stands for."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.nn.settings import TrainingPlan

MAX_FULL_LOSS_LABELS = 4096  # up to this many labels, the default loss is binary cross-entropy over all of them
MAX_SOFTMAX_LABELS = 50_000  # up to this many, it is a softmax over all of them; above, over those of the batch
DEFAULT_DIM = 256
DEFAULT_HARDEST = 50  # negatives per sample


@dataclass(frozen=True, kw_only=True)
class GlasPlan(TrainingPlan):
    """The settings of GLaS that depend on the data, with their values filled in."""

    loss: str
    negatives: str
    relu: bool
    init: str
    optimizer: str
    init_norm: float
    label_rate: float
    average: str
    sparse_part: bool = False


def _plan(
    loss: str,
    negatives: str,
    relu: bool,
    start: tuple[str, float],
    first: tuple[str, float, float],
    steps: tuple[int, int, str],
) -> GlasPlan:
    """A plan from its initial vectors and their norm; the optimiser, its rate and that of labels; batch, epochs, average."""
    (init, init_norm), (optimizer, rate, label_rate), (batch, epochs, average) = start, first, steps
    return GlasPlan(
        loss=loss, negatives=negatives, relu=relu, init=init, init_norm=init_norm, optimizer=optimizer, rate=rate,
        label_rate=label_rate, batch=batch, epochs=epochs, average=average,
    )  # fmt: skip


# By loss and negatives; for combinations that are not here, as for a softmax over the labels of the batch. With all labels,
# the batch is the smallest one.
PLANS = {
    (plan.loss, plan.negatives): plan
    for plan in (
        _plan("bce", "all", True, ("pifa", 1.0), ("sgd", 30.0, 0.001), (32, 30, "ema")),
        _plan("softmax", "all", False, ("svd", 10.0), ("adam", 0.005, 0.0005), (64, 6, "none")),
        _plan("softmax", "batch", True, ("pifa", 10.0), ("sgd", 100.0, 0.003), (1024, 15, "ema")),
    )
}
