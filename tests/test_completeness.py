"""Nothing is missing: every method has a recipe, a page, tests and results; recipes are sound; tables are up to date."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import longtail
from longtail.data.read import BUILTIN
from longtail.recipes.corpus import find_files, read_corpora
from longtail.recipes.recipe import METRICS, read_recipe, recipe_paths
from longtail.registry import METHODS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def render() -> ModuleType:
    """The script that renders the tables."""
    spec = importlib.util.spec_from_file_location("render_results", ROOT / "benchmarks" / "render_results.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["render_results"] = module  # where dataclasses look up their types
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_recipe_a_page_and_a_link_in_the_readme(method: str, render: ModuleType) -> None:
    assert any(recipe.method_spec.method == method for recipe in render.read_recipes())
    assert (ROOT / "docs" / "methods" / f"{method}.md").is_file()
    assert f"(docs/methods/{method}.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", ["test_contract.py", "test_explain.py"])
def test_every_method_is_under_contract(name: str) -> None:
    text = (ROOT / "tests" / "contract" / name).read_text()
    (of_all,) = re.findall(r"@pytest\.fixture\((?:.*, )?params=METHODS\)\ndef (\w+)", text)  # of the registry, not of a list
    users = re.findall(r"def (\w+)\((.*)\)", text)
    reached = {of_all} | {fixture for fixture, given in users if re.search(rf"\b{of_all}:", given)}
    tests = [test for test, given in users if test.startswith("test_") and reached & set(re.findall(r"(\w+):", given))]
    assert len(tests) > 3


@pytest.mark.parametrize("path", recipe_paths(), ids=lambda path: path.stem)
def test_a_recipe_is_valid_and_named_after_its_method_and_corpus(path: Path) -> None:
    recipe = read_recipe(path)  # an error if there is no such method, preset or setting
    name, corpus = recipe.name.split(".")
    assert recipe.expected.keys() >= {"P@1", "P@3", "P@5", "PSP@5"}
    assert corpus == recipe.corpus.removeprefix(BUILTIN)
    assert corpus in {one.name for one in read_corpora()}
    spec = recipe.method_spec
    assert str(spec) == recipe.spec  # as specs are written
    variant = name.removeprefix(spec.method)
    assert name.startswith(spec.method) and bool(variant) == bool(spec.preset or spec.settings)


def test_no_two_recipes_are_the_same(render: ModuleType) -> None:
    seen = [(recipe.spec, recipe.corpus, recipe.seed) for recipe in render.read_recipes()]
    assert len(set(seen)) == len(seen)


def test_every_file_of_peers_and_corpora_can_be_read(render: ModuleType) -> None:
    corpora = read_corpora()
    for corpus in corpora:
        assert corpus.kind in ("texts", "vectors") and corpus.size.keys() == {"train", "test", "labels"}
        assert corpus.origin and (corpus.name == "pydoc" or all(len(value) == 64 for value in corpus.sha256.values()))
    for peer in render.read_peers():
        assert peer.corpus in {corpus.name for corpus in corpora} and peer.path.name.endswith(f".{peer.corpus}.toml")
        assert peer.expected.keys() <= set(METRICS) and "P@1" in peer.expected
        script = peer.command.split()[1]
        assert (ROOT / script).is_file()


def test_the_tables_are_up_to_date(render: ModuleType) -> None:
    for path, text in render.render_files().items():
        assert path.read_text() == text, f"{path.name} is outdated. Run: python benchmarks/render_results.py"


def test_the_best_value_of_a_column_is_bold(render: ModuleType) -> None:
    def peer(name: str, **values: float) -> object:
        expected = {key.replace("P", "P@"): value for key, value in values.items()}
        return render.Peer(Path(f"{name}.toml"), name, "1", "a", "", "", {"PSP@5": 5.0, **expected}, {"train CPU-s": 75.0})

    one, other = peer("x", P1=10.04), peer("y", P1=9.96)
    best = render.best_values([one, other, None])
    assert render.render_cell(one, best) == "**10.0** / **5.0**, 1 min 15 s (x)"
    assert render.render_cell(other, best) == "**10.0** / **5.0**, 1 min 15 s (y)"  # 10.04 and 9.96 look the same
    assert render.render_cell(None, best) == ""


@pytest.mark.data
def test_the_corpora_have_the_recorded_sizes(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(corpora))
    for corpus in read_corpora():
        if corpus.name == "pydoc" or corpus.size["train"] > 40_000:  # differs between machines; slow to read
            continue
        train, test = (longtail.read(path) for path in find_files(corpus.name))
        assert corpus.size == {"train": train.n_samples, "test": test.n_samples, "labels": train.n_labels}
        assert corpus.kind == ("vectors" if train.texts is None else "texts")
