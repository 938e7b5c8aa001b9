"""Encoders: the tokens of a text to one vector, or to a vector for each token. All have one small interface.

``bag`` is the mean of token vectors, ``gru`` and ``lstm`` read in both directions, ``transformer`` is a small one from
scratch, ``xlnet`` one with XLNet's relative positions; any other name is a pretrained model: of an installed package
(``minilm``, ``wordllama``), in a folder, or in the hub's cache (``features.pretrained``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import gelu, scaled_dot_product_attention

from longtail.errors import SettingError, missing_extra
from longtail.features.batches import length_batches
from longtail.features.pretrained import SCRATCH, STATIC, pretrained_folder
from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats
from longtail.nn.sparse_embedding import RowTable

HEAD = 64  # numbers of an attention head
BATCH, TOKENS = 256, 4096  # most rows and tokens of a batch that is encoded without a gradient; more leave the cache
DROPOUTS = ("dropout", "attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "summary_last_dropout")


class Encoder(torch.nn.Module):
    """Tokens ids [B, T] of which some, by mask [B, T], are there -> [B, width]. Padding never changes a vector."""

    left: ClassVar[bool] = False  # whether texts are padded on the left
    width: int
    spec: dict[str, Any]  # what ``build`` makes the same encoder from, but for its weights

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """A vector for each token [B, T, width]; each row has at least one token. What stands at padding means nothing."""
        raise NotImplementedError

    def pooled(self, states: Tensor, mask: Tensor) -> Tensor:
        """One vector for each text [B, width]: the mean of its tokens', 0 if there are none."""
        weights = mask.to(states.dtype) / mask.sum(1, keepdim=True).clamp(min=1)  # [B, T]
        return torch.bmm(weights[:, None], states)[:, 0]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector for each text [B, width]."""
        empty = ~mask.any(1, keepdim=True)  # attention to nothing would be no number: these look at their first place
        first = torch.arange(mask.shape[1], device=mask.device) == 0
        return self.pooled(self.states(ids, mask | (empty & first)), mask)

    def batch(self, rows: TokenRows) -> tuple[Tensor, Tensor]:
        """The ids and the mask of some texts, padded as this encoder wants it, where its weights are."""
        device = next(self.parameters()).device
        ids, mask = rows.padded(left=self.left)
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def looked_up(table: RowTable, ids: Tensor, mask: Tensor) -> Tensor:
    """Vectors of tokens [B, T, d], 0 at padding, which so is no use of the table."""
    out = torch.zeros(*ids.shape, table.weight.shape[1], device=table.weight.device)
    return out.masked_scatter(mask[:, :, None], table.lookup(ids[mask]))


class Bag(Encoder):
    """The mean of the vectors of a text's tokens."""

    def __init__(self, n_tokens: int, width: int) -> None:
        super().__init__()
        self.width, self.spec = width, {"kind": "bag", "n_tokens": n_tokens, "width": width}
        self.table = RowTable(n_tokens, width, std=width**-0.5)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The tokens' vectors."""
        return looked_up(self.table, ids, mask)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Their means, without the detour over a vector for each token."""
        lengths = mask.sum(1).cpu().numpy()  # [B]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        weights = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
        return self.table.bag(indptr, ids[mask], weights)


class Recurrent(Encoder):
    """A GRU or LSTM that reads in both directions, half of the width each."""

    def __init__(self, kind: str, n_tokens: int, width: int, layers: int, token_width: int | None = None) -> None:
        """token_width: of the tokens' vectors, if other than that of what is known at each."""
        super().__init__()
        self.width, given = width, token_width or width
        self.spec = {"kind": kind, "n_tokens": n_tokens, "width": width, "layers": layers, "token_width": given}
        self.table = RowTable(n_tokens, given, std=given**-0.5)
        cell = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind]
        self.cell = cell(given, width // 2, layers, batch_first=True, bidirectional=True)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """What both directions know at each token."""
        vectors, lengths = looked_up(self.table, ids, mask), mask.sum(1).cpu()
        packed = torch.nn.utils.rnn.pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True, total_length=ids.shape[1])
        return out


