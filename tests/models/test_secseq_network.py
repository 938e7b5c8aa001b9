"""The networks of SeCSeq: their losses, and how generated sequences of symbols become label scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import logsigmoid

from longtail.features.token_rows import TokenRows
from longtail.models.secseq.codes import Codebook, fit_codes, join_codes
from longtail.models.secseq.decoder import DecoderForest, DecoderMemory
from longtail.models.secseq.network import Seq2Seq, TextMemory, WordsEncoder, encode_for_attention
from longtail.models.secseq.node_scores import score_nodes
from longtail.models.secseq.search import TrieSearch, search_tries
from longtail.models.secseq.sequences import (
    GeneratedSequences,
    beam_search,
    sample_sequences,
    score_labels,
    score_leaves,
    split_codes,
)
from longtail.models.secseq.set_network import BranchTargets, SetNetwork
from longtail.models.secseq.settings import DECODINGS, SecSeqSettings, Texts
from longtail.models.secseq.start import start_from_centroids
from longtail.models.secseq.targets import make_sequences
from longtail.models.secseq.training import export_network, make_network
from longtail.models.secseq.trie import NO_SYMBOL, CodeTrie, sum_histograms
from longtail.nn.encoder_factory import make_encoder
from longtail.nn.sparse_embedding import SparseEmbedding, sum_gradient
from longtail.state import extract_part

SMALL = SecSeqSettings(target="sequence", hidden=12, symbol_width=10, dropout=0.0, positions=True, max_labels=3)
# labels 2 and 3 share a leaf
CODES = Codebook(np.array([[0, 0], [0, 2], [2, 1], [2, 1], [2, 2]]), 3, np.array([5, 4, 3, 1, 2]))
TEXTS = TokenRows.from_lists([[3, 1, 4], [1, 5, 9, 2, 6], [], [5]])
WORD_VECTORS = sp.random_array((4, 12), density=0.5, dtype=np.float32, rng=1).tocsr()


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def change(settings: SecSeqSettings, **changes: Any) -> SecSeqSettings:
    return SecSeqSettings(**{**settings.get_params(), **changes})


def make_seq2seq(encoder: str = "gru", n_symbols: int = 3, depth: int = 2, seed: int = 0, **changes: Any) -> Seq2Seq:
    torch.manual_seed(seed)
    reader = WordsEncoder(12, 8) if encoder == "words" else make_encoder(encoder, 12, width=8, layers=1)
    symbols = np.arange(5 * depth).reshape(5, depth) % n_symbols
    net = make_network(change(SMALL, **changes), reader, Codebook(symbols, n_symbols, np.ones(5))).eval()
    assert isinstance(net, Seq2Seq)
    for parameter in net.parameters():
        parameter.data *= 2  # so that symbols differ clearly in probability
    return net


def make_texts(encoder: str) -> Texts:
    return WORD_VECTORS if encoder == "words" else TEXTS


def log_p(net: Seq2Seq, memory: TextMemory, sequence: list[int], trie: CodeTrie | None = None) -> float:
    """log p of a sequence for the first text, symbol by symbol; with a trie, among the symbols that it allows."""
    state, previous, total, node = memory.start[:, None], NO_SYMBOL, 0.0, 0
    for t, symbol in enumerate(sequence):
        logits, state = net.step(memory, state, torch.full((len(memory.start), 1), previous), t % net.depth)
        first = logits[0, 0].clone()
        if trie is not None:
            if t % net.depth == 0:
                node = 0
            allowed = [*trie.mask_symbols(np.array([node]))[0].tolist(), t % net.depth == 0]
            first[~torch.tensor(allowed)] = -torch.inf
            node = int(trie.find_children(np.array([node]), np.array([symbol]))[0]) if symbol < net.end else 0
        total += float(first.log_softmax(0)[symbol])
        previous = symbol
    return total


# The sequence network


@pytest.mark.parametrize("encoder", ["gru", "lstm", "bag", "transformer", "words"])
def test_sequence_loss_of_a_batch_is_the_mean_over_its_texts(encoder: str) -> None:
    net, texts = make_seq2seq(encoder), make_texts(encoder)
    targets = TokenRows.from_lists([[0, 2, 2, 1], [2, 2], [], [0, 0, 2, 1, 2, 2]])
    together = float(net.loss(texts, targets))
    alone = [float(net.loss(texts[[i]], targets[[i]])) for i in range(4)]
    assert together == pytest.approx(np.mean(alone), rel=1e-5)
    for i in range(4):
        symbols = targets[[i]].ids.tolist()
        assert alone[i] == pytest.approx(-log_p(net, net.encode(texts[[i]]), [*symbols, net.end]), rel=1e-4)


def test_initial_state_is_computed_from_the_last_state_of_each_direction() -> None:
    net = make_seq2seq("gru")
    memory = net.encode(TEXTS)
    states = memory.states[1]  # of the longest text
    ends = torch.cat([states[-1, :4], states[0, 4:]])
    assert torch.allclose(memory.start[1], torch.tanh(net.initial_state(ends)))
    assert torch.allclose(memory.start[2], torch.tanh(net.initial_state.bias))  # of an empty text


def test_position_within_the_code_matters_only_with_positions() -> None:
    for positions in (True, False):
        net = make_seq2seq(positions=positions)
        memory = net.encode(TEXTS)
        previous = torch.zeros(4, 1, dtype=torch.long)
        one, other = (net.step(memory, memory.start[:, None], previous, position)[0] for position in (0, 1))
        assert torch.equal(one, other) != positions


def count_weights(net: torch.nn.Module) -> int:
    """Parameters of all layers but the encoder's."""
    return sum(p.numel() for name, p in net.named_parameters() if not name.startswith("encoder."))


