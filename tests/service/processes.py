"""The service in a process, started by a command."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from pathlib import Path


class Process:
    """A process that listens when the constructor returns."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment)
        self.lines: list[str] = []
        self.started = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        assert self.started.wait(120), self.lines
        self.address = next(line.split()[1] for line in self.lines if line.startswith("open http"))
        self.port = int(self.address.rsplit(":", 1)[1].strip("/"))

    def read(self) -> None:
        for line in self.process.stderr or ():
            self.lines.append(line)
            if line.startswith("open http") or "longtail serve:" in line:
                self.started.set()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        assert self.process.wait(60) == 0
        self.reader.join(60)
        assert self.process.stderr
        self.process.stderr.close()
