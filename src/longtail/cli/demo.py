"""The demonstration: from nothing to a measured, saved tagger, and a report."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from longtail.data.read import read
from longtail.data.split import parted
from longtail.data.write import write
from longtail.files import writing
from longtail.metrics.evaluate import Evaluation
from longtail.metrics.intervals import paired_test
from longtail.progress import Display
from longtail.report.evaluation import evaluation_tables
from longtail.report.text import table
from longtail.tagger import Tagger, load

CORPUS = "builtin:pydoc"
METHODS = ("popularity", "ovr", "plt")
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
EXAMPLE = "Draw random samples from a normal distribution."


def demo(arguments: Namespace) -> None:
    """Build the embedded corpus, train some methods, compare them, and tag an example."""
    out, display = Path(arguments.out), Display()
    display.say("building a corpus from Python's own documentation: which parameters does a function have?")
    data = read(CORPUS)
    display.say(f"{data.n_samples:,} texts, {data.n_labels:,} labels")
    parts = parted(data, 0.2, seed=0)
    train, test = parts["train"], parts["test"]
    for name, part in parts.items():
        write(part, out / name)
    results: dict[str, Evaluation] = {}
    for method in METHODS:
        Tagger(method).fit(train, progress=display).save(out / method)
        results[method] = load(out / method).evaluate(test)
    summary = comparison(results)
    sizes = f"{train.n_samples:,} training texts, {test.n_samples:,} test texts, {data.n_labels:,} labels; seed 0"
    best = METHODS[-1]
    report = [
        "# longtail demo",
        f"Which parameters does a Python function have, told by its documentation? {sizes}.",
        summary,
        f"## {best} in detail (95 % intervals)",
        evaluation_tables(results[best], (1, 3, 5)),
    ]
    with writing(out / "report.md") as stream:
        stream.write(("\n\n".join(report) + "\n").encode())
    tags = load(out / best).predict([EXAMPLE])[0]
    width = max(len(tag.label) for tag in tags)
    lines = [sizes, "", summary, "", EXAMPLE, *(f"  {label:<{width}} {score:6.2f}" for label, score in tags), ""]
    lines.append(f"report: {out / 'report.md'}    model: {out / best}")
    lines.append(f"try:    echo 'Sort a list in place.' | longtail predict {out / best}")
    sys.stdout.write("\n".join(lines) + "\n")


def comparison(results: dict[str, Evaluation]) -> str:
    """One row per method, and how the last two differ."""
    rows = []
    for method, result in results.items():
        rows.append([method, *(f"{result.values[name]:.2f}" for name in SHOWN)])
    *_, second, last = results
    test = paired_test(results[last].scores, results[second].scores)
    rows.append([f"{last} − {second}", *(f"{test[name].difference:+.2f}" for name in SHOWN)])
    rows.append(["p-value", *(f"{test[name].p_value:.4f}" for name in SHOWN)])
    return table(["method", *SHOWN], rows) + "\n\nThe p-values are those of a paired randomisation test."
