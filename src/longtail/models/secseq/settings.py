"""Settings of SeCSeq, and the plan that fills in those that depend on the data."""

from __future__ import annotations

from typing import TypeAlias

import scipy.sparse as sp

from longtail.conditions import Condition, refuse_unused
from longtail.errors import SettingError
from longtail.features.pretrained import SCRATCH_ENCODERS, STATIC_VECTORS
from longtail.features.token_rows import TokenRows
from longtail.labelspace.names import NameSettings
from longtail.linear.settings import SparsePartSettings
from longtail.models.secseq.plan import SecSeqPlan, choose_code_size
from longtail.nn.schedule import SCHEDULES
from longtail.nn.settings import TrainingSettings, choose_batch
from longtail.settings import setting, settings

WORDS = "words"  # the encoder that reads feature vectors; all others read tokens
Texts: TypeAlias = sp.csr_array | TokenRows  # what encoders read
BAGS = ("bag", *STATIC_VECTORS)  # encoders that average token vectors
RECURRENT = ("gru", "lstm")
LABEL_ORDERS = ("freq_desc", "freq_asc", "code", "random")
DECODINGS = ("best", "beams", "samples", "direct")

WORDS_WIDTH, TOKENS_WIDTH = 512, 256  # defaults of ``width``

_EPOCHS_FROM_CENTROIDS, _EPOCHS = 6, 30
_TREES_FROM_CENTROIDS, _MIN_LABELS_OF_ONE_TREE = 3, 50_000
_RATE_PER_TEXT = 5.0  # of word vectors with start=centroids: the loss is a mean over the batch


