"""Tokens, origins, hosts, sizes, times, request ids, and what the log says."""

from __future__ import annotations

import asyncio
import base64
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, ValidationError

import longtail
from longtail.errors import MissingExtra, SettingError
from longtail.service.annif import AnnifBatch
from longtail.service.inference import InferRequest
from longtail.service.label_studio import TaskList
from longtail.service.limits import MORE_REQUESTS, Guard
from longtail.service.metrics import Metrics
from longtail.service.protocol import make_protocol
from longtail.service.schemas import FeedbackRequest, PredictRequest
from longtail.service.settings import ServiceSettings, name_models, read_settings
from longtail.service.tokens import find_scopes, read_tokens
from service.conftest import Client, run_in_thread

PREDICTS, LEARNS, ADMIN = "p" * 20, "l" * 20, "a" * 20
PREDICT = "/api/v1/predict"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def guarded(make_client: Callable[..., Client], tmp_path: Path) -> Client:
    path = tmp_path / "tokens"
    path.write_text(f"# who may do what\npredict {PREDICTS}\n\nlearn {LEARNS}\npredict,learn,admin {ADMIN}\n")
    return make_client(token_file=str(path))


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", PREDICT, "predict"),
        ("GET", "/api/v1/labels", "predict"),
        ("GET", "/api/v1/labels/tree", "predict"),
        ("GET", "/api/v1/models", "predict"),
        ("GET", "/api/v1/models/topics", "predict"),
        ("GET", "/metrics", "predict"),
        ("POST", "/api/v1/feedback", "learn"),
        ("POST", "/api/v1/admin/reload", "admin"),
        ("GET", "/v1/projects", "predict"),
        ("GET", "/v1/projects/topics", "predict"),
        ("GET", "/v1/vocabs", "predict"),
        ("POST", "/v1/projects/topics/suggest", "predict"),
        ("POST", "/v1/projects/topics/suggest-batch", "predict"),
        ("POST", "/v1/projects/topics/learn", "learn"),
        ("POST", "/v1/detect-language", "predict"),
        ("POST", "/label-studio/topics/setup", "predict"),
        ("POST", "/label-studio/topics/predict", "predict"),
        ("POST", "/label-studio/topics/webhook", "learn"),
        ("GET", "/v2/models/topics", "predict"),
        ("POST", "/v2/models/topics/infer", "predict"),
        ("POST", "/predict", "predict"),
    ],
)
def test_a_route_needs_a_token_with_its_scope(guarded: Client, method: str, path: str, scope: str) -> None:
    def ask(headers: dict[str, str]) -> int:
        body = {"json": {}} if method == "POST" else {}
        return int(guarded.run(guarded.http.request(method, path, headers=headers, **body)).status_code)

    other = PREDICTS if scope != "predict" else LEARNS
    assert ask({}) == ask(bearer("x" * 20)) == ask(bearer("")) == 401
    assert ask(bearer(other)) == 403
    assert ask(bearer(ADMIN)) not in (401, 403)


def test_only_health_and_the_description_are_open(guarded: Client) -> None:
    schema = guarded.get("/openapi.json").json()
    for path, operations in schema["paths"].items():
        for method in operations:
            address = path.replace("{name}", "topics").replace("{project_id}", "topics").replace("{version}", "1")
            status = guarded.run(guarded.http.request(method, address)).status_code
            is_open = "/health" in path or path in ("/v1/", "/v2")
            assert (status in (200, 404)) if is_open else status == 401, address


def test_401_says_how_to_log_in(guarded: Client) -> None:
    answer = guarded.get("/api/v1/models")
    assert answer.headers["www-authenticate"] == "Bearer" and "Authorization" in answer.json()["hint"]


def test_a_token_may_be_the_password_of_basic_authentication() -> None:
    tokens = {ADMIN: frozenset(["admin"])}
    value = base64.b64encode(f"anybody:{ADMIN}".encode()).decode()
    assert find_scopes(tokens, f"Basic {value}") == {"admin"}
    for wrong in ("Basic", "Basic !!", f"Basic {base64.b64encode(ADMIN.encode()).decode()}", "Digest x", ""):
        assert find_scopes(tokens, wrong) is None


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("predict short\n", "fewer than 16"),
        (f"predict,write {ADMIN}\n", 'no scope "write"'),
        (f"{ADMIN}\n", "not a list of scopes"),
        ("# nothing\n", "there is no token"),
    ],
)
def test_bad_token_files(tmp_path: Path, content: str, found: str) -> None:
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(SettingError, match=found) as error:
        read_tokens(tmp_path / "tokens")
    assert ADMIN not in str(error.value)


def test_listening_beyond_this_machine_needs_tokens() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(SettingError, match="--insecure"):
            ServiceSettings(host=host).check()
        ServiceSettings(host=host, insecure=True).check()
        ServiceSettings(host=host, token_file="tokens").check()
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        ServiceSettings(host=host).check()


