"""What training a method costs: amounts of work that its algorithm has, times constants that were measured.

The amounts follow from the algorithms with default settings: numbers that are not 0 times labels for one-vs-rest, tokens
times epochs for networks. The constants were fitted to CPU seconds, peaks of memory and sizes of training on real corpora
and slices of them (docs/choose.md). Amounts are in billions of operations, or in millions of what is read or held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2

from longtail.labelspace.codes import size_of_codes
from longtail.models.glas import FEW
from longtail.models.lightattention import CANDIDATES, FLAT
from longtail.models.plt import FLAT as UNCLUSTERED
from longtail.models.plt import MANY_LABELS, MOST_DOUBLINGS, TERMS
from longtail.plan.machine import Machine
from longtail.plan.profile import Profile, Terms

G, M = 1e9, 1e6
D = 256  # numbers of a vector of glas, neuralxc, secseq and of a bag
DENSE = 384  # of one of MiniLM
EMA = 20  # times an epoch that all weights are averaged
DIFFERENT, KEPT = 0.62, 8  # terms that are different grow by this power; about so many times them are kept
TOKENS = 1.4  # pieces of a word, for encoders
LINEAR, NETWORK, PRETRAINED = 180.0, 480.0, 600.0  # MB of Python, kernels and the compiler; and torch; and MiniLM
TWICE = 1.9  # a blend trains its members on nine tenths of the samples, then on all
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
        (1, held(p, X), X.width / M, kept(p, X)),
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
        (p.n_words / M, X.nonzeros * met / G, centres / G, weights),
        (1, held(p, X), X.width / M, weights),
        (weights, named(p, X)),
    )


def hierarchicalxc(p: Profile) -> Work:
    """A sample meets two children on each step to each of its labels; labels are joined by what stands together."""
    X, together = p.words, min(p.n_together, p.n_labels**2)
    return Work(
        (p.n_words / M, X.nonzeros * p.labels_a_sample * log2(2 * p.n_labels) / G, together / M, p.n_labels / M),
        (1, held(p, X), together / M, p.n_labels / M),
        (kept(p, X), named(p, X), p.n_labels / M),
    )


def glas(p: Profile) -> Work:
    """Each epoch, samples become vectors and meet those of all labels; of many, only those of their batch."""
    X, few = p.words, p.n_labels <= FEW
    epochs, compared, n_steps = (30, p.n_labels, steps(p, 32, 128)) if few else (15, 1024, p.n_samples / 1024)
    table, labels = X.width * D / M, p.n_labels * D / M
    return Work(
        (1, epochs * X.nonzeros * D / G, epochs * p.n_samples * compared * D / G, epochs * n_steps * labels / 1e3),
        (1, held(p, X), table + labels, compared * D / M),
        (table, labels),
    )


def neuralxc(p: Profile) -> Work:
    """As glas, for inputs and for label sets, and back to both; all labels are always met."""
    X, few = p.words, p.n_labels <= FEW
    epochs, n_steps = (30, steps(p, 32, 128)) if few else (15, p.n_samples / 512)
    table, labels = X.width * D / M, p.n_labels * D / M
    return Work(
        (
            1,
            epochs * X.nonzeros * D / G,
            epochs * p.n_samples * p.n_labels * D / G,
            epochs * n_steps * (table + labels) / 1e3,
        ),
        (1, held(p, X), table + labels),
        (table, labels),
    )


def aplc(p: Profile) -> Work:
    """A bag: each epoch, the vectors of tokens are summed up, and a layer of 512 numbers meets all labels."""
    epochs, layer = 20, 512 * (D + p.n_labels) / M
    return Work(
        (1, epochs * p.n_read(256, TOKENS) * D / G, epochs * p.n_samples * layer / 1e3),
        (1, p.n_bytes / M, p.words.width * D / M, layer),
        (1, p.words.width * D / M, layer),
    )


def minilm_tuned(p: Profile) -> Work:
    """MiniLM reads each text, its last two layers learn for two epochs; a layer of 1,024 numbers meets all labels."""
    tokens, layer = p.n_read(96, TOKENS), 1024 * (DENSE + p.n_labels) / M
    return Work(
        (tokens / M, 12 * p.n_samples * layer / 1e3),
        (1, p.n_bytes / M, tokens * DENSE / M, layer),
        (1, layer),
    )


def plt_minilm(p: Profile) -> Work:
    """MiniLM reads each text once; its numbers stand beside those of TF-IDF."""
    wide, tokens = plt(p, Terms(p.pairs.width + DENSE, p.pairs.nonzeros + DENSE * p.n_samples)), p.n_read(128, TOKENS)
    return Work((tokens / M, *wide.seconds[1:]), wide.memory, (1, *plt(p).size))


def lightattention(p: Profile) -> Work:
    """Each epoch, a BiLSTM reads all words, and every label, or those of some clusters, attends to them."""
    epochs, words = 10, p.n_read(500)
    met = p.n_labels if p.n_labels <= FLAT else CANDIDATES + p.n_labels / 16
    table, labels = p.words.width * 128 / M, p.n_labels * 512 / M
    return Work(
        (1, epochs * words / M, epochs * words * met / G, epochs * p.n_samples * met / G),
        (1, p.n_bytes / M, table + labels, words / p.n_samples * met / 1e3),
        (table, labels),
    )


def secseq(p: Profile) -> Work:
    """Each epoch, samples become vectors, which meet the symbols on the way to each of their labels."""
    epochs, X, (_, depth) = 30, p.pairs, size_of_codes(p.n_labels, learned=True)
    met = p.n_samples + (depth - 1) * p.n_pairs
    table = X.width * D / M
    return Work(
        (
            1,
            epochs * X.nonzeros * D / G,
            epochs * met * D * D / G,
            epochs * EMA * table / 1e3,
            epochs * steps(p, 16, 64) / M,
        ),
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
    """Millions of weights that linear models keep, but for a factor: labels with more samples meet more different terms."""
    met = a_row(p, X) * p.n_pairs / p.n_labels  # terms of its samples, with those that stand in several
    return float(p.n_labels * min(met**DIFFERENT, X.width / KEPT) / M)


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


# Fitted by least squares of relative errors, none below 0; the first of memory is what an empty process of that kind takes.
MODELS = {
    "ovr": Model(ovr, (2.01, 6.89), (LINEAR, 5.36, 0, 234), (57.8, 40), is_network=False),
    "plt": Model(plt, (1.83, 8.47, 13, 0), (LINEAR, 0, 424, 185), (25.9, 24.9), is_network=False),
    "hierarchicalxc": Model(
        hierarchicalxc, (0, 65.3, 6.02, 260), (LINEAR, 2.02, 260, 6330), (72.1, 26.2, 610), is_network=False
    ),
    "glas": Model(glas, (4.91, 0.882, 0.0655, 4.74), (NETWORK, 1.54, 0, 834), (1.06, 2.47)),
    "neuralxc": Model(neuralxc, (0, 1.91, 0.126, 3.16), (NETWORK, 1.32, 116), (4.15, 2.81)),
    "secseq": Model(secseq, (11.6, 2.12, 0.261, 0, 0), (NETWORK, 80.9, 0), (1.13, 1.08, 277)),
    "aplc": Model(aplc, (11.1, 4.34, 0.0472), (NETWORK, 0, 82.6, 34.2), (1.7, 1.43, 1.94)),
    "lightattention": Model(lightattention, (0, 15.1, 44.7, 0), (NETWORK, 0, 0, 28.1), (2.44, 0)),
    "plt+minilm": Model(plt_minilm, (112, 126, 0, 0), (PRETRAINED, 0, 424, 185), (44.9, 40.5, 0)),
    "aplc:minilm-tuned": Model(minilm_tuned, (591, 1.21), (PRETRAINED, 5, 4, 16), (94.3, 1.83)),
}


def estimate(name: str, p: Profile, machine: Machine) -> Cost:
    """What a method of ``MODELS``, or a blend of plt and glas, costs."""
    if name != "blend":
        return MODELS[name].cost(p, machine)
    first, second = (estimate(member, p, machine) for member in ("plt", "glas"))
    seconds = TWICE * (first.seconds + second.seconds)  # members learn without what is held out, then from all
    return Cost(seconds, max(first.memory + NETWORK - LINEAR, second.memory) + first.size, first.size + second.size)


def minutes(name: str, cost: Cost, threads: int) -> float:
    """Wall time, as a part of the work is spread over threads and the rest is not (Amdahl's law)."""
    linear = name in MODELS and not MODELS[name].is_network
    spread = SPREAD_LINEAR if linear else SPREAD_NETWORK
    return cost.seconds * (1 - spread + spread / threads) / 60


def dot(amounts: Amounts, constants: Amounts) -> float:
    """Σ amount · constant."""
    return sum(amount * constant for amount, constant in zip(amounts, constants, strict=True))
