"""The built-in corpus pydoc has real prose, does not contain the answers, and is the same at every build."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from longtail.data import pydoc
from longtail.data.dataset import Dataset
from longtail.errors import DataError


@pytest.fixture(scope="module")
def build() -> tuple[Dataset, set[str]]:
    """The corpus, and the modules that were imported into this process while it was built."""
    before = set(sys.modules)
    return pydoc.build_pydoc(), set(sys.modules) - before


@pytest.fixture(scope="module")
def corpus(build: tuple[Dataset, set[str]]) -> Dataset:
    return build[0]


def labels_of(data: Dataset, row: int) -> set[str]:
    return {data.labels.names[j] for j in data.Y.indices[data.Y.indptr[row] : data.Y.indptr[row + 1]]}


# The corpus as a whole


def test_is_large_enough_to_learn_from(corpus: Dataset) -> None:
    assert corpus.n_samples >= 6000
    assert corpus.n_labels >= 1000
    assert corpus.source == "builtin:pydoc"
    assert any("modules were read" in note for note in corpus.notes)


def test_every_text_has_a_label_and_every_label_two_texts(corpus: Dataset) -> None:
    assert np.diff(corpus.Y.indptr).min() >= 1
    assert corpus.Y.sum(axis=0).min() >= 2


def test_texts_are_distinct_and_of_sensible_length(corpus: Dataset) -> None:
    texts = list(corpus.texts or ())
    assert len(set(texts)) == len(texts)
    n_words = [len(text.split()) for text in texts]
    assert min(n_words) >= pydoc.MIN_WORDS
    assert max(n_words) <= pydoc.MAX_WORDS


def test_labels_are_parameter_names(corpus: Dataset) -> None:
    assert all(name.isidentifier() and not name.startswith("_") for name in corpus.labels.names)
    assert not {"self", "cls"} & set(corpus.labels.names)
    row = list(corpus.texts or ()).index("Return the maximum of an array or maximum along an axis.")
    assert {"a", "axis", "out", "keepdims"} <= labels_of(corpus, row)


def test_texts_hold_no_parameter_sections_or_examples(corpus: Dataset) -> None:
    for text in corpus.texts or ():
        assert "Parameters ---" not in text
        assert ">>> " not in text
        assert ":param " not in text


def test_two_builds_are_equal_whatever_the_hash_seed_and_the_folder(
    corpus: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('this is not the random of the standard library')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "12345")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")  # would strip the docstrings
    again = pydoc.build_pydoc()
    assert list(again.texts or ()) == list(corpus.texts or ())
    assert again.labels == corpus.labels
    assert (again.Y != corpus.Y).nnz == 0
    assert again.notes == corpus.notes
    assert capfd.readouterr() == ("", "")  # and a build prints nothing


# Side effects


def test_building_imports_nothing_into_this_process(build: tuple[Dataset, set[str]]) -> None:
    _, imported = build
    assert imported == set()


def test_what_a_module_prints_on_import_does_not_reach_the_rows(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("import os\nprint('hello')\nos.write(1, b'hello')\n")
    (tmp_path / "exits.py").write_text("raise SystemExit(3)")
    code = "from longtail.data import pydoc; pydoc.ROOTS = {'loud', 'exits', 'antigravity', 'this'}; pydoc.main()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(pydoc.__file__).parents[2]), str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == '{"read": 1, "failed": 1}\n'


@pytest.mark.parametrize(("attribute", "value"), [("TIMEOUT", 0.01), ("__name__", "longtail.data.no_such_module")])
def test_a_failed_build_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, attribute: str, value: object) -> None:
    monkeypatch.setattr(pydoc, attribute, value)
    with pytest.raises(DataError, match=r"builtin:pydoc: .*(timed out|No module named)"):
        pydoc.build_pydoc()


def test_a_python_that_cannot_be_started_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(DataError, match=r"docstrings could not be read .*Try again"):
        pydoc.build_pydoc()


# One docstring


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        ("add(x, y) -> int\n\nAdd two numbers.", "Add two numbers."),
        ("add(x, y=(1, 2),\n    z=None)\n\nAdd two numbers.", "Add two numbers."),
        ("range(x) -> range\nrange(x, y[, z]) -> range\n\nReturn numbers in turn.", "Return numbers in turn."),
        ("S.index(x, [y, [z]]) -> integer -- return first index of x.", "return first index of x."),
        ("dtype(x, y=False)\n--\n\nCreate a data type object.", "Create a data type object."),
        ("z, info = solve(x,[y])\n\nSolve an equation.", "Solve an equation."),
        ("(typ, [data]) = <instance>.get(x, y)\n\nGet a thing.", "Get a thing."),
        ("add(x, y) and its friends do sums.", "and its friends do sums."),
        ("broken(x, y", ""),
    ],
)
def test_the_call_at_the_start_is_removed(doc: str, text: str) -> None:
    assert pydoc.extract_description(doc, ["x", "y", "z"]) == text


@pytest.mark.parametrize(
    "rest",
    [
        "Parameters\n----------\nx : int",
        "Returns\n=======\nint",
        "Args:\n    x: an int",
        "The arguments are:\n    x: an int",
        "Keyword arguments:\nx -- an int",
        ":param x: an int",
        "@param x: an int",
        "  x\n    An int.",
        "x -- an int",
        "x : int",
        "`x`: an int",
        "- x - an int",
        ">>> add(1, 2)\n3",
        ".. versionadded:: 3.2",
        "Use it like this::\n\n    add(x, y)",
    ],
)
def test_prose_ends_where_parameters_or_code_start(rest: str) -> None:
    assert pydoc.extract_description(f"Add two\nnumbers.\n\n{rest}", ["x", "y"]) == "Add two numbers."


def test_parameters_mentioned_in_prose_are_kept() -> None:
    text = "Add x to y. If x is None, return y."
    assert pydoc.extract_description(text, ["x", "y"]) == text


def test_a_long_text_is_cut_at_the_end_of_a_sentence() -> None:
    text = pydoc.extract_description("Every sentence of this has seven words. " * 40, ["x"])
    assert len(text.split()) == pydoc.MAX_WORDS // 7 * 7
    assert text.endswith("words.")


def test_parameters_are_those_that_a_caller_can_pass_by_name() -> None:
    class Owner:
        def method(self, a: int, *rest: int, b: int = 0, _hidden: int = 0, **more: int) -> None: ...

        @classmethod
        def make(cls, c: int) -> None: ...

    assert pydoc.list_parameters(Owner.method) == ["a", "b"]
    assert pydoc.list_parameters(Owner.__dict__["make"].__get__(None, Owner)) == ["c"]
    assert pydoc.list_parameters(math.hypot) == []  # no readable signature
    assert pydoc.list_parameters(dict.fromkeys) == ["iterable", "value"]


def test_members_are_public_functions_and_classes_and_no_ufuncs() -> None:
    found = list(pydoc.iter_members(np))
    assert np.max in found
    assert np.ndarray in found
    assert not any(isinstance(value, np.ufunc) for value in found)
