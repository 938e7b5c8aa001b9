"""Blend: candidates of all members, fitted weights, label names as one more member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail import Dataset, Labels, Tagger
from longtail.errors import SettingError
from longtail.models.blend import stacking
from longtail.models.blend.mentions import MAX_WORDS_PER_FORM, Mentions
from longtail.models.blend.model import Blend
from longtail.models.blend.stacking import collect_candidates, to_log_odds
from longtail.spec import join_specs
from longtail.topk import NO_LABEL, TopK


def test_candidates_are_the_labels_of_all_members_each_once() -> None:
    """Two members, one sample: labels 4, 2 and 2, 9."""
    ids = np.array([[[4, 2]], [[2, 9]]], np.int32)
    scores = np.array([[[3.0, 1.0]], [[0.5, -2.0]]], np.float32)
    candidates, Z = np.full((1, 4), NO_LABEL, np.int32), np.zeros((1, 4, 7), np.float32)
    collect_candidates(ids, scores, ids.shape[2], candidates, Z)
    assert candidates.tolist() == [[4, 2, 9, NO_LABEL]]
    assert Z[0, :3].tolist() == [
        [3.0, 1.0, 1.0, -2.0, 0.0, 0.0, 0.0],  # the second member does not propose 4: its lowest score
        [1.0, 0.5, 1.0, 0.5, 1.0, 1.0, 0.0],
        [1.0, 0.0, 0.0, -2.0, 0.5, 1.0, 0.0],
    ]


def test_members_may_propose_fewer_labels() -> None:
    ids = np.array([[[7, NO_LABEL]], [[NO_LABEL, NO_LABEL]]], np.int32)
    candidates, Z = np.full((1, 4), NO_LABEL, np.int32), np.zeros((1, 4, 7), np.float32)
    collect_candidates(ids, np.ones(ids.shape, np.float32), ids.shape[2], candidates, Z)
    assert candidates.tolist() == [[7, NO_LABEL, NO_LABEL, NO_LABEL]] and Z[0, 0, 3:6].tolist() == [0, 0, 0]


def test_probabilities_become_log_odds() -> None:
    out = to_log_odds(np.array([0.5, 0.75, 0.0, 1.0], np.float32), "probability")
    np.testing.assert_allclose(out, [0, np.log(3), -stacking.MAX_LOG_ODDS, stacking.MAX_LOG_ODDS], atol=1e-6)
    assert to_log_odds(np.array([-3.0, 7.0], np.float32), "margin").tolist() == [-3, 7]


def test_the_weights_are_fitted_on_the_training_samples_if_there_are_too_few_to_hold_out(vectors: Dataset) -> None:
    few = vectors.take(range(2, 6))
    blend = Blend(members="ovr, popularity").fit(few.X, few.Y)
    expected = Blend(members="ovr, popularity").fit(few.X, few.Y, valid=(few.X, few.Y))
    assert blend.weights.tolist() == expected.weights.tolist()


def test_the_weights_do_not_know_how_many_held_out_samples_a_label_has(
    vectors: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of samples of a label is evidence, so it would tell which labels of held-out samples are right."""
    used: list[tuple[list[int], list[int]]] = []
    fit_weights = Blend.fit_weights

    def record(self: Blend, inputs: Any, Y: Any) -> None:
        used.append((self.label_counts.tolist(), self.pipelines[0].label_counts.tolist()))
        fit_weights(self, inputs, Y)

    monkeypatch.setattr(Blend, "fit_weights", record)
    X, Y = sp.vstack([vectors.X] * 30, format="csr"), sp.vstack([vectors.Y] * 30, format="csr")
    blend = Blend(members="ovr, popularity").fit(X, Y)
    ((given, of_members),) = used
    assert given == of_members and sum(given) < Y.nnz
    assert blend.label_counts.tolist() == np.bincount(Y.indices, minlength=Y.shape[1]).tolist()


