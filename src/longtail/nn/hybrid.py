"""Words and meaning: TF-IDF, and beside it the vector that a pretrained encoder gives a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError, missing_extra
from longtail.features.pretrained import SCRATCH, text_settings
from longtail.features.tfidf import Tfidf, TfidfSettings
from longtail.features.tokens import Tokens
from longtail.kernels import Floats, Ints, Longs
from longtail.nn.saved_encoder import SavedEncoder
from longtail.progress import SILENT, Progress
from longtail.settings import setting, settings
from longtail.state import State, inside

CHUNK = 1024  # texts that are read at a time


@settings
class HybridSettings(TfidfSettings):
    """Settings of TF-IDF beside the vectors of a pretrained encoder."""

    dense: str | None = setting(None, "Pretrained encoder: minilm, wordllama, a folder, or a model in the hub's cache.")
    dense_weight: float = setting(0.3, "Length of the encoder's vectors; those of TF-IDF have length 1.", positive=True)
    dense_length: int = setting(128, "Tokens of a text that the encoder reads.", positive=True)
    device: str = setting("cpu", "Device of the encoder: cpu, cuda or another that torch knows.")


class Hybrid(HybridSettings):
    """Texts -> [TF-IDF of length 1, vector of the encoder, centred and of length ``dense_weight``].

    The encoder is not trained: it brings what it knows of the language, TF-IDF what the words of this corpus say.
    """

    def _make_parts(self) -> None:
        if self.dense is None or self.dense in SCRATCH:
            raise SettingError(
                f'dense is "{self.dense}", not a pretrained encoder', hint="Set dense=minilm or dense=wordllama"
            )
        self.words = Tfidf(**{name: getattr(self, name) for name in Tfidf.param_names()})
        self.tokens = Tokens(**text_settings(self.dense), max_length=self.dense_length)

    @property
    def n_features(self) -> int:
        """Terms, and numbers of a vector of the encoder."""
        return self.words.n_features + len(self.centre)

    def fit_transform(self, texts: Sequence[str], progress: Progress = SILENT) -> sp.csr_array:
        """Learn from texts and return their vectors."""
        try:
            from longtail.nn.encoders import arrays, pretrained
        except ImportError as error:
            raise missing_extra("torch", "nn", f'The encoder "{self.dense}"') from error
        self.check()
        self._make_parts()
        X = self.words.fit_transform(texts, progress)
        self.tokens.fit(texts, progress)
        self.encoder = SavedEncoder({name: halved(array) for name, array in arrays(pretrained(self.dense)).items()})
        V = self._encoded(texts, progress)
        self.centre = V.mean(0)
        return self._joined(X, V)

    def transform(self, texts: Sequence[str]) -> sp.csr_array:
        """Vectors of texts."""
        return self._joined(self.words.transform(texts), self._encoded(texts))

    def places(self, text: str) -> tuple[Ints, Longs, Longs]:
        """Where the terms of a text stand, as ``Tfidf.places`` tells it."""
        return self.words.places(text)

    def state(self) -> State:
        """All that is needed to read texts, as plain arrays."""
        parts = {"words": self.words.state(), "tokens": self.tokens.state(), "encoder": self.encoder.arrays}
        named = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return {**named, "centre": self.centre}

    def restore(self, state: State) -> Hybrid:
        """Take back what ``state`` gave."""
        self._make_parts()
        self.words.restore(inside(state, "words."))
        self.tokens.restore(inside(state, "tokens."))
        self.encoder, self.centre = SavedEncoder(inside(state, "encoder.")), state["centre"]
        return self

    def _encoded(self, texts: Sequence[str], progress: Progress = SILENT) -> Floats:
        """What the encoder makes of texts [n, width]; a part at a time, so that one sees how it goes."""
        parts = []
        with progress.stage(f"vectors by {self.dense}", len(texts)) as stage:
            for start in range(0, len(texts), CHUNK):
                some = texts[start : start + CHUNK]
                parts.append(self.encoder.vectors(self.tokens.transform(some), self.device, self.threads))
                stage.advance(len(some))
        return np.concatenate(parts)

    def _joined(self, X: sp.csr_array, V: Floats) -> sp.csr_array:
        V = V - self.centre
        V *= self.dense_weight / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)
        out: sp.csr_array = sp.hstack([X, sp.csr_array(V)], format="csr", dtype=np.float32)
        return out


def halved(array: NDArray[Any]) -> NDArray[Any]:
    """Weights in half precision, for half the size; texts are read with what is saved, so a loaded tagger gives the same."""
    return array.astype(np.float16) if array.dtype == np.float32 and array.ndim > 1 else array
