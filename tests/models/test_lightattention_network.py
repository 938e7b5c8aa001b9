"""LightAttention's network, its search down the label tree and its training: eq. 1, eq. 2, candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longtail.features.token_rows import TokenRows
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.models.lightattention import network as network_module
from longtail.models.lightattention.levels import NO_NODE, build_levels, find_positives, make_targets
from longtail.models.lightattention.model import LightAttention
from longtail.models.lightattention.network import BiLstmEncoder, LabelAttention, LevelNetwork, PoolScorer
from longtail.models.lightattention.search import count_candidates, descend, find_best_nodes
from longtail.models.lightattention.state import networks_from_state, networks_to_state
from longtail.models.lightattention.training import (
    TrainingCorpus,
    TreeTrainer,
    choose_static_candidates,
    compute_log_odds,
    compute_loss,
    init_bias,
    init_queries_from_words,
    make_adam,
    pad_nodes,
)
from longtail.progress import SILENT

TEXTS = TokenRows.from_lists([[1, 2, 3, 4], [], [7], [5, 6, 9], [3, 3]])
N_WORDS, WORD_DIM, HIDDEN = 12, 6, 4
# Three clusters: of the labels 4 and 2, of 0, and of 1, 3 and 5.
TREE = LabelTree(np.array([3, 2, 1, 3, 0, 0, 0, 0, 0, 0]), np.array([INNER_NODE] * 4 + [4, 2, 0, 1, 3, 5]))


def make_encoder(hidden: int = HIDDEN, **changes: Any) -> BiLstmEncoder:
    settings = {"skip_connection": False, "freeze_vectors": False, "embedding_dropout": 0.0, "dropout": 0.0, **changes}
    torch.manual_seed(0)
    encoder = BiLstmEncoder(N_WORDS, WORD_DIM, hidden, **settings)
    torch.nn.init.normal_(encoder.initial_state)
    return encoder


def make_attention(
    n_nodes: int,
    input_dim: int = 2 * HIDDEN,
    *,
    fc_sizes: Sequence[int] = (5,),
    per_label_output: bool = True,
    match: bool = True,
) -> LabelAttention:
    torch.manual_seed(n_nodes)
    attention = LabelAttention(n_nodes, input_dim, fc_sizes, per_label_output=per_label_output, match=match)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    return attention


def make_networks() -> list[LevelNetwork]:
    """Random networks for the two levels of TREE, over one encoder."""
    encoder = make_encoder()
    return [LevelNetwork(level, encoder, make_attention(level.n_nodes)) for level in build_levels(TREE)]


# Encoder


def test_the_encoder_is_a_bilstm_over_packed_sequences() -> None:
    encoder = make_encoder()
    bilstm = torch.nn.LSTM(WORD_DIM, HIDDEN, batch_first=True, bidirectional=True)
    directions = ((encoder.forward_lstm, ""), (encoder.backward_lstm, "_reverse"))
    names = [f"{kind}_{of}_l0" for kind in ("weight", "bias") for of in ("ih", "hh")]
    bilstm.load_state_dict({name + suffix: getattr(lstm, name) for lstm, suffix in directions for name in names})
    H, mask = encoder(TEXTS)
    lengths = torch.tensor([4, 1, 1, 3, 2])  # a text without words is read as one unknown word
    assert mask.sum(1).tolist() == lengths.tolist()
    vectors = encoder.embedding.weight[torch.from_numpy(TEXTS.pad()[0])]
    packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
    h, c = (encoder.initial_state[:, i].expand(2, 5, HIDDEN).contiguous() for i in (0, 1))
    expected, _ = pad_packed_sequence(bilstm(packed, (h, c))[0], batch_first=True)
    assert torch.allclose(H[mask], expected[mask], atol=1e-6)


@pytest.mark.parametrize("length", [0, 1, 10_000])
def test_scores_of_a_text_do_not_depend_on_its_batch(length: int) -> None:
    encoder, attention = make_encoder(), make_attention(3)
    alone = attention(*encoder(TokenRows.from_lists([[2] * length])), np.arange(3))
    in_batch = attention(*encoder(TokenRows.from_lists([[1, 5], [2] * length, []])), np.arange(3))[1:2]
    assert torch.isfinite(alone).all() and torch.allclose(alone, in_batch, atol=1e-4)


def test_the_skip_connection_appends_the_word_vectors() -> None:
    H, mask = make_encoder(skip_connection=True)(TEXTS)
    encoder = make_encoder()
    plain, _ = encoder(TEXTS)
    assert torch.equal(H[:, :, : 2 * HIDDEN], plain) and H.shape[2] == 2 * HIDDEN + WORD_DIM
    vectors = encoder.embedding.weight[torch.from_numpy(TEXTS.pad()[0])]
    assert torch.equal(H[mask][:, 2 * HIDDEN :], vectors[mask])


def test_dropout_is_drawn_once_per_text_and_only_in_training() -> None:
    encoder = make_encoder(hidden=64, dropout=0.5)
    H, mask = encoder.train()(TokenRows.from_lists([[1, 2, 3], [4, 5, 6]]))
    dropped = H[mask].view(2, 3, -1) == 0
    assert (dropped == dropped[:, :1]).all() and 0.3 < dropped.float().mean() < 0.7 and (dropped[0] != dropped[1]).any()
    assert (encoder.eval()(TEXTS)[0][0] != 0).all()


@pytest.mark.parametrize("freeze", [True, False])
def test_frozen_vectors_are_not_trained(freeze: bool) -> None:
    encoder = make_encoder(freeze_vectors=freeze)
    encoder(TEXTS)[0].sum().backward()
    assert bool(encoder.embedding.pending) != freeze
    modules = torch.nn.ModuleList([encoder, make_attention(3)])
    trained = {id(p) for group in make_adam(modules, [encoder], 0.1).param_groups for p in group["params"]}
    assert (id(encoder.embedding.weight) in trained) != freeze


# Attention, eq. 2


def test_attention_sums_to_one_over_the_words() -> None:
    H, mask = make_encoder()(TEXTS)
    weights = make_attention(7).compute_attention(H, mask, np.arange(7))  # [B, T, 7]
    assert torch.allclose(weights.sum(1), torch.ones(5, 7))
    assert (weights[~mask] == 0).all() and (weights[mask] > 0).all()


@pytest.mark.parametrize("per_label_output", [True, False])
@pytest.mark.parametrize("fc_sizes", [[5], [5, 3]])
@pytest.mark.parametrize("match", [True, False])
def test_scores_are_eq_2_and_the_shared_layers(per_label_output: bool, fc_sizes: list[int], match: bool) -> None:
    H, mask = make_encoder()(TEXTS)
    attention = make_attention(7, fc_sizes=fc_sizes, per_label_output=per_label_output, match=match)
    got = attention(H, mask, np.arange(7))
    for i in range(len(TEXTS)):
        for j in range(7):
            h = H[i][mask[i]]  # [T, 2n]
            alpha = torch.softmax(h @ attention.query.weight[j], 0)
            m = attention.first_layer(alpha @ h).relu()
            for layer in attention.middle_layers:
                m = layer(m).relu()
            z = attention.output_layer(m)[0]
            if attention.label_output is not None:
                z = z + m @ attention.label_output.weight[j, :-1] + attention.label_output.weight[j, -1]
            if attention.match_weight is not None:
                z = z + attention.match_weight[0] * (alpha @ (h @ attention.query.weight[j]))
            assert torch.isclose(got[i, j], z, atol=1e-4)


def test_pooled_scores_are_linear_in_mean_and_maximum() -> None:
    H, mask = make_encoder()(TEXTS)
    scorer = PoolScorer(7, 2 * HIDDEN)
    torch.nn.init.normal_(scorer.output.weight)
    every = scorer(H, mask, np.arange(7))
    for i in range(len(TEXTS)):
        h = H[i][mask[i]]
        pooled = torch.cat([h.mean(0), h.amax(0), torch.ones(1)])
        assert torch.allclose(every[i], scorer.output.weight @ pooled, atol=1e-5)
    nodes = np.array([[0, 1], [5, 0], [6, 6], [2, 3], [1, 4]])
    assert torch.allclose(scorer(H, mask, nodes), every.gather(1, torch.from_numpy(nodes)), atol=1e-5)


def test_candidates_of_each_text_score_as_among_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    H, mask = make_encoder()(TEXTS)
    attention = make_attention(7)
    everything = attention(H, mask, np.arange(7))
    nodes = np.array([[0, 1], [5, 0], [6, 6], [2, 3], [1, 4]])
    expected = everything.gather(1, torch.from_numpy(nodes))
    gradients = []
    for ratio in (0, 100):  # gathered per text, and by one product over the union
        monkeypatch.setattr(network_module, "MAX_UNION_RATIO", ratio)
        attention.query.pending.clear()
        got = attention(H, mask, nodes)
        assert torch.allclose(got, expected, atol=1e-5)
        got.sum().backward(retain_graph=True)
        entries = attention.query.take_gradient()
        assert entries is not None
        rows = torch.from_numpy(entries.ids).long()
        gradients.append(torch.zeros(7, 2 * HIDDEN).index_add_(0, rows, entries.grad))
    assert torch.allclose(*gradients, atol=1e-4)


# Search down the tree


def test_levels_number_their_nodes_from_zero_and_mark_only_children() -> None:
    clusters, labels = build_levels(TREE)
    assert (clusters.n_nodes, labels.n_nodes, labels.max_children) == (3, 6, 3)
    assert labels.first_child.tolist() == [0, 2, 3, 6]
    assert labels.is_only_child.tolist() == [False, False, True, False, False, False]
    nodes, parent_columns = labels.find_children(np.array([[2, 1], [0, NO_NODE]]))
    assert nodes.tolist() == [[3, 4, 5, 2, NO_NODE, NO_NODE], [0, 1, NO_NODE, NO_NODE, NO_NODE, NO_NODE]]
    assert parent_columns.tolist() == [[0, 0, 0, 1, 1, 1]] * 2


def test_targets_are_the_nodes_above_positive_labels() -> None:
    Y = sp.csr_array(np.array([[0, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0] * 6], np.float32))
    clusters, labels = make_targets(TREE, Y)
    assert clusters.toarray().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert labels.toarray().tolist() == [[0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0], [0] * 6]


def test_probabilities_are_the_products_of_eq_1() -> None:
    networks = make_networks()
    clusters, labels = networks
    H, mask = clusters.encoder(TEXTS)
    p_cluster = clusters.attention(H, mask, np.arange(3)).sigmoid().detach().numpy()
    p_label = labels.attention(H, mask, np.arange(6)).sigmoid().detach().numpy()
    expected = p_cluster[:, [0, 0, 1, 2, 2, 2]] * np.where(labels.level.is_only_child, 1, p_label)
    found = find_best_nodes(networks, TEXTS, beam=3, k=6)
    assert np.allclose(np.exp(found.scores), np.take_along_axis(expected, found.ids, 1), atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all() and all(set(row) == set(range(6)) for row in found.ids.tolist())


def test_only_the_children_of_the_best_clusters_are_scored() -> None:
    networks = make_networks()
    first_child = networks[1].level.first_child
    best = find_best_nodes(networks[:1], TEXTS, beam=1, k=1).ids[:, 0]
    found = find_best_nodes(networks, TEXTS, beam=1, k=6).ids
    for cluster, row in zip(best, found.tolist(), strict=True):
        children = list(range(first_child[cluster], first_child[cluster + 1]))
        assert sorted(row) == sorted(children + [NO_NODE] * (6 - len(children)))


@given(st.integers(0, 10_000), st.integers(1, 3))
def test_candidates_include_all_positive_labels_whatever_the_beam(seed: int, beam: int) -> None:
    random = np.random.default_rng(seed)
    targets = make_targets(TREE, sp.csr_array((random.random((5, 6)) < 0.4).astype(np.float32)))
    networks = make_networks()
    n_positive = np.diff(targets[1].indptr)
    *_, dynamic = descend(networks, TEXTS, beam, targets)
    assert dynamic.positives is not None and dynamic.positives.sum(1).tolist() == n_positive.tolist()
    parents = choose_static_candidates(networks[:1], TEXTS, targets[:1], beam)
    assert (parents.lengths >= min(beam, 3)).all()
    assert (parents.lengths <= np.maximum(beam, np.diff(targets[0].indptr))).all()
    *_, static = descend(networks[1:], TEXTS, beam, targets[1:], pad_nodes(parents))
    assert static.positives is not None and static.positives.sum(1).tolist() == n_positive.tolist()
    assert np.array_equal(static.positives.numpy() > 0, find_positives(static.nodes, targets[1]))


def test_padding_does_not_count_in_the_loss() -> None:
    targets = make_targets(TREE, sp.csr_array(np.eye(5, 6, dtype=np.float32)))
    *_, labels = descend(make_networks(), TEXTS, 1, targets)
    exists = labels.nodes >= 0
    assert not exists.all() and labels.positives is not None
    p = labels.logits.sigmoid().detach().numpy()[exists]
    expected = -np.mean(np.where(labels.positives.numpy()[exists] > 0, np.log(p), np.log(1 - p)))
    assert float(compute_loss(labels).detach()) == pytest.approx(expected, rel=1e-4)


def test_dynamic_candidates_change_as_the_generator_learns() -> None:
    networks = make_networks()
    generator = networks[0]
    with torch.no_grad():
        generator.attention.query.weight.zero_()
        assert generator.attention.label_output is not None
        generator.attention.label_output.weight.zero_()  # the first cluster wins the tie
    modules = torch.nn.ModuleList([generator.encoder, generator.attention])
    optimizer = make_adam(modules, [generator.encoder], 0.05)
    Y = np.tile(np.eye(6, dtype=np.float32)[[1]], (5, 1))  # all positive labels are in the last cluster
    targets = make_targets(TREE, sp.csr_array(Y))
    *_, before = descend(networks, TEXTS, 1)
    for _ in range(30):
        optimizer.zero_grad()
        compute_loss(next(descend([generator], TEXTS, 1, targets[:1]))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    *_, after = descend(networks, TEXTS, 1)
    assert (after.nodes == [3, 4, 5]).all() and (before.nodes != after.nodes).any(1).all()


def test_the_beam_limits_the_number_of_candidates() -> None:
    networks = make_networks()
    assert count_candidates(networks, 1) == 3 and count_candidates(networks, 2) == 6


# Training


def fit_tree(**changes: Any) -> TreeTrainer:
    """Networks for TREE, trained on TEXTS."""
    settings = LightAttention(
        **{"word_dim": WORD_DIM, "hidden": HIDDEN, "fc_sizes": "5", "skip_connection": False},
        **{"embedding_dropout": 0.0, "dropout": 0.0, "schedule": "constant", "average": "none", "patience": 0, "clip": 0.0},
        **{"threads": 1, "beam": 1, "batch": 2, "rate": 0.01, "epochs": 1, "negatives": "dynamic", **changes},
    )
    Y = sp.csr_array(np.eye(5, 6, dtype=np.float32))
    tfidf, idf = sp.csr_array((5, N_WORDS - 1), dtype=np.float32), np.ones(N_WORDS - 1, np.float32)
    data = TrainingCorpus(TEXTS, tfidf, Y, N_WORDS, idf)
    trainer = TreeTrainer(data, TREE, settings, settings.plan(5, 6), progress=SILENT)
    trainer.fit()
    return trainer


@pytest.mark.parametrize("warm_start", [True, False])
def test_a_level_starts_from_the_level_above(warm_start: bool) -> None:
    """With a learning rate near 0 weights do not change, so those that two levels have in common were copied."""
    state = networks_to_state(fit_tree(negatives="static", rate=1e-12, warm_start=warm_start).networks)
    shared = ("embedding.weight", "forward_lstm.weight_hh_l0", "initial_state")
    for name in (*(f"encoder{{}}.{name}" for name in shared), "attention{}.first_layer.weight"):
        same = np.allclose(state[name.format(0)], state[name.format(1)], atol=1e-9)
        assert same == (warm_start or name == "encoder{}.initial_state")  # which starts at 0
    clusters, labels = state["attention0.query.weight"], state["attention1.query.weight"]
    assert clusters.shape == (3, 2 * HIDDEN) and labels.shape == (6, 2 * HIDDEN)
    assert not np.array_equal(clusters, labels[:3])  # queries are never copied


def test_attention_starts_at_the_words_of_a_nodes_texts() -> None:
    encoder, attention = make_encoder(skip_connection=True), make_attention(3, input_dim=2 * HIDDEN + WORD_DIM)
    torch.nn.init.normal_(encoder.embedding.weight, generator=torch.Generator().manual_seed(1))
    tfidf = np.zeros((6, N_WORDS - 1), np.float32)
    tfidf[np.arange(6), [0, 0, 1, 1, 2, 2]] = 1  # the words 1, 2 and 3, each in the texts of one node
    tfidf[:, 3] = 0.5  # and a word in all texts
    targets = sp.csr_array(np.repeat(np.eye(3, dtype=np.float32), 2, axis=0))
    before = attention.query.weight.detach().clone()
    init_queries_from_words(attention, encoder, targets, sp.csr_array(tfidf))
    scores = (attention.query.weight[:, 2 * HIDDEN :] @ encoder.embedding.weight[1:5].T).detach()
    assert scores[:, :3].argmax(1).tolist() == [0, 1, 2] and (scores.diagonal() > scores[:, 3]).all()
    assert torch.equal(attention.query.weight[:, : 2 * HIDDEN], before[:, : 2 * HIDDEN])  # for BiLSTM outputs: random


@pytest.mark.parametrize(("per_label_output", "expected"), [(True, [4 / 6, 2 / 6]), (False, [0.5, 0.5])])
def test_scores_start_at_the_frequencies_of_nodes(per_label_output: bool, expected: list[float]) -> None:
    """At (n + 1) / (N + 2) per node, or at their mean in log-odds."""
    Y = sp.csr_array(np.array([[1, 0], [1, 0], [1, 1], [0, 0]], np.float32))
    attention = LabelAttention(2, 2 * HIDDEN, [5], per_label_output=per_label_output)
    torch.nn.init.zeros_(attention.output_layer.weight)
    init_bias(attention, compute_log_odds(Y, 2))
    got = attention(*make_encoder()(TEXTS), np.arange(2)).sigmoid()
    assert torch.allclose(got, torch.tensor(expected).expand(5, 2), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "n_encoders", "levels"),
    [
        ({"negatives": "dynamic", "epochs": 2}, 1, [1, 2, 2]),
        ({"negatives": "static", "epochs": 2}, 2, [1, 1, 2, 2]),
        ({"negatives": "dynamic", "warm_start": False}, 1, [2]),  # all levels start together
        ({"negatives": "dynamic", "generator": "pool"}, 1, [1, 2]),
    ],
)
def test_dynamic_levels_share_an_encoder_and_static_ones_do_not(
    settings: dict[str, Any], n_encoders: int, levels: list[int]
) -> None:
    trainer = fit_tree(**settings)
    assert sum(name.endswith("embedding.weight") for name in networks_to_state(trainer.networks)) == n_encoders
    assert [row["level"] for row in trainer.history] == levels


@pytest.mark.parametrize("generator", ["attention", "pool"])
def test_networks_are_restored_from_their_state(generator: str) -> None:
    networks, levels = fit_tree(generator=generator).networks, build_levels(TREE)
    assert isinstance(networks[0].attention, PoolScorer) == (generator == "pool")
    rounded = networks_from_state(networks_to_state(networks), levels, "cpu")  # tables are saved in half precision
    again = networks_from_state(networks_to_state(rounded), levels, "cpu")
    assert rounded[0].encoder is rounded[1].encoder
    before, after = (find_best_nodes(each, TEXTS, beam=2, k=4) for each in (rounded, again))
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
    assert np.allclose(find_best_nodes(networks, TEXTS, beam=2, k=4).scores, before.scores, atol=0.05)
