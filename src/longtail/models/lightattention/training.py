"""Training of LightAttention over the levels of a label tree (Zhu, Teng, Huang), and of AttentionXML (You et al. 2019).

AttentionXML (``static``) trains one network for each level, each from that of the level above, and computes candidates once.
LightAttention (``dynamic``, algorithm 2) trains all levels together over one reader, so that the levels above, the
generator, choose other negatives for the discriminator below at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from longtail.features.batches import length_batches
from longtail.features.token_rows import TokenRows, ends
from longtail.kernels import Floats, Longs
from longtail.labelspace.embedding import pifa
from longtail.labelspace.tree import LabelTree
from longtail.models.lightattention.network import Attention, Reader
from longtail.models.lightattention.search import (
    NONE,
    NUMBERS,
    Level,
    Opened,
    Part,
    best_nodes,
    descended,
    levels_of,
    n_candidates,
    on,
    search,
    targets,
)
from longtail.nn.loop import device_of, plan_of, torch_threads, train
from longtail.nn.optim import Joint, LazyAdam, tables_and_dense
from longtail.nn.validation import mean_precision
from longtail.progress import Progress
from longtail.state import inside
from longtail.topk import TopK

M = TypeVar("M", bound=torch.nn.Module)

TERMS, SHARP = 128, 6.0  # words of a node that its attention starts at; its score of a word that were all of them
WARM_EPOCHS = 1  # that the levels above train alone, before the next one joins


def loss_of(opened: Opened) -> Tensor:
    """Mean binary cross-entropy of a level's candidates."""
    assert opened.true is not None
    there = on(opened.nodes >= 0, opened.logits).float()
    return binary_cross_entropy_with_logits(opened.logits, opened.true, there, reduction="sum") / there.sum()


def static_candidates(
    parts: Sequence[Part], levels: Sequence[Level], rows: TokenRows, aims: Sequence[sp.csr_array], beam: int
) -> TokenRows:
    """Nodes of the last level below which AttentionXML looks for each text: true ones, then the best, ``beam`` in all."""
    n_true = np.diff(aims[-1].indptr)
    out = np.full((len(rows), max(beam, int(n_true.max(initial=0)))), NONE, np.int32)
    for some, nodes, _ in search(parts, levels, rows, beam=beam, k=beam, aims=aims):
        out[some, : nodes.shape[1]] = nodes
    out[np.arange(out.shape[1]) >= np.maximum(n_true, beam)[:, None]] = NONE
    return TokenRows(out[out >= 0], ends((out >= 0).sum(1)))


def given_nodes(candidates: TokenRows) -> Longs:
    """Lists of nodes as a table [B, b], NONE where there are fewer."""
    nodes, there = candidates.padded()
    return np.where(there, nodes, NONE)


def towards_own_words(reader: Reader, attention: Attention, Y: sp.csr_array, X: sp.csr_array) -> None:
    """Let the attention of each node start at the words that its texts have and those of other nodes have not.

    Y: [n, n_nodes]. X: [n, n_words - 1] TF-IDF. Only the part of an attention row that meets word vectors can tell.
    """
    vectors = reader.table.weight.detach().cpu().numpy()
    centres = pifa(X, Y, TERMS) @ vectors[1:]  # [n_nodes, d]
    centres -= centres.mean(0)
    lengths = np.linalg.norm(centres, axis=1, keepdims=True)
    centres *= SHARP / np.maximum(lengths, 1e-6) / np.linalg.norm(vectors, axis=1).mean()
    attention.rows.weight.data[:, -vectors.shape[1] :] = torch.from_numpy(centres.astype(np.float32))


