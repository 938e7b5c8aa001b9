"""A worker process of a comparison: trains one method, or predicts with one model.

A separate process makes peak memory that of one method, and a crash, or a kill when memory runs out, ends one method only.
The job arrives as one line of JSON on standard input; the result is one line of JSON on standard output; progress goes to
stderr.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.comparison.runs import hash_data
from longtail.data.dataset import Dataset
from longtail.data.layout import Layout
from longtail.data.read import read_layout
from longtail.errors import CollapseWarning, DataError, LongtailError
from longtail.files import open_atomic
from longtail.interruption import end_on_signals, end_process, end_with_parent
from longtail.progress import Display
from longtail.samples import count_samples
from longtail.spec import MethodSpec
from longtail.tagger.bundle import load_manifest
from longtail.tagger.inputs import align_data
from longtail.tagger.tagger import Tagger, load

_BYTES_PER_MB = 1e6
_WARM_UP_CALLS, _MAX_CALLS, _MAX_SECONDS = 20, 1000, 10.0  # of the latency measurement
_LATENCY_K = 5  # labels requested in each call


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Fit and save a tagger; return time, memory and history."""
    display = Display(title=job["title"])
    data, valid = read_part(job, "train"), read_part(job, "valid") if job["valid"] else None
    tagger = MethodSpec.parse(job["spec"]).build(job["seed"], job["threads"])
    with _collect_warnings() as notes:
        start, cpu = time.perf_counter(), time.process_time()
        tagger.fit(data, valid=valid, progress=display)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    tagger.save(job["model"], overwrite=True)
    history = getattr(tagger.model, "history", [])
    return {"seconds": seconds, "cpu": cpu, "memory": _peak_memory(), "history": history, "notes": notes}


def predict(job: dict[str, Any]) -> dict[str, Any]:
    """Load a tagger, time single samples and the whole test data, and write the predicted labels to a file."""
    display, tagger = Display(title=job["title"]), load(job["model"])
    tagger.configure(threads=job["threads"])
    data = read_part(job, "test")
    align_data(data, tagger.labels)  # an error if no label is known
    latency = _measure_latency(tagger, data.inputs, display)
    start = time.perf_counter()
    best = tagger.topk(data.inputs, job["depth"])
    seconds = time.perf_counter() - start
    with open_atomic(job["predictions"]) as stream:
        sets = tagger.choose_sets(data.inputs)
        np.savez_compressed(stream, ids=best.ids, scores=best.scores, sets=sets.ids)
    size = sum(entry["bytes"] for entry in load_manifest(Path(job["model"]))["files"].values())
    p50, p99 = np.percentile(1e3 * latency, [50, 99]).tolist()
    per_second = data.n_samples / seconds
    speed = {"p50": p50, "p99": p99, "per_second": per_second}
    return {**speed, "memory": _peak_memory(), "size": size / _BYTES_PER_MB, "scores": tagger.score_meaning}


def read_part(job: dict[str, Any], part: str) -> Dataset:
    """Read the same data as the parent process did."""
    data = read_layout(job[part], Layout.from_json(job["layouts"][part]))
    if hash_data(data) != job["hashes"][part]:
        hint = "Pass the whole file, and do not change it while methods are compared"
        raise DataError("the file does not hold the data of this comparison", where=job[part], hint=hint)
    return data


def _measure_latency(tagger: Tagger, inputs: Any, display: Display) -> NDArray[np.float64]:
    """Seconds per call with a single sample, for randomly chosen samples."""
    n_calls = min(count_samples(inputs), _MAX_CALLS)
    order = np.random.default_rng(0).permutation(count_samples(inputs))[:n_calls]
    seconds: list[float] = []
    with display.stage("latency", _WARM_UP_CALLS + n_calls) as stage:
        for i in [*order[np.arange(_WARM_UP_CALLS) % n_calls], *order]:
            one = [inputs[int(i)]] if tagger.reads_texts else inputs[[int(i)]]
            start = time.perf_counter()
            tagger.predict(one, _LATENCY_K)
            seconds.append(time.perf_counter() - start)
            stage.advance()
            if len(seconds) > 2 * _WARM_UP_CALLS and sum(seconds) > _MAX_SECONDS:
                break
    return np.array(seconds[_WARM_UP_CALLS:])


def _peak_memory() -> float | None:
    """Peak memory of this process in MB; None where the system does not report it.

    ``ru_maxrss`` is used only where there is no /proc: on Linux a child inherits it from its parent.
    """
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        if sys.platform == "win32":
            return None
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _BYTES_PER_MB
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / _BYTES_PER_MB


@contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """Collect our own warnings for the report; others are shown as usual."""
    notes: list[str] = []
    with warnings.catch_warnings():
        default = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, CollapseWarning):
                notes.append(str(message))
            else:
                default(message, category, *rest, **named)

        warnings.simplefilter("always", CollapseWarning)
        warnings.showwarning = show
        yield notes


def _report_failure(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report why the process ends; unexpected errors are shown with their traceback, too."""
    expected = issubclass(kind, LongtailError | MemoryError)
    text = "out of memory" if kind is MemoryError else str(error)
    _answer({"failure": text if expected else f"{kind.__name__}: {error}"})
    if not expected:
        sys.__excepthook__(kind, error, trace)
    _leave(1)


def _answer(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")


def _leave(code: int) -> None:
    """Exit at once, without waiting for threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    end_process(code)


def main() -> None:
    """Run one job. Its standard input stays open for as long as the parent process lives."""
    end_on_signals()
    sys.excepthook = _report_failure
    job = json.loads(sys.stdin.buffer.readline())
    end_with_parent(sys.stdin.buffer)
    _answer({"train": train, "predict": predict}[job["task"]](job))
    _leave(0)


if __name__ == "__main__":
    main()
