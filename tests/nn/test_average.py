from __future__ import annotations

import copy

import pytest
import torch

from longtail.errors import SettingError
from longtail.nn.average import WeightAverage


class Net(torch.nn.Module):
    """One parameter, and a counter as batch normalisation has one."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        self.register_buffer("count", torch.tensor(0))

    def become(self, *values: float) -> None:
        with torch.no_grad():
            self.w.copy_(torch.tensor(values))
            self.count += 1


PATH = [(1.0, 0.0), (3.0, 2.0), (8.0, -5.0), (4.0, 7.0)]


def after(kind: str, **settings: float) -> tuple[Net, WeightAverage]:
    """Two steps an epoch, along the path."""
    net = Net()
    average = WeightAverage(net, kind, **settings)  # type: ignore[arg-type]
    for step, values in enumerate(PATH):
        net.become(*values)
        average.after_step()
        if step % 2:
            average.after_epoch(step // 2)
    return net, average


def test_swa_is_the_mean_of_the_ends_of_the_epochs() -> None:
    net, average = after("swa")
    average.swap()
    assert net.w.tolist() == [(3 + 4) / 2, (2 + 7) / 2]


@pytest.mark.parametrize(("start", "expected"), [(1, [4.0, 7.0]), (2, [4.0, 7.0])])
def test_swa_begins_at_an_epoch(start: int, expected: list[float]) -> None:
    """Epoch 1 is the last; a start after it leaves no average, and the weights as they are."""
    net, average = after("swa", start=start)
    assert average.n == 2 - start
    average.swap()
    assert net.w.tolist() == expected


def test_ema_is_a_plain_mean_at_first() -> None:
    """Of n steps the share of the last is 1/n, until that is below 1 − decay."""
    net, average = after("ema", decay=0.6)  # shares 1, 1/2, 0.4, 0.4
    average.swap()
    by_hand = []
    for values in zip(*PATH, strict=True):
        mean = (values[0] + values[1]) / 2
        for value in values[2:]:
            mean = 0.6 * mean + 0.4 * value
        by_hand.append(mean)
    assert net.w.tolist() == pytest.approx(by_hand)
    net, average = after("ema", decay=0.99)
    average.swap()
    assert net.w.tolist() == pytest.approx([sum(values) / 4 for values in zip(*PATH, strict=True)])


@pytest.mark.parametrize("kind", ["swa", "ema"])
def test_to_exchange_twice_changes_nothing(kind: str) -> None:
    net, average = after(kind)
    before, averaged = net.w.tolist(), average.weights["w"].tolist()
    average.swap()
    assert net.w.tolist() == averaged != before and average.weights["w"].tolist() == before
    average.swap()
    assert net.w.tolist() == before and average.weights["w"].tolist() == averaged


def test_whole_numbers_are_taken_over_not_averaged() -> None:
    net, average = after("ema")
    average.swap()
    assert int(net.count) == len(PATH)


def test_none_keeps_nothing() -> None:
    net, average = after("none")
    average.swap()
    assert not average.weights and net.w.tolist() == list(PATH[-1])


def test_the_network_goes_on_without_touching_its_average() -> None:
    net, average = after("swa")
    net.become(100.0, 100.0)
    assert average.weights["w"].tolist() == [3.5, 4.5]


@pytest.mark.parametrize("kind", ["swa", "ema"])
def test_a_checkpoint_goes_on(kind: str) -> None:
    net, average = after(kind)
    again = WeightAverage(net, kind)
    again.load_state_dict(copy.deepcopy(average.state_dict()))
    net.become(9.0, 9.0)
    for one in (average, again):
        one.after_step()
        one.after_epoch(2)
    assert torch.equal(average.weights["w"], again.weights["w"])
    assert not torch.equal(average.weights["w"], net.w)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SettingError, match=r'there is no average "emma"\. Did you mean "ema"'):
        WeightAverage(Net(), "emma")


def test_ema_can_look_at_some_steps_only() -> None:
    net, average = after("ema", decay=0.6, every=2)
    average.swap()
    assert net.w.tolist() == [(3 + 4) / 2, (2 + 7) / 2] and average.n == 2


def test_weights_that_two_layers_share_are_restored() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    average = WeightAverage(net, "ema", decay=0.5)
    for value in (1.0, 2.0):
        torch.nn.init.constant_(net[0].weight, value)
        average.after_step()
    average.swap()
    assert net[0].weight is net[1].weight and net[1].weight.tolist() == [[1.5, 1.5], [1.5, 1.5]]
    average.swap()
    assert net[1].weight.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_an_exchange_copies_nothing() -> None:
    net, average = after("ema")
    places = net.w.data_ptr(), average.weights["w"].data_ptr()
    average.swap()
    assert (average.weights["w"].data_ptr(), net.w.data_ptr()) == places
