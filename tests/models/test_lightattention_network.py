"""LightAttention's network and its way down the tree: eq. 1, eq. 2, candidates."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longtail.features.token_rows import TokenRows
from longtail.labelspace.tree import INNER, LabelTree
from longtail.models.lightattention import network as attention_module
from longtail.models.lightattention.network import Attention, Reader
from longtail.models.lightattention.search import NONE, among, best_nodes, descended, levels_of, n_candidates, targets
from longtail.models.lightattention.training import (
    arrays,
    begin_at_frequencies,
    fit,
    given_nodes,
    loss_of,
    optimizer,
    restored,
    static_candidates,
    towards_own_words,
)
from longtail.progress import SILENT

ROWS = TokenRows.of([[1, 2, 3, 4], [], [7], [5, 6, 9], [3, 3]])
# three clusters, of the labels 4 and 2, of 0, and of 1, 3 and 5
TREE = LabelTree(np.array([3, 2, 1, 3, 0, 0, 0, 0, 0, 0]), np.array([INNER] * 4 + [4, 2, 0, 1, 3, 5]))


def reader(n: int = 4, **changes: Any) -> Reader:
    torch.manual_seed(0)
    out = Reader(12, 6, n, **{"skip": False, "frozen": False, "word_dropout": 0.0, "dropout": 0.0, **changes})
    torch.nn.init.normal_(out.start)
    return out


def attention(n_nodes: int, width: int = 8, *, fc: Sequence[int] = (5,), own: bool = True) -> Attention:
    torch.manual_seed(n_nodes)
    out = Attention(n_nodes, width, fc, own=own)
    for parameter in out.parameters():
        torch.nn.init.normal_(parameter)
    return out


def parts(*sizes: int) -> list[tuple[Reader, Attention]]:
    one = reader()
    return [(one, attention(size)) for size in sizes]


# The reader


def test_the_reader_is_a_bilstm_over_packed_sequences() -> None:
    own = reader()
    both = torch.nn.LSTM(6, 4, batch_first=True, bidirectional=True)
    names = [f"{kind}_{of}_l0" for kind in ("weight", "bias") for of in ("ih", "hh")]
    both.load_state_dict(
        {name + end: getattr(cell, name) for cell, end in ((own.ahead, ""), (own.back, "_reverse")) for name in names}
    )
    H, mask = own(ROWS)
    lengths = torch.tensor([4, 1, 1, 3, 2])  # a text without words is read as one unknown word
    assert mask.sum(1).tolist() == lengths.tolist()
    vectors = own.table.weight[torch.from_numpy(ROWS.padded()[0])]
    packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
    h, c = own.start[:, 0].expand(2, 5, 4).contiguous(), own.start[:, 1].expand(2, 5, 4).contiguous()
    expected, _ = pad_packed_sequence(both(packed, (h, c))[0], batch_first=True)
    assert torch.allclose(H[mask], expected[mask], atol=1e-6)


@pytest.mark.parametrize("length", [0, 1, 10_000])
def test_texts_of_any_length_beside_others(length: int) -> None:
    own, node = reader(), attention(3)
    alone = node(*own(TokenRows.of([[2] * length])), np.arange(3))
    beside = node(*own(TokenRows.of([[1, 5], [2] * length, []])), np.arange(3))[1:2]
    assert torch.isfinite(alone).all() and torch.allclose(alone, beside, atol=1e-4)


def test_a_word_may_stand_beside_what_is_read_of_it() -> None:
    H, mask = reader(skip=True)(ROWS)
    plain, _ = reader()(ROWS)
    assert torch.equal(H[:, :, :8], plain) and H.shape[2] == 8 + 6
    vectors = reader().table.weight[torch.from_numpy(ROWS.padded()[0])]
    assert torch.equal(H[mask][:, 8:], vectors[mask])


def test_dropout_is_drawn_once_for_a_text_and_only_in_training() -> None:
    own = reader(n=64, dropout=0.5)
    H, mask = own.train()(TokenRows.of([[1, 2, 3], [4, 5, 6]]))
    dropped = H[mask].view(2, 3, -1) == 0
    assert (dropped == dropped[:, :1]).all() and 0.3 < dropped.float().mean() < 0.7 and (dropped[0] != dropped[1]).any()
    assert (own.eval()(ROWS)[0][0] != 0).all()


def test_frozen_vectors_get_no_gradient() -> None:
    for frozen in (True, False):
        own = reader(frozen=frozen)
        own(ROWS)[0].sum().backward()
        assert bool(own.table.pending) != frozen
        net = torch.nn.ModuleList([own, attention(3)])
        trained = {id(p) for group in optimizer(net, [own], 0.1).param_groups for p in group["params"]}
        assert (id(own.table.weight) in trained) != frozen


# Attention, eq. 2


def test_attention_sums_to_one_over_real_words_only() -> None:
    H, mask = reader()(ROWS)
    weights = attention(7).weights(H, mask, np.arange(7))  # [B, T, 7]
    assert torch.allclose(weights.sum(1), torch.ones(5, 7))
    assert (weights[~mask] == 0).all() and (weights[mask] > 0).all()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("fc", [[5], [5, 3]])
def test_scores_are_eq_2_and_the_shared_layers(own: bool, fc: list[int]) -> None:
    H, mask = reader()(ROWS)
    node = attention(7, fc=fc, own=own)
    got = node(H, mask, np.arange(7))
    for i in range(len(ROWS)):
        for j in range(7):
            h = H[i][mask[i]]  # [T, 2n]
            alpha = torch.softmax(h @ node.rows.weight[j], 0)
            m = node.first(alpha @ h).relu()
            for layer in node.middle:
                m = layer(m).relu()
            z = node.last(m)[0]
            if node.own is not None:
                z = z + m @ node.own.weight[j, :-1] + node.own.weight[j, -1]
            assert torch.isclose(got[i, j], z, atol=1e-4)


def test_candidates_of_each_text_score_as_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    H, mask = reader()(ROWS)
    node = attention(7)
    everything = node(H, mask, np.arange(7))
    nodes = np.array([[0, 1], [5, 0], [6, 6], [2, 3], [1, 4]])
    expected = everything.gather(1, torch.from_numpy(nodes))
    gradients = []
    for shared in (0, 100):  # by rows of their own, and by one product over the union
        monkeypatch.setattr(attention_module, "SHARED", shared)
        node.rows.pending.clear()
        got = node(H, mask, nodes)
        assert torch.allclose(got, expected, atol=1e-5)
        got.sum().backward(retain_graph=True)
        entries = node.rows.take()
        assert entries is not None
        gradient = torch.zeros(7, 8).index_add_(0, torch.from_numpy(entries.ids).long(), entries.grad)
        gradients.append(gradient)
    assert torch.allclose(*gradients, atol=1e-4)


# Down the tree


def test_levels_count_nodes_from_zero_and_know_only_children() -> None:
    clusters, labels = levels_of(TREE)
    assert (clusters.n, labels.n, labels.most) == (3, 6, 3)
    assert labels.first.tolist() == [0, 2, 3, 6] and labels.only.tolist() == [False, False, True, False, False, False]
    nodes, of = labels.children(np.array([[2, 1], [0, NONE]]))
    assert nodes.tolist() == [[3, 4, 5, 2, NONE, NONE], [0, 1, NONE, NONE, NONE, NONE]]
    assert of.tolist() == [[0, 0, 0, 1, 1, 1]] * 2


def test_targets_are_the_nodes_above_true_labels() -> None:
    Y = sp.csr_array(np.array([[0, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0] * 6], np.float32))
    clusters, labels = targets(TREE, Y)
    assert clusters.toarray().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert labels.toarray().tolist() == [[0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0], [0] * 6]


def test_probabilities_are_the_products_of_eq_1() -> None:
    own, levels = parts(3, 6), levels_of(TREE)
    H, mask = own[0][0](ROWS)
    p_cluster = own[0][1](H, mask, np.arange(3)).sigmoid().detach().numpy()
    p_label = own[1][1](H, mask, np.arange(6)).sigmoid().detach().numpy()
    expected = p_cluster[:, [0, 0, 1, 2, 2, 2]] * np.where(levels[1].only, 1, p_label)
    found = best_nodes(own, levels, ROWS, beam=3, k=6)
    assert np.allclose(np.exp(found.scores), np.take_along_axis(expected, found.ids, 1), atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all() and all(set(row) == set(range(6)) for row in found.ids.tolist())


def test_a_beam_opens_only_the_best_clusters() -> None:
    own, levels = parts(3, 6), levels_of(TREE)
    best = best_nodes(own[:1], levels[:1], ROWS, beam=1, k=1).ids[:, 0]
    found = best_nodes(own, levels, ROWS, beam=1, k=6).ids
    for cluster, row in zip(best, found.tolist(), strict=True):
        children = list(range(levels[1].first[cluster], levels[1].first[cluster + 1]))
        assert sorted(row) == sorted(children + [NONE] * (6 - len(children)))


@given(st.integers(0, 10_000), st.integers(1, 3))
def test_candidates_hold_all_true_labels_whatever_the_beam(seed: int, beam: int) -> None:
    random = np.random.default_rng(seed)
    aims = targets(TREE, sp.csr_array((random.random((5, 6)) < 0.4).astype(np.float32)))
    own, levels = parts(3, 6), levels_of(TREE)
    n_true = np.diff(aims[1].indptr)
    *_, dynamic = descended(own, levels, ROWS, beam, aims)
    assert dynamic.true is not None and dynamic.true.sum(1).tolist() == n_true.tolist()
    above = static_candidates(own[:1], levels[:1], ROWS, aims[:1], beam)
    assert (above.lengths >= min(beam, 3)).all() and (above.lengths <= np.maximum(beam, np.diff(aims[0].indptr))).all()
    *_, static = descended(own[1:], levels[1:], ROWS, beam, aims[1:], given_nodes(above))
    assert static.true is not None and static.true.sum(1).tolist() == n_true.tolist()
    assert np.array_equal(static.true.numpy() > 0, among(static.nodes, aims[1]))


def test_padding_is_no_part_of_the_loss() -> None:
    own, levels = parts(3, 6), levels_of(TREE)
    aims = targets(TREE, sp.csr_array(np.eye(5, 6, dtype=np.float32)))
    *_, labels = descended(own, levels, ROWS, 1, aims)
    there = labels.nodes >= 0
    assert not there.all() and labels.true is not None
    p = labels.logits.sigmoid().detach().numpy()[there]
    y = labels.true.numpy()[there]
    assert float(loss_of(labels).detach()) == pytest.approx(-np.mean(np.where(y > 0, np.log(p), np.log(1 - p))), rel=1e-4)


def test_dynamic_candidates_change_as_the_generator_learns() -> None:
    own, levels = parts(3, 6), levels_of(TREE)
    with torch.no_grad():
        own[0][1].rows.weight.zero_()
        assert own[0][1].own is not None
        own[0][1].own.weight.zero_()  # the first cluster wins the tie
    net = torch.nn.ModuleList([own[0][0], own[0][1]])
    optimizer_ = optimizer(net, [own[0][0]], 0.05)
    aims = targets(TREE, sp.csr_array(np.tile(np.eye(6, dtype=np.float32)[[1]], (5, 1))))  # all in the last cluster
    *_, before = descended(own, levels, ROWS, 1)
    for _ in range(30):
        optimizer_.zero_grad()
        loss_of(next(descended(own[:1], levels[:1], ROWS, 1, aims[:1]))).backward()  # type: ignore[no-untyped-call]
        optimizer_.step()
    *_, after = descended(own, levels, ROWS, 1)
    assert (after.nodes == [3, 4, 5]).all() and (before.nodes != after.nodes).any(1).all()


def test_a_batch_is_bounded_by_its_candidates() -> None:
    assert n_candidates(levels_of(TREE), 1) == 3 and n_candidates(levels_of(TREE), 2) == 6


# Training


def settings(**changes: Any) -> SimpleNamespace:
    of_loop = {"schedule": "constant", "average": "none", "average_from": 0, "patience": 0, "clip": 0.0}
    of_run = {
        "seed": 0,
        "threads": 1,
        "device": "cpu",
        "log": None,
        "checkpoint": None,
        "number": 0,
        "n_levels": 2,
        "n_runs": 2,
    }
    of_net = {
        "width": 6,
        "hidden": 4,
        "fc": [5],
        "skip": False,
        "own": True,
        "frozen": False,
        "word_dropout": 0.0,
        "dropout": 0.0,
    }
    rest = {"negatives": "dynamic", "beam": 1, "warm_start": True, "rate": 0.01, "batch": 2, "epochs": 1}
    return SimpleNamespace(**{**of_loop, **of_run, **of_net, **rest, **changes})


X, Y = sp.csr_array((5, 11), dtype=np.float32), sp.csr_array(np.eye(5, 6, dtype=np.float32))


@pytest.mark.parametrize("warm", [True, False])
def test_a_level_starts_from_the_one_above(warm: bool) -> None:
    """With next to no rate nothing moves, so what the levels have in common was copied."""
    state, _ = fit(ROWS, X, Y, TREE, 12, None, settings(negatives="static", rate=1e-12, warm_start=warm), None, SILENT)
    for name in ("reader{}.table.weight", "reader{}.ahead.weight_hh_l0", "reader{}.start", "attention{}.first.weight"):
        same = np.allclose(state[name.format(0)], state[name.format(1)], atol=1e-9)
        assert same == (warm or name == "reader{}.start")  # which begins at 0
    assert state["attention0.rows.weight"].shape == (3, 8) and state["attention1.rows.weight"].shape == (6, 8)
    assert not np.array_equal(state["attention0.rows.weight"], state["attention1.rows.weight"][:3])  # drawn anew


def test_attention_starts_at_the_words_of_a_nodes_texts() -> None:
    own, node = reader(skip=True), attention(3, width=14)
    torch.nn.init.normal_(own.table.weight, generator=torch.Generator().manual_seed(1))
    TF = np.zeros((6, 11), np.float32)
    TF[np.arange(6), [0, 0, 1, 1, 2, 2]] = 1  # the words 1, 2 and 3, each in the texts of a node
    TF[:, 3] = 0.5  # and one that all have
    before = node.rows.weight.detach().clone()
    towards_own_words(own, node, sp.csr_array(np.repeat(np.eye(3, dtype=np.float32), 2, axis=0)), sp.csr_array(TF))
    scores = (node.rows.weight[:, 8:] @ own.table.weight[1:5].T).detach()
    assert scores[:, :3].argmax(1).tolist() == [0, 1, 2] and (scores.diagonal() > scores[:, 3]).all()
    assert torch.equal(node.rows.weight[:, :8], before[:, :8])  # what meets the BiLSTM stays random


def test_scores_start_at_the_frequencies_of_nodes() -> None:
    Y = sp.csr_array(np.array([[1, 0], [1, 0], [1, 1], [0, 0]], np.float32))
    for own, expected in ((True, [4 / 6, 2 / 6]), (False, [0.5, 0.5])):  # (n + 1) / (N + 2), or their middle
        node = Attention(2, 8, [5], own=own)
        torch.nn.init.zeros_(node.last.weight)
        begin_at_frequencies(node, Y, 2)
        got = node(*reader()(ROWS), np.arange(2)).sigmoid()
        assert torch.allclose(got, torch.tensor(expected).expand(5, 2), atol=1e-6)


def test_dynamic_levels_share_a_reader_and_static_ones_have_their_own() -> None:
    for negatives, n_readers in (("dynamic", 1), ("static", 2)):
        state, history = fit(ROWS, X, Y, TREE, 12, None, settings(negatives=negatives, epochs=2), None, SILENT)
        assert sum(name.endswith("table.weight") for name in state) == n_readers
        assert [row["level"] for row in history] == ([1, 2, 2] if n_readers == 1 else [1, 1, 2, 2])
    _, history = fit(ROWS, X, Y, TREE, 12, None, settings(warm_start=False), None, SILENT)
    assert [row["level"] for row in history] == [2]  # without a warm start all levels begin together


def test_arrays_come_back_as_the_same_networks() -> None:
    own, levels = parts(3, 6), levels_of(TREE)
    rounded = restored(arrays(own), "cpu")  # tables are kept in half precision
    again = restored(arrays(rounded), "cpu")
    assert rounded[0][0] is rounded[1][0]
    before, after = (best_nodes(p, levels, ROWS, beam=2, k=4) for p in (rounded, again))
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
    assert np.allclose(best_nodes(own, levels, ROWS, beam=2, k=4).scores, before.scores, atol=0.05)
