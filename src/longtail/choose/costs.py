"""What training a method costs: amounts of work that its algorithm has, times constants that were measured.

The amounts follow from the algorithms with default settings: numbers that are not 0 times labels for one-vs-rest, tokens
times epochs for networks. The constants were fitted to CPU seconds, peaks of memory and sizes of training on real corpora
and slices of them (docs/choose.md). Amounts are in billions of operations, or in millions of what is read or held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2, pow

from longtail.choose.machine import Machine
from longtail.choose.profile import Profile, Terms
from longtail.models.blend.model import MANY_LABELS as BLEND_MANY
from longtail.models.glas.model import FEW
from longtail.models.lightattention.model import CANDIDATES, FLAT
from longtail.models.plt import FLAT as UNCLUSTERED
from longtail.models.plt import MANY_LABELS, MOST_DOUBLINGS, TERMS
from longtail.models.secseq.codes import size_of_codes

G, M, K = 1e9, 1e6, 1e3
D = 256  # numbers of a vector of glas, neuralxc, secseq, of a bag, and of wordllama
DENSE = 384  # of one of MiniLM
ROOM = 40  # weights that are possible, for each that is held where nearly all are
CACHED = 10_000  # features whose weights a cache holds
TOKENS = 1.6  # pieces of a word, for encoders
LINEAR, NETWORK, PRETRAINED = 180.0, 480.0, 1200.0  # MB of Python, kernels and the compiler; and torch; and MiniLM at work
TWICE = 1.9  # a blend trains its members on nine tenths of the samples, then on all
ATTENTIVE, FEWER_EPOCHS, VECTORS = "blend:attention", 0.6, 17  # 6 epochs of attention, not 10; MB of wordllama
SPREAD_LINEAR, SPREAD_NETWORK = 0.9, 0.5  # share of the work that threads share; assumed, not measured

Amounts = tuple[float, ...]


@dataclass(frozen=True)
class Work:
    """Amounts that CPU seconds, MB of memory at most, and MB of the saved model depend on."""

    seconds: Amounts
    memory: Amounts
    size: Amounts


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one thread, MB of memory at most, and MB of the saved model."""

    seconds: float
    memory: float
    size: float


def ovr(p: Profile) -> Work:
    """Passes of the solver over all numbers, for each label."""
    X = p.pairs
    return Work(
        (p.n_words / M, X.nonzeros * p.n_labels / G),
        (1, held(p, X), kept(p, X)),
        (kept(p, X), named(p, X)),
    )


def plt(p: Profile, X: Terms | None = None) -> Work:
    """In each tree, a sample meets the children of the root and the labels of the clusters that its own are in."""
    X = X or p.pairs
    n_trees = 1 if p.n_labels >= MANY_LABELS else 3
    fanout = 2 ** min(log2(2 * p.n_labels) / 2, MOST_DOUBLINGS)
    met = n_trees * (fanout + min(p.labels_a_sample, fanout) * p.n_labels / fanout)
    if p.n_labels <= UNCLUSTERED:  # the first tree is one classifier for each label
        met = met * 2 / 3 + p.n_labels
    centres = n_trees * min(p.n_labels * TERMS, p.n_pairs * a_row(p, X)) * fanout
    weights = n_trees * kept(p, X)
    return Work(
        (p.n_words / M, reach(X) * X.nonzeros * met / G, centres / G),
        (1, held(p, X), weights),
        (weights, named(p, X)),
    )


def hierarchicalxc(p: Profile) -> Work:
    """A sample meets two children on each step to each of its labels; labels are joined by what stands together."""
    X, together, depth = p.words, min(p.n_together, p.n_labels**2), log2(2 * p.n_labels)
    return Work(
        (p.n_words / M, reach(X) * X.nonzeros * p.labels_a_sample * depth / G, together / M, p.n_labels / M),
        (1, held(p, X), together / M, p.n_labels / M),
        (depth * kept(p, X), named(p, X)),
    )


def glas(p: Profile) -> Work:
    """Each epoch, samples become vectors and meet those of all labels; of many, only those of their batch."""
    X, few = p.words, p.n_labels <= FEW
    epochs, compared, n_steps = (30, p.n_labels, steps(p, 32, 128)) if few else (15, 1024, p.n_samples / 1024)
    table, labels, updates = X.width * D / M, p.n_labels * D / M, epochs * n_steps / K
    return Work(
        (1, updates, epochs * X.nonzeros * D / G, epochs * p.n_samples * compared * D / G, updates * labels),
        (1, held(p, X), table + labels),
        (table, labels),
    )


