"""What every method is: a constructor that stores, ``fit``, ``topk``, ``predict``, and a state of plain arrays."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import check_features, check_labels
from longtail.data.dataset import Labels
from longtail.errors import CollapseWarning, DataError, LongtailError, SettingError, suggest
from longtail.kernels import Ints
from longtail.labelspace.tree import LabelTree
from longtail.progress import SILENT, Progress
from longtail.settings import Settings, add_parameters
from longtail.state import State
from longtail.topk import NO_LABEL, TopK

Input = Any  # CSR features or a sequence of texts; scipy has no types
Valid = tuple[Input, sp.csr_array]
Spans = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # starts, ends, weights [n] of parts of one sample

LOOKED_AT, FEWEST = 500, 20  # training samples on which a collapse is looked for; with fewer, nothing can be said
SAME = 0.95  # share of them with one and the same first label from which it is one

# What the weights of an explanation mean; the sums of the first three are the difference from a sample without features.
IN_MARGIN = "what each adds to the margin"
IN_ODDS = "what each adds to the log-odds"
IN_LOG_PROBABILITY = "what each adds to the logarithm of the probability"
WITHOUT = "by how much the log-odds fall without each"


class Model(Settings, ABC):
    """Base of all methods. A subclass writes ``_fit``, ``_topk``, ``_state`` and ``_restore``; the checks are here.

    It explains itself by ``slopes`` if it reads features, else by ``_explain``.

    Hyper-parameters are declared in a settings class (``longtail.settings``) that the method inherits from, first:
    ``class Glas(GlasSettings, Model)``. Its constructor stores them; ``fit`` checks them.
    """

    input: ClassVar[Literal["features", "texts", "anything"]] = "features"
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # settings of the model and of its features, by preset name
    n_samples: int  # samples learned from
    n_features: int  # width of X; 0 where it does not matter
    label_counts: Ints  # [n_labels] samples learned from, by label
    labels: Labels | None = None  # names, texts and parents, where a tagger has set them before ``fit``

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        add_parameters(cls)

    @property
    @abstractmethod
    def score_meaning(self) -> Literal["probability", "margin", "count"]:
        """What a score is."""

    @property
    def label_tree(self) -> LabelTree | None:
        """The tree over the labels, for methods that have one."""
        return None

    @property
    def natural_threshold(self) -> float:
        """The score from which a label is on, if nobody has chosen a better one."""
        return {"probability": 0.5, "margin": 0.0, "count": 1.0}[self.score_meaning]

    @property
    def weights_meaning(self) -> str:
        """What the weights are by which a sample is explained."""
        return IN_MARGIN if self.score_meaning == "margin" else IN_ODDS

    @abstractmethod
    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None: ...

    @abstractmethod
    def _topk(self, X: Any, k: int) -> TopK: ...

    @abstractmethod
    def _state(self) -> State: ...

    @abstractmethod
    def _restore(self, state: State) -> None: ...

    @property
    def n_labels(self) -> int:
        """Number of labels, with or without examples."""
        return len(self.label_counts)

    @cached_property
    def n_seen(self) -> int:
        """Number of labels that have been seen; only they are ever predicted."""
        return int(np.count_nonzero(self.label_counts))

    def fit(self, X: Input, Y: sp.csr_array, valid: Valid | None = None, *, progress: Progress = SILENT) -> Self:
        """Learn from samples X and their labels Y. ``valid`` is for methods that choose something while they learn."""
        self.check()
        X, Y = self._checked(X), check_labels(Y)
        if Y.shape[0] != count(X):
            raise DataError(f"{count(X)} samples but {Y.shape[0]} rows of labels", hint="Give one row of each per sample")
        if not Y.nnz:
            raise DataError("not a single sample has a label", hint="Check the labels of the training data")
        self.n_samples, self.n_features = count(X), X.shape[1] if sp.issparse(X) else 0
        self.label_counts = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int32)
        vars(self).pop("n_seen", None)
        try:
            self._fit(X, Y, valid, progress)
        except BaseException:
            del self.label_counts  # half a model is none
            raise
        self._warn_of_collapse(X, Y)
        return self

    def topk(self, X: Input, k: int = 5) -> TopK:
        """The k best labels of each sample; fewer columns if fewer labels were ever seen."""
        self._must_be_fitted()
        if isinstance(k, bool) or not isinstance(k, int | np.integer):
            raise SettingError(f"k is {k!r}", hint="It must be a whole number")
        if k < 1:
            raise SettingError(f"k is {k}", hint="It must be at least 1")
        return self._topk(self._check_width(X), min(int(k), self.n_seen))

    def explain(self, one: Input, label: int) -> Spans:
        """What in one sample, a row of features or a text, speaks for a label (weights above 0) or against it.

        Parts are numbers of features, or runs of characters of the text, from a start to before an end; they may overlap.
        What their weights are, ``weights_meaning`` says.
        """
        self._must_be_fitted()
        if not 0 <= label < self.n_labels or not self.label_counts[label]:
            found = f"no sample that this {type(self).__name__} has learned from has the label {label}"
            raise SettingError(found, hint="It is never predicted, so there is nothing to explain")
        X = self._check_width([one] if isinstance(one, str) else one)
        if count(X) != 1:
            raise DataError(f"{count(X)} samples were given", hint="Explain one at a time")
        return self._explain(X[0] if isinstance(one, str) else X, int(label))

    def _explain(self, one: Any, label: int) -> Spans:
        return one.indices, one.indices + 1, one.data * self.slopes(one, label)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """For methods of features: what each feature that one sample has adds for each unit of it [nnz]."""
        raise NotImplementedError

    def predict(self, X: Input, threshold: float | None = None) -> sp.csr_array:
        """The labels that are on: an indicator matrix of all labels whose score reaches the threshold."""
        limit = self.natural_threshold if threshold is None else threshold
        k, best = 8, self.topk(X, 8)
        while k < self.n_labels and (best.scores[:, -1] >= limit).any():  # until every row has passed the threshold
            k *= 4
            best = self.topk(X, k)
        on = (best.ids != NO_LABEL) & (best.scores >= limit)
        rows = np.concatenate([[0], np.cumsum(on.sum(axis=1))])
        out = sp.csr_array((np.ones(rows[-1], np.float32), best.ids[on], rows), shape=(best.n_samples, self.n_labels))
        out.sort_indices()
        return out

    def state(self) -> State:
        """All that ``fit`` learned, as plain arrays."""
        self._must_be_fitted()
        numbers = np.array([self.n_samples, self.n_features], np.int64)
        return {"label_counts": self.label_counts, "sizes": numbers, **self._state()}

    def restore(self, state: State) -> Self:
        """Take back what ``state`` gave."""
        self.label_counts = state["label_counts"]
        self.n_samples, self.n_features = (int(n) for n in state["sizes"])
        self._restore(state)
        return self

    @classmethod
    def preset(cls, name: str) -> dict[str, Any]:
        """The settings of a preset."""
        if name not in cls.presets:
            raise SettingError(f'{cls.__name__} has no preset "{name}"', hint=suggest(name, cls.presets))
        return dict(cls.presets[name])

    def _warn_of_collapse(self, X: Any, Y: sp.csr_array) -> None:
        """Warn if all samples get the same first label although most do not have it: the input was not learned from."""
        tell = np.flatnonzero(np.diff(Y.indptr))  # samples with a label
        if self.input == "anything" or len(tell) < FEWEST:
            return
        rows = tell[np.unique(np.linspace(0, len(tell) - 1, LOOKED_AT).astype(np.int64))]
        first = self._topk(X[rows] if sp.issparse(X) else [X[i] for i in rows], 1).ids[:, 0]
        label, times = max(zip(*np.unique(first, return_counts=True), strict=True), key=lambda pair: int(pair[1]))
        share = np.count_nonzero(Y[rows].indices == label) / len(rows)
        if times >= SAME * len(rows) and share < 0.5:
            name = self.labels.names[label] if self.labels else f"number {label}"
            warnings.warn(
                f"{type(self).__name__} has collapsed: it gives {times} of {len(rows)} training samples the same first label"
                f" ({name}), which {100 * share:.0f} % of them have. It has learned nothing from the input. Take"
                " other settings, another preset or another method",
                CollapseWarning,
                stacklevel=3,
            )

    def _must_be_fitted(self) -> None:
        if not hasattr(self, "label_counts"):
            raise LongtailError(f"this {type(self).__name__} has learned nothing yet", hint="Call fit first")

    def _check_width(self, X: Any) -> Any:
        """Checked, and as wide as what was learned from."""
        X = self._checked(X)
        if sp.issparse(X) and self.n_features and X.shape[1] != self.n_features:
            found = f"the samples have {X.shape[1]:,} features, the model was trained on {self.n_features:,}"
            raise DataError(found, hint="Make the features as for the training data")
        return X

    def _checked(self, X: Any) -> Any:
        if count(X) == 0:
            raise DataError("there are no samples", hint="Give at least one")
        if self.input == "anything":
            return X
        if self.input == "features":
            return check_features(X)
        if isinstance(X, str) or sp.issparse(X) or not all(isinstance(text, str) for text in X):
            raise DataError(f"{type(self).__name__} takes a list of texts", hint="Give a list of strings")
        return X


def count(X: Any) -> int:
    """Number of samples."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
