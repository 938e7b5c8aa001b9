"""TOML files of this package, read into dataclasses."""

from __future__ import annotations

import re
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from longtail.errors import DataError, suggest
from longtail.files import open_read

FOLDER = Path(__file__).parent  # of the recipes that come with the package
SUFFIX = ".toml"

Figures = dict[str, float]
T = TypeVar("T")

# Type of a field -> the types that TOML may give, and how to say so.
_TOML_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a string"),
    "int": ((int,), "an integer"),
    "float": ((int, float), "a number"),
    "dict[str, str]": ((dict,), "a table"),
    "Figures": ((dict,), "a table of numbers"),
}


def read_toml(kind: type[T], path: Path) -> T:
    """Read a TOML file into a dataclass whose first field is the path. Every key must be a field of the right type."""
    with open_read(path) as stream:
        try:
            found = tomllib.loads(stream.read().decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            place = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
            where = f"{path}:{place[1]}:{place[2]}" if place else str(path)
            text = str(error).replace(place[0] if place else "", "")
            raise DataError(
                f"not a valid TOML file ({text})", where=where, hint="Fix it, or start from another recipe"
            ) from error
    known = {each.name: each for each in fields(kind)[1:]}  # type: ignore[arg-type]
    for name, value in found.items():
        if name not in known:
            raise DataError(f'unknown key "{name}"', where=str(path), hint=suggest(name, known))
        _check_type(name, value, str(known[name].type), path)
        for key, number in value.items() if known[name].type == "Figures" else ():
            _check_type(f'[{name}] "{key}"', number, "float", path)
    for name, each in known.items():
        if name not in found and each.default is MISSING and each.default_factory is MISSING:
            raise DataError(f'"{name}" is missing', where=str(path), hint=f"Add it: {_TOML_TYPES[str(each.type)][1]}")
    return kind(path, **found)  # type: ignore[call-arg]


def _check_type(name: str, value: Any, kind: str, path: Path) -> None:
    types, wanted = _TOML_TYPES[kind]
    if not isinstance(value, types) or isinstance(value, bool):
        raise DataError(f"{name} is {value!r}", where=str(path), hint=f"It must be {wanted}")
