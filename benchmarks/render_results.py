"""Render the tables of results from the recipes: the one in the README, and docs/results.md.

python benchmarks/render_results.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longtail.data.read import BUILTIN
from longtail.files import open_atomic
from longtail.progress import format_duration
from longtail.recipes.corpus import Corpus, read_corpora
from longtail.recipes.files import FOLDER, Figures, read_toml
from longtail.recipes.recipe import CALIBRATION_ERROR, COSTS, METRICS, Recipe, read_recipe, recipe_paths
from longtail.registry import METHODS
from longtail.report.comparison import format_number
from longtail.report.text import render_table

ROOT = Path(__file__).resolve().parents[1]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "results.md"
START, END = "<!-- begin: python benchmarks/render_results.py -->\n", "<!-- end -->\n"

# The table of the README: rows are specs (the first of each tuple that has a recipe on the corpus), columns are corpora.
README_ROWS = {
    "`ovr`": ("ovr",),
    "`plt`": ("plt",),
    "`hierarchicalxc`": ("hierarchicalxc",),
    "`glas`": ("glas",),
    "`neuralxc`": ("neuralxc",),
    "`aplc`, a sum of feature vectors": ("aplc",),
    "`secseq`, our set network": ("secseq",),
    "`lightattention`": ("lightattention",),
    "best `blend`": (
        "blend:minilm",
        "blend:attention",
        "blend",
    ),
}
README_CORPORA = ("delicious", "debian-debtags", "manpages-seealso", "gutenberg-lcsh", "finna-yso-en", "finna-yso-fi")

INTRODUCTION = """\
# Results

Rendered by `python benchmarks/render_results.py` from [recipes](recipes.md): a name links to its recipe, and
`longtail reproduce` checks it. Everything was trained on `train` and evaluated once on `test`, with one thread and seed 0,
with default settings unless others are named. The best value of a column is bold. The spread is the largest minus the
smallest P@1 / PSP@5 of three seeds (`longtail reproduce NAME --seeds 3`), where it was measured. ECE@5 is the
[calibration error](calibration.md) of the first five labels; older recipes do not have it. Costs were measured on a
busy machine: CPU seconds of training from texts or vectors, MB of the saved model, peak MB of memory during training.

The values of other systems come from [benchmarks](../benchmarks/README.md), with two threads. They got the vectors of the
corpus or, for texts, TF-IDF of single words, which their seconds do not include;
`plt+ngrams=1+min_df=2+subwords=0.0+min_chars=2+train_on_names=false` uses the same features. omikuji and LibMultiLabel
take no seed: their values differ by some tenths from run to run.

