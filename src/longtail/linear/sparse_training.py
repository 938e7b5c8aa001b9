"""Training of a sparse part: one-vs-rest classifiers, each on the samples that are hard for its label.

Most negative samples of a label say little about it: they share no rare word with its samples. So similar labels are put
into clusters, and the classifiers of a cluster are trained on

- the samples that have one of its labels,
- the samples that are near to it: it is among the ``_NEAREST`` clusters whose centroids are most similar to the sample,
- and as many random samples, which represent all others by their weight.

The weights start as the centroids of the labels' samples, and the regulariser keeps them near to these: a label with few
samples stays near to its centroid, one with many is what its samples say.

With many labels, clusters have a classifier, too, which is trained on all samples. Its score is added to those of the
cluster's labels: a label with two samples has little to learn from, but a sample of a similar label says that it is near.
The labels are divided into clusters several times, from different random starts, and the mean is added: where one division
separates similar labels, another one does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from longtail.csr import get_column_rows
from longtail.kernels import Floats, Ints, Longs, map_parallel
from longtail.labelspace.clustering import split_in_halves
from longtail.labelspace.embedding import pifa
from longtail.linear.node import LABELS_PER_BLOCK, NodeTrainer, NodeWeights
from longtail.linear.sparse_part import Doubles, SparsePart
from longtail.linear.update import UpdateSamples, update_labels
from longtail.progress import SILENT, Progress

_NEAREST = 32  # clusters that a sample is a negative sample for
_TERMS = 256  # features in the centroid of a label, the largest
_START_NORM = 2.0  # of the weights of a label before training
_C = 0.3  # weight of the loss against the regulariser
_PRUNE = 0.05  # weights whose magnitude is below this are dropped
_CLUSTERS_C = 1.0  # weight of the loss for clusters, which have more samples
_CLUSTERS_PRUNE = 0.15  # clusters have many small weights
_N_CLUSTERINGS = 3  # divisions of the labels into clusters whose mean score is added
_CLUSTER_SIZE = 32  # labels in such a cluster at most
_CLUSTERS_SCALE = 0.5  # weight of this mean in the score of a label
_MIN_LABELS_FOR_CLUSTERS = 4097  # with fewer labels, clusters are few and say little about a label
_SAMPLES_PER_BLOCK = 1024  # whose similarities to all clusters are in memory at a time
_LOGITS_PER_MARGIN = 4.0  # a margin of ±1 is about a probability of 0.98 or 0.02
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # weights of the sparse part that are tried on held-out samples
_SCALE, _SCALE_WITH_CLUSTERS = 4.0, 8.0  # its weight unless another one is better


def fit_sparse_part(
    X: sp.csr_array, Y: sp.csr_array, seed: int = 0, threads: int | None = 1, progress: Progress = SILENT
) -> SparsePart:
    """Fit a sparse part to samples and their labels. Labels without samples have the margin −1 everywhere.

    >>> X, Y = sp.csr_array(np.eye(2, dtype=np.float32)), sp.csr_array(np.eye(2, dtype=np.float32))
    >>> fit_sparse_part(X, Y).score(X).argmax(axis=1).tolist()
    [0, 1]
    """
    centroids = pifa(X, Y, _TERMS)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    clusters = _cluster_labels(centroids, counts, LABELS_PER_BLOCK, seed, threads)
    near = _find_near_samples(X, Y, clusters)
    samples_of, trainer = Y.tocsc(), _make_trainer(seed)

    def train(number: int) -> NodeWeights:
        labels = clusters[number]
        rows, weights = _add_random_samples(near[number], X.shape[0], np.random.default_rng((seed, number)))
        positives = [np.sort(get_column_rows(samples_of, label)) for label in labels]
        start = centroids[labels] * np.float32(_START_NORM)
        ones = np.ones(len(labels), np.float32)
        return trainer.train(X, rows, positives, ones, number, sample_weight=weights, start=start)

    parts, bias = [], np.full(Y.shape[1], -1, np.float32)
    with progress.stage("sparse part", len(clusters)) as stage:
        for labels, weights in zip(clusters, map_parallel(train, range(len(clusters)), threads), strict=True):
            matrix = weights.to_matrix().tocoo()
            parts.append((weights.features[matrix.coords[0]], labels[matrix.coords[1]], matrix.data))
            bias[labels] = weights.bias
            stage.advance()
    features, labels, margins = (np.concatenate(each) for each in zip(*parts, strict=True))
    part = _make_part(features, labels, margins, bias, X.shape[1])
    if np.count_nonzero(counts) < _MIN_LABELS_FOR_CLUSTERS:
        return part
    of_clusters, cluster_of = _fit_clusters(X, Y, centroids, seed, threads, progress)
    return replace(part, clusters=of_clusters, cluster_of=cluster_of)


def _fit_clusters(
    X: sp.csr_array, Y: sp.csr_array, centroids: sp.csr_array, seed: int, threads: int | None, progress: Progress
) -> tuple[SparsePart, Ints]:
    """Fit one classifier per cluster to all samples, for several divisions of the labels into clusters.

    :returns: The classifiers, whose scores are weighted so that the sum over the clusters of a label is the weighted mean;
        and these clusters [n_labels, n_clusterings].
    """
    counts, maps, n_clusters = np.bincount(Y.indices, minlength=Y.shape[1]), [], 0
    for number in range(_N_CLUSTERINGS):
        has, of = _map_to_clusters(Y, _cluster_labels(centroids, counts, _CLUSTER_SIZE, seed + number, threads))
        maps.append((has, of + np.int32(n_clusters)))
        n_clusters += has.shape[1]
    has, cluster_of = sp.hstack([has for has, _ in maps], format="csr"), np.stack([of for _, of in maps], axis=1)
    samples_of, every = has.tocsc(), np.arange(X.shape[0], dtype=np.int32)
    positives = [np.sort(get_column_rows(samples_of, cluster)) for cluster in range(n_clusters)]
    trainer = replace(_make_trainer(seed), C=_CLUSTERS_C, prune=_CLUSTERS_PRUNE)
    with progress.stage("clusters of the sparse part", 1) as stage:
        weights = trainer.train(X, every, positives, np.ones(n_clusters, np.float32), 0, threads)
        stage.advance()
    matrix = weights.to_matrix().tocoo()
    part = _make_part(weights.features[matrix.coords[0]], matrix.coords[1], matrix.data, weights.bias, X.shape[1])
    return replace(part, scale=_CLUSTERS_SCALE / _N_CLUSTERINGS).round_weights(), cluster_of


def _make_part(features: Ints, labels: Ints, margins: Floats, bias: Floats, n_features: int) -> SparsePart:
    """A part from the weights of classifiers: their margins become logits."""
    logits = margins * np.float32(_LOGITS_PER_MARGIN)
    W = sp.coo_array((logits, (features, labels)), shape=(n_features, len(bias))).tocsr()
    return SparsePart(W, bias * np.float32(_LOGITS_PER_MARGIN))


def update_sparse_part(
    part: SparsePart, labels: Ints, samples: UpdateSamples, seed: int, threads: int | None, progress: Progress
) -> SparsePart:
    """Train a sparse part further on new and replayed samples.

    :param labels: The number that each label of the part has among all labels.
    :returns: A part with all labels. Those that never had samples have a bias of minus infinity.
    """
    whole = _place_new_labels(part.spread_labels(labels, samples.Y.shape[1]), samples)
    W, bias = whole.W / np.float32(_LOGITS_PER_MARGIN), whole.bias / np.float32(_LOGITS_PER_MARGIN)
    W = W + _start_new_labels(bias, samples)
    changed = samples.find_changed_labels()
    changed = changed[np.isfinite(bias[changed]) | (np.bincount(samples.Y.indices, minlength=len(bias))[changed] > 0)]
    W, bias = update_labels(samples, changed, W, bias, _make_trainer(seed), threads, progress)
    return replace(whole, W=W * np.float32(_LOGITS_PER_MARGIN), bias=bias * np.float32(_LOGITS_PER_MARGIN))


def _start_new_labels(bias: Floats, samples: UpdateSamples) -> sp.csr_array:
    """The weights that labels with their first samples start from, as in training [n_features, n_labels]."""
    is_new = np.isneginf(bias).astype(np.float32)
    first = sp.csr_array(samples.Y.multiply(is_new))
    first.eliminate_zeros()
    return sp.csr_array(pifa(samples.X, first, _TERMS).T * np.float32(_START_NORM))


def _place_new_labels(part: SparsePart, samples: UpdateSamples) -> SparsePart:
    """Put each label with its first samples into the clusters that these samples have the largest scores for."""
    if part.clusters is None or part.cluster_of is None:
        return part
    cluster_of, samples_of = part.cluster_of.copy(), samples.Y.tocsc()
    clusterings = [np.unique(clusters) for clusters in part.cluster_of.T]
    for label in np.flatnonzero(np.isneginf(part.bias) & (np.diff(samples_of.indptr) > 0)).tolist():
        rows = get_column_rows(samples_of, label)[:_SAMPLES_PER_BLOCK]
        scores = part.clusters.score(samples.X[rows]).mean(axis=0)
        cluster_of[label] = [clusters[scores[clusters].argmax()] for clusters in clusterings]
    return replace(part, cluster_of=cluster_of)


def choose_scale(
    part: SparsePart,
    validate: Callable[[SparsePart | None], Doubles] | None,
    *,
    is_optional: bool = True,
    progress: Progress = SILENT,
) -> SparsePart | None:
    """Choose the weight of a sparse part in the sum with the scores of a network.

    It is 4, or 8 if clusters have scores, unless the weight with the best precision on held-out samples gains more than its
    standard error: with a few hundred samples, the best of several weights is mostly the luckiest. By the same rule, the
    scores of clusters are left out if precision is higher without them.

    :param validate: Returns the precision of the sum on each held-out sample, in percent; of the network alone for None.
        None: there are no such samples.
    :param is_optional: Whether the part can be left out.
    :returns: None if it can, and the network alone is better by more than the standard error.
    """
    usual = _SCALE if part.clusters is None else _SCALE_WITH_CLUSTERS
    if validate is None:
        return replace(part, scale=usual)
    found = {scale: validate(replace(part, scale=scale)) for scale in _SCALES}
    best = max(_SCALES, key=lambda scale: float(found[scale].mean()))
    chosen = best if _is_better(found[best], found[usual]) else usual
    part, precision_with = replace(part, scale=chosen), found[chosen]
    if part.clusters is not None and _is_better(without := validate(part.drop_clusters()), precision_with):
        part, precision_with = part.drop_clusters(), without
    alone = validate(None)
    use = not is_optional or not _is_better(alone, precision_with)
    clusters = "" if part.clusters is None else f" and {part.clusters.n_labels:,} clusters"
    precision = (
        f"held-out precision {alone.mean():.1f} % without, {precision_with.mean():.1f} % with weight {chosen:g}{clusters}"
    )
    progress.say(f"sparse part: {'used' if use else 'not used'}; {precision}")
    return part if use else None


def _is_better(first: Doubles, second: Doubles) -> bool:
    """Whether the first precision is higher by more than the standard error of the difference, sample by sample."""
    gains = first - second
    return bool(gains.mean() > gains.std() / np.sqrt(len(gains)))


def _make_trainer(seed: int) -> NodeTrainer:
    return NodeTrainer("squared_hinge", C=_C, eps=0.3, max_passes=100, prune=_PRUNE, seed=seed)


def _cluster_labels(centroids: sp.csr_array, counts: Longs, size: int, seed: int, threads: int | None) -> list[Ints]:
    """Divide the labels that have samples into clusters of similar size, at most ``size``."""
    clusters = [np.flatnonzero(counts).astype(np.int32)]
    while max(map(len, clusters)) > size:
        clusters = split_in_halves(centroids, clusters, seed, threads)
    return [np.sort(labels) for labels in clusters]


def _map_to_clusters(Y: sp.csr_array, clusters: list[Ints]) -> tuple[sp.csr_array, Ints]:
    """How many labels of each cluster a sample has [n_samples, n_clusters], and the cluster of each label [n_labels].

    A label without samples is in no cluster. It gets the number 0, since it is never predicted.
    """
    labels, numbers = np.concatenate(clusters), np.repeat(np.arange(len(clusters)), [len(labels) for labels in clusters])
    member = sp.coo_array((np.ones(len(labels), np.float32), (labels, numbers)), shape=(Y.shape[1], len(clusters)))
    cluster_of = np.zeros(Y.shape[1], np.int32)
    cluster_of[labels] = numbers
    return sp.csr_array(Y @ member.tocsr()), cluster_of


def _find_near_samples(X: sp.csr_array, Y: sp.csr_array, clusters: list[Ints]) -> list[Ints]:
    """The samples that have labels of each cluster, and those that it is one of the nearest clusters of."""
    n, (has, _) = len(clusters), _map_to_clusters(Y, clusters)
    centroids, nearest = pifa(X, has).T.tocsr(), min(_NEAREST, n)
    rows, columns = [np.repeat(np.arange(X.shape[0]), np.diff(has.indptr))], [has.indices]
    for start in range(0, X.shape[0], _SAMPLES_PER_BLOCK):
        similarity = (X[start : start + _SAMPLES_PER_BLOCK] @ centroids).toarray()
        best = np.argpartition(-similarity, nearest - 1, axis=1)[:, :nearest]
        rows.append(np.repeat(np.arange(start, start + len(best)), nearest))
        columns.append(best.ravel())
    near = sp.coo_array((np.ones(sum(map(len, rows)), np.bool_), (np.concatenate(rows), np.concatenate(columns)))).tocsc()
    return [get_column_rows(near, cluster).astype(np.int32) for cluster in range(n)]


def _add_random_samples(near: Ints, n_samples: int, random: np.random.Generator) -> tuple[Ints, Floats]:
    """Add as many random samples to those that are near.

    :returns: All of them, ascending, and their weights: the random ones represent all samples that are not near.
    """
    others = np.setdiff1d(np.arange(n_samples, dtype=np.int32), near)
    some = random.choice(others, min(len(near), len(others)), replace=False)
    rows: Ints = np.union1d(near, some).astype(np.int32)
    is_random = np.isin(rows, some)
    return rows, np.where(is_random, len(others) / max(len(some), 1), 1).astype(np.float32)
