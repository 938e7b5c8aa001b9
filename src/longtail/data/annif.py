"""Read Annif's corpora of full texts, folders of ``doc.txt`` files with their subjects; and write its vocabularies."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from longtail.data.labels import Labels
from longtail.data.source import Record, Source
from longtail.errors import DataError
from longtail.files import open_read
from longtail.text_lines import read_lines

_SUBJECT_SUFFIXES = (".tsv", ".key")
_URN = "urn:longtail:"


def open_folder(folder: Path, *, labelled: bool = True) -> Source:
    """Open a folder of texts; the name of a file without its suffix is the id of the text.

    A ``.tsv`` file has a line ``<uri>`` or ``<uri><TAB>label`` per subject, a ``.key`` file a line with its label.

    :param folder: The folder.
    :param labelled: Whether each text must have a file of subjects.
    """
    texts = sorted(path for path in folder.iterdir() if path.name.endswith((".txt", ".txt.gz", ".txt.xz")))
    pairs = [(path, _find_subjects(path)) for path in texts]
    if not pairs or (labelled and not any(subjects for _, subjects in pairs)):
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:5])
        hint = "A folder must hold texts as doc.txt with their subjects in doc.tsv or doc.key; or name a file in it"
        raise DataError(f"this folder is not an Annif corpus ({names or 'it is empty'})", where=str(folder), hint=hint)
    missing = [path.name for path, subjects in pairs if labelled and subjects is None]
    if missing:
        pairs = [(path, subjects) for path, subjects in pairs if subjects is not None]

    def records() -> Iterator[Record]:
        for number, (path, subjects) in enumerate(pairs, 1):
            with open_read(path) as stream:
                text = "\n".join(line for _, line in read_lines(stream, path))
            labels = read_subjects(subjects) if labelled and subjects else []
            yield Record({"id": path.name.partition(".txt")[0], "text": text, "labels": labels}, number)

    source = Source("annif", folder, records(), names=("id", "text", "labels"), unit="row")
    if missing:
        source.notes = [f"{len(missing):,} texts without a file of subjects were skipped (the first is {missing[0]})"]
    return source


def _find_subjects(path: Path) -> Path | None:
    stem = path.name.partition(".txt")[0]
    return next((file for suffix in _SUBJECT_SUFFIXES if (file := path.with_name(stem + suffix)).is_file()), None)


def read_subjects(path: Path) -> list[str]:
    """Read the subjects of one text: the URIs if there are any, otherwise the labels.

    :param path: A file with one subject per line.
    """
    with open_read(path) as stream:
        cells = [line.split("\t")[0].strip() for _, line in read_lines(stream, path)]
    return [cell.removeprefix("<").removesuffix(">") for cell in cells if cell]


def make_uri(labels: Labels, label: int) -> str:
    """Return the URI of a label, or one that is made of its name, since every subject of Annif has a URI.

    >>> make_uri(Labels(("sea", "red sea"), uris=("http://x/1", "")), 1)
    'urn:longtail:red%20sea'
    """
    return labels.get_uri(label) or _URN + quote(labels.names[label], safe="")


def find_by_urn(labels: Labels, uri: str) -> int | None:
    """Return the label for which ``make_uri`` makes a URI of its name; None if there is none.

    >>> find_by_urn(Labels(("sea", "red sea"), uris=("http://x/1", "")), "urn:longtail:red%20sea")
    1
    """
    label = labels.ids.get(unquote(uri.removeprefix(_URN))) if uri.startswith(_URN) else None
    return label if label is not None and labels.get_uri(label) is None else None


def format_annif_vocabulary(labels: Labels, ids: Iterable[int], language: str = "en") -> str:
    """Write labels as the CSV file that ``annif load-vocab`` reads.

    :param labels: The labels.
    :param ids: Those to write.
    :param language: The language of their names.

    >>> format_annif_vocabulary(Labels(("sea",), uris=("http://x/1",), notations=("551",)), [0], "fi")
    'uri,notation,label_fi\\nhttp://x/1,551,sea\\n'
    """
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["uri", "notation", f"label_{language}"])
    notations = labels.notations or ("",) * len(labels)
    table.writerows([make_uri(labels, label), notations[label], labels.names[label]] for label in ids)
    return stream.getvalue()
