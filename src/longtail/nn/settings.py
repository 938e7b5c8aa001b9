"""Settings of the training loop, which every neural method inherits. Importing this does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, log2
from typing import TypeVar

from longtail.conditions import Condition, refuse_unused
from longtail.nn.schedule import SCHEDULES
from longtail.settings import MAX_SEED, Settings, setting, settings

_Row = TypeVar("_Row")


@settings
class TrainingSettings(Settings):
    """Settings of the training of a network."""

    batch: int | None = setting("Samples per batch. None: chosen by the number of samples.", default=None, positive=True)
    accumulate: int = setting("Number of batches whose gradients are averaged for one update.", default=1, positive=True)
    epochs: int | None = setting(
        "Maximum number of epochs. None: chosen by the method.", default=None, positive=True, search=(10, 20, 40)
    )
    rate: float | None = setting(
        "Learning rate. None: chosen by the method.", default=None, positive=True, search=(0.0001, 0.0003, 0.001, 0.003)
    )
    schedule: str = setting(f"Learning-rate schedule: {', '.join(SCHEDULES)}.", default="linear", choices=SCHEDULES)
    clip: float = setting("Maximum norm of the gradient of the dense parameters. 0: no clipping.", default=0.0, minimum=0)
    average: str = setting("Weight averaging: none, swa or ema.", default="ema", choices=("none", "swa", "ema"))
    patience: int = setting(
        "Epochs without a better validation score before training stops. 0: never.", default=5, minimum=0
    )
    holdout: float = setting(
        "Share of the training data that is held out for early stopping if no validation data is given; at least 20 samples,"
        " if that is at most a tenth. 0: none.",
        default=0.05,
        minimum=0,
        maximum=0.5,
    )
    seed: int = setting("Random seed.", default=0, minimum=0, maximum=MAX_SEED)
    threads: int | None = setting(
        "CPU threads. None: the fastest number at the time, by a short trial.", default=None, positive=True
    )
    collapse_epochs: int = setting(
        "Epochs after which training stops with an error if almost all held-out samples get the same first label. 0: never.",
        default=5,
        minimum=0,
    )
    minutes: float | None = setting(
        "Minutes after which the training of the network stops, with the best weights so far; that of features and of a"
        " sparse part is not counted. The learning rate falls in time for that. None: no limit.",
        default=None,
        positive=True,
    )
    device: str = setting(
        "Device to train and predict on: cpu, cuda or another that torch knows. auto: a GPU if there is one.", default="auto"
    )
    mixed_precision: bool = setting(
        "Compute in bfloat16 where that is safe: faster on GPUs, slower on most CPUs.", default=False
    )
    log: str | None = setting("File that gets one JSON line per epoch.", default=None)
    checkpoint: str | None = setting("File to which the run is saved, and from which a killed run resumes.", default=None)

    def check_held_out(self, valid: object) -> None:
        """Raise a ``SettingError`` for a setting that needs held-out samples if there are none; 0 says that it is off."""
        given = tuple(name for name in ("patience", "collapse_epochs") if getattr(self, name))
        has_held_out = valid is not None or self.holdout > 0
        refuse_unused(self, [Condition(has_held_out, "held-out samples: holdout above 0, or validation data", given)])


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The settings that may depend on the data, with their values filled in. Each method adds its own fields."""

    batch: int
    epochs: int
    rate: float
    average_from: int = 0  # first epoch that stochastic weight averaging includes


def choose_batch(n_samples: int, smallest: int, largest: int, steps: int = 128) -> int:
    """A power of two that gives about ``steps`` batches per epoch, within limits: few samples need small batches.

    >>> choose_batch(1_000, 16, 64), choose_batch(5_000, 16, 64), choose_batch(10**6, 16, 64)
    (16, 32, 64)
    """
    return int(min(max(2 ** round(log2(n_samples / steps)), smallest), largest))


def nearest_row(table: Mapping[tuple[int, int], _Row], n_samples: int, n_labels: int) -> _Row:
    """Choose from a paper's table the settings of the corpus that is most similar in size.

    Similar means near in the logarithms of the number of training samples and of labels.

    >>> nearest_row({(1_000, 10): "small", (1_000_000, 10_000): "large"}, 5_000, 100)
    'small'
    """
    return table[min(table, key=lambda size: log(size[0] / n_samples) ** 2 + log(size[1] / n_labels) ** 2)]
