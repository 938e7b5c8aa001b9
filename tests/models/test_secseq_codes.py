"""Label codes, their trie, and the way back to labels (SeCSeq, section 2)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import SettingError
from longtail.labelspace.embedding import embed_by_samples, embed_by_walks
from longtail.models.secseq.codes import (
    Codebook,
    fit_codes,
    predict_from_true_codes,
    project_codes,
    quantise_by_rank,
    quantise_uniformly,
)
from longtail.models.secseq.plan import choose_code_size, count_learned_codes
from longtail.models.secseq.settings import LABEL_ORDERS
from longtail.models.secseq.targets import order_labels
from longtail.models.secseq.trie import NO_CODE, rank_labels
from longtail.topk import NO_LABEL, TopK, find_hits

CODES = Codebook(np.array([[1, 0], [0, 1], [1, 0], [0, 0], [NO_CODE, NO_CODE], [1, 2]]), 3, np.array([6, 1, 2, 3, 0, 1]))


def label_sets(n_samples: int, n_labels: int, seed: int = 0) -> sp.csr_array:
    """Sets of up to three labels; label i is drawn with a probability proportional to 1 / (i + 5)."""
    random = np.random.default_rng(seed)
    weights = 1 / (np.arange(n_labels) + 5)
    drawn = random.choice(n_labels, (n_samples, 3), p=weights / weights.sum())
    rows = np.repeat(np.arange(n_samples), 3)
    Y = sp.csr_array((np.ones(drawn.size, np.float32), (rows, drawn.ravel())), shape=(n_samples, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


def count_samples(Y: sp.csr_array) -> np.ndarray:
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int32)


def relative_precision(best: TopK, Y: sp.csr_array, k: int) -> float:
    """Precision at k, divided by that of perfect predictions."""
    right = find_hits(best, Y)[:, :k].sum()
    return float(right / np.minimum(np.diff(Y.indptr), k).sum())


# Quantisers


def test_uniform_quantiser_splits_the_range_equally() -> None:
    assert quantise_uniformly(np.array([-1.0, -0.51, -0.49, 0.0, 0.99, 1.0]), 4).tolist() == [0, 0, 1, 2, 3, 3]
    assert quantise_uniformly(np.array([2.0, 2.0]), 4).tolist() == [0, 0]  # all values are equal


def test_ordinal_quantiser_splits_the_ranks_equally() -> None:
    assert quantise_by_rank(np.array([5.0, -2.0, 100.0, 0.0, 7.0, 6.0]), 3).tolist() == [1, 0, 2, 0, 2, 1]
    assert quantise_by_rank(np.array([1.0, 1.0, 1.0]), 3).tolist() == [0, 1, 2]  # ties by label


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**32))
def test_ordinal_quantiser_uses_every_symbol_equally_often(n_labels: int, n_symbols: int, seed: int) -> None:
    z = np.random.default_rng(seed).integers(0, 50, n_labels).astype(float)  # with ties
    times = np.bincount(quantise_by_rank(z, n_symbols), minlength=n_symbols)
    assert len(times) == n_symbols and set(times) <= {n_labels // n_symbols, -(-n_labels // n_symbols)}


# Codes


@pytest.mark.parametrize("quantiser", ["ordinal", "uniform"])
def test_random_codes_are_quantised_projections(quantiser: str) -> None:
    Y = label_sets(200, 40)
    counts = count_samples(Y)
    counts[7] = 0
    V = embed_by_samples(Y)
    codes = project_codes(V, counts, n_symbols=4, depth=3, quantiser=quantiser, seed=5)
    assert codes.symbols.shape == (40, 3) and (codes.symbols[7] == NO_CODE).all()
    R = np.random.default_rng(5).standard_normal((200, 3)).astype(np.float32)
    rest = np.delete(np.arange(40), 7)
    for d in range(3):
        z = (V[rest] @ R[:, d]).astype(float)
        quantise = {"uniform": quantise_uniformly, "ordinal": quantise_by_rank}[quantiser]
        assert codes.symbols[rest, d].tolist() == quantise(z, 4).tolist()
    other = project_codes(V, counts, n_symbols=4, depth=3, quantiser=quantiser, seed=6)
    assert (other.symbols != codes.symbols).any()


def test_learned_codes_share_prefixes_between_similar_labels_and_are_unique() -> None:
    V = np.repeat(np.eye(2, 30), 8, axis=0) + 0.1 * np.random.default_rng(0).random((16, 30))  # two groups of eight
    V = (V / np.linalg.norm(V, axis=1, keepdims=True)).astype(np.float32)
    codes = fit_codes(sp.csr_array(V), np.ones(16, np.int32), n_symbols=2, depth=4, n_frequent=0)
    assert sorted(set(group) for group in codes.symbols[:, 0].reshape(2, 8).tolist()) in ([{0}, {1}], [{1}, {0}])
    assert codes.describe() == {"labels": 16, "codes": 16, "labels_per_code": 1.0, "unique_share": 1.0}


@given(st.integers(1, 70), st.sampled_from([(2, 7), (4, 4), (16, 2), (128, 1)]), st.integers(0, 99))
def test_learned_codes_are_unique_if_there_are_enough(n_labels: int, size: tuple[int, int], seed: int) -> None:
    V = sp.csr_array(np.random.default_rng(seed).random((n_labels, 4)).astype(np.float32))
    setting = {"n_symbols": size[0], "depth": size[1], "seed": seed, "threads": 1}
    codes = fit_codes(V, np.ones(n_labels, np.int32), **setting, n_frequent=None if 2 * n_labels <= 128 else 0)
    assert len(np.unique(codes.symbols, axis=0)) == n_labels
    assert codes.symbols.min() >= 0 and codes.symbols.max() < size[0]


def test_frequent_labels_have_their_own_first_symbol() -> None:
    V, counts = np.random.default_rng(0).random((40, 5)).astype(np.float32), np.arange(40, dtype=np.int32)
    codes = fit_codes(V, counts, n_symbols=8, depth=3)
    assert codes.symbols[[39, 38, 37, 36]].tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]]
    rest = codes.symbols[1:36]
    assert set(rest[:, 0]) == {4, 5, 6, 7} and len(np.unique(rest, axis=0)) == 35 and (codes.symbols[0] == NO_CODE).all()
    few = fit_codes(V, counts, n_symbols=64, depth=2)  # one symbol per label
    assert sorted(few.symbols[1:, 0].tolist()) == list(range(39)) and not few.symbols[1:, 1].any()


def test_learned_codes_need_a_power_of_two() -> None:
    with pytest.raises(SettingError, match="power of two"):
        fit_codes(np.eye(3, dtype=np.float32), np.ones(3, np.int32), n_symbols=3, depth=2)


@pytest.mark.parametrize("n_labels", [1, 2, 115, 596, 25_000, 250_000, 1_000_000])
def test_the_chosen_code_size_has_enough_codes(n_labels: int) -> None:
    K, D = choose_code_size(n_labels)
    assert 16 * n_labels <= K**D
    for setting in ({}, {"n_symbols": 4}, {"depth": 2}, {"n_symbols": 512}):
        K, D = choose_code_size(n_labels, learned=True, **setting)
        assert n_labels <= count_learned_codes(K, D) and (setting or K <= 1024)
        assert setting.items() <= {"n_symbols": K, "depth": D}.items()
    assert choose_code_size(n_labels, n_symbols=7, depth=2) == (7, 2)
    assert 16 * n_labels <= 32 ** choose_code_size(n_labels, n_symbols=32)[1]
    assert choose_code_size(n_labels, depth=1) == (n_labels, 1)  # mlc2seq


# The trie


def test_trie_computed_by_hand() -> None:
    trie = CODES.trie
    assert trie.level_start.tolist() == [0, 1, 3, 7]  # the root, 0 and 1, and 00 01 10 12
    assert trie.symbol.tolist() == [NO_CODE, 0, 1, 0, 1, 0, 2]
    assert trie.parent.tolist() == [-1, 0, 0, 1, 1, 2, 2]
    assert trie.first_child.tolist() == [1, 3, 5, 7, 7, 7, 7, 7]
    assert trie.label.tolist() == [3, 1, 0, 2, 5]
    assert trie.share.tolist() == [1, 1, 0.75, 0.25, 1]
    assert trie.find_leaves(np.array([[0, 0], [1, 0], [1, 1], [2, 0], [1, 2], [1, 3]])).tolist() == [0, 2, -1, -1, 3, -1]
    assert trie.mask_symbols(np.array([0, 2, 1])).tolist() == [[1, 1, 0], [1, 0, 1], [1, 1, 0]]
    assert CODES.describe()["labels_per_code"] == 5 / 4


def test_count_paths_computed_by_hand() -> None:
    Y = sp.csr_array(np.array([[1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 1, 1], [0] * 6]))
    first, leaves = CODES.trie.count_paths(Y)
    assert first.toarray().tolist() == [[0, 2], [1, 1], [0, 0]]
    assert leaves.toarray().tolist() == [[0, 0, 2, 0], [0, 1, 0, 1], [0] * 4]


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32))
def test_find_leaves_finds_every_label_by_its_code(n_labels: int, n_symbols: int, depth: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = Codebook(random.integers(0, n_symbols, (n_labels, depth)), n_symbols, random.integers(1, 9, n_labels))
    trie = codes.trie
    leaves = trie.find_leaves(codes.symbols)
    assert trie.n_leaves == len(np.unique(codes.symbols, axis=0))
    for label, leaf in enumerate(leaves.tolist()):
        mine = slice(trie.leaf_start[leaf], trie.leaf_start[leaf + 1])
        assert label in trie.label[mine] and trie.share[mine].sum() == pytest.approx(1)
    assert (np.diff(trie.child_keys) > 0).all()  # find_children relies on it
    wrong = random.integers(0, n_symbols, (20, depth))
    known = {tuple(code) for code in codes.symbols.tolist()}
    assert [leaf >= 0 for leaf in trie.find_leaves(wrong).tolist()] == [tuple(code) in known for code in wrong.tolist()]


# Decoding


def test_oracle_decoding_computed_by_hand() -> None:
    Y = sp.csr_array(np.array([[0, 0, 1, 0, 0, 1], [1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]]))
    best = predict_from_true_codes([CODES], Y, 3)
    assert best.ids.tolist() == [[5, 0, 2], [0, 2, NO_LABEL], [NO_LABEL] * 3]
    assert best.scores[:2].tolist() == [[1, 0.75, 0.25], [1.5, 0.5, -np.inf]]


@pytest.mark.parametrize("quantiser", ["ordinal", "uniform"])
def test_oracle_decoding_finds_nearly_all_labels_with_enough_codes(quantiser: str) -> None:
    Y = label_sets(3000, 500)
    counts = count_samples(Y)
    enough = {"n_symbols": 64, "depth": 3} if quantiser == "uniform" else {"n_symbols": 16, "depth": 4}  # above 16 L
    codes = project_codes(embed_by_samples(Y), counts, quantiser=quantiser, seed=1, **enough)
    best = predict_from_true_codes([codes], Y)
    assert relative_precision(best, Y, 1) >= 0.98 and relative_precision(best, Y, 5) >= 0.98


def test_several_trees_resolve_code_collisions() -> None:
    Y = label_sets(3000, 500)
    forest = [project_codes(embed_by_samples(Y), count_samples(Y), n_symbols=8, depth=3, seed=m) for m in range(4)]
    one, four = (relative_precision(predict_from_true_codes(trees, Y), Y, 3) for trees in (forest[:1], forest))
    assert one < 0.95 < 0.99 < four


def test_rank_labels_breaks_ties_by_label_and_skips_zeros() -> None:
    scores = sp.csr_array((np.array([1.0, 2.0, 1.0, 0.0]), np.array([4, 1, 2, 0]), np.array([0, 4, 4])), shape=(2, 5))
    assert rank_labels(scores, 3).ids.tolist() == [[1, 2, 4], [NO_LABEL] * 3]
    assert rank_labels(scores, 2).ids.tolist() == [[1, 2], [NO_LABEL] * 2]


# Label orders and label vectors


def test_label_orders() -> None:
    Y = sp.csr_array(np.array([[1, 1, 1, 1, 0, 1]]))
    orders = {order: order_labels(Y, CODES, order).indices.tolist() for order in LABEL_ORDERS}
    assert orders["freq_desc"] == [0, 3, 2, 1, 5]
    assert orders["freq_asc"] == [1, 5, 2, 3, 0]
    assert orders["code"] == [3, 1, 0, 2, 5]
    assert sorted(orders["random"]) == [0, 1, 2, 3, 5]
    assert orders["random"] == order_labels(Y, CODES, "random").indices.tolist()


def test_walk_vectors_of_labels_that_co_occur_are_similar() -> None:
    Y = sp.csr_array(np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0]]))
    V = embed_by_walks(Y, d=64)
    similarity = V @ V.T
    assert similarity[0, 1] == pytest.approx(1, abs=1e-5) and similarity[2, 3] == pytest.approx(1, abs=1e-5)
    assert abs(similarity[0, 2]) < 0.5 and not V[4].any()
    assert np.linalg.norm(V[:4], axis=1) == pytest.approx(1)
