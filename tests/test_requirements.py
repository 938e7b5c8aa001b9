"""What is missing is noticed before data is read or features are computed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import longtail
from longtail.cli.main import main
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import DataError, LongtailError, MissingExtra, SettingError
from longtail.features.pretrained import PRETRAINED_PACKAGES
from longtail.registry import METHODS, model_class
from longtail.spec import MethodSpec

NEURAL = [name for name in METHODS if "torch" in model_class(name).packages]


class Unreadable:
    """Data that must not be looked at."""

    def __getattribute__(self, name: str) -> object:
        raise AssertionError("the data was looked at")


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make packages look as if they were not installed."""
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def test_the_neural_methods_are_known() -> None:
    assert set(NEURAL) == {"glas", "neuralxc", "aplc", "lightattention", "secseq"}


@pytest.mark.parametrize("method", NEURAL)
def test_a_method_without_torch_fails_before_the_data_is_read(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "torch")
    tagger = longtail.Tagger(method)  # a saved model may not need torch, so this works
    with pytest.raises(MissingExtra, match=rf"Training {method} needs torch\. .*'longtail\[nn\]'"):
        tagger.fit(Unreadable(), Unreadable())


@pytest.mark.parametrize(
    ("spec", "package", "found"),
    [
        ("plt+dense=minilm", "torch", r'The encoder "minilm" needs torch'),
        ("plt+dense=minilm", "transformers", r'The encoder "minilm" needs transformers'),
        ("ovr+dense=wordllama", PRETRAINED_PACKAGES["wordllama"][0], "not installed"),
        ("ovr+dense=nowhere/model", "", "no folder"),
        ("aplc+encoder=bag", "tokenizers", "needs tokenizers"),
        ("aplc+encoder=bag", "sentencepiece", "needs sentencepiece"),
        ("aplc+encoder=xlnet", "transformers", "needs transformers"),
        ("secseq+encoder=gru", "tokenizers", "needs tokenizers"),
        ("lightattention+word_vectors=nowhere.txt", "", "there is no such file"),
        ('blend+members="ovr, glas"', "torch", "Training glas needs torch"),
        ('blend+members="ovr, plt+dense=minilm"', PRETRAINED_PACKAGES["minilm"][0], "not installed"),
    ],
)
def test_missing_packages_and_weights_are_noticed_at_once(
    spec: str, package: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, *([package] if package else []))
    with pytest.raises(LongtailError, match=found):
        MethodSpec.parse(spec).build().fit(Unreadable(), Unreadable())


def test_a_blend_without_torch_fits_no_member(monkeypatch: pytest.MonkeyPatch, train: Dataset) -> None:
    hide(monkeypatch, "torch")
    monkeypatch.setattr("longtail.pipeline.Pipeline.fit", lambda *_, **__: pytest.fail("a member was fitted"))
    with pytest.raises(MissingExtra, match="Training glas needs torch"):
        longtail.Tagger("blend").fit(train)


@pytest.mark.parametrize("spec", ["plt+tree=parents", 'blend+members="ovr, plt+tree=parents"'])
def test_missing_parents_are_noticed_before_features_are_computed(
    spec: str, monkeypatch: pytest.MonkeyPatch, train: Dataset
) -> None:
    monkeypatch.setattr("longtail.pipeline.Pipeline.fit_features", lambda *_, **__: pytest.fail("features were computed"))
    with pytest.raises(SettingError, match="tree=parents needs the parents of the labels"):
        longtail.Tagger(spec).fit(train)


@pytest.mark.parametrize(
    ("parents", "found"),
    [
        ((("b",), ("c",), ("a",)), 'the label "a" is its own ancestor'),
        (((), ("a",), ("zz",)), 'the parent "zz" of the label "c" is not a label'),
    ],
)
def test_parents_that_make_no_tree_are_noticed_at_once(
    parents: tuple[tuple[str, ...], ...], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtail.pipeline.Pipeline.fit_features", lambda *_, **__: pytest.fail("features were computed"))
    data = Dataset.from_texts(["one", "two"], [["a"], ["b"]], known=Labels(("a", "b", "c"), parents=parents))
    with pytest.raises(DataError, match=found):
        longtail.Tagger("plt+tree=parents").fit(data)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data that must not be read, and a Parquet file."""
    monkeypatch.chdir(tmp_path)
    for module in ("longtail.cli.output.read_layout", "longtail.cli.commands.read_layout", "longtail.api.read"):
        monkeypatch.setattr(module, lambda *_, **__: pytest.fail("data was read"))
    (tmp_path / "train.jsonl").write_text('{"text": "a", "labels": ["x"]}\n')
    (tmp_path / "test.parquet").write_bytes(b"PAR1")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "packages", "found"),
    [
        ("train train.jsonl --method aplc --out m", "torch", "Training aplc needs torch"),
        ("train train.jsonl --method plt+dense=minilm --out m", "torch", "needs torch"),
        ("train train.jsonl --valid test.parquet --out m", "pyarrow", "Reading Parquet needs pyarrow"),
        ("train train.jsonl --valid tset.jsonl --out m", "", "tset.jsonl: no such file"),
        ("compare train.jsonl test.parquet --methods ovr --out r", "pyarrow", "Reading Parquet needs pyarrow"),
        ("compare train.jsonl train.jsonl --methods ovr,glas --out r", "torch", "Training glas needs torch"),
        ("check train.jsonl test.parquet", "pyarrow", "Reading Parquet needs pyarrow"),
        ("reproduce glas.pydoc", "torch", "Training glas needs torch"),
    ],
)
def test_commands_notice_it_before_they_read_data(
    words: str, packages: str, found: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(monkeypatch, *packages.split())
    assert main(words.split()) != 0
    assert found in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} == {"train.jsonl", "test.parquet"}


@pytest.mark.parametrize(
    "words", ["train train.jsonl --out model", "choose train.jsonl --out model", "blend train.jsonl a b --out model"]
)
def test_a_model_is_replaced_only_with_the_option(
    words: str, folder: Path, train: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    longtail.Tagger("popularity").fit(train).save("model")
    assert main(words.split()) == 1
    assert (
        "there is a model here already. Choose another folder, or replace the model with --overwrite"
        in capsys.readouterr().err
    )


def test_the_option_replaces_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text('{"text": "a b", "labels": ["x"]}\n{"text": "c d", "labels": ["y"]}\n')
    for method in ("popularity", "ovr+min_df=1"):
        assert main(["train", "train.jsonl", "--method", method, "--out", "model", "--overwrite"]) == 0
    assert longtail.load("model").method == "ovr"
