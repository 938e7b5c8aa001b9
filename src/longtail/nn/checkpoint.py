"""Checkpoints of a training run: from its file, a run that was killed continues to the same weights."""

from __future__ import annotations

import json
import pickle
import zipfile
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.errors import DataError
from longtail.files import open_atomic
from longtail.nn.ranks import get_rank, wait_for_ranks

_READ_ERRORS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, ValueError)
_LOAD_ERRORS = (RuntimeError, ValueError, LookupError, TypeError)  # from networks and optimisers of other shapes

_POSITION = "-{}-{}"  # end of the name of a rank's checkpoint: epochs and batches


class Stateful(Protocol):
    """A part of a run: a network, an optimiser, an average of weights, the run itself."""

    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...  # noqa: D102


def save_checkpoint(path: str | Path, settings: dict[str, Any], parts: Mapping[str, Stateful]) -> None:
    """Write the states of all parts of a run to a file, and the settings that it must continue with."""
    state = {"plan": settings, **{name: part.state_dict() for name, part in parts.items()}}
    with open_atomic(path) as stream:
        torch.save(state, stream)


def save_of_each_rank(
    path: str | Path, settings: dict[str, Any], parts: Mapping[str, Stateful], done: tuple[int, int]
) -> None:
    """Write a checkpoint of each rank, for networks of which each has a part. The first rank's is valid once all are there.

    :param done: Epochs, and batches of the current epoch, that are done.
    """
    own = name_own_checkpoint(path, done)
    if get_rank():
        save_checkpoint(own, settings, parts)
    wait_for_ranks()
    if not get_rank():
        save_checkpoint(path, settings, parts)
    wait_for_ranks()
    start = own.name.removesuffix(_POSITION.format(*done))
    for former in own.parent.iterdir() if get_rank() else ():
        if former.name.startswith(start) and former != own:
            former.unlink()


def name_own_checkpoint(path: str | Path, done: tuple[int, int]) -> Path:
    """Name the checkpoint of a rank other than the first. It goes with that of the first after the same batch."""
    path = Path(path)
    return path.with_name(f"{path.name}.rank{get_rank()}{_POSITION.format(*done)}")


def load_checkpoint(path: str | Path, settings: dict[str, Any], parts: Mapping[str, Stateful]) -> None:
    """Load the states that ``save_checkpoint`` wrote into the parts of a run. Refuse a file with other settings."""
    where, hint = str(path), "Give another file, or remove this one to start again"
    try:
        state = _read(path)
    except _READ_ERRORS as error:
        raise DataError(f"not a checkpoint, or a damaged one ({error})", where=where, hint=hint) from error
    try:
        before = state["plan"]
        if other := [name for name in settings if name not in before or before[name] != settings[name]]:
            raise DataError(f"the checkpoint is from a run with other settings ({', '.join(other)})", where=where, hint=hint)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except _LOAD_ERRORS as error:
        raise DataError(f"the checkpoint does not fit this run ({error})", where=where, hint=hint) from error


def _read(path: str | Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:  # torch writes a checksum of each member, but does not check it
        if (member := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"the checksum of {member} is wrong")
    state = torch.load(path, weights_only=True)
    if not isinstance(state, dict):
        raise ValueError(f"it holds a {type(state).__name__}")
    return state


def to_plain_types(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON has them, so that those of a file and of a program compare equal."""
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=lambda number: number.item()))
    return plain


def fingerprint(*arrays: NDArray[Any]) -> str:
    """A hash of arrays: equal for equal data."""
    digest = sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
