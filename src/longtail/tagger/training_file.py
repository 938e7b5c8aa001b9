"""The file that a tagger was trained on, by name and content, so that an update can read it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from longtail.errors import DataError
from longtail.files import hash_file
from longtail.state import get_entry


@dataclass(frozen=True)
class TrainingFile:
    """A file with training data.

    :param path: As it was given: the path of a machine is stored only if the user wrote it.
    :param sha256: The SHA-256 of its content, in hexadecimal.
    """

    path: str
    sha256: str

    @classmethod
    def record(cls, path: str | Path) -> Self | None:
        """Remember a file; None if it is none, such as standard input, a built-in corpus or a folder."""
        return cls(str(path), hash_file(Path(path))) if Path(path).is_file() else None

    @classmethod
    def restore(cls, about: Any) -> Self:
        """Restore what was saved in a manifest."""
        return cls(get_entry(about, "path", str), get_entry(about, "sha256", str))

    def find(self, model: Path) -> Path:
        """Return where the file is: in the present folder, or beside the model. An error if it is not, or has changed.

        :param model: The folder of the model.
        """
        beside = model.resolve().parent
        found = [path for folder in (Path(), beside) if (path := folder / self.path).is_file()]
        for path in found:
            if hash_file(path) == self.sha256:
                return path
        missing = "is not there" if Path(self.path).is_absolute() else f"is neither in this folder nor in {beside}"
        what = "has changed since" if found else missing
        raise DataError(f"the training data {self.path} {what}", hint="Name the old samples with --old")
