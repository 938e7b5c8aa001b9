"""The embedded corpus: what a function does, in the words of its documentation, and the names of its parameters.

It is made on the user's machine, from the standard library and the packages that longtail always brings. Importing
hundreds of modules leaves traces (threads, hooks, memory), so the walk runs in a process of its own:
``python -m longtail.data.pydoc`` writes it as JSON lines.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ClassMethodDescriptorType, ModuleType
from typing import Any

from longtail.data.dataset import Dataset
from longtail.errors import DataError

# Optional packages would add texts, but then the corpus would depend on what else a user has installed.
ROOTS = {"numba", "numpy", "scipy"} | sys.stdlib_module_names
# They open a window or a browser, print, write files, ask for hardware, or are missing in some distributions…
SKIPPED = {"antigravity", "cuda", "distutils", "ensurepip", "idlelib", "lib2to3", "this", "tkinter", "turtle", "venv"}
# …or say nothing of their own: tests, code tables, wrappers whose whole text is "See the documentation for …".
SKIPPED |= {"conftest", "cython_special", "encodings", "setup", "test", "tests", "turtledemo"}
MIN_WORDS, MAX_WORDS = 4, 100
TIMEOUT = 120  # seconds; the walk takes about four
SOURCE = "builtin:pydoc"

CALL = re.compile(r"(\(?[\w\[\]]+(, ?[\w\[\]]+)*\)? = )?(<\w+>\.)?[A-Za-z_][\w.]*(?=\()")  # "S.find(", "y, z = solve("
AFTER_CALL = re.compile(r"\s*(->.* -- |->|--?|:|=)?\s*")
UNDERLINE = re.compile(r"([-=~])\1\1+$")
NOT_PROSE = re.compile(
    r"((keyword|optional|other|positional) )*(arg(ument)?|input|option|param(eter)?)s? *(:|--?|$)"  # "Arguments:"
    r"|>>>|[:@][a-z]+ .*:|\.\. ",  # examples, ":param x:", "@param x:", ".. math::"
    re.IGNORECASE,
)


def pydoc_corpus() -> Dataset:
    """Descriptions of functions of Python, numpy, scipy and numba; the labels are the names of their parameters."""
    counts, *rows = map(json.loads, walk_apart().splitlines())
    pairs: dict[str, list[str]] = {}
    for text, names in rows:
        pairs.setdefault(text, names)  # the same text again: a function re-exported, or overridden and described alike
    n_texts = Counter(name for names in pairs.values() for name in names)
    kept = {text: [name for name in names if n_texts[name] > 1] for text, names in pairs.items()}
    notes = (
        f"{counts['read']:,} modules were read, {counts['failed']:,} could not be imported here",
        f"{len(rows) - len(pairs):,} repetitions of a text were left out",
        f"{sum(n == 1 for n in n_texts.values()):,} labels seen only once were left out, "
        f"and so were {sum(not names for names in kept.values()):,} texts that had no other",
    )
    return Dataset.from_pairs(((text, names) for text, names in kept.items() if names), notes=notes, source=SOURCE)


def walk_apart() -> str:
    """What this module writes when it is run in a process of its own."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]  # longtail may not be installed
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": ""}
    # -P: a random.py in the user's folder is not the library's.
    command = [sys.executable, "-P", "-W", "ignore", "-m", __name__]
    hint = "Try again, or train on a file of your own"
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"the documentation could not be read ({error})", where=SOURCE, hint=hint) from error
    if done.returncode or not done.stdout:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        found = f"reading the documentation ended with code {done.returncode} ({reason})"
        raise DataError(found, where=SOURCE, hint=hint)
    return done.stdout.decode("ascii")


