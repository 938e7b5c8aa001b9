"""The tagger: features + model + label names. The one object that is trained, measured, saved, loaded and served."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from longtail.csr import check_features
from longtail.data.dataset import Dataset, Labels, checked_text
from longtail.errors import BundleError, DataError, LongtailError, SettingError, suggest
from longtail.features.normaliser import Normaliser
from longtail.features.tfidf import Tfidf
from longtail.kernels import Floats
from longtail.labelspace.propensity import DEFAULT, inverse_propensity
from longtail.metrics.evaluate import Evaluation, evaluate
from longtail.metrics.ranking import KS, per_sample
from longtail.metrics.sets import best_threshold
from longtail.model import Model, count
from longtail.nn.hybrid import Hybrid
from longtail.pipeline import Pipeline
from longtail.progress import SILENT, Progress
from longtail.tagger.bundle import Bundle, load_bundle, save_bundle
from longtail.tagger.explanation import Explanation, parts
from longtail.topk import NO_LABEL, TopK

TAILS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)  # lifts of rare labels that are tried


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
        """Choose a method, a preset of it (``best`` if none is named), and settings of it or of its text features.

        For methods that take feature vectors, ``dense`` names a pretrained encoder whose vectors stand beside those of
        TF-IDF (``models.hybrid``), and ``code`` writes the features as so many numbers first, by a linear autoencoder.
        """
        self.pipeline = Pipeline(method, preset=preset, **settings)
        self.threshold = self.model.natural_threshold
        self.reads_texts = True
        self.labels: Labels | None = None

    @property
    def method(self) -> str:
        """Its name."""
        return self.pipeline.method

    @property
    def model(self) -> Model:
        """The model, which reads features."""
        return self.pipeline.model

    @property
    def features(self) -> Tfidf | Hybrid | Normaliser | None:
        """What makes feature vectors of the inputs."""
        return self.pipeline.features

    def fit(self, data: Dataset, valid: Dataset | None = None, *, progress: Progress = SILENT) -> Self:
        """Learn. With ``valid``, the threshold from which labels are on is the one with the best micro-F1 there."""
        # Everything is learned aside and taken over at the end, so that a failed fit leaves the tagger as it was.
        pipeline, held_out = self.pipeline.unfitted(), None
        if valid is not None:
            known = comparable(valid, data.labels).Y[:, : data.n_labels]
            held_out = (checked_inputs(valid.inputs, data.texts is not None), known)
        wants_tail = getattr(pipeline.model, "wants_tail", False)
        if wants_tail and held_out is None:
            raise SettingError("tail=auto needs validation data", hint="Give some with --valid, or a number for tail")
        pipeline.fit(data.inputs, data.Y, held_out, labels=data.labels, source=data.source, progress=progress)
        threshold = pipeline.model.natural_threshold
        if held_out is not None:
            X = pipeline.read(held_out[0])
            if wants_tail:
                choose_tail(pipeline.model, X, held_out[1])
            threshold = best_threshold(pipeline.model.topk(X, 100), held_out[1])
        self.pipeline, self.labels, self.threshold = pipeline, data.labels, threshold
        self.reads_texts = data.texts is not None
        return self

    def topk(self, inputs: Sequence[str] | sp.csr_array, k: int = 5) -> TopK:
        """The k best label ids of each text or feature vector."""
        return self.pipeline.topk(self._checked(inputs), k)

    def predict(self, inputs: Iterable[str] | sp.csr_array, k: int = 5) -> list[list[Tag]]:
        """The k best labels of each text or feature vector, by name."""
        best = self.topk(inputs, k)
        names = self.known_labels.names
        return [
            [Tag(names[i], score) for i, score in zip(ids, scores, strict=True) if i != NO_LABEL]
            for ids, scores in zip(best.ids.tolist(), best.scores.tolist(), strict=True)
        ]

    def explain(self, one: str | sp.csr_array, label: str | None = None) -> Explanation:
        """Why a text, or a row of features, gets a label: by default its best one.

        >>> from longtail import Dataset
        >>> data = Dataset.from_texts(["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]])
        >>> tagger = Tagger("ovr", min_df=1, ngrams=1).fit(data)
        >>> [word for word, weight in tagger.explain("An apple, red", "fruit").words]
        ['apple', 'red']
        """
        if label is None:
            return self.explanations(one, 1)[0]
        labels, sample = self.known_labels, self._one(one)
        if label not in labels.ids:
            raise SettingError(f'there is no label "{label}"', hint=suggest(label, labels.names))
        number = labels.ids[label]
        if not self.model.label_counts[number]:
            found = f'no sample that the tagger has learned from has the label "{label}"'
            raise SettingError(found, hint="It is never predicted, so there is nothing to explain")
        return self._explanation(sample, number, self.pipeline.score(sample, number))

    def explanations(self, one: str | sp.csr_array, k: int = 5) -> list[Explanation]:
        """The k best labels of a text, or of a row of features, each with what speaks for it."""
        sample = self._one(one)
        best = self.pipeline.topk([sample] if isinstance(sample, str) else sample, k)
        pairs = zip(best.ids[0].tolist(), best.scores[0].tolist(), strict=True)
        return [self._explanation(sample, label, score) for label, score in pairs if label != NO_LABEL]

    def _one(self, one: Any) -> Any:
        """One sample, checked."""
        given = [one] if isinstance(one, str) else np.atleast_2d(one) if isinstance(one, np.ndarray) else one
        checked = self._checked(given)
        if count(checked) != 1:
            raise DataError(f"{count(checked)} samples were given", hint="Explain one at a time")
        return checked[0] if self.reads_texts else checked

    def _explanation(self, one: Any, label: int, score: float) -> Explanation:
        found = parts(one, self.pipeline.explain(one, label))
        return Explanation(self.known_labels.names[label], score, self.model.weights_meaning, found)

    def n_unknown(self, inputs: Sequence[str] | sp.csr_array) -> int:
        """How many of the inputs have no known word or feature: all such get the same labels."""
        if self.features is None:
            return 0
        return sum(int((np.diff(batch.indptr) == 0).sum()) for batch in self.pipeline.vectors(self._checked(inputs)))

    def novelty(self, inputs: Sequence[str] | sp.csr_array) -> Floats:
        """How little each text or vector is like the training data [n]: the share of it that an autoencoder cannot tell."""
        of: Any = self.pipeline.coder or self.model
        if not hasattr(of, "novelty"):
            hint = "Train with code=128 or so, or the method neuralxc"
            raise SettingError(f"this {self.method} has no autoencoder to tell what is novel", hint=hint)
        return np.concatenate([of.novelty(batch) for batch in self.pipeline.vectors(self._checked(inputs))])

    def predict_sets(self, inputs: Sequence[str] | sp.csr_array) -> sp.csr_array:
        """The labels that are on: an indicator matrix of all whose score reaches the threshold."""
        batches = self.pipeline.batches(self._checked(inputs))
        return sp.vstack([self.model.predict(batch, self.threshold) for batch in batches], format="csr")

    def evaluate(self, data: Dataset, ks: Sequence[int] = KS, *, propensity: tuple[float, float] = DEFAULT) -> Evaluation:
        """Measure on data that was not learned from; labels that training did not know count as missed."""
        best = self.topk(data.inputs, max(ks))
        data = comparable(data, self.known_labels)
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
        about = {
            "longtail": __version__,
            **self.pipeline.about(),
            "reads_texts": self.reads_texts,
            "threshold": self.threshold,
            "has_label_texts": labels.texts is not None,
            "has_label_parents": labels.parents is not None,
        }
        save_bundle(Bundle(about, self.pipeline.state(), label_rows(labels)), folder)

    @property
    def known_labels(self) -> Labels:
        """The labels learned; an error before ``fit``."""
        if self.labels is None:
            raise LongtailError("this tagger has learned nothing yet", hint="Call fit first")
        return self.labels

    def _checked(self, inputs: Any) -> list[str] | sp.csr_array:
        _ = self.known_labels
        return checked_inputs(inputs, self.reads_texts)


def choose_tail(model: Any, X: Any, Y: sp.csr_array) -> None:
    """Give the model the lift of rare labels with the best sum of P@k and PSP@k, k = 1, 3, 5, on validation data."""
    weights = inverse_propensity(model.label_counts, model.n_samples)

    def quality(tail: float) -> float:
        model.chosen_tail = tail
        values = per_sample(model.topk(X, max(KS)), Y, weights).values()
        return sum(value for name, value in values.items() if name.startswith(("P@", "PSP@")))

    model.chosen_tail = max(TAILS, key=quality)


def checked_inputs(inputs: Any, as_texts: bool) -> list[str] | sp.csr_array:
    """Texts as a list, or vectors as a sparse matrix, whichever a tagger reads."""
    if isinstance(inputs, str):
        raise DataError("a single text was given", hint="Give a list of texts: predict([text])")
    is_matrix = sp.issparse(inputs) or (isinstance(inputs, np.ndarray) and inputs.dtype.kind in "fiub")
    if not as_texts:
        if not is_matrix:
            hint = "Give them in the form it was trained on, for example an XC file"
            raise DataError("this tagger reads feature vectors, not texts", hint=hint)
        return check_features(inputs)
    if is_matrix:
        raise DataError("this tagger reads texts", hint="Give a list of strings, not feature vectors")
    return [checked_text(text, "text") for text in inputs]


def comparable(data: Dataset, labels: Labels) -> Dataset:
    """The data with labels numbered as in ``labels``; an error if not one of them is known there."""
    aligned = data.aligned(labels)
    if aligned.Y.nnz and aligned.Y.indices.min() >= len(labels):
        theirs = aligned.labels.names[aligned.Y.indices[0]]
        found = f'not one label of the data is known to the tagger (the data say "{theirs}", the tagger "{labels.names[0]}")'
        raise DataError(found, where=data.source, hint="Give both the same label names, for example one label file")
    return aligned


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
        tagger = Tagger(about["method"])
        tagger.pipeline = Pipeline.restored(about, bundle.arrays)
        tagger.threshold, tagger.reads_texts = float(about["threshold"]), bool(about["reads_texts"])
        names, texts, parents = zip(*bundle.labels, strict=True)
        tagger.labels = Labels(
            tuple(names),
            tuple(texts) if about["has_label_texts"] else None,
            tuple(map(tuple, parents)) if about["has_label_parents"] else None,
        )
    except (KeyError, TypeError, ValueError, SettingError) as error:
        found = f"the bundle does not describe a tagger this longtail knows ({error})"
        raise BundleError(found, where=str(folder), hint="Use the longtail version that wrote it") from error
    return tagger
