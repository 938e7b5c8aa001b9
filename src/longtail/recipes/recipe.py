"""Recipes: a method with its settings, a corpus, and the figures that it is expected to give there, as a TOML file.

To reproduce a recipe is a comparison (``compare``) of one: it trains in a process of its own and is measured once on test.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from longtail.compare.contestants import Contestant
from longtail.compare.results import comparison
from longtail.compare.runs import Task, fingerprint, run_one
from longtail.data.dataset import Dataset
from longtail.data.read import BUILTIN, read
from longtail.data.split import parted
from longtail.data.write import write_all
from longtail.errors import DataError, LongtailError, SettingError, suggest
from longtail.files import reading, writing
from longtail.progress import SILENT, Progress

FOLDER, ENDING = "recipes", ".toml"
METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
COSTS = ("train CPU-s", "model MB", "peak MB")
CORPORA, DEFAULT_CORPORA = "LONGTAIL_DATA", "../shared/data"
TEST_SHARE = 0.2  # of a built-in corpus, split with seed 0

# The type of a field -> what TOML must give, and how to say so.
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text in quotes"),
    "str | None": ((str,), "a text in quotes"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "dict[str, Any]": ((dict,), "a table"),
    "Figures": ((dict,), "a table of numbers"),
}
Figures = dict[str, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Recipe:
    """What its file says."""

    path: Path
    method: str
    corpus: str  # a folder below LONGTAIL_DATA, or builtin:…
    tolerance: float  # points by which a figure may differ
    preset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    expected: Figures = field(default_factory=dict)  # of METRICS, some or all
    cost: Figures = field(default_factory=dict)  # of COSTS; told, not checked

    @property
    def name(self) -> str:
        """By which it can be called."""
        return self.path.name.removesuffix(ENDING)

    @property
    def contestant(self) -> Contestant:
        """Who takes part."""
        return Contestant(self.name, self.method, self.preset, self.settings)


@dataclass(frozen=True)
class Found:
    """What came out."""

    values: Figures  # of METRICS
    cost: Figures  # of COSTS


def recipe_path(word: str) -> Path:
    """A file, or the name of a recipe in the folder ``recipes``."""
    return Path(word) if word.endswith(ENDING) else Path(FOLDER) / f"{word}{ENDING}"


def read_recipe(path: Path) -> Recipe:
    """Read and check: an error if there is no such method, preset or setting."""
    recipe = read_as(Recipe, path)
    for name, known in (("expected", METRICS), ("cost", COSTS)):
        for key in getattr(recipe, name):
            if key not in known:
                raise DataError(f'[{name}] has "{key}"', where=str(path), hint=suggest(key, known))
    if recipe.tolerance < 0:
        raise DataError(f"tolerance is {recipe.tolerance}", where=str(path), hint="It must be 0 or more")
    if own := {"seed", "threads"} & recipe.settings.keys():
        name = min(own)
        hint = "Write it above the tables" if name == "seed" else "Leave it out, and call with --threads"
        raise DataError(f'[settings] has "{name}"', where=str(path), hint=hint)
    try:
        recipe.contestant.tagger(recipe.seed, None)
    except SettingError as error:
        raise SettingError(error.found, where=str(path), hint=error.hint) from error
    return recipe


def read_as(kind: type[T], path: Path) -> T:
    """A TOML file as a data class whose first field is its path: each key is a field of the right type, none is missing."""
    with reading(path) as stream:
        try:
            found = tomllib.loads(stream.read().decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            place = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
            where = f"{path}:{place[1]}:{place[2]}" if place else str(path)
            text = str(error).replace(place[0] if place else "", "")
            raise DataError(f"this is not TOML ({text})", where=where, hint="Mend it, or look at another recipe") from error
    known = {each.name: each for each in fields(kind)[1:]}  # type: ignore[arg-type]
    for name, value in found.items():
        if name not in known:
            raise DataError(f'"{name}" is not known here', where=str(path), hint=suggest(name, known))
        check_kind(name, value, str(known[name].type), path)
        for key, number in value.items() if known[name].type == "Figures" else ():
            check_kind(f'[{name}] "{key}"', number, "float", path)
    for name, each in known.items():
        if name not in found and each.default is MISSING and each.default_factory is MISSING:
            raise DataError(f'there is no "{name}"', where=str(path), hint=f"Give it: {KINDS[str(each.type)][1]}")
    return kind(path, **found)  # type: ignore[call-arg]


def check_kind(name: str, value: Any, kind: str, path: Path) -> None:
    """Refuse a value that is not of its kind; true and false are no numbers."""
    types, wanted = KINDS[kind]
    if not isinstance(value, types) or isinstance(value, bool):
        raise DataError(f"{name} is {value!r}", where=str(path), hint=f"It must be {wanted}")


def corpus_files(name: str, where: str) -> list[Path]:
    """The training and the test file of a corpus in the folder that LONGTAIL_DATA names."""
    folder = Path(os.environ.get(CORPORA, DEFAULT_CORPORA)) / name
    found = [sorted(folder.glob(f"{side}.*")) for side in ("train", "test")]
    if not all(found):
        side = "train" if not found[0] else "test"
        hint = f"Set {CORPORA} to the folder that holds the corpora, each in a folder of its own"
        raise DataError(f'the corpus "{name}" is not here: there is no {folder / side}.*', where=where, hint=hint)
    return [files[0] for files in found]


def parts_of(recipe: Recipe, folder: Path) -> tuple[Dataset, Dataset]:
    """What to learn from and what to measure on; the parts of a built-in corpus are written to a folder first."""
    if recipe.corpus.startswith(BUILTIN):
        train, test = write_all(parted(read(recipe.corpus), TEST_SHARE, seed=0), folder)
    else:
        train, test = corpus_files(recipe.corpus, str(recipe.path))
    return read(train), read(test)


def reproduce(recipe: Recipe, *, threads: int | None = None, progress: Progress = SILENT) -> Found:
    """Train as the recipe says, and measure once on test."""
    with tempfile.TemporaryDirectory() as folder:
        train, test = parts_of(recipe, Path(folder))
        task = Task(train, test, None, recipe.seed, threads)
        prints = {"train": fingerprint(train), "test": fingerprint(test)}
        run = run_one(task, recipe.contestant, prints, Path(folder), recipe.name, progress)
        if run.failure:
            raise LongtailError(run.failure, where=str(recipe.path))
        (entry,) = comparison(task, [run]).entries
    names = {"training CPU": "train CPU-s", "size": "model MB", "training memory": "peak MB"}
    cost = {told: entry.costs[name] for name, told in names.items() if name in entry.costs}
    return Found({name: entry.values[name] for name in METRICS}, cost)


def difference(expected: float, found: float) -> float:
    """Found less expected, both with the two decimals in which they are told.

    >>> difference(63.86, 63.9649)
    0.1
    """
    return round(round(found, 2) - round(expected, 2), 2)


def holds(recipe: Recipe, found: Found) -> dict[str, bool]:
    """For each figure that is expected: whether it differs by no more than the tolerance."""
    return {name: abs(difference(value, found.values[name])) <= recipe.tolerance for name, value in recipe.expected.items()}


def record(recipe: Recipe, found: Found) -> None:
    """Write what was found into the file as what is expected; all else in it stays as it is."""
    text = f"{without_figures(recipe).rstrip()}\n\n{figures_text(found.values, found.cost)}"
    with writing(recipe.path) as stream:
        stream.write(text.encode())


def without_figures(recipe: Recipe) -> str:
    """The text of its file but for the tables of figures; an error if they are not written as tables."""
    text = recipe.path.read_text("utf-8")
    others = re.sub(r"^\[(expected|cost)\](.*\n?)((?!\[).*\n?)*", "", text, flags=re.MULTILINE)
    if left := {"expected", "cost"} & tomllib.loads(others).keys():
        name = min(left)
        hint = f"Write it as a table, below a line [{name}], or leave it out"
        raise DataError(f'nothing can be recorded: "{name}" is not a table of its own', where=str(recipe.path), hint=hint)
    return others


def figures_text(expected: Mapping[str, float], cost: Mapping[str, float]) -> str:
    """The two tables of figures, in TOML."""
    lines = ["[expected]", *(f'"{name}" = {value:.2f}' for name, value in expected.items())]
    lines += ["", "[cost]", *(f'"{name}" = {float(f"{value:.3g}"):g}' for name, value in cost.items())]
    return "\n".join(lines) + "\n"
