"""The command ``update``: continue to train a saved tagger."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from longtail.cli.output import read_and_report, show
from longtail.data.sources import check_sources
from longtail.errors import DataError
from longtail.progress import Display
from longtail.tagger.bundle import check_target
from longtail.tagger.tagger import Tagger, load


def update(arguments: Namespace) -> None:
    """Continue to train a saved tagger, and save it in its place or in another folder."""
    display, out = Display(), Path(arguments.out or arguments.model)
    in_place = out.resolve() == Path(arguments.model).resolve()
    check_target(out, overwrite=in_place or arguments.overwrite)
    check_sources(arguments.data, arguments.old, vocabulary=arguments.vocabulary)
    tagger = load(arguments.model).configure(threads=arguments.threads)
    new, old = (
        read_and_report(path, arguments, display, trained=tagger.layout) if path else None
        for path in (arguments.data, arguments.old or _find_old(arguments, tagger, display))
    )
    options = {"feedback": arguments.feedback, "replay": arguments.replay, "seed": arguments.seed}
    report = tagger.update(new, old=old, **options, progress=display)
    tagger.save(out, overwrite=True if in_place else arguments.overwrite or None)
    show(str(report))
    display.say(f"saved in {out}")


def _find_old(arguments: Namespace, tagger: Tagger, display: Display) -> str | None:
    """Return the file that the tagger was trained on, if old samples are to be replayed and it has not changed."""
    wants_old = arguments.data is not None if arguments.replay is None else arguments.replay > 0
    if not wants_old or tagger.training_file is None:
        return None
    try:
        found = tagger.training_file.find(Path(arguments.model))
    except DataError as error:
        if arguments.replay is not None:
            raise
        display.say(f"no old samples are replayed: {error}")
        return None
    display.say(f"old samples: {found}, which the model was trained on (--replay 0: none)")
    return str(found)
