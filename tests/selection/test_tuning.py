from __future__ import annotations

import numpy as np
import pytest

import longtail
from longtail import Dataset, MethodSpec
from longtail.errors import DataError, SettingError
from longtail.report.tuning import render_tuning
from longtail.selection.tuning import draw_candidates, list_values, search_settings

OPEN_C = "ovr+ngrams=1+min_df=1+subwords=0+weighting=log+prune=0.05+ngram_weight=0.5+ngram_min_df=2"  # all but C


@pytest.fixture(scope="module")
def data() -> Dataset:
    random = np.random.default_rng(0)
    labels = [[f"label{i}" for i in random.choice(12, 2, replace=False)] for _ in range(300)]
    texts = [
        " ".join([*(f"about {name}" for name in names), *(f"noise{i}" for i in random.integers(0, 60, 6))])
        for names in labels
    ]
    return Dataset.from_texts(texts, labels)


def test_only_settings_that_the_spec_leaves_open_are_searched() -> None:
    names = list_values(MethodSpec.parse("plt+C=3"), reads_texts=True)
    assert "C" not in names and names["ngrams"] == (1, 2)
    assert "ngrams" not in list_values(MethodSpec.parse("plt"), reads_texts=False)


def test_candidates_are_distinct_reproducible_and_start_with_the_spec() -> None:
    spec = MethodSpec.parse("ovr+loss=logistic")
    values = list_values(spec, reads_texts=True)
    first, again = (list(draw_candidates(spec, values, seed=3)) for _ in range(2))
    assert first[0] == spec and first == again and len({str(one) for one in first}) == len(first)
    assert all(one.settings["loss"] == "logistic" for one in first)
    assert first != list(draw_candidates(spec, values, seed=4))


def test_the_search_returns_the_best_of_what_it_tried(data: Dataset) -> None:
    spec = MethodSpec.parse("ovr+ngrams=1+C=0.1")  # far from the best C
    result = search_settings(data, spec, minutes=1e-9, seed=0, threads=1)
    assert [attempt.spec for attempt in result.attempts] == [spec] and result.spec == spec  # the time is over at once
    found = longtail.tune(data, OPEN_C, minutes=0.5, threads=1)
    assert found.score == max(attempt.score for attempt in found.attempts)
    assert found.n_held_out == 300 and len(found.attempts) == 8  # the default, and every value of C
    text = render_tuning(found)
    assert str(found.spec) in text and "held-out" in text


def test_errors_say_what_to_change(data: Dataset) -> None:
    with pytest.raises(SettingError, match="has no settings to search"):
        longtail.tune(data, "popularity")
    with pytest.raises(SettingError, match="minutes is 0"):
        longtail.tune(data, "ovr", minutes=0)
    with pytest.raises(DataError, match="fewer than 200 labelled samples"):
        longtail.tune(data.take(range(50)), "ovr")
