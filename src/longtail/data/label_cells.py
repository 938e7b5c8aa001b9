"""Split cells that have several labels, in formats that do not define a separator.

A separator is accepted only if the column as a whole supports it: its parts must also occur alone, at other positions, or in
cells with another number of parts. So ``Smith, John`` stays one label.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from longtail.data.layout import NO_SEPARATOR, name_option
from longtail.errors import DataError

SEPARATORS = "\t|;,"
_URIS = re.compile(r"\s*(<[^<>\s]+>\s*)+")
_SEPARATOR_NAMES = {"\t": "tabs", " ": "spaces", ",": "commas"}
_MIN_FREE, _MAX_NOT_FREE = 0.5, 0.1  # share of the parts that occur in different places: a separator, not a separator
_USUAL = 1 / 3  # share of the cells with a character that hardly ever occurs inside names: then it is a separator
_SOME_SPREAD, _WIDE_SPREAD = 0.3, 0.5  # share of lists of another length than the most frequent: doubtful, a separator
_FEW = 4  # lists, too few for a spread
_NOT_RARE = 0.1  # share of the cells with a tab, | or ;, if there are several such cells: then it is a separator
_ODD = 0.05  # share of the cells with a character that is part of a name, or an error
_RECURS = 3  # cells with the same list, and no other list
_MANY = 20  # cells, enough to conclude something from what does not recur


class SplitLabels(NamedTuple):
    """The labels of each cell, how they were found, and the separator that gives the same again."""

    labels: list[list[str]]
    note: str
    separator: str | None


def split_cells(
    cells: Sequence[str], separator: str | None = None, *, candidates: str = SEPARATORS, where: str = ""
) -> SplitLabels:
    """Split every cell of a column into labels.

    URIs in angle brackets, as in Annif's files, and lists as JSON or Python writes them are recognised in all cells or none.

    :param cells: The cells; empty ones have no label.
    :param separator: The separator; ``none``: each cell is one label. None: the one that the whole column supports.
    :param candidates: Separators to consider, in this order.
    :param where: The file, for messages.

    >>> split_cells(["a; b c", "a", "d; a"]).labels
    [['a', 'b c'], ['a'], ['d', 'a']]
    >>> split_cells(["Smith, John", "Brown", "Miller"]).labels
    [['Smith, John'], ['Brown'], ['Miller']]
    >>> split_cells(["<http://x/1> <http://x/2>"]).labels
    [['http://x/1', 'http://x/2']]
    """
    if separator is None:
        filled = [cell for cell in cells if cell.strip()]
        if are_uris(filled):
            return SplitLabels([re.findall(r"<([^<>\s]+)>", cell) for cell in cells], "as URIs in angle brackets", None)
        if filled and filled[0].lstrip().startswith("["):
            lists = [parse_list(cell) if cell.strip() else [] for cell in cells]
            if None not in lists:
                return SplitLabels([_name_all(labels or []) for labels in lists], "as lists", None)
        separator = find_separator(filled, candidates, where)
        if separator is None:
            return SplitLabels(_split_at(cells, None), _describe_single(filled, candidates), NO_SEPARATOR)
    if separator == NO_SEPARATOR:
        return SplitLabels(_split_at(cells, None), "one per cell", NO_SEPARATOR)
    note = f"separated by {_SEPARATOR_NAMES.get(separator, separator)}"
    return SplitLabels(_split_at(cells, separator), note, separator)


def are_uris(cells: Sequence[str]) -> bool:
    """Whether all cells are URIs in angle brackets, as in Annif's files."""
    return bool(cells) and all(map(_URIS.fullmatch, cells))


