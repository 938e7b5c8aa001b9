"""How texts reach the layers that are trained. Layers below them are not: they read each text once and for all."""

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
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.errors import SettingError
from longtail.features.batches import length_batches
from longtail.features.token_rows import TokenRows, digest
from longtail.kernels import Longs
from longtail.nn.encoders import BATCH, TOKENS, Encoder, HuggingFace, layer_list, vectors

Write = Callable[[NDArray[Any]], None]
NEAR = 0.01  # of its longest vector; what an encoder in two parts may differ from the whole by


@dataclass(frozen=True)
class Reader:
    """Texts as training sees them."""

    lengths: Longs  # of the texts, in tokens
    read: Callable[[Longs], Tensor]  # the vectors [B, width] of some of them, by their numbers

    @torch.no_grad()
    def everything(self) -> Tensor:
        """The vectors of all texts [n, width], without gradients."""
        parts = length_batches(self.lengths, np.random.default_rng(0), batch=BATCH, tokens=TOKENS)
        order = np.argsort(np.concatenate(parts))
        return torch.cat([self.read(some) for some in parts])[torch.from_numpy(order)]

    def once(self) -> Reader:
        """The same with the vectors as they are now."""
        V = self.everything()
        return Reader(self.lengths, lambda some: V[torch.from_numpy(some)])


class Upper(torch.nn.Module):
    """The last layers of an encoder: they read what the layers below made of each token."""

    def __init__(self, encoder: HuggingFace, n_layers: int) -> None:
        super().__init__()
        self.model = with_layers(encoder.model, slice(-n_layers, None))
        if hasattr(self.model, "embeddings"):
            self.model._modules["embeddings"] = Given()
        self.whole = [encoder]  # in a list, since its other layers are no part of this module

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """From [B, T, width] to one vector for each text [B, width]."""
        out = self.model(inputs_embeds=states, **self.whole[0].inputs(mask)).last_hidden_state
        return self.whole[0].pooled(out, mask)


class Given(torch.nn.Module):
    """In the place of what looks tokens up: their vectors are there already."""

    def forward(self, *given: Any, **named: Any) -> Tensor:
        """The vectors."""
        return next(x for x in (*given, *named.values()) if isinstance(x, Tensor) and x.is_floating_point())


def with_layers(model: Any, some: slice) -> Any:
    """A model that has some of the layers of another, the very same ones."""
    (path,) = [name for name, module in model.named_modules() if module is layer_list(model)]
    out = part = shallow(model)
    *above, last = path.split(".")
    for name in above:
        part._modules[name] = part = shallow(part._modules[name])
    part._modules[last] = layer_list(model)[some]
    return out


def shallow(module: Any) -> Any:
    """The same module, but its parts can be exchanged."""
    out = copy.copy(module)
    out._modules = dict(module._modules)
    return out


def trained_part(encoder: Encoder, n_layers: int | None) -> torch.nn.Module | None:
    """The last layers of an encoder; all of it for None, nothing for 0."""
    if not n_layers:
        return encoder if n_layers is None else None
    if not isinstance(encoder, HuggingFace):
        hint = "Take a pretrained encoder, or train all of this one"
        raise SettingError(f"trained_layers is {n_layers}, and this encoder cannot be cut", hint=hint)
    if (most := len(layer_list(encoder.model))) < n_layers:
        raise SettingError(f"trained_layers is {n_layers}, and this encoder has {most}", hint=f"Take {most} at most")
    return Upper(encoder, n_layers)


def reader(encoder: Encoder, trained: torch.nn.Module | None, rows: TokenRows, cache: str | None = None) -> Reader:
    """The vectors of texts, with gradients to the part of the encoder that is trained.

    What the other part gives is kept in a file: one of this run, or in the folder ``cache`` for the next run as well.
    """
    if trained is encoder:
        return Reader(rows.lengths, lambda some: encoder(*encoder.batch(rows[some])))
    device = next(encoder.parameters()).device
    if not isinstance(trained, Upper):
        once = kept(cache, encoder, 0, rows, len(rows), lambda out: fill(out, vectors(encoder, rows)))
        return Reader(rows.lengths, lambda some: torch.from_numpy(once[some].astype(np.float32)).to(device))
    n_layers = len(layer_list(trained))
    states = kept(cache, encoder, n_layers, rows, len(rows.ids), lambda out: encode_below(encoder, trained, rows, out))
    places = rows.places

    def read(some: Longs) -> Tensor:
        at, mask = places[some].padded(left=encoder.left)  # both [B, T]
        values = np.zeros((*mask.shape, encoder.width), np.float32)
        values[mask] = states[at[mask]]
        out: Tensor = trained(torch.from_numpy(values).to(device), torch.from_numpy(mask).to(device))
        return out

    return Reader(rows.lengths, read)


@torch.no_grad()
def encode_below(encoder: Any, upper: Upper, rows: TokenRows, out: NDArray[Any]) -> None:
    """Fill ``out`` [n_tokens, width] with what the layers below make of each token of each text."""
    model, places = with_layers(encoder.model, slice(None, -len(layer_list(upper)))), rows.places
    training = encoder.training
    encoder.eval()
    for number, some in enumerate(length_batches(rows.lengths, np.random.default_rng(0), batch=BATCH, tokens=TOKENS)):
        ids, mask = encoder.batch(rows[some])
        states = model(input_ids=ids, **encoder.inputs(mask)).last_hidden_state
        out[places[some].ids] = states[mask].cpu().numpy()
        if number == 0:
            whole = encoder(ids, mask)
            if not (upper.eval()(states, mask) - whole).abs().max() <= NEAR * whole.abs().max():
                hint = "Leave it out, or take 0, which trains none of them"
                raise SettingError(
                    "trained_layers does not work with this encoder: its layers are no plain chain", hint=hint
                )
    encoder.train(training)
    upper.train(training)


def kept(cache: str | None, encoder: Encoder, n_layers: int, rows: TokenRows, n: int, write: Write) -> NDArray[Any]:
    """What ``write`` gives [n, width], in half precision, mapped from disk; from the cache if it has been there before."""
    shape = (max(n, 1), encoder.width)
    if cache is None:
        with tempfile.TemporaryFile() as file:
            out: NDArray[Any] = np.memmap(file, np.float16, "w+", shape=shape)
        write(out)
        return out
    key = hashlib.sha256(f"{n_layers} {encoder.spec}".encode())
    for array in (*(weight.detach().cpu().numpy() for weight in encoder.parameters()), rows.ids, rows.indptr):
        key.update(np.ascontiguousarray(array).data)
    path = Path(cache) / f"{key.hexdigest()}.npy"
    seal = path.with_suffix(".sha256")  # written last: it says that the file is whole
    if not (path.exists() and seal.exists() and seal.read_text("ascii") == digest(path)):
        Path(cache).mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}.npy")
        write(np.lib.format.open_memmap(beside, "w+", np.float16, shape))
        beside.replace(path)
        seal.write_text(digest(path), "ascii")
    mapped: NDArray[Any] = np.load(path, mmap_mode="r")
    return mapped


def fill(out: NDArray[Any], values: NDArray[Any]) -> None:
    """Write values at the start of an array."""
    out[: len(values)] = values
