"""Training of SeCSeq: one network per tree of codes, independent of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats, Longs
from longtail.models.secseq.codes import Codebook
from longtail.models.secseq.network import Seq2Seq, WordsEncoder
from longtail.models.secseq.plan import SecSeqPlan
from longtail.models.secseq.prediction import compress_arrays
from longtail.models.secseq.search import TrieSearch, search_tries
from longtail.models.secseq.set_network import BranchTargets, SetNetwork
from longtail.models.secseq.settings import WORDS, SecSeqSettings, Texts
from longtail.models.secseq.start import WORD_STD, start_from_centroids
from longtail.models.secseq.targets import make_sequences
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.encoder_factory import encoder_to_arrays, make_encoder
from longtail.nn.encoders import BagEncoder, RecurrentEncoder, TextEncoder
from longtail.nn.loop import Metric, train
from longtail.nn.loop_plan import plan_loop
from longtail.nn.optim import JointOptimizer, LazyAdam, RowOptimizer, RowSgd, split_parameters
from longtail.nn.validation import mean_precision
from longtail.progress import SILENT, Progress
from longtail.state import State
from longtail.topk import TopK

SecSeqNetwork = SetNetwork | Seq2Seq
HeldOut = tuple[Texts, sp.csr_array]  # held-out texts and their labels

_HELD_OUT_PER_BATCH = 256
_NODE_RATE = 3  # times the learning rate of the other layers: a batch uses each node vector rarely


@dataclass(frozen=True)
class _Objective:
    loss: Callable[[Longs], Tensor]  # of a batch of training samples
    metric: Metric | None  # on held-out samples, if there are any
    arrays: State  # what prediction needs in addition to the network


def fit_tree(
    texts: Texts,
    Y: sp.csr_array,
    codes: Codebook,
    n_inputs: int,
    settings: SecSeqSettings,
    plan: SecSeqPlan,
    valid: HeldOut | None,
    word_vectors: Floats | None = None,
    progress: Progress = SILENT,
) -> tuple[State, list[dict[str, float]]]:
    """Train the network of one tree. Returns its arrays as they are saved, and one row of figures per epoch.

    :param n_inputs: Number of words or tokens that the encoder knows.
    :param word_vectors: Pretrained vectors of these [n_inputs, d], if there are any.
    """
    torch.manual_seed(settings.seed)
    encoder = make_text_encoder(settings, n_inputs, word_vectors)
    net = make_network(settings, encoder, codes).to(find_device(settings.device))
    labelled = np.flatnonzero(np.diff(Y.indptr))  # samples with labels
    lengths = _count_tokens(texts)[labelled]

    def batches(rng: np.random.Generator) -> list[Longs]:
        return [labelled[rows] for rows in make_length_batches(lengths, rng, batch=plan.batch)]

    n_steps = len(batches(np.random.default_rng(0)))
    parts = [(texts, Y), *([valid] if valid else [])]
    data = [array for part in parts for matrix in part for array in _list_arrays(matrix)]
    loop = plan_loop(settings, plan, n_steps, [*data, codes.symbols], n_runs=plan.n_trees)
    objective = _make_objective(net, texts, Y, codes, settings, valid)
    is_small = isinstance(encoder, WordsEncoder | BagEncoder)  # fast on one thread, on which torch gives the same bits
    with torch_threads(1 if is_small else settings.threads):
        optimizer = make_optimizer(net, settings, plan)
        run = train(net, batches, objective.loss, optimizer, loop, metric=objective.metric, progress=progress)
    return compress_arrays({**export_network(net), **objective.arrays}, settings), run.history


def make_text_encoder(
    settings: SecSeqSettings, n_inputs: int, word_vectors: Floats | None = None
) -> WordsEncoder | TextEncoder:
    """Build the encoder, for this number of words or tokens; it starts from their pretrained vectors, if there are any."""
    s = settings
    if word_vectors is not None:
        dim = word_vectors.shape[1]
        sizes = {"width": dim} if s.encoder == "bag" else {"width": s.get_width(), "token_width": dim}
        encoder = make_encoder(s.encoder, n_inputs, layers=s.layers, **sizes)
        assert isinstance(encoder, BagEncoder | RecurrentEncoder)
        encoder.table.weight.data.copy_(torch.from_numpy(word_vectors))
        return encoder
    if s.encoder == WORDS:
        return WordsEncoder(n_inputs, s.get_width(), s.keep_prob, WORD_STD if s.starts_from_centroids else None)
    return make_encoder(s.encoder, n_inputs, width=s.get_width(), layers=s.layers, token_width=s.token_width)


def make_network(settings: SecSeqSettings, encoder: WordsEncoder | TextEncoder, codes: Codebook) -> SecSeqNetwork:
    """Build the network for these codes."""
    s = settings
    if s.target == "set":
        n_vectors = len(codes.trie.symbol) - int(codes.trie.level_start[2]) if s.node_vectors else 0
        return SetNetwork(encoder, codes.n_symbols, codes.depth, hidden=s.hidden, dropout=s.dropout, n_vectors=n_vectors)
    return Seq2Seq(
        encoder,
        codes.n_symbols,
        codes.depth,
        hidden=s.hidden,
        symbol_width=s.symbol_width,
        dropout=s.dropout,
        positions=s.positions,
    )


def export_network(net: SecSeqNetwork) -> State:
    """The arrays that prediction needs: the encoder's under ``words.`` or ``encoder.``, the others under ``net.``."""
    if isinstance(net.encoder, WordsEncoder):
        words = {"words.weight": net.encoder.table.weight, "words.bias": net.encoder.bias}
        out = {name: value.detach().cpu().numpy().copy() for name, value in words.items()}
    else:
        out = {f"encoder.{name}": array for name, array in encoder_to_arrays(net.encoder).items()}
    return {**out, **{f"net.{name}": array for name, array in _export_head(net).items()}}


