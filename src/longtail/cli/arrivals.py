"""Batches of what has arrived: an endless input is answered at once, a file in batches of a fixed size."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from longtail.data.records import Sample

SAMPLES_PER_BATCH = 1024
_Item = TypeVar("_Item")


def batch_all(items: Iterator[_Item]) -> Iterator[list[_Item]]:
    """Yield batches of a fixed size, so that the answers to a file do not depend on how fast it is read."""
    return iter(lambda: list(islice(items, SAMPLES_PER_BATCH)), [])


def batch_arrived(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield what has arrived since the last batch, at least one item. A thread reads while the caller works."""
    arrived: queue.Queue[tuple[str, Any]] = queue.Queue(SAMPLES_PER_BATCH)

    def read() -> None:
        try:
            for item in items:
                arrived.put(("item", item))
            arrived.put(("end", None))
        except BaseException as error:  # noqa: BLE001  the caller raises it
            arrived.put(("error", error))

    threading.Thread(target=read, daemon=True).start()
    kind, value = arrived.get()
    while kind == "item":
        batch = [value]
        kind = ""
        while not kind and len(batch) < SAMPLES_PER_BATCH:
            try:
                kind, value = arrived.get_nowait()
            except queue.Empty:
                break
            if kind == "item":
                batch.append(value)
                kind = ""
        yield batch
        if not kind:
            kind, value = arrived.get()
    if kind == "error":
        raise value


def prompt_for_texts() -> Iterator[Sample]:
    """Ask for texts in a terminal, until the end of the input."""
    sys.stderr.write("one text per line; Ctrl-D ends\n")
    while True:
        sys.stderr.write("> ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            sys.stderr.write("\n")
            return
        if line.strip():
            yield Sample(line.rstrip("\r\n"))
