"""Where a model is trained: in this process, on a cluster, or in several processes of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from longtail.errors import SettingError
from longtail.model import Model
from longtail.progress import Progress
from longtail.registry import find_method_name
from longtail.settings import Settings

_Result = TypeVar("_Result")
_NetworkSettings = TypeVar("_NetworkSettings", bound=Settings)


def check_can_shard(model: Model) -> None:
    """Raise an error if the training of a model cannot be divided into shards, for a cluster."""
    if not model.can_shard:
        hint = "Choose a method with linear classifiers, or leave the cluster out"
        if model.trains_network:
            hint = "Several processes of this machine train its network with --ddp N, in Python fit(…, processes=N)"
        raise SettingError(f"{find_method_name(type(model))} cannot be trained on a cluster", hint=hint)


def check_processes(model: Model, n: int) -> None:
    """Raise an error if there is no network that several processes could train, or no GPU for each of them.

    :param n: The number of processes.
    """
    if not model.trains_network:
        hint = "Divide its training with --cluster local:N" if model.can_shard else "Leave the number of processes out"
        raise SettingError(f"{find_method_name(type(model))} trains no network", hint=hint)
    if device := model.get_params().get("device"):
        from longtail.nn.ranks import check_devices  # imports torch

        check_devices(n, device)


def get_network_settings(model: Model, kind: type[_NetworkSettings]) -> _NetworkSettings:
    """Return the settings for the training of a network. Several processes always need a checkpoint.

    :param kind: The class of the settings.
    """
    params = model.get_params()
    if model.processes is not None and not params["checkpoint"]:
        params["checkpoint"] = model.processes.name_checkpoint()
    return kind(**params)


def train_network(model: Model, fit: Callable[..., _Result], *arguments: Any, progress: Progress) -> _Result:
    """Call a function that trains a network: here, or in several processes.

    :param fit: A function of a module, with a parameter ``progress``.
    """
    if model.processes is None:
        return fit(*arguments, progress=progress)
    result: _Result = model.processes.run(fit, arguments, model.get_params()["device"], progress)
    return result
