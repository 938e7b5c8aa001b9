"""Pretraining: the loss falls, the same seed gives the same folder, a killed run continues, and aplc reads the folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

import longtail
from longtail import Dataset, Tagger
from longtail.cli.main import main
from longtail.data.write import write
from longtail.errors import DataError, SettingError
from longtail.features.pretrained import choose_token_settings
from longtail.features.tokens import CLS, SEP, Tokens
from longtail.nn.encoder_factory import load_pretrained
from longtail.nn.hugging_face import XLNetEncoder
from longtail.nn.permutation_lm import PermutationLM
from longtail.nn.pretraining import PretrainResult, pretrain

QUICK: dict[str, Any] = {"width": 16, "layers": 1, "epochs": 2, "rate": 0.01, "batch": 16, "threads": 1, "holdout": 0.2}


@pytest.fixture(scope="module")
def done(train: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PretrainResult]:
    """A folder with an encoder, and the result of its training."""
    assert train.texts is not None
    folder = tmp_path_factory.mktemp("pretrained") / "encoder"
    return folder, pretrain(train.texts, folder, **{**QUICK, "epochs": 12})


def test_the_loss_falls_below_that_of_word_frequencies(done: tuple[Path, PretrainResult], train: Dataset) -> None:
    """Words of one topic co-occur, so a missing word can be predicted from the others."""
    found = done[1]
    assert found.loss_before > found.unigram_loss > found.loss + 0.2
    assert len(found.history) == 12 and found.loss == -max(row["metric"] for row in found.history)
    assert found.n_texts == 200


def test_transformers_can_read_the_folder(done: tuple[Path, PretrainResult]) -> None:
    folder, found = done
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert [path.name for path in folder.parent.iterdir()] == ["encoder"]  # no temporary folder is left
    tokens = Tokens(**choose_token_settings(str(folder)), max_length=8).fit(["whatever"])
    rows = tokens.transform(["ripe apple", "iron"])
    assert [tokens.get_token(i) for i in rows[1:].ids.tolist()][-2:] == [SEP, CLS] and tokens.n_tokens == found.n_tokens
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(["ripe apple", "iron"], padding=True)
    encoder = load_pretrained(str(folder))
    ids, mask = encoder.pad_batch(rows)
    assert theirs["input_ids"] == ids.tolist() and theirs["attention_mask"] == mask.int().tolist()
    assert isinstance(encoder, XLNetEncoder) and encoder.width == 16
    weights = load_file(folder / "model.safetensors")
    assert weights.keys() == encoder.model.state_dict().keys()
    assert all(torch.equal(weight, encoder.model.state_dict()[name]) for name, weight in weights.items())


def test_aplc_trains_from_the_folder_and_does_not_need_it_afterwards(
    done: tuple[Path, PretrainResult], train: Dataset, test: Dataset, tmp_path: Path
) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(done[0], folder)
    quick: dict[str, Any] = {"hidden": 16, "hidden_rate": 0.01, "head_rate": 0.01, "batch": 16, "threads": 1}
    tagger = Tagger("aplc", encoder=str(folder), rate=0.003, epochs=6, **quick).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80  # the most frequent label has 40
    tagger.save(tmp_path / "model")
    shutil.rmtree(folder)
    assert longtail.load(tmp_path / "model").predict(test.texts) == tagger.predict(test.texts)


def test_the_same_seed_gives_the_same_weights(train: Dataset, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        pretrain(train.texts or (), tmp_path / name, **{**QUICK, "seed": seed})
    one, again, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "again", "other"))
    assert one == again != other


class Killed(Exception):
    pass


def test_a_killed_run_continues_to_the_same_weights(train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, files = train.texts or (), {"checkpoint": str(tmp_path / "ckpt"), "log": str(tmp_path / "log")}
    whole = pretrain(texts, tmp_path / "whole", **QUICK)
    original, calls = PermutationLM.loss, iter(range(1, 99))

    def dies(*arguments: Any) -> torch.Tensor:
        if next(calls) == 20:  # 3 held-out batches, 10 training batches, 3 held-out ones, and some of the second epoch
            raise Killed
        return original(*arguments)

    monkeypatch.setattr(PermutationLM, "loss", dies)
    with pytest.raises(Killed):
        pretrain(texts, tmp_path / "again", **QUICK, **files)
    assert not (tmp_path / "again").exists() and Path(files["checkpoint"]).is_file()
    monkeypatch.setattr(PermutationLM, "loss", original)
    again = pretrain(texts, tmp_path / "again", **QUICK, **files)
    assert (again.loss_before, again.loss) == (whole.loss_before, whole.loss)
    assert len(Path(files["log"]).read_text().splitlines()) == 2
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]
    with pytest.raises(DataError, match=r"other settings.*rate"):
        pretrain(texts, tmp_path / "third", **{**QUICK, "rate": 0.1}, **files)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"width": 7}, "even width"),
        ({"layers": 0}, "layers is 0"),
        ({"max_length": 3}, "max_length is 3.*at least 4"),
        ({"batch": 0}, "batch is 0"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"clip": -1.0}, "clip is -1"),
        ({"holdout": 0.0}, "holdout is 0"),
        ({"n_pieces": 0}, "n_pieces is 0"),
        ({"schedule": "linea"}, 'schedule is "linea". Did you mean "linear"'),
        ({"device": "gpu"}, "does not find"),
        ({"widht": 16}, 'no setting "widht". Did you mean "width"'),
    ],
)
def test_bad_settings_are_refused(train: Dataset, tmp_path: Path, changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        pretrain(train.texts or (), tmp_path / "encoder", **{**QUICK, **changes})
    assert not any(tmp_path.iterdir())


def test_data_can_be_texts_a_dataset_or_a_file(train: Dataset, vectors: Dataset, tmp_path: Path) -> None:
    write(train, tmp_path / "train")
    found = [
        pretrain(data, tmp_path / f"encoder{i}", **QUICK)
        for i, data in enumerate((train.texts, train, tmp_path / "train.jsonl"))
    ]
    assert len({(each.n_texts, each.n_tokens, each.loss) for each in found}) == 1
    assert repr(found[0]).startswith("PretrainResult(folder=") and len(repr(found[0])) < 300
    with pytest.raises(DataError, match="needs texts"):
        pretrain(vectors, tmp_path / "none", **QUICK)


def test_texts_too_short_to_learn_from(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 of the 3 texts"):
        pretrain(["", " ", "two words of three"], tmp_path / "encoder", **QUICK)
    found = pretrain(["", " ", "two words of three", "two words more"], tmp_path / "encoder", **QUICK)
    assert found.n_texts == 2


def test_an_existing_folder_is_not_overwritten(train: Dataset, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for name, found in (("full", "already exists"), ("full/file", "already exists"), ("full/file/x", "not writable")):
        with pytest.raises(SettingError, match=found):
            pretrain(train.texts or (), tmp_path / name, **QUICK)
    assert (tmp_path / "full" / "file").read_text() == "mine"


# The command


def test_the_command(
    train: Dataset, vectors: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(train, tmp_path / "train")
    write(vectors, tmp_path / "vectors")
    words = ["--threads", "1", "--set", "width=16", "--set", "layers=1", "--set", "epochs=1", "--set", "max_length=8"]
    assert main(["pretrain", "train.jsonl", "--out", "encoder", *words]) == 0
    out, err = capsys.readouterr()
    losses, following = out.splitlines()
    assert "before," in losses and "after;" in losses and "pretrained on 200 texts" in err and "epochs: done" in err
    assert json.loads(Path("encoder/config.json").read_text())["d_model"] == 16
    command = following.split()[2:]  # the next one, as it stands
    assert command[-2:] == ["--out", "MODEL"] and "max_length=8" in command
    assert main([*command, "--threads", "1", "--set", "epochs=1"]) == 0
    assert json.loads(Path("MODEL/manifest.json").read_text())["settings"]["encoder"] == "encoder"
    for words, code, found in (
        (["train.jsonl", "--out", "new", "--set", "widht=3"], 2, 'pretrain has no setting "widht". Did you mean "width"'),
        (["train.jsonl", "--out", "new", "--set", "seed=3"], 2, "Use --seed 3"),
        (["train.jsonl", "--out", "new", "--set", "width=7"], 2, "even width"),
        (["train.jsonl", "--out", "encoder"], 2, "already exists"),
        (["vectors.txt", "--out", "new"], 1, "holds feature vectors"),
    ):
        assert main(["pretrain", *words]) == code
        assert found in capsys.readouterr().err and not Path("new").exists()


def test_a_collapse_cannot_be_noticed_without_labels(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"collapse_epochs is 3, which has no effect here. It needs labels"):
        pretrain(["one text", "another text"], tmp_path / "out", collapse_epochs=3)