def test_an_accurate_member_gets_a_large_weight(train: Dataset, test: Dataset) -> None:
    best = Tagger("blend", members="ovr, popularity").fit(train)
    weights = best.model.weights  # type: ignore[attr-defined]
    assert weights[0] > 0 and weights[0] > abs(weights[3])
    alone = Tagger("ovr").fit(train).evaluate(test).values["P@1"]
    assert best.evaluate(test).values["P@1"] >= alone - 2


def test_the_weights_are_fitted_on_validation_data(train: Dataset, test: Dataset) -> None:
    tagger = Tagger("blend", members="ovr, plt").fit(train, valid=test)
    assert tagger.model.pipelines[0].model.n_samples == train.n_samples  # type: ignore[attr-defined]
    once = Tagger("blend", members="ovr, plt", refit=False).fit(train)
    assert once.model.pipelines[0].model.n_samples < train.n_samples  # type: ignore[attr-defined]


def test_members_have_their_own_settings(train: Dataset) -> None:
    tagger = Tagger("blend", members="ovr+ngrams=1+C=0.5, plt:bonsai+beam=7").fit(train)
    first, second = tagger.model.pipelines  # type: ignore[attr-defined]
    assert first.extractor.ngrams == 1 and first.model.C == 0.5
    assert second.model.beam == 7 and second.model.n_trees == Tagger("plt:bonsai").model.get_params()["n_trees"]


def test_members_have_their_own_features_and_presets(train: Dataset) -> None:
    tagger = Tagger("blend", members="ovr:paper, ovr+ngrams=2").fit(train)
    first, second = tagger.model.pipelines  # type: ignore[attr-defined]
    assert first.extractor.features.ngrams == 1 and second.extractor.features.ngrams == 2


def test_members_keep_the_settings_that_they_were_trained_with(train: Dataset, test: Dataset) -> None:
    """A bundle of format 5 may have a member aplc+max_length=9: aplc read tokens by default."""
    model: Any = Tagger("blend", members="plt,aplc+encoder=bag+epochs=1+max_length=9", threads=1).fit(train).model
    state, members = model.state(), model.members.replace("+encoder=bag", "")
    state["about"] = np.frombuffer(bytes(state["about"]).replace(b"+encoder=bag", b""), np.uint8)
    with pytest.raises(SettingError, match="max_length is 9, which has no effect"):
        Blend(members=members).check()
    old = Blend(**{**model.get_params(), "members": members}).restore(state)
    old.configure(threads=1)
    np.testing.assert_array_equal(old.topk(test.texts, 2).scores, model.topk(test.texts, 2).scores)
    old.update(train.texts[:9], train.Y[:9])
    assert [pipeline.model.reads for pipeline in old.pipelines] == ["features", "texts"]


def test_threads_reach_the_members_of_a_loaded_blend(train: Dataset, tmp_path: Path) -> None:
    Tagger("blend", members="ovr, popularity").fit(train).save(tmp_path / "m")
    tagger = longtail.load(tmp_path / "m").configure(threads=1)
    member = tagger.model.pipelines[0]  # type: ignore[attr-defined]
    assert tagger.model.threads == 1 and member.model.threads == 1 and member.extractor.features.threads == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"members": "plt"}, "Name at least two"),
        ({"members": "plt, blend"}, "a blend cannot be a member"),
        ({"members": "plt, gals"}, 'Did you mean "glas"'),
        ({"members": "plt:papr, ovr"}, 'no preset "papr"'),
        ({"members": "plt+beem=3, ovr"}, 'Did you mean "beam"'),
        ({"members": "plt+beam, ovr"}, "has no value"),
        ({"members": "plt+beam=0, ovr"}, "beam is 0"),
        ({"members": 'plt+tree="balanced, ovr'}, "a quote is not closed"),
        ({"n_candidates": 0}, "n_candidates is 0"),
        ({"holdout": 0.0}, "holdout is 0"),
    ],
)
def test_wrong_settings(settings: dict[str, object], found: str, vectors: Dataset) -> None:
    with pytest.raises(SettingError, match=found):
        Blend(**settings).fit(vectors.X, vectors.Y)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=found):
        Tagger("blend", **settings)  # type: ignore[arg-type]


THINGS = ["violin", "trumpets", "drums (instruments)", "oboe", "harps", "cello"]


