"""The plan of a training run: how long and how to train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from longtail.nn.checkpoint import fingerprint, to_plain_types
from longtail.nn.ranks import count_ranks
from longtail.nn.settings import TrainingPlan, TrainingSettings

_MAY_CHANGE = ("log", "checkpoint", "patience", "minutes", "collapse_epochs", "name", "threads", "jobs", "device", "cache")


@dataclass
class LoopPlan:
    """How long and how to train."""

    epochs: int
    steps: int  # batches per epoch
    accumulate: int = 1  # batches whose gradients are averaged for one update
    seed: int = 0
    schedule: str = "constant"
    clip: float = 0.0  # maximum norm of the gradient of all dense parameters; 0: no clipping
    average: str = "none"  # none, swa or ema
    average_from: int = 0  # first epoch of swa
    patience: int = 0  # epochs without a better metric before training stops; 0: never
    minutes: float | None = None  # after which training stops; None: no limit
    collapse_epochs: int = 0  # after which training stops with an error if the network has learned nothing; 0: never
    log: str | Path | None = None  # file that gets one JSON line per epoch
    checkpoint: str | Path | None = None  # file from which a killed run continues
    mixed_precision: bool = False  # bfloat16 where torch considers it safe
    name: str = "epochs"  # of the progress bar
    method: dict[str, Any] = field(default_factory=dict)  # settings and data of the method; a checkpoint must have the same

    def fixed_settings(self) -> dict[str, Any]:
        """The settings that must not change when a run continues from its checkpoint, in plain types."""
        every = {**self.method, **vars(self)}
        fixed = {name: value for name, value in every.items() if name not in (*_MAY_CHANGE, "method")}
        return to_plain_types({**fixed, "processes": count_ranks()})


def plan_loop(
    settings: TrainingSettings, plan: TrainingPlan, steps: int, data: Iterable[NDArray[Any]], *, n_runs: int = 1
) -> LoopPlan:
    """Make the loop's plan from the settings of a method.

    :param steps: Batches per epoch.
    :param data: Arrays of the training data. A checkpoint is refused for other data, as for other settings.
    :param n_runs: Number of networks or stages that the method trains one after the other; they share ``minutes``.
    """
    return LoopPlan(
        epochs=plan.epochs,
        steps=steps,
        accumulate=settings.accumulate,
        seed=settings.seed,
        schedule=settings.schedule,
        clip=settings.clip,
        average=settings.average,
        average_from=plan.average_from,
        patience=settings.patience,
        minutes=settings.minutes and settings.minutes / n_runs,
        collapse_epochs=settings.collapse_epochs,
        mixed_precision=settings.mixed_precision,
        log=settings.log,
        checkpoint=settings.checkpoint,
        method={**settings.get_params(), **vars(plan), "data": fingerprint(*data) if settings.checkpoint else ""},
    )
