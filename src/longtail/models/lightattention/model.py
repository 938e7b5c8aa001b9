"""LightAttention: a BiLSTM, attention per label, and a label tree (Zhu, Teng, Huang). Includes AttentionXML.

``settings``, ``words``, ``word_vectors`` and ``levels`` work without torch; ``network``, ``search``, ``training`` and
``state`` need it, and are imported on use.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.data.holdout import find_sampled_labels, split_holdout
from longtail.errors import MissingExtra
from longtail.features.store import fit_vectors
from longtail.features.text import TextFeatures
from longtail.features.token_rows import TokenRows
from longtail.features.word_vectors import check_word_vectors, load_word_vectors
from longtail.kernels import Bools, Floats, Longs
from longtail.labelspace.embedding import pifa
from longtail.labelspace.grow import build_balanced_tree, compress_tree, level_leaves
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.linear.centroid_trial import CentroidTrial
from longtail.linear.sparse_part import Doubles, SparsePart
from longtail.linear.sparse_training import choose_scale, fit_sparse_part, update_sparse_part
from longtail.linear.update import UpdateSamples
from longtail.model import Model, PartWeights, Valid
from longtail.models.lightattention.features import choose_part_features, restore_features, save_features
from longtail.models.lightattention.levels import build_levels
from longtail.models.lightattention.settings import LightAttentionPlan, LightAttentionSettings
from longtail.models.lightattention.structure import check_networks
from longtail.models.lightattention.words import Vocabulary
from longtail.placement import get_network_settings, train_network
from longtail.printable import describe_update
from longtail.progress import Progress
from longtail.search.topk_kernels import average_trees
from longtail.state import State, count_parts, extract_part
from longtail.topk import SEARCH_DEPTH, TopK

if TYPE_CHECKING:
    from longtail.models.lightattention.search import TreeNetworks
    from longtail.models.lightattention.training import TrainingCorpus

_WORDS_PER_LABEL = 128  # words of a label's texts that its cluster is chosen by


_PAPER = {
    **{"paper": True, "word_dim": 300, "skip_connection": False, "per_label_output": False, "match": False, "prior": False},
    **{"idf_start": False},
    **{"embedding_dropout": 0.2, "dropout": 0.5, "max_length": 500, "select": "first"},
    **{"rate": 1e-3, "schedule": "constant", "average": "swa", "patience": 10},
    **{"train_on_names": False, "sparse_part": False},
}


class LightAttention(LightAttentionSettings, CentroidTrial, Model):
    """A BiLSTM over words in which each label attends to the words that matter for it: accurate, small, and explains itself.

    The attention of label j to word i is α_ij = softmax_i(h_i · w_j); its score is computed from Σ_i α_ij h_i (eq. 2). With
    many labels, a tree of clusters selects the labels that are scored, and the probability of a label is the product along
    its path (eq. 1).

    Presets: ``paper`` is LightAttention with the hyper-parameters of AttentionXML's code, for its corpus that is most
    similar in size: dynamic negatives over clusters of 16 labels, 300-dimensional word vectors (set ``word_vectors`` to a
    file of GloVe's), Adam with a constant rate, stochastic weight averaging. ``attentionxml`` is the same with the static
    negatives and the three trees of AttentionXML. ``best`` is the defaults, for a CPU: all labels are scored if there are up
    to 2,048; a smaller network with a skip connection from the word vectors to the attention, an output per label, and
    scores that add how well a label's query matches; biases start at the frequencies; a falling rate, moving averages of
    weights, fewer epochs. In all of them, dropout is drawn once per text, not per word.

    >>> texts, Y = ["red apple", "red rose", "green apple", "white rose"] * 4, np.array([[1, 0], [0, 1]] * 8)
    >>> LightAttention(holdout=0).fit(texts, Y).topk(["an apple", "a rose"], k=1).ids.ravel().tolist()
    [0, 1]
    """

    input = "texts"
    packages = ("torch",)
    trains_network = True
    min_depth = SEARCH_DEPTH
    weights_meaning = "share of the label's attention that each word has"
    presets: ClassVar = {
        "best": {},
        "paper": {**_PAPER, "negatives": "dynamic"},
        "attentionxml": {**_PAPER, "negatives": "static", "n_trees": 3},
    }

    vocabulary: Vocabulary
    trees: list[LabelTree]
    sparse: SparsePart | None  # [n_features, n_seen] sparse part of the scores, over the TF-IDF of all words of a text
    features: TextFeatures | None = None  # of the sparse part; None: the words of the vocabulary
    history: list[dict[str, float]]  # one row per epoch of each level of each tree; not saved
    _states: list[State]  # the weights of the networks of each tree
    _loaded: list[TreeNetworks] | None = None  # the same as networks, once they are needed

    @property
    def score_meaning(self) -> Literal["probability"]:
        """Probability by eq. 1, averaged over the trees. With a sparse part, from the mean of the logits of both."""
        return "probability"

    @property
    def label_tree(self) -> LabelTree | None:
        """The first tree; None if labels are not clustered."""
        return self.trees[0] if self.trees[0].depth.max() > 1 else None

    def find_candidates(self, X: Sequence[str]) -> TopK:
        """Return all labels that are scored in prediction; with a tree, these are not all labels."""
        self._check_fitted()
        beam = self._plan().beam
        max_cluster = max(int(tree.n_children[1:].max(initial=0)) or self.n_seen for tree in self.trees)
        per_tree = min(beam * max_cluster, self.n_seen)
        k = min(per_tree * len(self.trees), self.n_seen)
        return self._search(*self._read(self._check_samples(X)), k=k, per_tree=per_tree, beam=beam)

    def _plan(self) -> LightAttentionPlan:
        """The plan of what was fitted: models of before have no sparse part, whatever the number of their labels."""
        return self.plan(self.n_samples, self.n_seen, sparse_part=self.sparse is not None)

    def check_requirements(self) -> None:
        """Raise an error if a package or word vectors that ``fit`` needs are missing."""
        super().check_requirements()
        if self.word_vectors is not None:
            check_word_vectors(self.word_vectors)

    def _fit(self, X: Sequence[str], Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        from longtail.models.lightattention.training import fit_tree

        plan = self.plan(self.n_samples, self.n_seen)
        self.check_plan(plan)
        progress.say(plan.describe(self.n_samples, self.n_seen))
        self.vocabulary = Vocabulary(max_length=self.max_length, select=self.select, threads=self.threads)
        self.vocabulary.fit(X, progress, n_names=self.n_names)
        tfidf = self.vocabulary.tfidf.transform(X)
        self.trees = self._grow_trees(tfidf, Y, plan, progress)
        data = self._prepare(X, tfidf, Y, valid)
        self._states, self.history, self._loaded, self.sparse, self.features = [], [], None, None, None
        settings = get_network_settings(self, LightAttentionSettings)
        for number, tree in enumerate(self.trees):
            state, history = train_network(self, fit_tree, data, tree, settings, plan, number, progress=progress)
            self._states.append(state)
            self.history += history
        if plan.sparse_part:
            rows, held_out = self._fit_features(X, tfidf, Y, valid)
            self.sparse = self._fit_sparse_part(rows, held_out, data, progress)

    def _fit_features(
        self, X: Sequence[str], tfidf: sp.csr_array, Y: sp.csr_array, valid: Valid | None
    ) -> tuple[sp.csr_array, sp.csr_array | None]:
        """Choose the features of the sparse part. Return those of the texts to train on, and of the held-out ones."""
        n = len(X) - self.n_names
        self.features, why = choose_part_features(X[:n], Y[:n], self.fit_quick, self.seed, self.threads)
        self.decisions = (f"sparse part: {why}",) if why else ()
        rows = tfidf if self.features is None else fit_vectors(self.features, X)
        if valid is not None:
            return rows, self._encode(valid[0])
        if not self.holdout:
            return rows, None
        rows, _, held_out = split_holdout(rows, Y, self.holdout, self.seed, n_names=self.n_names)
        return rows, None if held_out is None else held_out[0]

    def _fit_sparse_part(
        self, X: sp.csr_array, held_out: sp.csr_array | None, data: TrainingCorpus, progress: Progress
    ) -> SparsePart | None:
        """Fit a sparse part to the same texts, and choose its weight in the sum on held-out texts."""
        from longtail.nn.validation import mean_precision

        seen = np.flatnonzero(self.label_counts).astype(np.int32)
        part = fit_sparse_part(X, data.Y, self.seed, self.threads, progress).select_labels(seen)
        if data.valid is None or held_out is None:
            return choose_scale(part, None)
        texts, Y = data.valid
        allowed = np.isin(np.arange(Y.shape[1]), find_sampled_labels(data.Y, self.n_names))

        def validate(part: SparsePart | None) -> Doubles:
            self.sparse = part
            k = min(5, int(np.count_nonzero(allowed)))
            best = mean_precision(
                lambda rows: self._search(texts[rows], held_out[rows], k=k, per_tree=k, allowed=allowed), Y
            )
            return best.of_samples

        return choose_scale(part, validate, is_optional=self.sparse_part is None, progress=progress)

    def _update(
        self, X: Sequence[str], Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress
    ) -> str:
        from longtail.models.lightattention.continuation import PACES, continue_tree
        from longtail.nn.continuation import NewSamples

        counts = self.count_labels(Y)
        texts = [*X, *([] if old is None else old[0])]
        replayed = None if old is None else (self.vocabulary.transform(old[0]), old[1])
        samples = NewSamples.collect(self.vocabulary.transform(X), Y, known, replayed, self.n_samples, PACES)
        tfidf, pairs = self.vocabulary.tfidf.transform(texts), zip(self.trees, self._states, strict=True)
        done = [continue_tree(samples, tfidf, *pair, counts, self, self._plan(), progress) for pair in pairs]
        self.trees, self._states = [tree for tree, _ in done], [state for _, state in done]
        self._loaded = None
        if self.sparse is not None:
            before, n = np.flatnonzero(self.label_counts).astype(np.int32), len(X)
            rows = tfidf if self.features is None else self._encode(texts)
            replayed = None if old is None else (rows[n:], old[1])
            of_part = UpdateSamples.collect(rows[:n], Y, known, replayed, self.n_samples, self.label_counts)
            part = update_sparse_part(self.sparse, before, of_part, self.seed, self.threads, progress)
            self.sparse = part.select_labels(np.flatnonzero(counts).astype(np.int32))
        n_new = int(np.count_nonzero(counts)) - self.n_seen
        return describe_update("networks of all levels trained", n_new)

    def _grow_trees(
        self, tfidf: sp.csr_array, Y: sp.csr_array, plan: LightAttentionPlan, progress: Progress
    ) -> list[LabelTree]:
        """Build balanced binary trees, made shallow (algorithm 1); without clusters, all labels are below the root."""
        labels = np.flatnonzero(self.label_counts).astype(np.int32)
        if not plan.n_halvings or plan.levels == 1:
            flat = LabelTree(np.append(len(labels), np.zeros(len(labels))), np.append(INNER_NODE, labels))
            return [flat] * self.n_trees
        V = pifa(tfidf, Y, _WORDS_PER_LABEL)
        max_leaf = ceil(len(labels) / (1 << plan.n_halvings))  # all clusters then lie at the same depth
        trees = []
        with progress.stage("clusters", self.n_trees) as stage:
            for number in range(self.n_trees):
                deep = build_balanced_tree(
                    V, labels, fanout=2, max_leaf=max_leaf, seed=self.seed + number, threads=self.threads
                )
                trees.append(level_leaves(compress_tree(deep, int(log2(self.fanout)), plan.levels - 1)))
                stage.advance()
        return trees

    def _prepare(self, X: Sequence[str], tfidf: sp.csr_array, Y: sp.csr_array, valid: Valid | None) -> TrainingCorpus:
        """Convert texts to word ids, hold out validation texts, and load pretrained word vectors."""
        from longtail.models.lightattention.training import TrainingCorpus

        texts, n_words = self.vocabulary.transform(X), self.vocabulary.n_words
        vectors = None
        if self.word_vectors is not None:
            words = [self.vocabulary.word(number) for number in range(n_words)]
            vectors = load_word_vectors(self.word_vectors, words, self.seed)
        if valid is not None:
            valid = self.vocabulary.transform(valid[0]), valid[1]
        elif self.holdout:
            tfidf = split_holdout(tfidf, Y, self.holdout, self.seed, n_names=self.n_names)[0]
            texts, Y, valid = split_holdout(texts, Y, self.holdout, self.seed, n_names=self.n_names)
        return TrainingCorpus(texts, tfidf, Y, n_words, self.vocabulary.tfidf.idf, vectors, valid)

    def _networks(self) -> list[TreeNetworks]:
        """Return the fitted networks of each tree."""
        if self._loaded is None:
            try:
                from longtail.models.lightattention.search import TreeNetworks
            except ImportError as error:
                raise MissingExtra("torch", "nn", "Prediction with lightattention") from error
            pairs = zip(self._states, self.trees, strict=True)
            self._loaded = [TreeNetworks.from_state(state, tree, self.device) for state, tree in pairs]
        return self._loaded

    def _topk(self, X: Sequence[str], k: int, allowed: Bools | None) -> TopK:
        per_tree = k if len(self.trees) == 1 else min(2 * k, self.n_seen)
        return self._search(*self._read(X), k=k, per_tree=per_tree, allowed=allowed)

    def _read(self, X: Sequence[str]) -> tuple[TokenRows, sp.csr_array | None]:
        """Convert texts to word ids, and to features of the sparse part."""
        return self.vocabulary.transform(X), None if self.sparse is None else self._encode(X)

    def _encode(self, X: Sequence[str]) -> sp.csr_array:
        """Compute the features of the sparse part."""
        return (self.features or self.vocabulary.tfidf).transform(X)

    def _search(
        self,
        texts: TokenRows,
        X: sp.csr_array | None,
        *,
        k: int,
        per_tree: int,
        beam: int | None = None,
        allowed: Bools | None = None,
    ) -> TopK:
        """Find the k best labels by their mean probability over the trees, each of which finds its ``per_tree`` best."""
        networks, sparse, n = self._networks(), self.sparse, len(texts)
        from longtail.nn.devices import torch_threads

        beam, others = beam or max(self._plan().beam, per_tree), None
        if sparse is not None and X is not None:

            def others(rows: Longs) -> Floats:
                return sparse.score(X[rows])

        with torch_threads(self.threads):
            found = [tree.topk(texts, beam=beam, k=per_tree, allowed=allowed, others=others) for tree in networks]
        if sparse is not None:
            found = [TopK(best.ids, -np.logaddexp(0, -sparse.average_logits(best.scores))) for best in found]
        if len(found) == 1:
            (best,) = found
            return TopK(best.ids, np.where(best.ids >= 0, np.exp(best.scores), best.scores))
        ids, scores = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
        average_trees(np.stack([best.ids for best in found]), np.stack([best.scores for best in found]), ids, scores)
        return TopK(ids, scores)

    def _explain(self, sample: str, label: int) -> PartWeights:
        """Return the share of a label's attention that each word of a text has, averaged over the trees; they sum to 1."""
        words = self.vocabulary.locate(sample)
        weights = np.zeros(len(words.ids), np.float32)
        for tree in self._networks():
            weights += tree.compute_attention(words.ids, label) / len(self.trees)
        return words.starts, words.ends, weights

    def _state(self) -> State:
        out: State = {f"words.{name}": array for name, array in self.vocabulary.state().items()}
        for number, (state, tree) in enumerate(zip(self._states, self.trees, strict=True)):
            out |= {f"{number}.{name}": array for name, array in state.items()}
            out |= {f"{number}.n_children": tree.n_children, f"{number}.label": tree.label}
        if self.sparse is not None:
            out |= {f"sparse.{name}": array for name, array in self.sparse.state().items()}
            out |= {} if self.features is None else save_features(self.features)
        return out

    def _restore(self, state: State) -> None:
        self.vocabulary = Vocabulary(max_length=self.max_length, select=self.select, threads=self.threads)
        self.vocabulary.restore(extract_part(state, "words."))
        self._states = [extract_part(state, f"{number}.") for number in range(count_parts(state, "n_children"))]
        self.trees = [LabelTree.from_state(part, self.n_labels) for part in self._states]
        for part, tree in zip(self._states, self.trees, strict=True):
            del part["n_children"], part["label"]
            check_networks(part, build_levels(tree), self.vocabulary.n_words)
        sparse, self.features = extract_part(state, "sparse."), restore_features(state, self.threads)
        n_features = self.vocabulary.n_words - 1 if self.features is None else self.features.n_features
        self.sparse = SparsePart.from_state(sparse, n_features, self.n_seen) if sparse else None
        self._loaded = None
