"""HierarchicalXC: a binary tree of classifiers over clustered labels (Srinivasan, Rao and Agarwal, section 4).

The notions of the paper, and where they are:

- φ(x), the code of an autoencoder: ``HierarchicalXC.encode``
- d_ij, the distance of two labels: ``clustering.compute_similarities``
- complete linkage: ``clustering.merge_clusters``
- the tree, which is the sequence of merges in reverse: ``clustering.build_agglomerative_tree``
- the classifiers of a node, trained on the samples with a label below it: ``HierarchicalXC._fit_nodes``
- prediction, which visits every child that is predicted: ``search.best_first_topk`` with ``hard=True``
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.features.autoencoder import compute_slopes_through_code, fit_linear_autoencoder
from longtail.features.mlp import Mlp
from longtail.features.normaliser import Normaliser
from longtail.labelspace.embedding import pifa
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.linear.node import NodeTrainer
from longtail.linear.tree import LinearTree, TreeWeights, estimate_work, fit_nodes
from longtail.model import ADDS_TO_LOG_PROBABILITY, Model, Valid
from longtail.models.hierarchicalxc.clustering import build_agglomerative_tree
from longtail.models.hierarchicalxc.search import search_best_first
from longtail.models.hierarchicalxc.settings import HierarchicalXCSettings
from longtail.progress import Progress
from longtail.state import State
from longtail.topk import TopK

_LOSS = "logistic"  # of the node classifiers: scores are products of their probabilities
_FEATURES_PER_LABEL = 128  # largest features of a label that take part in 2-means
_MAX_STEPS = 10**8  # total depth of the labels of all samples, above which training would take too long


class HierarchicalXC(HierarchicalXCSettings, Model):
    """A binary tree of linear classifiers over labels that are clustered by co-occurrence.

    A node has one classifier per child, which predicts whether a sample has a label below that child. It is trained on the
    samples that have a label below the node. log P(l | x) = Σ log P(child | node, x) over the path of the label. Best-first
    search finds exactly the labels with the highest probability.

    Presets: ``paper`` is the method of section 4: codes of a linear autoencoder with dimension 256, distances that are raw
    counts, complete linkage, and a search that visits every child with P ≥ ½; labels that it does not reach are not
    predicted. ``best`` reads the features, measures distances by IoU, uses average linkage for up to 512 labels, and ranks
    all labels. Both use single words, and both correct the errors of the published code (docs/methods/hierarchicalxc.md).

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> HierarchicalXC().fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "best": {"ngrams": 1},
        "paper": {"code": 256, "distance": "count", "linkage": "complete", "search": "hard", "ngrams": 1},
    }

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The product of the probabilities along the path."""
        return "probability"

    @property
    def weights_meaning(self) -> str:
        """Contributions to the log-probability, whether a hard search reaches the label or not."""
        return ADDS_TO_LOG_PROBABILITY

    @property
    def default_threshold(self) -> float:
        """0.5; for the hard search 0, as every label that it reaches is predicted."""
        return 0.0 if self.search == "hard" else 0.5

    @property
    def label_tree(self) -> LabelTree:
        """The tree of merges."""
        return self.linear.tree

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        with progress.stage("clusters", 1) as stage:
            linkage = self.choose_linkage(self.n_seen)
            V = pifa(X, Y, _FEATURES_PER_LABEL)  # [n_labels, n_features]
            tree = build_agglomerative_tree(
                Y, V, distance=self.distance, linkage=linkage, seed=self.seed, threads=self.threads
            )
            self._check_depth(tree)
            stage.advance()
        self.encoder: Mlp | None = None
        if self.code is not None:
            self.encoder = fit_linear_autoencoder(X, min(self.code, *X.shape), self.seed).encoder
        self.linear = LinearTree(tree, self._fit_nodes(tree, self.encode(X), Y, progress))

    def _check_depth(self, tree: LabelTree) -> None:
        leaves = tree.label != INNER_NODE
        steps = int(self.label_counts[tree.label[leaves]].astype(np.int64) @ tree.depth[leaves])
        if steps > _MAX_STEPS:
            mean = steps / self.label_counts.sum()
            found = f"the label tree is too deep: the mean depth of a label is {mean:,.0f}"
            raise SettingError(found, hint="Set linkage=complete")

    def encode(self, X: sp.csr_array) -> sp.csr_array:
        """The input of the node classifiers: codes of length 1, row by row, or X itself without an autoencoder."""
        return X if self.encoder is None else Normaliser().transform(sp.csr_array(self.encoder(X)))

    def _fit_nodes(self, tree: LabelTree, X: sp.csr_array, Y: sp.csr_array, progress: Progress) -> TreeWeights:
        """Train all nodes. A child that all samples of its node have needs no classifier: P = 1."""
        samples = tree.assign_samples(Y)
        trainer = NodeTrainer(_LOSS, self.C, self.eps, self.max_passes, self.prune, self.seed, skip_certain=True)
        inner, weight = np.flatnonzero(tree.n_children), np.ones(tree.n_nodes, np.float32)
        with progress.stage("nodes", int(estimate_work(tree, samples).sum())) as stage:
            nodes = fit_nodes(inner, tree, samples, X, trainer, weight, None, stage, self.threads)
        return TreeWeights.from_nodes(tree, nodes)

    def _topk(self, X: sp.csr_array, k: int) -> TopK:
        return search_best_first(
            self.linear, self.encode(X), k, loss=_LOSS, hard=self.search == "hard", threads=self.threads
        )

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Slopes of the log-probability: Σ x · slopes is its difference from a sample without features."""
        code = self.encode(x)
        slopes, _, _ = self.linear.slopes(code, label, _LOSS)
        return slopes if self.encoder is None else compute_slopes_through_code(self.encoder, x, code, slopes)

    def _state(self) -> State:
        code = {} if self.encoder is None else self.encoder.state("encoder")
        return {**self.linear.state(), **code}

    def _restore(self, state: State) -> None:
        self.linear = LinearTree.from_state(state)
        self.encoder = None if self.code is None else Mlp.from_state(state, "encoder", ["none"])
