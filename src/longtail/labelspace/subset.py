"""Draw part of a corpus in which labels keep all their samples, and their neighbours: whole clusters of labels."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Ints
from longtail.labelspace.embedding import pifa
from longtail.labelspace.k_means import cluster_sparse

_LABELS_PER_CLUSTER, _MIN_CLUSTERS, _MAX_CLUSTERS = 16, 16, 256
MIN_SAMPLES = 800  # of the clusters: long texts have many features, but each is one sample only
_FEATURES_PER_LABEL = 64  # largest features of a label that take part in clustering


def draw_label_clusters(X: sp.csr_array, Y: sp.csr_array, max_nonzeros: int, seed: int, threads: int | None) -> sp.csr_array:
    """Keep the labels of random clusters of labels, and drop all others.

    Settings such as C depend on how many samples a label has and on how many similar labels there are. Random samples would
    change both; random clusters change neither.

    :param X: Feature vectors, [n_samples, n_features].
    :param Y: Their labels, [n_samples, n_labels].
    :param max_nonzeros: Clusters are added while their samples have fewer non-zero features than this, or are fewer than
        ``MIN_SAMPLES``.
    :returns: Y without the entries of the other labels; its shape is the same. Y itself if it is small enough.

    >>> Y = sp.csr_array(np.repeat(np.eye(40, dtype=np.float32), 50, axis=0))  # 50 samples of each of 40 labels
    >>> part = draw_label_clusters(Y, Y, 1000, seed=0, threads=1)
    >>> sorted({int(n) for n in part.sum(axis=0)})
    [0, 50]
    """
    n_features = np.diff(X.indptr)
    labels: Ints = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
    k = min(max(len(labels) // _LABELS_PER_CLUSTER, _MIN_CLUSTERS), _MAX_CLUSTERS)
    if X.nnz <= max_nonzeros or len(labels) < k:
        return Y
    cluster = np.full(Y.shape[1], -1, np.int32)
    cluster[labels] = cluster_sparse(pifa(X, Y, _FEATURES_PER_LABEL), labels, k, seed, threads)
    rows, of_entry = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), cluster[Y.indices]
    taken = np.zeros(Y.shape[0], bool)
    kept = np.zeros(k, bool)
    for number in np.random.default_rng(seed).permutation(k):
        kept[number] = True
        taken[rows[of_entry == number]] = True
        if n_features[taken].sum() >= max_nonzeros and taken.sum() >= MIN_SAMPLES:
            break
    entries = kept[of_entry]
    return sp.csr_array((Y.data[entries], (rows[entries], Y.indices[entries])), shape=Y.shape)
