"""A model from a stranger, in which every hash is right: it is refused with a LongtailError, or predicts valid labels.

The long campaign, with a process for each model and kernels that check every index, is ``benchmarks/faults.py``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail import Tagger
from longtail.errors import BundleError, LongtailError
from longtail.tagger.bundle import MANIFEST, Bundle, load_bundle, sign_manifest
from longtail.tagger.bundle_files import open_file
from longtail.tagger.saving import unpack_tagger

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MAX_MEMORY = 3 << 30  # bytes that a test may allocate
N_ENTRIES, N_FILES = 12, 8  # descriptions, and files of each kind, that are damaged per model


def import_damage() -> Any:
    spec = importlib.util.spec_from_file_location("damage", BENCHMARKS / "damage.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["damage"] = module
    spec.loader.exec_module(module)
    return module


damage = import_damage()


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """An absurd allocation is an error here, not a machine that stands still."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="module", params=damage.SPECS, ids=lambda spec: spec.split("+epochs")[0])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small model."""
    folder = tmp_path_factory.mktemp("models") / "model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        damage.train_model(request.param, folder)
    return folder


def try_bundle(bundle: Bundle) -> bool:
    """Whether a bundle predicts valid labels; False if it is refused. Anything else fails the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numpy, about numbers that are too large
            damage.check_predictions(unpack_tagger(Tagger, bundle, "model"))
    except LongtailError:
        return False
    return True


def test_every_array_may_be_damaged_in_every_way(model: Path) -> None:
    """Each array is damaged in two of the eight ways, all of them in turn, and all are covered by each larger model."""
    bundle, kinds, random = load_bundle(model), list(damage.ARRAY_DAMAGE), np.random.default_rng(0)
    assert try_bundle(bundle)
    names = [(part, name) for part, arrays in bundle.arrays.items() for name in arrays]
    for number, (part, name) in enumerate(names):
        for kind in (kinds[number % 8], ("value", "all values")[number % 2]):
            try_bundle(damage.damage_array(bundle, part, name, kind, random))


def test_arrays_of_another_length_are_refused(model: Path) -> None:
    """A shorter array is never read past its end, whatever it means."""
    bundle, random = load_bundle(model), np.random.default_rng(1)
    refused = [
        not try_bundle(damage.damage_array(bundle, "model", name, "truncated", random))
        for name, array in bundle.arrays["model"].items()
        if array.size
    ]
    assert np.mean(refused) > 0.9


def test_every_entry_of_the_description_may_be_damaged(model: Path) -> None:
    bundle = load_bundle(model)
    for number in range(N_ENTRIES):
        about = damage.damage_entry(bundle.about, np.random.default_rng(number))
        try_bundle(Bundle(about, bundle.arrays, bundle.labels))
    for name in bundle.about["settings"]:
        for value in (10**9, "x"):
            try_bundle(Bundle({**bundle.about, "settings": {**bundle.about["settings"], name: value}}, *_parts(bundle)))


def _parts(bundle: Bundle) -> tuple[Any, ...]:
    return bundle.arrays, bundle.labels


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with labels that were changed, and constraints."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    damage.train_model("plt+fanout=2+subwords=0.5", folder)
    return folder


@pytest.mark.parametrize("kind", ["manifest", "manifest bytes", "header", "labels", "links"])
def test_files_of_any_content_are_refused_or_read(saved: Path, tmp_path: Path, kind: str) -> None:
    outcomes = set()
    for number in range(5 * N_FILES):
        folder = tmp_path / str(number)
        damage.damage_model(saved, folder, kind, np.random.default_rng(number))
        try:
            damage.check_predictions(longtail.load(folder))
            outcomes.add("valid")
        except LongtailError:
            outcomes.add("refused")
    assert "refused" in outcomes


def sign(folder: Path, **changes: Any) -> Path:
    """Change entries of a manifest and sign it again."""
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["sha256"]
    (folder / MANIFEST).write_bytes(sign_manifest({**manifest, **changes}))
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    damage.write_signed(load_bundle(saved), tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("version", [True, 5.0, "5", None, [5], 0, -1])
def test_the_format_is_a_known_integer(copy: Path, version: Any) -> None:
    with pytest.raises(BundleError, match="this longtail reads format"):
        longtail.load(sign(copy, format=version))


def test_the_error_names_the_part_the_array_and_what_was_found(saved: Path) -> None:
    bundle = load_bundle(saved)
    features = bundle.arrays["model"]["0.features"].copy()
    features[0] = 2**31 - 1
    bundle.arrays["model"]["0.features"] = features
    with pytest.raises(
        BundleError, match=r'model: the array "model\.0\.features" has the value 2147483647\. It must be at mos'
    ):
        unpack_tagger(Tagger, bundle, "model")


def test_links_out_of_the_folder_are_refused_and_others_followed(copy: Path, tmp_path: Path) -> None:
    file = next(path for path in copy.iterdir() if path.name.startswith("model"))
    file.rename(copy / "inside")
    file.symlink_to("inside")
    longtail.load(copy)
    (copy / "inside").rename(tmp_path / "outside")
    file.unlink()
    file.symlink_to(tmp_path / "outside")
    with pytest.raises(BundleError, match="leads out of the folder"):
        longtail.load(copy)
    (tmp_path / "link").symlink_to(copy)  # the folder itself may be a link
    file.unlink()
    (tmp_path / "outside").rename(file)
    longtail.load(tmp_path / "link")


def test_pipes_are_refused_without_waiting(copy: Path) -> None:
    (copy / MANIFEST).unlink()
    os.mkfifo(copy / MANIFEST)
    with pytest.raises(BundleError, match="not a regular file"):
        longtail.load(copy)
    with pytest.raises(BundleError, match="not a regular file"), open_file(copy, MANIFEST):
        pass


def test_a_header_cannot_be_larger_than_its_file(copy: Path) -> None:
    bundle = load_bundle(copy)
    content = dict(damage.encode_files(bundle))
    content["model.safetensors"] = (2**40).to_bytes(8, "little") + content["model.safetensors"][8:]
    damage.write_files(content, bundle.about, copy)
    with pytest.raises(BundleError, match="a header of 1099511627776 bytes"):
        longtail.load(copy)


def test_scores_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    """Weights are not read while loading: what is not finite among them never becomes a score."""
    damage.train_model("ovr", tmp_path / "model")
    bundle = load_bundle(tmp_path / "model")
    bundle.arrays["model"]["bias"] = np.full_like(bundle.arrays["model"]["bias"], np.inf)
    tagger = unpack_tagger(Tagger, bundle, "model")
    with pytest.raises(LongtailError, match="a score that is not finite"):
        tagger.predict(["a ripe apple"])
