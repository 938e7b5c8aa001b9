"""The start of label vectors at the centroids of their texts, and what it is for: corpora with thousands of labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.kernels import Longs
from longtail.models.aplc import start
from longtail.models.aplc.model import Aplc
from longtail.models.aplc.network import AplcNetwork
from longtail.models.aplc.partition import ClusterLogOdds, Partition, partition_by_shares
from longtail.models.aplc.settings import AplcSettings
from longtail.models.aplc.start import start_at_centroids
from longtail.nn.encoder_factory import make_encoder

N_LABELS, N_WORDS = 5_000, 4_000


def make_network(Y: sp.csr_array, shares: list[float]) -> tuple[AplcNetwork, Partition, ClusterLogOdds]:
    settings = AplcSettings(width=16, hidden=16)
    partition = partition_by_shares(np.bincount(Y.indices, minlength=Y.shape[1]), shares)
    log_odds = ClusterLogOdds.count(partition, Y)
    net = AplcNetwork(make_encoder("bag", 50, width=16), partition, settings, settings.plan(100, 4), log_odds)
    return net.eval(), partition, log_odds


def project(net: AplcNetwork, E: Tensor) -> Tensor:
    return torch.tanh(net.hidden(E))


@pytest.fixture
def texts() -> tuple[Tensor, sp.csr_array]:
    """The vectors of 60 texts, and their labels: four, of which the last two are rare."""
    rng = np.random.default_rng(0)
    Y = sp.csr_array((rng.random((60, 4)) < [0.6, 0.4, 0.2, 0.1]).astype(np.float32))
    return torch.from_numpy(rng.normal(size=(60, 16)).astype(np.float32)) / 4, Y


@torch.no_grad()
def test_the_vectors_of_the_head_point_from_the_mean_to_the_centroids(
    texts: tuple[Tensor, sp.csr_array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "_TEXTS_PER_BLOCK", 7)
    E, Y = texts
    net, partition, log_odds = make_network(Y, [1.0])
    start_at_centroids(net, lambda some: E[torch.from_numpy(some)], Y, partition, scale=3.0)
    assert torch.allclose(net.hidden.weight @ net.hidden.weight.T, torch.eye(16), atol=1e-5)
    H = project(net, E)
    mean = H.mean(0)
    size = 3 * max(np.abs(log_odds.labels[0]).mean(), 1) / (H - mean).square().sum(1).mean().sqrt()
    for place, label in enumerate(partition.order):
        centroid = H[torch.from_numpy(Y[:, [label]].toarray()[:, 0] > 0)].mean(0)
        expected = size * torch.nn.functional.normalize(centroid - mean, dim=0)
        assert torch.allclose(net.head.vectors[place], expected, atol=1e-4)
    at_mean = net.head.vectors @ mean + net.head.bias
    assert torch.allclose(at_mean, torch.from_numpy(log_odds.labels[0]), atol=1e-4)


@torch.no_grad()
def test_the_vectors_of_a_tail_are_those_of_its_texts_alone(texts: tuple[Tensor, sp.csr_array]) -> None:
    E, Y = texts
    net, partition, log_odds = make_network(Y, [0.5, 0.5])
    start_at_centroids(net, lambda some: E[torch.from_numpy(some)], Y, partition)
    rare = torch.from_numpy(Y[:, partition.order[2:]].toarray())
    inside = rare.any(1)
    P = net.head.tails[0](project(net, E[inside]))
    centroids = rare[inside].T @ P / rare.sum(0)[:, None]
    cosines = torch.nn.functional.cosine_similarity(net.head.tails[0].vectors, centroids - P.mean(0))
    assert torch.allclose(cosines, torch.ones(2), atol=1e-4)
    assert torch.allclose(
        net.head.tails[0].vectors @ P.mean(0) + net.head.tails[0].bias, torch.tensor(log_odds.labels[1]), atol=1e-4
    )
    assert torch.equal(net.head.clusters, torch.zeros(1, 16))


@torch.no_grad()
def test_a_label_whose_texts_are_all_held_out_starts_at_its_log_odds(texts: tuple[Tensor, sp.csr_array]) -> None:
    E, Y = texts
    net, partition, _ = make_network(Y, [1.0])
    before = net.head.bias.clone()
    without = Y.copy()
    without.data[without.indices == 3] = 0
    without.eliminate_zeros()
    start_at_centroids(net, lambda some: E[torch.from_numpy(some)], without, partition)
    place = int(np.flatnonzero(partition.order == 3)[0])
    assert torch.equal(net.head.vectors[place], torch.zeros(16)) and net.head.bias[place] == before[place]


def make_texts(rng: np.random.Generator, n: int, words: Longs) -> tuple[list[str], sp.csr_array]:
    """Texts of three words of their label and three of any label; labels follow Zipf's law. words: [N_LABELS, 4]."""
    share = 1 / np.arange(10, N_LABELS + 10)
    labels = rng.choice(N_LABELS, n, p=share / share.sum())
    own = np.take_along_axis(words[labels], rng.permuted(np.tile(np.arange(4), (n, 1)), axis=1)[:, :3], axis=1)
    parts = np.hstack([own, rng.integers(0, N_WORDS, (n, 3))])
    texts = [" ".join(f"w{word:04d}" for word in rng.permutation(row)) for row in parts]
    return texts, sp.csr_array((np.ones(n, np.float32), (np.arange(n), labels)), shape=(n, N_LABELS))


def test_thousands_of_labels_are_learned_far_above_the_prior() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, N_WORDS, (N_LABELS, 4))
    (texts, Y), (new, Y_new) = make_texts(rng, 10_000, words), make_texts(rng, 500, words)
    model = Aplc(encoder="bag", width=128, hidden=128, epochs=2, batch=128, threads=1, n_pieces=N_WORDS + 100).fit(texts, Y)
    prior = 100 * Y_new[:, [np.bincount(Y.indices).argmax()]].mean()
    right = Y_new[np.arange(500), model.topk(new, 1).ids[:, 0]].mean()
    assert prior < 5 and 100 * right > 50
