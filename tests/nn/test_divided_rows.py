"""Tables that ranks divide: parts make up the whole, and networks learn from them what one process learns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from rank_functions import HEADS, descend, fit_methods

from longtail.nn import divided_rows
from longtail.nn.divided_rows import DividedRows, count_rows, divide_rows, find_rows, make_rows, pays_to_divide, to_own_rows
from longtail.progress import SILENT
from longtail.sharding.processes import Processes

APLC = {"dropout": 0.0, "sparse_part": False}
GLAS = {"keep_prob": 1.0, "sparse_part": False}
SAMPLED = {"keep_prob": 1.0, "negatives": "batch"}
TREE = {"dropout": 0.0, "embedding_dropout": 0.0, "sparse_part": False, "word_dim": 16, "hidden": 8, "max_leaf": 2}
RUNS: list[tuple[str, dict[str, Any]]] = [  # without anything drawn at random
    ("aplc", {**APLC, "clip": 0.5, "average": "ema"}),
    ("aplc", {**APLC, "normalise": "global", "init": "random", "bias": False, "average": "swa", "n_clusters": 3}),
    ("aplc", {**APLC, "proportions": "0.95,0.02,0.03"}),  # a tail of one label, so that one of the ranks has none
    ("glas", {**GLAS, "loss": "bce", "negatives": "all", "regulariser": "gravity"}),
    ("glas", {**GLAS, "loss": "softmax", "negatives": "all", "weight_norm": "labels"}),
    ("glas", {**SAMPLED, "loss": "softmax"}),
    ("glas", {**SAMPLED, "loss": "margin", "weight_norm": "all", "optimizer": "adagrad"}),
    ("lightattention", {**TREE, "negatives": "dynamic", "generator": "pool"}),
    ("lightattention", {**TREE, "negatives": "static", "per_label_output": True}),
]


@pytest.fixture
def samples() -> tuple[sp.csr_array, sp.csr_array]:
    """Samples with one label each: which label a sample draws is known, then. 97 are no multiple of the batch."""
    random = np.random.default_rng(0)
    X = sp.csr_array(sp.random(97, 60, 0.1, random_state=random, dtype=np.float32))
    scores = (X @ sp.csr_array(sp.random(60, 33, 0.3, random_state=random, dtype=np.float32))).toarray()
    best = scores.argmax(1)
    return X, sp.csr_array((np.ones(97, np.float32), (np.arange(97), best)), shape=(97, 33))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Two ranks, which can import the functions of this folder."""
    with pytest.MonkeyPatch.context() as patch, Processes(2, tmp_path_factory.mktemp("two")) as two:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        yield two


def test_methods_that_divide_tables_learn_as_in_one_process(
    samples: tuple[sp.csr_array, sp.csr_array], two: Processes
) -> None:
    X, Y = samples
    common = {"epochs": 3, "threads": 1, "collapse_epochs": 0, "batch": 8}
    texts = [" ".join(f"word{j}" for j in row) for row in np.split(X.indices, X.indptr[1:-1])]
    runs = [(name, {**common, **settings}, texts if name == "lightattention" else X) for name, settings in RUNS]
    found = two.run(fit_methods, (runs, Y), "cpu", SILENT)
    for run, (state, losses), (expected, alone) in zip(RUNS, found, fit_methods(runs, Y, SILENT), strict=True):
        assert losses == pytest.approx(alone, rel=1e-3), run
        assert {name: array.shape for name, array in state.items()} == {
            name: array.shape for name, array in expected.items()
        }


def test_texts_get_as_many_negatives_as_in_one_process(two: Processes) -> None:
    """A text with more positive clusters than the beam is wide widens it for the whole batch, also for other ranks."""
    n, n_labels = 24, 24
    texts = [f"word{i % 8} word{i % 6}" for i in range(n)]
    of_many = np.arange(n)[:, None] % 8 == 0  # such texts have half of the labels, others one
    numbers = np.arange(n)[:, None] + np.arange(n_labels)
    Y = sp.csr_array(np.where(of_many, numbers % 2 == 0, numbers % n_labels == 0).astype(np.float32))
    settings = {"epochs": 2, "threads": 1, "collapse_epochs": 0, "batch": 8, "negatives": "dynamic", "beam": 2}
    runs = [("lightattention", {**TREE, **settings}, texts)]
    [(_, losses)] = two.run(fit_methods, (runs, Y), "cpu", SILENT)
    [(_, alone)] = fit_methods(runs, Y, SILENT)
    assert losses == pytest.approx(alone, rel=1e-3)


def test_the_gradients_of_divided_tables_are_those_of_one_process(
    samples: tuple[sp.csr_array, sp.csr_array], two: Processes
) -> None:
    """Gradient descent shows their size, unlike Adam. The last batch has one sample, of which all ranks have a copy."""
    random = np.random.default_rng(0)
    X, Y = samples[0], sp.csr_array((random.random((97, 33)) < 0.1).astype(np.float32))
    found = two.run(descend, (X, Y, HEADS), "cpu", SILENT)
    for head, weights, expected in zip(HEADS, found, descend(X, Y, HEADS, SILENT), strict=True):
        assert weights.keys() == expected.keys()
        for name, (start, end) in expected.items():
            np.testing.assert_allclose(weights[name][0], start, rtol=1e-6)
            moved, size = weights[name][1] - start, np.abs(end - start).max()
            assert size > 0, (head, name)
            np.testing.assert_allclose(moved, end - start, rtol=1e-3, atol=1e-4 * size, err_msg=f"{head} {name}")


@pytest.fixture(params=[2, 3, 5])
def ranks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Iterator[int]]:
    """Be each of several ranks, one after the other."""
    monkeypatch.setattr(divided_rows, "count_ranks", lambda: request.param)

    def take_turns() -> Iterator[int]:
        for rank in range(request.param):
            monkeypatch.setattr(divided_rows, "get_rank", lambda rank=rank: rank)
            yield rank

    return take_turns()


def test_the_rows_of_all_ranks_are_those_of_one_process(ranks: Iterator[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divided_rows, "_ROWS_PER_BLOCK", 16)

    def make(divided: bool) -> torch.nn.Parameter:
        torch.manual_seed(0)
        return make_rows(67, 16, lambda rows: rows.normal_(), divided=divided)

    whole, held = make(divided=False), torch.zeros(67)
    assert not isinstance(whole, DividedRows)
    for _ in ranks:
        table = make(divided=True)
        assert torch.equal(table, whole[find_rows(table)])
        assert torch.equal(divide_rows(whole.detach(), divided=True), table)
        assert count_rows(table) == count_rows(whole) == 67
        numbers = to_own_rows(torch.arange(67), table)
        assert torch.equal(table[numbers[numbers >= 0]], whole[numbers >= 0])
        held += numbers >= 0
    assert (held == 1).all()


@given(n_rows=st.integers(1, 100), batch=st.integers(1, 100))
def test_one_process_divides_nothing(n_rows: int, batch: int) -> None:
    assert not pays_to_divide(n_rows, batch)


def test_tables_with_more_rows_than_a_batch_has_samples_are_divided(ranks: Iterator[int]) -> None:
    next(ranks)
    assert pays_to_divide(33, 32)
    assert not pays_to_divide(32, 32)
