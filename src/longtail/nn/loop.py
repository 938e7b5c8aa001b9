"""The training loop of all neural methods.

Each step draws its randomness from (seed, epoch, step) alone, so a run that was killed continues from its checkpoint to the
same weights, bit by bit, as one that was not. Several ranks (``ranks.py``) train on parts of the same batches; the number of
the rank is then a part of the seed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from longtail.errors import LongtailError, SettingError
from longtail.files import check_new_file, open_atomic
from longtail.nn.average import WeightAverage
from longtail.nn.checkpoint import Stateful, load_checkpoint, name_own_checkpoint, save_checkpoint, save_of_each_rank
from longtail.nn.devices import adapt_threads
from longtail.nn.divided_rows import clip_gradients, describe_division, has_divided_rows
from longtail.nn.exchange import GradientExchange, copy_first
from longtail.nn.loop_plan import LoopPlan
from longtail.nn.ranks import agree, copy_random_state, count_ranks, get_rank, take_part
from longtail.nn.schedule import get_schedule
from longtail.nn.validation import MeanPrecision
from longtail.progress import SILENT, Progress, Stage

Batches = Callable[[np.random.Generator], Iterable[Any]]  # returns the batches of one epoch, in random order
Metric = Callable[[], float]  # evaluates the current weights on validation data; higher is better. See MeanPrecision

CHECKPOINT_SECONDS = 300.0  # between two checkpoints; there is also one after each epoch
_EMA_EPOCHS = 2  # time constant of the moving average of weights
_EMA_UPDATES = 20  # per epoch
_MIN_COLLAPSE_STEPS = 200  # before a run can be said to have collapsed: a few small batches teach nothing


class Optimizer(Protocol):
    """What the loop needs of an optimiser: one of torch's, or several as one (``optim.JointOptimizer``)."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...  # noqa: D102
    def step(self) -> Any: ...  # noqa: D102
    def zero_grad(self) -> None: ...  # noqa: D102
    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102
    def load_state_dict(self, state: dict[str, Any]) -> None: ...  # noqa: D102


@dataclass
class TrainingRun:
    """The progress of a training run, and one row of ``history`` for each epoch that is done."""

    epoch: int = 0  # epochs that are done
    step: int = 0  # batches of the current epoch that are done
    best: float = -np.inf  # best value of the metric
    best_epoch: int = -1
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    loss: float = 0.0  # sum over the batches of the current epoch
    seconds: float = 0.0  # of the current epoch, up to the last checkpoint
    is_collapsed: bool = True  # since the start, all held-out samples have got the same first label
    history: list[dict[str, float]] = field(default_factory=list)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        vars(self).update(vars(TrainingRun(**state)))


def train(
    net: torch.nn.Module,
    batches: Batches,
    loss: Callable[[Any], Tensor],
    optimizer: Optimizer,
    plan: LoopPlan,
    *,
    metric: Metric | None = None,
    progress: Progress = SILENT,
) -> TrainingRun:
    """Train a network. It ends with its best weights by the metric; without a metric, with the last (averaged) ones.

    A parameter group of the optimiser that has a key ``unfreeze_epoch`` is not trained before that epoch. If ranks divide
    tables of the network (``divided_rows.py``), all of them call the metric; ``collect_rows`` joins the tables afterwards.
    """
    loop = _Loop(net, loss, optimizer, plan)
    run = loop.run
    if loop.is_divided:
        progress.say(describe_division(net))
    with progress.stage(plan.name, plan.epochs * plan.steps) as stage:
        stage.advance(run.epoch * plan.steps + run.step)
        while loop.goes_on():
            net.train()
            unfreeze_groups(optimizer, run.epoch)
            seconds = loop.run_epoch(batches(np.random.default_rng([plan.seed, run.epoch])), stage)
            loop.average.after_epoch(run.epoch)
            finish_epoch(run, net, loop.average, metric if loop.validates else None, seconds)
            _check_collapse(run, plan)
            if plan.log and loop.is_first:
                _write_log(plan.log, run.history)
            if plan.checkpoint and loop.validates:
                loop.save()
    if loop.read_clock() >= 1 and run.epoch <= plan.epochs:
        progress.say(f"stopped after {plan.minutes:g} minutes, in epoch {run.epoch} of {plan.epochs}{_show_metric(run)}")
    if run.best_weights:
        net.load_state_dict(run.best_weights)
    else:
        loop.average.swap()
    copy_first(net)
    copy_random_state()  # of a network that is trained next, ranks may draw different rows of one table
    loop.set_rates(1.0)
    net.eval()
    return run


