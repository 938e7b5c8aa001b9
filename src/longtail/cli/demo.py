"""The tour: the commands from nothing to a measured, explained tagger, each shown as one would type it, and run."""

from __future__ import annotations

import shlex
import sys
import webbrowser
from argparse import Namespace
from pathlib import Path
from typing import Any

from longtail.cli.main import parser, run
from longtail.compare.contestants import contestants
from longtail.files import writing
from longtail.progress import Display

# None of them needs torch, so everybody gets the same table, and within a minute or two.
METHODS = "popularity,ovr,plt,plt:xr-linear,hierarchicalxc"
ONE_MORE = "glas"  # trains with torch
EXAMPLE = "Draw random samples from a normal distribution.\n"


def demo(arguments: Namespace) -> None:
    """Build the embedded corpus, compare some methods on it, and have the best one tag an example."""
    out, display = Path(arguments.out), Display()
    train, test, example = (str(out / name) for name in ("train.jsonl", "test.jsonl", "example.txt"))
    display.say("which parameters does a function have, told by its documentation? A corpus of Python's own:")
    if not (Path(train).exists() and Path(test).exists()):
        step("split", "builtin:pydoc", "--test", "0.2", "--out", str(out))
    among = ("compare", train, test, "--out", str(out), "--methods")
    result = step(*among, METHODS)
    (best,) = contestants([result.entries[0].name])
    model = str(out / "models" / best.file_name)
    with writing(example) as stream:
        stream.write(EXAMPLE.encode())
    step("predict", model, example, "--k", "3", "--explain")
    following = [
        f"echo 'Sort a list in place.' | {command('predict', model)}",
        command(*among, f"{METHODS},{ONE_MORE}") + f"  # trains {ONE_MORE} only",
        command("check", "YOUR.csv") + "  # then split, compare and predict, as above",
    ]
    sys.stdout.write("next:\n" + "".join(f"  {line}\n" for line in following))
    page = out.resolve() / "index.html"
    if arguments.open and not webbrowser.open(page.as_uri()):
        display.say(f"there is no browser to open {page} in")


def step(*words: str) -> Any:
    """Show a command and run it."""
    sys.stdout.write(f"$ {command(*words)}\n")
    sys.stdout.flush()
    return run(parser().parse_args(words))


def command(*words: str) -> str:
    """As one would type it."""
    return shlex.join(["longtail", *words])
