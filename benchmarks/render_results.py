"""The tables of results, made from the recipes: the one in the README, and all figures in ``docs/results.md``.

python recipes/render.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longtail.data.read import BUILTIN
from longtail.files import writing
from longtail.recipes.recipe import COSTS, METRICS, Figures, Recipe, read_as, read_recipe
from longtail.registry import METHODS
from longtail.report.comparison import digits
from longtail.report.text import table

RECIPES = Path(__file__).resolve().parent
ROOT = RECIPES.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "results.md"
START, END = "<!-- rendered by recipes/render.py -->\n", "<!-- end of what is rendered -->\n"
IN_SHORT = ("P@1", "PSP@5")  # the two figures of a cell in the README

INTRODUCTION = """\
# Results

Made by `python recipes/render.py` from [recipes](recipes.md); a name leads to its recipe, and `longtail reproduce` checks
it. All were trained on `train` and measured once on `test`, by one thread with seed 0; default settings unless others are
named. The best of a column is bold; what was not measured is left out. Costs are those of a busy machine: CPU seconds of
training from texts or vectors, MB of the saved model, MB that training held at most.

The figures of other systems come from [benchmarks](../benchmarks/README.md), by two threads. They got the vectors of the
corpus or, of texts, TF-IDF of single words, which their seconds do not hold; `plt` with `ngrams=1`, `min_chars=2` learns
from the same. omikuji and LibMultiLabel take no seed: their figures differ by some tenths from run to run.
"""
MADE_HERE = """ Made of the documentation of what is installed (here Python 3.11 and
`constraints.txt`), so elsewhere it is another one."""


@dataclass(frozen=True)
class Corpus:
    """What was learned from and measured on."""

    path: Path
    title: str
    kind: str  # texts or vectors
    size: Figures  # train, test, labels


@dataclass(frozen=True)
class Peer:
    """What another system gave, written by ``benchmarks/record_peers.py``."""

    path: Path
    system: str
    version: str
    corpus: str
    features: str
    command: str
    expected: Figures
    cost: Figures = field(default_factory=dict)


Result = Recipe | Peer


def recipes() -> list[Recipe]:
    """By method, in the order of the registry; one with default settings before others."""
    found = [read_recipe(path) for path in sorted(RECIPES.glob("*.toml"))]
    order = list(METHODS)
    return sorted(found, key=lambda one: (order.index(one.method), one.contestant.what))


def peers() -> list[Peer]:
    """By name."""
    return sorted((read_as(Peer, path) for path in RECIPES.glob("peers/*.toml")), key=lambda one: one.system.lower())


def corpora() -> list[Corpus]:
    """Those of vectors, then those of texts; the fewer labels the sooner; the built-in one last."""
    found = [read_as(Corpus, path) for path in RECIPES.glob("corpora/*.toml")]
    return sorted(found, key=lambda one: (one.path.stem == "pydoc", one.kind == "texts", one.size["labels"]))


def corpus_of(result: Result) -> str:
    """The name of its corpus."""
    return result.corpus.removeprefix(BUILTIN)


def titled(result: Result, method: str) -> str:
    """What it is; ``method`` is how that of a recipe is shown."""
    if isinstance(result, Peer):
        return f"{result.system} ({result.version})"
    preset = [f"preset `{result.preset}`"] if result.preset else []
    return ", ".join([method, *preset, *(f"`{name}={value}`" for name, value in result.settings.items())])


def short_table(results: Sequence[Result], columns: Sequence[Corpus]) -> str:
    """One row for each method and peer, one column for each corpus: P@1 / PSP@5."""
    rows: dict[str, dict[str, Result]] = {}
    for one in results:
        method = "" if isinstance(one, Peer) else f"[`{one.method}`](docs/methods/{one.method}.md)"
        rows.setdefault(titled(one, method), {})[corpus_of(one)] = one
    best = {corpus.path.stem: best_of(row.get(corpus.path.stem) for row in rows.values()) for corpus in columns}

    def cell(result: Result | None) -> str:
        if result is None:
            return ""
        return " / ".join(shown(result, name, best[corpus_of(result)], 1) for name in IN_SHORT)

    names = {corpus.path.stem: f"{corpus.title.split(',')[0]}, {corpus.size['labels']:,.0f} labels" for corpus in columns}
    lines = [[title, *(cell(row.get(name)) for name in names)] for title, row in rows.items()]
    return table(["P@1 / PSP@5", *names.values()], [line for line in lines if any(line[1:])])


def best_of(results: Iterable[Result | None]) -> Figures:
    """The largest of each figure."""
    best: Figures = {}
    for one in results:
        for name, value in (one.expected if one else {}).items():
            best[name] = max(value, best.get(name, value))
    return best


def shown(result: Result, name: str, best: Figures, decimals: int) -> str:
    """A figure, bold if none that is shown is better."""
    if name not in result.expected:
        return ""
    value = f"{result.expected[name]:.{decimals}f}"
    return f"**{value}**" if value == f"{best[name]:.{decimals}f}" else value


def full_table(results: Sequence[Result]) -> str:
    """All figures on one corpus."""
    best, rows = best_of(results), []
    for one in results:
        link = f"../recipes/{one.path.relative_to(RECIPES)}"
        title = f"[{titled(one, '')}]({link})" if isinstance(one, Peer) else titled(one, f"[`{one.method}`]({link})")
        costs = [digits(one.cost[name]) if name in one.cost else "" for name in COSTS]
        rows.append([title, *(shown(one, name, best, 2) for name in METRICS), *costs])
    return table(["", *METRICS, *COSTS], rows)


def rendered() -> dict[Path, str]:
    """The files that hold tables, as they should be."""
    results: list[Result] = [*recipes(), *peers()]
    columns = corpora()
    real = [corpus for corpus in columns if corpus.path.stem != "pydoc"]
    parts = [INTRODUCTION]
    for corpus in columns:
        train, test, labels = (f"{corpus.size[name]:,.0f}" for name in ("train", "test", "labels"))
        what = f"{corpus.kind.capitalize()}: {train} to learn from, {test} to measure on; {labels} labels."
        here = [one for one in results if corpus_of(one) == corpus.path.stem]
        parts.append(f"## {corpus.title}\n\n{what if corpus in real else what + MADE_HERE}\n\n{full_table(here)}\n")
    block = re.compile(re.escape(START) + ".*?" + re.escape(END), re.DOTALL)
    readme, n_blocks = block.subn(lambda _: f"{START}\n{short_table(results, real)}\n\n{END}", README.read_text("utf-8"))
    if n_blocks != 1:
        raise SystemExit(f"{README} must have one place between {START!r} and {END!r}")
    return {README: readme, PAGE: "\n".join(parts)}


if __name__ == "__main__":
    for path, text in rendered().items():
        with writing(path) as stream:
            stream.write(text.encode())
