"""What a corpus is like, as far as the cost of training depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from longtail.data.dataset import Dataset
from longtail.errors import DataError
from longtail.features.tfidf import Tfidf

LOOKED_AT = 20_000  # texts whose terms are counted; the counts of more are told from these
N_LENGTHS = 20  # texts, from short to long, whose lengths stand for all
FRESH = 0.8  # the next sample of a label brings fewer new words than the one before
RARE = 5  # fewer samples make a label a rare one


@dataclass(frozen=True)
class Terms:
    """TF-IDF vectors of the texts, or the given vectors: how wide, and how many numbers that are not 0."""

    width: int
    nonzeros: int


@dataclass(frozen=True)
class Profile:
    """All that estimates and the choice look at."""

    n_samples: int
    n_labels: int  # with samples
    n_pairs: int  # of a sample and a label
    n_fresh: float  # Σ over labels of their samples^FRESH: how much that is new all samples of all labels bring
    n_together: int  # Σ over samples of the square of their labels: pairs of labels that stand together
    median_samples: float  # of a label
    rare: float  # share of the labels with fewer than RARE samples
    n_bytes: int  # of the data in memory
    words: Terms  # single words, or the features
    pairs: Terms  # words and pairs of words, or the features
    lengths: tuple[float, ...] = ()  # words of texts from short to long; none for vectors

    @property
    def has_texts(self) -> bool:
        """Whether there are texts to read, not only vectors."""
        return bool(self.lengths)

    @property
    def labels_a_sample(self) -> float:
        """The mean."""
        return self.n_pairs / self.n_samples

    @property
    def words_a_text(self) -> float:
        """The mean."""
        return float(np.mean(self.lengths)) if self.lengths else 0.0

    @property
    def n_words(self) -> float:
        """Of all texts together."""
        return self.n_samples * self.words_a_text

    def n_read(self, most: int, a_word: float = 1.0) -> float:
        """Tokens that a method reads of all texts: ``a_word`` for each word, at most so many of a text."""
        return self.n_samples * float(np.minimum(np.array(self.lengths) * a_word, most).mean()) if self.lengths else 0.0


def profile(data: Dataset, seed: int = 0) -> Profile:
    """Look at a corpus; of many texts, at a part drawn by chance."""
    counts = np.bincount(data.Y.indices, minlength=data.n_labels)
    counts = counts[counts > 0]
    if not len(counts):
        raise DataError("not a single sample has a label", where=data.source, hint="Check the labels of the data")
    words, pairs, lengths = looked_at(data, np.random.default_rng(seed))
    size = sum(len(text) + 60 for text in data.texts) if data.texts is not None else 8 * data.X.nnz
    return Profile(
        n_samples=data.n_samples,
        n_labels=len(counts),
        n_pairs=int(data.Y.nnz),
        n_fresh=float((counts**FRESH).sum()),
        n_together=int((np.diff(data.Y.indptr).astype(np.int64) ** 2).sum()),
        median_samples=float(np.median(counts)),
        rare=float((counts < RARE).mean()),
        n_bytes=size + 8 * data.Y.nnz,
        words=words,
        pairs=pairs,
        lengths=lengths,
    )


def looked_at(data: Dataset, rng: np.random.Generator) -> tuple[Terms, Terms, tuple[float, ...]]:
    """The features of vectors; or single words, words with pairs, and lengths of texts."""
    if data.texts is None:
        own = Terms(int(data.X.shape[1]), int(data.X.nnz))
        return own, own, ()
    texts = [data.texts[i] for i in rng.permutation(data.n_samples)[:LOOKED_AT]]
    lengths: NDArray[np.float64] = np.sort([len(text.split()) for text in texts]).astype(float)
    typical = tuple(float(part.mean()) for part in np.array_split(lengths, min(N_LENGTHS, len(lengths))))
    return terms(texts, data.n_samples, 1), terms(texts, data.n_samples, 2), typical


def terms(texts: list[str], n_texts: int, ngrams: int) -> Terms:
    """TF-IDF of ``n_texts`` as those looked at: a vocabulary grows as a power of the texts (Heaps' law), told by a half."""
    some, half = counted(texts, ngrams), counted(texts[: len(texts) // 2], ngrams)
    times = log2(max(n_texts / len(texts), 1))
    grown = [n * (n / max(before, n / 2, 1)) ** times for n, before in zip(some, half, strict=True)]
    return Terms(round(grown[0]), round(grown[1]))


def counted(texts: list[str], ngrams: int) -> tuple[int, int]:
    """Terms, and numbers that are not 0, of the TF-IDF of some texts; none where no word stands in two of them."""
    try:
        features = Tfidf(ngrams=ngrams).fit(texts)
    except DataError:
        return 0, 0
    return features.n_features, int(features.transform(texts).nnz)
