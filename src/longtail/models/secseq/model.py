"""SeCSeq: labels as short codes, so that the output side of a network does not grow with them (Chang et al. 2018).

Training is in ``longtail.models.secseq.training`` and needs torch; prediction needs none over words, nor
over a bag of tokens where the target is a set. Codes are in ``longtail.models.secseq.codes``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import log2
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.holdout import split_holdout
from longtail.errors import BIG, check_settings, missing_extra
from longtail.features.batches import length_batches
from longtail.features.pretrained import SCRATCH, STATIC, text_settings
from longtail.features.tfidf import Tfidf
from longtail.features.token_rows import TokenRows
from longtail.features.tokens import Tokens
from longtail.kernels import Floats, Longs
from longtail.labelspace.embedding import indicator, label_texts, pifa, walks
from longtail.linear.quantised import QuantisedTable
from longtail.model import Model, Spans, Valid
from longtail.models.secseq.codes import ORDERS, QUANTISERS, Codes, joined, learned_codes, random_codes, size_of_codes
from longtail.models.secseq.decoder import Decoders
from longtail.models.secseq.occlusion import MEANING, by_occlusion
from longtail.models.secseq.search import TrieSearch, trie_topk
from longtail.models.secseq.sequences import label_scores
from longtail.models.secseq.trie import best_of
from longtail.nn.saved_encoder import SavedEncoder, token_means
from longtail.nn.schedule import schedule
from longtail.progress import Progress
from longtail.state import State, inside
from longtail.topk import TopK

WORDS = "words"
BAGS = ("bag", *STATIC)  # encoders that read tokens and predict without torch
CHOICES = {
    "target": ("set", "sequence"),
    "coding": ("learned", "random"),
    "embedding": ("pifa", "indicator", "texts", "graph"),
    "quantiser": tuple(QUANTISERS),
    "order": ORDERS,
    "decoding": ("best", "beams", "samples", "direct"),
    "average": ("none", "swa", "ema"),
}
TERMS = 128  # features of a label that take part in its vector
FOUND = 64  # labels among which one that is explained is looked for
FEW = 50  # training texts; of so few, a word may occur in one only
NUMBER = re.compile(r"\d+")
ROWS, FLOATS = 256, 2**24  # most texts times trees, and numbers of attention, that are decoded together
PAPER = {  # mlc2seq's published sizes and rates; K, D and the vectors of labels are not given
    **{"target": "sequence", "encoder": "gru", "width": 1024, "token_width": 512, "layers": 1, "max_length": 300},
    **{"n_pieces": 50_000, "digits": False, "coding": "random", "embedding": "indicator", "n_trees": 4},
    **{"hidden": 1024, "symbol_width": 256, "dropout": 0.2, "decoding": "best", "beam": 5, "rate": 2e-4},
    **{"head_rate": 2e-4, "batch": 64, "epochs": 20, "schedule": "constant", "average": "none"},
    **{"patience": 10, "holdout": 0.1},
}


class SecSeq(Model):
    """Labels as codes of a few symbols, and a network that knows the symbols only: its size does not grow with the labels.

    With the target ``sequence``, the paper's: a decoder with attention writes the codes of all labels of a text, one behind
    the other, P(c_1, …, c_TD | x) = Π p(c_t | c_<t, x) (eq. 3); codes are random projections of label vectors (eq. 4); what
    is written is cut into codes, and the histograms of their leaves are added up. With the target ``set``, our own: codes
    are paths in a 2-means tree, P(label | x) = Π P(u_d | u_<d, x) where each factor is a sigmoid, as symbols of one place
    are no rivals, and a beam over the trie of the codes finds the highest (``nn.secseq_set``).

    Presets: ``best`` is the defaults, the target set over a bag of words by TF-IDF. ``paper`` is SeCSeq over the published
    network of mlc2seq (K and D by our rule, four trees, the best of five beams), but for its word vectors: they are
    word pieces, and trained, as we have no word2vec of Wikipedia. ``mlc2seq`` is the same with a symbol for each label.

    >>> texts, Y = ["red apple", "red rose", "green apple", "white rose"] * 4, np.array([[1, 0], [0, 1]] * 8)
    >>> SecSeq(holdout=0).fit(texts, Y).topk(["an apple", "a rose"], k=1).ids.ravel().tolist()
    [0, 1]
    """

    input = "texts"
    weights_meaning = MEANING
    presets: ClassVar = {
        "best": {},
        "paper": PAPER,
        "mlc2seq": {**PAPER, "n_trees": 1, "depth": 1},
    }

    histories: list[list[dict[str, float]]]  # one row for each epoch, of each tree; not saved

    def __init__(
        self,
        *,
        target: str = "set",
        encoder: str = WORDS,
        ngrams: int = 2,
        width: int = 256,
        token_width: int | None = None,
        layers: int = 1,
        max_length: int = 256,
        n_pieces: int | None = None,
        digits: bool = True,
        coding: str = "learned",
        embedding: str = "pifa",
        quantiser: str = "ordinal",
        symbols: int | None = None,
        depth: int | None = None,
        n_trees: int = 1,
        order: str = "freq_desc",
        positions: bool = False,
        most_labels: int = 30,
        hidden: int = 256,
        symbol_width: int = 256,
        dropout: float = 0.2,
        keep: float = 0.8,
        decoding: str = "direct",
        beam: int = 10,
        samples: int = 32,
        constrained: bool = False,
        rate: float | None = None,
        head_rate: float = 0.001,
        batch: int | None = None,
        accumulate: int = 1,
        epochs: int = 30,
        schedule: str = "linear",
        clip: float = 1.0,
        average: str = "ema",
        patience: int = 5,
        holdout: float = 0.05,
        seed: int = 0,
        jobs: int = 1,
        threads: int | None = None,
        device: str = "cpu",
        log: str | None = None,
        checkpoint: str | None = None,
        cache: str | None = None,
    ) -> None:
        """Store the settings.

        target: sequence (paper) or set. encoder: words (a bag of runs of up to ``ngrams`` words by TF-IDF), or one that
        reads tokens: bag, gru (paper), lstm, transformer, xlnet, from scratch, ``width`` numbers wide and of so many
        ``layers``, gru and lstm over token vectors of ``token_width``; or a pretrained one, as in aplc, which is trained on.
        max_length: tokens of a text that are read. n_pieces: word pieces that are learned. digits: false makes each number
        the same (paper).

        coding: random (paper) or learned. embedding: vectors of labels by their samples' words (pifa), by their samples
        (indicator), by their names (texts), or by the labels they stand with (graph). quantiser: of random codes (paper:
        both). symbols, depth: K and D (paper: not given); by default as many as it takes (``size_of_codes``); depth 1
        alone gives each label a symbol. n_trees: M, independent codes and networks (paper 1 and 4).

        order: of the labels in a sequence (paper: not given). positions: whether the decoder knows the place of a symbol in
        its code. most_labels: of a sequence. hidden: numbers of the decoder's state. symbol_width: of the vector of a
        symbol, and of the layer before the output. dropout: of that layer (paper 0.2), or of a text's vector where the
        target is a set. keep: the share of words that input dropout leaves, for words.
        decoding: of sequences: the counts of the best sequence of the beam (best; paper), of all of them by their
        probability (beams), of drawn ``samples`` (paper: or so), or the probability that a code is written (direct). beam:
        its width. constrained: whether codes that no label has are never written (direct: always).

        rate: of the encoder. head_rate: of all else. batch, accumulate, epochs, schedule, clip, average, patience, holdout,
        device, log, checkpoint, cache: as in aplc; with several trees, log and checkpoint are one file for each. jobs:
        trees trained at the same time, each in its own process.
        """
        self.target, self.encoder, self.ngrams, self.width = target, encoder, ngrams, width
        self.token_width, self.layers = token_width, layers
        self.max_length, self.n_pieces, self.digits = max_length, n_pieces, digits
        self.coding, self.embedding, self.quantiser = coding, embedding, quantiser
        self.symbols, self.depth, self.n_trees, self.order = symbols, depth, n_trees, order
        self.positions, self.most_labels, self.hidden, self.symbol_width = positions, most_labels, hidden, symbol_width
        self.dropout, self.keep, self.decoding, self.beam = dropout, keep, decoding, beam
        self.samples, self.constrained, self.rate, self.head_rate = samples, constrained, rate, head_rate
        self.batch, self.accumulate, self.epochs, self.schedule, self.clip = batch, accumulate, epochs, schedule, clip
        self.average, self.patience, self.holdout, self.seed, self.jobs = average, patience, holdout, seed, jobs
        self.threads, self.device, self.log, self.checkpoint, self.cache = threads, device, log, checkpoint, cache

    @property
    def score_meaning(self) -> Literal["probability", "count"]:
        """Probability of a set or by direct decoding, otherwise how often a label was counted, in the mean of the trees."""
        return "probability" if self.target == "set" or self.decoding == "direct" else "count"

    @property
    def natural_threshold(self) -> float:
        """Half of a count is more likely than not, too."""
        return 0.5

    def _chosen(self) -> dict[str, Any]:
        """The settings, with those that depend on the corpus or the encoder."""
        small = min(max(2 ** round(log2(self.n_samples / 128)), 16), 64)  # few samples, smaller steps
        by_encoder = {WORDS: 30.0, **dict.fromkeys(BAGS, 0.05), **dict.fromkeys(SCRATCH[1:], 1e-3)}
        rest = {"rate": by_encoder.get(self.encoder, 1e-4), "batch": small}
        given = {name: value for name, value in self.get_params().items() if value is not None}
        return {**dict.fromkeys(self.param_names()), **rest, **given}

    def _check_settings(self) -> None:
        of_network = ("ngrams", "width", "token_width", "layers", "max_length", "most_labels", "hidden", "symbol_width")
        whole = (*of_network, "symbols", "depth", "n_trees", "beam", "samples", "batch", "accumulate", "epochs", "jobs")
        check_settings(
            self.get_params(),
            choices=CHOICES,
            above_zero=(*whole, "rate", "head_rate", "keep"),
            at_most={"keep": 1, "holdout": 0.5, "clip": BIG, "patience": BIG, "seed": 2**62},
            below_one=("dropout",),
            whole=(*whole, "patience", "seed"),
        )
        schedule(self.schedule)  # says so if there is none of that name

    def _fit(self, X: Sequence[str], Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        self._check_settings()
        try:
            from longtail.models.secseq.training import fit
        except ImportError as error:
            raise missing_extra("torch", "nn", "Training secseq") from error
        self._set_features(len(X))
        X = self._plain(X)
        texts: Any = self.features.fit_transform(X, progress)
        self.forest = self._codes(X, texts, Y)
        n_inputs = self.features.n_features if isinstance(self.features, Tfidf) else self.features.n_tokens
        if valid is not None:
            valid = self.features.transform(self._plain(valid[0])), valid[1]
        elif self.holdout:
            texts, Y, valid = split_holdout(texts, Y, self.holdout, self.seed)
        jobs = [(texts, Y, codes, n_inputs, self._of_tree(m), valid, best_labels) for m, codes in enumerate(self.forest)]
        if self.jobs > 1 and self.n_trees > 1:
            with ProcessPoolExecutor(min(self.jobs, self.n_trees), mp_context=get_context("spawn")) as pool:
                done = list(pool.map(fit, *zip(*jobs, strict=True)))
        else:
            done = [fit(*job, progress) for job in jobs]
        self.histories = [history for _, history in done]
        if isinstance(self.features, Tokens):
            self.features.cache = None  # it is for the corpus; what is tagged later is not kept
        bag = self.target == "set" and self.encoder in BAGS
        self._set([rounded(arrays, bag) for arrays, _ in done])

    def _of_tree(self, number: int) -> SimpleNamespace:
        """The settings of one tree: a seed of its own, and files of its own."""
        s = SimpleNamespace(**self._chosen())
        s.seed = self.seed + number
        for name in ("log", "checkpoint"):
            path = getattr(s, name)
            setattr(s, name, f"{path}.{number}" if path and self.n_trees > 1 else path)
        return s

    def _codes(self, X: Sequence[str], texts: Any, Y: sp.csr_array) -> list[Codes]:
        """M independent ones."""
        learned = self.coding == "learned"
        K, D = size_of_codes(self.n_seen, learned=learned, n_symbols=self.symbols, depth=self.depth)
        setting: dict[str, Any] = {"n_symbols": K, "depth": D}
        match self.embedding:
            case "pifa":
                X = texts if self.encoder == WORDS else self._tfidf(len(X)).fit_transform(X)
                V = pifa(X, Y, TERMS)
            case "indicator":
                V = indicator(Y)
            case "texts":
                V = label_texts(self.labels)
            case _:
                V = walks(Y, seed=self.seed)
        seeds = range(self.seed, self.seed + self.n_trees)
        if learned:
            return [learned_codes(V, self.label_counts, seed=m, threads=self.threads, **setting) for m in seeds]
        return [random_codes(V, self.label_counts, seed=m, quantiser=self.quantiser, **setting) for m in seeds]

    def _tfidf(self, n_texts: int) -> Tfidf:
        ngrams = self.ngrams if self.encoder == WORDS else 1
        return Tfidf(ngrams=ngrams, min_df=1 if n_texts < FEW else 2, threads=self.threads)

    def _set_features(self, n_texts: int) -> None:
        self.features: Tfidf | Tokens
        if self.encoder == WORDS:
            self.features = self._tfidf(n_texts)
        else:
            size = {"max_length": self.max_length, "n_pieces": self.n_pieces}
            self.features = Tokens(**text_settings(self.encoder), **size, cache=self.cache)  # type: ignore[arg-type]

    def _plain(self, X: Sequence[str]) -> Sequence[str]:
        return X if self.digits else [NUMBER.sub("0", text) for text in X]

    def _set(self, trees: list[State]) -> None:
        """Be ready for prediction."""
        self.trees = trees
        if self.target == "set":
            self.searches = [TrieSearch.of(codes.trie, tree) for codes, tree in zip(self.forest, trees, strict=True)]
        else:
            self.decoders = Decoders([inside(tree, "net.") for tree in trees], self.forest[0].depth)
            self.trie = joined(self.forest)
        self._saved = [SavedEncoder(inside(tree, "encoder.")) for tree in trees]

    def _topk(self, X: Sequence[str], k: int) -> TopK:
        texts: Any = self.features.transform(self._plain(X))
        if self.target == "sequence":
            return best_of(self._decoded(texts), k)
        H = [self._vectors(number, texts) for number in range(len(self.trees))]
        return trie_topk(self.searches, H, k, beam=self.beam, threads=self.threads)

    def _explain(self, one: str, label: int) -> Spans:
        return by_occlusion(one, label, lambda texts: self._topk(texts, min(FOUND, self.n_seen)))

    def _vectors(self, number: int, texts: Any) -> Floats:
        """h(x) of texts [n, first width], by one of the trees; of tokens, where the target is a set."""
        tree = self.trees[number]
        if self.encoder == WORDS:
            return np.maximum(bag_of(tree).bag(texts, self.threads) + tree["words.shift"], 0)
        if self.encoder in BAGS:
            V = token_means(texts, bag_of(tree), self.threads)
        else:
            V = self._saved[number].vectors(texts, self.device, self.threads)
        return np.maximum(V @ tree["layer.weight"].T + tree["layer.bias"], 0)

    def _decoded(self, texts: Any) -> sp.csr_array:
        """[n, n_labels] the mean of what labels get from each tree."""
        parts, order = [], []
        for some in self._batches(texts):
            reading = self.decoders.read([self._states(m, texts[some]) for m in range(self.n_trees)])
            parts.append(label_scores(self.decoders, reading, self.trie, self.n_labels, self))
            order.append(some)
        return sp.csr_array(sp.vstack(parts))[np.argsort(np.concatenate(order))]

    def _states(self, number: int, texts: Any) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """What a decoder looks at, where there is something, and a vector for each text; of words, that is all there is."""
        if self.encoder != WORDS:
            return self._saved[number].states(texts, self.device, self.threads)
        V = self._vectors(number, texts)
        return V[:, None], np.ones((len(V), 1), bool), V

    def _batches(self, texts: Any) -> Iterator[Longs]:
        """Texts that are decoded together."""
        if not isinstance(texts, TokenRows):
            yield from np.array_split(np.arange(texts.shape[0]), -(-texts.shape[0] * self.n_trees // ROWS))
            return
        wide = self.n_trees * (self.samples if self.decoding == "samples" else self.beam)
        tokens, rows = max(FLOATS // (wide * self.width), 1), max(ROWS // self.n_trees, 1)
        yield from length_batches(texts.lengths, np.random.default_rng(0), batch=rows, tokens=tokens)

    def _state(self) -> State:
        out = {f"features.{name}": array for name, array in self.features.state().items()}
        small = np.uint16 if self.forest[0].n_symbols <= 2**16 else np.int32
        out["n_symbols"] = np.array([self.forest[0].n_symbols])
        for number, (codes, tree) in enumerate(zip(self.forest, self.trees, strict=True)):
            out[f"{number}.symbols"] = codes.symbols.astype(small)
            out |= {f"{number}.{name}": array for name, array in tree.items()}
        return out

    def _restore(self, state: State) -> None:
        self._set_features(self.n_samples)
        self.features.restore(inside(state, "features."))
        trees = [inside(state, f"{number}.") for number in range(self.n_trees)]
        K, unseen = int(state["n_symbols"][0]), self.label_counts == 0
        self.forest = []
        for tree in trees:
            symbols = tree.pop("symbols").astype(np.int32)
            symbols[unseen] = -1
            self.forest.append(Codes(symbols, K, self.label_counts))
        self._set(trees)


def best_labels(codes: Codes, arrays: State, H: Floats) -> TopK:
    """The five best labels of texts with vectors H by a network that is still being trained."""
    return trie_topk([TrieSearch.of(codes.trie, arrays)], [H], min(5, len(codes.trie.label)), beam=10, threads=1)


def rounded(arrays: State, bag: bool) -> State:
    """As they are kept: vectors of words in one byte for each number, also a bag's; those of other encoders in two."""
    out: State = {}
    for name, array in arrays.items():
        if name == "words.weight" or (bag and name == "encoder.weights.table.weight"):
            out |= {f"bag.{part}": values for part, values in QuantisedTable.rounded(array).state().items()}
        elif not (bag and name.startswith("encoder.")):
            out[name] = array.astype(np.float16) if name.endswith("table.weight") else array
    return out


def bag_of(tree: State) -> QuantisedTable:
    """The vectors of words or tokens."""
    return QuantisedTable(tree["bag.values"], tree["bag.scale"])
