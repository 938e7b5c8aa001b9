"""Requests in JSON. Large ones are parsed in another thread, in steps, between which the event loop goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

_LARGE = 1 << 19  # bytes; less takes about a millisecond


class _StepDecoder(json.JSONDecoder):
    """Calls the parser in C for each string; that for whole requests holds the interpreter until it has finished."""

    def __init__(self) -> None:
        super().__init__()
        self.scan_once = py_make_scanner(self)


def parse_in_steps(body: bytes) -> Any:
    """Return what ``json.loads`` returns, and raise what it raises.

    >>> parse_in_steps(b'{"texts": ["one", "two"], "k": 3}')
    {'texts': ['one', 'two'], 'k': 3}
    """
    return _StepDecoder().decode(body.decode(json.detect_encoding(body), "surrogatepass"))


class _Request(Request):
    async def json(self) -> Any:
        body = await self.body()
        return json.loads(body) if len(body) < _LARGE else await asyncio.to_thread(parse_in_steps, body)


class JsonRoute(APIRoute):
    """The class of routes whose requests may be large."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        answer = super().get_route_handler()

        async def answer_large(request: Request) -> Response:
            return await answer(_Request(request.scope, request.receive))

        return answer_large
