"""The other tabs: two models compared, a file in a batch, the card of a model."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from service.page.conftest import TEXT
from service.page.fake_service import CARDS, Service, predict_one

FILE = {"name": "books.csv", "mimeType": "text/csv", "buffer": b'id,body\n1,"=HYPERLINK(""x"")"\n2,-ships\n3,harbour\n'}


def test_two_models_are_compared(page: Any) -> None:
    page.click("#tab-compare")
    page.select_option("#other-model", "margins")
    page.fill("#text", TEXT)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".group")
    left, right = (
        [one["label"] for one in predict_one(TEXT, model, 10, explain=False)["labels"]] for model in ("million", "margins")
    )
    shown = {name: page.locator(f".group.{name} .label").all_text_contents() for name in ("left", "both", "right")}
    assert shown == {
        "left": [name for name in left if name not in right],
        "both": [name for name in left if name in right],
        "right": [name for name in right if name not in left],
    }
    assert all(shown.values())
    assert page.locator(".group.both li").nth(0).locator(".value").count() == 2
    page.select_option("#compare-count", "5")
    expect(page.locator(".group li")).to_have_count(len({*left[:5], *right[:5]}))


def test_one_model_alone_is_not_compared(open_page: Callable[..., Any], service: Service) -> None:
    service.models = ("million", "vectors")
    page = open_page(f"{service.url}#compare")
    assert "longtail serve MODEL OTHER" in page.locator("#comparison-empty").text_content()
    assert page.locator("#other-model").is_disabled()


def download(page: Any, button: str) -> str:
    with page.expect_download() as info:
        page.click(button)
    return Path(info.value.path()).read_bytes().decode()


def test_a_batch_is_labelled_and_downloaded(page: Any, service: Service) -> None:
    service.busy = 2  # refused twice, with Retry-After
    page.click("#tab-batch")
    page.set_input_files("#batch-file", FILE)
    assert page.input_value("#batch-column") == "body"
    page.fill("#batch-count", "2")
    page.click("#batch-start")
    page.get_by_text("All 3 texts are done.").wait_for()
    assert service.predictions[-1] == {"model": "million", "k": 2, "texts": ['=HYPERLINK("x")', "-ships", "harbour"]}
    rows = list(csv.reader(download(page, "#batch-csv").splitlines()))
    assert rows[0] == ["id", "body", "label_1", "score_1", "label_2", "score_2"]
    assert [row[1] for row in rows[1:]] == ['\'=HYPERLINK("x")', "'-ships", "harbour"]  # no formulas
    first = predict_one("harbour", "million", 2, explain=False)["labels"][0]
    assert rows[3][2:4] == [first["label"], f"{first['score']:.6g}"]
    lines = [json.loads(line) for line in download(page, "#batch-jsonl").splitlines()]
    assert lines[1]["body"] == "-ships" and lines[2]["labels"][0]["label"] == first["label"]


def test_a_batch_is_cut_into_requests_and_can_be_cancelled(page: Any, service: Service) -> None:
    service.answers = 2
    page.click("#tab-batch")
    content = "".join(json.dumps({"title": f"harbour {i}"}) + "\n" for i in range(1000))
    page.set_input_files("#batch-file", {"name": "many.jsonl", "mimeType": "", "buffer": content.encode()})
    page.click("#batch-start")
    page.get_by_text("200 of 1,000 texts").wait_for()
    page.click("#batch-cancel")
    page.get_by_text("Stopped after 200 of 1,000 texts.").wait_for()
    service.released.set()
    assert [len(one["texts"]) for one in service.predictions] == [100] * 3  # the third was under way
    assert len(download(page, "#batch-jsonl").splitlines()) == 200
    assert page.locator("#batch-start").is_enabled()


def test_empty_cells_get_no_labels_and_columns_of_one_name_are_kept(page: Any) -> None:
    page.click("#tab-batch")
    content = "text,subject,subject\nharbour,one,two\n ,three,four\nships,five,six\n"
    page.set_input_files("#batch-file", {"name": "books.csv", "mimeType": "", "buffer": content.encode()})
    page.fill("#batch-count", "1")
    page.click("#batch-start")
    page.get_by_text("All 3 texts are done.").wait_for()
    head, first, empty, last = csv.reader(download(page, "#batch-csv").splitlines())
    assert head == ["text", "subject", "subject (3)", "label_1", "score_1"]
    assert (first[1:3], last[1:3]) == (["one", "two"], ["five", "six"])
    assert first[3] and last[3] and empty == [" ", "three", "four", "", ""]


def test_requests_are_short(page: Any) -> None:
    cut = "import('./page/batch.js').then(({cutBatches}) => cutBatches(%s))"
    assert page.evaluate(cut % "Array(250).fill('x')") == [100, 200, 250]
    assert page.evaluate(cut % "Array(3).fill('x'.repeat(300000))") == [1, 2, 3]
    assert page.evaluate(cut % "[]") == []


def test_the_card_of_a_model(page: Any) -> None:
    page.click("#tab-models")
    page.wait_for_selector(".plot")
    card = page.locator("#model-card").inner_text()
    for found in (
        "1,001,100",
        "1,240,518",
        "71.4",
        "P@5",
        "predicted by a second model of 372,155 others",
        "min_df",
        "Pairs of words are used",
        "merged “Boats” into “Ships”",
    ):
        assert found in card
    assert page.locator(".plot circle").count() == 10
    assert page.locator(".bars li").count() == 20
    page.select_option("#model", "margins")
    page.get_by_text("The scores of this model are not calibrated.").wait_for()
    assert page.get_by_text("No figures are saved with this model.").is_visible()
    assert CARDS["margins"]["trained"] is None and page.get_by_text("not recorded").count() == 2


def test_a_batch_keeps_the_columns_of_the_file_and_another_file_ends_it(page: Any, service: Service) -> None:
    service.answers = 1
    page.click("#tab-batch")
    content = "".join(json.dumps({"text": f"harbour {i}", "labels": ["old"]}) + "\n" for i in range(300))
    page.set_input_files("#batch-file", {"name": "many.jsonl", "mimeType": "", "buffer": content.encode()})
    page.click("#batch-start")
    page.get_by_text("100 of 300 texts").wait_for()
    few = "".join(content.splitlines(keepends=True)[:2])
    page.set_input_files("#batch-file", {"name": "few.jsonl", "mimeType": "", "buffer": few.encode()})
    service.released.set()
    page.click("#batch-start")
    page.get_by_text("All 2 texts are done.").wait_for()
    page.keyboard.press("Control+Enter")  # tags nothing here
    line = json.loads(download(page, "#batch-jsonl").splitlines()[0])
    assert line["labels"] == ["old"] and line["predicted_labels"][0].keys() == {"label", "id", "score"}
    page.select_option("#batch-column", "labels")
    assert page.locator("#batch-preview td.text").nth(0).text_content() == '["old"]'
    assert page.locator("#batch-preview .chips li").count() == 0 and page.locator("#batch-csv").is_disabled()
    assert not any(prediction.get("explain") for prediction in service.predictions)
