"""The corpora of recipes: what they are, where they come from, and how to find them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from longtail.data.dataset import Dataset
from longtail.data.read import BUILTIN, read
from longtail.data.split import split
from longtail.data.write import write_parts
from longtail.errors import DataError
from longtail.files import open_read
from longtail.recipes.files import FOLDER, SUFFIX, Figures, read_toml

ENVIRONMENT, DEFAULT_FOLDER = "LONGTAIL_DATA", "../shared/data"
_TEST_SHARE = 0.2  # of a built-in corpus, split with seed 0
_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class Corpus:
    """A corpus that recipes name."""

    path: Path
    title: str
    kind: str  # texts or vectors
    origin: str
    size: Figures  # train, test, labels
    sha256: dict[str, str] = field(default_factory=dict)  # of the uncompressed files, by part

    @property
    def name(self) -> str:
        """The name that recipes use."""
        return self.path.name.removesuffix(SUFFIX)


def read_corpora() -> list[Corpus]:
    """Every corpus that is described here: vectors before texts, few labels first, the built-in one last."""
    found = [read_toml(Corpus, path) for path in (FOLDER / "corpora").glob(f"*{SUFFIX}")]
    return sorted(found, key=lambda one: (not one.sha256, one.kind == "texts", one.size["labels"]))


def find_files(name: str, where: str = "") -> list[Path]:
    """The training and test files of a corpus, in the folder that LONGTAIL_DATA names."""
    root = Path(os.environ.get(ENVIRONMENT, DEFAULT_FOLDER))
    found = [sorted((root / name).glob(f"{part}.*")) for part in ("train", "test")]
    if not all(found):
        part = "train" if not found[0] else "test"
        hint = f"Set {ENVIRONMENT} to the folder that holds a folder for each corpus, with train.* and test.* in it"
        known = next((one for one in read_corpora() if one.name == name), None)
        origin = f". It is: {known.origin}" if known else ""
        raise DataError(f'the corpus "{name}" was not found: no {root / name / part}.*{origin}', where=where, hint=hint)
    return [files[0] for files in found]


def read_parts(name: str, folder: Path, where: str = "") -> tuple[Dataset, Dataset]:
    """Training and test data of a corpus. A built-in one is split and written to ``folder`` first."""
    if name.startswith(BUILTIN):
        train, test = write_parts(split(name, _TEST_SHARE, seed=0)._asdict(), folder)
    else:
        train, test = find_files(name, where)
        known = next((one for one in read_corpora() if one.name == name), None)
        for part, path in (("train", train), ("test", test)):
            if known and known.sha256.get(part, "") != _hash_file(path):
                found = f"this is not the {part} file that the recipes of {name} were made with (SHA-256 differs)"
                raise DataError(found, where=str(path), hint=f"The recipes use: {known.origin}")
    return read(train), read(test)


def _hash_file(path: Path) -> str:
    digest = sha256()
    with open_read(path) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
