"""The models that are served: loading, checking, and replacing them while requests go on."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from longtail.decisions.constraints import Constraints
from longtail.errors import BundleError, LongtailError
from longtail.service.answers import PredictOptions, predict_texts
from longtail.service.cards import describe_further, describe_model
from longtail.service.catalogue import LabelCatalogue
from longtail.service.errors import ServiceError
from longtail.service.metrics import Metrics
from longtail.tagger.bundle import MANIFEST, load_manifest
from longtail.tagger.bundle_files import DATA_FILE
from longtail.tagger.tagger import Tagger, load

PROBE = "A text that shows whether the model can predict."
_N_ATTEMPTS = 3  # of loading a model that is replaced meanwhile
_N_KEPT = 64  # constraints of requests whose labels are kept

Stamp = tuple[tuple[str, int, int, int], ...]  # name, inode, size and time of the files of a model

log = logging.getLogger("longtail.serve")


@dataclass(frozen=True, eq=False)
class ServedModel:
    """One version of a model. It never changes: a new version is another object, and requests keep the one they have."""

    name: str
    folder: Path
    tagger: Tagger
    version: str
    trained: str  # when its manifest was written, ISO 8601
    n_bytes: int

    @cached_property
    def catalogue(self) -> LabelCatalogue:
        """The labels, for people."""
        return LabelCatalogue(self.tagger)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What a list of models shows."""
        return describe_model(self.name, self.version, self.trained, self.tagger)

    @cached_property
    def card(self) -> dict[str, Any]:
        """The model card."""
        return {**self.summary, **describe_further(self.tagger, self.catalogue, self.n_bytes)}

    def prepare(self) -> None:
        """Build what requests need, so that none of them waits for it: with a million labels, that takes seconds."""
        labels = self.tagger.labels
        _ = self.card, self.catalogue.index, labels.ids, labels.keys, labels.hierarchy.children

    @cached_property
    def find_constraints(self) -> Any:
        """Return the constraints of a request; the last ones are kept, because finding their labels takes time."""
        return lru_cache(_N_KEPT)(lambda allow, deny, subtrees: Constraints(allow=allow, deny=deny, subtrees=subtrees))


def read_model(name: str, folder: Path, threads: int | None) -> ServedModel:
    """Load a model, check its hashes, and predict the labels of a text with it."""
    for _ in range(_N_ATTEMPTS):
        before = (folder / MANIFEST).read_bytes() if (folder / MANIFEST).is_file() else b""
        manifest = load_manifest(folder)
        tagger = load(folder).configure(threads=threads)
        if before == (folder / MANIFEST).read_bytes():
            break
    else:
        raise BundleError("the model was replaced while it was loaded", where=str(folder), hint="Try again later")
    written = datetime.fromtimestamp((folder / MANIFEST).stat().st_mtime, UTC).isoformat(timespec="seconds")
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    model = ServedModel(name, folder, tagger, hashlib.sha256(before).hexdigest()[:12], written, size)
    model.prepare()
    if tagger.reads_texts:
        predict_texts(model, [PROBE], PredictOptions(explain=True))
    return model


class ModelStore:
    """The models by name. Only folders that were named at the start are ever read."""

    def __init__(self, folders: Mapping[str, Path], threads: int | None, metrics: Metrics) -> None:
        self.folders, self.threads, self.metrics = dict(folders), threads, metrics
        self.models: dict[str, ServedModel] = {}
        self._reloading = asyncio.Lock()
        self._seen: dict[str, Stamp | None] = {}  # files that were loaded, or could not be

    @property
    def default(self) -> str:
        """The name of the model that requests mean if they name none."""
        return next(iter(self.folders))

    def load_all(self) -> None:
        """Load every model; an error if one of them cannot be loaded."""
        for name, folder in self.folders.items():
            self._seen[name] = _stamp(folder)  # before it is read, so that a change meanwhile is noticed
            self._install(model := read_model(name, folder, self.threads))
            if not model.tagger.reads_texts:
                log.warning(
                    "the model %s reads feature vectors: the service shows its card and labels, but cannot predict", name
                )

    def get(self, name: str | None = None) -> ServedModel:
        """Return a model."""
        name = self.default if name is None else name
        if name not in self.models:
            raise ServiceError(404, f'there is no model "{name[:100]}"', hint=f"There are: {', '.join(self.models)}")
        return self.models[name]

    async def reload(self, name: str) -> ServedModel:
        """Load a model again, beside the present one, and replace it. If that fails, the present one stays."""
        self.get(name)
        async with self._reloading:
            try:
                model = await asyncio.to_thread(read_model, name, self.folders[name], self.threads)
            except (LongtailError, OSError) as error:
                self.metrics.reloads.labels("failed").inc()
                log.error("the model %s was not loaded again, the present one stays: %s", name, error)
                raise
            old = self.models[name]
            if model.version == old.version:
                log.info("the model %s was loaded again: it is still version %s", name, old.version)
                return old
            self.metrics.model_info.remove(name, old.version)
            self._install(model)
            self.metrics.reloads.labels("loaded").inc()
            log.info("the model %s was loaded again: version %s replaces %s", name, model.version, old.version)
            return model

    async def watch(self, seconds: float) -> None:
        """Load models again when their files have changed, and have been the same for one check; never returns.

        A copy that takes long is not loaded before it is complete, and one that was stopped is loaded when it is completed.
        """
        last = dict(self._seen)
        while True:
            await asyncio.sleep(seconds)
            for name, folder in self.folders.items():
                stamp = await asyncio.to_thread(_stamp, folder)
                is_still, last[name] = stamp == last[name], stamp
                if is_still and stamp not in (None, self._seen[name]):
                    self._seen[name] = stamp
                    await self.try_reload(name)

    async def try_reload(self, name: str) -> None:
        """Load a model again; an error is logged only."""
        (result,) = await asyncio.gather(self.reload(name), return_exceptions=True)
        if isinstance(result, Exception) and not isinstance(result, (LongtailError, OSError)):  # these are logged already
            log.error("the model %s was not loaded again, the present one stays: %s", name, type(result).__name__)

    async def try_reload_all(self) -> None:
        """Load all models again; errors are logged only."""
        for name in self.folders:
            await self.try_reload(name)

    def _install(self, model: ServedModel) -> None:
        self.models[model.name] = model
        self.metrics.model_info.labels(model.name, model.version).set(1)


def _stamp(folder: Path) -> Stamp | None:
    """What changes when a file of a model is written or replaced; None if there is no manifest at the moment.

    Other files in the folder, such as feedback, do not count.
    """
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == MANIFEST or DATA_FILE.fullmatch(entry.name):
                    status = entry.stat()
                    found.append((entry.name, status.st_ino, status.st_size, status.st_mtime_ns))
    except OSError:  # no such folder, or a file was removed meanwhile
        return None
    return tuple(sorted(found)) if any(name == MANIFEST for name, *_ in found) else None
