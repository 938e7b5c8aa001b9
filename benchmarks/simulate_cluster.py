"""How far training on a cluster scales: a simulation with measured costs, checked against measured runs.

    chrt -f 10 python benchmarks/simulate_cluster.py --svg docs/cluster-scaling.svg

Costs are fitted to CPU seconds of shards and of the driver's steps, measured in one process on small synthetic corpora: a
tree as for millions of labels (balanced), C given, no calibration. A simulation of the queue of shards with these costs is
then compared with the wall time of other runs, of other sizes, with real processes. Then the same simulation runs with the
shards of a tree of 3 million labels and 500 million texts, on 1 to 64 machines of 16 workers.

Real-time priority (``chrt``) makes wall times meaningful on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import heapq
import time
from math import ceil, log10
from pathlib import Path

import numpy as np
from cluster_costs import FEATURES, MAX_LEAF, SETTINGS, STEPS, Costs, Pieces, fit_costs, measure_run, measure_sizes
from draw import BLUE, GREY, RED, draw_line, draw_text, make_svg
from synthetic import compute_zipf, generate

import longtail
from longtail.linear.node import LABELS_PER_BLOCK
from longtail.models.plt.model import LabelTrees
from longtail.sharding.cluster import SHARDS_PER_WORKER, divide_work

CALIBRATION = (
    (25_000, 3_000, 16, 30),
    (50_000, 8_000, 32, 40),
    (100_000, 12_000, 128, 60),
)  # samples, labels, fanout, shards
CHECKS = ((40_000, 6_000, 64), (150_000, 10_000, 32))  # samples, labels, fanout
CHECK_SHARDS = ((1, 6), (2, 8), (2, 16))  # workers, shards
N_TEXTS, N_LABELS, N_FEATURES, NONZEROS, LABELS_PER_TEXT = 500_000_000, 3_000_000, 1_000_000, 75, 4.4
FANOUTS = (512, 16)  # 512: the default
MACHINES, WORKERS, DISK = (1, 2, 4, 8, 16, 32, 64), 16, 1e9  # workers of a machine; bytes per second that it reads
HOUR, WIDTH, HEIGHT, MARGIN = 3600.0, 640, 360, 60


def simulate(costs: Costs, pieces: Pieces, sizes: np.ndarray, n_workers: int, n_shards: int, disk: float = np.inf) -> dict:
    """Run the queue of shards: each worker takes the next one when it is done with one. Returns seconds."""
    seconds = costs.estimate(pieces, divide_work(pieces.work, n_shards))
    n_bytes = sizes[STEPS.index("writing arrays")]
    start = costs.start + max(costs.hash * n_bytes, min(n_workers, WORKERS) * n_bytes / disk)  # the first shard of a worker
    free = [(0.0, True)] * n_workers
    for each in seconds:
        at, is_new = heapq.heappop(free)
        heapq.heappush(free, (at + each + start * is_new, False))
    driver = costs.driver * sizes
    workers = max(at for at, _ in free)
    return {"driver": driver.sum(), "workers": workers, "total": driver.sum() + workers, "longest": max(seconds)}


def time_run(n_samples: int, n_labels: int, fanout: int, n_workers: int, n_shards: int) -> float:
    """Wall seconds of a run with real processes."""
    X, Y = generate(n_samples, FEATURES, n_labels)
    start = time.perf_counter()
    with longtail.cluster(f"local:{n_workers}", shards=n_shards) as cluster:
        model = LabelTrees(**SETTINGS, fanout=fanout)
        model.cluster = cluster
        model.fit(X, Y)
    return time.perf_counter() - start


def check(costs: Costs) -> None:
    """Print measured and simulated seconds of runs that the costs were not fitted to."""
    print(
        "\n| samples | labels | fanout | workers | shards | measured, s | simulated, s | error |\n|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for size in CHECKS:
        run = measure_run(*size, 1, trained=False)
        for n_workers, n_shards in CHECK_SHARDS:
            measured = time_run(*size, n_workers, n_shards)
            found = simulate(costs, run.pieces, run.sizes, n_workers, n_shards)["total"]
            row = [f"{n:,}" for n in (*size, n_workers, n_shards)]
            print(
                f"| {' | '.join(row)} | {measured:.1f} | {found:.1f} | {100 * (found / measured - 1):+.0f} % |", flush=True
            )


def imagine(costs: Costs, n_samples: int, n_labels: int, fanout: int, seed: int = 0) -> tuple[Pieces, np.ndarray]:
    """The pieces of a balanced tree over labels whose frequency follows Zipf's law, and the sizes of the driver's steps."""
    total = ceil(np.log2(n_labels / MAX_LEAF))
    n_levels = ceil(total / np.log2(fanout))
    splits = [total // n_levels + (level < total % n_levels) for level in range(n_levels)]
    share = np.diff(compute_zipf(n_labels, 0.9, 10 + 2e-4 * n_labels), prepend=0)
    leaves = np.add.reduceat(np.random.default_rng(seed).permutation(share), np.arange(2**total) * n_labels // 2**total)
    per_level = [1 << sum(splits[:level]) for level in range(n_levels + 1)]
    known = np.array(costs.nodes)
    rows, first, depth, width = [], [], [], []
    for level, n_nodes in enumerate(per_level):
        of_sample = 1.0 if level == 0 else float(np.interp(np.log(n_nodes), np.log(known[:, 0]), known[:, 1]))
        n_children = 1 << splits[level] if level < n_levels else ceil(n_labels / n_nodes)
        for start in range(0, n_children, LABELS_PER_BLOCK):
            rows.append(np.minimum(n_samples * of_sample * leaves.reshape(n_nodes, -1).sum(axis=1), n_samples))
            first.append(np.arange(n_nodes) * (2**total // n_nodes))
            depth.append(np.full(n_nodes, level))
            width.append(np.full(n_nodes, min(LABELS_PER_BLOCK, n_children - start)))
    order = np.lexsort((np.concatenate(depth), np.concatenate(first)))
    node = (np.concatenate(depth) * 2**total + np.concatenate(first))[order]
    pieces = Pieces(node, np.concatenate(rows)[order], np.concatenate(width)[order], NONZEROS, N_FEATURES)
    levels = [(n, float(np.interp(np.log(n), np.log(known[:, 0]), known[:, 1]))) for n in per_level[1:]]
    return pieces, measure_sizes(pieces, n_samples, n_samples * LABELS_PER_TEXT, n_labels, levels)


def predict(costs: Costs) -> dict[int, list[float]]:
    """Print what training costs on 1 to 64 machines, for each fanout. Returns the hours."""
    prepare, hours = costs.prepare * N_TEXTS, {}
    for fanout in FANOUTS:
        pieces, sizes = imagine(costs, N_TEXTS, N_LABELS, fanout)
        one = costs.estimate(pieces, [(0, len(pieces.node))])[0]
        print(
            f"\nfanout {fanout}: {len(pieces.node):,} pieces, {one / HOUR:,.0f} core hours of shards; prepare {prepare / HOUR:.1f} h"
        )
        steps = ", ".join(f"{name} {each / HOUR:.2f}" for name, each in zip(STEPS, costs.driver * sizes, strict=True))
        print(
            f"driver, h: {steps}\n\n| machines | shards | workers, h | longest shard, h | total, h | speed-up |\n|--:|--:|--:|--:|--:|--:|"
        )
        hours[fanout] = []
        for machines in MACHINES:
            n_shards = SHARDS_PER_WORKER * machines * WORKERS
            found = {
                name: each / HOUR
                for name, each in simulate(costs, pieces, sizes, machines * WORKERS, n_shards, DISK).items()
            }
            hours[fanout].append(found["total"] + prepare / HOUR)
            row = f"{found['workers']:.1f} | {found['longest']:.1f} | {hours[fanout][-1]:.1f}"
            print(f"| {machines} | {n_shards:,} | {row} | {hours[fanout][0] / hours[fanout][-1]:.1f} |")
    return hours


def draw(hours: dict[int, list[float]]) -> str:
    """Hours against machines, with logarithmic axes."""
    top, bottom = max(map(max, hours.values())) * 1.2, min(each[0] for each in hours.values()) / MACHINES[-1]

    def at(machines: float, value: float) -> tuple[float, float]:
        x = MARGIN + log10(machines) / log10(MACHINES[-1]) * (WIDTH - 2.5 * MARGIN)
        return x, HEIGHT - MARGIN - log10(value / bottom) / log10(top / bottom) * (HEIGHT - 2 * MARGIN)

    parts = [draw_text(MARGIN, 30, "Training on 500 million texts with 3 million labels, simulated: hours", size=14)]
    for machines in MACHINES:
        parts.append(draw_text(at(machines, bottom)[0], HEIGHT - 36, str(machines), anchor="middle"))
    parts.append(draw_text(WIDTH / 2, HEIGHT - 14, f"machines of {WORKERS} workers", anchor="middle", fill=GREY))
    for value in (10**n * m for n in range(-2, 6) for m in (1, 3) if bottom <= 10**n * m <= top):
        (x, y), (x2, _) = at(1, value), at(MACHINES[-1], value)
        parts += [draw_line(x, y, x2, y), draw_text(x - 8, y + 4, f"{value:g}", anchor="end")]
    for (fanout, found), colour in zip(hours.items(), (BLUE, RED), strict=True):
        points = [at(*each) for each in zip(MACHINES, found, strict=True)]
        ideal = [at(machines, found[0] / machines) for machines in (1, MACHINES[-1])]
        parts.append(draw_line(*ideal[0], *ideal[1], colour, ' stroke-dasharray="4 4"'))
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(draw_text(points[-1][0] + 8, points[-1][1] + 4, f"fanout {fanout}", fill=colour))
    return make_svg(WIDTH, HEIGHT, parts)


def main() -> None:
    """Measure, check, simulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", type=Path, help="write the picture to this file")
    arguments = parser.parse_args()
    measure_run(2_000, 500, 8, 4)  # compiles
    costs = fit_costs([measure_run(*size) for size in CALIBRATION])
    print(costs)
    check(costs)
    hours = predict(costs)
    if arguments.svg:
        arguments.svg.write_text(draw(hours))


if __name__ == "__main__":
    main()
