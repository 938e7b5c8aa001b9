"""Fields of a text, such as title and body: joined, weighted, or with separate terms.

    python benchmarks/fields.py debian-debtags wordnet-hypernyms

The texts of four corpora are split into two fields: title and author of books, name and rest of manual pages, first line and
description of packages, words and gloss of a dictionary. `plt` is fitted to a random part of the training data with every
way to use the fields, and evaluated on up to 3,000 held-out training samples; the test data is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from common import Row, make_parser, print_progress, report

from features import measure, split_corpus
from longtail import Dataset
from longtail.data.layout import FIELD_SEPARATOR

Split = Callable[[str], tuple[str, str, str]]  # first field, separator, second field
FIELDS: dict[str, tuple[str, Split]] = {
    "gutenberg-lcsh": ("title, author", lambda text: text.rpartition(" / ")),
    "manpages-seealso": ("name, rest of the page", lambda text: text.removeprefix("NAME\n").partition("\n\n")),
    "debian-debtags": ("package, description", lambda text: text.partition(": ")),
    "wordnet-hypernyms": ("words, gloss", lambda text: text.partition(": ")),
}
SETTINGS = {
    "joined": "",
    "first field counts twice": "+field_weights=2,1",
    "first field counts three times": "+field_weights=3,1",
    "separate terms": "+field_terms=true",
}


def split_texts(data: Dataset, split: Split) -> Dataset:
    """Split each text into two fields."""
    parts = [split(text) for text in data.texts or ()]
    return replace(data, texts=[f"{first}{FIELD_SEPARATOR}{second}" for first, _, second in parts])


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="*", default=list(FIELDS))
    parser.add_argument("--samples", type=int, default=20000, help="size of the random part (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample, the held-out data and the models")
    args = parser.parse_args()
    tables = {}
    for name in args.corpora:
        names, split = FIELDS[name]
        train, held_out = (split_texts(part, split) for part in split_corpus(name, args.samples, args.seed, test=False))
        rows: list[Row] = []
        for title, settings in SETTINGS.items():
            values, _ = measure(f"plt{settings}", train, held_out, args.seed)
            rows.append({"fields": title, **values})
            print_progress(f"{name}: {title} {values['P@1']:.2f} {values['P@5']:.2f} {values['PSP@5']:.2f}")
        tables[f"{name}: {names}; {train.n_samples:,} samples, {held_out.n_samples:,} held out"] = rows
    report(tables, ["plt with its defaults otherwise, one thread"], args.json)


if __name__ == "__main__":
    main()
