"""Methods on corpora with thousands of labels: accuracy on held-out training data, CPU seconds, size and peak memory.

    python benchmarks/many_labels.py gutenberg-lcsh --texts 20000 --spec secseq --spec "plt+ngrams=1"

Trained on a random part of the training data, measured on up to 2,000 held-out training texts, which are the same for every
part; the test data is not read. One thread, one process per run.
"""

from __future__ import annotations

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report, save_and_load
from peers import LIMITS, run

CORPORA = ("gutenberg-lcsh", "finna-yso-en", "manpages-seealso", "debian-debtags", "reuters21578-modapte")
SPECS = ("plt+ngrams=1", "secseq", "secseq+node_vectors=false", "secseq+start=random+node_vectors=false", "lightattention")
METRICS = ("P@1", "P@3", "P@5", "PSP@5")
MAX_HELD_OUT = 2000


def measure(name: str, spec: str, n_texts: int | None, seed: int) -> Row:
    """Train and evaluate one method."""
    from longtail.spec import MethodSpec

    data = read_corpus(name)
    rows = np.random.default_rng(0).permutation(data.n_samples)
    n_held_out = min(MAX_HELD_OUT, data.n_samples // 8)
    train, held_out = data.take(np.sort(rows[n_held_out:][:n_texts])), data.take(np.sort(rows[:n_held_out]))
    with Stopwatch() as training:
        tagger = MethodSpec.parse(spec).build(seed=seed, threads=1).fit(train, progress=False)
    tagger, n_mb = save_and_load(tagger)
    values = tagger.evaluate(held_out).values
    labels = int((tagger.model.label_counts > 0).sum())
    accuracy = {metric: values[metric] for metric in METRICS}
    return {"texts": train.n_samples, "labels": labels, **accuracy, "train CPU-s": training.cpu, "model MB": n_mb}


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="*", default=CORPORA)
    parser.add_argument("--texts", type=int, default=None, help="train on this many random texts; default: all")
    parser.add_argument("--spec", action="append", help="a method with its settings; may be repeated")
    parser.add_argument("--seeds", type=int, default=1, help="runs with different seeds (%(default)s)")
    args = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    table: list[Row] = []
    for name in args.corpora:
        for spec in args.spec or SPECS:
            for seed in range(args.seeds):
                done = run("longtail", measure, env=one_thread, name=name, spec=spec, n_texts=args.texts, seed=seed)
                table.append({"corpus": name, "method": spec, "seed": seed, **done.result, "peak MB": done.peak})
                print_progress(f"{name}, {spec}, seed {seed}: {table[-1]['P@1']:.2f} {table[-1]['P@5']:.2f}")
    report({"Many labels": table}, ["Held-out training texts; one thread"], args.json)


if __name__ == "__main__":
    main()
