"""Words, stems, parts of compounds and subwords on held-out training data of a corpus.

    python benchmarks/languages.py finna-yso-fi --language fi --samples 40000

Each representation is a TF-IDF block of norm 1, or several blocks with weights, joined and scaled to length 1. Then `plt`
with one tree is trained on 7/8 of the training data and evaluated on the rest. The test data is not read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report, score_predictions

from longtail.features.analyser import VOIKKO, Analyser
from longtail.features.language import detect_language, get_language
from longtail.features.normaliser import Normaliser
from longtail.features.rewriting import SUBWORDS, Rewriter, count_words, estimate_rare_share
from longtail.features.tfidf import Tfidf
from longtail.models.plt.model import LabelTrees

Blocks = dict[str, tuple[sp.csr_array, sp.csr_array]]  # training and held-out data by name


def build_blocks(train: Sequence[str], held: Sequence[str], language: str | None) -> tuple[Blocks, dict[str, float]]:
    """The TF-IDF vectors of each representation, and the seconds that rewriting the texts and counting took."""
    rewriters = {"subwords": SUBWORDS, "words": None}
    if language:
        analyser = Analyser(language).fit(count_words(train))
        rewriters["stems"] = Rewriter(lambda word: analyser.locate(word)[:1])
        if language == VOIKKO or get_language(language).compounds:
            rewriters["stems and parts"] = Rewriter(analyser.locate)
    blocks, seconds = {}, {}
    for name, rewriter in rewriters.items():
        with Stopwatch() as watch:
            texts = [[rewriter.rewrite(text) for text in part] if rewriter else part for part in (train, held)]
            tfidf = Tfidf(ngrams=1, threads=1)
            blocks[name] = tfidf.fit_transform(texts[0]), tfidf.transform(texts[1])
        seconds[name] = watch.cpu
    return blocks, seconds


def list_mixtures(blocks: Blocks) -> list[dict[str, float]]:
    """The weights of the blocks of each representation."""
    alone: list[dict[str, float]] = [{name: 1} for name in blocks]
    return [*alone, *({name: 1, "subwords": w} for name in dict.fromkeys(("words", list(blocks)[-1])) for w in (1, 2, 3))]


def main() -> None:
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpus")
    parser.add_argument("--language", help=f"a code such as fi or {VOIKKO}; detected if it is not given")
    parser.add_argument("--samples", type=int, default=None, help="use a random sample of the training data")
    parser.add_argument("--seed", type=int, default=0, help="of the sample and the held-out data")
    args = parser.parse_args()

    data = read_corpus(args.corpus)
    rows = np.random.default_rng(args.seed).permutation(data.n_samples)[: args.samples]
    held, train = (data.take(np.sort(part)) for part in np.split(rows, [len(rows) // 8]))
    language = args.language or detect_language(train.texts)
    print_progress(f"language: {language}")
    blocks, seconds = build_blocks(train.texts, held.texts, language)
    table: list[Row] = []
    for mixture in list_mixtures(blocks):
        X, X_held = (
            Normaliser().transform(
                sp.csr_array(sp.hstack([w * blocks[name][i] for name, w in mixture.items()], format="csr"))
            )
            for i in (0, 1)
        )
        with Stopwatch() as watch:
            ids = LabelTrees(n_trees=1, C=1.0, threads=1).fit(X, train.Y).topk(X_held, 5).ids
        values = score_predictions(ids, train.Y, held.Y)
        name = " + ".join(name if w == 1 else f"{w:g} × {name}" for name, w in mixture.items())
        costs = {"terms": X.shape[1], "terms per text": X.nnz / X.shape[0], "features CPU-s": sum(map(seconds.get, mixture))}
        table.append(
            {"features": name, **{m: f"{values[m]:.2f}" for m in ("P@1", "P@5", "PSP@5")}, **costs, "plt CPU-s": watch.cpu}
        )
        print_progress(f"{name}: P@1 {values['P@1']:.2f}")
    df = np.array(list(count_words(train.texts).values()))
    n_words = sum(len(text.split()) for text in train.texts)
    speed = ", ".join(f"{name} {1e6 * cpu / n_words:.2f}" for name, cpu in seconds.items())
    notes = [
        f"{args.corpus}, language {language}, seed {args.seed}, {train.n_samples:,} samples, {held.n_samples:,} held out",
        f"estimated share of rare words: {estimate_rare_share(df):.1%}",
        f"µs per word to rewrite the texts and to count terms: {speed}",
    ]
    report({"Held-out data": table}, notes, args.json)


if __name__ == "__main__":
    main()