def find_separator(cells: Sequence[str], candidates: str = SEPARATORS, where: str = "") -> str | None:
    """Return the first of the candidates that the column supports; None if each cell is one label.

    :param cells: The cells that are not blank.
    :param candidates: Separators to consider.
    :param where: The file, for messages.
    :raises DataError: If the column neither supports nor contradicts a separator.
    """
    doubtful = None
    for separator in candidates:
        supported = _is_supported(cells, separator)
        if supported:
            return separator
        if supported is None and doubtful is None:
            doubtful = separator
    if doubtful is None:
        return None
    example = next(cell for cell in cells if doubtful in cell.strip(doubtful))
    found = f'it is not clear whether "{doubtful}" separates labels, as in the cell "{example[:60]}"'
    hint = f'Set {name_option("separator")}: "{doubtful}", or "{NO_SEPARATOR}" if each cell is one label'
    raise DataError(found, where=where, hint=hint)


def _is_supported(cells: Sequence[str], separator: str) -> bool | None:
    """Whether a character separates labels; None if that is not clear.

    A part is free if it occurs in different places: alone, at another position, or in cells with another number of parts.
    At a comma with a space the parts after the first must be free: in "Women, Black" and "Women, Young" only the first is.
    """
    rows = [[part for piece in cell.split(separator) if (part := piece.strip())] for cell in cells]
    n_lists = sum(len(row) > 1 for row in rows)
    if not n_lists:
        return False
    places: dict[str, set[tuple[int, int]]] = {}
    for row in rows:
        for at, part in enumerate(row):
            places.setdefault(part, set()).add((at, len(row)))
    is_loose = separator == "," and any(", " in cell for cell in cells)  # as between the parts of one name
    parts = [part for row in rows if len(row) > 1 for part in row[is_loose:]]
    free = sum(len(places[part]) > 1 for part in parts) / len(parts)
    if free >= _MIN_FREE:
        return n_lists > 1 or len(cells) < _MANY  # never because of one row
    is_usual = n_lists >= _USUAL * len(cells)
    if n_lists >= _RECURS and len({tuple(row) for row in rows if len(row) > 1}) == 1:
        return None if is_usual else False  # always the same list: more likely one name
    if is_usual and not is_loose and (separator != " " or n_lists < _MANY or free >= _MAX_NOT_FREE):
        return True
    if separator in "\t|;" and n_lists > 1 and n_lists >= _NOT_RARE * len(cells):
        return True
    spread = _measure_spread(rows)
    if is_usual and is_loose and n_lists >= _MANY and spread >= _WIDE_SPREAD:
        return True
    is_odd = n_lists <= _ODD * len(cells) and len(cells) >= _MANY  # a few cells do not decide
    is_rare = is_odd or (n_lists < len(cells) / 2 if is_loose else False)
    if free < _MAX_NOT_FREE and spread < _SOME_SPREAD and (n_lists >= _MANY or is_rare):
        return False
    return None


def _measure_spread(rows: Sequence[Sequence[str]]) -> float:
    """Return the share of lists that are not of the most frequent length: a name has mostly as many parts as any other."""
    lengths = Counter(len(row) for row in rows if len(row) > 1)
    return 1 - max(lengths.values()) / lengths.total() if lengths.total() >= _FEW else 0.0


def _describe_single(cells: Sequence[str], candidates: str) -> str:
    inside = {char: sum(char in cell for cell in cells) for char in candidates if char != " "}
    found = ", ".join(f"{n:,} contain {_SEPARATOR_NAMES.get(char, char)}" for char, n in inside.items() if n)
    return f"one per cell ({found}, but that does not separate labels)" if found else "one per cell"


def _split_at(cells: Sequence[str], separator: str | None) -> list[list[str]]:
    if separator is None:
        return [[cell.strip()] if cell.strip() else [] for cell in cells]
    return [[name for part in cell.split(separator) if (name := part.strip())] for cell in cells]


def parse_list(cell: str) -> list[Any] | None:
    """Parse a cell that is a list as JSON or Python writes it; None if it is not.

    >>> parse_list('["a", "b"]'), parse_list("['a']"), parse_list("a, b")
    (['a', 'b'], ['a'], None)
    """
    cell = cell.strip()
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list) and all(isinstance(one, str | int) and not isinstance(one, bool) for one in found):
            return found
    return None


def _name_all(labels: Sequence[Any]) -> list[str]:
    return [name for label in labels if (name := str(label).strip())]
