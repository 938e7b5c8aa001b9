"""Signals end every command at once, with one line and the exit code of a shell; nothing outlives its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longtail import Dataset, Tagger
from longtail.data.write import write

SLOW = ["--set", "eps=1e-30", "--set", "max_passes=100000000"]  # one call of a kernel, for hours
ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
has_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed in /proc")


@pytest.fixture
def folder(train: Dataset, tmp_path: Path) -> Path:
    write(train, tmp_path / "train")
    return tmp_path


def run(words: list[str], folder: Path, n_threads: int = 1) -> subprocess.Popen[str]:
    def accept_interrupts() -> None:  # a shell lets background jobs ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    command, pipe = [sys.executable, "-m", "longtail", *words, "--threads", str(n_threads)], subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True, preexec_fn=accept_interrupts
    )


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stderr is not None
    while line not in process.stderr.readline():
        assert process.poll() is None


def end(process: subprocess.Popen[str], number: int) -> str:
    """Send a signal; the rest of stderr."""
    process.send_signal(number)
    try:
        return process.communicate(timeout=60)[1]
    finally:
        process.kill()


@pytest.mark.parametrize(("number", "code", "verb", "n_threads"), [(*ENDS[0], 1), (*ENDS[1], 2)])
def test_training_ends_inside_a_kernel(folder: Path, number: int, code: int, verb: str, n_threads: int) -> None:
    process = run(["train", "train.jsonl", "--method", "ovr", "--out", "model", *SLOW], folder, n_threads)
    wait_for(process, "words: done")
    time.sleep(0.5)  # into the solver
    assert end(process, number) == f"longtail train: {verb}\n" and process.returncode == code
    assert [path.name for path in folder.iterdir()] == ["train.jsonl"]


def test_training_of_a_network_ends(folder: Path) -> None:
    words = ["train", "train.jsonl", "--method", "neuralxc+epochs=100000", "--out", "model", "--set", "checkpoint=run"]
    process = run(words, folder)
    wait_for(process, "epochs")
    err = end(process, signal.SIGTERM)
    assert err.splitlines()[-1] == "longtail train: terminated" and "Traceback" not in err and process.returncode == 143
    assert {path.name for path in folder.iterdir()} <= {"train.jsonl", "run"}  # a checkpoint, complete or none


@pytest.mark.parametrize(("number", "code", "verb"), ENDS)
def test_waiting_for_texts_ends(train: Dataset, folder: Path, number: int, code: int, verb: str) -> None:
    Tagger("popularity").fit(train).save(folder / "model")
    process = run(["predict", "model"], folder)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("ripe apple\n")
    process.stdin.flush()
    assert process.stdout.readline()  # answered; now it waits
    assert end(process, number) == f"longtail predict: {verb}\n" and process.returncode == code


def test_signals_that_are_ignored_stay_ignored(folder: Path) -> None:
    code = "import signal, os, time; signal.signal(2, signal.SIG_IGN)\n"
    code += "from longtail.interruption import end_on_signals; end_on_signals('longtail')\n"
    code += "os.kill(os.getpid(), 2); time.sleep(0.2); signal.signal(15, lambda *_: os._exit(7))\n"
    code += "os.kill(os.getpid(), 15); time.sleep(5)"
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE)
    assert done.returncode == 7 and done.stderr == b""


@has_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_a_comparison(folder: Path, number: int) -> None:
    words = ["compare", "train.jsonl", "train.jsonl", "--methods", "ovr", "--out", "report"]
    process = run([*words, "--set", "ovr.eps=1e-30", "--set", "ovr.max_passes=100000000"], folder)
    wait_for(process, "words: done")
    (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert is_running(worker)
    err = end(process, number)
    assert process.returncode == {2: 130, 9: -9}[number]
    assert number == signal.SIGKILL or err.splitlines()[-1] == "longtail compare: interrupted"
    for _ in range(600):
        if not is_running(worker):
            break
        time.sleep(0.1)
    assert not is_running(worker)


@has_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_driver(folder: Path, number: int) -> None:
    spec = "ovr+C=1+ngrams=1+min_df=1+subwords=0+train_on_names=false"  # the driver makes no trials
    words = ["train", "train.jsonl", "--method", spec, "--out", "model", "--cluster", "local:2", *SLOW]
    process = run(words, folder)
    wait_for(process, "words: done")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for _ in range(600):  # workers start with the first shards
        if workers := children.read_text().split():
            break
        time.sleep(0.1)
    assert workers and all(map(is_running, workers))
    err = end(process, number)
    assert process.returncode == {2: 130, 9: -9}[number]
    assert number == signal.SIGKILL or err.splitlines()[-1] == "longtail train: interrupted"
    for _ in range(600):
        if not any(map(is_running, workers)):
            break
        time.sleep(0.1)
    assert not any(map(is_running, workers))


def is_running(pid: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
