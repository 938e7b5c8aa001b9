"""Labels without training samples get a probability from their names, other names and descriptions.

How much a similar name means is learned from the labels that have samples: a name says nothing about the training samples of
its label, so every label with samples shows how often texts with this evidence have a label of this name. The logistic
regression over the evidence is therefore a probability on the same scale as calibrated scores, and the two are ranked
together.

If a vocabulary has many labels without samples, they are rare, and a rare label is seldom right even if a text mentions it.
So the weights are fitted to labels that are about as rare, by the Good–Turing estimate. When a text is compared with a
label, it is left out of the samples of that label: which labels are used must not depend on which are right.

Texts are compared with the examples of a label, if it has any, and a second curve says how often a text that is as similar
to an example has its label. It is fitted to labels with samples, two of which are taken as their examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import get_column_rows
from longtail.data.labels import Labels
from longtail.decisions.calibration import Curve, Doubles
from longtail.features.label_names import NAME_WORD, has_words, list_forms, strip_plural
from longtail.features.name_similarity import EVIDENCE, N_BUCKETS, ExampleIndex, NameIndex, Rarity, hash_word
from longtail.features.pretrained import STATIC_VECTORS
from longtail.kernels import Bools, Floats, Ints
from longtail.lazy_texts import SelectedTexts
from longtail.linear.logistic import fit_logistic
from longtail.model import PartWeights
from longtail.state import MAX_COUNT, MAX_WEIGHT, State, check_array, check_count, extract_part, get_text, refuse
from longtail.tagger.register import Register
from longtail.topk import NO_LABEL, TopK

PART = "unseen"  # of a bundle
EXAMPLES = "examples"
EVIDENCE_MEANING = "how rare each word is that the name of the label shares with the text"

_N_COUNTED = 20_000  # training texts in which words are counted
_N_FITTED = 2_000  # training texts whose labels are compared with names
_N_SIMILAR, _N_RANDOM = 50, 20  # labels per text that the weights are fitted to
_MAX_NAMES = 8_000  # labels with samples that the weights are fitted to
_MIN_POSITIVES = 20  # pairs of a text and a label; with fewer, the weights are a guess
_RARE = 2  # other texts that have a rare label
_N_RARE = 100  # right pairs to fit the weights to; with fewer, labels that are less rare are added
_MIN_EXPLAINED = 0.05  # share of the deviance; with less, names say too little about texts
_PAIRS_PER_BLOCK = 2_000_000  # pairs of a text and a label whose evidence is in memory at a time
_MAX_BLOCK = 256  # texts whose evidence is in memory at a time
_N_EXAMPLES = 2  # of a label, when the curve of examples is fitted
_N_EXEMPLIFIED, _N_COMPARED = 300, 1_000  # labels and texts that it is fitted to
_WHOLE = 0.999  # share of a name from which all of it counts as found


@dataclass(frozen=True, eq=False)
class UnseenLabels:
    """Scores labels by their names. ``fit_unseen`` makes one."""

    rarity: Rarity
    vectors: str | None  # the package with static vectors that the weights were fitted with
    weights: Floats  # of the expanded evidence, then the bias
    curve: Curve  # from log-odds to the share of right labels, which a logistic curve overestimates for the best evidence
    by_example: Curve | None = None  # from the similarity to an example to the share of right labels

    def index(self, register: Register, label_counts: Ints) -> UnseenNames | None:
        """Index the names of the labels that can be predicted and have no training samples; None if there are none."""
        untrained = register.is_active & (register.fold_counts(label_counts) == 0)
        ids = [i for i in np.flatnonzero(untrained).tolist() if has_words(register.labels.names[i])]
        return UnseenNames(self, register.labels, np.array(ids, np.int32)) if ids else None

    def score(self, evidence: Floats) -> Floats:
        """Return the probability of each label [n_texts, n_labels]."""
        return self.curve(_expand(evidence) @ self.weights[:-1] + self.weights[-1]).astype(np.float32)

    def state(self) -> State:
        """Return everything that was fitted, as plain arrays."""
        vectors = np.frombuffer((self.vectors or "").encode(), np.uint8)
        sizes = np.array([self.rarity.n_texts])
        counts = {"buckets": self.rarity.buckets, "counts": self.rarity.counts, "n_texts": sizes}
        curves = {"curve": self.curve} | ({} if self.by_example is None else {EXAMPLES: self.by_example})
        points = {f"{name}.{axis}": array for name, curve in curves.items() for axis, array in vars(curve).items()}
        return {**counts, "vectors": vectors, "weights": self.weights, **points}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what ``state`` returned."""
        buckets = check_array(state, "buckets", "i4", (None,), minimum=0, maximum=2 * N_BUCKETS - 1)
        counts = check_array(state, "counts", "i4", buckets.shape, minimum=0)
        rarity = Rarity(check_count(state, "n_texts", 0, MAX_COUNT), buckets, counts)
        vectors = get_text(state, "vectors") or None
        if vectors is not None and vectors not in STATIC_VECTORS:
            raise refuse(state, "vectors", f'is "{vectors}"', f"It must be one of: {', '.join(STATIC_VECTORS)}")
        n_weights = _expand(np.zeros((1, len(EVIDENCE)), np.float32)).shape[1] + 1
        weights = check_array(state, "weights", "f4 f8", (n_weights,), minimum=-MAX_WEIGHT, maximum=MAX_WEIGHT)
        by_example = Curve.from_state(part) if (part := extract_part(state, f"{EXAMPLES}.")) else None
        curve = Curve.from_state(extract_part(state, "curve."))
        return cls(rarity, vectors, weights.astype(np.float32), curve, by_example)


