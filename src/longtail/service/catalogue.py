"""The labels of a model for people: search by prefix among names and synonyms, paths, and the hierarchy level by level."""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cached_property
from typing import Any

import numpy as np

from longtail.decisions.constraints import is_pattern
from longtail.errors import SettingError
from longtail.kernels import Ints, Longs
from longtail.service.errors import ServiceError
from longtail.tagger.tagger import Tagger
from longtail.topk import NO_LABEL

_NOT_WORD = re.compile(r"\W+")
_MAX_DEPTH = 32  # of a path; also ends a cycle of parents
_MAX_PATTERNS = 10  # of one request: each is compared with all labels
_MAX_SORTED = 10_000  # labels of a level that are sorted by name; more are in the order of their ids


def fold_name(name: str) -> str:
    """Convert a name to what is searched: lower case, without accents, words separated by one space.

    >>> fold_name("São Paulo (state)")
    'sao paulo state'
    """
    if not name.isascii():
        name = "".join(mark for mark in unicodedata.normalize("NFKD", name) if not unicodedata.combining(mark))
    return _NOT_WORD.sub(" ", name.casefold()).strip()


class LabelCatalogue:
    """The labels of one model."""

    def __init__(self, tagger: Tagger) -> None:
        self.labels, self.register = tagger.labels, tagger.register
        self.counts: Ints = self.register.fold_counts(tagger.pipeline.label_counts)
        self._described: dict[int, dict[str, Any]] = {}
        self._written: dict[int, str] = {}

    def describe(self, label: int) -> dict[str, Any]:
        """Return the name, the URI or name by which it is known, the path and the number of training samples of a label."""
        found = self._described.get(label)
        if found is None:
            name = self.labels.names[label]
            found = {
                "label": name,
                "id": self.labels.get_uri(label) or name,
                "path": self.find_path(label),
                "n_samples": int(self.counts[label]),
            }
            if len(self._described) >= _MAX_SORTED:
                self._described = {}
            self._described[label] = found
        return found

    def write(self, label: int) -> str:
        """Return what ``describe`` returns as JSON, without the last bracket, so that a score can follow."""
        found = self._written.get(label)
        if found is None:
            if len(self._written) >= _MAX_SORTED:
                self._written = {}
            found = self._written[label] = json.dumps(self.describe(label), ensure_ascii=False)[:-1]
        return found

    def find_path(self, label: int) -> list[str]:
        """Return the names of the first parents of a label, from the top, without the label itself."""
        parents, ids, path = self.labels.parents, self.labels.ids, [label]
        while parents is not None and len(path) <= _MAX_DEPTH:
            above = next((ids[name] for name in parents[path[-1]] if name in ids), None)
            if above is None or above in path:
                break
            path.append(above)
        return [self.labels.names[one] for one in reversed(path[1:])]

    def find(self, word: str) -> int:
        """Return the id of the label that a name, URI, notation or other name stands for; an error if there is none."""
        number = self.labels.keys.get(word)
        found = NO_LABEL if number is None else int(self.register.resolved[number])
        if found == NO_LABEL:
            raise ServiceError(404, f'there is no label "{word[:200]}"', hint="Search for it: GET /api/v1/labels?q=…")
        return found

    def check_words(self, words: tuple[str, ...]) -> None:
        """Raise an error if a word stands for no label. Patterns are checked when they are used, but there may not be many.

        The library would suggest similar names, which takes too long among a million labels.
        """
        unknown = [word for word in words if word not in self.labels.keys]
        if len(unknown) > _MAX_PATTERNS:
            hint = f"Send at most {_MAX_PATTERNS} patterns, and otherwise names, URIs or notations"
            raise SettingError(f"{len(unknown):,} words are not labels", hint=hint)
        for word in unknown:
            if not is_pattern(word):
                raise SettingError(f'there is no label "{word[:200]}"', hint="Search for it: GET /api/v1/labels?q=…")

    @cached_property
    def index(self) -> tuple[bytes, Longs, Ints, Ints]:
        """All names, folded, one per line, those of frequent labels first; where lines start; label and form of each."""
        order = np.argsort(-self.counts, kind="stable")
        lines, owners, forms = [], [], []
        for label in order[self.register.is_active[order]].tolist():
            for form, name in enumerate(self.list_forms(label)):
                lines.append(fold_name(name).encode("utf-8", "replace"))
                owners.append(label)
                forms.append(form)
        starts = np.cumsum([1, *(len(line) + 1 for line in lines)])[:-1]
        return b"\n" + b"\n".join(lines) + b"\n", starts, np.array(owners, np.int32), np.array(forms, np.int32)

    def list_forms(self, label: int) -> list[str]:
        """Return the name of a label, its notation, and its other and former names."""
        columns = (self.labels.alt_names, self.labels.former_names)
        notation = [self.labels.notations[label]] if self.labels.notations and self.labels.notations[label] else []
        return [self.labels.names[label], *notation, *(name for column in columns if column for name in column[label])]

    def search(self, query: str, limit: int) -> list[tuple[int, str]]:
        """Return labels with a name that begins with the query, then those with such a word; frequent labels first.

        :returns: The ids of the labels, each with the name that matched.
        """
        text, starts, owners, forms = self.index
        folded = fold_name(query).encode("utf-8", "replace")
        found: dict[int, str] = {}
        if not folded and query.strip():
            return []  # signs only, which no name is searched for
        for needle in (b"\n" + folded + b"\n", b"\n" + folded, b" " + folded) if folded else (b"\n",):
            at = text.find(needle)
            while at >= 0 and len(found) < limit:
                line = int(np.searchsorted(starts, at + 1, side="right")) - 1
                if line < len(owners):
                    label = int(owners[line])
                    found.setdefault(label, self.list_forms(label)[int(forms[line])])
                at = text.find(needle, at + 1)
        return list(found.items())

    def list_children(self, parent: str | None) -> Longs:
        """Return the labels directly below one, or those without parents; by name if they are not too many."""
        hierarchy = self.labels.hierarchy
        if parent is None:
            children = np.flatnonzero(np.diff(hierarchy.parents.indptr) == 0)
        else:
            children = hierarchy.children[[self.find(parent)]].indices.astype(np.int64)
        children = children[self.register.is_active[children]]
        if len(children) > _MAX_SORTED:
            return children
        return np.array(sorted(children.tolist(), key=lambda label: self.labels.names[label].casefold()), np.int64)

    def describe_node(self, label: int) -> dict[str, Any]:
        """Return what a tree shows about a label."""
        children = self.labels.hierarchy.children[[label]].indices
        known = {key: value for key, value in self.describe(label).items() if key != "path"}
        return {**known, "n_children": int(np.count_nonzero(self.register.is_active[children]))}
