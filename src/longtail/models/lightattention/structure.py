"""The structure of the saved networks of a label tree, by the shapes of the layers that the arrays belong to."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.models.lightattention.levels import TreeLevel
from longtail.state import State, check_array, extract_part, get_array, refuse

_FLOATS = "f2 f4"


def check_networks(state: State, levels: Sequence[TreeLevel], n_words: int) -> None:
    """Check the arrays of the networks of all levels (``state.networks_to_state``).

    :param n_words: Number of words of the vocabulary, the unknown one included.
    """
    dims: tuple[int, ...] = ()  # that the encoder in use can have: with and without the word vectors
    for number, level in enumerate(levels):
        encoder = extract_part(state, f"encoder{number}.")
        if encoder:
            dims = _check_encoder(encoder, n_words)
        attention = extract_part(state, f"attention{number}.")
        is_last = number == len(levels) - 1
        dim = _check_attention(attention, level.n_nodes, only_attention=is_last)
        if dim not in dims:
            raise refuse(state, f"attention{number}", f"reads vectors of dimension {dim}", f"The encoder has one of {dims}")
        dims = (dim,)  # of a shared encoder


def _check_encoder(state: State, n_words: int) -> tuple[int, int]:
    """Check a BiLSTM, and return the dimensions that its output may have."""
    word_dim = check_array(state, "embedding.weight", _FLOATS, (n_words, None)).shape[1]
    initial = check_array(state, "initial_state", _FLOATS, (2, 2, 1, None), finite=True)
    hidden = initial.shape[3]
    for direction in ("forward_lstm", "backward_lstm"):
        for name, n_in in (("ih", word_dim), ("hh", hidden)):
            check_array(state, f"{direction}.weight_{name}_l0", _FLOATS, (4 * hidden, n_in), finite=True)
            check_array(state, f"{direction}.bias_{name}_l0", _FLOATS, (4 * hidden,), finite=True)
    if not word_dim or not hidden or len(state) != 10:
        raise refuse(state, "embedding.weight", "is part of another network", "It must be that of a BiLSTM")
    return 2 * hidden, 2 * hidden + word_dim


def _check_attention(state: State, n_nodes: int, *, only_attention: bool) -> int:
    """Check what scores the nodes of a level, and return the dimension of the vectors that it reads."""
    if "output.weight" in state and not only_attention:
        width = int(check_array(state, "output.weight", _FLOATS, (n_nodes, None)).shape[1])
        if width < 3 or width % 2 == 0 or len(state) != 1:
            raise refuse(state, "output.weight", f"has rows of {width} weights", "It must be twice a dimension, plus 1")
        return (width - 1) // 2
    dim = int(check_array(state, "query.weight", _FLOATS, (n_nodes, None)).shape[1])
    n_in, n_arrays = dim, 1
    layers = ["first_layer", *(f"middle_layers.{i}" for i in range(sum(n.startswith("middle_layers.") for n in state) // 2))]
    for layer in layers:
        n_out = len(get_array(state, f"{layer}.bias"))
        check_array(state, f"{layer}.weight", _FLOATS, (n_out, n_in), finite=True)
        check_array(state, f"{layer}.bias", _FLOATS, (n_out,), finite=True)
        n_in, n_arrays = n_out, n_arrays + 2
    check_array(state, "output_layer.weight", _FLOATS, (1, n_in), finite=True)
    check_array(state, "output_layer.bias", _FLOATS, (1,), finite=True)
    for name, shape in (("label_output.weight", (n_nodes, n_in + 1)), ("match_weight", (1,))):
        if name in state:
            check_array(state, name, _FLOATS, shape)
            n_arrays += 1
    if len(state) != n_arrays + 2 or not n_in:
        raise refuse(state, "query.weight", "is part of another network", "It must be that of attention per label")
    return dim
