"""What training a method costs: the amount of work of its algorithm, times constants fitted to measurements.

The amounts follow from the algorithms with default settings: non-zeros times labels for one-vs-rest, tokens times epochs for
networks. They are in billions of operations, or in millions of values read or stored. The constants are in costs.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import log2, pow
from pathlib import Path
from typing import Any

from longtail.linear.trial import MAX_NONZEROS
from longtail.models.aplc.settings import AplcSettings
from longtail.models.blend.settings import MANY_LABELS as BLEND_MANY
from longtail.models.glas.plan import MAX_FULL_LOSS_LABELS
from longtail.models.glas.settings import GlasSettings
from longtail.models.lightattention.settings import (
    MAX_EXHAUSTIVE_LABELS,
    N_CANDIDATES,
    N_CANDIDATES_OF_SUM,
    LightAttentionSettings,
    choose_max_length,
)
from longtail.models.neuralxc.settings import NeuralXCSettings
from longtail.models.plt.model import FEATURES_PER_LABEL
from longtail.models.plt.settings import MAX_FLAT_LABELS, MAX_LOG2_FANOUT, SINGLE_TREE_LABELS
from longtail.models.secseq.settings import SecSeqSettings
from longtail.selection.machine import Machine
from longtail.selection.profile import Profile, Terms

BLEND, BLEND_ATTENTION, DENSE_PLT, TUNED_APLC = "blend", "blend:attention", "plt+dense=minilm", "aplc:minilm-tuned"

_BILLION, _MILLION, _THOUSAND = 1e9, 1e6, 1e3
_DIM, _WIDE_DIM = 256, 512  # dimensions of glas and wordllama; of secseq
_MINILM_DIM = 384
_DENSE_SHARE = 40  # possible weights per stored weight where nearly all features occur with nearly all labels
_CACHED_FEATURES = 10_000  # features whose weights fit into the processor's cache
_TOKENS_PER_WORD = 1.6
LINEAR_MB, _NETWORK_MB = 180.0, 480.0  # memory of a process without and with torch
_TRIAL_FITS = 5  # models that a linear method fits in trials, of features and C
_SYMBOLS = 512  # of the codes of secseq, about
_BLEND_FITS = 1.9  # a blend fits its members on nine tenths of the samples, then on all
_ATTENTION_EPOCHS, _WORDLLAMA_MB = 0.6, 17  # of BLEND_ATTENTION: 6 epochs instead of 10; its encoder
_PARALLEL_LINEAR, _PARALLEL_NETWORK = 0.9, 0.5  # share of the work that threads share; assumed, not measured

Amounts = tuple[float, ...]


@dataclass(frozen=True)
class Work:
    """Amounts of work that CPU seconds, peak memory and model size are proportional to."""

    seconds: Amounts
    memory: Amounts
    size: Amounts


@dataclass(frozen=True)
class Cost:
    """CPU seconds with one thread, MB of peak memory, and MB of the saved model."""

    seconds: float
    memory: float
    size: float


@dataclass(frozen=True)
class CostModel:
    """The work of a method, and the constants of costs.toml."""

    work: Callable[[Profile], Work]
    seconds: Amounts
    memory: Amounts
    size: Amounts
    is_network: bool

    def estimate(self, p: Profile, machine: Machine) -> Cost:
        """The cost of training with one thread."""
        work, speed = self.work(p), machine.dense if self.is_network else machine.sparse
        return Cost(_dot(work.seconds, self.seconds) / speed, _dot(work.memory, self.memory), _dot(work.size, self.size))


@cache
def read_constants() -> Mapping[str, Any]:
    """The content of costs.toml."""
    return tomllib.loads(Path(__file__).with_name("costs.toml").read_text("utf-8"))


@cache
def cost_models() -> Mapping[str, CostModel]:
    """The cost model of every method but blends, by spec."""
    constants = read_constants()
    linear = ("ovr", "plt", "hierarchicalxc")
    return {
        spec: CostModel(
            work, is_network=spec not in linear, **{name: tuple(values) for name, values in constants[spec].items()}
        )
        for spec, work in _WORK.items()
    }


def estimate(spec: str, p: Profile, machine: Machine) -> Cost:
    """The cost of training a method or a blend."""
    models = cost_models()
    if spec in models:
        return models[spec].estimate(p, machine)
    first, second = _members(spec, p)
    one, other = first.estimate(p, machine), second.estimate(p, machine)
    seconds = _BLEND_FITS * (one.seconds + other.seconds * (_ATTENTION_EPOCHS if spec == BLEND_ATTENTION else 1))
    memory = max(one.memory + (_NETWORK_MB - LINEAR_MB if second.is_network else 0), other.memory) + one.size
    return Cost(seconds, memory, one.size + other.size + (_WORDLLAMA_MB if spec == BLEND_ATTENTION else 0))


def is_blend_of_trees(p: Profile) -> bool:
    """Whether the default blend has linear members only: trees on words and word pairs, and on words."""
    return p.has_texts and p.n_labels > BLEND_MANY


def estimate_minutes(spec: str, cost: Cost, threads: int) -> float:
    """Wall time: threads share a part of the work (Amdahl's law)."""
    models = cost_models()
    linear = spec in models and not models[spec].is_network  # a blend may have a network
    parallel = _PARALLEL_LINEAR if linear else _PARALLEL_NETWORK
    return cost.seconds * (1 - parallel + parallel / threads) / 60


def _members(spec: str, p: Profile) -> tuple[CostModel, CostModel]:
    models = cost_models()
    trees = models["plt"]
    if spec == BLEND_ATTENTION:
        wide = Terms(p.linear_terms.width + _DIM, p.linear_terms.nonzeros + _DIM * p.n_samples)
        return replace(trees, work=lambda p: _count_plt(p, wide)), models["lightattention"]
    return trees, replace(trees, work=lambda p: _count_plt(p, p.unigrams)) if is_blend_of_trees(p) else models["glas"]


def _count_ovr(p: Profile) -> Work:
    """The solver passes over all non-zeros, for each label; in a trial, over those of some labels."""
    X, share = p.linear_terms, _trial_share(p)
    return Work(
        (p.n_words / _MILLION, (1 + _TRIAL_FITS * share) * X.nonzeros * p.n_labels / _BILLION),
        (1, _data_mb(p, X), _n_weights(p, X)),
        (_n_weights(p, X), _n_names(p, X)),
    )


def _count_plt(p: Profile, X: Terms | None = None) -> Work:
    """In each tree, a sample is compared with the children of the root and the labels of its positive clusters."""
    X = X or p.linear_terms
    n_trees = 1 if p.n_labels >= SINGLE_TREE_LABELS else 3
    fanout = 2 ** min(log2(2 * p.n_labels) / 2, MAX_LOG2_FANOUT)
    compared = n_trees * (fanout + min(p.labels_per_sample, fanout) * p.n_labels / fanout)
    if p.n_labels <= MAX_FLAT_LABELS:  # the first tree is one classifier for each label
        compared = compared * 2 / 3 + p.n_labels
    centres = n_trees * min(p.n_labels * FEATURES_PER_LABEL, p.n_pairs * _row_length(p, X)) * fanout
    weights = n_trees * _n_weights(p, X)
    compared *= 1 + _TRIAL_FITS / n_trees * _trial_share(p)  # a trial fits one tree
    return Work(
        (p.n_words / _MILLION, _cache_factor(X) * X.nonzeros * compared / _BILLION, centres / _BILLION),
        (1, _data_mb(p, X), weights),
        (weights, _n_names(p, X)),
    )


def _trial_share(p: Profile) -> float:
    """The share of the data on which trials compare settings."""
    return min(MAX_NONZEROS / max(p.unigrams.nonzeros, 1), 1.0)


def _count_hierarchicalxc(p: Profile) -> Work:
    """As one tree of plt, in which clustering merges co-occurring labels."""
    X, cooccurrences = p.linear_terms, min(p.n_cooccurrences, p.n_labels**2)
    fanout = 2 ** min(log2(2 * p.n_labels) / 2, MAX_LOG2_FANOUT)
    compared = (fanout + min(p.labels_per_sample, fanout) * p.n_labels / fanout) * (1 + _TRIAL_FITS * _trial_share(p))
    return Work(
        (
            p.n_words / _MILLION,
            _cache_factor(X) * X.nonzeros * compared / _BILLION,
            cooccurrences / _MILLION,
            p.n_labels / _MILLION,
        ),
        (1, _data_mb(p, X), cooccurrences / _MILLION, p.n_labels / _MILLION),
        (_n_weights(p, X), _n_names(p, X)),
    )


def _count_glas(p: Profile) -> Work:
    """In each epoch, samples are embedded and compared with all labels, or with those of their batch if there are many."""
    X, plan = p.unigrams, GlasSettings().plan(p.n_samples, p.n_labels)
    epochs, compared, n_steps = plan.epochs, plan.batch, p.n_samples / plan.batch
    if plan.negatives == "all":
        compared, n_steps = p.n_labels, _n_steps(p, 32, 128) if plan.loss == "bce" else _n_steps(p, 64, 256)
    compared *= 2 if plan.loss == "softmax" else 1  # its normaliser needs a pass before
    table, labels, updates = X.width * _DIM / _MILLION, p.n_labels * _DIM / _MILLION, epochs * n_steps / _THOUSAND
    return Work(
        (
            1,
            updates,
            epochs * X.nonzeros * _DIM / _BILLION,
            epochs * p.n_samples * compared * _DIM / _BILLION,
            updates * labels,
        ),
        (1, _data_mb(p, X), table + labels),
        (table, labels),
    )


def _count_neuralxc(p: Profile) -> Work:
    """As glas, for inputs and label sets, with a decoder for both; always all labels. It reconstructs frequent features."""
    X, plan = p.unigrams, NeuralXCSettings().plan(p.n_samples, p.unigrams.width, p.n_labels)
    epochs, dim = plan.epochs, plan.encoder_widths[-1]
    n_steps = _n_steps(p, 32, 128) if p.n_labels <= MAX_FULL_LOSS_LABELS else p.n_samples / plan.batch
    encoder, decoder = (width * dim / _MILLION for width in (X.width, plan.n_reconstructed))
    tables, labels, updates = (encoder + decoder) / 2, p.n_labels * dim / _MILLION, epochs * n_steps / _THOUSAND
    return Work(
        (
            1,
            epochs * X.nonzeros * dim / _BILLION,
            epochs * p.n_samples * p.n_labels * dim / _BILLION,
            updates * (tables + labels),
        ),
        (1, _data_mb(p, X), tables + labels),
        (encoder, decoder, labels),
    )


def _count_aplc(p: Profile) -> Work:
    """In each epoch, vectors of features are summed, and 512 units are compared with all labels."""
    X, plan = p.unigrams, AplcSettings().plan(p.n_samples, p.n_labels, p.unigrams.width)
    epochs, table, layer = plan.epochs, X.width * plan.width / _MILLION, plan.hidden * (plan.width + p.n_labels) / _MILLION
    return Work(
        (
            epochs * _n_steps(p, 16, 128) / _THOUSAND,
            epochs * X.nonzeros * plan.width / _BILLION,
            epochs * p.n_samples * layer / _THOUSAND,
        ),
        (1, _data_mb(p, X), table, layer),
        (1, table, layer),
    )


def _count_minilm_tuned(p: Profile) -> Work:
    """MiniLM encodes each text, its last two layers are trained for two epochs, with a hidden layer of 1,024 units."""
    tokens, layer = p.n_read(96, _TOKENS_PER_WORD), 1024 * (_MINILM_DIM + p.n_labels) / _MILLION
    return Work(
        (tokens / _MILLION, 12 * p.n_samples * layer / _THOUSAND),
        (1, p.n_bytes / _MILLION, tokens * _MINILM_DIM / _MILLION, layer),
        (1, layer),
    )


def _count_plt_minilm(p: Profile) -> Work:
    """MiniLM encodes each text once; its vectors are appended to those of TF-IDF."""
    wide, tokens = (
        _count_plt(p, Terms(p.linear_terms.width + _MINILM_DIM, p.linear_terms.nonzeros + _MINILM_DIM * p.n_samples)),
        p.n_read(128, _TOKENS_PER_WORD),
    )
    return Work((tokens / _MILLION, *wide.seconds[1:]), wide.memory, (1, *_count_plt(p).size))


def _count_lightattention(p: Profile) -> Work:
    """In each epoch, a BiLSTM reads all words, and all labels, or those of some clusters, attend to them.

    The layers after the attention cost as much as attending to 64 words.
    """
    words, has_tree = p.n_read(choose_max_length(p.words_per_text)), p.n_labels > MAX_EXHAUSTIVE_LABELS
    plan = LightAttentionSettings().plan(p.n_samples, p.n_labels)
    epochs, n_candidates = plan.epochs, N_CANDIDATES_OF_SUM if plan.sparse_part else N_CANDIDATES
    compared = n_candidates + p.n_labels / 16 if has_tree else p.n_labels
    table, labels = p.unigrams.width * (300 if has_tree else 128) / _MILLION, p.n_labels * 512 / _MILLION
    return Work(
        (
            epochs * _n_steps(p, 16, 64) / _THOUSAND,
            epochs * words / _MILLION,
            epochs * (words + 64 * p.n_samples) * compared / _BILLION,
        ),
        (1, p.n_bytes / _MILLION, table + labels, words / p.n_samples * compared / _THOUSAND),
        (table, labels),
    )


def _count_secseq(p: Profile) -> Work:
    """In each epoch of each tree, samples are embedded and compared with the symbols on the path to each of their labels."""
    X, plan = p.unigrams, SecSeqSettings().plan(p.n_samples, p.n_labels)
    epochs = plan.n_trees * plan.epochs
    compared = (p.n_samples + (plan.depth - 1) * p.n_pairs) * min(_SYMBOLS, p.n_labels)
    table, labels = X.width * _WIDE_DIM / _MILLION, p.n_labels * _WIDE_DIM / _MILLION
    return Work(
        (
            epochs * _n_steps(p, 16, 64) / _THOUSAND,
            epochs * X.nonzeros * _WIDE_DIM / _BILLION,
            epochs * compared * _WIDE_DIM / _BILLION,
        ),
        (1, _data_mb(p, X), plan.n_trees * (table + labels)),
        (1, plan.n_trees * table, plan.n_trees * labels),
    )


def _row_length(p: Profile, X: Terms) -> float:
    """Non-zeros per sample."""
    return X.nonzeros / p.n_samples


def _data_mb(p: Profile, X: Terms) -> float:
    """MB of data and features."""
    return (p.n_bytes + 8 * X.nonzeros) / _MILLION


def _n_weights(p: Profile, X: Terms) -> float:
    """Millions of weights that are stored: more with every new feature that a label's samples bring, up to a limit."""
    return min(p.n_distinct * pow(_row_length(p, X), 0.25), p.n_labels * X.width / _DENSE_SHARE) / _MILLION


def _cache_factor(X: Terms) -> float:
    """How much slower a step is when the weights do not fit into the cache."""
    return 1 + log2(1 + X.width / _CACHED_FEATURES) / 4


def _n_names(p: Profile, X: Terms) -> float:
    """Millions of terms and labels whose names are saved."""
    return ((X.width if p.has_texts else 0) + p.n_labels) / _MILLION


def _n_steps(p: Profile, smallest: int, largest: int) -> float:
    """Steps per epoch; the batch size grows with the number of samples."""
    return max(p.n_samples / largest, min(p.n_samples / smallest, 128))


def _dot(amounts: Amounts, constants: Amounts) -> float:
    return sum(amount * constant for amount, constant in zip(amounts, constants, strict=True))


_WORK: dict[str, Callable[[Profile], Work]] = {
    "ovr": _count_ovr,
    "plt": _count_plt,
    "hierarchicalxc": _count_hierarchicalxc,
    "glas": _count_glas,
    "neuralxc": _count_neuralxc,
    "secseq": _count_secseq,
    "aplc": _count_aplc,
    "lightattention": _count_lightattention,
    DENSE_PLT: _count_plt_minilm,
    TUNED_APLC: _count_minilm_tuned,
}
