"""Which methods a blend should have as members: accuracy of combinations on held-out training data.

    python benchmarks/blend_members.py gutenberg-lcsh manpages-seealso --samples 12000

Each method is trained once, on a random part of the training data. A quarter of the training data is held out: the weights
of a blend are fitted to one half of that, the other half is scored. The test data is not read.
"""

from __future__ import annotations

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report

from longtail import Tagger, blend

CORPORA = ("gutenberg-lcsh", "finna-yso-fi", "finna-yso-en", "manpages-seealso", "debian-debtags", "reuters21578-modapte")
METHODS = ("plt", "plt+ngrams=1", "hierarchicalxc", "glas", "secseq")
BLENDS = (
    ("plt+ngrams=1", "plt"),
    ("plt", "glas"),
    ("plt", "secseq"),
    ("plt", "hierarchicalxc"),
    ("plt", "glas", "secseq"),
    ("plt", "hierarchicalxc", "glas"),
    ("plt", "hierarchicalxc", "glas", "secseq"),
)
METRICS = ("P@1", "P@5", "PSP@5")
MAX_HELD_OUT = 6000


def measure(name: str, n_samples: int | None, seed: int) -> list[Row]:
    """Train the methods on one corpus, and score them and their blends."""
    data = read_corpus(name)
    rows = np.random.default_rng(seed).permutation(data.n_samples)[:n_samples]
    n_held_out = min(len(rows) // 4, MAX_HELD_OUT)
    train = data.take(np.sort(rows[n_held_out:]))
    fitted, scored = data.take(rows[: n_held_out // 2]), data.take(rows[n_held_out // 2 : n_held_out])
    taggers, table = {}, []

    def add(title: str, tagger: Tagger, cpu: float) -> None:
        values = tagger.evaluate(scored).values
        table.append({"method": title, **{metric: values[metric] for metric in METRICS}, "train CPU-s": cpu})
        print_progress(f"{name}, {title}: " + " ".join(f"{values[metric]:.2f}" for metric in METRICS))

    for spec in METHODS:
        with Stopwatch() as watch:
            taggers[spec] = Tagger(spec, seed=seed, threads=1, calibrate=False, unseen=False).fit(train, progress=False)
        add(spec, taggers[spec], watch.cpu)
    for specs in BLENDS:
        with Stopwatch() as watch:
            blended = blend([taggers[spec] for spec in specs], fitted)
        add(" & ".join(specs), blended, watch.cpu + sum(row["train CPU-s"] for row in table if row["method"] in specs))
    return table


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="*", default=CORPORA)
    parser.add_argument("--samples", type=int, default=None, help="use a random part of the training data")
    parser.add_argument("--seed", type=int, default=0, help="of the parts and the methods")
    args = parser.parse_args()
    tables = {name: measure(name, args.samples, args.seed) for name in args.corpora}
    report(tables, ["Held-out training data; one thread"], args.json)


if __name__ == "__main__":
    main()
