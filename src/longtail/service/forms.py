"""Form fields of clients that do not always say what they send: forms, forms that are not encoded, and JSON."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl

from longtail.service.errors import ServiceError

_MAX_FIELDS = 10_000  # a text that is not encoded has many of them, if it has many &
_BOUNDARY = re.compile(r'^\s*multipart/form-data\s*;.*?\bboundary="?([^\s";,]{1,70})', re.IGNORECASE)
_NAME = re.compile(rb'^content-disposition:.*?[;\s]name="?([^";\r\n]*)', re.IGNORECASE | re.MULTILINE)


def parse_form(body: bytes, content_type: str) -> dict[str, str]:
    """Return the fields of a form, whatever the client calls it. Of equal names, the first counts.

    >>> parse_form(b"text=red+apple %26 tree&limit=5&language=", "application/x-www-form-urlencoded")
    {'text': 'red apple & tree', 'limit': '5', 'language': ''}
    """
    if content_type.partition(";")[0].strip().lower() == "application/json":
        return _parse_object(body)
    boundary = _BOUNDARY.match(content_type)
    mark = b"--" + boundary[1].encode("latin-1", "replace") if boundary else b""
    if mark and mark in body[:200]:
        fields = _split_parts(body, mark)
    else:
        try:
            fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError as error:
            raise _too_many() from error
    found: dict[str, str] = {}
    for name, value in fields:
        found.setdefault(name, value)
    return found


def parse_number(fields: dict[str, str], name: str, default: float, low: float, high: float) -> float:
    """Return a number of a form; an empty field counts as missing."""
    word = fields.get(name, "").strip()
    try:
        value = float(word) if word else default
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        found = f"{name} is not a number from {low:,g} to {high:,.10g}"
        raise ServiceError(400, found, hint="Send another value, or leave it out")
    return value


def _parse_object(body: bytes) -> dict[str, str]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ServiceError(400, "the request is not a JSON object", hint='Send {"text": "…"}, or a form')
    return {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def _split_parts(body: bytes, mark: bytes) -> list[tuple[str, str]]:
    """Return names and values of the parts of a multipart form (RFC 7578)."""
    parts = (b"\r\n" + body).split(b"\r\n" + mark, _MAX_FIELDS + 2)[1:]
    if len(parts) > _MAX_FIELDS + 1:
        raise _too_many()
    fields = []
    for part in parts:
        if part.startswith(b"--"):  # the end
            break
        head, _, value = part.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        fields.append((name[1].decode("utf-8", "replace") if name else "", value.decode("utf-8", "replace")))
    return fields


def _too_many() -> ServiceError:
    return ServiceError(400, f"the form has more than {_MAX_FIELDS:,} fields", hint="Encode the form")
