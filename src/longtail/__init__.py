"""longtail: extreme multi-label classification. Give a text, or a feature vector, the few right labels out of many."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.api import choose as choose
    from longtail.api import compare as compare
    from longtail.api import prepare as prepare
    from longtail.api import tune as tune
    from longtail.blending import blend as blend
    from longtail.data.check import check as check
    from longtail.data.dataset import Dataset as Dataset
    from longtail.data.labels import Labels as Labels
    from longtail.data.read import read as read
    from longtail.data.split import split as split
    from longtail.data.vocabulary import read_vocabulary as read_vocabulary
    from longtail.decisions.constraints import Constraints as Constraints
    from longtail.errors import LongtailError as LongtailError
    from longtail.estimators import TextClassifier as TextClassifier
    from longtail.estimators import VectorClassifier as VectorClassifier
    from longtail.nn.pretraining import pretrain as pretrain
    from longtail.progress import set_progress as set_progress
    from longtail.recipes.reproduce import reproduce as reproduce
    from longtail.service.server import serve as serve
    from longtail.sharding.cluster import cluster as cluster
    from longtail.spec import MethodSpec as MethodSpec
    from longtail.tagger.explanation import Explanation as Explanation
    from longtail.tagger.label_editor import LabelEditor as LabelEditor
    from longtail.tagger.label_editor import edit_labels as edit_labels
    from longtail.tagger.prediction import Tag as Tag
    from longtail.tagger.tagger import Tagger as Tagger
    from longtail.tagger.tagger import load as load
    from longtail.topk import TopK as TopK

__version__ = "0.1.0"

# Public name -> module. Each is imported on first use, so that `import longtail` and `longtail --help` stay fast. No module
# or folder of the package may have one of these names: importing it would replace the public name by the module.
_MODULES = {
    "Constraints": "longtail.decisions.constraints",
    "Dataset": "longtail.data.dataset",
    "Explanation": "longtail.tagger.explanation",
    "LabelEditor": "longtail.tagger.label_editor",
    "Labels": "longtail.data.labels",
    "LongtailError": "longtail.errors",
    "MethodSpec": "longtail.spec",
    "Tag": "longtail.tagger.prediction",
    "Tagger": "longtail.tagger.tagger",
    "TextClassifier": "longtail.estimators",
    "TopK": "longtail.topk",
    "VectorClassifier": "longtail.estimators",
    "blend": "longtail.blending",
    "check": "longtail.data.check",
    "choose": "longtail.api",
    "cluster": "longtail.sharding.cluster",
    "compare": "longtail.api",
    "edit_labels": "longtail.tagger.label_editor",
    "load": "longtail.tagger.tagger",
    "prepare": "longtail.api",
    "pretrain": "longtail.nn.pretraining",
    "read": "longtail.data.read",
    "read_vocabulary": "longtail.data.vocabulary",
    "reproduce": "longtail.recipes.reproduce",
    "serve": "longtail.service.server",
    "set_progress": "longtail.progress",
    "split": "longtail.data.split",
    "tune": "longtail.api",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'longtail' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
