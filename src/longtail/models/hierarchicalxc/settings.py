"""Settings of HierarchicalXC, and the values that the number of labels decides."""

from __future__ import annotations

from math import ceil, log2

from longtail.conditions import Condition, refuse_unused
from longtail.errors import SettingError
from longtail.linear.settings import LossSettings
from longtail.models.hierarchicalxc.clustering import DISTANCES, LINKAGES, TIES
from longtail.nn.published_autoencoders import EPOCHS, PUBLISHED, parse_widths
from longtail.settings import setting, settings

_SEARCHES = ("best-first", "hard")
_MAX_AVERAGE_LABELS = 512  # labels up to which average linkage gives trees that are not too deep
_MAX_LOG2_FANOUT = 9  # at most 512 children of a node by default


@settings
class HierarchicalXCSettings(LossSettings):
    """Settings of HierarchicalXC."""

    encoder: str | None = setting(
        'Layer widths of an autoencoder whose codes the node classifiers read, the code last, such as "1152-600-256". It is'
        " trained alone, by the error of its reconstruction (needs torch). published: the widths of NeuralXC for data of the"
        " size of the paper's corpora, otherwise halved from layer to layer. None: no such autoencoder.",
        default=None,
        paper=PUBLISHED,
    )
    encoder_epochs: int | None = setting(
        f"Epochs of the training of the encoder. None: {EPOCHS}.", default=None, paper="not given", positive=True
    )
    code: int | None = setting(
        "Dimension of a linear autoencoder whose codes the node classifiers read, at most the number of features or of"
        " samples; computed, not trained. None: no such autoencoder.",
        default=None,
        positive=True,
    )
    distance: str | None = setting(
        "Distance of two labels: iou (1 minus intersection over union of their samples), or count (minus the number of"
        " samples that have both). None: iou.",
        default=None,
        paper="count",
        choices=DISTANCES,
    )
    linkage: str | None = setting(
        "Distance of two clusters: complete (their farthest labels), average (all pairs of labels), or balanced (no"
        " distances: the labels are halved by 2-means of their features). None: average, above 512 labels complete.",
        default=None,
        paper="complete",
        choices=LINKAGES,
    )
    ties: str | None = setting(
        "Merges of clusters at the largest distance: balanced (2-means of their features), or order (one after the other,"
        " as scipy does: the tree becomes a chain). None: balanced.",
        default=None,
        paper="order",
        choices=TIES,
    )
    fanout: int | None = setting(
        "Maximum number of children of a node: merges are undone from the root down, largest clusters first. 2: the binary"
        " tree of merges. None: a power of two, up to 512, so that two levels hold all labels.",
        default=None,
        paper="2",
        minimum=2,
    )
    search: str = setting(
        "Search for labels: best-first (exactly the labels with the highest probability), or hard (visits every child with"
        " a margin of at least 0, for loss=logistic a probability of 0.5; other labels are not predicted).",
        default="best-first",
        paper="hard",
        choices=_SEARCHES,
    )

    def check(self) -> None:
        """Raise a ``SettingError`` for a value outside its limits, or for settings that exclude each other."""
        super().check()
        if self.encoder is not None:
            parse_widths("encoder", self.encoder)
            if self.code is not None:
                raise SettingError("encoder and code are both set", hint="Leave one of the two autoencoders out")
        by_distance = "linkage=complete or average; linkage=balanced uses no distances"
        conditions = [
            Condition(self.encoder is not None, f"an encoder, such as encoder={PUBLISHED}", ("encoder_epochs",)),
            Condition(self.linkage != "balanced", by_distance, ("distance", "ties")),
        ]
        refuse_unused(self, conditions)

    def choose_linkage(self, n_labels: int) -> str:
        """The linkage; if it is None, the number of labels with samples decides.

        >>> HierarchicalXCSettings().choose_linkage(159), HierarchicalXCSettings().choose_linkage(3993)
        ('average', 'complete')
        """
        return self.linkage or ("average" if n_labels <= _MAX_AVERAGE_LABELS else "complete")

    def choose_fanout(self, n_labels: int) -> int:
        """The maximum number of children of a node; if it is None, the number of labels with samples decides.

        >>> [HierarchicalXCSettings().choose_fanout(n) for n in (4, 159, 3993, 36_139, 10**6)]
        [2, 16, 64, 256, 512]
        """
        return self.fanout or 2 ** min(max(ceil(log2(max(n_labels, 2)) / 2), 1), _MAX_LOG2_FANOUT)
