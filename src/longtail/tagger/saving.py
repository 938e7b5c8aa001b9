"""A tagger as the content of a bundle, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from longtail import __version__
from longtail.data.layout import Layout
from longtail.decisions.constraints import Constraints
from longtail.errors import BundleError, SettingError
from longtail.pipeline import Pipeline
from longtail.spec import MethodSpec
from longtail.tagger.bundle import Bundle
from longtail.tagger.decisions import Decisions
from longtail.tagger.register import PART as HISTORY
from longtail.tagger.register import Register
from longtail.tagger.unseen import PART as UNSEEN
from longtail.tagger.unseen import UnseenLabels

if TYPE_CHECKING:
    from longtail.tagger.tagger import Tagger


def pack_tagger(tagger: Tagger) -> Bundle:
    """Return everything that was fitted or set, as the content of a bundle."""
    about = {"longtail": __version__, **tagger.pipeline.about()}
    about |= {"reads_texts": tagger.reads_texts, "columns": tagger.layout.columns, **tagger.decisions.about()}
    state = {**tagger.pipeline.state(), **tagger.decisions.state()}
    if tagger.constraints is not None:
        about["constraints"] = tagger.constraints.to_dict()
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
    about = bundle.about
    try:
        pipeline = Pipeline(MethodSpec.parse(about["spec"])).restore(about, bundle.arrays)
        layout = Layout.from_columns(about.get("columns", {}))
        tagger = cls.from_pipeline(pipeline, bundle.labels, bool(about["reads_texts"]), layout)
        tagger.decisions = Decisions.restore(about, bundle.arrays)
        tagger.unseen = UnseenLabels.from_state(bundle.arrays[UNSEEN]) if UNSEEN in bundle.arrays else None
        tagger.register = Register.restore(bundle.labels, about.get("history", ()), bundle.arrays.get(HISTORY, {}))
        if "constraints" in about:
            tagger.constraints = Constraints.from_dict(about["constraints"])
        return tagger
    except (KeyError, TypeError, ValueError, SettingError) as error:
        found = f"the bundle does not describe a tagger that this longtail can load ({error})"
        raise BundleError(found, where=str(folder), hint="Use the version of longtail that wrote it") from error
