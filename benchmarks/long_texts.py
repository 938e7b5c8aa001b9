"""How much of a long text ``lightattention``, ``aplc`` and ``secseq`` should read, and how: accuracy and CPU seconds.

Trained on nine tenths of the training data of manpages-seealso (manual pages of 833 words on average, up to 8,000), measured
on the tenth that is held out; the test data is not used. One thread, seed 0, one process per run.
"""

from __future__ import annotations

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report
from peers import LIMITS, run

CORPUS = "manpages-seealso"
HELD_OUT = 0.1
METRICS = ("P@1", "P@3", "P@5", "PSP@5")
RUNS = {  # what is read, by spec
    "plt+ngrams=1": "all words",
    "aplc": "all tokens, TF-IDF (the default)",
}


def measure(spec: str, n: int | None) -> Row:
    """Train on a random part of the training data, and evaluate on held-out pages, the same for every part."""
    from longtail.metrics.evaluate import evaluate
    from longtail.spec import MethodSpec

    data = read_corpus(CORPUS)
    order, n_held_out = np.random.default_rng(0).permutation(data.n_samples), int(HELD_OUT * data.n_samples)
    held_out, train = data.take(np.sort(order[:n_held_out])), data.take(np.sort(order[n_held_out:][:n]))
    tagger = MethodSpec.parse(spec).build(seed=0, threads=1)
    with Stopwatch() as training:
        tagger.fit(train)
    counted = {"label_counts": tagger.model.label_counts, "n_train": train.n_samples}
    with Stopwatch() as prediction:
        best = tagger.topk(held_out.inputs, 5)
    values = evaluate(best, held_out.align(tagger.labels).Y, **counted).values
    cost = {"train CPU-s": training.cpu, "ms per text": 1e3 * prediction.cpu / held_out.n_samples}
    return {**{metric: values[metric] for metric in METRICS}, **cost}


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--pages", type=int, help="train on this many random pages (default: all that are not held out)")
    parser.add_argument("--spec", action="append", help="only this run, or another one; repeatable")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows = []
    for spec in given.spec or RUNS:
        print_progress(spec)
        done = run("longtail", measure, env=one_thread, spec=spec, n=given.pages)
        rows.append({"run": spec, "reads": RUNS.get(spec, ""), **done.result, "peak MB": done.peak})
        print_progress(", ".join(f"{metric} {rows[-1][metric]:.2f}" for metric in METRICS))
    report({f"Long texts: {CORPUS}": rows}, ["One thread, seed 0, held-out training pages"], given.json)


if __name__ == "__main__":
    main()
