"""Nothing is missing: each method has its recipe, page, tests and results; recipes are sound; tables are rendered."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import longtail
from longtail.choose.choice import CANDIDATES, RULES
from longtail.data.read import BUILTIN
from longtail.recipes.recipe import METRICS, corpus_files, read_recipe
from longtail.registry import METHODS

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))


@pytest.fixture(scope="module")
def render() -> ModuleType:
    """The script that makes the tables."""
    spec = importlib.util.spec_from_file_location("render", ROOT / "recipes" / "render.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["render"] = module  # where data classes look for their types
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_recipe_a_page_and_a_row_of_results(method: str, render: ModuleType) -> None:
    assert any(recipe.method == method for recipe in render.recipes())
    assert (ROOT / "docs" / "methods" / f"{method}.md").is_file()
    readme = (ROOT / "README.md").read_text()
    block = readme[readme.index(render.START) : readme.index(render.END)]
    row = next(line for line in block.splitlines() if line.startswith(f"| [`{method}`]"))
    assert any(cell.strip() for cell in row.split("|")[2:])


@pytest.mark.parametrize("name", ["test_contract.py", "test_explain.py"])
def test_every_method_is_under_contract(name: str) -> None:
    text = (ROOT / "tests" / "contract" / name).read_text()
    (of_all,) = re.findall(r"@pytest\.fixture\((?:.*, )?params=METHODS\)\ndef (\w+)", text)  # of the registry, not of a list
    users = re.findall(r"def (\w+)\((.*)\)", text)
    reached = {of_all} | {fixture for fixture, given in users if re.search(rf"\b{of_all}:", given)}
    tests = [test for test, given in users if test.startswith("test_") and reached & set(re.findall(r"(\w+):", given))]
    assert len(tests) > 3


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_names_what_there_is_and_expects_something(path: Path) -> None:
    recipe = read_recipe(path)  # an error if there is no such method, preset or setting
    method, corpus = recipe.name.split(".")
    assert recipe.expected.keys() >= {"P@1", "P@3", "P@5", "PSP@5"}
    assert corpus == recipe.corpus.removeprefix(BUILTIN)
    assert (ROOT / "recipes" / "corpora" / f"{corpus}.toml").is_file()
    variant = method.removeprefix(recipe.method)
    assert method.startswith(recipe.method) and bool(variant) == bool(recipe.preset or recipe.settings)


def test_no_two_recipes_are_the_same(render: ModuleType) -> None:
    seen = [(recipe.contestant.what, recipe.corpus, recipe.seed) for recipe in render.recipes()]
    assert len(set(seen)) == len(seen)


def test_every_file_of_peers_and_corpora_can_be_read(render: ModuleType) -> None:
    known = {corpus.path.stem for corpus in render.corpora()}
    assert all(
        corpus.kind in ("texts", "vectors") and corpus.size.keys() == {"train", "test", "labels"}
        for corpus in render.corpora()
    )
    for peer in render.peers():
        assert peer.corpus in known and peer.path.name.endswith(f".{peer.corpus}.toml")
        assert peer.expected.keys() <= set(METRICS) and "P@1" in peer.expected
        script = peer.command.split()[1]
        assert (ROOT / script).is_file()


def test_the_tables_are_what_the_recipes_say(render: ModuleType) -> None:
    for path, text in render.rendered().items():
        assert path.read_text() == text, f"{path.name} is not up to date. Run: python recipes/render.py"


def test_methods_are_chosen_by_the_figures_of_the_recipes(render: ModuleType) -> None:
    where = {
        "Finna records and Project Gutenberg": ["finna-yso-en", "gutenberg-lcsh"],
        "parameters of Python functions": ["builtin:pydoc"],
        "package descriptions and Reuters": ["debian-debtags", "reuters21578-modapte"],
        "delicious and bibtex": ["delicious", "bibtex"],
    }
    found = {(recipe.contestant.what, recipe.corpus): recipe.expected["P@1"] for recipe in render.recipes()}
    what = {one.name: one.what for one in CANDIDATES}
    n_checked = 0
    for rule in RULES:
        for name, figures in rule.measured.items():
            for corpus, figure in zip(where[rule.where], figures, strict=True):
                if (what[name], corpus) in found:  # hierarchicalxc on two of them has its figures on its page
                    assert figure == pytest.approx(found[what[name], corpus], abs=0.0501), (name, corpus)
                    n_checked += 1
    assert n_checked > 30


def test_the_best_of_a_column_is_bold_and_what_is_missing_is_blank(render: ModuleType) -> None:
    def peer(name: str, corpus: str, **figures: float) -> object:
        expected = {key.replace("P", "P@"): value for key, value in figures.items()}
        return render.Peer(Path(f"{name}.toml"), name, "1", corpus, "", "", {"PSP@5": 5.0, **expected})

    columns = [render.Corpus(Path(f"{name}.toml"), name, "texts", {"labels": 1000}) for name in ("a", "b")]
    table = render.short_table([peer("x", "a", P1=10.04), peer("y", "a", P1=9.96), peer("y", "b", P1=3)], columns)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows[0] == ["P@1 / PSP@5", "a, 1,000 labels", "b, 1,000 labels"]
    assert rows[2] == ["x (1)", "**10.0** / **5.0**", ""]  # 10.04 and 9.96 are shown alike
    assert rows[3] == ["y (1)", "**10.0** / **5.0**", "**3.0** / **5.0**"]


@pytest.mark.data
def test_the_corpora_have_the_sizes_told(corpora: Path, render: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(corpora))
    for corpus in render.corpora():
        if corpus.path.stem == "pydoc" or corpus.size["train"] > 100_000:  # made anew; slow to read
            continue
        train, test = (longtail.read(path) for path in corpus_files(corpus.path.stem, ""))
        assert corpus.size == {"train": train.n_samples, "test": test.n_samples, "labels": train.n_labels}
        assert corpus.kind == ("vectors" if train.texts is None else "texts")
