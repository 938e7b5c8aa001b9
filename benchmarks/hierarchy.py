"""HierarchicalXC: its trees and searches, beside label trees of ``plt``: accuracy, depth, balance, cost and latency.

Trained on ``train``, measured once on ``test``; nothing is chosen there. One thread, seed 0. Every tree is trained once and
searched best-first and, as published, hard. ``paper, ties as they come`` is the published tree where scipy breaks the ties
of complete linkage, most of which are between labels that never stand together; ours are broken by balanced 2-means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from common import MB, Row, Stopwatch, arguments, median_ms, note, report
from linear_trees import problem
from peers import LIMITS, run

CORPORA = ("bibtex", "delicious", "debian-debtags")
LARGE = ("gutenberg-lcsh", "finna-yso-en")  # only if asked for: with complete linkage or balanced, others are chains there
TIES = "paper, ties as they come"
VARIANTS: dict[str, Row] = {
    "best": {},
    "count, complete": {"distance": "count", "linkage": "complete"},
    "count, average": {"distance": "count", "linkage": "average"},
    "IoU, complete": {"linkage": "complete"},
    "IoU, average": {"linkage": "average"},
    "balanced 2-means": {"linkage": "balanced"},
    "paper": {"code": 256, "distance": "count", "linkage": "complete"},
    TIES: {"code": 256, "distance": "count", "linkage": "complete"},
}
PLT = "plt, best"
SEARCHES = {"": "best-first", "hard ": "hard"}
N_SINGLE = 200  # samples that are predicted one by one


def measure(name: str, variant: str) -> Row:
    """Train one tree and search it in both ways."""
    from longtail.models.hierarchicalxc import model as hierarchicalxc

    if variant == TIES:
        hierarchicalxc.agglomerated = scipy_tree  # type: ignore[assignment]
    X, Y, X_test, Y_test = problem(name)
    model, out = trained(hierarchicalxc.HierarchicalXC(threads=1, **VARIANTS[variant]), X, Y)
    out = shape(model) | out
    for title, search in SEARCHES.items():
        model.set_params(search=search)
        out |= {title + key: value for key, value in searched(model, X_test, Y_test).items()}
    return out


def label_trees(name: str) -> Row:
    """``plt`` on the same features."""
    from longtail.models.plt import LabelTrees

    X, Y, X_test, Y_test = problem(name)
    model, out = trained(LabelTrees(threads=1), X, Y)
    return out | searched(model, X_test, Y_test)


def trained(model: Any, X: sp.csr_array, Y: sp.csr_array) -> tuple[Any, Row]:
    """A model and what it cost."""
    type(model)(**model.get_params()).fit(X[:50], Y[:50]).topk(X[:1], 5)  # compiles
    with Stopwatch() as training:
        model.fit(X, Y)
    return model, {"train CPU-s": training.cpu, "model MB": sum(array.nbytes for array in model.state().values()) / MB}


def searched(model: Any, X: sp.csr_array, Y: sp.csr_array) -> Row:
    """Accuracy and time of one search; labels that training did not know count as missed."""
    from longtail.metrics.ranking import per_sample

    values = per_sample(model.topk(X, 5), Y, np.ones(Y.shape[1])).values()
    rows = [X[[i]] for i in range(N_SINGLE)]
    return {
        "P@1/3/5": "/".join(f"{values[f'P@{k}']:.2f}" for k in (1, 3, 5)),
        "ms": median_ms(lambda i: model.topk(rows[i], 5), N_SINGLE),
    }


def shape(model: Any) -> Row:
    """How deep labels lie: at most, on average, on average over the samples; and how even the halves of a node are."""
    tree, counts = model.label_tree, model.label_counts
    leaves = tree.n_children == 0
    depth = tree.depth[leaves]
    sizes, _ = tree.summed_up()
    inner = np.flatnonzero(tree.n_children == 2)
    smaller = np.minimum(sizes[tree.first_child[inner]], sizes[tree.first_child[inner] + 1])
    return {
        "depth": int(depth.max()),
        "mean depth": float(depth.mean()),
        "by frequency": float(np.average(depth, weights=counts[tree.label[leaves]])),
        # share of a node's labels on its smaller side, averaged over labels: 0.5 where all is balanced
        "balance": float(np.average(smaller / sizes[inner], weights=sizes[inner])),
    }


def scipy_tree(Y: sp.csr_array, *_: Any, **__: Any) -> Any:
    """The published tree, by scipy, with its arbitrary choice between ties."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    from longtail.labelspace.tree import INNER, tree_from_parents
    from longtail.models.hierarchicalxc.clustering import similarities

    labels = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]))
    both = similarities(Y[:, labels], "count").toarray()
    Z = linkage(squareform(both.max() - both.astype(float), checks=False), "complete")
    n = len(labels)
    parent = np.full(2 * n - 1, -1)
    parent[Z[:, :2].astype(int)] = np.arange(n, 2 * n - 1)[:, None]
    return tree_from_parents(parent, np.concatenate([labels, np.full(n - 1, INNER)]))


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA + LARGE, help="only this one; may be given again")
    parser.add_argument("--tree", action="append", choices=[*VARIANTS, PLT], help="only this one; may be given again")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    tables: dict[str, list[Row]] = {}
    for name in given.corpus or CORPORA:
        rows = tables[f"HierarchicalXC on {name}"] = []
        for variant in given.tree or [*VARIANTS, PLT]:
            note(f"{name}: {variant}")
            work, which = (label_trees, {}) if variant == PLT else (measure, {"variant": variant})
            done = run("longtail", work, env=one_thread, name=name, **which)
            rows.append({"tree": variant, **done.result, "peak MB": done.peak})
    notes = [
        "One thread, seed 0; single words as features; train CPU-s from features",
        f"ms: one sample at a time from features, median of {N_SINGLE}, k = 5; hard: only into children with P >= 0.5",
        "by frequency: mean depth of the labels of the samples; balance: share of the labels on a node's smaller side",
    ]
    report(tables, notes, given.json)


if __name__ == "__main__":
    main()
