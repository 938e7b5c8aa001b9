"""Settings of LightAttention, and the plan that fills in those that depend on the size of the data."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from longtail.conditions import Condition, refuse_unused
from longtail.errors import SettingError
from longtail.labelspace.names import NameSettings
from longtail.linear.settings import SparsePartSettings
from longtail.nn.schedule import SCHEDULES
from longtail.nn.settings import TrainingPlan, TrainingSettings, choose_batch, nearest_row
from longtail.settings import MAX_NUMBER, setting, settings

NEGATIVES = ("all", "static", "dynamic")
GENERATORS = ("attention", "pool")
MAX_ATTENTION_CLUSTERS = 512  # up to this many clusters attend to the words of every text, unless ``generator`` is set
MAX_EXHAUSTIVE_LABELS = 2048  # up to this many labels all are scored for every text, unless ``negatives`` is set
N_CANDIDATES, N_CANDIDATES_OF_SUM = 384, 128  # labels scored per text where there is a tree, about; with a sparse part

_ONLY_WITH_TREE = ("max_leaf", "levels", "fanout", "beam", "generator", "warm_start")
_WORD_DIM, _WORD_DIM_OF_TREE = 128, 300  # random vectors of fewer dimensions do not tell the words of many labels apart
_EPOCHS, _EPOCHS_OF_TREE, _EPOCHS_OF_MANY_TEXTS, _MANY_TEXTS = 10, 6, 3, 200_000
_LONG_TEXT_WORDS = 200  # texts are long if they have more words than this, on average
_MAX_WORDS, _MAX_WORDS_OF_LONG_TEXTS = 500, 100  # words that are read of each text
_MAX_BEAM_SHARE = 1 / 4  # of all clusters
_MAX_TOP_HALVINGS = 12  # the first level has up to 2^12 nodes; larger trees get more levels


@dataclass(frozen=True)
class CorpusDefaults:
    """Defaults that depend on the size of the corpus."""

    hidden: int
    fc_sizes: str
    batch: int
    epochs: int
    average_from: int
    freeze_vectors: bool


# AttentionXML's code, by number of training texts and labels: EUR-Lex, Wiki10-31K, AmazonCat-13K, Wiki-500K, Amazon-670K.
ATTENTION_XML: dict[tuple[int, int], CorpusDefaults] = {
    (15_449, 3_956): CorpusDefaults(256, "256", 40, 30, 10, True),
    (14_146, 30_938): CorpusDefaults(256, "256", 40, 30, 4, True),
    (1_186_239, 13_330): CorpusDefaults(512, "512-256", 200, 10, 2, False),
    (1_779_881, 501_008): CorpusDefaults(512, "512-256", 200, 5, 2, False),
    (490_449, 670_091): CorpusDefaults(512, "512-256", 200, 10, 6, False),
}


@dataclass(frozen=True, kw_only=True)
class LightAttentionPlan(TrainingPlan):
    """The settings that depend on the data, with their values filled in."""

    word_dim: int
    hidden: int
    fc_sizes: tuple[int, ...]
    freeze_vectors: bool
    negatives: str
    n_halvings: int  # how often the labels are split in two; 0: no tree, all labels are scored
    levels: int
    beam: int
    generator: str
    sparse_part: bool

    def describe(self, n_samples: int, n_labels: int) -> str:
        """What the numbers of texts and labels have decided, to be printed."""
        tree = f", {1 << self.n_halvings:,} clusters, the labels of {self.beam} of them per text" if self.n_halvings else ""
        loop = f"{self.epochs} epochs, batches of {self.batch}{tree}{', with a sparse part' if self.sparse_part else ''}"
        return f"{n_samples:,} texts, {n_labels:,} labels: {loop}"


@settings
class LightAttentionSettings(TrainingSettings, NameSettings, SparsePartSettings):
    """Settings of LightAttention and AttentionXML."""

    paper: bool = setting(
        "Fill in hidden, fc_sizes, batch, epochs, average_from and freeze_vectors from AttentionXML's code, for its corpus"
        " that is most similar in size.",
        default=False,
        paper="true",
    )
    word_vectors: str | None = setting(
        "Pretrained word vectors: a file in the text format of GloVe or word2vec, or wordllama. None: start at random.",
        default=None,
        paper="GloVe 840B",
    )
    freeze_vectors: bool | None = setting(
        "Whether pretrained word vectors stay fixed in training. None: no, or by corpus with paper=true.",
        default=None,
        paper="true on EUR-Lex and Wiki10-31K",
    )
    word_dim: int | None = setting(
        f"Dimension of word vectors that are not pretrained. None: {_WORD_DIM}, or {_WORD_DIM_OF_TREE} with a label tree.",
        default=None,
        paper="300",
        positive=True,
    )
    idf_start: bool = setting(
        "Whether random word vectors start with a length that is proportional to the IDF of the word.",
        default=True,
        paper="false",
    )
    max_length: int | None = setting(
        f"Words read per text. None: {_MAX_WORDS}, or {_MAX_WORDS_OF_LONG_TEXTS} if texts have more than {_LONG_TEXT_WORDS}"
        " words on average.",
        default=None,
        paper="500",
        positive=True,
    )
    select: str = setting(
        "Which words of a text with more than max_length words are read: first, or tfidf (the first half of max_length, then"
        " the words with the highest TF-IDF in the rest, each once, in order).",
        default="tfidf",
        paper="first",
        choices=("first", "tfidf"),
    )
    hidden: int | None = setting(
        "Hidden units per direction of the BiLSTM. None: 64.", default=None, paper="256 or 512, by corpus", positive=True
    )
    fc_sizes: str | None = setting(
        "Sizes of the fully connected layers that all labels share, such as 512-256. None: 128.",
        default=None,
        paper="256 or 512-256, by corpus",
    )
    skip_connection: bool = setting(
        "Whether attention reads each word's vector next to the BiLSTM output. The attention of a label then starts at the"
        " words typical of its texts.",
        default=True,
        paper="false",
    )
    per_label_output: bool = setting(
        "Whether each label adds its own output weights and bias to the shared output layer.",
        default=True,
        paper="false",
    )
    match: bool = setting(
        "Whether the score of a label adds how well its query matches the words that it attends to: the mean of its"
        " attention scores, times a weight that all labels share.",
        default=True,
        paper="false",
    )
    prior: bool = setting(
        "Whether the biases of clusters and labels start at the log-odds of their frequency.", default=True, paper="false"
    )
    embedding_dropout: float = setting("Dropout rate of word vectors.", default=0.2, paper="0.2", minimum=0, below=1)
    dropout: float = setting("Dropout rate of what attention reads.", default=0.3, paper="0.5", minimum=0, below=1)
    negatives: str | None = setting(
        "Labels in the loss of a text: all; static, those of clusters chosen once by the finished level above; dynamic,"
        " those of the clusters that the network ranks first at each step. None: all for up to"
        f" {MAX_EXHAUSTIVE_LABELS:,} labels, else dynamic.",
        default=None,
        paper="dynamic (AttentionXML: static)",
        choices=NEGATIVES,
    )
    max_leaf: int = setting("Maximum number of labels in a cluster.", default=16, positive=True)
    levels: int | None = setting(
        "Levels of the label tree, that of the labels included. None: 2, and more above 65,536 labels.",
        default=None,
        positive=True,
    )
    fanout: int = setting(
        "Children per node between two levels of clusters, a power of two (K of algorithm 1).",
        default=8,
        paper="8",
        minimum=2,
    )
    beam: int | None = setting(
        f"Clusters whose labels are scored. None: those of about {N_CANDIDATES} labels, or {N_CANDIDATES_OF_SUM} with a"
        " sparse part, at most a quarter of all clusters.",
        default=None,
        positive=True,
    )
    generator: str | None = setting(
        "How clusters are scored: attention, as labels are, or pool (a linear layer over the mean and the maximum of the"
        f" BiLSTM output). None: attention for up to {MAX_ATTENTION_CLUSTERS:,} clusters or with paper=true,"
        " else pool.",
        default=None,
        paper="not given (LightXML: linear; AttentionXML: attention)",
        choices=GENERATORS,
    )
    warm_start: bool = setting("Whether each level starts from the trained level above.", default=True, paper="true")
    n_trees: int = setting(
        "Label trees, each with its own networks; their probabilities are averaged.",
        default=1,
        paper="1 (AttentionXML: 3)",
        positive=True,
    )
    average_from: int | None = setting(
        "First epoch that average=swa includes. None: 0, or by corpus with paper=true.",
        default=None,
        paper="2 to 10",
        minimum=0,
    )

    batch: int | None = setting(
        "Texts per batch. None: 16 to 64, by the number of texts.", default=None, paper="40 or 200, by corpus", positive=True
    )
    epochs: int | None = setting(
        f"Maximum number of epochs. None: {_EPOCHS}; with a label tree {_EPOCHS_OF_TREE}, or {_EPOCHS_OF_MANY_TEXTS} from"
        f" {_MANY_TEXTS:,} texts on.",
        default=None,
        paper="5 to 30, by corpus",
        positive=True,
    )
    rate: float = setting("Learning rate of Adam.", default=5e-3, paper="0.001", positive=True)
    schedule: str = setting(
        f"Learning-rate schedule: {', '.join(SCHEDULES)}.", default="linear", paper="constant", choices=SCHEDULES
    )
    clip: float = 1.0
    average: str = setting("Weight averaging: none, swa or ema.", default="ema", paper="swa", choices=("none", "swa", "ema"))

    def check(self) -> None:
        """Raise a ``SettingError`` for settings that cannot work."""
        super().check()
        if self.fanout & (self.fanout - 1):
            raise SettingError(f"fanout is {self.fanout}", hint="It must be a power of two")
        if self.fc_sizes is not None:
            parse_sizes(self.fc_sizes)
        has_vectors, has_tree = self.word_vectors is not None, self.negatives != "all"
        conditions = [
            Condition(has_vectors, "word_vectors, a file or wordllama", ("freeze_vectors",)),
            Condition(not has_vectors or self.paper, "word vectors that are not pretrained", ("word_dim", "idf_start")),
            Condition(self.average == "swa", "average=swa", ("average_from",)),
            Condition(has_tree, "negatives=static or dynamic", _ONLY_WITH_TREE),
        ]
        refuse_unused(self, conditions)

    def check_plan(self, plan: LightAttentionPlan) -> None:
        """Raise a ``SettingError`` for a value that has no effect with these labels."""
        with_tree = f"a label tree: more than {MAX_EXHAUSTIVE_LABELS:,} labels, or negatives=static or dynamic"
        max_levels = 1 + ceil(plan.n_halvings / log2(self.fanout))
        more_clusters = f"more clusters: a smaller max_leaf or fanout; here there are {max_levels} levels"
        conditions = [
            Condition(plan.n_halvings > 0, with_tree, _ONLY_WITH_TREE),
            Condition(plan.levels > 1, "two or more levels", ("max_leaf", "beam", "generator", "warm_start")),
            Condition(plan.levels > 2, "a tree of three or more levels, such as levels=3", ("fanout",)),
            Condition(plan.levels <= max_levels, more_clusters, ("levels",)),
            Condition(plan.average_from < plan.epochs, f"more epochs; here there are {plan.epochs}", ("average_from",)),
        ]
        refuse_unused(self, conditions)

    def plan(self, n_samples: int, n_labels: int, *, sparse_part: bool | None = None) -> LightAttentionPlan:
        """Fill in what depends on the number of training texts and of labels that have one.

        :param sparse_part: Whether a fitted model has a sparse part. None: as the settings say.
        """
        if sparse_part is None:
            sparse_part = self.wants_sparse_part(n_labels)
        n_halvings = self._count_halvings(n_labels)
        ours = _choose_defaults(n_samples, n_halvings > 0)
        default = nearest_row(ATTENTION_XML, n_samples, n_labels) if self.paper else ours
        n_clusters = 1 << n_halvings
        n_deeper = ceil((n_halvings - _MAX_TOP_HALVINGS) / log2(self.fanout))  # levels of clusters below the first
        cluster_size, is_small = ceil(n_labels / n_clusters), n_clusters <= MAX_ATTENTION_CLUSTERS
        n_candidates = N_CANDIDATES_OF_SUM if sparse_part else N_CANDIDATES
        beam = max(min(ceil(n_candidates / cluster_size), int(_MAX_BEAM_SHARE * n_clusters)), 2)
        freeze = default.freeze_vectors if self.freeze_vectors is None else self.freeze_vectors
        return LightAttentionPlan(
            batch=self.batch or default.batch,
            epochs=self.epochs or default.epochs,
            rate=self.rate,
            average_from=default.average_from if self.average_from is None else self.average_from,
            word_dim=self.word_dim or (_WORD_DIM_OF_TREE if n_halvings else _WORD_DIM),
            hidden=self.hidden or default.hidden,
            fc_sizes=parse_sizes(self.fc_sizes or default.fc_sizes),
            freeze_vectors=freeze and self.word_vectors is not None,
            negatives=self.negatives or ("dynamic" if n_halvings else "all"),
            n_halvings=n_halvings,
            levels=self.levels or (2 + max(n_deeper, 0) if n_halvings else 1),
            beam=self.beam or beam,
            generator=self.generator or ("attention" if self.paper or is_small else "pool"),
            sparse_part=sparse_part,
        )

    def _count_halvings(self, n_labels: int) -> int:
        """How often the labels are split in two until clusters are small enough; 0 where there is no tree."""
        if self.negatives == "all" or (self.negatives is None and n_labels <= MAX_EXHAUSTIVE_LABELS):
            return 0
        return max(ceil(log2(n_labels / self.max_leaf)), 0)


def _choose_defaults(n_samples: int, has_tree: bool) -> CorpusDefaults:
    """Our defaults, for a CPU: small batches for few texts, so that an epoch has enough steps; fewer epochs with a tree."""
    batch = choose_batch(n_samples, 16, 64, steps=192)
    epochs = _EPOCHS if not has_tree else _EPOCHS_OF_TREE if n_samples < _MANY_TEXTS else _EPOCHS_OF_MANY_TEXTS
    return CorpusDefaults(hidden=64, fc_sizes="128", batch=batch, epochs=epochs, average_from=0, freeze_vectors=False)


def choose_max_length(mean_words: float) -> int:
    """How many words are read of each text, by the number of words that texts have on average.

    Training time grows with the words that are read, so of long texts 100 are read, chosen as ``select`` says.

    >>> choose_max_length(90), choose_max_length(800)
    (500, 100)
    """
    return _MAX_WORDS if mean_words <= _LONG_TEXT_WORDS else _MAX_WORDS_OF_LONG_TEXTS


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse the sizes of layers.

    >>> parse_sizes("512-256")
    (512, 256)
    """
    parts = text.split("-")
    if not all(part.isdecimal() and 0 < int(part) < MAX_NUMBER for part in parts):
        raise SettingError(f'fc_sizes is "{text}"', hint='It must be sizes such as "512-256"')
    return tuple(int(part) for part in parts)
