"""`glas` next to `plt` on held-out training data of corpora with thousands of labels, from samples of their training data.

    python benchmarks/glas_many_labels.py gutenberg-lcsh --samples 8000

The test data is not read. 1/8 of the samples are held out; one thread. ``--spec`` adds settings to compare.
"""

from __future__ import annotations

from common import Row, make_parser, print_progress, report

from features import measure, split_corpus

CORPORA = ("manpages-seealso", "gutenberg-lcsh", "finna-yso-en", "finna-yso-fi", "debian-debtags")
SPECS = ("glas", "plt")


def main() -> None:
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="*", default=CORPORA)
    parser.add_argument("--samples", type=int, default=None, help="use a random sample of the training data")
    parser.add_argument("--seeds", type=int, default=1, help="of the sample, the held-out data and the models")
    parser.add_argument("--spec", action="append", help=f"what is compared; repeatable ({', '.join(SPECS)})")
    given = parser.parse_args()
    tables, notes = {}, []
    for name in given.corpora:
        rows: list[Row] = []
        for seed in range(given.seeds):
            train, held_out = split_corpus(name, given.samples, seed, test=False)
            for spec in given.spec or SPECS:
                values, tagger = measure(spec, train, held_out, seed)
                rows.append({"method": spec, "seed": seed, **values, "labels": tagger.model.n_seen})
                print_progress(f"{name}: {rows[-1]}")
                notes += [f"{name}, {spec}, seed {seed}: {decision}" for decision in tagger.pipeline.decisions]
        tables[f"{name}, {train.n_samples:,} samples, {held_out.n_samples:,} to evaluate"] = rows
    report(tables, notes, given.json)


if __name__ == "__main__":
    main()
