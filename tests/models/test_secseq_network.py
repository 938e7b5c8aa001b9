"""The networks of SeCSeq: what they learn, and how sequences of symbols become labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import logsigmoid

from longtail.features.token_rows import TokenRows
from longtail.models.secseq import set_network as secseq_set
from longtail.models.secseq.codes import Codes, joined
from longtail.models.secseq.decoder import Decoders, Reading
from longtail.models.secseq.network import NOTHING, Memory, Seq2Seq, Words, longest_first, text_arrays
from longtail.models.secseq.search import TrieSearch, trie_topk
from longtail.models.secseq.sequences import Written, beam_search, credits_of, label_scores, sampled, segments
from longtail.models.secseq.set_network import Branches, SetNetwork
from longtail.models.secseq.training import network_arrays, sequences
from longtail.models.secseq.trie import counted
from longtail.nn.encoders import make
from longtail.nn.sparse_embedding import summed
from longtail.state import inside

S = SimpleNamespace(hidden=12, symbol_width=10, dropout=0.0, positions=True, order="freq_desc", most_labels=3, seed=0)
CODES = Codes([[0, 0], [0, 2], [2, 1], [2, 1], [2, 2]], 3, [5, 4, 3, 1, 2])  # labels 2 and 3 share a leaf
TEXTS = TokenRows.of([[3, 1, 4], [1, 5, 9, 2, 6], [], [5]])


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def network(encoder: str = "gru", n_symbols: int = 3, depth: int = 2, seed: int = 0, **changes: Any) -> Seq2Seq:
    torch.manual_seed(seed)
    reads = Words(12, 8) if encoder == "words" else make(encoder, 12, width=8, layers=1)
    net = Seq2Seq(reads, n_symbols, depth, SimpleNamespace(**{**vars(S), **changes})).eval()
    for parameter in net.parameters():
        parameter.data *= 2  # so that something is told apart
    return net


def log_p(net: Seq2Seq, memory: Memory, sequence: list[int], trie: Any = None) -> float:
    """log p of a sequence for the first text, symbol by symbol; with a trie, among what it allows."""
    state, written, total, node = memory.start[:, None], NOTHING, 0.0, 0
    for t, symbol in enumerate(sequence):
        scores, state = net.step(memory, state, torch.full((len(memory.start), 1), written), t % net.depth)
        first = scores[0, 0].clone()
        if trie is not None:
            if t % net.depth == 0:
                node = 0
            open_ = [*trie.allowed(np.array([node]))[0].tolist(), t % net.depth == 0]
            first[~torch.tensor(open_)] = -torch.inf
            node = int(trie.child(np.array([node]), np.array([symbol]))[0]) if symbol < net.end else 0
        total += float(first.log_softmax(0)[symbol])
        written = symbol
    return total


# The network


@pytest.mark.parametrize("encoder", ["gru", "lstm", "bag", "transformer", "words"])
def test_the_loss_is_that_of_each_text_by_itself(encoder: str) -> None:
    net = network(encoder)
    texts: Any = TEXTS if encoder != "words" else sp.random_array((4, 12), density=0.5, dtype=np.float32, rng=1).tocsr()
    targets = TokenRows.of([[0, 2, 2, 1], [2, 2], [], [0, 0, 2, 1, 2, 2]])
    order = longest_first(targets)
    assert order.tolist() == [3, 0, 1, 2]
    together = float(net.loss(texts[order], targets[order]))
    alone = [float(net.loss(texts[[i]], targets[[i]])) for i in range(4)]
    assert together == pytest.approx(np.mean(alone), rel=1e-5)
    for i in range(4):
        symbols = targets[[i]].ids.tolist()
        assert alone[i] == pytest.approx(-log_p(net, net.read(texts[[i]]), [*symbols, net.end]), rel=1e-4)


def test_a_recurrent_summary_is_what_each_direction_knows_at_its_end() -> None:
    net = network("gru")
    memory = net.read(TEXTS)
    states = memory.states[1]  # of the longest text
    ends = torch.cat([states[-1, :4], states[0, 4:]])
    assert torch.allclose(memory.start[1], torch.tanh(net.start(ends)))
    assert torch.allclose(memory.start[2], torch.tanh(net.start.bias))  # of a text of length zero


def test_the_place_in_the_code_is_known_only_if_asked_for() -> None:
    for positions in (True, False):
        net = network(positions=positions)
        memory = net.read(TEXTS)
        written = torch.zeros(4, 1, dtype=torch.long)
        one, other = (net.step(memory, memory.start[:, None], written, place)[0] for place in (0, 1))
        assert torch.equal(one, other) != positions


def test_the_output_side_does_not_grow_with_the_labels() -> None:
    def size(net: torch.nn.Module) -> int:
        return sum(p.numel() for name, p in net.named_parameters() if not name.startswith("encoder."))

    assert size(network(n_symbols=64, depth=3)) == size(network(n_symbols=64, depth=3, seed=1))
    more = size(network(n_symbols=200, depth=1)) - size(network(n_symbols=100, depth=1))
    assert more == 100 * (S.symbol_width + S.symbol_width + 1)  # mlc2seq: two vectors and a bias for each label


def test_sequences_are_the_codes_in_order_and_cut() -> None:
    Y = sp.csr_array(np.array([[0, 0, 0, 1, 1], [0] * 5, [1, 1, 1, 1, 1]]))
    rows = sequences(Y, CODES, S)
    assert rows.lengths.tolist() == [4, 0, 6]
    assert rows[[0]].ids.tolist() == [2, 2, 2, 1]  # label 4 is more frequent than 3
    assert rows[[2]].ids.tolist() == [0, 0, 0, 2, 2, 1]
    unseen = Codes(np.vstack([CODES.symbols, [[-1, -1]]]), 3, [*CODES.counts, 0])
    assert sequences(sp.csr_array(np.array([[1, 0, 0, 0, 0, 1]])), unseen, S).ids.tolist() == [0, 0]


# Decoding


TRIE = joined([CODES])


def known(net: Seq2Seq, texts: Any, *others: Seq2Seq) -> tuple[Decoders, Reading]:
    """Networks as they predict, and what they know of texts."""
    nets = (net, *others)
    decoders = Decoders([inside(network_arrays(one), "net.") for one in nets], net.depth)
    return decoders, decoders.read([text_arrays(one.encoder, texts) for one in nets])


@pytest.mark.parametrize("encoder", ["gru", "bag", "words"])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("few", [0, 100])
def test_a_step_without_torch_is_that_of_the_network(
    encoder: str, positions: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtail.models.secseq.decoder.FEW", few)
    net = network(encoder, positions=positions)
    texts: Any = TEXTS if encoder != "words" else sp.random_array((4, 12), density=0.5, dtype=np.float32, rng=1).tocsr()
    memory, (decoder, reading) = net.read(texts), known(net, texts)
    of, state = np.array([0, 0, 1, 1, 2, 2, 3, 3]), memory.start[:, None].expand(-1, 2, -1)
    for t, written in enumerate([[[NOTHING] * 2] * 4, [[0, 1]] * 4, [[2, 0], [1, 1], [0, 2], [2, 2]]]):
        mine, then = decoder.step(reading, of, state.flatten(0, 1).numpy(), np.ravel(written), t % 2)
        scores, state = net.step(memory, state, torch.tensor(written), t % 2)
        assert mine == pytest.approx(scores.flatten(0, 1).numpy(), abs=1e-5)
        assert then == pytest.approx(state.flatten(0, 1).numpy(), abs=1e-5)


def test_a_beam_of_one_is_greedy() -> None:
    net = network(seed=3)
    found, _ = beam_search(*known(net, TEXTS), width=1, most_labels=4)
    for i in range(4):
        mine = net.read(TEXTS[[i]])
        state, written, greedy = mine.start[:, None], NOTHING, []
        while len(greedy) < 8:
            scores, state = net.step(mine, state, torch.tensor([[written]]), len(greedy) % 2)
            written = int(scores[0, 0].argmax())
            if written == net.end:
                break
            greedy.append(written)
        assert [s for s in found.symbols[i, 0].tolist() if s != NOTHING] == greedy


def test_a_wide_beam_finds_the_most_probable_sequence() -> None:
    net = network(n_symbols=2, depth=1)
    memory = net.read(TEXTS[[1]])
    every = [list(s) for n in range(4) for s in product(range(2), repeat=n)]
    true = {tuple(s): log_p(net, memory, s + [net.end] * (len(s) < 3)) for s in every}  # the longest have no room to end
    found, _ = beam_search(*known(net, TEXTS[[1]]), width=40, most_labels=3)
    there = np.isfinite(found.log_p[0])  # the beam has more room than there are sequences
    p = found.log_p[0][there]
    sequences = [tuple(s for s in symbols if s != NOTHING) for symbols in found.symbols[0][there].tolist()]
    assert p == pytest.approx([true[sequence] for sequence in sequences], rel=1e-4)
    assert sorted(sequences) == sorted(true) and (np.diff(p) <= 0).all()
    assert np.exp(p).sum() == pytest.approx(1, rel=1e-4)


def test_the_best_sequence_is_that_of_the_highest_mean() -> None:
    symbols = np.array([[[1, NOTHING, NOTHING], [1, 2, 1]]])
    found = Written(symbols, np.array([[-2.0, -2.5]], np.float32), np.array([[True, True]]))
    assert found.best(by_mean=True).symbols.tolist() == [[[1, 2, 1]]]  # 2.5 / 4 < 2 / 2
    assert found.best(by_mean=False).symbols.tolist() == [[[1, NOTHING, NOTHING]]]


@pytest.mark.parametrize("seed", range(5))
def test_constrained_decoding_never_leaves_the_trie(seed: int) -> None:
    net, trie = network(seed=seed), CODES.trie
    texts = known(net, TEXTS)
    beams, _ = beam_search(*texts, width=7, most_labels=3, trie=TRIE)
    drawn = sampled(*texts, samples=9, most_labels=3, seed=seed, trie=TRIE)
    for found in (beams, drawn):
        alive = np.isfinite(found.log_p)
        assert alive.any(1).all() and (found.lengths[alive] % 2 == 0).all()
        _, codes = segments(found.symbols[alive], 2)
        assert len(codes) and (trie.leaf(codes) >= 0).all()
    free, _ = beam_search(*texts, width=20, most_labels=3)
    _, codes = segments(free.symbols.reshape(-1, free.symbols.shape[2]), 2)
    assert (trie.leaf(codes) < 0).any()  # without the trie it does leave it


def test_a_remainder_and_empty_leaves_count_nothing() -> None:
    symbols = np.array([[[2, 1, 0, 0, 2], [0, 1, 2, NOTHING, NOTHING]]])  # 21, 00, rest; the empty leaf 01, rest
    found = Written(symbols, np.zeros((1, 2), np.float32), np.ones((1, 2), bool))
    counts = counted(*credits_of(found, np.array([[1.0, 10.0]]), 1, TRIE), TRIE, (1, 5))
    assert counts.toarray().tolist() == [[1, 0, 0.75, 0.25, 0]]
    nothing = Written(np.empty((2, 1, 0), np.int64), np.zeros((2, 1), np.float32), np.ones((2, 1), bool))
    assert [len(part) for part in credits_of(nothing, np.ones((2, 1)), 2, TRIE)] == [0, 0, 0]


def test_samples_come_as_often_as_they_are_probable() -> None:
    net = network(n_symbols=2, depth=1)
    memory = net.read(TEXTS[[1]])
    found = sampled(*known(net, TEXTS[[1]]), samples=4000, most_labels=2, seed=1)
    for first in range(2):
        share = (found.symbols[0, :, 0] == first).mean()
        assert share == pytest.approx(np.exp(log_p(net, memory, [first])), abs=0.03)
    one = found.symbols[0, 0]
    sequence = [s for s in one.tolist() if s != NOTHING]
    assert found.log_p[0, 0] == pytest.approx(log_p(net, memory, sequence + [net.end] * (len(sequence) < 2)), rel=1e-4)


@pytest.mark.parametrize("most_labels", [1, 2])
def test_direct_scores_are_exact_on_a_tiny_trie(most_labels: int) -> None:
    """P(label) is the sum over all sequences of codes that hold its code, times its share of the leaf."""
    net, trie = network(seed=5), CODES.trie
    memory = net.read(TEXTS[[1]])
    s = SimpleNamespace(**{**vars(S), "most_labels": most_labels}, decoding="direct", constrained=False, beam=100)
    codes = np.unique(CODES.symbols, axis=0).tolist()
    expected = np.zeros(5)
    for n in range(1, most_labels + 1):
        for chosen in product(codes, repeat=n):
            ending = [net.end] if n < most_labels else []
            p = np.exp(log_p(net, memory, [*chain(*chosen), *ending], trie))
            for leaf in {int(trie.leaf(np.array([code]))[0]) for code in chosen}:
                expected += p * trie.histograms[[leaf]].toarray()[0]
    texts = known(net, TEXTS[[1]])
    scores = label_scores(*texts, TRIE, 5, s).toarray()[0]
    assert scores == pytest.approx(expected, rel=1e-4) and scores.max() <= 1
    narrow = label_scores(*texts, TRIE, 5, SimpleNamespace(**{**vars(s), "beam": 2})).toarray()[0]
    assert (narrow <= scores + 1e-6).all() and narrow.any()  # a lower bound


@pytest.mark.parametrize("decoding", ["best", "beams", "samples", "direct"])
def test_scores_of_a_text_do_not_depend_on_the_others(decoding: str) -> None:
    net = network(seed=2)
    s = SimpleNamespace(**vars(S), decoding=decoding, constrained=True, beam=6, samples=500)
    together = label_scores(*known(net, TEXTS), TRIE, 6, s).toarray()
    assert together.shape == (4, 6) and np.isfinite(together).all() and not together[:, 5].any()
    alone = label_scores(*known(net, TEXTS[[1]]), TRIE, 6, s).toarray()[0]
    assert together[1] == pytest.approx(alone, abs=0.15 if decoding == "samples" else 1e-4)


@pytest.mark.parametrize("encoder", ["gru", "words"])
@pytest.mark.parametrize("decoding", ["best", "beams", "samples", "direct"])
@pytest.mark.parametrize("constrained", [False, True])
def test_trees_in_step_are_each_of_them_alone(encoder: str, decoding: str, constrained: bool) -> None:
    nets = [network(encoder, seed=seed) for seed in range(3)]
    for net in nets:
        net.out.weight.mul_(20)  # so that they are sure of something, each of another
        net.out.bias[net.end] -= 20  # which is not that nothing is to be written
    texts: Any = TEXTS if encoder != "words" else sp.random_array((4, 12), density=0.5, dtype=np.float32, rng=1).tocsr()
    every = np.array(list(product(range(3), repeat=2)))  # no code is without a label
    forest = [Codes(np.roll(every, turn, axis=0), 3, np.arange(1, 10)) for turn in range(3)]
    s = SimpleNamespace(**vars(S), decoding=decoding, constrained=constrained, beam=6, samples=2000)
    together = label_scores(*known(nets[0], texts, *nets[1:]), joined(forest), 9, s).toarray()
    alone = [
        label_scores(*known(net, texts), joined([codes]), 9, s).toarray() for net, codes in zip(nets, forest, strict=True)
    ]
    assert together == pytest.approx(np.mean(alone, axis=0), abs=0.06 if decoding == "samples" else 1e-4)
    assert np.abs(alone[0] - alone[1]).max() > 0.06  # they are not all the same


# The target that is a set


def set_network(depth: int, first: int = 8) -> SetNetwork:
    torch.manual_seed(1)
    net = SetNetwork(Words(12, first), 3, depth, SimpleNamespace(hidden=6, dropout=0.0)).eval()
    for layer in net.symbols:
        layer.bias.data.normal_()  # type: ignore[union-attr,operator]
    return net


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_probabilities_are_products_along_the_codes(depth: int) -> None:
    random = np.random.default_rng(depth)
    codes = Codes(random.integers(0, 3, (9, depth)), 3, random.integers(1, 5, 9))
    Y = sp.csr_array((random.random((30, 9)) < 0.3).astype(np.float32))
    net, branches = set_network(depth), Branches.of(codes.trie, Y)
    X = sp.random_array((4, 12), density=0.5, dtype=np.float32, rng=1).tocsr()
    H = net.embed(X)
    expected = np.zeros((4, 9))
    for i, label in product(range(4), range(9)):
        code, p, node = codes.symbols[label].astype(np.int64), 0.0, 0
        for d in range(depth):
            z = net.scores(H[i : i + 1], np.array([0]), code[None, :d])[0, code[d]]
            only = d > 0 and codes.trie.allowed(np.array([node])).sum() == 1
            node = int(codes.trie.child(np.array([node]), code[d : d + 1])[0])
            p += 0 if only else float(logsigmoid(z + branches.prior[node]))
        leaf = codes.trie.leaf(code[None])[0]
        expected[i, label] = np.exp(p) * codes.trie.histograms[[leaf]].toarray()[0, label]
    search = TrieSearch.of(codes.trie, {**secseq_set.arrays(net), "prior": branches.prior})
    best = trie_topk([search], [H.numpy()], 9, beam=1)
    assert best.scores == pytest.approx(np.take_along_axis(expected, best.ids, 1), rel=1e-4)
    assert sorted(best.ids[0].tolist()) == list(range(9)) and (np.diff(best.scores) <= 0).all()
    two = trie_topk([search, search], [H.numpy()] * 2, 9, beam=1)
    assert two.scores == pytest.approx(best.scores)
    assert trie_topk([search], [H.numpy()], 1, beam=9).ids.tolist() == best.ids[:, :1].tolist()


def test_the_loss_asks_of_every_node_on_the_way_where_it_goes_on() -> None:
    Y = sp.csr_array(np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]], np.float32))
    net, trie, branches = set_network(2), CODES.trie, Branches.of(CODES.trie, Y)
    X = sp.random_array((3, 12), density=0.5, dtype=np.float32, rng=1).tocsr()
    H, total = net.embed(X), 0.0
    for i in range(3):
        mine = {tuple(code) for code in CODES.symbols[Y[[i]].indices].tolist()}
        ways = {(): [(0,), (2,)], (0,): [(0, 0), (0, 2)], (2,): [(2, 1), (2, 2)]}
        for start, nexts in ways.items():
            if not any(code[: len(start)] == start for code in mine):
                continue
            scores = net.scores(H[i : i + 1], np.array([0]), np.array([start], np.int64).reshape(1, -1))[0]
            for way in nexts:
                node = 0
                for symbol in way:
                    node = int(trie.child(np.array([node]), np.array([symbol]))[0])
                z = scores[way[-1]] + branches.prior[node]
                on = any(code[: len(way)] == way for code in mine)
                total -= float(logsigmoid(z if on else -z))
    assert float(branches.loss(net, X, np.arange(3))) == pytest.approx(total / 3, rel=1e-5)


def test_scores_start_from_what_was_counted() -> None:
    Y = sp.csr_array(np.array([[1, 0, 0, 0, 0]] * 3 + [[0, 1, 1, 1, 0]], np.float32))
    prior = Branches.of(CODES.trie, Y).prior
    nodes = {"0": 1, "2": 2, "00": 3, "02": 4, "21": 5, "22": 6}
    assert prior[nodes["0"]] == pytest.approx(np.log(4.5 / 0.5)) and prior[nodes["2"]] == pytest.approx(np.log(1.5 / 3.5))
    assert prior[nodes["02"]] == pytest.approx(np.log(1.5 / 3.5)) and prior[nodes["22"]] == pytest.approx(np.log(0.5 / 1.5))


def test_where_there_is_one_place_to_look_at_gradients_are_those_of_attention() -> None:
    X = sp.random_array((4, 12), density=0.5, dtype=np.float32, rng=1).tocsr()
    targets = TokenRows.of([[0, 0, 2, 1, 2, 2], [0, 2, 2, 1], [2, 2], []])
    found = []
    with torch.enable_grad():
        for known in (True, False):  # whether the two cells know that what they see does not change
            net = network("words")
            read = net.read
            net.read = lambda texts, read=read, known=known: read(texts) if known else replace(read(texts), only=None)
            loss = net.loss(X, targets)
            loss.backward()
            dense = {name: p.grad for name, p in net.named_parameters() if "table" not in name and p.grad is not None}
            _, rows = summed(net.encoder.table.take())
            found.append({**dense, "words": rows, "loss": loss.detach()})
    attention = {"query.weight", "keys.weight", "keys.bias", "weigh.weight"}  # of one place, it does not matter
    assert set(found[1]) - set(found[0]) == attention and all(not found[1][name].any() for name in attention)
    for name, value in found[0].items():
        assert value.any() and torch.allclose(value, found[1][name], rtol=1e-4, atol=1e-6), name
