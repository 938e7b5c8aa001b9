"""Names of labels as training texts: `plt` with and without them, on held-out training data.

    python benchmarks/names.py
    python benchmarks/names.py finna-yso-en --samples 100000

One tree on single words with C 1 (subwords for Finnish), so that nothing is chosen. Trained on a random part of the training
data, evaluated on up to 2,000 held-out training samples; the test data is not read. The labels are those of the part.
"""

from __future__ import annotations

import numpy as np
from common import Row, make_parser, print_progress, read_corpus, report

from features import METRICS, measure
from longtail import Dataset

SAMPLES = {
    "finna-yso-en": 15_000,
    "finna-yso-fi": 20_000,
    "gutenberg-lcsh": 20_000,
    "reuters21578-modapte": 7_000,
    "debian-debtags": 22_000,
    "wordnet-hypernyms": 20_000,
    "manpages-seealso": 9_000,
}
SPEC = "plt+ngrams=1+min_df=1+subwords={subwords}+C=1+n_trees=1+train_on_names={names}"
MAX_HELD_OUT = 2000


def split_part(name: str, n_samples: int, seed: int) -> tuple[Dataset, Dataset]:
    """Return a random part of the training data without labels that are not in it, and held-out data."""
    data = read_corpus(name)
    rows = np.random.default_rng(seed).permutation(data.n_samples)
    n_held_out = min(MAX_HELD_OUT, data.n_samples // 8)
    part, held_out = data.take(np.sort(rows[n_held_out:][:n_samples])), data.take(np.sort(rows[:n_held_out]))
    texts = part.texts or ()
    return Dataset.from_texts(texts, [part.get_label_names(row) for row in range(part.n_samples)]), held_out


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="*", default=list(SAMPLES))
    parser.add_argument("--samples", type=int, help="training samples; default: 7,000 to 22,000")
    parser.add_argument("--seed", type=int, default=0, help="of the part and of the held-out data")
    args = parser.parse_args()
    table: list[Row] = []
    for name in args.corpora:
        train, held_out = split_part(name, args.samples or SAMPLES[name], args.seed)
        row: Row = {"corpus": name, "samples": train.n_samples, "labels": train.n_labels}
        for title, names in (("samples alone", "false"), ("and names", "true")):
            spec = SPEC.format(subwords=3 if name.endswith("-fi") else 0, names=names)
            values, _ = measure(spec, train, held_out, args.seed)
            row[title] = " / ".join(f"{values[metric]:.1f}" for metric in METRICS)
            row[f"CPU-s, {title}"] = values["train CPU-s"]
            print_progress(f"{name}, {title}: {row[title]}")
        table.append(row)
    report({f"{' / '.join(METRICS)}": table}, ["Held-out training data; one tree, one thread"], args.json)


if __name__ == "__main__":
    main()
