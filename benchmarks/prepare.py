"""Data larger than memory: how much memory the commands need for a corpus that is several times as large as their limit.

    python benchmarks/prepare.py --gigabytes 2.1 --memory 0.4 --folder /tmp/large

makes a synthetic corpus that is sorted by label, runs `prepare`, `train`, `evaluate` and `predict`, each in a process, and
prints the CPU time and the peak memory of each: all of it (VmHWM), and without pages of mapped files (RssAnon), which the
system drops when it needs memory. ``--hold 0.5`` shows that: whenever `train` has more than 0.5 GB, its pages of files are
dropped, as the system would do it (process_madvise with MADV_PAGEOUT; Linux, root).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

PROCESS_MADVISE, MADV_PAGEOUT = 440, 21  # Linux
N_LABELS, N_WORDS = 200, 50_000
DISTINCT_WORDS, REPEATS = 100, 12  # of each text
FEATURES = "ngrams=1+min_df=2+subwords=0+train_on_names=false+C=1"  # nothing is left to trials


def write_corpus(path: Path, n_bytes: float, seed: int = 0) -> int:
    """Write texts of about 9 kB, sorted by their first label. Returns their number."""
    random, n_texts, size = np.random.default_rng(seed), 0, 0
    shares = np.cumsum(1 / np.arange(1, N_WORDS + 1))
    shares /= shares[-1]
    with path.open("w") as stream:
        for label in range(N_LABELS):
            while size < n_bytes * (label + 1) / N_LABELS:
                words = [f"word{i:05d}" for i in np.searchsorted(shares, random.random(DISTINCT_WORDS))]
                labels = sorted({label, int(random.integers(N_LABELS))})
                words += [f"about{i}n{n}" for i in labels for n in random.integers(0, 20, 3)]
                order = random.permutation(np.repeat(np.arange(len(words)), REPEATS)).tolist()
                text = " ".join([words[i] for i in order])
                line = json.dumps({"text": text, "labels": [f"label {i}" for i in labels]}) + "\n"
                stream.write(line)
                n_texts, size = n_texts + 1, size + len(line)
    return n_texts


class Span(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def drop_pages(pid: int) -> None:
    """Make the system drop all pages of files that a process has mapped. It reads them again when it needs them."""
    spans = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, _, _, _, inode, *_ = line.split()
        if inode != "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            spans.append(Span(start, end - start))
    process, libc = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True)
    try:
        for at in range(0, len(spans), 1000):
            part = (Span * len(spans[at : at + 1000]))(*spans[at : at + 1000])
            if libc.syscall(PROCESS_MADVISE, process, part, len(part), MADV_PAGEOUT, 0) < 0:
                raise OSError(ctypes.get_errno(), "process_madvise")
    finally:
        os.close(process)


def measure(words: list[str], hold: float = np.inf) -> dict[str, float]:
    """Run a command. Returns its CPU seconds and its peaks of memory in MB.

    :param hold: MB from which on its pages of files are dropped.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([sys.executable, "-m", "longtail", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peaks = {"VmHWM": 0, "RssAnon": 0}
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            found = {line.partition(":")[0]: line.split()[1] for line in status.splitlines() if line.endswith("kB")}
            if int(found.get("VmRSS", 0)) > 1e3 * hold:
                drop_pages(process.pid)
        except OSError:  # it has ended
            break
        for name, peak in peaks.items():
            peaks[name] = max(peak, int(found.get(name, 0)))
        time.sleep(0.02)
    errors = process.communicate()[1].decode()
    if process.returncode:
        raise SystemExit(f"longtail {' '.join(words)} failed:\n{errors}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": seconds, **{name: kilobytes / 1e3 for name, kilobytes in peaks.items()}}


def main() -> None:
    """Make the corpus, run the commands, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.1, help="size of the corpus")
    parser.add_argument("--memory", type=float, default=0.4, help="limit for prepare, GB")
    parser.add_argument("--folder", type=Path, required=True, help="where everything is written")
    parser.add_argument("--methods", default="ovr,plt")
    parser.add_argument("--hold", type=float, default=np.inf, help="drop pages of train from this much memory on, GB")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    corpus, small, data = (arguments.folder / name for name in ("train.jsonl", "small.jsonl", "prepared"))
    n_texts = write_corpus(corpus, arguments.gigabytes * 1e9)
    write_corpus(small, arguments.gigabytes * 1e8, seed=1)
    methods = arguments.methods.split(",")
    options = ["--threads", "1"]
    runs = {
        "prepare": ["prepare", corpus, "--out", data, "--memory", arguments.memory, "--method", f"ovr+{FEATURES}", *options]
    }
    for method in methods:
        out = arguments.folder / f"model-{method}"
        runs[f"train {method}"] = ["train", data, "--method", f"{method}+{FEATURES}", "--out", out, "--overwrite", *options]
    model = arguments.folder / f"model-{methods[0]}"
    for name, file in (("a tenth", small), ("all", corpus)):
        runs[f"evaluate, {name}"] = ["evaluate", model, file, *options]
        runs[f"predict, {name}"] = ["predict", model, file, "--out", os.devnull, *options]
    size = corpus.stat().st_size / 1e9
    print(f"{size:.2f} GB, {n_texts:,} texts, {N_LABELS} labels; --memory {arguments.memory}\n")
    print("| command | CPU s | peak memory, MB | without mapped files, MB |\n|:--|--:|--:|--:|")
    for name, words in runs.items():
        found = measure([str(word) for word in words], 1e3 * arguments.hold if name.startswith("train") else np.inf)
        print(f"| {name} | {found['cpu']:.0f} | {found['VmHWM']:.0f} | {found['RssAnon']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
