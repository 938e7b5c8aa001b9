"""Settings of label trees, and the values that the number of labels decides."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from longtail.linear.settings import LossSettings
from longtail.settings import setting, settings

_TREES = ("k-means", "balanced", "huffman", "parents")
_EMBEDDINGS = ("pifa", "indicator", "cooccurrence", "texts")
_NEGATIVES = ("positives", "matcher")
AUTO_TAIL = "auto"
SINGLE_TREE_LABELS = 50_000  # from here on a single tree by default: time, memory and size grow with each tree
MAX_FLAT_LABELS = 512  # up to here the first tree has no clusters by default
MAX_LOG2_FANOUT = 9  # at most 512 children of a node by default
_MAX_K_MEANS_LABELS = 2 ** (2 * MAX_LOG2_FANOUT - 1)  # above, two levels of k-means put most labels into one cluster


@dataclass(frozen=True)
class LabelTreesPlan:
    """The settings that are None by default, with the values for a number of labels."""

    tree: str
    fanouts: tuple[int, ...]  # [n_trees] the fanout of each tree


@settings
class LabelTreesSettings(LossSettings):
    """Settings of label trees."""

    tree: str | None = setting(
        "Tree over the labels: k-means (clusters of any size), balanced (clusters of equal size), huffman (frequent labels"
        " near the root) or parents (the hierarchy of the vocabulary). None: k-means, above 131,072 labels balanced.",
        default=None,
        paper="balanced (Parabel, XR-Linear), k-means (Bonsai)",
        choices=_TREES,
    )
    embedding: str = setting(
        "Label vectors that are clustered: pifa (sum of the features of a label's samples), indicator (which samples have"
        " the label), cooccurrence (which labels it occurs with) or texts (words of label names and texts).",
        default="pifa",
        paper="pifa",
        choices=_EMBEDDINGS,
    )
    fanout: int | None = setting(
        "Maximum number of children of a node (k-means, balanced). None: a power of two, up to 512, so that two levels hold"
        " all labels; with up to 512 labels the first tree has no clusters, only the root and the labels.",
        default=None,
        paper="2 (Parabel), 100 (Bonsai), 32 (XR-Linear)",
        minimum=2,
    )
    max_leaf: int = setting(
        "Maximum number of labels below a node of the last level (balanced).", default=100, paper="100", positive=True
    )
    max_depth: int = setting("Maximum depth of a label (k-means).", default=3, paper="3 (Bonsai)", positive=True)
    n_trees: int | None = setting(
        "Number of trees whose probabilities are averaged (k-means, balanced). None: 3, or 1 if 50,000 or more labels have"
        " samples.",
        default=None,
        paper="3 (Parabel, Bonsai), 1 (XR-Linear)",
        positive=True,
    )
    beam: int = setting(
        "Nodes that beam search expands at each level of a tree. If k is above 20, or if this many nodes have fewer than k"
        " labels, at least k nodes.",
        default=10,
        paper="10",
        positive=True,
    )
    negatives: str = setting(
        "Samples a node is trained on: positives (samples with a label below the node), or matcher (also samples for which"
        " beam search over the levels above selects the node).",
        default="positives",
        paper="positives (Parabel, Bonsai), matcher (XR-Linear)",
        choices=_NEGATIVES,
    )
    positive_weight: float = setting(
        "Exponent p: positive samples of a label are weighted by its inverse propensity to the power p. 0: all weights 1.",
        default=0.0,
        paper="0",
        minimum=0,
    )
    tail: float | str = setting(
        "Exponent p: at prediction, probabilities are multiplied by the inverse propensity to the power p, which ranks rare"
        " labels higher (more PSP@k, less P@k). auto: the exponent with the largest sum of P@k and PSP@k on validation"
        " data. 0: unchanged.",
        default=0.0,
        paper="0",
        minimum=0,
        choices=(AUTO_TAIL,),
    )

    def plan(self, n_labels: int) -> LabelTreesPlan:
        """Fill in the settings that are None.

        :param n_labels: Number of labels with samples.

        >>> LabelTreesSettings().plan(1000)
        LabelTreesPlan(tree='k-means', fanouts=(64, 64, 64))
        """
        tree = self.tree or ("k-means" if n_labels <= _MAX_K_MEANS_LABELS else "balanced")
        n_trees = self.n_trees or (1 if n_labels >= SINGLE_TREE_LABELS else 3)
        if tree in ("huffman", "parents"):  # without clustering all trees would be equal
            n_trees = 1
        fanouts = (self.fanout or _choose_fanout(n_labels, first=number == 0) for number in range(n_trees))
        return LabelTreesPlan(tree, tuple(fanouts))


def _choose_fanout(n_labels: int, *, first: bool) -> int:
    """The default fanout: the power of two with which two levels hold all labels, at most 512.

    With few labels, the first tree has no clusters: the labels are the children of the root.

    >>> [_choose_fanout(n, first=True) for n in (159, 1000, 30_000, 1_000_000)], _choose_fanout(159, first=False)
    ([256, 64, 256, 512], 32)
    """
    if first and n_labels <= MAX_FLAT_LABELS:
        return 1 << max(ceil(log2(n_labels)), 1)
    return 1 << min(ceil(log2(2 * n_labels) / 2), MAX_LOG2_FANOUT)
