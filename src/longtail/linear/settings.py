"""Settings of linear methods, and of the sparse linear part of others."""

from __future__ import annotations

from longtail.linear.solver import SOLVERS
from longtail.settings import MAX_SEED, Settings, setting, settings

MAX_SPARSE_PART_LABELS = 50_000  # above, training would score too many labels for each sample


@settings
class SolverSettings(Settings):
    """How sparse linear classifiers are fitted."""

    prune: float = setting(
        "Weights whose magnitude is below this are dropped.",
        default=0.1,
        paper="0.01 (DiSMEC), 0.1 (Parabel)",
        minimum=0,
        search=(0.02, 0.05, 0.1),
    )
    eps: float = setting(
        "Tolerance: stop after a pass in which no projected gradient (logistic: no error of a logit) was larger.",
        default=0.3,
        paper="0.1 (liblinear)",
        positive=True,
    )
    max_passes: int = setting("Maximum number of passes over the samples of a classifier.", default=100, positive=True)
    seed: int = setting(
        "Seed of everything random, such as the order in which samples are visited.", default=0, minimum=0, maximum=MAX_SEED
    )
    threads: int | None = setting("Threads. None: all cores.", default=None, positive=True)


@settings
class LossSettings(SolverSettings):
    """Solver settings of methods with a choice of the loss."""

    C: float | None = setting(
        "Weight of the loss against the regulariser, as in liblinear. None: chosen on held-out training data.",
        default=None,
        paper="1 (DiSMEC, Parabel)",
        positive=True,
        search=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    )
    loss: str = setting("Loss: squared_hinge or logistic.", default="squared_hinge", paper="squared_hinge", choices=SOLVERS)


@settings
class SparsePartSettings(Settings):
    """The setting of networks that can have a sparse linear part (``sparse_part.py``)."""

    sparse_part: bool | None = setting(
        "Add a sparse linear part to the scores. Its weights start as the centroids of each label's samples and names. None:"
        f" with up to {MAX_SPARSE_PART_LABELS:,} labels, where possible, unless the network alone has a higher precision on"
        " held-out samples.",
        default=None,
        paper="false",
    )

    def wants_sparse_part(self, n_labels: int) -> bool:
        """Whether there is a sparse part with this number of labels that have samples, where it is possible."""
        return n_labels <= MAX_SPARSE_PART_LABELS if self.sparse_part is None else self.sparse_part
