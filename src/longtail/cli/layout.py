"""The options of every command that reads data: how the data is laid out. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

from longtail.data.layout import FORMATS, Layout

DATA = "file in any known format (plain, .gz, .xz), - for standard input, folder, or builtin:pydoc, builtin:debtags"


def add_layout_options(command: argparse.ArgumentParser, *, reads_labels: bool = True) -> None:
    """Add the options; what is not given is guessed from the data. Without labels, there is no vocabulary to read."""
    group = command.add_argument_group("layout of the data (guessed if not given)")
    group.add_argument("--text", metavar="COLUMN[,…]", help="column or key with the texts; several become fields of a text")
    group.add_argument("--labels", metavar="COLUMN[,…]", help="column with the labels, or several with one label each")
    separator = "what separates labels in a cell: a character, tab, space, or none if a cell is one label"
    group.add_argument("--separator", metavar="CHAR", help=separator)
    group.add_argument("--categories", metavar="COLUMN[,…]", help="columns with metadata, whose values become words")
    group.add_argument("--id", metavar="COLUMN", help="column with the ids")
    header = "whether the first row names the columns; without a header they are named 1, 2, …"
    group.add_argument("--header", action=argparse.BooleanOptionalAction, help=header)
    group.add_argument("--format", metavar="NAME", help=f"one of {', '.join(FORMATS)}")
    if not reads_labels:
        command.set_defaults(vocabulary=None, vocabulary_language=None)
        return
    vocabulary = "names of the labels, URIs, descriptions, hierarchy: a list, a table (TSV, CSV) or SKOS"
    group.add_argument("--vocabulary", metavar="FILE", help=vocabulary)
    language = "language of the label names, such as fi (default: en, or the most frequent)"
    group.add_argument("--vocabulary-language", metavar="CODE", help=language)


def get_layout(arguments: argparse.Namespace) -> Layout:
    """Return the layout that the options of a command describe."""
    names = ("text", "separator", "categories", "id", "header", "format", "vocabulary", "vocabulary_language")
    return Layout.from_options(arguments.labels, **{name: getattr(arguments, name) for name in names})
