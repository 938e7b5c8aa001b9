"""Work that is divided into shards gives the same result, wherever and however often they run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from shard_functions import add_up, constant, die, fail

import longtail
from longtail import Dataset, Labels, Tagger
from longtail.errors import DataError, LongtailError, MissingExtra, SettingError, WriteError
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import NodeWeights
from longtail.linear.tree_training import order_by_subtree, pack_weights, unpack_weights
from longtail.progress import Display, Progress, Stage
from longtail.sharding.cluster import Cluster, divide_work
from longtail.sharding.tasks import Task, run_shard, write_task

NUMBERS = np.arange(10)


class Inline:
    """An engine that runs everything at once in this process, and can stop after a number of shards."""

    n_workers, dashboard, lost = 2, "", WriteError

    def __init__(self, limit: int = 10**6) -> None:
        self.limit = limit

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.limit == 0:
            raise KeyboardInterrupt
        self.limit -= 1
        future.set_result(json.loads(json.dumps(function(*json.loads(json.dumps(arguments))))))
        return future

    def close(self) -> None:
        pass


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    engine = Inline()
    monkeypatch.setattr("longtail.sharding.cluster.open_engine", lambda *arguments: engine)
    return engine


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two processes, which import the functions of this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        with longtail.cluster("local:2", folder=tmp_path_factory.mktemp("shards")) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def wide() -> Dataset:
    """Vectors with so many labels that nodes have several blocks of children."""
    random = np.random.default_rng(0)
    Y = sp.csr_array(sp.random(400, 300, 0.01, random_state=random, data_rvs=np.ones).astype(np.float32))
    X = Y @ random.random((300, 40)).astype(np.float32) * (random.random((400, 40)) < 0.5) + 0.01
    return Dataset(Y, Labels.from_count(300), X=sp.csr_array(X.astype(np.float32)))


def hash_files(tagger: Tagger, folder: Path) -> dict[str, str]:
    tagger.save(folder)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def add_numbers(cluster: Cluster, function: Any = add_up, **settings: Any) -> float:
    """The sum of 0 to 9 by shards."""
    inputs, work = {"numbers": {"values": NUMBERS}}, np.ones(10, np.int64)
    return sum(shard.result["sum"][0] for shard in cluster.run(function, inputs, {"factor": 1, **settings}, work, Stage()))


# The same model

METHODS = {
    "ovr": "ovr+C=1",
    "trees with wide nodes": "plt+C=1+fanout=100+n_trees=2",
    "a matcher, level by level": "plt:xr-linear+fanout=8+max_leaf=8",
    "children with probability 1": "hierarchicalxc+C=1+fanout=100",
    "C is chosen": "plt+n_trees=1",
    "members of a blend": 'blend+members="ovr+C=1, popularity"',
}


@pytest.mark.parametrize("spec", METHODS.values(), ids=METHODS)
def test_the_saved_model_is_the_same_for_any_number_of_shards(
    spec: str, wide: Dataset, inline: Inline, tmp_path: Path
) -> None:
    expected = hash_files(Tagger(spec, threads=1).fit(wide), tmp_path / "plain")
    for shards in (1, 2, 7):
        with longtail.cluster("inline", shards=shards, folder=tmp_path / "shards") as cluster:
            tagger = Tagger(spec, threads=1).fit(wide, cluster=cluster)
            assert hash_files(tagger, tmp_path / str(shards)) == expected
            assert cluster.n_computed >= min(shards, 2) and tagger.model.cluster is None


@pytest.mark.parametrize("spec", ["ovr+C=1", "plt+C=1+fanout=100"])
def test_it_is_the_same_from_other_processes(spec: str, wide: Dataset, local: Cluster, tmp_path: Path) -> None:
    expected = hash_files(Tagger(spec, threads=1).fit(wide), tmp_path / "plain")
    local.shards = 3
    assert hash_files(Tagger(spec, threads=1).fit(wide, cluster=local), tmp_path / "cluster") == expected


def test_it_is_the_same_from_prepared_data(local: Cluster, tmp_path: Path) -> None:
    """Workers read the vectors of the texts where they are: they are not copied."""
    texts = [f"word{i % 7} word{i % 11} word{i % 13}" for i in range(200)]
    data = Dataset.from_texts(texts, [[f"label {i % 7}"] for i in range(200)])
    spec = "ovr+C=1+calibrate=false+ngrams=1+min_df=1+subwords=0+train_on_names=false"
    longtail.prepare(data, tmp_path / "data", method=spec, memory=0.4)
    before = set(local.folder.iterdir()) if local.folder else set()
    local.shards, n_computed = 3, local.n_computed
    tagger = Tagger(spec, threads=1).fit(tmp_path / "data", cluster=local)
    expected = hash_files(Tagger(spec, threads=1).fit(tmp_path / "data"), tmp_path / "plain")
    assert hash_files(tagger, tmp_path / "cluster") == expected and local.n_computed > n_computed
    assert local.folder is not None
    (task,) = (path for path in set(local.folder.iterdir()) - before if path.name.startswith("task-"))
    folders = {name: entry["folder"] for name, entry in json.loads(task.read_bytes())["inputs"].items()}
    assert Path(folders["X"]) in set((tmp_path / "data" / "features").glob("*/vectors"))
    assert Path(folders["Y"]).parent == Path()


def test_it_is_the_same_from_dask(wide: Dataset, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    expected = hash_files(Tagger("plt+C=1", threads=1).fit(wide), tmp_path / "plain")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options) as workers,
        longtail.cluster(f"dask:{workers.scheduler_address}", shards=3, folder=tmp_path / "shards") as cluster,
    ):
        assert cluster.engine.n_workers == 2
        assert bool(cluster.engine.dashboard) == (find_spec("bokeh") is not None)  # no link to a page that says so
        assert hash_files(Tagger("plt+C=1", threads=1).fit(wide, cluster=cluster), tmp_path / "dask") == expected
        assert cluster.n_computed > 3


class KillOnce(Progress, Stage):
    """Kills a process when the first shard is done."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Stage]:
        yield self

    def advance(self, steps: int = 1, note: str = "") -> None:
        if self.pid and "shards" in note:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = 0


