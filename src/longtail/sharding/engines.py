"""Engines: where shards run. An engine has one operation, ``submit``, and gets nothing but paths and small settings.

Nothing is pinned to a worker. If a worker ends, its shard runs again on another one, three times in all: then a shard most
likely ends its workers itself, for lack of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from longtail.errors import LongtailError, SettingError
from longtail.extras import require
from longtail.kernels import count_threads
from longtail.progress import SILENT, Progress
from longtail.sharding.local import LocalEngine

Answer = dict[str, Any]
_HINT = "Write local:N for N processes of this machine, dask:ADDRESS or ray:ADDRESS"
_MAX_RETRIES = 2  # of a shard whose worker has ended
_WORKER_SECONDS = 120  # to wait for the first worker of a Dask cluster
_PAGE_SECONDS, _NOT_FOUND = 5.0, 404  # to wait for the page of a Dask scheduler; the answer if it has none


class Engine(Protocol):
    """Runs functions in other processes."""

    n_workers: int  # shards that run at the same time
    dashboard: str  # address of a page that shows what runs; empty: there is none
    lost: type[BaseException]  # what a future raises if the workers of a shard have ended again and again

    def submit(self, function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """Call a function of a module in a worker; arguments and result are values of JSON."""

    def close(self) -> None:
        """End what was started. Shards that run are lost."""


class DaskEngine:
    """The workers of a Dask cluster.

    :param address: The address of the scheduler, such as ``tcp://host:8786``, or its scheduler file (``….json``).
    :param progress: Where it is said that there are no workers yet.
    """

    def __init__(self, address: str, progress: Progress = SILENT) -> None:
        require("The engine dask", "distributed")
        distributed, where = import_module("distributed"), f"dask:{address}"
        place = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
        if "scheduler_file" in place and not Path(address).is_file():  # the client would wait for it forever
            hint = f"Check the path, and that the scheduler is running: dask scheduler --scheduler-file {address}"
            raise SettingError("there is no such scheduler file", where=where, hint=hint)
        try:
            self.client = distributed.Client(**place, set_as_default=False)
        except (OSError, ValueError) as error:
            hint = "Check the address, and that the scheduler is running"
            raise LongtailError(f"no Dask scheduler answers ({error})", where=where, hint=hint) from error
        self._wait_for_worker(where, progress)
        self.dashboard = self._find_dashboard()
        self.n_workers = sum(self.client.nthreads().values()) or 1
        self.lost: type[BaseException] = distributed.KilledWorker
        self.executor = self.client.get_executor(pure=False)

    def submit(self, function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """Call a function in a worker. Dask runs it again if the worker ends."""
        future: Future[Answer] = self.executor.submit(function, *arguments)
        return future

    def close(self) -> None:
        """Disconnect; the cluster goes on."""
        self.executor.shutdown(wait=False)
        self.client.close()

    def _wait_for_worker(self, where: str, progress: Progress) -> None:
        """Wait until there is a worker; an error if none comes."""
        if self.client.nthreads():
            return
        progress.say(f"{where}: no workers yet; waiting up to {_WORKER_SECONDS} s")
        try:
            self.client.wait_for_workers(1, timeout=_WORKER_SECONDS)
        except TimeoutError as error:
            self.client.close()
            hint = "Start some, for example: dask worker ADDRESS --nworkers 2 --nthreads 1"
            raise LongtailError("the Dask scheduler has no workers", where=where, hint=hint) from error

    def _find_dashboard(self) -> str:
        """Return the address of the dashboard; empty if there is none: the scheduler needs bokeh for it."""
        from urllib.error import HTTPError
        from urllib.request import urlopen

        if "dashboard" not in self.client.scheduler_info()["services"]:
            return ""
        link: str = self.client.dashboard_link
        try:
            with urlopen(link, timeout=_PAGE_SECONDS) as page:
                return "" if b"Dask needs bokeh" in page.read() else link
        except HTTPError as error:
            return "" if error.code == _NOT_FOUND else link
        except OSError:  # nobody listens
            return ""


class RayEngine:
    """The workers of a Ray cluster. A shard takes one CPU of it.

    :param address: The address of the cluster, ``auto`` for the one that runs here, or ``local`` to start one.
    """

    def __init__(self, address: str) -> None:
        require("The engine ray", "ray")
        self.ray = import_module("ray")
        try:
            context = self.ray.init(address=address, log_to_driver=False, logging_level="error")
        except Exception as error:  # of all kinds, and of none: a plain Exception if it does not start in time
            self.ray.shutdown()
            hint = "Check the address, and that the cluster is running: ray status. A busy machine may need a second try"
            raise LongtailError(f"no Ray cluster answers ({error})", where=f"ray:{address}", hint=hint) from error
        self.dashboard: str = context.dashboard_url or ""
        self.n_workers = int(self.ray.cluster_resources().get("CPU", 1))
        self.lost: type[BaseException] = self.ray.exceptions.RayError

    def submit(self, function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """Call a function in a worker. Ray runs it again if the worker ends."""
        remote = self.ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(function)
        future: Future[Answer] = remote.remote(*arguments).future()
        return future

    def close(self) -> None:
        """Disconnect; a cluster that this engine has not started goes on."""
        self.ray.shutdown()


def open_engine(address: str, progress: Progress = SILENT) -> Engine:
    """Start or connect to an engine.

    :param address: ``local:N``, ``dask:ADDRESS`` or ``ray:ADDRESS``.
    :param progress: Where it is said what is waited for.
    """
    kind, _, place = address.partition(":")
    if kind == "local" and (not place or (place.isdigit() and int(place))):
        return LocalEngine(count_threads(int(place) if place else None))
    if kind in ("dask", "ray") and place:
        return DaskEngine(place, progress) if kind == "dask" else RayEngine(place)
    raise SettingError(f'there is no engine "{address}"', hint=_HINT)
