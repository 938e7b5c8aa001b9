"""Method names and their classes. A class is imported when it is asked for, so listing the names costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from longtail.errors import SettingError, suggest

if TYPE_CHECKING:
    from longtail.model import Model

DEFAULT_METHOD = "ovr"
METHODS = {
    "popularity": "longtail.models.popularity:Popularity",
    "ovr": "longtail.models.ovr:OneVsRest",
    "plt": "longtail.models.plt.model:LabelTrees",
    "glas": "longtail.models.glas.model:Glas",
    "neuralxc": "longtail.models.neuralxc.model:NeuralXC",
    "hierarchicalxc": "longtail.models.hierarchicalxc.model:HierarchicalXC",
    "aplc": "longtail.models.aplc.model:Aplc",
    "lightattention": "longtail.models.lightattention.model:LightAttention",
    "secseq": "longtail.models.secseq.model:SecSeq",
    "blend": "longtail.models.blend.model:Blend",
}


def model_class(method: str) -> type[Model]:
    """Return the class of a method.

    >>> model_class("ovr").__name__
    'OneVsRest'
    """
    if method not in METHODS:
        raise SettingError(f'there is no method "{method}"', hint=suggest(method, METHODS))
    cls: type[Model] = load_class(METHODS[method])
    return cls


def find_method_name(cls: type) -> str:
    """Return the name of the method that a class implements; the name of the class if it is not registered.

    >>> find_method_name(model_class("ovr"))
    'ovr'
    """
    place = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, known in METHODS.items() if known == place), cls.__name__)


def load_class(place: str) -> Any:
    """Import a class from ``module:Class``, on use: modules that come before it in the layers may refer to it."""
    module, name = place.split(":")
    return getattr(import_module(module), name)