def begin_at_frequencies(attention: Attention, Y: sp.csr_array, n_candidates: int) -> None:
    """Let biases start where the scores fit how often nodes [n, n_nodes] are true when they are candidates."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    shown = np.maximum(Y.shape[0] * n_candidates / Y.shape[1], counts)  # in the mean of the nodes
    odds = np.log((counts + 1) / (shown - counts + 1))
    attention.last.bias.data.fill_(float(odds.mean()))
    if attention.own is not None:
        attention.own.weight.data[:, -1] = torch.from_numpy((odds - odds.mean()).astype(np.float32))


def optimizer(net: torch.nn.Module, readers: Sequence[Reader], rate: float) -> Joint:
    """Adam; tables of word vectors and of attention rows by one that updates only the rows in use."""
    frozen = {reader.table.weight for reader in readers if reader.frozen}
    tables, dense = tables_and_dense(net)
    return Joint(LazyAdam([t for t in tables if t.weight not in frozen], lr=rate), torch.optim.Adam(dense, lr=rate))


def fit(
    rows: TokenRows,
    X: sp.csr_array,
    Y: sp.csr_array,
    tree: LabelTree,
    n_words: int,
    vectors: Floats | None,
    s: Any,
    valid: tuple[TokenRows, sp.csr_array] | None,
    progress: Progress,
) -> tuple[dict[str, NDArray[Any]], list[dict[str, float]]]:
    """Train the networks of one tree with settings ``s`` of the method; return the arrays for prediction and the history.

    X: TF-IDF of the same texts and words. vectors: of the words [n_words, d], if they are pretrained.
    """
    torch.manual_seed(s.seed)
    device, levels, aims = device_of(s.device), levels_of(tree), targets(tree, Y)
    goals = None if valid is None else targets(tree, valid[1])
    static = s.negatives == "static"
    parts: list[Part] = []
    history: list[dict[str, float]] = []

    def new_reader() -> Reader:
        d = s.width if vectors is None else vectors.shape[1]
        dropped = {"word_dropout": s.word_dropout, "dropout": s.dropout}
        reader = Reader(n_words, d, s.hidden, skip=s.skip, frozen=s.frozen, **dropped)
        if vectors is not None:
            reader.table.weight.data.copy_(torch.from_numpy(vectors))
        return reader.to(device)

    with torch_threads(s.threads):
        for depth, level in enumerate(levels):
            reader = new_reader() if not parts or (static and not s.warm_start) else parts[-1][0]
            candidates = None
            if static and parts:
                candidates = static_candidates(parts, levels[:depth], rows, aims[:depth], s.beam)
                reader = deepcopy(reader)
            attention = Attention(level.n, reader.width, s.fc, own=s.own).to(device)
            if s.skip:
                towards_own_words(reader, attention, aims[depth], X)
            if parts and s.warm_start:
                attention.start_from(parts[-1][1])
            begin_at_frequencies(attention, aims[depth], min(level.n, s.beam * level.most) if parts else level.n)
            parts.append((reader, attention))
            last = depth + 1 == len(levels)
            if static or last or s.warm_start:
                together = slice(depth, depth + 1) if static else slice(depth + 1)
                goal = None if valid is None or goals is None else (valid[0], goals[depth])
                epochs = s.epochs if static or last else WARM_EPOCHS
                history += train_level(
                    parts, levels[: depth + 1], together, rows, aims[: depth + 1], candidates, goal, epochs, s, progress
                )
    return arrays(parts), history


def train_level(
    parts: Sequence[Part],
    levels: Sequence[Level],
    together: slice,  # the levels that are trained
    rows: TokenRows,
    aims: Sequence[sp.csr_array],
    candidates: TokenRows | None,  # static ones, above the level that is trained
    goal: tuple[TokenRows, sp.csr_array] | None,
    epochs: int,
    s: Any,
    progress: Progress,
) -> list[dict[str, float]]:
    """Train some levels of a tree in one run of the loop; return its history."""
    trained = parts[together]
    readers = list({id(reader): reader for reader, _ in trained}.values())
    net = torch.nn.ModuleList([*readers, *(attention for _, attention in trained)])
    tokens = max(NUMBERS // n_candidates(levels[together], s.beam), 1)

    def batches(rng: np.random.Generator) -> list[Longs]:
        return length_batches(rows.lengths, rng, batch=s.batch, tokens=tokens)

    def loss(some: Longs) -> Tensor:
        given = [aim[some] for aim in aims[together]]
        above = None if candidates is None else given_nodes(candidates[some])
        opened = descended(trained, levels[together], rows[some], s.beam, given, above)
        return torch.stack([loss_of(level) for level in opened]).sum()

    def metric() -> float:
        assert goal is not None
        found = best_nodes(parts, levels, goal[0], beam=s.beam, k=5)
        return mean_precision(lambda part: TopK(found.ids[part], found.scores[part]), goal[1])

    steps = len(batches(np.random.default_rng(0)))
    data = [(rows, aims[-1]), *([goal] if goal else [])]
    plan = plan_of(s, steps, (a for x, y in data for a in (x.ids, x.indptr, y.indptr, y.indices)))
    depth = len(levels)
    number = f".{s.number}.{depth}"  # each run of the loop has files of its own
    plan = replace(
        plan,
        epochs=epochs,
        average_from=min(s.average_from, epochs - 1),
        name=f"level {depth}" if s.n_levels > 1 else "epochs",
        log=s.log and s.log + number * (s.n_runs > 1),
        checkpoint=s.checkpoint and s.checkpoint + number * (s.n_runs > 1),
    )
    run = train(
        net, batches, loss, optimizer(net, readers, s.rate), plan, metric=metric if goal else None, progress=progress
    )
    return [{"tree": s.number, "level": depth, **row} for row in run.history]


def arrays(parts: Sequence[Part]) -> dict[str, NDArray[Any]]:
    """Networks as plain arrays, a shared reader once; tables in half precision."""
    out: dict[str, NDArray[Any]] = {}
    last = None
    for number, (reader, attention) in enumerate(parts):
        modules = {f"attention{number}": attention} | ({f"reader{number}": reader} if reader is not last else {})
        for prefix, module in modules.items():
            tables = {f"{name}.weight" for name, _ in module.named_children() if name in ("table", "rows", "own")}
            for name, value in module.state_dict().items():
                array = value.detach().cpu().numpy()
                out[f"{prefix}.{name}"] = array.astype(np.float16) if name in tables else array.copy()
        last = reader
    return out


def restored(state: dict[str, NDArray[Any]], device: str) -> list[Part]:
    """The networks that ``arrays`` gave, for prediction."""
    out: list[Part] = []
    n_levels = sum(name.endswith(".rows.weight") for name in state)
    for number in range(n_levels):
        of_reader, own = inside(state, f"reader{number}."), inside(state, f"attention{number}.")
        if of_reader:
            (n_words, d), n = of_reader["table.weight"].shape, of_reader["start"].shape[-1]
            skip = own["rows.weight"].shape[1] > 2 * n
            reader = filled(Reader(n_words, d, n, skip=skip, frozen=True, word_dropout=0, dropout=0), of_reader)
        else:
            reader = out[-1][0]
        n_middle = sum(name.startswith("middle.") and name.endswith(".bias") for name in own)
        fc = [len(own["first.bias"]), *(len(own[f"middle.{layer}.bias"]) for layer in range(n_middle))]
        n_nodes, width = own["rows.weight"].shape
        attention = filled(Attention(n_nodes, width, fc, own="own.weight" in own), own)
        out.append((reader.to(device_of(device)), attention.to(device_of(device))))
    return out


def filled(module: M, state: dict[str, NDArray[Any]]) -> M:
    """A module with these weights, in full precision, ready for prediction."""
    module.load_state_dict({name: torch.tensor(array.astype(np.float32)) for name, array in state.items()})
    return module.eval()
