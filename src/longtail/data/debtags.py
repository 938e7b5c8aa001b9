"""Debian's packages: their descriptions, and the tags that people gave them (https://debtags.debian.org).

A package list holds the names, tags and one-line descriptions; the long descriptions stand in a list of translations,
of which English is one. Both are read as whole files through apt's own tools, since they may be packed in ways that
Python cannot open, and since asking apt for one package after another takes minutes where this takes seconds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping

from longtail.data.dataset import Dataset
from longtail.errors import DataError

SOURCE = "builtin:debtags"
HELPER = "/usr/lib/apt/apt-helper"  # it is not on the path, but at this place on every Debian-family machine
UPDATE = "apt-get -o Acquire::Languages=en update"  # images for containers are set to leave the translations out
MEANINGLESS = ("special::",)  # "special::not-yet-tagged" tells about the tagging, not about the package


def debtags_corpus() -> Dataset:
    """The tagged packages of the machine's package lists."""
    packages = list_lines("Packages")
    longer = dict(long_descriptions(list_lines("Translations", "Language: en")))
    n_packages = len({line for line in packages if line.startswith("Package: ")})
    if not n_packages:
        raise DataError("the package lists are empty", where=SOURCE, hint=f"Fetch them, as root, with: {UPDATE}")
    pairs = sorted(parse_packages(packages, longer))  # whatever the order of the machine's sources
    if not pairs:
        hint = "Only Debian and distributions near to it tag their packages; take builtin:pydoc here"
        raise DataError(f"none of the {n_packages:,} packages in the package lists has tags", where=SOURCE, hint=hint)
    notes = [f"{n_packages - len(pairs):,} of {n_packages:,} packages have no tags and were left out"]
    if not longer:
        notes.append(f"the lists hold only one-line descriptions; for the long ones run, as root: {UPDATE}")
    return Dataset.from_pairs(pairs, notes=tuple(notes), source=SOURCE)


def parse_packages(lines: Iterable[str], longer: Mapping[str, str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Text and tags of each tagged package, once; ``longer`` maps the MD5 sum of a description to its long form.

    >>> list(parse_packages(["Package: moon-buggy", "Description: drive", " over the moon", "Tag: use::gameplaying"]))
    [('moon-buggy: drive over the moon', ['use::gameplaying'])]
    """
    seen: set[str] = set()
    for fields in stanzas(lines):
        name, tags = fields.get("Package", ""), re.split(r",\s*", fields.get("Tag", ""))
        tags = [tag for tag in tags if tag and not tag.startswith(MEANINGLESS)]
        if not name or not tags or name in seen:
            continue  # a security update often has no tags: the older version of the package, which has them, is taken
        seen.add(name)
        short = fields.get("Description", fields.get("Description-en", ""))
        yield f"{name}: {prose((longer or {}).get(fields.get('Description-md5', ''), short))}", tags


def long_descriptions(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """MD5 sum and description from a list of translations into English."""
    for fields in stanzas(lines):
        if "Description-md5" in fields and "Description-en" in fields:
            yield fields["Description-md5"], fields["Description-en"]


def stanzas(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The records of a Debian control file: fields, which go on in indented lines, up to an empty line."""
    fields: dict[str, str] = {}
    name = ""
    for line in lines:
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0] in " \t":
            fields[name] = f"{fields.get(name, '')}\n{line.strip()}"
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def prose(description: str) -> str:
    """A description on one line; a lone dot stands for an empty line in the control file."""
    return " ".join(" ".join(line for line in description.split("\n") if line != ".").split())


def list_lines(kind: str, *filters: str) -> list[str]:
    """The lines of all package lists of a kind; of none, if there are no such lists."""
    languages = ("-o", "Acquire::Languages=en")  # find the translations even where the set-up does not ask for them
    files = run("apt-get", *languages, "indextargets", "--format", "$(FILENAME)", f"Created-By: {kind}", *filters)
    return [line for file in files.split("\n") if file for line in run(HELPER, "cat-file", file).split("\n")]


def run(tool: str, *arguments: str) -> str:
    """The output of one of apt's tools."""
    if shutil.which(tool) is None:
        hint = "This corpus needs a Debian-family machine; take builtin:pydoc here"
        raise DataError(f"{tool} is not on this machine", where=SOURCE, hint=hint)
    try:
        done = subprocess.run([tool, *arguments], check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip() or str(error)
        hint = f"Fetch the package lists anew, as root, with: {UPDATE}"
        raise DataError(f"{tool} failed ({said.splitlines()[-1]})", where=SOURCE, hint=hint) from error
    return done.stdout.decode(errors="replace")