def _export_head(net: SecSeqNetwork) -> State:
    """The arrays of all layers but the encoder's."""
    weights = {name: value for name, value in net.state_dict().items() if not name.startswith("encoder.")}
    return {name: value.cpu().numpy().copy() for name, value in weights.items()}


def make_optimizer(net: SecSeqNetwork, settings: SecSeqSettings, plan: SecSeqPlan) -> JointOptimizer:
    """Plain SGD for word vectors, Adam over the used rows for vectors of tokens and nodes, AdamW for the rest.

    Frozen vectors of words are left out.
    """
    tables, dense = split_parameters(net)
    is_words = isinstance(net.encoder, WordsEncoder)
    nodes = net.node_vectors if isinstance(net, SetNetwork) else None
    tables = [table for table in tables if table is not nodes]
    if settings.freezes_vectors:
        for table in tables:
            table.weight.requires_grad_(False)
        tables = []
    in_encoder = set() if is_words else set(net.encoder.parameters())
    groups = [
        {"params": [p for p in dense if p not in in_encoder], "lr": settings.head_rate},
        {"params": [p for p in dense if p in in_encoder], "lr": plan.rate},
    ]
    rows: list[RowOptimizer] = [(RowSgd if is_words else LazyAdam)(tables, lr=plan.rate)] if tables else []
    if nodes is not None:
        rows.append(LazyAdam(nodes, lr=_NODE_RATE * settings.head_rate))
    return JointOptimizer(*rows, torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=0.0))


def _make_objective(
    net: SecSeqNetwork, texts: Texts, Y: sp.csr_array, codes: Codebook, settings: SecSeqSettings, valid: HeldOut | None
) -> _Objective:
    if isinstance(net, SetNetwork):
        branches = BranchTargets.build(codes.trie, Y)
        if settings.starts_from_centroids:
            assert isinstance(texts, sp.csr_array)
            start_from_centroids(net, texts, branches)
        return _Objective(
            lambda rows: branches.loss(net, texts[rows], rows),
            _make_set_metric(net, codes, branches.prior, settings.beam, valid) if valid else None,
            {"prior": branches.prior},
        )
    targets = make_sequences(Y, codes, settings)
    return _Objective(
        lambda rows: net.loss(texts[rows], targets[rows]),
        _make_sequence_metric(net, codes, settings, valid) if valid else None,
        {},
    )


def _make_sequence_metric(net: Seq2Seq, codes: Codebook, settings: SecSeqSettings, valid: HeldOut) -> Metric:
    """The mean log-probability of the true sequences of held-out texts."""
    texts, targets = valid[0], make_sequences(valid[1], codes, settings)

    @torch.no_grad()
    def metric() -> float:
        batches = make_length_batches(_count_tokens(texts), np.random.default_rng(0), batch=_HELD_OUT_PER_BATCH)
        return -sum(float(net.loss(texts[rows], targets[rows])) * len(rows) for rows in batches) / len(targets)

    return metric


def _make_set_metric(net: SetNetwork, codes: Codebook, prior: Floats, beam: int, valid: HeldOut) -> Metric:
    """The mean of P@1, P@3 and P@5 on held-out texts."""
    texts, Y = valid
    k = min(5, len(codes.trie.label))

    def metric() -> float:
        search = TrieSearch.build(codes.trie, _export_head(net), prior)

        def rank(part: slice) -> TopK:
            H = net.embed(texts[part]).cpu().numpy()
            return search_tries([search], [H], k, beam=beam, threads=1)

        return mean_precision(rank, Y)

    return metric


def _count_tokens(texts: Texts) -> Longs:
    """Tokens of each text; 1 for TF-IDF vectors, which may be batched in any order."""
    return texts.lengths if isinstance(texts, TokenRows) else np.ones(texts.shape[0], np.int64)


def _list_arrays(matrix: Texts) -> tuple[NDArray[Any], ...]:
    """The arrays by which a checkpoint recognises its data."""
    return (matrix.ids, matrix.indptr) if isinstance(matrix, TokenRows) else (matrix.indptr, matrix.indices, matrix.data)
