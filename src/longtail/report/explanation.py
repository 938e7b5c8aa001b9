"""Why a text gets its labels, for a person: the text with the words that count, and beside each label what speaks for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from longtail.tagger.explanation import WORD, Explanation

WIDTH = 110
MOST_WORDS, LEAST = 5, 0.05  # words beside a label: at most so many, and from so much of the weight of the first
MARKED = 0.3  # of these, words are marked in the text from so much of the weight of the first
COLOURS = (36, 33, 35, 32, 34, 31)  # of a terminal: cyan, yellow, magenta, green, blue, red
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def explanation_text(text: str | None, why: Sequence[Explanation], *, colour: bool = False, width: int = WIDTH) -> str:
    """The text, in which each word that counts has the number of the label it adds most to, then the labels.

    text: None for a feature vector. colour: labels and their words in colours, by the codes of a terminal.

    >>> from longtail.tagger.explanation import Part
    >>> fruit = Explanation("fruit", 0.9, "", (Part("Apple", 0.5, 6, 11), Part("juice", 0.25, 12, 17)))
    >>> drink = Explanation("drink", 0.5, "", (Part("juice", 0.75, 12, 17), Part("of", -0.125, 0, 2)))
    >>> print(explanation_text("of an Apple juice", [fruit, drink]))
    of an Apple¹ juice²
      1  fruit  0.900  apple +0.50, juice +0.25
      2  drink  0.500  juice +0.75, of -0.12
    """
    lines = [] if not text else filled(marked_words(text, best_labels(why), colour), width)
    names = max((len(one.label) for one in why), default=0)
    for number, one in enumerate(why, 1):
        kind = "" if text is not None else "feature "
        words = ", ".join(f"{kind}{word} {weight:+.2f}" for word, weight in shown_words(one))
        label = painted(f"{number:>3}  {one.label:<{names}}", number, colour)
        lines.append(f"{label}  {one.score:.3f}  {words}".rstrip())
    return "\n".join(lines)


def shown_words(one: Explanation) -> list[tuple[str, float]]:
    """The words beside a label."""
    return [pair for pair in one.words[:MOST_WORDS] if abs(pair[1]) >= LEAST * abs(one.words[0][1])]


def best_labels(why: Sequence[Explanation]) -> dict[int, int]:
    """By the start of each word that counts much for any label, the number of the label, from 1, that it adds most to."""
    best: dict[int, tuple[float, int]] = {}
    much = set()
    for number, one in enumerate(why, 1):
        weights = {word: weight for word, weight in shown_words(one) if weight > 0}
        for part in one.parts:
            for match in WORD.finditer(part.text) if part.term in weights else ():
                start, weight = part.start + match.start(), weights[part.term]
                best[start] = max(best.get(start, (0.0, 0)), (weight, number))
                if weight >= MARKED * max(weights.values()):
                    much.add(start)
    return {start: best[start][1] for start in much}


def marked_words(text: str, labels: dict[int, int], colour: bool) -> list[tuple[int, str]]:
    """What stands between blanks, with its marks: how wide it is and what is printed. A run of one label has one mark."""
    words = list(WORD.finditer(text))
    numbers = [labels.get(word.start(), 0) for word in words]
    marks = [str(number).translate(RAISED) if number else "" for number in numbers]
    for at in range(len(words) - 1):
        if numbers[at] == numbers[at + 1] and not text[words[at].end() : words[at + 1].start()].strip():
            marks[at] = ""
    out, at = [], 0
    for chunk in re.finditer(r"\S+", text):
        shown, width, done = "", len(chunk[0]), chunk.start()
        while at < len(words) and words[at].start() < chunk.end():
            word = words[at][0] + marks[at]
            shown += text[done : words[at].start()] + (painted(word, numbers[at], colour) if numbers[at] else word)
            width, done, at = width + len(marks[at]), words[at].end(), at + 1
        out.append((width, shown + text[done : chunk.end()]))
    return out


def painted(words: str, number: int, colour: bool) -> str:
    """In the colour of a label, bold."""
    return f"\x1b[1;{COLOURS[(number - 1) % len(COLOURS)]}m{words}\x1b[0m" if colour else words


def filled(chunks: Sequence[tuple[int, str]], width: int) -> list[str]:
    """Lines of so many characters at most, if no chunk is longer."""
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
