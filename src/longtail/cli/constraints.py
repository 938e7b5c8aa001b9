"""The options of constraints on labels, and the constraints that they stand for."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from longtail.errors import SettingError

if TYPE_CHECKING:
    from longtail.data.labels import Labels
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


def check_options(arguments: argparse.Namespace, labels: Labels) -> None:
    """Raise an error if an option would do nothing, or if it has taken the file to predict for one of its labels."""
    if arguments.with_parents and labels.parents is None:
        hint = "Train on data with a vocabulary that has them: SKOS, or a table with the columns name and parents"
        raise SettingError("--with-parents needs the parents of the labels, which are not known", hint=hint)
    groups = {f"--{name}": [vars(arguments)[name] or ()] for name in ("allow", "deny", "subtree", "require")}
    groups["--at-most-one"] = arguments.at_most_one or []
    for option, lists in groups.items():
        for word in (word for words in lists for word in words):
            if word not in labels.keys and os.path.isfile(word):  # noqa: PTH113 (False for a label that is no file name, where Path raises)
                hint = f"Put it before the options: longtail {arguments.command} {arguments.model} {word} {option} …"
                raise SettingError(f'{option} has "{word}", which is a file, not a label', hint=hint)


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
    given.check_groups()
    stored = [Constraints.from_file(arguments.constraints)] if arguments.constraints else []
    return stored if given == Constraints() else [*stored, given]
