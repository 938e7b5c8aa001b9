"""Bundles: saved taggers survive crashes, damage is detected, and older or newer formats are refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail import Dataset, Labels, Tagger
from longtail.cli.main import main
from longtail.data.write import write
from longtail.errors import BundleError, OverwriteWarning
from longtail.tagger.bundle import FORMAT, MANIFEST, Bundle, encode_files, load_bundle, save_bundle, sign_manifest
from longtail.topk import TopK


@pytest.fixture
def saved(train: Dataset, tmp_path: Path) -> Path:
    Tagger("ovr").fit(train).save(tmp_path / "model")
    return tmp_path / "model"


def data_file(folder: Path, part: str) -> Path:
    return next(p for p in folder.iterdir() if p.name.startswith(part))


def save_and_exit_at(tagger: Tagger, folder: Path, step: int) -> bool:
    """Save in a child process that exits, without any clean-up, at the given file operation. True if it finished."""
    child = os.fork()
    if child == 0:
        steps = iter(range(10**6))

        def hook(event: str, args: tuple[object, ...]) -> None:
            if event in ("open", "os.rename", "os.remove", "os.mkdir") and next(steps) == step:
                os._exit(9)

        sys.addaudithook(hook)
        tagger.save(folder, overwrite=True)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def test_a_crash_at_any_moment_leaves_the_old_or_the_new_bundle(train: Dataset, saved: Path, tmp_path: Path) -> None:
    old = longtail.load(saved).topk(train.inputs)
    tagger = Tagger("ovr", C=0.01).fit(train)
    new = tagger.topk(train.inputs)
    assert not np.array_equal(old.scores, new.scores)
    seen = {"old": 0, "new": 0}

    def identify(best: TopK) -> str:
        return next((name for name, other in {"old": old, "new": new}.items() if np.array_equal(best.scores, other.scores)))

    for step in range(100):
        shutil.copytree(saved, tmp_path / "copy")
        alive = save_and_exit_at(tagger, tmp_path / "copy", step)
        seen[identify(longtail.load(tmp_path / "copy").topk(train.inputs))] += 1
        tagger.save(tmp_path / "copy", overwrite=True)  # the next save removes what the interrupted one left
        manifest = json.loads((tmp_path / "copy" / MANIFEST).read_text())
        named = {MANIFEST, *(entry["file"] for entry in manifest["files"].values())}
        assert {p.name for p in (tmp_path / "copy").iterdir()} == named
        shutil.rmtree(tmp_path / "copy")
        if alive:
            break
    assert alive and seen["old"] > 5 and seen["new"] > 1


def test_a_crash_in_the_first_save_leaves_no_bundle(train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("popularity").fit(train)
    for step in range(100):
        folder = tmp_path / str(step)
        if save_and_exit_at(tagger, folder, step):
            break
        if (folder / MANIFEST).exists():
            assert longtail.load(folder).predict(["x"]) == tagger.predict(["x"])
        else:
            with pytest.raises(BundleError, match=r"no model here|no such folder"):
                longtail.load(folder)
    assert step > 3


def test_an_interrupted_save_cleans_up(train: Dataset, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.name: p.read_bytes() for p in saved.iterdir()}

    def interrupted(bundle: Bundle) -> Iterator[tuple[str, bytes]]:
        yield next(encode_files(bundle))
        raise KeyboardInterrupt

    monkeypatch.setattr("longtail.tagger.bundle.encode_files", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Tagger("ovr", C=0.1).fit(train).save(saved, overwrite=True)
    with pytest.raises(KeyboardInterrupt):
        Tagger("ovr").fit(train).save(tmp_path / "other")
    assert {p.name: p.read_bytes() for p in saved.iterdir()} == before
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("part", ["model", "features", "labels"])
def test_every_flipped_byte_is_detected(saved: Path, part: str) -> None:
    path = data_file(saved, part)
    content = path.read_bytes()
    for at in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(BundleError, match="damaged"):
            longtail.load(saved)
    path.write_bytes(content[:-1])
    with pytest.raises(BundleError, match="damaged"):
        longtail.load(saved)
    path.unlink()
    with pytest.raises(BundleError, match="missing"):
        longtail.load(saved)


def test_every_flipped_byte_of_the_manifest_is_detected(saved: Path) -> None:
    path = saved / MANIFEST
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(BundleError):
            longtail.load(saved)


def test_label_names_may_have_any_character(tmp_path: Path) -> None:
    names = ["a\u2028b", "c\u0085d", "\u2029", "tab\t", "null\x00"]
    data = Dataset.from_texts(["one two", "two three"], [names, ["x"]])
    Tagger("popularity").fit(data).save(tmp_path / "m")
    assert longtail.load(tmp_path / "m").labels.names == (*names, "x")


def test_bundles_of_format_3_predict_as_before_and_can_be_calibrated(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    """They have no calibration, and their threshold is one of the scores of the model."""
    tagger = Tagger("ovr", calibrate=False).fit(train)
    tagger.save(tmp_path / "model")
    path = tmp_path / "model" / MANIFEST
    manifest = {**json.loads(path.read_text()), "format": 3}
    del manifest["sha256"]
    path.write_bytes(sign_manifest(manifest))
    old = longtail.load(tmp_path / "model")
    assert old.calibration is None and old.threshold == tagger.threshold == 0
    np.testing.assert_array_equal(old.topk(test.inputs).scores, tagger.topk(test.inputs).scores)
    assert main(["calibrate", str(tmp_path / "model"), str(write(test, tmp_path / "valid"))]) == 0
    new = longtail.load(tmp_path / "model")
    assert json.loads(path.read_text())["format"] == FORMAT and new.score_meaning == "probability"
    np.testing.assert_array_equal(new.topk(test.inputs, raw=True).scores, tagger.topk(test.inputs).scores)
    assert new.decisions.source == f"{test.n_samples} samples given after training"


def test_a_bundle_of_format_5_keeps_the_encoder_that_was_the_default(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    """The spec of such a bundle says aplc with a number of tokens, and its settings say that it reads tokens."""
    tagger = Tagger("aplc", encoder="bag", width=16, hidden=16, epochs=1, max_length=9).fit(train)
    tagger.save(tmp_path / "model")
    path = tmp_path / "model" / MANIFEST
    manifest = {**json.loads(path.read_text()), "format": 5}
    assert manifest["spec"].startswith("aplc+encoder=bag")
    manifest["spec"] = manifest["spec"].replace("+encoder=bag", "")
    assert "max_length=9" in manifest["spec"]
    del manifest["settings"]["sparse_part"], manifest["sha256"]
    path.write_bytes(sign_manifest(manifest))
    old = longtail.load(tmp_path / "model")
    np.testing.assert_array_equal(old.topk(test.inputs).scores, tagger.topk(test.inputs).scores)
    old.save(tmp_path / "again")
    np.testing.assert_array_equal(
        longtail.load(tmp_path / "again").topk(test.inputs).scores, tagger.topk(test.inputs).scores
    )


def test_a_bundle_of_format_6_has_trees_without_hash_tables(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("plt+n_trees=1", calibrate=False).fit(train)
    linear = tagger.pipeline.model.trees[0]  # type: ignore[attr-defined]
    nodes = [linear.weights.get_node(linear.tree, node) for node in np.flatnonzero(linear.tree.n_children)]
    tagger.save(tmp_path / "model")
    bundle = load_bundle(tmp_path / "model")
    arrays = {name: array for name, array in bundle.arrays["model"].items() if name != "0.used_slots"}
    for name in ("features", "children", "values"):
        arrays[f"0.{name}"] = np.concatenate([getattr(node, name) for node in nodes])
    arrays["0.row_lengths"] = np.concatenate([np.diff(node.row_start) for node in nodes]).astype(np.uint8)
    save_bundle(Bundle(bundle.about, {**bundle.arrays, "model": arrays}, bundle.labels), tmp_path / "model")
    path = tmp_path / "model" / MANIFEST
    manifest = {**json.loads(path.read_text()), "format": 6}
    del manifest["sha256"]
    path.write_bytes(sign_manifest(manifest))
    old = longtail.load(tmp_path / "model")
    np.testing.assert_array_equal(old.topk(test.inputs).scores, tagger.topk(test.inputs).scores)
    old.save(tmp_path / "again")
    assert "0.used_slots" in load_bundle(tmp_path / "again").arrays["model"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"format": 99}, f"has format 99, this longtail reads format {FORMAT}. Upgrade longtail"),
        ({"format": 1}, f"has format 1 .*, this longtail reads format {FORMAT}. Train the model again"),
        ({"spec": "oracle"}, 'no method "oracle"'),
        ({"spec": None}, 'the entry "spec" of the description is a NoneType'),
        ({"settings": {"zeta": 1}}, 'no setting "zeta"'),
        ({"files": {"model.safetensors": {"file": "../model-000000000000.safetensors"}}}, "not part of a bundle"),
    ],
)
def test_manifests_that_cannot_be_loaded_are_refused(saved: Path, change: dict[str, object], found: str) -> None:
    path = saved / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    path.write_bytes(sign_manifest(manifest))
    longtail.load(saved)
    path.write_bytes(sign_manifest({**manifest, **change}))
    with pytest.raises(BundleError, match=found):
        longtail.load(saved)
    path.write_text("{")
    with pytest.raises(BundleError, match="manifest is damaged"):
        longtail.load(saved)


def test_folders_without_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such folder"):
        longtail.load(tmp_path / "nothing")
    with pytest.raises(BundleError, match="no model here"):
        longtail.load(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BundleError, match="this is a file"):
        longtail.load(tmp_path / "file")


def test_foreign_files_are_never_changed(train: Dataset, saved: Path, tmp_path: Path) -> None:
    tagger = Tagger("popularity").fit(train)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("text")
    with pytest.raises(BundleError, match=r"not a bundle and has other files \(chapter.txt"):
        tagger.save(tmp_path / "thesis")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BundleError, match="this is a file"):
        tagger.save(tmp_path / "file")
    (saved / "notes.md").write_text("notes")
    tagger.save(saved, overwrite=True)
    assert (saved / "notes.md").read_text() == "notes"


def test_the_same_training_gives_the_same_bytes(train: Dataset, tmp_path: Path) -> None:
    for name in ("a", "b"):
        Tagger("ovr").fit(train).save(tmp_path / name)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("a", "b"))
    assert first == second


def test_label_texts_and_parents_are_kept(tmp_path: Path) -> None:
    known = Labels(("a\nb", "ü"), ("text", ""), ((), ("a\nb",)))
    data = Dataset.from_texts(["one two", "two three"], [["a\nb"], ["ü"]], known=known)
    Tagger("popularity").fit(data).save(tmp_path / "m")
    assert longtail.load(tmp_path / "m").labels == known


def test_no_file_of_a_bundle_is_executable(saved: Path) -> None:
    assert {p.suffix for p in saved.iterdir()} == {".json", ".jsonl", ".safetensors"}
    assert not any(p.stat().st_mode & 0o111 for p in saved.iterdir())


def test_a_model_is_replaced_only_after_saying_so(train: Dataset, saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    tagger = Tagger("popularity").fit(train)
    with pytest.raises(BundleError, match=r"there is a model here already.*overwrite=True"):
        tagger.save(saved, overwrite=False)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    with pytest.warns(OverwriteWarning, match="the model that was saved there is replaced"):
        tagger.save(saved)
    assert longtail.load(saved).method == "popularity"
    tagger.save(saved.parent / "new", overwrite=False)


@pytest.mark.parametrize("overwrite", [True, None, False])
def test_a_manifest_of_another_program_is_no_model(train: Dataset, tmp_path: Path, overwrite: bool | None) -> None:
    (tmp_path / MANIFEST).write_text('{"name": "a browser extension"}')
    (tmp_path / "page.js").write_text("code")
    with pytest.raises(BundleError, match=r"not a bundle and has other files \(page.js"):
        Tagger("popularity").fit(train).save(tmp_path, overwrite=overwrite)
    (tmp_path / "page.js").unlink()
    with pytest.raises(BundleError, match=r"not a bundle and has other files \(manifest.json"):
        Tagger("popularity").fit(train).save(tmp_path, overwrite=overwrite)


def test_a_damaged_model_can_be_replaced(train: Dataset, saved: Path) -> None:
    (saved / MANIFEST).write_text("{")
    Tagger("popularity").fit(train).save(saved, overwrite=True)
    assert longtail.load(saved).method == "popularity"


def test_everything_about_labels_is_kept_and_predictions_have_uris(tmp_path: Path) -> None:
    known = Labels(("a", "b"), uris=("http://x/1", ""), alt_names=((), ("bee", "bee | c")), notations=("1.5", ""))
    data = Dataset.from_texts(["one two", "two three"], [["http://x/1"], ["bee"]], known=known)
    Tagger("ovr", min_df=1).fit(data).save(tmp_path / "m")
    tagger = longtail.load(tmp_path / "m")
    assert tagger.labels == known
    assert [(tag.label, tag.uri) for tag in tagger.predict(["one"])[0]] == [("a", "http://x/1"), ("b", None)]
    assert tagger.explain("one two", "http://x/1").uri == "http://x/1"
    by_uri = Dataset.from_texts(["one", "three"], [["http://x/1"], ["b"]])
    assert tagger.evaluate(by_uri).values["P@1"] == 100
