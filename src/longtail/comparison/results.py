"""The result of a comparison: metrics and costs of every method, significant differences, and disagreements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail import __version__
from longtail.comparison.runs import MIN_DEPTH, CandidateRun, ComparisonTask
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.html import format_table
from longtail.labelspace.propensity import DEFAULT_PROPENSITY
from longtail.metrics.calibration import ReliabilityBin
from longtail.metrics.evaluate import Evaluation, evaluate
from longtail.metrics.intervals import PairedDifference, run_paired_test
from longtail.metrics.ranking import DEFAULT_KS
from longtail.progress import SILENT, Progress
from longtail.topk import NO_LABEL, TopK, find_hits

SIGNIFICANCE_LEVEL = 0.05  # p-values from here on do not count as a difference
MIN_SHARE_OF_BEST = 0.5  # examples come from methods that reach this share of the best method's main metric
MAX_TRUE_LABELS = 12  # shown with an example
_MAX_GROUPS, _EXAMPLES_PER_GROUP, _LABELS_PER_EXAMPLE = 6, 2, 3
_EXCERPT_CHARS = 320
_SUMMARY_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")

# Name of a cost -> the field of a run and the key in it.
_COSTS = {
    "training": ("training", "seconds"),
    "training CPU": ("training", "cpu"),
    "training memory": ("training", "memory"),
    "p50": ("prediction", "p50"),
    "p99": ("prediction", "p99"),
    "throughput": ("prediction", "per_second"),
    "memory": ("prediction", "memory"),
    "size": ("prediction", "size"),
}


@dataclass(frozen=True)
class MethodResult:
    """Metrics and costs of one method. Only the first three fields are set if it failed."""

    name: str
    description: str
    failure: str = ""
    notes: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)  # 0 to 100
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # 95 %
    behind: dict[str, PairedDifference] = field(
        default_factory=dict
    )  # best minus this one, for metrics in which it is not the best
    slices: dict[str, dict[str, float]] = field(default_factory=dict)
    precision_curve: list[float] = field(default_factory=list)  # P@1, P@2, …
    costs: dict[str, float] = field(default_factory=dict)  # seconds, ms, MB; of training only if it was trained here
    history: list[dict[str, float]] = field(default_factory=list)
    reliability: list[ReliabilityBin] = field(default_factory=list)  # empty if scores are not probabilities


@dataclass(frozen=True)
class Example:
    """A sample, its true labels, and the first labels of each method with whether they are true."""

    number: int  # from 1
    text: str | None
    true: list[str]
    first: dict[str, list[tuple[str, bool]]]


@dataclass(frozen=True)
class Disagreement:
    """Samples whose first label the same methods predict correctly."""

    right: list[str]
    wrong: list[str]
    n_samples: int
    examples: list[Example]


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of ``longtail.compare``."""

    facts: dict[str, Any]
    ks: tuple[int, ...]
    results: list[MethodResult]  # best first by the main metric; failures last
    agreement: list[list[float]]  # percentage of samples for which two methods predict the same first label
    disagreements: list[Disagreement]

    @property
    def done(self) -> list[MethodResult]:
        """The methods that did not fail."""
        return [result for result in self.results if not result.failure]

    @property
    def main_metric(self) -> str:
        """The metric that ranks the methods."""
        return f"P@{self.ks[0]}"

    def to_json(self) -> dict[str, Any]:
        """All fields in plain types, as results.json holds them."""
        return asdict(self)

    def __repr__(self) -> str:
        """The best method and its main metric."""
        best = (
            f"best: {self.done[0].name}, {self.main_metric} {self.done[0].values[self.main_metric]:.2f}"
            if self.done
            else "all failed"
        )
        return f"Comparison({len(self.results)} methods on {Path(self.facts['test']).name}; {best})"

    def _repr_html_(self) -> str:
        metrics = [name for name in _SUMMARY_METRICS if self.done and name in self.done[0].values]
        rows = [[result.name, *(result.values[name] for name in metrics)] for result in self.done]
        return format_table(rows, ["method", *metrics])