def test_a_page_that_pretends_to_be_this_machine_is_refused(
    client: Client, guarded: Client, make_client: Callable[..., Client]
) -> None:
    body = {"texts": ["ship"]}
    assert client.post(PREDICT, body, headers={"host": "evil.example"}).status_code == 421
    assert client.post(PREDICT, body, headers={"host": "evil.example:["}).status_code == 421
    assert client.post(PREDICT, body, headers={"host": "localhost:8000"}).status_code == 200
    assert guarded.post(PREDICT, body, headers={"host": "a.example", **bearer(ADMIN)}).status_code == 200  # has a token
    assert make_client(hosts="a.example").post(PREDICT, body, headers={"host": "a.example"}).status_code == 200


def test_other_origins_are_refused_unless_allowed(client: Client, make_client: Callable[..., Client]) -> None:
    body, other = {"texts": ["ship"]}, {"origin": "http://evil.example"}
    refused = client.post(PREDICT, body, headers=other)
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
    assert client.post(PREDICT, body, headers={"origin": "http://localhost"}).status_code == 200
    for origin in ("http://[", "null", "", "http://localhost.evil.example", "http://"):
        assert client.post(PREDICT, body, headers={"origin": origin}).status_code == 403
    allowed = make_client(cors="http://page.example").post(PREDICT, body, headers={"origin": "http://page.example"})
    assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == "http://page.example"


def test_an_allowed_page_can_read_why_a_request_was_refused(make_client: Callable[..., Client], tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"predict {PREDICTS}\n")
    client = make_client(cors="http://page.example", token_file=str(path), max_body=0.001)
    origin = {"origin": "http://page.example"}
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    preflight = client.run(client.http.options(PREDICT, headers={**origin, **asked}))
    assert preflight.status_code == 200 and "authorization" in preflight.headers["access-control-allow-headers"]
    for headers, status in (({}, 401), (bearer(PREDICTS), 413)):
        answer = client.post(PREDICT, {"texts": ["ship " * 1000]}, headers={**origin, **headers})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, "http://page.example")
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
    other = client.post(PREDICT, {"texts": ["ship"]}, headers={"origin": "http://evil.example", **bearer(PREDICTS)})
    assert other.status_code == 403 and "access-control-allow-origin" not in other.headers


def test_a_form_of_another_page_cannot_send_json(client: Client) -> None:
    content = b'{"model": "topics", "consent": false, "accepted": ["sea"]}'
    answer = client.run(client.http.post("/api/v1/feedback", content=content, headers={"content-type": "text/plain"}))
    assert answer.status_code == 422


def test_large_bodies_are_refused_while_they_are_read(make_client: Callable[..., Client]) -> None:
    client, read = make_client(max_body=0.001), 0

    async def stream() -> Any:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"x" * 100

    headers = {"content-type": "application/json"}
    answer = client.run(client.http.post(PREDICT, content=stream(), headers=headers))
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert read < 20
    assert client.post(PREDICT, {"texts": ["x" * 2000]}).status_code == 413  # says its length


@pytest.mark.parametrize("model", [PredictRequest, FeedbackRequest, AnnifBatch, InferRequest, TaskList])
@pytest.mark.parametrize("kind", ["values", "fields"])
def test_a_request_with_many_wrong_values_has_few_errors(model: type[BaseModel], kind: str) -> None:
    lists = ("texts", "accepted", "documents", "inputs", "tasks", "outputs")
    body = {name: [7] * 1000 for name in lists} if kind == "values" else {f"x{i}": 1 for i in range(1000)}
    with pytest.raises(ValidationError) as error:
        model.model_validate(body)
    assert error.value.error_count() < 10


def test_bodies_of_all_open_requests_are_limited(make_client: Callable[..., Client]) -> None:
    client = make_client(max_body=0.01, max_open=0.01)
    arrived, release, codes = asyncio.Event(), asyncio.Event(), []

    async def stream() -> Any:
        yield b'{"texts": ["' + b"x" * 8000
        arrived.set()
        await release.wait()
        yield b'"]}'

    async def work() -> None:
        headers = {"content-type": "application/json"}
        first = client.loop.create_task(client.http.post(PREDICT, content=stream(), headers=headers))
        await arrived.wait()
        refused = await client.http.post(PREDICT, json={"texts": ["y" * 8000]})
        codes.extend([refused.status_code, refused.headers["retry-after"]])
        release.set()
        codes.append((await first).status_code)
        codes.append((await client.http.post(PREDICT, json={"texts": ["y" * 8000]})).status_code)

    client.run(work())
    assert codes == [429, "1", 200, 200]


