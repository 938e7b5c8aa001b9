"""The stratified split: speed on finna-yso-en, and how well each label keeps its share."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from common import Row, make_parser, print_progress, read_corpus, report, time_best

SPEED_CORPUS = "finna-yso-en"
CORPORA = ("debian-debtags", "gutenberg-lcsh", SPEED_CORPUS)
MIN_SAMPLES = 20  # of labels for which the deviation is computed
GOAL_ROWS_PER_MINUTE = 100_000


def split_at_random(n_samples: int, test: float, seed: int) -> np.ndarray:
    """Return True for a share ``test`` of the samples, drawn at random."""
    return np.random.default_rng(seed).permutation(n_samples) < round(test * n_samples)


def measure_quality(name: str, method: str, Y: sp.csr_array, in_test: np.ndarray, test: float) -> Row:
    """Measure how the labels were split."""
    total = np.bincount(Y.indices, minlength=Y.shape[1])
    tested = np.bincount(Y[in_test].indices, minlength=Y.shape[1])
    is_frequent = total >= MIN_SAMPLES
    deviation = np.abs(tested[is_frequent] / total[is_frequent] - test)
    return {
        "corpus": name,
        "split": method,
        "test share": float(in_test.mean()),
        "label assignments in test": float(tested.sum() / total.sum()),
        "labels": int(np.count_nonzero(total)),
        "without a training sample": int(np.count_nonzero((total > 0) & (tested == total))),
        f"labels with {MIN_SAMPLES} or more": int(is_frequent.sum()),
        "mean deviation of their test share": float(deviation.mean()),
        "largest": float(deviation.max()),
    }


def main() -> None:
    """Run the benchmark."""
    parser = make_parser(__doc__)
    parser.add_argument("--test", type=float, default=0.2, help="share of the test data (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    from longtail.data.split import split_stratified

    split_stratified(sp.csr_array(np.ones((8, 1), np.float32)), given.test, given.seed)  # compile
    rows, speed = [], []
    for name in CORPORA:
        print_progress(f"split: {name}")
        Y = read_corpus(name).Y
        repeat = given.repeat if name == SPEED_CORPUS else 1
        in_test, wall, _ = time_best(repeat, lambda Y=Y: split_stratified(Y, given.test, given.seed))
        rows.append(measure_quality(name, "stratified", Y, in_test, given.test))
        in_test = split_at_random(Y.shape[0], given.test, given.seed)
        rows.append(measure_quality(name, "random", Y, in_test, given.test))
        if name == SPEED_CORPUS:
            rate = 60 * Y.shape[0] / wall
            met = "reached" if rate >= GOAL_ROWS_PER_MINUTE else "missed"
            goal = f"goal {GOAL_ROWS_PER_MINUTE:,}"
            speed.append({"corpus": name, "rows": Y.shape[0], "s": wall, "rows per minute": rate, goal: met})
    notes = [
        f"target {given.test:.0%}, seed {given.seed}; best of {given.repeat} runs, not including reading and compilation"
    ]
    report({"Speed of the split": speed, "Quality of the split": rows}, notes, given.json)


if __name__ == "__main__":
    main()
