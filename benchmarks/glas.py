"""GLaS with both presets, and label trees: accuracy, overfitting, cost and latency on the real corpora.

Trained on ``train``, measured once on ``test``; no setting is chosen there. One thread, seed 0, one process per method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Row, Stopwatch, draw_rows, make_parser, print_progress, read_corpus, report, save_and_load, time_median_ms
from peers import LIMITS, run

CORPORA = ("bibtex", "delicious", "debian-debtags", "gutenberg-lcsh", "finna-yso-en")
METHODS: dict[str, dict[str, Any]] = {
    "glas, paper": {"method": "glas", "preset": "paper"},
    "glas, best": {"method": "glas"},
    "glas, best, dim = 1024": {"method": "glas", "dim": 1024},
    "plt, best": {"method": "plt"},
}
HIGH_DIM_CORPORA = ("gutenberg-lcsh",)  # has 36,139 labels, for which 256 dimensions may be too few
METRICS = tuple(f"{metric}@{k}" for metric in ("P", "nDCG", "PSP") for k in (1, 3, 5))
N_TRAIN = 2000  # training samples on which overfitting is measured
N_SINGLE = 200  # samples that are predicted one by one, for the latency


def measure(name: str, method: str, **settings: str | float) -> Row:
    """Train, save, load and evaluate one method on one corpus."""
    import longtail

    train, test = read_corpus(name), read_corpus(name, "test")
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1, **settings).fit(train)
    tagger, n_mb = save_and_load(tagger)
    values = evaluate_tagger(tagger, test)
    rows = np.random.default_rng(1).permutation(train.n_samples)[:N_TRAIN]  # seed 0 would draw the held-out samples
    on_train = evaluate_tagger(tagger, train.take(np.sort(rows)))["P@1"]
    inputs = test.take(draw_rows(test.n_samples, N_SINGLE)).inputs
    X = tagger.features.transform(inputs)
    latency = time_median_ms(lambda i: tagger.model.topk(X[i : i + 1], 5), X.shape[0])
    return {
        **{metric: values[metric] for metric in METRICS},
        "P@1 on train": on_train,
        "train CPU-s": training.cpu,
        "model MB": n_mb,
        "ms per sample": latency,
    }


def evaluate_tagger(tagger: Any, data: Any) -> dict[str, float]:
    """P, nDCG and PSP; labels that are not in the training data count as missed."""
    from longtail.metrics.evaluate import evaluate

    model, Y = tagger.model, data.align(tagger.labels).Y
    best = tagger.topk(data.inputs, 5)
    return evaluate(best, Y, label_counts=model.label_counts, n_train=model.n_samples).values


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; repeatable")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; repeatable")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows = []
    for name in given.corpus or CORPORA:
        for title, settings in METHODS.items():
            if title not in (given.method or METHODS) or ("dim" in settings and name not in HIGH_DIM_CORPORA):
                continue
            print_progress(f"{name}: {title}")
            done = run("longtail", measure, env=one_thread, name=name, **settings)
            rows.append({"corpus": name, "method": title, **done.result, "peak MB": done.peak})
            print_progress(", ".join(f"{metric} {rows[-1][metric]:.2f}" for metric in METRICS))
    notes = [
        "One thread, seed 0; train CPU-s from raw text or vectors, each preset with its own text features",
        f"P@1 on train: on {N_TRAIN:,} training samples; ms per sample: from features, median of {N_SINGLE}, k = 5",
    ]
    report({"GLaS and label trees": rows}, notes, given.json)


if __name__ == "__main__":
    main()
