"""A text encoder as plain arrays, which is built when the first text comes: a loaded tagger does not import torch before."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import missing_extra
from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats
from longtail.linear.quantised import QuantisedTable
from longtail.state import State


class SavedEncoder:
    """The arrays that ``nn.encoders.arrays`` gave, and the vectors of texts that they lead to."""

    def __init__(self, arrays: State) -> None:
        self.arrays = arrays
        self._built: Any = None

    def vectors(self, rows: TokenRows, device: str, threads: int | None) -> Floats:
        """What the encoder makes of texts [n, width]."""
        encoder = self._encoder(device)
        from longtail.nn.encoders import vectors
        from longtail.nn.loop import torch_threads

        with torch_threads(threads):
            return vectors(encoder, rows)

    def states(self, rows: TokenRows, device: str, threads: int | None) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """What attention looks at [n, T, width], where there is something [n, T], and a vector for each text [n, width]."""
        encoder = self._encoder(device)
        from longtail.models.secseq.network import text_arrays
        from longtail.nn.loop import torch_threads

        with torch_threads(threads):
            return text_arrays(encoder, rows)

    def _encoder(self, device: str) -> Any:
        try:
            from longtail.nn.encoders import restored
            from longtail.nn.loop import device_of
        except ImportError as error:
            raise missing_extra("torch", "nn", "Reading texts with a neural encoder") from error
        if self._built is None:
            full = {name: a.astype(np.float32) if a.dtype == np.float16 else a for name, a in self.arrays.items()}
            self._built = restored(full).to(device_of(device))
        return self._built


def token_means(rows: TokenRows, table: QuantisedTable, threads: int | None) -> Floats:
    """The means of the vectors of each text's tokens [n, d]: a bag, without torch."""
    weights = np.repeat(1 / np.maximum(rows.lengths, 1), rows.lengths).astype(np.float32)
    means = sp.csr_array((weights, rows.ids, rows.indptr.astype(np.int32)), shape=(len(rows), len(table.scale)))
    return table.bag(means, threads)
