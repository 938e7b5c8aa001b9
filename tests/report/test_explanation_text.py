from __future__ import annotations

import re

from longtail.report.explanation import describe_marks, render_explanations
from longtail.tagger.explanation import Explanation, Part


def found(text: str, label: str, **weights: float) -> Explanation:
    """An explanation by the first place of each term; underscores are blanks."""
    parts = []
    for name, weight in weights.items():
        term = name.replace("_", " ")
        start = text.lower().index(term)
        parts.append(Part(text[start : start + len(term)], weight, start, start + len(term)))
    return Explanation(label, 0.5, "", tuple(sorted(parts, key=lambda part: -abs(part.weight))))


def test_a_word_has_the_number_of_the_label_it_contributes_to_most() -> None:
    text = "Red apple pie, ship."
    why = [found(text, "fruit", apple=0.5, pie=0.4), found(text, "food", pie=0.9, apple=0.1), found(text, "sea", ship=0.2)]
    assert render_explanations(text, why).split("\n")[0] == "Red apple¹ pie², ship³."


def test_pairs_are_marked_once_and_evidence_against_a_label_never() -> None:
    text = "a normal distribution of noise"
    why = [found(text, "scale", normal_distribution=0.9, noise=-0.8, of=0.01)]
    marked, label = render_explanations(text, why).split("\n")
    assert marked == "a [normal distribution]¹ of noise"
    assert label == "  1  scale  0.500  normal distribution +0.90, noise -0.80"  # the weight of "of" is too small
    coloured = render_explanations(text, why, colour=True).split("\n")[0]
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == "a normal distribution¹ of noise"  # the colour shows the group


def test_lines_keep_to_the_width_with_and_without_colours() -> None:
    text = "word " * 30 + "ship"
    for colour in (False, True):
        lines = render_explanations(text, [found(text, "sea", ship=1.0, word=0.9)], colour=colour, width=40).split("\n")
        plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
        assert max(map(len, plain[:-1])) <= 40 and len(plain) == 5 and " ".join(plain[:-1]).split()[-1] == "ship¹"
        assert (plain != lines) == colour


def test_scores_are_aligned() -> None:
    shown = render_explanations("", [Explanation("sea", 0.25, "", ()), Explanation("ship", -0.5, "", ())])
    assert shown == "  1  sea    0.250\n  2  ship  -0.500"


def test_the_legend_names_the_weights() -> None:
    assert " ".join(describe_marks("share of attention").split()).endswith("Weight: share of attention.")


def test_nothing_to_mark() -> None:
    assert render_explanations("", [Explanation("sea", 0.25, "", ())]) == "  1  sea  0.250"
    assert (
        render_explanations(None, [Explanation("sea", 0.25, "", (Part("7", 0.5, 7, 8),))])
        == "  1  sea  0.250  feature 7 +0.50"
    )
