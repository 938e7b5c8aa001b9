"""Check the files of a command before the first of them is read: reading may take minutes, and training hours."""

from __future__ import annotations

from pathlib import Path

from longtail.data.dataset import Dataset
from longtail.data.vocabulary import detect_rdf
from longtail.extras import require
from longtail.files import STDIN, open_read

_BUILTIN = "builtin:"
_PEEKED_BYTES = 1 << 10


def check_sources(*sources: Dataset | str | Path | None, vocabulary: str | Path | None = None) -> None:
    """Raise an error for a file that does not exist, or that needs a package which is not installed.

    :param sources: Data sets, files or built-in corpora; None is ignored.
    :param vocabulary: A vocabulary.
    """
    for source in sources:
        if isinstance(source, str | Path) and _peek(source).startswith(b"PAR1"):
            require("Reading Parquet", "pyarrow")
    if vocabulary is not None and detect_rdf(_peek(vocabulary), vocabulary):
        require("Reading SKOS", "rdflib")


def _peek(path: str | Path) -> bytes:
    """Return the first bytes of a file; nothing for standard input, pipes and built-in corpora, which are read once."""
    if str(path) == STDIN or str(path).startswith(_BUILTIN) or (Path(path).exists() and not Path(path).is_file()):
        return b""
    with open_read(path) as stream:
        return stream.read(_PEEKED_BYTES)
