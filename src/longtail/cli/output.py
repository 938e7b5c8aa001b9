"""What commands read and write: data with a report on it; results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from longtail.cli.layout import get_layout
from longtail.data.dataset import Dataset
from longtail.data.layout import Layout
from longtail.data.read import read_layout
from longtail.printable import format_count, make_visible
from longtail.progress import Display


def show(text: str) -> None:
    """Write a result to standard output, without control characters but line ends and tabs."""
    sys.stdout.write(make_visible(text.rstrip("\n"), keep="\n\t") + "\n")
    sys.stdout.flush()


def read_and_report(
    path: str, arguments: Namespace, display: Display, *, labelled: bool = True, trained: Layout | None = None
) -> Dataset:
    """Read data as the options of the command say; report its size and what reading guessed or repaired."""
    data = read_layout(path, get_layout(arguments), labelled=labelled, trained=trained)
    labels = f", {format_count(data.n_labels, 'label')}" if labelled else ""
    display.say(f"{data.source}: {format_count(data.n_samples, 'sample')}{labels}")
    show_notes(data.notes, display)
    return data


def show_notes(notes: Sequence[str], display: Display) -> None:
    """Show what was guessed, repaired or skipped."""
    for note in notes:
        display.say(f"  note: {note}")
