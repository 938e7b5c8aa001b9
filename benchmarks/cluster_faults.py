"""Train on a cluster while its workers are killed, and compare the saved models with one that was trained without a cluster.

    python benchmarks/cluster_faults.py local --runs 100
    python benchmarks/cluster_faults.py dask --runs 100
    python benchmarks/cluster_faults.py ray --runs 20
    python benchmarks/cluster_faults.py driver --runs 20 --pause 4 16

Every 1 to 3 seconds (``--pause``) a random worker is killed with SIGKILL, in all runs. ``driver``: the command ``longtail
train --cluster local:2`` itself is killed after such a time, and run again, until it finishes. A shard whose workers were
killed three times (dask: four times) is an error; the run is then continued, as a user would do it, and counted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import longtail
from longtail import Dataset, Labels, LongtailError, Tagger
from longtail.data.write import write

SPEC = "plt+C=1+n_trees=2"
SHARDS = 12
MARKS = {"local": "longtail.sharding.worker", "dask": "multiprocessing.spawn", "ray": "ray::"}  # in the command of a worker
SPARED = ("resource_tracker", "ray::DashboardAgent", "ray::RuntimeEnvAgent")  # no workers; Ray's raylet ends with its agents


def make_data(n_samples: int, n_labels: int, n_features: int = 3000, length: int = 40, seed: int = 0) -> Dataset:
    """Random vectors whose features depend on their labels."""
    rng = np.random.default_rng(seed)
    labels = np.minimum(rng.zipf(1.3, (n_samples, 3)) - 1, n_labels - 1)
    features = (labels[:, rng.integers(0, 3, length)] * 31 + rng.integers(0, 60, (n_samples, length))) % n_features
    rows = np.repeat(np.arange(n_samples), length)
    X = sp.csr_array(
        (rng.random(rows.shape).astype(np.float32) + 0.1, (rows, features.ravel())), shape=(n_samples, n_features)
    )
    ones = np.ones(labels.size, np.float32)
    Y = sp.csr_array((ones, (np.repeat(np.arange(n_samples), 3), labels.ravel())), shape=(n_samples, n_labels))
    Y.data[:] = 1
    return Dataset(Y, Labels.from_count(n_labels), X=X)


def hash_model(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def find_workers(mark: str) -> list[int]:
    """Processes that this one has started, directly or not, and that have a mark in their command."""
    found, parents = [], {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):  # it has ended
            continue
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if above == os.getpid() and pid != above and mark in command and not any(each in command for each in SPARED):
            found.append(pid)
    return found


@contextmanager
def kill_workers(mark: str, pause: list[float], counts: Counter[str]) -> Iterator[None]:
    """Kill a random worker again and again while the block runs, with random pauses."""
    done = threading.Event()

    def kill() -> None:
        while not done.wait(random.uniform(*pause)):
            workers = find_workers(mark)
            if workers:
                try:
                    os.kill(random.choice(workers), signal.SIGKILL)
                    counts["kills"] += 1
                except ProcessLookupError:
                    pass

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def train(address: str, data: Dataset, folder: Path, counts: Counter[str]) -> str:
    """Train once, and continue after errors; the hash of the model."""
    while True:
        try:
            with longtail.cluster(address, shards=SHARDS, folder=folder / "shards") as cluster:
                tagger = Tagger(SPEC, threads=1).fit(data, cluster=cluster, progress=False)
                counts["shards found done"] += cluster.n_found
                break
        except LongtailError as error:
            counts["runs continued"] += 1
            print("  ", error, flush=True)
    tagger.save(folder / "model")
    return hash_model(folder / "model")


@contextmanager
def open_address(kind: str) -> Iterator[str]:
    """Start a cluster of two worker processes, if the engine is one; its address."""
    if kind != "dask":
        yield {"local": "local:2", "ray": "ray:local"}[kind]
        return
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as workers:
        yield f"dask:{workers.scheduler_address}"


def kill_drivers(folder: Path, data: Path, expected: str, n_runs: int, pause: list[float]) -> Counter[str]:
    """Kill the command, and run it again until it finishes."""
    counts: Counter[str] = Counter()
    words = [sys.executable, "-m", "longtail", "train", str(data), "--method", SPEC, "--threads", "1"]
    for number in range(n_runs):
        model = folder / str(number)
        while True:
            command = [*words, "--cluster", "local:2", "--shards", str(SHARDS), "--out", str(model)]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
                try:
                    _, messages = process.communicate(timeout=random.uniform(*pause))
                except subprocess.TimeoutExpired:
                    process.kill()
                    counts["kills"] += 1
                    continue
            counts["runs"] += 1
            found = re.search(r"(\d+) shards? computed(?:; (\d+) (?:was|were) done before)?", messages)
            assert found, messages
            counts["shards computed in the last run"] += int(found[1])
            counts["shards done before the last run"] += int(found[2] or 0)
            break
        counts["models with the same hash"] += hash_model(model) == expected
        print(number + 1, dict(counts), flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*MARKS, "driver"])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--labels", type=int, default=1000)
    pause = "seconds between two kills, at least and at most"
    parser.add_argument("--pause", type=float, nargs=2, default=[1, 3], metavar="S", help=pause)
    arguments = parser.parse_args()
    random.seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder, data = Path(temporary), make_data(arguments.samples, arguments.labels)
        path = write(data, folder / "data")
        data = longtail.read(path)
        start = time.process_time()
        Tagger(SPEC, threads=1).fit(data, progress=False).save(folder / "plain")
        expected = hash_model(folder / "plain")
        print(f"{data}; without a cluster {time.process_time() - start:.1f} CPU seconds", flush=True)
        counts: Counter[str] = Counter()
        if arguments.kind == "driver":
            counts = kill_drivers(folder, path, expected, arguments.runs, arguments.pause)
        else:
            with open_address(arguments.kind) as address, kill_workers(MARKS[arguments.kind], arguments.pause, counts):
                for number in range(arguments.runs):
                    place = folder / str(number)
                    place.mkdir()
                    counts["models with the same hash"] += train(address, data, place, counts) == expected
                    counts["runs"] += 1
                    print(number + 1, dict(counts), flush=True)
        print(arguments.kind, dict(counts))


if __name__ == "__main__":
    main()
