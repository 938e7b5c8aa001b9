"""TF-IDF: longtail and scikit-learn's TfidfVectorizer with the same settings.

    python benchmarks/tfidf.py
    python benchmarks/tfidf.py --corpus manpages-seealso --ngrams 1

Words are the same; with n-grams the vectors differ, because longtail scales words and n-grams separately.
"""

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
    read_memory,
    report,
    save,
    time_best,
)
from peers import run

MIN_DF, MIN_CHARS = 2, 2  # scikit-learn skips words of one letter
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


def measure_longtail(folder: str, ngrams: int, threads: int, repeat: int) -> Row:
    """Fit and transform with longtail."""
    from longtail.features.tfidf import Tfidf

    train, test = read_texts(folder)
    Tfidf(min_df=1).fit_transform(["warm up"])
    tfidf = Tfidf(ngrams=ngrams, min_df=MIN_DF, min_chars=MIN_CHARS, threads=threads)
    before = read_memory("VmRSS")
    X, wall, cpu = time_best(repeat, lambda: tfidf.fit_transform(train))
    memory = read_memory("VmHWM") - before
    X_test, test_wall, _ = time_best(repeat, lambda: tfidf.transform(test))
    save(Path(folder), X=X, X_test=X_test)
    terms = [tfidf.get_term(i) for i in range(tfidf.n_features)]
    (Path(folder) / "terms.json").write_text(json.dumps(terms))
    return {"wall": wall, "cpu": cpu, "MB": memory, "test": test_wall, "ms": measure_latency(tfidf.transform, test)}


def measure_sklearn(folder: str, ngrams: int, repeat: int) -> Row:
    """Fit and transform with scikit-learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    train, test = read_texts(folder)
    tfidf = TfidfVectorizer(ngram_range=(1, ngrams), min_df=MIN_DF, sublinear_tf=True, dtype=np.float32)
    before = read_memory("VmRSS")
    X, wall, cpu = time_best(repeat, lambda: tfidf.fit_transform(train))
    memory = read_memory("VmHWM") - before
    X_test, test_wall, _ = time_best(repeat, lambda: tfidf.transform(test))
    save(Path(folder), X_sklearn=X, X_test_sklearn=X_test)
    (Path(folder) / "terms_sklearn.json").write_text(json.dumps(tfidf.get_feature_names_out().tolist()))
    return {"wall": wall, "cpu": cpu, "MB": memory, "test": test_wall, "ms": measure_latency(tfidf.transform, test)}


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
    parser = make_parser(__doc__)
    parser.add_argument("--corpus", default="debian-debtags")
    parser.add_argument("--ngrams", type=int, default=1)
    given = parser.parse_args()
    train, test = read_corpus(given.corpus), read_corpus(given.corpus, "test")
    n_words = sum(len(text.split()) for text in train.texts or []) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts.json").write_text(json.dumps([list(train.texts or []), list(test.texts or [])]))
        common = {"folder": folder, "ngrams": given.ngrams, "repeat": given.repeat}
        print_progress("tfidf: longtail")
        found = {
            f"longtail, {n} thread{'s' * (n > 1)}": run("longtail", measure_longtail, threads=n, **common).result
            for n in (1, THREADS)
        }
        print_progress("tfidf: scikit-learn")
        found["scikit-learn"] = run("sklearn", measure_sklearn, **common).result
        agreement = compare_matrices(Path(folder))
    rows = [
        {
            "system": system,
            "fit + transform train s": row["wall"],
            "CPU-s": row["cpu"],
            "CPU-s per million words": row["cpu"] / n_words,
            "MB per million words": row["MB"] / n_words,
            "transform test s": row["test"],
            "one text ms": row["ms"],
            "speed-up over scikit-learn": found["scikit-learn"]["wall"] / row["wall"],
            "speed-up, one text": found["scikit-learn"]["ms"] / row["ms"],
        }
        for system, row in found.items()
    ]
    terms = "words" if given.ngrams == 1 else f"words and n-grams of up to {given.ngrams}"
    notes = [
        f"{given.corpus}: {train.n_samples:,} train, {test.n_samples:,} test, {n_words:.2f} million words; {terms}, "
        f"min_df {MIN_DF}, sublinear",
        f"best of {given.repeat} runs in one process; one text: median of {N_SINGLE_TEXTS}; scikit-learn uses one thread",
        "MB: peak memory of fit and transform, without the texts, per million words of the training data",
    ]
    report({"TF-IDF": rows, "Agreement": [agreement]}, notes, given.json)


if __name__ == "__main__":
    main()
