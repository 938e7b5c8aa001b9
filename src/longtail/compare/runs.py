"""Every method trained and measured, each once: what is done is kept in a folder, and an interrupted comparison goes on.

OUT/models/NAME holds the trained model, OUT/runs/NAME.json what training and measuring gave, OUT/runs/NAME.npz the labels
that were predicted for the test data. A record is taken again only if data, settings, model and version are the same.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail import __version__
from longtail.compare.contestants import Contestant
from longtail.data.dataset import Dataset
from longtail.errors import DataError
from longtail.files import STDIN, writing
from longtail.progress import SILENT, Progress, clock
from longtail.tagger.bundle import MANIFEST, load_bundle

DEPTH = 10  # labels that are kept of each sample, at least

Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What all methods of a comparison learn from and are measured on."""

    train: Dataset
    test: Dataset
    valid: Dataset | None = None
    seed: int = 0
    threads: int | None = None
    depth: int = DEPTH

    def __post_init__(self) -> None:
        for data in (self.train, self.test):
            if data.source in (STDIN, ""):
                found = "the data do not come from a file, and each method reads them in a process of its own"
                raise DataError(found, hint="Write them to a file first")

    @property
    def sources(self) -> dict[str, str]:
        """Where each part of the data comes from."""
        parts = {"train": self.train, "test": self.test, "valid": self.valid}
        return {name: data.source if data else "" for name, data in parts.items()}


@dataclass(frozen=True)
class Run:
    """What came out for one method: a record and predictions, or a failure."""

    contestant: Contestant
    failure: str = ""
    trained: Record = field(default_factory=dict)  # seconds, cpu, memory, history, notes; empty for a model that was given
    measured: Record = field(default_factory=dict)  # p50, p99, per_second, memory, size
    labels: tuple[str, ...] = ()  # names that the ids of the predictions stand for
    ids: NDArray[np.int32] | None = None  # [n_samples, depth] of the test data


def run_all(task: Task, contestants: Sequence[Contestant], out: Path, progress: Progress = SILENT) -> list[Run]:
    """One run for each contestant, in order; what was done before is not done again."""
    prints = {name: fingerprint(data) for name, data in vars(task).items() if isinstance(data, Dataset)}
    start, runs = time.monotonic(), []
    for number, one in enumerate(contestants, 1):
        title = f"[{number} of {len(contestants)}] {one.name}"
        progress.say(f"{title}: {one.what}")
        runs.append(run_one(task, one, prints, out, title, progress))
        if runs[-1].failure:
            progress.say(f"{title} failed: {runs[-1].failure}")
        progress.say(f"{number} of {len(contestants)} methods after {clock(time.monotonic() - start)}")
    return runs


def run_one(task: Task, one: Contestant, prints: Record, out: Path, title: str, progress: Progress) -> Run:
    """Train and measure what has not been."""
    path = out / "runs" / f"{one.file_name}.json"
    folder = Path(one.model) if one.model else out / "models" / one.file_name
    job: Record = {"title": title, "contestant": asdict(one), "model": str(folder), "seed": task.seed, "depth": task.depth}
    job |= {"threads": task.threads, "predictions": str(path.with_suffix(".npz")), "prints": prints, **task.sources}
    record = read_record(path)
    if one.model:
        record.pop("train", None)
    elif failure := train(job, record, path, progress):
        return Run(one, failure)
    if failure := measure(job, record, path, progress):
        return Run(one, failure, record.get("train", {}))
    with np.load(job["predictions"]) as stored:
        ids = stored["ids"]
    labels = tuple(row[0] for row in load_bundle(folder).labels)
    return Run(one, "", record.get("train", {}), record["measure"], labels, ids)


def train(job: Record, record: Record, path: Path, progress: Progress) -> str:
    """Have a model trained, unless the same was; the record gets what it took. Why it failed, if it did."""
    same = {"longtail": __version__, **{name: job[name] for name in ("contestant", "seed", "threads")}}
    key = key_of({**same, "train": job["prints"]["train"], "valid": job["prints"].get("valid")})
    before = record.get("train", {})
    if before.get("key") == key and before["model"] == hash_of(job["model"]):
        progress.say(f"{job['title']}: trained before")
        return ""
    found = in_a_process({**job, "task": "train"})
    if "failure" not in found:
        record.clear()
        record["train"] = {"key": key, "model": hash_of(job["model"]), **found}
        write_record(path, record)
    return str(found.get("failure", ""))


def measure(job: Record, record: Record, path: Path, progress: Progress) -> str:
    """Have a model measured, unless it was on the same data; the record gets the figures. Why it failed, if it did."""
    same = {"longtail": __version__, "threads": job["threads"], "depth": job["depth"]}
    key = key_of({**same, "model": hash_of(job["model"]), "test": job["prints"]["test"]})
    if record.get("measure", {}).get("key") == key and Path(job["predictions"]).is_file():
        progress.say(f"{job['title']}: measured before")
        return ""
    record.pop("measure", None)
    write_record(path, record)  # before the predictions that it speaks of are replaced
    found = in_a_process({**job, "task": "measure"})
    if "failure" not in found:
        record["measure"] = {"key": key, **found}
        write_record(path, record)
    return str(found.get("failure", ""))


def in_a_process(job: Record) -> Record:
    """Have a worker do a job; what it found, or its ``failure``."""
    command = [sys.executable, "-P", "-m", "longtail.compare.worker"]
    done = subprocess.run(command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, encoding="utf-8")
    lines = done.stdout.splitlines()
    if lines and lines[-1].startswith("{"):
        found: Record = json.loads(lines[-1])
        return found
    return {"failure": end_of(done.returncode)}


def end_of(code: int) -> str:
    """How a process came to its end that could not say it.

    >>> end_of(-9)
    'its process was ended by SIGKILL; most likely there was not enough memory'
    """
    if code >= 0:
        return f"its process ended with code {code}"
    name = signal.Signals(-code).name
    return f"its process was ended by {name}" + ("; most likely there was not enough memory" if name == "SIGKILL" else "")


def read_record(path: Path) -> Record:
    """What is known of a run; nothing if there is no record that can be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(path: Path, record: Record) -> None:
    """As a whole or not at all."""
    with writing(path) as stream:
        stream.write((json.dumps(record, indent=1) + "\n").encode())


def key_of(same: Record) -> str:
    """Tells one run from another."""
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def hash_of(model: str) -> str:
    """Tells one saved model from another; empty if there is none."""
    path = Path(model) / MANIFEST
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def fingerprint(data: Dataset) -> str:
    """Tells one data set from another: inputs, labels and their names."""
    digest = hashlib.sha256()

    def add(parts: Iterable[bytes]) -> None:
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)

    if data.texts is None:
        add(array.tobytes() for array in (data.X.indptr, data.X.indices, data.X.data))
    else:
        add(text.encode() for text in data.texts)
    add(array.tobytes() for array in (data.Y.indptr, data.Y.indices))
    add([json.dumps(asdict(data.labels)).encode()])
    return digest.hexdigest()
