"""Calibration: how far the scores of each method are from probabilities, before and after, and what calibration costs.

ECE@5 in percent. A raw score that is a margin is read as log-odds. ``--part held-out`` evaluates on a random fifth of the
training data instead of the test data: for choices. Each finished run is a line of the file of results (``--results``), and
is not repeated. ``--draw`` draws docs/calibration.svg from it. ``--unlabelled 0.8`` drops the most frequent labels until
80 % of the texts have none.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import ROOT, Row, Stopwatch, draw_part, draw_rows, make_parser, print_progress, read_corpus, report
from draw import BLUE, GREY, RED, draw_line, draw_text, make_svg

MAX_TEST = 5000
FINNA = ("finna-yso-en", "finna-yso-fi")
SIZES = {"gutenberg-lcsh": 20_000, "finna-yso-en": 20_000, "finna-yso-fi": 20_000}  # random training samples; others: all
TEXTS = ("reuters21578-modapte", "builtin:pydoc", "debian-debtags", "manpages-seealso", "gutenberg-lcsh", *FINNA)
SMALL = ("reuters21578-modapte", "debian-debtags")
SMALL_SIZES = {"debian-debtags": 4000}
NETWORKS = (
    "glas",
    "neuralxc+epochs=10",
    "aplc+epochs=5",
    "lightattention+epochs=4",
    "secseq+epochs=4",
)
DRAWN = (("ovr", "reuters21578-modapte"), ("plt", "reuters21578-modapte"))


def list_runs(samples: int | None = None) -> list[tuple[str, str, int | None]]:
    """Method, corpus and number of training samples of each run; with ``samples``, every method on every corpus."""
    if samples:
        methods = ("plt", "ovr", "hierarchicalxc", *NETWORKS, "blend")
        return [(method, corpus, samples) for corpus in TEXTS for method in methods]
    linear = [(method, corpus, SIZES.get(corpus)) for corpus in TEXTS for method in ("ovr", "plt")]
    others = ("hierarchicalxc", *NETWORKS, "blend", "popularity")
    return linear + [(method, corpus, SMALL_SIZES.get(corpus)) for method in others for corpus in SMALL]


def read_parts(corpus: str, size: int | None, part: str, unlabelled: float) -> tuple[Any, Any]:
    """Read training and evaluation data, without the most frequent labels if a share of texts is to have none."""
    import longtail

    if corpus.startswith("builtin:"):
        train, test = longtail.split(longtail.read(corpus), 0.2, 0)
    else:
        train, test = read_corpus(corpus), read_corpus(corpus, "test")
    if part == "held-out":
        order = np.random.default_rng(1).permutation(train.n_samples)
        cut = train.n_samples // 5
        train, test = train.take(np.sort(order[cut:])), train.take(np.sort(order[:cut]))
    train = draw_part(train, size) if size else train
    if unlabelled:
        train = drop_frequent_labels(train, unlabelled)
    return train, test.take(draw_rows(test.n_samples, MAX_TEST)).align(train.labels)


def drop_frequent_labels(data: Any, share: float) -> Any:
    """Drop the most frequent labels until at least this share of the samples has none."""
    from longtail import Dataset

    order = np.argsort(-np.bincount(data.Y.indices, minlength=data.n_labels), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rarest = np.zeros(data.n_samples, np.int64)  # the first number of dropped labels with which a sample has none
    np.maximum.at(rarest, np.repeat(np.arange(data.n_samples), np.diff(data.Y.indptr)), 1 + rank[data.Y.indices])
    n_dropped = int(np.quantile(rarest, share, method="higher"))
    names = data.labels.names
    rows = [data.Y.indices[start:end] for start, end in itertools.pairwise(data.Y.indptr)]
    return Dataset.from_texts(data.texts, [[names[label] for label in row if rank[label] >= n_dropped] for row in rows])


def measure(method: str, train: Any, test: Any) -> Row:
    """Train, calibrate and evaluate one method."""
    from longtail.labelspace.names import append_labels
    from longtail.metrics.calibration import measure_reliability
    from longtail.metrics.ranking import score_samples
    from longtail.pipeline import Pipeline
    from longtail.spec import MethodSpec
    from longtail.tagger.held_out import predict_held_out
    from longtail.tagger.tagger import Tagger
    from longtail.topk import SEARCH_DEPTH, TopK, find_hits

    pipeline = Pipeline(MethodSpec.parse(method), threads=1)
    with Stopwatch() as training:
        X = pipeline.fit_features(train.inputs, train.Y, labels=train.labels)
        pipeline.fit_model(X, train.Y, None, labels=train.labels)
    with Stopwatch() as calibrating:
        Y = append_labels(train.Y, pipeline.named)
        held_out = predict_held_out(pipeline.model, X, Y, None, calibrate=True)
        tagger = Tagger.from_pipeline(pipeline, train.labels, train.texts is not None, held_out=held_out)
    found, best = tagger.topk(test.inputs, SEARCH_DEPTH, raw=True), tagger.topk(test.inputs)
    raw = TopK(found.ids[:, : best.k], found.scores[:, : best.k])
    assert (raw.ids == best.ids).all()
    naive = raw.scores if pipeline.model.score_meaning == "probability" else 1 / (1 + np.exp(-raw.scores))
    counts = np.zeros(test.Y.shape[1], np.int32)
    counts[: pipeline.model.n_labels] = pipeline.model.label_counts
    Y = sp.csr_array(test.Y)
    hits = find_hits(best, Y)
    before, after = (measure_reliability(top, hits, counts) for top in (TopK(raw.ids, np.maximum(naive, 0)), best))
    return {
        "P@1": score_samples(best, Y, np.ones(Y.shape[1])).values()["P@1"],
        "raw": before.values["ECE@5"],
        "calibrated": after.values["ECE@5"],
        "interval": after.intervals["ECE@5"],
        "slices": {name: error for name, error in after.slices.items() if name != "unseen"},
        "training, CPU s": training.cpu,
        "ratio": (training.cpu + calibrating.cpu) / training.cpu,
        "µs per text": time_calibration(tagger, found, batch=True),
        "µs of one text": time_calibration(tagger, found, batch=False),
        "held out": tagger.decisions.source,
        "bins": {"raw": before.bins, "calibrated": after.bins},
    }


def time_calibration(tagger: Any, raw: Any, batch: bool) -> float:
    """CPU microseconds per text that the calibration of 20 labels takes, of many texts at once or of one."""
    from longtail.topk import TopK

    parts = [raw] if batch else [TopK(raw.ids[[row]], raw.scores[[row]]) for row in range(min(200, raw.n_samples))]
    best = np.inf
    for _ in range(5):
        start = time.process_time()
        for part in parts:
            tagger.calibration.apply(part, tagger.model.label_counts)
        best = min(best, time.process_time() - start)
    return 1e6 * best / sum(part.n_samples for part in parts)


def draw(rows: Sequence[Row]) -> str:
    """Reliability before and after, side by side for the methods of ``DRAWN``."""
    size, left, top = 220, 52, 40
    parts: list[str] = []
    for number, (method, corpus) in enumerate(DRAWN):
        row = next(row for row in rows if (row["method"], row["corpus"], row["samples"]) == (method, corpus, None))
        x0 = left + number * (size + 70)

        def place(x: float, y: float, x0: int = x0) -> tuple[float, float]:
            return x0 + size * x / 100, top + size * (1 - y / 100)

        for tick in range(0, 101, 25):
            parts.append(draw_line(*place(tick, 0), *place(tick, 100)) + draw_line(*place(0, tick), *place(100, tick)))
            parts.append(draw_text(place(tick, 0)[0], top + size + 16, f"{tick}", anchor="middle", fill=GREY))
            parts.append(draw_text(x0 - 6, place(0, tick)[1] + 4, f"{tick}", anchor="end", fill=GREY))
        parts.append(draw_line(*place(0, 0), *place(100, 100), GREY, ' stroke-dasharray="4 3"'))
        for kind, colour in (("raw", RED), ("calibrated", BLUE)):
            places = [place(predicted, observed) for _, predicted, observed in row["bins"][kind]]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(draw_text(x0, top - 22, f"<tspan font-weight='bold'>{method}</tspan>, right labels in %"))
        words = f"<tspan fill='{RED}'>score, ECE@5 {row['raw']:.1f}</tspan> "
        parts.append(draw_text(x0, top - 7, words + f"<tspan fill='{BLUE}'>calibrated, {row['calibrated']:.1f}</tspan>"))
        parts.append(draw_text(x0 + size / 2, top + size + 33, "probability, %", anchor="middle"))
    return make_svg(2 * size + left + 90, top + size + 44, parts)


def make_tables(rows: Sequence[Row]) -> dict[str, Sequence[Row]]:
    """One table per part of the data."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        low, high = row["interval"]
        cells = {name: row[name] for name in ("method", "corpus", "samples", "P@1", "raw")}
        cells["calibrated"] = f"{row['calibrated']:.2f} [{low:.1f}, {high:.1f}]"
        cells |= {name: f"{error:.1f}" for name, error in row["slices"].items()}
        cells |= {"training, CPU s": row["training, CPU s"], "ratio": f"{row['ratio']:.2f}"}
        cells |= {name: f"{row[name]:.1f}" for name in ("µs per text", "µs of one text")}
        tables.setdefault(f"ECE@5 on {row['part']} data, percent", []).append(cells)
    return dict(tables)


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--results", type=Path, default=ROOT / ".cache" / "calibration.jsonl", metavar="FILE")
    parser.add_argument("--part", choices=("test", "held-out"), default="test")
    parser.add_argument("--method", action="append", help="only methods that start with this; may be repeated")
    parser.add_argument("--corpus", action="append", help="only this corpus; may be repeated")
    parser.add_argument("--samples", type=int, help="train every method on this many random samples of every corpus")
    parser.add_argument("--unlabelled", type=float, default=0.0, metavar="SHARE", help="of the training texts, at least")
    parser.add_argument("--draw", action="store_true", help="draw docs/calibration.svg")
    given = parser.parse_args()
    given.results.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in given.results.read_text().splitlines()] if given.results.exists() else []
    rows = [row for row in rows if row.get("unlabelled", 0.0) == given.unlabelled]
    done = {(row["part"], row["method"], row["corpus"], row["samples"]) for row in rows}
    for method, corpus, size in list_runs(given.samples):
        wanted = not given.method or method.startswith(tuple(given.method))
        wanted &= (not given.corpus or corpus in given.corpus) and (given.part, method, corpus, size) not in done
        if wanted and not given.draw:
            print_progress(f"calibration: {method} on {corpus}")
            row = {"part": given.part, "method": method, "corpus": corpus, "samples": size}
            row |= {"unlabelled": given.unlabelled}
            row |= measure(method, *read_parts(corpus, size, given.part, given.unlabelled))
            print_progress(f"  raw {row['raw']:.2f}, calibrated {row['calibrated']:.2f}, ratio {row['ratio']:.2f}")
            rows.append(row)
            with given.results.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
    if given.draw:
        (ROOT / "docs" / "calibration.svg").write_text(draw([row for row in rows if row["part"] == "test"]))
    notes = ["raw: the scores of the model, margins as log-odds; calibrated: with a 95 % interval, then by label frequency"]
    notes.append("ratio: CPU seconds of training with and without calibration")
    report(make_tables(rows), notes, given.json)


if __name__ == "__main__":
    main()
