"""The ablation of GLaS (Guo et al. 2019, table 1), one setting changed at a time, and its figure 1, overfitting by epoch.

Trained on ``train``, of which the model holds 5 % out for early stopping; measured on ``test``, where no setting is chosen.
The base is the preset ``paper`` at a quarter of the paper's size (256 dimensions, batches of 1024) for a CPU, and with up to
30 epochs, since these corpora have fewer samples. The paper gives no learning rates. With so few steps, those of the preset
are too small: the rate of the labels is ten times as high here, and training stops after 10 epochs without progress. Both
were chosen on 2,000 held-out training samples of each corpus, with λ = 0 and 10.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report
from draw import BLUE, RED, choose_ticks, draw_line, draw_text, make_svg

CORPORA = ("delicious", "debian-debtags")
CURVE_CORPUS = "debian-debtags"
EPOCHS = (1, 2, 3, 5, 8, 12, 20, 30)  # after which the curves are measured
BASE = {"dim": 256, "batch": 1024, "epochs": 30, "label_rate": 0.03, "patience": 10, "threads": 1}
ALL_SAMPLES: dict[str, Any] = {"holdout": 0.0, "patience": 0}  # without early stopping
ADAGRAD = {"optimizer": "adagrad", "rate": 0.01}
PAPER_BASE = 94.21  # P@1 on AmazonCat-13K
FEW_SAMPLES = 1000  # training samples of the runs with few samples
FEW: dict[str, Any] = {**ALL_SAMPLES, "batch": 128, "label_rate": 0.003}  # the rate of the preset
FEW_WEIGHTS = (0.0, 1.0, 10.0, 100.0, 1000.0)  # λ
FEW_COOCCURRENCE = ("geometric", "jaccard", "pmi")
N_TRAIN = 2000  # training samples on which overfitting is measured
METRICS = ("P@1", "P@3", "P@5", "PSP@5")

Settings = dict[str, Any]
# factor -> its values: name, changes to the base, P@1 in the paper on AmazonCat-13K
FACTORS: dict[str, list[tuple[str, Settings, float | None]]] = {
    "regulariser": [
        ("none", {"reg_weight": 0.0}, 92.34),
        ("GLaS", {}, PAPER_BASE),
        ("spread-out", {"regulariser": "spread-out"}, 93.34),
        ("gravity", {"regulariser": "gravity"}, 93.42),
        ("Laplacian", {"regulariser": "laplacian"}, None),
    ],
    "λ": [
        ("1", {"reg_weight": 1.0}, 93.68),
        ("10", {}, PAPER_BASE),
        ("100", {"reg_weight": 100.0}, 93.75),
        ("1000", {"reg_weight": 1000.0}, None),
    ],
    "ρ (share kept)": [("1", {"keep_prob": 1.0}, 93.39), ("0.8", {}, PAPER_BASE), ("0.6", {"keep_prob": 0.6}, 94.08)],
    "batch (paper: × 4)": [
        ("256", {"batch": 256}, 94.04),
        ("512", {"batch": 512}, 93.98),
        ("1024", {}, PAPER_BASE),
        ("4096", {"batch": 4096}, None),
    ],
    "d (paper: × 4)": [
        ("64", {"dim": 64}, 93.24),
        ("128", {"dim": 128}, 93.82),
        ("256", {}, PAPER_BASE),
        ("512", {"dim": 512}, None),
    ],
    "embedding": [("linear", {"relu": False}, 91.77), ("ReLU", {}, PAPER_BASE)],
}
CURVES: dict[str, Settings] = {
    "GLaS, gradient descent": {},
    "no regulariser, gradient descent": {"reg_weight": 0.0},
    "GLaS, Adagrad": ADAGRAD,
    "no regulariser, Adagrad": {**ADAGRAD, "reg_weight": 0.0},
}


@dataclass(frozen=True)
class Corpus:
    """Features and labels of the training and test data, with the same label ids."""

    X: sp.csr_array
    Y: sp.csr_array
    X_test: sp.csr_array
    Y_test: sp.csr_array


def prepare_corpus(name: str) -> Corpus:
    """Compute the features of the preset ``paper``: single words."""
    from longtail.features.normaliser import Normaliser
    from longtail.features.tfidf import Tfidf

    train, test = read_corpus(name), read_corpus(name, "test")
    features: Any = Normaliser() if train.texts is None else Tfidf(ngrams=1)
    X, X_test = features.fit_transform(train.inputs), features.transform(test.inputs)
    return Corpus(X, train.Y, X_test, test.align(train.labels).Y)


def make_model(settings: Settings, seed: int) -> Any:
    """The base with some settings changed."""
    from longtail.models.glas.model import Glas

    preset = {name: value for name, value in Glas.preset("paper").items() if name in Glas.param_names()}
    return Glas(**{**preset, **BASE, **settings, "seed": seed})


def sample_train(data: Corpus) -> tuple[sp.csr_array, sp.csr_array]:
    """Draw the training samples on which overfitting is measured; always the same."""
    random = np.random.default_rng(100)  # seeds 0, 1, … would draw the held-out samples
    rows = np.sort(random.permutation(data.X.shape[0])[:N_TRAIN])
    return data.X[rows], data.Y[rows]


def measure(data: Corpus, settings: Settings, seed: int) -> dict[str, float]:
    """Train once and evaluate."""
    from longtail.metrics.evaluate import evaluate

    with Stopwatch() as training:
        model = make_model(settings, seed).fit(data.X, data.Y)
    known = {"label_counts": model.label_counts, "n_train": model.n_samples}
    values = evaluate(model.topk(data.X_test, 5), data.Y_test, **known).values
    X, Y = sample_train(data)
    on_train = evaluate(model.topk(X, 5), Y, **known).values["P@1"]
    return {**{name: values[name] for name in METRICS}, "P@1 on train": on_train, "CPU-s": training.cpu}


def run_ablation(name: str, seeds: int) -> list[Row]:
    """One row per value of each factor, with the metrics of every seed."""
    data, done, rows = prepare_corpus(name), {}, []
    for factor, values in FACTORS.items():
        for value, settings, paper in values:
            key = str(settings)
            if key not in done:
                print_progress(f"{name}: {factor} {value}")
                done[key] = [measure(data, settings, seed) for seed in range(seeds)]
            of_seeds = {metric: [run[metric] for run in done[key]] for metric in done[key][0]}
            rows.append({"factor": factor, "value": value, "paper": paper, "seeds": of_seeds})
    return rows


def make_table(rows: list[Row]) -> list[Row]:
    """The mean of the seeds, and their standard deviation if there are several, for print."""
    out = []
    for row in rows:
        cells = {metric: format_spread(values) for metric, values in row["seeds"].items()}
        cells["CPU-s"] = f"{np.mean(row['seeds']['CPU-s']):.1f}"
        paper = "" if row["paper"] is None else f"{row['paper']:.2f}"
        out.append({"factor": row["factor"], "value": row["value"], **cells, "paper: P@1 on AmazonCat": paper})
    return out


def format_spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation."""
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def run_curves(name: str) -> dict[str, dict[str, list[float]]]:
    """P@1 of each setting on test and on training samples after each of ``EPOCHS``.

    Each point is a separate run: at constant rates and with the same seed, it is the start of the longer ones.
    """
    data, out = prepare_corpus(name), {}
    for title, settings in CURVES.items():
        print_progress(f"{name}: {title}")
        runs = [measure(data, {**settings, "epochs": n, **ALL_SAMPLES}, 0) for n in EPOCHS]
        out[title] = {"train": [run["P@1 on train"] for run in runs], "test": [run["P@1"] for run in runs]}
    return out