class _Loop:
    """A network in training, with all that a checkpoint saves."""

    def __init__(self, net: torch.nn.Module, loss: Callable[[Any], Tensor], optimizer: Optimizer, plan: LoopPlan) -> None:
        if plan.accumulate < 1:
            raise SettingError(f"accumulate is {plan.accumulate}", hint="It must be a positive integer")
        self.net, self.loss, self.optimizer, self.plan = net, loss, optimizer, plan
        self.is_first = get_rank() == 0  # of the ranks: the one that writes files
        self.is_divided = has_divided_rows(net)
        self.validates = self.is_first or self.is_divided  # and averages weights: those that it has
        self.run, self.average = TrainingRun(), _make_average(net, plan, plan.average if self.validates else "none")
        self.schedule, self.rates = get_schedule(plan.schedule), [group["lr"] for group in optimizer.param_groups]
        self.dense = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.device = next(net.parameters()).device
        self.fixed_settings = plan.fixed_settings()
        self.parts: dict[str, Stateful] = {"net": net, "optimizer": optimizer, "run": self.run, "random": _RandomState()}
        self.parts |= {"average": self.average} if self.validates else {}
        for path in (plan.checkpoint, plan.log):
            check_new_file(path)  # before hours of training
        if plan.checkpoint and Path(plan.checkpoint).exists():
            self.load()
        copy_first(net)  # ranks have drawn their weights at random
        self.exchange = None
        if count_ranks() > 1:
            self.exchange = GradientExchange(net, self.dense, copies_sum=bool(plan.clip))
        self.part_loss = 0.0  # of this rank, since the last update
        self.saved = self.started = self.begin = time.monotonic()

    def goes_on(self) -> bool:
        """Whether there is another epoch: the first rank decides, because it knows the metric."""
        run, plan = self.run, self.plan
        return bool(agree(run.epoch < plan.epochs and not _out_of_patience(run, plan) and self.read_clock() < 1))

    def read_clock(self) -> float:
        """The share of the minutes that is over, by the clock of this rank; 0 without a limit."""
        return (time.monotonic() - self.begin) / (60 * self.plan.minutes) if self.plan.minutes else 0.0

    def time_used(self) -> float:
        """The share of the minutes that is over; the same for all ranks."""
        return agree(self.read_clock()) if self.plan.minutes else 0.0

    def run_epoch(self, batches: Iterable[Any], stage: Stage) -> float:
        """Train on the batches of an epoch that are not done yet; return the seconds since the last checkpoint."""
        run, plan = self.run, self.plan
        self.started = time.monotonic()
        for number, batch in enumerate(batches):
            if number < run.step:
                continue
            part, share = take_part(batch)
            self._set_seed(_combine_seeds(plan.seed, run.epoch, number, *([get_rank()] if self.exchange else [])))
            first = number - number % plan.accumulate  # batch of this update
            n_batches = min(plan.accumulate, plan.steps - first)  # of this update
            if number == first:
                adapt_threads()
                done = (run.epoch * plan.steps + number) / (plan.epochs * plan.steps)
                self.set_rates(self.schedule(min(max(done, self.time_used()), 1.0)))
                self.optimizer.zero_grad()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=plan.mixed_precision):
                value = self.loss(part) if share == 1 else self.loss(part) * share
            (value / n_batches if n_batches > 1 else value).backward()  # type: ignore[no-untyped-call]
            self.part_loss += float(value.detach())
            run.step += 1
            if run.step == first + n_batches:
                self._update()
            note = f"epoch {run.epoch + 1} of {plan.epochs}, loss {run.loss / run.step:.4g}{_show_metric(run)}"
            stage.advance(note=note)
            if run.step == first + n_batches and self.time_used() >= 1:
                break
        return time.monotonic() - self.started

    def _set_seed(self, seed: int) -> None:
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # torch.manual_seed also looks for other devices: 0.2 ms
        else:
            torch.manual_seed(seed)

    def _update(self) -> None:
        is_old = self.is_first and time.monotonic() - self.saved > CHECKPOINT_SECONDS  # the last checkpoint
        numbers = [self.part_loss, float(is_old)]
        loss, n_old = numbers if self.exchange is None else self.exchange.run(numbers)
        self.run.loss += loss
        self.part_loss = 0.0
        if self.plan.clip:
            clip_gradients(self.dense, self.plan.clip)
        self.optimizer.step()
        self.average.after_step()
        if self.plan.checkpoint and n_old and self.validates:
            self.run.seconds += time.monotonic() - self.started
            self.save()
            self.started = time.monotonic()

    def set_rates(self, factor: float) -> None:
        """Set the learning rate of each parameter group to its full rate times a factor."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def save(self) -> None:
        """Write a checkpoint."""
        path, arguments = self.plan.checkpoint or "", (self.fixed_settings, self.parts)
        if self.is_divided:
            save_of_each_rank(path, *arguments, (self.run.epoch, self.run.step))
        else:
            save_checkpoint(path, *arguments)
        self.saved = time.monotonic()

    def load(self) -> None:
        """Continue from the checkpoint."""
        path, arguments = self.plan.checkpoint or "", (self.fixed_settings, self.parts)
        if not self.is_divided or self.is_first:
            load_checkpoint(path, *arguments)
        if self.is_divided:
            done = int(agree(self.run.epoch)), int(agree(self.run.step))
            if not self.is_first:
                load_checkpoint(name_own_checkpoint(path, done), *arguments)
        elif not self.is_first:
            self.run.best_weights = {}


class _RandomState:
    """The state of torch's random numbers: what is drawn after a run, such as the start of the next network."""

    def state_dict(self) -> dict[str, Any]:
        return {"state": torch.get_rng_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        torch.set_rng_state(state_dict["state"])


def _make_average(net: torch.nn.Module, plan: LoopPlan, kind: str) -> WeightAverage:
    updates = ceil(plan.steps / plan.accumulate)  # per epoch
    every = max(updates // _EMA_UPDATES, 1)
    decay = 1 - every / max(_EMA_EPOCHS * updates, 2)
    return WeightAverage(net, kind, start=plan.average_from, decay=decay, every=every)


def unfreeze_groups(optimizer: Optimizer, epoch: int) -> None:
    """Gradual unfreezing: from this epoch on, train the parameter groups whose ``unfreeze_epoch`` has come."""
    for group in optimizer.param_groups:
        if "unfreeze_epoch" in group:
            for parameter in group["params"]:
                parameter.requires_grad_(epoch >= group["unfreeze_epoch"])


def finish_epoch(
    run: TrainingRun, net: torch.nn.Module, average: WeightAverage, metric: Metric | None, seconds: float
) -> None:
    """Evaluate the (averaged) weights, keep them if they are the best, and append a row to the history."""
    if not np.isfinite(run.loss):
        hint = "Use a lower learning rate, or clip gradients"
        raise LongtailError(f"the loss is not a finite number after epoch {run.epoch + 1}", hint=hint)
    row = {"epoch": run.epoch + 1, "loss": run.loss / max(run.step, 1), "seconds": round(run.seconds + seconds, 3)}
    if metric is not None:
        average.swap()
        net.eval()
        value = metric()
        row["metric"] = float(value)
        run.is_collapsed &= isinstance(value, MeanPrecision) and value.is_collapsed
        if isinstance(value, MeanPrecision):
            row["P@1"] = value.at_1
        if value > run.best:
            run.best, run.best_epoch, run.best_weights = float(value), run.epoch, {}  # frees the memory of the former best
            run.best_weights = {name: weight.clone() for name, weight in net.state_dict().items()}
        average.swap()
    run.history.append(row)
    run.epoch, run.step, run.loss, run.seconds = run.epoch + 1, 0, 0.0, 0.0


def _out_of_patience(run: TrainingRun, plan: LoopPlan) -> bool:
    return bool(plan.patience) and run.best_epoch >= 0 and run.epoch - 1 - run.best_epoch >= plan.patience


def _check_collapse(run: TrainingRun, plan: LoopPlan) -> None:
    """Raise an error if the network has learned nothing in its first epochs."""
    enough = run.epoch >= plan.collapse_epochs and run.epoch * plan.steps >= _MIN_COLLAPSE_STEPS
    if plan.collapse_epochs and enough and run.is_collapsed and "P@1" in run.history[-1]:
        found = (
            f"training has collapsed: after {run.epoch} epochs, almost all held-out samples get the same first label, and"
            f" only {run.history[-1]['P@1']:.0f} % of them have it"
        )
        hint = "Use another learning rate, preset or method; or set collapse_epochs=0 to continue in spite of it"
        raise LongtailError(found, hint=hint)


def _show_metric(run: TrainingRun) -> str:
    """The last validation: P@1 on held-out samples, or the metric of the method."""
    last = run.history[-1] if run.history else {}
    if "P@1" in last:
        return f", held-out P@1 {last['P@1']:.1f}"
    return f", metric {last['metric']:.2f}" if "metric" in last else ""


def _combine_seeds(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _write_log(path: str | Path, history: list[dict[str, float]]) -> None:
    with open_atomic(path) as stream:
        stream.writelines(json.dumps(row).encode() + b"\n" for row in history)
