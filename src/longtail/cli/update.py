"""The command ``update``: continue to train a saved tagger."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from longtail.cli.output import read_and_report, show
from longtail.data.sources import check_sources
from longtail.progress import Display
from longtail.tagger.bundle import check_target
from longtail.tagger.tagger import load


def update(arguments: Namespace) -> None:
    """Continue to train a saved tagger, and save it in its place or in another folder."""
    display, out = Display(), Path(arguments.out or arguments.model)
    in_place = out.resolve() == Path(arguments.model).resolve()
    check_target(out, overwrite=in_place or arguments.overwrite)
    check_sources(arguments.data, arguments.old, vocabulary=arguments.vocabulary)
    tagger = load(arguments.model).configure(threads=arguments.threads)
    new, old = (
        read_and_report(path, arguments, display, trained=tagger.layout) if path else None
        for path in (arguments.data, arguments.old)
    )
    options = {"feedback": arguments.feedback, "replay": arguments.replay, "seed": arguments.seed}
    report = tagger.update(new, old=old, **options, progress=display)
    tagger.save(out, overwrite=True if in_place else arguments.overwrite or None)
    show(str(report))
    display.say(f"saved in {out}")