@settings
class SecSeqSettings(TrainingSettings, NameSettings, SparsePartSettings):
    """Settings of SeCSeq."""

    target: str = setting(
        "What the network predicts: sequence (the codes of all labels of a text, one after the other) or set (for each"
        " prefix of a code, which symbols follow it).",
        default="set",
        paper="sequence",
        choices=("set", "sequence"),
    )
    encoder: str = setting(
        "Encoder: words (a layer over the features of texts, or over feature vectors); bag, gru, lstm, transformer or xlnet,"
        " trained from scratch; or the name or folder of a pretrained model, which is fine-tuned.",
        default=WORDS,
        paper="gru",
    )
    width: int | None = setting(
        f"Dimension of an encoder trained from scratch; even, if it reads tokens. None: {WORDS_WIDTH} for words,"
        f" {TOKENS_WIDTH} for others.",
        default=None,
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
    word_vectors: str | None = setting(
        "Pretrained word vectors: a file in the text format of GloVe or word2vec, or wordllama. The encoders bag, gru and"
        " lstm then read whole words and start from these vectors. None: word pieces, whose vectors start at random.",
        default=None,
        paper="word2vec, trained on Wikipedia",
    )
    freeze_vectors: bool | None = setting(
        "Whether pretrained word vectors of the encoder stay fixed in training. None: yes.", default=None, paper="true"
    )
    n_pieces: int | None = setting(
        "Number of word pieces of an encoder trained from scratch, or of words with word_vectors. None: one for each word"
        " that occurs at least twice, at most 32,000.",
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
        " texts (words of label names and descriptions), word_vectors (the mean of the pretrained vectors of these words) or"
        " graph (random walks over labels that co-occur).",
        default="pifa",
        paper="not given",
        choices=("pifa", "indicator", "texts", "word_vectors", "graph"),
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
    n_trees: int | None = setting(
        f"M, independent codings, each with its own network; their scores are averaged. None: {_TREES_FROM_CENTROIDS} with"
        f" start=centroids and fewer than {_MIN_LABELS_OF_ONE_TREE:,} labels, else 1.",
        default=None,
        paper="1 and 4",
        positive=True,
    )

    start: str = setting(
        "Where target=set with encoder=words starts: centroids (symbols and codes at the mean of the vectors of their texts)"
        " or random.",
        default="centroids",
        choices=("centroids", "random"),
    )
    node_vectors: bool = setting(
        "Whether each code has its own vector in the output layer of target=set, which then grows with the labels. If not,"
        " sparse_part=None means false.",
        default=True,
        paper="false",
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
    max_labels: int = setting(
        "Maximum number of labels of a sequence.", default=30, paper="30 (mlc2seq)", positive=True, maximum=1000
    )
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
        "Beam width, for sequences and for the search with target=set.", default=20, paper="5", positive=True, maximum=1000
    )
    samples: int = setting(
        "Sequences sampled per text with decoding=samples.", default=32, paper="not given", positive=True, maximum=1000
    )
    constrained: bool = setting(
        "Whether only codes that a label has are generated; decoding=direct always does so.",
        default=False,
        paper="false",
    )

    rate: float | None = setting(
        "Learning rate of the encoder. None: for words (plain SGD) 30, or 5 times the batch with start=centroids; 0.05 for a"
        " bag, 0.001 for other encoders trained from scratch, 0.0001 for pretrained ones.",
        default=None,
        paper="0.0002",
        positive=True,
    )
    head_rate: float = setting("Learning rate of all other layers.", default=0.001, paper="0.0002", positive=True)
    batch: int | None = setting(
        "Texts per batch. None: 16 to 64, depending on the number of texts.", default=None, paper="64", positive=True
    )
    epochs: int | None = setting(
        f"Maximum number of epochs. None: {_EPOCHS_FROM_CENTROIDS} with start=centroids, else {_EPOCHS}.",
        default=None,
        paper="20",
        positive=True,
    )
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
        "Share of the training data held out for early stopping if no validation data is given; at least 20 samples, if that"
        " is at most a tenth.",
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

    def check(self) -> None:
        """Raise a ``SettingError`` for a wrong value, or one that has no effect next to the others."""
        super().check()
        sequences, words, scratch = self.target == "sequence", self.encoder == WORDS, self.encoder in SCRATCH_ENCODERS
        has_trees = self.starts_from_centroids if self.n_trees is None else self.n_trees > 1
        only_sequences = ("label_order", "positions", "max_labels", "symbol_width", "decoding")
        if self.embedding == "word_vectors" and self.word_vectors is None:
            raise SettingError("embedding=word_vectors needs pretrained vectors", hint="Set word_vectors=FILE or wordllama")
        uses_vectors = self.reads_word_vectors or self.embedding == "word_vectors"
        conditions = [
            Condition(uses_vectors, "encoder=bag, gru or lstm, or embedding=word_vectors", ("word_vectors",)),
            Condition(self.reads_word_vectors, "word_vectors, and encoder=bag, gru or lstm", ("freeze_vectors",)),
            Condition(sequences, "target=sequence", only_sequences),
            Condition(sequences and self.decoding == "samples", "target=sequence and decoding=samples", ("samples",)),
            Condition(sequences and self.decoding != "direct", "target=sequence and another decoding", ("constrained",)),
            Condition(not sequences or self.decoding != "samples", "another decoding than samples", ("beam",)),
            Condition(not sequences, "target=set", ("node_vectors",)),
            Condition(self.is_set_of_words, "target=set and encoder=words", ("start",)),
            Condition(self.is_set_of_words or not self.sparse_part, "target=set and encoder=words", ("sparse_part",)),
            Condition(words, "encoder=words", ("keep_prob",)),
            Condition(not words, "an encoder that reads tokens", ("max_length", "keep_digits", "cache")),
            Condition(scratch, "an encoder that reads tokens and is trained from scratch", ("n_pieces",)),
            Condition(words or scratch, "an encoder trained from scratch", ("width",)),
            Condition(self.encoder in RECURRENT, "encoder=gru or lstm", ("token_width",)),
            Condition(scratch and self.encoder != "bag", "encoder=gru, lstm, transformer or xlnet", ("layers",)),
            Condition(self.coding == "random", "coding=random", ("quantiser",)),
            Condition(has_trees, "n_trees above 1", ("jobs",)),
            Condition(not sequences or not self.collapse_epochs, "target=set", ("collapse_epochs",)),
        ]
        refuse_unused(self, conditions)

    def check_plan(self, plan: SecSeqPlan, n_labels: int) -> None:
        """Raise a ``SettingError`` for a value that has no effect with these labels.

        :param n_labels: Number of labels that have training texts.
        """
        is_deep = self.target == "sequence" or plan.depth > 1
        is_shared = self.coding == "random" or plan.depth > 1 or n_labels > plan.n_symbols
        needs = "codes of two or more symbols: more labels, or depth=2"
        own_symbols = "labels that share symbols; here each label has its own, in the order of their frequency"
        conditions = [
            Condition(is_deep, needs, ("beam", "node_vectors")),
            Condition(is_deep or self.encoder != WORDS, needs, ("hidden",)),
            Condition(is_shared, own_symbols, ("embedding",)),
            Condition(is_shared or self.label_order != "code", own_symbols, ("label_order",)),
            Condition(plan.n_trees > 1, "n_trees above 1", ("jobs",)),
        ]
        refuse_unused(self, conditions)

    @property
    def reads_word_vectors(self) -> bool:
        """Whether the encoder reads whole words and starts from their pretrained vectors."""
        return self.word_vectors is not None and self.encoder in ("bag", *RECURRENT)

    @property
    def freezes_vectors(self) -> bool:
        """Whether the vectors of words that the encoder reads are not trained."""
        return self.reads_word_vectors and self.freeze_vectors is not False

    @property
    def is_set_of_words(self) -> bool:
        """Whether the network is a set network over features."""
        return self.target == "set" and self.encoder == WORDS

    @property
    def starts_from_centroids(self) -> bool:
        """Whether the network is a set network over words that starts from centroids."""
        return self.is_set_of_words and self.start == "centroids"

    def wants_sparse_part(self, n_labels: int) -> bool:
        """Whether there is a sparse part; by default not without node vectors, when the model is not to grow with labels."""
        is_possible = self.is_set_of_words and (self.node_vectors or self.sparse_part is not None)
        return is_possible and super().wants_sparse_part(n_labels)

    def get_width(self) -> int:
        """Dimension of an encoder trained from scratch."""
        return self.width or (WORDS_WIDTH if self.encoder == WORDS else TOKENS_WIDTH)

    def plan(self, n_samples: int, n_labels: int) -> SecSeqPlan:
        """Fill in what depends on the number of training texts and of labels that have one."""
        batch, is_fast = self.batch or choose_batch(n_samples, 16, 64), self.starts_from_centroids
        words_rate = _RATE_PER_TEXT * batch if is_fast else 30.0
        rates = {WORDS: words_rate, **dict.fromkeys(SCRATCH_ENCODERS, 1e-3), **dict.fromkeys(BAGS, 0.05)}
        n_symbols, depth = choose_code_size(
            n_labels, learned=self.coding == "learned", n_symbols=self.n_symbols, depth=self.depth
        )
        return SecSeqPlan(
            batch=batch,
            epochs=self.epochs or (_EPOCHS_FROM_CENTROIDS if is_fast else _EPOCHS),
            rate=self.rate or rates.get(self.encoder, 1e-4),
            n_symbols=n_symbols,
            depth=depth,
            n_trees=self.n_trees or (_TREES_FROM_CENTROIDS if is_fast and n_labels < _MIN_LABELS_OF_ONE_TREE else 1),
            sparse_part=self.wants_sparse_part(n_labels),
        )
