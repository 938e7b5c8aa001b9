"""A model with its features: from texts or feature vectors to label ids."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from longtail.data.labels import Labels
from longtail.errors import BundleError, DataError, SettingError
from longtail.extractor import (
    MACHINE_SETTINGS,
    TEXT_SETTINGS,
    VECTOR_SETTINGS,
    Encoded,
    FeatureExtractor,
    FeatureSettings,
    saved_settings,
)
from longtail.features.normaliser import Normaliser
from longtail.kernels import Bools, Floats, Ints
from longtail.labelspace.names import NAMES, append_labels, collect_names
from longtail.model import PartWeights, Valid
from longtail.named_texts import NamedTexts, get_sentences
from longtail.progress import SILENT, Progress
from longtail.registry import model_class
from longtail.samples import count_samples
from longtail.spec import SHARED_SETTINGS, MethodSpec
from longtail.state import State, get_entry
from longtail.topk import NO_LABEL, TopK

SAMPLES_PER_BATCH = 8192  # samples whose features are in memory at a time while predicting
_FIRST_K = 64  # labels among which the score of a given one is looked up first


class Pipeline:
    """A method and its features. Inputs are lists of texts or sparse feature vectors; the caller has checked them.

    >>> pipeline = Pipeline(MethodSpec.parse("ovr+min_df=1")).fit(["red apple", "red rose"], sp.csr_array(np.eye(2)))
    >>> pipeline.topk(["a rose"], k=1).ids.tolist()
    [[1]]
    """

    def __init__(self, spec: MethodSpec, *, seed: int = 0, threads: int | None = None, check: bool = True) -> None:
        """Build and check the model and the features; nothing is fitted.

        :param check: False for a spec from a bundle: with other defaults than today's, its settings may have had an effect.
        """
        cls, values = model_class(spec.method), {**spec.resolve(), "seed": seed, "threads": threads}
        own = set(cls.param_names())
        self.spec = spec
        self.model = cls(**{name: value for name, value in values.items() if name in own})
        self.extractor: FeatureExtractor | None = None
        self.named_texts = NamedTexts()  # of methods that read texts
        of_features = [name for name in FeatureSettings.param_names() if name not in own]
        if self.model.reads == "features":
            names = (*of_features, *SHARED_SETTINGS, NAMES)
            self.extractor = FeatureExtractor(**{name: value for name, value in values.items() if name in names})
        elif check and (unused := next((name for name in of_features if name in spec.settings), None)):
            hint = "Leave it out, or choose settings with which the method reads features"
            raise SettingError(f'"{unused}" is a setting of features, but {spec} reads texts', hint=hint)
        if check:
            self.model.check()
            if self.extractor is not None:
                self.extractor.check()

    def unfitted(self) -> Pipeline:
        """Return a pipeline with the same settings that is not fitted."""
        out = copy(self)
        out.model = type(self.model)(**self.model.get_params())
        out.extractor = FeatureExtractor(**self.extractor.get_params()) if self.extractor else None
        out.named_texts = NamedTexts()
        return out

    def fit(
        self,
        inputs: Any,
        Y: sp.csr_array,
        valid: Valid | None = None,
        *,
        labels: Labels | None = None,
        source: str = "",
        progress: Progress = SILENT,
    ) -> Self:
        """Fit the features, then the model.

        :param inputs: Texts or feature vectors.
        :param Y: Indicator matrix of their labels.
        :param valid: Validation inputs and their labels.
        :param labels: Names, texts and parents of the labels, for methods that use them.
        :param source: Where the inputs come from, for error messages.
        :param progress: Where progress is shown.
        """
        self.check_requirements()
        self.model.check_valid(valid)
        self.model.check_vocabulary(labels)
        X = self.fit_features(inputs, Y, labels=labels, source=source, progress=progress)
        encoded = None if valid is None else (self.encode(valid[0]).X, valid[1])
        return self.fit_model(X, Y, encoded, labels=labels, progress=progress)

    def check_requirements(self) -> None:
        """Raise an error if a package or pretrained weights that ``fit`` needs are not installed. Imports nothing."""
        self.model.check_requirements()
        if self.extractor is not None:
            self.extractor.check_requirements()

    def fit_features(
        self,
        inputs: Any,
        Y: sp.csr_array,
        *,
        labels: Labels | None = None,
        source: str = "",
        progress: Progress = SILENT,
    ) -> Any:
        """Fit the features and return what the model reads. The labels serve choices that the training data decides.

        If names of labels are training texts, too, their rows come after those of the inputs.
        """
        self.model.check()  # before minutes of computation
        self._check_kind(inputs, source)
        reads_names = self.extractor is not None or NAMES in self.model.param_names()
        names = None
        if reads_names and labels is not None and not sp.issparse(inputs):
            names = collect_names(labels).select(np.bincount(Y.indices, minlength=len(labels)) > 0)
            names = names if names.texts else None
        X = inputs
        if self.extractor is not None:
            X = self.extractor.fit_transform(inputs, Y, self.model, names, progress)
        elif names is not None:
            X = self.named_texts.append_names(inputs, Y, self.model, names)
        for decision in self._source.decisions:
            progress.say(decision)
        return X

    def fit_model(
        self, X: Any, Y: sp.csr_array, valid: Valid | None, *, labels: Labels | None = None, progress: Progress = SILENT
    ) -> Self:
        """Fit the model to what ``fit_features`` returned; validation inputs are encoded, too."""
        self.model.labels = labels
        self.model.get_term = self.extractor.get_term if self.extractor else None
        self.model.n_names = len(self.named)
        self.model.fit(X, append_labels(Y, self.named), valid, progress=progress)
        for decision in self.model.decisions:
            progress.say(decision)
        return self

    @property
    def _source(self) -> FeatureExtractor | NamedTexts:
        """Where the training samples of the model come from."""
        return self.extractor or self.named_texts

    @property
    def named(self) -> Ints:
        """The label of each name that is a training text."""
        return self._source.named

    @property
    def n_samples(self) -> int:
        """Number of training samples."""
        return self.model.n_samples - len(self.named)

    @property
    def label_counts(self) -> Ints:
        """Number of training samples of each label [n_labels]."""
        return self.model.label_counts - np.bincount(self.named, minlength=self.model.n_labels).astype(np.int32)

    @property
    def decisions(self) -> tuple[str, ...]:
        """What the training data decided: a sentence for each setting that was None and needed a trial or a rule."""
        return (*self._source.decisions, *self.model.decisions)

    def encode(self, inputs: Any) -> Encoded:
        """Compute the features of inputs."""
        return Encoded(inputs, None, inputs) if self.extractor is None else self.extractor.transform(inputs)

    def encode_batches(self, inputs: Any) -> Iterator[Encoded]:
        """Compute the features of inputs, one batch at a time. No inputs are one empty batch, which the model refuses."""
        for start in range(0, max(count_samples(inputs), 1), SAMPLES_PER_BATCH):
            yield self.encode(inputs[start : start + SAMPLES_PER_BATCH])

    def topk(self, inputs: Any, k: int, *, allowed: Bools | None = None) -> TopK:
        """Return the ids of the k best labels of each text or feature vector, or of the k best of the allowed labels."""
        return join_topk([self.model.topk(batch.X, k, allowed=allowed) for batch in self.encode_batches(inputs)])

    def score(self, sample: Encoded, label: int) -> float:
        """Return the model's score of a label for one encoded sample; 0 if no search finds the label."""
        k = _FIRST_K
        while True:
            best = self.model.topk(sample.X, k)
            if label in best.ids[0] or k >= self.model.n_labels:
                return float(best.scores[0, best.ids[0] == label].sum())
            k *= 8

    def explain(self, sample: Encoded, label: int) -> PartWeights:
        """Return the parts of one encoded sample with their contributions to a label: see ``Model.explain``."""
        if self.extractor is not None:
            return self.extractor.explain(sample, self.model, label)
        return self.model.explain(sample.inputs if sp.issparse(sample.inputs) else sample.inputs[0], label)

    def novelty(self, sample: Encoded) -> Floats:
        """Return how unlike the training data each sample is [n]."""
        return self.extractor.novelty(sample, self.model) if self.extractor else self.model.novelty(sample.X)

    def count_unknown_words(self, inputs: Any) -> tuple[Ints, Ints] | None:
        """Return how many words each text has and how many the features do not know; None if features are not words."""
        return None if self.extractor is None or sp.issparse(inputs) else self.extractor.count_unknown_words(inputs)

    def configure(self, **machine: Any) -> None:
        """Change settings of the machine (threads, device) of the model and of the features."""
        self.model.configure(**machine)
        if self.extractor is not None:
            self.extractor.configure(**machine)

    def about(self) -> dict[str, Any]:
        """Describe the method and its settings in plain types, for a bundle. Settings of the machine are left out."""
        settings = {name: value for name, value in self.spec.settings.items() if name not in MACHINE_SETTINGS}
        spec = MethodSpec(self.spec.method, self.spec.preset, settings)
        model = {"settings": saved_settings(self.model), "decisions": self.model.decisions}
        return {"spec": str(spec), **model, "features": self._source.about()}

    def state(self) -> dict[str, State]:
        """Return everything that was fitted, as plain arrays by part."""
        return {"model": self.model.state(), **(self.extractor.state() if self.extractor else self.named_texts.state())}

    def restore(self, about: dict[str, Any], state: dict[str, State]) -> Self:
        """Restore what ``about`` and ``state`` returned."""
        get_entry(about, "settings", dict)
        about, state = self.model.upgrade(about, state)
        self.model.set_params(**about["settings"])
        if self.model.reads == "texts":  # a setting may have had another default when the model was saved
            self.extractor = None
        self.model.restore(state.get("model", {}))
        self.model.decisions = get_sentences(about)
        if (self.extractor is not None) != (self.model.reads == "features"):
            raise BundleError(f"{self.spec} reads something else with the saved settings", hint="Train the model again")
        if self.extractor is not None:
            self.extractor.restore(get_entry(about, "features", dict), state, self.model)
        elif about.get("features") is not None:  # up to format 4, methods that read texts have none
            self.named_texts.restore(get_entry(about, "features", dict), state, self.model.n_labels)
        return self

    def can_read(self, *, texts: bool) -> bool:
        """Whether what is fitted reads texts, or else whether it reads feature vectors."""
        if self.extractor is not None:
            return isinstance(self.extractor.features, Normaliser) != texts
        return self.model.can_read(texts=texts)

    def _check_kind(self, inputs: Any, source: str) -> None:
        """Check that the method, and the settings that were asked for, fit the kind of inputs."""
        kind, other, unused = "feature vectors", "texts", TEXT_SETTINGS
        if not sp.issparse(inputs):
            kind, other, unused = other, kind, VECTOR_SETTINGS
        elif self.model.reads == "texts":
            found = f"{self.spec} reads texts, the data are feature vectors"
            raise DataError(found, where=source, hint="Choose another method, or pass the texts")
        for name in self.spec.settings:
            if self.extractor is not None and name in unused and name not in self.model.param_names():
                raise SettingError(
                    f'the setting "{name}" is for {other}', hint=f"Leave it out: the data are {kind}", where=source
                )


def join_topk(parts: list[TopK]) -> TopK:
    """Join the predictions of consecutive batches, which may have different numbers of labels.

    >>> join_topk([TopK(np.array([[3, 1]]), np.array([[0.9, 0.5]])), TopK(np.array([[2]]), np.array([[0.8]]))]).ids.tolist()
    [[3, 1], [2, -1]]
    """
    widths = [((0, 0), (0, max(part.k for part in parts) - part.k)) for part in parts]
    ids = [np.pad(part.ids, width, constant_values=NO_LABEL) for part, width in zip(parts, widths, strict=True)]
    scores = [np.pad(part.scores, width, constant_values=-np.inf) for part, width in zip(parts, widths, strict=True)]
    return TopK(np.concatenate(ids), np.concatenate(scores))
