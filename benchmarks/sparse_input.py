"""A sparse input layer: one epoch of training on debian-debtags, ``SparseEmbedding`` compared with torch's layers.

Words and word pairs -> 512 -> (ReLU -> all labels, with AdamW for that small head). The systems take turns of a few batches,
and the median turn counts, so that load from other processes affects all alike. The seconds per epoch are those of the
median turn, times the number of turns of an epoch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from common import THREADS, Row, Stopwatch, make_parser, print_progress, read_corpus, report
from torch import Tensor

from longtail.features.tfidf import Tfidf
from longtail.nn.optim import LazyAdam, RowAdagrad
from longtail.nn.sparse_embedding import SparseEmbedding

CORPUS = "debian-debtags"
D, STD, RATE = 512, 0.01, 1e-3
BATCHES = (512, 128)
PEER = "EmbeddingBag + SparseAdam"
BATCHES_PER_TURN, MAX_TURNS = 5, 9
SLOW = "torch.sparse + Adam"  # its gradient has the size of the table: one batch per turn is enough

Layer = Callable[[sp.csr_array], Tensor]
System = tuple[Layer, torch.optim.Optimizer]


def sparse_embedding(n_features: int, kind: type[RowAdagrad] | type[LazyAdam]) -> System:
    """The layer of longtail."""
    table = SparseEmbedding(n_features, D, std=STD)
    return lambda x: table.bag(x.indptr, x.indices, x.data), kind(table, lr=RATE)


def embedding_bag(n_features: int, kind: type[torch.optim.Optimizer]) -> System:
    """torch's layer, with sparse gradients."""
    layer = torch.nn.EmbeddingBag(n_features, D, mode="sum", sparse=True, include_last_offset=True)

    def forward(x: sp.csr_array) -> Tensor:
        indices, indptr, data = (torch.from_numpy(array) for array in (x.indices, x.indptr, x.data))
        out: Tensor = layer(indices, indptr, per_sample_weights=data)
        return out

    return forward, kind(layer.parameters(), lr=RATE)  # type: ignore[call-arg]


def sparse_matmul(n_features: int) -> System:
    """A sparse matrix times a dense one; the gradient has the size of the table."""
    weight = torch.nn.Parameter(torch.empty(n_features, D).normal_(0, STD))

    def forward(x: sp.csr_array) -> Tensor:
        return torch.sparse_csr_tensor(*(torch.from_numpy(a) for a in (x.indptr, x.indices, x.data)), x.shape) @ weight

    return forward, torch.optim.Adam([weight], lr=RATE)


def no_layer(n_features: int) -> System:
    """No layer: the time of the head alone."""
    return lambda x: torch.ones(x.shape[0], D, requires_grad=True), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])


SYSTEMS: dict[str, Callable[[int], System]] = {
    "SparseEmbedding + RowAdagrad": partial(sparse_embedding, kind=RowAdagrad),
    "SparseEmbedding + LazyAdam": partial(sparse_embedding, kind=LazyAdam),
    PEER: partial(embedding_bag, kind=torch.optim.SparseAdam),
    "EmbeddingBag + Adagrad": partial(embedding_bag, kind=torch.optim.Adagrad),
}
ALONE: dict[str, Callable[[int], System]] = {SLOW: sparse_matmul}  # the time of a head would be negligible
HEADED: dict[str, Callable[[int], System]] = {"the head alone": no_layer}


class Head:
    """The rest of a small network: ReLU, all labels, binary cross-entropy."""

    def __init__(self, n_labels: int) -> None:
        self.linear = torch.nn.Linear(D, n_labels)
        self.optimizer = torch.optim.AdamW(self.linear.parameters(), lr=RATE)

    def step(self, out: Tensor, Y: sp.csr_array) -> None:
        """Learn from one batch, and give the layer below its gradient."""
        target = torch.from_numpy(Y.toarray().astype(np.float32))  # [n, n_labels]; there are few
        scores = self.linear(out.relu())
        torch.nn.functional.binary_cross_entropy_with_logits(scores, target).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def batches(X: sp.csr_array, Y: sp.csr_array, size: int) -> Iterator[tuple[sp.csr_array, sp.csr_array]]:
    """The batches of an epoch in random order, the same for all systems; an incomplete last one is left out."""
    order = np.random.default_rng(0).permutation(X.shape[0])
    for start in range(0, X.shape[0] - size + 1, size):
        yield X[order[start : start + size]], Y[order[start : start + size]]


def train_on(given: list[tuple[sp.csr_array, sp.csr_array]], system: System, head: Head | None) -> float:
    """Seconds per batch. Without a head, every output gets the same gradient."""
    layer, optimizer = system
    gradient = torch.full((given[0][0].shape[0], D), 1e-3)
    with Stopwatch() as watch:
        for x, y in given:
            optimizer.zero_grad()
            out = layer(x)
            out.backward(gradient) if head is None else head.step(out, y)
            optimizer.step()
    return watch.wall / len(given)


def measure(X: sp.csr_array, Y: sp.csr_array, size: int, with_head: bool) -> list[Row]:
    """One table: a row for each system."""
    given = list(batches(X, Y, size))
    systems = SYSTEMS | (HEADED if with_head else ALONE)
    built = {name: (make(X.shape[1]), Head(Y.shape[1]) if with_head else None) for name, make in systems.items()}
    took: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(min(MAX_TURNS, len(given) // BATCHES_PER_TURN)):
        mine = given[turn * BATCHES_PER_TURN : (turn + 1) * BATCHES_PER_TURN]
        for name, parts in built.items():
            took[name].append(train_on(mine[:1] if name == SLOW else mine, *parts))
        milliseconds = [round(1000 * s[-1], 1) for s in took.values()]
        print_progress(f"batch {size}, head {with_head}, turn {turn}: {milliseconds} ms per batch")
    # without the first turn, which compiles and allocates
    median = {name: float(np.median(seconds[1:])) for name, seconds in took.items()}
    return [
        {"system": name, "epoch s": s * len(given), "ms per batch": 1000 * s, "SparseAdam's s / this": median[PEER] / s}
        for name, s in median.items()
    ]


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--threads", type=int, default=THREADS, help="of each system (%(default)s); use 1 on a busy machine")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", "Sparse")  # support is in beta; invariants are not checked
    train = read_corpus(CORPUS)
    X = Tfidf(ngrams=2, min_df=2).fit_transform(list(train.texts or []))
    tables = {
        f"Batches of {size}, {'with a head' if with_head else 'input layer only'}": measure(X, train.Y, size, with_head)
        for size in BATCHES
        for with_head in (False, True)
    }
    notes = [
        f"{CORPUS}: {X.shape[0]:,} texts, {X.shape[1]:,} features, {X.nnz / X.shape[0]:.0f} per text; "
        f"{train.n_labels} labels; dimension {D}; threads: {given.threads}",
        f"the median of at most {MAX_TURNS} turns of {BATCHES_PER_TURN} batches; torch.sparse: of one batch per turn",
    ]
    report(tables, notes, given.json)


if __name__ == "__main__":
    main()
