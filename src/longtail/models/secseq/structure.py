"""The structure of a saved SeCSeq: the arrays of each tree, by the shapes of the layers that they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.features.text import PLAIN_WORDS, TextFeatures
from longtail.kernels import Bools
from longtail.linear.quantised import QuantisedTable
from longtail.models.secseq.codes import Codebook
from longtail.models.secseq.settings import BAGS, WORDS, SecSeqSettings
from longtail.state import MAX_WEIGHT, State, check_array, extract_part, get_array, refuse


def check_symbols(arrays: State, n_labels: int, depth: int | None, n_symbols: int, unseen: Bools) -> None:
    """Check the codes of all labels; those of labels without samples are never read.

    :param depth: D, the number of symbols of a code. None: any, but at least one.
    :param n_symbols: K.
    :param unseen: [n_labels] Labels without samples.
    """
    symbols = check_array(arrays, "symbols", "u2 i4", (n_labels, depth))
    if not symbols.shape[1] or (symbols[~unseen] < 0).any() or (symbols[~unseen] >= n_symbols).any():
        raise refuse(arrays, "symbols", "has a value outside of the symbols", f"There are {n_symbols} symbols")


def check_network(arrays: State, codes: Codebook, settings: SecSeqSettings, n_features: int) -> None:
    """Check the arrays of the network of one tree.

    :param arrays: The arrays, as ``compress_arrays`` returned them.
    :param codes: The codes of the tree.
    :param n_features: Features of the samples, if the encoder reads features.
    """
    width = None  # of what the encoder returns
    if settings.encoder == WORDS:
        width = QuantisedTable.from_state(extract_part(arrays, "bag."), n_features).shape[1]
        check_array(arrays, "words.bias", "f4", (width,), finite=True)
    elif "words.bias" in arrays:
        raise refuse(arrays, "words.bias", "belongs to another encoder", f"The encoder is {settings.encoder}")
    elif settings.target == "set" and settings.encoder in BAGS:
        width = QuantisedTable.from_state(extract_part(arrays, "bag."), None).shape[1]
    elif "bag.values" in arrays:
        raise refuse(arrays, "bag.values", "belongs to another encoder", f"The encoder is {settings.encoder}")
    check = _check_set_network if settings.target == "set" else _check_decoder
    check(arrays, codes, width, settings.encoder == WORDS)


def _check_set_network(arrays: State, codes: Codebook, width: int | None, reads_words: bool) -> None:
    """The layers of ``set_network.SetNetwork``."""
    K, trie = codes.n_symbols, codes.trie
    if not reads_words:
        _check_layer(arrays, "text_layer", None, width)
        width = len(arrays["net.text_layer.weight"])
    hidden = None
    for depth in range(trie.depth):
        _check_layer(arrays, f"output_layers.{depth}", K, hidden if depth else width)
        if depth + 1 < trie.depth:
            hidden = len(get_array(arrays, "net.hidden_layers.0.weight")) if hidden is None else hidden
            _check_layer(arrays, f"hidden_layers.{depth}", hidden, width)
            check_array(arrays, f"net.prefix_embeddings.{depth}", "f4", (depth + 1, K, hidden), finite=True)
    check_array(arrays, "prior", "f4", (len(trie.symbol),), minimum=-MAX_WEIGHT, maximum=MAX_WEIGHT)
    if "nodes.values" in arrays:
        n_nodes = len(trie.symbol) - int(trie.level_start[2])
        QuantisedTable.from_state(extract_part(arrays, "nodes."), n_nodes, width)
    if "net.node_vectors.weight" in arrays:
        raise refuse(arrays, "net.node_vectors.weight", "is not rounded", "It must be in the arrays nodes.*")


def _check_decoder(arrays: State, codes: Codebook, width: int | None, reads_words: bool) -> None:
    """The layers of ``network.Seq2Seq``."""
    symbols = check_array(arrays, "net.symbol_embedding.weight", "f4", (codes.n_symbols, None), finite=True)
    d, r = len(get_array(arrays, "net.initial_state.weight")), symbols.shape[1]
    _check_layer(arrays, "initial_state", d, width)
    width = arrays["net.initial_state.weight"].shape[1]
    _check_layer(arrays, "symbol_inputs", 3 * d + r, r)
    _check_layer(arrays, "context_inputs", 3 * d + r, width)
    for name in ("cell1", "cell2"):
        _check_layer(arrays, name, 3 * d, d)
    _check_layer(arrays, "attention_keys", width, width)
    _check_layer(arrays, "attention_query", width, d, bias=False)
    _check_layer(arrays, "attention_score", 1, width, bias=False)
    _check_layer(arrays, "state_readout", r, d, bias=False)
    _check_layer(arrays, "output", codes.n_symbols + 1, r)
    if "net.position_embedding.weight" in arrays:
        check_array(arrays, "net.position_embedding.weight", "f4", (codes.depth, r), finite=True)


def _check_layer(arrays: State, name: str, n_out: int | None, n_in: int | None, *, bias: bool = True) -> None:
    """Check the weight [n_out, n_in] and the bias [n_out] of a linear layer."""
    weight = check_array(arrays, f"net.{name}.weight", "f4", (n_out, n_in), finite=True)
    if bias:
        check_array(arrays, f"net.{name}.bias", "f4", (len(weight),), finite=True)


def upgrade_features(about: dict[str, Any], state: dict[str, State]) -> tuple[dict[str, Any], dict[str, State]]:
    """Convert a model of format 4 or less, whose TF-IDF was part of the model, and ngrams one of its settings."""
    settings = dict(about["settings"])
    ngrams = settings.pop("ngrams", None)
    if ngrams is None:
        return about, state
    own = extract_part(state["model"], "features.")
    model = {name: array for name, array in state["model"].items() if not name.startswith("features.")}
    if settings["encoder"] != WORDS:
        model |= {f"tokens.{name}": array for name, array in own.items()}
        return {**about, "settings": settings}, {**state, "model": model}
    model["sizes"] = np.array([model["sizes"][0], len(own["idf"])])
    fitted = {**PLAIN_WORDS, "ngrams": ngrams}
    features = {
        **{"kind": TextFeatures.__name__, "settings": fitted, "fitted settings": fitted},
        **{"decisions": [], "autoencoder": None},
    }
    words = {f"words.{name}": array for name, array in own.items()}
    return {**about, "settings": settings, "features": features}, {**state, "model": model, "features": words}
