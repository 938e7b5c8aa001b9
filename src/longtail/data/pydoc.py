"""The built-in corpus pydoc: descriptions of Python functions, with the names of their parameters as labels.

It is built on the user's machine from the docstrings of the standard library and of the packages that longtail always
requires. Importing hundreds of modules has side effects (threads, hooks, memory), so this runs in a separate process:
``python -m longtail.data.pydoc`` writes the corpus as JSON lines.
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

# Optional packages would add texts, but then the corpus would depend on what a user has installed.
ROOTS = {"numba", "numpy", "scipy"} | sys.stdlib_module_names
# Modules that open a window or a browser, print, write files, use hardware, or are missing in some distributions, …
_SKIPPED = {"antigravity", "cuda", "distutils", "ensurepip", "idlelib", "lib2to3", "this", "tkinter", "turtle", "venv"}
# … and modules without useful descriptions: tests, code tables, wrappers that only refer to other documentation.
_SKIPPED |= {"conftest", "cython_special", "encodings", "setup", "test", "tests", "turtledemo"}
MIN_WORDS, MAX_WORDS = 4, 100
TIMEOUT = 120  # seconds; building takes about four
_SOURCE = "builtin:pydoc"

_CALL = re.compile(r"(\(?[\w\[\]]+(, ?[\w\[\]]+)*\)? = )?(<\w+>\.)?[A-Za-z_][\w.]*(?=\()")  # "S.find(", "y, z = solve("
_AFTER_CALL = re.compile(r"\s*(->.* -- |->|--?|:|=)?\s*")
_UNDERLINE = re.compile(r"([-=~])\1\1+$")
_NOT_PROSE = re.compile(
    r"((keyword|optional|other|positional) )*(arg(ument)?|input|option|param(eter)?)s? *(:|--?|$)"  # "Arguments:"
    r"|>>>|[:@][a-z]+ .*:|\.\. ",  # examples, ":param x:", "@param x:", ".. math::"
    re.IGNORECASE,
)


def build_pydoc() -> Dataset:
    """Build the corpus from the functions of Python, numpy, scipy and numba."""
    counts, *rows = map(json.loads, _run_separately().splitlines())
    pairs: dict[str, list[str]] = {}
    for text, names in rows:
        pairs.setdefault(text, names)  # texts repeat if a function is re-exported, or overridden with the same docstring
    n_texts = Counter(name for names in pairs.values() for name in names)
    kept = {text: [name for name in names if n_texts[name] > 1] for text, names in pairs.items()}
    notes = (
        f"{counts['read']:,} modules were read, {counts['failed']:,} could not be imported",
        f"{len(rows) - len(pairs):,} repeated texts were dropped",
        f"{sum(n == 1 for n in n_texts.values()):,} labels with a single text were dropped, "
        f"and {sum(not names for names in kept.values()):,} texts that had no other label",
    )
    return Dataset.from_pairs(((text, names) for text, names in kept.items() if names), notes=notes, source=_SOURCE)


def _run_separately() -> str:
    """Run this module in a separate process and return its output."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]  # longtail may not be installed
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": ""}
    # -P: do not import a random.py in the user's folder instead of the standard library's.
    command = [sys.executable, "-P", "-W", "ignore", "-m", __name__]
    hint = "Try again, or use your own data"
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"the docstrings could not be read ({error})", where=_SOURCE, hint=hint) from error
    if done.returncode or not done.stdout:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["no error message"])[-1]
        found = f"reading the docstrings failed with exit code {done.returncode} ({reason})"
        raise DataError(found, where=_SOURCE, hint=hint)
    return done.stdout.decode("ascii")


def extract_description(doc: str, names: list[str]) -> str:
    """Return the prose of a docstring: without the call at its start, up to the first section, code or list of parameters.

    :param doc: The docstring.
    :param names: The names of the parameters of the function.

    >>> extract_description("add(a, b) -> int\\n\\nAdd two numbers.\\n\\nParameters\\n----------\\na : int", ["a", "b"])
    'Add two numbers.'
    """
    # A list of parameters without a header starts with a line such as "name", "name: …", "name -- …".
    parameter_line = re.compile(rf"[-*`'\"]*\s*({'|'.join(map(re.escape, names))})[*`'\"]*( *:.*| +(--?|=).*)?$")
    lines: list[str] = []
    for line in map(str.strip, remove_calls(inspect.cleandoc(doc)).splitlines()):
        if _UNDERLINE.match(line):
            lines = lines[:-1]  # the last line was a header
            break
        if _NOT_PROSE.match(line) or parameter_line.match(line):
            break
        lines.append(line)
        if line.endswith(":"):
            break  # a list or code follows
    text = " ".join(" ".join(lines).split()[:MAX_WORDS])
    sentences = re.match(r".*[.!?][\"'`)\]]*(?= |$)", text)  # up to the end of the last complete sentence
    return sentences[0] if sentences else text.rstrip(":")


