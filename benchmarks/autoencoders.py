"""NeuralXC and HierarchicalXC with both presets, and the figures of their paper (Srinivasan, Rao and Agarwal): train and
test over the ranks K, as in figures 3 to 6, next to random labels, the most frequent labels and one-vs-rest; on package
descriptions next to label trees; how well reconstruction errors detect foreign texts; and, on held-out training data,
corpora with many labels.

Trained on ``train``, measured once on ``test``; no setting is chosen there. One thread, one process per run. With --seeds,
figures are means over seeds, and the table shows the range of P@1.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, Stopwatch, draw_rows, make_parser, print_progress, read_corpus, report
from draw import BLUE, GREY, RED, choose_ticks, draw_line, draw_text, make_svg
from peers import LIMITS, run

KS = tuple(range(1, 11))
CORPORA = ("bibtex", "delicious")
TEXT_CORPUS = "debian-debtags"
FOREIGN = (
    "reuters21578-modapte",
    "gutenberg-lcsh",
    "finna-yso-en",
)  # should be novel after training on TEXT_CORPUS
METHODS: dict[str, dict[str, Any]] = {
    "random": {},
    "popularity": {},
    "ovr": {},
    "neuralxc, paper": {"method": "neuralxc", "preset": "paper"},
    "neuralxc, paper, staged": {"method": "neuralxc", "preset": "paper", "mode": "staged"},
    "neuralxc, best": {"method": "neuralxc", "preset": "best"},
    "hierarchicalxc, paper": {"method": "hierarchicalxc", "preset": "paper"},
    "hierarchicalxc, best": {"method": "hierarchicalxc", "preset": "best"},
}
ON_TEXTS = ("plt", "neuralxc, best", "hierarchicalxc, best")
# read off the bars of figures 3 to 6 (± 0.3), and table 2
PUBLISHED: dict[tuple[str, str], dict[str, dict[str, float]]] = {
    ("bibtex", "neuralxc, paper"): {
        "test": {"P@1": 14.3, "P@3": 8.9, "P@5": 7.1, "nDCG@3": 13.4, "nDCG@5": 14.6},
        "train": {"P@1": 13.7, "P@3": 8.9, "P@5": 6.8},
    },
    ("delicious", "neuralxc, paper"): {
        "test": {"P@1": 53.2, "P@3": 48.2, "P@5": 44.6, "nDCG@3": 49.4, "nDCG@5": 46.7},
        "train": {"P@1": 51.7, "P@3": 47.3, "P@5": 44.3},
    },
    ("bibtex", "hierarchicalxc, paper"): {
        "test": {"P@5": 4.10, "nDCG@5": 2.69},
        "train": {"P@5": 3.96, "nDCG@5": 2.66},
    },
}
# changes to the preset ``best``, one at a time
ABLATION: dict[str, dict[str, Any]] = {
    "best": {},
    "α = 0": {"alpha": 0.0},
    "β = 0": {"beta": 0.0},
    "α = β = 0": {"alpha": 0.0, "beta": 0.0},
    "α = 0.1": {"alpha": 0.1},
    "β = 1": {"beta": 1.0},
    "γ = 0.01": {"gamma": 0.01},
    "Tanh around the label code": {"latent_activation": "tanh"},
    "no activation after φᵢ": {"code_activation": "none"},
    "means over features and labels": {"reduction": "mean"},
    "no prior in the biases": {"prior_bias": False},
    "label vectors start as centroids": {"label_init": "centroids"},
    "no dropout": {"keep_prob": 1.0},
    "no average of weights": {"average": "none"},
    "Adam (0.001) instead of gradient descent": {"optimizer": "adam", "rate": 0.001},
    "staged": {"mode": "staged", "rate": 1.0},
}
HELD_OUT = ("plt+ngrams=1", "neuralxc", "hierarchicalxc", "hierarchicalxc+fanout=2", "hierarchicalxc+linkage=balanced")
COLUMNS = {"test": ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5"), "train": ("P@1", "P@3", "P@5")}
STYLES = {
    "random": (GREY, "2 3"),
    "popularity": (GREY, "6 4"),
    "ovr": ("#333", ""),
    "neuralxc, paper": (BLUE, "6 4"),
    "neuralxc, paper, staged": (BLUE, "2 3"),
    "neuralxc, best": (BLUE, ""),
    "hierarchicalxc, paper": (RED, "6 4"),
    "hierarchicalxc, best": (RED, ""),
}

Figures = dict[str, dict[str, float]]  # side -> metric -> value


def measure(name: str, label: str, seed: int) -> Row:
    """Train one method on one corpus; P@K and nDCG@K on both sides, and whether it warns that it has collapsed."""
    import longtail
    from longtail.errors import CollapseWarning

    train, test = read_corpus(name), read_corpus(name, "test")
    settings = {"method": label, **METHODS.get(label, {})}
    with Stopwatch() as training, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CollapseWarning)
        tagger = None if label == "random" else longtail.Tagger(**settings, **runtime(settings["method"], seed)).fit(train)
    collapsed = any(issubclass(warning.category, CollapseWarning) for warning in caught)
    sides = {side: score_ranks(tagger, data, train) for side, data in (("train", train), ("test", test))}
    return {"sides": sides, "CPU-s": training.cpu, "collapsed": collapsed}


def runtime(method: str, seed: int) -> dict[str, int]:
    """The settings for one thread and a seed, if the method has them."""
    from longtail.registry import model_class

    known = model_class(method).param_names()
    return {name: value for name, value in (("threads", 1), ("seed", seed)) if name in known}


def measure_seeds(work: Any, n_seeds: int, env: dict[str, str], **which: Any) -> Row:
    """Mean of the figures over seeds, each in a process; the range of P@1 on test is added if there are several."""
    runs = [run("longtail", work, env=env, seed=seed, **which).result for seed in range(n_seeds)]

    def mean(rows: list[Any]) -> Any:
        if isinstance(rows[0], dict):
            return {name: mean([row[name] for row in rows]) for name in rows[0]}
        return rows[0] if isinstance(rows[0], str) else type(rows[0])(np.mean(rows))

    first = [row["sides"]["test"]["P@1"] if "sides" in row else row["P@1"] for row in runs]
    spread = {"P@1, seeds": f"{min(first):.2f} to {max(first):.2f}"} if n_seeds > 1 else {}
    return {**mean(runs), **spread}


def score_ranks(tagger: Any, data: Any, train: Any) -> dict[str, float]:
    """P@K and nDCG@K; without a tagger, of labels in random order (the paper's: each with probability one half)."""
    from longtail import TopK
    from longtail.metrics.ranking import score_samples

    Y = data.align(train.labels).Y
    if tagger is None:
        ids = np.random.default_rng(0).random((Y.shape[0], train.n_labels)).argsort(axis=1)[:, : KS[-1]]
        best = TopK(ids, np.tile(-np.arange(KS[-1]), (len(ids), 1)))
    else:
        best = tagger.topk(data.inputs, KS[-1])
    found = score_samples(best, Y, np.ones(Y.shape[1]), KS).values()
    return {metric: value for metric, value in found.items() if metric.startswith(("P@", "nDCG@"))}


def measure_ablation(name: str, label: str, seed: int) -> Row:
    """NeuralXC with one setting changed, trained on four fifths of ``train``, measured on the rest; ``test`` is not read."""
    import longtail
    from longtail.data.split import split_stratified
    from longtail.errors import CollapseWarning

    data = read_corpus(name)
    out = split_stratified(data.Y, 0.2, 0)
    train, rest = data.take(np.flatnonzero(~out)), data.take(np.flatnonzero(out))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        tagger = longtail.Tagger("neuralxc", threads=1, seed=seed, **ABLATION[label]).fit(train)
    found, on_train = score_ranks(tagger, rest, train), score_ranks(tagger, train, train)
    shown = {metric: found[metric] for metric in ("P@1", "P@3", "P@5")}
    return {**shown, "P@1 on train": on_train["P@1"], "epochs": len(tagger.model.history)}


def measure_held_out(name: str, label: str, n_samples: int | None, seed: int) -> Row:
    """One method on held-out training samples of a corpus with many labels; ``test`` is not read."""
    import features

    train, rest = features.split_corpus(name, n_samples, 0, False)
    return features.measure(label, train, rest, seed)[0]


def run_held_out(name: str, given: Any, env: dict[str, str]) -> list[Row]:
    """A row for each method."""
    rows = []
    for label in given.spec or HELD_OUT:
        print_progress(f"{name}: {label}")
        which = {"name": name, "label": label, "n_samples": given.samples}
        rows.append({"method": label, **measure_seeds(measure_held_out, given.seeds, env, **which)})
    return rows


def draw_texts(corpus: str) -> list[str]:
    """Draw a thousand test texts at random."""
    data = read_corpus(corpus, "test")
    return list(data.take(draw_rows(data.n_samples, 1000)).texts or ())


def measure_novelty(label: str) -> Row:
    """How often a foreign text has a higher novelty than a test text of the same corpus (area under the ROC curve)."""
    import longtail

    coded = {"method": "ovr", "code": 128}
    tagger = longtail.Tagger(**METHODS.get(label, coded), threads=1).fit(read_corpus(TEXT_CORPUS))
    own = tagger.novelty(draw_texts(TEXT_CORPUS))
    out: Row = {"own": float(own.mean())}
    for name in FOREIGN:
        foreign = tagger.novelty(draw_texts(name))
        out[name] = float(foreign.mean())
        out[f"AUC {name}"] = float((own[:, None] < foreign).mean() + 0.5 * (own[:, None] == foreign).mean())
    return out


def make_table(results: dict[tuple[str, str], Row]) -> list[Row]:
    """A row for each corpus and method, followed by the paper's figures."""
    rows = []
    for (name, label), row in results.items():
        rows.append({"corpus": name, "method": label, **select_columns(row["sides"]), "CPU-s": row["CPU-s"]})
        rows[-1]["collapsed"] = "yes" if row["collapsed"] else ""
        rows[-1]["P@1, seeds"] = row.get("P@1, seeds", "")
        if (name, label) in PUBLISHED:
            rows.append({"corpus": name, "method": f"{label}: as published", **select_columns(PUBLISHED[name, label])})
    return rows


def select_columns(sides: Figures) -> Row:
    """The metrics that the table shows."""
    titles = {"test": "{}", "train": "{} on train"}
    return {titles[side].format(metric): sides[side].get(metric, "") for side in COLUMNS for metric in COLUMNS[side]}


def draw_ranks(results: dict[tuple[str, str], Row]) -> str:
    """Draw a row of four panels per corpus: P@K and nDCG@K, train and test; dots are published figures."""
    left, top, width, height, gap = 56, 100, 230, 200, 44
    parts = [draw_text(left, 26, "Autoencoders: figures 3 to 6 of the paper redrawn", size=16)]
    shown = list(dict.fromkeys(label for _, label in results))
    x = float(left)
    for label in shown:
        colour, dashes = STYLES[label]
        parts.append(draw_line(x, 46, x + 28, 46, colour, f' stroke-width="2" stroke-dasharray="{dashes}"'))
        parts.append(draw_text(x + 34, 50, label))
        x += 58 + 6.5 * len(label)
    parts.append(draw_text(left, 70, "dots: as published; lines: measured here", fill="#555"))
    names = list(dict.fromkeys(name for name, _ in results))
    for row, name in enumerate(names):
        y0 = top + row * (height + 70)
        for column, (metric, side) in enumerate((m, s) for m in ("P", "nDCG") for s in ("train", "test")):
            x0 = left + column * (width + gap)
            parts.append(draw_text(x0, y0 - 8, f"{name}: {metric}@K, {side}", size=13))
            of_panel = {label: values["sides"][side] for (of, label), values in results.items() if of == name}
            dots = {label: sides[side] for (of, label), sides in PUBLISHED.items() if of == name and label in of_panel}
            draw_panel(parts, metric, of_panel, dots, x0, y0, width, height)
    return make_svg(left + 4 * (width + gap), top + len(names) * (height + 70), parts)


def draw_panel(
    parts: list[str],
    metric: str,
    lines: Figures,
    dots: Figures,
    x0: float,
    y0: float,
    width: float,
    height: float,
) -> None:
    """Draw one metric over the ranks."""
    high = max(value for of in lines.values() for name, value in of.items() if name.startswith(f"{metric}@")) * 1.05

    def at(k: int, value: float) -> tuple[float, float]:
        return x0 + (k - 1) / (KS[-1] - 1) * width, y0 + height * (1 - value / high)

    for tick in choose_ticks(0, high):
        parts.append(draw_line(x0, at(1, tick)[1], x0 + width, at(1, tick)[1]))
        parts.append(draw_text(x0 - 6, at(1, tick)[1] + 4, f"{tick:g}", anchor="end", fill="#555"))
    for k in (1, 3, 5, 10):
        parts.append(draw_text(at(k, 0)[0], y0 + height + 16, str(k), anchor="middle", fill="#555"))
    for label, of in lines.items():
        colour, dashes = STYLES[label]
        path = " ".join("{:.1f},{:.1f}".format(*at(k, of[f"{metric}@{k}"])) for k in KS)
        style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        parts.append(f'<polyline points="{path}" fill="none" {style}/>')
    for label, of in dots.items():
        for name, value in of.items():
            if name.startswith(f"{metric}@"):
                x, y = at(int(name.split("@")[1]), value)
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{STYLES[label][0]}"/>')


def run_ablation(name: str, n_seeds: int, env: dict[str, str]) -> list[Row]:
    """A row for each setting."""
    rows = []
    for label in ABLATION:
        print_progress(f"{name}: {label}")
        rows.append({"setting": label, **measure_seeds(measure_ablation, n_seeds, env, name=name, label=label)})
    return rows


def main() -> None:
    """Run, print and draw."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--method", action="append", choices=[*METHODS, "plt"], help="only this one; repeatable")
    parser.add_argument("--corpus", action="append", choices=(*CORPORA, TEXT_CORPUS), help="only this one; repeatable")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw P@K and nDCG@K here")
    parser.add_argument(
        "--held-out", action="append", metavar="CORPUS", help="only this: held-out training data; repeatable"
    )
    parser.add_argument("--samples", type=int, help="with --held-out: use a random sample of the training data")
    parser.add_argument("--spec", action="append", help="with --held-out: only this method; repeatable")
    parser.add_argument("--ablation", action="store_true", help="only this: NeuralXC, one setting changed at a time")
    given = parser.parse_args()
    env = {f"{library}_NUM_THREADS": "1" for library in LIMITS}

    def results(names: tuple[str, ...], labels: tuple[str, ...]) -> dict[tuple[str, str], Row]:
        out = {}
        for name in names:
            for label in labels:
                if (not given.corpus or name in given.corpus) and (not given.method or label in given.method):
                    print_progress(f"{name}: {label}")
                    out[name, label] = measure_seeds(measure, given.seeds, env, name=name, label=label)
        return out

    if given.held_out:
        tables = {f"{name}: held-out training samples": run_held_out(name, given, env) for name in given.held_out}
        return report(tables, [f"One thread, {given.seeds} seeds from 0"], given.json)
    if given.ablation:
        tables = {
            f"{name}: held-out training samples": run_ablation(name, given.seeds, env) for name in given.corpus or CORPORA
        }
        notes = [f"Trained on four fifths of train, measured on the rest; {given.seeds} seeds from 0"]
        return report(tables, notes, given.json)
    of_paper, of_texts = results(CORPORA, tuple(METHODS)), results((TEXT_CORPUS,), ON_TEXTS)
    tables = {"With the paper": make_table(of_paper), f"{TEXT_CORPUS}: with label trees": make_table(of_texts)}
    if not given.corpus or TEXT_CORPUS in given.corpus:
        labels = [label for label in ("ovr, code = 128", "neuralxc, best") if not given.method or label in given.method]
        tables[f"Novelty after training on {TEXT_CORPUS}"] = [
            {"method": label, **run("longtail", measure_novelty, env=env, label=label).result} for label in labels
        ]
    notes = [
        f"One thread, {given.seeds} seeds from 0; on train: the whole training data",
        "own: mean novelty of test texts of the same corpus",
    ]
    report({title: rows for title, rows in tables.items() if rows}, notes, given.json)
    if given.svg:
        given.svg.write_text(draw_ranks(of_paper))


if __name__ == "__main__":
    main()