def neuralxc(p: Profile) -> Work:
    """As glas, for inputs and for label sets, and back to both; all labels are always met."""
    X, few = p.words, p.n_labels <= FEW
    epochs, n_steps = (30, steps(p, 32, 128)) if few else (15, p.n_samples / 512)
    table, labels, updates = X.width * D / M, p.n_labels * D / M, epochs * n_steps / K
    return Work(
        (1, epochs * X.nonzeros * D / G, epochs * p.n_samples * p.n_labels * D / G, updates * (table + labels)),
        (1, held(p, X), table + labels),
        (table, labels),
    )


def aplc(p: Profile) -> Work:
    """A bag: each epoch, the vectors of tokens are summed up, and a layer of 512 numbers meets all labels."""
    epochs, layer = 20, 512 * (D + p.n_labels) / M
    return Work(
        (epochs * steps(p, 16, 128) / K, epochs * p.n_read(256, TOKENS) * D / G, epochs * p.n_samples * layer / K),
        (1, p.n_bytes / M, p.words.width * D / M, layer),
        (1, p.words.width * D / M, layer),
    )


def minilm_tuned(p: Profile) -> Work:
    """MiniLM reads each text, its last two layers learn for two epochs; a layer of 1,024 numbers meets all labels."""
    tokens, layer = p.n_read(96, TOKENS), 1024 * (DENSE + p.n_labels) / M
    return Work(
        (tokens / M, 12 * p.n_samples * layer / K),
        (1, p.n_bytes / M, tokens * DENSE / M, layer),
        (1, layer),
    )


def plt_minilm(p: Profile) -> Work:
    """MiniLM reads each text once; its numbers stand beside those of TF-IDF."""
    wide, tokens = plt(p, Terms(p.pairs.width + DENSE, p.pairs.nonzeros + DENSE * p.n_samples)), p.n_read(128, TOKENS)
    return Work((tokens / M, *wide.seconds[1:]), wide.memory, (1, *plt(p).size))


def lightattention(p: Profile) -> Work:
    """Each epoch, a BiLSTM reads all words, and every label, or those of some clusters, attends to them.

    What a label makes of a text after that costs as much as attending to 64 words.
    """
    epochs, words = 10, p.n_read(500)
    met = p.n_labels if p.n_labels <= FLAT else CANDIDATES + p.n_labels / 16
    table, labels = p.words.width * 128 / M, p.n_labels * 512 / M
    return Work(
        (epochs * steps(p, 16, 64) / K, epochs * words / M, epochs * (words + 64 * p.n_samples) * met / G),
        (1, p.n_bytes / M, table + labels, words / p.n_samples * met / K),
        (table, labels),
    )


def secseq(p: Profile) -> Work:
    """Each epoch, samples become vectors, which meet the symbols on the way to each of their labels."""
    epochs, X, (_, depth) = 30, p.pairs, size_of_codes(p.n_labels, learned=True)
    met = p.n_samples + (depth - 1) * p.n_pairs
    table = X.width * D / M
    return Work(
        (epochs * steps(p, 16, 64) / K, epochs * X.nonzeros * D / G, epochs * met * D * D / G),
        (1, held(p, X), table),
        (1, table, p.n_labels / M),
    )


def a_row(p: Profile, X: Terms) -> float:
    """Numbers of a sample that are not 0."""
    return X.nonzeros / p.n_samples


def held(p: Profile, X: Terms) -> float:
    """MB of data and features."""
    return (p.n_bytes + 8 * X.nonzeros) / M


def kept(p: Profile, X: Terms) -> float:
    """How many weights are not dropped: the fewer, the less new a label's samples bring, while there is room for more."""
    return min(p.n_fresh * pow(a_row(p, X), 0.25), p.n_labels * X.width / ROOM) / M


def reach(X: Terms) -> float:
    """How much longer a step takes where weights are too many for the cache."""
    return 1 + log2(1 + X.width / CACHED) / 4


def named(p: Profile, X: Terms) -> float:
    """Millions of terms and labels whose names are saved."""
    return ((X.width if p.has_texts else 0) + p.n_labels) / M


def steps(p: Profile, smallest: int, largest: int) -> float:
    """Of an epoch, where fewer samples make smaller steps."""
    return max(p.n_samples / largest, min(p.n_samples / smallest, 128))


