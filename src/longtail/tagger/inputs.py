"""What users pass to a tagger, checked: texts or feature vectors, and labels numbered as the tagger numbers them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp

from longtail.csr import check_features
from longtail.data.dataset import Dataset, Labels
from longtail.data.frames import is_frame, is_matrix, is_tabular
from longtail.data.layout import Layout, LayoutOptions
from longtail.data.read import BUILTIN, read_any
from longtail.errors import DataError
from longtail.text_lines import check_text


def read_inputs(inputs: Any, reads_texts: bool, trained: Layout, **options: Unpack[LayoutOptions]) -> Any:
    """Return the texts or feature vectors of data in any form that ``longtail.read`` takes; other inputs unchanged."""
    if isinstance(inputs, Dataset):
        return inputs.inputs
    if isinstance(inputs, str) and not inputs.startswith(BUILTIN) and not Path(inputs[:255]).exists():
        raise DataError("a single text was passed", hint="Pass a list of texts: predict([text]), or a file that exists")
    if isinstance(inputs, str | Path) or (reads_texts and is_tabular(inputs)):
        return read_any(inputs, None, options, labelled=False, trained=trained).inputs
    return inputs


def check_inputs(inputs: Any, reads_texts: bool) -> list[str] | sp.csr_array:
    """Check inputs to predict: texts as a list, or feature vectors as a sparse matrix, whichever the tagger reads."""
    if not reads_texts:
        inputs = np.asarray(inputs) if is_frame(inputs) else inputs
        if not is_matrix(inputs):
            hint = "Pass them in the form it was trained on, for example an XC file"
            raise DataError("this tagger reads feature vectors, not texts", hint=hint)
        return check_features(inputs)
    if is_matrix(inputs):
        raise DataError("this tagger reads texts", hint="Pass a list of strings, not feature vectors")
    if not isinstance(inputs, Iterable):
        raise DataError(f"the inputs are of type {type(inputs).__name__}", hint="Pass a list of texts")
    return [check_text(one, "text") for one in inputs]


def prepare_data(data: Dataset, labels: Labels, reads_texts: bool) -> tuple[list[str] | sp.csr_array, sp.csr_array]:
    """Check the inputs of validation or test data, and align their labels Y: unknown labels come after the known ones."""
    return check_inputs(data.inputs, reads_texts), align_data(data, labels).Y


def align_data(data: Dataset, labels: Labels) -> Dataset:
    """Return the data with labels numbered as in ``labels``; raise an error if none of its labels is known there."""
    aligned = data.align(labels)
    if aligned.Y.nnz and aligned.Y.indices.min() >= len(labels):
        name = aligned.labels.names[aligned.Y.indices[0]]
        found = f'the tagger knows no label of the data (the data has "{name}", the tagger "{labels.names[0]}")'
        raise DataError(found, where=data.source, hint="Use the same label names, or the same vocabulary")
    return aligned