def test_without_a_token_the_body_is_not_read(guarded: Client) -> None:
    read = 0

    async def stream() -> Any:
        nonlocal read
        read += 1
        yield b"{}"

    for path in (PREDICT, "/v2/models/topics/infer"):
        answer = guarded.run(guarded.http.post(path, content=stream()))
        assert (answer.status_code, answer.headers["www-authenticate"], read) == (401, "Bearer", 0)


def test_slow_bodies_are_refused(make_client: Callable[..., Client]) -> None:
    client = make_client(patience=0.05)

    async def stream() -> Any:
        yield b"{"
        await asyncio.sleep(5)

    assert client.run(client.http.post(PREDICT, content=stream())).status_code == 408


def test_a_slow_reader_is_cut_off_only_when_it_stops() -> None:
    calls: list[Any] = []
    connection: Any = object.__new__(make_protocol(20.0))
    connection.loop = SimpleNamespace(call_later=lambda seconds, call: calls.append((seconds, call)))
    connection.flow = Mock()
    connection.transport = Mock()
    connection.transport.get_write_buffer_size.side_effect = [300_000, 200_000, 200_000, 199_000]
    connection.pause_writing()
    calls[0][1]()  # 100,000 bytes later
    assert not connection.transport.abort.called
    calls[1][1]()  # 1,000 bytes later
    assert connection.transport.abort.called and [seconds for seconds, _ in calls] == [20.0, 20.0]


def test_request_ids_and_headers(client: Client) -> None:
    assert client.get("/api/v1/models", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = client.get("/api/v1/models", headers={"x-request-id": "a b\t"}).headers
    assert len(made["x-request-id"]) == 32
    assert made["x-content-type-options"] == "nosniff" and made["cache-control"] == "no-store"


def test_the_log_has_no_texts_tokens_or_queries(guarded: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "longtail")
    guarded.post(PREDICT, {"texts": ["secret text"]}, headers=bearer(ADMIN))
    guarded.post(PREDICT, {"texts": ["secret text"], "model": "secret model"}, headers=bearer(ADMIN))
    guarded.get("/api/v1/labels", params={"q": "secret query"}, headers=bearer(ADMIN))
    guarded.post("/label-studio/topics/setup", {"access_token": "secret"}, headers=bearer(ADMIN))
    lines = [record.getMessage() for record in caplog.records if record.name == "longtail.serve"]
    assert len(lines) == 4 and lines[0].startswith(f"POST {PREDICT} 200 ")
    assert "secret" not in caplog.text and ADMIN not in caplog.text


def test_settings_come_from_a_file_the_environment_and_arguments(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text('port = 1\ndeadline = 5\nhost = "localhost"\n[models]\nplt = "models/plt"\n')
    environment = {"LONGTAIL_SERVE_PORT": "2", "LONGTAIL_SERVE_MAX_TEXTS": "7", "OTHER": "x"}
    settings, models = read_settings(path, environment, {"max_texts": 8, "threads": None})
    assert (settings.host, settings.deadline, settings.port, settings.max_texts) == ("localhost", 5, 2, 8)
    assert models == {"plt": Path("models/plt")}
    for content, found in (("prot = 1", "no setting"), ("port = ", "not TOML"), ("models = 1", "no folders")):
        path.write_text(content)
        with pytest.raises(SettingError, match=found):
            read_settings(path, {}, {})
    with pytest.raises(SettingError, match="LONGTAIL_SERVE_PORT"):
        read_settings(None, {"LONGTAIL_SERVE_PORT": "many"}, {})
    for name in ("max_waiting", "max_open"):
        with pytest.raises(SettingError, match=name):
            read_settings(None, {}, {name: 10})


@pytest.mark.parametrize(
    ("words", "found"),
    [(["a/m", "b/m"], "two models"), ([], "no model to serve"), (["a b=m"], "cannot be the name"), (["..=m"], "cannot be")],
)
def test_names_of_models(words: list[str], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        name_models(words, {})


def test_the_library_needs_no_web_framework(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    code = "import sys, longtail; longtail.serve, longtail.Tagger; assert not {'fastapi', 'uvicorn'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingExtra, match=r"Serving needs fastapi\. .*'longtail\[serve\]'"):
        longtail.serve(folder)


def test_too_many_open_requests_are_refused_but_not_those_for_health() -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    def ask(path: str) -> int:
        guard, statuses, received = Guard(answer, ServiceSettings(), None, Metrics()), [], []
        guard.n_open = ServiceSettings().max_waiting + MORE_REQUESTS

        async def receive() -> dict[str, Any]:
            if received:
                await asyncio.sleep(60)  # the client waits for the answer
            received.append(True)
            return {"type": "http.request"}

        async def send(message: dict[str, Any]) -> None:
            statuses.append(message.get("status"))

        scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"localhost")]}
        run_in_thread(guard(scope, receive, send))
        return int(statuses[0])

    assert (ask("/api/v1/models"), ask("/api/v1/health/live")) == (429, 200)