class UnseenNames:
    """The names of labels without training samples."""

    def __init__(self, fitted: UnseenLabels, labels: Labels, ids: Ints) -> None:
        self.fitted, self.labels, self.ids = fitted, labels, ids
        self._names = NameIndex(labels, ids, fitted.rarity, fitted.vectors)
        self._by_example, examples = fitted.by_example, labels.examples
        self._examples = None if examples is None else ExampleIndex([examples[i] for i in ids], fitted.rarity)

    def topk(self, texts: Sequence[str], k: int, allowed: Bools | None = None) -> TopK:
        """Return the best k of the labels, or of those that are allowed [n_labels], with their probabilities.

        A label is left out if nothing in the text is like its name or its examples.
        """
        columns = np.arange(len(self.ids)) if allowed is None else np.flatnonzero(allowed[self.ids])
        k = min(k, len(columns))
        ids, scores = np.empty((len(texts), k), np.int32), np.empty((len(texts), k), np.float32)
        for part in _split(len(texts), len(self.ids)):
            evidence = self._names.compare(texts[part])[:, columns]  # [n_texts, n_columns, n_evidence]
            p = np.where(evidence.any(axis=2), self.fitted.score(evidence), -np.inf)
            if self._examples is not None and self._by_example is not None:
                similar = self._examples.compare(texts[part])[:, columns]
                p = np.maximum(p, np.where(similar > 0, self._by_example(similar), -np.inf))
            best = np.argsort(-p, axis=1, kind="stable")[:, :k]  # ties: the smaller id
            scores[part] = np.take_along_axis(p, best, axis=1)
            ids[part] = np.where(np.isneginf(scores[part]), NO_LABEL, self.ids[columns[best]])
        return TopK(ids, scores)

    def explain(self, text: str, label: int) -> PartWeights:
        """Return the words of a text that the name of a label, or one of its other names, has; and how rare they are."""
        others = self.labels.alt_names[label] if self.labels.alt_names else ()
        shared = {word for form in list_forms(self.labels.names[label], others) for word in form}
        found = [match for match in NAME_WORD.finditer(text) if strip_plural(match.group()) in shared]
        spans = np.array([match.span() for match in found], np.int64).reshape(-1, 2)
        weights = np.array([self.fitted.rarity.words[hash_word(strip_plural(match.group()))] for match in found])
        return spans[:, 0], spans[:, 1], weights


def fit_unseen(
    texts: Sequence[str], Y: sp.csr_array, labels: Labels, *, vectors: str | None = None, seed: int = 0
) -> UnseenLabels | None:
    """Learn from labels with samples how much the similarity of a name to a text means.

    :param texts: The training texts.
    :param Y: Their labels.
    :param labels: The names of the labels.
    :param vectors: The package with static vectors. None: words and parts of words only.
    :param seed: Seed of the texts and labels that are compared.
    :returns: None if names say too little about texts, as numbers do, or if there are too few samples.
    """
    random = np.random.default_rng(seed)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    seen = np.flatnonzero(counts).astype(np.int32)
    named = seen[[has_words(labels.names[i]) for i in seen]]
    if len(named) < 2:
        return None
    named = np.sort(random.permutation(named)[:_MAX_NAMES])
    order = random.permutation(len(texts))
    rarity = Rarity.count(SelectedTexts(texts, order[:_N_COUNTED]))
    index = NameIndex(labels, named, rarity, vectors)
    evidence, hits, others = [], [], []
    rows = order[:_N_FITTED]
    for part in (rows[block] for block in _split(len(rows), len(named))):
        compared = index.compare([texts[i] for i in part])
        pairs = _choose_pairs(compared, random)
        evidence.append(compared[pairs])
        hits.append(np.asarray(Y[part][:, named][pairs]).ravel() > 0)
        others.append(counts[named[pairs[1]]] - hits[-1])
    found, n_others = np.concatenate(hits), np.concatenate(others)
    is_rare = _find_rare(counts, n_others, found)
    found = found[is_rare]
    if found.sum() < _MIN_POSITIVES or found.all():
        return None
    columns = _expand(np.concatenate(evidence)[is_rare])
    weights = fit_logistic(columns.astype(np.float64), found)
    log_odds = (columns @ weights[:-1] + weights[-1]).astype(np.float64)
    curve = Curve.fit(log_odds, found.astype(np.float64), 1 / (1 + np.exp(-log_odds)))
    if not _explains(log_odds, found, len(weights)):
        return None
    return UnseenLabels(rarity, vectors, weights, curve, fit_by_example(texts, Y, rarity, random))


