"""The stratified split: its speed on finna-yso-en, and how well it keeps the share of each label."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from common import Row, arguments, best_of, corpus, note, report

SPEED_ON = "finna-yso-en"
CORPORA = ("debian-debtags", "gutenberg-lcsh", SPEED_ON)
FREQUENT = 20  # labels with as many samples count for the deviation
GOAL = 100_000  # rows a minute


def random_split(n_samples: int, test: float, seed: int) -> np.ndarray:
    """A plain split: True for a share ``test`` of the samples, drawn at random."""
    return np.random.default_rng(seed).permutation(n_samples) < round(test * n_samples)


def quality(name: str, how: str, Y: sp.csr_array, side: np.ndarray, test: float) -> Row:
    """What became of the labels; ``side`` is True for test."""
    total = np.bincount(Y.indices, minlength=Y.shape[1])
    tested = np.bincount(Y[side].indices, minlength=Y.shape[1])
    often = total >= FREQUENT
    return {
        "corpus": name,
        "split": how,
        "test share": float(side.mean()),
        "label assignments in test": float(tested.sum() / total.sum()),
        "labels": int(np.count_nonzero(total)),
        "without a training sample": int(np.count_nonzero((total > 0) & (tested == total))),
        f"labels with {FREQUENT} or more": int(often.sum()),
        "mean deviation of their test share": float(np.abs(tested[often] / total[often] - test).mean()),
        "largest": float(np.abs(tested[often] / total[often] - test).max()),
    }


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__)
    parser.add_argument("--test", type=float, default=0.2, help="share of the test side (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    from longtail.data.split import stratified_split

    stratified_split(sp.csr_array(np.eye(8, dtype=np.float32)), given.test, given.seed)  # compile
    rows, speed = [], []
    for name in CORPORA:
        note(f"split: {name}")
        Y = corpus(name).Y
        repeat = given.repeat if name == SPEED_ON else 1
        side, wall, _ = best_of(repeat, lambda Y=Y: stratified_split(Y, given.test, given.seed))
        rows.append(quality(name, "stratified", Y, side, given.test))
        rows.append(quality(name, "random", Y, random_split(Y.shape[0], given.test, given.seed), given.test))
        if name == SPEED_ON:
            rate = 60 * Y.shape[0] / wall
            met = "reached" if rate >= GOAL else "missed"
            speed.append({"corpus": name, "rows": Y.shape[0], "s": wall, "rows a minute": rate, f"goal {GOAL:,}": met})
    notes = [f"target {given.test:.0%}, seed {given.seed}; best of {given.repeat} runs, without reading and compiling"]
    report({"Speed of the split": speed, "Quality of the split": rows}, notes, given.json)


if __name__ == "__main__":
    main()