def test_it_is_the_same_from_dask_when_a_worker_is_killed(wide: Dataset, tmp_path: Path) -> None:
    """Real processes: the worker is killed while it computes a shard, and Dask replaces it."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    spec = "plt+C=1+fanout=100+n_trees=1+calibrate=false"
    expected = hash_files(Tagger(spec, threads=1).fit(wide), tmp_path / "plain")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "silence_logs": 50}
    with (
        distributed.LocalCluster(**options) as workers,
        longtail.cluster(f"dask:{workers.scheduler_address}", shards=6, folder=tmp_path / "shards") as cluster,
    ):
        killer = KillOnce(workers.workers[0].pid)
        tagger = Tagger(spec, threads=1).fit(wide, cluster=cluster, progress=killer)
        assert killer.pid == 0 and cluster.n_computed > 2
        assert hash_files(tagger, tmp_path / "dask") == expected


# What is done is not repeated


def test_a_rerun_computes_what_is_missing(wide: Dataset, inline: Inline, tmp_path: Path) -> None:
    """The driver is interrupted, a shard is removed, another one is damaged."""
    expected = hash_files(Tagger("ovr+C=1", threads=1).fit(wide), tmp_path / "plain")
    folder = tmp_path / "shards"
    inline.limit = 3
    with pytest.raises(KeyboardInterrupt), longtail.cluster("inline", shards=4, folder=folder) as cluster:
        Tagger("ovr+C=1", threads=1).fit(wide, cluster=cluster)
    inline.limit = 100
    with longtail.cluster("inline", shards=4, folder=folder) as cluster:
        Tagger("ovr+C=1", threads=1).fit(wide, cluster=cluster)
        assert (cluster.n_found, cluster.n_computed) == (3, 5)  # 4 shards of the model, 4 of the one that calibrates it
    first, second = sorted(folder.glob("shard-*"))[:2]
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1] + b"!")
    for path in folder.glob("arrays-*/order.npy"):
        path.write_bytes(b"damaged")
    with longtail.cluster("inline", shards=4, folder=folder) as cluster:
        tagger = Tagger("ovr+C=1", threads=1).fit(wide, cluster=cluster)
        assert hash_files(tagger, tmp_path / "model") == expected
        assert (cluster.n_found, cluster.n_computed) == (6, 2)


def test_other_settings_are_another_task(inline: Inline, tmp_path: Path) -> None:
    with longtail.cluster("inline", shards=2, folder=tmp_path) as cluster:
        assert [add_numbers(cluster, factor=factor) for factor in (1, 2, 1)] == [45, 90, 45]
        assert (cluster.n_computed, cluster.n_found) == (4, 2)


# Faults


@pytest.mark.parametrize("deaths", [1, 2])
def test_the_shard_of_a_killed_worker_runs_again(local: Cluster, tmp_path: Path, deaths: int) -> None:
    local.shards = 3
    assert add_numbers(local, die, deaths=deaths, log=str(tmp_path / "log")) == 45
    assert (tmp_path / "log").read_text() == "x" * deaths


def test_a_shard_that_kills_its_workers_is_named(local: Cluster, tmp_path: Path) -> None:
    local.shards = 3
    with pytest.raises(LongtailError, match=r"local:2: shard 1 of 3 failed: its workers have ended \(.*SIGKILL") as error:
        add_numbers(local, die, deaths=9, log=str(tmp_path / "log"))
    assert "what is done is kept" in str(error.value) and (tmp_path / "log").read_text() == "xxx"
    assert add_numbers(local) == 45  # the engine goes on


def test_a_mistake_is_not_repeated(local: Cluster, tmp_path: Path) -> None:
    local.shards = 1
    with pytest.raises(LongtailError, match=r"shard 1 of 1 failed: .* exited with code 1"):
        add_numbers(local, fail, log=str(tmp_path / "log"))
    assert (tmp_path / "log").read_text() == "x"


def test_an_idle_worker_may_be_killed(local: Cluster) -> None:
    local.shards = 4
    assert add_numbers(local, factor=4) == 180
    assert len(local.engine.workers) == 2  # type: ignore[attr-defined]
    for worker in local.engine.workers:  # type: ignore[attr-defined]
        worker.kill()
        worker.wait()
    assert add_numbers(local, factor=3) == 135


def test_a_shard_whose_worker_hangs_runs_again(inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.sharding.cluster._MIN_PATIENCE", 0.02)
    submit, calls = inline.submit, list[int]()

    def hang(function: Any, task: str, first: int, end: int) -> Future[Any]:
        calls.append(first)
        return Future() if first == 5 and calls.count(5) == 1 else submit(function, task, first, end)

    monkeypatch.setattr(inline, "submit", hang)
    with longtail.cluster("inline", shards=4, folder=tmp_path) as cluster:
        assert add_numbers(cluster) == 45 and cluster.n_computed == 4
    assert calls == [0, 2, 5, 7, 5]


@pytest.mark.parametrize("error", [Exception("timed out during startup"), ConnectionError("no answer")])
def test_a_ray_that_does_not_start_is_an_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__spec__=True, init=init, shutdown=lambda: None))
    with pytest.raises(LongtailError, match=rf"ray:auto: no Ray cluster answers \({error}\)\. .*ray status"):
        longtail.cluster("ray:auto").__enter__()


def test_a_scheduler_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    with pytest.raises(SettingError, match=r"dask:.*none\.json: there is no such scheduler file\. .*dask scheduler"):
        longtail.cluster(f"dask:{tmp_path}/none.json").__enter__()


def test_a_dask_cluster_without_workers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr("longtail.sharding.engines._WORKER_SECONDS", 0.2)
    said = io.StringIO()
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as workers:
        address = f"dask:{workers.scheduler_address}"
        with pytest.raises(LongtailError, match=rf"{address}: the Dask scheduler has no workers\. .*dask worker"):
            Cluster(address, progress=Display(said)).__enter__()
    assert said.getvalue() == f"{address}: no workers yet; waiting up to 0.2 s\n"


@pytest.mark.parametrize("name", ["longtail", "numba"])
def test_another_version_on_a_worker_is_refused(name: str, inline: Inline, tmp_path: Path, monkeypatch: Any) -> None:
    task = write_task(tmp_path, add_up, {"numbers": {"values": NUMBERS}}, {"factor": 1})
    versions = longtail.sharding.tasks.get_versions()
    monkeypatch.setattr("longtail.sharding.tasks.get_versions", lambda: {**versions, name: "9.9"})
    kind, found, _, hint = run_shard(str(task.path), 0, 5)["error"]
    assert kind == "LongtailError" and found == f"a worker has {name} 9.9, and the driver has {name} {versions[name]}"
    assert "same versions" in hint


def test_data_that_changes_under_way_is_noticed(inline: Inline, tmp_path: Path) -> None:
    task = write_task(tmp_path, add_up, {"numbers": {"values": NUMBERS}}, {"factor": 1})
    assert "file" in run_shard(str(task.path), 0, 5)
    (path,) = tmp_path.glob("arrays-*/values.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    kind, found, where, _ = run_shard(str(task.path), 5, 10)["error"]
    assert (kind, found, where) == ("DataError", "the data has changed while shards run", str(path.parent))


def test_a_task_that_changes_or_is_not_there_is_noticed(tmp_path: Path) -> None:
    task = write_task(tmp_path, add_up, {}, {"factor": 1})
    task.path.write_bytes(task.path.read_bytes().replace(b"1", b"2"))
    assert "has changed" in run_shard(str(task.path), 0, 1)["error"][1]
    assert "a disk that all workers share" in run_shard(str(tmp_path / "task-none.json"), 0, 1)["error"][3]


@pytest.mark.parametrize("full", ["worker", "driver"])
def test_a_full_disk_names_the_file(full: str, inline: Inline, tmp_path: Path) -> None:
    """A limit on the size of files fails like a full disk: in the middle of a write."""
    before, task = resource.getrlimit(resource.RLIMIT_FSIZE), write_task(tmp_path, constant, {}, {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, before[1]))
    try:
        if full == "worker":
            kind, found, where, _ = run_shard(str(task.path), 0, 5)["error"]
            assert kind == "WriteError" and "File too large" in found and f"{tmp_path}/shard-" in where
        else:
            with pytest.raises(WriteError, match=rf"{tmp_path}/.arrays-.*cannot be written \(File too large\)"):
                write_task(tmp_path, add_up, {"numbers": {"values": NUMBERS}}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_two_drivers_do_not_share_a_folder(inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.sharding.cluster._LOCK_SECONDS", 0.1)
    with longtail.cluster("inline", folder=tmp_path) as cluster:
        with pytest.raises(WriteError, match="another process is writing to this folder"):
            longtail.cluster("inline", folder=tmp_path).__enter__()
        assert add_numbers(cluster) == 45
    with longtail.cluster("inline", folder=tmp_path) as cluster:
        assert add_numbers(cluster) == 45 and cluster.n_found == 8


def test_there_are_no_more_workers_than_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    with longtail.cluster("local:99", shards=2, folder=tmp_path) as cluster:
        assert add_numbers(cluster) == 45
        assert len(cluster.engine.workers) == 2  # type: ignore[attr-defined]


# Mistakes of users


def test_the_folder_is_removed_if_none_was_given(inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with longtail.cluster("inline") as cluster:
        add_numbers(cluster)
        assert any(tmp_path.iterdir())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["local:x", "local:0", "spark:here", "dask", "dask:", ""])
def test_an_engine_that_does_not_exist_is_an_error(address: str) -> None:
    with pytest.raises(SettingError, match=r"local:N|threads is 0"):
        longtail.cluster(address).__enter__()


@pytest.mark.parametrize(("address", "package"), [("dask:tcp://none:1", "distributed"), ("ray:auto", "ray")])
def test_a_missing_engine_says_how_to_install_it(address: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"needs {package}\. .*longtail\[{address.split(':')[0]}\]"):
        longtail.cluster(address).__enter__()


def test_a_cluster_is_used_in_a_with_block() -> None:
    with pytest.raises(LongtailError, match="the cluster is not open"):
        add_numbers(longtail.cluster("local:2"))
    with pytest.raises(SettingError, match="shards is 0"):
        longtail.cluster("local:2", shards=0)


@pytest.mark.parametrize("spec", ["popularity", 'blend+members="popularity, popularity"'])
def test_methods_that_cannot_be_divided_are_refused(spec: str, inline: Inline, wide: Dataset, tmp_path: Path) -> None:
    refused = pytest.raises(SettingError, match="popularity cannot be trained on a cluster")
    with longtail.cluster("inline", folder=tmp_path) as cluster, refused:
        Tagger(spec).fit(wide, cluster=cluster)


# Parts


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_ranges_are_consecutive_and_none_is_empty_or_much_too_large(work: list[int], n_parts: int) -> None:
    ranges = divide_work(np.array(work), n_parts)
    assert [first for first, _ in ranges] == [0, *[end for _, end in ranges[:-1]]] and ranges[-1][1] == len(work)
    assert all(first < end for first, end in ranges) and len(ranges) <= n_parts
    assert max(sum(work[first:end]) for first, end in ranges) <= sum(work) / n_parts + 2 * max(work) or n_parts == 1


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_joined_ranges_of_children_are_the_whole_node(seed: int, widths: list[int]) -> None:
    random = np.random.default_rng(seed)
    W = sp.csr_array(random.integers(0, 3, (6, sum(widths))) * (random.random((6, sum(widths))) < 0.4), dtype=np.float32)
    bias, features = random.random(sum(widths)).astype(np.float32), np.arange(10, 16, dtype=np.int32)
    ranges = [slice(end - n, end) for n, end in zip(widths, np.cumsum(widths), strict=True)]
    parts = [NodeWeights.from_matrix(features, W[:, some], bias[some]) for some in ranges]
    whole, joined = NodeWeights.from_matrix(features, W, bias), NodeWeights.join(list(unpack_weights(pack_weights(parts))))
    for name in ("features", "row_start", "children", "values", "bias"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_subtrees_are_consecutive() -> None:
    tree = LabelTree(np.array([3, 2, 0, 2, 0, 1, 0, 0, 0]), np.array([-1, -1, 9, -1, 4, -1, 2, 3, 5]))
    inner = np.flatnonzero(tree.n_children)
    assert order_by_subtree(tree, inner).tolist() == [0, 1, 5, 3]


def test_shards_of_a_task_are_found_by_their_hashes(tmp_path: Path) -> None:
    task = write_task(tmp_path, add_up, {}, {})
    path = task.write_shard(3, 5, {"sum": NUMBERS})
    assert task.find_done(3, 5) == path and task.find_done(0, 3) is None
    assert Task(tmp_path / "task-0123.json").find_done(3, 5) is None
    with pytest.raises(DataError, match="damaged"):
        longtail.sharding.tasks.read_shard(path.rename(path.with_name("shard-a-3-5-0.safetensors")))
