"""The HTTP service: throughput and latency next to `predict` in a loop, latency over offered load, overload, a soak.

The service runs in another process, with one thread for predictions; the load comes from this one, over the loopback, and is
bounded in requests and time. CPU seconds are those of the service; wall times mean something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, make_parser, print_progress, report

K = 5
BATCH = 100
N_BATCHES, N_SINGLES = 60, 400
SECONDS = 8.0  # of one rate, and of the overload
SHARES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # of the capacity for single texts
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Connection:
    """One HTTP/1.1 connection that is kept open."""

    def __init__(self, port: int, path: str = "/api/v1/predict") -> None:
        self.port, self.path, self.reader, self.writer = port, path, None, None

    async def post(self, body: bytes) -> tuple[int, bytes]:
        """Send a request; returns the status and the answer. 0: the connection was lost."""
        try:
            if self.writer is None:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
            fields = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            self.writer.write(f"POST {self.path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body)
            head = await self.reader.readuntil(b"\r\n\r\n")
            size = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])
            return int(head.split(b" ", 2)[1]), await self.reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0, b""

    def close(self) -> None:
        """Close the connection."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class Server:
    """The service, or a peer, in another process."""

    def __init__(self, command: list[str], ready: str, port: int) -> None:
        self.process, self.port, self.ready = subprocess.Popen(command, stderr=subprocess.DEVNULL), port, ready

    def __enter__(self) -> Server:
        for _ in range(600):
            done = subprocess.run(
                [sys.executable, "-c", f"import urllib.request as u; u.urlopen('http://127.0.0.1:{self.port}{self.ready}')"],
                capture_output=True,
            )
            if done.returncode == 0:
                return self
            time.sleep(0.2)
        raise SystemExit("the server did not start")

    def __exit__(self, *problem: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def list_processes(self) -> list[int]:
        """The process and those that it has started."""
        found = [self.process.pid]
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) in found:
                found.append(int(path.parent.name))
        return found

    def measure(self) -> tuple[float, float]:
        """CPU seconds, and megabytes in memory."""
        cpu = memory = 0.0
        for pid in self.list_processes():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            cpu += (int(fields[11]) + int(fields[12])) / TICKS
            memory += int(fields[21]) * PAGE / 1e6
        return cpu, memory


def encode(texts: list[str]) -> bytes:
    return json.dumps({"texts": texts, "k": K}).encode()


async def send_all(port: int, bodies: list[bytes], n_connections: int, path: str) -> tuple[list[float], Counter[int]]:
    """Send requests over some connections, each after the answer to the last one. Returns seconds and status codes."""
    queue, seconds, codes = list(reversed(bodies)), [], Counter()

    async def work() -> None:
        connection = Connection(port, path)
        while queue:
            body, start = queue.pop(), time.perf_counter()
            status, _ = await connection.post(body)
            seconds.append(time.perf_counter() - start)
            codes[status] += 1
        connection.close()

    await asyncio.gather(*(work() for _ in range(n_connections)))
    return seconds, codes


async def offer(port: int, body: bytes, rate: float, duration: float) -> tuple[list[float], Counter[int]]:
    """Send requests at a rate, whether or not earlier ones were answered."""
    seconds, codes, idle, tasks = [], Counter(), [], []

    async def one() -> None:
        connection = idle.pop() if idle else Connection(port)
        start = time.perf_counter()
        status, _ = await connection.post(body)
        if status == 200:
            seconds.append(time.perf_counter() - start)
        codes[status] += 1
        idle.append(connection)

    start = time.perf_counter()
    for n in range(int(rate * duration)):
        await asyncio.sleep(max(start + n / rate - time.perf_counter(), 0))
        tasks.append(asyncio.ensure_future(one()))
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return seconds, codes


def find_ms(seconds: list[float], share: float) -> float:
    return round(1e3 * float(np.quantile(seconds, share)), 2) if seconds else float("nan")


def measure_against_loop(tagger: Any, texts: list[str], server: Server, name: str, path: str) -> list[Row]:
    """Texts per second of `predict` in a loop, and of requests: batches over two connections, single texts over one."""
    rows = []
    for size, n, n_connections in ((BATCH, N_BATCHES, 2), (1, N_SINGLES, 1)):
        parts = [[texts[(i * size + j) % len(texts)] for j in range(size)] for i in range(n)]
        bodies = [encode(part) for part in parts]
        asyncio.run(send_all(server.port, bodies[:10], n_connections, path))
        tagger.predict(parts[0], k=K)
        cpu, wall, loop = -time.process_time(), -time.perf_counter(), []
        for part in parts:
            start = time.perf_counter()
            tagger.predict(part, k=K)
            loop.append(time.perf_counter() - start)
        cpu, wall = cpu + time.process_time(), wall + time.perf_counter()
        before, start = server.measure()[0], time.perf_counter()
        seconds, codes = asyncio.run(send_all(server.port, bodies, n_connections, path))
        server_wall, server_cpu = time.perf_counter() - start, server.measure()[0] - before
        rows.append(
            {
                "server": name,
                "texts per request": size,
                "predict, CPU ms per text": round(1e3 * cpu / (n * size), 3),
                "server, CPU ms per text": round(1e3 * server_cpu / (n * size), 3),
                "throughput, by CPU": round(cpu / server_cpu, 2),
                "by wall": round(wall / server_wall, 2),
                "p50 of predict, ms": find_ms(loop, 0.5),
                "p50 of the server, ms": find_ms(seconds, 0.5),
                "p99": find_ms(seconds, 0.99),
                "answers": dict(codes),
            }
        )
    return rows


