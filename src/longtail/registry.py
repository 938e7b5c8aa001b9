"""Method names and where they live. A class is imported when it is asked for, so listing names costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from longtail.errors import SettingError, suggest

if TYPE_CHECKING:
    from longtail.model import Model
    from longtail.tagger.tagger import Tagger

METHODS = {
    "popularity": "longtail.models.popularity:Popularity",
    "ovr": "longtail.models.ovr:OneVsRest",
    "plt": "longtail.models.plt:LabelTrees",
    "glas": "longtail.models.glas.model:Glas",
    "neuralxc": "longtail.models.neuralxc.model:NeuralXC",
    "hierarchicalxc": "longtail.models.hierarchicalxc.model:HierarchicalXC",
    "aplc": "longtail.models.aplc.model:Aplc",
    "lightattention": "longtail.models.lightattention.model:LightAttention",
    "secseq": "longtail.models.secseq.model:SecSeq",
    "blend": "longtail.models.blend.model:Blend",
}


def model_class(method: str) -> type[Model]:
    """The class behind a method name.

    >>> model_class("ovr").__name__
    'OneVsRest'
    """
    if method not in METHODS:
        raise SettingError(f'there is no method "{method}"', hint=suggest(method, METHODS))
    module, name = METHODS[method].split(":")
    cls: type[Model] = getattr(import_module(module), name)
    return cls


def tagger_class() -> type[Tagger]:
    """The class ``Tagger``, for modules that come before it."""
    cls: type[Tagger] = import_module("longtail.tagger.tagger").Tagger
    return cls
