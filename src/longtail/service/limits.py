"""What protects the service from its clients: limits of size and time, origins, hosts, tokens; request ids and the log."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import traceback
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.errors import LongtailError
from longtail.service.errors import NoToken, ServiceError, answer_error
from longtail.service.metrics import Metrics
from longtail.service.settings import ServiceSettings, split_list
from longtail.service.tokens import find_scopes

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
NO_ROUTE = "none"  # in metrics and logs: an address that does not exist
MORE_REQUESTS = 1000  # that may be open besides those whose texts wait
_READING = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
_REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]

log = logging.getLogger("longtail.serve")


class Guard:
    """Wraps the application. Requests reach it complete, within limits, and with the scopes of their token."""

    def __init__(
        self, app: ASGIApp, settings: ServiceSettings, tokens: Mapping[str, frozenset[str]] | None, metrics: Metrics
    ) -> None:
        self.app, self.settings, self.tokens, self.metrics = app, settings, tokens, metrics
        self.max_bytes = int(settings.max_body * 1e6)
        self.n_open = 0  # requests
        self.n_bytes = 0  # of their bodies
        self.max_open = int(settings.max_open * 1e6)
        self.origins = frozenset(split_list(settings.cors))
        self.hosts = frozenset([*LOCAL_HOSTS, settings.host, *split_list(settings.hosts)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        start, status, method = time.monotonic(), 499, scope["method"]  # 499: the client has gone
        if method == "HEAD":
            scope = {**scope, "method": "GET"}  # the same answer, of which only the headers are sent

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                known = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in _SECURITY_HEADERS if name not in known]
                message = {**message, "headers": [*message["headers"], *more, (b"x-request-id", request_id.encode())]}
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        self.n_open += 1
        scope["longtail_bytes"] = 0
        try:
            await self._answer(scope, receive, send_with_headers, headers)
        finally:
            self.n_open -= 1
            self.n_bytes -= scope["longtail_bytes"]
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            seconds = time.monotonic() - start
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.request_seconds.labels(route).observe(seconds)
            log.info("%s %s %s %.1f ms %s", method, route, status, 1e3 * seconds, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str]) -> None:
        try:
            if self.n_open > self.settings.max_waiting + MORE_REQUESTS and "/health/" not in scope["path"]:
                raise ServiceError(429, f"{self.n_open:,} requests are open", hint="Try again later", retry_after=1)
            self._check_origin(scope["method"], headers)
            scope["longtail_scopes"] = self._find_scopes(headers)
            if scope["longtail_scopes"] == frozenset() and scope["method"] not in _READING:
                raise NoToken  # before the body is read
            body = await self._read_body(scope, receive, headers)
        except LongtailError as error:
            response = answer_error(error, scope["path"])
            response.headers["connection"] = "close"  # the rest of the body is not read
            await response(scope, receive, send)
            return
        if body is None:  # the client has gone
            return
        started = False

        async def send_once(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        app = asyncio.ensure_future(self.app(scope, _replay(body, receive), send_once))
        gone = asyncio.ensure_future(_wait_for_end(receive))
        try:
            await asyncio.wait({app, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not app.done():
                app.cancel()  # so that what nobody waits for is not computed
            await asyncio.wait({app, gone})
        failure = None if app.cancelled() else app.exception()
        if failure is not None and not started:
            await _report(failure, scope["path"])(scope, receive, send)

    def _check_origin(self, method: str, headers: dict[str, str]) -> None:
        """Refuse requests that a web page of somebody else sends through the browser of a user.

        With tokens, such a page has none. Without, the name of the host shows a page that pretends to be this machine.
        """
        host, origin = _find_host(f"//{headers.get('host', '')}"), headers.get("origin")
        if self.tokens is None and not self.settings.insecure and host not in self.hosts:
            hint = f"Call it by one of: {', '.join(sorted(self.hosts))}; or set hosts"
            raise ServiceError(421, f'the service is not known as "{host[:100]}"', hint=hint)
        if origin is None or method in _READING or origin in self.origins or "*" in self.origins:
            return
        if origin.partition("://")[2] != headers.get("host", ""):
            raise ServiceError(403, "requests of other web pages are not allowed", hint="Set cors to the origin of the page")

    def _find_scopes(self, headers: dict[str, str]) -> frozenset[str] | None:
        """Return the scopes of the token; None if there are no tokens, so that everything is allowed."""
        return None if self.tokens is None else find_scopes(self.tokens, headers.get("authorization", "")) or frozenset()

    async def _read_body(self, scope: Scope, receive: Receive, headers: dict[str, str]) -> bytes | None:
        """Read a body of limited size within limited time; None if the client has gone."""
        declared = headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self.max_bytes:
            raise self._too_large()
        parts = []
        try:
            async with asyncio.timeout(self.settings.patience):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    scope["longtail_bytes"] += len(parts[-1])
                    self.n_bytes += len(parts[-1])
                    if scope["longtail_bytes"] > self.max_bytes:
                        raise self._too_large()
                    if self.n_bytes > self.max_open:
                        found = f"requests of {self.settings.max_open:g} MB are open"
                        raise ServiceError(429, found, hint="Try again later", retry_after=1)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError as error:
            found = f"the request did not arrive within {self.settings.patience:g} seconds"
            raise ServiceError(408, found, hint="Send it at once") from error

    def _too_large(self) -> ServiceError:
        found = f"the request is larger than {self.settings.max_body:g} MB"
        return ServiceError(413, found, hint="Send fewer or shorter texts at a time")


def _find_host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what the application receives: the whole body, and nothing after it."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _wait_for_end(receive: Receive) -> None:
    """Wait until the client has gone, or has its answer."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _report(error: BaseException, path: str) -> Response:
    """Log an error of the program, without what clients have sent, and return the answer."""
    if isinstance(error, LongtailError):
        return answer_error(error, path)
    places: list[Any] = traceback.extract_tb(error.__traceback__)[-5:]
    where = " < ".join(f"{place.filename}:{place.lineno}" for place in reversed(places))
    log.error("%s at %s", type(error).__name__, where)
    failure = ServiceError(500, "there was an error in the service", hint="The log of the service says where")
    return answer_error(failure, path)
