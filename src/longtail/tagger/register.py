"""The register of labels: what each label of a tagger is predicted as, and how the labels were changed since training."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from longtail.data.labels import COLUMNS, Labels
from longtail.errors import DataError, SettingError
from longtail.kernels import Bools, Ints
from longtail.state import State, check_array, get_entry, refuse
from longtail.topk import NO_LABEL, TopK

Search = Callable[[int, Bools | None], TopK]  # the best k labels of the model among the allowed ones
PART = "history"  # of a bundle: what labels are predicted as, and former rows
_LISTED = ("names", *COLUMNS)
_FORMER = "former."
_UPDATE = "update"


@dataclass(frozen=True)
class Change:
    """One change of the labels: when, what and why."""

    date: str  # UTC, ISO 8601
    operation: str  # rename, merge, retire, restore, add, sync, constraints or update
    summary: str
    reason: str = ""
    undone: str = ""  # when it was undone
    final: bool = False  # whether it cannot be undone: an update, or labels that the model was trained with since

    @property
    def can_be_undone(self) -> bool:
        """Whether it was not undone yet, and is not final."""
        return not self.undone and not self.final

    @classmethod
    def update(cls, summary: str) -> Self:
        """Make the entry of an update of the model, which cannot be undone."""
        return cls(get_date(), _UPDATE, summary, final=True)

    def __str__(self) -> str:
        undone = f" [undone {self.undone}]" if self.undone else ""
        return f"{self.date}  {self.operation}: {self.summary}{f' ({self.reason})' if self.reason else ''}{undone}"


@dataclass(frozen=True, eq=False)
class Register:
    """All labels that a tagger has ever had, by id. Ids never change: labels that are added come last.

    :param labels: Names and what else is known about the labels.
    :param target: The label that is predicted in place of each [n_labels]: itself, another one that it was merged into, or
        ``NO_LABEL`` if it is retired.
    :param history: The changes and updates, oldest first.
    :param former: For each change, what it replaced, encoded; empty if it was undone, and for updates.
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

    def extend(self, labels: Labels, n_outputs: int, update: Change) -> Register:
        """Return a register after an update of the model, which then has an output for every label.

        The last change that added labels becomes final, since without them there would be fewer labels than outputs; and so
        do the changes before it, since the last change is undone first.

        :param labels: The labels of this register, and further ones at the end.
        :param n_outputs: Outputs of the model before the update.
        :param update: The entry in the history.
        """
        n_old = len(self.labels)
        target = np.append(self.target, np.arange(n_old, len(labels), dtype=np.int32))
        pairs = enumerate(self.former) if n_outputs < n_old else ()
        last = max((i for i, former in pairs if former and json.loads(former)["n_labels"] < n_old), default=-1)
        history = (*(replace(change, final=True) for change in self.history[: last + 1]), *self.history[last + 1 :], update)
        return Register(labels, target, history, (*self.former, b""))

    def undo(self, n_outputs: int) -> tuple[Register, Change, dict[str, Any]]:
        """Return the register before the last change that can be undone, this change, and what else it has replaced.

        :param n_outputs: Outputs of the model: these labels stay.
        """
        last = max((i for i, change in enumerate(self.history) if change.can_be_undone), default=None)
        if last is None:
            hint = "What is in the history was undone, or the model was trained further with these labels"
            raise SettingError("there is no change to undo", hint=hint if self.history else "No label was changed yet")
        former = json.loads(self.former[last])
        is_logged = any(change.operation == _UPDATE for change in self.history[last + 1 :])
        if former["n_labels"] < n_outputs and not is_logged:  # a bundle from before updates were in the history
            found = f"the last change ({self.history[last].summary}) cannot be undone: the model was trained with its labels"
            raise SettingError(found, hint="Use rename, retire or restore")
        try:
            labels, target = decode_former(self, former, n_outputs)
        except DataError as error:
            hint = "A label that came with an update has this name: rename that one first"
            raise SettingError(f"the last change cannot be undone: {error.found}", hint=hint) from error
        undone, replaced = replace(self.history[last], undone=get_date()), former.get("replaced", {})
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


def decode_former(register: Register, former: dict[str, Any], n_outputs: int) -> tuple[Labels, Ints]:
    """Return the labels before a change, and what they were predicted as; labels that came with an update later stay.

    :param register: The register after the change.
    :param former: What ``encode_former`` returned, parsed.
    :param n_outputs: Outputs of the model.
    """
    n_labels, rows = max(former["n_labels"], n_outputs), former["rows"]
    target = register.target[:n_labels].copy()
    target[rows] = former["target"]
    columns: dict[str, Any] = {}
    for name in _LISTED:
        empty = "" if name == "names" else COLUMNS[name][1]
        column, cells = getattr(register.labels, name), former["columns"].get(name)
        if column is None:
            continue
        column = list(column[:n_labels])
        if cells is None:  # the change has added this column
            column[: former["n_labels"]] = [empty] * former["n_labels"]
        for row, cell in zip(rows, cells or (), strict=cells is not None):
            column[row] = type(empty)(cell)
        if cells is not None or any(column):
            columns[name] = tuple(column)
    return Labels(**columns), target


def get_date() -> str:
    """Return the present time, UTC, in ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