def titles(n: int, seed: int) -> Dataset:
    """Titles with the name of their label."""
    rng = np.random.default_rng(seed)
    about = [THINGS[i] for i in rng.integers(0, len(THINGS), n)]
    texts = [f"how to play {thing.split()[0]} number {rng.integers(1000)}" for thing in about]
    return Dataset.from_texts(texts, [[thing, "music"] for thing in about], known=Labels((*THINGS, "music", "lute")))


def test_a_label_whose_name_is_in_the_text_is_proposed() -> None:
    """The members do not read the text."""
    train = titles(60, 0)
    blend = Tagger("blend", members="popularity, popularity", n_candidates=2).fit(train)
    tags = blend.predict(["How to play the oboe", "drum lessons"], k=2)
    assert {tag.label for tag in tags[0]} == {"oboe", "music"} and "drums (instruments)" in {tag.label for tag in tags[1]}
    without = Tagger("blend", members="popularity, popularity", n_candidates=2, label_names=False).fit(train)
    assert len({tuple(tag.label for tag in tags) for tags in without.predict(["oboe", "violin", "harp"], k=2)}) == 1


@pytest.mark.parametrize("words", ["a", "a b", "b a a"])
def test_finding_names_is_linear_in_the_text(words: str) -> None:
    """Twice the text, twice the comparisons, however long and repetitive the names are."""

    class CountingForms(dict[str, list[int]]):
        n_lookups = 0

        def get(self, form: str, default: Any = None) -> Any:
            assert len(form.split()) <= MAX_WORDS_PER_FORM
            self.n_lookups += 1
            return super().get(form, default)

    mentions = Mentions([" ".join([words] * n) for n in (1, 2, 5, 10, 1000)])
    counts = []
    for n in (500, 1000):
        mentions.forms = forms = CountingForms(mentions.forms)
        assert 0 in mentions.find(" ".join([words] * n))
        counts.append(forms.n_lookups)
    assert counts[1] < 2.2 * counts[0]


def test_a_label_without_samples_is_predicted_by_the_tagger_not_by_the_blend() -> None:
    for unseen in (False, True):
        blend = Tagger("blend", members="popularity, popularity", unseen=unseen).fit(titles(300, 0))
        assert ("lute" in {tag.label for tag in blend.predict(["the lute"], k=8)[0]}) == unseen


def test_the_contribution_of_a_name_is_at_its_place(tmp_path: Path) -> None:
    tagger = Tagger("blend", members="popularity, popularity", n_candidates=2).fit(titles(60, 0))
    tagger.save(tmp_path / "m")
    again = longtail.load(tmp_path / "m")
    text = "Play the trumpet"
    for one in (tagger, again):
        (part,) = [part for part in one.explain(text, "trumpets").parts if part.weight]
        assert text[part.start : part.end] == "trumpet" and part.weight > 0
    assert again.predict([text], k=3) == tagger.predict([text], k=3)


def test_default_members_depend_on_the_data() -> None:
    blend = Blend()
    for n_labels, members in ((4096, "plt, glas+sparse_part=false"), (4097, "plt+ngrams=2, plt+ngrams=1")):
        blend.n_seen = n_labels
        assert join_specs(blend.choose_members(reads_texts=True)) == members
        assert join_specs(blend.choose_members(reads_texts=False)) == "plt, glas+sparse_part=false"


def test_a_member_that_does_not_propose_a_label_is_not_explained(train: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_LABEL in its row is not the last label."""
    tagger = Tagger("blend", members="ovr, plt", label_names=False).fit(train)
    _, second = tagger.model.pipelines  # type: ignore[attr-defined]
    few = TopK(np.array([[0, NO_LABEL]]), np.array([[0.5, -np.inf]]))
    monkeypatch.setattr(second.model, "topk", lambda X, k: few)
    monkeypatch.setattr(second, "explain", lambda sample, label: pytest.fail("it does not propose the label"))
    text, last = (train.texts or [""])[int(np.flatnonzero(train.Y[:, [-1]].toarray().ravel())[0])], train.n_labels - 1
    assert len(tagger.model.explain(text, last)[2]) > 0
