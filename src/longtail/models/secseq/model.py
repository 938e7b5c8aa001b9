"""SeCSeq: labels as short codes, so that the output layer does not grow with the labels (Chang et al. 2018)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.csr import MAX_INT32, divide_by_values
from longtail.data.holdout import find_sampled_labels, split_holdout
from longtail.errors import LongtailError, SettingError
from longtail.features.mlp import Doubles
from longtail.features.pretrained import check_encoder, choose_token_settings
from longtail.features.tfidf import Tfidf
from longtail.features.tokens import Tokens
from longtail.features.word_vectors import check_word_vectors, load_word_vectors
from longtail.kernels import Bools, Floats
from longtail.labelspace.embedding import embed_by_samples, embed_by_text, embed_by_walks, embed_by_word_vectors, pifa
from longtail.linear.centroid_trial import CentroidTrial
from longtail.linear.sparse_part import SparsePart
from longtail.linear.sparse_training import choose_scale, fit_sparse_part, update_sparse_part
from longtail.linear.update import UpdateSamples
from longtail.model import Model, PartWeights, Valid
from longtail.models.secseq.codes import Codebook, build_forest
from longtail.models.secseq.occlusion import LOSS_OF_SCORE, drop_each_feature, explain_by_occlusion
from longtail.models.secseq.prediction import Predictor, SequencePredictor, SetPredictor
from longtail.models.secseq.settings import WORDS, SecSeqSettings, Texts
from longtail.models.secseq.structure import check_network, check_symbols, upgrade_features
from longtail.models.secseq.trie import NO_CODE
from longtail.placement import get_network_settings, train_network
from longtail.printable import describe_update
from longtail.progress import Progress
from longtail.state import State, check_count, count_parts, extract_part, refuse
from longtail.topk import SEARCH_DEPTH, TopK

_TERMS_PER_LABEL = 128  # of the label vectors with embedding=pifa
_N_EXPLAINED = 64  # an explained label scores 0 if it is not among this many best
_NUMBER = re.compile(r"\d+")

# The published sizes and learning rates of mlc2seq, on which the paper builds; it gives neither K, D nor label vectors.
_PAPER = {
    **{"target": "sequence", "encoder": "gru", "width": 1024, "token_width": 512, "layers": 1, "max_length": 300},
    **{"n_pieces": 50_000, "keep_digits": False, "coding": "random", "embedding": "indicator", "n_trees": 4},
    **{"hidden": 1024, "symbol_width": 256, "dropout": 0.2, "decoding": "best", "beam": 5, "rate": 2e-4},
    **{"head_rate": 2e-4, "batch": 64, "epochs": 20, "schedule": "constant", "average": "none"},
    **{"patience": 10, "holdout": 0.1, "train_on_names": False, "sparse_part": False},
}


class SecSeq(SecSeqSettings, CentroidTrial, Model):
    """Labels as codes of a few symbols: the output layer scores symbols, so it does not grow with the number of labels.

    With ``target=sequence``, the paper's, a decoder with attention generates the codes of all labels of a text, one after
    the other: P(c_1, …, c_TD | x) = Π p(c_t | c_<t, x) (eq. 3). Codes are quantised random projections of label vectors
    (eq. 4). The generated sequence is cut into codes, and the label histograms of their leaves are added up.

    With ``target=set``, ours, codes are paths in a 2-means tree. P(label | x) = Π P(u_d | u_<d, x), where each factor is a
    sigmoid, since the symbols of one position do not compete. Beam search over the trie of the codes finds the best labels.

    The network of ``target=set`` starts from the centroids of the texts of symbols and codes, and by default each code has
    its own vector: most of the accuracy where labels are many. With ``node_vectors=false`` the output layer does not grow
    with the labels. The vectors of words and the code table grow with the vocabulary and the labels in any case.

    With thousands of labels, a sparse linear part is added to the scores of ``target=set`` over features.

    Presets: ``best`` is the defaults: ``target=set`` over features, three trees. ``paper`` is SeCSeq with the
    published network of mlc2seq (four trees, the best of five beams, K and D by our rule). Its words with frozen vectors
    need a file of such vectors: set ``word_vectors``, and ``token_width=None`` unless they have 512 dimensions; without it,
    the network reads word pieces and trains their vectors. ``mlc2seq`` is the same with one symbol per label.

    Training needs torch; prediction with the encoder ``words``, or ``bag`` with ``target=set``, does not.

    >>> X, Y = sp.csr_array(np.eye(4, dtype=np.float32)[[0, 1, 2, 3] * 4]), np.array([[1, 0], [0, 1]] * 8)
    >>> SecSeq(holdout=0).fit(X, Y).topk(X[:2], k=1).ids.ravel().tolist()
    [0, 1]
    """

    input = "either"
    packages = ("torch",)
    trains_network = True
    min_depth = SEARCH_DEPTH
    presets: ClassVar = {
        "best": {},
        "paper": _PAPER,
        "mlc2seq": {**_PAPER, "n_trees": 1, "depth": 1},
    }

    tokens: Tokens | None  # None: the encoder reads features
    forest: list[Codebook]  # the codes of each tree
    tree_arrays: list[State]  # the network of each tree
    sparse: SparsePart | None  # [n_features, n_seen] sparse part of the scores; labels with samples, in ascending order
    histories: list[list[dict[str, float]]]  # one row per epoch, for each tree; not saved

    @property
    def reads(self) -> Literal["features", "texts"]:
        """Features with encoder=words, otherwise texts."""
        return "features" if self.encoder == WORDS else "texts"

    @property
    def score_meaning(self) -> Literal["probability", "count"]:
        """Probability with target=set or decoding=direct; otherwise how often a label was generated, averaged over trees.

        With a sparse part, the probability in each tree is that of the mean of both logits.
        """
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
        if self.word_vectors is not None:
            check_word_vectors(self.word_vectors)

    @classmethod
    def upgrade(cls, about: dict[str, Any], state: dict[str, State]) -> tuple[dict[str, Any], dict[str, State]]:
        """Up to format 4, TF-IDF was part of the model, and ngrams one of its settings."""
        return upgrade_features(about, state)

    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        from longtail.models.secseq.training import fit_tree

        plan = self.plan(self.n_samples, self.n_seen)
        self.check_plan(plan, self.n_seen)
        self.tokens = self._make_tokens()
        if self.tokens is not None:
            self.tokens.fit(self._mask_digits(X), progress)
        texts, n_inputs = self._encode(X), self.tokens.n_tokens if self.tokens else X.shape[1]
        self.forest = build_forest(self._embed_labels(X, Y), self.label_counts, self, plan)
        if valid is not None:
            valid = self._encode(valid[0]), valid[1]
        elif self.holdout:
            texts, Y, valid = split_holdout(texts, Y, self.holdout, self.seed, n_names=self.n_names)
        whole = get_network_settings(self, SecSeqSettings)
        settings = [self._tree_settings(m, whole) for m in range(plan.n_trees)]
        shared = plan, valid, self._load_word_vectors()
        trees = [(texts, Y, codes, n_inputs, s, *shared) for codes, s in zip(self.forest, settings, strict=True)]
        if self.jobs > 1 and plan.n_trees > 1:
            if self.processes is not None:
                hint = "Train one tree after the other, each with all processes: jobs=1"
                raise SettingError(f"jobs is {self.jobs}, and {self.processes.n} processes train a network", hint=hint)
            with ProcessPoolExecutor(min(self.jobs, plan.n_trees), mp_context=get_context("spawn")) as pool:
                done = list(pool.map(fit_tree, *zip(*trees, strict=True)))
        else:
            done = [train_network(self, fit_tree, *tree, progress=progress) for tree in trees]
        self.histories = [history for _, history in done]
        if self.tokens is not None:
            self.tokens.set_params(cache=None)  # only the tokens of the training texts are kept
        self._set_trees([arrays for arrays, _ in done])
        self.sparse = self._fit_sparse_part(texts, Y, valid, progress) if plan.sparse_part else None

    def _fit_sparse_part(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> SparsePart | None:
        """Fit a sparse part to the same samples, and choose its weight in the sum on held-out samples."""
        from longtail.nn.validation import mean_precision

        seen = np.flatnonzero(self.label_counts).astype(np.int32)
        part = fit_sparse_part(X, Y, self.seed, self.threads, progress).select_labels(seen)
        if valid is None:
            return choose_scale(part, None)
        allowed = np.isin(np.arange(Y.shape[1]), find_sampled_labels(Y, self.n_names))
        T, predictor, k = valid[0], self._predictor, min(5, int(np.count_nonzero(allowed)))
        assert isinstance(predictor, SetPredictor)
        vectors = predictor.embed(T, self)

        def validate(each: SparsePart | None) -> Doubles:
            def rank(some: slice) -> TopK:
                return predictor.search([H[some] for H in vectors], T[some], k, self, allowed, each)

            return mean_precision(rank, valid[1]).of_samples

        return choose_scale(part, validate, is_optional=self.sparse_part is None, progress=progress)

    def _update(self, X: Any, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress) -> str:
        from longtail.models.secseq.continuation import PACES, add_codes, add_first_symbols, continue_tree, find_similar
        from longtail.nn.continuation import NewSamples

        if self.target == "sequence" and known is not None and known.nnz:
            found = (
                "secseq with target=sequence cannot learn from feedback on some labels of a text, only from all its labels"
            )
            raise LongtailError(found, hint="Add texts with all their labels as new samples, or train with target=set")
        counts, plan = self.count_labels(Y), self.plan(self.n_samples, self.n_seen)
        texts, replayed = self._encode(X), None if old is None else (self._encode(old[0]), old[1])
        n_new = int(np.count_nonzero(counts)) - self.n_seen
        if self.target == "set":
            forest = [add_first_symbols(codes, counts) for codes in self.forest]
        elif n_new and self.forest[0].depth == 1 and self.n_seen + n_new > self.forest[0].n_symbols:
            found = "with target=sequence and one symbol per label, secseq has no symbols for new labels"
            raise LongtailError(found, hint="Train it again on all samples, or with a larger n_symbols")
        else:
            similar = find_similar(lambda rows, k: self._predictor.topk(texts[rows], k, self, None), self.label_counts, Y)
            forest = [add_codes(codes, counts, similar) for codes in self.forest]
        samples = NewSamples.collect(texts, Y, known, replayed, self.n_samples, PACES)
        n_samples, whole = self.n_samples + Y.shape[0], SecSeqSettings(**self.get_params())
        trees = [
            continue_tree(samples, arrays, before, codes, n_samples, self._tree_settings(m, whole), plan, progress)
            for m, (arrays, before, codes) in enumerate(zip(self.tree_arrays, self.forest, forest, strict=True))
        ]
        self.forest = forest
        self._set_trees(trees)
        if self.sparse is not None:
            of_part = UpdateSamples.collect(X, Y, known, old, self.n_samples, self.label_counts)
            before, after = (np.flatnonzero(each).astype(np.int32) for each in (self.label_counts, counts))
            part = update_sparse_part(self.sparse, before, of_part, self.seed, self.threads, progress)
            self.sparse = part.select_labels(after)
        return describe_update("networks of all codes trained", n_new)

    def _tree_settings(self, number: int, whole: SecSeqSettings) -> SecSeqSettings:
        """The settings of one tree: it has its own seed and files.

        :param whole: Those of all trees.
        """
        suffix = f".{number}" if len(self.forest) > 1 else ""
        log, checkpoint = whole.log and f"{whole.log}{suffix}", whole.checkpoint and f"{whole.checkpoint}{suffix}"
        return replace(whole, seed=whole.seed + number, log=log, checkpoint=checkpoint)

    def _embed_labels(self, X: Any, Y: sp.csr_array) -> sp.csr_array | Floats:
        """Label vectors of norm 1, from which codes are made."""
        match self.embedding:
            case "pifa":
                features = X if self.encoder == WORDS else Tfidf(threads=self.threads).fit_transform(self._mask_digits(X))
                return pifa(features, Y, _TERMS_PER_LABEL)
            case "indicator":
                return embed_by_samples(Y)
            case "texts":
                return embed_by_text(self.labels)
            case "word_vectors":
                assert self.word_vectors is not None
                return embed_by_word_vectors(self.labels, self.word_vectors, self.seed)
            case _:
                return embed_by_walks(Y, seed=self.seed)

    def _make_tokens(self) -> Tokens | None:
        if self.encoder == WORDS:
            return None
        kind = {**choose_token_settings(self.encoder), "whole_words": self.reads_word_vectors}
        return Tokens(**kind, max_length=self.max_length, n_pieces=self.n_pieces, cache=self.cache)

    def _load_word_vectors(self) -> Floats | None:
        """The pretrained vectors of the words that the encoder reads [n_words, d]; None if there are none."""
        if not self.reads_word_vectors:
            return None
        assert self.tokens is not None and self.word_vectors is not None
        words = [self.tokens.get_token(number) for number in range(self.tokens.n_tokens)]
        vectors = load_word_vectors(self.word_vectors, words, self.seed)
        name, dim = ("width", self.width) if self.encoder == "bag" else ("token_width", self.token_width)
        if dim not in (None, vectors.shape[1]):
            found = f"{name} is {dim}, but the vectors of {self.word_vectors} have {vectors.shape[1]} dimensions"
            raise SettingError(found, hint=f"Leave {name} out, or set {name}=none to override a preset")
        return vectors

    def _encode(self, X: Any) -> Texts:
        """What the encoder reads: feature vectors, or the tokens of texts."""
        return self.tokens.transform(self._mask_digits(X)) if self.tokens else X

    def _mask_digits(self, X: Sequence[str]) -> Sequence[str]:
        return X if self.keep_digits else [_NUMBER.sub("0", text) for text in X]

    def _set_trees(self, trees: list[State]) -> None:
        """Store the networks, and prepare them for prediction."""
        self.tree_arrays = trees
        self._predictor: Predictor = (SetPredictor if self.target == "set" else SequencePredictor)(self.forest, trees)

    def _topk(self, X: Any, k: int, allowed: Bools | None) -> TopK:
        if isinstance(self._predictor, SetPredictor):
            return self._predictor.topk(self._encode(X), k, self, allowed, self.sparse)
        return self._predictor.topk(self._encode(X), k, self, allowed)

    def _explain(self, sample: Any, label: int) -> PartWeights:
        if self.tokens is None:
            return super()._explain(sample, label)
        return explain_by_occlusion(sample, label, self._find_explained)

    def slopes(self, x: sp.csr_array, label: int) -> Doubles:
        """By how much the score falls without each feature, divided by its value: the contribution of a unit of it."""
        return divide_by_values(drop_each_feature(x, label, self._find_explained), x)

    def _find_explained(self, X: Any) -> TopK:
        """The labels that can be explained."""
        return self._topk(X, min(_N_EXPLAINED, self.n_seen), None)

    def _state(self) -> State:
        out = {f"tokens.{name}": array for name, array in self.tokens.state().items()} if self.tokens else {}
        K = self.forest[0].n_symbols
        out["n_symbols"] = np.array([K])
        for number, (codes, arrays) in enumerate(zip(self.forest, self.tree_arrays, strict=True)):
            out[f"{number}.symbols"] = codes.symbols.astype(np.uint16 if K <= 2**16 else np.int32)
            out |= {f"{number}.{name}": array for name, array in arrays.items()}
        sparse = {} if self.sparse is None else self.sparse.state()
        return {**out, **{f"sparse.{name}": array for name, array in sparse.items()}}

    def _restore(self, state: State) -> None:
        self.tokens = self._make_tokens()
        if self.tokens is not None:
            self.tokens.restore(extract_part(state, "tokens."))
        trees = [extract_part(state, f"{number}.") for number in range(count_parts(state, "symbols"))]
        K, unseen = check_count(state, "n_symbols", 1, MAX_INT32), self.label_counts == 0
        self.forest, depth = [], None
        for arrays in trees:
            check_symbols(arrays, self.n_labels, depth, K, unseen)
            symbols = arrays.pop("symbols").astype(np.int32)
            symbols[unseen], depth = NO_CODE, symbols.shape[1]
            self.forest.append(Codebook(symbols, K, self.label_counts))
            check_network(arrays, self.forest[-1], self, self.n_features)
        self._set_trees(trees)
        sparse = extract_part(state, "sparse.")
        if sparse and not self.is_set_of_words:
            raise refuse(state, "sparse.weights", "belongs to another network", "It needs target=set and encoder=words")
        self.sparse = SparsePart.from_state(sparse, self.n_features, self.n_seen) if sparse else None
