"""Sets of labels by target: F1 scores, sizes and empty sets on test data; and the precision and recall that were promised.

Trained on ``train`` with the calibration that training does by default, measured once on ``test``; no setting is chosen
there. One thread. Recall is over all true labels of the test data, also those that the training data does not have.
``before``: the labels whose uncalibrated score is at least 0 (margins) or 0.5 (probabilities). ``best possible size``: as
many labels of the ranking as each text truly has, which no rule can know. Promises are measured twice: as ``train`` makes
them, and as ``calibrate --keep-curve`` makes them from a random half of the test data, for the other half; the latter for
20 random halves, too: a precision is promised with a probability of 90 %, a recall on average.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Row, Stopwatch, draw_part, make_parser, print_progress, read_corpus, report
from draw import BLUE, GREY, RED, draw_line, draw_text, make_svg

if TYPE_CHECKING:
    import scipy.sparse as sp

    from longtail import Dataset, TopK

CORPORA = {  # training samples, drawn at random; 0: all
    "pydoc": 0,
    "reuters21578-modapte": 0,
    "debian-debtags": 10_000,
    "manpages-seealso": 5_000,
    "gutenberg-lcsh": 20_000,
}
METHODS = ("ovr", "plt")
SOURCES = {"train": RED, "calibrate --keep-curve": BLUE}  # where the held-out texts of promises come from
TARGETS = ("expected-f1", "micro-f1", "macro-f1", "threshold=0.5", "count=3")
N_SPLITS = 20
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
SHOWN = ("precision=0.9", "recall=0.8")
FIGURES = ("micro-F1", "macro-F1", "example-F1", "precision", "recall", "labels per sample", "empty sets")
WIDTH, HEIGHT, SIDE, LEFT, TOP = 640, 350, 240, 50, 40  # of the picture and its two panels


@cache
def read_parts(name: str, n_train: int) -> tuple[Dataset, Dataset]:
    """Read training and test data; of large corpora, a random part of the training data."""
    import longtail

    if name == "pydoc":
        return longtail.split("builtin:pydoc", test=0.2)
    train = read_corpus(name)
    return draw_part(train, n_train) if n_train else train, read_corpus(name, "test")


def measure(name: str, n_train: int, method: str) -> list[Row]:
    """Train one method, and score the sets of every target."""
    import longtail
    from longtail.decisions.sets import choose_sets, fit_rules
    from longtail.decisions.targets import Target
    from longtail.errors import SettingError
    from longtail.tagger.inputs import prepare_data
    from longtail.topk import TopK, keep_above, keep_labels

    train, test = read_parts(name, n_train)
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1).fit(train)
    inputs, Y = prepare_data(test, tagger.labels, tagger.reads_texts)
    rules = tagger.decisions.set_rules
    assert rules is not None
    best, counts = tagger.topk(inputs, rules.depth), tagger.model.label_counts
    before = keep_above(tagger.topk(inputs, rules.depth, raw=True), tagger.model.default_threshold)
    true_sizes = np.arange(best.k) < np.diff(Y.indptr)[:, None]
    about = {"corpus": name, "method": method, "train CPU-s": training.cpu, "source": "train"}
    rows = [{**about, "target": "before", **score(before, Y)}]
    rows += [{**about, "target": each, **score(choose_sets(best, Target.parse(each), rules, counts), Y)} for each in TARGETS]
    rows.append({**about, "target": "best possible size", **score(keep_labels(best, true_sizes), Y)})
    order = np.random.default_rng(0).permutation(Y.shape[0])
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    given = fit_rules(TopK(best.ids[first], best.scores[first]), Y[first], counts)
    rest = TopK(best.ids[second], best.scores[second])
    for source, fitted, topk, truth in (("train", rules, best, Y), ("calibrate --keep-curve", given, rest, Y[second])):
        for target in (f"{kind}={level}" for kind in ("precision", "recall") for level in LEVELS):
            try:
                figures = score(choose_sets(topk, Target.parse(target), fitted, counts), truth)
            except SettingError as error:
                figures = {"refused": error.found}
            rows.append({**about, "source": source, "target": target, **figures})
    return [*rows, *({**about, "source": "splits", **row} for row in repeat_promises(best, Y, counts))]


def repeat_promises(best: TopK, Y: sp.csr_array, counts: np.ndarray) -> list[Row]:
    """Fit the rules to a random half of the test data and measure on the other half, several times."""
    from longtail.decisions.sets import choose_sets, fit_rules
    from longtail.decisions.targets import Target
    from longtail.errors import SettingError
    from longtail.metrics.sets import score_sets
    from longtail.topk import TopK

    achieved: dict[str, list[float]] = {target: [] for target in SHOWN}
    for seed in range(N_SPLITS):
        first, second = np.array_split(np.random.default_rng(seed).permutation(Y.shape[0]), 2)
        rules = fit_rules(TopK(best.ids[first], best.scores[first]), Y[first], counts)
        rest = TopK(best.ids[second], best.scores[second])
        for target in SHOWN:
            with suppress(SettingError):  # too little data for the promise
                sets = choose_sets(rest, Target.parse(target), rules, counts)
                achieved[target].append(score_sets(sets, Y[second]).values()[target.partition("=")[0]])
    return [{"target": target, "achieved": values} for target, values in achieved.items()]


def score(sets: TopK, Y: sp.csr_array) -> Row:
    """Compute the metrics of sets, with intervals of precision and recall."""
    from longtail.metrics.intervals import bootstrap
    from longtail.metrics.sets import SetCounts, score_sets

    scores = score_sets(sets, Y)
    intervals = bootstrap(scores)
    return {
        **scores.values(),
        **SetCounts().add(sets, Y).values(),
        "intervals": {name: intervals[name] for name in ("precision", "recall")},
    }


def tabulate(rows: list[Row]) -> dict[str, list[Row]]:
    """Make the tables: metrics of each target, and promises."""
    metrics, promises, splits = [], [], []
    for row in rows:
        about = {name: row[name] for name in ("corpus", "method", "target")}
        if row["target"] in ("before", *TARGETS, "best possible size"):
            metrics.append({**about, **{name: round(row[name], 2) for name in FIGURES}})
        elif row["source"] == "splits":
            splits.append({**about, **describe_splits(row)})
        elif row["target"] in SHOWN:
            promises.append({**about, "held-out texts": row["source"], **describe_promise(row)})
    return {"Targets": metrics, "Promises": promises, f"Promises, {N_SPLITS} random halves": splits}


def describe_splits(row: Row) -> Row:
    """The mean of what was achieved, in how many halves it was less than promised, and in how many it was refused."""
    promised, values = 100 * float(row["target"].partition("=")[2]), np.array(row["achieved"])
    mean = f"{values.mean():.1f}" if len(values) else ""
    return {"mean": mean, "below": int((values < promised).sum()), "refused": N_SPLITS - len(values)}


def describe_promise(row: Row) -> Row:
    """Describe what a target with a promise achieved, or why it was refused."""
    if "refused" in row:
        return {"achieved": row["refused"]}
    kind = row["target"].partition("=")[0]
    low, high = row["intervals"][kind]
    sizes = {"labels per text": round(row["labels per sample"], 2), "empty sets": round(row["empty sets"], 1)}
    return {"achieved": f"{row[kind]:.1f} [{low:.1f}, {high:.1f}]", **sizes}


def draw(rows: list[Row]) -> str:
    """Draw the precision and recall that were achieved over those that were asked for."""
    parts: list[str] = []
    for panel, kind in enumerate(("precision", "recall")):
        parts += draw_panel(rows, kind, LEFT + panel * (SIDE + 60))
    for number, (source, colour) in enumerate(SOURCES.items()):
        x, y = LEFT + 110 * number, HEIGHT - 12
        parts += [draw_line(x, y - 4, x + 24, y - 4, colour, ' stroke-width="2"'), draw_text(x + 30, y, f"after {source}")]
    parts.append(draw_text(LEFT + 340, HEIGHT - 12, "a line per corpus and method", fill=GREY))
    return make_svg(WIDTH, HEIGHT, parts)


def draw_panel(rows: list[Row], kind: str, left: float) -> list[str]:
    """Draw one of the two panels, with axes from 40 % to 100 %."""

    def at(asked: float, achieved: float) -> tuple[float, float]:
        return left + SIDE * (asked - 40) / 60, TOP + SIDE * (100 - achieved) / 60

    parts = [draw_text(left, TOP - 14, f"{kind} achieved over {kind} asked for, %")]
    for tick in range(40, 101, 20):
        (x, y), (right, top) = at(tick, tick), at(100, 100)
        parts += [draw_line(left, y, right, y), draw_line(x, top, x, TOP + SIDE)]
        parts += [
            draw_text(left - 6, y + 4, str(tick), anchor="end"),
            draw_text(x, TOP + SIDE + 16, str(tick), anchor="middle"),
        ]
    parts.append(draw_line(*at(40, 40), *at(100, 100), GREY, ' stroke-dasharray="5 4"'))
    lines: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in rows:
        if row["target"].startswith(f"{kind}=") and kind in row:
            asked = 100 * float(row["target"].partition("=")[2])
            lines.setdefault((row["source"], row["corpus"], row["method"]), []).append(at(asked, max(row[kind], 40)))
    for (source, *_), points in lines.items():
        path, colour = " ".join(f"{x:.1f},{y:.1f}" for x, y in points), SOURCES[source]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    return parts


def main() -> None:
    """Run, print and draw."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture to this file")
    parser.add_argument("--corpora", default=",".join(CORPORA), help="corpora, between commas (default: %(default)s)")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, between commas (default: %(default)s)")
    samples = "train on this many random samples (default: by corpus)"
    parser.add_argument("--samples", type=int, help=samples)
    measured = "runs are added to this file; those in it are not repeated"
    parser.add_argument("--measured", type=Path, metavar="FILE", help=measured)
    given = parser.parse_args()
    done: dict[str, list[dict[str, Any]]] = {}
    if given.measured and given.measured.exists():
        done = json.loads(given.measured.read_text())
    for name in given.corpora.split(","):
        for method in given.methods.split(","):
            key = f"{name} {method}"
            if key not in done:
                print_progress(key)
                done[key] = measure(name, given.samples or CORPORA[name], method)
                if given.measured:
                    given.measured.write_text(json.dumps(done) + "\n")
    rows = [row for key in done for row in done[key]]
    notes = ["Percentages; precision over the texts that get labels, recall over the texts that have labels; 95 % intervals"]
    report(tabulate(rows), notes, given.json)
    if given.svg:
        given.svg.write_text(draw(rows))


if __name__ == "__main__":
    main()
