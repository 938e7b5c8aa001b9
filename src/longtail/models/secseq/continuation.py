"""Continue the training of SeCSeq on new texts.

With target=set, a new label gets its own first symbol, as frequent labels have it: there are more symbols then. Sequences
keep their symbols, and the code of a new label starts like those of similar labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats, Ints, Longs
from longtail.linear.quantised import QuantisedTable
from longtail.models.secseq.codes import Codebook
from longtail.models.secseq.network import WordsEncoder
from longtail.models.secseq.plan import SecSeqPlan
from longtail.models.secseq.prediction import compress_arrays, restore_node_vectors
from longtail.models.secseq.set_network import BranchTargets, SetNetwork
from longtail.models.secseq.settings import SecSeqSettings
from longtail.models.secseq.targets import make_sequences
from longtail.models.secseq.training import SecSeqNetwork, export_network, make_network, make_optimizer
from longtail.models.secseq.trie import NO_CODE, CodeTrie
from longtail.nn.continuation import (
    NewSamples,
    Pace,
    Paces,
    divide_by_length,
    divide_randomly,
    start_new_labels,
    train_further,
)
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.encoder_factory import restore_encoder
from longtail.nn.encoders import BagEncoder
from longtail.nn.losses import known_loss
from longtail.progress import Progress
from longtail.state import State, extract_part
from longtail.topk import TopK

_N_SIMILAR = 10  # labels that a text of a new label gets, from which its code is chosen
PACES = Paces(replay=Pace(epochs=2, rate=0.5, new_share=0.5), alone=Pace(epochs=2, rate=0.1))


def add_first_symbols(codes: Codebook, counts: Ints) -> Codebook:
    """Give each new label a first symbol that no other label has; the other symbols of its code are 0.

    :param counts: Texts of each label, with the new ones [n_labels].

    >>> codes = Codebook(np.array([[0, 0], [2, 0], [2, 1]]), 3, np.array([9, 5, 4]))
    >>> more = add_first_symbols(codes, np.array([9, 5, 4, 2, 1]))
    >>> more.symbols[3:].tolist(), more.n_symbols
    ([[1, 0], [3, 0]], 4)
    """
    new = np.setdiff1d(np.flatnonzero(counts), codes.trie.label)
    unused = np.setdiff1d(np.arange(codes.n_symbols + len(new)), codes.symbols[:, 0])[: len(new)]
    symbols = np.full((len(counts), codes.depth), NO_CODE, np.int32)
    symbols[: len(codes.symbols)] = codes.symbols
    symbols[new] = 0
    symbols[new, 0] = unused
    return Codebook(symbols, max(codes.n_symbols, int(unused.max(initial=0)) + 1), counts)


def add_codes(codes: Codebook, counts: Ints, similar: sp.csr_array) -> Codebook:
    """Give each new label a code that no other label has, of the symbols that there are.

    All but its last symbol are those of similar labels, the last one is not used after them. If there is no such code, a
    label shares that of the most similar one.

    :param counts: Texts of each label, with the new ones [n_labels].
    :param similar: How similar each label is to those that have codes [n_labels, n_labels before]; old labels are not read.

    >>> codes = Codebook(np.array([[0, 0], [1, 0], [1, 1]]), 4, np.array([9, 5, 4]))
    >>> similar = sp.csr_array(np.array([[0, 0, 0], [0, 0, 0], [0, 0, 0], [0.3, 0.2, 0.3]]))
    >>> add_codes(codes, np.array([9, 5, 4, 2]), similar).symbols[3].tolist()
    [1, 2]
    """
    K, trie, D = codes.n_symbols, codes.trie, codes.depth
    symbols = np.full((len(counts), D), NO_CODE, np.int32)
    symbols[: len(codes.symbols)] = codes.symbols
    first, end = (int(node) for node in trie.level_start[D - 1 : D + 1])  # nodes of all codes without their last symbol
    used = [set(trie.symbol[trie.first_child[node] : trie.first_child[node + 1]].tolist()) for node in range(first, end)]
    prefixes, of_label = trie.list_prefixes(D - 1), np.zeros(len(codes.symbols), np.int64)
    of_label[trie.label] = np.repeat(trie.parent[trie.level_start[D] :] - first, np.diff(trie.leaf_start))
    for label in np.setdiff1d(np.flatnonzero(counts), trie.label):
        one = similar[[label]]
        mass = np.bincount(of_label[one.indices], one.data, minlength=len(used))
        is_free = np.array([len(some) < K for some in used])
        if not is_free.any():
            symbols[label] = symbols[one.indices[one.data.argmax()] if one.nnz else trie.label[0]]
            continue
        best = int(np.lexsort((mass, is_free))[-1])
        symbol = min(set(range(K)) - used[best])
        used[best].add(symbol)
        symbols[label] = [*prefixes[best], symbol]
    return Codebook(symbols, K, counts)


def find_similar(find_best: Callable[[Longs, int], TopK], counts: Ints, Y: sp.csr_array) -> sp.csr_array:
    """How often the texts of each new label get each old one [n_labels, n_labels before], by the scores of the best.

    :param find_best: Returns the best labels of some texts, this number of them.
    :param counts: Texts of each label before [n_labels before].
    :param Y: The labels of the new texts [n, n_labels].
    """
    is_new = np.ones(Y.shape[1], bool)
    is_new[np.flatnonzero(counts)] = False
    rows = np.flatnonzero(Y @ is_new.astype(np.float32))
    if not len(rows):
        return sp.csr_array((Y.shape[1], len(counts)), dtype=np.float32)
    best = find_best(rows, min(_N_SIMILAR, int(np.count_nonzero(counts))))
    there = best.ids >= 0
    scores = sp.csr_array(
        (best.scores[there], (np.nonzero(there)[0], best.ids[there])), shape=(len(rows), len(counts)), dtype=np.float32
    )
    return sp.csr_array(Y[rows].T.tocsr() @ scores)


def continue_tree(
    samples: NewSamples,
    arrays: State,
    before: Codebook,
    codes: Codebook,
    n_samples: int,
    settings: SecSeqSettings,
    plan: SecSeqPlan,
    progress: Progress,
) -> State:
    """Continue to train the network of one tree. Returns its arrays as they are saved.

    :param arrays: Its arrays, as ``prediction.compress_arrays`` returned them.
    :param before: The codes that it was trained with.
    :param codes: The codes with those of new labels.
    :param n_samples: Number of texts, with the new ones.
    """
    torch.manual_seed(settings.seed)
    encoder = restore_words(arrays, settings) if "words.bias" in arrays else restore_encoder(arrays)
    net = make_network(settings, encoder, codes).to(find_device(settings.device))
    if isinstance(net, SetNetwork):
        _load_set_head(net, arrays, before.trie, codes)
    else:
        _load_weights(net, extract_part(arrays, "net."))
    lengths = samples.X.lengths if isinstance(samples.X, TokenRows) else None
    divide = divide_randomly(plan.batch) if lengths is None else divide_by_length(lengths, plan.batch)
    is_small = isinstance(encoder, WordsEncoder | BagEncoder)
    with torch_threads(1 if is_small else settings.threads):
        optimizer = make_optimizer(net, settings, plan)
        if not isinstance(net, SetNetwork):
            targets = make_sequences(samples.Y, codes, settings)
            losses = (lambda rows: net.loss(samples.X[rows], targets[rows]), _refuse_partial)
            train_further(net, samples, divide, losses, optimizer, settings, progress)
            return compress_arrays(export_network(net), settings)
        prior = _extend_prior(arrays["prior"], before.trie, codes, n_samples)
        branches = replace(BranchTargets.build(codes.trie, samples.Y), prior=prior)
        _start_new_symbols(net, samples, branches, before.trie, codes)

        def partial_loss(rows: Longs) -> Tensor:
            H = net.embed(samples.X[rows])
            return known_loss(
                lambda row, label: branches.score_labels(net, H, row, label), *samples.get_known(rows), H.device
            )

        losses = (lambda rows: branches.loss(net, samples.X[rows], rows), partial_loss)
        train_further(net, samples, divide, losses, optimizer, settings, progress)
    return compress_arrays({**export_network(net), "prior": branches.prior}, settings)


def _refuse_partial(rows: Longs) -> Tensor:
    raise AssertionError("sequences are not trained on partly labelled texts")


def restore_words(arrays: State, settings: SecSeqSettings) -> WordsEncoder:
    """The encoder of TF-IDF vectors from the arrays of a fitted model."""
    table = QuantisedTable(arrays["bag.values"], arrays["bag.scale"])
    n_words, width = table.shape
    encoder = WordsEncoder(n_words, width, settings.keep_prob)
    encoder.table.weight.data.copy_(torch.from_numpy(table.dequantise(np.arange(n_words, dtype=np.int32))))
    encoder.bias.data.copy_(torch.from_numpy(arrays["words.bias"]))
    return encoder


def _load_set_head(net: SetNetwork, arrays: State, before: CodeTrie, codes: Codebook) -> None:
    """Set all layers but the encoder's. New symbols and codes have zeros."""
    head = {**extract_part(arrays, "net."), **restore_node_vectors(arrays)}
    if "node_vectors.weight" in head:
        start, vectors = int(before.level_start[2]), head["node_vectors.weight"]
        nodes = map_nodes(before, codes.trie)[start:] - int(codes.trie.level_start[2])
        head["node_vectors.weight"] = np.zeros(
            (len(codes.trie.symbol) - codes.trie.level_start[2], vectors.shape[1]), np.float32
        )
        head["node_vectors.weight"][nodes] = vectors
    for name in (name for name in head if name.startswith(("output_layers.", "prefix_embeddings."))):
        axis = int(name.startswith("prefix_embeddings."))  # of the symbols
        head[name] = _add_zeros(head[name], codes.n_symbols - before.n_symbols, axis)
    _load_weights(net, head)


