"""The built-in corpus debtags: descriptions of Debian packages, with their tags (https://debtags.debian.org) as labels.

A package list contains names, tags and one-line descriptions. The long descriptions are in separate lists, one for each
language, including English. Both are read as whole files with apt's tools: they may be compressed in ways that Python cannot
read, and asking apt for every single package would take minutes instead of seconds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping

from longtail.data.dataset import Dataset
from longtail.errors import DataError

APT_HELPER = "/usr/lib/apt/apt-helper"  # not in PATH, but at this place on all Debian-based systems
_SOURCE = "builtin:debtags"
_UPDATE = "apt-get -o Acquire::Languages=en update"  # container images are configured to skip the translations
_META_TAGS = ("special::",)  # "special::not-yet-tagged" is about the tagging, not about the package
_TIMEOUT = 120  # seconds


def build_debtags() -> Dataset:
    """Build the corpus from the package lists of this machine."""
    packages = _read_lists("Packages")
    long_descriptions = dict(_parse_translations(_read_lists("Translations", "Language: en")))
    n_packages = len({line for line in packages if line.startswith("Package: ")})
    if not n_packages:
        raise DataError("the package lists are empty", where=_SOURCE, hint=f"Download them, as root, with: {_UPDATE}")
    pairs = sorted(parse_packages(packages, long_descriptions))  # independent of the order of the machine's sources
    if not pairs:
        hint = "Only Debian and distributions close to it tag their packages; use builtin:pydoc instead"
        raise DataError(f"none of the {n_packages:,} packages in the package lists has tags", where=_SOURCE, hint=hint)
    notes = [f"{n_packages - len(pairs):,} of {n_packages:,} packages have no tags and were skipped"]
    if not long_descriptions:
        notes.append(f"the lists contain only one-line descriptions; for the long ones run, as root: {_UPDATE}")
    return Dataset.from_pairs(pairs, notes=tuple(notes), source=_SOURCE)


def parse_packages(
    lines: Iterable[str], long_descriptions: Mapping[str, str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the text and the tags of each tagged package.

    :param lines: The lines of the package lists.
    :param long_descriptions: Long descriptions by the MD5 sum of the description.

    >>> list(parse_packages(["Package: moon-buggy", "Description: drive", " over the moon", "Tag: use::gameplaying"]))
    [('moon-buggy: drive over the moon', ['use::gameplaying'])]
    """
    seen: set[str] = set()
    for fields in _parse_stanzas(lines):
        name, tags = fields.get("Package", ""), re.split(r",\s*", fields.get("Tag", ""))
        tags = [tag for tag in tags if tag and not tag.startswith(_META_TAGS)]
        if not name or not tags or name in seen:
            continue  # a security update often has no tags: the older, tagged version of the package is used
        seen.add(name)
        short = fields.get("Description", fields.get("Description-en", ""))
        description = (long_descriptions or {}).get(fields.get("Description-md5", ""), short)
        yield f"{name}: {_join_lines(description)}", tags


def _parse_translations(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the MD5 sum and the long description of each package in the lists of English descriptions."""
    for fields in _parse_stanzas(lines):
        if "Description-md5" in fields and "Description-en" in fields:
            yield fields["Description-md5"], fields["Description-en"]


def _parse_stanzas(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the records of a Debian control file: fields, continued in indented lines, up to an empty line."""
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


def _join_lines(description: str) -> str:
    """Put a description on one line. A single dot marks an empty line in a control file."""
    return " ".join(" ".join(line for line in description.split("\n") if line != ".").split())


def _read_lists(kind: str, *filters: str) -> list[str]:
    """Return the lines of all lists of a kind."""
    languages = ("-o", "Acquire::Languages=en")  # finds the translations even if the system is configured without them
    files = run_apt("apt-get", *languages, "indextargets", "--format", "$(FILENAME)", f"Created-By: {kind}", *filters)
    return [line for file in files.split("\n") if file for line in run_apt(APT_HELPER, "cat-file", file).split("\n")]


def run_apt(tool: str, *arguments: str) -> str:
    """Return the output of one of apt's tools."""
    if shutil.which(tool) is None:
        hint = "This corpus needs a Debian-based system; use builtin:pydoc instead"
        raise DataError(f"{tool} is not installed", where=_SOURCE, hint=hint)
    try:
        done = subprocess.run([tool, *arguments], check=True, capture_output=True, timeout=_TIMEOUT)
    except (OSError, subprocess.SubprocessError) as error:
        message = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip() or str(error)
        hint = f"Download the package lists again, as root, with: {_UPDATE}"
        raise DataError(f"{tool} failed ({message.splitlines()[-1]})", where=_SOURCE, hint=hint) from error
    return done.stdout.decode(errors="replace")
