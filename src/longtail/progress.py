"""Progress bars with an estimate of the time left: in terminals, notebooks and log files."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TextIO

from longtail.printable import make_visible

_ENVIRONMENT = "LONGTAIL_PROGRESS"  # "0" turns progress bars off
_BAR_WIDTH = 24  # characters
_NAME_WIDTH = 12
_REDRAW_SECONDS, _LOG_SECONDS = 0.1, 10.0  # time between two updates of a bar, and between two lines of a log

_is_on = True  # changed by set_progress


class Stage:
    """One stage of a long computation; its length is known."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count finished steps. The note, such as the current validation score, is shown next to the bar."""

    def skip(self, reason: str) -> None:
        """Show at the end of the stage that it was skipped, and why."""


class Progress:
    """Silent progress, and the base class of the displays."""

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Stage]:
        """Show a stage of ``total`` steps while the block runs."""
        yield Stage()

    def say(self, message: str) -> None:
        """Show a message on a separate line."""


SILENT = Progress()


class Display(Progress):
    """Progress on a stream: a bar that is redrawn in a terminal, plain lines elsewhere, such as in a log file.

    :param stream: Where to write. None: stderr.
    :param title: Text in front of the name of every stage.
    """

    def __init__(self, stream: TextIO | None = None, title: str = "") -> None:
        self.stream, self.title = stream or sys.stderr, title
        self.redraws = self.stream.isatty()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Stage]:
        """Show a stage of ``total`` steps while the block runs."""
        bar = _Bar(self, make_visible(f"{self.title} {name}".lstrip()), total)
        try:
            yield bar
        except BaseException:
            bar.close("stopped")
            raise
        bar.close(bar.skipped or "done")

    def say(self, message: str) -> None:
        """Show a message on a separate line."""
        self.stream.write(make_visible(message, keep="\n\t") + "\n")
        self.stream.flush()

    def _draw(self, bar: _Bar, text: str, last: bool) -> None:
        if self.redraws:
            self.stream.write(f"\r\x1b[K{bar.format_line(text)}" + ("\n" if last else ""))
        else:
            self.stream.write(f"{bar.name}: {text}\n")
        self.stream.flush()


class NotebookDisplay(Display):
    """Progress in the output of a notebook cell: one line for each stage, updated in place.

    :param title: Text in front of the name of every stage.
    """

    def __init__(self, title: str = "") -> None:
        super().__init__(title=title)
        self.redraws = True
        self._show = import_module("IPython.display").display

    def say(self, message: str) -> None:
        """Show a message on a separate line."""
        self._show({"text/plain": message}, raw=True)

    def _draw(self, bar: _Bar, text: str, last: bool) -> None:
        content = {"text/plain": bar.format_line(text)}
        if bar.handle is None:
            bar.handle = self._show(content, raw=True, display_id=True)
        else:
            bar.handle.update(content, raw=True)


class _Bar(Stage):
    def __init__(self, display: Display, name: str, total: int) -> None:
        self.display, self.name, self.total = display, name, total
        self.start = self.last_drawn = time.monotonic()
        self.done, self.note, self.skipped = 0, "", ""
        self.interval = _REDRAW_SECONDS if display.redraws else _LOG_SECONDS
        self.handle: Any = None  # of IPython, to update the line of a notebook

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.done += steps
        self.note = note or self.note
        now = time.monotonic()
        if now - self.last_drawn >= self.interval:
            self.last_drawn = now
            elapsed = now - self.start
            if not self.total:
                self._draw(f"{self.done:,}  {format_duration(elapsed)} elapsed")
                return
            left = elapsed / self.done * (self.total - self.done) if self.done else 0.0
            times = f"{format_duration(elapsed)} elapsed, {format_duration(left)} left"
            self._draw(f"{100 * self.done // self.total:3d} %  {times}")

    def skip(self, reason: str) -> None:
        self.skipped = f"skipped: {reason}"

    def close(self, outcome: str) -> None:
        took = "" if self.skipped else f" in {format_duration(time.monotonic() - self.start)}"
        self._draw(outcome + took, last=True)

    def format_line(self, text: str) -> str:
        n_full = min(_BAR_WIDTH * self.done // self.total, _BAR_WIDTH) if self.total else 0
        return f"{self.name:<{_NAME_WIDTH}} {'━' * n_full}{'─' * (_BAR_WIDTH - n_full)} {text}"

    def _draw(self, text: str, last: bool = False) -> None:
        self.display._draw(self, f"{text}  {self.note}".rstrip(), last)


def resolve_progress(progress: Progress | bool | None = None) -> Progress:
    """Return the progress that a public function should use.

    :param progress: What the caller passed. True: show progress. False: do not. None: show it in terminals and notebooks,
        unless ``set_progress(False)`` was called or the environment variable ``LONGTAIL_PROGRESS`` is ``0``. A ``Progress``
        is returned unchanged.

    >>> resolve_progress(False) is SILENT
    True
    """
    if isinstance(progress, Progress):
        return progress
    in_notebook = _is_notebook()
    if progress is None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        progress = _is_on and os.environ.get(_ENVIRONMENT) != "0" and (in_notebook or is_terminal)
    if not progress:
        return SILENT
    return NotebookDisplay() if in_notebook else Display()


def set_progress(on: bool) -> None:
    """Turn progress bars off in all functions, or on again. ``progress=True`` or ``False`` in a call takes precedence."""
    global _is_on
    _is_on = on


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")  # a notebook kernel has imported it
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None  # the shell of a terminal has no kernel


def format_duration(seconds: float) -> str:
    """Format seconds for people.

    >>> format_duration(0.5), format_duration(75), format_duration(7260)
    ('0.5 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
