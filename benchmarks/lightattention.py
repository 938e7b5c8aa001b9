"""The experiment that is missing in LightAttention's paper: all labels as negatives, static ones, or dynamic ones?

Trained on ``train``, evaluated on ``test``; nothing is chosen on test data. One thread, each run in a separate process;
means over seeds with 95 % t-intervals. Compared with CascadeXML's way (a level between clusters and labels, trained in the
same loss), a wider beam, label trees (``plt``), and a blend of both. For finna-yso-en, 20,000 training texts unless
``--slice`` is given. With ``--json FILE``, runs are saved to the file, and those in it are not repeated. ``--draw`` draws
the metric on held-out training texts after each epoch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Row, Stopwatch, make_parser, print_progress, read_corpus, report
from draw import BLUE, GREY, RED, choose_ticks, draw_line, draw_text, make_svg
from peers import LIMITS, run
from scipy.stats import t

CORPORA = ("reuters21578-modapte", "debian-debtags", "finna-yso-en")
SLICES = {"finna-yso-en": 20_000}
MAX_TEST = 10_000  # test texts; drawn at random if there are more
METRICS = tuple(f"{metric}@{k}" for metric in ("P", "nDCG", "PSP") for k in (1, 3, 5))
COLOURS = {"all": GREY, "static": BLUE, "dynamic": RED}
METHODS: dict[str, dict[str, Any]] = {
    "all": {"method": "lightattention", "negatives": "all"},
    "static": {"method": "lightattention", "negatives": "static"},
    "dynamic": {"method": "lightattention", "negatives": "dynamic"},
    "dynamic, 3 levels": {"method": "lightattention", "negatives": "dynamic", "levels": 3},
    "dynamic, beam of 32": {"method": "lightattention", "negatives": "dynamic", "beam": 32},
    "plt": {"method": "plt"},
    "blend of plt and lightattention": {"method": "blend", "members": "plt, lightattention"},
}


def take_random(data: Any, n: int | None) -> Any:
    """Take n random samples; all if there are no more."""
    if n is None or data.n_samples <= n:
        return data
    return data.take(np.sort(np.random.default_rng(0).permutation(data.n_samples)[:n]))


def measure(name: str, method: str, seed: int, n_train: int | None, **settings: Any) -> Row:
    """Train and evaluate one method on one corpus."""
    import longtail

    train, test = take_random(read_corpus(name), n_train), take_random(read_corpus(name, "test"), MAX_TEST)
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1, seed=seed, **settings).fit(train)
    history = getattr(tagger.model, "history", [])
    label_epochs = [row["seconds"] for row in history if row["level"] == history[-1]["level"]]
    values = tagger.evaluate(test).values
    return {
        **{metric: values[metric] for metric in METRICS},
        "candidate recall": measure_candidate_recall(tagger, test) if method == "lightattention" else None,
        "s per epoch": float(np.mean(label_epochs)) if label_epochs else None,
        "train CPU-s": training.cpu,
        "history": history,
        "texts": train.n_samples,
    }


def measure_candidate_recall(tagger: Any, test: Any) -> float:
    """The share of the positive labels of test texts that are scored in prediction, in percent."""
    from longtail.topk import find_hits

    Y, parts = test.align(tagger.labels).Y, range(0, test.n_samples, 512)  # labels unknown in training count as missed
    found = sum(find_hits(tagger.model.find_candidates(test.texts[i : i + 512]), Y[i : i + 512]).sum() for i in parts)
    return 100 * float(found) / max(Y.nnz, 1)


def format_mean(values: list[float]) -> str:
    """Format the mean of runs and half of their 95 % t-interval."""
    if len(values) < 2:
        return f"{np.mean(values):.2f}"
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.2f} ± {half:.2f}"


def make_table(runs: list[Row]) -> list[Row]:
    """One row per corpus and method: means over seeds."""
    rows = []
    for name in CORPORA:
        for title in METHODS:
            done = [each for each in runs if (each["corpus"], each["method"]) == (name, title)]
            if done:
                row: Row = {"corpus": name, "texts": done[0]["texts"], "method": title, "seeds": len(done)}
                for column in (*METRICS, "candidate recall", "train CPU-s", "peak MB"):
                    row[column] = "" if done[0][column] is None else format_mean([each[column] for each in done])
                epochs = [each["s per epoch"] for each in done if each["s per epoch"]]
                row["s per epoch"] = min(epochs) if epochs else ""
                rows.append(row)
    return rows


def draw_curves(runs: list[Row], to: Path) -> None:
    """Draw the precision on held-out training texts over the epochs of the level of the labels, one line per run."""
    names = [name for name in CORPORA if any(each["corpus"] == name and each["history"] for each in runs)]
    width, height, gap, elements = 280, 190, 60, []
    for number, name in enumerate(names):
        x0 = 50 + number * (width + gap)
        elements.append(draw_text(x0 + width / 2, 20, name, anchor="middle", size=13))
        shown = [each for each in runs if each["corpus"] == name and each["method"] in COLOURS]
        curves = [(each["method"], get_label_curve(each["history"])) for each in shown]
        elements += draw_panel(curves, x0, 40, width, height)
    for number, (method, colour) in enumerate(COLOURS.items()):
        x = 50 + 130 * number
        elements += [draw_line(x, height + 80, x + 20, height + 80, colour), draw_text(x + 26, height + 84, method)]
    caption = "mean of P@1, 3 and 5, held-out training texts, by epoch"
    elements.append(draw_text(50 + 130 * len(COLOURS), height + 84, caption))
    to.write_text(make_svg(50 + len(names) * (width + gap), height + 100, elements))


def get_label_curve(history: list[Row]) -> list[float]:
    """The validation metric after each epoch that trained the labels."""
    return [row["metric"] for row in history if row["level"] == history[-1]["level"]]


def draw_panel(curves: list[tuple[str, list[float]]], x0: int, y0: int, width: int, height: int) -> list[str]:
    """Draw the curves of one corpus, with axes."""
    values = [value for _, curve in curves for value in curve]
    low, high, n_epochs = min(values), max(values), max(len(curve) for _, curve in curves)

    def x(epoch: int) -> float:
        return x0 + (epoch - 1) / max(n_epochs - 1, 1) * width

    def y(value: float) -> float:
        return y0 + height - (value - low) / max(high - low, 1e-9) * height

    elements = []
    for tick in choose_ticks(low, high):
        elements.append(draw_line(x0, y(tick), x0 + width, y(tick)))
        elements.append(draw_text(x0 - 6, y(tick) + 4, f"{tick:g}", anchor="end"))
    for epoch in (1, (n_epochs + 1) // 2, n_epochs):
        elements.append(draw_text(x(epoch), y0 + height + 18, str(epoch), anchor="middle"))
    for method, curve in curves:
        points = " ".join(f"{x(epoch):.1f},{y(value):.1f}" for epoch, value in enumerate(curve, 1))
        elements.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[method]}"/>')
    return elements


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; may be repeated")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, help="runs with different seeds (%(default)s)")
    parser.add_argument("--slice", type=int, metavar="N", help="train on N texts of each corpus; 0: on all")
    parser.add_argument("--draw", action="store_true", help="write docs/lightattention.svg")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    runs: list[Row] = json.loads(given.json.read_text())["runs"] if given.json and given.json.exists() else []
    done = {(row["corpus"], row["method"], row["seed"]) for row in runs}
    for name in given.corpus or CORPORA:
        n_train = SLICES.get(name) if given.slice is None else given.slice or None
        for seed in range(given.seeds):
            for title in given.method or METHODS:
                if (name, title, seed) in done:
                    continue
                work = run("longtail", measure, env=one_thread, name=name, seed=seed, n_train=n_train, **METHODS[title])
                runs.append({"corpus": name, "method": title, "seed": seed, **work.result, "peak MB": work.peak})
                print_progress(f"{name}, {title}, seed {seed}: " + ", ".join(f"{m} {runs[-1][m]:.2f}" for m in METRICS))
                if given.json:
                    given.json.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    notes = [
        f"Mean ± half of the 95 % t-interval over seeds; one thread; up to {MAX_TEST:,} test texts",
        "texts: training texts; all of the corpus, or a random slice",
        "candidate recall: share of the positive labels that are among the labels scored for a text, in percent",
        "s per epoch: wall-clock time of an epoch that trains the labels, of the fastest seed; train CPU-s: all of training",
    ]
    report({"LightAttention": make_table(runs)}, notes, None)
    if given.draw:
        draw_curves(runs, ROOT / "docs" / "lightattention.svg")


if __name__ == "__main__":
    main()
