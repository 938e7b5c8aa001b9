"""The output layer of APLC compared with a dense one: time and memory of a training step, time of a prediction, and the
savings that the paper's eqs. 9 and 14 predict.

Text vectors are random; the labels of samples are drawn from a Zipf distribution. A step is forward, backward and AdamW on a
batch of 32. The sizes and dimensions are those of EURLex-4k, of a thesaurus of 36,000 subjects, of Wiki-500k and of
Amazon-670k, partitioned as in the paper, and where a step should cost least. One thread, each case in a separate process;
times are CPU times, which depend less on other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, make_parser, print_progress, read_memory, report
from peers import LIMITS, run

HALVES, QUARTERS = [0.5, 0.5], [0.25] * 4
# labels, training samples, labels per sample, dimension, shares in the paper
SIZES: dict[str, tuple[int, int, float, int, list[float]]] = {
    "4k": (3_956, 15_449, 5.3, 768, HALVES),
    "36k": (36_000, 50_000, 6.0, 768, HALVES),
    "500k": (501_008, 1_779_881, 4.75, 512, QUARTERS),
    "670k": (670_091, 490_449, 5.45, 384, QUARTERS),
}
DENSE, BLOCKS, PAPER, CHEAPEST = "dense", "dense, in blocks", "APLC, as in the paper", "APLC, cheapest"
BATCH, Q, K, RATE = 32, 2.0, 5, 1e-3
STEPS, STEPS_LARGE = 20, 4  # the latter with 100,000 labels or more
N_SINGLE = 100


def make_counts(size: str) -> np.ndarray:
    """The number of samples of each label: Zipf's law, at least one."""
    n_labels, n_samples, per_sample, _, _ = SIZES[size]
    shape = 1 / np.arange(1, n_labels + 1)
    return np.clip(shape / shape.sum() * n_samples * per_sample, 1, n_samples / 2).round().astype(int)


def make_partition(size: str, layer: str) -> Any:
    """The partition of one of the two APLC layers."""
    from longtail.models.aplc.partition import find_cheapest_partition, partition_by_shares

    _, n_samples, _, d, shares = SIZES[size]
    counts = make_counts(size)
    if layer == PAPER:
        return partition_by_shares(counts, shares)
    return find_cheapest_partition(counts, n_samples, d=d, q=Q)


def make_batches(size: str, n: int) -> list[sp.csr_array]:
    """The label matrices of some batches."""
    n_labels, _, per_sample, _, _ = SIZES[size]
    random, share = np.random.default_rng(0), make_counts(size) / make_counts(size).sum()
    out = []
    for _ in range(n):
        sets = [np.unique(random.choice(n_labels, m, p=share)) for m in np.maximum(random.poisson(per_sample, BATCH), 1)]
        indptr = np.concatenate([[0], np.cumsum([len(s) for s in sets])])
        out.append(sp.csr_array((np.ones(indptr[-1], np.float32), np.concatenate(sets), indptr), (BATCH, n_labels)))
    return out