def _add_zeros(array: Floats, n: int, axis: int) -> Floats:
    """An array with n further entries along an axis."""
    return np.pad(array, [(0, n if number == axis else 0) for number in range(array.ndim)])


def _load_weights(net: SecSeqNetwork, head: State) -> None:
    """Set all layers but the encoder's."""
    weights = {name: torch.from_numpy(array.astype(np.float32)) for name, array in head.items()}
    missing = net.load_state_dict(weights, strict=False).missing_keys
    assert all(name.startswith("encoder.") for name in missing)
    net.eval()


def map_nodes(before: CodeTrie, after: CodeTrie) -> Longs:
    """The node of a trie with further codes for each node of the trie before [n_nodes]."""
    nodes = np.zeros(len(before.symbol), np.int64)
    for depth in range(1, before.depth + 1):
        level = slice(*before.level_start[depth : depth + 2].tolist())
        nodes[level] = after.find_children(nodes[before.parent[level]], before.symbol[level])
    return nodes


def _extend_prior(prior: Floats, before: CodeTrie, codes: Codebook, n_samples: int) -> Floats:
    """The log-odds of each node. Those of new ones are computed from the texts of the labels below them and their parent."""
    trie = codes.trie
    counts = [np.bincount(np.repeat(np.arange(trie.n_leaves), np.diff(trie.leaf_start)), codes.counts[trie.label])]
    for depth in range(trie.depth, 0, -1):
        level = slice(*trie.level_start[depth : depth + 2].tolist())
        n_above = int(trie.level_start[depth] - trie.level_start[depth - 1])
        counts.append(np.bincount(trie.parent[level] - trie.level_start[depth - 1], counts[-1], minlength=n_above))
    n = np.minimum(np.concatenate(counts[::-1]), n_samples)  # [n_nodes]
    n[0] = n_samples
    out: Floats = np.log((n + 0.5) / (n[np.maximum(trie.parent, 0)] - n + 0.5)).astype(np.float32)
    out[map_nodes(before, trie)] = prior
    return out


def _start_new_symbols(
    net: SetNetwork, samples: NewSamples, branches: BranchTargets, before: CodeTrie, codes: Codebook
) -> None:
    """Start the vectors of new first symbols. Their biases are part of the prior."""
    trie = branches.trie
    new = np.setdiff1d(np.arange(1, trie.level_start[2]), map_nodes(before, trie))  # nodes
    if not len(new):
        return
    labels = np.setdiff1d(trie.label, before.label)
    labels = labels[np.argsort(codes.symbols[labels, 0])]  # in the order of the nodes
    rows = np.arange(samples.Y.shape[0])
    vectors, bias = start_new_labels(samples, rows, lambda some: net.embed(samples.X[some]), labels, branches.prior[new])
    layer = net.output_layers[0]
    assert isinstance(layer, torch.nn.Linear)
    V = layer.weight.data
    V[torch.from_numpy(trie.symbol[new]).long().to(V.device)] = vectors
    branches.prior[new] = bias.cpu().numpy()
