from __future__ import annotations

import re

from longtail.report.explanation import explanation_text
from longtail.tagger.explanation import Explanation, Part


def found(text: str, label: str, **weights: float) -> Explanation:
    """An explanation by the first place of each term; underscores are blanks."""
    parts = []
    for name, weight in weights.items():
        term = name.replace("_", " ")
        start = text.lower().index(term)
        parts.append(Part(text[start : start + len(term)], weight, start, start + len(term)))
    return Explanation(label, 0.5, "", tuple(sorted(parts, key=lambda part: -abs(part.weight))))


def test_a_word_has_the_number_of_the_label_it_adds_most_to() -> None:
    text = "Red apple pie, ship."
    why = [found(text, "fruit", apple=0.5, pie=0.4), found(text, "food", pie=0.9, apple=0.1), found(text, "sea", ship=0.2)]
    assert explanation_text(text, why).split("\n")[0] == "Red apple¹ pie², ship³."


def test_pairs_are_marked_once_and_what_speaks_against_a_label_never() -> None:
    text = "a normal distribution of noise"
    why = [found(text, "scale", normal_distribution=0.9, noise=-0.8, of=0.01)]
    marked, label = explanation_text(text, why).split("\n")
    assert marked == "a normal distribution¹ of noise"
    assert label == "  1  scale  0.500  normal distribution +0.90, noise -0.80"  # of counts too little to be shown


def test_lines_are_as_wide_as_asked_for_whatever_the_colours() -> None:
    text = "word " * 30 + "ship"
    for colour in (False, True):
        lines = explanation_text(text, [found(text, "sea", ship=1.0, word=0.9)], colour=colour, width=40).split("\n")
        plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
        assert max(map(len, plain[:-1])) <= 40 and len(plain) == 5 and " ".join(plain[:-1]).split()[-1] == "ship¹"
        assert (plain != lines) == colour


def test_nothing_to_mark() -> None:
    assert explanation_text("", [Explanation("sea", 0.25, "", ())]) == "  1  sea  0.250"
    assert (
        explanation_text(None, [Explanation("sea", 0.25, "", (Part("7", 0.5, 7, 8),))]) == "  1  sea  0.250  feature 7 +0.50"
    )
