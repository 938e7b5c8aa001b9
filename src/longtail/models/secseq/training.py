"""Training of SeCSeq: one network for each tree of codes, independent of the others."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.features.batches import length_batches
from longtail.features.token_rows import TokenRows, ends
from longtail.kernels import Floats, Longs
from longtail.models.secseq import set_network as secseq_set
from longtail.models.secseq.codes import Codes, ordered_labels
from longtail.models.secseq.network import Seq2Seq, Texts, Words, longest_first
from longtail.models.secseq.set_network import Branches, SetNetwork
from longtail.nn import encoders
from longtail.nn.encoders import Bag, Encoder
from longtail.nn.loop import Run, device_of, plan_of, torch_threads, train
from longtail.nn.optim import Joint, LazyAdam, RowOptimizer, RowSgd, tables_and_dense
from longtail.nn.validation import mean_precision
from longtail.progress import SILENT, Progress
from longtail.topk import TopK

Arrays = dict[str, NDArray[Any]]
Search = Callable[[Codes, Arrays, Floats], TopK]  # codes, a network's arrays and its vectors of texts -> five best labels
HELD = 256  # held-out texts that are looked at together
WORDS = "words"  # the encoder that is none of ``nn.encoders``


def lengths_of(texts: Texts) -> Longs:
    """Tokens of each text; all the same where order does not matter."""
    return texts.lengths if isinstance(texts, TokenRows) else np.ones(texts.shape[0], np.int64)


def make_encoder(s: Any, n_inputs: int) -> Words | Encoder:
    """The encoder that settings ask for, over so many words or tokens."""
    if s.encoder == WORDS:
        return Words(n_inputs, s.width, s.keep)
    return encoders.make(s.encoder, n_inputs, width=s.width, layers=s.layers, token_width=s.token_width)


def optimizer(net: Any, s: Any) -> Joint:
    """Words by plain gradient descent, tables of tokens by an Adam that updates rows in use, all else by AdamW."""
    tables, dense = tables_and_dense(net)
    of_encoder = set(net.encoder.parameters()) if s.encoder != WORDS else set()
    groups = [
        {"params": [p for p in dense if p not in of_encoder], "lr": s.head_rate},
        {"params": [p for p in dense if p in of_encoder], "lr": s.rate},
    ]
    rows: list[RowOptimizer] = [(RowSgd if s.encoder == WORDS else LazyAdam)(tables, lr=s.rate)] if tables else []
    return Joint(*rows, torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=0.0))


def sequences(Y: sp.csr_array, codes: Codes, s: Any) -> TokenRows:
    """The codes of each sample's labels, one behind the other, in the order that settings ask for (eq. 3).

    Labels without a code, which held-out samples may have, are left out.
    """
    Y = Y @ sp.diags_array((codes.symbols[:, 0] >= 0).astype(np.float32), format="csr")
    Y.eliminate_zeros()
    ordered = ordered_labels(Y, codes, s.order, s.seed)
    at = np.arange(Y.nnz) - np.repeat(Y.indptr[:-1], np.diff(Y.indptr))
    kept = at < s.most_labels
    lengths = np.minimum(np.diff(Y.indptr), s.most_labels) * codes.depth
    return TokenRows(codes.symbols[ordered.indices[kept]].ravel(), ends(lengths))


def fit(
    texts: Texts,
    Y: sp.csr_array,
    codes: Codes,
    n_inputs: int,
    s: Any,
    valid: tuple[Texts, sp.csr_array] | None,
    search: Search,
    progress: Progress = SILENT,
) -> tuple[Arrays, list[dict[str, float]]]:
    """Train the network of one tree with settings ``s``; return the arrays for prediction and the history of the run.

    search: how the best labels are found where the target is a set; it belongs to a later layer than this one.
    """
    torch.manual_seed(s.seed)
    device = device_of(s.device)
    kind = SetNetwork if s.target == "set" else Seq2Seq
    net: Any = kind(make_encoder(s, n_inputs), codes.n_symbols, codes.depth, s).to(device)
    tell = np.flatnonzero(np.diff(Y.indptr))  # samples with labels
    lengths = lengths_of(texts)[tell]

    def batches(rng: np.random.Generator) -> list[Longs]:
        return [tell[some] for some in length_batches(lengths, rng, batch=s.batch)]

    steps = len(batches(np.random.default_rng(0)))
    data = (a for x, y in [(texts, Y), *([valid] if valid else [])] for a in (*arrays_of(x), y.indptr, y.indices))
    plan = plan_of(s, steps, (*data, codes.symbols))
    of_set = s.target == "set"
    work = set_work(net, texts, Y, codes, valid, search) if of_set else sequence_work(net, texts, Y, codes, s, valid)
    small = isinstance(net.encoder, Words | Bag)  # torch gives the same bits on one thread only
    with torch_threads(1 if small else s.threads):
        metric = work.metric if valid else None
        run: Run = train(net, batches, work.loss, optimizer(net, s), plan, metric=metric, progress=progress)
    return {**network_arrays(net), **work.arrays}, run.history


def arrays_of(texts: Texts) -> tuple[NDArray[Any], ...]:
    """For a checkpoint to know the data by."""
    return (texts.ids, texts.indptr) if isinstance(texts, TokenRows) else (texts.indptr, texts.indices, texts.data)


def sequence_work(net: Seq2Seq, texts: Texts, Y: sp.csr_array, codes: Codes, s: Any, valid: Any) -> SimpleNamespace:
    """The loss of a batch, and the mean log-probability of the right sequences of held-out texts."""

    def loss_of(texts: Texts, targets: TokenRows) -> Tensor:
        order = longest_first(targets)
        return net.loss(texts[order], targets[order])

    @torch.no_grad()
    def metric() -> float:
        held, targets = valid[0], sequences(valid[1], codes, s)
        parts = length_batches(lengths_of(held), np.random.default_rng(0), batch=HELD)
        return -sum(float(loss_of(held[some], targets[some])) * len(some) for some in parts) / len(targets)

    targets = sequences(Y, codes, s)
    return SimpleNamespace(loss=lambda some: loss_of(texts[some], targets[some]), metric=metric, arrays={})


def set_work(net: SetNetwork, texts: Texts, Y: sp.csr_array, codes: Codes, valid: Any, search: Search) -> SimpleNamespace:
    """The loss of a batch, and the precision on held-out texts."""
    branches = Branches.of(codes.trie, Y)
    prior = {"prior": branches.prior}

    def metric() -> float:
        found = {**secseq_set.arrays(net), **prior}
        return mean_precision(lambda part: search(codes, found, net.embed(valid[0][part]).cpu().numpy()), valid[1])

    return SimpleNamespace(loss=lambda some: branches.loss(net, texts[some], some), metric=metric, arrays=prior)


def network_arrays(net: SetNetwork | Seq2Seq) -> Arrays:
    """The encoder and all else, as plain arrays."""
    if isinstance(net.encoder, Words):
        words = {"words.weight": net.encoder.table.weight, "words.shift": net.encoder.shift}
        out = {name: value.detach().cpu().numpy().copy() for name, value in words.items()}
    else:
        out = {f"encoder.{name}": array for name, array in encoders.arrays(net.encoder).items()}
    if isinstance(net, SetNetwork):
        return {**out, **secseq_set.arrays(net)}
    rest = {name: value for name, value in net.state_dict().items() if not name.startswith("encoder.")}
    return {**out, **{f"net.{name}": value.cpu().numpy().copy() for name, value in rest.items()}}