@pytest.mark.parametrize("node_vectors", [False, True])
def test_output_layers_grow_with_the_labels_only_by_node_vectors(node_vectors: bool) -> None:
    sizes = {}
    for n_labels in (1_000, 2_000):
        V = np.random.default_rng(0).standard_normal((n_labels, 4)).astype(np.float32)
        codes = fit_codes(V, np.ones(n_labels, np.int32), n_symbols=64, depth=2)
        for target in ("set", "sequence"):
            settings = change(SMALL, target=target, node_vectors=node_vectors)
            sizes[target, n_labels] = count_weights(make_network(settings, WordsEncoder(12, 8), codes))
    assert sizes["sequence", 2_000] == sizes["sequence", 1_000]
    added = sizes["set", 2_000] - sizes["set", 1_000]
    assert added == (1_000 * 8 if node_vectors else 0)  # a vector of the width of the encoder for each code


def test_mlc2seq_has_two_vectors_and_a_bias_per_label() -> None:
    more = count_weights(make_seq2seq(n_symbols=200, depth=1)) - count_weights(make_seq2seq(n_symbols=100, depth=1))
    assert more == 100 * (SMALL.symbol_width + SMALL.symbol_width + 1)


def test_target_sequences_are_the_codes_in_order_up_to_max_labels() -> None:
    Y = sp.csr_array(np.array([[0, 0, 0, 1, 1], [0] * 5, [1, 1, 1, 1, 1]]))
    rows = make_sequences(Y, CODES, SMALL)
    assert rows.lengths.tolist() == [4, 0, 6]
    assert rows[[0]].ids.tolist() == [2, 2, 2, 1]  # label 4 is more frequent than 3
    assert rows[[2]].ids.tolist() == [0, 0, 0, 2, 2, 1]
    with_unseen = Codebook(np.vstack([CODES.symbols, [[-1, -1]]]), 3, np.append(CODES.counts, 0))
    assert make_sequences(sp.csr_array(np.array([[1, 0, 0, 0, 0, 1]])), with_unseen, SMALL).ids.tolist() == [0, 0]