def fit_by_example(texts: Sequence[str], Y: sp.csr_array, rarity: Rarity, random: np.random.Generator) -> Curve | None:
    """Learn how often a text that is similar to an example of a label has this label.

    :param texts: The training texts.
    :param Y: Their labels.
    :param rarity: How rare words are in texts.
    :param random: Chooses labels, examples and texts.
    :returns: None if there are too few labels with several samples.
    """
    by_label = Y.tocsc()
    labels = random.permutation(np.flatnonzero(np.diff(by_label.indptr) > _N_EXAMPLES))[:_N_EXEMPLIFIED]
    samples = [get_column_rows(by_label, label) for label in labels]
    chosen = [random.choice(rows, _N_EXAMPLES, replace=False) for rows in samples]
    rows = np.setdiff1d(random.permutation(len(texts))[:_N_COMPARED], np.concatenate([*chosen, []]))
    hits = Y[rows][:, labels].toarray().ravel() > 0
    if hits.sum() < _MIN_POSITIVES or hits.all():
        return None
    index = ExampleIndex([[texts[i] for i in each] for each in chosen], rarity)
    similar = index.compare([texts[i] for i in rows]).ravel().astype(np.float64)
    weights = fit_logistic(similar[:, None], hits)
    prior = 1 / (1 + np.exp(-(weights[0] * similar + weights[1])))
    return Curve.fit(similar, hits.astype(np.float64), prior)


def mix(seen: TopK, unseen: TopK, k: int) -> TopK:
    """Rank two disjoint sets of labels together; both have probabilities. Returns the best k.

    Labels of equal probability keep their order: calibration gives the same one to labels with different scores.
    """
    ids, scores = np.hstack([seen.ids, unseen.ids]), np.hstack([seen.scores, unseen.scores])
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))


def _split(n_texts: int, n_labels: int) -> Iterator[slice]:
    """Split texts into blocks whose evidence fits into memory."""
    size = min(_MAX_BLOCK, max(1, _PAIRS_PER_BLOCK // n_labels))
    return (slice(start, min(start + size, n_texts)) for start in range(0, n_texts, size))


def _choose_pairs(compared: Floats, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Choose labels for each text: those with the most evidence, and some random ones, which bound the rest."""
    n, n_labels, _ = compared.shape
    n_similar, n_random = min(_N_SIMILAR, n_labels), min(_N_RANDOM, n_labels)
    similar = np.argpartition(-compared.sum(axis=2), n_similar - 1, axis=1)[:, :n_similar]
    chosen = np.hstack([similar, random.integers(0, n_labels, (n, n_random))])
    keys = np.unique(np.arange(n)[:, None] * n_labels + chosen)
    return (keys // n_labels).astype(np.int32), (keys % n_labels).astype(np.int32)


def _find_rare(counts: NDArray[np.integer[Any]], n_others: NDArray[np.integer[Any]], hits: Bools) -> Bools:
    """Which pairs have a label that is as rare as a label without samples, but that other texts have.

    :param counts: Samples of each label.
    :param n_others: Samples of the label of each pair, without the text of the pair.
    :param hits: Which pairs are right.
    """
    right = np.sort(n_others[hits & (n_others > 0)])
    limit = max(_bound_rare(counts), right[:_N_RARE].max(initial=0))
    out: Bools = (n_others > 0) & (n_others <= limit)
    return out


def _bound_rare(counts: NDArray[np.integer[Any]]) -> int:
    """Return how many samples the labels have at most that are as rare as those without samples.

    By the Good–Turing estimate, a label without samples would have N1 / N0 samples in as many other texts, where N1 labels
    have one sample and N0 labels none. The labels up to the bound have that many on average.

    >>> _bound_rare(np.array([0, 1, 1, 1, 3, 9, 50])), _bound_rare(np.array([1, 2, 9]))
    (9, 9)
    """
    ordered = np.sort(counts[counts > 0])
    n_without = np.count_nonzero(counts == 0)
    if not n_without:
        return int(ordered.max(initial=_RARE))
    means = np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
    return int(ordered[means <= np.count_nonzero(counts == 1) / n_without].max(initial=_RARE))


def _explains(log_odds: Doubles, hits: Bools, n_weights: int) -> bool:
    """Whether the evidence explains a part of the deviance, beyond what as many weights explain by chance."""
    mean = np.mean(hits)
    deviance = 2 * np.logaddexp(0, np.where(hits, -log_odds, log_odds)).sum()
    without = -2 * (np.log(mean) * hits.sum() + np.log1p(-mean) * (~hits).sum())
    return bool(without - deviance - 2 * n_weights >= _MIN_EXPLAINED * without)


def _expand(evidence: Floats) -> Floats:
    """Add squares, whole names, and words that also have similar vectors [..., n_columns]."""
    whole = evidence[..., EVIDENCE.index("coverage")] > _WHOLE
    both = evidence[..., EVIDENCE.index("words")] * evidence[..., EVIDENCE.index("vectors")]
    more = np.stack([whole.astype(np.float32), both], axis=-1)
    return np.concatenate([evidence, np.square(evidence), more], axis=-1)
