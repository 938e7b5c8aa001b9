"""Split strings that contain several labels, in formats that do not define a separator."""

from __future__ import annotations

import re
from collections.abc import Sequence

_URIS = re.compile(r"\s*(<[^<>\s]+>\s*)+")
_SEPARATOR_NAMES = {"\t": "tabs", "|": "|", ";": ";", ",": "commas", " ": "spaces"}


def split_cells(cells: Sequence[str], separators: str) -> tuple[list[list[str]], str]:
    """Split every cell at the first of ``separators`` that occurs in any cell. Returns the labels and a note.

    URIs in angle brackets, as in Annif's files, are recognised by the brackets.

    >>> split_cells(["a; b c", "d"], "|;,")
    ([['a', 'b c'], ['d']], 'labels were split at ;')
    >>> split_cells(["<http://x/1> <http://x/2>"], "|;,")
    ([['http://x/1', 'http://x/2']], 'labels were read as URIs in angle brackets')
    """
    if any(cells) and all(_URIS.fullmatch(cell) for cell in cells if cell.strip()):
        return [re.findall(r"<([^<>\s]+)>", cell) for cell in cells], "labels were read as URIs in angle brackets"
    separator = next((s for s in separators if any(s in cell for cell in cells)), None)
    if separator is None:
        return [[cell.strip()] if cell.strip() else [] for cell in cells], "each text has at most one label"
    parts = [[name for part in cell.split(separator) if (name := part.strip())] for cell in cells]
    return parts, f"labels were split at {_SEPARATOR_NAMES[separator]}"
