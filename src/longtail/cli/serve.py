"""The command ``serve``: runs the HTTP service in the foreground."""

from __future__ import annotations

import logging
import sys
import webbrowser
from argparse import Namespace
from contextlib import suppress

from longtail.progress import Display
from longtail.service.server import serve as serve_models
from longtail.service.settings import ServiceSettings
from longtail.settings import describe, parse_settings


def serve(arguments: Namespace) -> None:
    """Serve models until the process is stopped."""
    known = {each.name: each.type for each in describe(ServiceSettings)}
    settings = parse_settings(arguments.set, known, "serve")
    for name in ("port", "host", "token_file", "feedback", "threads"):
        if getattr(arguments, name) is not None:
            settings[name] = getattr(arguments, name)
    if arguments.insecure:
        settings["insecure"] = True
    display = Display()

    def announce(address: str) -> None:
        display.say(f"open {address} in a browser; stop with Ctrl-C")
        if arguments.open:
            webbrowser.open(address)

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with suppress(KeyboardInterrupt):  # the usual way to stop
        serve_models(*arguments.models, config=arguments.config, on_start=announce, **settings)
