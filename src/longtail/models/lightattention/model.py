"""LightAttention: a BiLSTM, an attention to words for each label, a label tree (Zhu, Teng, Huang); with AttentionXML.

The network is in ``longtail.models.lightattention.network``, its training and search in ``longtail.models.lightattention.training``; both need torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.data.holdout import split_holdout
from longtail.errors import BIG, SettingError, check_settings, missing_extra
from longtail.features.token_rows import TokenRows
from longtail.labelspace.embedding import pifa
from longtail.labelspace.grow import balanced_tree, compressed, levelled
from longtail.labelspace.tree import INNER, LabelTree
from longtail.model import Model, Spans, Valid
from longtail.models.lightattention.word_vectors import word_vectors
from longtail.models.lightattention.words import Words
from longtail.nn.paper_tables import nearest
from longtail.nn.schedule import schedule
from longtail.progress import Progress
from longtail.search.beam import average_rows
from longtail.state import State, inside
from longtail.topk import NO_LABEL, TopK

NEGATIVES = ("all", "static", "dynamic")
CHOICES = {"negatives": NEGATIVES, "average": ("none", "swa", "ema")}
FLAT = 2048  # labels up to which all of them are scored for every text, unless negatives are asked for
TOP_DOUBLINGS = 12  # most halvings of the labels before the first level: more nodes than 4,096 are divided into levels
CANDIDATES = 384  # about so many labels are scored for a text,
SHARE = 4  # or those of every fourth cluster, if these are fewer
TERMS = 128  # words of a label that take part in clustering
WIDE = 10  # fewest labels that each tree gives, where several are averaged

NAMES = ("hidden", "fc", "batch", "epochs", "average_from", "frozen")
# AttentionXML's settings by training texts and labels: EUR-Lex, Wiki10-31K, AmazonCat-13K, Wiki-500K, Amazon-670K.
TABLES: dict[tuple[int, int], tuple[Any, ...]] = {
    (15_449, 3_956): (256, "256", 40, 30, 10, True),
    (14_146, 30_938): (256, "256", 40, 30, 4, True),
    (1_186_239, 13_330): (512, "512-256", 200, 10, 2, False),
    (1_779_881, 501_008): (512, "512-256", 200, 5, 2, False),
    (490_449, 670_091): (512, "512-256", 200, 10, 6, False),
}


class LightAttention(Model):
    """Texts read word by word by a BiLSTM; each label attends to the words that matter for it, which explains it, too.

    The attention of label j to word i is α_ij = softmax_i(h_i · w_j), and its score is made of Σ_i α_ij h_i (eq. 2). With
    many labels a tree of clusters says which of them are scored at all; a label's probability is then the product along its
    path (eq. 1).

    Presets: ``paper`` is LightAttention with the numbers of AttentionXML's code, for its corpus that is most like yours:
    dynamic negatives over clusters of 16 labels, word vectors of 300 numbers (give GloVe's with ``vectors``), Adam with a
    constant rate, means of weights (SWA). ``best`` is the defaults, for a CPU: all labels are scored up to 2,048 of them; a
    narrower network, in which attention also meets the words themselves and starts at those of the label's texts, and labels
    have an output vector of their own; a falling rate, moving averages of weights, fewer epochs. In both, dropout is drawn
    once for a text, not for each of its words.

    >>> texts, Y = ["red apple", "red rose", "green apple", "white rose"] * 4, np.array([[1, 0], [0, 1]] * 8)
    >>> LightAttention(holdout=0).fit(texts, Y).topk(["an apple", "a rose"], k=1).ids.ravel().tolist()
    [0, 1]
    """

    input = "texts"
    weights_meaning = "how much of the label's attention each word has"
    presets: ClassVar = {
        "best": {},
        "paper": {
            **{"paper": True, "negatives": "dynamic", "width": 300, "skip": False, "own": False},
            **{"word_dropout": 0.2, "dropout": 0.5},
            **{"rate": 1e-3, "schedule": "constant", "average": "swa", "patience": 10},
        },
    }

    history: list[dict[str, float]]  # one row for each epoch of each run of the loop; not saved

    def __init__(
        self,
        *,
        paper: bool = False,
        vectors: str | None = None,
        frozen: bool | None = None,
        width: int = 128,
        max_length: int = 500,
        hidden: int | None = None,
        fc: str | None = None,
        skip: bool = True,
        own: bool = True,
        word_dropout: float = 0.2,
        dropout: float = 0.3,
        negatives: str | None = None,
        leaf: int = 16,
        levels: int | None = None,
        fanout: int = 8,
        beam: int | None = None,
        warm_start: bool = True,
        n_trees: int = 1,
        rate: float = 5e-3,
        batch: int | None = None,
        epochs: int | None = None,
        schedule: str = "linear",
        clip: float = 1.0,
        average: str = "ema",
        average_from: int | None = None,
        patience: int = 5,
        holdout: float = 0.05,
        seed: int = 0,
        threads: int | None = None,
        device: str = "cpu",
        log: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Store the settings.

        paper: what is left out below is as in AttentionXML for the most similar of its corpora. vectors: pretrained word
        vectors, a file in GloVe's or word2vec's text format, or wordllama; by default they are learned, ``width`` numbers
        each (paper: GloVe, 300). frozen: pretrained vectors are not trained. max_length: words of a text that are read
        (paper 500). hidden: n, numbers of each direction of the BiLSTM (paper 256 or 512). fc: widths of the fully
        connected layers, such as "512-256" (paper 256 or 512-256). skip: attention meets the word's vector beside the
        BiLSTM's, and starts at the words of the label's texts (paper: no). own: labels have an output vector and a bias of
        their own (paper: no). word_dropout, dropout: share of the numbers of word vectors and of what attention reads that
        is dropped (paper 0.2, 0.5). negatives: the labels that a text's loss looks at: all; static, those of clusters
        chosen once (AttentionXML); dynamic, those of the clusters that the network itself finds at each step; by default
        all of up to 2,048 labels, else dynamic. leaf: most labels of a cluster. levels: of the tree, counting that of the
        labels; by default 2, and more above 65,536 labels. fanout: children of a node between levels, a power of two (K of
        algorithm 1; paper 8). beam: clusters that are opened, by default those of about 384 labels, but a quarter of all
        at most. warm_start: each level starts from the one above. n_trees: trees, each with networks of its own, that are
        averaged (paper 3 for AttentionXML). rate: Adam's. average_from: first epoch of swa. All others: as in aplc.
        """
        self.paper, self.vectors, self.frozen, self.width, self.max_length = paper, vectors, frozen, width, max_length
        self.hidden, self.fc, self.skip, self.own = hidden, fc, skip, own
        self.word_dropout, self.dropout = word_dropout, dropout
        self.negatives, self.leaf, self.levels, self.fanout, self.beam = negatives, leaf, levels, fanout, beam
        self.warm_start, self.n_trees, self.rate, self.batch, self.epochs = warm_start, n_trees, rate, batch, epochs
        self.schedule, self.clip, self.average, self.average_from = schedule, clip, average, average_from
        self.patience, self.holdout, self.seed, self.threads = patience, holdout, seed, threads
        self.device, self.log, self.checkpoint = device, log, checkpoint

    @property
    def score_meaning(self) -> Literal["probability"]:
        """Of the label, by eq. 1; the mean over the trees."""
        return "probability"

    @property
    def label_tree(self) -> LabelTree | None:
        """The first tree, if there are clusters."""
        return self.trees[0] if self.trees[0].depth.max() > 1 else None

    @property
    def _halvings(self) -> int:
        """How often the labels are divided in two, until clusters are small enough; 0 where there is no tree."""
        if self.negatives == "all" or (self.negatives is None and self.n_seen <= FLAT):
            return 0
        return max(ceil(log2(self.n_seen / self.leaf)), 0)

    def _chosen(self) -> dict[str, Any]:
        """The settings, with those that depend on the corpus: AttentionXML's, or ours."""
        given = {name: value for name, value in self.get_params().items() if value is not None}
        if self.paper:
            rest = dict(zip(NAMES, like(self.n_samples, self.n_seen), strict=True))
        else:
            small = min(max(2 ** round(log2(self.n_samples / 192)), 16), 64)  # few samples, smaller steps
            rest = dict(zip(NAMES, (64, "128", small, 10, 0, False), strict=True))
        doublings = self._halvings
        n_clusters, size = 1 << doublings, ceil(self.n_seen / (1 << doublings))
        steps = max(int(log2(self.fanout)), 1)
        rest["levels"] = 1 if not doublings else 2 + max(ceil((doublings - TOP_DOUBLINGS) / steps), 0)
        rest["beam"] = max(min(ceil(CANDIDATES / size), n_clusters // SHARE), 2)
        rest["negatives"] = "dynamic" if doublings else "all"
        out = {**dict.fromkeys(self.param_names()), **rest, **given}
        out["fc"] = fc_widths(out["fc"])
        if self.vectors is None:
            out["frozen"] = False
        return out

    def _check_settings(self) -> None:
        whole = ("width", "max_length", "hidden", "leaf", "levels", "beam", "n_trees", "batch", "epochs")
        check_settings(
            self.get_params(),
            choices=CHOICES,
            above_zero=(*whole, "rate"),
            at_most={"holdout": 0.5, "clip": BIG, "patience": BIG, "seed": 2**63 - 1, "average_from": BIG},
            below_one=("word_dropout", "dropout"),
            whole=(*whole, "fanout", "patience", "seed", "average_from"),
        )
        if self.fanout < 2 or self.fanout & (self.fanout - 1):
            raise SettingError(f"fanout is {self.fanout}", hint="It must be a power of two")
        if self.frozen and self.vectors is None:
            raise SettingError("frozen needs vectors", hint="Name a file of word vectors, or wordllama")
        schedule(self.schedule)  # says so if there is none of that name
        if self.fc is not None:
            fc_widths(self.fc)

    def _fit(self, X: Sequence[str], Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        self._check_settings()
        try:
            from longtail.models.lightattention.training import fit
        except ImportError as error:
            raise missing_extra("torch", "nn", "Training lightattention") from error
        self._set_words()
        rows: Any = self.words.fit(X, progress).transform(X)
        weights = self.words.tfidf.transform(X)
        self.trees = self._grown(weights, Y, progress)
        vectors = None
        if self.vectors is not None:
            vectors = word_vectors(self.vectors, [self.words.word(i) for i in range(self.words.n_words)], self.seed)
        if valid is not None:
            valid = self.words.transform(valid[0]), valid[1]
        elif self.holdout:
            weights = split_holdout(weights, Y, self.holdout, self.seed)[0]
            rows, Y, valid = split_holdout(rows, Y, self.holdout, self.seed)
        self.arrays: list[State] = []
        self.history = []
        for number, tree in enumerate(self.trees):
            depth = int(tree.depth.max())
            runs = {"number": number, "n_levels": depth, "n_runs": len(self.trees) * depth}
            s = SimpleNamespace(**{**self._chosen(), **runs, "seed": self.seed + number})
            arrays, history = fit(rows, weights, Y, tree, self.words.n_words, vectors, s, valid, progress)
            self.arrays.append(arrays)
            self.history += history
        self._loaded: Any = None

    def _set_words(self) -> None:
        self.words = Words(max_length=self.max_length, threads=self.threads)

    def _grown(self, X: sp.csr_array, Y: sp.csr_array, progress: Progress) -> list[LabelTree]:
        """The trees: of balanced halves, made shallow (algorithm 1); or labels below the root, where there is no tree."""
        labels = np.flatnonzero(self.label_counts).astype(np.int32)
        s = self._chosen()
        if not self._halvings or s["levels"] == 1:
            flat = LabelTree(np.append(len(labels), np.zeros(len(labels))), np.append(INNER, labels))
            return [flat] * self.n_trees
        V = pifa(X, Y, TERMS)
        size = ceil(len(labels) / (1 << self._halvings))  # so that clusters of one size lie at one depth
        trees = []
        with progress.stage("clusters", self.n_trees) as stage:
            for number in range(self.n_trees):
                setting: dict[str, Any] = {"seed": self.seed + number, "threads": self.threads}
                deep = balanced_tree(V, labels, fanout=2, max_leaf=size, **setting)
                trees.append(levelled(compressed(deep, int(log2(self.fanout)), s["levels"] - 1)))
                stage.advance()
        return trees

    def _networks(self) -> Any:
        """Of each tree: what scores its levels, the levels, and the labels of the last."""
        if self._loaded is None:
            try:
                from longtail.models.lightattention.search import levels_of
                from longtail.models.lightattention.training import restored
            except ImportError as error:
                raise missing_extra("torch", "nn", "Prediction with lightattention") from error
            pairs = zip(self.arrays, self.trees, strict=True)
            self._loaded = [
                (restored(state, self.device), levels_of(tree), tree.label[tree.label != INNER]) for state, tree in pairs
            ]
        return self._loaded

    def _topk(self, X: Sequence[str], k: int) -> TopK:
        wide = k if len(self.trees) == 1 else min(max(2 * k, WIDE), self.n_seen)
        return self._best(X, k, wide, max(self._chosen()["beam"], wide))

    def candidates(self, X: Sequence[str]) -> TopK:
        """All labels that are scored when a text is tagged, which with a tree are not all there are."""
        self._must_be_fitted()
        s = self._chosen()
        k = min(s["beam"] * max(int(tree.n_children[1:].max(initial=0)) or self.n_seen for tree in self.trees), self.n_seen)
        return self._best(self._checked(X), min(k * len(self.trees), self.n_seen), k, s["beam"])

    def _best(self, X: Sequence[str], k: int, wide: int, beam: int) -> TopK:
        """The k best labels by the mean over the trees, each of which gives its ``wide`` best."""
        networks = self._networks()
        from longtail.models.lightattention.search import best_nodes
        from longtail.nn.loop import torch_threads

        rows, found = self.words.transform(X), []
        with torch_threads(self.threads):
            for parts, levels, labels in networks:
                best = best_nodes(parts, levels, rows, beam=beam, k=wide)
                found.append((np.where(best.ids >= 0, labels[best.ids], NO_LABEL), best.scores))
        if len(found) == 1:
            ids, scores = found[0]
            order = np.lexsort((ids, -scores), axis=1)  # nodes with the same score were in the order of the tree
            ids, scores = (np.take_along_axis(array, order, 1) for array in (ids, scores))
            return TopK(ids, np.where(ids >= 0, np.exp(scores), scores))
        ids, scores = np.empty((len(X), k), np.int32), np.empty((len(X), k), np.float32)
        average_rows(np.stack([f[0] for f in found]), np.stack([f[1] for f in found]), ids, scores)
        return TopK(ids, scores)

    def _explain(self, one: str, label: int) -> Spans:
        """Where the words of a text start and end, and how much of a label's attention each has; that of all is 1."""
        networks = self._networks()
        import torch

        ids, starts, ends = self.words.spans(one)
        weights = np.zeros(len(ids), np.float32)
        with torch.no_grad():
            for parts, _, labels in networks:
                reader, attention = parts[-1]
                node = np.flatnonzero(labels == label)
                H, mask = reader(TokenRows(ids, np.array([0, len(ids)])))
                weights += attention.weights(H, mask, node)[0, : len(ids), 0].cpu().numpy() / len(self.trees)
        return starts, ends, weights

    def _state(self) -> State:
        out: State = {f"words.{name}": array for name, array in self.words.state().items()}
        for number, (state, tree) in enumerate(zip(self.arrays, self.trees, strict=True)):
            out |= {f"{number}.{name}": array for name, array in state.items()}
            out |= {f"{number}.n_children": tree.n_children, f"{number}.label": tree.label}
        return out

    def _restore(self, state: State) -> None:
        self._set_words()
        self.words.restore(inside(state, "words."))
        parts = [inside(state, f"{number}.") for number in range(self.n_trees)]
        self.trees = [LabelTree(part.pop("n_children"), part.pop("label")) for part in parts]
        self.arrays, self._loaded = parts, None


def fc_widths(text: str) -> list[int]:
    """Widths of layers from text.

    >>> fc_widths("512-256")
    [512, 256]
    """
    if not all(part.isdecimal() and 0 < int(part) < BIG for part in str(text).split("-")):
        raise SettingError(f'fc is "{text}"', hint='Give widths such as "512-256"')
    return [int(part) for part in str(text).split("-")]


def like(n_samples: int, n_labels: int) -> tuple[Any, ...]:
    """AttentionXML's settings for the one of its corpora that is nearest in the logarithms of samples and labels.

    >>> like(20_000, 5_000)[2], like(500_000, 500_000)[2]
    (40, 200)
    """
    return nearest(TABLES, n_samples, n_labels)
