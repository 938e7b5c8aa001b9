"""Probabilistic label trees with sparse linear nodes (Jasinska et al., ICML 2016; Prabhu et al., Parabel, WWW 2018)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.labels import Labels
from longtail.errors import SettingError
from longtail.features.mlp import compute_secant_slope
from longtail.features.text import PUBLISHED_FEATURES
from longtail.kernels import Bools, Floats, Ints
from longtail.labelspace.embedding import embed_by_cooccurrence, embed_by_samples, embed_by_text, pifa
from longtail.labelspace.grow import (
    build_balanced_tree,
    build_hierarchy_tree,
    build_huffman_tree,
    build_k_means_tree,
    check_hierarchy,
)
from longtail.labelspace.propensity import compute_inverse_propensity
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.linear.held_out import predict_by_part
from longtail.linear.node import NodeTrainer, NodeWeights
from longtail.linear.tree import LinearTree
from longtail.linear.tree_training import TreeTraining, fit_nodes
from longtail.linear.tree_update import describe_updates, update_tree
from longtail.linear.tree_weights import TreeWeights
from longtail.linear.trial import DEFAULT_C, choose_C, pack_C, resume_C, unpack_C
from longtail.linear.update import UpdateSamples
from longtail.metrics.ranking import DEFAULT_KS, score_samples
from longtail.model import ADDS_TO_LOG_PROBABILITY, Model, Valid
from longtail.models.plt.search import search_beam
from longtail.models.plt.settings import AUTO_TAIL, LabelTreesPlan, LabelTreesSettings
from longtail.progress import Progress
from longtail.settings import MAX_NUMBER
from longtail.state import State, check_array, check_number, count_parts, extract_part
from longtail.topk import NO_LABEL, SEARCH_DEPTH, HeldOut, TopK

FEATURES_PER_LABEL = 128  # largest features of a label that take part in clustering
_TAILS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)  # exponents that tail="auto" tries
_MAX_EXACT = 200  # lists of up to this many allowed labels are searched without a beam
_LONG_TREES, _MIN_LONG_FEATURES = 2, 150  # trees of a second model for long texts, which have this many features or more


class LabelTrees(LabelTreesSettings, Model):
    """Trees of linear classifiers over clustered labels: about as accurate as one-vs-rest, far faster with many labels.

    The probability of a label is the product of the probabilities along its path, P(l | x) = Π P(node | parent, x). With
    the squared hinge loss P(node | parent, x) = exp(−max(0, 1 − margin)³), with the logistic loss it is the sigmoid of the
    margin. Beam search finds the labels with the highest probability; several trees are averaged.

    Presets: ``parabel`` has 3 balanced binary trees with up to 100 labels per leaf; ``bonsai`` 3 shallow k-means trees with
    100 children per node; ``xr-linear`` one balanced tree with 32 children per node, and trains nodes on negatives from
    the matcher, too. All three use single words and C 1. ``best`` is the defaults: k-means trees, usually of two levels,
    whose fanout depends on the number of labels; the training data decides C and whether pairs of words are used.

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> LabelTrees().fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "best": {},
        "parabel": {
            "tree": "balanced",
            "fanout": 2,
            "max_leaf": 100,
            "n_trees": 3,
            "beam": 10,
            "C": 1.0,
            **PUBLISHED_FEATURES,
        },
        "bonsai": {
            "tree": "k-means",
            "fanout": 100,
            "max_depth": 3,
            "n_trees": 3,
            "beam": 10,
            "C": 1.0,
            **PUBLISHED_FEATURES,
        },
        "xr-linear": {
            "tree": "balanced",
            "fanout": 32,
            "max_leaf": 100,
            "n_trees": 1,
            "beam": 10,
            "negatives": "matcher",
            "C": 1.0,
            **PUBLISHED_FEATURES,
        },
    }

    can_shard = True
    min_depth = SEARCH_DEPTH
    chosen_C: float | None = None  # the value of C that ``fit`` used; None: an older version did not save it
    chosen_tail = 0.0  # the exponent that ``tune`` has chosen, for tail="auto"

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The product of the probabilities along the path, averaged over the trees (before ``tail`` is applied)."""
        return "probability"

    @property
    def weights_meaning(self) -> str:
        """Contributions to the logarithm of the mean probability."""
        return ADDS_TO_LOG_PROBABILITY

    @property
    def label_tree(self) -> LabelTree:
        """The first tree."""
        return self.trees[0].tree

    @property
    def needs_valid(self) -> bool:
        """Whether validation data is required: for tail="auto"."""
        return self.tail == AUTO_TAIL

    @property
    def quick_settings(self) -> dict[str, Any]:
        """One tree, with a C that needs no trial."""
        return {"C": self.C or DEFAULT_C[self.loss], "n_trees": 1, "tail": 0.0}

    def check_vocabulary(self, labels: Labels | None) -> None:
        """Raise an error if tree="parents" and the parents of the labels are not known or contradict each other."""
        if self.tree != "parents":
            return
        if labels is None or labels.parents is None:
            hint = "Read the data with a vocabulary that has them: SKOS, or a table with the columns name and parents"
            raise SettingError("tree=parents needs the parents of the labels", hint=hint)
        check_hierarchy(labels.parents, labels.names)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        labels = np.flatnonzero(self.label_counts).astype(np.int32)
        plan = self.plan(len(labels))
        C, self.decisions = choose_C(self.C, self.fit_quick, X, Y, self.loss, self.seed, self.threads, self.n_names)
        self.chosen_C = C
        self._log_propensity = np.log(compute_inverse_propensity(self.label_counts, self.n_samples)).astype(np.float32)
        vectors = self._embed_labels(X, Y)
        self.trees: list[LinearTree] = []
        for number in range(len(plan.fanouts)):
            with progress.stage("clusters", 1) as stage:
                tree = self._grow_tree(vectors, labels, plan, number)
                stage.advance()
            self.trees.append(LinearTree(tree, self._fit_nodes(tree, X, Y, C, progress)))

    def _embed_labels(self, X: sp.csr_array, Y: sp.csr_array) -> sp.csr_array | None:
        """Label vectors to cluster [n_labels, …]; None for trees without clustering."""
        match self.tree, self.embedding:
            case (("huffman" | "parents"), _):
                return None
            case _, "pifa":
                return pifa(X, Y, FEATURES_PER_LABEL)
            case _, "indicator":
                return embed_by_samples(Y)
            case _, "cooccurrence":
                return embed_by_cooccurrence(Y)
        return embed_by_text(self.labels)

    def _grow_tree(self, vectors: sp.csr_array | None, labels: Ints, plan: LabelTreesPlan, number: int) -> LabelTree:
        if plan.tree == "huffman":
            return build_huffman_tree(self.label_counts)
        if plan.tree == "parents":
            assert self.labels is not None and self.labels.parents is not None  # see ``check_vocabulary``
            return build_hierarchy_tree(self.labels.parents, self.labels.names, labels)
        fanout, seed = plan.fanouts[number], self.seed + number
        if plan.tree == "k-means":
            return build_k_means_tree(vectors, labels, k=fanout, max_depth=self.max_depth, seed=seed, threads=self.threads)
        return build_balanced_tree(vectors, labels, fanout=fanout, max_leaf=self.max_leaf, seed=seed, threads=self.threads)

    def _fit_nodes(self, tree: LabelTree, X: sp.csr_array, Y: sp.csr_array, C: float, progress: Progress) -> TreeWeights:
        """Train the linear models of all inner nodes; level by level if the matcher selects negatives."""
        trainer = NodeTrainer(self.loss, C, self.eps, self.max_passes, self.prune, self.seed)
        training = TreeTraining(tree, X, tree.assign_samples(Y), trainer, self._weight_positives(tree))
        inner = np.flatnonzero(tree.n_children)
        by_level = self.negatives == "matcher"
        levels = [inner[tree.depth[inner] == d] for d in np.unique(tree.depth[inner])] if by_level else [inner]
        nodes: dict[int, NodeWeights] = {}
        with progress.stage("nodes", int(training.estimate_work().sum())) as stage:
            for level in levels:
                below_root = by_level and level[0] > 0
                matched = self._match_samples(tree, nodes, X, int(tree.depth[level[0]])) if below_root else None
                nodes |= fit_nodes(replace(training, matched=matched), level, stage, self.threads, self.cluster)
        return TreeWeights.from_nodes(tree, nodes)

    def _update(
        self, X: sp.csr_array, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress
    ) -> str:
        samples = UpdateSamples.collect(X, Y, known, old, self.n_samples, self.label_counts)
        C, note = resume_C(self.C or self.chosen_C, self.loss)
        trainer = NodeTrainer(self.loss, C, self.eps, self.max_passes, self.prune, self.seed)
        propensity = compute_inverse_propensity(self.count_labels(Y), self.n_samples + X.shape[0])
        self._log_propensity = np.log(propensity).astype(np.float32)
        weight = np.exp(self.positive_weight * self._log_propensity)
        updates = []
        with progress.stage("nodes", sum(int(np.count_nonzero(linear.tree.n_children)) for linear in self.trees)) as stage:
            for linear in self.trees:
                updates.append(update_tree(linear, samples, trainer, weight, stage, self.threads))
        self.trees = [update.linear for update in updates]
        return describe_updates(updates) + note

    def _weight_positives(self, tree: LabelTree) -> Floats:
        """[n_nodes] weight of the positive samples of the classifier that leads to each node; 1 for inner nodes."""
        weight = np.ones(tree.n_nodes, np.float32)
        leaves = tree.label != INNER_NODE
        weight[leaves] = np.exp(self.positive_weight * self._log_propensity[tree.label[leaves]])
        return weight

    def _match_samples(self, tree: LabelTree, nodes: dict[int, NodeWeights], X: sp.csr_array, depth: int) -> sp.csc_array:
        """[n_samples, n_nodes] the nodes at a depth that beam search over the levels trained so far selects."""
        upper = tree.truncate(depth)
        weights = TreeWeights.from_nodes(upper, {node: model for node, model in nodes.items() if node < upper.n_nodes})
        trees = [LinearTree(upper, weights)]
        best = search_beam(trees, X, self.beam, per_tree=self.beam, beam=self.beam, loss=self.loss, threads=self.threads)
        found = best.ids != NO_LABEL
        rows = np.repeat(np.arange(X.shape[0]), best.k)[found.ravel()]
        ones = np.ones(len(rows), np.int8)
        return sp.csc_array((ones, (rows, best.ids[found])), shape=(X.shape[0], tree.n_nodes))

    def predict_held_out(self, X: sp.csr_array, Y: sp.csr_array, k: int) -> HeldOut | None:
        """Predict training samples with a second model that is fitted to a part of the others.

        Long texts need few trials of settings, so that trees are most of what training costs: then two trees have to do.
        """
        settings = {**self.get_params(), "C": self.chosen_C}
        n_samples = X.shape[0] - self.n_names
        if len(self.trees) > _LONG_TREES and X.indptr[n_samples] > _MIN_LONG_FEATURES * n_samples:
            settings["n_trees"] = _LONG_TREES
        fit = partial(self.fit_quick, cluster=self.cluster, **settings)
        return predict_by_part(fit, X, Y, k, seed=self.seed, n_names=self.n_names)

    def tune(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        """For tail="auto", choose the exponent with the largest sum of P@k and PSP@k, k = 1, 3, 5, on validation data."""
        if not self.needs_valid:
            return
        weights = compute_inverse_propensity(self.label_counts, self.n_samples)

        def quality(tail: float) -> float:
            self.chosen_tail = tail
            values = score_samples(self.topk(X, max(DEFAULT_KS)), Y, weights).values()
            return sum(value for name, value in values.items() if name.startswith(("P@", "PSP@")))

        self.chosen_tail = max(_TAILS, key=quality)

    def _topk(self, X: sp.csr_array, k: int, allowed: Bools | None) -> TopK:
        tail = self.chosen_tail if self.tail == AUTO_TAIL else float(self.tail)
        per_tree = k if len(self.trees) == 1 and not tail else min(2 * k, self.n_seen)
        n_found, n_allowed = per_tree if tail else k, self.n_seen if allowed is None else int(np.count_nonzero(allowed))
        if allowed is not None and n_allowed <= _MAX_EXACT:
            best = self._search(X, n_found, n_allowed, n_allowed, allowed)
        else:
            best = self._search(X, n_found, per_tree, self.beam if k <= SEARCH_DEPTH else max(self.beam, k), allowed)
            short = np.flatnonzero(best.ids[:, k - 1] == NO_LABEL)
            if len(short):  # the beam found nodes with one (allowed) label each
                wider = self._search(X[short], n_found, per_tree, max(self.beam, k), allowed)
                best.ids[short], best.scores[short] = wider.ids, wider.scores
        return best if not tail else self._reweight(best, k, tail)

    def _search(self, X: sp.csr_array, k: int, per_tree: int, beam: int, allowed: Bools | None) -> TopK:
        beam, loss = min(beam, max(linear.tree.n_nodes for linear in self.trees)), self.loss
        return search_beam(self.trees, X, k, per_tree=per_tree, beam=beam, loss=loss, threads=self.threads, allowed=allowed)

    def _reweight(self, best: TopK, k: int, tail: float) -> TopK:
        """The k best labels by probability times inverse propensity to the power ``tail``."""
        factor = np.where(best.ids != NO_LABEL, np.exp(tail * self._log_propensity[best.ids]), 1)
        scores = best.scores * factor.astype(np.float32)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return TopK(np.take_along_axis(best.ids, order, axis=1), np.take_along_axis(scores, order, axis=1))

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """The slopes of the trees, weighted by each tree's share in the change of the mean probability.

        The change is that from a sample without features to x. With logarithmic means L(a, b) = (a − b) / (ln a − ln b)
        as weights, Σ x · slopes is exactly the difference of the log-probabilities (Ang 2004), provided that the search
        has found the label in all trees.
        """
        slopes, values, empty = zip(*(tree.slopes(x, label, self.loss) for tree in self.trees), strict=True)
        largest = max(*values, *empty)  # subtracted, so that very small probabilities do not underflow
        end, start = np.array(values) - largest, np.array(empty) - largest  # [n_trees] ln P
        total = compute_secant_slope(np.exp, np.logaddexp.reduce(start), np.logaddexp.reduce(end))
        shares = compute_secant_slope(np.exp, start, end) / total  # [n_trees]
        out: NDArray[np.float64] = shares @ np.stack(slopes)
        return out

    def _state(self) -> State:
        out: State = {"log_propensity": self._log_propensity, "tail": np.array([self.chosen_tail], np.float32)}
        out |= pack_C(self.chosen_C)
        for number, linear in enumerate(self.trees):
            out |= {f"{number}.{name}": array for name, array in linear.state().items()}
        return out

    def _restore(self, state: State) -> None:
        self._log_propensity = check_array(state, "log_propensity", "f4", (self.n_labels,), finite=True)
        self.chosen_tail, self.chosen_C = float(check_number(state, "tail", 0, MAX_NUMBER)), unpack_C(state)
        parts = [extract_part(state, f"{number}.") for number in range(count_parts(state, "n_children"))]
        self.trees = [LinearTree.from_state(part, self.n_labels, self.n_features) for part in parts]