class Transformer(Encoder):
    """A small transformer (Vaswani et al. 2017) with the norm before each part, and fixed waves as positions."""

    def __init__(self, n_tokens: int, width: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.spec = {"kind": "transformer", "n_tokens": n_tokens, "width": width, "layers": layers}
        self.table = RowTable(n_tokens, width, std=width**-0.5)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """What the last layer knows at each token."""
        x = looked_up(self.table, ids, mask) * self.width**0.5 + waves(ids.shape[1], self.width, ids.device)
        for block in self.blocks:
            x = block(x, mask)
        out: Tensor = self.norm(x)
        return out


class Block(torch.nn.Module):
    """x + attention, then x + two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(width // HEAD, 1)
        self.norm, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """From [B, T, width] to the same."""
        B, T, width = x.shape
        parts = self.qkv(self.norm(x)).view(B, T, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # each [B, heads, T, width / heads]
        seen = scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])  # [B, heads, T, width / heads]
        x = x + self.out(seen.transpose(1, 2).reshape(B, T, width))
        out: Tensor = x + self.down(gelu(self.up(self.norm2(x))))
        return out


def waves(length: int, width: int, device: torch.device) -> Tensor:
    """Sines and cosines of a position, of wave lengths from 2π to 20,000π [length, width]."""
    speed = 10_000.0 ** (-torch.arange(0, width, 2, device=device) / width)
    angles = torch.arange(length, device=device)[:, None] * speed
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width]


class HuggingFace(Encoder):
    """Any encoder of transformers; the mean of its last layer."""

    def __init__(self, config: dict[str, Any], model: Any = None) -> None:
        """config: as transformers writes it. model: one with weights; else one without is made."""
        super().__init__()
        if model is None:
            with quiet() as transformers:
                model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config))
        self.model = model
        self.width, self.spec = model.config.hidden_size, {"kind": "hugging-face", "config": config}
        self.longest = longest(model)

    def inputs(self, mask: Tensor) -> dict[str, Any]:
        """What the model is called with beside the tokens."""
        return {"attention_mask": mask.long()}

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The last layer."""
        if self.longest is not None and ids.shape[1] > self.longest:
            found = f"a text has {ids.shape[1]} tokens, this encoder reads {self.longest} at most"
            raise SettingError(found, hint=f"Set max_length={self.longest}")
        out: Tensor = self.model(input_ids=ids, **self.inputs(mask)).last_hidden_state
        return out


class XLNet(HuggingFace):
    """XLNet as APLC-XLNet uses it: a text's tokens, SEP, CLS; padding on the left; the vector is that of CLS, the last."""

    left = True

    def inputs(self, mask: Tensor) -> dict[str, Any]:
        """Beside the tokens: segments, which are 0 for the text, 2 for CLS and 4 for padding."""
        segments = torch.where(mask, 0, 4)
        segments[:, -1] = 2
        return {"token_type_ids": segments, "attention_mask": mask.float(), "use_mems": False}

    def pooled(self, states: Tensor, mask: Tensor) -> Tensor:
        """The last token's."""
        return states[:, -1] * mask[:, -1:]


@contextmanager
def quiet() -> Iterator[Any]:
    """The transformers library (9 s to import), without its reports on what it loads."""
    try:
        import transformers
    except ImportError as error:
        raise missing_extra("transformers", "nn", "This encoder") from error
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def longest(model: Any) -> int | None:
    """Tokens that a model of transformers has positions for; None: any number. RoBERTa's kin start behind the padding's."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, torch.nn.Embedding):
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    known = getattr(model.config, "max_position_embeddings", None)
    return known if known and known > 0 else None


def hugging_face(config: dict[str, Any], model: Any = None) -> HuggingFace:
    """An encoder of transformers by its configuration."""
    return (XLNet if config["model_type"] == "xlnet" else HuggingFace)(config, model)


def pretrained(name: str, dropout: float = 0.0) -> Encoder:
    """An encoder with pretrained weights. Dropout is off by default: on CPUs, to draw it is slow."""
    folder = pretrained_folder(name)
    if name in STATIC:
        return static(folder / STATIC[name])
    with quiet() as transformers:
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
            for setting in DROPOUTS:
                if hasattr(config, setting):
                    setattr(config, setting, dropout)
            model = transformers.AutoModel.from_pretrained(folder, config=config, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            hint = "A folder needs config.json and model.safetensors, as transformers' save_pretrained writes them"
            raise SettingError(f"there is no model that can be read ({error})", where=str(folder), hint=hint) from error
    return hugging_face(model.config.to_dict(), model.float())


def static(path: Path) -> Bag:
    """A bag of token vectors of a safetensors file."""
    from safetensors.torch import load_file

    (weight,) = load_file(path).values()
    bag = Bag(*weight.shape)
    bag.table.weight.data.copy_(weight)
    return bag


def scratch(kind: str, n_tokens: int, width: int, layers: int, token_width: int | None = None) -> Encoder:
    """An encoder without weights, by kind. token_width: for gru and lstm."""
    if width < 2 or width % 2 or (width > HEAD and width % HEAD) or layers < 1:
        found = f"an encoder of {layers} layers and {width} numbers"
        raise SettingError(found, hint=f"It needs a layer, and an even width, above {HEAD} a multiple of {HEAD}")
    if kind == "bag":
        return Bag(n_tokens, width)
    if kind in ("gru", "lstm"):
        return Recurrent(kind, n_tokens, width, layers, token_width)
    if kind == "transformer":
        return Transformer(n_tokens, width, layers)
    sizes = {"vocab_size": n_tokens, "d_model": width, "n_layer": layers, "d_inner": 4 * width}
    return hugging_face({"model_type": "xlnet", **sizes, "n_head": max(width // HEAD, 1), "dropout": 0.0})


def make(
    name: str, n_tokens: int, *, width: int = 256, layers: int = 2, token_width: int | None = None, dropout: float = 0.0
) -> Encoder:
    """The encoder of a name. Widths and layers are for those from scratch, dropout is for pretrained ones."""
    return scratch(name, n_tokens, width, layers, token_width) if name in SCRATCH else pretrained(name, dropout)


def layer_list(module: torch.nn.Module) -> torch.nn.ModuleList:
    """The layers of an encoder, the first first; none if it has no list of them."""
    lists = [part for part in module.modules() if isinstance(part, torch.nn.ModuleList)]
    return max(lists, key=len, default=torch.nn.ModuleList())


def stages(encoder: torch.nn.Module) -> list[list[torch.nn.Parameter]]:
    """The parameters of each layer, the last layer's first, and all others at the end: the order of gradual unfreezing."""
    layers = [list(layer.parameters()) for layer in reversed(layer_list(encoder))]
    in_layers = {parameter for layer in layers for parameter in layer}
    return [*layers, [parameter for parameter in encoder.parameters() if parameter not in in_layers]]


def arrays(encoder: Encoder) -> dict[str, NDArray[Any]]:
    """An encoder as plain arrays."""
    weights = {f"weights.{name}": value.detach().cpu().numpy() for name, value in encoder.state_dict().items()}
    return {"spec": np.frombuffer(json.dumps(encoder.spec).encode(), np.uint8), **weights}


def restored(state: dict[str, NDArray[Any]]) -> Encoder:
    """The encoder that ``arrays`` gave."""
    spec = json.loads(state["spec"].tobytes())
    if spec["kind"] == "hugging-face":
        encoder: Encoder = hugging_face(spec["config"])
    else:
        sizes = spec["width"], spec.get("layers", 1), spec.get("token_width")
        encoder = scratch(spec["kind"], spec["n_tokens"], *sizes)
    weights = {n.removeprefix("weights."): torch.tensor(a) for n, a in state.items() if n.startswith("weights.")}
    encoder.load_state_dict(weights)
    return encoder.eval()


@torch.no_grad()
def vectors(encoder: Encoder, rows: TokenRows) -> Floats:
    """The vectors of texts [n, width], once and for all: for an encoder that is not trained, and for prediction."""
    out: Floats = np.zeros((len(rows), encoder.width), np.float32)
    training = encoder.training
    encoder.eval()
    for some in length_batches(rows.lengths, np.random.default_rng(0), batch=BATCH, tokens=TOKENS):
        out[some] = encoder(*encoder.batch(rows[some])).cpu().numpy()
    encoder.train(training)
    return out
