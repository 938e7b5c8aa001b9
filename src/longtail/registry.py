"""Method names and where they live. A class is imported when it is asked for, so listing names costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from longtail.errors import SettingError, suggest

if TYPE_CHECKING:
    from longtail.models.base import Model

METHODS = {
    "popularity": "longtail.models.popularity:Popularity",
    "ovr": "longtail.models.ovr:OneVsRest",
    "plt": "longtail.models.plt:LabelTrees",
    "glas": "longtail.models.glas:Glas",
    "neuralxc": "longtail.models.neuralxc:NeuralXC",
    "hierarchicalxc": "longtail.models.hierarchicalxc:HierarchicalXC",
    "aplc": "longtail.models.aplc:Aplc",
    "lightattention": "longtail.models.lightattention:LightAttention",
    "secseq": "longtail.models.secseq:SecSeq",
    "blend": "longtail.models.blend:Blend",
}


def model_class(method: str) -> type[Model]:
    """The class behind a method name.

    >>> model_class("ovr").__name__
    'OneVsRest'
    """
    if method not in METHODS:
        raise SettingError(f'there is no method "{method}"', mend=suggest(method, METHODS))
    module, name = METHODS[method].split(":")
    cls: type[Model] = getattr(import_module(module), name)
    return cls
