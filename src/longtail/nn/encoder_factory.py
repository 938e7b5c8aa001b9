"""Making text encoders: by name, from pretrained weights, or from saved arrays.

From scratch: ``bag`` is the mean or a weighted sum of token vectors, ``gru`` and ``lstm`` are bidirectional,
``transformer`` is a small one, ``xlnet`` has XLNet's relative positions. Any other name is a pretrained model: of an
installed package (``minilm``, ``wordllama``), in a folder, or in the hub's cache (``features.pretrained``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.errors import LongtailError, SettingError
from longtail.features.pretrained import SCRATCH_ENCODERS, STATIC_VECTORS, find_pretrained_folder
from longtail.features.token_rows import TokenRows
from longtail.linear.quantised import QuantisedTable
from longtail.nn.encoders import BagEncoder, RecurrentEncoder, TextEncoder, TransformerEncoder, count_heads, encode_texts
from longtail.nn.hugging_face import check_config, load_hugging_face, make_hugging_face
from longtail.state import State, extract_part, get_json, refuse


def make_encoder(
    name: str,
    n_tokens: int,
    *,
    width: int = 256,
    layers: int = 2,
    token_width: int | None = None,
    dropout: float = 0.0,
    divided: bool = False,
) -> TextEncoder:
    """Make the encoder of a name.

    :param width: Dimension of the vectors, for encoders from scratch; ``layers`` and ``token_width`` likewise.
    :param dropout: For pretrained encoders.
    :param divided: Whether each of several ranks holds a part of the vectors of a bag from scratch.
    """
    if name == "bag":
        check_size(width, layers)
        return BagEncoder(n_tokens, width, divided=divided)
    if name in SCRATCH_ENCODERS:
        return make_untrained(name, n_tokens, width, layers, token_width)
    return load_pretrained(name, dropout)


def make_untrained(kind: str, n_tokens: int, width: int, layers: int, token_width: int | None = None) -> TextEncoder:
    """Make an encoder with random weights. token_width: dimension of the token vectors of gru and lstm, if not width."""
    check_size(width, layers)
    if kind == "bag":
        return BagEncoder(n_tokens, width)
    if kind in ("gru", "lstm"):
        return RecurrentEncoder(kind, n_tokens, width, layers, token_width)
    if kind == "transformer":
        return TransformerEncoder(n_tokens, width, layers)
    sizes = {"vocab_size": n_tokens, "d_model": width, "n_layer": layers, "d_inner": 4 * width}
    return make_hugging_face({"model_type": "xlnet", **sizes, "n_head": count_heads(width), "dropout": 0.0})


def check_size(width: int, layers: int) -> None:
    """Refuse sizes that an encoder from scratch cannot have."""
    if width < 2 or width % 2 or layers < 1:
        raise SettingError(f"an encoder of {layers} layers and width {width}", hint="It needs a layer and an even width")


def load_pretrained(name: str, dropout: float = 0.0) -> TextEncoder:
    """Load an encoder with pretrained weights. Dropout is off by default: it is slow on CPUs."""
    folder = find_pretrained_folder(name)
    return _load_static(folder / STATIC_VECTORS[name]) if name in STATIC_VECTORS else load_hugging_face(folder, dropout)


def _load_static(path: Path) -> BagEncoder:
    """Token vectors from a safetensors file."""
    from safetensors.torch import load_file

    (weight,) = load_file(path).values()
    bag = BagEncoder(*weight.shape)
    bag.table.weight.data.copy_(weight)
    return bag


def encoder_to_arrays(encoder: TextEncoder) -> State:
    """An encoder as plain arrays."""
    weights = {f"weights.{name}": value.detach().cpu().numpy() for name, value in encoder.state_dict().items()}
    return {"spec": np.frombuffer(json.dumps(encoder.spec).encode(), np.uint8), **weights}


def encoder_from_arrays(state: State, width: int | None = None) -> TextEncoder:
    """Build the encoder that ``encoder_to_arrays`` saved, in single or half precision.

    The description of an encoder may ask for anything. So it is first built without memory (on torch's device "meta"), and
    its weights must have the shapes of the saved arrays; then it must encode two short texts.

    :param width: The dimension that its vectors must have. None: any.
    """
    spec, weights = get_json(state, "spec", dict), extract_part(state, "weights.")
    check_config(spec, max_layers=len(weights))
    try:
        with torch.device("meta"):
            shapes = {name: tuple(value.shape) for name, value in _build_from_spec(spec).state_dict().items()}
        found = {name: array.shape for name, array in weights.items()}
        if shapes != found:
            names = sorted({name for name, _ in shapes.items() ^ found.items()})
            raise ValueError(f"the shapes of {', '.join(names[:3])} do not fit its description")
        encoder = _build_from_spec(spec)
        encoder.load_state_dict({name: _to_tensor(array) for name, array in weights.items()})
        encode_texts(encoder.eval(), TokenRows(np.zeros(3, np.int32), np.array([0, 2, 3])))
    except (LongtailError, MemoryError):
        raise
    except Exception as error:  # of torch and transformers, which raise anything for settings that do not go together
        raise refuse(state, "spec", f"describes no encoder ({error})", "It must be one that longtail has saved") from error
    if width not in (None, encoder.width):
        raise refuse(state, "spec", f"has the width {encoder.width}", f"It must be {width}")
    return encoder


def _build_from_spec(spec: dict[str, Any]) -> TextEncoder:
    if spec["kind"] == "hugging-face":
        return make_hugging_face(spec["config"])
    sizes = spec["width"], spec.get("layers", 1), spec.get("token_width")
    return make_untrained(spec["kind"], spec["n_tokens"], *sizes)


def _to_tensor(array: NDArray[Any]) -> Tensor:
    return torch.tensor(array.astype(np.float32) if array.dtype == np.float16 else array)


def restore_encoder(arrays: State) -> TextEncoder:
    """Build the encoder of a fitted model: a bag from ``bag.`` in 8 or 4 bits, others from ``encoder.``."""
    if "bag.values" in arrays:
        return restore_bag(QuantisedTable(arrays["bag.values"], arrays["bag.scale"]))
    return encoder_from_arrays(extract_part(arrays, "encoder."))


def restore_bag(table: QuantisedTable) -> BagEncoder:
    """Build a bag from its token vectors."""
    bag = BagEncoder(*table.shape)
    bag.table.weight.data.copy_(torch.from_numpy(table.dequantise(np.arange(len(table.scale), dtype=np.int32))))
    bag.eval()
    return bag