def description(doc: str, names: list[str]) -> str:
    """The prose of a docstring: without the call at its start, up to where parameters, code or sections begin.

    >>> description("add(a, b) -> int\\n\\nAdd two numbers.\\n\\nParameters\\n----------\\na : int", ["a", "b"])
    'Add two numbers.'
    """
    # A list of parameters that has no header begins with a line such as "name", "name: …", "name -- …".
    listed = re.compile(rf"[-*`'\"]*\s*({'|'.join(map(re.escape, names))})[*`'\"]*( *:.*| +(--?|=).*)?$")
    lines: list[str] = []
    for line in map(str.strip, without_call(inspect.cleandoc(doc)).splitlines()):
        if UNDERLINE.match(line):
            lines = lines[:-1]  # it was a header
            break
        if NOT_PROSE.match(line) or listed.match(line):
            break
        lines.append(line)
        if line.endswith(":"):
            break  # a list or code follows
    text = " ".join(" ".join(lines).split()[:MAX_WORDS])
    whole = re.match(r".*[.!?][\"'`)\]]*(?= |$)", text)  # up to the end of its last sentence, if it has any
    return whole[0] if whole else text.rstrip(":")


def without_call(doc: str) -> str:
    """A docstring without the calls that it begins with: they would give the answer away.

    >>> without_call("D.pop(k[, d]) -> v, remove the key and return its value")
    'v, remove the key and return its value'
    """
    while call := CALL.match(doc):
        end = depth = 0
        for end in range(call.end(), len(doc)):
            depth += (doc[end] in "([") - (doc[end] in ")]")
            if not depth:
                break
        line, _, rest = doc[end + 1 :].partition("\n")
        line = AFTER_CALL.sub("", line, count=1)
        # Behind the arrow stands a type ("-> int") or the description.
        doc = f"{line}\n{rest}".strip() if len(line.split()) >= MIN_WORDS else rest.lstrip("-\n ")
    return doc


def parameters(function: object) -> list[str]:
    """The names that a caller can give, in the order of the signature."""
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError):  # written in C, with no signature or an unreadable one
        return []
    named = [p.name for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [name for name in named if name not in ("self", "cls", "mcs") and not name.startswith("_")]


def members(owner: Any) -> Iterator[object]:
    """The public functions and classes of a module or class, by name; no descriptor of unknown code is run."""
    for name, value in sorted(vars(owner).items()):
        if isinstance(value, classmethod | staticmethod | ClassMethodDescriptorType):
            value = value.__get__(None, owner)
        # A ufunc of numpy is neither: they all have one signature, which says nothing.
        if not name.startswith("_") and (inspect.isroutine(value) or inspect.isclass(value)):
            yield value


def functions(module: ModuleType) -> Iterator[object]:
    """The functions of a module, the methods of its classes, and the classes that have a constructor of their own."""
    for value in members(module):
        if str(getattr(value, "__module__", None) or module.__name__).partition(".")[0] not in ROOTS:
            continue  # it comes from a package that others may not have
        if not inspect.isclass(value):
            yield value
            continue
        if not issubclass(value, enum.Enum) and {"__init__", "__new__"} & vars(value).keys():
            yield value
        yield from filter(inspect.isroutine, members(value))


def modules(name: str, failed: list[str]) -> Iterator[ModuleType]:
    """A module and the public ones below it; the names of those that cannot be imported go to ``failed``."""
    last = name.rpartition(".")[2]
    if last in SKIPPED or last.startswith("_"):
        return
    try:
        module = importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - foreign code may raise anything, or exit; on Ctrl-C the parent ends us
        failed.append(name)
        return
    yield module
    for below in sorted(info.name for info in pkgutil.iter_modules(getattr(module, "__path__", []))):
        yield from modules(f"{name}.{below}", failed)


class NothingElse:
    """Refuses to import what others may not have: some modules read differently where an optional package is there."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Stand first in the search for a module."""
        root = name.partition(".")[0]
        if root not in ROOTS | sys.stdlib_module_names | {"llvmlite", "longtail"} and not root.startswith("_"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def main() -> None:
    """Write the counts, then a line ``[text, names]`` for each function; what modules print on import is lost."""
    failed: list[str] = []
    rows: list[tuple[str, list[str]]] = []
    n_read = 0
    sys.meta_path.insert(0, NothingElse)
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out, Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        for module in (m for root in sorted(ROOTS) for m in modules(root, failed)):
            n_read += 1
            for function in functions(module):
                doc, names = getattr(function, "__doc__", None), parameters(function)
                if isinstance(doc, str) and names and len((text := description(doc, names)).split()) >= MIN_WORDS:
                    rows.append((text, names))
        out.writelines(json.dumps(line) + "\n" for line in ({"read": n_read, "failed": len(failed)}, *rows))


if __name__ == "__main__":
    main()
