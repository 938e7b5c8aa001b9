"""Networks with ever more labels: accuracy, CPU time, memory and size on synthetic corpora, compared with label trees.

    python benchmarks/synthetic_labels.py --labels 10000 --json results.json --svg docs/synthetic-labels.svg

The training of each network stops after some minutes, with the best weights so far: figures are what can be had in that
time. Methods that read texts get the words of the samples, in the order of their numbers: a
sequence of words says nothing here. One thread, one process per run, seed 0. With ``--json``, runs that the file already has
are not repeated.
"""

from __future__ import annotations

import json
from math import log10
from pathlib import Path

import scipy.sparse as sp
from common import MB, Row, Stopwatch, make_parser, print_progress, report
from draw import draw_line, draw_text, make_svg
from peers import LIMITS, Failed, run
from synthetic import load_synthetic

LABELS = (10_000, 30_000, 100_000)
METHODS = ("plt", "glas", "aplc", "secseq", "lightattention")
COLOURS = ("#888", "#0b62a4", "#c0392b", "#2e8b57", "#b8860b")
WITHOUT_LIMIT = ("plt",)
PANELS = ("P@1", "train CPU-s", "peak MB", "model MB")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 230, 250, 52, 48, 40  # of a panel, and its margins


def measure(n_labels: int, method: str, minutes: float) -> Row:
    """Train and evaluate one method."""
    from longtail.labelspace.propensity import compute_inverse_propensity
    from longtail.metrics.ranking import score_samples
    from longtail.registry import model_class

    X, Y, X_test, Y_test = load_synthetic(n_labels)
    limit = {} if method in WITHOUT_LIMIT else {"minutes": minutes}
    model = model_class(method)(threads=1, **limit)
    samples, test = (write_texts(X), write_texts(X_test)) if model.input == "texts" else (X, X_test)
    with Stopwatch() as training:
        model.fit(samples, Y)
    with Stopwatch() as predicting:
        best = model.topk(test, 5)
    values = score_samples(best, Y_test, compute_inverse_propensity(model.label_counts, model.n_samples)).values()
    return {
        **{"labels": n_labels, "samples": X.shape[0], "method": method},
        **{name: values[name] for name in ("P@1", "P@5", "PSP@5")},
        **{"train CPU-s": training.cpu, "predict CPU-s": predicting.cpu},
        "model MB": sum(array.nbytes for array in model.state().values()) / MB,
        "epochs": len(getattr(model, "history", [])) or "",
    }


def write_texts(X: sp.csr_array) -> list[str]:
    """The words of each sample as a text."""
    words = [f"w{number}" for number in range(X.shape[1])]
    return [" ".join(words[j] for j in X.indices[X.indptr[i] : X.indptr[i + 1]]) for i in range(X.shape[0])]


def draw(rows: list[Row]) -> str:
    """A panel for each figure, against the number of labels; all axes but that of P@1 are logarithmic."""
    parts = [draw_text(LEFT, 20, "Synthetic corpora: figures against the number of labels", size=15)]
    for number, method in enumerate(METHODS):
        parts.append(draw_text(LEFT + 100 * number, 38, method, fill=COLOURS[number]))
    for number, name in enumerate(PANELS):
        parts += draw_panel(number * WIDTH, name, rows)
    return make_svg(WIDTH * len(PANELS), HEIGHT, parts)


def draw_panel(left: float, name: str, rows: list[Row]) -> list[str]:
    """One figure of all methods."""
    low, high = log10(min(LABELS)) - 0.1, log10(max(LABELS)) + 0.1
    values = [row[name] for row in rows]
    is_log = name != "P@1"
    bottom, top = (log10(min(values)) - 0.1, log10(max(values)) + 0.1) if is_log else (0.0, 1.1 * max(values))

    def at(labels: float, value: float) -> tuple[float, float]:
        x = left + LEFT + (log10(labels) - low) / (high - low) * (WIDTH - LEFT - 14)
        share = ((log10(value) if is_log else value) - bottom) / (top - bottom)
        return x, HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP - 20)

    parts = [draw_text(left + LEFT, TOP + 14, name)]
    for value in [10.0**p for p in range(6)] if is_log else range(0, 100, 20):
        if bottom <= (log10(value) if is_log else value) <= top:
            _, y = at(LABELS[0], value)
            parts += [
                draw_line(left + LEFT, y, left + WIDTH - 14, y),
                draw_text(left + LEFT - 6, y + 4, f"{value:,.0f}", anchor="end"),
            ]
    for labels in LABELS:
        parts.append(draw_text(at(labels, 1)[0], HEIGHT - 18, f"{labels // 1000}k", anchor="middle"))
    for method, colour in zip(METHODS, COLOURS, strict=True):
        points = [at(row["labels"], row[name]) for row in rows if row["method"] == method]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    return parts


def main() -> None:
    """Run, print and draw."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument(
        "--labels", type=int, nargs="*", default=LABELS, choices=LABELS, help="numbers of labels (%(default)s)"
    )
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS, help="methods (all)")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, for each network (%(default)s)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture to this file")
    args = parser.parse_args()
    title, env = "Synthetic labels", {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows: list[Row] = json.loads(args.json.read_text())[title] if args.json and args.json.exists() else []
    notes = [f"One thread, seed 0; networks are trained for at most {args.minutes:g} minutes"]
    for n_labels in args.labels:
        load_synthetic(n_labels)  # generated before the training process, whose memory is measured
        for method in args.methods:
            if any((row["labels"], row["method"]) == (n_labels, method) for row in rows):
                continue
            print_progress(f"{n_labels:,} labels, {method}")
            try:
                done = run("longtail", measure, env=env, n_labels=n_labels, method=method, minutes=args.minutes)
            except Failed as problem:
                print_progress(str(problem))
                continue
            rows = sorted(
                [*rows, {**done.result, "peak MB": done.peak}], key=lambda row: (row["labels"], METHODS.index(row["method"]))
            )
            if args.json:
                args.json.write_text(json.dumps({title: rows, "notes": notes}, indent=1) + "\n", encoding="utf-8")
    report({title: rows}, notes, args.json)
    if args.svg:
        args.svg.write_text(draw(rows))


if __name__ == "__main__":
    main()
