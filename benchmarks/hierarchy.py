"""HierarchicalXC: trees and searches compared with the label trees of ``plt``: accuracy, depth, balance, cost and latency.

Trained on ``train``, measured once on ``test``; nothing is tuned on it. One thread. Every tree is trained once and searched
both best-first and hard, as published. With --seeds, figures are means over seeds, followed by their range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from common import MB, Row, Stopwatch, draw_rows, make_parser, print_progress, report, time_median_ms
from linear_trees import load_problem
from peers import LIMITS, run

CORPORA = ("bibtex", "delicious", "debian-debtags")
LARGE = ("manpages-seealso", "gutenberg-lcsh", "finna-yso-en")  # with --corpus only
BINARY: Row = {"fanout": 2, "loss": "logistic", "C": 10.0}
VARIANTS: dict[str, Row] = {
    "best": {},
    "best, logistic": {"loss": "logistic"},
    "best, 2-means only": {"linkage": "balanced"},
    "best, binary": {"fanout": 2},
    "count, complete": {**BINARY, "distance": "count", "linkage": "complete"},
    "count, average": {**BINARY, "distance": "count", "linkage": "average"},
    "IoU, complete": {**BINARY, "linkage": "complete"},
    "IoU, average": {**BINARY, "linkage": "average"},
    "balanced 2-means": {**BINARY, "linkage": "balanced"},
    "paper": {},
    "paper, ties by 2-means": {"ties": "balanced"},
    "paper, linear code": {"encoder": None, "code": 256},
    "paper, no code": {"encoder": None},
}
PLT = "plt, best"
SEARCHES = {"": "best-first", "hard ": "hard"}
N_SINGLE = 200  # samples that are predicted one at a time


def measure(name: str, variant: str, seed: int) -> Row:
    """Train one tree and search it both ways."""
    from longtail.models.hierarchicalxc.model import HierarchicalXC

    settings, as_published = VARIANTS[variant], variant.startswith("paper")
    if as_published:
        paper = HierarchicalXC.preset("paper")
        settings = {name: value for name, value in paper.items() if name in HierarchicalXC.param_names()} | settings
    X, Y, X_test, Y_test = load_problem(name, normalise=not as_published)
    model, out = train(HierarchicalXC(threads=1, seed=seed, **settings), X, Y)
    out = measure_shape(model) | out
    for title, search in SEARCHES.items():
        model.set_params(search=search)
        out |= {title + key: value for key, value in measure_search(model, X_test, Y_test).items()}
    return out


def measure_label_trees(name: str, seed: int) -> Row:
    """``plt`` on the same features."""
    from longtail.models.plt.model import LabelTrees

    X, Y, X_test, Y_test = load_problem(name)
    model, out = train(LabelTrees(threads=1, seed=seed), X, Y)
    return out | measure_search(model, X_test, Y_test)


def train(model: Any, X: sp.csr_array, Y: sp.csr_array) -> tuple[Any, Row]:
    """Fit a model, and measure its cost."""
    type(model)(**{**model.get_params(), "C": 1.0}).fit(X[:50], Y[:50]).topk(X[:1], 5)  # compiles
    with Stopwatch() as training:
        model.fit(X, Y)
    return model, {"train CPU-s": training.cpu, "model MB": sum(array.nbytes for array in model.state().values()) / MB}


def measure_search(model: Any, X: sp.csr_array, Y: sp.csr_array) -> Row:
    """Accuracy and latency of one search; test labels without training samples count as missed."""
    from longtail.metrics.ranking import score_samples

    values = score_samples(model.topk(X, 5), Y, np.ones(Y.shape[1])).values()
    rows = [X[[i]] for i in draw_rows(X.shape[0], N_SINGLE)]
    return {
        **{f"P@{k}": values[f"P@{k}"] for k in (1, 3, 5)},
        "ms": time_median_ms(lambda i: model.topk(rows[i], 5), len(rows)),
    }


def measure_shape(model: Any) -> Row:
    """Depth of the labels: maximum, mean, and mean weighted by frequency; and how balanced the tree is."""
    tree, counts = model.label_tree, model.label_counts
    leaves = tree.n_children == 0
    depth = tree.depth[leaves]
    sizes = tree.n_labels_below
    inner = np.flatnonzero(tree.n_children)
    largest = np.array([sizes[tree.first_child[node] : tree.first_child[node + 1]].max() for node in inner])
    return {
        "depth": int(depth.max()),
        "mean depth": float(depth.mean()),
        "by frequency": float(np.average(depth, weights=counts[tree.label[leaves]])),
        # share of a node's labels that are below its largest child, weighted by labels: 0.5 for a balanced binary tree
        "largest child": float(np.average(largest / sizes[inner], weights=sizes[inner])),
    }


def summarise(runs: list[Row]) -> Row:
    """Means over seeds; of P@k also the range."""
    out: Row = {}
    for name in runs[0]:
        values = [row[name] for row in runs]
        out[name] = float(np.mean(values)) if len(runs) > 1 else values[0]
        if len(runs) > 1 and "P@" in name:
            out[name] = f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
    return out


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA + LARGE, help="only this one; may be given again")
    parser.add_argument("--tree", action="append", choices=[*VARIANTS, PLT], help="only this one; may be given again")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    tables: dict[str, list[Row]] = {}
    for name in given.corpus or CORPORA:
        rows = tables[f"HierarchicalXC on {name}"] = []
        for variant in given.tree or [*VARIANTS, PLT]:
            print_progress(f"{name}: {variant}")
            work, which = (measure_label_trees, {}) if variant == PLT else (measure, {"variant": variant})
            done = [run("longtail", work, env=one_thread, name=name, seed=i, **which) for i in range(given.seeds)]
            row = summarise([each.result for each in done])
            rows.append({"tree": variant, **row, "peak MB": max(each.peak for each in done)})
    notes = [
        f"One thread, {given.seeds} seeds from 0; single words as features; train CPU-s from features",
        f"ms: one sample at a time from features, median of {N_SINGLE}, k = 5; hard: visits only children with P >= 0.5",
        "by frequency: mean depth weighted by frequency; largest child: share of a node's labels below it",
    ]
    report(tables, notes, given.json)


if __name__ == "__main__":
    main()
