"""The experiment that LightAttention's paper does not show: which negatives? All labels, static ones, or dynamic ones.

Trained on ``train``, measured on ``test``, where nothing is chosen. One thread, each run in its own process; means over
seeds with 95 % t-intervals. Beside them label trees (``plt``), and a blend of both. ``--json`` also gets the metric on
held-out training texts after each epoch. Of finna-yso-en, 20,000 training texts unless ``--slice`` says otherwise.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from common import Row, Stopwatch, arguments, corpus, note, report
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


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; may be given again")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; may be given again")
    parser.add_argument("--seeds", type=int, default=3, help="runs with different seeds (%(default)s)")
    parser.add_argument("--slice", type=int, metavar="N", help="train on so many texts of each corpus; 0: on all")
    parser.add_argument("--epochs", type=int, help="of lightattention, in place of its own number")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows: list[Row] = []
    runs: list[Row] = []
    for name in given.corpus or CORPORA:
        n_train = SLICES.get(name) if given.slice is None else given.slice or None
        for title in given.method or METHODS:
            settings = dict(METHODS[title])
            if given.epochs and settings["method"] == "lightattention":
                settings["epochs"] = given.epochs
            done = []
            for seed in range(given.seeds):
                work = run("longtail", measure, env=one_thread, name=name, seed=seed, n_train=n_train, **settings)
                done.append({**work.result, "peak MB": work.peak})
                runs.append({"corpus": name, "method": title, "seed": seed, **done[-1]})
                note(f"{name}, {title}, seed {seed}: " + ", ".join(f"{m} {done[-1][m]:.2f}" for m in SHOWN))
            row: Row = {"corpus": name, "texts": done[0]["texts"], "method": title}
            for column in (*SHOWN, "candidate recall", "s an epoch", "train CPU-s", "peak MB"):
                row[column] = "" if done[0][column] is None else mean_and_interval([one[column] for one in done])
            rows.append(row)
            note(" | ".join(str(cell) for cell in row.values()))
    notes = [
        f"Mean ± half of the 95 % t-interval over {given.seeds} seeds; one thread; at most {MOST_TEST:,} test texts",
        "texts: those trained on; all of the corpus, or a slice drawn by chance",
        "candidate recall: share of the true labels among the labels that are scored for a text, in percent",
        "s an epoch: of the run that trains the labels; train CPU-s: of everything",
    ]
    report({"LightAttention": rows}, notes, None)
    if given.json:
        given.json.write_text(json.dumps({"LightAttention": rows, "runs": runs, "notes": notes}, indent=1) + "\n")


if __name__ == "__main__":
    main()
