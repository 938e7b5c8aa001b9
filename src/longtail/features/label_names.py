"""Label names as words: the forms in which a name occurs in texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME_WORD = re.compile(r"[^\W_]+")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_BRACKETS = re.compile(r"\([^()]*\)")  # Java (island)
_SEPARATOR = re.compile(r"\s+--\s+|::")  # England -- Fiction; use::editing


def list_forms(name: str, others: Iterable[str] = ()) -> list[list[str]]:
    """Return the forms of a name, as words: as it is, without brackets, its parts between ``--`` or ``::``, other names.

    >>> list_forms("roses (flowers)", ["Rosa"])
    [['rosa'], ['rose'], ['rose', 'flower']]
    """
    forms = {name, _BRACKETS.sub(" ", name), *_SEPARATOR.split(name), *others}
    return [list(words) for words in sorted({tuple(split_words(form)) for form in forms}) if words]


def has_words(name: str) -> bool:
    """Whether a name has two letters in a row, so that it can occur in texts; codes, numbers and URIs say nothing.

    >>> has_words("sea"), has_words("L17"), has_words("http://x/sea")
    (True, False, False)
    """
    return "://" not in name and _LETTERS.search(name) is not None


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case and without English plural endings."""
    return [strip_plural(word) for word in NAME_WORD.findall(text)]


def strip_plural(word: str) -> str:
    """Convert a word to lower case and remove the ending of an English plural.

    >>> [strip_plural(word) for word in ("Cities", "Taxes", "houses", "dogs", "glass", "gas")]
    ['city', 'tax', 'house', 'dog', 'glass', 'gas']
    """
    word = word.lower()
    if len(word) < 4 or not word.endswith("s") or word.endswith("ss"):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("xes", "ches", "shes", "sses", "zes")) else word[:-1]
