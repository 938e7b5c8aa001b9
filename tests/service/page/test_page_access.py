"""Everybody can use the page: axe finds nothing, keys suffice, nothing moves, narrow windows, colours, languages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import expect

from service.page.conftest import TEXT
from service.page.fake_service import Service, run_service

Open = Callable[..., Any]
Tag = Callable[..., Any]


@pytest.fixture(scope="module")
def axe() -> str:
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def violations(page: Any, axe: str) -> list[str]:
    """What axe finds in what is shown, with the elements."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)  # by the debugger, so that the policy of the page is as it is for users
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {node['html'][:150]} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(scheme: str, open_page: Open, service: Service, axe: str, tag: Tag) -> None:
    page = open_page(service.url, color_scheme=scheme)
    tag(page, "antidisestablishmentarianism internationalization")  # with a warning
    for key in "ax":
        page.keyboard.press(key)
    assert violations(page, axe) == []
    page.keyboard.press("/")
    page.wait_for_selector("#tree [role=treeitem]")
    assert violations(page, axe) == []
    page.fill("#query", "ships")
    page.wait_for_selector("[role=option]")
    page.keyboard.press("Enter")
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    page.click("#tab-compare")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".group")
    assert violations(page, axe) == []
    page.click("#tab-batch")
    page.set_input_files("#batch-file", {"name": "a.csv", "mimeType": "", "buffer": b"text,n\nharbour,1\nships,2\n"})
    page.click("#batch-start")
    page.get_by_text("All 2 texts are done.").wait_for()
    assert violations(page, axe) == []
    page.click("#tab-models")
    page.wait_for_selector(".plot")
    assert violations(page, axe) == []
    page.keyboard.press("?")
    assert violations(page, axe) == []


def test_nothing_moves_by_itself(open_page: Open, service: Service, tag: Tag) -> None:
    service.delay = 0.6  # the answer comes later than the time in which a browser expects changes after a key
    page = open_page(service.url)
    page.evaluate(
        """() => {
            window.shift = 0;
            const add = (one) => { if (!one.hadRecentInput) window.shift += one.value; };
            const observer = new PerformanceObserver((list) => list.getEntries().forEach(add));
            observer.observe({ type: "layout-shift", buffered: true });
        }"""
    )
    tag(page)
    page.wait_for_timeout(300)
    assert page.evaluate("window.shift") < 0.01


@pytest.mark.parametrize("model", ["million", "long-names"])
def test_a_narrow_window_never_scrolls_sideways(model: str, open_page: Open, service: Service, tag: Tag) -> None:
    page = open_page(service.url, viewport={"width": 360, "height": 640})
    tag(page, model=model)
    for name in ("tag", "compare", "batch", "models"):
        page.click(f"#tab-{name}")
        if name == "compare":
            page.click("#run")
            page.wait_for_selector(".group")
        if name == "batch":
            page.set_input_files(
                "#batch-file", {"name": "a" * 60 + ".csv", "mimeType": "", "buffer": b"text,n\nharbour,1\n"}
            )
            page.click("#batch-start")
            page.get_by_text("is done").wait_for()
        if name == "models":
            page.wait_for_selector(".bars")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name


def test_everything_works_without_a_mouse(page: Any) -> None:
    """From the top of the page with Tab: tabs by arrows, then the text, and from the labels to the buttons."""

    def focused() -> str:
        return page.evaluate("document.activeElement.id || document.activeElement.className")

    page.keyboard.press("Tab")
    assert focused() == "tab-tag"
    page.keyboard.press("ArrowLeft")
    assert focused() == "tab-models"
    expect(page.locator("#panel-models")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#panel-tag")).to_be_visible()
    seen = []
    for _ in range(7):
        page.keyboard.press("Tab")
        seen.append(focused())
    assert seen == ["language", "theme", "help-button", "model", "open-file", "text", "run"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.type(TEXT)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".row[data-label-name]")
    page.keyboard.press("a")
    seen = []
    for _ in range(6):
        page.keyboard.press("Tab")
        seen.append(focused())
    assert seen == ["icon accepted", "icon rejected", "copy-format", "copy", "consent", "feedback"]
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()


def test_letters_in_a_field_are_no_commands(page: Any, tag: Tag) -> None:
    tag(page)
    page.locator("#text").focus()
    page.keyboard.type("a/x?u")
    assert page.input_value("#text").endswith("a/x?u")
    assert page.locator(".row.accepted, .row.rejected, dialog[open]").count() == 0


def test_focus_is_visible_in_the_list(page: Any, tag: Tag) -> None:
    rows = tag(page)
    outline = "row => { const style = getComputedStyle(row); return style.outlineStyle + ' ' + style.outlineWidth; }"
    assert rows.nth(0).evaluate(outline) == "solid 2px"
    page.keyboard.press("End")
    box, bar = rows.nth(19).bounding_box(), page.locator("#actions").bounding_box()
    assert box["y"] + box["height"] <= bar["y"] + 1  # not below the bar at the bottom


def test_colours_and_language_are_kept(open_page: Open, service: Service, tag: Tag) -> None:
    page = open_page(service.url)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.select_option("#theme", "dark")
    assert page.evaluate(background) != light
    tag(page)
    page.select_option("#language", "de")
    page.get_by_role("tab", name="Erschließen").wait_for()
    assert page.locator(".row.head .count").text_content() == "Trainingstexte"
    assert page.locator("#counter").text_content() == "19 Wörter · 1 davon kennt das Modell nicht"
    page.reload()
    page.get_by_role("tab", name="Erschließen").wait_for()
    assert page.evaluate(background) != light and page.evaluate("document.documentElement.lang") == "de"


def test_the_language_of_the_browser_is_used(open_page: Open, service: Service) -> None:
    page = open_page(service.url, locale="de-AT")
    assert page.get_by_role("tab", name="Erschließen").is_visible()


def test_a_token_is_asked_for_and_stays_in_memory(open_page: Open, tag: Tag) -> None:
    with run_service(token="secret") as guarded:
        page = open_page(guarded.url)
        assert page.locator("#token-refused").is_hidden()
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.get_by_text("The service does not know this token.").wait_for()
        expect(page.locator("#token")).to_have_value("")  # asked again
        page.fill("#token", "secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#model option", state="attached")
        assert tag(page).count() == 20
        stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert "secret" not in stored and "secret" not in page.url
