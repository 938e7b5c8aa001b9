"""LabelNumbers: numbers the labels of samples one by one, in the order in which their names appear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from longtail.data.labels import Labels
from longtail.errors import DataError
from longtail.text_lines import check_text


class LabelNumbers:
    """Numbers labels: known ones have their ids, new names follow in order of appearance.

    :param known: Labels that get the first ids. They may also be given by their URI, notation or another name.
    :param source: Where the labels come from, for messages.

    >>> index = LabelNumbers(Labels(("fruit",)))
    >>> index.number(["red", "fruit", "red"]), index.labels.names
    ([0, 1], ('fruit', 'red'))
    """

    def __init__(self, known: Labels | None = None, source: str = "") -> None:
        self.known, self.source = known or Labels(()), source
        self._ids, self._new = dict(self.known.keys), dict[str, int]()
        self._n_repeated = 0

    def __len__(self) -> int:
        return len(self.known) + len(self._new)

    def number(self, names: Sequence[str]) -> list[int]:
        """Return the ids of the labels of one sample, ascending."""
        if isinstance(names, str):
            hint = "Give a list of label names for each text"
            raise DataError(f'the labels of a text are the string "{names}"', where=self.source, hint=hint)
        checked = [check_text(str(n) if isinstance(n, int | np.integer) else n, "label") for n in names]
        for name in checked:
            if name not in self._ids:
                self._ids[name] = self._new[name] = len(self)
        row = sorted({self._ids[name] for name in checked})
        self._n_repeated += len(checked) - len(row)
        return row

    @property
    def new(self) -> Iterable[str]:
        """The names of the labels that were not known."""
        return self._new

    @property
    def labels(self) -> Labels:
        """All labels so far."""
        return self.known.extend(self._new)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was dropped or added."""
        repeated = (f"{self._n_repeated:,} repeated labels of a text were dropped",) if self._n_repeated else ()
        if len(self.known) and self._new:
            return (*repeated, f"{len(self._new):,} labels are not in the vocabulary; they were added after its labels")
        return repeated
