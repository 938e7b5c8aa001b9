"""Continued training: a model of 95 % of the training samples, updated with the other 5 %, and training on everything.

Two cases: ``random``, new samples drawn at random; ``new labels``, all samples of some labels that are not frequent. Each
model is updated without old samples, and with a replay of a fifth of them. Evaluated on test data; for new labels separately
on the samples that have one and on the others. One thread, seed 0; CPU seconds include the features. ``--json FILE`` is
written after each method and resumed from; ``--draw`` draws docs/updating.svg from it. ``--held-out`` evaluates on training
samples that are held out, to choose the pace of updates without test data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from common import ROOT, Row, Stopwatch, draw_rows, make_parser, print_progress, read_corpus, report
from draw import BLUE, GREY, RED, draw_line, draw_text, make_svg

if TYPE_CHECKING:
    from longtail import Dataset, Tagger

SIZES = {  # training samples; None: all
    **{"reuters21578-modapte": None, "debian-debtags": None, "delicious": None, "gutenberg-lcsh": 20_000},
    **{"bibtex": None, "manpages-seealso": 20_000},
}
METHODS = ("ovr", "plt", "hierarchicalxc", "glas", "neuralxc", "aplc", "lightattention", "secseq")
VECTOR_METHODS = ("ovr", "plt", "hierarchicalxc", "glas", "neuralxc")  # read feature vectors
VECTOR_CORPORA = ("delicious", "bibtex")  # have no texts
CASES = ("random", "new labels")
NEW_SHARE, REPLAY = 0.05, 0.2
HELD_OUT, MAX_HELD_OUT = 0.2, 2000  # share of the training samples, and samples
MAX_FREQUENCY = 0.01  # share of the samples that a new label has at most
_TOP, _ROW, _LEFT, _WIDTH, _GAP = 44, 18, 200, 250, 70  # of the picture, in pixels
_LEGEND = {"before": GREY, "updated with replay (right: its cost)": BLUE, "from scratch (cost 1)": RED}
TITLE = "Updated with 5 % new samples, on test data"


def split_new(data: Dataset, case: str) -> tuple[Dataset, Dataset]:
    """Split training data into old and new samples."""
    random, n_new = np.random.default_rng(0), round(NEW_SHARE * data.n_samples)
    is_new = np.zeros(data.n_samples, bool)
    if case == "random":
        is_new[random.permutation(data.n_samples)[:n_new]] = True
    else:
        columns = data.Y.tocsc()
        counts = np.diff(columns.indptr)
        for label in random.permutation(np.flatnonzero((counts > 1) & (counts <= MAX_FREQUENCY * data.n_samples))):
            if is_new.sum() >= n_new:
                break
            is_new[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = True
    return data.take(np.flatnonzero(~is_new)), data.take(np.flatnonzero(is_new))


def compute_precision(tagger: Tagger, test: Dataset, new_labels: set[str]) -> Row:
    """P@1 and P@5, and P@1 of test samples with and without a new label."""
    found = tagger.predict(test.inputs, k=5)
    true = [set(test.get_label_names(row)) for row in range(test.n_samples)]
    hits = np.array([[tag.label in mine for tag in tags] for tags, mine in zip(found, true, strict=True)])
    out: Row = {"P@1": 100 * float(hits[:, 0].mean()), "P@5": 100 * float(hits.mean())}
    has_new = np.array([bool(mine & new_labels) for mine in true])
    if has_new.any():
        out["P@1 old labels"] = 100 * float(hits[~has_new, 0].mean())
        out["P@1 new labels"] = 100 * float(hits[has_new, 0].mean())
    return out


def read_data(corpus: str, size: int | None, held_out: bool) -> tuple[Dataset, Dataset]:
    """Training samples, and the samples to evaluate on: test data, or training samples that are held out."""
    data = read_corpus(corpus)
    if held_out:
        rows = np.random.default_rng(1).permutation(data.n_samples)
        n = min(round(HELD_OUT * data.n_samples), MAX_HELD_OUT)
        test, data = data.take(np.sort(rows[:n])), data.take(np.sort(rows[n:]))
    else:
        test = read_corpus(corpus, "test").align(data.labels)
    return (data if size is None or size >= data.n_samples else data.take(draw_rows(data.n_samples, size))), test


def measure(corpus: str, case: str, method: str, size: int | None, held_out: bool) -> list[Row]:
    """Train on the old samples and on all, and update."""
    from longtail import Tagger

    data, test = read_data(corpus, size, held_out)
    old, new = split_new(data, case)
    new_labels = {data.labels.names[j] for j in np.setdiff1d(new.Y.indices, old.Y.indices)} if case != "random" else set()
    rows: list[Row] = []

    def add(name: str, tagger: Tagger, cpu: float) -> None:
        row = {"corpus": name_data(corpus, size, held_out), "case": case, "method": method, "model": name}
        rows.append({**row, **compute_precision(tagger, test, new_labels), "CPU-s": cpu})
        print_progress(", ".join(f"{key} {value}" for key, value in rows[-1].items()))

    with Stopwatch() as scratch:
        tagger = Tagger(method, threads=1).fit(data, progress=False)
    add("from scratch", tagger, scratch.cpu)
    tagger = Tagger(method, threads=1).fit(old, progress=False)
    add("before", tagger, 0.0)
    for name, replayed in (("updated", None), ("updated, replay", old)):
        twin = copy(tagger)  # an update replaces the parts of a tagger
        with Stopwatch() as watch:
            twin.update(new, old=replayed, replay=None if replayed is None else REPLAY, progress=False)
        add(name, twin, watch.cpu)
    return [{**row, "cost": row["CPU-s"] / scratch.cpu} for row in rows]


def name_data(corpus: str, size: int | None, held_out: bool) -> str:
    """The corpus, the number of training samples if it is not all of them, and what is evaluated if it is not test data."""
    return corpus + (f", {size:,}" if size else "") + (", held out" if held_out else "")


def summarise(rows: Sequence[Row]) -> list[Row]:
    """One row per corpus, method and case: P@1 (without / with a new label), updates without and with replay, and costs."""
    out = []
    for corpus, case, method in dict.fromkeys((row["corpus"], row["case"], row["method"]) for row in rows):
        mine = {row["model"]: row for row in rows if (row["corpus"], row["case"], row["method"]) == (corpus, case, method)}
        parts = ("P@1",) if case == "random" else ("P@1 old labels", "P@1 new labels")
        shown: Row = {"corpus": corpus, "new samples": case, "method": method}
        for model in ("before", "updated", "updated, replay", "from scratch"):
            shown[model] = " / ".join(f"{mine[model][part]:.1f}" for part in parts)
        shown["cost"] = f"{mine['updated']['cost']:.3f}"
        shown["cost, replay"] = f"{mine['updated, replay']['cost']:.3f}"
        out.append(shown)
    return out


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw P@1 before, after and from scratch: of all test samples, and of those with a new label."""
    panels = {
        "random": ("5 % more samples: all test samples", "P@1"),
        "new labels": ("new labels: samples with one", "P@1 new labels"),
    }
    pairs = list(dict.fromkeys((row["corpus"], row["method"]) for row in rows))
    bottom = _TOP + _ROW * len(pairs)
    parts = [draw_text(8, _TOP + _ROW * i + 4, f"{c.split('-')[0]}, {method}") for i, (c, method) in enumerate(pairs)]
    for number, (case, (title, metric)) in enumerate(panels.items()):
        left = _LEFT + number * (_WIDTH + _GAP)
        parts.append(draw_text(left, 20, title))
        for tick in (0, 25, 50, 75, 100):
            x = left + tick / 100 * _WIDTH
            parts += [draw_line(x, 30, x, bottom), draw_text(x, bottom + 14, str(tick), anchor="middle")]
        for i, pair in enumerate(pairs):
            mine = {row["model"]: row for row in rows if (row["corpus"], row["method"], row["case"]) == (*pair, case)}
            parts += _draw_row(mine, metric, left, _TOP + _ROW * i)
    for (name, colour), x in zip(_LEGEND.items(), (0, 70, 300), strict=True):
        parts += [f'<circle cx="{_LEFT + x}" cy="{bottom + 32}" r="4" fill="{colour}"/>']
        parts.append(draw_text(_LEFT + x + 8, bottom + 36, name))
    path.write_text(make_svg(_LEFT + 2 * (_WIDTH + _GAP), bottom + 48, parts), encoding="utf-8")


