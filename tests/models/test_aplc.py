"""APLC-XLNet as a method: its settings, its three rates, and that what is saved predicts as what was trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.features.pretrained import SCRATCH
from longtail.models.aplc.model import TABLES, Aplc, like
from longtail.models.aplc.partition import cheapest, n_parameters
from longtail.models.aplc.training import Network, clusters, optimizer
from longtail.nn import loop
from longtail.nn.encoders import make
from longtail.nn.validation import mean_precision

QUICK: dict[str, Any] = {"width": 16, "layers": 1, "hidden": 16, "threads": 1, "n_pieces": 200}


def settings(**changes: Any) -> SimpleNamespace:
    model = Aplc(**{**QUICK, **changes})
    model.n_samples, model.label_counts = 100, np.array([9, 5, 3, 1], np.int32)
    return SimpleNamespace(**model._chosen())


# Settings


def test_the_paper_preset_takes_the_numbers_of_the_nearest_corpus() -> None:
    for (n_samples, n_labels), row in TABLES.items():
        assert like(n_samples, n_labels) == row
    model = Aplc(**Aplc.preset("paper"))
    model.n_samples, model.label_counts = 15_539, np.ones(3_993, np.int32)  # EURLex-4k in its other version
    s = model._chosen()
    assert (s["encoder"], s["hidden"], s["n_clusters"], s["q"], s["max_length"]) == ("xlnet-base-cased", 768, 2, 2, 512)
    assert (s["rate"], s["hidden_rate"], s["head_rate"], s["batch"], s["epochs"]) == (5e-5, 1e-4, 2e-3, 12, 8)
    assert (s["schedule"], s["clip"], s["average"]) == ("linear", 1.0, "none")
    assert model.set_params(batch=3)._chosen()["batch"] == 3  # what is given is kept


def test_the_labels_are_cut_evenly_unless_the_head_has_a_share() -> None:
    counts = np.arange(100, 0, -1, dtype=np.int32)
    assert clusters(counts, 1000, settings(n_clusters=4, head=None)).sizes.tolist() == [25] * 4
    assert clusters(counts, 1000, settings(n_clusters=3, head=0.7)).sizes.tolist() == [70, 15, 15]
    assert clusters(counts, 1000, settings(n_clusters=1)).sizes.tolist() == [100]


def test_the_labels_may_be_cut_where_a_step_costs_least() -> None:
    counts = np.maximum(10_000 / np.arange(1, 1001) ** 1.2, 1).astype(np.int32)
    of = settings(n_clusters=3, cut="cheapest", hidden=64)
    sizes = clusters(counts, 20_000, of).sizes
    assert sizes.tolist() == cheapest(counts, 20_000, d=64, most_tails=2).sizes.tolist() and len(sizes) == 3
    of.most_parameters = n_parameters(sizes, 64, 2) // 2
    with pytest.raises(SettingError, match="no cut of 1000 labels"):
        clusters(counts, 20_000, of)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"normalise": "all"}, 'normalise is "all"'),
        ({"batch": 0}, "batch is 0"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"head": 1.5}, "head is 1.5"),
        ({"holdout": 0.9}, "holdout is 0.9"),
        ({"accumulate": 0}, "accumulate is 0"),
        ({"max_length": 0}, "max_length is 0"),
        ({"q": 0.5}, "q is 0.5"),
        ({"schedule": "linea"}, "no schedule"),
        ({"trained_layers": 0, "unfreeze": True}, "does not go with unfreeze"),
        ({"trained_layers": 0, "head_first": 3}, "does not go with head_first"),
        ({"encoder": "no-model/of-that-name"}, "hf download"),
        ({"width": 7}, "even width"),
        ({"device": "gpu"}, "does not find"),
    ],
)
def test_bad_settings_are_refused(train: Dataset, changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        Aplc(**{**QUICK, **changes}).fit(train.texts, train.Y)


# Training


def test_the_three_parts_have_their_own_rates() -> None:
    s = settings(encoder="transformer", layers=2, rate=1.0, hidden_rate=2.0, head_rate=3.0)
    net = Network(make("transformer", 50, width=16, layers=2), clusters(np.array([9, 5, 3, 1], np.int32), 18, s), s)
    rates = {id(p): group["lr"] for group in optimizer(net, s).param_groups for p in group["params"]}
    for part, rate in ((net.encoder, 1.0), (net.hidden, 2.0), (net.head, 3.0)):
        assert part is not None and {rates.pop(id(p)) for p in part.parameters()} == {rate}
    assert not rates  # every parameter is in one group


def test_layers_thaw_from_the_last_to_the_token_vectors() -> None:
    s = settings(encoder="transformer", layers=2, unfreeze=True)
    net = Network(make("transformer", 50, width=16, layers=2), clusters(np.array([9, 5, 3, 1], np.int32), 18, s), s)
    found = optimizer(net, s)

    def trained(epoch: int) -> set[str]:
        loop.thaw(found, epoch)
        return {".".join(name.split(".")[:3]) for name, p in net.named_parameters() if p.requires_grad and "encoder" in name}

    blocks = {"encoder.blocks.0", "encoder.blocks.1"}
    assert [trained(epoch) & blocks for epoch in range(3)] == [set(), {"encoder.blocks.1"}, blocks]
    assert "encoder.table.weight" not in trained(2) and "encoder.table.weight" in trained(3)


@pytest.mark.parametrize("encoder", SCRATCH)
def test_every_encoder_learns_and_comes_back_from_disk(encoder: str, train: Dataset, test: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("aplc", encoder=encoder, **QUICK, epochs=10, rate=0.01, head_rate=0.01, hidden_rate=0.01, batch=16)
    tagger.fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80  # the most frequent label has 40
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    before, after = tagger.topk(test.texts, 4), again.topk(test.texts, 4)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)


@pytest.mark.parametrize("encoder", ["bag", "transformer"])
def test_a_frozen_encoder_stays_as_it_was(encoder: str, train: Dataset) -> None:
    models = [Aplc(encoder=encoder, trained_layers=0, epochs=n, **QUICK).fit(train.texts, train.Y) for n in (1, 3)]
    one, other = (model.state() for model in models)
    same = {name for name in one if np.array_equal(one[name], other[name])}
    of_encoder = {name for name in one if name.startswith(("encoder.", "bag."))}
    assert of_encoder and of_encoder <= same and not {"hidden", "shift", "head.vectors"} & same


def test_the_head_can_learn_first(train: Dataset) -> None:
    setting = {"encoder": "transformer", "epochs": 1, "head_rate": 0.01, "hidden_rate": 0.01, "average": "none", **QUICK}
    at_once, later = (Aplc(head_first=n, **setting).fit(train.texts, train.Y) for n in (0, 10))
    assert len(later.history) == 1  # of the epochs that train all
    assert later.history[0]["loss"] < 0.7 * at_once.history[0]["loss"]


def test_the_metric_is_the_mean_precision(train: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.nn.validation.ROWS", 64)  # four blocks
    model = Aplc(**QUICK, epochs=3, holdout=0, average="none", dropout=0).fit(train.texts, train.Y)
    s = SimpleNamespace(**model._chosen())
    net = Network(make("bag", 50, width=16), clusters(model.label_counts, 100, s), s).eval()
    H = torch.randn(200, 16)
    best = net.head.topk(net.embed(H), 4).ids
    right = np.take_along_axis(train.Y.toarray(), best, axis=1)
    expected = 100 * np.mean([right[:, :1].mean(), right[:, :3].mean(), right.sum(1).mean() / 5])
    assert 0 < mean_precision(net.best(H), train.Y) == pytest.approx(expected)


def test_a_killed_run_goes_on_to_the_same_bits(train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    again = Aplc(**setting).fit(train.texts, train.Y)
    assert again.history[:2] != whole.history[:2]  # the time they took
    assert all(np.array_equal(array, again.state()[name]) for name, array in whole.state().items())


def test_what_is_tagged_is_not_cached(train: Dataset, tmp_path: Path) -> None:
    model = Aplc(**QUICK, epochs=1, cache=str(tmp_path)).fit(train.texts, train.Y)
    written = sorted(tmp_path.iterdir())
    assert written
    model.topk(["something new"], 1)
    assert sorted(tmp_path.iterdir()) == written


def test_a_bag_predicts_without_torch(train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("aplc", **QUICK, epochs=1).fit(train)
    tagger.save(tmp_path / "model")
    expected = tagger.predict(["ripe apple"], 2)[0]
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'sentencepiece'])); import longtail; "
        f"print([tag.label for tag in longtail.load({str(tmp_path / 'model')!r}).predict(['ripe apple'], 2)[0]])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([tag.label for tag in expected])
