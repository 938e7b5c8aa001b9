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


# By loss and negatives; for combinations that are not here, as for a softmax over the labels of the batch.
PLANS = {
    (plan.loss, plan.negatives): plan
    for plan in (
        GlasPlan(
            loss="bce",
            negatives="all",
            **{"relu": True, "init": "pifa", "init_norm": 1.0},
            **{"optimizer": "sgd", "rate": 30.0, "label_rate": 0.001, "batch": 32, "epochs": 30, "average": "ema"},
        ),
        GlasPlan(
            loss="softmax",
            negatives="all",
            **{"relu": False, "init": "svd", "init_norm": 10.0},
            **{"optimizer": "adam", "rate": 0.005, "label_rate": 0.0005, "batch": 256, "epochs": 5, "average": "none"},
        ),
        GlasPlan(
            loss="softmax",
            negatives="batch",
            **{"relu": True, "init": "pifa", "init_norm": 10.0},
            **{"optimizer": "sgd", "rate": 100.0, "label_rate": 0.003, "batch": 1024, "epochs": 15, "average": "ema"},
        ),
    )
}
