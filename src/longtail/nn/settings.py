"""Settings of the training loop, which every neural method has. No torch is needed here."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.nn.schedule import SCHEDULES
from longtail.settings import MAX_SEED, Settings, setting, settings


@settings
class TrainingSettings(Settings):
    """How a network is trained."""

    batch: int | None = setting(None, "Samples per batch. None: chosen by the number of samples.", positive=True)
    accumulate: int = setting(1, "Batches whose gradients are averaged for one update.", positive=True)
    epochs: int | None = setting(None, "Maximum number of epochs. None: chosen by the method.", positive=True)
    rate: float | None = setting(None, "Learning rate. None: chosen by the method.", positive=True)
    schedule: str = setting("linear", f"Learning-rate schedule: {', '.join(SCHEDULES)}.", choices=SCHEDULES)
    clip: float = setting(0.0, "Maximum norm of the gradient of the dense parameters. 0: no clipping.", minimum=0)
    average: str = setting("ema", "Weight averaging: none, swa or ema.", choices=("none", "swa", "ema"))
    patience: int = setting(5, "Epochs without a better validation score before training stops. 0: never.", minimum=0)
    holdout: float = setting(
        0.05,
        "Share of the training data held out for early stopping if no validation data is given.",
        minimum=0,
        maximum=0.5,
    )
    seed: int = setting(0, "Seed of everything random.", minimum=0, maximum=MAX_SEED)
    threads: int | None = setting(None, "Threads. None: chosen by the cores that are free.", positive=True)
    device: str = setting("cpu", "Device to train and predict on: cpu, cuda or another that torch knows.")
    log: str | None = setting(None, "File that gets one JSON line per epoch.")
    checkpoint: str | None = setting(None, "File from which a killed run resumes.")


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The settings that depend on the data, with their values filled in. A method adds fields of its own."""

    batch: int
    epochs: int
    rate: float
    average_from: int = 0  # first epoch that stochastic weight averaging includes
