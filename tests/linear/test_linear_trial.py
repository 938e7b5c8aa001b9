from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Dataset, Tagger, load
from longtail.features.text import TextFeatures
from longtail.labelspace.subset import draw_label_clusters
from longtail.linear.feature_trial import MAX_SHORT_WORDS, MIN_GAINS, _can_judge_subwords, _improve
from longtail.linear.trial import C_VALUES, MIN_SAMPLES, Trial, climb
from longtail.models.ovr import OneVsRest
from longtail.models.plt.model import LabelTrees
from longtail.topk import TopK


def make_problem(n_labels: int, per_label: int, noise: int, seed: int = 0) -> tuple[sp.csr_array, sp.csr_array]:
    """Samples with one feature that tells the label, and some random ones."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_labels), per_label)
    X = sp.lil_array((len(labels), n_labels + 50), dtype=np.float32)
    for row, label in enumerate(labels):
        X[row, label] = 1
        X[row, n_labels + random.choice(50, noise, replace=False)] = 1
    Y = sp.csr_array((np.ones(len(labels), np.float32), (np.arange(len(labels)), labels)), shape=(len(labels), n_labels))
    return sp.csr_array(X), Y


def test_clusters_of_labels_keep_all_samples_of_their_labels() -> None:
    X, Y = make_problem(n_labels=100, per_label=20, noise=2)
    part = draw_label_clusters(X, Y, max_nonzeros=300, seed=0, threads=1)
    assert part.shape == Y.shape and {int(n) for n in part.sum(axis=0)} == {0, 20}
    assert 800 <= part.nnz < Y.nnz
    assert draw_label_clusters(X, Y, max_nonzeros=10**6, seed=0, threads=1) is Y


def test_a_trial_holds_out_samples_that_are_not_fitted_and_every_sample_of_a_small_corpus_once() -> None:
    X, Y = make_problem(n_labels=20, per_label=20, noise=1)
    trial = Trial.draw(X, Y, seed=0, threads=1)
    assert trial is not None and trial.n_scored == 400 and len(trial.rows) == 400
    for fitted, held_out in trial.folds:
        assert not set(fitted) & set(held_out)
    assert sorted(np.concatenate([held_out for _, held_out in trial.folds])) == list(range(400))
    assert Trial.draw(X[: MIN_SAMPLES - 1], Y[: MIN_SAMPLES - 1], seed=0, threads=1) is None


def test_the_score_of_a_trial_is_the_geometric_mean_of_three_metrics() -> None:
    X, Y = make_problem(n_labels=20, per_label=20, noise=1)
    trial = Trial.draw(X, Y, seed=0, threads=1)
    assert trial is not None

    def predict_truth(rows: Any, Y_rows: Any, held_out: Any) -> TopK:
        first = Y[held_out].indices[:, None]
        others = (first + np.arange(1, 5)) % 20
        return TopK(np.hstack([first, others]).astype(np.int32), np.zeros((len(held_out), 5), np.float32))

    assert trial.score(predict_truth) == pytest.approx((100 * 20 * 100) ** (1 / 3))


def test_climbing_stops_where_a_step_gains_too_little() -> None:
    scores = {0.1: 50.0, 0.3: 60.0, 1.0: 61.0, 3.0: 61.1, 10.0: 99.0, 30.0: 0.0}
    tried: list[float] = []

    def score(value: float) -> float:
        tried.append(value)
        return scores[value]

    assert climb(score, tuple(scores), 1.0)[0] == 1.0  # the gain from 1 to 3 is below 0.3 %
    assert tried == [1.0, 3.0, 0.3]
    assert climb(scores.__getitem__, tuple(scores), 0.1)[0] == 1.0
    assert climb(lambda value: 1 / value, tuple(scores), 1.0)[0] == 0.1


@pytest.mark.parametrize("model", [OneVsRest(threads=1), LabelTrees(threads=1)])
def test_C_is_chosen_by_the_data_and_the_reason_is_kept(model: Any) -> None:
    X, Y = make_problem(n_labels=20, per_label=15, noise=8)
    model.fit(X, Y)
    (why,) = model.decisions
    chosen = float(why.split(":")[0].removeprefix("C="))
    assert chosen in C_VALUES["squared_hinge"] and "held-out samples" in why
    same = type(model)(C=chosen, threads=1).fit(X, Y)
    assert not same.decisions
    assert np.array_equal(same.topk(X, 3).scores, model.topk(X, 3).scores)


def test_pairs_of_words_are_used_where_they_tell_the_labels_apart() -> None:
    random = np.random.default_rng(0)
    words, texts, labels = [f"w{i}" for i in range(8)], [], []
    for _ in range(400):  # the label depends on the order of two words, not on the words
        first, second = random.permutation(words)[:2]
        texts.append(f"{first} {second}")
        labels.append([f"{first} before {second}"])
    pairs = Tagger("ovr", threads=1).fit(Dataset.from_texts(texts, labels))
    assert pairs.pipeline.decisions[0].startswith("min_df=2, train_on_names=false, subwords=0, ngrams=2")
    assert pairs.pipeline.extractor is not None and pairs.pipeline.extractor.features.n_features > 8
    by_words = [[sorted(text.split())[0]] for text in texts]
    alone = Tagger("ovr", threads=1).fit(Dataset.from_texts(texts, by_words))
    assert alone.pipeline.decisions[0].startswith("min_df=2, subwords=0, ngrams=1")  # names such as w0 are codes


def test_settings_that_are_given_are_not_chosen() -> None:
    texts = [f"word{i % 40} other{i % 7}" for i in range(300)]
    tagger = Tagger("ovr", C=1.0, ngrams=1, min_df=3, subwords=0.0, threads=1).fit(texts, [[f"{i % 7}"] for i in range(300)])
    assert tagger.pipeline.decisions == () and isinstance(tagger.features, TextFeatures)
    assert tagger.features.get_params()["min_df"] == 3
    some = Tagger("ovr", C=1.0, min_df=3, threads=1).fit(texts, [[f"{i % 7}"] for i in range(300)])
    assert "min_df" not in some.pipeline.decisions[0] and some.features.get_params()["min_df"] == 3  # type: ignore[union-attr]


def test_subwords_are_used_where_they_are_clearly_better() -> None:
    random = np.random.default_rng(0)
    topics, labels = ["kirjasto", "metsästys", "rautatie"], [i % 3 for i in range(400)]
    texts = [topics[label] + "".join(random.choice(list("aeinst"), 4)) for label in labels]  # each word form is new
    tagger = Tagger("ovr", C=1.0, threads=1).fit(texts, [[topics[label]] for label in labels])
    assert "subwords=3" in tagger.pipeline.decisions[0].split(":")[0]
    texts = [topics[label] for label in labels]
    tagger = Tagger("ovr", C=1.0, threads=1).fit(texts, [[topics[label]] for label in labels])
    assert "subwords=0" in tagger.pipeline.decisions[0].split(":")[0]


def test_a_part_with_many_more_rare_words_than_the_corpus_cannot_judge_subwords() -> None:
    texts = [f"w{i} w{i + 1}" for i in range(0, 100, 2)]  # every word is rare here
    assert _can_judge_subwords(np.array([1] * 30 + [7] * 10), texts)  # 30 % of the words of the corpus
    assert not _can_judge_subwords(np.array([1] * 10 + [9] * 10), texts)
    assert _can_judge_subwords(np.array([1] * 10 + [9] * 10), ["a b", "a b", "a b c"])  # 1 of 7


def test_an_alternative_must_gain_enough_and_keep_the_first_label() -> None:
    metrics = {  # P@1, P@5, PSP@5
        "plain": [50.0, 20.0, 30.0],
        "min_df": [50.1, 20.0, 30.0],
        "subwords": [50.3, 20.1, 30.0],  # less than 1 % better
        "ngrams": [49.0, 24.0, 36.0],  # P@1 is 2 % lower
    }

    def measure(settings: dict[str, Any]) -> Any:
        return np.array(metrics[next((name for name in ("ngrams", "subwords", "min_df") if settings[name]), "plain")])

    start = {"min_df": 0, "subwords": 0, "ngrams": 0}
    chosen, tried = _improve(start, {"min_df": 1, "subwords": 1, "ngrams": 1}, measure, MIN_GAINS)
    assert chosen == {"min_df": 1, "subwords": 0, "ngrams": 0} and len(tried) == 4


def test_long_texts_get_words_without_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.linear.feature_trial.Trial.draw", None)
    texts = [f"label{i % 5} " + "word " * (MAX_SHORT_WORDS + 1) for i in range(50)]
    tagger = Tagger("ovr", C=1.0, threads=1).fit(texts, [[f"{i % 5}"] for i in range(50)])
    assert "the texts are long, 302 words on average" in tagger.pipeline.decisions[0]


def test_what_the_data_decided_is_saved_and_shown(tmp_path: Any) -> None:
    texts = [f"red{i % 7} green{i % 3} blue{i % 11}" for i in range(300)]
    tagger = Tagger("plt", threads=1).fit(texts, [[f"{i % 7}"] for i in range(300)])
    assert len(tagger.pipeline.decisions) == 2
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.pipeline.decisions == tagger.pipeline.decisions
    assert all(why in loaded.summary()["chosen"] for why in tagger.pipeline.decisions)
    assert np.array_equal(loaded.topk(texts, 3).scores, tagger.topk(texts, 3).scores)
