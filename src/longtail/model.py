"""The base class of all methods: settings, ``fit``, ``topk``, ``predict_sets``, ``explain``, and a state of plain arrays."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.collapse import choose_samples, describe_collapse
from longtail.csr import MAX_INT32
from longtail.data.holdout import draw_holdout, find_sampled_labels, take_held_out, take_samples
from longtail.data.labels import Labels
from longtail.errors import CollapseWarning, DataError, LongtailError, SettingError, suggest
from longtail.extras import require
from longtail.kernels import Bools, Floats, Ints
from longtail.labelspace.tree import LabelTree
from longtail.nn.settings import TrainingSettings
from longtail.progress import SILENT, Progress
from longtail.registry import find_method_name
from longtail.samples import check_allowed, check_input, check_new_labels, check_rows, count_samples, widen
from longtail.settings import Settings, add_parameters
from longtail.sharding.cluster import Cluster
from longtail.sharding.processes import Processes
from longtail.state import MAX_COUNT, State, check_array, check_count, refuse
from longtail.topk import NO_LABEL, HeldOut, TopK, find_above, make_indicator

Input = Any  # CSR feature vectors or a sequence of texts; scipy has no types
Valid = tuple[Input, sp.csr_array]
PartWeights = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # starts, ends and weights [n] of the parts of one sample

# What the weights of an explanation mean. Weights of the first three kinds add up to the difference between the sample and
# an empty one.
ADDS_TO_MARGIN = "contribution of each part to the margin"
ADDS_TO_LOG_ODDS = "contribution of each part to the log-odds"
ADDS_TO_LOG_PROBABILITY = "contribution of each part to the log-probability"
LOSS_OF_LOG_ODDS = "drop of the log-odds when a part is removed"


class Model(Settings, ABC):
    """Base class of all methods. A subclass implements ``_fit``, ``_topk``, ``_state`` and ``_restore``; this class checks.

    Settings are declared in a settings class (``longtail.settings``) that the method inherits from, first:
    ``class Glas(GlasSettings, Model)``. Its constructor stores them, ``fit`` checks them. To explain predictions, methods
    that read feature vectors implement ``slopes``, methods that read texts implement ``_explain``.
    """

    input: ClassVar[Literal["features", "texts", "either", "anything"]] = "features"  # either: the settings say which
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # settings of the model and of its features, by preset name
    can_shard: ClassVar[bool] = False  # whether the training can be divided into shards, for a cluster
    trains_network: ClassVar[bool] = False  # whether the training is that of a network, which several processes can share
    packages: ClassVar[tuple[str, ...]] = ()  # optional packages that ``fit`` needs: keys of ``longtail.extras.EXTRAS``
    n_samples: int  # training samples, and names of labels if they are samples, too
    n_features: int  # columns of X; 0 if the method does not read feature vectors
    label_counts: Ints  # [n_labels] training samples per label, and its names if they are samples, too
    labels: Labels | None = None  # names, texts and parents of the labels; set before ``fit`` if they are known
    get_term: Callable[[int], str] | None = None  # the word or n-gram of a feature; set before ``fit`` if X comes from texts
    n_names: int = 0  # the last rows of X and Y that are names of labels, not samples; set before ``fit``
    cluster: Cluster | None = None  # what trains parts of the model; set before ``fit``. None: this process
    processes: Processes | None = None  # what trains a network; set before ``fit``. None: this process
    updated: str = ""  # what the last ``update`` has trained
    decisions: tuple[str, ...] = ()  # what the training data decided: a sentence for each setting that was None
    min_depth: ClassVar[int] = 1  # labels that a search finds, at least; SEARCH_DEPTH if their scores depend on the number

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        add_parameters(cls)

    @property
    def reads(self) -> str:
        """What ``fit`` and ``topk`` read: features, texts, or anything."""
        return self.input

    def can_read(self, *, texts: bool) -> bool:
        """Whether the fitted method reads texts, or else whether it reads feature vectors."""
        return self.reads == "anything" or texts == (self.reads == "texts")

    @property
    @abstractmethod
    def score_meaning(self) -> Literal["probability", "margin", "count"]:
        """What a score is."""

    @property
    def default_threshold(self) -> float:
        """The smallest score of a predicted label, unless another threshold was chosen on validation data."""
        return {"probability": 0.5, "margin": 0.0, "count": 1.0}[self.score_meaning]

    @property
    def weights_meaning(self) -> str:
        """What the weights of an explanation mean."""
        return ADDS_TO_MARGIN if self.score_meaning == "margin" else ADDS_TO_LOG_ODDS

    @property
    def label_tree(self) -> LabelTree | None:
        """The tree over the labels; None for methods without one."""
        return None

    @property
    def needs_valid(self) -> bool:
        """Whether ``fit`` cannot do without validation data."""
        return False

    @property
    def n_labels(self) -> int:
        """Number of labels, with or without training samples."""
        return len(self.label_counts)

    @cached_property
    def n_seen(self) -> int:
        """Number of labels with training samples. No other label is ever predicted."""
        return int(np.count_nonzero(self.label_counts))

    @abstractmethod
    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None: ...

    @abstractmethod
    def _topk(self, X: Any, k: int, allowed: Bools | None) -> TopK:
        """Find the k best labels, or the k best of the allowed ones: k of them, or more, which all have training samples."""

    @abstractmethod
    def _state(self) -> State: ...

    @abstractmethod
    def _restore(self, state: State) -> None: ...

    def fit(self, X: Input, Y: sp.csr_array, valid: Valid | None = None, *, progress: Progress = SILENT) -> Self:
        """Fit to samples X and their labels Y.

        :param X: Feature vectors or texts, whichever the method reads.
        :param Y: Indicator matrix [n_samples, n_labels].
        :param valid: Validation samples and their labels, for early stopping and for settings that are tuned.
        :param progress: Where progress is shown.
        """
        self.check()
        self.check_requirements()
        self.check_valid(valid)
        self.check_vocabulary(self.labels)
        X = self._check_input(X)
        Y, _ = check_rows(X, Y)
        if not Y.nnz:
            raise DataError("no sample has a label", hint="Check the labels of the training data")
        self.n_samples, self.n_features = count_samples(X), X.shape[1] if sp.issparse(X) else 0
        self.label_counts = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int32)
        vars(self).pop("n_seen", None)
        try:
            self._fit(X, Y, valid, progress)
            if valid is not None:
                self.tune(*valid)
        except BaseException:
            del self.label_counts  # a model that was fitted only in part counts as not fitted
            raise
        self._warn_of_collapse(X, Y)
        return self

    def update(
        self,
        X: Input,
        Y: sp.csr_array,
        *,
        known: sp.csr_array | None = None,
        old: Valid | None = None,
        progress: Progress = SILENT,
    ) -> Self:
        """Continue to learn from new samples. If it fails or is interrupted, the model stays as it was.

        :param X: New samples.
        :param Y: Indicator matrix of their labels [n_samples, n_labels]; new labels come after those of the model.
        :param known: Indicator matrix of the labels of which it is known whether a sample has them. A row without any: all
            are known. Labels that are not known are not changed by a sample. None: all labels of all samples are known.
        :param old: Samples that the model was fitted to before, with their labels, to be replayed.
        :param progress: Where progress is shown.
        """
        self._check_fitted()
        self.check_requirements()
        X, Y, known = self._check_new(X, Y, known)
        if old is not None:
            old = self._check_new(*old)[:2]
            if old[1].shape[1] > Y.shape[1]:
                raise DataError(
                    "the old samples have labels that are unknown here", hint="Number the labels in the same way"
                )
            old = old[0], widen(old[1], Y.shape[1])
        before = dict(vars(self))
        try:
            self.updated = self._update(X, Y, known, old, progress)
            self.label_counts = self.count_labels(Y)
            self.n_samples += count_samples(X)
            vars(self).pop("n_seen", None)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    def _update(self, X: Any, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress) -> str:
        """Continue to learn, and return what was trained. Attributes are replaced, never changed in place."""
        hint = "Train it again on all samples; the page on updating lists the methods that can be updated"
        raise LongtailError(f"{find_method_name(type(self))} cannot be updated", hint=hint)

    def count_labels(self, Y: sp.csr_array) -> Ints:
        """[n_labels] Samples of each label so far and in Y, which may have further labels."""
        counts = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int32)
        counts[: self.n_labels] += self.label_counts
        return counts

    def _check_new(self, X: Any, Y: Any, known: Any = None) -> tuple[Any, sp.csr_array, sp.csr_array | None]:
        """Check samples of an update, and widen their labels to those of the model."""
        X = self._check_samples(X)
        return X, *check_new_labels(X, Y, known, self.n_labels)

    @property
    def quick_settings(self) -> dict[str, Any] | None:
        """Settings of a quick version for trials on held-out training data; None: the method is too slow for trials."""
        return None

    @property
    def tries_features(self) -> bool:
        """Whether a trial with quick versions of the method chooses settings of the features that are None."""
        return self.quick_settings is not None

    def fit_quick(self, X: Input, Y: sp.csr_array, *, cluster: Cluster | None = None, **settings: Any) -> Any:
        """Fit a quick copy with some settings changed, to compare settings in a trial. It has the method ``topk``.

        :param cluster: What trains parts of it. None: this process, as trials are small.
        """
        copy = type(self)(**{**self.get_params(), **(self.quick_settings or {}), **settings})
        copy.labels, copy.cluster = self.labels, cluster
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            return copy.fit(X, Y)

    def tune(self, X: Input, Y: sp.csr_array) -> None:
        """Choose settings on validation data, at the end of ``fit``. By default there are none to choose."""

    def predict_held_out(self, X: Input, Y: sp.csr_array, k: int) -> HeldOut | None:
        """Predict training samples with a model that was not fitted on them, to calibrate the scores; None: there are none.

        By default, these are the samples that the method has held out for early stopping. Others override this.

        :param X: The samples that ``fit`` got, without validation data.
        :param Y: Their labels.
        :param k: Number of labels.
        """
        params = self.get_params()
        rows = draw_holdout(Y, params.get("holdout", 0.0), params.get("seed", 0), n_names=self.n_names)
        if not len(rows):
            return None
        fitted = self.label_counts - np.bincount(Y[rows].indices, minlength=self.n_labels)
        source = f"{len(rows):,} training samples that were held out for early stopping"
        allowed = None
        if self.n_names:
            fitted_rows = np.setdiff1d(np.arange(Y.shape[0]), rows)
            allowed = np.isin(np.arange(self.n_labels), find_sampled_labels(Y[fitted_rows], self.n_names))
        return HeldOut(self.topk(take_held_out(X, rows), k, allowed=allowed), Y[rows], fitted, source)

    def topk(self, X: Input, k: int = 5, *, allowed: Bools | None = None) -> TopK:
        """Return the k best labels of each sample; fewer if fewer labels have training samples.

        :param X: Feature vectors or texts, whichever the method reads.
        :param k: Number of labels.
        :param allowed: Which labels may be predicted [n_labels]; None: all. The result is the k best of them, not those of
            the k best labels that are allowed: the search considers no other label.
        """
        self._check_fitted()
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise SettingError(f"k is {k!r}", hint="It must be a positive integer")
        n_allowed, allowed = check_allowed(allowed, self.label_counts, self.n_seen)
        best = self._topk(self._check_samples(X), min(max(int(k), self.min_depth), n_allowed), allowed)
        if not (np.isfinite(best.scores) | (best.ids == NO_LABEL)).all():
            hint = "The weights of the model, or values of the samples, are too large or no numbers. Train the model again"
            raise LongtailError(f"{type(self).__name__} gives a label a score that is not finite", hint=hint)
        return best if best.k <= k else TopK(best.ids[:, :k], best.scores[:, :k])

    def predict_sets(self, X: Input, threshold: float | None = None, *, allowed: Bools | None = None) -> sp.csr_array:
        """Return an indicator matrix of all labels whose score reaches the threshold (None: ``default_threshold``)."""
        limit = self.default_threshold if threshold is None else threshold
        best = find_above(lambda k: self.topk(X, k, allowed=allowed), limit, self.n_labels)
        return make_indicator(best, self.n_labels)

    def explain(self, sample: Input, label: int) -> PartWeights:
        """Return the parts of one sample that are evidence for a label (positive weights) or against it (negative).

        :param sample: One text, or a matrix of one row.
        :param label: The id of the label.
        :returns: Starts, ends and weights. Parts of a text are the characters [start, end), and may overlap; the start of
            a part of a feature vector is the number of the feature. ``weights_meaning`` says what the weights are.
        """
        self._check_fitted()
        if not 0 <= label < self.n_labels or not self.label_counts[label]:
            found = f"label {label} has no training samples in this {type(self).__name__}"
            raise SettingError(found, hint="It is never predicted, so there is nothing to explain")
        X = self._check_samples([sample] if isinstance(sample, str) else sample)
        if count_samples(X) != 1:
            raise DataError(f"{count_samples(X)} samples were passed", hint="Explain one sample at a time")
        return self._explain(X[0] if isinstance(sample, str) else X, int(label))

    def _explain(self, sample: Any, label: int) -> PartWeights:
        return sample.indices, sample.indices + 1, sample.data * self.slopes(sample, label)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Return, for methods that read feature vectors, the contribution per unit of each feature of one sample [nnz]."""
        raise NotImplementedError

    def novelty(self, X: Input) -> Floats:
        """Return how unlike the training data each sample is [n], for methods with an autoencoder."""
        hint = "Set code=128, or choose a method that trains an autoencoder"
        raise SettingError(f"{type(self).__name__} has no autoencoder that could measure novelty", hint=hint)

    def state(self) -> State:
        """Return everything that was fitted, as plain arrays."""
        self._check_fitted()
        sizes = np.array([self.n_samples, self.n_features], np.int64)
        return {"label_counts": self.label_counts, "sizes": sizes, **self._state()}

    def restore(self, state: State) -> Self:
        """Restore what ``state`` returned."""
        Settings.check(self)  # only limits: which settings have an effect together depends on the version of longtail
        self.label_counts = check_array(state, "label_counts", "i4", (None,), minimum=0)
        if not self.label_counts.any():
            raise refuse(state, "label_counts", "has no label with samples", "At least one must have samples")
        self.n_samples = check_count(state, "sizes", 1, MAX_COUNT)
        self.n_features = check_count(state, "sizes", int(self.reads == "features"), MAX_INT32, at=1)
        vars(self).pop("n_seen", None)
        self._restore(state)
        return self

    def check_seen(self, state: State) -> Ints:
        """Return the saved array ``seen``, which must be the ids of the labels that have training samples."""
        seen = check_array(state, "seen", "i4", (self.n_seen,))
        if not np.array_equal(seen, np.flatnonzero(self.label_counts)):
            raise refuse(state, "seen", "does not agree with label_counts", "It must be the labels that have samples")
        return seen

    @classmethod
    def upgrade(cls, about: dict[str, Any], state: dict[str, State]) -> tuple[dict[str, Any], dict[str, State]]:
        """Convert what a bundle of an earlier format has stored about a pipeline, if the method has changed since."""
        return about, state

    def configure(self, **machine: Any) -> None:
        """Change settings of the machine (threads, device) if the method has them. A fitted model stays fitted."""
        self.set_params(**{name: value for name, value in machine.items() if name in self.param_names()})
        Settings.check(self)  # only limits, as in ``restore``

    @classmethod
    def preset(cls, name: str) -> dict[str, Any]:
        """Return the settings of a preset."""
        if name not in cls.presets:
            raise SettingError(f'{cls.__name__} has no preset "{name}"', hint=suggest(name, cls.presets))
        return dict(cls.presets[name])

    def check_requirements(self) -> None:
        """Raise an error if a package or pretrained weights that ``fit`` needs are not installed. Imports nothing."""
        require(f"Training {find_method_name(type(self))}", *self.packages)

    def check_vocabulary(self, labels: Labels | None) -> None:
        """Raise an error if ``fit`` needs something about the labels that is not known, such as their parents."""

    def check_valid(self, valid: object) -> None:
        """Raise an error if validation data is needed and there is none, or if a setting has no effect without it."""
        if valid is None and self.needs_valid:
            hint = "Pass some to fit with valid=, or to `longtail train` with --valid; or change the settings"
            raise SettingError(f"these settings of {type(self).__name__} need validation data", hint=hint)
        if isinstance(self, TrainingSettings):
            self.check_held_out(valid)

    def _warn_of_collapse(self, X: Any, Y: sp.csr_array) -> None:
        """Warn if almost all samples get the same first label although most do not have it."""
        rows = choose_samples(Y)
        if self.reads == "anything" or not len(rows):
            return
        found = describe_collapse(self._topk(take_samples(X, rows), 1, None).ids[:, 0], Y[rows], self.labels)
        if found is not None:
            warnings.warn(f"{type(self).__name__} has collapsed: {found}", CollapseWarning, stacklevel=3)

    def _check_fitted(self) -> None:
        if not hasattr(self, "label_counts"):
            raise LongtailError(f"this {type(self).__name__} is not fitted yet", hint="Call fit() first")

    def _check_samples(self, X: Any) -> Any:
        """Check samples to predict: like those of ``fit``, and with the same number of features."""
        X = self._check_input(X)
        if sp.issparse(X) and self.n_features and X.shape[1] != self.n_features:
            found = f"the samples have {X.shape[1]:,} features, the model was trained on {self.n_features:,}"
            raise DataError(found, hint="Compute the features in the same way as for the training data")
        return X

    def _check_input(self, X: Any) -> Any:
        return check_input(X, self.reads, type(self).__name__)
