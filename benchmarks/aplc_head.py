"""The output layer of APLC beside a dense one: time and memory of a training step, time of a prediction, and what the
paper's eqs. 9 and 14 say that it should save.

Text vectors are drawn at random; samples get their labels from a Zipf distribution, one by one. A step is forward, backward
and AdamW on a batch of 32. The sizes and widths are those of EURLex-4k, of a thesaurus of 36,000 subjects, of Wiki-500k and
of Amazon-670k, cut as in the paper, and where a step should cost least. One thread, each case in its own process; times are
CPU times, which others on the machine disturb less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import Row, Stopwatch, arguments, memory, note, report
from peers import LIMITS, run

HALVES, QUARTERS = [0.5, 0.5], [0.25] * 4
# labels, training samples, labels of a sample, width, shares of the paper
SIZES: dict[str, tuple[int, int, float, int, list[float]]] = {
    "4k": (3_956, 15_449, 5.3, 768, HALVES),
    "36k": (36_000, 50_000, 6.0, 768, HALVES),
    "500k": (501_008, 1_779_881, 4.75, 512, QUARTERS),
    "670k": (670_091, 490_449, 5.45, 384, QUARTERS),
}
DENSE, BLOCKS, PAPER, CHEAPEST = "dense", "dense, in blocks", "APLC, the paper's cut", "APLC, the cheapest cut"
BATCH, Q, K, RATE = 32, 2.0, 5, 1e-3
STEPS, FEWER = 20, 4  # the latter with many labels
N_SINGLE = 100


def counts_of(size: str) -> np.ndarray:
    """How many samples each label has: Zipf's law, at least one."""
    n_labels, n_samples, per_sample, _, _ = SIZES[size]
    shape = 1 / np.arange(1, n_labels + 1)
    return np.clip(shape / shape.sum() * n_samples * per_sample, 1, n_samples / 2).round().astype(int)


def cut_of(size: str, layer: str) -> Any:
    """The partition of one of the two APLC layers."""
    from longtail.models.aplc.partition import by_proportions, cheapest

    _, n_samples, _, d, shares = SIZES[size]
    counts = counts_of(size)
    return by_proportions(counts, shares) if layer == PAPER else cheapest(counts, n_samples, d=d, q=Q)


def batches(size: str, n: int) -> list[sp.csr_array]:
    """Label sets of some batches."""
    n_labels, _, per_sample, _, _ = SIZES[size]
    random, share = np.random.default_rng(0), counts_of(size) / counts_of(size).sum()
    out = []
    for _ in range(n):
        sets = [np.unique(random.choice(n_labels, m, p=share)) for m in np.maximum(random.poisson(per_sample, BATCH), 1)]
        indptr = np.concatenate([[0], np.cumsum([len(s) for s in sets])])
        out.append(sp.csr_array((np.ones(indptr[-1], np.float32), np.concatenate(sets), indptr), (BATCH, n_labels)))
    return out


