"""Taggers from prepared data: the same as from memory, bit for bit; and evaluation of files block by block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail import mapping
from longtail.cli import predict
from longtail.cli.main import main
from longtail.data import stream, xc
from longtail.data.dataset import Dataset, Labels
from longtail.data.layout import Layout
from longtail.data.prepared import read_order
from longtail.data.write import write
from longtail.errors import DataError
from longtail.features import store, term_counts
from longtail.lazy_texts import MappedTexts
from longtail.metrics import calibration, grouped
from longtail.tagger.tagger import Tagger

NAMES = ("apple", "rose", "sea", "ship", "tree")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("source") / "train.jsonl"
    with path.open("w") as lines:
        for label in range(5):  # sorted by label, as real corpora are
            for _ in range(50):
                words = [f"w{i}" for i in random.integers(0, 60, 8)] + [
                    f"{NAMES[label]}{i}" for i in random.integers(0, 4, 3)
                ]
                labels = [NAMES[label], *(["wide"] if random.random() < 0.3 else [])]
                lines.write(json.dumps({"text": " ".join(words), "labels": labels}) + "\n")
    return path


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "_MIN_TEMPORARY", 100)
    monkeypatch.setattr(store, "_TEXTS_PER_BLOCK", 30)
    monkeypatch.setattr(store, "_BLOCKS_PER_COMMIT", 2)
    monkeypatch.setattr(term_counts, "_MIN_SLOTS", 32)


def list_arrays(tagger: Tagger) -> dict[str, Any]:
    parts = {**tagger.pipeline.state(), **tagger.decisions.state()}
    return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def assert_same(a: Tagger, b: Tagger) -> None:
    left, right = list_arrays(a), list_arrays(b)
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype and np.array_equal(array, right[name]), name


@pytest.mark.parametrize(
    "method", ["popularity", "ovr", "plt", "hierarchicalxc", "ovr+subwords=1+ngrams=2+train_on_names=true"]
)
def test_weights_are_those_of_the_same_samples_in_memory(tmp_path: Path, source: Path, method: str) -> None:
    longtail.prepare(source, tmp_path / "data", method=method, memory=0.4, threads=1)
    whole = longtail.read(source).take(read_order(tmp_path / "data"))
    tagger = Tagger(method, threads=1).fit(tmp_path / "data")
    assert_same(tagger, Tagger(method, threads=1).fit(whole))
    assert tagger.predict(["apple1 apple2"], k=1)[0][0].label == ("apple" if method != "popularity" else "wide")


@pytest.mark.parametrize("method", ["lightattention", "secseq", "aplc"])
def test_networks(tmp_path: Path, source: Path, method: str) -> None:
    pytest.importorskip("torch")
    method += "+epochs=1"
    longtail.prepare(source, tmp_path / "data", method=method, memory=0.4, threads=1)
    if method.startswith("lightattention"):  # it reads texts only
        assert not list((tmp_path / "data" / "features").iterdir())
    whole = longtail.read(source).take(read_order(tmp_path / "data"))
    assert_same(Tagger(method, threads=1).fit(tmp_path / "data"), Tagger(method, threads=1).fit(whole))


@pytest.mark.parametrize("method", ["ovr", "glas+epochs=1"])
def test_prepared_vectors(tmp_path: Path, method: str) -> None:
    if method.startswith("glas"):
        pytest.importorskip("torch")
    random = np.random.default_rng(1)
    X = sp.csr_array(random.random((230, 12)).astype(np.float32) * (random.random((230, 12)) < 0.4))
    Y = sp.csr_array(np.eye(12, dtype=np.float32)[np.asarray(X.argmax(axis=1)).ravel()])
    data = Dataset(Y, Labels.from_count(12), X=X)
    longtail.prepare(data, tmp_path / "data", method=method, memory=0.4)
    whole = data.take(read_order(tmp_path / "data"))
    assert_same(Tagger(method, threads=1).fit(tmp_path / "data"), Tagger(method, threads=1).fit(whole))


def test_vectors_are_computed_once_and_continued(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = longtail.prepare(source, tmp_path / "data", method="popularity", memory=0.4)
    assert isinstance(data.texts, MappedTexts)
    features = store.TextFeatures(ngrams=1, min_df=1, subwords=0.0)
    expected = features.fit_transform(list(data.texts))
    transform, calls = store.TextFeatures.transform, []

    def interrupt(self: Any, texts: Any) -> Any:
        calls.append(len(texts))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return transform(self, texts)

    monkeypatch.setattr(store.TextFeatures, "transform", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.fit_vectors(store.TextFeatures(ngrams=1, min_df=1, subwords=0.0), data.texts)
    found = store.fit_vectors(store.TextFeatures(ngrams=1, min_df=1, subwords=0.0), data.texts)
    assert all(np.array_equal(getattr(found, name), getattr(expected, name)) for name in ("indptr", "indices", "data"))
    assert len(calls) == 4 + 7  # 60 of 250 texts were on disk
    store.fit_vectors(store.TextFeatures(ngrams=1, min_df=1, subwords=0.0), data.texts)
    assert len(calls) == 4 + 7


def test_damaged_features_are_refused(tmp_path: Path, source: Path) -> None:
    longtail.prepare(source, tmp_path / "data", method="ovr+ngrams=1+min_df=1+subwords=0+train_on_names=false", memory=0.4)
    (path,) = (tmp_path / "data" / "features").glob("*/vectors/data.npy")
    content = bytearray(path.read_bytes())
    content[-2] ^= 64
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        Tagger("ovr+ngrams=1+min_df=1+subwords=0+train_on_names=false").fit(tmp_path / "data")


def test_files_are_evaluated_block_by_block(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tagger = Tagger("ovr+C=1", threads=1).fit(source)
    rows = [json.loads(line) for line in source.read_text().splitlines()][::2]
    rows[3]["labels"] = ["unknown", "apple"]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = tagger.evaluate(longtail.read(tmp_path / "test.jsonl"))
    monkeypatch.setattr(stream, "_ROWS", 7)
    monkeypatch.setattr(stream, "_DECIDING_ROWS", 7)
    blocks = tagger.evaluate(tmp_path / "test.jsonl")
    assert blocks.to_json() == whole.to_json() and np.array_equal(blocks.labels.true, whole.labels.true)
    monkeypatch.setattr(grouped, "N_GROUPS", 16)
    monkeypatch.setattr(calibration, "MAX_PAIRED", 50)
    few = tagger.evaluate(tmp_path / "test.jsonl")
    exact = [name for name in whole.values if not name.startswith("ECE")]
    assert [few.values[name] for name in exact] == pytest.approx([whole.values[name] for name in exact])
    assert few.values["ECE@1"] == pytest.approx(whole.values["ECE@1"], abs=10) and len(few.scores.numerators) == 16


def test_files_of_vectors_are_read_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    X = sp.csr_array(random.random((90, 9)).astype(np.float32) * (random.random((90, 9)) < 0.4))
    Y = sp.csr_array(np.eye(12, dtype=np.float32)[random.integers(0, 12, 90)])
    data = Dataset(Y, Labels.from_count(12), X=X)
    tagger = Tagger("ovr+C=1", threads=1).fit(data.take(np.flatnonzero(Y[:, range(7)].sum(axis=1))))
    path = write(data, tmp_path / "vectors")
    whole, answers = tagger.evaluate(longtail.read(path)), tagger.predict(longtail.read(path), k=3)
    tagger.save(tmp_path / "model")
    monkeypatch.setattr(xc, "_BYTES_PER_BLOCK", 100)
    monkeypatch.setattr(predict, "SAMPLES_PER_BATCH", 2)
    blocks = tagger.evaluate(path)
    assert blocks.to_json() == whole.to_json()
    sizes = [part.shape[0] for part in stream.stream_vectors(path, Layout(), [])]
    assert sum(sizes) == 90 and max(sizes) < 10
    assert main(["predict", str(tmp_path / "model"), str(path), "--json", "--k", "3", "--out", str(tmp_path / "out")]) == 0
    found = [json.loads(line)["labels"] for line in (tmp_path / "out").read_text().splitlines()]
    assert [[tag["label"] for tag in row] for row in found] == [[tag.label for tag in row] for row in answers]


def test_data_without_a_known_label_is_refused(tmp_path: Path, source: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"text": "apple1", "labels": ["nothing"]}\n')
    with pytest.raises(DataError, match="knows no label"):
        Tagger("popularity").fit(source).evaluate(tmp_path / "other.jsonl")
