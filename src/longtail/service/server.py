"""Run the service until it is stopped."""

from __future__ import annotations

import logging
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longtail.errors import SettingError
from longtail.extras import require
from longtail.service.settings import ServiceSettings, name_models, read_settings

_BACKLOG = 2048
_KEEP_ALIVE = 75  # seconds; longer than clients keep idle connections, or a request may meet a connection that ends


def serve(
    *models: str | Path,
    config: str | Path | None = None,
    on_start: Callable[[str], None] | None = None,
    **settings: Any,
) -> None:
    """Serve models over HTTP, and a web page at ``/``, until the process is stopped.

    :param models: Folders of saved models; ``NAME=FOLDER`` names one. The first is the default.
    :param config: A TOML file with settings, and a table ``[models]``. Environment variables come before it
        (``LONGTAIL_SERVE_PORT``), arguments before both.
    :param on_start: Is called with the address when the service listens.
    :param settings: Settings such as ``host``, ``port``, ``token_file`` or ``deadline``; the page on serving lists all.
    """
    require("Serving", "fastapi", "uvicorn", "prometheus_client")
    found, named = read_settings(config, os.environ, settings)
    run_server(found, name_models(models, named), on_start)


def run_server(settings: ServiceSettings, folders: dict[str, Path], on_start: Callable[[str], None] | None) -> None:
    """Load the models, listen, and answer requests until a signal stops the process."""
    import uvicorn

    from longtail.service.app import make_app
    from longtail.service.limits import MORE_REQUESTS
    from longtail.service.protocol import make_protocol

    allow_files(2 * (settings.max_waiting + MORE_REQUESTS))
    sock = open_socket(settings)  # before the models are loaded, which may take long: the port may be in use
    try:
        app = make_app(settings, folders)
    except BaseException:
        sock.close()
        raise
    sock.listen(_BACKLOG)
    config = uvicorn.Config(
        app,
        http=make_protocol(settings.patience),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=int(settings.deadline) + 1,
        h11_max_incomplete_event_size=1 << 16,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if on_start is not None:
        host, port = sock.getsockname()[:2]
        on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    uvicorn.Server(config).run([sock])


def open_socket(settings: ServiceSettings) -> socket.socket:
    """Reserve the address; clients are refused until the socket listens.

    With ``reuse_port``, other processes may listen on it, too; the kernel shares the clients.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio looks for TCP to set TCP_NODELAY
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if settings.reuse_port:
        if not hasattr(socket, "SO_REUSEPORT"):
            raise SettingError("this system cannot share a port", hint="Leave reuse_port out")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((settings.host, settings.port))
    except OSError as error:
        sock.close()
        found = f"the service cannot listen on {settings.host}, port {settings.port} ({error.strerror})"
        raise SettingError(found, hint="Choose another --port or --host") from error
    sock.set_inheritable(True)
    return sock


def allow_files(n_files: int) -> None:
    """Raise the number of files that this process may open, as far as the system lets it: connections are files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = n_files if hard == resource.RLIM_INFINITY else min(n_files, hard)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
