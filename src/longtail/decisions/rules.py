"""Constraints as arrays over the labels, and the search for the best labels for which they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import make_indptr
from longtail.data.hierarchy import Hierarchy
from longtail.errors import SettingError
from longtail.kernels import Bools, Longs, kernel
from longtail.topk import NO_LABEL, TopK, keep_labels

# Finds the best labels of some samples: the rows of these samples, the number of labels, and which labels are allowed.
Search = Callable[[Longs, int, Bools | None], TopK]

_NONE = np.empty(0, np.int64)
_ENDED = "labels that were retired or merged into others are never predicted"
_DEEPER = 4  # factor by which the number of labels grows if too many of them exclude each other


@dataclass(frozen=True, eq=False)
class LabelRules:
    """What must hold for the labels of each sample, by label id."""

    allowed: Bools  # [n_labels]
    denied: Bools  # [n_labels]
    required: Longs = field(default_factory=lambda: _NONE)  # ids, ascending
    groups: tuple[Longs, ...] = ()  # ids of labels that exclude each other
    hierarchy: Hierarchy | None = None  # if labels imply their parents
    adds_required: bool = True  # otherwise, required labels are ranked by score, and only exclude others of their groups

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.allowed)

    @property
    def mask(self) -> Bools | None:
        """[n_labels] Which labels may be predicted; None: all. Required labels need not be allowed, but not be denied."""
        mask = self.allowed & ~self.denied
        mask[self.required] = True
        return None if mask.all() else mask

    @property
    def is_mask(self) -> bool:
        """Whether the mask says everything."""
        return not len(self.required) and not self.groups and self.hierarchy is None

    def combine(self, other: LabelRules) -> LabelRules:
        """Return rules that hold if both hold."""
        return LabelRules(
            self.allowed & other.allowed,
            self.denied | other.denied,
            np.union1d(self.required, other.required),
            self.groups + other.groups,
            self.hierarchy or other.hierarchy,
        )

    def check(self, names: Sequence[str]) -> None:
        """Raise an error if nothing can fulfil the rules."""
        mask = self.mask
        if mask is not None and not mask.any():
            raise SettingError("no label may be predicted", hint=f"Allow at least one label, and do not deny it; {_ENDED}")
        if refused := [names[label] for label in self.required if self.denied[label]]:
            hint = f"Take it out of one of the two; {_ENDED}"
            raise SettingError(f'the label "{refused[0]}" is both required and denied', hint=hint)
        for group in self.groups:
            if len(both := np.intersect1d(group, self.required)) > 1:
                found = f'"{names[both[0]]}" and "{names[both[1]]}" are both required, but exclude each other'
                raise SettingError(found, hint="Take one of them out of required or out of the group")

    @cached_property
    def always(self) -> Longs:
        """The labels that every sample gets, ids in ascending order: the required ones, and those that these imply."""
        if self.hierarchy is None or not len(self.required):
            return self.required
        implied, mask = np.unique(self._list_ancestors(self.required).indices).astype(np.int64), self.mask
        return implied if mask is None else implied[mask[implied]]

    def without_required(self) -> LabelRules:
        """Return rules for sets of labels before ``complete``: a required label must not take the place of another one."""
        return replace(self, adds_required=False)

    def complete(self, sets: TopK, found: TopK) -> TopK:
        """Add the required labels to sets of labels, and the parents of all labels, which a set may lack.

        :param sets: The sets; rows end with ``NO_LABEL``.
        :param found: What ``search`` has found, with all required labels.
        """
        missing = np.isin(found.ids, self.required) & (found.ids[:, :, None] != sets.ids[:, None, :]).all(axis=2)
        entries, more = np.nonzero(sets.ids != NO_LABEL), np.nonzero(missing)
        best = rank_entries(
            np.concatenate([entries[0], more[0]]),
            np.concatenate([sets.ids[entries], found.ids[more]]),
            np.concatenate([sets.scores[entries], found.scores[more]]),
            (sets.n_samples, sets.k + len(self.required)),
            first=self.required,
        )
        best = best if self.hierarchy is None else self._add_parents(best, None)
        return keep_labels(best, best.ids != NO_LABEL)

    def search(self, search: Search, n_samples: int, k: int, seen: Bools) -> TopK:
        """Find the k best labels of each sample for which the rules hold.

        There are more than k only if more are required, or implied by those. Rows with fewer labels are padded.

        :param search: Finds the best labels without the rules.
        :param seen: [n_labels] Which labels the search can find: others are required or implied with the lowest score.
        """
        rows = np.arange(n_samples)
        if self.is_mask:
            return search(rows, k, self.mask)
        k = min(k, self.n_labels)
        best = self._search_exclusive(search, rows, k) if self.groups else search(rows, k, self.mask)
        if len(self.required) and self.adds_required:
            best = self._add_required(search, best, k, seen)
        if self.hierarchy is not None:
            best = self._add_parents(best, k)
        return best

    def _search_exclusive(self, search: Search, rows: Longs, k: int) -> TopK:
        """Find k labels that do not exclude each other, with a deeper search for samples that lack some."""
        members = np.concatenate([_NONE, *self.groups])
        numbers = np.repeat(np.arange(len(self.groups)), [len(group) for group in self.groups])
        order = np.argsort(members, kind="stable")
        start = np.asarray(make_indptr(np.bincount(members, minlength=self.n_labels)), np.int64)
        is_required = np.zeros(self.n_labels, bool)
        is_required[self.required] = True
        ids, scores = np.full((len(rows), k), NO_LABEL, np.int32), np.full((len(rows), k), -np.inf, np.float32)
        n_wanted = k
        while len(rows):
            best = search(rows, n_wanted, self.mask)
            kept = np.zeros(best.ids.shape, bool)
            _mark_exclusive(best.ids, start, numbers[order], len(self.groups), is_required, self.required, kept)
            first = np.argsort(~kept, axis=1, kind="stable")[:, :k]
            found = np.take_along_axis(kept, first, 1)
            width = first.shape[1]
            ids[rows, :width] = np.where(found, np.take_along_axis(best.ids, first, 1), NO_LABEL)
            scores[rows, :width] = np.where(found, np.take_along_axis(best.scores, first, 1), -np.inf)
            if best.k < n_wanted:  # these are all labels
                break
            rows, n_wanted = rows[kept.sum(axis=1) < k], n_wanted * _DEEPER
        return TopK(ids, scores)

    def _add_required(self, search: Search, best: TopK, k: int, seen: Bools) -> TopK:
        """Add the required labels, in place of the last labels."""
        missing = (best.ids[:, :, None] != self.required).all(axis=1)  # [n, n_required]
        rows, possible = np.flatnonzero(missing.any(axis=1)), np.zeros(self.n_labels, bool)
        possible[self.required] = seen[self.required]
        lowest = np.where(best.ids != NO_LABEL, best.scores, 0).min(axis=1, initial=0)  # [n]
        scores = np.repeat(lowest[:, None], len(self.required), axis=1)
        if len(rows) and possible.any():
            found = search(rows, len(self.required), possible)
            last = best.scores[rows, -1:]  # not in the result means not better than its last label
            last = np.where(np.isneginf(last), np.inf, last)
            at = np.nonzero(found.ids != NO_LABEL)
            place = np.searchsorted(self.required, found.ids[at])
            scores[rows[at[0]], place] = np.minimum(found.scores, last)[at]
        entries, more = np.nonzero(best.ids != NO_LABEL), np.nonzero(missing)
        return rank_entries(
            np.concatenate([entries[0], more[0]]),
            np.concatenate([best.ids[entries], self.required[more[1]]]),
            np.concatenate([best.scores[entries], scores[more]]),
            (best.n_samples, max(k, len(self.required))),
            first=self.required,
        )

    def _add_parents(self, best: TopK, k: int | None) -> TopK:
        """Add the ancestors of the labels that may be predicted, with the highest score of a label below them.

        :param k: Labels per sample; None: all of them.
        """
        assert self.hierarchy is not None
        rows, columns = np.nonzero(best.ids != NO_LABEL)
        labels, which = np.unique(best.ids[rows, columns], return_inverse=True)
        expanded, mask = sp.csr_array(self._list_ancestors(labels)[which]), self.mask  # one row per label of each sample
        keep = np.ones(expanded.nnz, bool) if mask is None else mask[expanded.indices]
        entry = np.repeat(np.arange(len(rows)), np.diff(expanded.indptr))[keep]
        ids, scores = expanded.indices[keep], best.scores[rows, columns][entry]
        distinct, position = np.unique(ids, return_inverse=True)
        depth = np.diff(self._list_ancestors(distinct).indptr)[position]
        first = self.always if self.adds_required else _NONE
        width = int(np.bincount(rows[entry], minlength=1).max()) if k is None else k
        shape = (best.n_samples, max(width, best.k, len(first)))
        return rank_entries(rows[entry], ids, scores, shape, first=first, depth=depth)

    def _list_ancestors(self, labels: NDArray[Any]) -> sp.csr_array:
        """[n, n_labels] Each label with its ancestors."""
        assert self.hierarchy is not None
        shape = (len(labels), self.n_labels)
        return self.hierarchy.add_ancestors(
            sp.csr_array((np.ones(len(labels)), labels, np.arange(len(labels) + 1)), shape=shape)
        )


def rank_entries(
    rows: Longs,
    ids: NDArray[Any],
    scores: NDArray[Any],
    shape: tuple[int, int],
    *,
    first: Longs,
    depth: NDArray[Any] | None = None,
) -> TopK:
    """Rank labels of samples; of a label that a sample has several times, the highest score counts.

    :param rows: The sample of each entry.
    :param ids: The label of each entry.
    :param scores: The score of each entry.
    :param shape: Number of samples, and of labels per sample.
    :param first: Labels that are kept even if others have higher scores.
    :param depth: Of equal scores, those with the smaller depth come first, then those with the smaller id.

    >>> one = np.zeros(3, np.int64)
    >>> rank_entries(one, np.array([4, 2, 7]), np.array([0.9, 0.5, 0.1]), (1, 2), first=np.array([7])).ids.tolist()
    [[4, 7]]
    """
    n, k = shape
    depth = np.zeros(len(ids)) if depth is None else depth
    order = np.lexsort((-scores, ids, rows))
    rows, ids, scores, depth = rows[order], ids[order], scores[order], depth[order]
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]) | (ids[1:] != ids[:-1])
    rows, ids, scores, depth = rows[new], ids[new], scores[new], depth[new]
    order = np.lexsort((ids, depth, -scores, ~np.isin(ids, first), rows))
    place = np.arange(len(rows)) - np.searchsorted(rows[order], rows[order])
    chosen = order[place < k]
    chosen = chosen[np.lexsort((ids[chosen], depth[chosen], -scores[chosen], rows[chosen]))]
    place = np.arange(len(chosen)) - np.searchsorted(rows[chosen], rows[chosen])
    out_ids, out_scores = np.full((n, k), NO_LABEL, np.int32), np.full((n, k), -np.inf, np.float32)
    out_ids[rows[chosen], place], out_scores[rows[chosen], place] = ids[chosen], scores[chosen]
    return TopK(out_ids, out_scores)


@kernel
def _mark_exclusive(
    ids: NDArray[np.integer[Any]],
    start: Longs,
    groups: Longs,
    n_groups: int,
    is_required: Bools,
    required: Longs,
    kept: Bools,
) -> None:
    """Mark the labels that stay: required ones, and others if no better label of one of their groups stays.

    :param ids: [n, k] Labels, best first.
    :param start: [n_labels + 1] Where the groups of each label start in ``groups``.
    """
    taken = np.full(n_groups, -1, np.int64)  # the last row in which a label of the group stays
    for row in range(len(ids)):
        for label in required:
            for p in range(start[label], start[label + 1]):
                taken[groups[p]] = row
        for at in range(ids.shape[1]):
            label = ids[row, at]
            if label == NO_LABEL:
                continue
            stays = True
            for p in range(start[label], start[label + 1]):
                stays = stays and taken[groups[p]] != row
            kept[row, at] = stays or is_required[label]
            if kept[row, at]:
                for p in range(start[label], start[label + 1]):
                    taken[groups[p]] = row
