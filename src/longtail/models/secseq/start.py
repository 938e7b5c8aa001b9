"""Where the set network starts: random word vectors, and for symbols and codes the mean of the vectors of their texts.

Random projections keep inner products, so the logit of a label starts at the cosine of a text and the centroid of the
label's texts, times a constant. A network that starts at random has to find that out, one text at a time, for each rare word
and label. Singular vectors of the centroids were tried for the words, and are worse: a few hundred of them only see
the frequent words.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from longtail.kernels import Floats
from longtail.models.secseq.network import WordsEncoder
from longtail.models.secseq.set_network import BranchTargets, SetNetwork

WORD_STD = 1.0  # of the entries of random word vectors, with which the vectors of texts have entries of about 1

_MAX_LOGIT = 20.0  # of a text that equals the centroid of a label's texts
_SAMPLES_PER_BLOCK = 4096
_MIN_NORM = 1e-12


def start_from_centroids(net: SetNetwork, X: sp.csr_array, targets: BranchTargets) -> None:
    """Set the first output layer and the node vectors of a network with WordsEncoder.

    :param X: The TF-IDF vectors of the training texts.
    """
    assert isinstance(net.encoder, WordsEncoder)
    trie, E = targets.trie, net.encoder.table.weight.detach().cpu().numpy()
    first, *others = targets.paths
    symbols = torch.from_numpy(trie.symbol[trie.level_start[1] : trie.level_start[2]]).long()
    layer = net.output_layers[0]
    assert isinstance(layer, torch.nn.Linear)
    centroids = average_texts(X, first, E)
    layer.weight.data[symbols] = torch.from_numpy(centroids).to(layer.weight.device)
    logits = (X[:_SAMPLES_PER_BLOCK] @ E) @ centroids.T  # [n, nodes]
    change = -np.log(np.exp(np.minimum(logits, _MAX_LOGIT)).mean(0))  # so that the mean odds stay those of the prior
    layer.bias.data[symbols] = torch.from_numpy(change.astype(np.float32)).to(layer.bias.device)
    if net.node_vectors is not None:
        vectors = np.concatenate([average_texts(X, path, E) for path in others])
        net.node_vectors.weight.data.copy_(torch.from_numpy(vectors))


def average_texts(X: sp.csr_array, paths: sp.csr_array, E: Floats) -> Floats:
    """The centroid of the texts that go through each node [n_nodes, width], less the mean, with the length that logits need.

    :param paths: Which texts go through which nodes [n_samples, n_nodes].
    :param E: Word vectors [n_words, width].
    """
    out: Floats = np.zeros((paths.shape[1], E.shape[1]), np.float32)
    for start in range(0, X.shape[0], _SAMPLES_PER_BLOCK):  # all text vectors at once may not fit into memory
        block = slice(start, start + _SAMPLES_PER_BLOCK)
        passes = paths[block].astype(bool).astype(np.float32)
        out += passes.T.tocsr() @ (X[block] @ E)
    out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), _MIN_NORM)
    out -= out.mean(0)
    out *= _MAX_LOGIT / (WORD_STD * E.shape[1] ** 0.5)  # the norm of a text vector
    return out
