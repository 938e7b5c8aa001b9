"""Faults around files: two savers at once, readers beside a saver, kills at random moments, damaged data files.

Each part prints how often nothing was lost, and every exception to that:

- races: two processes save different models to one folder while a third loads it. Afterwards the folder must be intact.
- kills: SIGKILL, SIGTERM or SIGINT at a random moment of train, update, compare and predict. Afterwards the old or the new
  model must load, the next save must leave no remains, and a signal other than SIGKILL must end the command with its exit
  code, at most one line and no traceback. Seconds from the signal to the end are those of this machine under its load.
- data: files of all formats with damaged, repeated, cut or random bytes. Reading must give data or a LongtailError.

    python benchmarks/faults_files.py --races 100 --kills 200 --files 500
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Row, make_parser, print_progress, report

import longtail
from longtail.cli import commands as _commands  # noqa: F401  imported once, for all child processes
from longtail.cli.main import script
from longtail.data.write import write
from longtail.errors import LongtailError
from longtail.tagger.bundle import MANIFEST

_SECONDS = 120.0  # until a command that was ended counts as one that hangs
_SIGNALS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
_WORDS = ["apple", "pear", "iron", "zinc", "violin", "choir", "wave", "harbour", "ripe", "ore", "tune", "tide"]


def make_data(n_samples: int, seed: int) -> longtail.Dataset:
    """Texts of random words; their first letters are the labels."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(_WORDS, k=8)) for _ in range(n_samples)]
    return longtail.Dataset.from_texts(texts, [sorted({word[0] for word in text.split()[:2]}) for text in texts])


