"""Text encoders at prediction: saved as plain arrays, built only when the first text is encoded.

So a loaded tagger imports torch only when it needs it, and with a bag of token vectors not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from longtail.errors import MissingExtra
from longtail.features.bags import weigh_tokens
from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats
from longtail.linear.quantised import QuantisedTable
from longtail.state import State

if TYPE_CHECKING:
    from longtail.nn.encoders import TextEncoder


class SavedEncoder:
    """An encoder from the arrays of ``nn.encoder_factory.encoder_to_arrays``, in single or half precision."""

    def __init__(self, arrays: State, width: int | None) -> None:
        """Store the arrays; width: the dimension of the vectors that the next layer reads. None: any."""
        self.arrays, self.width = arrays, width
        self._encoder: TextEncoder | None = None

    def encode(self, rows: TokenRows, device: str, threads: int | None) -> Floats:
        """The vectors of texts [n, width]."""
        encoder = self._build(device)
        from longtail.nn.devices import torch_threads
        from longtail.nn.encoders import encode_texts

        with torch_threads(threads):
            return encode_texts(encoder, rows)

    def attention_arrays(
        self, rows: TokenRows, device: str, threads: int | None
    ) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """For a decoder: token states [n, T, width], where there is a token [n, T], text vectors [n, width]."""
        encoder = self._build(device)
        from longtail.nn.devices import torch_threads
        from longtail.nn.encoders import attention_arrays

        with torch_threads(threads):
            return attention_arrays(encoder, rows)

    def _build(self, device: str) -> TextEncoder:
        try:
            from longtail.nn.devices import find_device
            from longtail.nn.encoder_factory import encoder_from_arrays
        except ImportError as error:
            raise MissingExtra("torch", "nn", "Reading texts with a neural encoder") from error
        if self._encoder is None:
            self._encoder = encoder_from_arrays(self.arrays, self.width).to(find_device(device))
        return self._encoder


def encode_bags(rows: TokenRows, table: QuantisedTable, threads: int | None, idf: Floats | None = None) -> Floats:
    """The mean or weighted sum of the token vectors of each text [n, dim]: a bag encoder without torch."""
    return table.matmul(weigh_tokens(rows, len(table.scale), idf), threads)
