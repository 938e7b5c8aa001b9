"""longtail: give a text, or a sparse feature vector, the few right labels out of thousands or millions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset as Dataset
    from longtail.data.dataset import Labels as Labels
    from longtail.data.read import read as read
    from longtail.errors import LongtailError as LongtailError
    from longtail.tagger.blending import blended as blended
    from longtail.tagger.explanation import Explanation as Explanation
    from longtail.tagger.tagger import Tag as Tag
    from longtail.tagger.tagger import Tagger as Tagger
    from longtail.tagger.tagger import load as load
    from longtail.topk import TopK as TopK

__version__ = "0.1.0"

# Public name -> module. Imported on first use, so that `import longtail` and `longtail --help` stay light.
_WHERE = {
    "Dataset": "longtail.data.dataset",
    "Explanation": "longtail.tagger.explanation",
    "Labels": "longtail.data.dataset",
    "LongtailError": "longtail.errors",
    "Tag": "longtail.tagger.tagger",
    "Tagger": "longtail.tagger.tagger",
    "TopK": "longtail.topk",
    "blended": "longtail.tagger.blending",
    "load": "longtail.tagger.tagger",
    "read": "longtail.data.read",
}
__all__ = [*sorted(_WHERE), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'longtail' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
