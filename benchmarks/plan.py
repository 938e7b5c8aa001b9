"""Compare the estimates of ``longtail choose`` with measurements: CPU seconds, peak memory, size of the saved model.

Each method is trained in a separate process, with one thread. The constants of the estimates were fitted to other runs:
bibtex, delicious, reuters21578-modapte, debian-debtags, gutenberg-lcsh and finna-yso-en in full, and slices of 1,000,
3,000 and 10,000 samples of debian-debtags, 1,500 and 6,000 of gutenberg-lcsh, 10,000 and 30,000 of finna-yso-en. The corpora
pydoc and wordnet-hypernyms, and the slices, were not used for fitting.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report, save_and_load
from peers import LIMITS, run

if TYPE_CHECKING:
    from longtail import Dataset

LINEAR, NETWORKS = ("ovr", "plt", "hierarchicalxc"), ("glas", "neuralxc")
TEXT_METHODS, SLOW = ("aplc", "secseq"), ("lightattention", "plt+dense=minilm", "blend:attention", "aplc:minilm-tuned")
# Corpus, samples of the slice, and what is trained on it.
RUNS = (
    ("pydoc", 6_463, (*LINEAR, *NETWORKS, *TEXT_METHODS, "blend")),
    ("pydoc", 2_000, ("lightattention",)),
    ("delicious", 6_000, (*LINEAR, *NETWORKS, "blend")),
    ("reuters21578-modapte", 1_000, (*LINEAR, *NETWORKS, *TEXT_METHODS, *SLOW)),
    ("wordnet-hypernyms", 8_000, LINEAR),
    ("gutenberg-lcsh", 12_000, (*LINEAR, "glas")),
    ("finna-yso-en", 60_000, ("plt", "hierarchicalxc")),
)
WITHIN = 2.0


def read_slice(name: str, rows: int) -> Dataset:
    """A random slice of a corpus."""
    import longtail

    data = longtail.read("builtin:pydoc") if name == "pydoc" else read_corpus(name)
    return data.take(np.sort(np.random.default_rng(7).permutation(data.n_samples)[:rows]))


def measure(name: str, rows: int, method: str) -> Row:
    """Train and save one method, after measuring the speed of the machine."""
    from longtail import MethodSpec
    from longtail.selection.costs import read_constants
    from longtail.selection.machine import measure_machine

    data, machine = read_slice(name, rows), measure_machine(**read_constants()["machine"])
    spec = MethodSpec.parse(method)
    spec.build(0, 1).fit(data.take(np.arange(200)))  # compiles the kernels, which does not count
    with Stopwatch() as training:
        tagger = spec.build(0, 1).fit(data)
    return {"seconds": training.cpu, "size": save_and_load(tagger)[1], "machine": asdict(machine)}


@cache
def profile_slice(name: str, rows: int) -> Any:
    """The profile that the estimates are based on."""
    from longtail.selection.profile import profile_data

    return profile_data(read_slice(name, rows))


def compare_estimate(name: str, rows: int, method: str, found: Row) -> Row:
    """A row of the table: estimates and measurements."""
    from longtail.selection.costs import estimate
    from longtail.selection.machine import Machine

    cost = asdict(estimate(method, profile_slice(name, rows), Machine(**found["machine"])))
    row: Row = {"corpus": name, "samples": rows, "method": method}
    for what, unit in (("seconds", "CPU-s"), ("memory", "peak MB"), ("size", "size MB")):
        row |= {f"{unit}, estimated": cost[what], unit: found[what], f"{unit}, ratio": cost[what] / found[what]}
    return row


def main() -> None:
    """Run what is missing, and print the table."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=sorted({name for name, _, _ in RUNS}), help="only this one")
    parser.add_argument("--method", action="append", help="only this one; may be repeated")
    parser.add_argument(
        "--measured", type=Path, metavar="FILE", help="runs are added to this file; those in it are not repeated"
    )
    given = parser.parse_args()
    lines = given.measured.read_text().splitlines() if given.measured and given.measured.exists() else []
    known = {(line["corpus"], line["rows"], line["method"]): line for line in map(json.loads, lines)}
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    table: list[Row] = []
    for name, rows, methods in RUNS:
        for method in methods:
            if (given.corpus and name not in given.corpus) or (given.method and method not in given.method):
                continue
            if (name, rows, method) not in known:
                print_progress(f"{name}, {rows:,} samples: {method}")
                done = run("longtail", measure, env=one_thread, name=name, rows=rows, method=method)
                found = {"corpus": name, "rows": rows, "method": method, **done.result, "memory": done.peak}
                known[name, rows, method] = found
                if given.measured:
                    with given.measured.open("a") as stream:
                        stream.write(json.dumps(found) + "\n")
            table.append(compare_estimate(name, rows, method, known[name, rows, method]))
    report({"Estimated and measured": table}, summarise(table), given.json)


def summarise(table: list[Row]) -> list[str]:
    """How many estimates are within a factor of two, and the mean factor."""
    out = []
    for unit in ("CPU-s", "peak MB", "size MB"):
        ratios = [row[f"{unit}, ratio"] for row in table]
        near = sum(1 / WITHIN <= ratio <= WITHIN for ratio in ratios)
        off = exp(sum(abs(log(ratio)) for ratio in ratios) / len(ratios))
        worst = max(table, key=lambda row: abs(log(row[f"{unit}, ratio"])))
        where = f"{worst[f'{unit}, ratio']:.2f}, {worst['method']} on {worst['corpus']}"
        counted = f"{near} of {len(ratios)} within a factor of {WITHIN:g}"
        out.append(f"{unit}: {counted}; off by a factor of {off:.2f} in the mean, at worst {where}")
    return out


if __name__ == "__main__":
    main()
