"""How much of a long text ``lightattention``, ``aplc`` and ``secseq`` should read, and how: accuracy and CPU seconds.

Trained on training data of manpages-seealso (manual pages of 833 words on average, up to 8,000), measured on a tenth of it
that is held out; the test data is not used. One thread, seed 0, one process per run. ``--words`` compares ways to choose the
words that are read, by the accuracy of ``plt`` over these words: a proxy that takes seconds instead of an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report
from numpy.typing import NDArray
from peers import LIMITS, run

if TYPE_CHECKING:
    from longtail import Dataset, Tagger

CORPUS = "manpages-seealso"
HELD_OUT = 0.1
METRICS = ("P@1", "P@3", "P@5", "PSP@5")
RUNS = {  # what is read, by spec
    "plt+ngrams=1": "all words",
    "aplc+encoder=bag+bias=false+token_weights=mean+max_length=256": "the mean of the first 256 tokens, no biases",
    "aplc+encoder=bag+token_weights=mean+max_length=256": "the mean of the first 256 tokens",
    "aplc+encoder=bag+max_length=256": "the first 256 tokens, weighted by TF-IDF",
    "aplc+encoder=bag": "all tokens, weighted by TF-IDF",
    "aplc": "features (default)",
    "secseq": "all words, weighted by TF-IDF (default)",
    "secseq+ngrams=2": "all words and pairs of words, weighted by TF-IDF",
    "lightattention+max_length=200+select=first": "the first 200 words",
    "lightattention+max_length=200": "the first 100 words and the best 100 of the others",
    "lightattention": "the first 50 words and the best 50 of the others (default)",
}
LENGTHS = (100, 200, 300, 500, 1000)  # words read by --words

Ids = NDArray[Any]


def split_data(n: int | None) -> tuple[Dataset, Dataset]:
    """A random part of the training data, and held-out pages, which are the same for every part."""
    data = read_corpus(CORPUS)
    order, n_held_out = np.random.default_rng(0).permutation(data.n_samples), int(HELD_OUT * data.n_samples)
    return data.take(np.sort(order[n_held_out:][:n])), data.take(np.sort(order[:n_held_out]))


def evaluate_tagger(tagger: Tagger, held_out: Dataset) -> Row:
    """Compute the metrics on held-out pages; labels without a training page count as missed."""
    from longtail.metrics.evaluate import evaluate

    best, model = tagger.topk(held_out.inputs, 5), tagger.model
    Y = held_out.align(tagger.labels).Y
    values = evaluate(best, Y, label_counts=model.label_counts, n_train=model.n_samples).values
    return {metric: values[metric] for metric in METRICS}


def measure(spec: str, n: int | None) -> Row:
    """Train and evaluate one method."""
    from longtail.spec import MethodSpec

    train, held_out = split_data(n)
    with Stopwatch() as training:
        tagger = MethodSpec.parse(spec).build(seed=0, threads=1).fit(train)
    with Stopwatch() as prediction:
        values = evaluate_tagger(tagger, held_out)
    return {**values, "train CPU-s": training.cpu, "ms per text": 1e3 * prediction.cpu / held_out.n_samples}


def find_first_places(words: Ids) -> Ids:
    """The first place of each distinct word, in order."""
    return np.sort(np.unique(words, return_index=True)[1])


def choose_best(words: Ids, idf: Ids, n: int, without: Ids) -> Ids:
    """The n distinct words with the highest TF-IDF, in order."""
    found, places, counts = np.unique(words, return_index=True, return_counts=True)
    weights = np.where(np.isin(found, without), -np.inf, (1 + np.log(counts)) * idf[found])
    best = np.argsort(-weights, kind="stable")[:n]
    return words[np.sort(places[best[np.isfinite(weights[best])]])]


SELECTIONS: dict[str, Callable[[Ids, Ids, int], Ids]] = {
    "first": lambda words, idf, n: words[:n],
    "first and last": lambda words, idf, n: np.concatenate([words[: n // 2], words[-(n - n // 2) :]]),
    "first distinct": lambda words, idf, n: words[find_first_places(words)[:n]],
    "highest TF-IDF": lambda words, idf, n: choose_best(words, idf, n, np.array([0])),
    "first half, then highest TF-IDF": lambda words, idf, n: np.concatenate(
        [words[: n // 2], choose_best(words[n // 2 :], idf, n - n // 2, np.append(words[: n // 2], 0))]
    ),
}


def compare_selections(n: int | None) -> list[Row]:
    """Train ``plt`` on the words that each selection reads, and evaluate it."""
    from longtail import Tagger
    from longtail.models.lightattention.words import Vocabulary

    train, held_out = split_data(n)
    vocabulary = Vocabulary(max_length=10**6).fit(train.texts)
    idf = np.append(0, vocabulary.tfidf.idf)
    names = np.array([vocabulary.word(number) for number in range(vocabulary.n_words)])
    rows = []
    for title, select in {"all": lambda words, idf, n: words, **SELECTIONS}.items():
        for length in LENGTHS if title in SELECTIONS else (10**6,):

            def cut(data: Dataset, select: Any = select, length: int = length) -> Dataset:
                pages = vocabulary.transform(data.texts)
                words = (pages[i : i + 1].ids for i in range(len(pages)))
                chosen = [names[page if len(page) <= length else select(page, idf, length)] for page in words]
                return replace(data, texts=[" ".join(page) for page in chosen])

            part = cut(train)
            tagger = Tagger("plt", ngrams=1, threads=1).fit(part)
            read = float(np.mean([len(text.split()) for text in part.texts]))
            rows.append({"words": title, "at most": length, "mean": read, **evaluate_tagger(tagger, cut(held_out))})
            print_progress(str(rows[-1]))
    return rows


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--pages", type=int, help="train on this many random pages (default: all that are not held out)")
    parser.add_argument("--spec", action="append", help="only this run, or another one; repeatable")
    parser.add_argument("--words", action="store_true", help="compare ways to choose words, by plt")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows: list[Row] = []
    if given.words:
        rows = run("longtail", compare_selections, env=one_thread, n=given.pages).result
    for spec in [] if given.words else given.spec or RUNS:
        print_progress(spec)
        done = run("longtail", measure, env=one_thread, spec=spec, n=given.pages)
        rows.append({"run": spec, "reads": RUNS.get(spec, ""), **done.result, "peak MB": done.peak})
        print_progress(", ".join(f"{metric} {rows[-1][metric]:.2f}" for metric in METRICS))
    report({f"Long texts: {CORPUS}": rows}, ["One thread, seed 0, held-out training pages"], given.json)


if __name__ == "__main__":
    main()
