"""Metrics: compare longtail with napkinXC on the same predictions, and measure a full evaluation at scale."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, count_megabytes, load, make_parser, print_progress, read_corpus, read_memory, report, save
from peers import run

KS = (1, 3, 5)
SCALE = {"n_samples": 100_000, "n_labels": 1_000_000, "k": 5}
DOUBLE_TOLERANCE, SINGLE_TOLERANCE = 1e-9, 1e-6  # relative differences explained by double and single precision


def draw_labels(random: np.random.Generator, n_samples: int, n_labels: int, per_sample: int) -> sp.csr_array:
    """Draw labels with frequencies of Zipf's law, from 0 to 2 · per_sample for each sample."""
    counts = random.integers(0, 2 * per_sample + 1, n_samples)
    labels = (n_labels ** random.random(counts.sum())).astype(np.int32) - 1
    indptr = np.append(0, np.cumsum(counts))
    Y = sp.csr_array((np.ones(len(labels), np.float32), labels, indptr), shape=(n_samples, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


def draw_predictions(random: np.random.Generator, Y: sp.csr_array, k: int) -> np.ndarray:
    """Draw k different labels for each sample; about half of them are true if the sample has labels."""
    n_samples, n_labels = Y.shape
    ids = random.integers(0, n_labels, (n_samples, k)).astype(np.int32)
    counts = np.diff(Y.indptr)
    for rank in range(k):
        rows = np.flatnonzero((counts > rank) & (random.random(n_samples) < 0.5))
        ids[rows, rank] = Y.indices[Y.indptr[rows] + rank]
    for rank in range(1, k):  # labels that were drawn twice are drawn again
        while (is_repeated := (ids[:, :rank] == ids[:, rank : rank + 1]).any(axis=1)).any():
            ids[is_repeated, rank] = random.integers(0, n_labels, np.count_nonzero(is_repeated))
    return ids


def evaluate_napkinxc(folder: str) -> dict[str, float]:
    """Compute the metrics with napkinXC, from 0 to 100."""
    from napkinxc import metrics

    Y_train, Y = (sp.csr_matrix(m, dtype=np.float64) for m in load(folder, "Y_train", "Y"))
    ids = np.load(Path(folder) / "ids.npy")
    truth = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]
    ranked = [[label for label in row if label >= 0] for row in ids.tolist()]
    weights = metrics.Jain_et_al_inverse_propensity(Y_train)
    k = max(KS)
    at = {
        "P": metrics.precision_at_k(truth, ranked, k=k),
        "nDCG": metrics.ndcg_at_k(truth, ranked, k=k),
        "recall": metrics.recall_at_k(truth, ranked, k=k),
        "PSP": metrics.psprecision_at_k(truth, ranked, weights, k=k),
        "PSnDCG": metrics.psndcg_at_k(truth, ranked, weights, k=k),
    }
    values = {f"{name}@{k}": 100 * float(found[k - 1]) for name, found in at.items() for k in KS}
    values[f"coverage@{k}"] = 100 * float(metrics.coverage_at_k(truth, ranked, k=k)[k - 1])
    for average, name in (("micro", "micro-F1"), ("macro", "macro-F1"), ("samples", "example-F1")):
        values[name] = 100 * float(metrics.f1_measure(truth, ranked, average=average))
    return values | {"inverse propensity, sum": float(np.asarray(weights).sum())}


def evaluate_longtail(folder: str) -> dict[str, float]:
    """Compute the metrics with longtail."""
    from longtail import TopK
    from longtail.labelspace.propensity import compute_inverse_propensity
    from longtail.metrics.evaluate import evaluate

    Y_train, Y = load(folder, "Y_train", "Y")
    ids = np.load(Path(folder) / "ids.npy")
    label_counts = np.bincount(Y_train.indices, minlength=Y.shape[1]).astype(np.int32)
    known = {"label_counts": label_counts, "n_train": Y_train.shape[0]}
    best = TopK(ids, np.zeros(ids.shape))
    found = evaluate(best, Y, ks=KS, sets=best, **known)
    weights = compute_inverse_propensity(label_counts, Y_train.shape[0])
    return found.values | {"inverse propensity, sum": float(weights.sum())}


def compare(case: str, Y_train: sp.csr_array, Y: sp.csr_array, ids: np.ndarray) -> list[Row]:
    """Compare all metrics: one row each."""
    print_progress(f"metrics: {case}")
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), Y_train=Y_train, Y=Y)
        np.save(Path(folder) / "ids.npy", ids)
        ours = run("longtail", evaluate_longtail, folder=folder).result
        theirs = run("napkinxc", evaluate_napkinxc, folder=folder).result
    same = convert_macro_f1(ours["macro-F1"], Y, ids)
    rows = [make_row(case, name, ours[name], theirs[name]) for name in theirs]
    return [*rows, make_row(case, "macro-F1 over napkinXC's labels", same, theirs["macro-F1"])]


