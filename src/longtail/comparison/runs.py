"""Train and evaluate every candidate once. Finished work is kept in a folder, so that an interrupted comparison resumes.

OUT/models/NAME holds the trained model, OUT/runs/NAME.json what training and evaluation reported, OUT/runs/NAME.npz the
labels predicted for the test data. A record is reused only if data, settings, model and version are the same, and if it and
the files that it describes have the hashes of then: a damaged file costs the work of one method.
"""

from __future__ import annotations

import hashlib
import json
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
from longtail.comparison.candidates import Candidate
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.decisions.sets import DEFAULT_TARGET
from longtail.errors import BundleError, DataError, LongtailError, WriteError
from longtail.files import STDIN, open_atomic
from longtail.interruption import explain_exit
from longtail.progress import SILENT, Progress, format_duration
from longtail.sharding.cluster import Cluster
from longtail.sharding.tasks import check_versions, get_versions, pack_error, unpack_error
from longtail.tagger.bundle import MANIFEST, load_bundle

MIN_DEPTH = 10  # labels that are kept per sample, at least
_PARTS = ("ids", "scores", "sets")  # arrays that are kept of each run

Record = dict[str, Any]


@dataclass(frozen=True)
class ComparisonTask:
    """The data that all candidates are trained and evaluated on."""

    train: Dataset
    test: Dataset
    valid: Dataset | None = None
    seed: int = 0
    threads: int | None = None
    depth: int = MIN_DEPTH

    def __post_init__(self) -> None:
        for data in (self.train, self.test):
            if data.source in (STDIN, ""):
                found = "the data does not come from a file, and each method reads it in a separate process"
                raise DataError(found, hint="Write it to a file first")

    @property
    def sources(self) -> dict[str, Any]:
        """The file of each part of the data, and their layouts."""
        parts = {"train": self.train, "test": self.test, "valid": self.valid}
        layouts = {name: data.layout.to_json() for name, data in parts.items() if data}
        return {**{name: data.source if data else "" for name, data in parts.items()}, "layouts": layouts}


@dataclass(frozen=True)
class CandidateRun:
    """What one candidate gave: records and predictions, or a failure."""

    candidate: Candidate
    failure: str = ""
    training: Record = field(default_factory=dict)  # seconds, cpu, memory, history, notes; empty for a saved model
    prediction: Record = field(default_factory=dict)  # p50, p99, per_second, memory, size, scores (what they are)
    labels: Labels = field(default_factory=lambda: Labels(()))  # by the ids of the predictions
    ids: NDArray[np.int32] | None = None  # [n_samples, depth] predicted for the test data
    sets: NDArray[np.int32] | None = None  # [n_samples, largest set] the sets of labels by the default target
    scores: NDArray[np.float32] | None = None  # [n_samples, depth]


def run_all(
    task: ComparisonTask,
    candidates: Sequence[Candidate],
    out: Path,
    progress: Progress = SILENT,
    cluster: Cluster | None = None,
) -> list[CandidateRun]:
    """Run the candidates in order, or on a cluster at the same time. What was done before is not repeated."""
    hashes = {name: hash_data(data) for name, data in vars(task).items() if isinstance(data, Dataset)}
    start, runs = time.monotonic(), []
    titles = [f"[{number}/{len(candidates)}] {one.name}" for number, one in enumerate(candidates, 1)]
    jobs = [_make_job(task, one, hashes, out, title) for one, title in zip(candidates, titles, strict=True)]
    started = None if cluster is None else [cluster.engine.submit(run_job, _make_absolute(job)) for job in jobs]
    for number, (one, job, title) in enumerate(zip(candidates, jobs, titles, strict=True)):
        progress.say(title if one.description == one.name else f"{title}: {one.description}")
        try:
            answer = run_job(job) if cluster is None or started is None else cluster.get_answer(started[number], title)
            runs.append(_load_run(one, job, answer, progress))
        except (LongtailError, OSError) as error:  # such as a file that cannot be written
            runs.append(CandidateRun(one, str(error)))
        if runs[-1].failure:
            progress.say(f"{title} failed: {runs[-1].failure}")
        progress.say(f"{number + 1} of {len(candidates)} methods done after {format_duration(time.monotonic() - start)}")
    return runs


def run_one(task: ComparisonTask, one: Candidate, hashes: Record, out: Path, title: str, progress: Progress) -> CandidateRun:
    """Run one candidate here."""
    job = _make_job(task, one, hashes, out, title)
    return _load_run(one, job, run_job(job), progress)


def run_job(job: Record) -> Record:
    """Train and evaluate one candidate, as far as that has not been done before: a function from paths to files.

    :returns: The failure, if any, and what was done before, as values of JSON.
    """
    try:
        check_versions(job["versions"])
        path, said = Path(job["record"]), list[str]()
        record = _read_record(path)
        if not job["spec"]:
            record.pop("train", None)
        failure = (_train(job, record, path, said) if job["spec"] else "") or _predict(job, record, path, said)
        return {"failure": failure, "training": record.get("train", {}), "said": said}
    except LongtailError as error:
        return {"error": pack_error(error)}
    except OSError as error:
        return {"error": pack_error(WriteError(f"a file cannot be read or written ({error})", where=job["model"]))}


