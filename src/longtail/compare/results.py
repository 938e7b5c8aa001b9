"""What a comparison says: figures of every method, which differences are more than chance, and where methods disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail import __version__
from longtail.compare.runs import DEPTH, Run, Task
from longtail.data.dataset import Dataset
from longtail.labelspace.propensity import DEFAULT
from longtail.metrics.evaluate import Evaluation, evaluate
from longtail.metrics.intervals import Paired, paired_test
from longtail.metrics.ranking import KS
from longtail.progress import SILENT, Progress
from longtail.topk import NO_LABEL, TopK, hits

CHANCE = 0.05  # p-value from which a difference may be chance
SERIOUS = 0.5  # examples are of methods that reach so much of the best one's first figure
MOST_GROUPS, IN_A_GROUP = 6, 2  # examples shown
FIRST = 3  # labels of each method beside an example
LETTERS, MOST_TRUE = 320, 12  # of the text and of the true labels of an example


@dataclass(frozen=True)
class Entry:
    """One method in a comparison. Without a failure, all figures are there."""

    name: str
    what: str
    failure: str = ""
    notes: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)  # from 0 to 100
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # 95 %
    behind: dict[str, Paired] = field(default_factory=dict)  # the best less this one, for metrics in which it is not best
    slices: dict[str, dict[str, float]] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)  # P@1, P@2, …
    costs: dict[str, float] = field(default_factory=dict)  # of COSTS; those of training only if it was trained here
    history: list[dict[str, float]] = field(default_factory=list)


# Name of a cost -> where it stands in a run, and its unit.
COSTS = {
    "training": ("trained", "seconds", "s"),
    "training CPU": ("trained", "cpu", "s"),
    "training memory": ("trained", "memory", "MB"),
    "p50": ("measured", "p50", "ms"),
    "p99": ("measured", "p99", "ms"),
    "throughput": ("measured", "per_second", "1/s"),
    "memory": ("measured", "memory", "MB"),
    "size": ("measured", "size", "MB"),
}


@dataclass(frozen=True)
class Example:
    """A sample, its true labels, and the first labels of the serious methods, with whether they are right."""

    number: int  # from 1
    text: str | None
    true: list[str]
    first: dict[str, list[tuple[str, bool]]]


@dataclass(frozen=True)
class Group:
    """Samples whose first label the same methods have right."""

    right: list[str]
    wrong: list[str]
    n_samples: int
    examples: list[Example]


@dataclass(frozen=True)
class Comparison:
    """All that the tables and the page show."""

    facts: dict[str, Any]
    ks: tuple[int, ...]
    entries: list[Entry]  # the best first, by P at the first k; failures last
    agreement: list[list[float]]  # percent of samples for which two methods have the same first label
    groups: list[Group]

    @property
    def done(self) -> list[Entry]:
        """Those that did not fail."""
        return [entry for entry in self.entries if not entry.failure]

    @property
    def main(self) -> str:
        """The metric that decides who is best."""
        return f"P@{self.ks[0]}"

    def to_json(self) -> dict[str, Any]:
        """As the command line writes it."""
        return asdict(self)


def comparison(
    task: Task,
    runs: Sequence[Run],
    *,
    ks: Sequence[int] = KS,
    propensity: tuple[float, float] = DEFAULT,
    date: str = "",
    progress: Progress = SILENT,
) -> Comparison:
    """Measure the predictions of all runs against the test data; propensities and slices are those of the training data."""
    done = [run for run in runs if not run.failure]
    names, tops = common_labels(task, done)
    counts = np.zeros(len(names), np.int32)
    seen = np.bincount(task.train.Y.indices, minlength=task.train.n_labels)
    counts[: len(seen)] = seen
    Y = task.test.aligned(task.train.labels).Y
    Y = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], len(names)))
    results = [
        evaluate(top, Y, label_counts=counts, n_train=task.train.n_samples, ks=ks, propensity=propensity) for top in tops
    ]
    main = f"P@{ks[0]}"
    order = sorted(range(len(done)), key=lambda i: -results[i].values[main])
    done, tops, results = [done[i] for i in order], [tops[i] for i in order], [results[i] for i in order]
    behind = differences(results, progress)
    entries = [
        entry(run, result, far, curve(top, Y)) for run, result, far, top in zip(done, results, behind, tops, strict=True)
    ]
    entries += [Entry(run.contestant.name, run.contestant.what, run.failure) for run in runs if run.failure]
    serious = [i for i, result in enumerate(results) if result.values[main] >= SERIOUS * results[0].values[main]]
    groups = disagreements([e.name for e in entries], tops, serious, Y, names, task.test)
    return Comparison(facts(task, date), tuple(ks), entries, agreement(tops), groups)


def common_labels(task: Task, runs: Sequence[Run]) -> tuple[list[str], list[TopK]]:
    """One numbering of the labels of all data and models, those of the training data first; the predictions in it."""
    ids = dict(task.train.labels.extended(task.test.labels.names).ids)
    tops = []
    for run in runs:
        assert run.ids is not None
        new = [ids.setdefault(name, len(ids)) for name in run.labels]
        best = np.array([*new, NO_LABEL], np.int32)[run.ids]  # NO_LABEL is -1, the last place
        tops.append(TopK(best, np.zeros(best.shape)))
    return list(ids), tops


def entry(run: Run, result: Evaluation, behind: dict[str, Paired], precision: list[float]) -> Entry:
    """All figures of one method."""
    parts = {"trained": run.trained, "measured": run.measured}
    costs = {name: float(parts[part][key]) for name, (part, key, _) in COSTS.items() if parts[part].get(key) is not None}
    one, notes, history = run.contestant, run.trained.get("notes", []), run.trained.get("history", [])
    values, intervals, slices = result.values, result.intervals, result.slices
    return Entry(one.name, one.what, "", notes, values, intervals, behind, slices, precision, costs, history)


def differences(results: Sequence[Evaluation], progress: Progress) -> list[dict[str, Paired]]:
    """For each result and each metric in which another is best: how far it is behind, and whether that may be chance."""
    out: list[dict[str, Paired]] = [{} for _ in results]
    if len(results) < 2:
        return out
    metrics = results[0].scores.names
    best = {name: max(range(len(results)), key=lambda i: results[i].values[name]) for name in metrics}
    leaders = sorted(set(best.values()))
    with progress.stage("significance", len(leaders) * (len(results) - 1)) as stage:
        for leader in leaders:
            for other in range(len(results)):
                if other == leader:
                    continue
                test = paired_test(results[leader].scores, results[other].scores)
                out[other] |= {name: test[name] for name in metrics if best[name] == leader}
                stage.advance()
    return out


def curve(top: TopK, Y: sp.csr_array) -> list[float]:
    """P@1, P@2, … up to the tenth label."""
    found = np.zeros((top.n_samples, DEPTH))
    found[:, : top.k] = hits(top, Y)[:, :DEPTH]
    precision: list[float] = (100 * found.mean(axis=0).cumsum() / np.arange(1, DEPTH + 1)).tolist()
    return precision


def agreement(tops: Sequence[TopK]) -> list[list[float]]:
    """How many percent of the samples get the same first label by each two methods."""
    return [[100 * float((one.ids[:, 0] == other.ids[:, 0]).mean()) for other in tops] for one in tops]


def pareto(costs: Sequence[float], values: Sequence[float]) -> list[int]:
    """Those that no other beats: none is as good at a lower cost, or better at the same. The cheapest first.

    >>> pareto([1, 2, 3, 4], [5, 4, 7, 7])
    [0, 2]
    """
    front: list[int] = []
    for i in sorted(range(len(costs)), key=lambda i: (costs[i], -values[i])):
        if not front or values[i] > values[front[-1]]:
            front.append(i)
    return front


def disagreements(
    names: Sequence[str], tops: Sequence[TopK], serious: Sequence[int], Y: sp.csr_array, labels: Sequence[str], test: Dataset
) -> list[Group]:
    """Samples for which some of the serious methods have the first label right and others do not, the commonest case first.

    Which samples of a case are shown is left to chance, so that they are typical.
    """
    if len(serious) < 2:
        return []
    found = [hits(top, Y) for top in tops]
    right: NDArray[np.bool_] = np.stack([found[i][:, 0] for i in serious], axis=1)  # [n_samples, n_serious]
    split = np.flatnonzero(right.any(axis=1) & ~right.all(axis=1))
    cases = Counter(tuple(row) for row in right[split].tolist())
    random = np.random.default_rng(0)
    groups = []
    for case, n_samples in sorted(cases.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_GROUPS]:
        members = split[(right[split] == case).all(axis=1)]
        examples = []
        for i in random.permutation(members)[:IN_A_GROUP].tolist():
            first = {names[j]: named_hits(tops[j].ids[i, :FIRST], found[j][i, :FIRST], labels) for j in serious}
            true = [labels[label] for label in Y.indices[Y.indptr[i] : Y.indptr[i + 1]]]
            examples.append(Example(i + 1, excerpt(test, i), true, first))
        sides = {side: [names[serious[j]] for j, is_right in enumerate(case) if is_right is side] for side in (True, False)}
        groups.append(Group(sides[True], sides[False], n_samples, examples))
    return groups


def named_hits(ids: NDArray[Any], right: NDArray[np.bool_], labels: Sequence[str]) -> list[tuple[str, bool]]:
    """The names of predicted labels, each with whether it is right."""
    return [(labels[label], bool(hit)) for label, hit in zip(ids, right, strict=True) if label != NO_LABEL]


def excerpt(data: Dataset, row: int) -> str | None:
    """The beginning of a text."""
    if data.texts is None:
        return None
    text = " ".join(data.texts[row].split())
    return text if len(text) <= LETTERS else text[: LETTERS - 1].rsplit(" ", 1)[0] + " …"


def facts(task: Task, date: str) -> dict[str, Any]:
    """What was learned from and measured on."""
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
