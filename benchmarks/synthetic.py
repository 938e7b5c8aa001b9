"""Large synthetic corpora with the statistics of real ones, generated from a seed, to measure speed, memory and size.

Label frequencies follow Zipf's law. Labels are in clusters of about 12, which are in groups of about 40 clusters. The first
label of a sample is drawn from all labels, most others from the cluster of the first. Labels, clusters and groups each have
typical words; a sample mixes those of its labels with background words. Values are TF-IDF, rows have length 1.

``write_corpus`` writes a corpus that need not fit in memory: one block of samples is in memory at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import get_cache_folder, load, print_progress, save

N_TEST = 5_000
SIZES = {  # samples, features
    10_000: (20_000, 50_000),
    30_000: (50_000, 80_000),
    100_000: (150_000, 136_000),
    670_000: (490_000, 136_000),
}
LABELS_PER_SAMPLE, WORDS_PER_SAMPLE = 5.0, 75.0  # on average
LABELS_PER_CLUSTER, CLUSTERS_PER_GROUP = 12, 40
SAME_CLUSTER_SHARE = 0.75  # of the further labels of a sample: drawn from the cluster of its first label
N_TYPICAL_WORDS = 12  # of a label and of a cluster; a group has twice as many
UNIFORM_SHARE = 0.6  # of the typical words: drawn uniformly; the others are frequent words
LABEL_SHARE, CLUSTER_SHARE = 0.45, 0.30  # of the words of a sample: typical of a label, of a cluster; the others of a group
SIGNAL_SHARE, NOISE_SHARE = 0.55, 0.45  # of the words: kept, and then replaced by a background word
WORDS_PER_BLOCK = 20_000_000
SAMPLES_PER_BLOCK = 20_000  # of a corpus that is written block by block
TRAIN, TEST, IDF = range(3)  # what blocks are drawn for; the last only counts in how many samples words occur


@dataclass(frozen=True)
class Structure:
    """What all samples of a corpus have in common."""

    background: np.ndarray  # [n_features] cumulative distribution of the words
    cluster_of: np.ndarray  # [n_labels]
    group_of: np.ndarray  # [n_clusters]
    words: list[np.ndarray]  # typical words of labels, clusters and groups


def load_synthetic(n_labels: int) -> list[sp.csr_array]:
    """Return X, Y, X_test and Y_test of the corpus with ``n_labels`` labels. It is generated on first use and cached."""
    folder, names = get_cache_folder() / f"synthetic-{n_labels}", ("X", "Y", "X_test", "Y_test")
    if not folder.exists():
        print_progress(f"generating a synthetic corpus in {folder}")
        n_samples, n_features = SIZES[n_labels]
        X, Y = generate(n_samples + N_TEST, n_features, n_labels)
        order = np.random.default_rng(1).permutation(n_samples + N_TEST)
        train, test = order[:n_samples], order[n_samples:]
        get_cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=get_cache_folder()) as temporary:
            matrices = (X[train], Y[train], X[test], Y[test])
            save(Path(temporary), **dict(zip(names, matrices, strict=True)))
            Path(temporary).rename(folder)  # at the end, so that an incomplete corpus is never used
            Path(temporary).mkdir()
    return load(folder, *names)


def generate(n_samples: int, n_features: int, n_labels: int, seed: int = 0) -> tuple[sp.csr_array, sp.csr_array]:
    """Generate features and labels."""
    random = np.random.default_rng(seed)
    structure = draw_structure(random, n_features, n_labels)
    Y = draw_labels(random, n_samples, structure)
    n_words = draw_lengths(random, n_samples)
    step = WORDS_PER_BLOCK // int(WORDS_PER_SAMPLE)
    blocks = []
    for start in range(0, n_samples, step):
        rows = slice(start, min(start + step, n_samples))
        blocks.append(draw_words(random, Y[rows], n_words[rows], structure))
    counts = sp.vstack(blocks, format="csr")
    return weight_tfidf(counts, compute_idf(counts)), Y


def write_corpus(folder: str, n_samples: int, n_test: int, n_features: int, n_labels: int, seed: int = 0) -> None:
    """Write a corpus as XC text, ``train.txt`` and ``test.txt``. A block depends on its number and the seed only."""
    structure = draw_structure(np.random.default_rng(seed), n_features, n_labels)
    (counts, _), *_ = draw_blocks(structure, SAMPLES_PER_BLOCK, (seed, IDF))
    idf = compute_idf(counts)
    for name, part, n in (("train", TRAIN, n_samples), ("test", TEST, n_test)):
        with (Path(folder) / f"{name}.txt").open("w") as stream:
            stream.write(f"{n} {n_features} {n_labels}\n")
            for counts, Y in draw_blocks(structure, n, (seed, part)):
                stream.writelines(format_rows(weight_tfidf(counts, idf), Y))


def draw_blocks(structure: Structure, n_samples: int, seed: tuple[int, int]) -> Iterator[tuple[sp.csr_array, sp.csr_array]]:
    """Draw how often words occur, and the labels, for one block of samples after the other."""
    for start in range(0, n_samples, SAMPLES_PER_BLOCK):
        random, n = np.random.default_rng((*seed, start)), min(SAMPLES_PER_BLOCK, n_samples - start)
        Y = draw_labels(random, n, structure)
        yield draw_words(random, Y, draw_lengths(random, n), structure), Y


def format_rows(X: sp.csr_array, Y: sp.csr_array) -> Iterator[str]:
    """Format each sample as a line of XC text, values with four digits."""
    for row in range(X.shape[0]):
        labels, span = Y.indices[Y.indptr[row] : Y.indptr[row + 1]], slice(X.indptr[row], X.indptr[row + 1])
        pairs = zip(X.indices[span].tolist(), X.data[span].tolist(), strict=True)
        features = " ".join([f"{j}:{value:.4f}" for j, value in pairs])
        yield f"{','.join(map(str, labels.tolist()))} {features}\n"


def draw_structure(random: np.random.Generator, n_features: int, n_labels: int) -> Structure:
    """Draw clusters of labels, groups of clusters, and the typical words of all."""
    background = compute_zipf(n_features, 1.05, 20.0)
    n_clusters = max(1, n_labels // LABELS_PER_CLUSTER)
    n_groups = max(1, n_clusters // CLUSTERS_PER_GROUP)
    cluster_of = random.integers(0, n_clusters, n_labels)
    group_of = random.integers(0, n_groups, n_clusters)
    words = [
        draw_typical_words(random, background, n, count)
        for n, count in ((n_labels, N_TYPICAL_WORDS), (n_clusters, N_TYPICAL_WORDS), (n_groups, 2 * N_TYPICAL_WORDS))
    ]
    return Structure(background, cluster_of, group_of, words)


def draw_lengths(random: np.random.Generator, n_samples: int) -> np.ndarray:
    """Draw the number of words of each sample."""
    return random.poisson(WORDS_PER_SAMPLE * 1.25, n_samples) + 3  # some of them coincide


def compute_zipf(n: int, power: float, shift: float) -> np.ndarray:
    """Return the cumulative distribution of n items whose frequency is a negative power of their shifted rank."""
    weights = (np.arange(n) + shift) ** -power
    return np.cumsum(weights / weights.sum())


def draw(random: np.random.Generator, distribution: np.ndarray, size: int | tuple[int, int]) -> np.ndarray:
    """Draw ranks from a cumulative distribution."""
    return np.minimum(np.searchsorted(distribution, random.random(size)), len(distribution) - 1)


def draw_typical_words(random: np.random.Generator, background: np.ndarray, n: int, count: int) -> np.ndarray:
    """Draw the typical words of n labels, clusters or groups, [n, count]: most of them rare, some frequent."""
    is_uniform, shape = random.random((n, count)) < UNIFORM_SHARE, (n, count)
    words = np.where(is_uniform, random.integers(0, len(background), shape), draw(random, background, shape))
    return words.astype(np.int32)


def draw_labels(random: np.random.Generator, n_samples: int, structure: Structure) -> sp.csr_array:
    """Draw the labels of samples."""
    cluster_of, n_clusters = structure.cluster_of, len(structure.group_of)
    n_labels = len(cluster_of)
    frequency = compute_zipf(n_labels, 0.9, 10.0 + n_labels * 2e-4)
    members = np.argsort(cluster_of, kind="stable")
    start = np.searchsorted(cluster_of[members], np.arange(n_clusters))
    n_members = np.diff(start, append=n_labels)
    counts = np.minimum(1 + random.poisson(LABELS_PER_SAMPLE - 1, n_samples), n_labels)
    indptr = np.append(0, np.cumsum(counts)).astype(np.int32)
    first = draw(random, frequency, n_samples)
    labels = draw(random, frequency, indptr[-1])
    cluster = np.repeat(cluster_of[first], counts)
    same = random.random(indptr[-1]) < SAME_CLUSTER_SHARE
    inside = members[start[cluster] + (random.random(indptr[-1]) ** 1.5 * n_members[cluster]).astype(np.int64)]
    labels = np.where(same, inside, labels).astype(np.int32)
    labels[indptr[:-1]] = first
    Y = sp.csr_array((np.ones(len(labels), np.float32), labels, indptr), shape=(n_samples, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


def draw_words(random: np.random.Generator, Y: sp.csr_array, n_words: np.ndarray, structure: Structure) -> sp.csr_array:
    """Draw the words of samples. Returns how often each word occurs in each sample."""
    background, words, cluster_of = structure.background, structure.words, structure.cluster_of
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int32), n_words)
    n = len(rows)
    label = Y.indices[Y.indptr[rows] + (random.random(n) * np.diff(Y.indptr)[rows]).astype(np.int64)]
    source, cluster = random.random(n), cluster_of[label]
    of_label = words[0][label, random.integers(0, N_TYPICAL_WORDS, n)]
    of_cluster = words[1][cluster, random.integers(0, N_TYPICAL_WORDS, n)]
    of_group = words[2][structure.group_of[cluster], random.integers(0, 2 * N_TYPICAL_WORDS, n)]
    of_above = np.where(source < LABEL_SHARE + CLUSTER_SHARE, of_cluster, of_group)
    word = np.where(source < LABEL_SHARE, of_label, of_above)
    word = np.where(random.random(n) < SIGNAL_SHARE, word, draw(random, background, n))
    word = np.where(random.random(n) < NOISE_SHARE, draw(random, background, n), word).astype(np.int32)
    counts = sp.coo_array((np.ones(n, np.float32), (rows, word)), shape=(Y.shape[0], len(background))).tocsr()
    counts.sum_duplicates()
    return counts


def compute_idf(counts: sp.csr_array) -> np.ndarray:
    """Compute ln((1 + n) / (1 + df)) + 1 of each word."""
    df = np.bincount(counts.indices, minlength=counts.shape[1])
    return np.log((1 + counts.shape[0]) / (1 + df)) + 1


def weight_tfidf(counts: sp.csr_array, idf: np.ndarray) -> sp.csr_array:
    """Compute TF-IDF: (1 + ln tf) · idf, rows of length 1."""
    data = (1 + np.log(counts.data)) * idf[counts.indices].astype(np.float32)
    lengths = np.sqrt(np.add.reduceat(np.square(data, dtype=np.float64), counts.indptr[:-1]))  # no row is empty
    data = (data / np.repeat(lengths, np.diff(counts.indptr))).astype(np.float32)
    return sp.csr_array((data, counts.indices, counts.indptr), shape=counts.shape)
