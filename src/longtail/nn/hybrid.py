"""TF-IDF joined with the vectors of a pretrained encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import MissingExtra, SettingError
from longtail.features.pretrained import SCRATCH_ENCODERS, choose_token_settings
from longtail.features.text import TextFeatures, TextSettings
from longtail.features.tokens import Tokens
from longtail.kernels import Floats, Ints, Longs
from longtail.nn.saved_encoder import SavedEncoder
from longtail.progress import SILENT, Progress
from longtail.settings import setting, settings
from longtail.state import State, check_array, extract_part

_TEXTS_PER_CHUNK = 1024  # encoded between two updates of the progress bar


@settings
class HybridSettings(TextSettings):
    """Settings of TF-IDF joined with the vectors of a pretrained encoder."""

    dense: str | None = setting(
        "Pretrained encoder whose vectors are appended to TF-IDF: minilm, wordllama, a folder, or a model in the hub's"
        " cache. None: TF-IDF alone.",
        default=None,
    )
    dense_weight: float = setting("Norm of the encoder's vectors; those of TF-IDF have norm 1.", default=0.3, positive=True)
    dense_length: int = setting("Maximum number of tokens of a text that the encoder reads.", default=128, positive=True)
    device: str = setting(
        "Device of the encoder: cpu, cuda or another that torch knows. auto: a GPU if there is one.", default="auto"
    )


class Hybrid(HybridSettings):
    """Texts -> [TF-IDF of norm 1, vector of the encoder, centred and of norm ``dense_weight``].

    The encoder is not trained on the corpus.
    """

    def _make_parts(self) -> str:
        """Make the parts before they are fitted or restored, and return the name of the encoder."""
        if self.dense is None or self.dense in SCRATCH_ENCODERS:
            found = f'dense is "{self.dense}", which is not a pretrained encoder'
            raise SettingError(found, hint="Use dense=minilm, dense=wordllama, a folder, or a model in the hub's cache")
        names = TextFeatures.param_names()
        self.words = TextFeatures(**{name: value for name, value in self.get_params().items() if name in names})
        self.tokens = Tokens(**choose_token_settings(self.dense), max_length=self.dense_length)
        return self.dense

    @property
    def n_features(self) -> int:
        """The number of terms plus the dimension of the encoder's vectors."""
        return self.words.n_features + len(self.centre)

    def fit_transform(self, texts: Sequence[str], progress: Progress = SILENT) -> sp.csr_array:
        """Fit to texts and return their vectors."""
        try:
            from longtail.nn.encoder_factory import encoder_to_arrays, load_pretrained
        except ImportError as error:
            raise MissingExtra("torch", "nn", f'The encoder "{self.dense}"') from error
        self.check()
        encoder = self._make_parts()
        X = self.words.fit_transform(texts, progress)
        self.tokens.fit(texts, progress)
        arrays = encoder_to_arrays(load_pretrained(encoder))
        self.encoder = SavedEncoder({name: _to_half(array) for name, array in arrays.items()}, None)
        V = self._encode(texts, progress)
        self.centre = V.mean(0)
        return self._join(X, V)

    def transform(self, texts: Sequence[str]) -> sp.csr_array:
        """Vectors of texts."""
        return self._join(self.words.transform(texts), self._encode(texts))

    def find_terms(self, text: str) -> tuple[Ints, Longs, Longs]:
        """The terms of a text and their positions, as ``TextFeatures.find_terms`` returns them."""
        return self.words.find_terms(text)

    def state(self) -> State:
        """Everything that was fitted, as plain arrays."""
        parts = {"words": self.words.state(), "tokens": self.tokens.state(), "encoder": self.encoder.arrays}
        named = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return {**named, "centre": self.centre}

    def restore(self, state: State) -> Hybrid:
        """Restore what ``state`` returned."""
        self._make_parts()
        self.words.restore(extract_part(state, "words."))
        self.tokens.restore(extract_part(state, "tokens."))
        self.centre = check_array(state, "centre", "f4", (None,), finite=True)
        self.encoder = SavedEncoder(extract_part(state, "encoder."), len(self.centre))
        return self

    def _encode(self, texts: Sequence[str], progress: Progress = SILENT) -> Floats:
        """The encoder's vectors of texts [n, width]."""
        parts = []
        with progress.stage(f"vectors by {self.dense}", len(texts)) as stage:
            for start in range(0, len(texts), _TEXTS_PER_CHUNK):
                some = texts[start : start + _TEXTS_PER_CHUNK]
                parts.append(self.encoder.encode(self.tokens.transform(some), self.device, self.threads))
                stage.advance(len(some))
        return np.concatenate(parts)

    def _join(self, X: sp.csr_array, V: Floats) -> sp.csr_array:
        V = V - self.centre
        V *= self.dense_weight / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)
        out: sp.csr_array = sp.hstack([X, sp.csr_array(V)], format="csr", dtype=np.float32)
        return out


def _to_half(array: NDArray[Any]) -> NDArray[Any]:
    """Weights in half precision, for half the size. Training uses them too, so a loaded tagger predicts the same."""
    return array.astype(np.float16) if array.dtype == np.float32 and array.ndim > 1 else array
