"""The web page: static files of the package, read once."""

from __future__ import annotations

import hashlib
import mimetypes
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response

from longtail.service.errors import ServiceError

INDEX = "index.html"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def make_page_router() -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(include_in_schema=False)
    contents = dict(_read_files(files("longtail.service") / "page"))

    def answer(name: str, request: Request) -> Response:
        if name not in contents:
            raise ServiceError(404, "there is no such file", hint="The page is at /")
        content, kind = contents[name]
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"content-security-policy": _POLICY, "etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)

    @router.get("/")
    async def show_index(request: Request) -> Response:
        """Show the page."""
        return answer(INDEX, request)

    @router.get("/page/{name:path}")
    async def show_file(name: str, request: Request) -> Response:
        """Return a file of the page."""
        return answer(name, request)

    return router


def _read_files(folder: Traversable, prefix: str = "") -> list[tuple[str, tuple[bytes, str]]]:
    """Return the content and type of every file, by its name below the folder."""
    found = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _read_files(entry, f"{name}/")
        elif not entry.name.startswith(".") and not entry.name.endswith((".py", ".pyc")):
            suffix = f".{entry.name.rpartition('.')[2]}"
            kind = _TYPES.get(suffix) or mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
            found.append((name, (entry.read_bytes(), kind)))
    return found