def make_layer(size: str, layer: str) -> tuple[Any, Callable[[Any, sp.csr_array], Any]]:
    """A module, and its loss as a function of text vectors and a label matrix."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    from longtail.models.aplc.head import AplcHead
    from longtail.nn.losses import full_loss, list_positives

    n_labels, _, _, d, _ = SIZES[size]
    if layer in (PAPER, CHEAPEST):
        head = AplcHead(d, make_partition(size, layer), Q)
        return head, lambda H, Y: head.loss(H, list_positives(Y))
    linear = torch.nn.Linear(d, n_labels)
    if layer == BLOCKS:
        return linear, lambda H, Y: full_loss("bce", H, linear.weight, linear.bias, list_positives(Y)) / n_labels
    return linear, lambda H, Y: binary_cross_entropy_with_logits(linear(H), torch.from_numpy(Y.toarray()))


def measure_training(size: str, layer: str) -> Row:
    """Milliseconds per step, and the memory before the layer was made."""
    import torch

    torch.manual_seed(0)
    given = make_batches(size, 1 + (STEPS if SIZES[size][0] < 100_000 else STEPS_LARGE))
    torch.optim.AdamW([torch.ones(1, requires_grad=True)]).step()  # so that torch loads what it loads on first use
    before = read_memory("VmRSS")
    module, loss = make_layer(size, layer)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, weight_decay=0)
    whole, updates = [], []
    for Y in given:
        H = torch.randn(BATCH, SIZES[size][3], requires_grad=True)
        with Stopwatch() as watch:
            optimizer.zero_grad()
            loss(H, Y).backward()
            with Stopwatch() as update:
                optimizer.step()
        whole.append(watch.cpu)
        updates.append(update.cpu)
    parameters = sum(p.numel() for p in module.parameters())
    both = np.median([whole[1:], updates[1:]], axis=1) * 1e3  # without the first, which allocates the state of the optimiser
    return {"parameters": parameters, "step ms": both[0], "of it AdamW ms": both[1], "before": before}


def measure_prediction(size: str, layer: str) -> Row:
    """Milliseconds per text: if no tail can be skipped, and if all can."""
    import torch

    from longtail.models.aplc.head import AplcHead
    from longtail.models.aplc.search import ClusterSearch
    from longtail.search.exact import ExactIndex

    torch.manual_seed(0)
    n_labels, _, _, d, _ = SIZES[size]
    H = np.random.default_rng(1).random((N_SINGLE, d)).astype(np.float32)
    n = N_SINGLE if n_labels < 100_000 else N_SINGLE // 5
    if layer == DENSE:
        index = ExactIndex.build(torch.nn.Linear(d, n_labels).weight.detach().numpy())
        return {"text ms": measure_single(index, H, n)}
    arrays, out = AplcHead(d, make_partition(size, layer), Q).arrays(), {}
    for name, sign in (("text ms", 1), ("head only ms", -1)):
        arrays["clusters"][:] = sign
        out[name] = measure_single(ClusterSearch.from_state(arrays), H, n)
    return out


def measure_single(search: Any, H: np.ndarray, n: int) -> float:
    """The median milliseconds of n texts, one at a time, after three to warm up."""
    took = []
    for i in [0, 1, 2, *range(n)]:
        with Stopwatch() as watch:
            search.topk(H[i : i + 1], K, 1)
        took.append(watch.cpu)
    return 1e3 * float(np.median(took[3:]))


def compute_savings(size: str, layer: str) -> Row:
    """The savings that the paper's equations predict."""
    from longtail.models.aplc.partition import estimate_cost, estimate_touch_probabilities

    n_labels, n_samples, _, _, _ = SIZES[size]
    if layer not in (PAPER, CHEAPEST):
        return {}
    found = make_partition(size, layer)
    p = {n: estimate_touch_probabilities(make_counts(size), found, n_samples, n) for n in (BATCH, 1)}
    sizes = found.sizes
    return {
        "clusters": " ".join(f"{n:,}" for n in sizes.tolist()),
        "eq. 9": n_labels / estimate_cost(sizes, Q),
        "eq. 14": n_labels / estimate_cost(sizes, Q, p[BATCH]),
        "eq. 14, N_b = 1": n_labels / estimate_cost(sizes, Q, p[1]),
    }


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--size", action="append", choices=SIZES, help="only this one; may be repeated")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows: list[Row] = []
    for size in given.size or SIZES:
        dense: Row = {}
        for layer in (DENSE, BLOCKS, PAPER, CHEAPEST):
            print_progress(f"{size}: {layer}")
            done = run("longtail", measure_training, env=one_thread, size=size, layer=layer)
            row = {"labels": size, "layer": layer, **done.result}
            row["step MB"] = done.peak - row.pop("before")
            dense = dense or row
            row |= {"× faster": dense["step ms"] / row["step ms"], "× smaller": dense["step MB"] / row["step MB"]}
            row |= compute_savings(size, layer)
            if layer != BLOCKS:
                row |= run("longtail", measure_prediction, env=one_thread, size=size, layer=layer).result
            rows.append(row)
    notes = [
        f"CPU times of one thread; batches of {BATCH}; q = {Q:g}",
        f"dimensions of the text vectors: {', '.join(f'{size} {of[3]}' for size, of in SIZES.items())}",
        f"medians over {STEPS} steps, {STEPS_LARGE} with 100,000 labels or more; MB: the peak, less the memory before",
        "× faster, × smaller: than the dense layer; eq. 9 is the saving in parameters, eq. 14 that in multiplications",
        "eq. 14, N_b = 1: only samples with a label in a tail are compared with it, which the paper does not count",
        f"text ms: the {K} best labels of one text, no tail skipped; head only: all skipped; dense: exact search too",
    ]
    report({"Output layers": rows}, notes, given.json)


if __name__ == "__main__":
    main()