def test_gradients_with_a_known_context_equal_those_through_attention() -> None:
    targets = TokenRows.from_lists([[0, 0, 2, 1, 2, 2], [0, 2, 2, 1], [2, 2], []])
    found = []
    with torch.enable_grad():
        for is_known in (True, False):  # whether attention to a single state is skipped
            net = make_seq2seq("words")
            encode = net.encode
            if not is_known:
                net.encode = lambda texts, encode=encode: replace(encode(texts), context=None)  # type: ignore[method-assign,misc]
            loss = net.loss(WORD_VECTORS, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            dense = {name: p.grad for name, p in net.named_parameters() if "table" not in name and p.grad is not None}
            assert isinstance(net.encoder, WordsEncoder)
            _, rows = sum_gradient(net.encoder.table.take_gradient())
            found.append({**dense, "words": rows, "loss": loss.detach()})
    known, attended = found
    extra = set(attended) - set(known)
    assert extra == {"attention_query.weight", "attention_keys.weight", "attention_keys.bias", "attention_score.weight"}
    assert all(not attended[name].any() for name in extra)  # the weight of a single state is always 1
    for name, value in known.items():
        assert value.any() and torch.allclose(value, attended[name], rtol=1e-4, atol=1e-6), name


# Decoding


TRIE = join_codes([CODES])


def prepare(net: Seq2Seq, texts: Texts, *others: Seq2Seq) -> tuple[DecoderForest, DecoderMemory]:
    """The numpy decoder of networks, and what it needs of texts."""
    nets = (net, *others)
    decoder = DecoderForest([extract_part(export_network(one), "net.") for one in nets], net.depth)
    encoded = [[part.numpy() for part in encode_for_attention(one.encoder, texts)] for one in nets]
    return decoder, decoder.encode([(states, mask, vectors) for states, mask, vectors in encoded])


@pytest.mark.parametrize("encoder", ["gru", "bag", "words"])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("max_precomputed", [0, 100])
def test_a_step_in_numpy_equals_a_step_in_torch(
    encoder: str, positions: bool, max_precomputed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtail.models.secseq.decoder.MAX_PRECOMPUTED", max_precomputed)
    net, texts = make_seq2seq(encoder, positions=positions), make_texts(encoder)
    memory, (decoder, decoder_memory) = net.encode(texts), prepare(net, texts)
    rows, state = np.array([0, 0, 1, 1, 2, 2, 3, 3]), memory.start[:, None].expand(-1, 2, -1)
    for t, previous in enumerate([[[NO_SYMBOL] * 2] * 4, [[0, 1]] * 4, [[2, 0], [1, 1], [0, 2], [2, 2]]]):
        logits, new = decoder.step(decoder_memory, rows, state.flatten(0, 1).numpy(), np.ravel(previous), t % 2)
        expected, state = net.step(memory, state, torch.tensor(previous), t % 2)
        assert logits == pytest.approx(expected.flatten(0, 1).numpy(), abs=1e-5)
        assert new == pytest.approx(state.flatten(0, 1).numpy(), abs=1e-5)


def test_a_beam_of_one_is_greedy() -> None:
    net = make_seq2seq(seed=3)
    found, _ = beam_search(*prepare(net, TEXTS), width=1, max_labels=4)
    for i in range(4):
        memory = net.encode(TEXTS[[i]])
        state, previous, greedy = memory.start[:, None], NO_SYMBOL, []
        while len(greedy) < 8:
            logits, state = net.step(memory, state, torch.tensor([[previous]]), len(greedy) % 2)
            previous = int(logits[0, 0].argmax())
            if previous == net.end:
                break
            greedy.append(previous)
        assert [s for s in found.symbols[i, 0].tolist() if s != NO_SYMBOL] == greedy


def test_a_wide_beam_finds_all_sequences_with_their_probabilities() -> None:
    net = make_seq2seq(n_symbols=2, depth=1)
    memory = net.encode(TEXTS[[1]])
    every = [list(s) for n in range(4) for s in product(range(2), repeat=n)]
    true = {tuple(s): log_p(net, memory, s + [net.end] * (len(s) < 3)) for s in every}  # the longest have no end symbol
    found, _ = beam_search(*prepare(net, TEXTS[[1]]), width=40, max_labels=3)
    is_used = np.isfinite(found.log_p[0])  # the beam is wider than the number of sequences
    p = found.log_p[0][is_used]
    sequences = [tuple(s for s in symbols if s != NO_SYMBOL) for symbols in found.symbols[0][is_used].tolist()]
    assert p == pytest.approx([true[sequence] for sequence in sequences], rel=1e-4)
    assert sorted(sequences) == sorted(true) and (np.diff(p) <= 0).all()
    assert np.exp(p).sum() == pytest.approx(1, rel=1e-4)


def test_take_best_by_probability_or_by_mean() -> None:
    symbols = np.array([[[1, NO_SYMBOL, NO_SYMBOL], [1, 2, 1]]])
    found = GeneratedSequences(symbols, np.array([[-2.0, -2.5]], np.float32), np.array([[True, True]]))
    assert found.take_best(by_mean=True).symbols.tolist() == [[[1, 2, 1]]]  # 2.5 / 4 < 2 / 2
    assert found.take_best(by_mean=False).symbols.tolist() == [[[1, NO_SYMBOL, NO_SYMBOL]]]


@pytest.mark.parametrize("seed", range(5))
def test_constrained_decoding_generates_only_codes_of_labels(seed: int) -> None:
    net, trie = make_seq2seq(seed=seed), CODES.trie
    texts = prepare(net, TEXTS)
    beams, _ = beam_search(*texts, width=7, max_labels=3, trie=TRIE)
    drawn = sample_sequences(*texts, samples=9, max_labels=3, seed=seed, trie=TRIE)
    for found in (beams, drawn):
        is_used = np.isfinite(found.log_p)
        assert is_used.any(1).all() and (found.lengths[is_used] % 2 == 0).all()
        _, codes = split_codes(found.symbols[is_used], 2)
        assert len(codes) and (trie.find_leaves(codes) >= 0).all()
    free, _ = beam_search(*texts, width=20, max_labels=3)
    _, codes = split_codes(free.symbols.reshape(-1, free.symbols.shape[2]), 2)
    assert (trie.find_leaves(codes) < 0).any()  # without the trie, other codes are generated


def test_remainders_and_codes_without_labels_add_nothing() -> None:
    symbols = np.array([[[2, 1, 0, 0, 2], [0, 1, 2, NO_SYMBOL, NO_SYMBOL]]])  # 21, 00, remainder; 01 (no label), remainder
    found = GeneratedSequences(symbols, np.zeros((1, 2), np.float32), np.ones((1, 2), bool))
    counts = sum_histograms(*score_leaves(found, np.array([[1.0, 10.0]]), 1, TRIE), TRIE, (1, 5))
    assert counts.toarray().tolist() == [[1, 0, 0.75, 0.25, 0]]
    empty = GeneratedSequences(np.empty((2, 1, 0), np.int64), np.zeros((2, 1), np.float32), np.ones((2, 1), bool))
    assert [len(part) for part in score_leaves(empty, np.ones((2, 1)), 2, TRIE)] == [0, 0, 0]


def test_sequences_are_sampled_by_their_probability() -> None:
    net = make_seq2seq(n_symbols=2, depth=1)
    memory = net.encode(TEXTS[[1]])
    found = sample_sequences(*prepare(net, TEXTS[[1]]), samples=4000, max_labels=2, seed=1)
    for first in range(2):
        share = (found.symbols[0, :, 0] == first).mean()
        assert share == pytest.approx(np.exp(log_p(net, memory, [first])), abs=0.03)
    one = found.symbols[0, 0]
    sequence = [s for s in one.tolist() if s != NO_SYMBOL]
    assert found.log_p[0, 0] == pytest.approx(log_p(net, memory, sequence + [net.end] * (len(sequence) < 2)), rel=1e-4)


@pytest.mark.parametrize("max_labels", [1, 2])
def test_direct_decoding_is_exact_on_a_tiny_trie(max_labels: int) -> None:
    """P(label) is the sum over all sequences of codes that contain its code, times its share of the leaf."""
    net, trie = make_seq2seq(seed=5), CODES.trie
    memory = net.encode(TEXTS[[1]])
    codes = np.unique(CODES.symbols, axis=0).tolist()
    expected = np.zeros(5)
    for n in range(1, max_labels + 1):
        for chosen in product(codes, repeat=n):
            ending = [net.end] if n < max_labels else []
            p = np.exp(log_p(net, memory, [*chain(*chosen), *ending], trie))
            for leaf in {int(trie.find_leaves(np.array([code]))[0]) for code in chosen}:
                expected += p * trie.histograms[[leaf]].toarray()[0]
    texts, settings = prepare(net, TEXTS[[1]]), change(SMALL, max_labels=max_labels, decoding="direct", beam=100)
    scores = score_labels(*texts, TRIE, 5, settings).toarray()[0]
    assert scores == pytest.approx(expected, rel=1e-4) and scores.max() <= 1
    narrow = score_labels(*texts, TRIE, 5, change(settings, beam=2)).toarray()[0]
    assert (narrow <= scores + 1e-6).all() and narrow.any()  # a lower bound


@pytest.mark.parametrize("decoding", DECODINGS)
def test_label_scores_of_a_text_do_not_depend_on_other_texts(decoding: str) -> None:
    net = make_seq2seq(seed=2)
    settings = change(SMALL, decoding=decoding, constrained=True, beam=6, samples=500)
    together = score_labels(*prepare(net, TEXTS), TRIE, 6, settings).toarray()
    assert together.shape == (4, 6) and np.isfinite(together).all() and not together[:, 5].any()
    alone = score_labels(*prepare(net, TEXTS[[1]]), TRIE, 6, settings).toarray()[0]
    assert together[1] == pytest.approx(alone, abs=0.15 if decoding == "samples" else 1e-4)


@pytest.mark.parametrize("encoder", ["gru", "words"])
@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("constrained", [False, True])
def test_label_scores_of_several_trees_are_the_mean(encoder: str, decoding: str, constrained: bool) -> None:
    nets, texts = [make_seq2seq(encoder, seed=seed) for seed in range(3)], make_texts(encoder)
    for net in nets:
        net.output.weight.mul_(20)  # so that each network is certain of other symbols
        net.output.bias[net.end] -= 20  # and does not end at once
    every = np.array(list(product(range(3), repeat=2)))  # each code has a label
    forest = [Codebook(np.roll(every, shift, axis=0), 3, np.arange(1, 10)) for shift in range(3)]
    settings = change(SMALL, decoding=decoding, constrained=constrained, beam=6, samples=2000)
    together = score_labels(*prepare(nets[0], texts, *nets[1:]), join_codes(forest), 9, settings).toarray()
    alone = [
        score_labels(*prepare(net, texts), join_codes([codes]), 9, settings).toarray()
        for net, codes in zip(nets, forest, strict=True)
    ]
    assert together == pytest.approx(np.mean(alone, axis=0), abs=0.06 if decoding == "samples" else 1e-4)
    assert np.abs(alone[0] - alone[1]).max() > 0.06  # the trees differ


# The set network


def make_set_network(trie: CodeTrie, node_vectors: bool = False, seed: int = 1) -> SetNetwork:
    torch.manual_seed(seed)
    n_vectors = len(trie.symbol) - int(trie.level_start[2]) if node_vectors else 0
    net = SetNetwork(WordsEncoder(12, 8), 3, trie.depth, hidden=6, n_vectors=n_vectors).eval()
    for layer in net.output_layers:
        torch.nn.init.normal_(layer.bias)
    if net.node_vectors is not None:
        torch.nn.init.normal_(net.node_vectors.weight)
    return net


def score_child(net: SetNetwork, h: torch.Tensor, trie: CodeTrie, prior: Any, code: list[int], d: int) -> tuple[int, float]:
    """The node of the first d + 1 symbols of a code, and its logit for one text vector, from the definition."""
    node = 0
    for symbol in code[: d + 1]:
        node = int(trie.find_children(np.array([node]), np.array([symbol]))[0])
    z = net.score_symbols(h[None], np.array([0]), np.array([code[:d]], np.int64).reshape(1, -1))[0, code[d]] + prior[node]
    if net.node_vectors is not None and d > 0:
        z = z + h @ net.node_vectors.weight[node - trie.level_start[2]]
    return node, z


@pytest.mark.parametrize("node_vectors", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_probabilities_are_products_along_the_codes(depth: int, node_vectors: bool) -> None:
    random = np.random.default_rng(depth)
    Y = sp.csr_array((random.random((30, 9)) < 0.3).astype(np.float32))
    searches, vectors, expected = [], [], []
    for seed in (1, 2):  # two trees
        codes = Codebook(random.integers(0, 3, (9, depth)), 3, random.integers(1, 5, 9))
        trie, prior = codes.trie, BranchTargets.build(codes.trie, Y).prior
        net = make_set_network(trie, node_vectors, seed)
        H, probabilities = net.embed(WORD_VECTORS), np.zeros((4, 9))
        for i, label in product(range(4), range(9)):
            code, log_probability, above = codes.symbols[label].tolist(), 0.0, 0
            for d in range(depth):
                node, z = score_child(net, H[i], trie, prior, code, d)
                is_only = d > 0 and trie.mask_symbols(np.array([above])).sum() == 1
                log_probability += 0 if is_only else float(logsigmoid(torch.as_tensor(z)))
                above = node
            leaf = trie.find_leaves(np.array([code]))[0]
            probabilities[i, label] = np.exp(log_probability) * trie.histograms[[leaf]].toarray()[0, label]
        searches.append(TrieSearch.build(trie, extract_part(export_network(net), "net."), prior))
        vectors.append(H.numpy())
        expected.append(probabilities)
    best = search_tries(searches[:1], vectors[:1], 9, beam=1)
    assert best.scores == pytest.approx(np.take_along_axis(expected[0], best.ids, 1), rel=1e-4)
    assert sorted(best.ids[0].tolist()) == list(range(9)) and (np.diff(best.scores) <= 0).all()
    assert search_tries(searches[:1], vectors[:1], 1, beam=9).ids.tolist() == best.ids[:, :1].tolist()
    both = search_tries(searches, vectors, 9, beam=9)
    assert both.scores == pytest.approx(np.take_along_axis(np.mean(expected, axis=0), both.ids, 1), rel=1e-4)
    assert np.abs(expected[0] - expected[1]).max() > 0.01  # the trees differ
    for label in range(9):  # whichever label is the only one allowed, a beam of one finds it
        one = search_tries(searches, vectors, 1, beam=1, allowed=np.arange(9) == label)
        assert (one.ids == label).all()
        assert one.scores[:, 0] == pytest.approx(np.mean(expected, axis=0)[:, label], rel=1e-4)
    allowed = np.arange(9) % 2 == 0
    some = search_tries(searches[:1], vectors[:1], 5, beam=9, allowed=allowed)
    assert some.scores == pytest.approx(-np.sort(-expected[0][:, allowed], axis=1), rel=1e-4) and allowed[some.ids].all()


@pytest.mark.parametrize("node_vectors", [False, True])
def test_set_loss_computed_by_hand(node_vectors: bool) -> None:
    Y = sp.csr_array(np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]], np.float32))
    targets = BranchTargets.build(CODES.trie, Y)
    net = make_set_network(CODES.trie, node_vectors)
    H, total = net.embed(WORD_VECTORS[:3]), 0.0
    children = {(): [(0,), (2,)], (0,): [(0, 0), (0, 2)], (2,): [(2, 1), (2, 2)]}
    for i in range(3):
        true = {tuple(code) for code in CODES.symbols[Y[[i]].indices].tolist()}
        for prefix, longer in children.items():
            if not any(code[: len(prefix)] == prefix for code in true):
                continue
            for child in longer:
                _, z = score_child(net, H[i], CODES.trie, targets.prior, list(child), len(prefix))
                is_true = any(code[: len(child)] == child for code in true)
                total -= float(logsigmoid(torch.as_tensor(z if is_true else -z)))
    assert float(targets.loss(net, WORD_VECTORS[:3], np.arange(3))) == pytest.approx(total / 3, rel=1e-5)


