"""What every registered method must do. A new method is tested by being in the registry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import longtail
from longtail import Dataset, Tagger
from longtail.errors import DataError, LongtailError, SettingError
from longtail.model import Model
from longtail.registry import METHODS, model_class

ROOT = Path(longtail.__file__).parents[2]


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(method: str) -> Model:
    return model_class(method)()


def inputs(model: Model, data: Dataset, vectors: Dataset):  # type: ignore[no-untyped-def]
    """Samples and labels as the model wants them."""
    return (data.texts, data.Y) if model.input == "texts" else (vectors.X, vectors.Y)


def test_a_method_has_its_file_its_presets_and_its_page(method: str) -> None:
    cls = model_class(method)
    assert METHODS[method].startswith(f"longtail.models.{method}:")
    assert cls.__doc__ and cls.__doc__.split("\n")[0].endswith(".")
    assert "best" in cls.presets
    assert (ROOT / "docs" / "methods" / f"{method}.md").is_file()
    assert f"`{method}`" in (ROOT / "README.md").read_text()


def test_topk_is_ordered_and_never_repeats(model: Model, train: Dataset, vectors: Dataset) -> None:
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
    assert best.k == len(seen)  # k above the number of labels gives what there is
    assert set(best.ids.ravel()) <= set(seen.tolist())
    assert model.predict(X).shape == Y.shape


def test_one_seed_one_result_on_any_number_of_threads(method: str, train: Dataset, vectors: Dataset) -> None:
    results = []
    for threads in (1, 2):
        cls = model_class(method)
        model = cls(**({"threads": threads} if "threads" in cls.param_names() else {}))
        X, Y = inputs(model, train, vectors)
        results.append(model.fit(X, Y).topk(X, 4))
    assert np.array_equal(results[0].ids, results[1].ids) and np.array_equal(results[0].scores, results[1].scores)


def test_parameters_are_scikit_learns(model: Model) -> None:
    copy = clone(model)
    assert copy is not model and copy.get_params() == model.get_params()
    assert model.set_params(**model.get_params()) is model
    with pytest.raises(SettingError, match='no parameter "nonsense"'):
        model.set_params(nonsense=1)


def test_a_set_is_what_reaches_the_threshold(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    model.fit(X, Y)
    everything = model.topk(X, Y.shape[1])
    threshold = float(np.median(everything.scores))
    on = model.predict(X, threshold).toarray()
    expected = np.zeros_like(on)
    np.put_along_axis(expected, everything.ids, (everything.scores >= threshold).astype(on.dtype), axis=1)
    assert np.array_equal(on, expected)


def test_bad_input_is_refused(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    with pytest.raises(LongtailError, match="learned nothing yet"):
        model.topk(X, 1)
    with pytest.raises(DataError, match="rows of labels"):
        model.fit(X, Y[:-1])
    with pytest.raises(DataError, match="no samples"):
        model.fit(X[:0], Y[:0])
    with pytest.raises(DataError, match="not a single sample has a label"):
        model.fit(X, sp.csr_array(Y.shape))
    with pytest.raises(DataError, match="other than 0 and 1"):
        model.fit(X, Y * 2)
    model.fit(X, Y)
    for k in (0, -1):
        with pytest.raises(SettingError, match="at least 1"):
            model.topk(X, k)
    with pytest.raises(SettingError, match="whole number"):
        model.topk(X, 2.5)  # type: ignore[arg-type]
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
    with pytest.raises(DataError, match="texts go through a Tagger"):
        model.topk(["a text"], 1)


def test_a_sample_without_features_gets_an_answer(model: Model, train: Dataset, vectors: Dataset) -> None:
    X, Y = inputs(model, train, vectors)
    empty = [""] if model.input == "texts" else sp.csr_array((1, X.shape[1]), dtype=np.float32)
    best = model.fit(X, Y).topk(empty, 2)
    assert (best.ids >= 0).all() and np.isfinite(best.scores).all()


def test_corner_corpora(model: Model, train: Dataset) -> None:
    """One label on all samples, one on a single sample, one sample in all."""
    texts = ["one two", "two three", "three four"]
    X = texts if model.input == "texts" else sp.csr_array(np.eye(3, dtype=np.float32))
    best = model.fit(X, np.array([[1, 0], [1, 0], [1, 1]])).topk(X, 2)
    assert (best.ids[:, 0] == 0).all()
    single = model.fit(X[:1], np.array([[0, 1]])).topk(X, 2)
    assert single.ids.tolist() == [[1], [1], [1]]


def test_saved_and_loaded_predictions_are_identical(method: str, train: Dataset, vectors: Dataset, tmp_path: Path) -> None:
    for data in (train, vectors):
        if model_class(method).input == "texts" and data.texts is None:
            continue
        tagger = Tagger(method).fit(data)
        tagger.save(tmp_path / "model")
        again = longtail.load(tmp_path / "model")
        before, after = tagger.topk(data.inputs, 3), again.topk(data.inputs, 3)
        assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
        assert again.predict(data.inputs, 3) == tagger.predict(data.inputs, 3)
        settings = {name: v for name, v in tagger.model.get_params().items() if name != "threads"}
        assert again.model.get_params().items() >= settings.items()


def test_presets_are_known_settings(method: str) -> None:
    for preset in model_class(method).presets:
        Tagger(method, preset=preset)
    with pytest.raises(SettingError, match='Did you mean "best"'):
        Tagger(method, preset="bst")


def test_better_than_the_floor(method: str, train: Dataset, test: Dataset) -> None:
    floor = Tagger("popularity").fit(train).evaluate(test).values["P@1"]
    result = Tagger(method).fit(train).evaluate(test).values["P@1"]
    assert result == floor if method == "popularity" else result > floor + 30
