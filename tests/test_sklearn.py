"""The scikit-learn estimators: scikit-learn's own checks, and multi-label data in pipelines and searches."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from longtail import Dataset, MethodSpec, Tagger, TextClassifier, VectorClassifier
from longtail.errors import DataError, SettingError
from longtail.registry import METHODS, model_class

IGNORES_INPUT = "popularity predicts the most frequent labels for every sample"
FAILS = {"popularity": {"check_classifiers_train": IGNORES_INPUT}}


@parametrize_with_checks(
    [VectorClassifier(method) for method in ("ovr", "ovr+loss=logistic", "plt", "popularity")],
    expected_failed_checks=lambda estimator: FAILS.get(estimator.method, {}),
)
@pytest.mark.filterwarnings("ignore")
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_valid_tag_types,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_mixin_order,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    ],
)
def test_checks_of_scikit_learn_that_need_no_data(check: Any) -> None:
    """Its other checks have no texts."""
    check("TextClassifier", TextClassifier())


@pytest.mark.parametrize("as_sparse", [sp.csr_array, sp.csr_matrix, sp.coo_array])
def test_predictions_have_the_form_of_y(vectors: Dataset, as_sparse: Any) -> None:
    dense = vectors.Y.toarray().astype(np.int64)
    predicted = VectorClassifier().fit(vectors.X, dense).predict(vectors.X)
    assert isinstance(predicted, np.ndarray) and predicted.dtype == np.int64 and predicted.shape == dense.shape
    sparse = VectorClassifier().fit(vectors.X, as_sparse(dense)).predict(vectors.X)
    assert sp.issparse(sparse) and sparse.dtype == np.int64 and np.array_equal(sparse.toarray(), predicted)
    names = [[f"label {i}" for i in np.flatnonzero(row)] for row in dense]
    lists = VectorClassifier().fit(vectors.X, names)
    expected = [{f"label {i}" for i in np.flatnonzero(row)} for row in predicted]
    assert [set(row) for row in lists.predict(vectors.X)] == expected
    assert set(lists.classes_) == {f"label {i}" for i in range(4)}
    assert f1_score(dense, predicted, average="micro", zero_division=0) > 0.8


def test_texts_in_every_form_of_y(train: Dataset, test: Dataset) -> None:
    names = [train.get_label_names(row) for row in range(train.n_samples)]
    by_name = TextClassifier("plt").fit(train.texts, names)
    by_matrix = TextClassifier("plt").fit(np.array(train.texts)[:, None], train.Y)
    assert np.array_equal(by_name.topk(test.texts).ids, by_matrix.topk(test.texts).ids)
    expected = by_matrix.predict(test.texts)
    predicted = [sorted(train.labels.ids[name] for name in row) for row in by_name.predict(test.texts)]
    assert predicted == [row.tolist() for row in np.split(expected.indices, expected.indptr[1:-1])]
    assert by_name.score(train.texts, names) == pytest.approx(by_matrix.score(train.texts, train.Y))
    assert by_matrix.score(train.texts, train.Y) > 0.8


def test_one_class_per_text(train: Dataset) -> None:
    first = np.array([names[0] for names in (train.get_label_names(row) for row in range(train.n_samples))])
    classifier = TextClassifier("ovr").fit(train.texts, first)
    assert classifier.score(train.texts, first) > 0.6 and set(classifier.predict(train.texts)) <= set(first)
    probabilities = TextClassifier("plt").fit(train.texts, first).predict_proba(train.texts)
    assert probabilities.shape == (train.n_samples, 4) and np.allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("lightattention", "secseq", "aplc")])
def test_every_method_can_be_cloned_fitted_and_searched(method: str, vectors: Dataset) -> None:
    estimator = clone(VectorClassifier(method, seed=3))
    assert is_classifier(estimator) and get_tags(estimator).classifier_tags.multi_label
    if model_class(method).input != "texts":
        assert estimator.fit(vectors.X, vectors.Y).predict(vectors.X).shape == vectors.Y.shape
        assert estimator.n_features_in_ == vectors.X.shape[1] and estimator.classes_.tolist() == [0, 1, 2, 3, 4]


def test_settings_are_parameters() -> None:
    estimator = VectorClassifier("plt:bonsai", beam=20)
    assert estimator.get_params()["beam"] == 20
    copy = clone(estimator).set_params(beam=30, n_trees=1, seed=5)
    assert copy.get_params()["beam"] == 30 and estimator.get_params()["beam"] == 20 and copy.get_params()["seed"] == 5
    assert repr(copy) == "VectorClassifier(beam=30, method='plt:bonsai', n_trees=1, seed=5)"
    with pytest.raises(ValueError, match=r"VectorClassifier has no parameter 'beem'. Did you mean \"beam\""):
        estimator.set_params(beem=1)
    assert VectorClassifier().set_params(method="plt", beam=20).get_params()["beam"] == 20
    spec = MethodSpec.parse("plt+beam=20")
    assert clone(VectorClassifier(spec)).method == spec


def test_wrong_settings_are_reported_by_fit(vectors: Dataset) -> None:
    for estimator in (VectorClassifier("nothing"), VectorClassifier("ovr", C=-1), VectorClassifier("ovr", nothing=1)):
        with pytest.raises(SettingError):
            clone(estimator).fit(vectors.X, vectors.Y)
        assert not hasattr(estimator, "tagger_")


def test_cross_validation_and_grid_search_of_texts(train: Dataset) -> None:
    dense = train.Y.toarray().astype(int)  # cross_val_score takes no sparse y
    scores = cross_val_score(TextClassifier("ovr"), train.texts, dense, cv=3, scoring="f1_micro")
    assert scores.shape == (3,) and scores.min() > 0.8
    search = GridSearchCV(TextClassifier("ovr"), {"min_df": [20, 1], "ngrams": [1]}, cv=2, scoring="f1_micro")
    search.fit(train.texts, dense)
    assert search.best_params_ == {"min_df": 1, "ngrams": 1} and search.predict(train.texts).shape == dense.shape
    methods = GridSearchCV(TextClassifier(), {"method": ["popularity", "plt:bonsai"]}, cv=2, scoring="f1_micro")
    assert methods.fit(train.texts, train.Y).best_params_ == {"method": "plt:bonsai"}
    names = [train.get_label_names(row) for row in range(train.n_samples)]
    assert cross_val_score(TextClassifier("ovr"), train.texts, names, cv=KFold(3)).mean() > 0.5


def test_a_pipeline_of_scikit_learn(train: Dataset, test: Dataset) -> None:
    y = MultiLabelBinarizer(sparse_output=True)
    Y = y.fit_transform([train.get_label_names(row) for row in range(train.n_samples)])
    pipeline = Pipeline([("tfidf", TfidfVectorizer()), ("classifier", VectorClassifier("plt"))]).fit(train.texts, Y)
    predicted = pipeline.predict(test.texts)
    assert sp.issparse(predicted) and predicted.shape == (test.n_samples, 4)
    assert pipeline.predict_proba(test.texts).shape == (test.n_samples, 4)
    search = GridSearchCV(pipeline, {"classifier__beam": [5, 10]}, cv=2).fit(train.texts, Y)
    assert search.best_estimator_[-1].get_params()["beam"] in (5, 10)
    rows = cross_val_predict(make_pipeline(TfidfVectorizer(), VectorClassifier()), train.texts, Y.toarray(), cv=2)
    assert rows.shape == (train.n_samples, 4)
    wrapped = OneVsRestClassifier(VectorClassifier("ovr")).fit(sp.csr_array(np.eye(4)), np.eye(4, dtype=int))
    assert wrapped.predict(np.eye(4)).shape == (4, 4)


def test_scores_of_all_labels(vectors: Dataset) -> None:
    unfitted = VectorClassifier("ovr", calibrate=False)
    assert not hasattr(unfitted, "predict_proba")
    margins = unfitted.fit(vectors.X, vectors.Y)
    assert not hasattr(margins, "predict_proba")
    decisions = margins.decision_function(vectors.X)
    best = margins.topk(vectors.X, 4)
    np.testing.assert_allclose(np.take_along_axis(decisions, best.ids, axis=1), best.scores)
    assert (decisions[:, 4] < decisions[:, :4].min()).all()  # label 4 has no training samples
    logistic = VectorClassifier("ovr", loss="logistic", calibrate=False).fit(vectors.X, vectors.Y)
    assert not hasattr(logistic, "decision_function") and hasattr(VectorClassifier("plt"), "predict_proba")
    probabilities = logistic.predict_proba(vectors.X)
    assert (probabilities[:, 4] == 0).all() and probabilities.max() <= 1
    assert np.array_equal(probabilities >= 0.5, logistic.predict(vectors.X).toarray() > 0)


def test_margins_and_calibrated_probabilities_have_the_same_order(vectors: Dataset) -> None:
    assert hasattr(VectorClassifier("ovr"), "predict_proba") and hasattr(VectorClassifier("ovr"), "decision_function")
    calibrated = VectorClassifier("ovr").fit(vectors.X, vectors.Y)
    plain = VectorClassifier("ovr", calibrate=False).fit(vectors.X, vectors.Y)
    probabilities, decisions = calibrated.predict_proba(vectors.X), calibrated.decision_function(vectors.X)
    np.testing.assert_array_equal(decisions, plain.decision_function(vectors.X))
    np.testing.assert_array_equal(np.argsort(-probabilities), np.argsort(-decisions))
    assert (probabilities[:, 4] == 0).all() and (probabilities[:, :4] > 0).all() and probabilities.max() < 1
    predicted = calibrated.predict(vectors.X).toarray() > 0
    for chances, chosen in zip(probabilities, predicted, strict=True):  # the first labels of each sample
        assert chances[chosen].min() > chances[~chosen].max()


def test_scores_of_very_many_labels_are_refused(vectors: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = VectorClassifier("plt").fit(vectors.X, vectors.Y)
    monkeypatch.setattr("longtail.estimators.MAX_DENSE_CELLS", 80 * 5 - 1)
    with pytest.raises(DataError, match=r"80 × 5 numbers\. Use topk"):
        classifier.predict_proba(vectors.X)


def test_an_estimator_is_fitted_or_not(vectors: Dataset) -> None:
    for estimator in (VectorClassifier(), TextClassifier()):
        for call in (estimator.predict, estimator.topk, estimator.decision_function):
            with pytest.raises(NotFittedError):
                call(vectors.X)
    check_is_fitted(VectorClassifier().fit(vectors.X, vectors.Y))


def test_it_predicts_like_a_tagger(train: Dataset, test: Dataset) -> None:
    estimator = TextClassifier("plt:bonsai", seed=2, ngrams=2).fit(train.texts, train.Y)
    tagger = Tagger("plt:bonsai", seed=2, ngrams=2).fit(train)
    assert np.array_equal(estimator.topk(test.texts).scores, tagger.topk(test.inputs).scores)
    assert (estimator.predict(test.texts) != tagger.predict_sets(test.inputs)).nnz == 0


@pytest.mark.parametrize("y", [[], [0.5, 0.2], ["a", "b", "c"], [["a"], ["b"], ["c"]], None, [[0, 2], [1, 0]]])
def test_wrong_targets(y: Any) -> None:
    for estimator, X in ((TextClassifier(), ["one", "two"]), (VectorClassifier(), np.eye(2))):
        with pytest.raises(ValueError):
            estimator.fit(X, y)


def test_scikit_learn_is_imported_on_use_and_missing_with_a_hint() -> None:
    code = (
        "import sys, longtail; from longtail import Tagger, MethodSpec; assert 'sklearn' not in sys.modules\n"
        "sys.modules['sklearn'] = None\n"
        "try: longtail.TextClassifier\n"
        "except longtail.LongtailError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs scikit-learn" in done.stdout and "pip install 'longtail[sklearn]'" in done.stdout
