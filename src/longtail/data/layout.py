"""How data is laid out: the options of ``read`` and of every command that reads data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

from longtail.errors import SettingError, suggest

# The names of --format, with what they are called in messages.
FORMATS = {
    "csv": "CSV",
    "tsv": "TSV",
    "jsonl": "JSONL",
    "json": "JSON",
    "parquet": "Parquet",
    "fasttext": "fastText",
    "annif": "an Annif corpus",
    "pair": "a file of texts and a file of labels",
    "lines": "one text per line",
    "xc": "XC",
}
NO_SEPARATOR = "none"  # a cell is one label
FIELD_SEPARATOR = "\x1e"  # ASCII record separator, between the fields of a text; white space for str.split
CATEGORIES_FIELD = "categories"  # the last field: metadata as words
_SEPARATOR_WORDS = {"tab": "\t", r"\t": "\t", "space": " ", "comma": ",", "": None}


class LayoutOptions(TypedDict, total=False):
    """The options of ``longtail.read`` as keyword arguments. The labels are an argument by themselves."""

    text: str | Sequence[str] | None
    categories: str | Sequence[str] | None
    separator: str | None
    header: bool | None
    id: str | int | None
    format: str | None
    vocabulary: str | Path | None
    vocabulary_language: str | None


@dataclass(frozen=True)
class Layout:
    """Which columns or keys of the data have which meaning. What is empty or None is guessed from the data.

    >>> Layout.from_options("tags", text="title, body", separator="tab")
    Layout(text=('title', 'body'), labels=('tags',), separator='\\t')
    """

    text: tuple[str, ...] = ()  # several are fields
    categories: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    separator: str | None = None  # of the labels in a cell
    header: bool | None = None  # whether the first row of a table names the columns
    id: str | None = None
    format: str | None = None
    vocabulary: str | None = None  # file with the labels
    vocabulary_language: str | None = None  # of their names

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise SettingError(f'there is no format "{self.format}"', hint=suggest(self.format, FORMATS))

    def __repr__(self) -> str:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value not in (None, ()))
        return f"Layout({shown})"

    @classmethod
    def from_options(cls, labels: str | Sequence[str] | None = None, **options: Any) -> Layout:
        """Build a layout from options as users write them: one name, names separated by commas, or a list of names."""
        known = {each.name for each in fields(cls)}
        for name in options:
            if name not in known:
                raise SettingError(f'there is no option "{name}"', hint=suggest(name, known))
        names = {"labels": labels, "text": options.pop("text", None), "categories": options.pop("categories", None)}
        if (separator := options.pop("separator", None)) is not None:
            options["separator"] = _SEPARATOR_WORDS.get(separator, separator)
        for name in ("id", "vocabulary"):
            if options.get(name) is not None:
                options[name] = str(options[name])
        options |= {name: _split_names(value) for name, value in names.items()}
        return cls(**options)

    @property
    def columns(self) -> dict[str, Any]:
        """What other data for the same tagger probably has in common with this."""
        names = ("text", "categories", "labels", "separator", "id")
        return {name: value for name in names if (value := getattr(self, name))}

    @classmethod
    def from_columns(cls, columns: dict[str, Any]) -> Layout:
        """Restore what ``columns`` gave, also from JSON."""
        restored: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in columns.items()
        }
        return cls(**restored)

    @property
    def named(self) -> tuple[str, ...]:
        """All names of columns."""
        return (*self.text, *self.labels, *self.categories, *((self.id,) if self.id else ()))

    def to_json(self) -> dict[str, Any]:
        """All options, for ``from_json`` in another process."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_json(cls, options: dict[str, Any]) -> Layout:
        """Restore a layout."""
        return cls.from_columns(options)

    def to_words(self) -> list[str]:
        """The options of the command line that give this layout.

        >>> Layout(text=("title", "body"), header=False).to_words()
        ['--text', 'title,body', '--no-header']
        """
        words: list[str] = []
        for name, value in self.to_json().items():
            if isinstance(value, bool):
                words.append(f"--{'' if value else 'no-'}{name}")
            elif value:
                words += [f"--{name.replace('_', '-')}", ",".join(value) if isinstance(value, tuple) else value]
        return words


def name_option(name: str) -> str:
    """How to set an option, for hints."""
    return f"--{name.replace('_', '-')} (in Python {name}=…)"


def _split_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    parts = names.split(",") if isinstance(names, str) else [str(name) for name in names]
    return tuple(stripped for name in parts if (stripped := name.strip()))
