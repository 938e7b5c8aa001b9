"""The features of a method: from texts or feature vectors to the feature vectors that its model reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp

from longtail.data.holdout import take_samples
from longtail.errors import BundleError, SettingError, suggest
from longtail.features.analyser import Analyser
from longtail.features.autoencoder import Autoencoder, compute_slopes_through_code, fit_linear_autoencoder
from longtail.features.mlp import Doubles
from longtail.features.normaliser import Normaliser, VectorSettings
from longtail.features.pretrained import check_encoder
from longtail.features.store import fit_vectors
from longtail.features.text import AUTO, TextFeatures, fill_plain_words
from longtail.kernels import Floats, Ints, Longs
from longtail.labelspace.names import NAMES, NameSamples, NameSettings
from longtail.lazy_texts import join_texts
from longtail.linear.feature_trial import choose_features
from longtail.model import Model, PartWeights
from longtail.named_texts import get_sentences, restore_names
from longtail.nn.hybrid import Hybrid, HybridSettings
from longtail.progress import SILENT, Progress
from longtail.settings import MAX_SEED, Settings, setting, settings
from longtail.state import State, get_entry

_Features = TypeVar("_Features", bound=TextFeatures | Hybrid | Normaliser)
_FEATURE_KINDS: dict[str, type[TextFeatures | Hybrid | Normaliser]] = {
    kind.__name__: kind for kind in (TextFeatures, Hybrid, Normaliser)
}
MACHINE_SETTINGS = ("threads", "device", "log", "checkpoint", "cache")  # they do not belong to the model and are not saved


@settings
class FeatureSettings(HybridSettings, VectorSettings, NameSettings):
    """Settings of the features of all methods that read feature vectors."""

    code: int | None = setting(
        "Dimension of a linear autoencoder applied to the features. None: no autoencoder.", default=None, positive=True
    )
    seed: int = setting("Seed of the autoencoder.", default=0, minimum=0, maximum=MAX_SEED)

    def check(self) -> None:
        """Check every setting, and that settings of the encoder come with an encoder."""
        super().check()
        values, defaults = self.get_params(), HybridSettings().get_params()
        for name in ("dense_weight", "dense_length"):
            if self.dense is None and values[name] != defaults[name]:
                raise SettingError(f"{name} is set, but no encoder", hint=f"Set dense=minilm, or leave {name} out")


# Settings that have no effect on vectors, and on texts.
TEXT_SETTINGS = (*(name for name in HybridSettings.param_names() if name not in MACHINE_SETTINGS), NAMES)
VECTOR_SETTINGS = tuple(VectorSettings.param_names())


@dataclass(frozen=True)
class Encoded:
    """Inputs and their features: encode them once to ask a tagger for labels, sets, novelty and unknown inputs."""

    inputs: Any  # texts, or feature vectors as they were passed
    vectors: sp.csr_array  # feature vectors before the autoencoder; None if the model reads the inputs themselves
    X: Any  # what the model reads

    def take(self, rows: Longs) -> Encoded:
        """Return some of the inputs."""
        vectors = None if self.vectors is None else take_samples(self.vectors, rows)
        return Encoded(take_samples(self.inputs, rows), vectors, take_samples(self.X, rows))

    @property
    def n_unknown(self) -> int:
        """How many inputs have no known word or feature."""
        return 0 if self.vectors is None else int(np.count_nonzero(np.diff(self.vectors.indptr) == 0))


class FeatureExtractor(FeatureSettings):
    """Texts -> TF-IDF, optionally with vectors of a pretrained encoder; feature vectors -> the same, with length 1.

    With ``code``, a linear autoencoder then reduces the features to that dimension.

    >>> FeatureExtractor(min_df=1, ngrams=1).fit_transform(["red apple", "green apple"]).shape
    (2, 3)
    """

    features: TextFeatures | Hybrid | Normaliser
    autoencoder: Autoencoder | None = None
    named: Ints  # labels whose names are the last rows of what ``fit_transform`` returned
    decisions: tuple[str, ...] = ()  # what the training data decided: a sentence for each setting that was None

    def check_requirements(self) -> None:
        """Raise an error if a package or pretrained weights that ``fit_transform`` needs are not installed."""
        if self.dense is not None:
            check_encoder(self.dense)
        if self.language is not None:
            Analyser("en" if self.language == AUTO else self.language)

    def fit_transform(
        self,
        inputs: Any,
        Y: sp.csr_array = None,
        model: Model | None = None,
        names: NameSamples | None = None,
        progress: Progress = SILENT,
    ) -> sp.csr_array:
        """Fit the features to the inputs and return the vectors that the model reads, and then those of names of labels.

        :param inputs: Texts or feature vectors.
        :param Y: Their labels, for choices that the training data decides. None: single words.
        :param model: The model that will read the features; trials use a quick version of it.
        :param names: The names of the labels. None: they have none.
        """
        settings, vectors, self.decisions, self.named = self.get_params(), None, (), np.empty(0, np.int32)
        if sp.issparse(inputs):
            self.features = self._make(Normaliser)
            return self._fit_code(self.features.fit_transform(inputs, progress))
        plain = fill_plain_words(settings)
        chosen = {**plain, NAMES: bool(self.train_on_names)}
        if any(settings[name] is None for name in chosen):
            self.features = words = self._make(TextFeatures)
            vectors = fit_vectors(words, inputs, progress)
            if Y is not None and model is not None and model.tries_features:
                chosen, why = choose_features(
                    inputs, vectors, Y, words, names, self.train_on_names, model.fit_quick, self.seed
                )
                self.decisions = (why,) if why else ()
        if chosen.pop(NAMES) and names is not None:
            self.named, inputs, vectors = names.labels, join_texts(inputs, names.texts), None
        if vectors is None or self.dense or chosen != plain:
            self.features = self._make(Hybrid if self.dense else TextFeatures, **chosen)
            vectors = fit_vectors(self.features, inputs, progress)
        return self._fit_code(vectors)

    def _fit_code(self, vectors: sp.csr_array) -> sp.csr_array:
        self.autoencoder = None if self.code is None else fit_linear_autoencoder(vectors, self.code, self.seed)
        return self._compress(vectors)

    @property
    def get_term(self) -> Callable[[int], str] | None:
        """The function that returns the term of a feature; None if features are not terms."""
        return self.features.get_term if isinstance(self.features, TextFeatures) and self.autoencoder is None else None

    def transform(self, inputs: Any) -> Encoded:
        """Compute the features of inputs of the same kind."""
        vectors = self.features.transform(inputs)
        return Encoded(inputs, vectors, self._compress(vectors))

    def novelty(self, sample: Encoded, model: Model) -> Floats:
        """Return how unlike the training data each sample is [n], by the autoencoder of the features or of the model."""
        return model.novelty(sample.X) if self.autoencoder is None else self.autoencoder.novelty(sample.vectors)

    def count_unknown_words(self, texts: Sequence[str]) -> tuple[Ints, Ints] | None:
        """Return how many words each text has and how many of them are not known; None for features that are not words."""
        words = self.features.words if isinstance(self.features, Hybrid) else self.features
        return words.count_unknown_words(texts) if isinstance(words, TextFeatures) else None

    def explain(self, sample: Encoded, model: Model, label: int) -> PartWeights:
        """Return the parts of one text or feature vector with their contributions to a label: see ``Model.explain``.

        A term that occurs several times contributes equally at each place. The vector of an encoder has no place in the
        text: its contribution is that of an empty part at the start.
        """
        x = sample.vectors
        weights = x.data * self._slopes(sample, model, label)
        if isinstance(self.features, Normaliser):
            return x.indices, x.indices + 1, weights
        terms, starts, ends = self.features.find_terms(sample.inputs[0])
        columns = np.searchsorted(x.indices, terms)
        shares = (weights / np.maximum(np.bincount(columns, minlength=len(weights)), 1))[columns]
        if isinstance(self.features, TextFeatures):
            return starts, ends, shares
        of_encoder = weights[x.indices >= self.features.words.n_features].sum()
        return np.append(starts, 0), np.append(ends, 0), np.append(shares, of_encoder)

    def _slopes(self, sample: Encoded, model: Model, label: int) -> Doubles:
        slopes = model.slopes(sample.X, label)
        if self.autoencoder is None:
            return slopes
        return compute_slopes_through_code(self.autoencoder.encoder, sample.vectors, sample.X, slopes)

    def _compress(self, vectors: sp.csr_array) -> sp.csr_array:
        """Reduce feature vectors to codes of length 1, if there is an autoencoder."""
        return vectors if self.autoencoder is None else Normaliser().transform(self.autoencoder.transform(vectors))

    def configure(self, **machine: Any) -> None:
        """Change settings of the machine (threads, device)."""
        for part in (self, getattr(self, "features", None)):
            if part is not None:
                part.set_params(**{name: value for name, value in machine.items() if name in part.param_names()})
                part.check()

    def describe(self, dimension: int) -> str:
        """Describe the fitted features in a few words. ``dimension`` is that of the vectors that the model reads."""
        kind = type(self.features).__name__
        if self.autoencoder is None:
            return f"{kind}, dimension {dimension:,}"
        return f"{kind}, dimension {self.autoencoder.n_features:,}, reduced to {dimension:,} by an autoencoder"

    def about(self) -> dict[str, Any]:
        """Describe the fitted features in plain types, for a bundle."""
        activations = self.autoencoder.get_activations() if self.autoencoder else None
        settings = {"settings": saved_settings(self), "fitted settings": saved_settings(self.features)}
        return {"kind": type(self.features).__name__, **settings, "decisions": self.decisions, "autoencoder": activations}

    def state(self) -> dict[str, State]:
        """Return everything that was fitted, as plain arrays by part."""
        names = {"labels": self.named} if len(self.named) else {}
        code = self.autoencoder.state() if self.autoencoder else {}
        return {"features": self.features.state(), "autoencoder": code, "names": names}

    def restore(self, about: dict[str, Any], state: dict[str, State], model: Model) -> Self:
        """Restore what ``about`` and ``state`` returned, for a model that is restored already."""
        self.set_params(**get_entry(about, "settings", dict)).check()
        self.decisions, self.named = get_sentences(about), restore_names(state, model.n_labels)
        kind = get_entry(about, "kind", str)
        if kind not in _FEATURE_KINDS:
            raise BundleError(f'there are no features of the kind "{kind}"', hint=suggest(kind, _FEATURE_KINDS))
        self.features = self._make(_FEATURE_KINDS[kind], **get_entry(about, "fitted settings", dict))
        self.features.check()
        self.features.restore(state.get("features", {}))
        n_features = None if isinstance(self.features, Normaliser) else self.features.n_features
        if about["autoencoder"]:
            activations = get_entry(about, "autoencoder", dict)
            self.autoencoder = Autoencoder.from_state(activations, state.get("autoencoder", {}), n_features)
            n_features = self.autoencoder.encoder.output_dim(self.autoencoder.n_features)
        if n_features not in (None, model.n_features):
            found = f"the features have dimension {n_features:,}, the model was trained on {model.n_features:,}"
            raise BundleError(found, hint="The model was changed or damaged: get it again")
        return self

    def _make(self, kind: type[_Features], **settings: Any) -> _Features:
        """Make features that are not fitted, with the settings of this extractor and those given."""
        own = {name: value for name, value in self.get_params().items() if name in kind.param_names()}
        return kind(**{**own, **settings})


def saved_settings(part: Settings) -> dict[str, Any]:
    """Return the settings that a bundle stores: those of the model, not those of the machine."""
    return {name: value for name, value in part.get_params().items() if name not in MACHINE_SETTINGS}
