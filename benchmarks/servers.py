"""Servers that answer requests for labels, each in a process: ours, LitServe with the same model, and Annif's."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from common import ROOT
from peers import LIMITS, peer_python

if TYPE_CHECKING:
    from longtail import Dataset

K = 5
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
TICKS = os.sysconf("SC_CLK_TCK")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
OUR_PLACE = {"PYTHONPATH": str(ROOT / "src")}
ANNIF_PROJECTS = """
[omikuji]
name=omikuji
language=en
backend=omikuji
vocab=labels
analyzer=snowball(english)

[http]
name=http
language=en
backend=http
vocab=labels
endpoint=http://127.0.0.1:{port}/v1/projects/model/suggest
"""
LITSERVE = """
import litserve, longtail
class API(litserve.LitAPI):
    def setup(self, device): self.tagger = longtail.load({folder!r}).configure(threads=1)
    def decode_request(self, request): return request["texts"]
    def predict(self, texts): return self.tagger.predict(texts, k={k})
    def encode_response(self, out): return {{"results": [[tag._asdict() for tag in tags] for tags in out]}}
class BatchAPI(API):
    def predict(self, requests):
        found = iter(self.tagger.predict([text for texts in requests for text in texts], k={k}))
        return [[next(found) for _ in texts] for texts in requests]
if __name__ == "__main__":
    api = {api}
    litserve.LitServer(api, accelerator="cpu", timeout=60).run(host="127.0.0.1", port={port}, generate_client_file=False)
"""
ALONE, TOGETHER = "API()", "BatchAPI(max_batch_size=64, batch_timeout=0.002)"  # how LitServe predicts requests


def encode_json(texts: list[str]) -> bytes:
    return json.dumps({"texts": texts, "k": K}).encode()


def encode_form(texts: list[str]) -> bytes:
    (text,) = texts  # Annif takes one
    return urlencode({"text": text, "limit": K}).encode()


@dataclass
class Server:
    """A server, while the block of its ``with`` runs."""

    name: str
    command: list[str]
    port: int
    ready: str  # address that answers once it has started
    path: str  # address that predicts
    kind: str = JSON
    encode: Callable[[list[str]], bytes] = encode_json
    folder: Path = field(default_factory=Path.cwd)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address that predicts."""
        return f"http://127.0.0.1:{self.port}{self.path}"

    def __enter__(self) -> Server:
        variables = {**os.environ, **ONE_THREAD, **self.environment}
        self.log = (self.folder / f"{self.name}-{self.port}.log").open("wb")
        self.process = subprocess.Popen(self.command, cwd=self.folder, env=variables, stdout=self.log, stderr=self.log)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}{self.ready}", timeout=5)
                return self
            except OSError:
                time.sleep(0.2)
        raise SystemExit(f"{self.name} did not start: see {self.log.name}")

    def __exit__(self, *problem: object) -> None:
        started = self.list_processes()[1:]
        self.process.terminate()
        self.process.wait(60)
        for pid in started:  # LitServe leaves some behind
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.log.close()

    def list_processes(self) -> list[int]:
        """The process and those that it, or another one of them, has started."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
            except OSError:  # it has ended
                continue
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def measure_cpu(self) -> float:
        """CPU seconds since the start."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in self.list_processes()]
        return sum(int(each[11]) + int(each[12]) for each in fields) / TICKS

    def measure_memory(self) -> float:
        """Megabytes in memory: what is shared counts once (PSS)."""
        return sum(read_rollup(pid)["Pss"] for pid in self.list_processes())


