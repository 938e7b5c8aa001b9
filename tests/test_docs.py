"""The documentation is correct: it builds, links work, commands parse, values agree, the example method works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import longtail
from longtail.cli.parser import build_parser

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "benchmarks" / "README.md", *DOCS]
CODE = re.compile(r"^```(?s:.*?)^```$|(?<=\n\n)(?: {4}.*\n)+", re.MULTILINE)
NAMED = {"ids": lambda page: str(page.relative_to(ROOT)) if isinstance(page, Path) else None}


def run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as code hosts and the site name them."""
    titles = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Broken links, missing images, unknown names and pages outside of every table of contents are errors."""
    done = run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "docs", str(tmp_path)])
    assert done.returncode == 0, done.stderr
    built = {page.relative_to(tmp_path).with_suffix(".md") for page in tmp_path.rglob("*.html")}
    assert built >= {page.relative_to(ROOT / "docs") for page in DOCS}


@pytest.mark.parametrize("page", PAGES, **NAMED)
def test_links_have_a_target(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", CODE.sub("", page.read_text())):
        if link.startswith("http"):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in headings(target), link


@pytest.mark.parametrize("page", DOCS, **NAMED)
def test_commands_parse(page: Path) -> None:
    lines = [line for code in CODE.findall(page.read_text()) for line in code.splitlines()]
    for line in lines:
        if match := re.match(r"(?: {4})?(?:.*\| )?longtail (.*)", line):
            build_parser().parse_args(shlex.split(match[1], comments=True))


def test_the_guide_copies_no_values_from_the_results() -> None:
    assert not re.findall(r"(?<![\d.])\d+\.\d\d(?!\d)", (ROOT / "docs" / "which-method.md").read_text())


def test_the_first_page_has_the_example_of_the_readme() -> None:
    first, readme = (
        re.findall(r"```python\n.*?```", (ROOT / name).read_text(), re.DOTALL) for name in ("docs/index.md", "README.md")
    )
    assert first == readme and len(first) == 1


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    public = [name for name in longtail.__all__ if not name.startswith("_")]
    assert public and not [name for name in public if f":: longtail.{name}\n" not in page]


def test_the_example_method_passes_the_contract_tests(tmp_path: Path) -> None:
    """Save the code of adding-a-method.md to the file that the page names, register it, and run the contract tests."""
    code, line = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-method.md").read_text(), re.DOTALL)
    (tmp_path / "pmi.py").write_text(code)
    (tmp_path / "register_pmi.py").write_text(
        "import sys, pmi\n"
        "from longtail.registry import METHODS\n"
        'sys.modules["longtail.models.pmi"] = pmi\n'
        f"METHODS |= {{{line}}}\n"
    )
    options = ["-p", "register_pmi", "-p", "no:cacheprovider", "-k", "pmi and not page"]  # there is no docs/methods/pmi.md
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run([sys.executable, "-m", "pytest", *options, "tests/contract", str(tmp_path / "pmi.py")], PYTHONPATH=path)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) >= 17


def test_every_promise_names_tests_that_exist() -> None:
    """A name without a file is in the file named before it."""
    page, content = (ROOT / "docs" / "reliability.md").read_text(), ""
    for file, name in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+))?`", page):
        if file:
            (path,) = (ROOT / "tests").rglob(file)
            content = path.read_text()
        assert not name or f"def {name}(" in content, f"{file}::{name}"
