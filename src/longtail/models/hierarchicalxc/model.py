"""HierarchicalXC: a tree of classifiers over clustered labels (Srinivasan, Rao and Agarwal, section 4).

The notions of the paper, and where they are:

- φ(x), the code of an autoencoder: ``HierarchicalXC.encode``
- d_ij, the distance of two labels: ``clustering.compute_similarities``
- complete linkage: ``clustering.merge_clusters``
- the tree, which is the sequence of merges in reverse: ``clustering.build_agglomerative_tree``, and ``widen_tree``
- the classifiers of a node, trained on the samples with a label below it: ``HierarchicalXC._fit_nodes``
- prediction, which visits every child that is predicted: ``search.best_first_topk`` with ``hard=True``
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.extras import require
from longtail.features.autoencoder import fit_linear_autoencoder
from longtail.features.mlp import Mlp
from longtail.features.normaliser import Normaliser
from longtail.features.text import PUBLISHED_FEATURES
from longtail.kernels import Bools
from longtail.labelspace.embedding import pifa
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.linear.held_out import predict_by_part
from longtail.linear.node import NodeTrainer
from longtail.linear.tree import LinearTree
from longtail.linear.tree_training import TreeTraining, fit_nodes
from longtail.linear.tree_update import describe_updates, update_tree
from longtail.linear.tree_weights import TreeWeights
from longtail.linear.trial import DEFAULT_C, choose_C, pack_C, resume_C, unpack_C
from longtail.linear.update import UpdateSamples
from longtail.model import ADDS_TO_LOG_PROBABILITY, Model, Valid
from longtail.models.hierarchicalxc.clustering import build_agglomerative_tree, widen_tree
from longtail.models.hierarchicalxc.search import search_best_first
from longtail.models.hierarchicalxc.settings import HierarchicalXCSettings
from longtail.nn.published_autoencoders import EPOCHS, PUBLISHED, choose_network, parse_widths
from longtail.progress import Progress
from longtail.state import State
from longtail.topk import HeldOut, TopK

_FEATURES_PER_LABEL = 128  # largest features of a label that take part in 2-means
_MAX_STEPS = 10**8  # total depth of the labels of all samples, above which training would take too long


class HierarchicalXC(HierarchicalXCSettings, Model):
    """A tree of linear classifiers over labels that are clustered by co-occurrence.

    A node has one classifier per child, which predicts whether a sample has a label below that child. It is trained on the
    samples that have a label below the node. log P(l | x) = Σ log P(child | node, x) over the path of the label. Best-first
    search finds exactly the labels with the highest probability.

    Presets: ``paper`` is the method of section 4: codes of the autoencoder of NeuralXC, trained alone; distances that are
    raw counts, complete linkage with ties as in scipy, a binary tree, and a search that visits every child with P ≥ ½;
    labels that it does not reach are not predicted. ``best`` reads the features, measures distances by IoU, breaks ties by
    2-means, undoes merges until two or three levels are left, and ranks all labels. Both correct the errors of the published
    code (docs/methods/hierarchicalxc.md).

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> HierarchicalXC().fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "best": {},
        "paper": {
            **{"encoder": PUBLISHED, "distance": "count", "linkage": "complete", "ties": "order", "fanout": 2},
            **{"search": "hard", "loss": "logistic", "C": 10.0, "normalise": False, **PUBLISHED_FEATURES},
        },
    }

    can_shard = True
    coder: Mlp | None  # φ; None: the nodes read the features
    linear: LinearTree
    chosen_C: float | None = None  # the value of C that ``fit`` used; None: an older version did not save it

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

    @property
    def quick_settings(self) -> dict[str, Any]:
        """A C that needs no trial."""
        return {"C": self.C or DEFAULT_C[self.loss]}

    def check_requirements(self) -> None:
        """Raise an error if torch is not installed and an encoder is to be trained."""
        if self.encoder is not None:
            require("The autoencoder of hierarchicalxc", "torch")

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        C, self.decisions = choose_C(self.C, self.fit_quick, X, Y, self.loss, self.seed, self.threads, self.n_names)
        self.chosen_C = C
        tree = self._build_tree(X, Y, progress)
        self.coder = self._fit_encoder(X, progress)
        self.linear = LinearTree(tree, self._fit_nodes(tree, self.encode(X), Y, C, progress))

    def _build_tree(self, X: sp.csr_array, Y: sp.csr_array, progress: Progress) -> LabelTree:
        with progress.stage("clusters", 1) as stage:
            tree = build_agglomerative_tree(
                Y,
                pifa(X, Y, _FEATURES_PER_LABEL),
                distance=self.distance or "iou",
                linkage=self.choose_linkage(self.n_seen),
                ties=self.ties or "balanced",
                seed=self.seed,
                threads=self.threads,
            )
            tree = widen_tree(tree, self.choose_fanout(self.n_seen))
            self._check_depth(tree)
            stage.advance()
        return tree

    def _fit_encoder(self, X: sp.csr_array, progress: Progress) -> Mlp | None:
        if self.code is not None:
            return fit_linear_autoencoder(X, min(self.code, *X.shape), self.seed).encoder
        if self.encoder is None:
            return None
        from longtail.models.hierarchicalxc.training import train_autoencoder

        paper = choose_network(self.n_features, self.n_labels)
        return train_autoencoder(
            X,
            parse_widths("encoder", self.encoder) or paper.encoder,
            output_activation=paper.output_activation,
            rate=paper.rate,
            epochs=self.encoder_epochs or EPOCHS,
            seed=self.seed,
            threads=self.threads,
            progress=progress,
        ).encoder

    def _check_depth(self, tree: LabelTree) -> None:
        leaves = tree.label != INNER_NODE
        steps = int(self.label_counts[tree.label[leaves]].astype(np.int64) @ tree.depth[leaves])
        if steps > _MAX_STEPS:
            mean = steps / self.label_counts.sum()
            found = f"the label tree is too deep: the mean depth of a label is {mean:,.0f}"
            raise SettingError(found, hint="Set linkage=complete and ties=balanced, or a larger fanout")

    def encode(self, X: sp.csr_array) -> sp.csr_array:
        """The input of the node classifiers: codes, or X itself without an autoencoder. Linear codes have length 1."""
        if self.coder is None:
            return X
        codes = sp.csr_array(self.coder(X))
        return codes if self.code is None else Normaliser().transform(codes)

    def _fit_nodes(self, tree: LabelTree, X: sp.csr_array, Y: sp.csr_array, C: float, progress: Progress) -> TreeWeights:
        """Train all nodes. A child that all samples of its node have needs no classifier: P = 1."""
        trainer = NodeTrainer(self.loss, C, self.eps, self.max_passes, self.prune, self.seed, skip_certain=True)
        training = TreeTraining(tree, X, tree.assign_samples(Y), trainer, np.ones(tree.n_nodes, np.float32))
        with progress.stage("nodes", int(training.estimate_work().sum())) as stage:
            nodes = fit_nodes(training, np.flatnonzero(tree.n_children), stage, self.threads, self.cluster)
        return TreeWeights.from_nodes(tree, nodes)

    def _update(
        self, X: sp.csr_array, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress
    ) -> str:
        codes = None if old is None else (self.encode(old[0]), old[1])
        samples = UpdateSamples.collect(self.encode(X), Y, known, codes, self.n_samples, self.label_counts)
        C, note = resume_C(self.C or self.chosen_C, self.loss)
        trainer = NodeTrainer(self.loss, C, self.eps, self.max_passes, self.prune, self.seed)
        with progress.stage("nodes", int(np.count_nonzero(self.linear.tree.n_children))) as stage:
            update = update_tree(self.linear, samples, trainer, np.ones(Y.shape[1], np.float32), stage, self.threads)
        self.linear = update.linear
        return describe_updates([update]) + note

    def predict_held_out(self, X: sp.csr_array, Y: sp.csr_array, k: int) -> HeldOut | None:
        """Predict training samples with a second model that is fitted to a part of the others."""
        fit = partial(self.fit_quick, cluster=self.cluster, **{**self.get_params(), "C": self.chosen_C})
        return predict_by_part(fit, X, Y, k, seed=self.seed, n_names=self.n_names)

    def _topk(self, X: sp.csr_array, k: int, allowed: Bools | None) -> TopK:
        hard, codes = self.search == "hard", self.encode(X)
        return search_best_first(self.linear, codes, k, loss=self.loss, hard=hard, threads=self.threads, allowed=allowed)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Slopes of the log-probability: Σ x · slopes is its difference from a sample without features.

        The length by which linear codes are divided is treated as a constant.
        """
        if self.coder is None:
            return self.linear.slopes(x, label, self.loss)[0]
        code, empty = self.coder(x), self.coder(sp.csr_array((1, x.shape[1]), dtype=np.float32))  # [1, a]
        length = float(np.linalg.norm(code)) or 1.0 if self.code is not None else 1.0
        ids = np.arange(code.shape[1], dtype=np.int32)
        row = sp.csr_array((code[0] / length, ids, [0, len(ids)]), shape=code.shape)
        slopes, _, _ = self.linear.slopes(row, label, self.loss, empty[0].astype(np.float64) / length)
        after = (slopes / length).astype(np.float32)
        first, *rest = self.coder.weights
        return Mlp([first[x.indices], *rest], self.coder.biases, self.coder.activations).slopes(x.data, after)

    def _state(self) -> State:
        code = {} if self.coder is None else self.coder.state("encoder")
        return {**self.linear.state(), **code, **pack_C(self.chosen_C)}

    def _restore(self, state: State) -> None:
        n_layers = sum(name.startswith("encoder.W") for name in state)
        activations = [*["relu"] * (n_layers - 1), "none"]
        self.coder = Mlp.from_state(state, "encoder", activations, self.n_features) if n_layers else None
        n_inputs = self.coder.output_dim(self.n_features) if self.coder else self.n_features
        self.linear, self.chosen_C = LinearTree.from_state(state, self.n_labels, n_inputs), unpack_C(state)
