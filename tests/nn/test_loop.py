"""The training loop: a killed run continues to the same bits; the best weights are kept; errors say what is wrong."""

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
from longtail.nn.checkpoint import fingerprint
from longtail.nn.loop import TrainingRun, train
from longtail.nn.loop_plan import LoopPlan
from longtail.nn.optim import JointOptimizer, LazyAdam, RowAdagrad, RowOptimizer, RowSgd
from longtail.nn.sparse_embedding import SparseEmbedding
from longtail.nn.validation import MeanPrecision
from longtail.progress import SILENT, Progress, Stage

STEPS = 3


class Killed(Exception):
    pass


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = SparseEmbedding(6, 2)
        self.dense = torch.nn.Linear(2, 1)


def train_net(
    optimizer: type[RowOptimizer] = RowSgd,
    kill_at: int | None = None,
    metric: Any = None,
    net: Net | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> tuple[Net, TrainingRun]:
    """Train three steps per epoch on random ids with dropout; optionally killed in the loss of one step."""
    net, calls = net or Net(), [0]

    def batches(rng: np.random.Generator) -> Any:
        return iter(rng.integers(0, 6, (STEPS, 4)))

    def loss(ids: Any) -> torch.Tensor:
        calls[0] += 1
        if calls[0] == kill_at:
            raise Killed
        out = net.dense(net.rows.lookup(ids) * (torch.rand(4, 2) < 0.8)).squeeze(1)
        return (out - torch.tensor(ids).float()).square().mean()

    both = JointOptimizer(optimizer(net.rows, lr=0.1), torch.optim.AdamW(net.dense.parameters(), lr=0.1))
    run = train(
        net, batches, loss, both, LoopPlan(**{"epochs": 3, "steps": STEPS, **settings}), metric=metric, progress=progress
    )
    return net, run


@pytest.mark.parametrize("optimizer", [RowSgd, LazyAdam])
@pytest.mark.parametrize(
    ("n", "schedule", "average"), [(32, "linear", "none"), (32, "slanted", "ema"), (40, "constant", "ema")]
)
def test_two_accumulated_batches_of_8_equal_one_of_16(
    optimizer: type[RowOptimizer], n: int, schedule: str, average: str
) -> None:
    """The fifth batch of an epoch of 5 makes a separate update."""
    ids = np.random.default_rng(0).integers(0, 6, n)

    def train_with(size: int, accumulate: int) -> Net:
        net = Net()

        def batches(_: np.random.Generator) -> Any:
            return iter(np.split(ids, np.arange(size, n, size)))

        def loss(some: Any) -> torch.Tensor:
            out = net.dense(net.rows.lookup(some)).squeeze(1)
            return (out - torch.tensor(some).float()).square().mean()

        both = JointOptimizer(optimizer(net.rows, lr=0.1), torch.optim.AdamW(net.dense.parameters(), lr=0.1))
        setting: dict[str, Any] = {"clip": 0.5, "schedule": schedule, "average": average}
        train(net, batches, loss, both, LoopPlan(epochs=2, steps=-(-n // size), accumulate=accumulate, **setting))
        return net

    one, two, other = train_with(16, 1), train_with(8, 2), train_with(8, 1)
    for name, weight in one.state_dict().items():
        torch.testing.assert_close(two.state_dict()[name], weight)
        assert not torch.allclose(other.state_dict()[name], weight)
    with pytest.raises(SettingError, match="accumulate is 0"):
        train_with(8, 0)


def test_a_parameter_group_is_trained_from_its_unfreeze_epoch() -> None:
    net = Net()
    start = {name: weight.clone() for name, weight in net.state_dict().items()}
    epochs = iter([("dense.bias",), ("dense.bias",), tuple(start)])

    def metric() -> float:
        moved = {name for name, weight in net.state_dict().items() if not torch.equal(weight, start[name])}
        assert moved == set(next(epochs))
        return 0.0

    groups = [{"params": [net.dense.weight], "unfreeze_epoch": 2}, {"params": [net.dense.bias]}]
    both = JointOptimizer(RowSgd(net.rows, lr=0.1), torch.optim.AdamW(groups, lr=0.1))
    both.param_groups[0]["unfreeze_epoch"] = 2
    batches = [np.array([0, 1, 2, 3, 4, 5])]
    plan = LoopPlan(epochs=3, steps=1)
    train(net, lambda _: batches, lambda ids: net.dense(net.rows.lookup(ids)).sum(), both, plan, metric=metric)


@pytest.mark.parametrize("optimizer", [RowSgd, RowAdagrad, LazyAdam])
@pytest.mark.parametrize(("average", "accumulate"), [("none", 1), ("swa", 1), ("ema", 1), ("ema", 2)])
def test_a_run_killed_at_any_step_continues_to_the_same_bits(
    optimizer: type[RowOptimizer], average: str, accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)  # after every step
    setting: dict[str, Any] = {"average": average, "accumulate": accumulate, "schedule": "linear", "epochs": 2}
    whole, _ = train_net(optimizer, **setting)
    for kill_at in range(1, 2 * STEPS + 1):
        file = tmp_path / f"{kill_at}.ckpt"
        with pytest.raises(Killed):
            train_net(optimizer, kill_at=kill_at, checkpoint=file, **setting)
        again, run = train_net(optimizer, checkpoint=file, **setting)
        assert [row["epoch"] for row in run.history] == [1, 2]
        for name, weight in whole.state_dict().items():
            assert torch.equal(weight, again.state_dict()[name]), (kill_at, name)


@pytest.mark.parametrize("every", [-1.0, 300.0])  # a checkpoint after every step, or after every epoch alone
def test_a_run_killed_in_its_metric_continues_to_the_same_best_weights(
    every: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run takes everything from the file: its network starts elsewhere, and its metric depends on the weights."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", every)

    def run_with(net: Net, kill_in_epoch: int | None = None, **more: Any) -> tuple[Net, TrainingRun]:
        calls = iter(range(1, 9))

        def metric() -> float:
            if next(calls) == kill_in_epoch:
                raise Killed
            return -net.dense(net.rows.weight).sub(2).square().sum().item()

        return train_net(LazyAdam, metric=metric, net=net, average="ema", patience=4, epochs=5, **more)

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


def test_a_run_may_be_killed_repeatedly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    for _ in range(3 * STEPS - 1):  # one step each time
        with pytest.raises(Killed):
            train_net(kill_at=2, checkpoint=tmp_path / "c", average="swa", log=tmp_path / "log")
    again, _ = train_net(checkpoint=tmp_path / "c", average="swa", log=tmp_path / "log", kill_at=2)  # one is left
    assert same(again, train_net(average="swa")[0])
    assert [json.loads(line)["epoch"] for line in (tmp_path / "log").read_text().splitlines()] == [1, 2, 3]


def same(net: Net, other: Net) -> bool:
    return all(torch.equal(weight, other.state_dict()[name]) for name, weight in net.state_dict().items())


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    net, _ = train_net(checkpoint=tmp_path / "c")
    again, _ = train_net(checkpoint=tmp_path / "c", kill_at=1)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True))


def test_a_checkpoint_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    train_net(checkpoint=tmp_path / "c")
    with pytest.raises(DataError, match="other settings"):
        train_net(checkpoint=tmp_path / "c", seed=1)
    (tmp_path / "c").write_bytes(b"not a checkpoint")
    with pytest.raises(DataError, match="damaged"):
        train_net(checkpoint=tmp_path / "c")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"epochs": 4}, "epochs"),
        ({"schedule": "cosine", "clip": 1.0}, "schedule, clip"),
        ({"method": {"weight": 2.0, "data": "a"}}, "weight"),
        ({"method": {"weight": 1.0, "data": "b"}}, "data"),
        ({"method": {"weight": 1.0, "data": "a", "new": 1}}, "new"),
    ],
)
def test_an_error_names_the_settings_that_differ(change: dict[str, Any], names: str, tmp_path: Path) -> None:
    method = {"weight": np.float64(1), "data": "a", "threads": 1}
    train_net(checkpoint=tmp_path / "c", method=method)
    with pytest.raises(DataError, match=rf"c: the checkpoint is from a run with other settings \({names}\)\. Give another"):
        train_net(checkpoint=tmp_path / "c", **{"method": method, **change})
    free = {"patience": 2, "name": "x", "log": tmp_path / "log"}  # these do not change what a step does
    train_net(checkpoint=tmp_path / "c", method={"weight": 1.0, "data": "a", "threads": 2}, kill_at=1, **free)


