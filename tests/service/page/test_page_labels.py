"""A label among a million: search by name, synonym and meaning, and the tree that loads level by level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from service.page.fake_service import CARDS, Service

Tag = Callable[..., Any]


def search(page: Any, query: str) -> Any:
    page.fill("#query", query)
    page.wait_for_selector("#found:not([hidden]) [role=option]")
    return page.locator("#found [role=option]")


def test_a_label_is_found_by_its_beginning_and_added(page: Any, service: Service, tag: Tag) -> None:
    assert CARDS["million"]["n_labels"] > 1_000_000
    rows = tag(page)
    page.keyboard.press("j")
    page.keyboard.press("/")
    options = search(page, "maps in arctic law")
    assert options.nth(0).locator(".label").text_content() == "Maps in arctic law"
    assert options.nth(0).locator(".path").text_content() == "Arctic law"
    page.keyboard.press("ArrowDown")
    assert page.locator("#query").get_attribute("aria-activedescendant") == "option-1"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert page.locator("#picker").is_hidden()
    expect(rows.nth(2)).to_be_focused()  # the same label as before, one row further down
    assert rows.nth(0).get_attribute("data-label-name") == "Maps in arctic law"
    assert rows.nth(0).get_attribute("data-state") == "added"
    expect(rows.nth(0).locator(".value")).to_have_text("2%")  # what the model says about it
    rows.nth(0).hover()
    assert page.locator("#backdrop mark").count() > 0
    page.click("#feedback")
    page.get_by_text("Feedback saved").wait_for()
    assert service.feedback[0]["added"] == ["Maps in arctic law"]
    page.keyboard.press("u")
    assert page.locator(".row.added").count() == 0


def test_a_synonym_is_named(page: Any, tag: Tag) -> None:
    tag(page)
    page.keyboard.press("/")
    option = search(page, "vessels in").nth(0)
    assert option.locator(".label").text_content() == "Ships in marine biology"
    assert option.locator(".synonym").text_content() == "also called “Vessels in marine biology”"


def test_a_label_without_training_texts_can_be_added(page: Any, tag: Tag) -> None:
    tag(page)
    page.keyboard.press("/")
    search(page, "medieval law")
    with page.expect_response("**/predict") as answer:
        page.keyboard.press("Enter")
    assert answer.value.status == 400  # the model never predicts it
    page.keyboard.press("Escape")
    row = page.locator(".row.added")
    assert row.get_attribute("data-label-name") == "Medieval law" and row.locator(".value").count() == 0
    row.hover()
    assert page.locator("#why").text_content() == "" and page.locator(".message").count() == 0


def test_an_error_is_shown_in_the_dialog_in_which_it_happened(page: Any, tag: Tag) -> None:
    tag(page)
    problem = '{"detail": "4,000 texts wait already", "hint": "Try again later"}'
    page.route("**/api/v1/labels?*", lambda route: route.fulfill(status=429, body=problem))
    page.keyboard.press("/")
    page.fill("#query", "harb")
    message = page.locator("#picker .message.error")
    message.get_by_text("4,000 texts wait already").wait_for()
    message.get_by_role("button", name="Close").click()  # what is behind a dialog cannot be clicked
    expect(message).to_have_count(0)


def test_search_by_meaning(page: Any, tag: Tag) -> None:
    tag(page)
    page.keyboard.press("/")
    page.fill("#query", "medieval law")
    page.get_by_text("Medieval law").wait_for()
    page.fill("#query", "law of the medieval")
    page.get_by_text("No label found for “law of the medieval”.").wait_for()
    page.get_by_label("Meaning").check()
    page.wait_for_selector("#found:not([hidden]) [role=option]")


def test_a_proposed_label_that_is_picked_is_accepted(page: Any, tag: Tag) -> None:
    rows = tag(page)
    name = rows.nth(5).get_attribute("data-label-name")
    page.keyboard.press("/")
    option = search(page, name).nth(0)
    option.click()
    assert rows.nth(5).get_attribute("data-state") == "accepted" and rows.count() == 20
    assert option.locator(".mark svg").count() == 1
    option.click()  # the same again takes it back
    assert rows.nth(5).get_attribute("data-state") == "" and option.locator(".mark svg").count() == 0


def test_the_tree_loads_level_by_level_with_the_keyboard(page: Any, tag: Tag) -> None:
    tag(page)
    page.keyboard.press("/")
    page.wait_for_selector("#tree [role=treeitem]")
    items = page.locator("#tree [role=treeitem]")
    assert items.count() == 100
    focused = "document.activeElement.getAttribute('aria-label')"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "Marine biology"
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tree [aria-level='2']")
    assert items.count() == 110
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tree [aria-level='3']")
    assert items.count() == 110 + 200 + 1  # of a thousand, and an item for more
    more = page.locator("#tree .more")
    assert more.text_content() == "Show 200 more of 800"
    more.click()
    expect(page.locator("#tree [aria-level='3']")).to_have_count(401)
    page.locator("#tree [aria-level='2']").nth(0).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tree [aria-level='3']").nth(0).is_hidden()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == "Marine biology"
    page.keyboard.press("Escape")
    assert page.locator(".row.added").get_attribute("data-label-name") == "Harbours in marine biology"
