"""The options of constraints on labels, and the constraints that they stand for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longtail.decisions.constraints import Constraints

FILE_HELP = "constraints on labels, from a JSON file: allow, deny, subtrees, required, at_most_one, with_parents"


def add_constraint_options(command: argparse.ArgumentParser, note: str = "") -> None:
    """Add the options to a command. Each takes one or more labels, so that names may contain any character.

    :param note: What else the help text says about them.
    """
    group = command.add_argument_group(
        "constraints", f"Labels are names, URIs or notations; * and ? stand for any characters. {note}".strip()
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


def get_constraints(arguments: argparse.Namespace) -> list[Constraints]:
    """Return the constraints of the options, and those of a file; both must hold."""
    from longtail.decisions.constraints import Constraints

    given = Constraints(
        allow=arguments.allow,
        deny=arguments.deny or (),
        subtrees=arguments.subtree,
        required=arguments.require or (),
        at_most_one=arguments.at_most_one or (),
        with_parents=arguments.with_parents,
    )
    stored = [Constraints.from_file(arguments.constraints)] if arguments.constraints else []
    return stored if given == Constraints() else [*stored, given]
