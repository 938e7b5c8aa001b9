"""What every registered method must fulfil. A new method is tested as soon as it is in the registry."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import longtail
from longtail import Dataset, MethodSpec, Tagger
from longtail.errors import DataError, LongtailError, SettingError
from longtail.model import Model
from longtail.registry import METHODS, model_class
from longtail.settings import describe

ROOT = Path(longtail.__file__).parents[2]


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(method: str) -> Model:
    return model_class(method)()


def inputs(model: Model, data: Dataset, vectors: Dataset) -> tuple[Any, Any]:
    """Samples and labels of the kind that the model reads."""
    return (data.texts, data.Y) if model.reads == "texts" else (vectors.X, vectors.Y)


def test_a_method_has_its_file_its_presets_and_its_page(method: str) -> None:
    cls = model_class(method)
    assert METHODS[method].startswith((f"longtail.models.{method}:", f"longtail.models.{method}.model:"))
    assert cls.__doc__ and cls.__doc__.split("\n")[0].endswith(".")
    assert "best" in cls.presets
    assert (ROOT / "docs" / "methods" / f"{method}.md").is_file()
    assert f"`{method}" in (ROOT / "README.md").read_text()


def test_every_setting_is_documented_and_limited(method: str) -> None:
    cls = model_class(method)
    described = list(describe(cls))
    assert [each.name for each in described] == cls.param_names()
    for each, declared in zip(described, fields(cls), strict=True):
        assert each.doc[0].isupper() and each.doc.endswith((".", '."', "…")), each.name
        assert f":param {each.name}: {each.doc}" in (cls.__doc__ or "")
        limits = declared.metadata["limits"]
        is_number = {"int", "float"} & set(each.type.split(" | "))
        assert not is_number or any(limit is not None for limit in limits), f"{each.name} has no limits"
        is_path = each.doc.startswith(("File", "Folder"))
        assert each.default is not None or is_path or "None" in each.doc, f"{each.name} does not say what None means"


def test_values_outside_of_the_limits_are_refused(method: str) -> None:
    cls = model_class(method)
    for each in fields(cls):
        limits, wrong = each.metadata["limits"], []
        wrong += [limits.minimum - 1] if limits.minimum is not None else []
        wrong += [limits.maximum + 1] if limits.maximum is not None else []
        wrong += [value for value in (limits.above, limits.below) if value is not None]
        wrong += ["nonsense"] if limits.choices or "str" not in str(each.type) else [7j]
        for value in wrong:
            with pytest.raises(SettingError, match=each.name):
                cls(**{each.name: value}).check()


def test_settings_are_frozen_and_shown_in_short(model: Model) -> None:
    for name in model.param_names():
        with pytest.raises(AttributeError):
            setattr(model, name, 1)
    assert repr(model) == f"{type(model).__name__}()"
    if "seed" in model.param_names():
        assert repr(type(model)(seed=7)) == f"{type(model).__name__}(seed=7)"  # type: ignore[call-arg]


def test_parameters_are_those_of_scikit_learn(model: Model) -> None:
    copy = clone(model)
    assert copy is not model and copy.get_params() == model.get_params()
    assert model.set_params(**model.get_params()) is model
    with pytest.raises(SettingError, match='no setting "nonsense"'):
        model.set_params(nonsense=1)


def test_mixed_precision_predicts_almost_the_same(model: Model, train: Dataset, vectors: Dataset) -> None:
    if "mixed_precision" not in model.param_names():
        pytest.skip("not a neural method")
    X, Y = inputs(model, train, vectors)
    first = [type(model)(mixed_precision=half).fit(X, Y).topk(X, 1) for half in (False, True)]  # type: ignore[call-arg]
    assert np.mean(first[0].ids == first[1].ids) >= 0.8
    assert np.isfinite(first[1].scores).all() and not np.array_equal(first[0].scores, first[1].scores)


def test_every_preset_is_a_spec(method: str) -> None:
    for preset in model_class(method).presets:
        tagger = Tagger(f"{method}:{preset}", seed=1)
        assert MethodSpec.parse(str(tagger.spec)) == tagger.spec and tagger.spec.preset == preset
    with pytest.raises(SettingError, match='Did you mean "best"'):
        Tagger(method, preset="bst")


def test_topk_is_sorted_and_never_repeats_a_label(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    best = model.fit(X, Y).topk(X, 3)
    assert best.ids.shape == best.scores.shape == (Y.shape[0], 3)
    assert best.ids.dtype == np.int32 and best.scores.dtype == np.float32
    assert np.isfinite(best.scores).all() and (np.diff(best.scores, axis=1) <= 0).all()
    assert all(len(set(row)) == 3 for row in best.ids.tolist())
    if model.score_meaning == "probability":
        assert best.scores.min() >= 0 and best.scores.max() <= 1


def test_labels_without_samples_are_never_predicted(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    Y = sp.csr_array(sp.hstack([sp.csr_array((Y.shape[0], 1)), Y, sp.csr_array((Y.shape[0], 2))]))
    seen = np.flatnonzero(Y.sum(axis=0))
    best = model.fit(X, Y).topk(X, k=10**6)
    assert best.k == len(seen)  # a larger k is reduced to the number of labels with samples
    assert set(best.ids.ravel()) <= set(seen.tolist())
    assert model.predict_sets(X).shape == Y.shape


def test_a_seed_gives_the_same_result_on_any_number_of_threads(method: str, train: Dataset, vectors: Dataset) -> None:
    results = []
    for threads in (1, 2):
        cls = model_class(method)
        model = cls(**({"threads": threads} if "threads" in cls.param_names() else {}))
        X, Y = inputs(model, train, vectors)
        results.append(model.fit(X, Y).topk(X, 4))
    assert np.array_equal(results[0].ids, results[1].ids) and np.array_equal(results[0].scores, results[1].scores)


def test_a_model_can_be_fitted_again(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    half = Y.shape[0] // 2
    model.fit(X[:half], Y[:half])
    again, fresh = model.fit(X, Y).topk(X, 4), type(model)().fit(X, Y).topk(X, 4)
    assert np.array_equal(again.ids, fresh.ids) and np.array_equal(again.scores, fresh.scores)
    copy = pickle.loads(pickle.dumps(model)).topk(X, 4)  # noqa: S301
    assert np.array_equal(copy.scores, again.scores)


def test_a_failed_fit_leaves_a_model_that_is_not_fitted(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)

    def fail(*ignored: Any) -> None:
        raise KeyboardInterrupt

    model.fit(X, Y)
    object.__setattr__(model, "_fit", fail)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    with pytest.raises(LongtailError, match="not fitted yet"):
        model.topk(X, 1)


def test_a_set_has_the_labels_that_reach_the_threshold(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    model.fit(X, Y)
    everything = model.topk(X, Y.shape[1])
    threshold = float(np.median(everything.scores))
    predicted = model.predict_sets(X, threshold).toarray()
    expected = np.zeros_like(predicted)
    np.put_along_axis(expected, everything.ids, (everything.scores >= threshold).astype(predicted.dtype), axis=1)
    assert np.array_equal(predicted, expected)


def test_bad_input_is_refused(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    with pytest.raises(LongtailError, match="not fitted yet"):
        model.topk(X, 1)
    with pytest.raises(DataError, match="rows of labels"):
        model.fit(X, Y[:-1])
    with pytest.raises(DataError, match="no samples"):
        model.fit(X[:0], Y[:0])
    with pytest.raises(DataError, match="no sample has a label"):
        model.fit(X, sp.csr_array(Y.shape))
    with pytest.raises(DataError, match="other than 0 and 1"):
        model.fit(X, Y * 2)
    model.fit(X, Y)
    for k in (0, -1, 2.5, True):
        with pytest.raises(SettingError, match="It must be a positive integer"):
            model.topk(X, k)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no samples"):
        model.topk(X[:0], 1)


@pytest.mark.parametrize("method", [name for name in METHODS if model_class(name).input == "features"])
def test_bad_features_are_refused(method: str, vectors: Dataset) -> None:
    model = model_class(method)()
    broken = vectors.X.toarray()
    broken[7, 2] = np.nan
    with pytest.raises(DataError, match="row 7: a feature is not a finite number"):
        model.fit(broken, vectors.Y)
    model.fit(vectors.X, vectors.Y)
    with pytest.raises(DataError, match="11 features, the model was trained on 12"):
        model.topk(vectors.X[:, :11], 1)
    with pytest.raises(DataError, match="Tagger"):
        model.topk(["a text"], 1)


def test_a_sample_without_features_gets_labels(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    empty = [""] if model.reads == "texts" else sp.csr_array((1, X.shape[1]), dtype=np.float32)
    best = model.fit(X, Y).topk(empty, 2)
    assert (best.ids >= 0).all() and np.isfinite(best.scores).all()


def test_corner_cases(model: Model, train: Dataset) -> None:
    """A label of all samples, a label of one sample, a single sample."""
    texts = ["one two", "two three", "three four"]
    X = texts if model.reads == "texts" else sp.csr_array(np.eye(3, dtype=np.float32))
    best = model.fit(X, np.array([[1, 0], [1, 0], [1, 1]])).topk(X, 2)
    assert (best.ids[:2, 0] == 0).all() and set(best.ids[2]) == {0, 1}  # the third sample has both labels
    single = model.fit(X[:1], np.array([[0, 1]])).topk(X, 2)
    assert single.ids.tolist() == [[1], [1], [1]]


def test_held_out_predictions_are_of_samples_and_labels_of_the_training_data(
    model: Model, train: Dataset, vectors: Dataset
) -> None:
    X, Y = inputs(model, train, vectors)
    found = model.fit(X, Y).predict_held_out(X, Y, 3)
    if found is None:  # scores can be calibrated on validation data only
        assert not model.get_params().get("holdout")
        return
    assert found.topk.n_samples == found.Y.shape[0] > 0 and found.topk.k <= 3 and found.Y.shape[1] == Y.shape[1]
    has_labels, of_all = (np.diff(matrix.indptr) > 0 for matrix in (found.Y, sp.csr_array(Y)))
    assert abs(has_labels.mean() - of_all.mean()) < 0.2  # as many without labels as in the training data
    assert found.label_counts.shape == (Y.shape[1],) and found.source
    assert found.topk.ids.max() < Y.shape[1]


def test_saved_and_loaded_predictions_are_identical(method: str, train: Dataset, vectors: Dataset, tmp_path: Path) -> None:
    for data in (train, vectors):
        if model_class(method).input == "texts" and data.texts is None:
            continue
        tagger = Tagger(method, threads=1).fit(data)
        tagger.save(tmp_path / "model", overwrite=True)
        again = longtail.load(tmp_path / "model").configure(threads=1)
        before, after = tagger.topk(data.inputs, 3), again.topk(data.inputs, 3)
        assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
        assert again.predict(data.inputs, 3) == tagger.predict(data.inputs, 3)
        assert again.model.get_params() == tagger.model.get_params() and again.spec == tagger.spec
        assert again.score_meaning == tagger.score_meaning and again.decisions.source == tagger.decisions.source
        assert repr(again) == f'Tagger("{method}", fitted on {data.n_samples} samples, {data.n_labels} labels)'


def test_better_than_popularity(method: str, train: Dataset, test: Dataset) -> None:
    baseline = Tagger("popularity").fit(train).evaluate(test).values["P@1"]
    result = Tagger(method).fit(train).evaluate(test).values["P@1"]
    assert result == baseline if method == "popularity" else result > baseline + 30
