"""SeCSeq: labels as short codes, so that the output layer does not grow with the labels (Chang et al. 2018)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.data.holdout import split_holdout
from longtail.errors import LongtailError
from longtail.features.pretrained import check_encoder, choose_token_settings
from longtail.features.tfidf import Tfidf
from longtail.features.tokens import Tokens
from longtail.kernels import Bools, Floats
from longtail.labelspace.embedding import embed_by_samples, embed_by_text, embed_by_walks, pifa
from longtail.model import Model, PartWeights, Valid
from longtail.models.secseq.codes import Codebook, build_forest
from longtail.models.secseq.occlusion import LOSS_OF_SCORE, explain_by_occlusion
from longtail.models.secseq.prediction import Predictor, SequencePredictor, SetPredictor, compress_arrays
from longtail.models.secseq.settings import WORDS, SecSeqSettings, Texts
from longtail.models.secseq.trie import NO_CODE
from longtail.progress import Progress
from longtail.state import State, extract_part
from longtail.topk import TopK

_TERMS_PER_LABEL = 128  # of the label vectors with embedding=pifa
_N_SIMILAR = 10  # labels that a text of a new label gets, from which its code is chosen
_N_EXPLAINED = 64  # an explained label scores 0 if it is not among this many best
_MIN_TEXTS = 50  # with fewer training texts, words that occur in one text only are kept
_NUMBER = re.compile(r"\d+")

# The published sizes and learning rates of mlc2seq, on which the paper builds; it gives neither K, D nor label vectors.
_PAPER = {
    **{"target": "sequence", "encoder": "gru", "width": 1024, "token_width": 512, "layers": 1, "max_length": 300},
    **{"n_pieces": 50_000, "keep_digits": False, "coding": "random", "embedding": "indicator", "n_trees": 4},
    **{"hidden": 1024, "symbol_width": 256, "dropout": 0.2, "decoding": "best", "beam": 5, "rate": 2e-4},
    **{"head_rate": 2e-4, "batch": 64, "epochs": 20, "schedule": "constant", "average": "none"},
    **{"patience": 10, "holdout": 0.1},
}


class SecSeq(SecSeqSettings, Model):
    """Labels as codes of a few symbols: the output layer scores symbols, so it does not grow with the number of labels.

    With ``target=sequence``, the paper's, a decoder with attention generates the codes of all labels of a text, one after
    the other: P(c_1, …, c_TD | x) = Π p(c_t | c_<t, x) (eq. 3). Codes are quantised random projections of label vectors
    (eq. 4). The generated sequence is cut into codes, and the label histograms of their leaves are added up.

    With ``target=set``, ours, codes are paths in a 2-means tree. P(label | x) = Π P(u_d | u_<d, x), where each factor is a
    sigmoid, since the symbols of one position do not compete. Beam search over the trie of the codes finds the best labels.

    The network of ``target=set`` starts from the centroids of the texts of symbols and codes, and by default each code has
    its own vector: most of the accuracy where labels are many. With ``node_vectors=false`` the output layer does not grow
    with the labels. The vectors of words and the code table grow with the vocabulary and the labels in any case.

    Presets: ``best`` is the defaults: ``target=set`` over TF-IDF of words, three trees. ``paper`` is SeCSeq with the
    published network of mlc2seq (four trees, the best of five beams, K and D by our rule), except for its tokens: word
    pieces with trained vectors in place of words with frozen word2vec vectors of Wikipedia. ``mlc2seq`` is the same with
    one symbol per label.

    Training needs torch; prediction with the encoder ``words``, or ``bag`` with ``target=set``, does not.

    >>> texts, Y = ["red apple", "red rose", "green apple", "white rose"] * 4, np.array([[1, 0], [0, 1]] * 8)
    >>> SecSeq(holdout=0).fit(texts, Y).topk(["an apple", "a rose"], k=1).ids.ravel().tolist()
    [0, 1]
    """

    input = "texts"
    packages = ("torch",)
    presets: ClassVar = {
        "best": {},
        "paper": _PAPER,
        "mlc2seq": {**_PAPER, "n_trees": 1, "depth": 1},
    }

    features: Tfidf | Tokens
    forest: list[Codebook]  # the codes of each tree
    tree_arrays: list[State]  # the network of each tree
    histories: list[list[dict[str, float]]]  # one row per epoch, for each tree; not saved

    @property
    def score_meaning(self) -> Literal["probability", "count"]:
        """Probability with target=set or decoding=direct; otherwise how often a label was generated, averaged over trees."""
        return "probability" if self.target == "set" or self.decoding == "direct" else "count"

    @property
    def default_threshold(self) -> float:
        """0.5, also for counts: from there on a label is generated more often than not."""
        return 0.5

    @property
    def weights_meaning(self) -> str:
        """What the weights of an explanation mean."""
        return LOSS_OF_SCORE

    def check_requirements(self) -> None:
        """Raise an error if a package or pretrained weights that ``fit`` needs are not installed."""
        super().check_requirements()
        if self.encoder != WORDS:
            check_encoder(self.encoder)

    def _fit(self, X: Sequence[str], Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        from longtail.models.secseq.training import fit_tree

        plan = self.plan(self.n_samples, self.n_seen)
        self.check_plan(plan)
        self.features = self._make_features()
        X = self._mask_digits(X)
        texts = self.features.fit_transform(X, progress)
        self.forest = build_forest(self._embed_labels(X, texts, Y), self.label_counts, self, plan)
        n_inputs = self.features.n_features if isinstance(self.features, Tfidf) else self.features.n_tokens
        if valid is not None:
            valid = self.features.transform(self._mask_digits(valid[0])), valid[1]
        elif self.holdout:
            texts, Y, valid = split_holdout(texts, Y, self.holdout, self.seed)
        trees = [(texts, Y, codes, n_inputs, self._tree_settings(m), plan, valid) for m, codes in enumerate(self.forest)]
        if self.jobs > 1 and plan.n_trees > 1:
            with ProcessPoolExecutor(min(self.jobs, plan.n_trees), mp_context=get_context("spawn")) as pool:
                done = list(pool.map(fit_tree, *zip(*trees, strict=True)))
        else:
            done = [fit_tree(*tree, progress) for tree in trees]
        self.histories = [history for _, history in done]
        if isinstance(self.features, Tokens):
            self.features.set_params(cache=None)  # only the tokens of the training texts are kept
        self._set_trees([compress_arrays(arrays, self) for arrays, _ in done])

    def _update(
        self, X: Sequence[str], Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress
    ) -> str:
        from longtail.models.secseq.continuation import PACES, add_codes, add_first_symbols, continue_tree
        from longtail.nn.continuation import NewSamples

        if self.target == "sequence" and known is not None and known.nnz:
            found = (
                "secseq with target=sequence cannot learn from feedback on some labels of a text, only from all its labels"
            )
            raise LongtailError(found, hint="Add texts with all their labels as new samples, or train with target=set")
        counts, plan = self.count_labels(Y), self.plan(self.n_samples, self.n_seen)
        texts = self.features.transform(self._mask_digits(X))
        replayed = None if old is None else (self.features.transform(self._mask_digits(old[0])), old[1])
        n_new = int(np.count_nonzero(counts)) - self.n_seen
        if self.target == "set":
            forest = [add_first_symbols(codes, counts) for codes in self.forest]
        elif n_new and self.forest[0].depth == 1 and self.n_seen + n_new > self.forest[0].n_symbols:
            found = "with target=sequence and one symbol per label, secseq has no symbols for new labels"
            raise LongtailError(found, hint="Train it again on all samples, or with a larger n_symbols")
        else:
            similar = self._find_similar(texts, Y)
            forest = [add_codes(codes, counts, similar) for codes in self.forest]
        samples, n_samples = NewSamples.collect(texts, Y, known, replayed, self.n_samples, PACES), self.n_samples + len(X)
        trees = [
            continue_tree(samples, arrays, before, codes, n_samples, self._tree_settings(m), plan, progress)
            for m, (arrays, before, codes) in enumerate(zip(self.tree_arrays, self.forest, forest, strict=True))
        ]
        self.forest = forest
        self._set_trees([compress_arrays(arrays, self) for arrays in trees])
        return f"the networks of all codes were trained further; {n_new:,} labels were added"

    def _find_similar(self, texts: Texts, Y: sp.csr_array) -> sp.csr_array:
        """How often the texts of each new label get each old one [n_labels, n_labels before], by the scores of the best."""
        n_labels = self.n_labels
        is_new = np.ones(Y.shape[1], bool)
        is_new[np.flatnonzero(self.label_counts)] = False
        rows = np.flatnonzero(Y @ is_new.astype(np.float32))
        if not len(rows):
            return sp.csr_array((Y.shape[1], n_labels), dtype=np.float32)
        best = self._predictor.topk(texts[rows], min(_N_SIMILAR, self.n_seen), self, None)
        there = best.ids >= 0
        scores = sp.csr_array(
            (best.scores[there], (np.nonzero(there)[0], best.ids[there])), shape=(len(rows), n_labels), dtype=np.float32
        )
        return sp.csr_array(Y[rows].T.tocsr() @ scores)

    def _tree_settings(self, number: int) -> SecSeqSettings:
        """The settings of one tree: it has its own seed and files."""
        suffix = f".{number}" if len(self.forest) > 1 else ""
        changes = {
            "seed": self.seed + number,
            "log": self.log and f"{self.log}{suffix}",
            "checkpoint": self.checkpoint and f"{self.checkpoint}{suffix}",
        }
        return SecSeqSettings(**{**self.get_params(), **changes})

    def _embed_labels(self, X: Sequence[str], texts: Texts, Y: sp.csr_array) -> sp.csr_array | Floats:
        """Label vectors of norm 1, from which codes are made."""
        match self.embedding:
            case "pifa":
                return pifa(texts if self.encoder == WORDS else self._make_tfidf().fit_transform(X), Y, _TERMS_PER_LABEL)
            case "indicator":
                return embed_by_samples(Y)
            case "texts":
                return embed_by_text(self.labels)
            case _:
                return embed_by_walks(Y, seed=self.seed)

    def _make_features(self) -> Tfidf | Tokens:
        if self.encoder == WORDS:
            return self._make_tfidf()
        kind = choose_token_settings(self.encoder)
        return Tokens(**kind, max_length=self.max_length, n_pieces=self.n_pieces, cache=self.cache)

    def _make_tfidf(self) -> Tfidf:
        ngrams = self.ngrams if self.encoder == WORDS else 1
        return Tfidf(ngrams=ngrams, min_df=1 if self.n_samples < _MIN_TEXTS else 2, threads=self.threads)

    def _mask_digits(self, X: Sequence[str]) -> Sequence[str]:
        return X if self.keep_digits else [_NUMBER.sub("0", text) for text in X]

    def _set_trees(self, trees: list[State]) -> None:
        """Store the networks, and prepare them for prediction."""
        self.tree_arrays = trees
        self._predictor: Predictor = (SetPredictor if self.target == "set" else SequencePredictor)(self.forest, trees)

    def _topk(self, X: Sequence[str], k: int, allowed: Bools | None) -> TopK:
        return self._predictor.topk(self.features.transform(self._mask_digits(X)), k, self, allowed)

    def _explain(self, one: str, label: int) -> PartWeights:
        return explain_by_occlusion(one, label, lambda texts: self._topk(texts, min(_N_EXPLAINED, self.n_seen), None))

    def _state(self) -> State:
        out = {f"features.{name}": array for name, array in self.features.state().items()}
        K = self.forest[0].n_symbols
        out["n_symbols"] = np.array([K])
        for number, (codes, arrays) in enumerate(zip(self.forest, self.tree_arrays, strict=True)):
            out[f"{number}.symbols"] = codes.symbols.astype(np.uint16 if K <= 2**16 else np.int32)
            out |= {f"{number}.{name}": array for name, array in arrays.items()}
        return out

    def _restore(self, state: State) -> None:
        self.features = self._make_features()
        self.features.restore(extract_part(state, "features."))
        n_trees = sum(name.endswith(".symbols") for name in state)
        trees = [extract_part(state, f"{number}.") for number in range(n_trees)]
        K, unseen = int(state["n_symbols"][0]), self.label_counts == 0
        self.forest = []
        for arrays in trees:
            symbols = arrays.pop("symbols").astype(np.int32)
            symbols[unseen] = NO_CODE
            self.forest.append(Codebook(symbols, K, self.label_counts))
        self._set_trees(trees)
