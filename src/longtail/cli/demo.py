"""The demo: commands from nothing to an evaluated, explained tagger, each shown as a user would type it, and run."""

from __future__ import annotations

import shlex
import sys
import webbrowser
from argparse import Namespace
from pathlib import Path
from typing import Any

from longtail.cli.main import run_command
from longtail.cli.parser import build_parser
from longtail.comparison.candidates import parse_candidates
from longtail.files import open_atomic
from longtail.progress import Display
from longtail.registry import model_class

LINEAR_METHODS = "popularity,ovr,plt"  # no torch, so the first table is there within a minute
# The six systems of the papers, with settings small enough for two cores -> their names.
PAPER_METHODS = {
    "hierarchicalxc": "HierarchicalXC",
    "neuralxc+epochs=10": "NeuralXC",
    "glas+epochs=10": "GLaS",
    "secseq": "SeCSeq",
    "aplc+epochs=10": "APLC-XLNet, with a sum of the vectors of features as its encoder",
    "lightattention+epochs=6+word_dim=64": "LightAttention",
}
EXAMPLE = "Draw random samples from a normal distribution.\n"


def demo(arguments: Namespace) -> None:
    """Build the embedded corpus, compare methods on it, and predict the labels of an example with the best one."""
    out, display = Path(arguments.out), Display()
    train, test, example = (str(out / name) for name in ("train.jsonl", "test.jsonl", "example.txt"))
    display.say("The task: predict the parameters of a Python function from its documentation, here of installed packages.")
    if not (Path(train).exists() and Path(test).exists()):
        _run_step("split", "builtin:pydoc", "--test", "0.2", "--out", str(out))
    compare = ("compare", train, test, "--out", str(out), "--methods")
    methods = LINEAR_METHODS
    result = _run_step(*compare, methods)
    if not arguments.quick:
        display.say("\nThe six systems of the papers, with settings small enough for this demo:")
        for spec, name in PAPER_METHODS.items():
            summary = (model_class(spec.partition("+")[0]).__doc__ or "").split("\n")[0]
            display.say(f"  {name}: {summary}")
        methods = ",".join([LINEAR_METHODS, *PAPER_METHODS])
        result = _run_step(*compare, methods)
    (best,) = parse_candidates([result.results[0].name])
    model = str(out / "models" / best.file_name)
    with open_atomic(example) as stream:
        stream.write(EXAMPLE.encode())
    _run_step("predict", model, example, "--k", "3", "--explain")
    following = [
        f"echo 'Sort a list in place.' | {_join('predict', model)}",
        _join("serve", model) + "  # a page to try the model: http://127.0.0.1:8000/",
        _join("check", "YOUR.csv") + "  # then split, compare and predict, as above",
    ]
    sys.stdout.write("next:\n" + "".join(f"  {line}\n" for line in following))
    page = out.resolve() / "index.html"
    if arguments.open and not webbrowser.open(page.as_uri()):
        display.say(f"no browser found to open {page}")
    if arguments.serve:
        _run_step("serve", model, "--open")


def _run_step(*words: str) -> Any:
    """Show a command and run it."""
    sys.stdout.write(f"$ {_join(*words)}\n")
    sys.stdout.flush()
    return run_command(build_parser().parse_args(words))


def _join(*words: str) -> str:
    return shlex.join(["longtail", *words])