def make_row(case: str, name: str, ours: float, theirs: float) -> Row:
    """Make the row of one metric."""
    gap = abs(ours - theirs) / max(1.0, abs(theirs))
    verdict = (
        "equal"
        if gap < DOUBLE_TOLERANCE
        else "equal in single precision"
        if gap < SINGLE_TOLERANCE
        else "differs, see the notes"
    )
    return {
        "predictions": case,
        "metric": name,
        "longtail": ours,
        "napkinXC": theirs,
        "difference": ours - theirs,
        "verdict": verdict,
    }


def convert_macro_f1(ours: float, Y: sp.csr_array, ids: np.ndarray) -> float:
    """Convert longtail's macro-F1 to napkinXC's denominator: all label ids up to the largest one that occurs."""
    occurring = np.union1d(Y.indices, ids[ids >= 0])
    return ours * len(occurring) / (int(occurring.max()) + 1)


def make_random_case(seed: int = 0) -> tuple[sp.csr_array, sp.csr_array, np.ndarray]:
    """Make random labels and predictions; some samples have no labels, some have fewer than k predictions."""
    random = np.random.default_rng(seed)
    Y = draw_labels(random, 3000, 20_000, 3)
    ids = draw_predictions(random, Y, max(KS))
    ids[::7, 3:] = -1
    return draw_labels(random, 5000, 20_000, 3), Y, ids


def make_ovr_case() -> tuple[sp.csr_array, sp.csr_array, np.ndarray]:
    """Make predictions of one-vs-rest on bibtex."""
    from longtail import Tagger

    train, test = read_corpus("bibtex"), read_corpus("bibtex", "test")
    return train.Y, test.Y, Tagger("ovr").fit(train).topk(test.X, max(KS)).ids


def evaluate_at_scale(n_samples: int, n_labels: int, k: int) -> Row:
    """Measure the time and memory of one full evaluation in this new process."""
    from longtail import TopK
    from longtail.metrics.evaluate import evaluate
    from longtail.metrics.intervals import bootstrap

    random = np.random.default_rng(0)
    Y = draw_labels(random, n_samples, n_labels, 5)
    ids = draw_predictions(random, Y, k)
    topk = TopK(ids, np.zeros(ids.shape))
    label_counts = np.bincount(Y.indices, minlength=n_labels).astype(np.int32)
    before = read_memory("VmRSS")
    with Stopwatch() as whole:
        found = evaluate(topk, Y, label_counts=label_counts, n_train=n_samples)
    peak = read_memory("VmHWM")
    with Stopwatch() as resampling:
        bootstrap(found.scores)
    return {
        "samples": n_samples,
        "labels": n_labels,
        "k": k,
        "evaluate s": whole.wall,
        "CPU-s": whole.cpu,
        "of it bootstrap s": resampling.wall,
        "inputs MB": count_megabytes(Y) + (ids.nbytes + topk.scores.nbytes + label_counts.nbytes) / 1e6,
        "before MB": before,
        "peak MB": peak,
        "growth MB": peak - before,
    }


def main() -> None:
    """Run the benchmark."""
    given = make_parser(__doc__).parse_args()
    rows = compare("random", *make_random_case()) + compare("ovr on bibtex", *make_ovr_case())
    print_progress("metrics: at scale")
    runs = [run("longtail", evaluate_at_scale, **SCALE).result for _ in range(given.repeat)]
    fastest = min(runs, key=lambda row: row["evaluate s"])
    notes = [
        "napkinXC 0.7.2 has these in napkinxc.metrics (not measures); its lists are rankings, so scores are not used",
        "a sample without labels counts and scores 0 in both (napkinXC: zero_division=0); PSP and PSnDCG are in both "
        "the sum over samples divided by the best possible sum (normalize=True)",
        "macro-F1 is defined differently: longtail averages over labels that are true or predicted at least once, "
        "napkinXC over all ids from 0 to the largest that occurs; with its labels the values agree",
        "for the F1 scores, all predictions of a sample are its set of labels",
        f"scale: the fastest of {given.repeat} new processes; evaluate includes 1,000 bootstrap resamples",
    ]
    report({"Metrics": rows, "A full evaluation": [fastest]}, notes, given.json)


if __name__ == "__main__":
    main()
