"""Features and the model that reads them: from texts or vectors to label ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from longtail.data.dataset import Labels
from longtail.errors import DataError, SettingError, suggest
from longtail.features.autoencoder import Autoencoder, linear_autoencoder, slopes_before
from longtail.features.mlp import Doubles
from longtail.features.normaliser import Normaliser
from longtail.features.tfidf import Tfidf
from longtail.model import Spans, Valid, count
from longtail.nn.hybrid import Hybrid, HybridSettings
from longtail.progress import SILENT, Progress
from longtail.registry import model_class
from longtail.settings import Settings, setting, settings
from longtail.state import State
from longtail.topk import TopK

BATCH = 8192  # samples whose features are held at a time while predicting
FIRST_LOOK = 64  # labels among which a given one is looked for first
RUNTIME = ("threads", "device", "log", "checkpoint", "cache")  # settings of the machine, not of the model: not saved
KINDS: dict[str, type[Tfidf | Hybrid | Normaliser]] = {"Tfidf": Tfidf, "Hybrid": Hybrid, "Normaliser": Normaliser}


@settings
class FeatureSettings(HybridSettings):
    """Settings of the features of any method that reads feature vectors."""

    code: int | None = setting(
        None, "Dimension of a linear autoencoder applied to the features. None: no autoencoder.", positive=True
    )


class Pipeline:
    """A method with its features. Inputs are lists of texts or sparse feature vectors, checked by whoever gives them.

    >>> pipeline = Pipeline("ovr", min_df=1).fit(["red apple", "red rose"], sp.csr_array(np.eye(2)))
    >>> pipeline.topk(["a rose"], k=1).ids.tolist()
    [[1]]
    """

    def __init__(self, method: str, *, preset: str | None = None, **values: Any) -> None:
        """Choose a method, a preset of it (``best`` if none is named), and settings of it or of its text features."""
        cls = model_class(method)
        given = {**(cls.preset(preset) if preset else cls.presets.get("best", {})), **values}
        text_names = FeatureSettings.param_names() if cls.input == "features" else list(RUNTIME)
        for name in given:
            if name not in (*cls.param_names(), *text_names, "seed"):
                hint = suggest(name, {*cls.param_names(), *text_names})
                raise SettingError(f'{method} has no setting "{name}"', hint=hint)
        self.method, self._given = method, {"preset": preset, **values}
        self.model = cls(**{name: value for name, value in given.items() if name in cls.param_names()})
        self.text_settings = {name: value for name, value in given.items() if name in text_names and name != "code"}
        self._asked_of_texts = [name for name in values if name in self.text_settings and name not in cls.param_names()]
        self._code: int | None = None if "code" in cls.param_names() else given.get("code")
        self._seed = int(given.get("seed", 0))
        self.features: Tfidf | Hybrid | Normaliser | None = None
        self.coder: Autoencoder | None = None

    def unfitted(self) -> Pipeline:
        """Another one with the same settings, as they are now, that has learned nothing."""
        new = Pipeline(self.method, **self._given)
        new.model.set_params(**self.model.get_params())
        return new

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
        """Learn the features, then the model. ``labels`` and ``source`` are for methods and messages that name them."""
        self.features = self._make_features(inputs, source)
        X = self.features.fit_transform(inputs, progress) if self.features else inputs
        if self._code is not None:
            self.coder = linear_autoencoder(X, self._code, self._seed)
        self.model.labels = labels
        held_out = None if valid is None else (self.read(valid[0]), valid[1])
        self.model.fit(coded(self.coder, X), Y, held_out, progress=progress)
        return self

    def topk(self, inputs: Any, k: int) -> TopK:
        """The k best label ids of each text or feature vector."""
        parts = [self.model.topk(batch, k) for batch in self.batches(inputs)]
        return TopK(np.concatenate([p.ids for p in parts]), np.concatenate([p.scores for p in parts]))

    def score(self, one: Any, label: int) -> float:
        """The score of a label for one text, or one row of features; 0 if no search finds it."""
        k, inputs = FIRST_LOOK, [one] if isinstance(one, str) else one
        while True:
            best = self.topk(inputs, k)
            found = best.scores[0, best.ids[0] == label]
            if len(found) or k >= self.model.n_labels:
                return float(found[0]) if len(found) else 0.0
            k *= 8

    def explain(self, one: Any, label: int) -> Spans:
        """What in one text, or one row of features, speaks for a label: see ``Model.explain``.

        Each place of a term gets the same part of what the term adds.
        """
        if self.features is None:
            return self.model.explain(one, label)
        x = self.features.transform([one] if isinstance(one, str) else one)
        weights = x.data * self._slopes(x, label)
        if isinstance(self.features, Normaliser):
            return x.indices, x.indices + 1, weights
        terms, starts, ends = self.features.places(one)
        at = np.searchsorted(x.indices, terms)
        shares = (weights / np.maximum(np.bincount(at, minlength=len(weights)), 1))[at]
        if isinstance(self.features, Tfidf):
            return starts, ends, shares
        meaning = weights[x.indices >= self.features.words.n_features].sum()  # of no place: what the encoder makes of it all
        return np.append(starts, 0), np.append(ends, 0), np.append(shares, meaning)

    def _slopes(self, x: sp.csr_array, label: int) -> Doubles:
        if self.coder is None:
            return self.model.slopes(x, label)
        code = coded(self.coder, x)
        return slopes_before(self.coder.encoder, x, code, self.model.slopes(code, label))

    def batches(self, inputs: Any) -> Iterator[Any]:
        """What the model reads, a batch at a time."""
        return (coded(self.coder, batch) for batch in self.vectors(inputs))

    def vectors(self, inputs: Any) -> Iterator[Any]:
        """The features of the inputs, a batch at a time; an empty input is one empty batch, for the model to complain."""
        for start in range(0, max(count(inputs), 1), BATCH):
            batch = inputs[start : start + BATCH]
            yield self.features.transform(batch) if self.features else batch

    def read(self, inputs: Any) -> Any:
        """What the model reads, all at once."""
        return coded(self.coder, self.features.transform(inputs) if self.features else inputs)

    def about(self) -> dict[str, Any]:
        """Method and settings, in plain types."""
        settings = saved_settings(self.model)
        features = (
            {"kind": type(self.features).__name__, "settings": saved_settings(self.features)} if self.features else None
        )
        coder = self.coder.settings() if self.coder else None
        return {"method": self.method, "settings": settings, "features": features, "coder": coder}

    def state(self) -> dict[str, State]:
        """All that was learned, as plain arrays."""
        parts = {"model": self.model, "features": self.features, "coder": self.coder}
        return {name: part.state() if part else {} for name, part in parts.items()}

    @classmethod
    def restored(cls, about: dict[str, Any], state: dict[str, State]) -> Pipeline:
        """From what ``about`` and ``state`` gave."""
        out = cls(about["method"], **about["settings"])
        if about["features"] is not None:
            out.features = KINDS[about["features"]["kind"]](**about["features"]["settings"])
            out.features.restore(state.get("features", {}))
        if about.get("coder"):
            out.coder = Autoencoder.restored(about["coder"], state["coder"])
        out.model.restore(state["model"])
        return out

    def _make_features(self, inputs: Any, source: str) -> Tfidf | Hybrid | Normaliser | None:
        are_texts = not sp.issparse(inputs)
        if self.model.input == "anything" or (self.model.input == "texts" and are_texts):
            return None
        if self.model.input == "texts":
            found = f"{self.method} reads texts, the data are feature vectors"
            raise DataError(found, where=source, hint="Choose another method, or give the texts")
        if are_texts:
            if self.text_settings.get("dense"):
                return Hybrid(**self.text_settings)
            if asked := [name for name in self._asked_of_texts if name.startswith("dense_")]:
                raise SettingError(f'"{asked[0]}" is set, and no encoder', hint="Set dense=minilm, or leave it out")
            return Tfidf(**{name: value for name, value in self.text_settings.items() if name in Tfidf.param_names()})
        if self._asked_of_texts:
            hint = "Leave it out: the data are feature vectors"
            raise SettingError(f'the setting "{self._asked_of_texts[0]}" is for texts', hint=hint)
        return Normaliser()


def saved_settings(part: Settings) -> dict[str, Any]:
    """The settings that a bundle holds: those of the model, not of the machine."""
    return {name: value for name, value in part.get_params().items() if name not in RUNTIME}


def coded(coder: Autoencoder | None, X: Any) -> Any:
    """Feature vectors, written as codes of length 1 where there is an autoencoder."""
    return X if coder is None else Normaliser().transform(coder.transform(X))
