"""Training over an encoder whose lower layers are frozen: they encode each text once, and their output is stored on disk."""

from __future__ import annotations

import copy
import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.errors import SettingError
from longtail.features.bags import weigh_tokens
from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows
from longtail.files import hash_file
from longtail.kernels import Longs
from longtail.models.aplc.settings import Texts
from longtail.nn.encoders import ENCODE_BATCH, ENCODE_TOKENS, BagEncoder, TextEncoder, encode_texts, find_layers
from longtail.nn.hugging_face import HuggingFaceEncoder

Fill = Callable[[NDArray[Any]], None]  # writes into an array

_TOLERANCE = 0.01  # relative to the largest value; how much an encoder in two parts may differ from the whole


@dataclass(frozen=True)
class TrainingTexts:
    """The texts of a training run, encoded on demand."""

    lengths: Longs  # [n] tokens or features per text
    encode: Callable[[Longs], Tensor]  # the vectors [B, width] of the texts with these row numbers, with gradients

    @torch.no_grad()
    def encode_all(self) -> Tensor:
        """The vectors of all texts [n, width], without gradients."""
        batches = _make_batches(self.lengths)
        order = np.argsort(np.concatenate(batches))
        return torch.cat([self.encode(some) for some in batches])[torch.from_numpy(order)]

    def freeze(self) -> TrainingTexts:
        """The same texts with their current vectors, which stay fixed."""
        V = self.encode_all()
        return TrainingTexts(self.lengths, lambda some: V[torch.from_numpy(some)])


def _make_batches(lengths: Longs) -> list[Longs]:
    return make_length_batches(lengths, np.random.default_rng(0), batch=ENCODE_BATCH, tokens=ENCODE_TOKENS)


class UpperLayers(torch.nn.Module):
    """The last layers of an encoder. Their input is the output of the layers below."""

    def __init__(self, encoder: HuggingFaceEncoder, n_layers: int) -> None:
        super().__init__()
        self.model = _take_layers(encoder.model, slice(-n_layers, None))
        if hasattr(self.model, "embeddings"):
            self.model._modules["embeddings"] = _PassThrough()
        self.whole = [encoder]  # in a list, so that its other layers are not parameters of this module

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """From token states [B, T, width] to one vector per text [B, width]."""
        out = self.model(inputs_embeds=states, **self.whole[0].model_inputs(mask)).last_hidden_state
        return self.whole[0].pool(out, mask)


class _PassThrough(torch.nn.Module):
    """Replaces the embeddings of a model: returns its first tensor of floats, the token states."""

    def forward(self, *given: Any, **named: Any) -> Tensor:
        return next(x for x in (*given, *named.values()) if isinstance(x, Tensor) and x.is_floating_point())


def _take_layers(model: Any, some: slice) -> Any:
    """A model with some of the layers of another. The layers are shared, not copied."""
    (path,) = [name for name, module in model.named_modules() if module is find_layers(model)]
    out = part = _copy_shallow(model)
    *above, last = path.split(".")
    for name in above:
        part._modules[name] = part = _copy_shallow(part._modules[name])
    part._modules[last] = find_layers(model)[some]
    return out


def _copy_shallow(module: Any) -> Any:
    """A copy of a module that shares its submodules, but in which they can be replaced."""
    out = copy.copy(module)
    out._modules = dict(module._modules)
    return out


def take_trainable(encoder: TextEncoder, n_layers: int | None) -> torch.nn.Module | None:
    """The last layers of an encoder; all of it for None, nothing for 0."""
    if not n_layers:
        return encoder if n_layers is None else None
    if not isinstance(encoder, HuggingFaceEncoder):
        hint = "Use a pretrained encoder, or leave trained_layers out"
        raise SettingError(
            f"trained_layers is {n_layers}, but only pretrained transformers can be trained in part", hint=hint
        )
    if (n_all := len(find_layers(encoder.model))) < n_layers:
        raise SettingError(f"trained_layers is {n_layers}, but this encoder has {n_all}", hint=f"Use at most {n_all}")
    return UpperLayers(encoder, n_layers)


