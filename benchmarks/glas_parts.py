"""What the two parts of glas give with many labels: the embedding alone, the sparse part alone, and their sum.

    python benchmarks/glas_parts.py gutenberg-lcsh --texts 12000

Trained on a random part of the training data, measured on up to 2,000 held-out training texts; the test data is not read.
Labels without training samples are left out. plt gets the features that were chosen for glas. One thread, one seed.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report

from longtail.kernels import Floats
from longtail.labelspace.names import append_labels
from longtail.labelspace.propensity import compute_inverse_propensity
from longtail.metrics.ranking import score_samples
from longtail.model import Model
from longtail.models.glas.model import Glas
from longtail.pipeline import Pipeline
from longtail.registry import model_class
from longtail.search.exact_sum import search_sum
from longtail.spec import MethodSpec
from longtail.topk import TopK

MAX_HELD_OUT = 2000
METRICS = ("P@1", "P@5", "PSP@5")


def measure(name: str, n_texts: int, epochs: int | None) -> list[Row]:
    """Train glas and plt on a corpus, and evaluate glas as a whole and each of its parts."""
    data = read_corpus(name)
    rows = np.random.default_rng(0).permutation(data.n_samples)
    n_held_out = min(MAX_HELD_OUT, data.n_samples // 8)
    train, held_out = data.take(np.sort(rows[n_held_out:][:n_texts])), data.take(np.sort(rows[:n_held_out]))
    pipeline = Pipeline(MethodSpec.parse("glas"), threads=1)
    X = pipeline.fit_features(list(train.texts or ()), train.Y, labels=data.labels)
    T = pipeline.encode(list(held_out.texts or ())).X
    seen = np.flatnonzero(np.bincount(train.Y.indices, minlength=train.Y.shape[1])).astype(np.int32)
    Y = sp.csr_array(append_labels(train.Y, pipeline.named)[:, seen])
    weights = compute_inverse_propensity(np.bincount(train.Y.indices, minlength=train.Y.shape[1]), train.n_samples)

    def evaluate(what: str, best: TopK, seconds: float | None = None) -> Row:
        values = score_samples(TopK(seen[best.ids], best.scores), held_out.Y, weights, (1, 5)).values()
        print_progress(f"{name}, {what}: {values['P@1']:.2f}")
        return {"corpus": name, "": what, **{metric: values[metric] for metric in METRICS}, "train CPU-s": seconds}

    def fit(model: Model) -> float:
        model.n_names = len(pipeline.named)
        with Stopwatch() as watch:
            model.fit(X, Y)
        return watch.cpu

    glas, plt = Glas(threads=1, epochs=epochs), model_class("plt")(threads=1)  # type: ignore[call-arg]
    seconds, plt_seconds = fit(glas), fit(plt)
    part, Q = glas.sparse, glas._embed(T)
    if part is None:
        raise SystemExit(f"glas has no sparse part with the {len(seen):,} labels of these texts")

    def score(block: slice) -> Floats:
        return part.score(T[block])

    return [
        evaluate("embedding alone", glas.index.topk(Q, 5)),
        evaluate("sparse part alone", search_sum(glas.index.search, np.zeros_like(Q), score, 5)),  # type: ignore[arg-type]
        evaluate(f"both, s = {part.scale:g}", glas.topk(T, 5), seconds),
        evaluate("plt", plt.topk(T, 5), plt_seconds),
    ]


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--texts", type=int, default=12_000, help="train on this many random texts (%(default)s)")
    parser.add_argument("--epochs", type=int, default=None, help="of the embedding; default: those of glas")
    args = parser.parse_args()
    table = [row for name in args.corpora for row in measure(name, args.texts, args.epochs)]
    report({"Parts of glas": table}, ["Held-out training texts; one thread"], args.json)


if __name__ == "__main__":
    main()
