"""HierarchicalXC: trees and searches compared with the label trees of ``plt``: accuracy, depth, balance, cost and latency.

Trained on ``train``, measured once on ``test``; nothing is tuned on it. One thread, seed 0. Every tree is trained once and
searched both best-first and hard, as published. ``paper, arbitrary ties`` is the tree of the published code: scipy breaks
the ties of complete linkage arbitrarily, and most pairs of labels tie because they never co-occur. longtail breaks ties by
balanced 2-means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from common import MB, Row, Stopwatch, draw_rows, make_parser, print_progress, report, time_median_ms
from linear_trees import load_problem
from peers import LIMITS, run

CORPORA = ("bibtex", "delicious", "debian-debtags")
LARGE = ("gutenberg-lcsh", "finna-yso-en")  # with --corpus only, for complete linkage or balanced: other trees are too deep
ARBITRARY_TIES = "paper, arbitrary ties"
VARIANTS: dict[str, Row] = {
    "best": {},
    "count, complete": {"distance": "count", "linkage": "complete"},
    "count, average": {"distance": "count", "linkage": "average"},
    "IoU, complete": {"linkage": "complete"},
    "IoU, average": {"linkage": "average"},
    "balanced 2-means": {"linkage": "balanced"},
    "paper": {"code": 256, "distance": "count", "linkage": "complete"},
    ARBITRARY_TIES: {"code": 256, "distance": "count", "linkage": "complete"},
}
PLT = "plt, best"
SEARCHES = {"": "best-first", "hard ": "hard"}
N_SINGLE = 200  # samples that are predicted one at a time


def measure(name: str, variant: str) -> Row:
    """Train one tree and search it both ways."""
    from longtail.models.hierarchicalxc import model as hierarchicalxc

    if variant == ARBITRARY_TIES:
        hierarchicalxc.build_agglomerative_tree = build_scipy_tree  # type: ignore[assignment]
    X, Y, X_test, Y_test = load_problem(name)
    model, out = train(hierarchicalxc.HierarchicalXC(threads=1, **VARIANTS[variant]), X, Y)
    out = measure_shape(model) | out
    for title, search in SEARCHES.items():
        model.set_params(search=search)
        out |= {title + key: value for key, value in measure_search(model, X_test, Y_test).items()}
    return out


def measure_label_trees(name: str) -> Row:
    """``plt`` on the same features."""
    from longtail.models.plt.model import LabelTrees

    X, Y, X_test, Y_test = load_problem(name)
    model, out = train(LabelTrees(threads=1), X, Y)
    return out | measure_search(model, X_test, Y_test)


def train(model: Any, X: sp.csr_array, Y: sp.csr_array) -> tuple[Any, Row]:
    """Fit a model, and measure its cost."""
    type(model)(**model.get_params()).fit(X[:50], Y[:50]).topk(X[:1], 5)  # compiles
    with Stopwatch() as training:
        model.fit(X, Y)
    return model, {"train CPU-s": training.cpu, "model MB": sum(array.nbytes for array in model.state().values()) / MB}


def measure_search(model: Any, X: sp.csr_array, Y: sp.csr_array) -> Row:
    """Accuracy and latency of one search; test labels without training samples count as missed."""
    from longtail.metrics.ranking import score_samples

    values = score_samples(model.topk(X, 5), Y, np.ones(Y.shape[1])).values()
    rows = [X[[i]] for i in draw_rows(X.shape[0], N_SINGLE)]
    return {
        "P@1/3/5": "/".join(f"{values[f'P@{k}']:.2f}" for k in (1, 3, 5)),
        "ms": time_median_ms(lambda i: model.topk(rows[i], 5), len(rows)),
    }


def measure_shape(model: Any) -> Row:
    """Depth of the labels: maximum, mean, and mean weighted by frequency; and the balance of the tree."""
    tree, counts = model.label_tree, model.label_counts
    leaves = tree.n_children == 0
    depth = tree.depth[leaves]
    sizes = tree.n_labels_below
    inner = np.flatnonzero(tree.n_children == 2)
    smaller = np.minimum(sizes[tree.first_child[inner]], sizes[tree.first_child[inner] + 1])
    return {
        "depth": int(depth.max()),
        "mean depth": float(depth.mean()),
        "by frequency": float(np.average(depth, weights=counts[tree.label[leaves]])),
        # share of the labels below the smaller child of a node, weighted by labels: 0.5 for a balanced tree
        "balance": float(np.average(smaller / sizes[inner], weights=sizes[inner])),
    }


def build_scipy_tree(Y: sp.csr_array, *_: Any, **__: Any) -> Any:
    """The tree of the published code: scipy's complete linkage, which breaks ties arbitrarily."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    from longtail.labelspace.tree import INNER_NODE, build_tree
    from longtail.models.hierarchicalxc.clustering import compute_similarities

    labels = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]))
    both = compute_similarities(Y[:, labels], "count").toarray()
    Z = linkage(squareform(both.max() - both.astype(float), checks=False), "complete")
    n = len(labels)
    parent = np.full(2 * n - 1, -1)
    parent[Z[:, :2].astype(int)] = np.arange(n, 2 * n - 1)[:, None]
    return build_tree(parent, np.concatenate([labels, np.full(n - 1, INNER_NODE)]))


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA + LARGE, help="only this one; may be given again")
    parser.add_argument("--tree", action="append", choices=[*VARIANTS, PLT], help="only this one; may be given again")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    tables: dict[str, list[Row]] = {}
    for name in given.corpus or CORPORA:
        rows = tables[f"HierarchicalXC on {name}"] = []
        for variant in given.tree or [*VARIANTS, PLT]:
            print_progress(f"{name}: {variant}")
            work, which = (measure_label_trees, {}) if variant == PLT else (measure, {"variant": variant})
            done = run("longtail", work, env=one_thread, name=name, **which)
            rows.append({"tree": variant, **done.result, "peak MB": done.peak})
    notes = [
        "One thread, seed 0; single words as features; train CPU-s from features",
        f"ms: one sample at a time from features, median of {N_SINGLE}, k = 5; hard: visits only children with P >= 0.5",
        "by frequency: mean depth weighted by frequency; balance: share of the labels below the smaller child of a node",
    ]
    report(tables, notes, given.json)


if __name__ == "__main__":
    main()
