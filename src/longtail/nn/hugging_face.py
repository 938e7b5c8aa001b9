"""Text encoders of the transformers library."""

from __future__ import annotations

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


class HuggingFaceEncoder(TextEncoder):
    """Any encoder of transformers; the text vector is the mean of its last layer."""

    def __init__(self, config: dict[str, Any], model: Any = None) -> None:
        """config: as transformers writes it. model: with these weights; None: with random ones."""
        super().__init__()
        if model is None:
            with quiet_transformers() as transformers:
                model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config))
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
    with quiet_transformers() as transformers:
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
            for name in _DROPOUT_NAMES:
                if hasattr(config, name):
                    setattr(config, name, dropout)
            model = transformers.AutoModel.from_pretrained(folder, config=config, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            hint = "The folder needs config.json and model.safetensors, as transformers' save_pretrained writes them"
            raise SettingError(f"the model cannot be read ({error})", where=str(folder), hint=hint) from error
    return make_hugging_face(model.config.to_dict(), model.float())


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
