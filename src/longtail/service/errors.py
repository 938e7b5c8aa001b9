"""Errors as answers: problem details (RFC 9457) with the texts of the library's own errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

from longtail.errors import BundleError, LongtailError

PROBLEM = "application/problem+json"
INFERENCE = "/v2"  # the Open Inference Protocol, whose errors have another form


class ServiceError(LongtailError):
    """A request that cannot be answered.

    :param status: The status code of the answer.
    :param found: What was found.
    :param hint: How to fix it.
    :param retry_after: Seconds after which the client may try again; None: it need not.
    """

    def __init__(self, status: int, found: str, *, hint: str = "", retry_after: int | None = None) -> None:
        super().__init__(found, hint=hint)
        self.status, self.retry_after = status, retry_after


class NoToken(ServiceError):
    """There is no token, or one that is not known."""

    def __init__(self) -> None:
        super().__init__(401, "there is no valid token", hint="Send the header Authorization: Bearer TOKEN")


class QueueFull(ServiceError):
    """More texts wait than the service keeps."""

    def __init__(self, n_waiting: int, seconds: float) -> None:
        hint = "Try again later, or send fewer texts at a time"
        super().__init__(429, f"{n_waiting:,} texts wait already", hint=hint, retry_after=max(round(seconds), 1))


class DeadlinePassed(ServiceError):
    """A request was not answered in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(504, f"there was no answer within {seconds:g} seconds", hint="Send fewer texts, or try again later")


def find_status(error: LongtailError) -> int:
    """Return the status code of an error: that of a ``ServiceError``, 409 for a damaged model, otherwise a bad request."""
    if isinstance(error, ServiceError):
        return error.status
    return HTTPStatus.CONFLICT if isinstance(error, BundleError) else HTTPStatus.BAD_REQUEST


def describe_problem(status: int, detail: str, hint: str = "") -> dict[str, Any]:
    """Return the object that describes an error.

    >>> describe_problem(404, "there is no model", "Choose another one")["title"]
    'Not Found'
    """
    problem = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": int(status), "detail": detail}
    return {**problem, "hint": hint} if hint else problem


def is_inference(path: str) -> bool:
    """Whether an address belongs to the Open Inference Protocol.

    >>> is_inference("/v2"), is_inference("/v2/models/topics"), is_inference("/v20")
    (True, True, False)
    """
    return path == INFERENCE or path.startswith(f"{INFERENCE}/")


def answer_error(error: LongtailError, path: str, headers: Mapping[str, str] | None = None) -> Response:
    """Build the answer for an error of the library.

    :param error: The error.
    :param path: The address of the request, which decides on the form of errors.
    :param headers: Further headers of the answer.
    """
    status, retry, sent = find_status(error), getattr(error, "retry_after", None), dict(headers or {})
    if retry is not None:
        sent["retry-after"] = str(retry)
    if isinstance(error, NoToken):
        sent["www-authenticate"] = "Bearer"
    if is_inference(path):
        return JSONResponse({"error": str(error)}, status, sent)
    text = f"{error.where}: {error.found}" if error.where else error.found
    content = json.dumps(describe_problem(status, text, error.hint), ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status, sent, media_type=PROBLEM)
