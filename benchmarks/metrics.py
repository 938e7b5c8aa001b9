"""Metrics: longtail's figures beside napkinXC's on the same predictions, and what a full evaluation costs at scale."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, arguments, corpus, load, memory, note, report, save, size
from peers import run

KS = (1, 3, 5)
SCALE = {"n_samples": 100_000, "n_labels": 1_000_000, "k": 5}
EQUAL, ROUNDED = 1e-9, 1e-6  # largest relative differences that double and single precision explain


def random_truth(random: np.random.Generator, n_samples: int, n_labels: int, per_sample: int) -> sp.csr_array:
    """Labels of Zipf's shape; as many as 0 … 2·per_sample on each sample, so some have none."""
    counts = random.integers(0, 2 * per_sample + 1, n_samples)
    labels = (n_labels ** random.random(counts.sum())).astype(np.int32) - 1
    indptr = np.append(0, np.cumsum(counts))
    Y = sp.csr_array((np.ones(len(labels), np.float32), labels, indptr), shape=(n_samples, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


def random_ids(random: np.random.Generator, Y: sp.csr_array, k: int) -> np.ndarray:
    """k different labels for each sample, about half of them true where the sample has labels."""
    n_samples, n_labels = Y.shape
    ids = random.integers(0, n_labels, (n_samples, k)).astype(np.int32)
    counts = np.diff(Y.indptr)
    for rank in range(k):
        has = np.flatnonzero((counts > rank) & (random.random(n_samples) < 0.5))
        ids[has, rank] = Y.indices[Y.indptr[has] + rank]
    for rank in range(1, k):  # a label drawn twice is drawn anew
        while (twice := (ids[:, :rank] == ids[:, rank : rank + 1]).any(axis=1)).any():
            ids[twice, rank] = random.integers(0, n_labels, np.count_nonzero(twice))
    return ids


def indicator(ids: np.ndarray, n_labels: int) -> sp.csr_array:
    """The predicted labels as a set; -1 is no label."""
    there = ids >= 0
    indptr = np.append(0, np.cumsum(there.sum(axis=1)))
    return sp.csr_array((np.ones(indptr[-1], np.float32), ids[there], indptr), shape=(len(ids), n_labels))


def napkinxc_figures(folder: str) -> dict[str, float]:
    """The metrics as napkinXC has them, from 0 to 100."""
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


def longtail_figures(folder: str) -> dict[str, float]:
    """The metrics as longtail has them."""
    from longtail import TopK
    from longtail.labelspace.propensity import inverse_propensity
    from longtail.metrics.evaluate import evaluate

    Y_train, Y = load(folder, "Y_train", "Y")
    ids = np.load(Path(folder) / "ids.npy")
    label_counts = np.bincount(Y_train.indices, minlength=Y.shape[1]).astype(np.int32)
    known = {"label_counts": label_counts, "n_train": Y_train.shape[0]}
    found = evaluate(TopK(ids, np.zeros(ids.shape)), Y, ks=KS, predicted=indicator(ids, Y.shape[1]), **known)
    weights = inverse_propensity(label_counts, Y_train.shape[0])
    return found.values | {"inverse propensity, sum": float(weights.sum())}


def compare(case: str, Y_train: sp.csr_array, Y: sp.csr_array, ids: np.ndarray) -> list[Row]:
    """One line for each metric."""
    note(f"metrics: {case}")
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), Y_train=Y_train, Y=Y)
        np.save(Path(folder) / "ids.npy", ids)
        ours = run("longtail", longtail_figures, folder=folder).result
        theirs = run("napkinxc", napkinxc_figures, folder=folder).result
    same = macro_like_napkinxc(ours["macro-F1"], Y, ids)
    rows = [line(case, name, ours[name], theirs[name]) for name in theirs]
    return [*rows, line(case, "macro-F1 over napkinXC's labels", same, theirs["macro-F1"])]