def test_a_checkpoint_of_another_network_or_optimiser_is_refused(tmp_path: Path) -> None:
    train_net(checkpoint=tmp_path / "c")
    wide = Net()
    wide.dense = torch.nn.Linear(2, 3)
    for net, optimizer in ((wide, torch.optim.SGD(wide.dense.parameters())), (Net(), torch.optim.SGD(Net().parameters()))):
        plan = LoopPlan(epochs=3, steps=STEPS, checkpoint=tmp_path / "c")
        with pytest.raises(DataError, match="does not fit this run"):
            train(net, lambda rng: [0], lambda batch: net.dense.weight.sum(), optimizer, plan)  # noqa: B023


def test_a_file_with_any_damaged_byte_is_refused_or_equivalent(tmp_path: Path) -> None:
    file = tmp_path / "c"
    net, _ = train_net(checkpoint=file)
    whole, refused = file.read_bytes(), 0
    for at in [*range(0, len(whole), len(whole) // 60), *range(len(whole) - 20, len(whole))]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert same(net, train_net(checkpoint=file)[0])
        except DataError as error:
            refused += 1
            assert "c: " in str(error) and "remove this one to start again" in str(error)
    assert refused > 20
    for half in (whole[: len(whole) // 2], whole[:-1], whole[1:], b""):
        file.write_bytes(half)
        with pytest.raises(DataError, match="not a checkpoint, or a damaged one"):
            train_net(checkpoint=file)
    weight = next(at for at in range(len(whole)) if whole.startswith(net.rows.weight.detach().numpy().tobytes(), at))
    file.write_bytes(whole[:weight] + b"\0" + whole[weight + 1 :])
    with pytest.raises(DataError, match=r"the checksum of .* is wrong"):
        train_net(checkpoint=file)


@pytest.mark.parametrize("content", ["a text", [1, 2], {"plan": {}}, {"plan": np.int64(1)}])
def test_other_files_of_torch_are_refused(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "c")
    found = "other settings" if content == {"plan": {}} else "not a checkpoint, or a damaged one"
    with pytest.raises(DataError, match=found):
        train_net(checkpoint=tmp_path / "c")
    with pytest.raises(DataError, match="not a checkpoint"):
        train_net(checkpoint=tmp_path)


def test_the_best_weights_are_kept_and_training_stops_after_patience_epochs() -> None:
    values = iter([1.0, 3.0, 2.0, 2.5, 9.0])
    net, run = train_net(epochs=5, patience=2, metric=lambda: next(values))
    assert [row["metric"] for row in run.history] == [1.0, 3.0, 2.0, 2.5]  # 9.0 was never reached
    assert run.best == 3.0 and run.best_epoch == 1
    two, _ = train_net(epochs=2, schedule="constant")
    assert torch.equal(net.dense.weight, two.dense.weight)


def test_without_a_metric_the_network_ends_with_the_averaged_weights() -> None:
    ends = [train_net(epochs=n)[0].dense.weight for n in (1, 2, 3)]
    mean, _ = train_net(epochs=3, average="swa")
    assert torch.allclose(mean.dense.weight, torch.stack(ends).mean(0), atol=1e-6)


@pytest.mark.parametrize("average", ["none", "swa"])
def test_the_metric_evaluates_averaged_weights_and_the_best_of_them_are_kept(average: str) -> None:
    net, measured, modes = Net(), [], []

    def metric() -> float:
        measured.append(net.dense.weight.detach().clone())
        modes.append(net.training)
        return [1.0, 5.0, 4.0][len(measured) - 1]

    train_net(net=net, metric=metric, average=average)
    ends = [train_net(epochs=n)[0].dense.weight.detach() for n in (1, 2, 3)]
    expected = [torch.stack(ends[: n + 1]).mean(0) for n in range(3)] if average == "swa" else ends
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(measured, expected, strict=True))
    assert torch.equal(net.dense.weight, measured[1])
    assert modes == [False] * 3 and not net.training


def test_the_network_is_in_training_mode_only_in_the_loss() -> None:
    net, modes = torch.nn.Linear(1, 1), []

    def loss(batch: Any) -> torch.Tensor:
        modes.append(net.training)
        return net.weight.sum()

    plan = LoopPlan(epochs=2, steps=1)
    train(net, lambda rng: [0], loss, torch.optim.SGD(net.parameters(), lr=0.1), plan, metric=lambda: 0.0)
    assert modes == [True, True] and not net.training


def test_patience_counts_from_the_best_epoch() -> None:
    for patience, expected in ((0, 6), (1, 3), (2, 6), (3, 6)):
        values = iter([1.0, 2.0, 1.0, 3.0, 2.0, 1.0])
        _, run = train_net(epochs=6, patience=patience, metric=lambda values=values: next(values))
        assert len(run.history) == expected
    _, run = train_net(epochs=4, patience=1)  # without a metric there is no early stopping
    assert len(run.history) == 4


def test_the_order_of_batches_depends_on_the_seed_and_the_epoch() -> None:
    orders: dict[int, list[list[int]]] = {}
    for seed in (0, 1, 0):
        orders[seed], net = [], Net()

        def batches(rng: np.random.Generator, seed: int = seed) -> Any:
            orders[seed].append(rng.permutation(50).tolist())
            return [0]

        plan = LoopPlan(epochs=2, steps=1, seed=seed)
        train(net, batches, lambda b: net.dense.weight.sum(), torch.optim.SGD(net.parameters()), plan)  # noqa: B023
    assert orders[0][0] == np.random.default_rng([0, 0]).permutation(50).tolist()
    assert len({tuple(order) for both in orders.values() for order in both}) == 4
    assert same(train_net(seed=3)[0], train_net(seed=3)[0]) and not same(train_net(seed=3)[0], train_net(seed=4)[0])


def test_progress_counts_every_step_also_those_before_the_kill(tmp_path: Path) -> None:
    class Recorder(Progress, Stage):
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
        recorder = Recorder()
        with pytest.raises(Killed) if kill_at else nullcontext():
            train_net(checkpoint=tmp_path / "c", kill_at=kill_at, progress=recorder, metric=lambda: 12.5)
        assert (recorder.done, recorder.total) == (4 if kill_at else 3 * STEPS, 3 * STEPS)
        assert (
            "epoch 2 of 3, loss" in (recorder.notes[-1] if kill_at else recorder.notes[2])
            and "metric 12.50" in recorder.notes[-1]
        )


def test_fingerprints_differ_for_different_data() -> None:
    one = np.arange(6, dtype=np.float32)
    others = [one.astype(np.float64), one.reshape(2, 3), one + 1, one[::-1]]
    assert len({fingerprint(array) for array in (one, *others)}) == 5
    assert fingerprint(one, one) == fingerprint(one.copy(), one) != fingerprint(one)


def test_a_moving_average_has_a_time_constant_of_two_epochs() -> None:
    """It is the mean of the steps so far, until the share of one step is 1/6."""
    weights: list[torch.Tensor] = []

    class Watched(RowSgd):
        def step(self, closure: None = None) -> None:
            super().step()
            weights.append(self.param_groups[0]["params"][0].detach().clone())

    net, _ = train_net(Watched, average="ema")
    mean = torch.stack(weights[:6]).mean(0)
    for later in weights[6:]:
        mean = 5 / 6 * mean + 1 / 6 * later
    assert len(weights) == 3 * STEPS and torch.allclose(net.rows.weight, mean, atol=1e-6)
    assert not torch.allclose(net.rows.weight, weights[-1], atol=1e-4)


def test_ties_of_the_metric_go_to_the_first_epoch() -> None:
    _, run = train_net(epochs=6, patience=2, metric=lambda: 5.0)
    assert run.best_epoch == 0 and len(run.history) == 3


def test_rates_follow_the_schedule_and_are_restored() -> None:
    table = SparseEmbedding(2, 1, std=0)
    optimizer, seen = RowSgd(table, lr=1.0), []

    def loss(batch: Any) -> torch.Tensor:
        seen.append(optimizer.param_groups[0]["lr"])
        return table.lookup(np.array([0])).sum()

    train(table, lambda rng: range(2), loss, optimizer, LoopPlan(epochs=2, steps=2, schedule="linear"))
    assert seen == [1.0, 0.75, 0.5, 0.25] and optimizer.param_groups[0]["lr"] == 1.0
    assert table.weight[0].item() == pytest.approx(-2.5)


def test_gradients_are_clipped() -> None:
    weight = torch.nn.Linear(1, 1, bias=False)
    before = weight.weight.item()
    optimizer = torch.optim.SGD(weight.parameters(), lr=1.0)
    train(weight, lambda rng: [0], lambda batch: 100 * weight.weight.sum(), optimizer, LoopPlan(epochs=1, steps=1, clip=0.5))
    assert weight.weight.item() == pytest.approx(before - 0.5, abs=1e-4)
    train(weight, lambda rng: [0], lambda batch: 0.1 * weight.weight.sum(), optimizer, LoopPlan(epochs=1, steps=1, clip=0.5))
    assert weight.weight.item() == pytest.approx(before - 0.6, abs=1e-4)  # a small gradient is not changed
    train(weight, lambda rng: [0], lambda batch: 100 * weight.weight.sum(), optimizer, LoopPlan(epochs=1, steps=1))
    assert weight.weight.item() == pytest.approx(before - 100.6, abs=1e-3)


def test_the_log_has_one_line_per_epoch(tmp_path: Path) -> None:
    train_net(log=tmp_path / "log.jsonl", metric=lambda: 7.0)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["epoch"], row["metric"]) for row in rows] == [(1, 7.0), (2, 7.0), (3, 7.0)]
    assert all(row["loss"] > 0 and row["seconds"] >= 0 for row in rows)
    net, values = torch.nn.Linear(1, 1), iter([1.0, 2.0, 6.0, 8.0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    plan = LoopPlan(epochs=2, steps=2, log=tmp_path / "log.jsonl")
    train(net, lambda rng: range(2), lambda batch: 0 * net.weight.sum() + next(values), optimizer, plan)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows] == [1.5, 7.0] and "metric" not in rows[0]  # the mean over the steps


def test_a_loss_that_is_not_finite_raises() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.dense.parameters(), lr=1.0)
    with pytest.raises(LongtailError, match="not a finite number after epoch 1"):
        train(net, lambda rng: [0], lambda b: net.dense.weight.sum() * torch.nan, optimizer, LoopPlan(epochs=1, steps=1))


def test_unknown_names_raise() -> None:
    with pytest.raises(SettingError, match=r'no schedule "linea".*Did you mean "linear"'):
        train_net(schedule="linea")
    with pytest.raises(SettingError, match='no average "sma"'):
        train_net(average="sma")


def test_training_stops_when_the_time_is_up_with_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    rates: list[float] = []
    net = Net()

    def loss(ids: Any) -> torch.Tensor:
        rates.append(optimizer.param_groups[0]["lr"])
        clock[0] += 12.0
        return net.dense(net.rows.lookup(ids)).square().mean()

    optimizer = torch.optim.SGD(net.dense.parameters(), lr=1.0)
    values = iter([3.0, 9.0, 1.0])
    plan = LoopPlan(epochs=100, steps=2, minutes=1.0, schedule="linear")
    recorder = Recorder()
    run = train(net, lambda _: iter([[0], [1]]), loss, optimizer, plan, metric=lambda: next(values), progress=recorder)
    assert run.epoch == 3 and run.best == 9.0  # five steps of 12 seconds: the third epoch is cut
    assert rates == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])  # the rate falls to 0 in that minute
    assert recorder.said == ["stopped after 1 minutes, in epoch 3 of 100, metric 1.00"]


