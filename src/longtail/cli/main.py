"""The entry point of the command line: runs one command and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from longtail.cli.parser import build_parser
from longtail.errors import CalibrationWarning, CollapseWarning, LongtailError, OverwriteWarning, SettingError
from longtail.interruption import INTERRUPTED, end_on_signals
from longtail.printable import make_visible

_OUR_WARNINGS = (CalibrationWarning, CollapseWarning, OverwriteWarning)


def run_command(arguments: argparse.Namespace) -> Any:
    """Run the command of parsed arguments."""
    from longtail.cli import commands

    return getattr(commands, arguments.command)(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (failed), 2 (wrong usage) or 130 (interrupted)."""
    arguments = build_parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            for category in _OUR_WARNINGS:
                warnings.simplefilter("always", category)
            warnings.showwarning = _show_in_one_line(arguments.command, warnings.showwarning)
            run_command(arguments)
        sys.stdout.flush()
    except LongtailError as error:
        sys.stderr.write(f"longtail {arguments.command}: {error}\n")
        return 2 if isinstance(error, SettingError) else 1
    except KeyboardInterrupt:  # only in Python: ``script`` ends at once
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(make_visible(f"longtail {arguments.command}: {where}{error.strerror or error}") + "\n")
        return 1
    except MemoryError:
        sys.stderr.write(f"longtail {arguments.command}: out of memory\n")
        return 1
    return 0


def script() -> NoReturn:
    """The console script. Interruptions end it at once."""
    end_on_signals(" ".join(["longtail", *(word for word in sys.argv[1:2] if word.isalpha())]))
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _show_in_one_line(command: str, default: Callable[..., None]) -> Callable[..., None]:
    """Show our own warnings as one line without the place in the source, others as usual."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, _OUR_WARNINGS):
            sys.stderr.write(make_visible(f"longtail {command}: warning: {message}") + "\n")
        else:
            default(message, category, *rest, **named)

    return show
