"""What the training data decides about features and C: `plt` with its defaults, and with fixed settings around them.

    python benchmarks/features.py manpages-seealso gutenberg-lcsh
    python benchmarks/features.py manpages-seealso --test

By default 1/8 of the training data is held out, at most 3,000 samples, and the test data is not read. The table shows how
far the defaults are from the best of the fixed settings.
"""

from __future__ import annotations

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report

from longtail import Dataset, Tagger

CORPORA = ("manpages-seealso", "debian-debtags", "reuters21578-modapte", "gutenberg-lcsh", "finna-yso-en", "finna-yso-fi")
NO_NAMES = "train_on_names=false"
WORDS = f"plt+ngrams=1+min_df=2+subwords=0+{NO_NAMES}"
FIXED = {
    "words, C 1": f"{WORDS}+C=1",
    "words, C 0.3": f"{WORDS}+C=0.3",
    "words, C 3": f"{WORDS}+C=3",
    "words, C 10": f"{WORDS}+C=10",
    "words of one text, too, C 1": f"plt+ngrams=1+min_df=1+subwords=0+C=1+{NO_NAMES}",
    "and names of labels, C 1": "plt+ngrams=1+min_df=1+subwords=0+C=1+train_on_names=true",
    "words and pairs, C 1": f"plt+ngrams=2+min_df=1+subwords=0+C=1+{NO_NAMES}",
    "words and subwords, C 1": f"plt+ngrams=1+min_df=1+subwords=3+C=1+{NO_NAMES}",
    "all of these, C 1": "plt+ngrams=2+min_df=1+subwords=3+C=1+train_on_names=true",
    "words, C 1, bm25": f"{WORDS}+C=1+weighting=bm25",
    "words, C 1, log-entropy": f"{WORDS}+C=1+weighting=log-entropy",
}
METRICS = ("P@1", "P@5", "PSP@5")
MAX_HELD_OUT = 3000


def split_corpus(name: str, n_samples: int | None, seed: int, test: bool) -> tuple[Dataset, Dataset]:
    """Training data and data to evaluate on: test data, or held-out training data."""
    data = read_corpus(name)
    rows = np.random.default_rng(seed).permutation(data.n_samples)[:n_samples]
    if test:
        return data.take(np.sort(rows)), read_corpus(name, "test")
    n_held_out = min(len(rows) // 8, MAX_HELD_OUT)
    return data.take(np.sort(rows[n_held_out:])), data.take(np.sort(rows[:n_held_out]))


def measure(spec: str, train: Dataset, held_out: Dataset, seed: int) -> tuple[Row, Tagger]:
    with Stopwatch() as watch:
        tagger = Tagger(spec, seed=seed, threads=1).fit(train, progress=False)
    values = tagger.evaluate(held_out).values
    return {**{name: values[name] for name in METRICS}, "train CPU-s": watch.cpu}, tagger


def main() -> None:
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="*", default=CORPORA)
    parser.add_argument("--samples", type=int, default=None, help="use a random sample of the training data")
    parser.add_argument("--seed", type=int, default=0, help="of the sample, the held-out data and the models")
    parser.add_argument("--test", action="store_true", help="evaluate on test data")
    parser.add_argument("--only", action="append", choices=FIXED, help="compare with this fixed setting; may be repeated")
    args = parser.parse_args()
    tables, notes = {}, []
    for name in args.corpora:
        train, held_out = split_corpus(name, args.samples, args.seed, args.test)
        rows: list[Row] = []
        fixed = {title: spec for title, spec in FIXED.items() if title in (args.only or FIXED)}
        for title, spec in {"defaults": "plt", **fixed}.items():
            values, tagger = measure(spec, train, held_out, args.seed)
            rows.append({"settings": title, **values})
            print_progress(f"{name}: {title} {values['P@1']:.2f} {values['P@5']:.2f} {values['PSP@5']:.2f}")
            if title == "defaults":
                notes += [f"{name}: {decision}" for decision in tagger.pipeline.decisions]
        behind = {metric: max(row[metric] for row in rows) - rows[0][metric] for metric in METRICS}
        found = ", ".join(f"{metric} {value:.2f}" for metric, value in behind.items())
        notes.append(f"{name}: the defaults are behind the best setting of each column by: {found}")
        tables[f"{name}, {train.n_samples:,} samples, {held_out.n_samples:,} to evaluate"] = rows
    report(tables, notes, args.json)


if __name__ == "__main__":
    main()
