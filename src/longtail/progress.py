"""How far a long step has come, and how long it will still take."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

WIDTH = 24


class Stage:
    """One step of known length: call ``advance`` as it goes."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count steps done; the note (say, the current metric) is shown beside them."""


class Progress:
    """The silent display, and the base of the one that people see."""

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Stage]:
        """Show one step of ``total`` units while the block runs."""
        yield Stage()

    def say(self, message: str) -> None:
        """Tell one line that is not a step."""


SILENT = Progress()


class Display(Progress):
    """A bar that redraws itself on a terminal, plain lines elsewhere (a log file, a pipe)."""

    def __init__(self, stream: TextIO | None = None, title: str = "") -> None:
        """Where to, and what to say before the name of each step, where there are steps of several."""
        self.stream, self.title = stream or sys.stderr, title
        self.terminal = self.stream.isatty()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Stage]:
        """Show one step of ``total`` units while the block runs."""
        bar = _Bar(self, f"{self.title} {name}".lstrip(), total)
        try:
            yield bar
        except BaseException:
            bar.close("stopped")
            raise
        bar.close("done")

    def say(self, message: str) -> None:
        """Tell one line that is not a step."""
        self.stream.write(message + "\n")
        self.stream.flush()


class _Bar(Stage):
    def __init__(self, display: Display, name: str, total: int) -> None:
        self.display, self.name, self.total = display, name, total
        self.start = self.shown = time.monotonic()
        self.done, self.note = 0, ""
        self.every = 0.1 if display.terminal else 10.0

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.done += steps
        self.note = note or self.note
        now = time.monotonic()
        if now - self.shown >= self.every:
            self.shown = now
            took = now - self.start
            left = took / self.done * (self.total - self.done) if self.done else 0.0
            self._draw(f"{100 * self.done // max(self.total, 1):3d} %  {clock(took)} gone, {clock(left)} left")

    def close(self, word: str) -> None:
        self._draw(f"{word} in {clock(time.monotonic() - self.start)}", last=True)

    def _draw(self, text: str, last: bool = False) -> None:
        text = f"{text}  {self.note}".rstrip()
        if self.display.terminal:
            full = WIDTH * self.done // max(self.total, 1)
            bar = "━" * full + "─" * (WIDTH - full)
            self.display.stream.write(f"\r\x1b[K{self.name:<12} {bar} {text}" + ("\n" if last else ""))
        else:
            self.display.stream.write(f"{self.name}: {text}\n")
        self.display.stream.flush()


def clock(seconds: float) -> str:
    """Seconds as a person reads them.

    >>> clock(0.5), clock(75), clock(7260)
    ('0.5 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
