"""What training on a cluster costs: CPU seconds of the driver alone and of the workers, and what the shards take on disk.

    python benchmarks/cluster.py --samples 30000 --labels 2000
    python benchmarks/cluster.py --corpus debian-debtags

CPU seconds are those of processes, so that the load of the machine matters little. The overhead is what the workers and the
driver need in addition to training in one process: starting the workers, hashing, writing and reading files.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path

from cluster_faults import make_data
from common import read_corpus

import longtail
from longtail import Dataset, Tagger
from longtail.progress import Display

SPECS = ("ovr+C=1", "plt+C=1", "plt")


def get_cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def measure(spec: str, data: Dataset, shards: int) -> str:
    """A row: what the same training costs without and with a cluster."""
    start = get_cpu(resource.RUSAGE_SELF)
    Tagger(spec, threads=1).fit(data, progress=False)
    alone = get_cpu(resource.RUSAGE_SELF) - start
    start, before = get_cpu(resource.RUSAGE_SELF), get_cpu(resource.RUSAGE_CHILDREN)
    with (
        tempfile.TemporaryDirectory() as folder,
        longtail.cluster("local:2", shards=shards, folder=Path(folder) / "shards") as cluster,
    ):
        Tagger(spec, threads=1).fit(data, cluster=cluster, progress=Display())
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        results = sum(path.stat().st_size for path in files if path.name.startswith("shard-")) / 1e6
        size = sum(path.stat().st_size for path in files) / 1e6
        n_shards = cluster.n_computed
    driver, workers = get_cpu(resource.RUSAGE_SELF) - start, get_cpu(resource.RUSAGE_CHILDREN) - before
    share = 100 * driver / (driver + workers)
    each = f"{workers / n_shards:.2f} s each"
    return (
        f"{spec:<10} one process {alone:6.1f} s | driver {driver:6.1f} s ({share:.0f} %), workers {workers:6.1f} s: "
        f"{n_shards} shards, {each} | {size:.0f} MB on disk, {results:.0f} MB of them results"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="a corpus in the folder LONGTAIL_DATA (default: made-up vectors)")
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--labels", type=int, default=2000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--specs", nargs="+", default=SPECS)
    arguments = parser.parse_args()
    data = read_corpus(arguments.corpus) if arguments.corpus else make_data(arguments.samples, arguments.labels)
    Tagger("plt", threads=1).fit(make_data(300, 80), progress=False)  # compiles
    print(data)
    for spec in arguments.specs:
        print(measure(spec, data, arguments.shards), flush=True)


if __name__ == "__main__":
    main()