def run_few(name: str, seeds: int) -> list[Row]:
    """λ and the measure of co-occurrence with few samples and without early stopping, where a regulariser should help most.

    Each seed draws other training samples.
    """
    data, rows = prepare_corpus(name), []
    values: dict[str, Settings] = {f"λ = {weight:g}": {"reg_weight": weight} for weight in FEW_WEIGHTS}
    values |= {f"λ = 10, {measure}": {"cooccurrence": measure} for measure in FEW_COOCCURRENCE}
    for value, settings in values.items():
        print_progress(f"{name}: {FEW_SAMPLES:,} samples, {value}")
        runs = []
        for seed in range(seeds):
            drawn = np.sort(np.random.default_rng(seed).permutation(data.X.shape[0])[:FEW_SAMPLES])
            part = Corpus(data.X[drawn], data.Y[drawn], data.X_test, data.Y_test)
            runs.append(measure(part, {**settings, **FEW}, seed))
        of_seeds = {metric: [run[metric] for run in runs] for metric in runs[0]}
        rows.append({"factor": "few samples", "value": value, "paper": None, "seeds": of_seeds})
    return rows


def draw_ablation(results: dict[str, list[Row]]) -> str:
    """Draw P@1 on test as dots: a row of panels per corpus and one for the paper, one panel per factor."""
    left, top, height, step, gap = 64, 66, 130, 52, 24
    parts = [
        draw_text(left, 26, "GLaS: one setting changed at a time, P@1", size=16),
        draw_text(
            left,
            46,
            "filled: our base, and the same row of the paper; bars: one standard deviation of the seeds",
            fill="#555",
        ),
    ]
    lines: dict[str, dict[tuple[str, str], tuple[float, float]]] = {}
    for name, rows in results.items():
        means = {(r["factor"], r["value"]): r["seeds"]["P@1"] for r in rows}
        lines[f"{name}, test"] = {
            at: (float(np.mean(v)), float(np.std(v, ddof=1)) if len(v) > 1 else 0.0) for at, v in means.items()
        }
    papers = {(factor, value): (paper, 0.0) for factor, vs in FACTORS.items() for value, _, paper in vs if paper}
    lines["paper: AmazonCat-13K, test"] = papers
    width = left + sum(len(values) * step + gap for values in FACTORS.values())
    for number, (title, points) in enumerate(lines.items()):
        y0 = top + number * (height + 76) + 26
        low = min(mean - error for mean, error in points.values())
        high = max(mean + error for mean, error in points.values())
        low, high = low - 0.08 * (high - low), high + 0.12 * (high - low)
        parts.append(draw_text(left, y0 - 14, title, size=14))
        x0 = float(left)
        for factor, values in FACTORS.items():
            x0 = draw_panel(parts, points, factor, values, x0, y0, height, step, (low, high), x0 == left) + gap
    return make_svg(width, top + len(lines) * (height + 76), parts)


