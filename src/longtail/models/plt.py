"""Probabilistic label trees with sparse linear nodes (Jasinska et al. 2016; Prabhu et al., Parabel, WWW 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import BIG, SettingError, check_settings
from longtail.features.mlp import secant
from longtail.kernels import Floats, Ints
from longtail.labelspace.embedding import cooccurrence, indicator, label_texts, pifa
from longtail.labelspace.grow import balanced_tree, hierarchy_tree, huffman_tree, k_means_tree
from longtail.labelspace.propensity import inverse_propensity
from longtail.labelspace.tree import INNER, LabelTree
from longtail.linear.node import NodeWeights, Solver
from longtail.linear.solver import SOLVERS
from longtail.linear.tree import LinearTree, TreeWeights, node_work, trained_nodes
from longtail.model import IN_LOG_PROBABILITY, Model, Valid
from longtail.progress import Progress
from longtail.search.beam import beam_topk
from longtail.state import State
from longtail.topk import TopK

TREES = ("balanced", "k-means", "huffman", "parents")
EMBEDDINGS = ("pifa", "indicator", "cooccurrence", "texts")
NEGATIVES = ("positives", "matcher")
TERMS = 128  # features of a label that take part in clustering
MANY_LABELS = 50_000  # from here on one tree has to do: time, memory and size grow with each
FLAT = 512  # most labels for a first tree of one level
MOST_DOUBLINGS = 9  # 512 children of a node, unless more are asked for
TOO_MANY = 2 ** (2 * MOST_DOUBLINGS - 1)  # labels for two levels of k-means: above, one cluster would get most of them
AUTO = "auto"
WIDE = 10  # fewest labels that each tree gives, where several are averaged or reordered


class LabelTrees(Model):
    """Trees of linear classifiers over clustered labels: about as accurate as one per label, far faster with many labels.

    A label's probability is the product along its path, P(l | x) = Π P(node | parent, x) with P = exp(−gap³) of the gap
    that a margin leaves to 1; beam search finds the labels with the highest. Several trees are averaged.

    Presets: ``parabel`` (balanced binary trees, leaves of 100 labels, 3 trees), ``bonsai`` (k-means, 100 children, shallow,
    3 trees), ``xr-linear`` (32 children, negatives also from the matcher above, 1 tree), and ``best``, the defaults.

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> LabelTrees().fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "best": {},
        "parabel": {"tree": "balanced", "fanout": 2, "max_leaf": 100, "n_trees": 3, "beam": 10, "ngrams": 1},
        "bonsai": {"tree": "k-means", "fanout": 100, "max_depth": 3, "n_trees": 3, "beam": 10, "ngrams": 1},
        "xr-linear": {
            **{"tree": "balanced", "fanout": 32, "max_leaf": 100, "n_trees": 1, "beam": 10},
            **{"negatives": "matcher", "ngrams": 1},
        },
    }

    chosen_tail = 0.0  # what "auto" has found

    def __init__(
        self,
        *,
        tree: str | None = None,
        embedding: str = "pifa",
        fanout: int | None = None,
        max_leaf: int = 100,
        max_depth: int = 3,
        n_trees: int | None = None,
        beam: int = 10,
        loss: str = "squared_hinge",
        C: float = 1.0,
        prune: float = 0.1,
        eps: float = 0.3,
        max_passes: int = 100,
        negatives: str = "positives",
        positive_weight: float = 0.0,
        tail: float | str = 0.0,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        """Store the settings.

        tree: k-means (clusters of any size), balanced, huffman (by frequency) or parents (the hierarchy of the label
        file); by default k-means, and balanced above 131,072 labels. embedding: what labels are clustered by: pifa
        (their samples' features), indicator (their samples), cooccurrence, texts (words of their names and texts).
        fanout: children of a node; by default so many that two levels hold all labels, 512 at most, and of up to 512
        labels a first tree without clusters. max_leaf: most labels below a last inner node (balanced). max_depth:
        levels (k-means). n_trees: trees that are averaged (k-means, balanced); by default 3, and 1 where 50,000 labels
        or more have samples. beam: nodes opened at each level. loss, C, prune, eps, max_passes: of the linear models,
        as in ovr. negatives: a node learns from the samples that have a label below it (positives), or also from those
        that the level above would send there (matcher). positive_weight: power of the inverse propensity by which
        positives of rare labels count more. tail: the same for scores, after training, which trades P@k for PSP@k;
        "auto" takes the best sum of both on validation data. seed: of clusters and of the order of samples.
        """
        self.tree, self.embedding, self.fanout, self.max_leaf, self.max_depth = tree, embedding, fanout, max_leaf, max_depth
        self.n_trees, self.beam, self.loss, self.C, self.prune = n_trees, beam, loss, C, prune
        self.eps, self.max_passes, self.negatives = eps, max_passes, negatives
        self.positive_weight, self.tail, self.seed, self.threads = positive_weight, tail, seed, threads

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The product of the probabilities along the path, averaged over the trees (before any lift of the tail)."""
        return "probability"

    @property
    def weights_meaning(self) -> str:
        """Of the mean over the trees."""
        return IN_LOG_PROBABILITY

    @property
    def label_tree(self) -> LabelTree:
        """The first tree."""
        return self.trees[0].tree

    @property
    def wants_tail(self) -> bool:
        """Whether ``chosen_tail`` is to be found on validation data."""
        return self.tail == AUTO

    def _check_settings(self) -> None:
        check_settings(
            self.get_params(),
            choices={"tree": TREES, "embedding": EMBEDDINGS, "loss": tuple(SOLVERS), "negatives": NEGATIVES},
            above_zero=("max_leaf", "max_depth", "n_trees", "beam", "C", "eps", "max_passes"),
            at_most=dict.fromkeys(("prune", "positive_weight", *([] if self.tail == AUTO else ["tail"])), BIG),
        )
        if self.fanout is not None and self.fanout < 2:
            raise SettingError(f"fanout is {self.fanout}", hint="It must be at least 2")

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        self._check_settings()
        labels = np.flatnonzero(self.label_counts).astype(np.int32)
        self._log_propensity = np.log(inverse_propensity(self.label_counts, self.n_samples)).astype(np.float32)
        vectors = self._label_vectors(X, Y)
        self.trees: list[LinearTree] = []
        n_trees = self.n_trees or (1 if len(labels) >= MANY_LABELS else 3)
        for number in range(n_trees if vectors is not None else 1):  # without clusters all trees would be the same
            with progress.stage("clusters", 1) as stage:
                tree = self._grow(vectors, labels, number)
                stage.advance()
            self.trees.append(LinearTree(tree, self._train(tree, X, Y, progress)))

    def _label_vectors(self, X: sp.csr_array, Y: sp.csr_array) -> sp.csr_array:
        match self.tree, self.embedding:
            case (("huffman" | "parents"), _):
                return None
            case _, "pifa":
                return pifa(X, Y, TERMS)
            case _, "indicator":
                return indicator(Y)
            case _, "cooccurrence":
                return cooccurrence(Y)
        return label_texts(self.labels)

    def _grow(self, vectors: sp.csr_array, labels: Ints, number: int) -> LabelTree:
        kind = self.tree or ("k-means" if len(labels) <= TOO_MANY else "balanced")
        if kind == "huffman":
            return huffman_tree(self.label_counts)
        if kind == "parents":
            if self.labels is None or self.labels.parents is None:
                hint = "Give a file labels.tsv with the columns name, text and parents beside the data"
                raise SettingError("tree=parents needs the parents of the labels", hint=hint)
            return hierarchy_tree(self.labels.parents, self.labels.names, labels)
        fanout = self.fanout or default_fanout(len(labels), number)
        setting: dict[str, Any] = {"seed": self.seed + number, "threads": self.threads}
        if kind == "k-means":
            return k_means_tree(vectors, labels, k=fanout, max_depth=self.max_depth, **setting)
        return balanced_tree(vectors, labels, fanout=fanout, max_leaf=self.max_leaf, **setting)

    def _train(self, tree: LabelTree, X: sp.csr_array, Y: sp.csr_array, progress: Progress) -> TreeWeights:
        """The linear models of all inner nodes: of one level after the other where the matcher chooses negatives."""
        samples = tree.samples_by_node(Y)
        solver = Solver(self.loss, self.C, self.eps, self.max_passes, self.prune, self.seed)
        weight = self._child_weights(tree)
        inner = np.flatnonzero(tree.n_children)
        by_level = self.negatives == "matcher"
        levels = [inner[tree.depth[inner] == d] for d in np.unique(tree.depth[inner])] if by_level else [inner]
        nodes: dict[int, NodeWeights] = {}
        with progress.stage("nodes", int(node_work(tree, samples).sum())) as stage:
            for level in levels:
                below_root = by_level and level[0] > 0
                matched = self._matched(tree, nodes, X, int(tree.depth[level[0]])) if below_root else None
                nodes |= trained_nodes(level, tree, samples, X, solver, weight, matched, stage, self.threads)
        return TreeWeights.assembled(tree, nodes)

    def _child_weights(self, tree: LabelTree) -> Floats:
        """How much more a positive sample counts, for the classifier that leads to each node; 1 for inner nodes."""
        weight = np.ones(tree.n_nodes, np.float32)
        leaves = tree.label != INNER
        weight[leaves] = np.exp(self.positive_weight * self._log_propensity[tree.label[leaves]])
        return weight

    def _matched(self, tree: LabelTree, nodes: dict[int, NodeWeights], X: sp.csr_array, depth: int) -> sp.csc_array:
        """[n_samples, n_nodes] the nodes at a depth that the levels trained so far would open for each sample."""
        upper = tree.pruned_at(depth)
        weights = TreeWeights.assembled(upper, {node: model for node, model in nodes.items() if node < upper.n_nodes})
        setting: dict[str, Any] = {"wide": self.beam, "beam": self.beam, "loss": self.loss, "threads": self.threads}
        best = beam_topk([LinearTree(upper, weights)], X, self.beam, **setting)
        found = best.ids >= 0
        rows = np.repeat(np.arange(X.shape[0]), best.k)[found.ravel()]
        ones = np.ones(len(rows), np.int8)
        return sp.csc_array((ones, (rows, best.ids[found])), shape=(X.shape[0], tree.n_nodes))

    def _topk(self, X: sp.csr_array, k: int) -> TopK:
        tail = self.chosen_tail if self.tail == AUTO else float(self.tail)
        wide = k if len(self.trees) == 1 and not tail else min(max(2 * k, WIDE), self.n_seen)
        setting: dict[str, Any] = {"beam": max(self.beam, k), "loss": self.loss, "threads": self.threads}
        best = beam_topk(self.trees, X, wide if tail else k, wide=wide, **setting)
        return best if not tail else self._lifted(best, k, tail)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Those of the trees, each weighed by its part in the change of the mean probability from no features to the sample.

        With logarithmic means L(a, b) = (a − b) / (ln a − ln b) as weights, Σ x · slopes is exactly the difference of the
        logarithms (Ang 2004), where the search has found the label in all trees.
        """
        slopes, values, empty = zip(*(tree.slopes(x, label, self.loss) for tree in self.trees), strict=True)
        most = max(*values, *empty)  # taken out, as very small probabilities would be 0
        end, start = np.array(values) - most, np.array(empty) - most  # [n_trees] ln P
        parts = secant(np.exp, start, end) / secant(np.exp, np.logaddexp.reduce(start), np.logaddexp.reduce(end))
        out: NDArray[np.float64] = parts @ np.stack(slopes)
        return out

    def _lifted(self, best: TopK, k: int, tail: float) -> TopK:
        """Labels ordered anew by probability times inverse propensity to the power of ``tail``."""
        lift = np.where(best.ids >= 0, np.exp(tail * self._log_propensity[best.ids]), 1)
        scores = best.scores * lift.astype(np.float32)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return TopK(np.take_along_axis(best.ids, order, axis=1), np.take_along_axis(scores, order, axis=1))

    def _state(self) -> State:
        out: State = {"log_propensity": self._log_propensity, "tail": np.array([self.chosen_tail], np.float32)}
        for number, linear in enumerate(self.trees):
            out |= {f"{number}.{name}": array for name, array in linear.state().items()}
        return out

    def _restore(self, state: State) -> None:
        self._log_propensity, self.chosen_tail = state["log_propensity"], float(state["tail"][0])
        self.trees = [LinearTree.restored(part) for part in parts_of(state)]


def default_fanout(n_labels: int, number: int) -> int:
    """A power of two: so many clusters that two levels hold all labels, 512 at most.

    Of few labels, the first tree has no clusters: one classifier for each label.

    >>> [default_fanout(n, number=0) for n in (159, 1000, 30_000, 1_000_000)], default_fanout(159, number=1)
    ([256, 64, 256, 512], 32)
    """
    if number == 0 and n_labels <= FLAT:
        return 1 << max(ceil(log2(n_labels)), 1)
    return 1 << min(ceil(log2(2 * n_labels) / 2), MOST_DOUBLINGS)


def parts_of(state: State) -> Iterator[State]:
    """The arrays of each tree."""
    for number in range(sum(name.endswith(".n_children") for name in state)):
        prefix = f"{number}."
        yield {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
