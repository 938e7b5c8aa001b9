"""The experiment that LightAttention's paper does not show: which negatives? All labels, static ones, or dynamic ones.

Trained on ``train``, measured on ``test``, where nothing is chosen. One thread, each run in its own process; means over
seeds with 95 % t-intervals. Beside them what CascadeXML does (a level between clusters and labels, learned in the same
loss), a wider beam, label trees (``plt``), and a blend of both. Of finna-yso-en, 20,000 training texts unless ``--slice``
says otherwise. Runs are kept in the file that ``--json`` names, and those in it are not repeated; ``--draw`` draws the
metric on held-out training texts after each epoch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Row, Stopwatch, arguments, corpus, note, report
from draw import BLUE, GREY, RED, line, picture, text, ticks
from peers import LIMITS, run
from scipy.stats import t

CORPORA = ("reuters21578-modapte", "debian-debtags", "finna-yso-en")
SLICES = {"finna-yso-en": 20_000}
MOST_TEST = 10_000  # test texts, drawn by chance where there are more
SHOWN = tuple(f"{metric}@{k}" for metric in ("P", "nDCG", "PSP") for k in (1, 3, 5))
METHODS: dict[str, dict[str, Any]] = {
    "all": {"method": "lightattention", "negatives": "all"},
    "static": {"method": "lightattention", "negatives": "static"},
    "dynamic": {"method": "lightattention", "negatives": "dynamic"},
    "dynamic, 3 levels": {"method": "lightattention", "negatives": "dynamic", "levels": 3},
    "dynamic, beam of 32": {"method": "lightattention", "negatives": "dynamic", "beam": 32},
    "plt": {"method": "plt"},
    "blend of plt and lightattention": {"method": "blend", "members": "plt, lightattention"},
}


def some(data: Any, n: int | None) -> Any:
    """So many samples, drawn by chance; all if there are no more."""
    if n is None or data.n_samples <= n:
        return data
    return data.take(np.sort(np.random.default_rng(0).permutation(data.n_samples)[:n]))


def measure(name: str, method: str, seed: int, n_train: int | None, **settings: Any) -> Row:
    """Train and evaluate one method on one corpus."""
    import longtail

    train, test = some(corpus(name), n_train), some(corpus(name, "test"), MOST_TEST)
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1, seed=seed, **settings).fit(train)
    history = getattr(tagger.model, "history", [])
    of_labels = [row["seconds"] for row in history if row["level"] == history[-1]["level"]]
    values = tagger.evaluate(test).values
    return {
        **{metric: values[metric] for metric in SHOWN},
        "candidate recall": recall(tagger, test) if method == "lightattention" else None,
        "s an epoch": float(np.mean(of_labels)) if of_labels else None,
        "train CPU-s": training.cpu,
        "history": history,
        "texts": train.n_samples,
    }


def recall(tagger: Any, test: Any) -> float:
    """The share of the true labels of test texts, in percent, that prediction looks at."""
    from longtail.topk import hits

    Y, parts = test.aligned(tagger.labels).Y, range(0, test.n_samples, 512)  # labels unknown in training count as missed
    found = sum(hits(tagger.model.candidates(test.texts[i : i + 512]), Y[i : i + 512]).sum() for i in parts)
    return 100 * float(found) / max(Y.nnz, 1)


def mean_and_interval(values: list[float]) -> str:
    """The mean and half of the 95 % t-interval of runs."""
    if len(values) < 2:
        return f"{np.mean(values):.2f}"
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.2f} ± {half:.2f}"


def table(runs: list[Row]) -> list[Row]:
    """One row for each corpus and method: means over seeds."""
    rows = []
    for name in CORPORA:
        for title in METHODS:
            done = [one for one in runs if (one["corpus"], one["method"]) == (name, title)]
            if done:
                row: Row = {"corpus": name, "texts": done[0]["texts"], "method": title, "seeds": len(done)}
                for column in (*SHOWN, "candidate recall", "train CPU-s", "peak MB"):
                    row[column] = "" if done[0][column] is None else mean_and_interval([one[column] for one in done])
                epochs = [one["s an epoch"] for one in done if one["s an epoch"]]
                row["s an epoch"] = min(epochs) if epochs else ""
                rows.append(row)
    return rows


def curves(runs: list[Row], to: Path) -> None:
    """Draw P on held-out training texts over the epochs of the level of the labels, one line a run."""
    colours = {"all": GREY, "static": BLUE, "dynamic": RED}
    names = [name for name in CORPORA if any(one["corpus"] == name and one["history"] for one in runs)]
    width, height, parts = 280, 190, []
    for number, name in enumerate(names):
        drawn = []
        for one in runs:
            if one["corpus"] == name and one["method"] in colours:
                last = one["history"][-1]["level"]
                drawn.append((one["method"], [row["metric"] for row in one["history"] if row["level"] == last]))
        values = [value for _, points in drawn for value in points]
        low, high, longest = min(values), max(values), max(len(points) for _, points in drawn)
        left, right, top, bottom = 50 + number * (width + 60), 50 + number * (width + 60) + width, 40, 40 + height
        parts.append(text((left + right) / 2, 20, name, anchor="middle", size=13))

        def y(value: float, low: float = low, high: float = high, top: int = top, bottom: int = bottom) -> float:
            return bottom - (value - low) / max(high - low, 1e-9) * (bottom - top)

        for mark in ticks(low, high):
            parts += [line(left, y(mark), right, y(mark)), text(left - 6, y(mark) + 4, f"{mark:g}", anchor="end")]
        for mark in (1, (longest + 1) // 2, longest):
            parts.append(text(left + (mark - 1) / max(longest - 1, 1) * width, bottom + 18, str(mark), anchor="middle"))
        for method, points in drawn:
            places = [f"{left + i / max(longest - 1, 1) * width:.1f},{y(value):.1f}" for i, value in enumerate(points)]
            parts.append(f'<polyline points="{" ".join(places)}" fill="none" stroke="{colours[method]}"/>')
    for number, (method, colour) in enumerate(colours.items()):
        at = 50 + 130 * number
        parts += [line(at, height + 80, at + 20, height + 80, colour), text(at + 26, height + 84, method)]
    parts.append(text(50 + 130 * len(colours), height + 84, "mean of P@1, 3 and 5, held-out training texts, by epoch"))
    to.write_text(picture(50 + len(names) * (width + 60), height + 100, parts))


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; may be given again")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; may be given again")
    parser.add_argument("--seeds", type=int, default=3, help="runs with different seeds (%(default)s)")
    parser.add_argument("--slice", type=int, metavar="N", help="train on so many texts of each corpus; 0: on all")
    parser.add_argument("--draw", action="store_true", help="write docs/lightattention.svg")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    runs: list[Row] = json.loads(given.json.read_text())["runs"] if given.json and given.json.exists() else []
    have = {(one["corpus"], one["method"], one["seed"]) for one in runs}
    for name in given.corpus or CORPORA:
        n_train = SLICES.get(name) if given.slice is None else given.slice or None
        for seed in range(given.seeds):
            for title in given.method or METHODS:
                if (name, title, seed) in have:
                    continue
                work = run("longtail", measure, env=one_thread, name=name, seed=seed, n_train=n_train, **METHODS[title])
                runs.append({"corpus": name, "method": title, "seed": seed, **work.result, "peak MB": work.peak})
                note(f"{name}, {title}, seed {seed}: " + ", ".join(f"{m} {runs[-1][m]:.2f}" for m in SHOWN))
                if given.json:
                    given.json.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    notes = [
        f"Mean ± half of the 95 % t-interval over seeds; one thread; at most {MOST_TEST:,} test texts",
        "texts: those trained on; all of the corpus, or a slice drawn by chance",
        "candidate recall: share of the true labels among the labels that are scored for a text, in percent",
        "s an epoch: of the run that trains the labels, by the clock, the fastest of the seeds; train CPU-s: of everything",
    ]
    report({"LightAttention": table(runs)}, notes, None)
    if given.draw:
        curves(runs, ROOT / "docs" / "lightattention.svg")


if __name__ == "__main__":
    main()