def draw_panel(
    parts: list[str],
    points: dict[tuple[str, str], tuple[float, float]],
    factor: str,
    values: list[tuple[str, Settings, float | None]],
    x0: float,
    y0: float,
    height: float,
    step: float,
    limits: tuple[float, float],
    first: bool,
) -> float:
    """Draw the values of one factor; return the right edge of the panel."""
    low, high = limits
    x1 = x0 + len(values) * step

    def y(value: float) -> float:
        return y0 + height * (high - value) / (high - low)

    for tick in choose_ticks(low, high):
        parts.append(draw_line(x0, y(tick), x1, y(tick)))
        if first:
            parts.append(draw_text(x0 - 8, y(tick) + 4, f"{tick:g}", anchor="end", fill="#555"))
    parts.append(draw_text((x0 + x1) / 2, y0 + height + 34, factor, anchor="middle", size=13))
    for i, (value, settings, _) in enumerate(values):
        x = x0 + (i + 0.5) * step
        parts.append(draw_text(x, y0 + height + 16, value, anchor="middle", fill="#333", size=11))
        if (factor, value) not in points:
            continue
        mean, error = points[factor, value]
        if error:
            parts.append(draw_line(x, y(mean - error), x, y(mean + error), BLUE, ' stroke-width="2"'))
        style = f'fill="{"white" if settings else BLUE}" stroke="{BLUE}" stroke-width="2"'
        parts.append(f'<circle cx="{x:.1f}" cy="{y(mean):.1f}" r="5" {style}/>')
        parts.append(draw_text(x, y(mean + error) - 9, f"{mean:.1f}", anchor="middle", size=11))
    return x1