@dataclass(frozen=True)
class Model:
    """A cost model: amounts of work, constants for them, and what kind of work it is."""

    work: Callable[[Profile], Work]
    seconds: Amounts
    memory: Amounts
    size: Amounts
    is_network: bool = True

    def cost(self, p: Profile, machine: Machine) -> Cost:
        """Of training with one thread."""
        amounts, speed = self.work(p), machine.dense if self.is_network else machine.sparse
        return Cost(
            dot(amounts.seconds, self.seconds) / speed, dot(amounts.memory, self.memory), dot(amounts.size, self.size)
        )


# Fitted to runs by least squares of relative errors, none below 0; those of reading texts (0.7 and 0.35), the start of glas
# (1), data in memory (2) and, for MiniLM, all but the first of time were set by hand, as runs could not tell them apart.
MODELS = {
    "ovr": Model(ovr, (0.7, 8.19), (LINEAR, 2, 1420), (223, 33.5), is_network=False),
    "plt": Model(plt, (0.7, 7.08, 10.4), (LINEAR, 2, 533), (93.3, 18.7), is_network=False),
    "hierarchicalxc": Model(hierarchicalxc, (0.35, 71, 3.53, 275), (LINEAR, 2, 261, 6300), (26.6, 20), is_network=False),
    "glas": Model(glas, (1, 1.18, 0.342, 0.143, 2.46), (NETWORK, 2, 46.5), (1.06, 2.47)),
    "neuralxc": Model(neuralxc, (6.75, 0.8, 0.0968, 1.28), (NETWORK, 2, 99.3), (4.14, 2.82)),
    "secseq": Model(secseq, (4.14, 1.83, 0.137), (NETWORK, 2, 38.8), (1.13, 1.08, 277)),
    "aplc": Model(aplc, (4.72, 3.58, 0.0448), (NETWORK, 2, 80.9, 34.4), (1.7, 1.43, 1.94)),
    "lightattention": Model(lightattention, (31.8, 12.3, 18.5), (NETWORK, 2, 223, 13.3), (2.23, 3.77)),
    "plt+minilm": Model(plt_minilm, (265, 7.08, 10.4), (PRETRAINED, 2, 533), (46, 93.3, 18.7)),
    "aplc:minilm-tuned": Model(minilm_tuned, (748, 0.3), (PRETRAINED, 2, 4, 16), (94.3, 1.83)),
}


def estimate(name: str, p: Profile, machine: Machine) -> Cost:
    """What a method of ``MODELS``, or a blend, costs."""
    if name in MODELS:
        return MODELS[name].cost(p, machine)
    first, second = members(name, p)
    one, other = first.cost(p, machine), second.cost(p, machine)
    seconds = TWICE * (one.seconds + other.seconds * (FEWER_EPOCHS if name == ATTENTIVE else 1))
    memory = max(one.memory + (NETWORK - LINEAR if second.is_network else 0), other.memory) + one.size
    return Cost(seconds, memory, one.size + other.size + (VECTORS if name == ATTENTIVE else 0))


def members(name: str, p: Profile) -> tuple[Model, Model]:
    """Of a blend: trees, and what else there is."""
    trees = MODELS["plt"]
    if name == ATTENTIVE:
        wide = Terms(p.pairs.width + D, p.pairs.nonzeros + D * p.n_samples)
        return replace(trees, work=lambda p: plt(p, wide)), MODELS["lightattention"]
    return trees, replace(trees, work=lambda p: plt(p, p.words)) if blend_of_trees(p) else MODELS["glas"]


def blend_of_trees(p: Profile) -> bool:
    """Whether the members of a blend are trees alone, of pairs of words and of single words."""
    return p.has_texts and p.n_labels > BLEND_MANY


def minutes(name: str, cost: Cost, threads: int) -> float:
    """Wall time, as a part of the work is spread over threads and the rest is not (Amdahl's law)."""
    linear = name in MODELS and not MODELS[name].is_network  # a blend may have a network
    spread = SPREAD_LINEAR if linear else SPREAD_NETWORK
    return cost.seconds * (1 - spread + spread / threads) / 60


def dot(amounts: Amounts, constants: Amounts) -> float:
    """Σ amount · constant."""
    return sum(amount * constant for amount, constant in zip(amounts, constants, strict=True))
