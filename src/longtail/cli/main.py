"""The words of the command line. Commands live in ``commands`` and are imported only when they run."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from longtail import __version__
from longtail.errors import CollapseWarning, LongtailError, SettingError, suggest

DATA = "a file in any known format (plain, .gz, .xz), or builtin:pydoc, builtin:debtags"


class Parser(argparse.ArgumentParser):
    """argparse, with the nearest right name in its complaints."""

    def error(self, message: str) -> NoReturn:
        """Complain about wrong use and leave with code 2."""
        word = message.split("'")[1] if "invalid choice: '" in message else message.rpartition(": ")[2].split(" ")[0]
        if "invalid choice" in message:
            message = f'there is no command "{word}". {suggest(word, self.commands())}'
        elif "unrecognized arguments" in message:
            parsers = [self, *self.commands().values()]
            options = {o for p in parsers for a in p._actions for o in a.option_strings if o.startswith("--")}
            message = f"{message}. {suggest(word, options)}" if word.startswith("-") else message
        self.exit(2, f"{self.prog}: {message}\nTry: {self.prog} --help\n")

    def commands(self) -> dict[str, argparse.ArgumentParser]:
        """The parsers of the commands, by name."""
        found = (a.choices for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return dict(next(found, {}))


def parser() -> Parser:
    """All commands with their options."""
    top = Parser(prog="longtail", description="Give a text the few right labels out of thousands or millions.")
    top.add_argument("--version", action="version", version=f"longtail {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def command(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)

    train = command("train", "Learn a tagger from labelled data and save it.")
    train.add_argument("data", metavar="DATA", help=DATA)
    train.add_argument(
        "--method", default="ovr", metavar="NAME", help="see `longtail methods`; auto: as `choose` proposes (default: ovr)"
    )
    train.add_argument("--out", required=True, metavar="MODEL", help="the folder to write the model to")
    train.add_argument("--valid", metavar="DATA", help="data to choose the threshold on and to report on")
    train.add_argument("--preset", metavar="NAME", help="a set of settings, see `longtail methods`")
    train.set_defaults(trial=False)
    training_options(train, "one setting; may be repeated")

    choose = command("choose", "Propose a method for the data, by its size and your time; estimate what each would cost.")
    choose.add_argument("data", metavar="DATA", help=DATA)
    choose.add_argument("--minutes", type=float, default=10.0, metavar="10", help="that training may take")
    choose.add_argument("--memory", type=float, metavar="GB", help="that training may take (default: what is free)")
    choose.add_argument(
        "--try", dest="trial", action="store_true", help="try the best two or three on a part of the data, keep the best"
    )
    choose.add_argument("--out", metavar="MODEL", help="train it, too, and write the model to this folder")
    seed_and_threads(choose)

    pretrain = command("pretrain", "Have an XLNet read the texts of a corpus, as an encoder for the method aplc.")
    pretrain.add_argument("data", metavar="DATA", help=f"{DATA}; labels are not looked at")
    pretrain.add_argument("--out", required=True, metavar="FOLDER", help="the new folder to write the encoder to")
    training_options(pretrain, "one setting, such as width=128, layers=4, epochs=20 or max_length=64; may be repeated")

    evaluate = command("evaluate", "Measure a saved tagger on data that it did not learn from.")
    evaluate.add_argument("model", metavar="MODEL")
    evaluate.add_argument("data", metavar="DATA", help=DATA)
    evaluate.add_argument("--json", metavar="FILE", help="write the figures to a file, too (- for standard output only)")
    evaluate.add_argument("--per-label", metavar="FILE", help="write a table with a row for each label, too")
    metric_options(evaluate)

    compare = command("compare", "Train and measure methods side by side: a table, figures as JSON, and a page with plots.")
    compare.add_argument("train", metavar="TRAIN", help="data to learn from: a file in any known format")
    compare.add_argument("test", metavar="TEST", help="data to measure on")
    names = (
        "with commas between: a method (plt), one of its presets (plt:bonsai), the folder of a saved model; NAME= before it"
    )
    compare.add_argument("--methods", required=True, metavar="A,B,…", help=names)
    compare.add_argument("--out", required=True, metavar="FOLDER", help="where to write; what is done there is not repeated")
    compare.add_argument("--valid", metavar="DATA", help="data for methods that choose something while they learn")
    metric_options(compare)
    training_options(compare, "one setting of one method, METHOD.name=value; may be repeated")

    blend = command("blend", "Make one tagger of several saved ones, weighed by data that none of them has learned from.")
    blend.add_argument("data", metavar="VALID", help=f"data to weigh them by: {DATA}")
    blend.add_argument("models", nargs="+", metavar="MODEL", help="the folders of two or more saved models")
    blend.add_argument("--out", required=True, metavar="MODEL", help="the folder to write the blend to")

    reproduce = command("reproduce", "Train and measure as recipes say, and check that their figures hold.")
    reproduce.add_argument(
        "recipes", nargs="+", metavar="RECIPE", help="a file, or a name: plt.bibtex is recipes/plt.bibtex.toml"
    )
    reproduce.add_argument("--record", action="store_true", help="write what is found into the recipes as what is expected")
    reproduce.add_argument("--threads", type=positive, metavar="N", help="default: all cores")

    predict = command("predict", "Give each text its labels.")
    predict.add_argument("model", metavar="MODEL")
    predict.add_argument("file", nargs="?", default="-", metavar="FILE", help="texts, a line each, or JSONL (default: -)")
    predict.add_argument("--k", type=positive, default=5, metavar="5", help="how many labels")
    predict.add_argument("--json", action="store_true", help='one line per text: {"labels": [{"label", "score"}, …]}')
    predict.add_argument("--novelty", action="store_true", help="how unlike the training data each is (0 … about 1), too")
    predict.add_argument("--explain", action="store_true", help="what in each text speaks for its labels, too")

    check = command("check", "Look data over: counts, label frequencies, what is suspicious, what to do about it.")
    check.add_argument("data", metavar="DATA", help=DATA)
    check.add_argument("test", nargs="?", metavar="TEST", help="test data, to be checked for leakage")

    split = command("split", "Split data in two so that every label keeps its share and rare labels stay in training.")
    split.add_argument("data", metavar="DATA", help=DATA)
    split.add_argument("--test", type=float, default=0.2, metavar="0.2", help="share of the test side")
    split.add_argument("--out", default=".", metavar="FOLDER", help="where to write train and test (default: here)")
    split.add_argument("--seed", type=seed_number, default=0, metavar="N")

    info = command("info", "Tell what a saved tagger is.")
    info.add_argument("model", metavar="MODEL")
    info.add_argument("--tree", metavar="FILE.svg", help="draw its tree of labels, too, for methods that have one")

    command("methods", "List the methods with their presets and settings.")

    demo = command("demo", "A tour: build a corpus, compare methods on it, write a report, tag an example and tell why.")
    demo.add_argument("--out", default="demo", metavar="FOLDER", help="where to write (default: demo)")
    demo.add_argument("--open", action="store_true", help="show the report in a browser")
    return top


def metric_options(command: argparse.ArgumentParser) -> None:
    """What all commands that measure have."""
    command.add_argument("--k", type=whole_numbers, default=(1, 3, 5), metavar="1,3,5", help="ranks to measure at")
    command.add_argument(
        "--propensity",
        type=two_numbers,
        default=(0.55, 1.5),
        metavar="A,B",
        help="constants of PSP (default: 0.55,1.5)",
    )


def training_options(command: argparse.ArgumentParser, settings: str) -> None:
    """What all commands that train have."""
    command.add_argument("--set", action="append", default=[], metavar="name=value", help=settings)
    seed_and_threads(command)


def seed_and_threads(command: argparse.ArgumentParser) -> None:
    """What all commands that do something random, or much, have."""
    command.add_argument("--seed", type=seed_number, default=0, metavar="N", help="for everything random (default: 0)")
    command.add_argument("--threads", type=positive, metavar="N", help="default: all cores")


def positive(word: str) -> int:
    """A whole number from 1."""
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is not a whole number from 1")
    return int(word)


def seed_number(word: str) -> int:
    """A whole number from 0 that fits into 32 bits."""
    if not word.isdigit() or int(word) >= 2**32:
        raise argparse.ArgumentTypeError(f"{word} is not a whole number from 0 to {2**32 - 1}")
    return int(word)


def whole_numbers(word: str) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    return tuple(sorted({positive(part.strip()) for part in word.split(",")}))


def two_numbers(word: str) -> tuple[float, float]:
    """Two numbers with a comma between them."""
    try:
        first, second = (float(part) for part in word.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{word} is not two numbers such as 0.55,1.5") from error
    return first, second


def shown_as_a_line(command: str, otherwise: Callable[..., None]) -> Callable[..., None]:
    """How to show a warning: ours as one line without the place in the source, others as before."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, CollapseWarning):
            sys.stderr.write(f"longtail {command}: warning: {message}\n")
        else:
            otherwise(message, category, *rest, **named)

    return show


def run(arguments: argparse.Namespace) -> Any:
    """Do what the words of one command say."""
    from longtail.cli import commands

    return getattr(commands, arguments.command)(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (failed) or 2 (wrong use)."""
    arguments = parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", CollapseWarning)
            warnings.showwarning = shown_as_a_line(arguments.command, warnings.showwarning)
            run(arguments)
        sys.stdout.flush()
    except LongtailError as error:
        sys.stderr.write(f"longtail {arguments.command}: {error}\n")
        return 2 if isinstance(error, SettingError) else 1
    except KeyboardInterrupt:
        sys.stderr.write(f"\nlongtail {arguments.command}: interrupted\n")
        return 1
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"longtail {arguments.command}: {where}{error.strerror or error}\n")
        return 1
    except MemoryError:
        sys.stderr.write(f"longtail {arguments.command}: there is not enough memory for this\n")
        return 1
    return 0


def script() -> NoReturn:
    """The console entry: leave at once, without waiting for threads that an interruption left at work."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