Recorded with earlier versions, and to be recorded again: `blend` on Finna (English), on Debian packages and on manual
pages, `blend:attention`, `blend:minilm`, `blend` with wordllama, `plt+dense=minilm` on Debian (before names of labels
were training texts). Before the sparse part had three divisions into clusters: `glas` and `aplc` on Finnish Finna
records, `lightattention` on Finna (English) and on manual pages. Before probabilities depended on ranks, which lowers
ECE@5: `glas` and `neuralxc` on Finna (English), `lightattention` on Gutenberg titles. Before they depended on the
other labels of a text, which lowers it where the number of labels differs between texts: all but `glas`, `neuralxc`,
`aplc` and `secseq` on manual pages, and `neuralxc` and `secseq` on Finnish records. Most costs do not include
calibration, which adds 0 to 14 %.
"""
BUILT_HERE = """ Built from the documentation of the installed packages (here Python 3.11 and
`constraints.txt`), so it differs between machines."""


@dataclass(frozen=True)
class Peer:
    """The result of another system, written by ``benchmarks/record_peers.py``."""

    path: Path
    system: str
    version: str
    corpus: str
    features: str
    command: str
    expected: Figures
    cost: Figures = field(default_factory=dict)


Result = Recipe | Peer


def read_recipes() -> list[Recipe]:
    """By method, in the order of the registry; default settings first."""
    found = [read_recipe(path) for path in recipe_paths()]
    order = list(METHODS)
    return sorted(found, key=lambda one: (order.index(one.method_spec.method), one.spec))


def read_peers() -> list[Peer]:
    """By name."""
    return sorted((read_toml(Peer, path) for path in FOLDER.glob("peers/*.toml")), key=lambda one: one.system.lower())


def corpus_name(result: Result) -> str:
    """The corpus of a result."""
    return result.corpus.removeprefix(BUILTIN)


def render_short_table(recipes: Sequence[Recipe], peers: Sequence[Peer], corpora: Sequence[Corpus]) -> str:
    """P@1 / PSP@5 and training time: a row per method, and one for the best peer."""
    by_spec = {(recipe.spec, corpus_name(recipe)): recipe for recipe in recipes}
    rows: dict[str, list[Result | None]] = {}
    for title, specs in README_ROWS.items():
        rows[title] = [next((by_spec[s, c.name] for s in specs if (s, c.name) in by_spec), None) for c in corpora]
    rows["best of the peers"] = [
        max((peer for peer in peers if peer.corpus == c.name), key=lambda peer: peer.expected["P@1"], default=None)
        for c in corpora
    ]
    best = [best_values(row[i] for row in rows.values()) for i in range(len(corpora))]
    lines = []
    for title, row in rows.items():
        lines.append([title, *(render_cell(one, values) for one, values in zip(row, best, strict=True))])
    names = [f"{corpus.title.split(',')[0]}, {corpus.size['labels']:,.0f} labels" for corpus in corpora]
    return render_table(["P@1 / PSP@5, CPU time of training", *names], lines)


def render_cell(result: Result | None, best: Figures) -> str:
    """The metrics of a cell, its training time, and the name of a peer."""
    if result is None:
        return ""
    values = " / ".join(render_value(result, name, best, 1) for name in ("P@1", "PSP@5"))
    seconds = result.cost.get("train CPU-s")
    time = f", {format_duration(seconds)}" if seconds else ""
    return values + time + (f" ({result.system.split()[0]})" if isinstance(result, Peer) else "")


def best_values(results: Iterable[Result | None]) -> Figures:
    """The maximum of each metric."""
    best: Figures = {}
    for one in results:
        for name, value in (one.expected if one else {}).items():
            best[name] = max(value, best.get(name, value))
    return best


def render_value(result: Result, name: str, best: Figures, decimals: int) -> str:
    """A metric, bold if it is the best of those shown."""
    if name not in result.expected:
        return ""
    value = f"{result.expected[name]:.{decimals}f}"
    return f"**{value}**" if value == f"{best[name]:.{decimals}f}" else value


def render_spread(result: Result) -> str:
    """The spread of P@1 and of PSP@5 over seeds."""
    spread = {} if isinstance(result, Peer) else result.spread
    return " / ".join(f"{spread[name]:.2f}" for name in ("P@1", "PSP@5") if name in spread)


def render_full_table(results: Sequence[Result]) -> str:
    """All metrics and costs on one corpus."""
    best, rows = best_values(results), []
    for one in results:
        link = f"../src/longtail/recipes/{one.path.relative_to(FOLDER)}"
        title = f"{one.system} ({one.version})" if isinstance(one, Peer) else f"`{one.spec}`"
        costs = [format_number(one.cost[name]) if name in one.cost else "" for name in COSTS]
        values = [render_value(one, name, best, 2) for name in METRICS]
        error = f"{one.expected[CALIBRATION_ERROR]:.2f}" if CALIBRATION_ERROR in one.expected else ""
        rows.append([f"[{title}]({link})", *values, error, render_spread(one), *costs])
    return render_table(["", *METRICS, CALIBRATION_ERROR, "spread", *COSTS], rows)


def render_files() -> dict[Path, str]:
    """The files that hold tables, with up-to-date tables."""
    recipes, peers, corpora = read_recipes(), read_peers(), read_corpora()
    parts = [INTRODUCTION]
    for corpus in corpora:
        train, test, labels = (f"{corpus.size[name]:,.0f}" for name in ("train", "test", "labels"))
        facts = f"{corpus.kind.capitalize()}: {train} for training, {test} for testing; {labels} labels."
        note = facts if corpus.sha256 else facts + BUILT_HERE
        here = [one for one in [*recipes, *peers] if corpus_name(one) == corpus.name]
        parts.append(f"## {corpus.title}\n\n{note}\n\n{render_full_table(here)}\n")
    shown = [next(corpus for corpus in corpora if corpus.name == name) for name in README_CORPORA]
    block = re.compile(re.escape(START) + ".*?" + re.escape(END), re.DOTALL)
    content = f"{START}\n{render_short_table(recipes, peers, shown)}\n\n{END}"
    readme, n_blocks = block.subn(lambda _: content, README.read_text("utf-8"))
    if n_blocks != 1:
        raise SystemExit(f"{README} must have one block between {START!r} and {END!r}")
    return {README: readme, PAGE: "\n".join(parts)}


if __name__ == "__main__":
    for path, text in render_files().items():
        with open_atomic(path) as stream:
            stream.write(text.encode())
