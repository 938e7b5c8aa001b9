"""Texts in output: numbers of things, and texts of others with their control characters made visible."""

from __future__ import annotations

import re

# C0 and C1 controls, marks that change the direction of text, line and paragraph separators, halves of characters and
# code points that are no characters (neither may be in XML).
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_BREAKS = re.compile("[\t\r\n]")


def make_visible(text: str, keep: str = "") -> str:
    r"""Replace each control character by a visible one: ``\x1b`` by its symbol ``␛``, those without a symbol by ``�``.

    :param text: The text. Its length does not change.
    :param keep: Control characters to keep, such as line ends.

    >>> make_visible("red\x1b[31m\n"), make_visible("one\ntwo\u202e", keep="\n")
    ('red␛[31m␊', 'one\ntwo�')
    """
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else _show(found[0]), text)


def make_cell(text: str) -> str:
    r"""Put a text into a cell of a table: tabs and line ends become spaces, other control characters visible.

    >>> make_cell("a\tb\r\nc\x07")
    'a b c␇'
    """
    return make_visible(" ".join(text.split()) if _BREAKS.search(text) else text)


def escape_json(text: str) -> str:
    r"""Write the control characters that are in the strings of a JSON text as ``\u0085``: the value stays the same.

    >>> escape_json('"a\x85"')
    '"a\\u0085"'
    """
    return _CONTROLS.sub(lambda found: found[0] if found[0] in "\t\r\n" else f"\\u{ord(found[0]):04x}", text)


def format_count(n: int, noun: str) -> str:
    """Write a number of things.

    >>> format_count(1, "new label"), format_count(2000, "new label")
    ('1 new label', '2,000 new labels')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def describe_update(trained: str, n_new: int) -> str:
    """Say what an update has trained.

    :param trained: What was trained further.
    :param n_new: Labels that had no samples before.

    >>> describe_update("3 of 5 nodes trained", 1), describe_update("3 of 5 nodes trained", 0)
    ('3 of 5 nodes trained; 1 label got its first samples', '3 of 5 nodes trained')
    """
    whose = "its" if n_new == 1 else "their"
    return f"{trained}; {format_count(n_new, 'label')} got {whose} first samples" if n_new else trained


def _show(control: str) -> str:
    code = ord(control)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"
