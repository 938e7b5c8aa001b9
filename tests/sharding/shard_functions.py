"""Functions for shards of tests: workers import them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from longtail.sharding.tasks import Inputs
from longtail.state import State


def add_up(inputs: Inputs, settings: dict[str, Any], first: int, end: int) -> State:
    """The sum of a range, times a factor."""
    return {"sum": np.array([settings["factor"] * inputs["numbers"]["values"][first:end].sum()])}


def die(inputs: Inputs, settings: dict[str, Any], first: int, end: int) -> State:
    """As above, but the worker is killed, as often as the settings say for the first range."""
    log = Path(settings["log"])
    deaths = len(log.read_text()) if log.exists() else 0
    if first == 0 and deaths < settings["deaths"]:
        log.write_text("x" * (deaths + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return add_up(inputs, settings, first, end)


def fail(inputs: Inputs, settings: dict[str, Any], first: int, end: int) -> State:
    """A mistake in a function."""
    with Path(settings["log"]).open("a") as stream:
        stream.write("x")
    raise ZeroDivisionError("a mistake")


def constant(inputs: Inputs, settings: dict[str, Any], first: int, end: int) -> State:
    """A result of some hundred bytes."""
    return {"zeros": np.zeros(100)}
