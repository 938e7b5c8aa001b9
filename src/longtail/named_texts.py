"""The training texts of methods that read texts: those of the samples, and names of labels if they help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Ints
from longtail.labelspace.names import NAMES, NameSamples
from longtail.linear.feature_trial import choose_names
from longtail.model import Model
from longtail.state import State


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
        if wanted is None and model.tries_features(Y.shape[1]):
            wanted, why = choose_names(texts, Y, names, model.fit_quick, settings["seed"], settings["threads"])
            self.decisions = (why,)
        if not wanted:
            return texts
        self.named = names.labels
        return [*texts, *names.texts]

    def about(self) -> dict[str, Any]:
        """Describe in plain types what was chosen, for a bundle."""
        return {"decisions": self.decisions}

    def state(self) -> dict[str, State]:
        """Return what was chosen, as plain arrays by part."""
        return {"names": {"labels": self.named} if len(self.named) else {}}

    def restore(self, about: dict[str, Any], state: dict[str, State]) -> None:
        """Restore what ``about`` and ``state`` returned."""
        self.decisions, self.named = tuple(about["decisions"]), state.get("names", {}).get("labels", self.named)
