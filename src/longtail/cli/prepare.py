"""The command that prepares data that is larger than memory."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

from longtail.api import prepare_layout
from longtail.cli.layout import get_layout
from longtail.cli.output import show, show_notes
from longtail.data.prepare import describe_plan
from longtail.data.sources import check_sources
from longtail.progress import Display
from longtail.selection.machine import choose_memory
from longtail.spec import MethodSpec


def prepare(arguments: Namespace) -> None:
    """Prepare data and the features of a method; show the plan first."""
    display, layout, out = Display(), get_layout(arguments), Path(arguments.out)
    spec = MethodSpec.parse(arguments.method, arguments.set).override(arguments.preset)
    check_sources(arguments.data, vocabulary=arguments.vocabulary)
    memory = choose_memory() if arguments.memory is None else arguments.memory
    display.say(describe_plan(arguments.data, layout, out, memory=memory, seed=arguments.seed))
    data = prepare_layout(arguments.data, layout, out, spec, memory, arguments.seed, arguments.threads, display)
    show_notes(data.notes, display)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file()) / 1e9
    show(f"{out}: {data.n_samples:,} samples, {data.n_labels:,} labels, {size:.2f} GB")
    show(f"next  {shlex.join(['longtail', 'train', str(out), '--method', str(spec), '--out', 'MODEL'])}")