def test_gradients_of_node_scores_equal_those_of_torch() -> None:
    random, table = np.random.default_rng(0), SparseEmbedding(4, 3, std=1)
    rows, nodes, weights = random.integers(0, 2, 9), random.integers(0, 4, 9), torch.from_numpy(random.random(9)).float()
    with torch.enable_grad():
        H = torch.randn(2, 3, requires_grad=True)
        (score_nodes(H, table, rows, nodes) * weights).sum().backward()
        V, again = table.weight.detach().clone().requires_grad_(), H.detach().clone().requires_grad_()
        ((again[rows] * V[nodes]).sum(1) * weights).sum().backward()
    used, grad = sum_gradient(table.take_gradient())
    assert H.grad is not None and torch.allclose(H.grad, again.grad, atol=1e-6)
    assert V.grad is not None and torch.allclose(grad, V.grad[used], atol=1e-6)


def test_a_network_starts_at_the_cosine_of_text_and_centroid() -> None:
    random = np.random.default_rng(0)
    X = sp.random_array((60, 40), density=0.2, dtype=np.float32, rng=1).tocsr()
    X = sp.csr_array(X / np.linalg.norm(X.toarray(), axis=1)[:, None])
    Y = sp.csr_array((random.random((60, 12)) < 0.2).astype(np.float32))
    codes = Codebook(np.array(list(product(range(4), range(3)))), 4, np.asarray(Y.sum(0)).astype(int))
    targets = BranchTargets.build(codes.trie, Y)
    net = SetNetwork(WordsEncoder(40, 4096, std=1.0), 4, 2, hidden=6, n_vectors=12).eval()
    start_from_centroids(net, X, targets)
    assert net.node_vectors is not None
    found = net.embed(X).numpy() @ net.node_vectors.weight.numpy().T
    centroids = (Y.T @ X).toarray()[codes.trie.label]
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    expected = 20 * (X @ (centroids - centroids.mean(0)).T)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.98
    assert np.polyfit(expected.ravel(), found.ravel(), 1)[0] == pytest.approx(1, abs=0.1)


def test_prior_is_the_log_odds_in_the_training_data() -> None:
    Y = sp.csr_array(np.array([[1, 0, 0, 0, 0]] * 3 + [[0, 1, 1, 1, 0]], np.float32))
    prior = BranchTargets.build(CODES.trie, Y).prior
    nodes = {"0": 1, "2": 2, "00": 3, "02": 4, "21": 5, "22": 6}
    assert prior[nodes["0"]] == pytest.approx(np.log(4.5 / 0.5)) and prior[nodes["2"]] == pytest.approx(np.log(1.5 / 3.5))
    assert prior[nodes["02"]] == pytest.approx(np.log(1.5 / 3.5)) and prior[nodes["22"]] == pytest.approx(np.log(0.5 / 1.5))
