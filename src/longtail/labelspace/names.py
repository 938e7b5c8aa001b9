"""Names of labels as training samples: a text that consists of a label's name is about that label.

So a label is found by its name before its samples have taught its words. (Names, and neighbours in general, as training
samples: Chien et al., PINA, ICML 2023.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.data.labels import Labels
from longtail.features.label_names import has_words
from longtail.kernels import Ints
from longtail.settings import Settings, setting, settings

NAMES = "train_on_names"  # the setting


@settings
class NameSettings(Settings):
    """Settings of all methods that can be trained on names."""

    train_on_names: bool | None = setting(
        "Whether the names of the labels, and their other names, are training texts, too. None: the training data decides.",
        default=None,
    )


@dataclass(frozen=True)
class NameSamples:
    """Names as texts, each with the id of its label."""

    texts: list[str]
    labels: Ints  # [n]

    def select(self, keep: np.ndarray) -> NameSamples:
        """The names of some labels: ``keep`` [n_labels] is a mask."""
        rows = np.flatnonzero(keep[self.labels])
        return NameSamples([self.texts[row] for row in rows], self.labels[rows])


def append_labels(Y: sp.csr_array, labels: Ints) -> sp.csr_array:
    """Append rows with one label each to an indicator matrix.

    >>> append_labels(sp.csr_array([[0, 1]]), np.array([0, 1])).toarray().tolist()
    [[0, 1], [1, 0], [0, 1]]
    """
    ones, n = np.ones(len(labels), Y.dtype), len(labels)
    rows = sp.csr_array((ones, labels, np.arange(n + 1)), shape=(n, Y.shape[1]))
    joined: sp.csr_array = sp.vstack([Y, rows], format="csr")
    return joined


def collect_names(labels: Labels) -> NameSamples:
    """Return the names and other names of all labels that consist of words; URIs and codes are left out.

    >>> collect_names(Labels(("cats", "http://x/1", "613"), alt_names=(("felines",), (), ()))).texts
    ['cats', 'felines']
    """
    others = labels.alt_names or ((),) * len(labels)
    found = [
        (name, label)
        for label, (first, more) in enumerate(zip(labels.names, others, strict=True))
        for name in dict.fromkeys((first, *more))
        if has_words(name)
    ]
    return NameSamples([name for name, _ in found], np.array([label for _, label in found], np.int32))
