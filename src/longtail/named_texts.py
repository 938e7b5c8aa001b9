"""The training texts of methods that read texts: those of the samples, and names of labels if they help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import BundleError
from longtail.kernels import Ints
from longtail.labelspace.names import NAMES, NameSamples
from longtail.lazy_texts import join_texts
from longtail.linear.centroid_trial import MAX_FEW_LABELS
from longtail.linear.feature_trial import choose_names
from longtail.model import Model
from longtail.state import State, check_array, get_entry


class NamedTexts:
    """Texts, and names of labels. Prediction needs neither; what was chosen is kept for people who ask."""

    named: Ints  # labels whose names are the last texts that ``append_names`` returned
    decisions: tuple[str, ...]  # why names are training texts, or not

    def __init__(self) -> None:
        self.named, self.decisions = np.empty(0, np.int32), ()

    def append_names(self, texts: Sequence[str], Y: sp.csr_array, model: Model, names: NameSamples) -> Sequence[str]:
        """Append names if the settings of the model, or else the training data, say so."""
        settings = model.get_params()
        self.named, self.decisions, wanted = np.empty(0, np.int32), (), settings[NAMES]
        if wanted is None and model.tries_features and Y.shape[1] > MAX_FEW_LABELS:
            wanted, why = choose_names(texts, Y, names, model.fit_quick, settings["seed"], settings["threads"])
            self.decisions = (why,)
        if not wanted:
            return texts
        self.named = names.labels
        return join_texts(texts, names.texts)

    def about(self) -> dict[str, Any]:
        """Describe in plain types what was chosen, for a bundle."""
        return {"decisions": self.decisions}

    def state(self) -> dict[str, State]:
        """Return what was chosen, as plain arrays by part."""
        return {"names": {"labels": self.named} if len(self.named) else {}}

    def restore(self, about: dict[str, Any], state: dict[str, State], n_labels: int) -> None:
        """Restore what ``about`` and ``state`` returned, for this number of labels."""
        self.decisions, self.named = get_sentences(about), restore_names(state, n_labels)


def get_sentences(about: dict[str, Any]) -> tuple[str, ...]:
    """Return the saved sentences about what the training data decided."""
    sentences = get_entry(about, "decisions", list)
    if not all(isinstance(sentence, str) for sentence in sentences):
        raise BundleError("the decisions of the description are not sentences", hint="They must be texts")
    return tuple(sentences)


def restore_names(state: dict[str, State], n_labels: int) -> Ints:
    """Return the label of each name that is a training text, from a saved state."""
    if not state.get("names"):
        return np.empty(0, np.int32)
    return check_array(state["names"], "labels", "i4", (None,), minimum=0, maximum=n_labels - 1)