def _make_job(task: ComparisonTask, one: Candidate, hashes: Record, out: Path, title: str) -> Record:
    """Return what a process must know to run a candidate."""
    path = out / "runs" / f"{one.file_name}.json"
    folder = Path(one.model) if one.model else out / "models" / one.file_name
    job: Record = {"title": title, "spec": str(one.spec or ""), "model": str(folder), "seed": task.seed, "depth": task.depth}
    job |= {"threads": task.threads, "record": str(path), "predictions": str(path.with_suffix(".npz")), "hashes": hashes}
    return {**job, **task.sources, "versions": get_versions()}


def _make_absolute(job: Record) -> Record:
    """Return a job with paths that hold in any folder. Built-in corpora have none."""
    names = [name for name in ("train", "test", "valid") if job[name] and Path(job[name]).exists()]
    return {**job, **{name: str(Path(job[name]).absolute()) for name in ("model", "record", "predictions", *names)}}


def _load_run(one: Candidate, job: Record, answer: Record, progress: Progress) -> CandidateRun:
    """Return what a job has written."""
    if "error" in answer:
        raise unpack_error(answer["error"])
    for text in answer["said"]:
        progress.say(text)
    if answer["failure"]:
        return CandidateRun(one, answer["failure"], answer["training"])
    record = _read_record(Path(job["record"]))
    with np.load(job["predictions"]) as stored:
        parts = {name: stored[name] for name in _PARTS}
    labels = load_bundle(job["model"], checked=("labels",)).labels
    return CandidateRun(one, "", record.get("train", {}), record["predict"], labels, **parts)


def _train(job: Record, record: Record, path: Path, said: list[str]) -> str:
    """Train a model unless the same was trained before; add what it took to the record. Returns the failure, if any."""
    same = {"longtail": __version__, **{name: job[name] for name in ("spec", "seed", "threads")}}
    key = _hash_record({**same, "train": job["hashes"]["train"], "valid": job["hashes"].get("valid")})
    before = record.get("train", {})
    if before.get("key") == key and before["model"] == _hash_model(job["model"]) and _is_intact(job["model"]):
        said.append(f"{job['title']}: already trained")
        return ""
    found = _run_worker({**job, "task": "train"})
    if "failure" not in found:
        record.clear()
        record["train"] = {"key": key, "model": _hash_model(job["model"]), **found}
        _write_record(path, record)
    return str(found.get("failure", ""))


def _predict(job: Record, record: Record, path: Path, said: list[str]) -> str:
    """Predict the test data unless the same was done before; add timings to the record. Returns the failure, if any."""
    same = {
        "longtail": __version__,
        "threads": job["threads"],
        "depth": job["depth"],
        "parts": [*_PARTS, str(DEFAULT_TARGET)],
    }
    key = _hash_record({**same, "model": _hash_model(job["model"]), "test": job["hashes"]["test"]})
    before = record.get("predict", {})
    if before.get("key") == key and before["predictions"] == _hash_file(Path(job["predictions"])):
        said.append(f"{job['title']}: already evaluated")
        return ""
    record.pop("predict", None)
    _write_record(path, record)  # before the predictions that it describes are replaced
    found = _run_worker({**job, "task": "predict"})
    if "failure" not in found:
        record["predict"] = {"key": key, "predictions": _hash_file(Path(job["predictions"])), **found}
        _write_record(path, record)
    return str(found.get("failure", ""))


def _run_worker(job: Record) -> Record:
    """Run a job in a separate process, which ends when this one does; its result, or its ``failure``."""
    command = [sys.executable, "-P", "-m", "longtail.comparison.worker"]
    with subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(job).encode() + b"\n")  # stays open: the worker ends when it is closed
            lines = worker.stdout.read().decode().splitlines()
        except BrokenPipeError:  # it ended before it had read the job
            lines = []
        except BaseException:
            worker.kill()
            raise
    if lines and lines[-1].startswith("{"):
        found: Record = json.loads(lines[-1])
        return found
    return {"failure": explain_exit(worker.returncode)}


def hash_data(data: Dataset) -> str:
    """A hash of inputs, labels and label names."""
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


def _read_record(path: Path) -> Record:
    """The record of a run; empty if there is none, or a damaged one."""
    try:
        found = json.loads(path.read_bytes())
        return dict(found["record"]) if found["sha256"] == _hash_record(found["record"]) else {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _write_record(path: Path, record: Record) -> None:
    with open_atomic(path) as stream:
        signed = {"record": record, "sha256": _hash_record(record)}
        stream.write((json.dumps(signed, indent=1) + "\n").encode())


def _hash_record(same: Record) -> str:
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def _hash_model(model: str) -> str:
    """A hash of the manifest of a saved model; empty if there is none."""
    return _hash_file(Path(model) / MANIFEST)


def _hash_file(path: Path) -> str:
    """The hash of a file; empty if there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _is_intact(model: str) -> bool:
    """Whether the files of a saved model are those that it was saved with."""
    try:
        load_bundle(model)
    except BundleError:
        return False
    return True
