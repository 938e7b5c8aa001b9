"""Devices and threads: a fixed number of threads is used as given, otherwise a trial decides."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from longtail.errors import SettingError
from longtail.nn import devices
from longtail.nn.devices import adapt_threads, find_device, torch_threads


class Clock:
    """Seconds of a trial by number of threads, and the time between trials."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: dict[int, list[float]] = {}
        self.trials: list[int] = []
        self.now = 1000.0
        monkeypatch.setattr(devices, "_process", devices._Process())
        monkeypatch.setattr(devices, "_time_trial", self.time_trial)
        monkeypatch.setattr(devices.time, "monotonic", lambda: self.now)

    def time_trial(self, threads: int, give_up: float = float("inf")) -> float:
        self.trials.append(threads)
        times = self.seconds[threads]
        return times[self.trials.count(threads) % len(times)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield Clock(monkeypatch)
    torch.set_num_threads(before)


def test_a_fixed_number_of_threads_is_used_and_restored(clock: Clock) -> None:
    with pytest.raises(ZeroDivisionError), torch_threads(3):
        assert torch.get_num_threads() == 3
        adapt_threads()
        assert torch.get_num_threads() == 3
        raise ZeroDivisionError
    assert torch.get_num_threads() == 4 and not clock.trials
    with pytest.raises(SettingError, match="threads is 0"), torch_threads(0):
        pass
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({1: [1.0], 2: [0.55], 4: [0.3]}, 4),  # all cores are free
        ({1: [1.0], 2: [0.55], 4: [0.5]}, 2),  # two of them
        ({1: [1.0], 2: [0.9]}, 1),  # not clearly faster
        ({1: [1.0], 2: [0.55, 30.0]}, 1),  # another process takes a core away, some of the time
        ({1: [1.0, 9.0], 2: [2.0]}, 1),  # one thread was only slow once
    ],
)
def test_threads_double_as_long_as_that_is_clearly_faster(
    clock: Clock, seconds: dict[int, list[float]], expected: int
) -> None:
    clock.seconds = seconds
    with torch_threads(None):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 4


def test_a_choice_is_valid_for_some_seconds_then_tried_again(clock: Clock) -> None:
    clock.seconds = {1: [1.0], 2: [0.55], 4: [0.3]}
    with torch_threads(None):
        n = len(clock.trials)
        clock.now += devices._SECONDS_MANY - 1
        adapt_threads()
        assert len(clock.trials) == n and torch.get_num_threads() == 4
        clock.seconds, clock.now = {1: [1.0], 2: [30.0]}, clock.now + 2  # the machine is busy now
        adapt_threads()
        assert torch.get_num_threads() == 1
    n = len(clock.trials)
    clock.now += devices._SECONDS_ONE - 1
    with torch_threads(None):
        assert len(clock.trials) == n and torch.get_num_threads() == 1
    clock.now += 2
    with torch_threads(None):
        assert len(clock.trials) > n


def test_a_limit_of_one_needs_no_trial(clock: Clock) -> None:
    with torch_threads(1), torch_threads(None):
        assert torch.get_num_threads() == 1
    torch.set_num_threads(1)
    with torch_threads(None):
        assert torch.get_num_threads() == 1
    assert not clock.trials


def test_python_threads_do_not_change_each_others_limit(clock: Clock) -> None:
    """A thread that starts inside a scope of another gets its number from torch, but not as its maximum."""
    clock.seconds = {1: [1.0], 2: [0.55], 4: [0.3]}

    def predict() -> tuple[int, int]:
        with torch_threads(None):
            inside = torch.get_num_threads()
        return inside, torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        with torch_threads(1):
            assert pool.submit(predict).result() == (4, 4)
        assert pool.submit(predict).result() == (4, 4)
    assert torch.get_num_threads() == 4


def test_scopes_can_be_nested(clock: Clock) -> None:
    clock.seconds = {1: [1.0], 2: [0.55], 4: [0.3], 3: [0.2]}
    with torch_threads(None):
        with torch_threads(1):
            with torch_threads(None):
                assert torch.get_num_threads() == 1
            with torch_threads(2):
                assert torch.get_num_threads() == 2
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 4
    assert torch.get_num_threads() == 4


def test_a_trial_stops_when_it_takes_too_long() -> None:
    before = torch.get_num_threads()
    whole = devices._time_trial(1)
    assert 0 < devices._time_trial(1, give_up=0.0) < whole
    torch.set_num_threads(before)


def test_devices_are_found_by_name() -> None:
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(SettingError, match='device is "gpu", which torch does not find here'):
        find_device("gpu")
