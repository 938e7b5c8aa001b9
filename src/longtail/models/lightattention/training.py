"""Training of LightAttention (Zhu, Teng, Huang) and AttentionXML (You et al. 2019) over the levels of a label tree.

AttentionXML (``negatives="static"``) trains one network per level, top down, each started from that of the level above; the
candidates of a level are computed once, by the finished level above. LightAttention (``dynamic``, algorithm 2) trains all
levels together over one encoder: the levels above, the generator, choose new negatives for the discriminator below at every
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from longtail.csr import make_indptr
from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats, Longs
from longtail.labelspace.embedding import pifa
from longtail.labelspace.tree import LabelTree
from longtail.models.lightattention.levels import NO_NODE, build_levels, make_targets
from longtail.models.lightattention.network import BiLstmEncoder, LabelAttention, LevelNetwork, PoolScorer
from longtail.models.lightattention.search import (
    MAX_SCORES_PER_BATCH,
    LevelCandidates,
    count_candidates,
    descend,
    find_best_nodes,
    rank_nodes,
    to_tensor,
)
from longtail.models.lightattention.settings import LightAttentionPlan, LightAttentionSettings
from longtail.models.lightattention.state import networks_to_state
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.divided_rows import collect_rows, find_rows, pays_to_divide
from longtail.nn.loop import train
from longtail.nn.loop_plan import LoopPlan, plan_loop
from longtail.nn.optim import JointOptimizer, LazyAdam, split_parameters
from longtail.nn.ranks import pool_count
from longtail.nn.sparse_embedding import SparseEmbedding
from longtail.nn.validation import mean_precision
from longtail.progress import Progress
from longtail.state import State
from longtail.topk import TopK

_WORDS_PER_NODE = 128  # words of a node's texts that its attention starts at
_INITIAL_LOGIT = 6.0  # attention score of a word vector that equals the start of a node's query
_WARM_UP_EPOCHS = 1  # of the levels above, before the next level joins dynamic training


@dataclass(frozen=True)
class TrainingCorpus:
    """What the networks are trained on."""

    texts: TokenRows  # word ids
    tfidf: sp.csr_array  # [n, n_words - 1] of the same texts; column j is word j + 1
    Y: sp.csr_array  # [n, n_labels]
    n_words: int
    idf: Floats  # [n_words - 1]
    word_vectors: Floats | None = None  # [n_words, d] if pretrained
    valid: tuple[TokenRows, sp.csr_array] | None = None  # validation texts and their labels


class TreeTrainer:
    """Trains the networks of one label tree. Afterwards ``networks`` and ``history`` hold the result."""

    def __init__(
        self,
        data: TrainingCorpus,
        tree: LabelTree,
        settings: LightAttentionSettings,
        plan: LightAttentionPlan,
        *,
        tree_number: int = 0,
        progress: Progress,
    ) -> None:
        self.data, self.settings, self.plan, self.progress = data, settings, plan, progress
        self.tree_number, self.seed = tree_number, settings.seed + tree_number
        self.device = find_device(settings.device)
        self.levels = build_levels(tree)
        self.targets = make_targets(tree, data.Y)  # of each level [n, n_nodes]
        self.valid = None if data.valid is None else (data.valid[0], make_targets(tree, data.valid[1]))
        self.is_static = plan.negatives == "static"
        self.networks: list[LevelNetwork] = []
        self.history: list[dict[str, float]] = []  # one row per epoch of each level

    def fit(self) -> None:
        """Train all levels, top down."""
        torch.manual_seed(self.seed)
        with torch_threads(self.settings.threads):
            for depth in range(len(self.levels)):
                static = None
                if self.is_static and depth:
                    static = choose_static_candidates(self.networks, self.data.texts, self.targets[:depth], self.plan.beam)
                self.networks.append(self._build_level(depth))
                is_last = depth + 1 == len(self.levels)
                if self.is_static or is_last:
                    self._train(self.plan.epochs, static)
                elif self.settings.warm_start:
                    self._train(_WARM_UP_EPOCHS)

    def _build_level(self, depth: int) -> LevelNetwork:
        """Create the network of a level, before training."""
        encoder, level, s = self._choose_encoder(), self.levels[depth], self.settings
        n_candidates = min(level.n_nodes, self.plan.beam * level.max_children) if depth else level.n_nodes
        log_odds = compute_log_odds(self.targets[depth], n_candidates)
        divided = pays_to_divide(level.n_nodes, self.plan.batch)
        if self.plan.generator == "pool" and depth + 1 < len(self.levels):
            scorer = PoolScorer(level.n_nodes, encoder.output_dim, divided=divided).to(self.device)
            if s.skip_connection:
                mean_words = max(float(self.data.texts.lengths.mean()), 1.0)
                init_pool_from_words(scorer, encoder, self.targets[depth], self.data.tfidf, mean_words)
            if s.prior:
                init_bias(scorer, log_odds)
            return LevelNetwork(level, encoder, scorer)
        parts = {"per_label_output": s.per_label_output, "match": s.match, "divided": divided}
        attention = LabelAttention(level.n_nodes, encoder.output_dim, self.plan.fc_sizes, **parts).to(self.device)
        if s.skip_connection:
            init_queries_from_words(attention, encoder, self.targets[depth], self.data.tfidf)
        above = self.networks[-1].attention if self.networks else None
        if s.warm_start and isinstance(above, LabelAttention):
            attention.copy_shared_layers(above)
        if s.prior:
            init_bias(attention, log_odds)
        return LevelNetwork(level, encoder, attention)

    def _choose_encoder(self) -> BiLstmEncoder:
        """Choose the encoder: dynamic levels share one; a static level starts from a copy of the one above, or at random."""
        if not self.networks or (self.is_static and not self.settings.warm_start):
            return self._build_encoder()
        above = self.networks[-1].encoder
        return deepcopy(above) if self.is_static else above

    def _build_encoder(self) -> BiLstmEncoder:
        vectors = self.data.word_vectors
        encoder = BiLstmEncoder(
            self.data.n_words,
            self.plan.word_dim if vectors is None else vectors.shape[1],
            self.plan.hidden,
            skip_connection=self.settings.skip_connection,
            freeze_vectors=self.plan.freeze_vectors,
            embedding_dropout=self.settings.embedding_dropout,
            dropout=self.settings.dropout,
        )
        if vectors is not None:
            encoder.embedding.weight.data.copy_(torch.from_numpy(vectors))
        elif self.settings.idf_start:
            scale = np.append(1.0, self.data.idf / self.data.idf.mean()).astype(np.float32)  # 1 for unknown words
            encoder.embedding.weight.data.mul_(torch.from_numpy(scale)[:, None])
        return encoder.to(self.device)

    def _train(self, epochs: int, static: TokenRows | None = None) -> None:
        """Train the levels so far in one run of the loop: all of them together, or only the last if they are static.

        :param static: Nodes of the level above whose children are the candidates of each text. None: decided at each step.
        """
        depth, texts = len(self.networks), self.data.texts
        trained = slice(depth - 1, depth) if self.is_static else slice(depth)
        networks, targets = self.networks[trained], self.targets[trained]
        modules, encoders = list_modules(networks)
        max_tokens = max(MAX_SCORES_PER_BATCH // count_candidates(networks, self.plan.beam), 1)

        def batches(rng: np.random.Generator) -> list[Longs]:
            return make_length_batches(texts.lengths, rng, batch=self.plan.batch, tokens=max_tokens)

        def loss(rows: Longs) -> Tensor:
            parents = None if static is None else pad_nodes(static[rows])
            candidates_by_level = descend(networks, texts[rows], self.plan.beam, [Y[rows] for Y in targets], parents)
            return torch.stack([compute_loss(each) for each in candidates_by_level]).sum()

        loop = self._plan_loop(epochs, steps=len(batches(np.random.default_rng(0))))
        optimizer = make_adam(modules, encoders, self.plan.rate)
        metric = None if self.valid is None else self._validate
        run = train(modules, batches, loss, optimizer, loop, metric=metric, progress=self.progress)
        self.history += [{"tree": self.tree_number, "level": depth, **row} for row in run.history]

    def _validate(self) -> float:
        """Compute the mean precision of the last level so far on the validation texts."""
        assert self.valid is not None
        texts, targets = self.valid
        found = find_best_nodes(self.networks, texts, beam=self.plan.beam, k=5)
        return mean_precision(lambda rows: TopK(found.ids[rows], found.scores[rows]), targets[len(self.networks) - 1])

    def _plan_loop(self, epochs: int, steps: int) -> LoopPlan:
        """Plan the loop of the last level so far. If there are several runs, each has its own log and checkpoint."""
        depth = len(self.networks)
        data = [(self.data.texts, self.targets), *([self.valid] if self.valid else [])]
        pairs = [(texts, targets[depth - 1]) for texts, targets in data]
        arrays = [array for texts, Y in pairs for array in (texts.ids, texts.indptr, Y.indptr, Y.indices)]
        n_runs = self.settings.n_trees * len(self.levels)
        suffix = f".{self.tree_number}.{depth}" if n_runs > 1 else ""
        return replace(
            plan_loop(self.settings, self.plan, steps, arrays, n_runs=n_runs),
            seed=self.seed,
            epochs=epochs,
            average_from=min(self.plan.average_from, epochs - 1),
            name=f"level {depth}" if len(self.levels) > 1 else "epochs",
            log=self.settings.log and self.settings.log + suffix,
            checkpoint=self.settings.checkpoint and self.settings.checkpoint + suffix,
        )


def fit_tree(
    data: TrainingCorpus,
    tree: LabelTree,
    settings: LightAttentionSettings,
    plan: LightAttentionPlan,
    tree_number: int,
    progress: Progress,
) -> tuple[State, list[dict[str, float]]]:
    """Train the networks of one label tree; return their weights, and one row of history per epoch of each level."""
    trainer = TreeTrainer(data, tree, settings, plan, tree_number=tree_number, progress=progress)
    trainer.fit()
    for network in trainer.networks:
        collect_rows(network.attention)
    return networks_to_state(trainer.networks), trainer.history


def list_modules(networks: Sequence[LevelNetwork]) -> tuple[torch.nn.ModuleList, list[BiLstmEncoder]]:
    """All modules of the networks of some levels, and their encoders, each once."""
    encoders = list({id(network.encoder): network.encoder for network in networks}.values())
    return torch.nn.ModuleList([*encoders, *(network.attention for network in networks)]), encoders


def compute_loss(candidates: LevelCandidates) -> Tensor:
    """Compute the mean binary cross-entropy over the candidates of a level; padding does not count."""
    assert candidates.positives is not None
    exists = to_tensor(candidates.nodes >= 0, candidates.logits.device).float()
    total = binary_cross_entropy_with_logits(candidates.logits, candidates.positives, exists, reduction="sum")
    return total / pool_count(exists.sum(), len(exists))


def choose_static_candidates(
    networks: Sequence[LevelNetwork], texts: TokenRows, targets: Sequence[sp.csr_array], beam: int
) -> TokenRows:
    """Choose, as in AttentionXML, the nodes of the last level whose children are scored for each text in training.

    These are the positive nodes, then the best by their scores, ``beam`` in all, or more if more are positive.
    """
    n_positive = np.diff(targets[-1].indptr)
    nodes = np.full((len(texts), max(beam, int(n_positive.max(initial=0)))), NO_NODE, np.int32)
    for batch in rank_nodes(networks, texts, beam=beam, k=beam, targets=targets):
        nodes[batch.rows, : batch.nodes.shape[1]] = batch.nodes
    nodes[np.arange(nodes.shape[1]) >= np.maximum(n_positive, beam)[:, None]] = NO_NODE
    return TokenRows(nodes[nodes >= 0], make_indptr((nodes >= 0).sum(1), np.int64))


def pad_nodes(rows: TokenRows) -> Longs:
    """Convert lists of nodes to a table [B, b], padded with NO_NODE."""
    nodes, exists = rows.pad()
    return np.where(exists, nodes, NO_NODE)


def init_queries_from_words(
    attention: LabelAttention, encoder: BiLstmEncoder, targets: sp.csr_array, tfidf: sp.csr_array
) -> None:
    """Start the attention of each node at the words that are typical of its texts.

    Only the part of a query that meets word vectors is set, to the centre of these vectors less that of all nodes.

    :param targets: Positive nodes of the texts [n, n_nodes].
    :param tfidf: TF-IDF of the texts [n, n_words - 1].
    """
    centres, length = average_words(encoder, targets, tfidf)
    centres *= _INITIAL_LOGIT / length
    attention.query.weight.data[:, -centres.shape[1] :] = _take_own(centres, attention.query)


def init_pool_from_words(
    scorer: PoolScorer, encoder: BiLstmEncoder, targets: sp.csr_array, tfidf: sp.csr_array, mean_words: float
) -> None:
    """Start pooled scores at how similar the mean word vector of a text is to the words that are typical of a node's texts.

    :param mean_words: Words of a text, on average: the mean of more vectors is shorter.
    """
    centres, length = average_words(encoder, targets, tfidf)
    centres *= _INITIAL_LOGIT * mean_words**0.5 / length
    d = centres.shape[1]
    mean = slice(encoder.output_dim - d, encoder.output_dim)
    scorer.output.weight.data[:, mean] = _take_own(centres, scorer.output)


def average_words(encoder: BiLstmEncoder, targets: sp.csr_array, tfidf: sp.csr_array) -> tuple[Floats, float]:
    """The centre of the words of each node's texts, less that of all nodes, of norm 1; and the mean norm of word vectors."""
    vectors = encoder.embedding.weight.detach().cpu().numpy()  # [n_words, d]
    centres = pifa(tfidf, targets, _WORDS_PER_NODE) @ vectors[1:]  # [n_nodes, d]
    centres -= centres.mean(0)
    centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-6)
    return centres.astype(np.float32), float(np.linalg.norm(vectors, axis=1).mean())


