"""The options of constraints on labels, and the constraints that they stand for."""

from __future__ import annotations

import argparse

FILE_HELP = "constraints on labels, from a JSON file: allow, deny, subtrees, required, at_most_one, with_parents"


def add_constraint_options(command: argparse.ArgumentParser) -> None:
    """Add the options to a command. Each takes one or more labels, so that names may contain any character."""
    group = command.add_argument_group(
        "constraints", "Labels are names, URIs or notations; * and ? stand for any characters. FILE comes before these."
    )

    def add(option: str, doc: str) -> None:
        group.add_argument(option, nargs="+", action="extend", metavar="LABEL", help=doc)

    add("--allow", "predict only these labels")
    add("--deny", "never predict these labels")
    add("--subtree", "predict only these labels and those below them in the hierarchy, in addition to --allow")
    add("--require", "give these labels to every text")
    exclusive = "of these labels, give only the best; may be repeated for further groups"
    group.add_argument("--at-most-one", nargs="+", action="append", metavar="LABEL", help=exclusive)
    group.add_argument("--with-parents", action="store_true", help="add the parents of labels")
    group.add_argument("--constraints", metavar="FILE", help=FILE_HELP)
