"""The command that predicts labels on a cluster: a file is divided into parts, and each becomes a file of answers.

The folder has a file for each part, named by its number and the hash of its content, and a file that says what was asked:
model, data, options and versions. A part whose file has the right hash is done, and not repeated.
"""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from longtail.cli.answers import make_format
from longtail.cli.arrivals import SAMPLES_PER_BATCH
from longtail.cli.cluster import describe_counts
from longtail.cli.constraints import check_options, get_constraints
from longtail.cli.predict import SampleBatch, answer_batch, choose_k, choose_output, read_batches, report_counts
from longtail.data.prepared import MANIFEST as DATA_MANIFEST
from longtail.data.prepared import is_prepared, read_manifest
from longtail.errors import DataError, LongtailError, SettingError
from longtail.files import STDIN, hash_file, open_atomic
from longtail.progress import Display, Stage
from longtail.sharding.cluster import Cluster
from longtail.sharding.engines import Answer
from longtail.sharding.tasks import check_versions, get_versions, pack_error
from longtail.tagger.bundle import MANIFEST
from longtail.tagger.tagger import Tagger, load

BATCHES_PER_PART = 16  # batches have the same samples as without a cluster
_REQUEST = "request.json"
_PENDING = 3  # parts per worker that are on disk and not done
_ENDINGS = {"elasticsearch": "jsonl", "solr": "json"}
_DIGITS = 16  # of a hash, in the names of files


def predict_on_cluster(arguments: Namespace) -> None:
    """Predict the labels of each text of a file, part by part."""
    data = _find_data(arguments.file)
    if data is None or arguments.out is None:
        hint = "Write: longtail predict MODEL FILE --cluster local:2 --out FOLDER"
        raise SettingError("prediction on a cluster needs a file to read, and a folder to write to", hint=hint)
    if Path(arguments.out).exists() and not Path(arguments.out).is_dir():
        found, hint = "this is a file; a cluster writes a folder of parts", "Choose another name for the folder"
        raise SettingError(found, where=arguments.out, hint=hint)
    tagger, display, folder = load(arguments.model), Display(), Path(arguments.out).absolute()
    check_options(arguments, tagger.labels)
    choose_k(tagger, arguments, get_constraints(arguments))  # reports unknown labels before texts are read
    with Cluster(arguments.cluster, folder=folder, progress=display) as cluster:
        if cluster.engine.dashboard:
            display.say(f"dashboard: {cluster.engine.dashboard}")
        _write_request(folder, data, arguments)
        before = data.stat()
        with display.stage("parts", 0) as stage:  # how many there are is known at the end
            batches = read_batches(tagger, arguments, display)
            answers = list(_run_parts(cluster, folder, batches, stage))
        after = data.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise DataError("the file has changed while it was read", where=arguments.file, hint=_restart(folder))
        for path in folder.glob(".input-*"):
            path.unlink()
    n_found = answers.count(None)
    done = [answer for answer in answers if answer is not None]
    display.say(f"{describe_counts('part', 'predicted', len(done), n_found)}; they are in {arguments.out}")
    n_unknown, n_empty, n_samples = (sum(answer[name] for answer in done) for name in ("unknown", "empty", "samples"))
    report_counts(tagger, arguments, n_unknown, n_empty, n_samples, display)


def predict_part(folder: str, number: int) -> Answer:
    """Predict a part in a worker, and write its answers. Returns what was counted, or the error, as values of JSON.

    :param folder: The folder of the request.
    :param number: The number of the part.
    """
    try:
        return _predict_part(Path(folder), number)
    except LongtailError as error:
        failure = error
    except OSError as error:
        hint = "The folder, and that of the model, must be on a disk that all workers share, under the same path"
        failure = DataError(f"a worker cannot read or write a file ({error})", where=folder, hint=hint)
    return {"error": pack_error(failure)}


def _predict_part(folder: Path, number: int) -> Answer:
    request = json.loads((folder / _REQUEST).read_bytes())
    check_versions(request["versions"])
    arguments = Namespace(**request["arguments"])
    if hash_file(Path(arguments.model) / MANIFEST) != request["model"]:
        raise DataError("the model has changed while parts are predicted", where=arguments.model, hint=_restart(folder))
    tagger, name, constraints = (
        _load(arguments.model, request["model"]),
        choose_output(arguments),
        get_constraints(arguments),
    )
    written: list[str] = []
    answers = make_format(name, written.append, k=choose_k(tagger, arguments, constraints), index=arguments.index)
    counts = np.zeros(3, np.int64)
    for batch in _read_part(_name_input(folder, number)):
        found = answer_batch(tagger, batch, answers, written.append, arguments, constraints)
        counts += (*found, len(batch.ids))
    answers.end()
    content = "".join(written).encode()
    path = folder / f"{_name_part(number)}-{_hash(content)}.{_ENDINGS.get(name, name)}"
    with open_atomic(path, follow_links=False) as stream:
        stream.write(content)
    return dict(zip(("unknown", "empty", "samples"), counts.tolist(), strict=True))


