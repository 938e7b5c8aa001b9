"""The page with the real service and a real model, from the text to the file with feedback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import expect

from longtail.data.feedback import read_feedback
from longtail.data.layout import Layout
from longtail.service.app import make_app
from longtail.service.settings import ServiceSettings
from longtail.tagger.tagger import Tagger


@pytest.fixture
def address(folder: Path, tmp_path: Path) -> Iterator[str]:
    """The service with two models in a thread of this process."""
    settings = ServiceSettings(threads=1, watch=0.0, feedback=str(tmp_path / "feedback"))
    app = make_app(settings, {"topics": folder, "same": folder})
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


def test_from_a_text_to_feedback(address: str, open_page: Callable[..., Any], tmp_path: Path, tagger: Tagger) -> None:
    page = open_page(address)
    text = "The choir sang a tune of ripe plum and cherry"
    page.fill("#text", text)
    page.keyboard.press("Control+Enter")
    rows = page.locator(".row[data-label-name]")
    expect(rows).not_to_have_count(0)
    best = [tag.label for tag in tagger.predict([text], k=2)[0]]
    assert [row.get_attribute("data-label-name") for row in rows.all()][:2] == best
    assert set(best) == {"fruit", "music"}
    words = {"fruit": {"ripe", "plum", "cherry"}, "music": {"choir", "tune"}}
    assert words[best[0]] <= set(page.locator("#backdrop mark").all_text_contents())
    assert rows.nth(0).locator(".path").text_content() in ("things", "art")
    page.keyboard.press("a")
    page.keyboard.press("x")
    page.keyboard.press("/")
    page.wait_for_selector("#tree [role=treeitem]")
    assert page.locator("#tree [role=treeitem]").count() == 2
    page.fill("#query", "oce")  # a synonym has an accent
    page.get_by_text("also called “Océan”").wait_for()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.check("#consent")
    page.click("#feedback")
    page.get_by_text("Feedback saved, with the text.").wait_for()
    (event,) = [json.loads(line) for line in (tmp_path / "feedback" / "topics.jsonl").read_text().splitlines()]
    read = read_feedback([event], tagger.labels, Layout())  # what `longtail update --feedback` does
    right, wrong = ([tagger.labels.names[i] for i in part.indices] for part in (read.right.Y, read.wrong))
    assert (set(right), set(wrong)) == ({best[0], "sea"}, {best[1]})


def test_the_other_tabs(address: str, open_page: Callable[..., Any]) -> None:
    page = open_page(f"{address}#compare")
    page.fill("#text", "iron and copper ore")
    page.click("#run")
    page.wait_for_selector(".group.both li")
    assert page.locator(".group.left li, .group.right li").count() == 0  # it is the same model twice
    page.click("#tab-batch")
    page.set_input_files("#batch-file", {"name": "a.csv", "mimeType": "", "buffer": b"text\niron\n\nship\n"})
    page.click("#batch-start")
    page.get_by_text("All 2 texts are done.").wait_for()
    page.click("#tab-models")
    page.wait_for_selector(".plot circle")
    assert page.locator(".bars li").count() == 6