class Recorder(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)


def _make_precision(labels: list[int], right: float) -> MeanPrecision:
    hits = np.zeros((len(labels), 5), bool)
    hits[: round(right * len(labels)), 0] = True
    return MeanPrecision(hits, np.array(labels, np.int32))


@pytest.mark.parametrize(
    ("labels", "right", "collapsed"),
    [([7] * 40, 0.4, True), ([7] * 38 + [1, 2], 0.4, True), ([7] * 37 + [1, 2, 3], 0.4, False), ([7] * 40, 0.5, False)],
)
def test_a_collapse_is_the_same_first_label_for_almost_all_held_out_samples(
    labels: list[int], right: float, collapsed: bool
) -> None:
    score = _make_precision(labels, right)
    assert score.is_collapsed is collapsed
    assert score.at_1 == pytest.approx(100 * right) and score == pytest.approx(100 * right * (1 + 1 / 3 + 1 / 5) / 3)


def test_a_collapse_stops_training_after_some_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_MIN_COLLAPSE_STEPS", 0)
    bad, good = _make_precision([7] * 40, 0.1), _make_precision(list(range(40)), 0.1)
    with pytest.raises(LongtailError, match=r"after 2 epochs.*only 10 % of them have it.*collapse_epochs=0"):
        train_net(epochs=4, collapse_epochs=2, metric=lambda: bad)
    for values, epochs in (([bad] * 4, 0), ([bad, good, bad, bad], 2), ([bad, bad, good, good], 3)):
        _, run = train_net(epochs=4, collapse_epochs=epochs, metric=iter(values).__next__)
        assert run.epoch == 4
    monkeypatch.setattr(loop, "_MIN_COLLAPSE_STEPS", 100)
    assert train_net(epochs=4, collapse_epochs=2, metric=lambda: bad)[1].history[-1]["P@1"] == pytest.approx(10)
