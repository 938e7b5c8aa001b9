"""GLaS with thousands of labels: its defaults learn them, and the first layer starts from the training data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from glas_toy import Data, make_toy

from longtail import Tagger
from longtail.errors import SettingError
from longtail.features.normaliser import Normaliser
from longtail.models.glas.model import Glas
from longtail.models.glas.start import find_principal_space, start_from_labels
from longtail.models.popularity import Popularity

N_LABELS, N_WORDS, WORDS_PER_LABEL = 5000, 3000, 4


def make_corpus(n_samples: int) -> Data:
    """Each label has a few of the words, which it shares with other labels; a sample has two labels, and other words."""
    random = np.random.default_rng(0)
    words = random.integers(0, N_WORDS, (N_LABELS, WORDS_PER_LABEL))
    frequency = 1 / np.arange(1, N_LABELS + 1) ** 0.5
    labels = random.choice(N_LABELS, (n_samples, 2), p=frequency / frequency.sum())
    labels[:N_LABELS, 0] = np.arange(N_LABELS)  # every label has a sample
    used = np.hstack([words[labels[:, 0]], words[labels[:, 1]], random.integers(0, N_WORDS, (n_samples, 3))])
    rows = np.arange(n_samples)

    def to_matrix(columns: np.ndarray, width: int) -> sp.csr_array:
        at = (np.repeat(rows, columns.shape[1]), columns.ravel())
        matrix = sp.csr_array((np.ones(columns.size, np.float32), at), shape=(n_samples, width))
        matrix.data[:] = 1
        return matrix

    return Normaliser().transform(to_matrix(used, N_WORDS)), to_matrix(labels, N_LABELS)


def test_learns_5000_labels_far_above_the_prior() -> None:
    X, Y = make_corpus(10_500)
    held_out = slice(10_000, None)
    model = Glas(dim=40, epochs=3, threads=1, sparse_part=False).fit(X[:10_000], Y[:10_000])
    prior = Popularity().fit(X[:10_000], Y[:10_000])
    assert model.plan(model.n_samples, model.n_seen).init == "svd"

    def precision(model: Glas | Popularity) -> float:
        best = model.topk(X[held_out], 1).ids[:, 0]
        return float(Y[held_out][np.arange(len(best)), best].mean())

    assert precision(prior) < 0.05 and precision(model) > 0.7  # 0.63 before training


def test_features_of_the_same_labels_start_close_to_each_other() -> None:
    X, Y = make_toy()  # three features per label
    E = start_from_labels(X, Y, 64, seed=0)
    assert E.shape == (27, 64) and np.allclose(np.linalg.norm(E, axis=1), 1, atol=1e-5)
    cosine = E[:24] @ E[:24].T
    same = np.kron(np.eye(8), np.ones((3, 3))).astype(bool)
    assert cosine[same & ~np.eye(24, dtype=bool)].mean() > cosine[~same].mean() + 0.2
    assert np.array_equal(E, start_from_labels(X, Y, 64, seed=0))
    assert not np.allclose(E, start_from_labels(X, Y, 64, seed=1), atol=0.1)


def test_the_principal_space_is_that_of_the_singular_vectors() -> None:
    random = np.random.default_rng(0)
    Z = random.normal(size=(40, 12)) * 3.0 ** -np.arange(12)  # singular values that fall quickly
    Q = find_principal_space(sp.csr_array(Z.astype(np.float32)), 4, random)
    V = np.linalg.svd(Z)[2][:4].T
    assert np.allclose(Q.T @ Q, np.eye(4), atol=1e-4) and np.allclose(Q @ Q.T, V @ V.T, atol=1e-3)
    wide = find_principal_space(sp.csr_array(np.eye(3, 5, dtype=np.float32)), 8, random)  # of rank 3
    assert np.allclose(wide @ wide.T, np.diag([1, 1, 1, 0, 0]), atol=1e-4)


def test_features_are_tried_by_centroids() -> None:
    assert Glas().tries_features
    X, Y = make_toy()
    first = Glas().fit_quick(X, Y).topk(X, 1).ids[:, 0]
    assert np.mean([label in Y[[row]].indices for row, label in enumerate(first)]) > 0.9


# Pretrained word vectors

TEXTS = ["red apples", "red roses", "green apples", "green grass"] * 5
LABELS = [["fruit"], ["flower"], ["fruit"], ["plant"]] * 5


def test_the_first_layer_starts_from_word_vectors(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("red 1 0 0\ngreen 0 2 0\napples 0 0 3\nroses 1 1 0\n")
    tagger = Tagger("glas", word_vectors=str(path), rate=1e-9, epochs=1).fit(TEXTS, LABELS)
    E = tagger.model.E.dequantise(np.arange(5))  # type: ignore[attr-defined]
    of = {tagger.features.get_term(i): E[i] for i in range(5)}  # type: ignore[union-attr]
    assert np.allclose(of["green"], [0, 1, 0], atol=0.01) and np.allclose(of["roses"], [0.5**0.5, 0.5**0.5, 0], atol=0.01)
    assert np.linalg.norm(of["grass"]) == pytest.approx(1, abs=0.01)  # random: it has no vector


def test_word_vectors_need_words_and_fix_the_dimension(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("red 1 0 0\n")
    with pytest.raises(SettingError, match=r"dim is 5, but .* have 3 dimensions\. Leave dim out"):
        Tagger("glas", word_vectors=str(path), dim=5).fit(TEXTS, LABELS)
    with pytest.raises(SettingError, match="word_vectors needs the words of the features"):
        Glas(word_vectors=str(path)).fit(*make_toy())
    with pytest.raises(SettingError, match="word_vectors needs the words of the features"):
        Tagger("glas", word_vectors=str(path), code=2).fit(TEXTS, LABELS)
