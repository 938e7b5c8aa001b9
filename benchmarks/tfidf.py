"""TF-IDF: longtail and scikit-learn's TfidfVectorizer with the same settings, on debian-debtags."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    THREADS,
    Row,
    Stopwatch,
    compute_difference,
    draw_rows,
    load,
    make_parser,
    print_progress,
    read_corpus,
    report,
    save,
    time_best,
)
from peers import run

CORPUS = "debian-debtags"
NGRAMS, MIN_DF, MIN_CHARS = 2, 2, 2  # scikit-learn skips words of one letter
N_SINGLE_TEXTS = 500  # for the latency of one text


def read_texts(folder: str) -> tuple[list[str], list[str]]:
    """The training and test texts that the parent process has written."""
    train, test = json.loads((Path(folder) / "texts.json").read_text(encoding="utf-8"))
    return train, test


def measure_latency(transform: Callable[[list[str]], Any], texts: list[str]) -> float:
    """The median time of one text, in milliseconds."""
    seconds = []
    for text in (texts[row] for row in draw_rows(len(texts), N_SINGLE_TEXTS)):
        with Stopwatch() as watch:
            transform([text])
        seconds.append(watch.wall)
    return 1000 * float(np.median(seconds))


def measure_longtail(folder: str, threads: int, repeat: int) -> Row:
    """Fit and transform with longtail."""
    from longtail.features.tfidf import Tfidf

    train, test = read_texts(folder)
    Tfidf(min_df=1).fit_transform(["warm up"])
    tfidf = Tfidf(ngrams=NGRAMS, min_df=MIN_DF, min_chars=MIN_CHARS, threads=threads)
    X, wall, cpu = time_best(repeat, lambda: tfidf.fit_transform(train))
    X_test, test_wall, _ = time_best(repeat, lambda: tfidf.transform(test))
    save(Path(folder), X=X, X_test=X_test)
    terms = [tfidf.get_term(i) for i in range(tfidf.n_features)]
    (Path(folder) / "terms.json").write_text(json.dumps(terms))
    return {"wall": wall, "cpu": cpu, "test": test_wall, "ms": measure_latency(tfidf.transform, test)}


def measure_sklearn(folder: str, repeat: int) -> Row:
    """Fit and transform with scikit-learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    train, test = read_texts(folder)
    tfidf = TfidfVectorizer(ngram_range=(1, NGRAMS), min_df=MIN_DF, sublinear_tf=True, dtype=np.float32)
    X, wall, cpu = time_best(repeat, lambda: tfidf.fit_transform(train))
    X_test, test_wall, _ = time_best(repeat, lambda: tfidf.transform(test))
    save(Path(folder), X_sklearn=X, X_test_sklearn=X_test)
    (Path(folder) / "terms_sklearn.json").write_text(json.dumps(tfidf.get_feature_names_out().tolist()))
    return {"wall": wall, "cpu": cpu, "test": test_wall, "ms": measure_latency(tfidf.transform, test)}


def compare_matrices(folder: Path) -> Row:
    """Differences of the vocabularies, and of the matrices in the terms that both have."""
    ours, theirs = (json.loads((folder / f"{name}.json").read_text()) for name in ("terms", "terms_sklearn"))
    both = sorted(set(ours) & set(theirs))
    columns = [find_columns(terms, both) for terms in (ours, theirs)]
    X, X_test, X_sklearn, X_test_sklearn = load(folder, "X", "X_test", "X_sklearn", "X_test_sklearn")
    return {
        "terms": len(ours),
        "terms of longtail only": len(ours) - len(both),
        "terms of scikit-learn only": len(theirs) - len(both),
        "largest difference, train": compute_difference(X[:, columns[0]], X_sklearn[:, columns[1]]),
        "largest difference, test": compute_difference(X_test[:, columns[0]], X_test_sklearn[:, columns[1]]),
    }


def find_columns(terms: list[str], wanted: list[str]) -> list[int]:
    """The columns of some terms."""
    column = {term: i for i, term in enumerate(terms)}
    return [column[term] for term in wanted]


def main() -> None:
    """Run the benchmark."""
    given = make_parser(__doc__).parse_args()
    train, test = read_corpus(CORPUS), read_corpus(CORPUS, "test")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts.json").write_text(json.dumps([list(train.texts or []), list(test.texts or [])]))
        print_progress("tfidf: longtail")
        found = {
            f"longtail, {n} thread{'s' * (n > 1)}": run(
                "longtail", measure_longtail, folder=folder, threads=n, repeat=given.repeat
            ).result
            for n in (1, THREADS)
        }
        print_progress("tfidf: scikit-learn")
        found["scikit-learn"] = run("sklearn", measure_sklearn, folder=folder, repeat=given.repeat).result
        agreement = compare_matrices(Path(folder))
    rows = [
        {
            "system": system,
            "fit + transform train s": row["wall"],
            "CPU-s": row["cpu"],
            "transform test s": row["test"],
            "one text ms": row["ms"],
            "speed-up over scikit-learn": found["scikit-learn"]["wall"] / row["wall"],
            "speed-up, one text": found["scikit-learn"]["ms"] / row["ms"],
        }
        for system, row in found.items()
    ]
    notes = [
        f"{CORPUS}: {train.n_samples:,} train, {test.n_samples:,} test; words and pairs, min_df {MIN_DF}, sublinear",
        f"best of {given.repeat} runs in one process; one text: median of {N_SINGLE_TEXTS}; scikit-learn uses one thread",
    ]
    report({"TF-IDF": rows, "Agreement": [agreement]}, notes, given.json)


if __name__ == "__main__":
    main()
