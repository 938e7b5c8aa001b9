"""scikit-learn estimators: every method of longtail in pipelines, cross-validation and grid searches. Needs scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import DataError, LongtailError, MissingExtra, suggest
from longtail.registry import DEFAULT_METHOD
from longtail.spec import MethodSpec, known_settings
from longtail.tagger.inputs import check_inputs
from longtail.tagger.tagger import Tagger
from longtail.topk import NO_LABEL, TopK

try:
    from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
    from sklearn.utils import Tags, check_array, check_consistent_length, column_or_1d  # type: ignore[import-untyped]
    from sklearn.utils.metaestimators import available_if  # type: ignore[import-untyped]
    from sklearn.utils.multiclass import check_classification_targets, type_of_target  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
except ImportError as error:
    raise MissingExtra("scikit-learn 1.6 or newer", "sklearn", "scikit-learn support") from error

_TIE_BREAK = 1e-12  # relative difference between equal probabilities of two labels, so that the first has the largest
MAX_DENSE_CELLS = 10**8  # scores that ``predict_proba`` and ``decision_function`` return at most


def _has_probabilities(self: Any) -> bool:
    return bool(self._find_tagger_meaning() == "probability")


def _has_margins(self: Any) -> bool:
    return bool(self._find_model_meaning() != "probability")


class TaggerClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What ``TextClassifier`` and ``VectorClassifier`` have in common: a tagger with the interface of scikit-learn.

    ``y`` is an indicator matrix, dense or sparse; or a list of label names per sample; or one class per sample. ``predict``
    returns labels in the same form.

    :param method: A method (``"plt"``) or a spec (``"plt:bonsai+beam=50"``).
    :param preset: A preset of the method. None: ``best``.
    :param seed: Seed of everything random.
    :param threads: Threads. None: all cores.
    :param progress: Whether to show progress bars. None: in terminals and notebooks.
    :param settings: Further settings of the method or of its features, by name. A grid search can vary them.
    """

    def __init__(
        self,
        method: str | MethodSpec = DEFAULT_METHOD,
        *,
        preset: str | None = None,
        seed: int = 0,
        threads: int | None = None,
        progress: bool | None = False,
        **settings: Any,
    ) -> None:
        self.method, self.preset, self.seed, self.threads, self.progress = method, preset, seed, threads, progress
        self._settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, including the settings that were given."""
        return {**super().get_params(deep), **self._settings}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and settings of the method."""
        own = {name: value for name, value in params.items() if name in self._get_param_names()}
        super().set_params(**own)
        settings = {name: value for name, value in params.items() if name not in own}
        try:
            known = known_settings(self._spec().method) if settings else {}
        except LongtailError:
            known = dict.fromkeys(settings, "")  # an unknown method is reported by ``fit``
        for name in settings:
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}. {suggest(name, known)}")
        self._settings = {**self._settings, **settings}
        return self

    def topk(self, X: Any, k: int = 5) -> TopK:
        """Return the k best labels of each sample as positions in ``classes_``, with their scores."""
        check_is_fitted(self)
        return self.tagger_.topk(self._check_samples(X), k)

    def predict(self, X: Any) -> Any:
        """Predict labels, in the form of the ``y`` of ``fit``."""
        check_is_fitted(self)
        samples = self._check_samples(X)
        if self._form == "classes":
            first = self.tagger_.topk(samples, 1).ids[:, 0]
            return self.classes_[np.where(first == NO_LABEL, self.tagger_.model.label_counts.argmax(), first)]
        sets = self.tagger_.predict_sets(samples)
        if self._form == "names":
            return [[self.classes_[label] for label in row] for row in np.split(sets.indices, sets.indptr[1:-1])]
        return sets.astype(self._dtype) if self._form == "sparse" else sets.toarray().astype(self._dtype)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every label [n_samples, n_labels]; for one class per sample, they add up to 1.

        Only for calibrated methods, and others whose scores are probabilities. With many labels, use ``topk``.
        """
        scores = self._scores(X, 0.0)
        if self._form == "classes":
            total = scores.sum(axis=1, keepdims=True)
            scores = np.where(total > 0, scores / np.where(total > 0, total, 1), 1 / scores.shape[1])
        return scores

    @available_if(_has_margins)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the model's score of every label [n_samples, n_labels]; for two classes, the second minus the first.

        Only for methods whose scores, before calibration, are not probabilities. With many labels, use ``topk``.
        """
        scores = self._scores(X, None)
        return scores[:, 1] - scores[:, 0] if self._form == "classes" and scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of samples whose labels are all predicted correctly. For others, use ``scoring="f1_micro"``."""
        check_is_fitted(self)
        if self._form != "names":
            return float(super().score(X, y, sample_weight))
        right = [set(predicted) == set(true) for predicted, true in zip(self.predict(X), y, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        """Describe the estimator: it supports sparse and multi-label data."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _fit_tagger(self, Y: sp.csr_array, labels: Labels, **inputs: Any) -> Self:
        tagger = Tagger(self._spec(), seed=self.seed, threads=self.threads)
        self.tagger_ = tagger.fit(Dataset(Y, labels, **inputs), progress=self.progress)
        return self

    def _check_samples(self, X: Any) -> Any:
        raise NotImplementedError

    def _spec(self) -> MethodSpec:
        spec = self.method if isinstance(self.method, MethodSpec) else MethodSpec.parse(str(self.method))
        return spec.override(self.preset, self._settings)

    def _find_model_meaning(self) -> str:
        """What the scores of the model are; empty for an unknown method."""
        if hasattr(self, "tagger_"):
            return str(self.tagger_.model.score_meaning)
        try:
            return str(Tagger(self._spec()).model.score_meaning)
        except LongtailError:
            return ""

    def _find_tagger_meaning(self) -> str:
        """What calibrated scores are; before ``fit``, as with enough samples to calibrate."""
        if hasattr(self, "tagger_"):
            return str(self.tagger_.score_meaning)
        meaning = self._find_model_meaning()
        return "probability" if meaning and self._spec().resolve().get("calibrate", True) else meaning

    def _scores(self, X: Any, missing: float | None) -> NDArray[np.float64]:
        """Return the scores of all labels, in the order of ``topk`` even where two are equal.

        Labels that no search finds get ``missing``. None: less than all others, and the scores are those of the model.
        """
        check_is_fitted(self)
        samples, n_labels = self._check_samples(X), len(self.classes_)
        n_samples = samples.shape[0] if sp.issparse(samples) else len(samples)
        if n_samples * n_labels > MAX_DENSE_CELLS:
            raise DataError(f"the scores would be {n_samples:,} × {n_labels:,} numbers", hint="Use topk, or fewer samples")
        best = self.tagger_.topk(samples, n_labels, raw=missing is None)
        found = best.ids != NO_LABEL
        scores = best.scores.astype(np.float64)
        if missing is not None:
            scores *= 1 - _TIE_BREAK * np.arange(best.k)
        lowest = scores[found].min(initial=0.0) - 1 if missing is None else missing
        out = np.full((n_samples, n_labels), lowest)
        out[np.nonzero(found)[0], best.ids[found]] = scores[found]
        return out

    def _encode_target(self, y: Any) -> tuple[sp.csr_array, Labels]:
        """Convert y to an indicator matrix; keep its form and the classes."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if names := _find_names(y):
            data = Dataset.from_pairs(("", one) for one in names)
            self._form, self.classes_ = "names", np.array(data.labels.names, object)
            return data.Y, data.labels
        y = check_array(y, accept_sparse="csr", ensure_2d=False, dtype=None, input_name="y", estimator=self)
        if sp.issparse(y) or type_of_target(y, input_name="y") == "multilabel-indicator":
            self._form, self._dtype = "sparse" if sp.issparse(y) else "dense", y.dtype
            self.classes_ = np.arange(y.shape[1])
            return sp.csr_array(y), Labels.from_count(y.shape[1])
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, ids = np.unique(y, return_inverse=True)
        self._form = "classes"
        ones = np.ones(len(ids), np.float32)
        Y = sp.csr_array((ones, ids, np.arange(len(ids) + 1)), shape=(len(ids), len(self.classes_)))
        return Y, Labels(tuple(map(str, self.classes_)))


class VectorClassifier(TaggerClassifier):
    """A scikit-learn classifier of feature vectors, dense or sparse, for any method that reads them.

    >>> X, y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> VectorClassifier("ovr", C=10).fit(X, y).predict(X).tolist()
    [[1, 0], [1, 0], [0, 1], [0, 1]]
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to feature vectors X [n_samples, n_features] and their labels y."""
        Y, labels = self._encode_target(y)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float32, np.float64))
        check_consistent_length(X, Y)
        return self._fit_tagger(Y, labels, X=sp.csr_array(X, dtype=np.float32))

    def _check_samples(self, X: Any) -> sp.csr_array:
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=(np.float32, np.float64))
        return sp.csr_array(X, dtype=np.float32)

    def __sklearn_tags__(self) -> Tags:
        """Describe the estimator: it supports sparse and multi-label data."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class TextClassifier(TaggerClassifier):
    """A scikit-learn classifier of texts, for any method.

    >>> texts, y = ["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]]
    >>> TextClassifier("ovr", min_df=1).fit(texts, y).predict(["a green apple"])
    [['fruit']]
    """

    def fit(self, X: Iterable[str], y: Any) -> Self:
        """Fit to texts X and their labels y."""
        Y, labels = self._encode_target(y)
        texts = self._check_samples(X)
        check_consistent_length(texts, Y)
        return self._fit_tagger(Y, labels, texts=texts)

    def _check_samples(self, X: Any) -> Any:
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1:  # a column of a table
            X = X.ravel()
        return check_inputs(X, reads_texts=True)

    def __sklearn_tags__(self) -> Tags:
        """Describe the estimator: its input is a sequence of strings."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, True, False
        return tags


def _find_names(y: Any) -> list[list[str]] | None:
    """Return the label names of each sample if y is made of lists of strings, otherwise None."""
    if not isinstance(y, Iterable) or isinstance(y, str) or (hasattr(y, "dtype") and y.dtype != object):
        return None
    rows = list(y)
    if not rows or not all(isinstance(row, list | tuple | set | frozenset) for row in rows):
        return None
    return [list(row) for row in rows] if any(isinstance(name, str) for row in rows for name in row) else None
