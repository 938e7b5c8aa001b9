"""Settings of HierarchicalXC."""

from __future__ import annotations

from longtail.linear.settings import SolverSettings
from longtail.models.hierarchicalxc.clustering import DISTANCES, LINKAGES
from longtail.settings import setting, settings

_SEARCHES = ("best-first", "hard")
_MAX_AVERAGE_LABELS = 512  # labels up to which average linkage gives trees that are not too deep


@settings
class HierarchicalXCSettings(SolverSettings):
    """Settings of HierarchicalXC."""

    code: int | None = setting(
        "Dimension of a linear autoencoder whose codes the node classifiers read, at most the number of features or of"
        " samples. None: they read the features.",
        default=None,
        paper="an autoencoder, dimension not given",
        positive=True,
    )
    distance: str = setting(
        "Distance of two labels: iou (1 minus intersection over union of their samples), or count (minus the number of"
        " samples that have both).",
        default="iou",
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
    search: str = setting(
        "Search for labels: best-first (exactly the labels with the highest probability), or hard (visits every child with"
        " probability 0.5 or more; other labels are not predicted).",
        default="best-first",
        paper="hard",
        choices=_SEARCHES,
    )
    C: float = setting(
        "Weight of the loss against the regulariser, as in liblinear.", default=10.0, paper="1 (of its SVMs)", positive=True
    )

    def choose_linkage(self, n_labels: int) -> str:
        """The linkage; if it is None, the number of labels with samples decides.

        >>> HierarchicalXCSettings().choose_linkage(159), HierarchicalXCSettings().choose_linkage(3993)
        ('average', 'complete')
        """
        return self.linkage or ("average" if n_labels <= _MAX_AVERAGE_LABELS else "complete")
