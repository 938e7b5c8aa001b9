"""What tests share: a small corpus that can be learned, and the benchmark corpora where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import settings

from longtail import Dataset, Labels
from longtail.data.pydoc import build_pydoc
from longtail.selection import plan
from longtail.selection.profile import Profile, Terms

# The first call of a kernel compiles it, so no deadline; the same examples every time, so that a failure can be repeated.
settings.register_profile("longtail", deadline=None, derandomize=True)
settings.load_profile("longtail")

TOPICS = {
    "fruit": "apple pear plum cherry juice ripe",
    "metal": "iron copper zinc steel ore alloy",
    "music": "violin piano tune chord song choir",
    "sea": "wave ship harbour tide sail reef",
}

PACKAGES = Profile(  # as debian-debtags is
    n_samples=24_309,
    n_labels=596,
    n_pairs=89_693,
    n_distinct=24_106,
    n_cooccurrences=597_193,
    median_samples=25,
    rare=0.15,
    n_bytes=13_000_000,
    unigrams=Terms(26_617, 1_132_695),
    bigrams=Terms(190_271, 2_373_609),
    lengths=(30.0, 60.0, 111.0),
)
VECTORS = Profile(  # as bibtex is
    n_samples=4880,
    n_labels=159,
    n_pairs=11_616,
    n_distinct=4751,
    n_cooccurrences=40_914,
    median_samples=54,
    rare=0,
    n_bytes=2_766_928,
    unigrams=Terms(1836, 334_250),
    bigrams=Terms(1836, 334_250),
)


LONG_FILES = (
    "test_readme.py",
    "test_examples.py",
    "test_model_update.py",
    "test_neuralxc.py",
    "test_ranks.py",
    "test_strangers.py",
    "test_secseq.py",
    "test_plt.py",
    "test_compare.py",
    "test_lightattention.py",
    "test_contract.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files that take longest, so that no process waits for another one at the end."""
    order = {name: i for i, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def make_corpus(n_samples: int, seed: int) -> Dataset:
    """Texts of words from one or two topics; the topics are the labels."""
    random = np.random.default_rng(seed)
    names = list(TOPICS)
    texts, labels = [], []
    for _ in range(n_samples):
        mine = random.choice(names, size=random.integers(1, 3), replace=False).tolist()
        words = [word for topic in mine for word in random.choice(TOPICS[topic].split(), size=4)]
        texts.append(" ".join(random.permutation(words)))
        labels.append(mine)
    return Dataset.from_texts(texts, labels)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Of torch: under load, the second makes tiny models many times slower."""
    torch.set_num_threads(1)


@pytest.fixture
def everything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch and the weights of MiniLM, whether they are or not: for plans."""
    monkeypatch.setattr(plan, "find_spec", lambda name: name)


@pytest.fixture(scope="session")
def train() -> Dataset:
    return make_corpus(200, seed=1)


@pytest.fixture(scope="session")
def test() -> Dataset:
    return make_corpus(60, seed=2)


@pytest.fixture(scope="session")
def vectors() -> Dataset:
    """Feature vectors in place of texts; label 4 has no sample, sample 0 has no label, sample 1 no feature."""
    random = np.random.default_rng(3)
    Y = np.zeros((80, 5), np.float32)
    Y[np.arange(80), random.integers(0, 4, 80)] = 1
    X = Y @ random.random((5, 12)) * (random.random((80, 12)) < 0.7) + 0.05 * random.random((80, 12))
    Y[0], X[1] = 0, 0
    return Dataset(sp.csr_array(Y), Labels.from_count(5), X=sp.csr_array(X.astype(np.float32)))


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora; the test is skipped where it is missing."""
    folder = Path(os.environ.get("LONGTAIL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "bibtex").is_dir():
        pytest.skip(f"no corpora in {folder}; set LONGTAIL_DATA")
    return folder


@pytest.fixture(scope="session")
def pydoc_part() -> Dataset:
    """A random part of the built-in corpus."""
    data = build_pydoc()
    return data.take(np.random.default_rng(0).permutation(data.n_samples)[:800])


@pytest.fixture
def small_pydoc(pydoc_part: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in corpus is a random part of it, so that what trains on it takes seconds."""
    monkeypatch.setattr("longtail.data.pydoc.build_pydoc", lambda: pydoc_part)
