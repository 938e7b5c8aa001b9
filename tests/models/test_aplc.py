"""APLC-XLNet as a method: its settings, its three learning rates, training, and saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from without_torch import check_prediction_without_torch

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.features.pretrained import SCRATCH_ENCODERS
from longtail.models.aplc.model import Aplc
from longtail.models.aplc.network import AplcNetwork, partition_labels
from longtail.models.aplc.partition import count_parameters, find_cheapest_partition
from longtail.models.aplc.settings import PAPER_PLANS, AplcPlan, AplcSettings
from longtail.models.aplc.training import AplcTraining, make_optimizer
from longtail.nn import loop
from longtail.nn.encoder_factory import make_encoder
from longtail.nn.validation import mean_precision

QUICK: dict[str, Any] = {"encoder": "bag", "width": 16, "hidden": 16, "threads": 1, "n_pieces": 200}


def quick(encoder: str) -> dict[str, Any]:
    """Settings of a small encoder."""
    return {**QUICK, "encoder": encoder, **({} if encoder == "bag" else {"layers": 1})}


def partition_sizes(counts: Any, n_samples: int, **changes: Any) -> list[int]:
    settings = AplcSettings(**{**QUICK, **changes})
    return partition_labels(counts, n_samples, settings, settings.plan(100, 4)).sizes.tolist()


def make_network(encoder: str, **changes: Any) -> tuple[AplcNetwork, AplcSettings, AplcPlan]:
    settings = AplcSettings(**{**quick(encoder), **({} if encoder == "bag" else {"layers": 2}), **changes})
    plan = settings.plan(100, 4)
    partition = partition_labels(np.array([9, 5, 3, 1], np.int32), 18, settings, plan)
    return AplcNetwork(make_encoder(encoder, 50, width=16, layers=2), partition, settings, plan), settings, plan


# Settings


def test_the_paper_preset_has_the_settings_of_the_nearest_corpus() -> None:
    model = Aplc(**Aplc.preset("paper"))
    for (n_samples, n_labels), expected in PAPER_PLANS.items():
        assert model.plan(n_samples, n_labels) == expected
    plan = model.plan(15_539, 3_993)  # EURLex-4k in its other version
    assert (model.encoder, plan.hidden, plan.proportions, plan.max_length) == ("xlnet-base-cased", 768, (0.5, 0.5), 512)
    assert (plan.rate, plan.hidden_rate, plan.head_rate, plan.batch, plan.epochs) == (5e-5, 1e-4, 2e-3, 12, 8)
    assert (model.q, plan.dropout, plan.init, model.warm_up, model.holdout) == (2, 0.1, "random", None, 0)
    assert (model.schedule, model.clip, model.average) == ("linear", 1.0, "none")
    assert model.set_params(batch=3).plan(15_539, 3_993).batch == 3  # a given value is used


def test_only_a_bag_reads_whole_texts_and_weighs_tokens() -> None:
    for encoder, expected in (("bag", (None, "tfidf")), ("gru", (256, "mean")), ("wordllama", (256, "mean"))):
        plan = AplcSettings(encoder=encoder).plan(100, 4)
        assert (plan.max_length, plan.token_weights) == expected
    plan = AplcSettings(encoder="bag", max_length=99, token_weights="mean").plan(100, 4)
    assert (plan.max_length, plan.token_weights) == (99, "mean")


def test_the_presets_of_the_paper_and_of_minilm_have_no_biases() -> None:
    with_bias = [name for name in Aplc.presets if Aplc(**Aplc.preset(name)).bias]
    assert with_bias == ["best"]


def test_a_bag_reads_a_long_text_to_its_end() -> None:
    """The only word that matters is the last of 2,000."""
    texts = ["the of " * 1000 + fruit for fruit in ("apple", "pear") * 12]
    Y = np.array([[1, 0], [0, 1]] * 12)
    model = Aplc(**QUICK, holdout=0, dropout=0.0, epochs=60).fit(texts, Y)
    assert model.topk(texts[:2], 1).ids.ravel().tolist() == [0, 1]
    assert model.explain(texts[0], 0)[1][-1] == len(texts[0])  # the last word is explained, too
    restored = Aplc(**QUICK, holdout=0, dropout=0.0, epochs=60).restore(model.state())
    assert np.array_equal(restored.topk(texts[:2], 2).scores, model.topk(texts[:2], 2).scores)


def test_the_proportions_of_head_and_tails_can_be_given() -> None:
    counts = np.arange(100, 0, -1, dtype=np.int32)
    assert partition_sizes(counts, 1000, proportions="0.7,0.2,0.1") == [70, 20, 10]
    assert partition_sizes(counts, 1000, proportions="0.1, 0.9", n_clusters=2) == [10, 90]
    assert partition_sizes(counts, 1000) == [80, 20]
    assert partition_sizes(counts, 1000, n_clusters=3) == [80, 10, 10]
    assert partition_sizes(counts, 1000, n_clusters=4, paper=True) == [25] * 4
    assert partition_sizes(counts, 1000, n_clusters=1) == [100]


def test_labels_can_be_partitioned_where_a_step_costs_least() -> None:
    counts = np.maximum(10_000 / np.arange(1, 1001) ** 1.2, 1).astype(np.int32)
    changes: dict[str, Any] = {"n_clusters": 3, "partition": "cheapest", "hidden": 64}
    sizes = partition_sizes(counts, 20_000, **changes)
    assert sizes == find_cheapest_partition(counts, 20_000, d=64, max_tails=2).sizes.tolist() and len(sizes) == 3
    with pytest.raises(SettingError, match="no partition of 1000 labels"):
        partition_sizes(counts, 20_000, **changes, max_parameters=count_parameters(sizes, 64, 2) // 2)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"normalise": "all"}, 'normalise is "all"'),
        ({"batch": 0}, "batch is 0"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"proportions": "0.7,0.2"}, 'proportions is "0.7,0.2"'),
        ({"proportions": "0.7;0.3"}, "add up to 1"),
        ({"proportions": "1.5,-0.5"}, "positive numbers"),
        ({"proportions": "0.7,0.3", "n_clusters": 3}, "n_clusters is 3, but proportions has 2 numbers"),
        ({"init": "pifa", "bias": False}, "init=pifa needs biases"),
        ({"warm_up": 1.0}, "warm_up is 1.0"),
        ({"holdout": 0.9}, "holdout is 0.9"),
        ({"accumulate": 0}, "accumulate is 0"),
        ({"max_length": 0}, "max_length is 0"),
        ({"q": 0.5}, "q is 0.5"),
        ({"schedule": "linea"}, 'Did you mean "linear"'),
        ({"encoder": "no-model/of-that-name", "width": None, "n_pieces": None}, "hf download"),
        ({"width": 7}, "even width"),
        ({"device": "gpu"}, "does not find"),
    ],
)
def test_bad_settings_are_refused(train: Dataset, changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        Aplc(**{**QUICK, **changes}).fit(train.texts, train.Y)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"encoder": "minilm", "width": 16}, "width is 16, which has no effect here. It needs an encoder from scratch"),
        ({"encoder": "minilm", "layers": 3}, "layers is 3, which has no effect here. It needs an encoder from scratch"),
        ({"layers": 3}, "layers is 3"),
        ({"encoder": "wordllama", "layers": 3}, "layers is 3"),
        ({"encoder": "minilm", "n_pieces": 99}, "n_pieces is 99"),
        ({"encoder": "gru", "token_weights": "mean"}, "token_weights is mean, which has no effect here. It needs a bag"),
        ({"encoder_dropout": 0.1}, "encoder_dropout is 0.1, which has no effect here. It needs a pretrained transformer"),
        ({"encoder": "xlnet", "encoder_dropout": 0.1}, "encoder_dropout is 0.1"),
        ({"encoder": "wordllama", "trained_layers": 2}, "trained_layers is 2"),
        ({"encoder": "bag", "trained_layers": 0, "unfreeze": True}, "unfreeze is true, which has no effect here"),
        ({"encoder": "bag", "trained_layers": 0, "head_epochs": 3}, "head_epochs is 3.*not trained_layers=0"),
        ({"encoder": "bag", "trained_layers": 0, "rate": 0.1}, "rate is 0.1"),
        ({"trained_layers": 0}, "trained_layers is 0.*an encoder that reads tokens"),
        ({"max_length": 9}, "max_length is 9.*an encoder that reads tokens"),
        ({"token_weights": "mean"}, "token_weights is mean.*a bag of tokens"),
        ({"n_pieces": 9}, "n_pieces is 9.*an encoder of tokens from scratch"),
        ({"max_parameters": 99}, "max_parameters is 99.*partition=cheapest"),
        ({"partition": "cheapest", "proportions": "0.5,0.5"}, "cheapest chooses them"),
        ({"n_clusters": 1, "q": 3.0}, "q is 3.0.*two or more clusters"),
        ({"proportions": "1", "cluster_negatives": False}, "cluster_negatives is false"),
        ({"init": "random", "init_scale": 2.0}, "init_scale is 2.0.*init=pifa"),
        ({"encoder": "gru", "init_scale": 2.0}, "init_scale is 2.0"),
        ({"schedule": "slanted", "warm_up": 0.2}, "warm_up is 0.2"),
    ],
)
def test_settings_without_effect_are_refused(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        AplcSettings(**changes).check()


@pytest.mark.parametrize("preset", Aplc.presets)
def test_no_preset_has_a_setting_without_effect(preset: str) -> None:
    Aplc(**Aplc.preset(preset)).check()


# Training


def test_the_three_parts_have_separate_learning_rates() -> None:
    net, _, plan = make_network("transformer", rate=1.0, hidden_rate=2.0, head_rate=3.0)
    groups = make_optimizer(net, plan).param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    for part, rate in ((net.encoder, 1.0), (net.hidden, 2.0), (net.head, 3.0)):
        assert part is not None and {rates.pop(id(p)) for p in part.parameters()} == {rate}
    assert not rates  # every parameter is in one group


def test_layers_are_unfrozen_from_the_last_to_the_token_vectors() -> None:
    net, _, plan = make_network("transformer", unfreeze=True)
    optimizer = make_optimizer(net, plan, unfreeze=True)

    def trained(epoch: int) -> set[str]:
        loop.unfreeze_groups(optimizer, epoch)
        return {".".join(name.split(".")[:3]) for name, p in net.named_parameters() if p.requires_grad and "encoder" in name}

    blocks = {"encoder.blocks.0", "encoder.blocks.1"}
    assert [trained(epoch) & blocks for epoch in range(3)] == [set(), {"encoder.blocks.1"}, blocks]
    assert "encoder.table.weight" not in trained(2) and "encoder.table.weight" in trained(3)


@pytest.mark.parametrize("encoder", SCRATCH_ENCODERS)
def test_every_encoder_can_be_trained_saved_and_loaded(encoder: str, train: Dataset, test: Dataset, tmp_path: Path) -> None:
    rates = {"rate": 0.01, "head_rate": 0.01, "hidden_rate": 0.01}
    tagger = Tagger("aplc", **quick(encoder), **rates, normalise="sample", clip=1.0, epochs=10, batch=16)
    tagger.fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80  # the most frequent label has 40
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    before, after = tagger.topk(test.texts, 4), again.topk(test.texts, 4)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)


@pytest.mark.parametrize("encoder", ["bag", "transformer"])
def test_a_frozen_encoder_does_not_change(encoder: str, train: Dataset) -> None:
    models = [Aplc(**quick(encoder), trained_layers=0, epochs=n).fit(train.texts, train.Y) for n in (1, 3)]
    one, other = (model.state() for model in models)
    same = {name for name in one if np.array_equal(one[name], other[name])}
    of_encoder = {name for name in one if name.startswith(("encoder.", "bag."))}
    assert of_encoder and of_encoder <= same and not {"hidden", "shift", "head.vectors"} & same


def test_the_head_can_be_trained_first(train: Dataset) -> None:
    setting = {**quick("transformer"), "epochs": 1, "head_rate": 0.01, "hidden_rate": 0.01, "average": "none"}
    at_once, later = (Aplc(head_epochs=n, **setting).fit(train.texts, train.Y) for n in (0, 10))
    assert len(later.history) == 1  # only the epochs that train everything
    assert later.history[0]["loss"] < 0.7 * at_once.history[0]["loss"]


@pytest.mark.parametrize("head_epochs", [0, 1000])
def test_all_stages_together_stop_when_the_time_is_up(
    head_epochs: int, train: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, make_loss = [0.0], AplcTraining.make_loss

    def make_slow_loss(training: AplcTraining, texts: Any) -> Any:
        loss = make_loss(training, texts)

        def slow_loss(rows: Any) -> Any:
            clock[0] += 10
            return loss(rows)

        return slow_loss

    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(AplcTraining, "make_loss", make_slow_loss)
    Aplc(**{**quick("bag"), "epochs": 1000, "patience": 0}, minutes=2, head_epochs=head_epochs).fit(train.texts, train.Y)
    assert clock[0] == 120


def test_the_metric_is_the_mean_precision(train: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.nn.validation.SAMPLES_PER_BLOCK", 64)  # four blocks
    net = make_network("bag", dropout=0)[0].eval()
    H = torch.randn(200, 16)
    best = net.head.topk(net.embed(H), 4).ids
    right = np.take_along_axis(train.Y.toarray(), best, axis=1)
    expected = 100 * np.mean([right[:, :1].mean(), right[:, :3].mean(), right.sum(1).mean() / 5])
    assert 0 < mean_precision(net.rank(H), train.Y) == pytest.approx(expected)


def test_a_killed_run_continues_to_the_same_bits(train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Aplc(**QUICK, epochs=3).fit(train.texts, train.Y)
    finish, epochs = loop.finish_epoch, []

    def killed(*given: Any) -> None:
        epochs.append(1)
        if len(epochs) == 3:
            raise KeyboardInterrupt
        finish(*given)

    setting = {**QUICK, "epochs": 3, "checkpoint": str(tmp_path / "run"), "cache": str(tmp_path / "cache")}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "finish_epoch", killed)
        Aplc(**setting).fit(train.texts, train.Y)
    epochs.clear()
    monkeypatch.setattr(loop, "finish_epoch", lambda *given: (epochs.append(1), finish(*given)))
    again = Aplc(**setting).fit(train.texts, train.Y)
    assert len(epochs) == 1  # the two before the stop are not repeated
    assert all(np.array_equal(array, again.state()[name]) for name, array in whole.state().items())


def test_only_training_texts_are_cached(train: Dataset, tmp_path: Path) -> None:
    model = Aplc(**QUICK, epochs=1, cache=str(tmp_path)).fit(train.texts, train.Y)
    written = sorted(tmp_path.iterdir())
    assert written
    model.topk(["something new"], 1)
    assert sorted(tmp_path.iterdir()) == written


def test_a_bag_predicts_without_torch(train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("aplc", **QUICK, epochs=1).fit(train)
    check_prediction_without_torch(tagger, "ripe apple", tmp_path / "model")
