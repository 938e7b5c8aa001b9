"""The public names of the package."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import longtail

COMMAND_FUNCTIONS = ("read", "check", "split", "compare", "choose", "tune", "blend", "reproduce", "pretrain", "load")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", [name for name in longtail.__all__ if name != "__version__"])
def test_every_public_name_is_a_function_or_class(name: str) -> None:
    value = getattr(longtail, name)
    assert callable(value) and not isinstance(value, ModuleType)
    assert value.__name__ == name and value.__doc__ and name in dir(longtail)
    assert set(COMMAND_FUNCTIONS) <= set(longtail.__all__)


def test_public_names_survive_the_import_of_every_module() -> None:
    """Importing a module sets its name on the package."""
    for module in pkgutil.walk_packages(longtail.__path__, "longtail."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    assert all(callable(getattr(longtail, name)) for name in longtail.__all__ if name != "__version__")
    assert not any(isinstance(getattr(longtail, name), ModuleType) for name in longtail.__all__)


def test_importing_the_package_imports_nothing_else() -> None:
    loaded = "print([name for name in ('numpy', 'scipy', 'numba', 'torch', 'sklearn', 'pandas') if name in sys.modules])"
    assert run(f"import sys, longtail; {loaded}").strip() == "[]"
    assert run(f"import sys; from longtail import Tagger, read; {loaded}").strip() == "['numpy', 'scipy', 'numba']"


def test_type_checkers_see_the_same_names() -> None:
    text = Path(longtail.__file__).read_text()
    seen = re.findall(r"^    from (\S+) import (\w+) as \2$", text, re.MULTILINE)
    assert {name: module for module, name in seen} == longtail._MODULES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'longtail' has no attribute 'nothing'"):
        _ = longtail.nothing
    assert not hasattr(longtail, "blended")


def test_the_version_is_a_literal() -> None:
    """The build reads it from the source."""
    assert re.search(
        rf'^__version__ = "{re.escape(longtail.__version__)}"$', Path(longtail.__file__).read_text(), re.MULTILINE
    )
