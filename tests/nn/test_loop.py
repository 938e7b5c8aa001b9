"""The training loop: a killed run goes on to the same bits; the best weights are kept; faults are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtail.errors import DataError, LongtailError, SettingError
from longtail.nn import loop
from longtail.nn.loop import Plan, Run, fingerprint, torch_threads, train
from longtail.nn.optim import Joint, LazyAdam, RowAdagrad, RowOptimizer, RowSgd
from longtail.nn.sparse_embedding import RowTable
from longtail.progress import SILENT, Progress, Stage

STEPS = 3


class Killed(Exception):
    pass


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = RowTable(6, 2)
        self.dense = torch.nn.Linear(2, 1)


def fitted(
    optimizer: type[RowOptimizer] = RowSgd,
    kill_at: int | None = None,
    metric: Any = None,
    net: Net | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> tuple[Net, Run]:
    """Three steps an epoch on random ids, with noise as dropout has it; killed in the loss of some step."""
    net, calls = net or Net(), [0]

    def batches(rng: np.random.Generator) -> Any:
        return iter(rng.integers(0, 6, (STEPS, 4)))

    def loss(ids: Any) -> torch.Tensor:
        calls[0] += 1
        if calls[0] == kill_at:
            raise Killed
        out = net.dense(net.rows.lookup(ids) * (torch.rand(4, 2) < 0.8)).squeeze(1)
        return (out - torch.tensor(ids).float()).square().mean()

    both = Joint(optimizer(net.rows, lr=0.1), torch.optim.AdamW(net.dense.parameters(), lr=0.1))
    run = train(
        net, batches, loss, both, Plan(**{"epochs": 3, "steps": STEPS, **settings}), metric=metric, progress=progress
    )
    return net, run


@pytest.mark.parametrize("optimizer", [RowSgd, LazyAdam])
@pytest.mark.parametrize(
    ("n", "schedule", "average"), [(32, "linear", "none"), (32, "slanted", "ema"), (40, "constant", "ema")]
)
def test_two_batches_of_8_are_one_of_16(optimizer: type[RowOptimizer], n: int, schedule: str, average: str) -> None:
    """The odd batch at the end of an epoch of 5 is an update of its own."""
    ids = np.random.default_rng(0).integers(0, 6, n)

    def trained(size: int, accumulate: int) -> Net:
        net = Net()

        def batches(_: np.random.Generator) -> Any:
            return iter(np.split(ids, np.arange(size, n, size)))

        def loss(some: Any) -> torch.Tensor:
            out = net.dense(net.rows.lookup(some)).squeeze(1)
            return (out - torch.tensor(some).float()).square().mean()

        both = Joint(optimizer(net.rows, lr=0.1), torch.optim.AdamW(net.dense.parameters(), lr=0.1))
        setting: dict[str, Any] = {"clip": 0.5, "schedule": schedule, "average": average}
        train(net, batches, loss, both, Plan(epochs=2, steps=-(-n // size), accumulate=accumulate, **setting))
        return net

    one, two, other = trained(16, 1), trained(8, 2), trained(8, 1)
    for name, weight in one.state_dict().items():
        torch.testing.assert_close(two.state_dict()[name], weight)
        assert not torch.allclose(other.state_dict()[name], weight)
    with pytest.raises(SettingError, match="accumulate is 0"):
        trained(8, 0)


def test_a_group_is_trained_from_the_epoch_that_it_thaws() -> None:
    net = Net()
    start = {name: weight.clone() for name, weight in net.state_dict().items()}
    epochs = iter([("dense.bias",), ("dense.bias",), tuple(start)])

    def metric() -> float:
        moved = {name for name, weight in net.state_dict().items() if not torch.equal(weight, start[name])}
        assert moved == set(next(epochs))
        return 0.0

    groups = [{"params": [net.dense.weight], "thaws": 2}, {"params": [net.dense.bias]}]
    both = Joint(RowSgd(net.rows, lr=0.1), torch.optim.AdamW(groups, lr=0.1))
    both.param_groups[0]["thaws"] = 2
    batches = [np.array([0, 1, 2, 3, 4, 5])]
    plan = Plan(epochs=3, steps=1)
    train(net, lambda _: batches, lambda ids: net.dense(net.rows.lookup(ids)).sum(), both, plan, metric=metric)


@pytest.mark.parametrize("optimizer", [RowSgd, RowAdagrad, LazyAdam])
@pytest.mark.parametrize(("average", "accumulate"), [("none", 1), ("swa", 1), ("ema", 1), ("ema", 2)])
def test_a_run_killed_at_any_step_goes_on_to_the_same_bits(
    optimizer: type[RowOptimizer], average: str, accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_EVERY", -1.0)  # after every step
    setting: dict[str, Any] = {"average": average, "accumulate": accumulate, "schedule": "linear", "epochs": 2}
    whole, _ = fitted(optimizer, **setting)
    for kill_at in range(1, 2 * STEPS + 1):
        file = tmp_path / f"{kill_at}.ckpt"
        with pytest.raises(Killed):
            fitted(optimizer, kill_at=kill_at, checkpoint=file, **setting)
        again, run = fitted(optimizer, checkpoint=file, **setting)
        assert [row["epoch"] for row in run.history] == [1, 2]
        for name, weight in whole.state_dict().items():
            assert torch.equal(weight, again.state_dict()[name]), (kill_at, name)


@pytest.mark.parametrize("every", [-1.0, 300.0])  # a checkpoint after every step, or after every epoch alone
def test_a_run_killed_in_its_metric_goes_on_to_the_same_best_weights(
    every: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a resumed run knows is from the file: its network starts elsewhere, and its metric depends on the weights."""
    monkeypatch.setattr(loop, "CHECKPOINT_EVERY", every)

    def run_with(net: Net, kill_in_epoch: int | None = None, **more: Any) -> tuple[Net, Run]:
        calls = iter(range(1, 9))

        def metric() -> float:
            if next(calls) == kill_in_epoch:
                raise Killed
            return -net.dense(net.rows.weight).sub(2).square().sum().item()

        return fitted(LazyAdam, metric=metric, net=net, average="ema", patience=4, epochs=5, **more)

    whole, expected = run_with(Net())
    for epoch in (1, 2, 3, 5):
        file = tmp_path / f"{epoch}.ckpt"
        with pytest.raises(Killed):
            run_with(Net(), epoch, checkpoint=file)
        net = Net()
        if file.exists():
            torch.nn.init.constant_(net.rows.weight, 9.0)
        assert file.exists() == (every < 0 or epoch > 1)
        again, run = run_with(net, checkpoint=file)
        assert (run.best, run.best_epoch) == (expected.best, expected.best_epoch)
        assert [row["metric"] for row in run.history] == [row["metric"] for row in expected.history]
        assert [row["loss"] for row in run.history] == [row["loss"] for row in expected.history]
        assert same(whole, again)


