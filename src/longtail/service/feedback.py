"""Feedback of people, written to one file per model that ``longtail update --feedback`` reads. Lines are only ever added."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

from longtail.data.feedback import check_verdicts
from longtail.files import sync_folder
from longtail.service.errors import ServiceError
from longtail.service.metrics import Metrics
from longtail.service.models import ServedModel
from longtail.text_lines import check_text

VERDICTS = ("accepted", "rejected", "added")


class FeedbackLog:
    """The files with feedback, in one folder."""

    def __init__(self, folder: str | Path, metrics: Metrics) -> None:
        self.folder, self.metrics = Path(folder), metrics

    def find_path(self, model: str) -> Path:
        """Return the file of a model."""
        return self.folder / f"{model}.jsonl"

    def append(self, model: ServedModel, events: Sequence[dict[str, Any]]) -> list[str]:
        """Write events, and wait until they are on disk. Returns their ids.

        :param events: Objects with ``accepted``, ``rejected`` and ``added`` labels, and what else is known about them. Those
            without a ``text`` are kept as a record, but cannot be learned from.
        """
        lines, ids, counts = [], [], dict.fromkeys(VERDICTS, 0)
        for event in events:
            verdicts = {key: list(event.get(key, ())) for key in VERDICTS}
            for text in (event.get("text") or "", *(name for names in verdicts.values() for name in names)):
                check_text(text, "text")  # that it can be written
            check_verdicts(verdicts, model.tagger.labels)
            known = {"id": uuid.uuid4().hex, "date": datetime.now(UTC).isoformat(timespec="seconds"), "model": model.name}
            ids.append(known["id"])
            lines.append(json.dumps({**known, "version": model.version, **event, **verdicts}, ensure_ascii=False) + "\n")
            for key, names in verdicts.items():
                counts[key] += len(names)
        self._write(self.find_path(model.name), "".join(lines).encode())
        for key, n in counts.items():
            self.metrics.feedback.labels(key).inc(n)
        return ids

    def _write(self, path: Path, content: bytes) -> None:
        """Append to a file, all or nothing. Other processes may do the same, so a lock keeps lines whole."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            is_new = not path.exists()
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "r+b", buffering=0) as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                _append_whole(stream, content)
            if is_new:
                sync_folder(self.folder)
        except OSError as error:
            hint = "Make the folder for feedback writable for the service"
            raise ServiceError(503, f"the feedback cannot be written ({error.strerror})", hint=hint) from error


def _append_whole(stream: FileIO, content: bytes) -> None:
    """Write lines after the last one, and wait until they are on disk. If that fails, none of them stays."""
    size = stream.seek(0, os.SEEK_END)
    if size:
        stream.seek(size - 1)
        content = content if stream.read(1) == b"\n" else b"\n" + content  # after a line that a power cut has cut off
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[stream.write(rest) :]
        os.fsync(stream.fileno())
    except OSError:
        stream.truncate(size)
        raise
