"""The one training loop of all neural methods.

Every step draws its randomness from (seed, epoch, step) alone, so a run that was killed goes on from its checkpoint to the
same bits as one that was not.
"""

from __future__ import annotations

import json
import pickle
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.errors import DataError, LongtailError, SettingError
from longtail.files import writing
from longtail.kernels import n_threads
from longtail.nn.average import Average
from longtail.nn.schedule import schedule
from longtail.nn.settings import TrainingPlan, TrainingSettings
from longtail.progress import SILENT, Progress

Batches = Callable[[np.random.Generator], Iterable[Any]]  # the batches of one epoch, in an order drawn from the generator
Metric = Callable[[], float]  # of the network as it is, on validation data; higher is better

EMA_EPOCHS = 2  # over which a moving average looks back
EMA_TIMES = 20  # an epoch, that it takes in the weights
CHECKPOINT_EVERY = 300.0  # seconds; and after each epoch
FREE = ("log", "checkpoint", "patience", "name", "threads", "jobs", "device", "cache")  # may be others when a run goes on
UNREADABLE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, ValueError)
UNFIT = (RuntimeError, ValueError, LookupError, TypeError)  # what other networks, optimisers and files give


class Optimizer(Protocol):
    """What the loop asks of an optimiser: torch's own, or several as one (``optim.Joint``)."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...  # noqa: D102
    def step(self) -> Any: ...  # noqa: D102
    def zero_grad(self) -> None: ...  # noqa: D102
    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102
    def load_state_dict(self, state: dict[str, Any]) -> None: ...  # noqa: D102


@dataclass
class LoopPlan:
    """How long and how to train; the same for every method."""

    epochs: int
    steps: int  # of an epoch: its batches
    accumulate: int = 1  # batches whose mean gradient makes one update: as one batch that is so many times larger
    seed: int = 0
    schedule: str = "constant"
    clip: float = 0.0  # largest length of the gradient of all dense parameters; 0: any
    average: str = "none"  # none, swa or ema
    average_from: int = 0  # first epoch of swa
    patience: int = 0  # epochs without a better metric after which training stops; 0: never
    log: str | Path | None = None  # a file that gets one JSON line for each epoch
    checkpoint: str | Path | None = None  # a file from which a killed run goes on
    autocast: bool = True  # half precision on a GPU; on CPUs it was slower
    name: str = "epochs"  # of the progress bar
    of: dict[str, Any] = field(default_factory=dict)  # settings and data of the method: a checkpoint of others is refused


def plan_loop(settings: TrainingSettings, plan: TrainingPlan, steps: int, data: Iterable[NDArray[Any]]) -> LoopPlan:
    """The loop of a method. A checkpoint belongs to these settings and this data, and is refused for others."""
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
        log=settings.log,
        checkpoint=settings.checkpoint,
        of={**settings.get_params(), **vars(plan), "data": fingerprint(*data) if settings.checkpoint else ""},
    )


@dataclass
class Run:
    """Where a run stands. ``history`` has one row for each epoch."""

    epoch: int = 0
    step: int = 0  # of this epoch
    best: float = -np.inf
    best_epoch: int = -1
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    loss: float = 0.0  # sum over the steps of this epoch
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


def train(
    net: torch.nn.Module,
    batches: Batches,
    loss: Callable[[Any], Tensor],
    optimizer: Optimizer,
    plan: LoopPlan,
    *,
    metric: Metric | None = None,
    progress: Progress = SILENT,
) -> Run:
    """Train a network; leave it with its best weights by the metric, or with the last (averaged) ones without a metric.

    A group of the optimiser's parameters with an epoch ``thaws`` is not trained before (gradual unfreezing).
    """
    if plan.accumulate < 1:
        raise SettingError(f"accumulate is {plan.accumulate}", hint="It must be at least 1")
    average = average_of(net, plan)
    factor, rates = schedule(plan.schedule), [group["lr"] for group in optimizer.param_groups]
    dense = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    device = next(net.parameters()).device
    run = resumed(plan, net, optimizer, average)
    saved = started = time.monotonic()
    with progress.stage(plan.name, plan.epochs * plan.steps) as stage:
        stage.advance(run.epoch * plan.steps + run.step)
        while run.epoch < plan.epochs and not stops(run, plan):
            net.train()
            thaw(optimizer, run.epoch)
            for number, batch in enumerate(batches(np.random.default_rng([plan.seed, run.epoch]))):
                if number < run.step:  # done before the run was interrupted
                    continue
                torch.manual_seed(hash_of(plan.seed, run.epoch, number))
                first = number - number % plan.accumulate  # of the batches of this update
                together = min(plan.accumulate, plan.steps - first)
                if number == first:
                    done = (run.epoch * plan.steps + number) / (plan.epochs * plan.steps)
                    set_rates(optimizer, [rate * factor(done) for rate in rates])
                    optimizer.zero_grad()
                with torch.autocast(device.type, torch.bfloat16, enabled=plan.autocast and device.type == "cuda"):
                    value = loss(batch)
                (value / together if together > 1 else value).backward()  # type: ignore[no-untyped-call]
                run.loss += float(value.detach())
                run.step += 1
                stage.advance(note=f"epoch {run.epoch + 1} of {plan.epochs}, loss {run.loss / run.step:.4g}{shown(run)}")
                if run.step < first + together:
                    continue
                if plan.clip:
                    torch.nn.utils.clip_grad_norm_(dense, plan.clip)
                optimizer.step()
                average.after_step()
                if plan.checkpoint and time.monotonic() - saved > CHECKPOINT_EVERY:
                    save(plan, run, net, optimizer, average, time.monotonic() - started)
                    saved = started = time.monotonic()
            average.after_epoch(run.epoch)
            finish_epoch(run, net, average, metric, time.monotonic() - started)
            started = time.monotonic()
            if plan.log:
                write_log(plan.log, run.history)
            if plan.checkpoint:
                save(plan, run, net, optimizer, average, 0.0)
                saved = time.monotonic()
    if run.best_weights:
        net.load_state_dict(run.best_weights)
    else:
        average.exchange()
    set_rates(optimizer, rates)
    net.eval()
    return run


def average_of(net: torch.nn.Module, plan: LoopPlan) -> Average:
    """The average that a plan asks for."""
    updates = ceil(plan.steps / plan.accumulate)  # of an epoch
    every = max(updates // EMA_TIMES, 1)
    decay = 1 - every / max(EMA_EPOCHS * updates, 2)
    return Average(net, plan.average, start=plan.average_from, decay=decay, every=every)


def set_rates(optimizer: Optimizer, rates: Iterable[float]) -> None:
    """Give each group of parameters its learning rate."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def thaw(optimizer: Optimizer, epoch: int) -> None:
    """Have those parameters trained whose epoch has come."""
    for group in optimizer.param_groups:
        if "thaws" in group:
            for parameter in group["params"]:
                parameter.requires_grad_(epoch >= group["thaws"])


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Let torch use so many threads; None: as many as it would anyway."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else n_threads(threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def finish_epoch(run: Run, net: torch.nn.Module, average: Average, metric: Metric | None, seconds: float) -> None:
    """Measure the (averaged) weights, keep the best, and write down what there was."""
    if not np.isfinite(run.loss):
        hint = "Take a lower learning rate, or clip gradients"
        raise LongtailError(f"the loss is not a number any more after epoch {run.epoch + 1}", hint=hint)
    row = {"epoch": run.epoch + 1, "loss": run.loss / max(run.step, 1), "seconds": round(run.seconds + seconds, 3)}
    if metric is not None:
        average.exchange()
        net.eval()
        value = row["metric"] = float(metric())
        if value > run.best:
            run.best, run.best_epoch = value, run.epoch
            run.best_weights = {name: weight.clone() for name, weight in net.state_dict().items()}
        average.exchange()
    run.history.append(row)
    run.epoch, run.step, run.loss, run.seconds = run.epoch + 1, 0, 0.0, 0.0


