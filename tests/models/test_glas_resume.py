"""GLaS: logs, checkpoints, and what needs torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from glas_toy import Data, fit_quick, make_toy, states_equal

import longtail
from longtail import Dataset, Tagger
from longtail.errors import DataError, MissingExtra, SettingError
from longtail.models.glas.training import GlasTraining
from longtail.nn import loop


@pytest.fixture(scope="module")
def toy() -> Data:
    return make_toy()


class Killed(Exception):
    pass


def test_a_killed_run_resumes_to_the_same_model(toy: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    settings: dict[str, Any] = {"epochs": 3, "holdout": 0.2, "reg_sampling": "uniform", "negatives": "batch"}
    whole = fit_quick(toy, **settings)
    original = GlasTraining.loss
    for kill_at in (2, 7, 11):
        calls = iter(range(1, 99))

        def dies(self: GlasTraining, rows: Any, kill_at: int = kill_at, calls: Iterator[int] = calls) -> torch.Tensor:
            if next(calls) == kill_at:
                raise Killed
            return original(self, rows)

        monkeypatch.setattr(GlasTraining, "loss", dies)
        with pytest.raises(Killed):
            fit_quick(toy, checkpoint=str(tmp_path / f"{kill_at}"), **settings)
        monkeypatch.setattr(GlasTraining, "loss", original)
        again = fit_quick(toy, checkpoint=str(tmp_path / f"{kill_at}"), **settings)
        assert states_equal(again.state(), whole.state())
        assert [row["metric"] for row in again.history] == [row["metric"] for row in whole.history]


def test_a_checkpoint_of_other_settings_or_data_is_refused(toy: Data, tmp_path: Path) -> None:
    """Otherwise the old model would be returned as if it had been trained again."""
    X, Y = toy
    file = str(tmp_path / "c")
    whole = fit_quick(toy, epochs=2, checkpoint=file)
    changes: list[dict[str, Any]] = [{"reg_weight": 1.0}, {"keep_prob": 0.9}, {"rate": 4.0}, {"logq_correction": 0.0}]
    for change in [*changes, {"dim": 8}, {"seed": 1}]:
        with pytest.raises(DataError, match=f"other settings.*{next(iter(change))}"):
            fit_quick(toy, **{"epochs": 2, "checkpoint": file, **change})
    for data in ((sp.csr_array(X * np.float32(2)), Y), (X, Y[np.arange(len(Y.indptr) - 2, -1, -1)])):
        with pytest.raises(DataError, match=r"other settings.*data"):
            fit_quick(data, epochs=2, checkpoint=file)
    assert states_equal(fit_quick(toy, epochs=2, checkpoint=file, threads=2).state(), whole.state())


def test_log_and_checkpoint_are_written_but_not_saved_with_the_model(train: Dataset, tmp_path: Path) -> None:
    files = {"log": str(tmp_path / "run.jsonl"), "checkpoint": str(tmp_path / "run.ckpt")}
    tagger = Tagger("glas", epochs=3, dim=8, **files).fit(train)
    rows = [json.loads(line) for line in Path(files["log"]).read_text().splitlines()]
    assert rows == tagger.model.history and [row["epoch"] for row in rows] == [1, 2, 3]  # type: ignore[attr-defined]
    assert rows[0].keys() == {"epoch", "loss", "seconds", "metric", "P@1"}
    assert Path(files["checkpoint"]).is_file()
    tagger.save(tmp_path / "m")
    manifest = (tmp_path / "m" / "manifest.json").read_text()
    assert "run.jsonl" not in manifest and "run.ckpt" not in manifest and '"epochs": 3' in manifest
    again = longtail.load(tmp_path / "m")
    assert again.model.get_params()["log"] is None and again.model.get_params()["checkpoint"] is None
    assert again.predict(train.inputs) == tagger.predict(train.inputs)
    resumed = Tagger("glas", epochs=3, dim=8, **files).fit(train)  # already complete
    assert resumed.predict(train.inputs) == tagger.predict(train.inputs)


def test_prediction_does_not_import_torch(train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("glas", preset="paper", epochs=1, dim=8, threads=1).fit(train)
    tagger.save(tmp_path / "m")
    program = (
        "import sys, json, longtail\n"
        f"tagger = longtail.load({str(tmp_path / 'm')!r})\n"
        "print(json.dumps(tagger.predict(json.loads(sys.argv[1]), 2)))\n"
        "assert tagger.model.W2 is not None\n"
        "assert 'torch' not in sys.modules and 'longtail.models.glas.training' not in sys.modules\n"
    )
    texts = ["ripe apple", "copper ore"]
    done = subprocess.run([sys.executable, "-c", program, json.dumps(texts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here = [[[tag.label, pytest.approx(tag.score, rel=1e-6), None] for tag in tags] for tags in tagger.predict(texts, 2)]
    assert json.loads(done.stdout) == here


def test_training_without_torch_names_what_to_install(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit_quick(toy, epochs=1)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"Training glas needs torch.*longtail\[nn\]"):
        fit_quick(toy)
    with pytest.raises(SettingError, match="loss is"):  # settings are checked first
        fit_quick(toy, loss="none")
    assert model.topk(toy[0], 1).k == 1