def evaluate_runs(
    task: ComparisonTask,
    runs: Sequence[CandidateRun],
    *,
    ks: Sequence[int] = DEFAULT_KS,
    propensity: tuple[float, float] = DEFAULT_PROPENSITY,
    date: str = "",
    progress: Progress = SILENT,
) -> Comparison:
    """Evaluate the predictions of all runs. Propensities and label frequencies are those of the training data."""
    done = [run for run in runs if not run.failure]
    known, _ = task.train.labels.merge(task.test.labels)
    names, tops, sets = _align_labels(known, done)
    counts = np.zeros(len(names), np.int32)
    seen = np.bincount(task.train.Y.indices, minlength=task.train.n_labels)
    counts[: len(seen)] = seen
    Y = task.test.align(task.train.labels).Y
    Y = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], len(names)))
    common: dict[str, Any] = {"label_counts": counts, "n_train": task.train.n_samples, "ks": ks, "propensity": propensity}
    common["hierarchy"] = known.hierarchy
    scores = [
        evaluate(top, Y, **common, sets=chosen, probabilities=run.prediction.get("scores") == "probability")
        for run, top, chosen in zip(done, tops, sets, strict=True)
    ]
    main = f"P@{ks[0]}"
    order = sorted(range(len(done)), key=lambda i: -scores[i].values[main])
    done, tops, scores = [done[i] for i in order], [tops[i] for i in order], [scores[i] for i in order]
    behind = _compare_with_best(scores, progress)
    results = [
        _summarise(run, score, gap, _precision_curve(top, Y))
        for run, score, gap, top in zip(done, scores, behind, tops, strict=True)
    ]
    results += [MethodResult(run.candidate.name, run.candidate.description, run.failure) for run in runs if run.failure]
    strong = [i for i, score in enumerate(scores) if score.values[main] >= MIN_SHARE_OF_BEST * scores[0].values[main]]
    disagreements = _find_disagreements([result.name for result in results], tops, strong, Y, names, task.test)
    return Comparison(_collect_facts(task, date), tuple(ks), results, _measure_agreement(tops), disagreements)


def _align_labels(labels: Labels, runs: Sequence[CandidateRun]) -> tuple[Sequence[str], list[TopK], list[TopK]]:
    """Number the labels of all data and models, those of the data first; return predictions and sets in these ids."""
    tops, sets = [], []
    for run in runs:
        assert run.ids is not None and run.sets is not None
        labels, new = labels.merge(run.labels)
        mapped = np.append(new, NO_LABEL).astype(np.int32)  # NO_LABEL is -1, the last position
        tops.append(TopK(mapped[run.ids], np.zeros(run.ids.shape) if run.scores is None else run.scores))
        sets.append(TopK(mapped[run.sets], np.zeros(run.sets.shape)))
    return labels.names, tops, sets


def _summarise(
    run: CandidateRun, score: Evaluation, behind: dict[str, PairedDifference], curve: list[float]
) -> MethodResult:
    records = {"training": run.training, "prediction": run.prediction}
    costs = {name: float(records[part][key]) for name, (part, key) in _COSTS.items() if records[part].get(key) is not None}
    return MethodResult(
        name=run.candidate.name,
        description=run.candidate.description,
        notes=run.training.get("notes", []),
        values=score.values,
        intervals=score.intervals,
        behind=behind,
        slices=score.slices,
        precision_curve=curve,
        costs=costs,
        history=run.training.get("history", []),
        reliability=score.bins,
    )


def _compare_with_best(scores: Sequence[Evaluation], progress: Progress) -> list[dict[str, PairedDifference]]:
    """For each method and each metric in which another is best: the difference and its p-value."""
    out: list[dict[str, PairedDifference]] = [{} for _ in scores]
    if len(scores) < 2:
        return out
    metrics = scores[0].scores.names
    best = {name: max(range(len(scores)), key=lambda i: scores[i].values[name]) for name in metrics}
    leaders = sorted(set(best.values()))
    with progress.stage("significance", len(leaders) * (len(scores) - 1)) as stage:
        for leader in leaders:
            for other in range(len(scores)):
                if other == leader:
                    continue
                test = run_paired_test(scores[leader].scores, scores[other].scores)
                out[other] |= {name: test[name] for name in metrics if best[name] == leader}
                stage.advance()
    return out


