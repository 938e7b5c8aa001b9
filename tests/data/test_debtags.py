"""Package lists are converted to texts and tags; without package lists the error says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.data import debtags
from longtail.data.debtags import build_debtags, parse_packages
from longtail.errors import DataError

PACKAGES = """\
Package: moon-buggy
Version: 1:1.0.51-14
Description: Drive some car across the moon
Description-md5: aaaa
Tag: game::arcade, interface::text-mode, role::program,
 use::gameplaying
Filename: pool/main/m/moon-buggy/moon-buggy_1.0.51-14_amd64.deb

Package: untagged
Description: A thing
Description-md5: bbbb

Package: abook
Description: text-based address book
 It holds addresses,
   also of friends.
 .
 And it sorts them.
Tag: special::not-yet-tagged, role::program

Package: only-special
Description: nothing is known
Tag: special::not-yet-tagged

Package: moon-buggy
Version: 2
Description: Drive some other car
Tag: role::program
"""

TRANSLATIONS = """\
Package: moon-buggy
Description-md5: aaaa
Description-en: Drive some car across the moon
 A game for character terminals.
 .
 Jump over craters.
"""


def fake_apt(packages: str, translations: str = "") -> Callable[..., str]:
    """Make a replacement for apt's tools, with lists in memory."""
    files = {"packages.lz4": packages, "translations.lz4": translations}

    def run(tool: str, *arguments: str) -> str:
        if tool == debtags.APT_HELPER:
            return files[arguments[-1]]
        name = "packages.lz4" if "Created-By: Packages" in arguments else "translations.lz4"
        return f"{name}\n" if files[name] else ""

    return run


def test_text_is_name_and_description_on_one_line_without_paragraph_dots() -> None:
    pairs = dict(parse_packages(PACKAGES.splitlines()))
    text = "abook: text-based address book It holds addresses, also of friends. And it sorts them."
    assert pairs[text] == ["role::program"]


def test_tags_may_continue_on_the_next_line() -> None:
    (_, tags), *_ = parse_packages(PACKAGES.splitlines())
    assert tags == ["game::arcade", "interface::text-mode", "role::program", "use::gameplaying"]


def test_untagged_packages_are_skipped_and_a_package_counts_once() -> None:
    names = [text.partition(":")[0] for text, _ in parse_packages(PACKAGES.splitlines())]
    assert names == ["moon-buggy", "abook"]


def test_a_later_version_without_tags_does_not_hide_the_tagged_one() -> None:
    lines = ["Package: a", "Version: 2", "Description: new", "", "Package: a", "Description: old", "Tag: role::program"]
    assert list(parse_packages(lines)) == [("a: old", ["role::program"])]


def test_line_ends_do_not_matter() -> None:
    plain = list(parse_packages(PACKAGES.splitlines()))
    assert list(parse_packages(PACKAGES.splitlines(keepends=True))) == plain
    assert len(plain) == 2


def test_the_corpus_uses_long_descriptions_and_counts_what_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debtags, "run_apt", fake_apt(PACKAGES, TRANSLATIONS))
    data = build_debtags()
    assert data.texts is not None
    long = "Drive some car across the moon A game for character terminals. Jump over craters."
    assert data.texts[1] == f"moon-buggy: {long}"
    assert data.source == "builtin:debtags"
    assert data.notes == ("2 of 4 packages have no tags and were skipped",)
    assert set(data.labels.names) == {"role::program", "game::arcade", "interface::text-mode", "use::gameplaying"}


def test_a_note_says_how_to_download_long_descriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(debtags, "run_apt", fake_apt(PACKAGES))
    data = build_debtags()
    assert data.texts is not None
    assert data.texts[1] == "moon-buggy: Drive some car across the moon"
    assert "Acquire::Languages=en update" in data.notes[1]


def test_a_system_without_apt_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"apt-get is not installed.*builtin:pydoc"):
        build_debtags()


def test_empty_lists_are_an_error_with_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debtags, "run_apt", fake_apt(""))
    with pytest.raises(DataError, match=r"package lists are empty.*apt-get .*update"):
        build_debtags()


def test_lists_without_tags_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debtags, "run_apt", fake_apt("Package: a\nDescription: b\n"))
    with pytest.raises(DataError, match=r"none of the 1 packages .* has tags.*builtin:pydoc"):
        build_debtags()


def test_a_tool_that_fails_is_an_error_with_its_message() -> None:
    with pytest.raises(DataError, match=r"sh failed \(broken list\)"):
        debtags.run_apt("sh", "-c", "echo broken list >&2; exit 100")
