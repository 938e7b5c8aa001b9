"""A real process with a real connection: start, slow clients, reload by signal, and a stop that loses nothing."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from longtail import edit_labels
from longtail.cli.main import main
from longtail.errors import BundleError
from longtail.service import app as app_module
from longtail.service import server as server_module
from longtail.service.server import open_socket
from longtail.service.settings import ServiceSettings
from service.processes import Process

SETTINGS = ("patience=1.5", "watch=0", "deadline=20", "max_body=0.5")
ESTABLISHED = "01"  # in Linux's table of connections


def serve_topics(folder: Path, *options: str) -> Process:
    """Serve the model of a folder, with limits that are soon reached."""
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-m", "longtail", "serve", f"topics={folder}", "--port", "0", "--threads", "1", *words]
    return Process([*command, *options], folder.parent)


@pytest.fixture(scope="module")
def copy(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(folder, tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="module")
def server(copy: Path) -> Iterator[Process]:
    server = serve_topics(copy)
    yield server
    server.stop()


def predict(server: Process, *texts: str) -> httpx.Response:
    return httpx.post(f"{server.address}api/v1/predict", json={"texts": texts, "k": 1}, timeout=60)


def read_all(connection: socket.socket) -> bytes:
    out = b""
    try:
        while part := connection.recv(1 << 16):
            out += part
    except ConnectionResetError:
        pass
    return out


def wait_for_end(connection: socket.socket) -> None:
    """Wait until the service has closed a connection, without reading from it: reading would let the service go on."""
    service, table = f":{connection.getpeername()[1]:04X}", Path("/proc/net/tcp")
    own = f":{connection.getsockname()[1]:04X}"
    if not table.exists():  # not Linux
        time.sleep(4)
        return
    for _ in range(600):
        rows = [line.split()[1:4] for line in table.read_text().splitlines()[1:]]  # local and other address, state
        if [state for local, other, state in rows if local.endswith(service) and other.endswith(own)] != [ESTABLISHED]:
            return
        time.sleep(0.1)
    pytest.fail("the connection stays open")


def test_it_answers(server: Process) -> None:
    assert predict(server, "ship").json()["results"][0]["labels"][0]["label"] == "sea"


@pytest.mark.parametrize("sent", [b"", b"POST /api/v1/predict HTTP/1.1\r\nHost: localhost\r\nX-A: "])
def test_a_client_that_sends_no_complete_headers_is_cut_off(server: Process, sent: bytes) -> None:
    with server.connect() as slow:
        slow.sendall(sent)
        assert read_all(slow) == b""  # ends, because the service closes the connection


def test_a_client_that_sends_no_complete_body_gets_an_answer(server: Process) -> None:
    with server.connect() as slow:
        head = b"POST /api/v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{"
        slow.sendall(head)
        assert b" 408 " in read_all(slow).split(b"\r\n")[0]


def test_a_body_without_a_length_is_counted(server: Process) -> None:
    with server.connect() as client:
        client.sendall(b"POST /api/v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        try:
            for _ in range(12):
                client.sendall(chunk)
        except (ConnectionResetError, BrokenPipeError):
            pass
        answer = read_all(client)
        assert not answer or b" 413 " in answer.split(b"\r\n")[0]
    assert predict(server, "ship").status_code == 200


def test_a_client_that_does_not_read_is_cut_off(server: Process) -> None:
    body, n_requests = b'{"texts": [' + b",".join([b'"ship"'] * 1000) + b'], "k": 4}', 16
    headers = {"content-type": "application/json"}
    whole = len(httpx.post(f"{server.address}api/v1/predict", content=body, headers=headers, timeout=60).content)
    head = "POST /api/v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(60)
        slow.connect(("127.0.0.1", server.port))
        for _ in range(n_requests):
            slow.sendall(head.encode() + b"\r\n\r\n" + body)
        wait_for_end(slow)
        assert len(read_all(slow)) < n_requests * whole  # the rest was never sent
    assert predict(server, "ship").status_code == 200


def test_a_signal_loads_models_again_and_loses_no_request(server: Process, copy: Path) -> None:
    codes, versions, stop = [], set(), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answer = predict(server, "ship")
            codes.append(answer.status_code)
            versions.add(answer.json()["version"])

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        while not codes:
            time.sleep(0.01)
        edit_labels(copy).rename("music", "songs")
        os.kill(server.process.pid, signal.SIGHUP)
        for _ in range(1200):
            if len(versions) > 1:
                break
            time.sleep(0.1)
    finally:
        stop.set()
        thread.join()
    assert len(versions) == 2 and set(codes) == {200}


def test_a_stop_answers_what_has_arrived(folder: Path) -> None:
    server = serve_topics(folder)
    answers: list[httpx.Response] = []
    texts = ["a ship and a violin"] * 1000
    threads = [threading.Thread(target=lambda: answers.append(predict(server, *texts))) for _ in range(3)]
    for thread in threads:
        thread.start()
    while "longtail_queue_depth 0.0" in httpx.get(f"{server.address}metrics", timeout=60).text and len(answers) < 3:
        time.sleep(0.005)
    server.stop()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 3
    with pytest.raises(OSError, match=r"refused"):
        server.connect()


def test_a_port_in_use_is_reported_before_models_are_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app_module, "make_app", lambda *_: pytest.fail("models are loaded"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["serve", str(folder), "--port", str(other.getsockname()[1])]) == 2
    assert "Address already in use" in capsys.readouterr().err


def test_nothing_listens_while_models_are_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = []

    def reserve(settings: ServiceSettings) -> socket.socket:
        ports.append(open_socket(settings))
        return ports[-1]

    def load(*_: object) -> None:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(ports[0].getsockname()[:2], timeout=10)
        raise BundleError("the model is damaged")

    monkeypatch.setattr(server_module, "open_socket", reserve)
    monkeypatch.setattr(app_module, "make_app", load)
    with pytest.raises(BundleError, match="damaged"):
        server_module.serve(folder, port=0)
    assert ports[0].fileno() == -1  # closed


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--host", "0.0.0.0"), "there is no token"),
        (("--set", "prot=1"), 'no setting "prot"'),
        (("--config", "missing.toml"), "cannot be read"),
    ],
)
def test_wrong_usage_ends_before_anything_listens(
    folder: Path, options: tuple[str, ...], found: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_module, "open_socket", lambda settings: pytest.fail("it listens"))
    assert main(["serve", str(folder), *options]) == 2
    assert found in capsys.readouterr().err