def _precision_curve(top: TopK, Y: sp.csr_array) -> list[float]:
    """P@1, P@2, … P@10."""
    found = np.zeros((top.n_samples, MIN_DEPTH))
    found[:, : top.k] = find_hits(top, Y)[:, :MIN_DEPTH]
    precision: list[float] = (100 * found.mean(axis=0).cumsum() / np.arange(1, MIN_DEPTH + 1)).tolist()
    return precision


def _measure_agreement(tops: Sequence[TopK]) -> list[list[float]]:
    return [[100 * float((one.ids[:, 0] == other.ids[:, 0]).mean()) for other in tops] for one in tops]


def find_pareto_front(costs: Sequence[float], values: Sequence[float]) -> list[int]:
    """Indices of the points that no other beats: none is as good at a lower cost, or better at the same. Cheapest first.

    >>> find_pareto_front([1, 2, 3, 4], [5, 4, 7, 7])
    [0, 2]
    """
    front: list[int] = []
    for i in sorted(range(len(costs)), key=lambda i: (costs[i], -values[i])):
        if not front or values[i] > values[front[-1]]:
            front.append(i)
    return front


def _find_disagreements(
    names: Sequence[str], tops: Sequence[TopK], strong: Sequence[int], Y: sp.csr_array, labels: Sequence[str], test: Dataset
) -> list[Disagreement]:
    """Samples whose first label some of the strong methods predict correctly and others do not, the most common case first.

    The examples of a case are drawn at random, so that they are typical.
    """
    if len(strong) < 2:
        return []
    found = [find_hits(top, Y) for top in tops]
    right: NDArray[np.bool_] = np.stack([found[i][:, 0] for i in strong], axis=1)  # [n_samples, n_strong]
    mixed = np.flatnonzero(right.any(axis=1) & ~right.all(axis=1))
    cases = Counter(tuple(row) for row in right[mixed].tolist())
    rng = np.random.default_rng(0)
    out = []
    for case, n_samples in sorted(cases.items(), key=lambda pair: (-pair[1], pair[0]))[:_MAX_GROUPS]:
        members = mixed[(right[mixed] == case).all(axis=1)]
        examples = []
        for i in rng.permutation(members)[:_EXAMPLES_PER_GROUP].tolist():
            n = _LABELS_PER_EXAMPLE
            first = {names[j]: _name_hits(tops[j].ids[i, :n], found[j][i, :n], labels) for j in strong}
            true = [labels[label] for label in Y.indices[Y.indptr[i] : Y.indptr[i + 1]]]
            examples.append(Example(i + 1, _excerpt(test, i), true, first))
        sides = {side: [names[strong[j]] for j, is_right in enumerate(case) if is_right is side] for side in (True, False)}
        out.append(Disagreement(sides[True], sides[False], n_samples, examples))
    return out


def _name_hits(ids: NDArray[Any], right: NDArray[np.bool_], labels: Sequence[str]) -> list[tuple[str, bool]]:
    return [(labels[label], bool(hit)) for label, hit in zip(ids, right, strict=True) if label != NO_LABEL]


def _excerpt(data: Dataset, row: int) -> str | None:
    """The start of a text."""
    if data.texts is None:
        return None
    text = " ".join(data.texts[row].split())
    return text if len(text) <= _EXCERPT_CHARS else text[: _EXCERPT_CHARS - 1].rsplit(" ", 1)[0] + " …"


def _collect_facts(task: ComparisonTask, date: str) -> dict[str, Any]:
    """What the methods were trained and evaluated on."""
    return {
        "train": task.train.source,
        "test": task.test.source,
        "kind": "feature vectors" if task.train.texts is None else "texts",
        "n_train": task.train.n_samples,
        "n_test": task.test.n_samples,
        "n_labels": task.train.n_labels,
        "labels_per_sample": task.train.Y.nnz / task.train.n_samples,
        "seed": task.seed,
        "threads": task.threads,
        "longtail": __version__,
        "date": date,
    }