def _draw_row(models: dict[str, Row], metric: str, left: float, y: float) -> list[str]:
    """The three values of one method on one corpus, and the cost of the update."""
    parts = []
    for model, colour, radius in (("before", GREY, 4), ("from scratch", RED, 5.5), ("updated, replay", BLUE, 3.5)):
        if metric in models.get(model, {}):
            x = left + models[model][metric] / 100 * _WIDTH
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="{radius}" fill="{colour}"/>')
    if metric in models.get("updated, replay", {}):
        parts.append(draw_text(left + _WIDTH + 12, y + 4, f"{models['updated, replay']['cost']:.3f}", fill=BLUE))
    return parts


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=SIZES, help="only this one; may be repeated")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; may be repeated")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be repeated")
    parser.add_argument("--samples", type=int, help="training samples, drawn at random; default: by corpus")
    parser.add_argument("--held-out", action="store_true", help="evaluate on held-out training samples, not on test data")
    parser.add_argument("--draw", action="store_true", help="draw docs/updating.svg from the results in --json")
    given = parser.parse_args()
    saved = json.loads(given.json.read_text())[TITLE] if given.json and given.json.exists() else []
    notes = [
        f"P@1; with new labels, of samples without / with one. Replay {REPLAY}. One thread, seed 0",
        "cost: CPU seconds of the update relative to training from scratch on all samples",
    ]
    done = {(row["corpus"], row["case"], row["method"]) for row in saved}
    for corpus in given.corpus or SIZES:
        size = given.samples or SIZES[corpus]
        for method in given.method or METHODS:
            if corpus in VECTOR_CORPORA and method not in VECTOR_METHODS:
                continue
            for case in given.case or CASES:
                if (name_data(corpus, size, given.held_out), case, method) not in done and not given.draw:
                    saved += measure(corpus, case, method, size, given.held_out)
                    if given.json:
                        given.json.write_text(json.dumps({TITLE: saved, "notes": notes}, indent=1) + "\n", encoding="utf-8")
    if given.draw:
        draw(saved, ROOT / "docs" / "updating.svg")
    report({TITLE: summarise(saved)}, notes, None)


if __name__ == "__main__":
    main()
