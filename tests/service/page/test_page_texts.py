"""The files of the page: texts in every language, and nothing that the Content-Security-Policy forbids."""

from __future__ import annotations

import json
import re

import pytest

from service.page.fake_service import PAGE

SCRIPTS = sorted(PAGE.glob("*.js"))
LANGUAGES = {path.stem: json.loads(path.read_text()) for path in sorted(PAGE.glob("*.json"))}
ENGLISH = LANGUAGES["en"]
SOURCES = "\n".join(path.read_text() for path in [PAGE / "index.html", *SCRIPTS])
FILLED = ("accepted", "rejected", "added", "probability", "margin", "count")  # what templates fill in
PLURAL = re.compile(r"\.(one|other|zero|two|few|many)$")


def is_used(key: str) -> bool:
    """Whether the page names a key, with its plural form or without, or in a template such as `score.${kind}`."""
    name = PLURAL.sub("", key)
    names = {key, name} | {re.sub(rf"\b{part}\b", "…", name) for part in FILLED}
    sources = re.sub(r"\$\{[^}]*\}", "…", SOURCES)
    return any(f"{mark}{one}{mark}" in sources for one in names for mark in ('"', "`"))


def test_every_text_is_used() -> None:
    assert [key for key in ENGLISH if not is_used(key)] == []


def test_every_text_that_the_page_names_exists() -> None:
    named = set(re.findall(r'data-(?:text|label|placeholder)="([^"]+)"', SOURCES)) | set(
        re.findall(r'\bsay\("([^"]+)"', SOURCES)
    )
    assert named - {PLURAL.sub("", key) for key in ENGLISH} - set(ENGLISH) == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_all_texts_with_the_same_values(language: str) -> None:
    texts = LANGUAGES[language]
    assert {PLURAL.sub("", key) for key in texts} == {PLURAL.sub("", key) for key in ENGLISH}
    for key in texts.keys() & ENGLISH.keys():
        assert texts[key].strip()
        assert set(re.findall(r"{\w+}", texts[key])) == set(re.findall(r"{\w+}", ENGLISH[key])), key


def test_every_language_can_be_chosen() -> None:
    offered = re.search(r"LANGUAGES = {(.*)}", (PAGE / "texts.js").read_text())
    assert offered and re.findall(r"(\w+): \"", offered[1]) == ["en", *(code for code in LANGUAGES if code != "en")]


def test_there_is_no_inline_script_or_style_and_nothing_from_other_hosts() -> None:
    page = (PAGE / "index.html").read_text()
    assert not re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    everything = SOURCES + (PAGE / "page.css").read_text()
    assert set(re.findall(r"https?://[\w./]+", everything)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_short_and_makes_no_markup_from_data(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    assert len(text.splitlines()) <= 250
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
