"""The commands that learn a tagger: by a method that is named, or by the one that suits the data."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from longtail.choose.choice import Budget, command, plan
from longtail.choose.profile import profile
from longtail.choose.trial import trial
from longtail.cli.output import show, told
from longtail.compare.contestants import Contestant
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import SettingError
from longtail.progress import Display, clock
from longtail.report.evaluation import evaluation_tables
from longtail.report.plan import amounts, nothing_fits, plan_text, trial_text
from longtail.settings import parse_settings
from longtail.spec import known_settings
from longtail.tagger.bundle import check_target

AUTO = "auto"


def train(arguments: Namespace) -> None:
    """Learn a tagger and save it."""
    display, one = Display(), None
    if arguments.method != AUTO:
        settings = parse_settings(arguments.set, known_settings(arguments.method), arguments.method)
        one = Contestant(arguments.method, arguments.method, arguments.preset, settings)
        one.tagger(arguments.seed, arguments.threads)  # a wrong setting is told before anything is read
    elif arguments.set or arguments.preset:
        raise SettingError("settings and presets are of a method", hint="Name one with --method, or leave them out")
    check_target(Path(arguments.out))  # before hours of training
    data = told(read(arguments.data), display)
    valid = told(read(arguments.valid), display) if arguments.valid else None
    one = one or chosen(data, Budget(), arguments, display, display.say)
    learned(one, data, valid, arguments, display)


def choose(arguments: Namespace) -> None:
    """Propose a method for the data; train it if a place for the model is given."""
    budget = Budget(arguments.minutes, arguments.memory)
    if arguments.out:
        check_target(Path(arguments.out))
    display = Display()
    data = told(read(arguments.data), display)
    one = chosen(data, budget, arguments, display, show)
    if arguments.out:
        learned(one, data, None, arguments, display)


def chosen(data: Dataset, budget: Budget, arguments: Namespace, display: Display, tell: Callable[[str], None]) -> Contestant:
    """The method that suits the data, after a trial if one is asked for; the plan is told."""
    own = {"seed": arguments.seed, "threads": arguments.threads}
    found = plan(profile(data, arguments.seed), budget, threads=arguments.threads)
    tell(plan_text(found, data.source, out=arguments.out or "MODEL", **own))
    if not found.fitting and arguments.out:
        cheapest = found.proposed
        raise SettingError(nothing_fits(found), hint=f"The cheapest is {cheapest.name}, {amounts(cheapest)}: allow so much")
    if not arguments.trial:
        return found.proposed.contestant
    best, result = trial(data, found, **own, progress=display)
    again = command(best.contestant, data.source, arguments.out or "MODEL", **own)
    tell(f"\n{trial_text(result)}\n\nThe best on held-out samples: {best.name}\n\n    {again}")
    return best.contestant


def learned(one: Contestant, data: Dataset, valid: Dataset | None, arguments: Namespace, display: Display) -> None:
    """Train, save, and measure on validation data if there are any."""
    start = time.monotonic()
    tagger = one.tagger(arguments.seed, arguments.threads).fit(data, valid, progress=display)
    tagger.save(arguments.out)
    display.say(f"trained {one.name} in {clock(time.monotonic() - start)}; saved to {arguments.out}")
    if valid is not None:
        show(evaluation_tables(tagger.evaluate(valid), (1, 3, 5)))
