"""Labels whose names occur in a text."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.blend.mentions import MAX_LABELS_PER_FORM, PRIOR_MENTIONS, Mentions
from longtail.topk import NO_LABEL

NAMES = ["value-added tax", "taxes", "Java (island)", "England -- Fiction", "implemented-in::perl", "Åland"]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("The value added taxes of today", [0, 1]),  # hyphens separate words; plural endings are removed
        ("Tax.", [1]),
        ("TAX and tax", [1]),
        ("JAVA", [2]),
        ("an island", []),  # brackets are not part of the name
        ("Java (island)", [2]),
        ("Life in England", [3]),
        ("fiction from England", [3]),
        ("written in Perl", [4]),
        ("on åland", [5]),
        ("taxing values", []),  # whole words only
        ("value added", []),
        ("", []),
        ("?!", []),
    ],
)
def test_mentioned_labels(text: str, labels: list[int]) -> None:
    assert sorted(Mentions(NAMES).find(text)) == labels


def test_places_of_mentions() -> None:
    text = "No value-added Tax: a tax"
    places = Mentions(NAMES).find(text)
    assert [text[start:end] for start, end in places[0]] == ["value-added Tax"]
    assert [text[start:end] for start, end in places[1]] == ["Tax", "tax"]


def test_a_form_that_many_labels_share_is_no_mention() -> None:
    names = [f"{thing} -- Fiction" for thing in "abcdefghijk"]
    assert len(names) > MAX_LABELS_PER_FORM
    assert (
        not Mentions(names).find("fiction")
        and len(Mentions(names[:MAX_LABELS_PER_FORM]).find("fiction")) == MAX_LABELS_PER_FORM
    )


def test_probabilities_by_hand() -> None:
    """Tax is mentioned three times and right once, Java once and right: two of four mentions are right."""
    texts, Y = ["tax", "tax law", "Java tax", "rain"], np.zeros((4, 6))
    Y[0, 1] = Y[2, 2] = Y[3, 5] = 1
    mentions = Mentions(NAMES).fit(texts, sp.csr_array(Y))
    np.testing.assert_allclose(mentions.probability[1], (1 + PRIOR_MENTIONS * 0.5) / (3 + PRIOR_MENTIONS))
    np.testing.assert_allclose(mentions.probability[2], (1 + PRIOR_MENTIONS * 0.5) / (1 + PRIOR_MENTIONS))
    np.testing.assert_allclose(mentions.probability[5], 0.5)  # never mentioned: the average
    assert mentions.probability[0] == 0  # no sample has it
    best = mentions.topk(["a tax on Java, value added tax", "rain"], 3)
    assert best.ids.tolist() == [[2, 1, NO_LABEL], [NO_LABEL] * 3]


def test_a_round_trip() -> None:
    mentions = Mentions(NAMES).fit(["tax", "Åland"], sp.csr_array(np.eye(2, 6, 1)))
    again = Mentions.from_state(mentions.state(), 6)
    assert again.forms == mentions.forms and again.probability.tolist() == mentions.probability.tolist()


@given(st.lists(st.text(max_size=20), max_size=5), st.text(max_size=60))
def test_every_name_is_a_mention_of_its_label(names: list[str], around: str) -> None:
    mentions = Mentions(names)
    for label, name in enumerate(names):
        if any(label in labels for labels in mentions.forms.values()):
            assert label in mentions.find(f"{name}")
            for start, end in mentions.find(f"{around} {name}").get(label, []):
                assert 0 <= start < end <= len(around) + 1 + len(name)
