"""The HTTP service under load: next to `predict` in a loop, next to other servers, in an overload, and over minutes.

The load comes from h2load (`apt install nghttp2-client`), over the loopback. Servers run one at a time, with one thread for
predictions. CPU seconds are those of the server; latencies mean something on a quiet machine only, so its load is reported
with them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, report
from servers import (
    ALONE,
    TOGETHER,
    K,
    Server,
    find_port,
    make_annif,
    make_litserve,
    make_longtail,
    measure_mapped,
    prepare_annif,
    read_rollup,
)

BATCH = 100
N_BATCHES, N_SINGLES, N_ROUNDS = 100, 300, 7  # requests of a round
RATES = (50, 100, 200, 400, 800)  # requests of one text per second
N_CLIENTS = 64
N_OVERLOAD = 3000  # requests of BATCH texts
SOAK_RATE, SOAK_BATCHES = 50, 2  # requests per second of one text, and of BATCH texts


class Load(NamedTuple):
    """What h2load has seen."""

    ms: np.ndarray  # of the requests that were answered
    codes: Counter[int]  # status codes; -1: the connection was lost
    seconds: float

    def find_ms(self, share: float) -> float:
        """The milliseconds within which a share of them was answered."""
        return round(float(np.quantile(self.ms, share)), 2) if len(self.ms) else float("nan")


def send(server: Server, texts: list[str], n: int, n_clients: int, rate: float | None = None) -> Load:
    """Send n times the same request.

    :param rate: Requests per second, evenly distributed over the clients and over time. None: each client sends a request
        when it has the answer to the last one.
    """
    with tempfile.TemporaryDirectory() as temporary:
        body, log = Path(temporary) / "body", Path(temporary) / "log"
        body.write_bytes(server.encode(texts))
        words = ["-c", str(n_clients), "-n", str(n), "-d", str(body), "-H", f"content-type: {server.kind}"]
        if rate is not None:  # one client after the other begins, so that they do not all send at the same moment
            period = f"--rate-period={max(int(1000 / rate), 1)}ms"
            words += [f"--rps={rate / n_clients}", "--rate=1", period]
        start = time.perf_counter()
        subprocess.run(["h2load", "--h1", *words, f"--log-file={log}", server.url], check=True, capture_output=True)
        seconds = time.perf_counter() - start
        rows = np.loadtxt(log, dtype=np.int64, ndmin=2)  # start, status code, microseconds
    codes = Counter(rows[:, 1].tolist())
    codes[-1] += n - len(rows)
    return Load(rows[rows[:, 1] == 200, 2] / 1e3, codes, seconds)


def describe_codes(codes: Counter[int]) -> Row:
    return {
        "answered": codes[200],
        "refused (429)": codes[429],
        "errors (5xx)": sum(n for code, n in codes.items() if code >= 500),
        "others": sum(n for code, n in codes.items() if code not in (-1, 200, 429) and code < 500),
        "lost": codes[-1],
    }


def compare_with_loop(tagger: Any, texts: list[str], server: Server) -> list[Row]:
    """Texts per second of `predict` in a loop, and of requests: batches over four connections, single texts over one.

    Both take turns, in rounds; ratios are the median of the rounds.
    """
    rows = []
    for part, n, n_clients in ((texts[:BATCH], N_BATCHES, 4), (choose_text(texts), N_SINGLES, 1)):
        send(server, part, 10, n_clients)
        tagger.predict(part, k=K)
        ours, theirs, walls, ms, codes, loop = [], [], [], [], Counter(), []  # type: ignore[var-annotated]
        for _ in range(N_ROUNDS):
            with Stopwatch() as watch:
                for _ in range(n):
                    with Stopwatch() as one:
                        tagger.predict(part, k=K)
                    loop.append(1e3 * one.wall)
            before = server.measure_cpu()
            load = send(server, part, n, n_clients)
            ours.append(server.measure_cpu() - before)
            theirs.append(watch.cpu)
            walls.append(watch.wall / load.seconds)
            ms.append(load.ms)
            codes += load.codes
        ratios, all_ms, n_texts = np.array(theirs) / ours, np.concatenate(ms), n * N_ROUNDS * len(part)
        rows.append(
            {
                "server": server.name,
                "texts per request": len(part),
                "predict, CPU ms per text": round(1e3 * sum(theirs) / n_texts, 3),
                "server, CPU ms per text": round(1e3 * sum(ours) / n_texts, 3),
                "texts per CPU second, server / predict": round(float(np.median(ratios)), 2),
                "rounds": f"{ratios.min():.2f} to {ratios.max():.2f}",
                "per second": round(float(np.median(walls)), 2),
                "p50 of predict, ms": round(float(np.median(loop)), 2),
                "p50, ms": round(float(np.median(all_ms)), 2),
                "p99, ms": round(float(np.quantile(all_ms, 0.99)), 2),
                **describe_codes(codes),
                "load of the machine": describe_machine(),
            }
        )
        print_progress(f"{rows[-1]}")
    return rows


def choose_text(texts: list[str]) -> list[str]:
    """The text of median length."""
    return [sorted(texts, key=len)[len(texts) // 2]]


def describe_machine() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def offer_rates(server: Server, texts: list[str], seconds: float) -> list[Row]:
    """Latency of single texts over the offered load. It ends when the server answers less than half of it."""
    rows = []
    send(server, choose_text(texts), 50, 1)
    for rate in RATES:
        before, memory = server.measure_cpu(), server.measure_memory()
        n = int(rate * seconds)
        load = send(server, choose_text(texts), n, N_CLIENTS, rate)
        n_answered = load.codes[200]
        rows.append(
            {
                "server": server.name,
                "offered per second": rate,
                "answered per second": round(n_answered / load.seconds),
                "p50, ms": load.find_ms(0.5),
                "p99, ms": load.find_ms(0.99),
                "CPU ms per request": round(1e3 * (server.measure_cpu() - before) / n, 2),
                "memory, MB": round(memory),
                **describe_codes(load.codes),
                "load of the machine": describe_machine(),
            }
        )
        print_progress(f"{rows[-1]}")
        if n_answered / load.seconds < rate / 2:
            break
    return rows


def overload(server: Server, texts: list[str]) -> Row:
    """Many clients, each with a batch after the other: everything is answered or refused, and memory stays the same."""
    send(server, texts[:BATCH], 200, N_CLIENTS)
    before = server.measure_memory()
    load = send(server, texts[:BATCH], N_OVERLOAD, N_CLIENTS)
    return {
        "connections": N_CLIENTS,
        "texts per request": BATCH,
        "seconds": round(load.seconds, 1),
        **describe_codes(load.codes),
        "p99 of answers, ms": load.find_ms(0.99),
        "memory before, MB": round(before),
        "after": round(server.measure_memory()),
        "load of the machine": describe_machine(),
    }


def soak(server: Server, texts: list[str], minutes: float) -> list[Row]:
    """A moderate load over minutes, of single texts and of batches: no errors, and the memory does not grow."""
    found, memory, start = {}, [], time.perf_counter()
    before = server.measure_cpu()

    def work(part: list[str], rate: float, n_clients: int) -> None:
        found[len(part)] = send(server, part, int(60 * minutes * rate), n_clients, rate)

    some = [(choose_text(texts), SOAK_RATE, 16), (texts[:BATCH], SOAK_BATCHES, 2)]
    threads = [threading.Thread(target=work, args=each) for each in some]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        memory.append(server.measure_memory())
        time.sleep(min(60, 6 * minutes))
    for thread in threads:
        thread.join()
    seconds, cpu = time.perf_counter() - start, server.measure_cpu() - before
    return [
        {
            "texts per request": size,
            "requests per second": rate,
            "minutes": round(seconds / 60, 1),
            **describe_codes(found[size].codes),
            "p50, ms": found[size].find_ms(0.5),
            "p99, ms": found[size].find_ms(0.99),
            "memory after the first tenth, MB": round(memory[min(1, len(memory) - 1)], 1),
            "at the end": round(server.measure_memory(), 1),
            "largest": round(max(memory), 1),
            "CPU used": f"{100 * cpu / seconds:.0f} %",
            "load of the machine": describe_machine(),
        }
        for size, rate in ((1, SOAK_RATE), (BATCH, SOAK_BATCHES))
    ]


def share_memory(model: Path, folder: Path, texts: list[str]) -> list[Row]:
    """The memory of one, two and three processes on one port, after requests that all of them have answered."""
    rows, port = [], find_port()
    with ExitStack() as stack:
        servers: list[Server] = []
        for _ in range(3):
            server = make_longtail(model, folder, port, "reuse_port=true")
            servers.append(stack.enter_context(server))
            wait_for_log(server)
            send(server, texts[:BATCH], 200, N_CLIENTS)
            kinds = [read_rollup(each.process.pid) for each in servers]
            mapped = [measure_mapped(each.process.pid, model) for each in servers]
            rows.append(
                {
                    "processes": len(servers),
                    "of one process, MB (RSS)": round(sum(each["Rss"] for each in kinds) / len(kinds)),
                    "of it, files of the model": round(sum(each["Rss"] for each in mapped) / len(kinds)),
                    "of all processes, MB (PSS)": round(sum(each["Pss"] for each in kinds)),
                    "of it, files of the model, all": round(sum(each["Pss"] for each in mapped)),
                }
            )
            print_progress(f"{rows[-1]}")
    return rows


def wait_for_log(server: Server) -> None:
    """Wait until this process listens: on a shared port, another one may have answered."""
    while b"open http" not in Path(server.log.name).read_bytes():
        if server.process.poll() is not None:
            raise SystemExit(f"{server.name} has ended: see {server.log.name}")
        time.sleep(0.2)


def measure_peers(model: Path, train: Any, texts: list[str], folder: Path, seconds: float) -> list[Row]:
    """Latency over load of LitServe with the same model, without and with its batches, and of Annif's server.

    That has omikuji's trees, trained on the same samples; then its ``http`` backend, which asks our service.
    """
    rows, ours = [], find_port()
    prepare_annif(model, train, folder, ours)
    for server in (
        make_litserve(model, folder, ALONE),
        make_litserve(model, folder, TOGETHER),
        make_annif("omikuji", folder),
    ):
        with server:
            rows += offer_rates(server, texts, seconds)
    with make_longtail(model, folder, ours), make_annif("http", folder) as server:
        rows += offer_rates(server, texts, seconds)
    return rows


def main() -> None:
    parser: argparse.ArgumentParser = make_parser(__doc__, None)
    parser.add_argument("--model", type=Path, help="folder of a saved model of texts (default: plt on the built-in corpus)")
    parser.add_argument("--peers", action="store_true", help="also LitServe and Annif, each in an environment that is made")
    parser.add_argument("--seconds", type=float, default=10, help="length of each rate (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=0, help="length of a soak at the end")
    parser.add_argument("--processes", action="store_true", help="only the memory of one to three processes")
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("There is no h2load. Install it: apt install nghttp2-client")
    import longtail

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        train, test = longtail.split("builtin:pydoc", test=0.2)
        model = folder / "plt" if arguments.model is None else arguments.model.resolve()
        if arguments.model is None:
            longtail.Tagger("plt", threads=1).fit(train).save(model)
        texts, tables = list(test.texts or ()), {}
        if arguments.processes:
            tables["memory of several processes"] = share_memory(model, folder, texts)
        else:
            tables = measure_ours(model, texts, folder, arguments.seconds, arguments.minutes)
            if arguments.peers:
                tables["latency over load"] += measure_peers(model, train, texts, folder, arguments.seconds)
    notes = [
        "load of the machine: mean number of processes that compute or wait for a core, over a minute",
        "answered per second, if less is offered than the server can do: about what is offered",
    ]
    report(tables, notes, arguments.json)


def measure_ours(model: Path, texts: list[str], folder: Path, seconds: float, minutes: float) -> dict[str, list[Row]]:
    """Everything about our service."""
    import longtail

    tagger = longtail.load(model).configure(threads=1)
    with make_longtail(model, folder) as server:
        tables = {"next to predict in a loop": compare_with_loop(tagger, texts, server)}
        tables["latency over load"] = offer_rates(server, texts, seconds)
        tables["overload"] = [overload(server, texts)]
        print_progress(f"{tables['overload']}")
        if minutes:
            tables["soak"] = soak(server, texts, minutes)
            print_progress(f"{tables['soak']}")
    return tables


if __name__ == "__main__":
    main()