def layer_of(size: str, layer: str) -> tuple[Any, Callable[[Any, sp.csr_array], Any]]:
    """A module, and its loss of text vectors and label sets."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    from longtail.models.aplc.network import AplcHead
    from longtail.nn.losses import full_loss, positives

    n_labels, _, _, d, _ = SIZES[size]
    if layer in (PAPER, CHEAPEST):
        head = AplcHead(d, cut_of(size, layer), Q)
        return head, lambda H, Y: head.loss(H, positives(Y))
    linear = torch.nn.Linear(d, n_labels)
    if layer == BLOCKS:
        return linear, lambda H, Y: full_loss("bce", H, linear.weight, linear.bias, positives(Y)) / n_labels
    return linear, lambda H, Y: binary_cross_entropy_with_logits(linear(H), torch.from_numpy(Y.toarray()))


def training(size: str, layer: str) -> Row:
    """Milliseconds of a step, and the memory before there was a layer."""
    import torch

    torch.manual_seed(0)
    given = batches(size, 1 + (STEPS if SIZES[size][0] < 100_000 else FEWER))
    torch.optim.AdamW([torch.ones(1, requires_grad=True)]).step()  # loads what torch loads when it is first used
    before = memory("VmRSS")
    module, loss = layer_of(size, layer)
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
    both = np.median([whole[1:], updates[1:]], axis=1) * 1e3  # the first makes the optimiser's state
    return {"parameters": parameters, "step ms": both[0], "of it AdamW ms": both[1], "before": before}


def prediction(size: str, layer: str) -> Row:
    """Milliseconds of one text: if no tail can be left out, and if all can."""
    import torch

    from longtail.models.aplc.network import AplcHead
    from longtail.models.aplc.search import ClusterSearch
    from longtail.search.exact import ExactIndex

    torch.manual_seed(0)
    n_labels, _, _, d, _ = SIZES[size]
    H = np.random.default_rng(1).random((N_SINGLE, d)).astype(np.float32)
    n = N_SINGLE if n_labels < 100_000 else N_SINGLE // 5
    if layer == DENSE:
        index = ExactIndex.build(torch.nn.Linear(d, n_labels).weight.detach().numpy())
        return {"text ms": single_ms(index, H, n)}
    arrays, out = AplcHead(d, cut_of(size, layer), Q).arrays(), {}
    for name, sign in (("text ms", 1), ("head only ms", -1)):
        arrays["clusters"][:] = sign
        out[name] = single_ms(ClusterSearch.restored(arrays), H, n)
    return out


def single_ms(search: Any, H: np.ndarray, n: int) -> float:
    """The median of n texts one by one, after some that do not count."""
    took = []
    for i in [0, 1, 2, *range(n)]:
        with Stopwatch() as watch:
            search.topk(H[i : i + 1], K, 1)
        took.append(watch.cpu)
    return 1e3 * float(np.median(took[3:]))


def predicted(size: str, layer: str) -> Row:
    """What the paper's formulas say."""
    from longtail.models.aplc.partition import cost, touch_probabilities

    n_labels, n_samples, _, _, _ = SIZES[size]
    if layer not in (PAPER, CHEAPEST):
        return {}
    found = cut_of(size, layer)
    p = {n: touch_probabilities(counts_of(size), found, n_samples, n) for n in (BATCH, 1)}
    sizes = found.sizes
    return {
        "clusters": " ".join(f"{n:,}" for n in sizes.tolist()),
        "eq. 9": n_labels / cost(sizes, Q),
        "eq. 14": n_labels / cost(sizes, Q, p[BATCH]),
        "eq. 14, N_b = 1": n_labels / cost(sizes, Q, p[1]),
    }


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--size", action="append", choices=SIZES, help="only this one; may be given again")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows: list[Row] = []
    for size in given.size or SIZES:
        dense: Row = {}
        for layer in (DENSE, BLOCKS, PAPER, CHEAPEST):
            note(f"{size}: {layer}")
            done = run("longtail", training, env=one_thread, size=size, layer=layer)
            row = {"labels": size, "layer": layer, **done.result}
            row["step MB"] = done.peak - row.pop("before")
            dense = dense or row
            row |= {"× faster": dense["step ms"] / row["step ms"], "× smaller": dense["step MB"] / row["step MB"]}
            row |= predicted(size, layer)
            if layer != BLOCKS:
                row |= run("longtail", prediction, env=one_thread, size=size, layer=layer).result
            rows.append(row)
    notes = [
        f"CPU times of one thread; batches of {BATCH}; q = {Q:g}",
        f"widths of the text vectors: {', '.join(f'{size} {of[3]}' for size, of in SIZES.items())}",
        f"medians over {STEPS} steps, {FEWER} with 100,000 labels or more; MB: the peak above what the process took before",
        "× faster, × smaller: than the dense layer; eq. 9 is the saving in parameters, eq. 14 that in multiplications",
        "eq. 14, N_b = 1: only the samples that touch a tail are compared with it, which the paper does not count",
        f"text ms: the {K} best labels of one text, no tail left out; head only: all left out; dense: exact search too",
    ]
    report({"Output layers": rows}, notes, given.json)


if __name__ == "__main__":
    main()
