"""What is done in a process of its own: train one method, or measure one model. So peaks of memory are of one method alone,
and a crash, or a kill for want of memory, ends one method, not the comparison.

A job comes as JSON on standard input, what is found goes as one line of JSON to standard output; people see standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from longtail.compare.contestants import Contestant
from longtail.compare.runs import fingerprint
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import CollapseWarning, DataError, LongtailError
from longtail.features.tfidf import Tfidf
from longtail.files import writing
from longtail.model import count
from longtail.nn.hybrid import Hybrid
from longtail.progress import Display
from longtail.tagger.bundle import load_manifest
from longtail.tagger.tagger import Tagger, comparable, load

MB = 1e6
WARM, MOST_CALLS, MOST_SECONDS = 20, 1000, 10.0  # single texts: calls that do not count, calls that do, and time for them
LABELS = 5  # asked for when a single text is timed


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Learn and save; what it took."""
    display, one = Display(title=job["title"]), Contestant(**job["contestant"])
    data, valid = data_of(job, "train"), data_of(job, "valid") if job["valid"] else None
    tagger = one.tagger(job["seed"], job["threads"])
    with noted_warnings() as notes:
        start, cpu = time.perf_counter(), time.process_time()
        tagger.fit(data, valid, progress=display)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    tagger.save(job["model"])
    history = getattr(tagger.model, "history", [])
    return {"seconds": seconds, "cpu": cpu, "memory": peak_memory(), "history": history, "notes": notes}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Load, time single texts and all of them, and write the best labels of each to a file."""
    display, tagger = Display(title=job["title"]), load(job["model"])
    set_threads(tagger, job["threads"])
    data = data_of(job, "test")
    comparable(data, tagger.known_labels)  # an error if no label is known
    latency = single_latency(tagger, data.inputs, display)
    start = time.perf_counter()
    best = tagger.topk(data.inputs, job["depth"])
    seconds = time.perf_counter() - start
    with writing(job["predictions"]) as stream:
        np.savez_compressed(stream, ids=best.ids)
    size = sum(entry["bytes"] for entry in load_manifest(Path(job["model"]))["files"].values())
    p50, p99 = np.percentile(1e3 * latency, [50, 99]).tolist()
    per_second = data.n_samples / seconds
    return {"p50": p50, "p99": p99, "per_second": per_second, "memory": peak_memory(), "size": size / MB}


def data_of(job: dict[str, Any], part: str) -> Dataset:
    """The same data as the parent has read."""
    data = read(job[part])
    if fingerprint(data) != job["prints"][part]:
        hint = "Give the file as a whole, and leave it as it is while methods are compared"
        raise DataError("the file does not hold what is to be compared on", where=job[part], hint=hint)
    return data


def single_latency(tagger: Tagger, inputs: Any, display: Display) -> Any:
    """Seconds of calls with one text, or one row of features, each; texts as they come by chance."""
    n_calls = min(count(inputs), MOST_CALLS)
    order = np.random.default_rng(0).permutation(count(inputs))[:n_calls]
    took: list[float] = []
    with display.stage("latency", WARM + n_calls) as stage:
        for i in [*order[np.arange(WARM) % n_calls], *order]:
            one = [inputs[int(i)]] if tagger.reads_texts else inputs[[int(i)]]
            start = time.perf_counter()
            tagger.predict(one, LABELS)
            took.append(time.perf_counter() - start)
            stage.advance()
            if len(took) > 2 * WARM and sum(took) > MOST_SECONDS:
                break
    return np.array(took[WARM:])


def set_threads(tagger: Tagger, threads: int | None) -> None:
    """The number of threads is of the machine, so a saved model does not know it."""
    if "threads" in tagger.model.param_names():
        tagger.model.set_params(threads=threads)
    if isinstance(tagger.features, Tfidf | Hybrid):
        tagger.features.threads = threads


def peak_memory() -> float | None:
    """MB that this process has held at most; None where the system does not tell.

    ``ru_maxrss`` serves only where there is no /proc: Linux hands it down from the parent that started the process.
    """
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        if sys.platform == "win32":
            return None
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / MB


@contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """Our own warnings, for the report; others are shown as they always are."""
    notes: list[str] = []
    with warnings.catch_warnings():
        otherwise = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, CollapseWarning):
                notes.append(str(message))
            else:
                otherwise(message, category, *rest, **named)

        warnings.simplefilter("always", CollapseWarning)
        warnings.showwarning = note
        yield notes


def tell_failure(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Whatever ends the process goes into the report; what nobody foresaw is shown in full, too."""
    if not issubclass(kind, KeyboardInterrupt):
        foreseen = issubclass(kind, LongtailError | MemoryError)
        text = "there is not enough memory for this" if kind is MemoryError else str(error)
        answer({"failure": text if foreseen else f"{kind.__name__}: {error}"})
        if not foreseen:
            sys.__excepthook__(kind, error, trace)
    leave(1)


def answer(found: dict[str, Any]) -> None:
    """One line for who asked."""
    sys.stdout.write(json.dumps(found) + "\n")


def leave(code: int) -> None:
    """At once, without waiting for threads that an interruption left at work."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Do one job."""
    sys.excepthook = tell_failure
    job = json.loads(sys.stdin.read())
    answer({"train": train, "measure": measure}[job["task"]](job))
    leave(0)


if __name__ == "__main__":
    main()
