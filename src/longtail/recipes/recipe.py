"""A recipe: a method with its settings, a corpus, and the metrics expected on its test data, as a TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from longtail.errors import DataError, SettingError, suggest
from longtail.files import open_atomic
from longtail.recipes.files import FOLDER, SUFFIX, Figures, read_toml
from longtail.spec import MethodSpec

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
CALIBRATION_ERROR = "ECE@5"  # of methods whose scores are probabilities
COSTS = ("train CPU-s", "model MB", "peak MB")
N_SEEDS = "seeds"  # the key of [spread] that says how many seeds there were
_MEASURED = (*METRICS, CALIBRATION_ERROR)
_TABLES = {"expected": _MEASURED, "cost": COSTS, "spread": (N_SEEDS, *_MEASURED)}


@dataclass(frozen=True)
class Recipe:
    """The content of a recipe file."""

    path: Path
    spec: str
    corpus: str  # a folder below LONGTAIL_DATA, or builtin:…
    tolerance: float  # points by which a metric may differ
    seed: int = 0
    expected: Figures = field(default_factory=dict)  # some or all of METRICS, and the calibration error
    cost: Figures = field(default_factory=dict)  # some or all of COSTS; shown, not checked
    spread: Figures = field(default_factory=dict)  # the largest minus the smallest value over some seeds, and their number

    @property
    def name(self) -> str:
        """The file name without its suffix."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def method_spec(self) -> MethodSpec:
        """The parsed spec."""
        return MethodSpec.parse(self.spec)


def find_recipe(word: str) -> Path:
    """The path of a recipe file, or of a recipe that comes with the package, by its name."""
    if word.endswith(SUFFIX):
        return Path(word)
    path = FOLDER / f"{word}{SUFFIX}"
    if not path.is_file():
        raise DataError(f'there is no recipe "{word}"', hint=suggest(word, [one.stem for one in recipe_paths()]))
    return path


def recipe_paths() -> list[Path]:
    """The recipes that come with the package."""
    return sorted(FOLDER.glob(f"*{SUFFIX}"))


def read_recipe(path: Path) -> Recipe:
    """Read a recipe and check it: the method, preset and settings must exist."""
    recipe = read_toml(Recipe, path)
    for name, known in _TABLES.items():
        for key in getattr(recipe, name):
            if key not in known:
                raise DataError(f'[{name}] has "{key}"', where=str(path), hint=suggest(key, known))
    if recipe.tolerance < 0:
        raise DataError(f"tolerance is {recipe.tolerance}", where=str(path), hint="It must be a non-negative number")
    try:
        recipe.method_spec.build(recipe.seed)
    except SettingError as error:
        raise SettingError(error.found, where=str(path), hint=error.hint) from error
    return recipe


def record(
    recipe: Recipe, values: Mapping[str, float], cost: Mapping[str, float], spread: Mapping[str, float] | None = None
) -> None:
    """Write measured values into the recipe file as the expected ones; the rest of the file stays as it is."""
    text = f"{remove_figures(recipe).rstrip()}\n\n{render_figures(values, cost, spread or {})}"
    with open_atomic(recipe.path) as stream:
        stream.write(text.encode())


def remove_figures(recipe: Recipe) -> str:
    """The text of the file without the tables of figures; an error if these are not written as tables."""
    text = recipe.path.read_text("utf-8")
    others = re.sub(rf"^\[({'|'.join(_TABLES)})\](.*\n?)((?!\[).*\n?)*", "", text, flags=re.MULTILINE)
    if left := _TABLES.keys() & tomllib.loads(others).keys():
        name = min(left)
        hint = f"Write it as a table below a line [{name}], or leave it out"
        raise DataError(f'cannot record: "{name}" is not a separate table', where=str(recipe.path), hint=hint)
    return others


def render_figures(expected: Mapping[str, float], cost: Mapping[str, float], spread: Mapping[str, float]) -> str:
    """The tables [expected], [cost] and, if there is one, [spread] in TOML."""
    lines = ["[expected]", *(f'"{name}" = {value:.2f}' for name, value in expected.items())]
    lines += ["", "[cost]", *(f'"{name}" = {float(f"{value:.3g}"):g}' for name, value in cost.items())]
    if spread:
        lines += ["", "[spread]", *(f'"{name}" = {round(value, 2):g}' for name, value in spread.items())]
    return "\n".join(lines) + "\n"
