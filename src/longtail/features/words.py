"""Texts in the form in which words are found: lower case, one way to write each character, and spaces between words.

- Characters are normalised to NFKC, so that "é" is one character however it was typed, and "ﬁ" is "fi".
- Non-ASCII punctuation becomes a space. Combining marks stay, as the vowels of Hindi or Tamil are marks.
- Chinese, Japanese, Thai and other scripts have no spaces between words. There, all pairs of neighbouring characters count
  as words: 東京大学 is read as 東京 京大 大学.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

import numpy as np

from longtail.kernels import Longs

WORD = re.compile(r"[\w\u0080-\U0010ffff]+")  # in a normalised text, where every other non-ASCII character is a space
_NON_WORD = re.compile(r"[^\w\x00-\x7f]")  # non-ASCII characters that are no letters or digits
_INVISIBLE = "\u00ad\u200c\u200d\u2060\ufeff"  # inside of words: soft hyphen, joiners, byte order mark
_UNSPACED = re.compile(  # Thai and Lao, Myanmar, Khmer, Japanese, Chinese
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_JAMO = range(0x1160, 0x1200)  # vowels and final consonants, which form a syllable with the character before
_KANA_MARKS = "\uff9e\uff9f"  # become combining marks


def normalise_text(text: str) -> str:
    """Return a text in lower case, with words separated by spaces or ASCII punctuation.

    >>> normalise_text("Cafe\u0301, Python入門書")
    'café, python 入門 門書 '
    """
    return text.lower() if text.isascii() else _UNSPACED.sub(_separate_pairs, _simplify(text))


def find_words(text: str) -> list[str]:
    """Return the words of a text, normalised.

    >>> find_words("Two cats, हिन्दी")
    ['two', 'cats', 'हिन्दी']
    """
    return WORD.findall(normalise_text(text))


def align_text(text: str) -> tuple[str, Longs, Longs]:
    """Return the normalised text, and the characters [start, end) of the text from which each of its characters comes.

    >>> normalised, starts, ends = align_text("Cafe\u0301")
    >>> normalised, starts.tolist(), ends.tolist()
    ('café', [0, 1, 2, 3], [1, 2, 3, 5])
    """
    if text.isascii():
        places = np.arange(len(text))
        return text.lower(), places, places + 1
    simple = _simplify(text)
    bounds = [i for i, character in enumerate(text) if i == 0 or not _joins_previous(character)] + [len(text)]
    lengths = [len(_simplify(text[start:end])) for start, end in pairwise(bounds)]
    starts, ends = np.repeat(bounds[:-1], lengths), np.repeat(bounds[1:], lengths)  # of each character of ``simple``
    parts: list[Longs] = []  # the characters of ``simple`` that the normalised text consists of
    done = 0
    for run in _UNSPACED.finditer(simple):
        first, last = run.span()
        parts += [np.arange(done, first), np.array([first])]  # a space
        for start, end in _find_pairs(run.group()):
            parts += [np.arange(first + start, first + end), np.array([first + end - 1])]  # a space
        done = last
    places = np.concatenate([*parts, np.arange(done, len(simple))])
    return normalise_text(text), starts[places], ends[places]


def is_unspaced(word: str) -> bool:
    """Return whether a word is of a script without spaces between words."""
    return not word.isascii() and _UNSPACED.search(word) is not None


def _simplify(text: str) -> str:
    """Return a text in lower case and NFKC, with non-ASCII punctuation replaced by spaces."""
    lower = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    return _NON_WORD.sub(_replace_non_word, lower)


def _replace_non_word(match: re.Match[str]) -> str:
    return _choose_replacement(match.group())


@lru_cache(maxsize=4096)
def _choose_replacement(character: str) -> str:
    if character in _INVISIBLE:
        return ""
    return character if unicodedata.category(character).startswith("M") else " "


def _joins_previous(character: str) -> bool:
    """Whether a character can form one character with those before it."""
    return (
        unicodedata.category(character).startswith("M")
        or unicodedata.combining(character) != 0
        or ord(character) in _JAMO
        or character in _KANA_MARKS
    )


def _separate_pairs(run: re.Match[str]) -> str:
    text = run.group()
    return " " + "".join(text[start:end] + " " for start, end in _find_pairs(text))


def _find_pairs(run: str) -> list[tuple[int, int]]:
    """Return where each pair of neighbouring characters starts and ends; a character has its combining marks with it."""
    has_marks = not run.isalpha()
    bounds = [i for i, letter in enumerate(run) if i == 0 or not (has_marks and _joins_previous(letter))] + [len(run)]
    return list(zip(bounds[:-2], bounds[2:], strict=True)) or [(0, len(run))]
