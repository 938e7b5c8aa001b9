"""Settings of SeCSeq, and the plan that fills in those that depend on the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import scipy.sparse as sp

from longtail.features.pretrained import SCRATCH_ENCODERS, STATIC_VECTORS
from longtail.features.token_rows import TokenRows
from longtail.nn.schedule import SCHEDULES
from longtail.nn.settings import TrainingPlan, TrainingSettings, choose_batch
from longtail.settings import setting, settings

WORDS = "words"  # the encoder that reads TF-IDF vectors; all others read tokens
Texts: TypeAlias = sp.csr_array | TokenRows  # what encoders read
BAGS = ("bag", *STATIC_VECTORS)  # encoders that average token vectors
LABEL_ORDERS = ("freq_desc", "freq_asc", "code", "random")
DECODINGS = ("best", "beams", "samples", "direct")

_CODES_PER_LABEL = 16  # of random codes; with fewer, too many labels share a code
_MIN_RANDOM_SYMBOLS, _MIN_RANDOM_DEPTH = 64, 3
_MAX_LEARNED_SYMBOLS = 256


@dataclass(frozen=True, kw_only=True)
class SecSeqPlan(TrainingPlan):
    """The settings that depend on the data, with their values filled in."""

    n_symbols: int  # K
    depth: int  # D


@settings
class SecSeqSettings(TrainingSettings):
    """Settings of SeCSeq."""

    target: str = setting(
        "What the network predicts: sequence (the codes of all labels of a text, one after the other) or set (for each"
        " prefix of a code, which symbols follow it).",
        default="set",
        paper="sequence",
        choices=("set", "sequence"),
    )
    encoder: str = setting(
        "Text encoder: words (a layer over TF-IDF); bag, gru, lstm, transformer or xlnet, trained from scratch; or the name"
        " or folder of a pretrained model, which is fine-tuned.",
        default=WORDS,
        paper="gru",
    )
    ngrams: int = setting("Longest n-gram of words that encoder=words reads.", default=2, positive=True)
    width: int = setting(
        "Dimension of an encoder trained from scratch. If it reads tokens: even, and above 64 a multiple of 64.",
        default=256,
        paper="1024",
        positive=True,
    )
    token_width: int | None = setting(
        "Dimension of the token vectors of the encoders gru and lstm. None: as width.",
        default=None,
        paper="512",
        positive=True,
    )
    layers: int = setting("Number of layers of an encoder trained from scratch.", default=1, paper="1", positive=True)
    max_length: int = setting("Tokens read per text; the rest is cut off.", default=256, paper="300", positive=True)
    n_pieces: int | None = setting(
        "Number of word pieces of an encoder trained from scratch. None: one for each word that occurs at least twice, at"
        " most 32,000.",
        default=None,
        paper="50,000 words",
        positive=True,
    )
    keep_digits: bool = setting(
        "Whether numbers are read as they are; if not, all are read as 0.", default=True, paper="false"
    )

    coding: str = setting(
        "How labels get their codes: random (quantised random projections of label vectors) or learned (paths in a tree of"
        " balanced 2-means over label vectors).",
        default="learned",
        paper="random",
        choices=("learned", "random"),
    )
    embedding: str = setting(
        "Label vectors from which codes are made: pifa (words of a label's texts), indicator (which texts have the label),"
        " texts (words of label names and descriptions) or graph (random walks over labels that co-occur).",
        default="pifa",
        paper="not given",
        choices=("pifa", "indicator", "texts", "graph"),
    )
    quantiser: str = setting(
        "How a random projection becomes K symbols: ordinal (ranges with equally many labels) or uniform (ranges of equal"
        " width).",
        default="ordinal",
        paper="both named",
        choices=("ordinal", "uniform"),
    )
    n_symbols: int | None = setting(
        "K, the number of different symbols. None: chosen by the number of labels. Learned codes need a power of two.",
        default=None,
        paper="not given",
        positive=True,
    )
    depth: int | None = setting(
        "D, the number of symbols of a code. None: chosen by the number of labels. 1 without n_symbols gives each label its"
        " own symbol, as in mlc2seq.",
        default=None,
        paper="not given",
        positive=True,
    )
    n_trees: int = setting(
        "M, independent codings, each with its own network; their scores are averaged.",
        default=1,
        paper="1 and 4",
        positive=True,
    )

    label_order: str = setting(
        "Order of the labels in a sequence: freq_desc or freq_asc (by number of training texts), code (by their codes) or"
        " random.",
        default="freq_desc",
        paper="not given",
        choices=LABEL_ORDERS,
    )
    positions: bool = setting(
        "Whether the decoder of sequences gets an embedding of the position within the code.",
        default=False,
        paper="not given",
    )
    max_labels: int = setting("Maximum number of labels of a sequence.", default=30, paper="30 (mlc2seq)", positive=True)
    hidden: int = setting(
        "Hidden units: of the decoder of sequences, or of the layers of target=set.",
        default=256,
        paper="1024",
        positive=True,
    )
    symbol_width: int = setting(
        "Dimension of symbol embeddings and of the layer before the output, with target=sequence.",
        default=256,
        paper="256",
        positive=True,
    )
    dropout: float = setting(
        "Dropout rate: of the layer before the output with target=sequence, of text vectors with target=set.",
        default=0.2,
        paper="0.2",
        minimum=0,
        below=1,
    )
    keep_prob: float = setting(
        "Input dropout of encoder=words: probability of keeping a word.", default=0.8, positive=True, maximum=1
    )

    decoding: str = setting(
        "How sequences become label scores: best (label counts of the best sequence of the beam), beams (of all its"
        " sequences, weighted by probability), samples (of sampled sequences) or direct (probability that a label's code is"
        " generated).",
        default="direct",
        paper="best or samples",
        choices=DECODINGS,
    )
    beam: int = setting(
        "Beam width, for sequences and for the search with target=set.", default=10, paper="5", positive=True
    )
    samples: int = setting("Sequences sampled per text with decoding=samples.", default=32, paper="not given", positive=True)
    constrained: bool = setting(
        "Whether only codes that a label has are generated; decoding=direct always does so.",
        default=False,
        paper="false",
    )

    rate: float | None = setting(
        "Learning rate of the encoder. None: 30 for words (plain SGD), 0.05 for a bag, 0.001 for other encoders trained from"
        " scratch, 0.0001 for pretrained ones.",
        default=None,
        paper="0.0002",
        positive=True,
    )
    head_rate: float = setting("Learning rate of all other layers.", default=0.001, paper="0.0002", positive=True)
    batch: int | None = setting(
        "Texts per batch. None: 16 to 64, depending on the number of texts.", default=None, paper="64", positive=True
    )
    epochs: int = setting("Maximum number of epochs.", default=30, paper="20", positive=True)
    schedule: str = setting(
        f"Learning-rate schedule: {', '.join(SCHEDULES)}.", default="linear", paper="constant", choices=SCHEDULES
    )
    clip: float = setting(
        "Maximum norm of the gradient of the dense parameters. 0: no clipping.", default=1.0, paper="1", minimum=0
    )
    average: str = setting(
        "Weight averaging: none, swa or ema.", default="ema", paper="none", choices=("none", "swa", "ema")
    )
    patience: int = setting(
        "Epochs without a better validation score before training stops. 0: never.", default=5, paper="10", minimum=0
    )
    holdout: float = setting(
        "Share of the training data held out for early stopping if no validation data is given.",
        default=0.05,
        paper="0.1",
        minimum=0,
        maximum=0.5,
    )
    jobs: int = setting("Trees trained at the same time, each in its own process.", default=1, positive=True)
    log: str | None = setting(
        "File that gets one JSON line per epoch. With several trees, one file each: FILE.0, FILE.1, …", default=None
    )
    checkpoint: str | None = setting(
        "File from which a killed run resumes. With several trees, one file each: FILE.0, FILE.1, …", default=None
    )
    cache: str | None = setting("Folder that keeps the tokens of the training texts for the next run.", default=None)

    def plan(self, n_samples: int, n_labels: int) -> SecSeqPlan:
        """Fill in what depends on the number of training texts and of labels that have one."""
        rates = {WORDS: 30.0, **dict.fromkeys(SCRATCH_ENCODERS, 1e-3), **dict.fromkeys(BAGS, 0.05)}
        n_symbols, depth = choose_code_size(
            n_labels, learned=self.coding == "learned", n_symbols=self.n_symbols, depth=self.depth
        )
        return SecSeqPlan(
            batch=self.batch or choose_batch(n_samples, 16, 64),
            epochs=self.epochs,
            rate=self.rate or rates.get(self.encoder, 1e-4),
            n_symbols=n_symbols,
            depth=depth,
        )


def choose_code_size(
    n_labels: int, *, learned: bool = False, n_symbols: int | None = None, depth: int | None = None
) -> tuple[int, int]:
    """Choose K and D by the number of labels; what is given is kept.

    Random codes: K^D is at least 16 times the number of labels, starting at K = 64 and D = 3. ``depth=1`` alone gives each
    label its own symbol, as in mlc2seq. Learned codes: each label has its own symbol up to 256 labels; for more labels,
    K = 256 and D is as small as possible.

    >>> [choose_code_size(n) for n in (600, 25_000, 1_000_000)], choose_code_size(600, depth=1)
    ([(64, 3), (128, 3), (256, 3)], (600, 1))
    >>> [choose_code_size(n, learned=True) for n in (100, 600, 25_000, 1_000_000)]
    [(128, 1), (256, 2), (256, 2), (256, 3)]
    """
    if learned:
        return _choose_learned_size(n_labels, n_symbols, depth)
    if depth == 1 and n_symbols is None:
        return n_labels, 1
    K, D = n_symbols or _MIN_RANDOM_SYMBOLS, depth or _MIN_RANDOM_DEPTH
    min_codes = _CODES_PER_LABEL * n_labels
    while min_codes > K**D and not n_symbols:
        K *= 2
    while min_codes > K**D and not depth and K > 1:
        D += 1
    return K, D


def _choose_learned_size(n_labels: int, n_symbols: int | None, depth: int | None) -> tuple[int, int]:
    K, D = n_symbols or 2, depth or 1
    while count_learned_codes(K, D) < n_labels and not n_symbols and (K < _MAX_LEARNED_SYMBOLS or depth):
        K *= 2
    while count_learned_codes(K, D) < n_labels and not depth and K > 1:
        D += 1
    return K, D


def count_learned_codes(n_symbols: int, depth: int) -> int:
    """Number of labels that learned codes of this size can distinguish.

    With D > 1, half of the first symbols belong to one frequent label each, the other half start all other codes.
    """
    return n_symbols if depth == 1 else n_symbols // 2 * (1 + n_symbols ** (depth - 1))
