"""How much work training is: amounts that follow from the algorithm of each method, with its default settings.

Non-zeros times labels for one-vs-rest, for instance, and tokens times epochs for networks. They are in billions of
operations, or in millions of values read or stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2, pow

from longtail.linear.trial import MAX_NONZEROS
from longtail.models.aplc.settings import AplcSettings
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
from longtail.selection.profile import Profile, Terms

DENSE_PLT, TUNED_APLC = "plt+dense=minilm", "aplc:minilm-tuned"

_BILLION, _MILLION, _THOUSAND = 1e9, 1e6, 1e3
_GLAS_DIM, _WIDE_DIM = 256, 512  # dimensions of glas; of secseq
_MINILM_DIM = 384
_DENSE_SHARE = 40  # possible weights per stored weight where nearly all features occur with nearly all labels
_CACHED_FEATURES = 10_000  # features whose weights fit into the processor's cache
_TOKENS_PER_WORD = 1.6
_TRIAL_FITS = 5  # models that a linear method fits in trials, of features and C
_SYMBOLS = 512  # of the codes of secseq, about

Amounts = tuple[float, ...]


@dataclass(frozen=True)
class Work:
    """Amounts of work that CPU seconds, peak memory and model size are proportional to."""

    seconds: Amounts
    memory: Amounts
    size: Amounts


def _count_ovr(p: Profile) -> Work:
    """The solver passes over all non-zeros, for each label; in a trial, over those of some labels."""
    X, share = p.linear_terms, _trial_share(p)
    return Work(
        (p.n_words / _MILLION, (1 + _TRIAL_FITS * share) * X.nonzeros * p.n_labels / _BILLION),
        (1, _data_mb(p, X), _n_weights(p, X)),
        (_n_weights(p, X), _n_names(p, X)),
    )


def count_plt(p: Profile, X: Terms | None = None) -> Work:
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
    table, labels, updates = X.width * _GLAS_DIM / _MILLION, p.n_labels * _GLAS_DIM / _MILLION, epochs * n_steps / _THOUSAND
    return Work(
        (
            1,
            updates,
            epochs * X.nonzeros * _GLAS_DIM / _BILLION,
            epochs * p.n_samples * compared * _GLAS_DIM / _BILLION,
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
        count_plt(p, Terms(p.linear_terms.width + _MINILM_DIM, p.linear_terms.nonzeros + _MINILM_DIM * p.n_samples)),
        p.n_read(128, _TOKENS_PER_WORD),
    )
    return Work((tokens / _MILLION, *wide.seconds[1:]), wide.memory, (1, *count_plt(p).size))


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


WORK: dict[str, Callable[[Profile], Work]] = {
    "ovr": _count_ovr,
    "plt": count_plt,
    "hierarchicalxc": _count_hierarchicalxc,
    "glas": _count_glas,
    "neuralxc": _count_neuralxc,
    "secseq": _count_secseq,
    "aplc": _count_aplc,
    "lightattention": _count_lightattention,
    DENSE_PLT: _count_plt_minilm,
    TUNED_APLC: _count_minilm_tuned,
}