def compute_log_odds(targets: sp.csr_array, n_candidates: int) -> Floats:
    """Compute the log-odds that a node is positive when it is a candidate [n_nodes].

    :param targets: Positive nodes of the texts [n, n_nodes].
    :param n_candidates: Candidates per text.
    """
    n_samples, n_nodes = targets.shape
    counts = np.bincount(targets.indices, minlength=n_nodes)
    n_shown = np.maximum(n_samples * n_candidates / n_nodes, counts)  # texts whose candidate a node is, on average
    out: Floats = np.log((counts + 1) / (n_shown - counts + 1)).astype(np.float32)
    return out


def init_bias(scorer: LabelAttention | PoolScorer, log_odds: Floats) -> None:
    """Start the biases at the log-odds of the nodes; without biases per node, at their mean."""
    if isinstance(scorer, PoolScorer):
        scorer.output.weight.data[:, -1] = _take_own(log_odds, scorer.output)
        return
    scorer.output_layer.bias.data.fill_(float(log_odds.mean()))
    if scorer.label_output is not None:
        scorer.label_output.weight.data[:, -1] = _take_own(log_odds - log_odds.mean(), scorer.label_output)


def _take_own(values: Floats, table: SparseEmbedding) -> Tensor:
    """Values for the rows that this rank holds, of those for all rows."""
    return torch.from_numpy(values[find_rows(table.weight)])


def make_adam(modules: torch.nn.Module, encoders: Sequence[BiLstmEncoder], rate: float) -> JointOptimizer:
    """Create the optimiser: Adam; for word vectors, queries and outputs per label, one that updates only the rows in use."""
    frozen = {encoder.embedding.weight for encoder in encoders if encoder.freeze_vectors}
    tables, dense = split_parameters(modules)
    tables = [table for table in tables if table.weight not in frozen]
    return JointOptimizer(LazyAdam(tables, lr=rate), torch.optim.Adam(dense, lr=rate))
