"""Explanations: does the first label change when the words that speak most for it are taken out of a text?

Beside it, the same with as many words drawn at random. Trained on a part of the training texts of package descriptions,
asked about others of them; test data are not looked at.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from common import Row, arguments, corpus, median_ms, note, report

CORPUS = "debian-debtags"
METHODS = ("ovr", "plt", "hierarchicalxc", "glas", "neuralxc", "aplc", "lightattention", "secseq", "blend")
N_TRAIN, N_ASKED, N_WORDS = 6000, 300, 3


def without(text: str, words: list[str]) -> str:
    """The text without some words, wherever they stand."""
    return re.sub(rf"\b({'|'.join(map(re.escape, words))})\b", " ", text, flags=re.IGNORECASE) if words else text


def measured(method: str, train: Any, texts: list[str]) -> Row:
    """How often the first label changes, and what an explanation costs."""
    from longtail import Tagger

    tagger, random = Tagger(method, threads=1).fit(train), np.random.default_rng(0)
    labels = [tags[0].label for tags in tagger.predict(texts, 1)]
    told, drawn = [], []
    for text, label in zip(texts, labels, strict=True):
        single = [word for word, weight in tagger.explain(text, label).words if weight > 0 and " " not in word]
        told.append(without(text, single[:N_WORDS]))
        different = sorted(set(re.findall(r"\w+", text.lower())))
        drawn.append(without(text, random.permutation(different)[:N_WORDS].tolist()))
    changed = [
        100 * float(np.mean([tags[0].label != label for tags, label in zip(tagger.predict(others, 1), labels, strict=True)]))
        for others in (told, drawn)
    ]
    return {
        "method": method,
        "words of the explanation, %": changed[0],
        "random words, %": changed[1],
        "one text explained, ms": median_ms(lambda i: tagger.explanations(texts[i], 5), 50),
        "predicted, ms": median_ms(lambda i: tagger.predict([texts[i]], 5), 50),
    }


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; may be given again")
    given = parser.parse_args()
    data = corpus(CORPUS)
    order = np.random.default_rng(0).permutation(data.n_samples)
    train, asked = data.take(order[:N_TRAIN]), data.take(order[N_TRAIN : N_TRAIN + N_ASKED])
    rows = []
    for method in given.method or METHODS:
        note(f"explain: {method}")
        rows.append(measured(method, train, list(asked.texts or [])))
    notes = [
        f"{CORPUS}: {N_TRAIN:,} training texts to learn from, {N_ASKED} others of them to explain; seed 0, one thread",
        f"changed: texts with another first label after {N_WORDS} different words are taken out wherever they stand",
        "ms: medians of 50 texts, five labels each",
    ]
    report({"First labels that change": rows}, notes, given.json)


if __name__ == "__main__":
    main()
