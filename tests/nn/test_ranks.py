"""Networks trained by several processes: as by one; after a kill, the same bits; and errors that say what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rank_functions import SIZES, fail, fit_methods, fit_net, fit_nets

from longtail import Dataset, Tagger
from longtail.cli.main import main
from longtail.errors import LongtailError, SettingError
from longtail.nn import ranks
from longtail.progress import SILENT
from longtail.registry import METHODS, model_class
from longtail.sharding import processes
from longtail.sharding.objects import read_object, write_object
from longtail.sharding.processes import Processes

HERE = Path(__file__).parent
DROPOUT, NO_KILL = 0.5, (-1, 0)
NETWORKS: dict[str, dict[str, Any]] = {  # without dropout, so that one process and two compute the same
    "aplc": {"dropout": 0.0, "sparse_part": True},
    "glas": {"keep_prob": 1.0, "negatives": "all", "reg_weight": 0.0},
    "lightattention": {"dropout": 0.0, "embedding_dropout": 0.0},
    "neuralxc": {"keep_prob": 1.0},
    "secseq": {"keep_prob": 1.0, "dropout": 0.0, "n_trees": 2},
}


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Ranks import the functions of this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        yield


def same(first: Any, second: Any) -> bool:
    """Whether weights have the same bits."""
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Networks that two ranks have trained, by name; and the folder with the hashes of the weights before each step."""
    folder, clipped = tmp_path_factory.mktemp("together"), {"clip": 0.1, "accumulate": 2}
    runs = [
        ("sgd", "sgd", 0.0, NO_KILL, {}),
        ("adam", "adam", 0.0, NO_KILL, {}),
        ("clipped", "adam", 0.0, NO_KILL, clipped),
        ("collective", "adam", 0.0, NO_KILL, clipped),
        ("dropout", "adam", DROPOUT, NO_KILL, {}),
        ("divided", "adam", 0.0, NO_KILL, clipped),
        ("divided-dropout", "adam", DROPOUT, NO_KILL, {}),
    ]
    with Processes(2, folder / "run") as two:
        done, collected = two.run(fit_nets, (folder, runs), "cpu", SILENT)
    summed = {"gradient": [3.0], "numbers": [1.0, 1.0]}
    assert collected == {"labels": [0, 0, 1], "count": 10.0, "agreed": 0.1, **summed}
    return folder, {run[0]: result for run, result in zip(runs, done, strict=True)}


