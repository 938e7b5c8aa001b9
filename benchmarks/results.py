"""The table of results of the README: every method on the real corpora, trained on ``train``, measured once on ``test``.

Nothing is chosen on test data: all methods run with their default settings (preset ``best``) and seed 0.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import MB, Row, Stopwatch, arguments, corpus, note, report, shown
from peers import LIMITS, run

CORPORA = ("bibtex", "delicious", "reuters21578-modapte", "debian-debtags")
LARGE = ("gutenberg-lcsh", "finna-yso-en")
METHODS = ("popularity", "ovr", "plt", "glas", "neuralxc", "hierarchicalxc", "aplc", "lightattention", "secseq", "blend")
READ_TEXTS, VECTORS = ("aplc", "lightattention", "secseq"), ("bibtex", "delicious")
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")


def measure(name: str, method: str) -> Row:
    """Train, save, load and evaluate one method on one corpus."""
    import longtail

    train, test = corpus(name), corpus(name, "test")
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1).fit(train)
    with tempfile.TemporaryDirectory() as folder:
        tagger.save(folder)
        n_bytes = sum(path.stat().st_size for path in Path(folder).iterdir())
        result = longtail.load(folder).evaluate(test)
    low, high = result.intervals["P@1"]
    return {
        "corpus": name,
        "method": method,
        **{metric: result.values[metric] for metric in SHOWN},
        "95 % of P@1": f"{low:.1f}–{high:.1f}",
        "train CPU-s": training.cpu,
        "model MB": n_bytes / MB,
    }


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--large", action="store_true", help=f"also {', '.join(LARGE)} (an hour)")
    parser.add_argument("--corpus", action="append", choices=(*CORPORA, *LARGE), help="only this one")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one; may be given again")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows = []
    for name in given.corpus or (*CORPORA, *(LARGE if given.large else ())):
        for method in given.method or METHODS:
            if method in READ_TEXTS and name in VECTORS:
                continue
            note(f"{name}: {method}")
            done = run("longtail", measure, env=one_thread, name=name, method=method)
            rows.append({**done.result, "peak MB": done.peak})
            note(" | ".join(shown(value) for value in rows[-1].values()))
    report({"Results": rows}, ["One thread, seed 0, default settings; train CPU-s from raw text or vectors"], given.json)


if __name__ == "__main__":
    main()