def remove_calls(doc: str) -> str:
    """Remove the calls at the start of a docstring: they contain the labels.

    >>> remove_calls("D.pop(k[, d]) -> v, remove the key and return its value")
    'v, remove the key and return its value'
    """
    while call := _CALL.match(doc):
        end = depth = 0
        for end in range(call.end(), len(doc)):
            depth += (doc[end] in "([") - (doc[end] in ")]")
            if not depth:
                break
        line, _, rest = doc[end + 1 :].partition("\n")
        line = _AFTER_CALL.sub("", line, count=1)
        # After the arrow comes a type ("-> int") or the description.
        doc = f"{line}\n{rest}".strip() if len(line.split()) >= MIN_WORDS else rest.lstrip("-\n ")
    return doc


def list_parameters(function: object) -> list[str]:
    """Return the names of the parameters that a caller can pass, in the order of the signature."""
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError):  # written in C, without a readable signature
        return []
    names = [p.name for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [name for name in names if name not in ("self", "cls", "mcs") and not name.startswith("_")]


def iter_members(owner: Any) -> Iterator[object]:
    """Yield the public functions and classes of a module or class, by name. Other descriptors are not evaluated."""
    for name, value in sorted(vars(owner).items()):
        if isinstance(value, classmethod | staticmethod | ClassMethodDescriptorType):
            value = value.__get__(None, owner)
        # A ufunc of numpy is neither: all have the same uninformative signature.
        if not name.startswith("_") and (inspect.isroutine(value) or inspect.isclass(value)):
            yield value


def _iter_functions(module: ModuleType) -> Iterator[object]:
    """Yield the functions of a module, the methods of its classes, and the classes that define a constructor."""
    for value in iter_members(module):
        if str(getattr(value, "__module__", None) or module.__name__).partition(".")[0] not in ROOTS:
            continue  # from a package that is not always installed
        if not inspect.isclass(value):
            yield value
            continue
        if not issubclass(value, enum.Enum) and {"__init__", "__new__"} & vars(value).keys():
            yield value
        yield from filter(inspect.isroutine, iter_members(value))


def _iter_modules(name: str, failed: list[str]) -> Iterator[ModuleType]:
    """Yield a module and its public submodules. The names of those that cannot be imported are appended to ``failed``."""
    last = name.rpartition(".")[2]
    if last in _SKIPPED or last.startswith("_"):
        return
    try:
        module = importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - any code may run here, raise anything, or exit; on Ctrl-C the parent process ends
        failed.append(name)
        return
    yield module
    for submodule in sorted(info.name for info in pkgutil.iter_modules(getattr(module, "__path__", []))):
        yield from _iter_modules(f"{name}.{submodule}", failed)


class _OptionalImportBlocker:
    """An import hook that hides optional packages: some modules have other docstrings if these are installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        root = name.partition(".")[0]
        if root not in ROOTS | sys.stdlib_module_names | {"llvmlite", "longtail"} and not root.startswith("_"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def main() -> None:
    """Write the counts, then a line ``[text, names]`` for each function. What modules print on import is discarded."""
    failed: list[str] = []
    rows: list[tuple[str, list[str]]] = []
    n_read = 0
    sys.meta_path.insert(0, _OptionalImportBlocker)
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out, Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), 1)
        for module in (m for root in sorted(ROOTS) for m in _iter_modules(root, failed)):
            n_read += 1
            for function in _iter_functions(module):
                doc, names = getattr(function, "__doc__", None), list_parameters(function)
                if isinstance(doc, str) and names and len((text := extract_description(doc, names)).split()) >= MIN_WORDS:
                    rows.append((text, names))
        out.writelines(json.dumps(line) + "\n" for line in ({"read": n_read, "failed": len(failed)}, *rows))


if __name__ == "__main__":
    main()
