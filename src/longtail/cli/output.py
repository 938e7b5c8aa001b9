"""What commands tell: results to standard output, all else to standard error."""

from __future__ import annotations

import sys

from longtail.data.dataset import Dataset
from longtail.progress import Display


def show(text: str) -> None:
    """Results go to standard output."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def told(data: Dataset, display: Display) -> Dataset:
    """Say what was read, and what reading had to repair or assume."""
    display.say(f"{data.source}: {data.n_samples:,} samples, {data.n_labels:,} labels")
    for note in data.notes:
        display.say(f"  note: {note}")
    return data
