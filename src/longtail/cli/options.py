"""Options that several commands have in common. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

from longtail.cli.arguments import parse_pair, parse_positive, parse_positive_list, parse_seed


def add_metrics(command: argparse.ArgumentParser) -> None:
    """Add the options of commands that evaluate."""
    command.add_argument("--k", type=parse_positive_list, default=(1, 3, 5), metavar="1,3,5", help="ranks to evaluate at")
    constants = "constants of propensity-scored metrics (default: 0.55,1.5)"
    command.add_argument("--propensity", type=parse_pair, default=(0.55, 1.5), metavar="A,B", help=constants)


def add_target(command: argparse.ArgumentParser) -> None:
    """Add the options that ask for sets of labels."""
    target = (
        "sets of labels with the best expected-f1, micro-f1 or macro-f1; with precision=0.9 or recall=0.8; or count=N "
        "labels per text on average"
    )
    command.add_argument("--target", metavar="TARGET", help=target)
    threshold = "sets of the labels with a probability (uncalibrated: a score) of at least P"
    command.add_argument("--threshold", type=float, metavar="P", help=threshold)


def add_settings(command: argparse.ArgumentParser, doc: str) -> None:
    """Add the option for settings of a method."""
    command.add_argument("--set", action="append", default=[], metavar="name=value", help=doc)


def add_overwrite(command: argparse.ArgumentParser) -> None:
    """Add the option of commands that save a model in a folder."""
    command.add_argument("--overwrite", action="store_true", help="replace the model that is in the folder of --out")


def add_cluster(command: argparse.ArgumentParser) -> None:
    """Add the option of work that several workers share."""
    doc = "run on several workers: local:N (processes), dask:ADDRESS or ray:ADDRESS; what is done is not repeated"
    command.add_argument("--cluster", metavar="ENGINE", help=doc)


def add_threads(command: argparse.ArgumentParser) -> None:
    """Add the option for the number of threads."""
    command.add_argument("--threads", type=parse_positive, metavar="N", help="number of threads (default: all free cores)")


def add_seed_and_threads(command: argparse.ArgumentParser) -> None:
    """Add the options of commands that train."""
    command.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="seed of everything random (default: 0)")
    add_threads(command)
