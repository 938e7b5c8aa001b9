"""The networks of a label tree as plain arrays, for saving, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from longtail.models.lightattention.levels import TreeLevel
from longtail.models.lightattention.network import BiLstmEncoder, LabelAttention, LevelNetwork, PoolScorer
from longtail.nn.devices import find_device
from longtail.state import State, extract_part

_Module = TypeVar("_Module", bound=torch.nn.Module)

_HALF_PRECISION = ("embedding.weight", "query.weight", "label_output.weight", "output.weight")  # the large tables


def networks_to_state(networks: Sequence[LevelNetwork]) -> State:
    """Convert the networks of a tree to plain arrays; large tables are stored in half precision."""
    state: State = {}
    encoder = None
    for number, network in enumerate(networks):
        modules: dict[str, torch.nn.Module] = {f"attention{number}": network.attention}
        if network.encoder is not encoder:  # a shared encoder is saved once
            encoder = network.encoder
            modules[f"encoder{number}"] = encoder
        for prefix, module in modules.items():
            for name, value in module.state_dict().items():
                array = value.detach().cpu().numpy()
                state[f"{prefix}.{name}"] = array.astype(np.float16) if name in _HALF_PRECISION else array.copy()
    return state


def networks_from_state(state: State, levels: Sequence[TreeLevel], device: str) -> list[LevelNetwork]:
    """Restore the networks that ``networks_to_state`` converted, for prediction."""
    networks: list[LevelNetwork] = []
    for number, level in enumerate(levels):
        attention = _restore_attention(extract_part(state, f"attention{number}."))
        saved = extract_part(state, f"encoder{number}.")
        encoder = _restore_encoder(saved, attention.input_dim) if saved else networks[-1].encoder
        networks.append(LevelNetwork(level, encoder.to(find_device(device)), attention.to(find_device(device))))
    return networks


def _restore_encoder(state: State, output_dim: int) -> BiLstmEncoder:
    (n_words, word_dim), hidden = state["embedding.weight"].shape, state["initial_state"].shape[-1]
    no_dropout = {"embedding_dropout": 0.0, "dropout": 0.0}
    skip_connection = output_dim > 2 * hidden
    encoder = BiLstmEncoder(n_words, word_dim, hidden, skip_connection=skip_connection, freeze_vectors=True, **no_dropout)
    return _load_weights(encoder, state)


def _restore_attention(state: State) -> LabelAttention | PoolScorer:
    if "output.weight" in state:
        n_nodes, n_weights = state["output.weight"].shape
        return _load_weights(PoolScorer(n_nodes, (n_weights - 1) // 2), state)
    n_middle = sum(name.startswith("middle_layers.") and name.endswith(".bias") for name in state)
    middle = [len(state[f"middle_layers.{number}.bias"]) for number in range(n_middle)]
    fc_sizes = [len(state["first_layer.bias"]), *middle]
    n_nodes, input_dim = state["query.weight"].shape
    parts = {"per_label_output": "label_output.weight" in state, "match": "match_weight" in state}
    attention = LabelAttention(n_nodes, input_dim, fc_sizes, **parts)
    return _load_weights(attention, state)


def _load_weights(module: _Module, state: State) -> _Module:
    """Load weights in full precision, for prediction."""
    module.load_state_dict({name: torch.tensor(array.astype(np.float32)) for name, array in state.items()})
    return module.eval()