def stops(run: Run, plan: LoopPlan) -> bool:
    """Whether the metric has not grown for as long as the plan has patience."""
    return bool(plan.patience) and run.best_epoch >= 0 and run.epoch - 1 - run.best_epoch >= plan.patience


def shown(run: Run) -> str:
    """The last metric, for the progress bar."""
    return f", metric {run.history[-1]['metric']:.2f}" if run.history and "metric" in run.history[-1] else ""


def hash_of(*numbers: int) -> int:
    """A seed for torch from several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def fingerprint(*arrays: NDArray[Any]) -> str:
    """Tells data of one run from that of another."""
    digest = sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def device_of(name: str) -> torch.device:
    """The device of a name, if it is there."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch gives the latter where it was built without
        raise SettingError(f'device is "{name}", which torch does not find here', hint="Take cpu") from error


def write_log(path: str | Path, history: list[dict[str, float]]) -> None:
    """One JSON line for each epoch."""
    with writing(path) as stream:
        stream.writelines(json.dumps(row).encode() + b"\n" for row in history)


def save(plan: LoopPlan, run: Run, net: torch.nn.Module, optimizer: Optimizer, average: Average, seconds: float) -> None:
    """Write a checkpoint."""
    run.seconds += seconds
    parts: dict[str, Any] = {"net": net, "optimizer": optimizer, "average": average}
    state = {"plan": identity(plan), "run": vars(run), **{name: part.state_dict() for name, part in parts.items()}}
    with writing(plan.checkpoint or "") as stream:
        torch.save(state, stream)


def resumed(plan: LoopPlan, net: torch.nn.Module, optimizer: Optimizer, average: Average) -> Run:
    """Where the checkpoint left off, if there is one; else the start."""
    if not plan.checkpoint or not Path(plan.checkpoint).exists():
        return Run()
    where, hint = str(plan.checkpoint), "Give another file, or remove this one to start anew"
    try:
        state = read(plan.checkpoint)
    except UNREADABLE as error:
        raise DataError(f"this is no checkpoint, or a damaged one ({error})", where=where, hint=hint) from error
    try:
        before, now = state["plan"], identity(plan)
        if other := [name for name in now if name not in before or before[name] != now[name]]:
            raise DataError(f"the checkpoint is of a run with other settings ({', '.join(other)})", where=where, hint=hint)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        average.load_state_dict(state["average"])
        return Run(**state["run"])
    except UNFIT as error:
        raise DataError(f"the checkpoint does not fit this run ({error})", where=where, hint=hint) from error


def read(path: str | Path) -> Any:
    """What ``save`` wrote. torch writes a check sum of each part and does not look at it again."""
    with zipfile.ZipFile(path) as archive:
        if (part := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{part} is not as it was written")
    state = torch.load(path, weights_only=True)
    if not isinstance(state, dict):
        raise ValueError(f"it holds a {type(state).__name__}")
    return state


def identity(plan: LoopPlan) -> dict[str, Any]:
    """What must be the same for a run to go on, in plain types."""
    every = {**plan.of, **vars(plan)}
    every = {name: value for name, value in every.items() if name not in (*FREE, "of")}
    plain: dict[str, Any] = json.loads(json.dumps(every, default=lambda number: number.item()))
    return plain
