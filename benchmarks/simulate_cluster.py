"""How far training on a cluster scales: a simulation with measured costs, checked against measured runs.

    python benchmarks/simulate_cluster.py --costs costs.json --svg docs/cluster-scaling.svg
    chrt -f 10 python benchmarks/simulate_cluster.py --costs costs.json --check

Costs are fitted to CPU seconds of shards and of the driver's steps, measured in one process on small synthetic corpora: a
tree as for millions of labels (balanced), C given, no calibration. A simulation of the queue of shards with these costs is
then compared with the wall time of other runs, of other sizes, with real processes. Then the same simulation runs with the
shards of a tree of 3 million labels and 500 million texts, on 1 to 64 machines of 16 workers.

The first command measures the costs, and writes them to the file; with a file that exists, nothing is measured. The second
one compares. Real-time priority (``chrt``) makes its wall times meaningful on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from dataclasses import asdict
from math import ceil, log10
from pathlib import Path

import numpy as np
from cluster_costs import FEATURES, MAX_LEAF, SETTINGS, STEPS, Costs, Pieces, Run, fit_costs, measure_run, measure_sizes
from draw import BLUE, GREY, RED, draw_line, draw_text, make_svg
from synthetic import compute_zipf, generate

import longtail
from longtail.linear.node import LABELS_PER_BLOCK
from longtail.models.plt.model import LabelTrees
from longtail.sharding.cluster import SHARDS_PER_WORKER, divide_work

CALIBRATION = (  # samples, labels, fanout, shards
    (25_000, 3_000, 16, 30),
    (50_000, 8_000, 32, 40),
    (100_000, 12_000, 128, 60),
)
CHECKS = ((40_000, 6_000, 64), (150_000, 10_000, 32))  # samples, labels, fanout
CHECK_SHARDS = ((1, 6), (2, 8), (2, 16))  # workers, shards
TARGETS = ((500_000_000, 512), (500_000_000, 16), (5_000_000, 512))  # texts, fanout; 512 is the default
N_LABELS, N_FEATURES, NONZEROS, LABELS_PER_TEXT = 3_000_000, 1_000_000, 75, 4.4
N_WORKERS, WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), 16  # WORKERS: of a machine
DISK = 1e9  # bytes per second that a machine reads from a shared disk
HOUR, WIDTH, HEIGHT, MARGIN, GREEN = 3600.0, 720, 400, 60, "#2e8540"


def simulate(costs: Costs, pieces: Pieces, sizes: np.ndarray, n_workers: int, n_shards: int, disk: float = np.inf) -> dict:
    """Run the queue of shards: each worker takes the next one when it is done with one. Returns seconds."""
    seconds = costs.estimate(pieces, divide_work(pieces.work, n_shards))
    n_bytes = sizes[STEPS.index("writing arrays")]
    start = costs.start + max(costs.hash * n_bytes, min(n_workers, WORKERS) * n_bytes / disk)  # the first shard of a worker
    free = [(0.0, True)] * n_workers
    for each in seconds:
        at, is_new = heapq.heappop(free)
        heapq.heappush(free, (at + each + start * is_new, False))
    driver = np.array(costs.driver) * sizes
    workers = max(at for at, _ in free)
    return {"driver": driver.sum(), "workers": workers, "total": driver.sum() + workers, "longest": max(seconds)}


def show_shards(runs: list[Run]) -> None:
    """Print what shards with blocks of the root and others have cost."""
    print("| samples | labels | shards | samples × children × non-zeros | CPU s | ns |\n|--:|--:|:--|--:|--:|--:|")
    for (n_samples, n_labels, _, _), run in zip(CALIBRATION, runs, strict=True):
        of_root = [each for each in run.shards if run.pieces.node[each[0]] == 0]
        for name, shards in (("of the root", of_root), ("others", [each for each in run.shards if each not in of_root])):
            work = sum(run.pieces.work[first:end].sum() for first, end, _ in shards) * run.pieces.nonzeros
            seconds = sum(each for _, _, each in shards)
            row = f"{n_samples:,} | {n_labels:,} | {len(shards)} {name} | {work:.2g} | {seconds:.2f}"
            print(f"| {row} | {1e9 * seconds / work:.1f} |")


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
    print("\n| samples | labels | fanout | workers | shards | measured, s | simulated, s | error |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
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


def predict(costs: Costs, n_texts: int, fanout: int) -> list[float]:
    """Print what training costs on 1 to 64 machines. Returns the hours."""
    pieces, sizes = imagine(costs, n_texts, N_LABELS, fanout)
    prepare, one = costs.prepare * n_texts / HOUR, costs.estimate(pieces, [(0, len(pieces.node))])[0] / HOUR
    memory, files = (f"{each / 1e9:,.0f} GB" for each in (5 * pieces.work.max(), 16 * n_texts * NONZEROS))
    print(f"\n{n_texts:,} texts, fanout {fanout}: {len(pieces.node):,} pieces, {one:,.1f} core hours of shards")
    print(f"prepare {prepare:.2f} h; the largest piece: {memory} of memory, {files} of temporary files")
    steps = ", ".join(f"{name} {each / HOUR:.3f}" for name, each in zip(STEPS, np.array(costs.driver) * sizes, strict=True))
    print(f"driver, h: {steps}\n\n| workers | machines | shards | workers, h | longest shard, h | total, h | speed-up |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    hours: list[float] = []
    for n_workers in N_WORKERS:
        found = simulate(costs, pieces, sizes, n_workers, SHARDS_PER_WORKER * n_workers, DISK)
        hours.append(found["total"] / HOUR + prepare)
        machines = f"{n_workers // WORKERS}" if n_workers >= WORKERS else "–"
        times = f"{found['workers'] / HOUR:.2f} | {found['longest'] / HOUR:.2f} | {hours[-1]:.2f}"
        print(f"| {n_workers:,} | {machines} | {SHARDS_PER_WORKER * n_workers:,} | {times} | {hours[0] / hours[-1]:.1f} |")
    return hours


def draw(hours: dict[str, list[float]]) -> str:
    """Hours against workers, with logarithmic axes."""
    top, bottom = max(map(max, hours.values())) * 1.3, min(map(min, hours.values())) / 2

    def at(n_workers: float, value: float) -> tuple[float, float]:
        x = MARGIN + log10(n_workers) / log10(N_WORKERS[-1]) * (WIDTH - 4 * MARGIN)
        return x, HEIGHT - MARGIN - log10(value / bottom) / log10(top / bottom) * (HEIGHT - 2 * MARGIN)

    parts = [draw_text(MARGIN, 30, "prepare and train with 3 million labels, simulated: hours against workers", size=14)]
    parts += [draw_text(at(n, bottom)[0], HEIGHT - 36, f"{n:,}", anchor="middle") for n in N_WORKERS]
    parts.append(
        draw_text(WIDTH / 2 - MARGIN, HEIGHT - 14, f"workers; {WORKERS} of them are a machine", anchor="middle", fill=GREY)
    )
    for value in (10**n * m for n in range(-3, 6) for m in (1, 3) if bottom <= 10**n * m <= top):
        (x, y), (x2, _) = at(1, value), at(N_WORKERS[-1], value)
        parts += [draw_line(x, y, x2, y), draw_text(x - 8, y + 4, f"{value:g}", anchor="end")]
    for (name, found), colour in zip(hours.items(), (BLUE, RED, GREEN), strict=True):
        points = [at(*each) for each in zip(N_WORKERS, found, strict=True)]
        last = max(n for n in N_WORKERS if found[0] / n >= bottom)
        parts.append(draw_line(*points[0], *at(last, found[0] / last), colour, ' stroke-dasharray="4 4"'))
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(draw_text(points[-1][0] + 8, points[-1][1] + 4, name, fill=colour))
    return make_svg(WIDTH, HEIGHT, parts)


def main() -> None:
    """Measure, check, simulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", type=Path, help="write the picture to this file")
    parser.add_argument("--costs", type=Path, required=True, help="file of the costs; measured if it does not exist")
    parser.add_argument("--check", action="store_true", help="compare with runs that are measured now")
    arguments = parser.parse_args()
    if not arguments.costs.exists():
        measure_run(2_000, 500, 8, 4)  # compiles
        runs = [measure_run(*size) for size in CALIBRATION]
        show_shards(runs)
        arguments.costs.write_text(json.dumps(asdict(fit_costs(runs)), indent=1))
    costs = Costs(**json.loads(arguments.costs.read_text()))
    print(f"\n{costs}")
    if arguments.check:
        check(costs)
        return
    hours = {
        f"{n_texts / 1e6:,.0f} M texts, fanout {fanout}": predict(costs, n_texts, fanout) for n_texts, fanout in TARGETS
    }
    if arguments.svg:
        arguments.svg.write_text(draw(hours))


if __name__ == "__main__":
    main()
