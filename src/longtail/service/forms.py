"""Form fields of clients that do not always say what they send: forms, forms that are not encoded, and JSON."""

from __future__ import annotations

import json
from email.message import EmailMessage, Message
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

from longtail.service.errors import ServiceError


def parse_form(body: bytes, content_type: str) -> dict[str, str]:
    """Return the fields of a form, whatever the client calls it. Of equal names, the first counts.

    >>> parse_form(b"text=red+apple %26 tree&limit=5&language=", "application/x-www-form-urlencoded")
    {'text': 'red apple & tree', 'limit': '5', 'language': ''}
    """
    header = EmailMessage()
    header["content-type"] = content_type.encode("ascii", "ignore").decode() or "application/x-www-form-urlencoded"
    kind, boundary = header.get_content_type(), header.get_boundary()
    if kind == "application/json":
        return _parse_object(body)
    if kind == "multipart/form-data" and boundary and f"--{boundary}".encode() in body[:200]:
        head = f"content-type: {header['content-type']}\r\n\r\n".encode()
        parts = BytesParser(policy=HTTP).parsebytes(head + body).walk()
        fields = [(_find_name(part), _decode_part(part)) for part in parts if not part.is_multipart()]
    else:
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
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
        found = f"{name} is not a number from {low:g} to {high:g}"
        raise ServiceError(400, found, hint="Send another value, or leave it out")
    return value


def _parse_object(body: bytes) -> dict[str, str]:
    try:
        values = json.loads(body)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ServiceError(400, "the request is not a JSON object", hint='Send {"text": "…"}, or a form')
    return {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def _find_name(part: Message) -> str:
    return str(part.get_param("name", "", "content-disposition") or "")


def _decode_part(part: Message) -> str:
    content = part.get_payload(decode=True)
    return content.decode("utf-8", "replace").removesuffix("\r\n") if isinstance(content, bytes) else ""
