"""Explanations as text: the text with its important words marked, and the words that contribute to each label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import fill

from longtail.printable import make_visible
from longtail.tagger.explanation import WORD, Explanation

WIDTH = 110
_MAX_WORDS, _MIN_WORD_SHARE = 5, 0.05  # words shown per label, and the smallest weight relative to the first
_MIN_MARKED_SHARE = 0.3  # words with at least this share of the first word's weight are marked in the text
_COLOURS = (36, 33, 35, 32, 34, 31)  # ANSI codes: cyan, yellow, magenta, green, blue, red
_BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"  # between words, where they become spaces
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def describe_marks(weights_meaning: str) -> str:
    """How to read explanations."""
    words = (
        "legend: word² and [two words]² contribute most to label 2. Below the text: each label, its score, and its main "
        f"words with weights, + for the label and - against it. Weight: {weights_meaning}."
    )
    return fill(words, WIDTH, subsequent_indent=" " * len("legend: "))


def render_explanations(
    text: str | None, explanations: Sequence[Explanation], *, colour: bool = False, width: int = WIDTH
) -> str:
    """The text, in which each important word has the number of the label that it contributes to most, then the labels.

    :param text: The text; None for a feature vector.
    :param explanations: The labels, best first.
    :param colour: Whether to use ANSI colours.
    :param width: Maximum length of a line.

    >>> from longtail.tagger.explanation import Part
    >>> fruit = Explanation("fruit", 0.9, "", (Part("Apple", 0.5, 6, 11), Part("juice", 0.25, 12, 17)))
    >>> drink = Explanation("drink", 0.5, "", (Part("juice", 0.75, 12, 17), Part("of", -0.125, 0, 2)))
    >>> print(render_explanations("of an Apple juice", [fruit, drink]))
    of an Apple¹ juice²
      1  fruit  0.900  apple +0.50, juice +0.25
      2  drink  0.500  juice +0.75, of -0.12
    """
    shown = make_visible(text or "", keep=_BLANKS)
    lines = _fill_lines(_mark_words(shown, _assign_words(explanations), colour), width)
    labels = [make_visible(one.label) for one in explanations]
    names = max(map(len, labels), default=0)
    digits = max((len(f"{one.score:.3f}") for one in explanations), default=0)
    for number, (one, name) in enumerate(zip(explanations, labels, strict=True), 1):
        kind = "" if text is not None else "feature "
        words = ", ".join(f"{kind}{make_visible(word)} {weight:+.2f}" for word, weight in _select_words(one))
        label = _paint(f"{number:>3}  {name:<{names}}", number, colour)
        lines.append(f"{label}  {one.score:>{digits}.3f}  {words}".rstrip())
    return "\n".join(lines)


def _select_words(one: Explanation) -> list[tuple[str, float]]:
    """The words to show for a label."""
    return [pair for pair in one.words[:_MAX_WORDS] if abs(pair[1]) >= _MIN_WORD_SHARE * abs(one.words[0][1])]


def _assign_words(why: Sequence[Explanation]) -> dict[int, int]:
    """Start of each important word -> number of the label, from 1, that it contributes to most."""
    best: dict[int, tuple[float, int]] = {}
    much = set()
    for number, one in enumerate(why, 1):
        weights = {word: weight for word, weight in _select_words(one) if weight > 0}
        for part in one.parts:
            for match in WORD.finditer(part.text) if part.term in weights else ():
                start, weight = part.start + match.start(), weights[part.term]
                best[start] = max(best.get(start, (0.0, 0)), (weight, number))
                if weight >= _MIN_MARKED_SHARE * max(weights.values()):
                    much.add(start)
    return {start: best[start][1] for start in much}


def _mark_words(text: str, labels: dict[int, int], colour: bool) -> list[tuple[int, str]]:
    """The chunks between blanks with their marks: width and output."""
    words = list(WORD.finditer(text))
    numbers = [labels.get(word.start(), 0) for word in words]
    before, after = _write_marks(text, words, numbers, brackets=not colour)
    out, at = [], 0
    for chunk in re.finditer(r"\S+", text):
        shown, width, done = "", len(chunk[0]), chunk.start()
        while at < len(words) and words[at].start() < chunk.end():
            word = before[at] + words[at][0] + after[at]
            shown += text[done : words[at].start()] + (_paint(word, numbers[at], colour) if numbers[at] else word)
            width, done, at = width + len(before[at]) + len(after[at]), words[at].end(), at + 1
        out.append((width, shown + text[done : chunk.end()]))
    return out


def _write_marks(
    text: str, words: Sequence[re.Match[str]], numbers: Sequence[int], brackets: bool
) -> tuple[list[str], list[str]]:
    """What is written before and after each word. Neighbouring words of one label share one mark, and have brackets."""
    before, after = [""] * len(words), [""] * len(words)
    groups: list[list[int]] = []
    for at, number in enumerate(numbers):
        is_next = at > 0 and number == numbers[at - 1] and not text[words[at - 1].end() : words[at].start()].strip()
        if is_next:
            groups[-1].append(at)
        else:
            groups.append([at])
    for group in groups:
        if number := numbers[group[0]]:
            has_brackets = brackets and len(group) > 1
            before[group[0]] = "[" if has_brackets else ""
            after[group[-1]] = ("]" if has_brackets else "") + str(number).translate(_SUPERSCRIPTS)
    return before, after


def _paint(words: str, number: int, colour: bool) -> str:
    """Words in the colour of a label, bold."""
    return f"\x1b[1;{_COLOURS[(number - 1) % len(_COLOURS)]}m{words}\x1b[0m" if colour else words


def _fill_lines(chunks: Sequence[tuple[int, str]], width: int) -> list[str]:
    """Fill lines with chunks up to a width."""
    lines: list[str] = []
    used = width
    for size, shown in chunks:
        if used + 1 + size > width:
            lines.append(shown)
            used = size
        else:
            lines[-1] += " " + shown
            used += 1 + size
    return lines