@lru_cache(maxsize=1)
def _load(model: str, digest: str) -> Tagger:
    """Load a model once per worker, with one thread: there is a worker for each core."""
    return load(model).configure(threads=1)


def _run_parts(cluster: Cluster, folder: Path, batches: Iterator[SampleBatch], stage: Stage) -> Iterator[Answer | None]:
    """Write the parts that are not done, a few at a time. Yields the answers of the workers; None: it was done."""
    waiting: dict[Future[Answer], int] = {}

    def collect(most: int) -> Iterator[Answer]:
        while len(waiting) > most:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                number = waiting.pop(future)
                yield cluster.get_answer(future, f"part {number}")
                _name_input(folder, number).unlink()
                stage.advance(1)

    try:
        for number, part in enumerate(iter(lambda: list(islice(batches, BATCHES_PER_PART)), [])):
            stage.advance(0, f"{number + 1:,} read")
            if _is_done(folder, number):
                yield None
                stage.advance(1)
                continue
            _write_part(_name_input(folder, number), part)
            waiting[cluster.engine.submit(predict_part, str(folder), number)] = number
            yield from collect(_PENDING * cluster.engine.n_workers)
        yield from collect(0)
    finally:
        for future in waiting:
            future.cancel()


def _find_data(path: str) -> Path | None:
    """Return the file whose hash says what the data is: of prepared data, the manifest; None if there is none."""
    if path != STDIN and is_prepared(Path(path)):
        read_manifest(Path(path))  # an error if it is missing or damaged
        return Path(path) / DATA_MANIFEST
    return Path(path) if path != STDIN and Path(path).is_file() else None


def _write_request(folder: Path, data: Path, arguments: Namespace) -> None:
    """Write what is asked, or raise an error if the folder has answers to something else."""
    given = {name: value for name, value in vars(arguments).items() if name not in ("cluster", "out", "threads")}
    given["model"] = str(Path(arguments.model).absolute())
    files = {"model": Path(arguments.model) / MANIFEST, "data": data}
    if arguments.constraints:
        files["constraints"] = Path(arguments.constraints)
        given["constraints"] = str(files["constraints"].absolute())
    hashes = {name: hash_file(path) for name, path in files.items()}
    size = SAMPLES_PER_BATCH * BATCHES_PER_PART
    request = {"versions": get_versions(), **hashes, "samples per part": size, "arguments": given}
    content = (json.dumps(request, sort_keys=True, indent=1) + "\n").encode()
    path = folder / _REQUEST
    if path.exists() and path.read_bytes() != content:
        found = "the folder has answers of another model, to other data or with other options"
        raise SettingError(found, where=str(folder), hint=_restart(folder))
    with open_atomic(path) as stream:
        stream.write(content)


def _write_part(path: Path, part: list[SampleBatch]) -> None:
    """Write samples so that a worker can read them: an object of JSON for each batch."""
    with open_atomic(path) as stream:
        for batch in part:
            X = batch.inputs
            if sp.issparse(X):
                inputs = {name: getattr(X, name).tolist() for name in ("data", "indices", "indptr")} | {"shape": X.shape}
            else:
                inputs = {"texts": X}
            stream.write(json.dumps({"ids": batch.ids, **inputs}).encode() + b"\n")


def _read_part(path: Path) -> Iterator[SampleBatch]:
    with path.open("rb") as stream:
        for line in stream:
            found = json.loads(line)
            if "texts" in found:
                yield SampleBatch(found["texts"], found["ids"])
            else:
                arrays = (np.array(found["data"], np.float32), found["indices"], found["indptr"])
                yield SampleBatch(sp.csr_array(arrays, shape=found["shape"]), found["ids"])


def _is_done(folder: Path, number: int) -> bool:
    """Whether there is a file of a part with the right hash; others are removed."""
    for path in folder.glob(f"{_name_part(number)}-*"):
        if path.stem.endswith(f"-{_hash(path.read_bytes())}"):
            return True
        path.unlink()
    return False


def _name_part(number: int) -> str:
    return f"part-{number:06d}"


def _name_input(folder: Path, number: int) -> Path:
    return folder / f".input-{number:06d}.jsonl"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _restart(folder: Path) -> str:
    return f"Remove the folder {folder}, or choose another one, and run the command again"