def test_a_run_may_be_killed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_EVERY", -1.0)
    for _ in range(3 * STEPS - 1):  # one step each time
        with pytest.raises(Killed):
            fitted(kill_at=2, checkpoint=tmp_path / "c", average="swa", log=tmp_path / "log")
    again, _ = fitted(checkpoint=tmp_path / "c", average="swa", log=tmp_path / "log", kill_at=2)  # one is left
    assert same(again, fitted(average="swa")[0])
    assert [json.loads(line)["epoch"] for line in (tmp_path / "log").read_text().splitlines()] == [1, 2, 3]


def same(net: Net, other: Net) -> bool:
    return all(torch.equal(weight, other.state_dict()[name]) for name, weight in net.state_dict().items())


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    net, _ = fitted(checkpoint=tmp_path / "c")
    again, _ = fitted(checkpoint=tmp_path / "c", kill_at=1)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True))


def test_a_checkpoint_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    fitted(checkpoint=tmp_path / "c")
    with pytest.raises(DataError, match="other settings"):
        fitted(checkpoint=tmp_path / "c", seed=1)
    (tmp_path / "c").write_bytes(b"not a checkpoint")
    with pytest.raises(DataError, match="damaged"):
        fitted(checkpoint=tmp_path / "c")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"epochs": 4}, "epochs"),
        ({"schedule": "cosine", "clip": 1.0}, "schedule, clip"),
        ({"of": {"weight": 2.0, "data": "a"}}, "weight"),
        ({"of": {"weight": 1.0, "data": "b"}}, "data"),
        ({"of": {"weight": 1.0, "data": "a", "new": 1}}, "new"),
    ],
)
def test_the_settings_that_differ_are_named(change: dict[str, Any], names: str, tmp_path: Path) -> None:
    of = {"weight": np.float64(1), "data": "a", "threads": 1}
    fitted(checkpoint=tmp_path / "c", of=of)
    with pytest.raises(DataError, match=rf"c: the checkpoint is of a run with other settings \({names}\)\. Give another"):
        fitted(checkpoint=tmp_path / "c", **{"of": of, **change})
    free = {"patience": 2, "name": "x", "log": tmp_path / "log"}  # these do not change what a step does
    fitted(checkpoint=tmp_path / "c", of={"weight": 1.0, "data": "a", "threads": 2}, kill_at=1, **free)


