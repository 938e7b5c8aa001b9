"""A cluster: an engine and a folder. It divides work into shards, runs those that are not done, and counts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from longtail.errors import LongtailError, SettingError
from longtail.files import create_temporary_folder, remove_if_empty
from longtail.kernels import Longs
from longtail.locks import lock_folder
from longtail.progress import SILENT, Progress, Stage, resolve_progress
from longtail.sharding.engines import Answer, Engine, open_engine
from longtail.sharding.tasks import Inputs, ShardFunction, read_shard, run_shard, unpack_error, write_task
from longtail.state import State

SHARDS_PER_WORKER = 4  # by default: so that no worker waits long for the last one
_LOCK_SECONDS = 2.0  # to wait for another driver
_PATIENCE, _MIN_PATIENCE = 4, 60.0  # times the mean time of a shard, and at least seconds, before one is taken to hang

Range = tuple[int, int]  # the first item of a shard, and the one after its last


class Shard(NamedTuple):
    """A range of items, and what was computed for them."""

    first: int
    end: int
    result: State


class Cluster:
    """Workers that train parts of a model, or predict parts of the data. Use it in a ``with`` block.

    :param address: The engine: ``local:N`` for N processes of this machine, ``dask:ADDRESS`` or ``ray:ADDRESS``.
    :param shards: Into how many shards a task is divided. None: four for each worker.
    :param folder: Where tasks and shards are written. All workers must see it under the same path. What is done there is not
        repeated. None: a folder in the current one, removed at the end.
    :param progress: Where it is said that workers are waited for.
    """

    def __init__(
        self,
        address: str,
        shards: int | None = None,
        folder: str | Path | None = None,
        progress: Progress = SILENT,
    ) -> None:
        if shards is not None and shards < 1:
            raise SettingError(f"shards is {shards}", hint="It must be a positive integer")
        self.address, self.shards, self.progress = address, shards, progress
        self.folder = None if folder is None else Path(folder).absolute()
        self.n_computed = self.n_found = 0  # shards that were computed here, and that were done before
        self._engine: Engine | None = None
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._engine = open_engine(self.address, self.progress)
            stack.callback(self._engine.close)
            if self.folder is None:
                self.folder = stack.enter_context(create_temporary_folder(Path.cwd() / "longtail-shards"))
            else:
                stack.callback(remove_if_empty, self.folder)
                stack.enter_context(lock_folder(self.folder, _LOCK_SECONDS))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()
        self._engine = None

    @property
    def engine(self) -> Engine:
        """The engine."""
        if self._engine is None:
            raise LongtailError("the cluster is not open", hint='Write: with longtail.cluster("local:2") as cluster: …')
        return self._engine

    @property
    def n_shards(self) -> int:
        """Into how many shards a task is divided, if it has as many items."""
        return self.shards or SHARDS_PER_WORKER * self.engine.n_workers

    def run(
        self, function: ShardFunction, inputs: Inputs, settings: dict[str, Any], work: Longs, stage: Stage
    ) -> Iterator[Shard]:
        """Compute a function for ranges of items. Yields the ranges in order, when all of them are done.

        :param function: A function of a module: inputs, settings, first item and end of a range -> arrays. It must be pure.
        :param inputs: What it reads, by name: CSR matrices, and states of one-dimensional arrays.
        :param settings: What else it is given: values of JSON.
        :param work: [n_items] How much work each item is.
        :param stage: Where progress is shown, in units of work.
        """
        engine, folder = self.engine, self.folder
        assert folder is not None
        task = write_task(folder, function, inputs, settings)
        bounds = divide_work(work, self.n_shards)
        files: dict[Range, Path] = {}
        for first, end in bounds:
            if (done := task.find_done(first, end)) is not None:
                files[first, end] = done
                stage.advance(int(work[first:end].sum()))
        self.n_found += len(files)
        submit = partial(engine.submit, run_shard, str(task.path))
        for (first, end), future in _run_all([each for each in bounds if each not in files], submit, engine.n_workers):
            name = f"shard {bounds.index((first, end)) + 1} of {len(bounds)}"
            files[first, end] = folder / self.get_answer(future, name)["file"]
            self.n_computed += 1
            stage.advance(int(work[first:end].sum()), f"{len(files)} of {len(bounds)} shards")
        for first, end in bounds:
            yield Shard(first, end, read_shard(files[first, end]))

    def get_answer(self, future: Future[Answer], name: str) -> Answer:
        """Return the answer of a worker, or raise its error.

        :param name: What it has worked on, for the message if its workers have ended.
        """
        try:
            answer = future.result()
        except self.engine.lost as error:
            hint = "Look at the messages of the workers, or give them more memory; what is done is kept for the next run"
            raise LongtailError(f"{name} failed: its workers have ended ({error})", where=self.address, hint=hint) from error
        if "error" in answer:
            raise unpack_error(answer["error"])
        return answer


def _run_all(
    ranges: Sequence[Range], submit: Callable[[int, int], Future[Answer]], n_workers: int
) -> Iterator[tuple[Range, Future[Answer]]]:
    """Run shards, and yield each of them when it is done.

    When workers have nothing left to do, and the last shards take several times as long as the others did, they are run once
    more: a worker may hang. The run that is done first counts.
    """
    runs, left = {submit(*each): each for each in ranges}, set(ranges)
    repeated: set[Range] = set()
    start, patience = time.monotonic(), None
    try:
        while left:
            done = wait(runs, patience, FIRST_COMPLETED).done
            for future in done:
                if (found := runs.pop(future)) in left:
                    left.remove(found)
                    yield found, future
            if done:
                mean = (time.monotonic() - start) * n_workers / (len(ranges) - len(left))
                patience = max(_MIN_PATIENCE, _PATIENCE * mean)
            elif len(left) < n_workers:
                runs |= {submit(*each): each for each in left - repeated}
                repeated |= left
    finally:
        for future in runs:
            future.cancel()


def divide_work(work: Longs, n_parts: int) -> list[Range]:
    """Divide items into ranges of about the same work; none is empty.

    >>> divide_work(np.array([5, 1, 1, 1, 1, 1]), 2)
    [(0, 1), (1, 6)]
    """
    total = np.cumsum(work, dtype=np.int64)
    middles = total - work / 2
    part = np.minimum(middles * n_parts // max(int(total[-1]), 1), n_parts - 1) if len(work) else np.empty(0)
    starts = np.flatnonzero(np.diff(part, prepend=-1)).tolist()
    return list(zip(starts, [*starts[1:], len(work)], strict=True))


def cluster(address: str, *, shards: int | None = None, folder: str | Path | None = None) -> Cluster:
    """Return a cluster for ``Tagger.fit``: ``with longtail.cluster("local:2") as c: Tagger("plt").fit(data, cluster=c)``.

    The model is the same, bit by bit, as without a cluster.

    :param address: The engine: ``local:N`` for N processes of this machine, ``dask:ADDRESS`` or ``ray:ADDRESS``.
    :param shards: Into how many shards a task is divided. None: four for each worker.
    :param folder: Where tasks and shards are written. All workers must see it under the same path. What is done there is not
        repeated. None: a folder in the current one, removed at the end.
    """
    return Cluster(address, shards, folder, resolve_progress())