def prepare_texts(
    encoder: TextEncoder, trained: torch.nn.Module | None, rows: Texts, cache: str | None = None
) -> TrainingTexts:
    """Texts whose vectors have gradients to the trained part of the encoder (see ``take_trainable``).

    The output of the frozen part is stored in a temporary file, or in the folder ``cache``, where later runs find it.
    """
    if sp.issparse(rows):
        assert isinstance(encoder, BagEncoder)
        return TrainingTexts(np.diff(rows.indptr).astype(np.int64), lambda some: encoder.sum_vectors(rows[some]))
    if isinstance(encoder, BagEncoder) and trained is encoder:
        bags = weigh_tokens(rows, encoder.table.n_rows, encoder.idf)  # once, not in each epoch
        return TrainingTexts(rows.lengths, lambda some: encoder.sum_vectors(bags[some]))
    if trained is encoder:
        return TrainingTexts(rows.lengths, lambda some: encoder.encode(rows[some]))
    device = next(encoder.parameters()).device
    if not isinstance(trained, UpperLayers):
        vectors = _compute_once(cache, encoder, 0, rows, len(rows), lambda out: _fill(out, encode_texts(encoder, rows)))
        return TrainingTexts(rows.lengths, lambda some: torch.from_numpy(vectors[some].astype(np.float32)).to(device))
    n_layers = len(find_layers(trained))
    states = _compute_once(
        cache, encoder, n_layers, rows, len(rows.ids), lambda out: encode_lower_layers(encoder, trained, rows, out)
    )
    positions = rows.positions

    def encode(some: Longs) -> Tensor:
        at, mask = positions[some].pad(left=encoder.pads_left)  # both [B, T]
        values = np.zeros((*mask.shape, encoder.width), np.float32)
        values[mask] = states[at[mask]]
        out: Tensor = trained(torch.from_numpy(values).to(device), torch.from_numpy(mask).to(device))
        return out

    return TrainingTexts(rows.lengths, encode)


@torch.no_grad()
def encode_lower_layers(encoder: Any, upper: UpperLayers, rows: TokenRows, out: NDArray[Any]) -> None:
    """Fill ``out`` [n_tokens, width] with the output of the lower layers for each token of each text."""
    model, positions = _take_layers(encoder.model, slice(None, -len(find_layers(upper)))), rows.positions
    training = encoder.training
    encoder.eval()
    for number, some in enumerate(_make_batches(rows.lengths)):
        ids, mask = encoder.pad_batch(rows[some])
        states = model(input_ids=ids, **encoder.model_inputs(mask)).last_hidden_state
        out[positions[some].ids] = states[mask].cpu().numpy()
        if number == 0:
            whole = encoder(ids, mask)
            if not (upper.eval()(states, mask) - whole).abs().max() <= _TOLERANCE * whole.abs().max():
                raise SettingError(
                    "trained_layers does not work with this encoder: its layers are not a simple chain",
                    hint="Leave it out, or use 0, which trains no layer",
                )
    encoder.train(training)
    upper.train(training)


def _compute_once(
    cache: str | None, encoder: TextEncoder, n_layers: int, rows: TokenRows, n: int, fill: Fill
) -> NDArray[Any]:
    """The array [n, width] that ``fill`` writes, in half precision, mapped from disk; from the cache if it is there."""
    shape = (max(n, 1), encoder.width)
    if cache is None:
        with tempfile.TemporaryFile() as file:
            out: NDArray[Any] = np.memmap(file, np.float16, "w+", shape=shape)
        fill(out)
        return out
    key = hashlib.sha256(f"{n_layers} {encoder.spec}".encode())
    for array in (*(weight.detach().cpu().numpy() for weight in encoder.parameters()), rows.ids, rows.indptr):
        key.update(np.ascontiguousarray(array).data)
    path = Path(cache) / f"{key.hexdigest()}.npy"
    checksum = path.with_suffix(".sha256")  # written last, so the array is complete if this exists
    if not (path.exists() and checksum.exists() and checksum.read_text("ascii") == hash_file(path)):
        Path(cache).mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.npy")
        fill(np.lib.format.open_memmap(temporary, "w+", np.float16, shape))
        temporary.replace(path)
        checksum.write_text(hash_file(path), "ascii")
    mapped: NDArray[Any] = np.load(path, mmap_mode="r")
    return mapped


def _fill(out: NDArray[Any], values: NDArray[Any]) -> None:
    """Write values at the start of an array."""
    out[: len(values)] = values