@pytest.mark.parametrize("name", ["sgd", "adam", "clipped", "collective", "divided"])
def test_two_ranks_train_as_one_process(name: str, together: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Also with a batch of one row, and with a layer that only one of the ranks uses."""
    plan = {} if name in ("sgd", "adam") else {"clip": 0.1, "accumulate": 2}
    weights, history = fit_net(tmp_path, name, "sgd" if name == "sgd" else "adam", 0.0, NO_KILL, plan, SILENT)
    found, rows = together[1][name]
    for part, weight in weights.items():
        np.testing.assert_allclose(found[part], weight, rtol=1e-3, atol=1e-5)
    for row, expected in zip(rows, history, strict=True):
        assert row["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        assert row["metric"] == pytest.approx(expected["metric"], rel=1e-4)


def test_ranks_have_the_same_weights_in_every_step(together: tuple[Path, dict[str, Any]]) -> None:
    folder, done = together
    for name in (name for name in done if not name.startswith("divided")):
        first, second = ((folder / f"{name}-{rank}").read_text().splitlines() for rank in (0, 1))
        assert first == second
        assert len(set(first)) >= len(first) / 2  # they change with each update


def test_shared_memory_and_collectives_sum_alike(together: tuple[Path, dict[str, Any]]) -> None:
    assert same(together[1]["clipped"][0], together[1]["collective"][0])


def test_ranks_draw_different_dropout(together: tuple[Path, dict[str, Any]]) -> None:
    with_dropout, without = together[1]["dropout"][1], together[1]["adam"][1]
    assert with_dropout[0]["loss"] > 1.05 * without[0]["loss"]


@pytest.mark.parametrize("kind", ["", "divided-"])
def test_after_a_kill_all_ranks_continue_to_the_same_bits(
    kind: str, together: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The second rank kills itself in the third epoch; the ranks that replace both do the last two epochs only."""
    plan, n_before = {"checkpoint": str(tmp_path / "checkpoint")}, 2 * len(SIZES) + 2
    with Processes(2, tmp_path / "run") as two:
        arguments = tmp_path, f"{kind}killed", "adam", DROPOUT, (1, n_before + 1), plan
        weights, history = two.run(fit_net, arguments, "cpu", SILENT)
        assert two.n_restarts == 1
    expected, rows = together[1][f"{kind}dropout"]
    assert same(weights, expected)
    assert [row["loss"] for row in history] == [row["loss"] for row in rows]
    log = (tmp_path / f"{kind}killed-1").read_text().splitlines()
    assert len(log) == n_before + 2 * len(SIZES)
    if kind:
        check_checkpoints(tmp_path)


def check_checkpoints(folder: Path) -> None:
    """Each rank has written one, after the last epoch, with its rows and their state only."""
    first, second = (torch.load(path, weights_only=True) for path in sorted(folder.glob("checkpoint*")))
    for state, start in ((first, 0), (second, 1)):
        for number, (name, n_rows) in enumerate({"words": 30, "bags": 50}.items()):
            held = len(range(start, n_rows, 2))
            of_row = state["optimizer"]["optimizers"][0]["state"][number]
            tables = [state["net"], state["average"]["weights"], state["run"]["best_weights"]]
            assert {len(table[f"{name}.weight"]) for table in tables} == {held}
            assert {len(values) for values in of_row.values()} == {held}
    assert first["run"]["epoch"] == second["run"]["epoch"] == 4


def test_a_rerun_continues_when_the_supervisor_was_killed(together: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    arguments = f"(Path({str(tmp_path)!r}), 'rerun', 'adam', {DROPOUT}, {NO_KILL}, {{'checkpoint': {str(checkpoint)!r}}})"
    program = f"""if True:
        from pathlib import Path
        from rank_functions import fit_net
        from longtail.progress import SILENT
        from longtail.sharding.processes import Processes
        with Processes(2, {str(tmp_path / "run")!r}) as two:
            two.run(fit_net, {arguments}, "cpu", SILENT)
    """
    with subprocess.Popen([sys.executable, "-c", program]) as supervisor:
        while not checkpoint.exists():
            assert supervisor.poll() is None
            time.sleep(0.01)
        children = find_children(supervisor.pid)
        supervisor.kill()
    assert len(children) == 2
    end = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < end
        time.sleep(0.01)
    with Processes(2, tmp_path / "run") as two:
        plan = {"checkpoint": str(checkpoint)}
        weights, _ = two.run(fit_net, (tmp_path, "again", "adam", DROPOUT, NO_KILL, plan), "cpu", SILENT)
    assert same(weights, together[1]["dropout"][0])
    log = tmp_path / "again-0"
    assert not log.exists() or len(log.read_text().splitlines()) <= 3 * len(SIZES)


def find_children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_every_network_is_trained_by_two_ranks_as_by_one_process(train: Dataset, tmp_path: Path) -> None:
    """All parts of their losses are means over the batch, or are computed for all of it. Adam moves weights by the sign of
    gradients that are almost 0, so some weights differ. With labels drawn at random, ranks draw others than one process."""
    X = Tagger("ovr+ngrams=1").pipeline.fit_features(train.texts, train.Y)
    samples = {name: train.texts if name == "lightattention" else X for name in NETWORKS}
    common = {"epochs": 2, "average": "none", "threads": 1, "collapse_epochs": 0}
    runs = [(name, {**common, **settings}, samples[name]) for name, settings in NETWORKS.items()]
    runs.append(("lightattention", {**runs[2][1], "negatives": "dynamic", "max_leaf": 2}, train.texts))
    runs.append(("aplc", {**runs[0][1], "normalise": "global"}, X))
    runs.append(("glas", {**runs[1][1], "negatives": "batch", "reg_weight": 1.0}, X))
    with Processes(2, tmp_path) as two:
        found = two.run(fit_methods, (runs, train.Y), "cpu", SILENT)
    for run, (state, losses), (expected, alone) in zip(runs, found, fit_methods(runs, train.Y, SILENT), strict=True):
        is_drawn = run[1].get("negatives") == "batch"
        assert losses[0] == pytest.approx(alone[0], rel=0.05) if is_drawn else losses == pytest.approx(alone, rel=1e-3)
        assert state.keys() == expected.keys()
        for part, array in expected.items():
            if array.dtype.kind == "f" and not is_drawn:
                difference = np.linalg.norm(state[part].astype("f4") - array.astype("f4"))
                assert difference <= 0.02 * np.linalg.norm(array.astype("f4")), (run[:2], part)


@pytest.mark.parametrize("spec", [*NETWORKS, 'blend+members="plt, aplc"+refit=false'])
def test_a_method_passes_its_network_to_the_processes(
    spec: str, train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def run(self: Processes, function: Any, arguments: Any, device: str, progress: Any) -> Any:
        calls.append(function)
        given, result = (tmp_path / f"{name}-{len(calls)}" for name in ("arguments", "result"))  # arrays stay mapped
        write_object(given, (function, arguments))
        function, arguments = read_object(given)
        write_object(result, function(*arguments, progress=progress))
        return read_object(result)

    monkeypatch.setattr(Processes, "run", run)
    settings = "" if spec.startswith("blend") else "+epochs=2"
    taggers = [Tagger(spec + settings, threads=1).fit(train, processes=n) for n in (None, 2)]
    assert len(calls) == {"secseq": 3}.get(spec, 1)
    first, second = (tagger.model.state() for tagger in taggers)
    assert same(first, second)


def test_one_process_of_the_command_trains_the_same_bytes(train: Dataset, tmp_path: Path, capsys: Any) -> None:
    data = tmp_path / "train.tsv"
    names = train.labels.names
    lines = [f"{text}\t{','.join(names[j] for j in train.Y[[i]].indices)}" for i, text in enumerate(train.texts or ())]
    data.write_text("text\tlabels\n" + "\n".join(lines) + "\n")
    for ending in ([], ["--ddp", "1"]):
        out = tmp_path / f"model{len(ending)}"
        main(["train", str(data), "--method", "aplc+epochs=2", "--threads", "1", "--out", str(out), *ending])
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("model0", "model2")]
    assert files[0] == files[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model0", "model2", "train.tsv"]


@pytest.mark.parametrize("n", [0, -1, True, 1.5])
def test_the_number_of_processes_is_a_positive_integer(n: Any, train: Dataset) -> None:
    with pytest.raises(SettingError, match=r"number of processes is .* must be a positive integer"):
        Tagger("aplc").fit(train, processes=n)


@pytest.mark.parametrize(("method", "hint"), [("plt", "--cluster local:N"), ("popularity", "Leave the number")])
def test_a_method_without_a_network_is_refused(method: str, hint: str, train: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=f"{method} trains no network.*{hint}"):
        Tagger(method).fit(train, processes=2)
    with pytest.raises(SettingError, match=f"{method} trains no network"):
        Tagger(f'blend+members="{method}, ovr"').fit(train, processes=2)


def test_secseq_trains_trees_or_networks_in_parallel(train: Dataset) -> None:
    with pytest.raises(SettingError, match="jobs is 2, and 2 processes"):
        Tagger("secseq+jobs=2").fit(train, processes=2)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("setting", "rate is -1. Use 1"),
        ("other", "rank 0 has failed: ZeroDivisionError: nothing to divide by"),
        ("signal", "training was started 1 times, and rank 0 has ended: the process was killed by SIGKILL"),
    ],
)
def test_the_error_of_a_rank_is_raised(kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MAX_RESTARTS", 0)
    with Processes(1, tmp_path / "run") as one, pytest.raises(LongtailError, match=message) as error:
        one.run(fail, (kind,), "cpu", SILENT)
    assert isinstance(error.value, SettingError) == (kind == "setting")
    assert not any(tmp_path.iterdir())  # nothing is left over


@given(n_ranks=st.integers(2, 5), n_rows=st.integers(1, 12))
def test_the_parts_of_a_batch_have_all_its_rows_with_equal_weight(n_ranks: int, n_rows: int) -> None:
    weight = np.zeros(n_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "count_ranks", lambda: n_ranks)
        for rank in range(n_ranks):
            patch.setattr(ranks, "get_rank", lambda rank=rank: rank)
            part, share = ranks.take_part(np.arange(n_rows))
            weight[part] += share / len(part)
    np.testing.assert_allclose(weight, 1 / n_rows)


def test_alone_a_process_agrees_with_itself() -> None:
    rows = np.arange(5)
    part, share = ranks.take_part(rows)
    assert part is rows
    assert share == 1
    assert ranks.agree(0.1) == 0.1
    assert ranks.gather_labels(rows) is rows
    assert (ranks.count_ranks(), ranks.get_rank()) == (1, 0)


def test_rank_functions_cover_every_network() -> None:
    """Whoever adds a network tests it here."""
    trained = {name for name in METHODS if model_class(name).trains_network} - {"blend"}
    assert trained == set(NETWORKS)
