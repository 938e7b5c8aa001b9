"""Prediction with the trained networks of SeCSeq, from their saved arrays. Bags of words or tokens need no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Bools, Floats, Longs
from longtail.linear.quantised import QuantisedTable
from longtail.linear.sparse_part import SparsePart
from longtail.models.secseq.codes import Codebook, join_codes
from longtail.models.secseq.decoder import DecoderForest
from longtail.models.secseq.search import TrieSearch, search_tries
from longtail.models.secseq.sequences import score_labels
from longtail.models.secseq.settings import BAGS, WORDS, SecSeqSettings, Texts
from longtail.models.secseq.trie import rank_labels
from longtail.nn.saved_encoder import SavedEncoder, encode_bags
from longtail.state import State, extract_part
from longtail.topk import TopK

_ROWS_PER_BATCH = 256  # texts times trees that are decoded together
_FLOATS_PER_BATCH = 2**24  # entries of the attention layer of a batch


def compress_arrays(arrays: State, settings: SecSeqSettings) -> State:
    """The arrays of a network as they are saved: vectors of words and bags in 4 bits, of nodes in 8, of other tokens in 16.

    Rounding to 4 bits changes an inner product of vectors of 512 dimensions far less than their random start does.
    """
    has_bag = settings.target == "set" and settings.encoder in BAGS
    out: State = {}
    for name, array in arrays.items():
        if name == "words.weight" or (has_bag and name == "encoder.weights.table.weight"):
            out |= {f"bag.{part}": values for part, values in QuantisedTable.quantise(array, bits=4).state().items()}
        elif name == "net.node_vectors.weight":
            out |= {f"nodes.{part}": values for part, values in QuantisedTable.quantise(array).state().items()}
        elif not (has_bag and name.startswith("encoder.")):
            out[name] = array.astype(np.float16) if name.endswith("table.weight") else array
    return out


class TreeEncoder:
    """The text encoder of one tree."""

    def __init__(self, arrays: State) -> None:
        """Take the encoder from the arrays of a network, as ``compress_arrays`` returned them."""
        self.words_bias = arrays.get("words.bias")
        self.bag = QuantisedTable(arrays["bag.values"], arrays["bag.scale"]) if "bag.values" in arrays else None
        layer = arrays.get("net.text_layer.weight", arrays.get("net.initial_state.weight"))  # what reads the encoder
        self.network = SavedEncoder(extract_part(arrays, "encoder."), None if layer is None else layer.shape[1])

    def encode(self, texts: Texts, settings: SecSeqSettings) -> Floats:
        """The text vectors [n, width]."""
        if self.bag is None:
            return self.network.encode(texts, settings.device, settings.threads)
        if self.words_bias is None:
            return encode_bags(texts, self.bag, settings.threads)
        return self.bag.matmul(texts, settings.threads) + self.words_bias

    def encode_for_attention(self, texts: Texts, settings: SecSeqSettings) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """What a decoder attends to: states [n, T, width], where there is one [n, T], text vectors [n, width]."""
        if self.words_bias is None:
            return self.network.attention_arrays(texts, settings.device, settings.threads)
        V = np.maximum(self.encode(texts, settings), 0)
        return V[:, None], np.ones((len(V), 1), bool), V


class Predictor(Protocol):
    """Finds the best labels of texts."""

    def topk(self, texts: Texts, k: int, settings: SecSeqSettings, allowed: Bools | None) -> TopK:
        """The k best labels of each text, or the k best of the allowed ones."""


class SetPredictor:
    """The labels with the most probable codes, by the set networks of all trees."""

    def __init__(self, forest: Sequence[Codebook], trees: Sequence[State]) -> None:
        """Prepare the search.

        :param forest: The codes of each tree.
        :param trees: The arrays of each tree, as ``compress_arrays`` returned them.
        """
        self.encoders = [TreeEncoder(arrays) for arrays in trees]
        self.heads = [extract_part(arrays, "net.") | restore_node_vectors(arrays) for arrays in trees]
        self.searches = [
            TrieSearch.build(codes.trie, head, arrays["prior"])
            for codes, head, arrays in zip(forest, self.heads, trees, strict=True)
        ]

    def topk(
        self, texts: Texts, k: int, settings: SecSeqSettings, allowed: Bools | None, sparse: SparsePart | None = None
    ) -> TopK:
        """The k labels with the highest mean probability over the trees.

        :param sparse: A sparse part of the scores, if the texts are feature vectors.
        """
        return self.search(self.embed(texts, settings), texts, k, settings, allowed, sparse)

    def embed(self, texts: Texts, settings: SecSeqSettings) -> list[Floats]:
        """h(x) of each tree (``set_network.SetNetwork``) [n, width]."""
        vectors = [encoder.encode(texts, settings) for encoder in self.encoders]
        if settings.encoder == WORDS:
            return vectors
        pairs = zip(self.heads, vectors, strict=True)
        return [np.maximum(V @ head["text_layer.weight"].T + head["text_layer.bias"], 0) for head, V in pairs]

    def search(
        self,
        H: list[Floats],
        texts: Texts,
        k: int,
        settings: SecSeqSettings,
        allowed: Bools | None,
        sparse: SparsePart | None,
    ) -> TopK:
        """The same, by what ``embed`` returned."""
        return search_tries(
            self.searches,
            H,
            k,
            beam=settings.beam,
            threads=settings.threads,
            allowed=allowed,
            sparse=sparse,
            X=None if sparse is None else texts,
        )


def restore_node_vectors(arrays: State) -> State:
    """The vectors of nodes in float32, if there are any."""
    if "nodes.values" not in arrays:
        return {}
    table = QuantisedTable(arrays["nodes.values"], arrays["nodes.scale"])
    return {"node_vectors.weight": table.dequantise(np.arange(len(table.scale), dtype=np.int32))}


class SequencePredictor:
    """The labels whose codes the sequence networks of all trees generate."""

    def __init__(self, forest: Sequence[Codebook], trees: Sequence[State]) -> None:
        """Prepare the decoders.

        :param forest: The codes of each tree.
        :param trees: The arrays of each tree, as ``compress_arrays`` returned them.
        """
        self.encoders = [TreeEncoder(arrays) for arrays in trees]
        self.decoder = DecoderForest([extract_part(arrays, "net.") for arrays in trees], forest[0].depth)
        self.forest, self.trie, self.n_labels = forest, join_codes(forest), len(forest[0].counts)

    def topk(self, texts: Texts, k: int, settings: SecSeqSettings, allowed: Bools | None) -> TopK:
        """The k labels with the highest mean score over the trees.

        With ``allowed``, only the codes of these labels are generated, and scores are those of such sequences.
        """
        trie, scores, order = self.trie, [], []
        if allowed is not None:
            trie = join_codes([codes.restrict(allowed) for codes in self.forest])
            settings = SecSeqSettings(**{**settings.get_params(), "constrained": True})
        for rows in self._batches(texts, settings):
            memory = self.decoder.encode([each.encode_for_attention(texts[rows], settings) for each in self.encoders])
            scores.append(score_labels(self.decoder, memory, trie, self.n_labels, settings))
            order.append(rows)
        return rank_labels(sp.csr_array(sp.vstack(scores))[np.argsort(np.concatenate(order))], k)

    def _batches(self, texts: Texts, settings: SecSeqSettings) -> Iterator[Longs]:
        """The texts that are decoded together."""
        n_trees = len(self.encoders)
        if not isinstance(texts, TokenRows):
            yield from np.array_split(np.arange(texts.shape[0]), -(-texts.shape[0] * n_trees // _ROWS_PER_BATCH))
            return
        n_sequences = n_trees * (settings.samples if settings.decoding == "samples" else settings.beam)
        n_tokens = max(_FLOATS_PER_BATCH // (n_sequences * settings.get_width()), 1)
        n_texts = max(_ROWS_PER_BATCH // n_trees, 1)
        yield from make_length_batches(texts.lengths, np.random.default_rng(0), batch=n_texts, tokens=n_tokens)
