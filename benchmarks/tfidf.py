"""TF-IDF: longtail's compiled one against scikit-learn's TfidfVectorizer, same settings, on debian-debtags."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import THREADS, Row, Stopwatch, arguments, best_of, corpus, difference, load, note, report, save
from peers import run

CORPUS = "debian-debtags"
NGRAMS, MIN_DF, MIN_CHARS = 2, 2, 2  # words of one letter are no words to scikit-learn
N_SINGLE = 500  # texts whose latency is measured


def read_texts(folder: str) -> tuple[list[str], list[str]]:
    """The texts that the parent left: train and test."""
    train, test = json.loads((Path(folder) / "texts.json").read_text(encoding="utf-8"))
    return train, test


def latency(transform: Callable[[list[str]], Any], texts: list[str]) -> float:
    """Milliseconds for one text, the median over some."""
    seconds = []
    for text in texts[:N_SINGLE]:
        with Stopwatch() as watch:
            transform([text])
        seconds.append(watch.wall)
    return 1000 * float(np.median(seconds))


def features_longtail(folder: str, threads: int, repeat: int) -> Row:
    """Fit and transform with longtail."""
    from longtail.features.tfidf import Tfidf

    train, test = read_texts(folder)
    Tfidf(min_df=1).fit_transform(["warm up"])
    tfidf = Tfidf(ngrams=NGRAMS, min_df=MIN_DF, min_chars=MIN_CHARS, sublinear=True, threads=threads)
    X, wall, cpu = best_of(repeat, lambda: tfidf.fit_transform(train))
    X_test, test_wall, _ = best_of(repeat, lambda: tfidf.transform(test))
    save(Path(folder), X=X, X_test=X_test)
    terms = [tfidf.term(i) for i in range(tfidf.n_features)]
    (Path(folder) / "terms.json").write_text(json.dumps(terms))
    return {"wall": wall, "cpu": cpu, "test": test_wall, "ms": latency(tfidf.transform, test)}


def features_sklearn(folder: str, repeat: int) -> Row:
    """Fit and transform with scikit-learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    train, test = read_texts(folder)
    tfidf = TfidfVectorizer(ngram_range=(1, NGRAMS), min_df=MIN_DF, sublinear_tf=True, dtype=np.float32)
    X, wall, cpu = best_of(repeat, lambda: tfidf.fit_transform(train))
    X_test, test_wall, _ = best_of(repeat, lambda: tfidf.transform(test))
    save(Path(folder), X_sklearn=X, X_test_sklearn=X_test)
    (Path(folder) / "terms_sklearn.json").write_text(json.dumps(tfidf.get_feature_names_out().tolist()))
    return {"wall": wall, "cpu": cpu, "test": test_wall, "ms": latency(tfidf.transform, test)}


def agreement(folder: Path) -> Row:
    """How far vocabularies and matrices differ; matrices are compared on the terms of both."""
    ours, theirs = (json.loads((folder / f"{name}.json").read_text()) for name in ("terms", "terms_sklearn"))
    both = sorted(set(ours) & set(theirs))
    columns = [lookup(terms, both) for terms in (ours, theirs)]
    X, X_test, X_sklearn, X_test_sklearn = load(folder, "X", "X_test", "X_sklearn", "X_test_sklearn")
    return {
        "terms": len(ours),
        "terms of longtail only": len(ours) - len(both),
        "terms of scikit-learn only": len(theirs) - len(both),
        "largest difference, train": difference(X[:, columns[0]], X_sklearn[:, columns[1]]),
        "largest difference, test": difference(X_test[:, columns[0]], X_test_sklearn[:, columns[1]]),
    }


def lookup(terms: list[str], wanted: list[str]) -> list[int]:
    """The columns of some terms."""
    column = {term: i for i, term in enumerate(terms)}
    return [column[term] for term in wanted]


def main() -> None:
    """Run and print."""
    given = arguments(__doc__).parse_args()
    train, test = corpus(CORPUS), corpus(CORPUS, "test")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts.json").write_text(json.dumps([list(train.texts or []), list(test.texts or [])]))
        note("tfidf: longtail")
        found = {
            f"longtail, {n} thread{'s' * (n > 1)}": run(
                "longtail", features_longtail, folder=folder, threads=n, repeat=given.repeat
            ).result
            for n in (1, THREADS)
        }
        note("tfidf: scikit-learn")
        found["scikit-learn"] = run("sklearn", features_sklearn, folder=folder, repeat=given.repeat).result
        same = agreement(Path(folder))
    rows = [
        {
            "system": system,
            "fit + transform train s": row["wall"],
            "CPU-s": row["cpu"],
            "transform test s": row["test"],
            "one text ms": row["ms"],
            "scikit-learn's s / this": found["scikit-learn"]["wall"] / row["wall"],
            "of one text": found["scikit-learn"]["ms"] / row["ms"],
        }
        for system, row in found.items()
    ]
    notes = [
        f"{CORPUS}: {train.n_samples:,} train, {test.n_samples:,} test; words and pairs, min_df {MIN_DF}, sublinear",
        f"best of {given.repeat} runs in one process; one text: median of {N_SINGLE}; scikit-learn uses one thread",
    ]
    report({"TF-IDF": rows, "Agreement": [same]}, notes, given.json)


if __name__ == "__main__":
    main()