def start(work: Callable[[], None]) -> int:
    """Run a function in a child process; exit code 1 if it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001  whatever it is, it is shown
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def run_races(n_races: int, work: Path) -> Counter[str]:
    """Two savers and a reader; the outcome of each race."""
    taggers = [longtail.Tagger("ovr", C=C, min_df=1).fit(make_data(60, seed)) for seed, C in enumerate((1.0, 0.1))]
    expected = {repr(tagger.predict(["apple wave"])) for tagger in taggers}
    found: Counter[str] = Counter()
    for number in range(n_races):
        folder = work / f"race{number}"
        taggers[0].save(folder)

        def save(tagger: longtail.Tagger, folder: Path = folder) -> None:
            for _ in range(3):
                tagger.save(folder, overwrite=True)

        def read(folder: Path = folder) -> None:
            for _ in range(6):
                assert repr(longtail.load(folder).predict(["apple wave"])) in expected

        children = [start(lambda: save(taggers[0])), start(lambda: save(taggers[1])), start(read)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        ok = codes == [0, 0, 0] and is_intact(folder) and repr(longtail.load(folder).predict(["apple wave"])) in expected
        found["intact" if ok else f"broken {codes}"] += 1
        shutil.rmtree(folder)
    return found


def is_intact(folder: Path) -> bool:
    """Whether a folder holds what its manifest names and nothing else."""
    files = json.loads((folder / MANIFEST).read_text())["files"].values()
    return {path.name for path in folder.iterdir()} == {MANIFEST, *(entry["file"] for entry in files)}


def run_kills(n_kills: int, work: Path, rng: random.Random) -> tuple[Counter[str], list[float]]:
    """Signals at random moments of commands; the outcomes, and the seconds from the signal to the end."""
    write(make_data(400, 0), work / "train")
    write(make_data(100, 1), work / "new")
    (work / "texts.txt").write_text("apple wave\n" * 50_000)
    longtail.Tagger("ovr", min_df=1).fit(make_data(400, 0)).save(work / "start")
    commands = {
        "train": "train train.jsonl --method ovr --threads 1 --out model --overwrite",
        "train a network": "train train.jsonl --method neuralxc+epochs=50 --threads 1 --out model --overwrite",
        "update": "update model new.jsonl --old train.jsonl",
        "predict": "predict model texts.txt --threads 1 --out answers.tsv",
        "check": "check train.jsonl new.jsonl",
        "compare": "compare train.jsonl new.jsonl --methods popularity,ovr --out report",
    }
    slow = ("train a network", "compare")  # they import torch, or start processes that import everything
    names = [*(4 * [name for name in commands if name not in slow]), *slow]
    spans = dict.fromkeys(commands, 0.0)
    found: Counter[str] = Counter()
    seconds: list[float] = []
    for number in range(n_kills):
        name = names[number % len(names)]
        if not (work / "model").exists():
            shutil.copytree(work / "start", work / "model")
        if not spans[name]:
            spans[name] = run_to_end(commands[name].split(), work)
        sent = rng.choice(list(_SIGNALS))
        outcome, took = kill_at(commands[name].split(), sent, rng.uniform(0.02, 1.1) * spans[name], work)
        outcome = outcome or check_remains(work)
        found[f"{name}: {outcome or 'nothing lost'}"] += 1
        if took is not None and sent != signal.SIGKILL:
            seconds.append(took)
        if number % 20 == 19:
            print_progress(f"{number + 1} of {n_kills} kills: {dict(found)}")
    return found, seconds


def start_command(words: list[str], work: Path) -> int:
    """Run a command in a child process as the console script does, but with everything imported already."""
    (work / "err").unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.chdir(work)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open("err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background jobs ignore it
        sys.argv = ["longtail", *words]
        script()
    return child


def wait_for(child: int, seconds: float) -> int | None:
    """The exit code of a process; None if it has not ended after some seconds."""
    end = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.002)


def run_to_end(words: list[str], work: Path) -> float:
    """How long a command takes."""
    begin = time.monotonic()
    os.waitpid(start_command(words, work), 0)
    return time.monotonic() - begin


def kill_at(words: list[str], sent: int, after: float, work: Path) -> tuple[str, float | None]:
    """Send a signal to a command after some seconds. Returns what is wrong, and how long it took to end."""
    child = start_command(words, work)
    if (code := wait_for(child, after)) is not None:
        return ("" if code == 0 else f"exit code {code} without a signal"), None
    children = Path(f"/proc/{child}/task/{child}/children").read_text().split()
    begin = time.monotonic()
    os.kill(child, sent)
    code, took = wait_for(child, _SECONDS), time.monotonic() - begin
    err = (work / "err").read_text() if (work / "err").exists() else ""  # ended before it was opened
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hung", None
    if code == 0:
        return "", None
    if code not in (_SIGNALS[signal.Signals(sent)], -sent) or "Traceback" in err:  # -sent: before it has a handler
        return f"exit code {code} {err[-300:]}", took
    time.sleep(0.5 if children else 0)
    alive = [one for one in children if is_running(one)]
    return (f"{len(alive)} workers alive" if alive else ""), took


def is_running(pid: str) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def check_remains(work: Path) -> str:
    """What is wrong with the model after a kill, or with the folder after the next save; empty if nothing is."""
    try:
        tagger = longtail.load(work / "model")
    except LongtailError as error:
        return str(error)
    tagger.save(work / "model", overwrite=True)
    return "" if is_intact(work / "model") else "remains"


def run_files(n_files: int, work: Path, rng: random.Random) -> Counter[str]:
    """Damaged data files; the outcome of each by format."""
    sources = make_files(work)
    found: Counter[str] = Counter()
    for number in range(n_files):
        name, content = sources[number % len(sources)]
        path = work / f"damaged{name[name.index('.') :]}"
        path.write_bytes(damage(content, rng))
        try:
            longtail.read(path, labelled=rng.random() < 0.7)
            outcome = "read"
        except LongtailError as error:
            outcome = "refused" if "\n" not in str(error) else "a message of two lines"
        except Exception as error:  # noqa: BLE001  it is counted
            outcome = f"{type(error).__name__}: {error}"[:200]
        found[f"{name}: {outcome}"] += 1
    return found


def make_files(work: Path) -> list[tuple[str, bytes]]:
    """Files of all formats with the same content."""
    data = make_data(40, 2)
    rows = [{"text": text, "labels": sorted(data.labels.names[i] for i in data.Y[[at]].indices)}
            for at, text in enumerate(data.texts or ())]  # fmt: skip
    jsonl = "".join(json.dumps(row) + "\n" for row in rows)
    table = "text,labels\n" + "".join(f'"{row["text"]}",{";".join(row["labels"])}\n' for row in rows)
    fasttext = "".join(" ".join(f"__label__{label}" for label in row["labels"]) + f" {row['text']}\n" for row in rows)
    X = np.eye(40, 6, dtype=np.float32)
    vectors = "40 6 4\n" + "".join(f"{i % 4} " + " ".join(f"{j}:{X[i, j]:g}" for j in range(6)) + "\n" for i in range(40))
    texts = {"a.jsonl": jsonl, "b.csv": table, "c.tsv": table.replace(",", "\t"), "d.txt": fasttext, "e.txt": vectors}
    files = [(name, text.encode()) for name, text in {**texts, "f.json": json.dumps(rows)}.items()]
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return files
    pq.write_table(pa.Table.from_pylist(rows), work / "g.parquet")
    return [*files, ("g.parquet", (work / "g.parquet").read_bytes()), ("h.jsonl.gz", gzip.compress(jsonl.encode()))]


def damage(content: bytes, rng: random.Random) -> bytes:
    """Change bytes, cut, repeat or insert parts."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, end = sorted(rng.randrange(len(out) + 1) for _ in range(2))
        match rng.randrange(5):
            case 0:
                out[at : at + 1] = rng.randbytes(rng.randint(1, 4))
            case 1:
                del out[at : min(end, at + 50)]
            case 2:
                out[at:at] = out[at : min(end, at + 200)] * rng.choice((1, 1, 50))
            case 3:
                out[at:at] = rng.choice((b"\x00", b"\xff\xfe", b"\n\n\n", b'"', b"[[[[", b"1e999", b"\x1b[31m", b"9" * 30))
            case _:
                del out[at:]
        if not out:
            break
    return bytes(out)


def main() -> None:
    """Run the campaign."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--races", type=int, default=100)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        races = run_races(arguments.races, work)
        print_progress(f"races: {dict(races)}")
        data = run_files(arguments.files, work, rng)
        print_progress(f"files: {dict(data)}")
        kills, seconds = run_kills(arguments.kills, work, rng)
    rows = {
        title: [{"outcome": outcome, "times": n} for outcome, n in sorted(found.items())]
        for title, found in (("Races", races), ("Damaged data files", data), ("Kills", kills))
    }
    tables: dict[str, list[Row]] = {title: list(found) for title, found in rows.items()}
    notes = [f"seed {arguments.seed}"]
    if seconds:
        slow = sum(one > 1 for one in seconds)
        notes.append(
            f"{len(seconds)} commands ended {np.median(seconds):.2f} s (median), at most {max(seconds):.2f} s after SIGINT "
            f"or SIGTERM, {slow} of them after more than a second; load of the machine {os.getloadavg()[0]:.0f}"
        )
    report(tables, notes, arguments.json)


if __name__ == "__main__":
    main()
