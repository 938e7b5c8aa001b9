"""HierarchicalXC: a binary tree of classifiers over clustered labels (Srinivasan, Rao and Agarwal, section 4)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import BIG, SettingError, check_settings
from longtail.features.autoencoder import linear_autoencoder, slopes_before
from longtail.features.mlp import Mlp
from longtail.features.normaliser import Normaliser
from longtail.labelspace.embedding import pifa
from longtail.labelspace.tree import INNER, LabelTree
from longtail.linear.node import Solver
from longtail.linear.tree import LinearTree, TreeWeights, node_work, trained_nodes
from longtail.model import IN_LOG_PROBABILITY, Model, Valid
from longtail.models.hierarchicalxc.clustering import DISTANCES, LINKAGES, agglomerated
from longtail.models.hierarchicalxc.search import best_first_topk
from longtail.progress import Progress
from longtail.state import State
from longtail.topk import TopK

LOSS = "logistic"  # scores are products of probabilities
CHOICES = {"distance": DISTANCES, "linkage": LINKAGES, "search": ("best-first", "hard")}
TERMS = 128  # features of a label that take part where 2-means joins clusters
FEW = 512  # labels up to which average linkage pays for its deeper trees
MOST_STEPS = 10**8  # steps from the root to all labels of all samples


class HierarchicalXC(Model):
    """A binary tree of linear classifiers over labels joined by how often they stand together.

    A node's two classifiers say whether a sample that reaches it has a label below either child; they learn from the samples
    that have a label below the node. log P(l | x) = Σ log P(child | node, x) over the label's path. Best-first search finds
    exactly the labels with the highest.

    Presets: ``paper`` is the method of section 4: the code of a linear autoencoder, distances that are raw counts, complete
    linkage, and a traversal into every child with P ≥ ½, after which labels that are not reached are never predicted.
    ``best`` has the features themselves, IoU, average linkage with few labels, and ranks all labels. Both have the targets,
    rows and node models put right (docs/methods/hierarchicalxc.md).

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> HierarchicalXC().fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "best": {"ngrams": 1},
        "paper": {"code": 256, "distance": "count", "linkage": "complete", "search": "hard", "ngrams": 1},
    }

    def __init__(
        self,
        *,
        code: int | None = None,
        distance: str = "iou",
        linkage: str | None = None,
        search: str = "best-first",
        C: float = 10.0,
        prune: float = 0.1,
        eps: float = 0.3,
        max_passes: int = 100,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        """Store the settings.

        code: numbers that a linear autoencoder writes a sample as (paper: an autoencoder, size not given), at most as many
        as there are features or samples; None for the features themselves. distance: of two labels: count, −|both| (paper),
        or iou, 1 − |both| / |either|. linkage: of two clusters: complete (paper), average, or balanced, by 2-means of the
        labels' features in place of their distances; by default average, and complete where more than 512 labels have
        samples. search: best-first, or hard (paper). C, prune, eps, max_passes: of the logistic node models, as in ovr.
        seed: of 2-means, the autoencoder, and the order of samples.
        """
        self.code, self.distance, self.linkage, self.search = code, distance, linkage, search
        self.C, self.prune, self.eps, self.max_passes = C, prune, eps, max_passes
        self.seed, self.threads = seed, threads

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The product of the probabilities along the path."""
        return "probability"

    @property
    def weights_meaning(self) -> str:
        """Along the path, whether a hard search would have reached the label or not."""
        return IN_LOG_PROBABILITY

    @property
    def natural_threshold(self) -> float:
        """One half; after a hard search, every label that was reached is on."""
        return 0.0 if self.search == "hard" else 0.5

    @property
    def label_tree(self) -> LabelTree:
        """The tree of joins."""
        return self.linear.tree

    def _check_settings(self) -> None:
        check_settings(
            self.get_params(), choices=CHOICES, above_zero=("code", "C", "eps", "max_passes"), at_most={"prune": BIG}
        )

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        self._check_settings()
        with progress.stage("clusters", 1) as stage:
            linkage = self.linkage or ("average" if self.n_seen <= FEW else "complete")
            V = pifa(X, Y, TERMS)  # [n_labels, n_features]
            tree = agglomerated(Y, V, distance=self.distance, linkage=linkage, seed=self.seed, threads=self.threads)
            self._check_depth(tree)
            stage.advance()
        self.encoder: Mlp | None = None
        if self.code is not None:
            self.encoder = linear_autoencoder(X, min(self.code, *X.shape), self.seed).encoder
        self.linear = LinearTree(tree, self._train(tree, self.encode(X), Y, progress))

    def _check_depth(self, tree: LabelTree) -> None:
        leaves = tree.label != INNER
        steps = int(self.label_counts[tree.label[leaves]].astype(np.int64) @ tree.depth[leaves])
        if steps > MOST_STEPS:
            mean = steps / self.label_counts.sum()
            found = f"the tree of joins is a chain: a label lies {mean:,.0f} steps below the root on average"
            raise SettingError(found, hint="Take linkage=complete")

    def encode(self, X: sp.csr_array) -> sp.csr_array:
        """What the nodes see of each row of X, row by row: its code, of length 1, or the row itself."""
        return X if self.encoder is None else Normaliser().transform(sp.csr_array(self.encoder(X)))

    def _train(self, tree: LabelTree, X: sp.csr_array, Y: sp.csr_array, progress: Progress) -> TreeWeights:
        """All nodes. A child that all samples of its node have needs no model: P = 1."""
        samples = tree.samples_by_node(Y)
        solver = Solver(LOSS, self.C, self.eps, self.max_passes, self.prune, self.seed, certain=True)
        inner, even = np.flatnonzero(tree.n_children), np.ones(tree.n_nodes, np.float32)
        with progress.stage("nodes", int(node_work(tree, samples).sum())) as stage:
            nodes = trained_nodes(inner, tree, samples, X, solver, even, None, stage, self.threads)
        return TreeWeights.assembled(tree, nodes)

    def _topk(self, X: sp.csr_array, k: int) -> TopK:
        return best_first_topk(self.linear, self.encode(X), k, loss=LOSS, hard=self.search == "hard", threads=self.threads)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Σ x · slopes is by how much the logarithm of the label's probability differs from that without features."""
        code = self.encode(x)
        slopes, _, _ = self.linear.slopes(code, label, LOSS)
        return slopes if self.encoder is None else slopes_before(self.encoder, x, code, slopes)

    def _state(self) -> State:
        code = {} if self.encoder is None else self.encoder.state("encoder")
        return {**self.linear.state(), **code}

    def _restore(self, state: State) -> None:
        self.linear = LinearTree.restored(state)
        self.encoder = None if self.code is None else Mlp.restored(state, "encoder", ["none"])
