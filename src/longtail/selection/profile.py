"""The properties of a corpus that the choice of a method and its cost depend on."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from longtail.data.dataset import Dataset
from longtail.errors import DataError
from longtail.features.tfidf import Tfidf
from longtail.features.words import find_words
from longtail.linear.feature_trial import MAX_SHORT_WORDS

_MAX_SAMPLED_TEXTS = 20_000  # texts whose terms are counted; counts of larger corpora are extrapolated
_N_LENGTHS = 20  # quantiles of the text length
_DISTINCT_POWER = 0.8  # each further sample of a label brings fewer new words
RARE_BELOW = 5  # samples; labels with fewer are rare


@dataclass(frozen=True)
class Terms:
    """Size of the TF-IDF matrix of the texts, or of the given feature vectors."""

    width: int
    nonzeros: int


@dataclass(frozen=True)
class Profile:
    """What estimates and rules depend on."""

    n_samples: int
    n_labels: int  # with samples
    n_pairs: int  # of a sample and one of its labels
    n_distinct: float  # Σ over labels of (number of samples)^0.8: grows with the distinct features of the labels
    n_cooccurrences: int  # Σ over samples of (number of labels)²: pairs of labels that co-occur
    median_samples: float  # per label
    rare: float  # share of the labels with fewer than RARE_BELOW samples
    n_bytes: int  # of the data in memory
    unigrams: Terms  # single words, or the given features
    bigrams: Terms  # words and word pairs, or the given features
    lengths: tuple[float, ...] = ()  # quantiles of the number of words per text; empty for vectors

    @property
    def has_texts(self) -> bool:
        """Whether the inputs are texts."""
        return bool(self.lengths)

    @property
    def linear_terms(self) -> Terms:
        """What linear methods read by default: words and pairs of words, if texts are short enough for these."""
        return self.unigrams if self.words_per_text > MAX_SHORT_WORDS else self.bigrams

    @property
    def labels_per_sample(self) -> float:
        """Mean number of labels per sample."""
        return self.n_pairs / self.n_samples

    @property
    def words_per_text(self) -> float:
        """Mean number of words per text."""
        return float(np.mean(self.lengths)) if self.lengths else 0.0

    @property
    def median_words(self) -> float:
        """Number of words of the median text; 0 for vectors."""
        return float(np.median(self.lengths)) if self.lengths else 0.0

    @property
    def n_words(self) -> float:
        """Words of all texts."""
        return self.n_samples * self.words_per_text

    def n_read(self, max_length: int, tokens_per_word: float = 1.0) -> float:
        """Tokens of all texts, if up to ``max_length`` are read of each."""
        return (
            self.n_samples * float(np.minimum(np.array(self.lengths) * tokens_per_word, max_length).mean())
            if self.lengths
            else 0.0
        )


def profile_data(data: Dataset, seed: int = 0) -> Profile:
    """Measure a corpus; of many texts, a random sample is used."""
    counts = np.bincount(data.Y.indices, minlength=data.n_labels)
    counts = counts[counts > 0]
    if not len(counts):
        raise DataError("no sample has a label", where=data.source, hint="Check the labels of the data")
    unigrams, bigrams, lengths = _measure_inputs(data, np.random.default_rng(seed))
    size = sum(len(text) + 60 for text in data.texts) if data.texts is not None else 8 * data.X.nnz
    return Profile(
        n_samples=data.n_samples,
        n_labels=len(counts),
        n_pairs=int(data.Y.nnz),
        n_distinct=float((counts**_DISTINCT_POWER).sum()),
        n_cooccurrences=int((np.diff(data.Y.indptr).astype(np.int64) ** 2).sum()),
        median_samples=float(np.median(counts)),
        rare=float((counts < RARE_BELOW).mean()),
        n_bytes=size + 8 * data.Y.nnz,
        unigrams=unigrams,
        bigrams=bigrams,
        lengths=lengths,
    )


def _measure_inputs(data: Dataset, rng: np.random.Generator) -> tuple[Terms, Terms, tuple[float, ...]]:
    """Sizes of unigram and bigram features, and text lengths."""
    if data.texts is None:
        own = Terms(int(data.X.shape[1]), int(data.X.nnz))
        return own, own, ()
    texts = [data.texts[i] for i in rng.permutation(data.n_samples)[:_MAX_SAMPLED_TEXTS]]
    lengths: NDArray[np.float64] = np.sort([len(find_words(text)) for text in texts]).astype(float)
    typical = tuple(float(part.mean()) for part in np.array_split(lengths, min(_N_LENGTHS, len(lengths))))
    return _extrapolate_terms(texts, data.n_samples, 1), _extrapolate_terms(texts, data.n_samples, 2), typical


def _extrapolate_terms(texts: list[str], n_texts: int, ngrams: int) -> Terms:
    """The TF-IDF size of ``n_texts`` such texts: a vocabulary grows as a power of the texts (Heaps' law)."""
    some, half = _count_terms(texts, ngrams), _count_terms(texts[: len(texts) // 2], ngrams)
    times = log2(max(n_texts / len(texts), 1))
    grown = [n * (n / max(before, n / 2, 1)) ** times for n, before in zip(some, half, strict=True)]
    return Terms(round(grown[0]), round(grown[1]))


def _count_terms(texts: list[str], ngrams: int) -> tuple[int, int]:
    """Terms and non-zeros of the TF-IDF of some texts; 0 where no word occurs in two of them."""
    try:
        features = Tfidf(ngrams=ngrams).fit(texts)
    except DataError:
        return 0, 0
    return features.n_features, int(features.transform(texts).nnz)
