"""Continue the training of LightAttention on new texts. New labels become leaves of the clusters that suit them best."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.features.token_rows import TokenRows
from longtail.kernels import Ints, Longs
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.models.lightattention.levels import NO_NODE, build_levels, make_targets
from longtail.models.lightattention.network import LabelAttention, LevelNetwork
from longtail.models.lightattention.search import (
    MAX_SCORES_PER_BATCH,
    count_candidates,
    descend,
    find_best_nodes,
    score_paths,
)
from longtail.models.lightattention.settings import LightAttentionPlan, LightAttentionSettings
from longtail.models.lightattention.state import networks_from_state, networks_to_state
from longtail.models.lightattention.training import (
    average_words,
    choose_static_candidates,
    compute_loss,
    list_modules,
    make_adam,
    pad_nodes,
)
from longtail.nn.continuation import (
    NewSamples,
    Pace,
    Paces,
    divide_by_length,
    train_further,
)
from longtail.nn.devices import torch_threads
from longtail.nn.losses import known_loss
from longtail.progress import Progress
from longtail.state import State

PACES = Paces(replay=Pace(epochs=3, rate=0.5, new_share=0.5), alone=Pace(epochs=2, rate=0.1))


def continue_tree(
    samples: NewSamples,
    tfidf: sp.csr_array,
    tree: LabelTree,
    state: State,
    label_counts: Ints,
    settings: LightAttentionSettings,
    plan: LightAttentionPlan,
    progress: Progress,
) -> tuple[LabelTree, State]:
    """Continue to train the networks of one tree. Returns the tree with the new labels, and the weights.

    :param samples: New and replayed texts, as word ids.
    :param tfidf: TF-IDF of the same texts [n, n_words - 1].
    :param label_counts: Texts of each label, with the new ones [n_labels].
    """
    torch.manual_seed(settings.seed)
    networks = networks_from_state(state, build_levels(tree), settings.device)
    known = tree.label[tree.label != INNER_NODE]
    new = np.setdiff1d(np.flatnonzero(label_counts), known).astype(np.int32)
    with torch_threads(settings.threads):
        parents = _find_clusters(networks, tree, samples, new, plan.beam)
        grown = tree.add_leaves(parents, new)
        targets = make_targets(grown, samples.Y)
        leaves = grown.label[grown.label != INNER_NODE]
        networks = _add_nodes(
            networks, grown, np.flatnonzero(np.isin(leaves, new)), targets[-1], tfidf, label_counts[leaves]
        )
        for network in networks:
            encoder = network.encoder
            encoder.embedding_dropout, encoder.dropout = settings.embedding_dropout, settings.dropout
            encoder.freeze_vectors = plan.freeze_vectors
        encoders = {id(network.encoder) for network in networks}
        continuation = _Continuation(samples, grown, targets, settings, plan, progress)
        if len(encoders) == 1:
            continuation.train(networks)
        else:  # AttentionXML: one level after the other
            for depth in range(len(networks)):
                static = choose_static_candidates(networks[:depth], samples.X, targets[:depth], plan.beam) if depth else None
                continuation.train(networks[: depth + 1], static)
    return grown, networks_to_state(networks)


class _Continuation:
    """What the training of the levels shares."""

    def __init__(
        self,
        samples: NewSamples,
        tree: LabelTree,
        targets: list[sp.csr_array],
        settings: LightAttentionSettings,
        plan: LightAttentionPlan,
        progress: Progress,
    ) -> None:
        self.samples, self.targets, self.settings, self.plan = samples, targets, settings, plan
        self.paths, self.progress = list_paths(tree, samples.Y.shape[1]), progress

    def train(self, networks: list[LevelNetwork], static: TokenRows | None = None) -> None:
        """Train all levels together, or with an encoder for each level only the last.

        :param static: Nodes of the level above whose children are the candidates of each text.
        """
        samples, plan, texts = self.samples, self.plan, self.samples.X
        first = len(networks) - 1 if networks[-1].encoder is not networks[0].encoder else 0
        trained, targets = networks[first:], self.targets[first : len(networks)]
        modules, encoders = list_modules(trained)
        n_candidates = count_candidates(trained, plan.beam)

        def full_loss(rows: Longs) -> Tensor:
            parents = None if static is None else pad_nodes(static[rows])
            found = descend(trained, texts[rows], plan.beam, [Y[rows] for Y in targets], parents)
            return torch.stack([compute_loss(each) for each in found]).sum()

        def partial_loss(rows: Longs) -> Tensor:
            Y, known = samples.get_known(rows)
            if len(networks) < len(self.paths):  # a rejected label says nothing about the clusters above it
                known = Y
            device = networks[0].encoder.initial_state.device

            def score(row: Tensor, label: Tensor) -> Tensor:
                return score_paths(networks, texts[rows], self.paths[: len(networks)], row, label, first)

            return known_loss(score, Y, known, device) / n_candidates  # the full loss is a mean over the candidates

        tokens = max(MAX_SCORES_PER_BATCH // n_candidates, 1)
        divide, optimizer = divide_by_length(texts.lengths, plan.batch, tokens), make_adam(modules, encoders, plan.rate)
        train_further(modules, samples, divide, (full_loss, partial_loss), optimizer, self.settings, self.progress)


def list_paths(tree: LabelTree, n_labels: int) -> list[Longs]:
    """For each level, its node at or above each label [n_labels]; NO_NODE for labels not in the tree."""
    leaves = np.flatnonzero(tree.label != INNER_NODE)
    nodes, out = leaves.astype(np.int64), []
    for depth in range(int(tree.depth.max()), 0, -1):
        path = np.full(n_labels, NO_NODE, np.int64)
        path[tree.label[leaves]] = nodes - int(np.searchsorted(tree.depth, depth))
        out.append(path)
        nodes = tree.parent[nodes].astype(np.int64)
    return out[::-1]


def _find_clusters(networks: list[LevelNetwork], tree: LabelTree, samples: NewSamples, new: Ints, beam: int) -> Longs:
    """The cluster that the texts of each new label reach with the highest probability, as a node of the tree [len(new)]."""
    if len(networks) == 1:
        return np.zeros(len(new), np.int64)
    above = networks[:-1]
    first, n_clusters = int(np.searchsorted(tree.depth, len(above))), above[-1].level.n_nodes
    out = np.empty(len(new), np.int64)
    columns = samples.Y[:, new].tocsc()
    for number in range(len(new)):
        texts = samples.X[columns.indices[columns.indptr[number] : columns.indptr[number + 1]]]
        best = find_best_nodes(above, texts, beam=beam, k=beam)
        there = best.ids >= 0
        total = np.bincount(best.ids[there], np.exp(best.scores[there].astype(np.float64)), minlength=n_clusters)
        out[number] = first + int(total.argmax())
    return out


@torch.no_grad()
def _add_nodes(
    networks: list[LevelNetwork], tree: LabelTree, new: Longs, targets: sp.csr_array, tfidf: sp.csr_array, counts: Ints
) -> list[LevelNetwork]:
    """Add the nodes of new labels to the last level.

    They start as the mean of the others. With a skip connection, the part of their queries that meets word vectors is then
    set to the words that are typical of their texts, as at the start of training, and biases follow the frequencies.

    :param tree: The tree with the new labels.
    :param new: The numbers of the new nodes in the last level.
    :param targets: Positive nodes of the texts [n, n_nodes].
    :param counts: Texts of the label of each node [n_nodes].
    """
    levels, last = build_levels(tree), networks[-1]
    if not len(new):
        return networks
    attention = last.attention
    assert isinstance(attention, LabelAttention)
    encoder, n_nodes = last.encoder, levels[-1].n_nodes
    grown = LabelAttention(
        n_nodes,
        attention.input_dim,
        attention.fc_sizes,
        per_label_output=attention.label_output is not None,
        match=attention.match_weight is not None,
    )
    present = np.setdiff1d(np.arange(n_nodes), new)
    weights = attention.state_dict()
    for name in [name for name in weights if name in ("query.weight", "label_output.weight")]:
        table = weights[name].mean(0).repeat(n_nodes, 1)  # [n_nodes, d]
        table[torch.from_numpy(present)] = weights[name]
        weights[name] = table
    if encoder.skip_connection:
        centres, d = average_words(encoder, targets, tfidf)[0][new], encoder.embedding.weight.shape[1]
        norm = float(attention.query.weight[:, -d:].norm(dim=1).mean())
        weights["query.weight"][torch.from_numpy(new), -d:] = torch.from_numpy(centres * norm).to(
            attention.query.weight.device
        )
    if attention.label_output is not None:
        rarer = np.log(counts[new]) - np.log(np.maximum(counts[present], 1)).mean()
        weights["label_output.weight"][torch.from_numpy(new), -1] += torch.from_numpy(rarer.astype(np.float32))
    grown.load_state_dict(weights)
    networks = [LevelNetwork(level, each.encoder, each.attention) for level, each in zip(levels, networks, strict=True)]
    networks[-1] = LevelNetwork(levels[-1], encoder, grown.to(encoder.initial_state.device).eval())
    return networks