def line(case: str, name: str, ours: float, theirs: float) -> Row:
    """One metric of both."""
    gap = abs(ours - theirs) / max(1.0, abs(theirs))
    verdict = "equal" if gap < EQUAL else "equal in single precision" if gap < ROUNDED else "differs, see the notes"
    return {
        "predictions": case,
        "metric": name,
        "longtail": ours,
        "napkinXC": theirs,
        "difference": ours - theirs,
        "verdict": verdict,
    }


def macro_like_napkinxc(ours: float, Y: sp.csr_array, ids: np.ndarray) -> float:
    """Our macro-F1 with napkinXC's denominator: all label ids up to the largest that occurs, occurring or not."""
    occurring = np.union1d(Y.indices, ids[ids >= 0])
    return ours * len(occurring) / (int(occurring.max()) + 1)


def random_case(seed: int = 0) -> tuple[sp.csr_array, sp.csr_array, np.ndarray]:
    """Random labels and predictions; some samples have no labels, some get fewer than k predictions."""
    random = np.random.default_rng(seed)
    Y = random_truth(random, 3000, 20_000, 3)
    ids = random_ids(random, Y, max(KS))
    ids[::7, 3:] = -1
    return random_truth(random, 5000, 20_000, 3), Y, ids


def ovr_case() -> tuple[sp.csr_array, sp.csr_array, np.ndarray]:
    """One-vs-rest on bibtex."""
    from longtail import Tagger

    train, test = corpus("bibtex"), corpus("bibtex", "test")
    return train.Y, test.Y, Tagger("ovr").fit(train).topk(test.X, max(KS)).ids


def evaluate_at_scale(n_samples: int, n_labels: int, k: int) -> Row:
    """Seconds and memory of one full evaluation in this fresh process."""
    from longtail import TopK
    from longtail.metrics.evaluate import evaluate
    from longtail.metrics.intervals import bootstrap

    random = np.random.default_rng(0)
    Y = random_truth(random, n_samples, n_labels, 5)
    ids = random_ids(random, Y, k)
    topk = TopK(ids, np.zeros(ids.shape))
    label_counts = np.bincount(Y.indices, minlength=n_labels).astype(np.int32)
    before = memory("VmRSS")
    with Stopwatch() as whole:
        found = evaluate(topk, Y, label_counts=label_counts, n_train=n_samples)
    peak = memory("VmHWM")
    with Stopwatch() as resampling:
        bootstrap(found.scores)
    return {
        "samples": n_samples,
        "labels": n_labels,
        "k": k,
        "evaluate s": whole.wall,
        "CPU-s": whole.cpu,
        "of it bootstrap s": resampling.wall,
        "inputs MB": size(Y) + (ids.nbytes + topk.scores.nbytes + label_counts.nbytes) / 1e6,
        "before MB": before,
        "peak MB": peak,
        "growth MB": peak - before,
    }


def main() -> None:
    """Run and print."""
    given = arguments(__doc__).parse_args()
    rows = compare("random", *random_case()) + compare("ovr on bibtex", *ovr_case())
    note("metrics: at scale")
    runs = [run("longtail", evaluate_at_scale, **SCALE).result for _ in range(given.repeat)]
    fastest = min(runs, key=lambda row: row["evaluate s"])
    notes = [
        "napkinXC 0.7.2 keeps these in napkinxc.metrics (not measures); its lists are rankings, so scores play no part",
        "a sample without labels counts and scores 0 in both (napkinXC: zero_division=0); PSP and PSnDCG are in both "
        "the sum over samples divided by the sum of the best attainable (normalize=True)",
        "macro-F1 is defined in another way: longtail averages over labels that are true or predicted at least once, "
        "napkinXC over all ids from 0 to the largest that occurs; with its labels the figures agree",
        "the F1 scores take all predicted labels of a sample as its set",
        f"scale: the fastest of {given.repeat} fresh processes; evaluate includes 1,000 bootstrap resamples",
    ]
    report({"Metrics": rows, "A full evaluation": [fastest]}, notes, given.json)


if __name__ == "__main__":
    main()
