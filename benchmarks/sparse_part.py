"""What a network and its sparse part give with many labels: each alone, both, and both with fewer scores of clusters.

    python benchmarks/sparse_part.py gutenberg-lcsh --method glas --texts 12000

Trained on a random part of the training data, measured on up to 2,000 held-out training texts; the test data is not read.
Labels without training samples are left out. plt gets the features that were chosen for the network. "One division" is the
sum with the clusters of one division of the labels, with the same weight as the mean of all. One thread, one seed.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report

from longtail.kernels import Ints
from longtail.labelspace.names import append_labels
from longtail.labelspace.propensity import compute_inverse_propensity
from longtail.linear.sparse_part import SparsePart
from longtail.metrics.ranking import score_samples
from longtail.pipeline import Pipeline
from longtail.registry import model_class
from longtail.spec import MethodSpec
from longtail.topk import TopK

METHODS = ("glas", "neuralxc", "aplc", "secseq")
MAX_HELD_OUT, SAMPLES_PER_BLOCK, K = 2000, 256, 5
METRICS = ("P@1", "P@5", "PSP@5")


def measure(name: str, method: str, n_texts: int, epochs: int | None) -> list[Row]:
    """Train a network and plt on a corpus, and evaluate the network with its sparse part, and each of the two."""
    data = read_corpus(name)
    rows = np.random.default_rng(0).permutation(data.n_samples)
    n_held_out = min(MAX_HELD_OUT, data.n_samples // 8)
    train, held_out = data.take(np.sort(rows[n_held_out:][:n_texts])), data.take(np.sort(rows[:n_held_out]))
    pipeline = Pipeline(MethodSpec.parse(method), threads=1)
    X = pipeline.fit_features(list(train.texts or ()), train.Y, labels=data.labels)
    T = pipeline.encode(list(held_out.texts or ())).X
    seen = np.flatnonzero(np.bincount(train.Y.indices, minlength=train.Y.shape[1])).astype(np.int32)
    Y = sp.csr_array(append_labels(train.Y, pipeline.named)[:, seen])
    weights = compute_inverse_propensity(np.bincount(train.Y.indices, minlength=train.Y.shape[1]), train.n_samples)

    def evaluate(what: str, ids: Ints, seconds: float | None = None) -> Row:
        best = TopK(seen[ids], np.zeros(ids.shape, np.float32))
        values = score_samples(best, held_out.Y, weights, (1, K)).values()
        print_progress(f"{name}, {what}: {values['P@1']:.2f}")
        return {"corpus": name, "": what, **{metric: values[metric] for metric in METRICS}, "train CPU-s": seconds}

    def fit(name: str, **settings: Any) -> tuple[Any, float]:
        model: Any = model_class(name)(threads=1, **settings)
        model.n_names = len(pipeline.named)
        with Stopwatch() as watch:
            model.fit(X, Y)
        return model, watch.cpu

    network, seconds = fit(method, epochs=epochs, sparse_part=True)
    part, alone = network.sparse, copy(network)
    alone.sparse = None
    order = network.search.order if method == "aplc" else np.flatnonzero(network.label_counts)
    both, (plt, plt_seconds) = network.topk(T, K).ids, fit("plt")
    without, one = copy(network), copy(network)
    without.sparse, one.sparse = part.drop_clusters(), keep_first_division(part)
    return [
        evaluate(f"{method} alone", alone.topk(T, K).ids),
        evaluate("sparse part alone", order[rank(part, T)]),
        evaluate("sparse part alone, without clusters", order[rank(without.sparse, T)]),
        evaluate(f"both, s = {part.scale:g}", both, seconds),
        evaluate("both, one division", one.topk(T, K).ids),
        evaluate("both, without clusters", without.topk(T, K).ids),
        evaluate("plt", plt.topk(T, K).ids, plt_seconds),
    ]


def keep_first_division(part: SparsePart) -> SparsePart:
    """The same part with one cluster per label, whose score has the weight of all."""
    if part.clusters is None or part.cluster_of is None:
        return part
    clusters = replace(part.clusters, scale=part.clusters.scale * part.cluster_of.shape[1])
    return replace(part, clusters=clusters, cluster_of=part.cluster_of[:, :1])


def rank(part: SparsePart, X: sp.csr_array) -> Ints:
    """The best labels by a sparse part alone [n, K]."""
    blocks = [slice(start, start + SAMPLES_PER_BLOCK) for start in range(0, X.shape[0], SAMPLES_PER_BLOCK)]
    out: Ints = np.concatenate([np.argsort(-part.score(X[block]), axis=1, kind="stable")[:, :K] for block in blocks])
    return out


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--method", choices=METHODS, default="glas")
    parser.add_argument("--texts", type=int, default=12_000, help="train on this many random texts (%(default)s)")
    parser.add_argument("--epochs", type=int, default=None, help="of the network; default: those of the method")
    args = parser.parse_args()
    table = [row for name in args.corpora for row in measure(name, args.method, args.texts, args.epochs)]
    report({f"Parts of {args.method}": table}, ["Held-out training texts; one thread"], args.json)


if __name__ == "__main__":
    main()
