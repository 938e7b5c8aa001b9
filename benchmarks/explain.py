"""Explanations: does the first label of a text change when the words that an explanation names are removed?

Compared with removing the same number of random words. Trained on a part of the training texts of package descriptions,
evaluated on others of them; no test data is used.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from common import Row, make_parser, print_progress, read_corpus, report, time_median_ms

CORPUS = "debian-debtags"
METHODS = ("ovr", "plt", "hierarchicalxc", "glas", "neuralxc", "aplc", "lightattention", "secseq", "blend")
N_TRAIN, N_EXPLAINED, N_REMOVED = 6000, 300, 3


def remove_words(text: str, words: list[str]) -> str:
    """Remove all occurrences of some words from a text."""
    return re.sub(rf"\b({'|'.join(map(re.escape, words))})\b", " ", text, flags=re.IGNORECASE) if words else text


def measure(method: str, train: Any, texts: list[str]) -> Row:
    """Measure how often the first label changes, and what an explanation costs."""
    from longtail import Tagger

    tagger, random = Tagger(method, threads=1).fit(train), np.random.default_rng(0)
    labels = [tags[0].label for tags in tagger.predict(texts, 1)]
    without_explanation, without_random = [], []
    for text, label in zip(texts, labels, strict=True):
        single = [word for word, weight in tagger.explain(text, label).words if weight > 0 and " " not in word]
        without_explanation.append(remove_words(text, single[:N_REMOVED]))
        distinct = sorted(set(re.findall(r"\w+", text.lower())))
        without_random.append(remove_words(text, random.permutation(distinct)[:N_REMOVED].tolist()))
    changed = [
        100 * float(np.mean([tags[0].label != label for tags, label in zip(tagger.predict(others, 1), labels, strict=True)]))
        for others in (without_explanation, without_random)
    ]
    return {
        "method": method,
        "words of the explanation, %": changed[0],
        "random words, %": changed[1],
        "one text explained, ms": time_median_ms(lambda i: tagger.explain_topk(texts[i], 5), 50),
        "predicted, ms": time_median_ms(lambda i: tagger.predict([texts[i]], 5), 50),
    }


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--method", action="append", choices=METHODS, help="only this method; may be repeated")
    given = parser.parse_args()
    data = read_corpus(CORPUS)
    order = np.random.default_rng(0).permutation(data.n_samples)
    train, explained = data.take(order[:N_TRAIN]), data.take(order[N_TRAIN : N_TRAIN + N_EXPLAINED])
    rows = []
    for method in given.method or METHODS:
        print_progress(f"explain: {method}")
        rows.append(measure(method, train, list(explained.texts or [])))
    notes = [
        f"{CORPUS}: {N_TRAIN:,} training texts to train on, {N_EXPLAINED} others to explain; seed 0, one thread",
        f"%: texts whose first label changes when all occurrences of {N_REMOVED} distinct words are removed",
        "ms: medians of 50 texts, five labels each",
    ]
    report({"First labels that change": rows}, notes, given.json)


if __name__ == "__main__":
    main()
