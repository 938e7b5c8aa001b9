"""The register of labels: what each label of a tagger is predicted as, and how the labels were changed since training."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from longtail.data.labels import COLUMNS, Labels
from longtail.kernels import Bools, Ints
from longtail.state import State, check_array, get_entry, refuse
from longtail.topk import NO_LABEL, TopK

Search = Callable[[int, Bools | None], TopK]  # the best k labels of the model among the allowed ones
PART = "history"  # of a bundle: what labels are predicted as, and former rows
_LISTED = ("names", *COLUMNS)
_FORMER = "former."


@dataclass(frozen=True)
class Change:
    """One change of the labels: when, what and why."""

    date: str  # UTC, ISO 8601
    operation: str  # rename, merge, retire, restore, add, sync or constraints
    summary: str
    reason: str = ""
    undone: str = ""  # when it was undone
    final: bool = False  # whether the model was trained further since, so that it cannot be undone

    @property
    def can_be_undone(self) -> bool:
        """Whether it was not undone yet, and is not final."""
        return not self.undone and not self.final

    def __str__(self) -> str:
        undone = f" [undone {self.undone}]" if self.undone else ""
        return f"{self.date}  {self.operation}: {self.summary}{f' ({self.reason})' if self.reason else ''}{undone}"


@dataclass(frozen=True, eq=False)
class Register:
    """All labels that a tagger has ever had, by id. Ids never change: labels that are added come last.

    :param labels: Names and what else is known about the labels.
    :param target: The label that is predicted in place of each [n_labels]: itself, another one that it was merged into, or
        ``NO_LABEL`` if it is retired.
    :param history: The changes, oldest first.
    :param former: For each change, what it replaced, encoded; empty if it was undone.
    """

    labels: Labels
    target: Ints
    history: tuple[Change, ...] = ()
    former: tuple[bytes, ...] = ()

    @classmethod
    def from_labels(cls, labels: Labels) -> Self:
        """Make a register of labels that were never changed."""
        return cls(labels, np.arange(len(labels), dtype=np.int32))

    @cached_property
    def resolved(self) -> Ints:
        """The label that is predicted in place of each, when a label that others were merged into was merged, too."""
        resolved = self.target
        while True:
            further = np.where(resolved == NO_LABEL, NO_LABEL, self.target[resolved])
            if np.array_equal(further, resolved):
                return resolved
            resolved = further

    @cached_property
    def is_active(self) -> Bools:
        """Whether each label can be predicted [n_labels]."""
        is_active: Bools = self.target == np.arange(len(self.target))
        return is_active

    @property
    def predicted_as(self) -> Ints | None:
        """The label that is predicted in place of each [n_labels], ``NO_LABEL`` if none is; None: each label itself."""
        return None if self.is_original else self.resolved

    @property
    def is_original(self) -> bool:
        """Whether every label is predicted as itself."""
        return bool(self.is_active.all())

    def topk(self, search: Search, k: int, n_outputs: int, allowed: Bools | None = None) -> TopK:
        """Return the best k labels. A label that others were merged into has the highest of their scores.

        :param search: Searches the outputs of the model.
        :param k: Number of labels.
        :param n_outputs: Outputs of the model: the first labels of the register.
        :param allowed: The labels that may be predicted [n_labels]. None: all.
        """
        target, usable = self.resolved[:n_outputs], self.find_outputs(n_outputs, allowed)
        mask = None if usable.all() else usable
        n_merged = int((usable & (target != np.arange(n_outputs))).sum())
        if not n_merged:
            return search(k, mask)
        depth = k
        while True:  # deep enough that k distinct labels remain
            best = fold_topk(search(depth, mask), target, k)
            if depth >= k + n_merged or (best.k >= k and (best.ids[:, k - 1] != NO_LABEL).all()):
                return best
            depth = min(2 * depth, k + n_merged)

    def find_outputs(self, n_outputs: int, allowed: Bools | None) -> Bools:
        """Return which outputs of the model stand for an allowed label [n_outputs]."""
        target = self.resolved[:n_outputs]
        usable: Bools = target != NO_LABEL
        return usable if allowed is None else usable & allowed[target]

    def fold(self, Y: sp.csr_array) -> sp.csr_array:
        """Replace merged labels of an indicator matrix by what they were merged into. Retired labels stay as they are.

        :param Y: A matrix with a column for each label; further columns are kept.
        """
        if self.is_original and Y.shape[1] >= len(self.labels):
            return Y
        resolved = np.arange(max(Y.shape[1], len(self.labels)), dtype=np.int32)
        resolved[: len(self.labels)] = np.where(self.resolved == NO_LABEL, resolved[: len(self.labels)], self.resolved)
        out = sp.csr_array((Y.data.copy(), resolved[Y.indices], Y.indptr.copy()), shape=(Y.shape[0], len(resolved)))
        out.sum_duplicates()
        out.data[:] = 1
        return out

    def unfold(self, Y: sp.csr_array, n_outputs: int) -> sp.csr_array:
        """Return the true labels of each output of the model: those of what it is predicted as.

        :returns: [n_samples, n_outputs] If no label has changed, Y itself, in which further columns are unknown labels.
        """
        if self.is_original:
            return Y
        own = np.arange(n_outputs)
        return self.fold(Y)[:, np.where(self.resolved[:n_outputs] == NO_LABEL, own, self.resolved[:n_outputs])]

    def fold_counts(self, counts: Ints) -> Ints:
        """Add the counts of merged labels to those of the labels that they were merged into [n_labels]."""
        out = np.zeros(len(self.labels), np.int32)
        alive = self.resolved[: len(counts)] != NO_LABEL
        np.add.at(out, self.resolved[: len(counts)][alive], counts[alive])
        out[: len(counts)][~alive] = counts[~alive]
        return out

    def commit(self, changed: Register, change: Change, **replaced: Any) -> Register:
        """Return a changed register with the change in its history, and with what is needed to undo it.

        :param replaced: What the change has replaced besides labels, by name, in JSON types.
        """
        former = encode_former(self, changed, replaced)
        return replace(changed, history=(*self.history, change), former=(*self.former, former))

    def extend(self, labels: Labels) -> Register:
        """Return a register with further labels at the end, which the model has learned.

        Earlier changes become final, because the labels before them would be fewer than those of the model.
        """
        n_new = len(labels) - len(self.labels)
        if not n_new:
            return self
        target = np.append(self.target, np.arange(len(self.labels), len(labels), dtype=np.int32))
        history = tuple(replace(change, final=True) for change in self.history)
        return replace(self, labels=labels, target=target, history=history)

    def undo(self, date: str) -> tuple[Register, Change, dict[str, Any]]:
        """Return the register before the last change that can be undone, this change, and what else it has replaced."""
        last = max(i for i, change in enumerate(self.history) if change.can_be_undone)
        labels, target, replaced = decode_former(self, self.former[last])
        undone = replace(self.history[last], undone=date)
        history = (*self.history[:last], undone, *self.history[last + 1 :])
        former = (*self.former[:last], b"", *self.former[last + 1 :])
        return Register(labels, target, history, former), undone, replaced

    def about(self) -> list[dict[str, str]]:
        """Describe the history in plain types, for the manifest of a bundle."""
        return [asdict(change) for change in self.history]

    def state(self) -> State:
        """Return the rest as plain arrays; nothing if the labels were never changed."""
        if not self.history:
            return {}
        former = {f"{_FORMER}{i}": np.frombuffer(part, np.uint8) for i, part in enumerate(self.former) if part}
        return {"target": self.target, **former}

    @classmethod
    def restore(cls, labels: Labels, about: Iterable[dict[str, Any]], state: State) -> Self:
        """Restore what ``about`` and ``state`` returned."""
        if "target" not in state:
            return cls.from_labels(labels)
        history = tuple(_restore_change(change) for change in about)
        former = (state.get(f"{_FORMER}{i}", np.empty(0, np.uint8)).tobytes() for i in range(len(history)))
        target = check_array(state, "target", "i4", (len(labels),), minimum=NO_LABEL, maximum=len(labels) - 1)
        if not _ends(target):
            raise refuse(state, "target", "has labels that were merged in a circle", "Every label must end somewhere")
        return cls(labels, np.array(target), history, tuple(former))


def _restore_change(saved: dict[str, Any]) -> Change:
    """Restore a change from its saved entries, which are texts, except ``final``."""
    change = Change(**saved)
    for each in fields(Change):
        get_entry(vars(change), each.name, bool if each.name == "final" else str)
    return change


def _ends(target: Ints) -> bool:
    """Whether going from each label to its target again and again ends: at a label that is its own target, or retired."""
    at = target
    for _ in range(len(target).bit_length() + 1):  # doubles the steps each time
        at = np.where(at == NO_LABEL, NO_LABEL, at[at])
    return bool((np.where(at == NO_LABEL, NO_LABEL, target[at]) == at).all())


def fold_topk(best: TopK, target: Ints, k: int) -> TopK:
    """Replace the ids of predictions, keep the highest score of each label, and return the best k.

    >>> best = TopK(np.array([[2, 0, 1]]), np.array([[0.9, 0.5, 0.1]]))
    >>> fold_topk(best, np.array([2, 1, 2]), 2).ids.tolist()
    [[2, 1]]
    """
    ids = np.where(best.ids == NO_LABEL, NO_LABEL, target[best.ids])
    by_id = np.argsort(ids, axis=1, kind="stable")  # the first of equal ids has the highest score
    sorted_ids = np.take_along_axis(ids, by_id, axis=1)
    is_repeated = np.zeros(ids.shape, bool)
    is_repeated[:, 1:] = sorted_ids[:, 1:] == sorted_ids[:, :-1]
    keep = np.empty(ids.shape, bool)
    np.put_along_axis(keep, by_id, ~is_repeated, axis=1)
    keep &= ids != NO_LABEL
    ids, scores = np.where(keep, ids, NO_LABEL), np.where(keep, best.scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # labels of equal probability keep their order
    return TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))


def encode_former(old: Register, new: Register, replaced: dict[str, Any]) -> bytes:
    """Encode what leads from a changed register back to the old one: the rows that differ, and which columns there were."""
    n = len(old.labels)
    differs = old.target != new.target[:n]
    for name in _LISTED:
        mine, other = getattr(old.labels, name), getattr(new.labels, name)
        if mine is not None and other is not None and mine is not other:
            differs |= np.fromiter((a != b for a, b in zip(mine, other[:n], strict=True)), bool, n)
    rows = np.flatnonzero(differs).tolist()
    columns = {name: column for name in _LISTED if (column := getattr(old.labels, name)) is not None}
    cells = {name: [column[i] for i in rows] for name, column in columns.items()}
    former: dict[str, Any] = {"n_labels": n, "rows": rows, "target": old.target[rows].tolist(), "columns": cells}
    return json.dumps({**former, "replaced": replaced} if replaced else former, ensure_ascii=False).encode()


def decode_former(register: Register, former: bytes) -> tuple[Labels, Ints, dict[str, Any]]:
    """Return the labels before a change, what they were predicted as, and what else was replaced."""
    what = json.loads(former)
    n, rows = what["n_labels"], what["rows"]
    target = register.target[:n].copy()
    target[rows] = what["target"]
    columns: dict[str, Any] = {}
    for name, cells in what["columns"].items():
        column = list(getattr(register.labels, name)[:n])
        kind = tuple if name != "names" and COLUMNS[name][1] == () else str
        for row, cell in zip(rows, cells, strict=True):
            column[row] = kind(cell)
        columns[name] = tuple(column)
    return Labels(**columns), target, what.get("replaced", {})
