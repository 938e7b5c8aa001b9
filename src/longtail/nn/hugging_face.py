"""Text encoders of the transformers library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longtail.errors import MissingExtra, SettingError
from longtail.nn.encoders import TextEncoder

_DROPOUT_NAMES = (  # of the settings for dropout in the configurations of transformers
    "dropout",
    "attention_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "summary_last_dropout",
)


_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_FOREIGN = ("quantization_config", "use_kernels")  # what would import or download further code
_NO_CODE = "longtail runs no code of models: use a model that transformers itself knows, with weights in safetensors"
_TABLES = ("label2id", "id2label", "task_specific_params")
_COUNTED = re.compile("layer|block|expert")  # settings for which a configuration builds as many parts
_MAX_SIZE = 2**31


class HuggingFaceEncoder(TextEncoder):
    """Any encoder of transformers; the text vector is the mean of its last layer."""

    def __init__(self, config: dict[str, Any], model: Any = None) -> None:
        """config: as transformers writes it. model: with these weights; None: with random ones."""
        super().__init__()
        if model is None:
            with quiet_transformers() as transformers:
                made = transformers.AutoConfig.for_model(**{**config, "chunk_size_feed_forward": 0})  # only saves memory
                model = transformers.AutoModel.from_config(made, trust_remote_code=False)
        self.model = model
        self.width, self.spec = model.config.hidden_size, {"kind": "hugging-face", "config": config}
        self.max_tokens = _count_positions(model)

    def model_inputs(self, mask: Tensor) -> dict[str, Any]:
        """The arguments of the model besides the tokens."""
        return {"attention_mask": mask.long()}

    def token_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The output of the last layer [B, T, width]."""
        if self.max_tokens is not None and ids.shape[1] > self.max_tokens:
            found = f"a text has {ids.shape[1]} tokens, this encoder reads at most {self.max_tokens}"
            raise SettingError(found, hint=f"Set max_length={self.max_tokens}")
        n_tokens = self.model.get_input_embeddings().weight.shape[0]
        if ids.numel() and int(ids.max()) >= n_tokens:
            found = f"the tokenizer gives the token {int(ids.max())}, the encoder knows {n_tokens} tokens"
            raise SettingError(found, hint="Use the tokenizer of the encoder")
        out: Tensor = self.model(input_ids=ids, **self.model_inputs(mask)).last_hidden_state
        return out


class XLNetEncoder(HuggingFaceEncoder):
    """XLNet as in APLC-XLNet: the tokens of a text, SEP, CLS; padding on the left; the text vector is that of CLS."""

    pads_left = True

    def model_inputs(self, mask: Tensor) -> dict[str, Any]:
        """Besides the tokens: segment ids, 0 for the text, 2 for CLS and 4 for padding."""
        segments = torch.where(mask, 0, 4)
        segments[:, -1] = 2
        return {"token_type_ids": segments, "attention_mask": mask.float(), "use_mems": False}

    def pool(self, states: Tensor, mask: Tensor) -> Tensor:
        """The vector of the last token, CLS."""
        return states[:, -1] * mask[:, -1:]


def make_hugging_face(config: dict[str, Any], model: Any = None) -> HuggingFaceEncoder:
    """Make the encoder of a configuration of transformers."""
    return (XLNetEncoder if config["model_type"] == "xlnet" else HuggingFaceEncoder)(config, model)


def load_hugging_face(folder: Path, dropout: float) -> HuggingFaceEncoder:
    """Load a pretrained encoder from a folder, with this dropout in all its layers."""
    check_weights(folder)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with quiet_transformers() as transformers:
        try:
            check_config(json.loads((folder / "config.json").read_bytes()), where=str(folder))
            config = transformers.AutoConfig.from_pretrained(folder, **local)
            for name in _DROPOUT_NAMES:
                if hasattr(config, name):
                    setattr(config, name, dropout)
            model = transformers.AutoModel.from_pretrained(folder, config=config, use_safetensors=True, **local)
        except (OSError, ValueError, KeyError, AttributeError) as error:
            hint = "The folder needs config.json and model.safetensors, as transformers' save_pretrained writes them"
            raise SettingError(f"the model cannot be read ({error})", where=str(folder), hint=hint) from error
    return make_hugging_face(model.config.to_dict(), model.float())


def check_weights(folder: Path) -> None:
    """Refuse a folder whose weights are pickled, as reading them can run any code; and adapters of other models."""
    names = sorted(path.name for path in folder.iterdir())
    if "adapter_config.json" in names:
        hint = "Merge it into the model and save that with transformers"
        raise SettingError("this is an adapter of another model", where=str(folder), hint=hint)
    pickled = [name for name in names if name.endswith(_PICKLED)]
    if pickled and not any(name.endswith(".safetensors") for name in names):
        hint = "Convert the weights to safetensors: load the model with transformers, and save it with save_pretrained"
        raise SettingError(f"the weights in {pickled[0]} are pickled, which can run code", where=str(folder), hint=hint)


def check_config(config: Any, where: str = "", max_layers: int | None = None) -> None:
    """Refuse the description of an encoder that asks for code or kernels from elsewhere, or for absurd sizes.

    :param config: A configuration of transformers, or what a bundle says about an encoder; nested objects are checked, too.
    :param where: Where it comes from, for error messages.
    :param max_layers: Layers, blocks and experts that there can be, of a saved encoder.
    """
    for name, value in config.items():
        if isinstance(value, dict) and name not in _TABLES:
            check_config(value, where, max_layers)
        kernels = "attn_implementation" in name and isinstance(value, str) and "/" in value
        if kernels or (name in _FOREIGN and value):
            raise SettingError(f"the encoder needs {name}={value!r:.60}", where=where, hint=_NO_CODE)
        if isinstance(value, int) and abs(value) > _MAX_SIZE:
            raise SettingError(f"the encoder has {name}={value}", where=where, hint=f"It must be at most {_MAX_SIZE:,}")
        if max_layers is not None and _COUNTED.search(name) and isinstance(value, int) and value > max_layers:
            found = f"the encoder has {name}={value}, but {max_layers} arrays of weights"
            raise SettingError(found, where=where, hint="Train the model again")


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """Import the transformers library (which takes seconds), without its messages about what it loads."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra("transformers", "nn", "This encoder") from error
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


def _count_positions(model: Any) -> int | None:
    """The number of tokens that a model has positions for; None: any number. RoBERTa's start after the padding id."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, torch.nn.Embedding):
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    known = getattr(model.config, "max_position_embeddings", None)
    return known if known and known > 0 else None
