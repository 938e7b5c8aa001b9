"""Labels without training samples: how many are found by their names, and whether that costs anything for the others.

    python benchmarks/unseen_labels.py finna-yso-en --texts 60000

A random 5 % of the labels are taken out of the training data: texts stay, the assignments of these labels are removed. The
method is trained on a random part of the rest. Names by TF-IDF alone rank all labels by the cosine of their names; the other
rows rank unseen labels together with the labels that the method has learned. A second table has the pairs of a text and an
unseen label by probability: how many there are, how many are right, and which share of all right pairs that is; labels that
a text mentions nothing of are in the first row. With ``--vocabulary``, no label is taken out: unseen labels are those of the
corpus that no drawn text has, as in a vocabulary most of whose labels are seldom or never assigned. With ``--examples 2``, a
further row has two training texts of each unseen label as its examples. ``--test`` reads the test data; without it, held-out
training data is measured. Draws ``docs/unseen-labels.svg`` with ``--draw``. One thread.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import ROOT, Row, Stopwatch, make_parser, print_progress, read_corpus, report
from draw import draw_line, draw_text, make_svg

from longtail import Dataset, Labels, Tagger, TopK
from longtail.metrics.calibration import compute_ece
from longtail.tagger.unseen import fit_unseen
from longtail.topk import find_hits

CORPORA = ("finna-yso-en", "gutenberg-lcsh", "debian-debtags", "wordnet-hypernyms")
COLOURS = {"names by TF-IDF": "#bbb", "words": "#7aa6d8", "words and vectors": "#1f4e8c"}
TITLE = "Unseen labels"
BANDS = (0.003, 0.01, 0.03, 0.1, 0.3)
SVG = ROOT / "docs" / "unseen-labels.svg"


def split(name: str, args: Any) -> tuple[Dataset, Dataset, np.ndarray]:
    """Return training data without some labels, data to measure on, and the ids of these labels."""
    n_texts, n_held_out, use_test, seed, vocabulary = args.texts, args.held_out, args.test, args.seed, args.vocabulary
    random = np.random.default_rng(seed)
    data = read_corpus(name)
    order = random.permutation(data.n_samples)
    if use_test:
        held_out = read_corpus(name, "test").align(data.labels)
        held_out = held_out.take(random.permutation(held_out.n_samples)[:n_held_out])
        train = data.take(order[:n_texts])
    else:
        n_held_out = min(n_held_out, data.n_samples // 5)
        train, held_out = data.take(order[n_held_out:][:n_texts]), data.take(order[:n_held_out])
    counts = np.bincount(train.Y.indices, minlength=data.n_labels)
    if vocabulary:
        return train, held_out, np.flatnonzero(counts == 0)
    with_samples = np.flatnonzero(counts)  # there are no other labels
    labels = Labels(tuple(data.labels.names[i] for i in with_samples))
    unseen = np.sort(random.choice(len(labels), int(args.share * len(labels)), replace=False))
    keep = np.ones(len(labels), np.float32)
    keep[unseen] = 0
    Y = sp.csr_array(train.Y[:, with_samples])
    if args.examples:
        chosen = {i: sp.csc_array(Y[:, [i]]).indices[: args.examples] for i in unseen.tolist()}
        texts = [tuple((train.texts or ())[row] for row in chosen.get(i, ())) for i in range(len(labels))]
        labels = replace(labels, examples=tuple(texts))
    Y.data = Y.data * keep[Y.indices]
    Y.eliminate_zeros()
    return replace(train, Y=Y, labels=labels), replace(held_out, Y=held_out.Y[:, with_samples], labels=labels), unseen


def score(topk: TopK, Y: sp.csr_array, unseen: np.ndarray) -> Row:
    """Precision at 1 and 5 of all labels, and of the seen ones alone; recall at 10 of both kinds."""
    hits = find_hits(topk, Y)
    is_unseen = np.zeros(Y.shape[1], bool)
    is_unseen[unseen] = True
    seen_hits = hits & ~is_unseen[topk.ids]
    n_unseen = int(is_unseen[Y.indices].sum())
    return {
        "P@1": 100 * hits[:, 0].mean(),
        "P@5": 100 * hits[:, :5].mean(),
        "seen P@1": 100 * seen_hits[:, 0].mean(),
        "seen P@5": 100 * seen_hits[:, :5].mean(),
        "seen R@10": 100 * seen_hits[:, :10].sum() / (Y.nnz - n_unseen),
        "unseen R@10": 100 * (hits & ~seen_hits)[:, :10].sum() / n_unseen,
        "unseen in top 5, %": 100 * is_unseen[topk.ids[:, :5]].mean(),
        "ECE@5": compute_ece(topk.scores[:, :5].astype(np.float64).ravel(), hits[:, :5].ravel()),
        "pairs": n_unseen,
    }


def rank_by_names(data: Dataset, train: Dataset) -> TopK:
    """Rank all labels by the cosine of the TF-IDF of their names and the text."""
    from longtail.features.tfidf import Tfidf

    tfidf = Tfidf(ngrams=1, min_df=1).fit([*(train.texts or ()), *data.labels.names])
    names = tfidf.transform(list(data.labels.names[: train.n_labels]))
    ids = []
    for start in range(0, data.n_samples, 512):
        texts = list(data.texts or ())[start : start + 512]
        ids.append(np.argsort(-(tfidf.transform(texts) @ names.T).toarray(), axis=1, kind="stable")[:, :10])
    return TopK(np.concatenate(ids), np.ones((data.n_samples, 10)))


def measure(name: str, args: Any) -> tuple[list[Row], list[Row]]:
    """Measure one corpus: without unseen labels, with names by words, and with static vectors; and pairs by probability."""
    train, data, unseen = split(name, args)
    with Stopwatch() as training:
        tagger = Tagger(args.method, threads=1).fit(train, progress=False)
    encoded = tagger.encode(data.texts)
    by_names = score(rank_by_names(data, train), data.Y, unseen)
    del by_names["ECE@5"]  # cosines are no probabilities
    rows: list[Row] = [{"corpus": name, "names": "names by TF-IDF", **by_names}]
    print_progress(f"{name}: trained in {training.cpu:.0f} CPU-s")
    variants: dict[str, dict[str, Any] | None] = {"none": None, "words": {}}
    if find_spec("wordllama"):
        variants["words and vectors"] = {"vectors": "wordllama"}
    if args.examples:
        variants["words and examples"] = {}
    base, bands = 0.0, []
    for variant, options in variants.items():
        with Stopwatch() as fitting:
            fitted = None if options is None else fit_unseen(train.texts or (), train.Y, train.labels, **options)
            tagger.unseen = replace(fitted, by_example=None) if fitted and "examples" not in variant else fitted
        tagger.predict(list(encoded.inputs[:1]), 1)  # builds the index
        with Stopwatch() as predicting:
            best = tagger.topk(encoded, 10)
        base = base or predicting.cpu
        cost = {"fit CPU-s": fitting.cpu, "ms per text": 1000 * (predicting.cpu - base) / data.n_samples}
        rows.append({"corpus": name, "names": variant, **score(best, data.Y, unseen), **cost, "train CPU-s": training.cpu})
        print_progress(json.dumps(rows[-1]))
        bands += [{"names": variant, **row} for row in list_bands(name, tagger, data, unseen)]
    return rows, bands


def list_bands(name: str, tagger: Tagger, data: Dataset, unseen: np.ndarray) -> list[Row]:
    """Count pairs of a text and an unseen label by probability, and how many of them are right."""
    names = tagger.unseen.index(tagger.register, tagger.model.label_counts) if tagger.unseen else None
    if names is None:
        return []
    best = names.topk(list(data.texts or ()), len(unseen))
    hits, n_right = find_hits(best, data.Y), int(np.isin(data.Y.indices, unseen).sum())
    edges, rows = (0.0, *BANDS, 1.0), []
    for low, high in pairwise(edges):
        mask = (best.scores >= low) & (best.scores < high)
        right = int(hits[mask].sum()) + (n_right - int(hits.sum()) if low == 0 else 0)
        predicted = 100 * float(best.scores[mask].mean()) if mask.any() else 0.0
        observed = 100 * float(hits[mask].mean()) if mask.any() else 0.0
        shares = {"predicted, %": predicted, "right, %": observed, "share of all right pairs, %": 100 * right / n_right}
        rows.append({"corpus": name, "probability": f"{low:g} to {high:g}", "pairs": int(mask.sum()), **shares})
    return rows


def draw(rows: list[Row]) -> str:
    """Draw the recall of unseen labels as bars, by what is used, for each corpus."""
    corpora = list(dict.fromkeys(row["corpus"] for row in rows))
    parts, height, left = [], 40 + 66 * len(corpora), 150
    highest = max(10.0, *(row["unseen R@10"] for row in rows))
    scale = 300 / highest
    for number, corpus in enumerate(corpora):
        top = 36 + 66 * number
        parts.append(draw_text(left - 8, top + 30, corpus, size=12, anchor="end"))
        found = {row["names"]: row for row in rows if row["corpus"] == corpus}
        for bar, (variant, colour) in enumerate(COLOURS.items()):
            if variant in found:
                value, y = found[variant]["unseen R@10"], top + 17 * bar
                parts.append(f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="14" fill="{colour}"/>')
                parts.append(draw_text(left + value * scale + 5, y + 11, f"{value:.1f} {variant}", size=11))
    parts.append(draw_line(left, 30, left, height - 8, "#888"))
    parts.append(draw_text(left, 20, "recall@10 of labels without training samples, in percent", size=12))
    return make_svg(left + 460, height, parts)


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("corpora", nargs="*", default=CORPORA)
    parser.add_argument("--texts", type=int, default=20_000, help="train on this many random texts (%(default)s)")
    parser.add_argument("--held-out", type=int, default=5000, help="measure on this many texts (%(default)s)")
    parser.add_argument("--test", action="store_true", help="measure on test data")
    parser.add_argument("--share", type=float, default=0.05, help="share of the labels that are taken out (%(default)s)")
    parser.add_argument("--examples", type=int, default=0, help="examples of each unseen label (%(default)s)")
    parser.add_argument("--vocabulary", action="store_true", help="labels of the corpus that no drawn text has are unseen")
    parser.add_argument("--method", default="plt", help="a method with its settings (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the labels and texts (%(default)s)")
    parser.add_argument("--draw", nargs="+", type=Path, help="draw the results of these JSON files; nothing is measured")
    args = parser.parse_args()
    if args.draw:
        rows = [row for path in args.draw for row in json.loads(path.read_text())[TITLE]]
        SVG.write_text(draw(rows))
        return
    measured = [measure(name, args) for name in args.corpora]
    tables = {title: [row for part in measured for row in part[i]] for i, title in enumerate((TITLE, "By probability"))}
    report(tables, [f"{args.method}, {args.texts:,} training texts, one thread"], args.json)


if __name__ == "__main__":
    main()
