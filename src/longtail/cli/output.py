"""Output of commands: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys

from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.progress import Display


def show(text: str) -> None:
    """Write a result to standard output."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def read_and_report(path: str, display: Display) -> Dataset:
    """Read data, and report its size and what reading repaired or assumed."""
    data = read(path)
    display.say(f"{data.source}: {data.n_samples:,} samples, {data.n_labels:,} labels")
    for note in data.notes:
        display.say(f"  note: {note}")
    return data
