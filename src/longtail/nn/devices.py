"""Where torch computes: on which device, and with how many threads of the CPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from longtail.errors import SettingError
from longtail.kernels import count_threads
from longtail.nn.ranks import count_ranks, name_device

# A trial trains a layer of a size that is usual here. One with more threads is run twice, and the slower time counts:
# another process that takes a core away does so only some of the time.
_TRIAL_ROUNDS, _TRIAL_ROWS, _TRIAL_DIM = 16, 128, 256
_MIN_SPEED_UP = 1.2  # of twice as many threads; below, they are not worth the risk
_SECONDS_MANY, _SECONDS_ONE = 5.0, 20.0  # how long a choice of several threads, or of one, is valid


class _Scope(threading.local):
    """The innermost ``torch_threads`` of a Python thread."""

    limit: int | None = None  # number of threads, or the maximum of an automatic number; None: there is no scope
    is_automatic: bool = False


@dataclass
class _Process:
    """What the Python threads of the process share."""

    n_scopes: int = 0
    default: int = 1  # torch's number of threads outside of all scopes
    tried: int = 0  # maximum number of threads of the last trial
    fastest: int = 1  # its result
    valid_until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


AUTO_DEVICE = "auto"
_scope, _process = _Scope(), _Process()


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Set the number of torch's threads, and restore it afterwards.

    :param threads: A number, or None for the fastest number up to torch's own (``torch.get_num_threads``). If other
        processes are running, several threads can be 10 to 100 times slower than one: each operation waits for its slowest
        thread. So the number is chosen by a short trial, and again by ``adapt_threads``. A rank of several always uses
        torch's own number: all must compute in the same way.
    """
    if threads is None and count_ranks() > 1:
        threads = torch.get_num_threads()
    limit = None if threads is None else count_threads(threads)
    outer = _scope.limit, _scope.is_automatic
    with _process.lock:
        if not _process.n_scopes:
            _process.default = torch.get_num_threads()
        _process.n_scopes += 1
    try:
        _scope.limit, _scope.is_automatic = limit or outer[0] or _process.default, limit is None
        torch.set_num_threads(_scope.limit)
        adapt_threads()
        yield
    finally:
        _scope.limit, _scope.is_automatic = outer
        torch.set_num_threads(outer[0] or _process.default)
        adapt_threads()
        with _process.lock:
            _process.n_scopes -= 1


def adapt_threads() -> None:
    """Inside ``torch_threads(None)``: choose the number of threads again if the last choice is out of date."""
    limit = _scope.limit
    if limit is None or not _scope.is_automatic:
        return
    if _process.tried != limit or time.monotonic() > _process.valid_until:
        _process.tried, _process.fastest = limit, _find_fastest(limit)
        _process.valid_until = time.monotonic() + (_SECONDS_ONE if _process.fastest == 1 else _SECONDS_MANY)
    torch.set_num_threads(_process.fastest)


def _find_fastest(limit: int) -> int:
    """Double the number of threads as long as that is clearly faster."""
    best = 1
    seconds = min(_time_trial(1), _time_trial(1)) if limit > 1 else 0.0
    while best < limit:
        more = min(2 * best, limit)
        wanted = seconds / _MIN_SPEED_UP
        took = _time_trial(more, wanted)
        took = took if took > wanted else max(took, _time_trial(more, wanted))
        if took > wanted:
            break
        best, seconds = more, took
    return best


@torch.no_grad()
def _time_trial(threads: int, give_up: float = float("inf")) -> float:
    """Seconds of forward and backward passes through a layer; more than ``give_up`` if it takes longer than that."""
    torch.set_num_threads(threads)
    X, W = torch.ones(_TRIAL_ROWS, _TRIAL_DIM), torch.ones(_TRIAL_DIM, _TRIAL_DIM)
    start = time.perf_counter()
    for _ in range(_TRIAL_ROUNDS):
        H = torch.mm(X, W).relu_()
        torch.mm(X.T, H)
        torch.mm(H, W.T)
        if time.perf_counter() - start > give_up:
            break
    return time.perf_counter() - start


def find_device(name: str) -> torch.device:
    """Check that torch has the device of this name, and return it. auto: a GPU if there is one, otherwise the CPU."""
    if name == AUTO_DEVICE:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name_device(name)).device
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without that kind of device
        raise SettingError(f'device is "{name}", which torch does not find here', hint="Use cpu") from error
