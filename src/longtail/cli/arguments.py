"""argparse as the commands use it: arguments in any order, suggestions for misspelt ones, and the types of their values."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from longtail.errors import suggest

OUTPUTS = ("tsv", "csv", "jsonl", "elasticsearch", "solr")


class Parser(argparse.ArgumentParser):
    """argparse with options and files in any order, and with suggestions for misspelt commands and options."""

    _is_any_order = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """Parse all arguments. The command that does not know an option reports it, with the options that it has."""
        found: argparse.Namespace
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser: argparse.ArgumentParser = self
            for level in ("command", "operation"):  # an operation is a command of `labels`
                if isinstance(parser, Parser) and (name := getattr(found, level, None)) is not None:
                    parser = parser.commands()[name]
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse options and files in any order; argparse does not take an optional file that follows an option."""
        if self._is_any_order or self.commands():  # argparse calls this method twice for one parse in any order
            return super().parse_known_args(args, namespace)
        self._is_any_order = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_any_order = False

    def error(self, message: str) -> NoReturn:
        """Report wrong usage and exit with code 2."""
        word = message.split("'")[1] if "invalid choice: '" in message else message.rpartition(": ")[2].split(" ")[0]
        if "invalid choice" in message:
            message = f'there is no command "{word}". {suggest(word, self.commands())}'
        elif "unrecognized arguments" in message:
            options = {option for action in self._actions for option in action.option_strings if option.startswith("--")}
            message = f"{message}. {suggest(word, options)}" if word.startswith("-") else message
        self.exit(2, f"{self.prog}: {message}\nTry: {self.prog} --help\n")

    def commands(self) -> dict[str, argparse.ArgumentParser]:
        """The parsers of the commands, by name."""
        found = (a.choices for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return dict(next(found, {}))


def parse_positive(word: str) -> int:
    """Read a positive integer."""
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is not a positive integer")
    return int(word)


def parse_seed(word: str) -> int:
    """Read a seed."""
    if not word.isdigit() or int(word) >= 2**32:
        raise argparse.ArgumentTypeError(f"{word} is not an integer from 0 to {2**32 - 1}")
    return int(word)


def parse_positive_list(word: str) -> tuple[int, ...]:
    """Read positive integers that are separated by commas: each of them once, in ascending order."""
    return tuple(sorted({parse_positive(part.strip()) for part in word.split(",")}))


def parse_output(word: str) -> str:
    """Read the name of an output of ``predict``."""
    if word not in OUTPUTS:
        raise argparse.ArgumentTypeError(f'there is no output "{word}". {suggest(word, OUTPUTS)}')
    return word


def parse_pair(word: str) -> tuple[float, float]:
    """Read two numbers that are separated by a comma."""
    try:
        first, second = (float(part) for part in word.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{word} is not a pair of numbers such as 0.55,1.5") from error
    return first, second
