"""Models are replaced while requests go on; a bad model changes nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail import Tagger, edit_labels
from longtail.service.metrics import Metrics
from longtail.service.models import ModelStore
from service.conftest import Client, run_in_thread


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A model that may be changed."""
    return shutil.copytree(folder, tmp_path / "copy")


def test_a_changed_model_replaces_the_old_one(make_client: Callable[..., Client], copy: Path) -> None:
    client = make_client({"topics": copy})
    before = client.get("/api/v1/models/topics").json()["version"]
    assert client.post("/api/v1/admin/reload").json()["models"][0]["version"] == before  # nothing has changed
    edit_labels(copy).rename("sea", "ocean")
    after = client.post("/api/v1/admin/reload", {"model": "topics"}).json()["models"][0]["version"]
    assert after != before
    answer = client.post("/api/v1/predict", {"texts": ["ship"], "k": 1}).json()
    assert (answer["version"], answer["results"][0]["labels"][0]["label"]) == (after, "ocean")
    metrics = client.get("/metrics").text
    assert f'version="{after}"' in metrics and f'version="{before}"' not in metrics


def test_a_request_keeps_the_model_that_it_began_with(make_client: Callable[..., Client], copy: Path) -> None:
    client = make_client({"topics": copy})
    old = client.app.state.service.models.get("topics")
    edit_labels(copy).rename("sea", "ocean")

    async def work() -> None:
        reload = client.loop.create_task(client.http.post("/api/v1/admin/reload"))
        answers = []
        while not reload.done():
            answers.append(await client.http.post("/api/v1/predict", json={"texts": ["ship"], "k": 1}))
        answers.append(await client.http.post("/api/v1/predict", json={"texts": ["ship"], "k": 1}))
        names = {old.version: "sea", client.app.state.service.models.get("topics").version: "ocean"}
        assert all(answer.status_code == 200 for answer in answers)
        bodies = [answer.json() for answer in answers]
        assert all(one["results"][0]["labels"][0]["label"] == names[one["version"]] for one in bodies)
        assert bodies[-1]["version"] != old.version

    client.run(work())


@pytest.mark.parametrize("damage", ["manifest", "array", "missing"])
def test_a_damaged_model_changes_nothing(make_client: Callable[..., Client], copy: Path, damage: str) -> None:
    client = make_client({"topics": copy})
    before = client.get("/api/v1/models/topics").json()
    edit_labels(copy).rename("sea", "ocean")
    if damage == "missing":
        shutil.rmtree(copy)
    else:
        path = copy / "manifest.json" if damage == "manifest" else next(copy.glob("model-*.safetensors"))
        content = bytearray(path.read_bytes())
        content[-20] ^= 1
        replaced = path.with_name("replaced")
        replaced.write_bytes(content)
        replaced.replace(path)
    answer = client.post("/api/v1/admin/reload", {"model": "topics"})
    assert answer.status_code == 409 and answer.json()["hint"]
    assert client.get("/api/v1/models/topics").json() == before
    assert client.post("/api/v1/predict", {"texts": ["ship"], "k": 1}).json()["results"][0]["labels"][0]["label"] == "sea"
    assert 'longtail_model_reloads_total{result="failed"} 1.0' in client.get("/metrics").text


def test_a_model_that_cannot_predict_changes_nothing(
    make_client: Callable[..., Client], copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client({"topics": copy})
    before = client.get("/api/v1/models/topics").json()["version"]
    edit_labels(copy).rename("sea", "ocean")
    monkeypatch.setattr(Tagger, "encode", lambda *_: 1 / 0)  # the probe fails
    assert client.post("/api/v1/admin/reload").status_code == 500
    assert client.get("/api/v1/models/topics").json()["version"] == before


def test_a_changed_folder_is_noticed(make_client: Callable[..., Client], copy: Path) -> None:
    client = make_client({"topics": copy}, watch=0.02)
    before = client.get("/api/v1/models/topics").json()["version"]
    edit_labels(copy).rename("sea", "ocean")

    async def work() -> None:
        async with asyncio.timeout(30):
            while client.app.state.service.models.get("topics").version == before:
                await asyncio.sleep(0.02)

    client.run(work())


def test_a_copy_that_takes_long_is_loaded_once_it_is_complete(
    make_client: Callable[..., Client], copy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = shutil.copytree(copy, tmp_path / "new")
    edit_labels(new).rename("sea", "ocean")
    client = make_client({"topics": copy}, watch=0.05)
    models = client.app.state.service.models
    before = models.get("topics").version

    async def work() -> None:
        for path in copy.glob("*"):
            path.unlink()
        shutil.copy(new / "manifest.json", copy)  # as `cp -r` does: before the files that it names
        async with asyncio.timeout(30):
            while "was not loaded again" not in caplog.text:  # it looks as if the copy had stopped
                await asyncio.sleep(0.02)
            for path in new.glob("*-*"):
                shutil.copy(path, copy)
            while models.get("topics").version == before:
                await asyncio.sleep(0.02)

    client.run(work())
    assert client.post("/api/v1/predict", {"texts": ["ship"], "k": 1}).json()["results"][0]["labels"][0]["label"] == "ocean"


def test_a_manifest_that_is_not_complete_is_reported_once(
    make_client: Callable[..., Client], copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client({"topics": copy}, watch=0.01)
    (copy / "manifest.json").write_bytes(b'{"files": ')

    async def work() -> None:
        async with asyncio.timeout(30):
            while "was not loaded again" not in caplog.text:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)

    client.run(work())
    assert caplog.text.count("was not loaded again") == 1


def test_feedback_in_the_folder_of_a_model_is_no_change(make_client: Callable[..., Client], copy: Path) -> None:
    client = make_client({"topics": copy}, watch=0.01, feedback=str(copy))
    models = client.app.state.service.models

    async def work() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(models, "reload", lambda name: pytest.fail("loaded again"))
            for _ in range(5):
                event = {"model": "topics", "consent": True, "text": "ship", "accepted": ["sea"]}
                assert (await client.http.post("/api/v1/feedback", json=event)).status_code == 201
                await asyncio.sleep(0.05)

    client.run(work())
    assert (copy / "topics.jsonl").is_file()


def test_a_change_between_loading_and_start_is_noticed(folder: Path, copy: Path) -> None:
    store = ModelStore({"topics": copy}, 1, Metrics())
    store.load_all()
    before = store.get().version
    edit_labels(copy).rename("sea", "ocean")

    async def work() -> None:
        watch = asyncio.create_task(store.watch(0.01))
        async with asyncio.timeout(30):
            while store.get().version == before:
                await asyncio.sleep(0.02)
        watch.cancel()

    run_in_thread(work())


def test_any_failure_of_a_reload_is_logged(
    make_client: Callable[..., Client], copy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client({"topics": copy})
    monkeypatch.setattr(Tagger, "encode", lambda *_: 1 / 0)
    client.run(client.app.state.service.models.try_reload_all())
    assert "was not loaded again, the present one stays: ZeroDivisionError" in caplog.text


def test_only_models_that_were_named_at_the_start(client: Client, folder: Path) -> None:
    assert client.post("/api/v1/admin/reload", {"model": str(folder)}).status_code == 404
    assert client.post("/api/v1/predict", {"texts": ["a"], "model": str(folder)}).status_code == 404
