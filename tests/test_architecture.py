"""The architecture: layers, methods that are independent of each other, and names with one meaning."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

import longtail
from longtail.registry import METHODS

PACKAGE = Path(longtail.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
LAYERS = [
    [
        "errors",
        "extras",
        "topk",
        "files",
        "locks",
        "printable",
        "text_lines",
        "interruption",
        "html",
        "progress",
        "kernels",
        "csr",
        "mapping",
        "mapped",
        "mapped_matrix",
        "lazy_texts",
        "state",
        "registry",
        "limits",
        "settings",
        "conditions",
        "__init__",
    ],
    ["sharding"],
    ["data"],
    ["features"],
    ["labelspace"],
    ["metrics"],
    ["linear"],
    ["nn"],
    ["search"],
    ["samples", "collapse"],
    ["model"],
    ["placement", "extractor", "named_texts"],
    ["spec"],
    ["pipeline"],
    ["models"],
    ["decisions"],
    ["tagger"],
    ["blending", "estimators"],
    ["comparison"],
    ["recipes", "selection"],
    ["report", "service"],
    ["api"],
    ["cli", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
SHARED = ("features", "labelspace", "linear", "nn", "search")  # folders for what several methods use
NAMED = {"ids": lambda path: str(path.relative_to(PACKAGE))}


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[str, ...]:
    """The modules of the package that a module imports at run time, here or inside a function."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
    return tuple(name for name in found if name.split(".")[0] == "longtail")


def module_name(path: Path) -> str:
    return ".".join(["longtail", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def method_of(path: Path) -> str | None:
    """The method that a module below ``models`` belongs to."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[1] if parts[0] == "models" and parts[1] != "__init__" else None


@pytest.mark.parametrize("path", MODULES, **NAMED)
def test_a_module_imports_only_from_layers_before_its_own(path: Path) -> None:
    parts = {name.split(".")[1] for name in imports(path) if "." in name}
    assert not {name for name in parts if name in LEVEL and LEVEL[name] > LEVEL[part(path)]}


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {p.name.removesuffix(".py") for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert parts == set(LEVEL)


@pytest.mark.parametrize("path", MODULES, **NAMED)
def test_only_a_method_imports_its_modules(path: Path) -> None:
    """Others get its class from the registry.

    ``blending`` is the public function of the method ``blend``; ``selection`` estimates what each method costs.
    """
    allowed = {"blending": {"blend"}, "selection": set(METHODS)}.get(part(path), {method_of(path)})
    assert {name.split(".")[2] for name in imports(path) if name.startswith("longtail.models.")} <= allowed


def test_shared_modules_are_used_by_several_methods_or_by_other_parts() -> None:
    names = {module_name(path): path for path in MODULES}
    users: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        for name in {name for name in imports(path) if name in names}:
            users[name].add(module_name(path))

    def reach(name: str, seen: set[str]) -> set[str]:
        """The methods and other parts that use a module, directly or through shared modules."""
        out: set[str] = set()
        for user in users[name] - seen:
            folder = user.split(".")[1]
            out |= reach(user, seen | {user}) if folder in SHARED else {method_of(names[user]) or folder}
        return out

    shared = [path for path in MODULES if part(path) in SHARED and path.name != "__init__.py"]
    found = {module_name(path): reach(module_name(path), set()) for path in shared}
    alone = {name: using for name, using in found.items() if len(using) < 2 and not using - set(METHODS)}
    assert not alone, f"used by one method only, so they belong into its folder: {alone}"


def test_class_names_are_unique() -> None:
    classes = [node.name for path in MODULES for node in ast.walk(parse(path)) if isinstance(node, ast.ClassDef)]
    assert not [name for name, times in Counter(classes).items() if times > 1]


def test_no_public_name_is_also_a_module() -> None:
    """Importing such a module would replace the public name of the package by the module."""
    assert not {path.name.removesuffix(".py") for path in PACKAGE.iterdir()} & set(longtail.__all__)


@pytest.mark.parametrize("path", MODULES, **NAMED)
def test_types_are_checked_everywhere(path: Path) -> None:
    text = path.read_text()
    assert "# mypy:" not in text, "a switch for a whole module"
    functions = [node for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef)]
    arguments = [argument for node in functions for argument in (*node.args.args, *node.args.kwonlyargs)]
    untyped = {each.arg for each in arguments if each.annotation and ast.unparse(each.annotation) == "Any"}
    assert not {"s", "settings", "plan"} & untyped


@pytest.mark.parametrize("path", MODULES, **NAMED)
def test_no_module_imports_a_private_name_of_another(path: Path) -> None:
    froms = [node for node in ast.walk(parse(path)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in froms if (node.module or "").split(".")[0] == "longtail"]
    names = [name.name for node in ours for name in node.names]
    assert not [name for name in names if name.startswith("_") and name != "__version__"]


@pytest.mark.parametrize("path", sorted((PACKAGE / "tagger").glob("*.py")), **NAMED)
def test_the_tagger_names_no_method(path: Path) -> None:
    tree = parse(path)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    words = {word for text in strings - docs for word in text.split()}
    assert not words & set(METHODS)


def list_names(path: Path) -> set[str]:
    """The names that other modules can import from a module: what its statements define, and the modules of a folder."""
    names = {each.stem for each in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in parse(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        else:
            names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return names


@pytest.mark.parametrize("path", sorted((PACKAGE.parents[1] / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_names_that_exist(path: Path) -> None:
    """Benchmarks run seldom, so that nobody notices when a name is gone."""
    modules = {module_name(each): each for each in MODULES}
    froms = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.module]
    for node in froms:
        if node.module == "longtail":
            assert {name.name for name in node.names} <= {*longtail.__all__, *list_names(PACKAGE / "__init__.py")}
        elif node.module and node.module.startswith("longtail."):
            assert {name.name for name in node.names} <= list_names(modules[node.module]), ast.unparse(node)
