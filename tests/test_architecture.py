"""The layers: a module imports only from the layers before its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import longtail

PACKAGE = Path(longtail.__file__).parent
LAYERS = [
    ["errors", "topk", "files", "progress", "kernels", "csr", "state", "registry", "settings", "__init__"],
    ["data"],
    ["features"],
    ["labelspace"],
    ["linear"],
    ["nn"],
    ["search"],
    ["model"],
    ["pipeline"],
    ["spec"],
    ["models"],
    ["metrics"],
    ["tagger"],
    ["compare"],
    ["recipes", "choose"],
    ["report"],
    ["cli", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """The parts of the package that a file imports when it runs (not only for type checking)."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    found += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    parts = (name.split(".")[1] if "." in name else "__init__" for name in found if name.split(".")[0] == "longtail")
    return set(parts)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_from_layers_before_its_own(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert all(LEVEL[name] <= LEVEL[part] for name in imports(path))


def test_every_part_has_a_layer() -> None:
    parts = {p.name.removesuffix(".py") for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert parts == set(LEVEL)
