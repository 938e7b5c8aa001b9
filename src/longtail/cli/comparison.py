"""The command that compares methods: read, have them run, show."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from longtail.cli.output import show, told
from longtail.compare.contestants import Contestant, contestants
from longtail.compare.results import Comparison, comparison
from longtail.compare.runs import DEPTH, Task, run_all
from longtail.data.read import read
from longtail.errors import LongtailError, SettingError, suggest
from longtail.files import unwritable, writing
from longtail.progress import Display
from longtail.report.comparison import comparison_text
from longtail.report.comparison_page import comparison_page
from longtail.settings import parse_settings
from longtail.spec import known_settings


def compare(arguments: Namespace) -> Comparison:
    """Train and measure methods side by side; write a table, results.json and a page. All that they show."""
    display, out = Display(), Path(arguments.out)
    chosen = with_settings(contestants(word.strip() for word in arguments.methods.split(",") if word.strip()), arguments.set)
    for one in chosen:
        if not one.model:
            one.tagger(arguments.seed, arguments.threads)  # a wrong setting is told before hours of training
    if (closed := unwritable(out)) is not None:
        raise SettingError("nothing can be written here", where=str(closed), hint="Choose another folder")
    train, test, valid = (read(path) if path else None for path in (arguments.train, arguments.test, arguments.valid))
    assert train is not None and test is not None
    for data in (train, test, valid):
        if data is not None:
            told(data, display)
    task = Task(train, test, valid, arguments.seed, arguments.threads, max(DEPTH, *arguments.k))
    runs = run_all(task, chosen, out, display)
    today = time.strftime("%Y-%m-%d")
    result = comparison(task, runs, ks=arguments.k, propensity=arguments.propensity, date=today, progress=display)
    for name, content in (
        ("results.json", json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n"),
        ("index.html", comparison_page(result)),
    ):
        with writing(out / name) as stream:
            stream.write(content.encode())
    show(f"{comparison_text(result)}\n\npage: {out / 'index.html'}    figures: {out / 'results.json'}")
    failed = [run.contestant.name for run in runs if run.failure]
    if failed:
        raise LongtailError(f"{len(failed)} of {len(runs)} failed ({', '.join(failed)})", hint="The report tells why")
    return result


def with_settings(chosen: list[Contestant], words: list[str]) -> list[Contestant]:
    """Each ``NAME.setting=value`` given to whom it is for."""
    mine: dict[str, list[str]] = {one.name: [] for one in chosen if not one.model}
    for word in words:
        place, equals, value = word.partition("=")
        name, dot, setting = place.rpartition(".")
        if not dot or not equals:
            raise SettingError(f'"--set {word}" does not say whose it is', hint="Write --set METHOD.name=value")
        if name not in mine:
            raise SettingError(f'there is no method "{name}" to be trained', hint=suggest(name, mine))
        mine[name].append(f"{setting}={value}")
    return [
        one if one.model else replace(one, settings=parse_settings(mine[one.name], known_settings(one.method), one.method))
        for one in chosen
    ]