def test_a_checkpoint_of_another_network_or_optimiser_is_refused(tmp_path: Path) -> None:
    fitted(checkpoint=tmp_path / "c")
    wide = Net()
    wide.dense = torch.nn.Linear(2, 3)
    for net, optimizer in ((wide, torch.optim.SGD(wide.dense.parameters())), (Net(), torch.optim.SGD(Net().parameters()))):
        plan = Plan(epochs=3, steps=STEPS, checkpoint=tmp_path / "c")
        with pytest.raises(DataError, match="does not fit this run"):
            train(net, lambda rng: [0], lambda batch: net.dense.weight.sum(), optimizer, plan)  # noqa: B023


def test_whatever_byte_is_damaged_it_is_refused_or_did_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "c"
    net, _ = fitted(checkpoint=file)
    whole, refused = file.read_bytes(), 0
    for at in [*range(0, len(whole), len(whole) // 60), *range(len(whole) - 20, len(whole))]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert same(net, fitted(checkpoint=file)[0])
        except DataError as error:
            refused += 1
            assert "c: " in str(error) and "remove this one to start anew" in str(error)
    assert refused > 20
    for half in (whole[: len(whole) // 2], whole[:-1], whole[1:], b""):
        file.write_bytes(half)
        with pytest.raises(DataError, match="no checkpoint, or a damaged one"):
            fitted(checkpoint=file)
    weight = next(at for at in range(len(whole)) if whole.startswith(net.rows.weight.detach().numpy().tobytes(), at))
    file.write_bytes(whole[:weight] + b"\0" + whole[weight + 1 :])
    with pytest.raises(DataError, match="is not as it was written"):
        fitted(checkpoint=file)


@pytest.mark.parametrize("content", ["a text", [1, 2], {"plan": {}}, {"plan": np.int64(1)}])
def test_other_files_of_torch_are_refused(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "c")
    found = "other settings" if content == {"plan": {}} else "no checkpoint, or a damaged one"
    with pytest.raises(DataError, match=found):
        fitted(checkpoint=tmp_path / "c")
    with pytest.raises(DataError, match="no checkpoint"):
        fitted(checkpoint=tmp_path)


def test_the_best_weights_are_kept_and_patience_ends_the_run() -> None:
    values = iter([1.0, 3.0, 2.0, 2.5, 9.0])
    net, run = fitted(epochs=5, patience=2, metric=lambda: next(values))
    assert [row["metric"] for row in run.history] == [1.0, 3.0, 2.0, 2.5]  # 9.0 was never reached
    assert run.best == 3.0 and run.best_epoch == 1
    two, _ = fitted(epochs=2, schedule="constant")
    assert torch.equal(net.dense.weight, two.dense.weight)


def test_without_a_metric_the_averaged_weights_are_left() -> None:
    ends = [fitted(epochs=n)[0].dense.weight for n in (1, 2, 3)]
    mean, _ = fitted(epochs=3, average="swa")
    assert torch.allclose(mean.dense.weight, torch.stack(ends).mean(0), atol=1e-6)


@pytest.mark.parametrize("average", ["none", "swa"])
def test_the_metric_measures_the_averaged_weights_and_the_best_of_them_are_left(average: str) -> None:
    net, measured, modes = Net(), [], []

    def metric() -> float:
        measured.append(net.dense.weight.detach().clone())
        modes.append(net.training)
        return [1.0, 5.0, 4.0][len(measured) - 1]

    fitted(net=net, metric=metric, average=average)
    ends = [fitted(epochs=n)[0].dense.weight.detach() for n in (1, 2, 3)]
    expected = [torch.stack(ends[: n + 1]).mean(0) for n in range(3)] if average == "swa" else ends
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(measured, expected, strict=True))
    assert torch.equal(net.dense.weight, measured[1])
    assert modes == [False] * 3 and not net.training


def test_with_dropout_the_network_trains_and_only_then() -> None:
    net, modes = torch.nn.Linear(1, 1), []

    def loss(batch: Any) -> torch.Tensor:
        modes.append(net.training)
        return net.weight.sum()

    plan = Plan(epochs=2, steps=1)
    train(net, lambda rng: [0], loss, torch.optim.SGD(net.parameters(), lr=0.1), plan, metric=lambda: 0.0)
    assert modes == [True, True] and not net.training


def test_patience_counts_from_the_best_epoch() -> None:
    for patience, expected in ((0, 6), (1, 3), (2, 6), (3, 6)):
        values = iter([1.0, 2.0, 1.0, 3.0, 2.0, 1.0])
        _, run = fitted(epochs=6, patience=patience, metric=lambda values=values: next(values))
        assert len(run.history) == expected
    _, run = fitted(epochs=4, patience=1)  # nothing is measured, so nothing gets worse
    assert len(run.history) == 4


def test_the_order_is_drawn_from_the_seed_and_the_epoch() -> None:
    orders: dict[int, list[list[int]]] = {}
    for seed in (0, 1, 0):
        orders[seed], net = [], Net()

        def batches(rng: np.random.Generator, seed: int = seed) -> Any:
            orders[seed].append(rng.permutation(50).tolist())
            return [0]

        plan = Plan(epochs=2, steps=1, seed=seed)
        train(net, batches, lambda b: net.dense.weight.sum(), torch.optim.SGD(net.parameters()), plan)  # noqa: B023
    assert orders[0][0] == np.random.default_rng([0, 0]).permutation(50).tolist()
    assert len({tuple(order) for both in orders.values() for order in both}) == 4
    assert same(fitted(seed=3)[0], fitted(seed=3)[0]) and not same(fitted(seed=3)[0], fitted(seed=4)[0])


def test_the_display_is_told_of_every_step_also_of_those_done_before(tmp_path: Path) -> None:
    class Told(Progress, Stage):
        def __init__(self) -> None:
            self.total, self.done, self.notes = 0, 0, [""]

        @contextmanager
        def stage(self, name: str, total: int) -> Iterator[Stage]:
            self.total = total
            yield self

        def advance(self, steps: int = 1, note: str = "") -> None:
            self.done += steps
            self.notes.append(note)

    for kill_at in (5, None):
        told = Told()
        with pytest.raises(Killed) if kill_at else nullcontext():
            fitted(checkpoint=tmp_path / "c", kill_at=kill_at, progress=told, metric=lambda: 12.5)
        assert (told.done, told.total) == (4 if kill_at else 3 * STEPS, 3 * STEPS)
        assert "epoch 2 of 3, loss" in (told.notes[-1] if kill_at else told.notes[2]) and "metric 12.50" in told.notes[-1]


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(Killed), torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise Killed
    with torch_threads(None):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before
    with pytest.raises(SettingError, match="threads is 0"), torch_threads(0):
        pass


def test_fingerprints_tell_data_apart() -> None:
    one = np.arange(6, dtype=np.float32)
    others = [one.astype(np.float64), one.reshape(2, 3), one + 1, one[::-1]]
    assert len({fingerprint(array) for array in (one, *others)}) == 5
    assert fingerprint(one, one) == fingerprint(one.copy(), one) != fingerprint(one)


def test_a_moving_average_looks_back_over_two_epochs() -> None:
    """Of the steps so far it is the mean, until the share of one step is 1/6."""
    weights: list[torch.Tensor] = []

    class Watched(RowSgd):
        def step(self, closure: None = None) -> None:
            super().step()
            weights.append(self.param_groups[0]["params"][0].detach().clone())

    net, _ = fitted(Watched, average="ema")
    mean = torch.stack(weights[:6]).mean(0)
    for later in weights[6:]:
        mean = 5 / 6 * mean + 1 / 6 * later
    assert len(weights) == 3 * STEPS and torch.allclose(net.rows.weight, mean, atol=1e-6)
    assert not torch.allclose(net.rows.weight, weights[-1], atol=1e-4)


def test_of_equal_epochs_the_first_is_the_best() -> None:
    _, run = fitted(epochs=6, patience=2, metric=lambda: 5.0)
    assert run.best_epoch == 0 and len(run.history) == 3


def test_rates_follow_the_schedule_and_come_back() -> None:
    table = RowTable(2, 1, std=0)
    optimizer, seen = RowSgd(table, lr=1.0), []

    def loss(batch: Any) -> torch.Tensor:
        seen.append(optimizer.param_groups[0]["lr"])
        return table.lookup(np.array([0])).sum()

    train(table, lambda rng: range(2), loss, optimizer, Plan(epochs=2, steps=2, schedule="linear"))
    assert seen == [1.0, 0.75, 0.5, 0.25] and optimizer.param_groups[0]["lr"] == 1.0
    assert table.weight[0].item() == pytest.approx(-2.5)


def test_gradients_are_clipped() -> None:
    weight = torch.nn.Linear(1, 1, bias=False)
    before = weight.weight.item()
    optimizer = torch.optim.SGD(weight.parameters(), lr=1.0)
    train(weight, lambda rng: [0], lambda batch: 100 * weight.weight.sum(), optimizer, Plan(epochs=1, steps=1, clip=0.5))
    assert weight.weight.item() == pytest.approx(before - 0.5, abs=1e-4)
    train(weight, lambda rng: [0], lambda batch: 0.1 * weight.weight.sum(), optimizer, Plan(epochs=1, steps=1, clip=0.5))
    assert weight.weight.item() == pytest.approx(before - 0.6, abs=1e-4)  # a short one is left as it is
    train(weight, lambda rng: [0], lambda batch: 100 * weight.weight.sum(), optimizer, Plan(epochs=1, steps=1))
    assert weight.weight.item() == pytest.approx(before - 100.6, abs=1e-3)


def test_the_log_has_a_line_for_each_epoch(tmp_path: Path) -> None:
    fitted(log=tmp_path / "log.jsonl", metric=lambda: 7.0)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["epoch"], row["metric"]) for row in rows] == [(1, 7.0), (2, 7.0), (3, 7.0)]
    assert all(row["loss"] > 0 and row["seconds"] >= 0 for row in rows)
    net, values = torch.nn.Linear(1, 1), iter([1.0, 2.0, 6.0, 8.0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    plan = Plan(epochs=2, steps=2, log=tmp_path / "log.jsonl")
    train(net, lambda rng: range(2), lambda batch: 0 * net.weight.sum() + next(values), optimizer, plan)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows] == [1.5, 7.0] and "metric" not in rows[0]  # the mean over the steps


def test_a_loss_that_is_no_number_is_told() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.dense.parameters(), lr=1.0)
    with pytest.raises(LongtailError, match="not a number any more after epoch 1"):
        train(net, lambda rng: [0], lambda b: net.dense.weight.sum() * torch.nan, optimizer, Plan(epochs=1, steps=1))


def test_unknown_names_are_told() -> None:
    with pytest.raises(SettingError, match=r'no schedule "linea".*Did you mean "linear"'):
        fitted(schedule="linea")
    with pytest.raises(SettingError, match='no average "sma"'):
        fitted(average="sma")
