"""Tagging a text: ranked labels, the words that speak for them, the threshold, decisions, copies and feedback."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from service.page.conftest import TEXT
from service.page.fake_service import MARKUP, Service, predict_one

Tag = Callable[..., Any]


def names(rows: Any) -> list[str]:
    return [row.get_attribute("data-label-name") for row in rows.all()]


def marked(page: Any) -> list[str]:
    return page.locator("#backdrop mark").all_text_contents()


def test_labels_are_ranked_with_path_score_and_count(page: Any, tag: Tag) -> None:
    rows = tag(page)
    expected = predict_one(TEXT, "million", 20, explain=True)["labels"]
    assert names(rows) == [one["label"] for one in expected]
    row, one = rows.nth(1), expected[1]
    assert row.locator(".path").text_content() == " › ".join(one["path"])
    assert row.locator(".value").text_content() == f"{one['score']:.0%}"
    assert row.locator(".count").text_content() == f"{one['n_samples']:,}"
    assert page.locator("#counter").text_content() == "19 words · 1 unknown to the model"
    share = row.locator(".meter").evaluate("node => parseFloat(getComputedStyle(node, '::before').width) / node.clientWidth")
    assert share == pytest.approx(one["score"], abs=0.02)


def test_keys_and_the_mouse_highlight_the_words_of_a_label(page: Any, tag: Tag) -> None:
    rows = tag(page)

    def words(rank: int) -> list[str]:
        parts = predict_one(TEXT, "million", 20, explain=True)["labels"][rank]["parts"]
        return [TEXT[part["start"] : part["end"]] for part in parts if part["weight"] > 0.2]

    expect(rows.nth(0)).to_be_focused()
    assert marked(page) == words(0)  # also behind the emoji, which is two units of a JavaScript string
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    expect(rows.nth(2)).to_be_focused()
    assert marked(page) == words(2)
    assert words(2)[0].lower() in page.locator("#why").text_content()
    rows.nth(4).hover()
    assert marked(page) == words(4)
    page.mouse.move(5, 5)
    assert marked(page) == words(2)
    page.keyboard.press("k")
    page.keyboard.press("ArrowUp")
    assert marked(page) == words(0)


def test_the_marks_lie_behind_their_words(page: Any, tag: Tag) -> None:
    """The text and its backdrop break lines alike, also after scrolling."""
    tag(page, "\n".join([TEXT] * 40))
    page.locator("#text").evaluate("text => { text.scrollTop = 200; }")
    expect(page.locator("#backdrop")).to_have_js_property("scrollTop", 200)
    text, backdrop = (
        page.locator(name).evaluate("node => [node.clientWidth, node.scrollHeight]") for name in ("#text", "#backdrop")
    )
    assert text == backdrop


def test_a_text_unlike_the_training_data_is_warned_of(page: Any, tag: Tag) -> None:
    tag(page)
    assert page.locator("#warning").is_hidden()
    tag(page, "Antidisestablishmentarianism internationalization")
    expect(page.locator("#warning")).to_contain_text("does not know 2 of the 2 words")


def test_the_threshold_says_what_to_expect(page: Any, tag: Tag) -> None:
    rows = tag(page)
    assert page.locator("#threshold-auto").get_attribute("aria-pressed") == "true"
    assert 1 <= page.locator(".row:not(.below)[data-label-name]").count() < rows.count()
    page.locator("#threshold").fill("0.6")
    proposed = [one for one in predict_one(TEXT, "million", 20, explain=False)["labels"] if one["score"] >= 0.6]
    assert page.locator(".row:not(.below)[data-label-name]").count() == len(proposed) == 3
    assert (
        page.locator("#expected").text_content() == f"3 labels · expected precision {proposed[-1]['expected_precision']:.0%}"
    )
    tag(page, TEXT + " again")
    assert page.locator("#threshold-value").text_content() == "60%"  # the choice of the user stays
    page.click("#threshold-auto")
    assert page.locator("#threshold-value").text_content() != "60%"


def test_margins_have_no_expected_precision(page: Any, tag: Tag) -> None:
    tag(page, model="margins")
    assert page.locator("#expected").text_content() == "4 labels"
    assert page.locator("#threshold-value").text_content() == "0.00"


def test_decisions_by_keys_are_shown_and_undone(page: Any, tag: Tag) -> None:
    rows = tag(page)
    before = names(rows)
    for key in "axx":
        page.keyboard.press(key)
    states = [row.get_attribute("data-state") for row in rows.all()]
    assert states[:4] == ["accepted", "rejected", "rejected", ""]
    assert names(rows) == before  # what was rejected stays visible
    page.keyboard.press("u")
    assert rows.nth(2).get_attribute("data-state") == ""
    rows.nth(1).get_by_role("button", name="Accept").click()
    assert rows.nth(1).get_attribute("data-state") == "accepted"
    expect(rows.nth(1)).to_be_focused()
    page.click("#accept-all")
    accepted = page.locator(".row.accepted").count()
    assert accepted == page.locator(".row:not(.below)[data-label-name]").count() > 2
    page.click("#undo")  # one step
    assert page.locator(".row.accepted").count() == 2


def test_labels_are_copied_in_every_format(open_page: Callable[..., Any], service: Service, tag: Tag) -> None:
    page = open_page(service.url, permissions=["clipboard-read", "clipboard-write"])
    tag(page)
    page.keyboard.press("a")
    page.keyboard.press("a")
    first, second = predict_one(TEXT, "million", 2, explain=False)["labels"]

    def copy(kind: str) -> str:
        page.select_option("#copy-format", kind)
        page.locator("#messages").evaluate("node => node.replaceChildren()")
        page.click("#copy")
        page.get_by_text("2 labels copied").wait_for()
        return page.evaluate("navigator.clipboard.readText()")

    assert copy("names") == f"{first['label']}\n{second['label']}"
    assert copy("uris") == f"{first['id']}\n{second['id']}"
    assert [one["path"] for one in json.loads(copy("json"))] == [first["path"], second["path"]]
    assert [row[:2] for row in csv.reader(copy("csv").splitlines())][1:] == [
        [one["label"], one["id"]] for one in (first, second)
    ]
    assert copy("marc").splitlines()[0] == f"=650  \\4$a{first['label']}$0{first['id']}"


def test_signs_with_a_meaning_are_escaped(page: Any) -> None:
    write = "([kind, labels]) => import('./page/formats.js').then(({FORMATS}) => FORMATS[kind](labels))"
    assert page.evaluate(write, ["marc", [{"label": "a$b{", "id": "x"}]]) == "=650  \\4$aa{dollar}b{lcub}"
    row = {"label": "=1+1", "id": "@x", "score": -0.5}
    assert page.evaluate(write, ["csv", [row]]) == "label,id,score\r\n'=1+1,'@x,-0.5\r\n"


def test_feedback_has_the_text_only_with_consent(page: Any, service: Service, tag: Tag) -> None:
    rows = tag(page)
    assert page.locator("#feedback").is_disabled()  # nothing is decided
    first, second = names(rows)[:2]
    page.keyboard.press("a")
    page.keyboard.press("x")
    page.click("#feedback")
    page.get_by_text("Feedback saved, without the text.").wait_for()
    expect(page.locator("#feedback")).to_be_disabled()  # not twice
    page.check("#consent")
    page.click("#feedback")
    page.get_by_text("Feedback saved, with the text.").wait_for()
    without, with_text = service.feedback
    assert "text" not in without and without["consent"] is False
    assert with_text["text"] == TEXT and with_text["consent"] is True
    decided = {"accepted": [first], "rejected": [second], "added": [], "shown": names(rows)}
    assert {key: without[key] for key in decided} == decided
    assert (without["model"], without["version"]) == ("million", "3f2a91c")


def test_names_are_text_never_markup(page: Any, tag: Tag) -> None:
    rows = tag(page, "MARKUP <b>in</b> the text")
    assert rows.nth(0).locator(".label").text_content() == MARKUP
    assert page.locator("main img, main b").count() == 0
    assert page.title() == "longtail"


def test_an_edited_text_is_noticed(page: Any, tag: Tag) -> None:
    rows = tag(page)
    assert page.locator("#stale").is_hidden()
    page.locator("#text").press_sequentially(" more")
    assert page.locator("#stale").is_visible() and not marked(page)
    rows.nth(1).hover()
    assert not marked(page)  # positions of words are those of the text before


HTML = "<title>t</title><script>1</script><p>An <b>old</b> harbour</p><p style='color: red'>of stone"
CSV = 'id;body\n1;"the ""old"" harbour\nof stone; and wood"\n2;ships\n'
JSONL = '{"text": "the harbour", "n": 1}\n{"text": "ships"}\n'


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("one.txt", TEXT, TEXT),
        ("one.html", HTML, "An old harbour\nof stone"),
        ("two.csv", CSV, 'the "old" harbour\nof stone; and wood'),
        ("two.jsonl", JSONL, "the harbour"),
    ],
)
def test_files_are_read(name: str, content: str, text: str, page: Any, service: Service) -> None:
    page.set_input_files("#file", {"name": name, "mimeType": "", "buffer": content.encode()})
    page.wait_for_selector(".row[data-label-name]")
    assert page.input_value("#text") == text == service.predictions[0]["texts"][0]
    assert page.locator("#records").is_visible() == name.startswith("two")


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("mark.txt", "\ufeffDer Hafen für Schiffe".encode(), "Der Hafen für Schiffe"),
        ("wide.txt", "Der Hafen für Schiffe".encode("utf-16"), "Der Hafen für Schiffe"),  # as spreadsheets export texts
        ("old.html", "<meta charset=iso-8859-1><p>Häfen".encode("latin-1"), "Häfen"),
    ],
)
def test_the_encoding_that_a_file_names_is_used(name: str, content: bytes, text: str, page: Any) -> None:
    page.set_input_files("#file", {"name": name, "mimeType": "", "buffer": content})
    page.wait_for_selector(".row[data-label-name]")
    assert page.input_value("#text") == text


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("old.csv", "text\nHäfen\n".encode("latin-1"), "old.csv is not a text in UTF-8."),
        ("old.html", b"<meta charset=none><p>H\xe4fen", "old.html is not a text in UTF-8."),
        ("book.pdf", b"%PDF-1.7\n\xe4\0\0", "book.pdf is not a text file."),
    ],
)
def test_no_character_is_guessed(name: str, content: bytes, found: str, page: Any) -> None:
    page.set_input_files("#file", {"name": name, "mimeType": "", "buffer": content})
    page.get_by_text(found).wait_for()
    assert page.input_value("#text") == ""


def test_a_file_can_be_dropped_and_its_records_keep_their_decisions(page: Any) -> None:
    lines = "".join(json.dumps({"text": f"harbour number {i}"}) + "\n" for i in range(3))
    page.evaluate(
        """([name, content]) => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([content], name));
            const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
            document.getElementById("text").dispatchEvent(drop);
        }""",
        ["records.jsonl", lines],
    )
    page.wait_for_selector(".row[data-label-name]")
    page.keyboard.press("a")
    page.click("#next-record")
    expect(page.locator(".row.accepted")).to_have_count(0)
    assert page.input_value("#text") == "harbour number 1"
    assert page.locator("#record-number").text_content() == "2 of 3"
    page.click("#previous-record")
    page.wait_for_selector(".row.accepted")
    assert page.locator(".row.accepted").count() == 1


def test_what_cannot_be_read_is_explained(page: Any, tag: Tag) -> None:
    page.set_input_files("#file", {"name": "bad.jsonl", "mimeType": "", "buffer": b'{"text": "a"}\n{"text"'})
    page.get_by_text("bad.jsonl, line 2: this is not JSON.").wait_for()
    page.select_option("#model", "vectors")
    assert page.locator("#run").is_disabled()
    assert "cannot read texts" in page.locator("#labels-empty").text_content()


def test_an_error_of_the_service_is_shown_with_its_hint(page: Any) -> None:
    page.fill("#text", "FAIL")
    page.keyboard.press("Control+Enter")
    page.get_by_text("the text cannot be read").wait_for()
    assert "Send another text" in page.locator("#messages").text_content()


def test_weak_evidence_and_evidence_against_are_not_marked(page: Any) -> None:
    shade = "([text, parts]) => import('./page/highlight.js').then(({shade}) => shade(text, parts))"
    weights = {(0, 1): 10.0, (2, 3): 5.0, (4, 5): 2.5, (6, 7): 1.5, (8, 9): -9.0, (0, 3): 0.1}
    parts = [{"start": start, "end": end, "weight": weight} for (start, end), weight in weights.items()]
    pieces = page.evaluate(shade, ["𝄞 b c d e", parts])
    assert [(piece["text"], piece["level"]) for piece in pieces if piece["level"]] == [("𝄞", 3), ("b", 2), ("c", 1)]
    assert page.evaluate(shade, ["", []]) == []