def read_rollup(pid: int) -> dict[str, float]:
    """The memory of a process in MB, by kind, as the kernel counts it (Linux)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(value.split()[0]) * 1024 / 1e6 for name, value in (line.split(":") for line in lines)}


def measure_mapped(pid: int, folder: Path) -> dict[str, float]:
    """What a process has in memory of the files of a folder, in MB: all (Rss), and its share of it (Pss)."""
    found, is_inside = {"Rss": 0.0, "Pss": 0.0}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_inside = f" {folder}/" in line
        elif is_inside and (name := line.partition(":")[0]) in found:
            found[name] += int(line.split()[1]) * 1024 / 1e6
    return found


def find_port() -> int:
    """A free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def make_longtail(model: Path, folder: Path, port: int | None = None, *settings: str) -> Server:
    """Our service, with one thread for predictions."""
    port = port or find_port()
    words = [word for each in ("max_waiting=2000", *settings) for word in ("--set", each)]
    command = [sys.executable, "-m", "longtail", "serve", f"model={model}", "--port", str(port), "--threads", "1", *words]
    paths = "/api/v1/health/ready", "/api/v1/predict"
    return Server("longtail", command, port, *paths, folder=folder, environment=OUR_PLACE)


def make_litserve(model: Path, folder: Path, api: str) -> Server:
    """The same model behind LitServe, which predicts requests ``ALONE`` or ``TOGETHER``."""
    port = find_port()
    script = folder / f"litserve_{port}.py"
    script.write_text(LITSERVE.format(folder=str(model), k=K, port=port, api=api))
    command = [str(peer_python("litserve")), str(script)]
    return Server(
        "LitServe" if api == ALONE else "LitServe, batches",
        command,
        port,
        "/health",
        "/predict",
        folder=folder,
        environment=OUR_PLACE,
    )


def make_annif(project: str, folder: Path) -> Server:
    """Annif's server with one process, as its documentation starts it, in the folder that ``prepare_annif`` has filled."""
    port, programs = find_port(), peer_python("annif").parent
    command = [str(programs / "gunicorn"), "annif:create_cx_app()", "--bind", f"127.0.0.1:{port}", "--workers", "1"]
    command += ["--worker-class", "uvicorn.workers.UvicornWorker", "--timeout", "600"]
    name, path = f"Annif, {project}", f"/v1/projects/{project}/suggest"
    return Server(name, command, port, f"/v1/projects/{project}", path, FORM, encode_form, folder, _annif_place(folder))


def prepare_annif(model: Path, train: Dataset, folder: Path, port: int) -> None:
    """Train omikuji's trees in Annif with the same samples.

    :param model: A model with the labels.
    :param train: Its training samples.
    :param folder: A folder for Annif.
    :param port: The port of our service, for the project with Annif's ``http`` backend.
    """
    import longtail
    from longtail.data.annif import make_uri

    known = longtail.load(model).labels
    # Annif's tokenizer loads a model of abbreviations from another host. An empty one splits words in the same way.
    empty = folder / "nltk" / "tokenizers" / "punkt_tab" / "english"
    empty.mkdir(parents=True)
    for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
        (empty / name).touch()
    (folder / "projects.cfg").write_text(ANNIF_PROJECTS.format(port=port))
    with (folder / "train.tsv").open("w", newline="") as stream:
        table = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        for row, text in enumerate(train.texts or ()):
            uris = [f"<{make_uri(known, known.ids[train.labels.names[i]])}>" for i in train.Y[[row]].indices]
            if uris:
                table.writerow([" ".join(re.findall(r"\w+", text)), " ".join(uris)])
    ours, annif = [sys.executable, "-m", "longtail"], [str(peer_python("annif").parent / "annif")]
    export = [*ours, "labels", str(model), "export", "--format", "annif", "--out", str(folder / "labels.csv")]
    subprocess.run(export, env={**os.environ, **OUR_PLACE}, stdout=sys.stderr, check=True)
    for words in (["load-vocab", "labels", "labels.csv"], ["train", "omikuji", "train.tsv"]):
        variables = {**os.environ, **_annif_place(folder)}
        subprocess.run([*annif, *words], cwd=folder, env=variables, stdout=sys.stderr, check=True)


def _annif_place(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": "", "NLTK_DATA": str(folder / "nltk")}
