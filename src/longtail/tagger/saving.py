"""A tagger as the content of a bundle, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail import __version__
from longtail.data.layout import Layout
from longtail.decisions.constraints import Constraints
from longtail.errors import BundleError, DataError, SettingError
from longtail.pipeline import Pipeline
from longtail.spec import MethodSpec
from longtail.state import UNDESCRIBED, get_entry
from longtail.tagger.bundle import Bundle
from longtail.tagger.decisions import Decisions
from longtail.tagger.parts import TaggerParts
from longtail.tagger.register import PART as HISTORY
from longtail.tagger.register import Register
from longtail.tagger.training_file import TrainingFile
from longtail.tagger.unseen import PART as UNSEEN
from longtail.tagger.unseen import UnseenLabels

if TYPE_CHECKING:
    from longtail.tagger.tagger import Tagger


def pack_tagger(tagger: TaggerParts) -> Bundle:
    """Return everything that was fitted or set, as the content of a bundle."""
    about = {"longtail": __version__, **tagger.pipeline.about()}
    about |= {"reads_texts": tagger.reads_texts, "columns": tagger.layout.columns, **tagger.decisions.about()}
    state = {**tagger.pipeline.state(), **tagger.decisions.state()}
    if tagger.constraints is not None:
        about["constraints"] = tagger.constraints.to_dict()
    if tagger.training_file is not None:
        about["training_file"] = asdict(tagger.training_file)
    if tagger.unseen:
        state[UNSEEN] = tagger.unseen.state()
    if tagger.register.history:
        about["history"], state[HISTORY] = tagger.register.about(), tagger.register.state()
    return Bundle(about, state, tagger.labels)


def unpack_tagger(cls: type[Tagger], bundle: Bundle, folder: str | Path) -> Tagger:
    """Build a tagger from what ``pack_tagger`` returned.

    :param cls: The class of the tagger.
    :param folder: Where the bundle comes from, for error messages.
    """
    try:
        return _restore_tagger(cls, bundle)
    except BundleError as error:
        raise BundleError(error.found, where=error.where or str(folder), hint=error.hint) from error
    except (*UNDESCRIBED, DataError, SettingError) as error:
        found = f"the bundle does not describe a tagger that this longtail can load ({error})"
        raise BundleError(found, where=str(folder), hint="Use the version of longtail that wrote it") from error


def _check_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the saved columns of the training data if they are names, or lists of names."""
    for name, value in columns.items():
        if not all(isinstance(word, str) for word in (value if isinstance(value, list) else [value])):
            raise BundleError(f"the columns {name} are {value!r:.60}", hint="They must be names")
    return columns


def _restore_tagger(cls: type[Tagger], bundle: Bundle) -> Tagger:
    about, arrays, labels = bundle.about, bundle.arrays, bundle.labels
    pipeline = Pipeline(MethodSpec.parse(get_entry(about, "spec", str)), check=False).restore(about, arrays)
    if pipeline.model.n_labels > len(labels) or (HISTORY not in arrays and pipeline.model.n_labels < len(labels)):
        found = f"the model has {pipeline.model.n_labels:,} labels, but {len(labels):,} have names"
        raise BundleError(found, hint="The model was changed or damaged: get it again")
    layout = Layout.from_columns(_check_columns(get_entry(about, "columns", dict)) if "columns" in about else {})
    reads_texts = get_entry(about, "reads_texts", bool)
    if not pipeline.can_read(texts=reads_texts):
        raise BundleError(f"reads_texts is {reads_texts}, but its features say otherwise", hint="Train the model again")
    tagger = cls.from_pipeline(pipeline, labels, reads_texts, layout)
    tagger.decisions = Decisions.restore(about, arrays)
    tagger.unseen = UnseenLabels.from_state(arrays[UNSEEN]) if UNSEEN in arrays else None
    history = get_entry(about, "history", list) if "history" in about else []
    tagger.register = Register.restore(labels, history, arrays.get(HISTORY, {}))
    if "training_file" in about:
        tagger.training_file = TrainingFile.restore(get_entry(about, "training_file", dict))
    if "constraints" in about:
        tagger.constraints = Constraints.from_dict(about["constraints"])
        tagger.constraints.resolve(labels)
    return tagger