def measure_rates(server: Server, text: str, capacity: float) -> list[Row]:
    """Latency of single texts over the offered load."""
    rows = []
    for share in SHARES:
        seconds, codes = asyncio.run(offer(server.port, encode([text]), share * capacity, SECONDS))
        rows.append(
            {
                "requests per second": round(share * capacity),
                "p50, ms": find_ms(seconds, 0.5),
                "p99, ms": find_ms(seconds, 0.99),
                "answered": codes[200],
                "refused (429)": codes[429],
                "others": {code: n for code, n in codes.items() if code not in (200, 429)},
            }
        )
        print_progress(f"{rows[-1]}")
    return rows


def overload(server: Server, texts: list[str], seconds: float, n_connections: int) -> Row:
    """Many clients, each with a batch after the other: everything is answered or refused, and memory stays the same."""
    body = encode(texts[:BATCH])
    asyncio.run(send_all(server.port, [body] * 20, 4, "/api/v1/predict"))
    before, codes, times, rounds = server.measure()[1], Counter(), [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        some, found = asyncio.run(send_all(server.port, [body] * (2 * n_connections), n_connections, "/api/v1/predict"))
        codes += found
        times += some
        rounds.append(server.measure()[1])
    return {
        "connections": n_connections,
        "seconds": round(seconds),
        "requests": sum(codes.values()),
        "answered": codes[200],
        "refused (429)": codes[429],
        "errors (5xx)": sum(n for code, n in codes.items() if code >= 500),
        "lost": codes[0],
        "p99, ms": find_ms(times, 0.99),
        "memory before, MB": round(before),
        "first round": round(rounds[0]),
        "last": round(rounds[-1]),
    }


def make_litserve(folder: str, port: int) -> list[str]:
    """The command that serves the same model with LitServe, with its batching."""
    code = f"""
import litserve, longtail
class API(litserve.LitAPI):
    def setup(self, device): self.tagger = longtail.load({folder!r}).configure(threads=1)
    def decode_request(self, request): return request["texts"]
    def predict(self, texts): return self.tagger.predict(texts, k={K})
    def encode_response(self, out): return {{"results": [[tag._asdict() for tag in tags] for tags in out]}}
if __name__ == "__main__":
    litserve.LitServer(API(), accelerator="cpu", timeout=60).run(host="127.0.0.1", port={port}, generate_client_file=False)
"""
    path = Path(folder).parent / "serve_litserve.py"
    path.write_text(code)
    return [sys.executable, str(path)]


def main() -> None:
    parser: argparse.ArgumentParser = make_parser(__doc__, None)
    parser.add_argument("--model", help="folder of a saved model of texts (default: plt on the built-in corpus)")
    parser.add_argument("--minutes", type=float, default=0, help="length of a soak at the end")
    parser.add_argument("--litserve", action="store_true", help="also measure LitServe, which must be installed")
    parser.add_argument("--port", type=int, default=8765)
    arguments = parser.parse_args()
    import longtail

    with tempfile.TemporaryDirectory() as temporary:
        train, test = longtail.split("builtin:pydoc", test=0.2)
        folder = arguments.model or f"{temporary}/plt"
        if arguments.model is None:
            longtail.Tagger("plt", threads=1).fit(train).save(folder)
        tagger, texts = longtail.load(folder).configure(threads=1), list(test.texts or ())
        settings = ["--threads", "1", "--set", "max_waiting=2000", "--feedback", f"{temporary}/feedback"]
        command = [sys.executable, "-m", "longtail", "serve", folder, "--port", str(arguments.port), *settings]
        tables: dict[str, list[Row]] = {}
        with Server(command, "/api/v1/health/ready", arguments.port) as server:
            rows = measure_against_loop(tagger, texts, server, "longtail", "/api/v1/predict")
            print_progress(f"{rows}")
            capacity = 1e3 / max(rows[1]["server, CPU ms per text"], 0.1)
            tables["latency over load"] = measure_rates(server, texts[0], capacity)
            tables["overload"] = [overload(server, texts, SECONDS, 64)]
            if arguments.minutes:
                tables["soak"] = [overload(server, texts, 60 * arguments.minutes, 8)]
        if arguments.litserve:
            port = arguments.port + 1
            with Server(make_litserve(folder, port), "/health", port) as server:
                rows += measure_against_loop(tagger, texts, server, "LitServe", "/predict")
        tables = {"next to predict in a loop": rows, **tables}
    notes = ["throughput, by CPU: CPU seconds of `predict` in a loop, divided by those of the server for the same texts"]
    report(tables, notes, arguments.json)


if __name__ == "__main__":
    main()
