"""The page in a real browser: the system's Chromium, driven by playwright. Without it, the tests are skipped."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from service.page.fake_service import Service, run_service

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60_000  # milliseconds that a browser may take for a step: other programs may use all cores
TEXT = "The harbour 🚢 of the old town was built for ships, and its lighthouse guided sailors through the reefs."


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=FLAGS, timeout=2 * PATIENCE)
        yield running
        running.close()


@pytest.fixture(scope="session")
def one_service() -> Iterator[Service]:
    with run_service() as running:
        yield running


@pytest.fixture
def service(one_service: Service) -> Service:
    """The service, as if it had just started."""
    one_service.reset()
    return one_service


def is_problem(message: Any) -> bool:
    """Whether a line of the console is a warning or an error. The browser also logs requests that the service refuses."""
    refused = re.search(r"status of (400|401|422|429)", message.text)
    return message.type in ("error", "warning") and not refused


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open an address in a new window; at the end, the console must have no error, also none of the CSP."""
    contexts, problems = [], []

    def start(url: str, **settings: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, "locale": "en-US", **settings})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: problems.append(message.text) if is_problem(message) else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        page.wait_for_selector("body:not(.loading)")
        return page

    yield start
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def page(open_page: Callable[..., Any], service: Service) -> Any:
    return open_page(service.url)


def run_on_text(page: Any, text: str = TEXT, model: str = "million") -> Any:
    """Tag a text with the keyboard; returns the rows of labels."""
    page.select_option("#model", model)
    page.fill("#text", text)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".row[data-label-name]")
    return page.locator(".row[data-label-name]")


@pytest.fixture
def tag() -> Callable[..., Any]:
    return run_on_text
