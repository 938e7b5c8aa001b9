"""Constraints on labels: what allow lists cost inside the search, and what they gain over filtering the 100 best labels.

Methods are trained on a part of the training texts and measured on others of them; no test data is used. Lists of 1, 10 and
50 % of the labels are drawn at random.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Row, make_parser, print_progress, read_corpus, report, time_best
from draw import BLUE, GREY, RED, choose_ticks, draw_line, draw_text, make_svg

CORPORA = {"debian-debtags": 8000, "gutenberg-lcsh": 5000}  # training texts
METHODS = {"plt": "plt+C=1+ngrams=1", "ovr": "ovr+C=1+ngrams=1", "glas": "glas"}
COLOURS = {"plt": BLUE, "ovr": RED, "glas": GREY}
SHARES = (0.01, 0.1, 0.5)
N_TEXTS, N_TIMED, N_SINGLE, N_LISTS, N_COMPARED = 5000, 1000, 200, 3, 300
K, N_FILTERED = 5, 100
SEARCH, FILTER = "labels, search", "labels, filter"


def measure(corpus: str, method: str, repeat: int) -> list[Row]:
    """Train one method, and measure it with lists of each size."""
    from longtail import Tagger

    data = read_corpus(corpus)
    order, n_train = np.random.default_rng(0).permutation(data.n_samples), CORPORA[corpus]
    held_out = data.take(order[n_train : n_train + N_TEXTS])
    tagger = Tagger(METHODS[method], threads=1).fit(data.take(order[:n_train]))
    X, Y, model = tagger.encode(list(held_out.texts or ())).X, held_out.Y, tagger.model
    seen = np.flatnonzero(model.label_counts)
    search = [time_all(model, X, None, repeat), time_single(model, X, None, repeat)]
    rows, base_ms, full = [], 1e3 * search[1] / N_SINGLE, model.topk(X[:N_COMPARED], model.n_labels).ids
    for share in SHARES:
        found: list[Row] = []
        for seed in range(N_LISTS):
            allowed = np.zeros(model.n_labels, bool)
            allowed[np.random.default_rng(seed).permutation(seen)[: max(round(share * len(seen)), 1)]] = True
            ratios = [
                time(model, X, allowed, repeat) / base for time, base in zip((time_all, time_single), search, strict=True)
            ]
            costs = {f"cost, {N_TIMED:,} texts": ratios[0], "cost, one text": ratios[1]}
            found.append(costs | score(model, X, Y, allowed) | compare_with_full(model, X[:N_COMPARED], full, allowed))
        mean = {name: float(np.mean([row[name] for row in found])) for name in found[0]}
        rows.append(
            {"corpus": corpus, "labels": len(seen), "method": method, "ms": base_ms, "allowed": f"{share:.0%}", **mean}
        )
    return rows


def time_all(model: Any, X: Any, allowed: Any, repeat: int) -> float:
    """CPU seconds of a search for five labels of all texts."""
    X = X[:N_TIMED]
    model.topk(X[:300], K, allowed=allowed)  # compiles
    return time_best(repeat, lambda: model.topk(X, K, allowed=allowed))[2]


def time_single(model: Any, X: Any, allowed: Any, repeat: int) -> float:
    """CPU seconds of searches for one text at a time."""
    rows = [X[[i]] for i in range(N_SINGLE)]
    model.topk(rows[0], K, allowed=allowed)
    return time_best(repeat, lambda: [model.topk(row, K, allowed=allowed) for row in rows])[2]


def score(model: Any, X: Any, Y: Any, allowed: Any) -> Row:
    """Measure the first label and the number of labels of texts with an allowed label: by the search, and by filtering."""
    relevant = (Y[:, : len(allowed)] * allowed).tocsr()
    relevant.eliminate_zeros()
    texts = np.flatnonzero(np.diff(relevant.indptr))
    inside = model.topk(X[texts], K, allowed=allowed).ids
    best = model.topk(X[texts], N_FILTERED).ids
    kept = allowed[best] & (best >= 0)
    first = np.where(kept.any(axis=1), best[np.arange(len(texts)), kept.argmax(axis=1)], -1)

    def is_right(labels: Any) -> float:
        found = labels >= 0
        return 100 * float(np.asarray(relevant[texts[found], labels[found]]).astype(bool).sum() / len(texts))

    return {
        "texts": float(len(texts)),
        "P@1, search": is_right(inside[:, 0]),
        "P@1, filter": is_right(first),
        SEARCH: float((inside >= 0).sum(axis=1).mean()),
        FILTER: float(np.minimum(kept.sum(axis=1), K).mean()),
    }


def compare_with_full(model: Any, X: Any, full: Any, allowed: Any) -> Row:
    """In how many texts the first label, and all labels, are the first allowed ones of the ranking of all labels, %."""
    best = model.topk(X, K, allowed=allowed).ids
    order = np.argsort(~(allowed[full] & (full >= 0)), axis=1, kind="stable")[:, : best.shape[1]]
    same = best == np.take_along_axis(full, order, axis=1)
    return {"same first": 100 * float(same[:, 0].mean()), "same five": 100 * float(same.all(axis=1).mean())}


def draw(rows: list[Row]) -> str:
    """The number of labels of a text by the share of labels that are allowed: a panel for each corpus."""
    left, top, width, height, gap = 60, 90, 250, 200, 70
    parts = [draw_text(left, 26, f"Labels of a text, if {K} are asked for", size=16)]
    for number, (method, colour) in enumerate(COLOURS.items()):
        parts.append(draw_line(left + 90 * number, 46, left + 90 * number + 28, 46, colour, ' stroke-width="2"'))
        parts.append(draw_text(left + 90 * number + 34, 50, method))
    parts.append(
        draw_text(
            left, 68, f"lines: search among the allowed labels; dashes: filter of the {N_FILTERED} best labels", fill="#555"
        )
    )
    low, high = 0, K + 0.5
    for panel, corpus in enumerate(CORPORA):
        x0 = left + panel * (width + gap)

        def place(share: float, value: float, x0: float = x0) -> tuple[float, float]:
            x = x0 + 20 + (width - 40) * SHARES.index(share) / (len(SHARES) - 1)
            return x, top + height * (1 - (value - low) / (high - low))

        for tick in choose_ticks(low, high):
            y = place(SHARES[0], tick)[1]
            parts += [draw_line(x0, y, x0 + width, y), draw_text(x0 - 6, y + 4, f"{tick:g}", anchor="end", fill="#555")]
        for share in SHARES:
            parts.append(draw_text(place(share, 0)[0], top + height + 18, f"{share:.0%}", anchor="middle", fill="#555"))
        n_labels = next(row["labels"] for row in rows if row["corpus"] == corpus)
        parts.append(draw_text(x0, top + height + 38, f"{corpus}: share of {n_labels:,} labels", fill="#555"))
        for name, dashes in ((SEARCH, ""), (FILTER, ' stroke-dasharray="5 4"')):
            for method, colour in COLOURS.items():
                line = [row[name] for row in rows if row["corpus"] == corpus and row["method"] == method]
                points = " ".join(
                    "{:.1f},{:.1f}".format(*place(share, value)) for share, value in zip(SHARES, line, strict=True)
                )
                parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
    return make_svg(left + 2 * width + gap + 20, top + height + 55, parts)


def main() -> None:
    """Run, print and draw."""
    parser = make_parser(__doc__)
    parser.add_argument("--svg", type=Path, default=ROOT / "docs" / "constraints.svg", help="picture to draw")
    given = parser.parse_args()
    rows: list[Row] = []
    for corpus in CORPORA:
        for method in METHODS:
            print_progress(f"constraints: {method} on {corpus}")
            rows += measure(corpus, method, given.repeat)
    given.svg.write_text(draw(rows), encoding="utf-8")
    sizes = ", ".join(f"{n:,} training texts of {corpus}" for corpus, n in CORPORA.items())
    notes = [
        f"trained on {sizes}; measured on {N_TEXTS:,} others of them; one thread; means of {N_LISTS} lists (seeds 0 to 2)",
        f"ms: CPU milliseconds of a search for the {K} best labels of one text, without a list",
        "cost: CPU seconds of a search, divided by those without a list in the same run",
        f"P@1: of texts with an allowed label; filter: the first allowed label of the {N_FILTERED} best",
        f"labels: how many a text gets if {K} are asked for",
        f"same: texts of {N_COMPARED} whose first label, or all {K}, are those of a search without a limit, %",
    ]
    report({"Allow lists inside the search": rows}, notes, given.json)


if __name__ == "__main__":
    main()
