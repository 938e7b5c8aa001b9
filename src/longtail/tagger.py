"""The tagger: features + model + label names. The one object that is trained, measured, saved, loaded and served."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from longtail.bundle import Bundle, load_bundle, save_bundle
from longtail.data.dataset import Dataset, Labels
from longtail.errors import BundleError, DataError, LongtailError, SettingError, suggest
from longtail.features.rows import UnitRows
from longtail.features.tfidf import Tfidf
from longtail.labelspace.propensity import DEFAULT
from longtail.metrics.evaluate import Evaluation, evaluate
from longtail.metrics.ranking import KS
from longtail.metrics.sets import best_threshold
from longtail.models.base import count
from longtail.progress import SILENT, Progress
from longtail.registry import model_class
from longtail.topk import NO_LABEL, TopK

BATCH = 8192  # samples whose features are held at a time while predicting
RUNTIME = ("threads",)  # settings of the machine, not of the model: not saved


class Tag(NamedTuple):
    """A label with its score."""

    label: str
    score: float


class Tagger:
    """Text (or a feature vector) in, label names out.

    >>> from longtail import Dataset
    >>> data = Dataset.from_texts(["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]])
    >>> tagger = Tagger("ovr", min_df=1).fit(data)
    >>> tagger.predict(["a green apple"], k=1)[0][0].label
    'fruit'
    """

    def __init__(self, method: str = "ovr", *, preset: str | None = None, **settings: Any) -> None:
        """Choose a method, a preset of it, and any settings of the method or of its text features by name."""
        cls = model_class(method)
        given = {**(cls.preset(preset) if preset else {}), **settings}
        text_names = list(inspect.signature(Tfidf).parameters)
        for name in given:
            if name not in (*cls.param_names(), *text_names, "seed"):
                mend = suggest(name, {*cls.param_names(), *text_names})
                raise SettingError(f'{method} has no setting "{name}"', mend=mend)
        self.method = method
        self.model = cls(**{name: value for name, value in given.items() if name in cls.param_names()})
        self._text_settings = {name: value for name, value in given.items() if name in text_names}
        self._asked_of_texts = [name for name in settings if name in text_names and name not in cls.param_names()]
        self.threshold = self.model.natural_threshold
        self.features: Tfidf | UnitRows | None = None
        self.labels: Labels | None = None

    def fit(self, data: Dataset, valid: Dataset | None = None, *, progress: Progress = SILENT) -> Self:
        """Learn. With ``valid``, the threshold from which labels are on is the one with the best micro-F1 there."""
        self.features = self._make_features(data)
        inputs = self.features.fit_transform(data.inputs, progress) if self.features else data.inputs
        held_out = None
        if valid is not None:
            aligned = valid.aligned(data.labels)
            held_out = (self._features_of(valid.inputs), aligned.Y[:, : data.n_labels])
        self.model.fit(inputs, data.Y, held_out, progress=progress)
        self.labels = data.labels
        self.threshold = self.model.natural_threshold
        if held_out is not None:
            self.threshold = best_threshold(self.model.topk(held_out[0], 100), held_out[1])
        return self

    def topk(self, inputs: Sequence[str] | sp.csr_array, k: int = 5) -> TopK:
        """The k best label ids of each text or feature vector."""
        self._must_be_fitted()
        starts = batch_starts(inputs)
        parts = [self.model.topk(self._features_of(inputs[start : start + BATCH]), k) for start in starts]
        return TopK(np.concatenate([p.ids for p in parts]), np.concatenate([p.scores for p in parts]))

    def predict(self, inputs: Iterable[str] | sp.csr_array, k: int = 5) -> list[list[Tag]]:
        """The k best labels of each text or feature vector, by name."""
        if isinstance(inputs, str):
            raise DataError("a single text was given", mend="Give a list of texts: predict([text])")
        best = self.topk(inputs if sp.issparse(inputs) else list(inputs), k)
        names = self.known_labels.names
        return [
            [Tag(names[i], score) for i, score in zip(ids, scores, strict=True) if i != NO_LABEL]
            for ids, scores in zip(best.ids.tolist(), best.scores.tolist(), strict=True)
        ]

    def predict_sets(self, inputs: Sequence[str] | sp.csr_array) -> sp.csr_array:
        """The labels that are on: an indicator matrix of all whose score reaches the threshold."""
        self._must_be_fitted()
        starts = batch_starts(inputs)
        parts = [self.model.predict(self._features_of(inputs[start : start + BATCH]), self.threshold) for start in starts]
        return sp.vstack(parts, format="csr")

    def evaluate(self, data: Dataset, ks: Sequence[int] = KS, *, propensity: tuple[float, float] = DEFAULT) -> Evaluation:
        """Measure on data that was not learned from; labels that training did not know count as missed."""
        best = self.topk(data.inputs, max(ks))
        data = data.aligned(self.known_labels)
        if data.Y.nnz and data.Y.indices.min() >= len(self.known_labels):
            theirs, ours = data.labels.names[data.Y.indices[0]], self.known_labels.names[0]
            found = f'not one label of the data is known to the tagger (the data say "{theirs}", the tagger "{ours}")'
            raise DataError(found, where=data.source, mend="Give both the same label names, for example one label file")
        return evaluate(
            best,
            data.Y,
            label_counts=self.model.label_counts,
            n_train=self.model.n_samples,
            ks=ks,
            propensity=propensity,
            predicted=self.predict_sets(data.inputs),
        )

    def save(self, folder: str | Path) -> None:
        """Write to a folder, replacing the bundle that may be there."""
        from longtail import __version__

        labels = self.known_labels
        settings = {name: value for name, value in self.model.get_params().items() if name not in RUNTIME}
        features = {"kind": type(self.features).__name__, "settings": self.features.settings()} if self.features else None
        about = {
            "longtail": __version__,
            "method": self.method,
            "settings": settings,
            "features": features,
            "threshold": self.threshold,
            "has_label_texts": labels.texts is not None,
            "has_label_parents": labels.parents is not None,
        }
        arrays = {"model": self.model.state(), "features": self.features.state() if self.features else {}}
        save_bundle(Bundle(about, arrays, label_rows(labels)), folder)

    @property
    def known_labels(self) -> Labels:
        """The labels learned; an error before ``fit``."""
        if self.labels is None:
            raise LongtailError("this tagger has learned nothing yet", mend="Call fit first")
        return self.labels

    def _must_be_fitted(self) -> None:
        _ = self.known_labels

    def _make_features(self, data: Dataset) -> Tfidf | UnitRows | None:
        if self.model.input == "anything" or (self.model.input == "texts" and data.texts is not None):
            return None
        if self.model.input == "texts":
            found = f"{self.method} reads texts, the data are feature vectors"
            raise DataError(found, where=data.source, mend="Choose another method, or give the texts")
        if data.texts is not None:
            return Tfidf(**self._text_settings)
        if self._asked_of_texts:
            mend = "Leave it out: the data are feature vectors"
            raise SettingError(f'the setting "{self._asked_of_texts[0]}" is for texts', mend=mend)
        return UnitRows()

    def _features_of(self, inputs: Any) -> Any:
        is_text = not sp.issparse(inputs) and not isinstance(inputs, np.ndarray)
        if isinstance(self.features, Tfidf):
            if not is_text or not all(isinstance(text, str) for text in inputs):
                raise DataError("this tagger reads texts", mend="Give a list of strings, not feature vectors")
            return self.features.transform(inputs)
        if isinstance(self.features, UnitRows):
            if is_text:
                mend = "Give them in the form it was trained on, for example an XC file"
                raise DataError("this tagger reads feature vectors, not texts", mend=mend)
            return self.features.transform(inputs)
        return inputs


def batch_starts(inputs: Any) -> range:
    """Where batches start; an empty input is one empty batch, so that the model can complain about it."""
    return range(0, max(count(inputs), 1), BATCH)


def label_rows(labels: Labels) -> list[Any]:
    """One JSON value per label: its name, text and parents."""
    texts = labels.texts or ("",) * len(labels)
    parents = labels.parents or ((),) * len(labels)
    return [list(row) for row in zip(labels.names, texts, parents, strict=True)]


def load(folder: str | Path) -> Tagger:
    """Read a tagger that ``save`` wrote; it predicts exactly as it did before."""
    bundle = load_bundle(folder)
    about = bundle.about
    try:
        tagger = Tagger(about["method"], **about["settings"])
        if about["features"] is None:
            tagger.features = None
        else:
            kinds: dict[str, type[Tfidf | UnitRows]] = {"Tfidf": Tfidf, "UnitRows": UnitRows}
            tagger.features = kinds[about["features"]["kind"]](**about["features"]["settings"])
            tagger.features.restore(bundle.arrays.get("features", {}))
        tagger.model.restore(bundle.arrays["model"])
        tagger.threshold = float(about["threshold"])
        names, texts, parents = zip(*bundle.labels, strict=True)
        tagger.labels = Labels(
            tuple(names),
            tuple(texts) if about["has_label_texts"] else None,
            tuple(map(tuple, parents)) if about["has_label_parents"] else None,
        )
    except (KeyError, TypeError, ValueError, SettingError) as error:
        found = f"the bundle does not describe a tagger this longtail knows ({error})"
        raise BundleError(found, where=str(folder), mend="Use the longtail version that wrote it") from error
    return tagger
