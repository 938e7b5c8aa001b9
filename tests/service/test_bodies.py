"""Large requests: parsed in another thread, with the results and errors of ``json.loads``."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.service import bodies
from longtail.service.bodies import parse_in_steps
from service.conftest import Client

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(VALUES, st.sampled_from(["utf-8", "utf-16", "utf-8-sig"]), st.booleans())
def test_values_are_those_of_the_standard_parser(value: Any, encoding: str, escapes: bool) -> None:
    body = json.dumps(value, ensure_ascii=escapes, indent=1).encode(encoding, "surrogatepass")
    assert parse_in_steps(body) == json.loads(body) == value


@given(st.binary(max_size=20) | st.text('[]{}":,1eE+-. \\untrfals', max_size=20).map(str.encode))
def test_errors_are_those_of_the_standard_parser(body: bytes) -> None:
    try:
        expected = repr(json.loads(body))
    except ValueError as error:
        with pytest.raises(type(error)) as found:
            parse_in_steps(body)
        assert str(found.value) == str(error)
    else:
        assert repr(parse_in_steps(body)) == expected


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_request_is_parsed_in_another_thread(client: Client, monkeypatch: Any, is_large: bool) -> None:
    threads = []

    def parse(body: bytes) -> Any:
        threads.append(threading.get_ident())
        return parse_in_steps(body)

    monkeypatch.setattr(bodies, "parse_in_steps", parse)
    texts = ["a ship " * (20_000 if is_large else 2)] * 5
    answer = client.post("/api/v1/predict", {"texts": texts, "k": 1})
    assert [one["labels"][0]["label"] for one in answer.json()["results"]] == ["sea"] * 5
    assert len(threads) == is_large and client.thread.submit(threading.get_ident).result() not in threads


@pytest.mark.parametrize("path", ["/api/v1/predict", "/predict", "/v1/projects/topics/suggest-batch"])
def test_a_large_request_that_is_not_json_is_refused(client: Client, path: str) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post(path, content=b'["' + b"x" * 600_000, headers=headers)
    assert answer.status_code in (400, 422) and "JSON" in answer.json()["detail"]
    deep = client.post(path, content=b"[" * 600_000, headers=headers)
    assert deep.status_code == 400 and deep.headers["content-type"] == "application/problem+json"
