"""Features of texts that are not in memory: fitted once, their vectors written block by block and mapped, and kept."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError
from longtail.features.text import TextFeatures
from longtail.lazy_texts import LazyTexts, iter_chunks
from longtail.locks import lock_folder
from longtail.mapped import ArraysWriter, open_arrays
from longtail.mapped_matrix import MatrixWriter, open_matrix
from longtail.progress import SILENT, Progress
from longtail.settings import RUNTIME
from longtail.state import SavedPart

_FITTED, _VECTORS = "fitted", "vectors"
_WORD_DF = "word_df"  # not part of the state of features, but of the choice of features
_TEXTS_PER_BLOCK, _CHARS_PER_BLOCK, _BLOCKS_PER_COMMIT = 4096, 1 << 22, 16
_WAIT_SECONDS = 7 * 24 * 3600.0  # for another process that computes the same vectors


def fit_vectors(features: Any, texts: Any, progress: Progress = SILENT) -> sp.csr_array:
    """Fit features to texts and return the vectors of the texts; in bounded memory if the texts are not in memory.

    Then vectors are in the folder of the texts. If they are there already, they are mapped, and nothing is computed.

    :param features: Features that are not fitted. Those with a dense part are computed in memory.
    :param texts: The texts.
    """
    if not isinstance(texts, LazyTexts) or texts.folder is None or not isinstance(features, TextFeatures):
        X: sp.csr_array = features.fit_transform(texts, progress)
        return X
    features.check()
    settings = {name: value for name, value in features.get_params().items() if name not in RUNTIME}
    key = json.dumps([type(features).__name__, settings, texts.key], sort_keys=True)
    folder = texts.folder / sha256(key.encode()).hexdigest()[:16]
    with lock_folder(folder, _WAIT_SECONDS):
        _fit(features, texts, folder / _FITTED, progress)
        is_new = not (folder / _VECTORS).exists()
        if is_new:
            _write_vectors(features, texts, folder / _VECTORS, progress)
    X = open_matrix(folder / _VECTORS, hashed=not is_new)
    if X.shape != (len(texts), features.n_features):
        found = f"the vectors have the shape {X.shape}, not ({len(texts)}, {features.n_features})"
        raise DataError(found, where=str(folder), hint="Remove this folder; it is then computed again")
    return X


def _fit(features: TextFeatures, texts: LazyTexts, path: Path, progress: Progress) -> None:
    """Fit features, or restore what was fitted before."""
    if path.exists():
        arrays, _ = open_arrays(path, hashed=True)
        features.restore(SavedPart(arrays, "features"))
        features.words.word_df = arrays[_WORD_DF]
        return
    features.fit(texts, progress)
    arrays = {**features.state(), _WORD_DF: features.words.word_df}
    with ArraysWriter(path, {name: array.dtype.str for name, array in arrays.items()}) as writer:
        for name, array in arrays.items():
            writer.append(name, np.ravel(array))
        writer.finish()


def _write_vectors(features: TextFeatures, texts: LazyTexts, path: Path, progress: Progress) -> None:
    """Write the vectors of texts, after those that an interrupted run has written."""
    with MatrixWriter(path, features.n_features) as writer, progress.stage("vectors", len(texts)) as stage:
        stage.advance(writer.n_rows)
        chunks = iter_chunks(texts.iter_from(writer.n_rows), _TEXTS_PER_BLOCK, _CHARS_PER_BLOCK)
        for number, chunk in enumerate(chunks, 1):
            writer.append(features.transform(chunk))
            stage.advance(len(chunk))
            if number % _BLOCKS_PER_COMMIT == 0:
                writer.commit()
        writer.finish()
