"""Large corpora with the shape of real ones, made from a seed: for measuring speed, memory and size at scale.

Labels have Zipf's frequencies and lie in clusters of about 12, which lie in groups of about 40 clusters. A sample draws a
first label, and most of the others from the cluster of the first. Labels, clusters and groups have words of their own; a
sample mixes those of its labels with words of the background. Values are TF-IDF, rows have length 1.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import cache, load, note, save

N_TEST = 5_000
SIZES = {10_000: (20_000, 50_000), 100_000: (150_000, 136_000), 670_000: (490_000, 136_000)}  # samples, features
LABELS_EACH, WORDS_EACH = 5.0, 75.0  # of a sample, on average
IN_CLUSTER, IN_GROUP = 12, 40
SAME_CLUSTER = 0.75  # share of a sample's further labels that come from the cluster of its first
OWN_WORDS = 12  # of a label and of a cluster; a group has twice as many
UNIFORM = 0.6  # share of these that may be any word; the others are frequent words
FROM_LABEL, FROM_CLUSTER = 0.45, 0.30  # share of a sample's words; the others are of the group
SIGNAL, NOISE = 0.55, 0.45  # shares of words that are kept, and then replaced, by the background
BLOCK = 20_000_000  # words handled at a time


def synthetic(n_labels: int) -> list[sp.csr_array]:
    """X, Y, X_test and Y_test of the corpus with so many labels; made on first use and kept."""
    folder, names = cache() / f"synthetic-{n_labels}", ("X", "Y", "X_test", "Y_test")
    if not folder.exists():
        note(f"making a synthetic corpus in {folder}")
        n_samples, n_features = SIZES[n_labels]
        X, Y = generate(n_samples + N_TEST, n_features, n_labels)
        order = np.random.default_rng(1).permutation(n_samples + N_TEST)
        train, test = order[:n_samples], order[n_samples:]
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as made:
            matrices = (X[train], Y[train], X[test], Y[test])
            save(Path(made), **dict(zip(names, matrices, strict=True)))
            Path(made).rename(folder)  # last, so that half a corpus is never taken for a whole one
            Path(made).mkdir()
    return load(folder, *names)


def generate(n_samples: int, n_features: int, n_labels: int, seed: int = 0) -> tuple[sp.csr_array, sp.csr_array]:
    """Features and labels."""
    random = np.random.default_rng(seed)
    background = zipf(n_features, 1.05, 20.0)
    n_clusters = max(1, n_labels // IN_CLUSTER)
    n_groups = max(1, n_clusters // IN_GROUP)
    cluster_of = random.integers(0, n_clusters, n_labels)
    group_of = random.integers(0, n_groups, n_clusters)
    words = [
        own_words(random, background, n, count)
        for n, count in ((n_labels, OWN_WORDS), (n_clusters, OWN_WORDS), (n_groups, 2 * OWN_WORDS))
    ]
    Y = draw_labels(random, n_samples, cluster_of, n_clusters)
    n_words = random.poisson(WORDS_EACH * 1.25, n_samples) + 3  # some of them coincide
    step = BLOCK // int(WORDS_EACH)
    blocks = []
    for start in range(0, n_samples, step):
        rows = slice(start, min(start + step, n_samples))
        blocks.append(draw_words(random, background, Y[rows], n_words[rows], words, cluster_of, group_of))
    return weighed(sp.vstack(blocks, format="csr")), Y


def zipf(n: int, power: float, shift: float) -> np.ndarray:
    """The cumulative distribution of n things whose frequency falls with a power of their rank."""
    weights = (np.arange(n) + shift) ** -power
    return np.cumsum(weights / weights.sum())


def draw(random: np.random.Generator, distribution: np.ndarray, size: int | tuple[int, int]) -> np.ndarray:
    """Ranks from a cumulative distribution."""
    return np.minimum(np.searchsorted(distribution, random.random(size)), len(distribution) - 1)


def own_words(random: np.random.Generator, background: np.ndarray, n: int, count: int) -> np.ndarray:
    """[n, count] words that tell n things apart: most of them rare, some frequent."""
    any_word, shape = random.random((n, count)) < UNIFORM, (n, count)
    return np.where(any_word, random.integers(0, len(background), shape), draw(random, background, shape))


def draw_labels(random: np.random.Generator, n_samples: int, cluster_of: np.ndarray, n_clusters: int) -> sp.csr_array:
    """The labels of all samples."""
    n_labels = len(cluster_of)
    frequency = zipf(n_labels, 0.9, 10.0 + n_labels * 2e-4)
    members = np.argsort(cluster_of, kind="stable")
    begin = np.searchsorted(cluster_of[members], np.arange(n_clusters))
    n_members = np.diff(begin, append=n_labels)
    counts = np.minimum(1 + random.poisson(LABELS_EACH - 1, n_samples), n_labels)
    indptr = np.append(0, np.cumsum(counts)).astype(np.int32)
    first = draw(random, frequency, n_samples)
    labels = draw(random, frequency, indptr[-1])
    cluster = np.repeat(cluster_of[first], counts)
    same = random.random(indptr[-1]) < SAME_CLUSTER
    inside = members[begin[cluster] + (random.random(indptr[-1]) ** 1.5 * n_members[cluster]).astype(np.int64)]
    labels = np.where(same, inside, labels).astype(np.int32)
    labels[indptr[:-1]] = first
    Y = sp.csr_array((np.ones(len(labels), np.float32), labels, indptr), shape=(n_samples, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


def draw_words(
    random: np.random.Generator,
    background: np.ndarray,
    Y: sp.csr_array,
    n_words: np.ndarray,
    words: list[np.ndarray],
    cluster_of: np.ndarray,
    group_of: np.ndarray,
) -> sp.csr_array:
    """How often each word occurs in each sample."""
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int32), n_words)
    n = len(rows)
    label = Y.indices[Y.indptr[rows] + (random.random(n) * np.diff(Y.indptr)[rows]).astype(np.int64)]
    source, cluster = random.random(n), cluster_of[label]
    of_label = words[0][label, random.integers(0, OWN_WORDS, n)]
    of_cluster = words[1][cluster, random.integers(0, OWN_WORDS, n)]
    of_group = words[2][group_of[cluster], random.integers(0, 2 * OWN_WORDS, n)]
    word = np.where(source < FROM_LABEL, of_label, np.where(source < FROM_LABEL + FROM_CLUSTER, of_cluster, of_group))
    word = np.where(random.random(n) < SIGNAL, word, draw(random, background, n))
    word = np.where(random.random(n) < NOISE, draw(random, background, n), word).astype(np.int32)
    counts = sp.coo_array((np.ones(n, np.float32), (rows, word)), shape=(Y.shape[0], len(background))).tocsr()
    counts.sum_duplicates()
    return counts


def weighed(counts: sp.csr_array) -> sp.csr_array:
    """TF-IDF: (1 + ln tf) · (ln((1 + n) / (1 + df)) + 1), rows of length 1."""
    n, df = counts.shape[0], np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log((1 + n) / (1 + df)) + 1
    data = (1 + np.log(counts.data)) * idf[counts.indices].astype(np.float32)
    lengths = np.sqrt(np.add.reduceat(np.square(data, dtype=np.float64), counts.indptr[:-1]))  # no row is empty
    data = (data / np.repeat(lengths, np.diff(counts.indptr))).astype(np.float32)
    return sp.csr_array((data, counts.indices, counts.indptr), shape=counts.shape)
