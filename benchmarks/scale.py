"""How the cost of label trees grows with the number of labels: one tree on synthetic corpora of 10k, 100k and 670k labels.

Prints a table and draws ``docs/plt-scaling.svg``: CPU seconds against labels, with a line for n log n and the peak memory.
"""

from __future__ import annotations

from math import log, log10
from pathlib import Path

from common import MB, THREADS, Row, Stopwatch, make_parser, print_progress, report
from peers import run
from synthetic import load_synthetic

SIZES = (10_000, 100_000, 670_000)
WIDTH, HEIGHT, MARGIN, RIGHT = 720, 400, 60, 140


def measure(n_labels: int) -> Row:
    """Train one tree and predict."""
    from longtail.labelspace.propensity import compute_inverse_propensity
    from longtail.metrics.ranking import score_samples
    from longtail.models.plt.model import LabelTrees

    X, Y, X_test, Y_test = load_synthetic(n_labels)
    with Stopwatch() as training:
        model = LabelTrees(n_trees=1, threads=THREADS).fit(X, Y)
    with Stopwatch() as predicting:
        best = model.topk(X_test, 5)
    values = score_samples(best, Y_test, compute_inverse_propensity(model.label_counts, model.n_samples)).values()
    return {
        "labels": n_labels,
        "samples": X.shape[0],
        "train s": training.wall,
        "train CPU-s": training.cpu,
        "predict s": predicting.wall,
        "model MB": sum(array.nbytes for array in model.state().values()) / MB,
        **{name: values[name] for name in ("P@1", "P@5", "PSP@5")},
    }


def draw(rows: list[Row]) -> str:
    """CPU seconds against labels and a line for n log n, with logarithmic axes, as SVG."""
    low, high = log10(rows[0]["labels"]), log10(rows[-1]["labels"])
    seconds = [row["train CPU-s"] for row in rows]
    line = [seconds[0] * row["labels"] * log(row["labels"]) / (rows[0]["labels"] * log(rows[0]["labels"])) for row in rows]
    bottom, top = log10(min(seconds)) - 0.2, log10(max(*line, *seconds)) + 0.2

    def at(labels: float, value: float) -> tuple[float, float]:
        x = MARGIN + (log10(labels) - low) / (high - low) * (WIDTH - MARGIN - RIGHT)
        y = HEIGHT - MARGIN - (log10(value) - bottom) / (top - bottom) * (HEIGHT - 2 * MARGIN)
        return round(x, 1), round(y, 1)

    def path(values: list[float]) -> str:
        return " ".join("{},{}".format(*at(row["labels"], value)) for row, value in zip(rows, values, strict=True))

    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="28" font-size="15">Training one label tree: CPU seconds against labels</text>',
        f'<polyline points="{path(line)}" fill="none" stroke="#999" stroke-dasharray="6 4"/>',
        f'<polyline points="{path(seconds)}" fill="none" stroke="#0b62a4" stroke-width="2.5"/>',
    ]
    for row, value in zip(rows, seconds, strict=True):
        x, y = at(row["labels"], value)
        text.append(f'<circle cx="{x}" cy="{y}" r="4" fill="#0b62a4"/>')
        text.append(f'<text x="{x + 6}" y="{y + 20}" fill="#0b62a4">{value:.0f} s, {row["peak MB"]:,.0f} MB</text>')
        text.append(f'<text x="{x}" y="{HEIGHT - 24}" text-anchor="middle">{row["labels"]:,}</text>')
    x, y = at(rows[-1]["labels"], line[-1])
    text.append(f'<text x="{x}" y="{y - 10}" text-anchor="end" fill="#666">n log n</text></svg>')
    return "\n".join(text) + "\n"


def main() -> None:
    """Run, print and draw."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture to this file")
    given = parser.parse_args()
    rows = []
    for n_labels in SIZES:
        print_progress(f"{n_labels:,} labels")
        load_synthetic(n_labels)  # generated before the training process, whose memory is measured
        done = run("longtail", measure, n_labels=n_labels)
        rows.append({**done.result, "peak MB": done.peak})
    first = rows[0]
    for row in rows:
        growth = row["labels"] * log(row["labels"]) / (first["labels"] * log(first["labels"]))
        row["CPU-s / n log n"] = row["train CPU-s"] / first["train CPU-s"] / growth
    report({"One tree at scale": rows}, [f"{THREADS} threads, seed 0, default settings but one tree"], given.json)
    if given.svg:
        given.svg.write_text(draw(rows))


if __name__ == "__main__":
    main()