def draw_curves(name: str, results: dict[str, dict[str, list[float]]]) -> str:
    """Draw one panel per optimiser: train and test by epoch, with and without the regulariser."""
    left, top, width, height, gap = 60, 84, 330, 270, 30
    values = [value for sides in results.values() for side in sides.values() for value in side]
    low, high = 5 * np.floor(min(values) / 5), 5 * np.ceil(max(values) / 5)
    low = max(low, high - 50)
    parts = [
        draw_text(left, 26, f"Overfitting by epoch on {name}: figure 1 of the paper redrawn", size=16),
        draw_text(left, 46, "P@1; solid: with the GLaS regulariser, dashed: without; no early stopping", fill="#555"),
    ]
    titles = {"gradient descent": "E by plain gradient descent", "Adagrad": "E by Adagrad"}
    for number, (optimizer, title) in enumerate(titles.items()):
        x0 = left + number * (width + gap)
        parts.append(draw_text(x0, top - 12, title, size=14))
        of_panel = {name: sides for name, sides in results.items() if name.endswith(optimizer)}

        def at(epoch: int, value: float, x0: float = x0) -> tuple[float, float]:
            return x0 + (epoch - 1) / (EPOCHS[-1] - 1) * width, top + (high - value) / (high - low) * height

        for tick in np.arange(low, high + 1, 5):
            parts.append(draw_line(x0, at(1, tick)[1], x0 + width, at(1, tick)[1]))
            if number == 0:
                parts.append(draw_text(x0 - 8, at(1, tick)[1] + 4, f"{tick:.0f}", anchor="end", fill="#555"))
        for epoch in (1, *range(5, EPOCHS[-1] + 1, 5)):
            parts.append(draw_text(at(epoch, low)[0], top + height + 18, str(epoch), anchor="middle", fill="#555"))
        parts.append(draw_text(x0 + width / 2, top + height + 38, "epoch", anchor="middle"))
        for title, sides in of_panel.items():
            dashes = ' stroke-dasharray="6 4"' if title.startswith("no ") else ""
            for side, colour in (("train", BLUE), ("test", RED)):
                shown = [(e, v) for e, v in zip(EPOCHS, sides[side], strict=True) if v >= low]
                path = " ".join("{:.1f},{:.1f}".format(*at(e, v)) for e, v in shown)
                parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        for side, colour in (("train", BLUE), ("test", RED)):
            last = max(sides[side][-1] for sides in of_panel.values())
            parts.append(draw_text(x0 + width - 4, at(1, last)[1] - 8, side, anchor="end", fill=colour))
    return make_svg(left + 2 * width + gap + 20, top + height + 56, parts)


def summarise_curves(results: dict[str, dict[str, list[float]]]) -> list[Row]:
    """The curves in figures: at the last epoch, and at the best on test (to see how much longer training loses)."""
    out = []
    for title, sides in results.items():
        end, best = {side: values[-1] for side, values in sides.items()}, int(np.argmax(sides["test"]))
        row = {"setting": title, "train, last": end["train"], "test, last": end["test"], "gap": end["train"] - end["test"]}
        out.append({**row, "test, best": sides["test"][best], "at epoch": EPOCHS[best]})
    return out


def main() -> None:
    """Run, print and draw."""
    import torch

    parser: argparse.ArgumentParser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", help=f"a corpus with train and test ({', '.join(CORPORA)})")
    parser.add_argument("--seeds", type=int, default=1, help="runs per setting (%(default)s)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the ablation here")
    parser.add_argument("--curves", type=Path, metavar="FILE", help=f"draw train and test by epoch on {CURVE_CORPUS} here")
    parser.add_argument("--only-curves", action="store_true", help="no ablation")
    parser.add_argument("--few", action="store_true", help=f"λ with {FEW_SAMPLES:,} samples; no ablation")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.few:
        few = {f"{name}: few samples": make_table(run_few(name, given.seeds)) for name in given.corpus or CORPORA}
        report(few, [f"{FEW_SAMPLES:,} training samples, no early stopping; seeds 0 to {given.seeds - 1}"], given.json)
        return
    results = {} if given.only_curves else {name: run_ablation(name, given.seeds) for name in given.corpus or CORPORA}
    tables = {f"{name}: one setting changed at a time": make_table(rows) for name, rows in results.items()}
    if given.curves:
        by_epoch = run_curves(CURVE_CORPUS)
        tables[f"{CURVE_CORPUS}: P@1 by epoch"] = summarise_curves(by_epoch)
        given.curves.write_text(draw_curves(CURVE_CORPUS, by_epoch))
    base = ", ".join(f"{name} {value}" for name, value in BASE.items())
    report(tables, [f"Base: preset paper with {base}; seeds 0 to {given.seeds - 1}; mean ± standard deviation"], given.json)
    if given.svg:
        given.svg.write_text(draw_ablation(results))


if __name__ == "__main__":
    main()
