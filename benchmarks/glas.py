"""GLaS as published and as we would use it, beside label trees: accuracy, overfitting, cost and latency on the real corpora.

Trained on ``train``, measured once on ``test``; nothing is chosen there. One thread, seed 0, each method in its own process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Row, Stopwatch, arguments, corpus, median_ms, note, report, saved
from peers import LIMITS, run

CORPORA = ("bibtex", "delicious", "debian-debtags", "gutenberg-lcsh", "finna-yso-en")
METHODS: dict[str, dict[str, Any]] = {
    "glas, paper": {"method": "glas", "preset": "paper"},
    "glas, best": {"method": "glas"},
    "glas, best, d = 1024": {"method": "glas", "d": 1024},
    "plt, best": {"method": "plt"},
}
WIDE = ("gutenberg-lcsh",)  # corpora of so many labels for their samples that 256 numbers are few
SHOWN = tuple(f"{metric}@{k}" for metric in ("P", "nDCG", "PSP") for k in (1, 3, 5))
N_TRAIN = 2000  # training samples on which the fit to the training data is measured
N_SINGLE = 200  # samples that are predicted one by one


def measure(name: str, method: str, **settings: str | float) -> Row:
    """Train, save, load and evaluate one method on one corpus."""
    import longtail

    train, test = corpus(name), corpus(name, "test")
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1, **settings).fit(train)
    tagger, n_mb = saved(tagger)
    values = figures(tagger, test)
    rows = np.random.default_rng(1).permutation(train.n_samples)[:N_TRAIN]  # seed 0 would draw those held out
    on_train = figures(tagger, train.take(np.sort(rows)))["P@1"]
    inputs = test.take(np.arange(min(N_SINGLE, test.n_samples))).inputs
    X = tagger.features.transform(inputs)
    latency = median_ms(lambda i: tagger.model.topk(X[i : i + 1], 5), X.shape[0])
    return {
        **{metric: values[metric] for metric in SHOWN},
        "P@1 on train": on_train,
        "train CPU-s": training.cpu,
        "model MB": n_mb,
        "ms a sample": latency,
    }


def figures(tagger: Any, data: Any) -> dict[str, float]:
    """P, nDCG and PSP of a tagger; labels that training did not know count as missed."""
    from longtail.metrics.evaluate import evaluate

    model, Y = tagger.model, data.aligned(tagger.known_labels).Y
    best = tagger.topk(data.inputs, 5)
    return evaluate(best, Y, label_counts=model.label_counts, n_train=model.n_samples).values


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; may be given again")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; may be given again")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows = []
    for name in given.corpus or CORPORA:
        for title, settings in METHODS.items():
            if title not in (given.method or METHODS) or ("d" in settings and name not in WIDE):
                continue
            note(f"{name}: {title}")
            done = run("longtail", measure, env=one_thread, name=name, **settings)
            rows.append({"corpus": name, "method": title, **done.result, "peak MB": done.peak})
            note(", ".join(f"{metric} {rows[-1][metric]:.2f}" for metric in SHOWN))
    notes = [
        "One thread, seed 0; train CPU-s from raw text or vectors, each preset with its own text features",
        f"P@1 on train: on {N_TRAIN:,} training samples; ms a sample: median of {N_SINGLE} from features, one by one, k = 5",
    ]
    report({"GLaS beside label trees": rows}, notes, given.json)


if __name__ == "__main__":
    main()
