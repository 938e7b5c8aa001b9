"""NeuralXC: autoencoders of inputs and of label sets, and a regression between their codes (Srinivasan, Rao and Agarwal).

Training is in ``longtail.models.neuralxc.training`` and needs torch; prediction is here and does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.holdout import split_holdout
from longtail.errors import LongtailError
from longtail.features.autoencoder import Autoencoder
from longtail.features.mlp import Mlp
from longtail.features.text import PUBLISHED_FEATURES
from longtail.kernels import Bools, Floats, Ints
from longtail.labelspace.centroids import compute_log_odds
from longtail.linear.centroid_trial import CentroidTrial
from longtail.linear.quantised import QuantisedTable
from longtail.linear.sparse_part import SparsePart
from longtail.linear.sparse_training import update_sparse_part
from longtail.linear.update import UpdateSamples
from longtail.model import Model, Valid
from longtail.models.neuralxc.settings import NeuralXCPlan, NeuralXCSettings
from longtail.nn.published_autoencoders import BATCH, EPOCHS, PUBLISHED, WEIGHT_DECAY
from longtail.placement import get_network_settings, train_network
from longtail.printable import describe_update
from longtail.progress import Progress
from longtail.search.exact import ExactIndex
from longtail.search.exact_sum import build_index, search_labels
from longtail.search.index import LabelIndex
from longtail.state import State, check_array, extract_part, refuse
from longtail.topk import TopK

if TYPE_CHECKING:
    from longtail.models.neuralxc.network import NeuralXCWeights

_FIRST_LAYER = "encoder.W0"  # its name in the state
_N_INDEX_QUERIES = 1000  # training samples by which an approximate index tunes how far it searches


class NeuralXC(NeuralXCSettings, CentroidTrial, Model):
    """Autoencoders of inputs and of label sets, and a regression between their codes.

    ŷ = ψₒ(f(φᵢ(x))), trained by α ‖ψᵢ(φᵢ(x)) − x‖² + β ‖ψₒ(φₒ(y)) − y‖² + BCE(ŷ, y) (eq. 1).

    Presets: ``paper`` is what was published: deep networks with a Tanh around the label code, all terms as means over
    coordinates, Adam with L2; on Bibtex and EURLex it collapses to the most frequent labels, in the paper as here. ``best``
    has one layer in each network, no Tanh, sums over labels, biases initialised with the label frequencies, dropout, plain
    SGD for the first layer, an average of the weights, and early stopping.

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> NeuralXC(encoder="8", label_encoder="4", holdout=0).fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    packages = ("torch",)
    trains_network = True
    presets: ClassVar = {
        "best": {"ngrams": 1},  # word pairs make the first layer several times as large
        "paper": {
            **{"encoder": PUBLISHED, "label_encoder": PUBLISHED, "regressor": PUBLISHED},
            **{"code_activation": "none", "latent_activation": "tanh", "label_init": "random", "sparse_part": False},
            **{
                "reduction": "mean",
                "prior_bias": False,
                "keep_prob": 1.0,
                "optimizer": "adam",
                "weight_decay": WEIGHT_DECAY,
            },
            **{"batch": BATCH, "epochs": EPOCHS, "schedule": "constant", "average": "none"},
            **{"patience": 0, "holdout": 0.0, "collapse_epochs": 0, "normalise": False, **PUBLISHED_FEATURES},
        },
    }

    history: list[dict[str, float]]  # one row per epoch; not saved
    autoencoder: Autoencoder  # φᵢ and ψᵢ
    latent_regressor: Mlp  # f
    label_decoder: Mlp  # ψₒ without its last layer
    first_layer: QuantisedTable  # [n_features, width] of φᵢ; its weights in ``autoencoder`` are the same, in float32
    seen: Ints  # ids of the labels that have training samples: the outputs of ψₒ
    index: LabelIndex  # [len(seen), h + 1] last layer of ψₒ: a vector for each label, with its bias as last component
    sparse: SparsePart | None  # [n_features, len(seen)] sparse part of the scores

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The sigmoid of the last layer of ψₒ; with a sparse part, of the mean of both logits."""
        return "probability"

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        from longtail.models.neuralxc.training import fit_neuralxc

        plan = self.plan(self.n_samples, self.n_features, self.n_labels)
        self.seen = np.flatnonzero(self.label_counts).astype(np.int32)
        Y = sp.csr_array(Y[:, self.seen])  # labels without samples need no outputs
        if valid is not None:
            valid = (valid[0], sp.csr_array(valid[1][:, self.seen]))
        elif self.holdout:
            X, Y, valid = split_holdout(X, Y, self.holdout, self.seed, n_names=self.n_names)
        arguments = X, Y, get_network_settings(self, NeuralXCSettings), plan, valid, self.n_names
        weights, self.history = train_network(self, fit_neuralxc, *arguments, progress=progress)
        self._set_weights(weights, X)
        if plan.output_activation == "none":
            self.autoencoder = self.autoencoder.refit_decoder(X)

    def _set_weights(self, weights: NeuralXCWeights, X: sp.csr_array) -> None:
        """Prepare for prediction; X: samples, some of which are queries that test the index."""
        self.autoencoder, self.latent_regressor, self.label_decoder, vectors, sparse = weights
        self._set_first_layer(QuantisedTable.quantise(weights.autoencoder.encoder.weights[0]))
        vectors = vectors.astype(np.float16).astype(np.float32)  # rounded as in the saved model
        some = np.random.default_rng(self.seed).permutation(X.shape[0])[:_N_INDEX_QUERIES]  # the file may be sorted by label
        self.sparse = None if sparse is None else sparse.select_labels(np.arange(len(self.seen), dtype=np.int32))
        self.index = build_index(vectors, lambda: self._embed(X[some]), self.sparse, self.seed)

    def _set_first_layer(self, table: QuantisedTable) -> None:
        """Replace the weights of the first layer of φᵢ, most of a model's size, by those of a table that is saved."""
        self.first_layer, encoder = table, self.autoencoder.encoder
        weights = [table.dequantise(np.arange(len(table.scale), dtype=np.int32)), *encoder.weights[1:]]
        self.autoencoder = replace(self.autoencoder, encoder=Mlp(weights, encoder.biases, encoder.activations))

    def _update(
        self, X: sp.csr_array, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress
    ) -> str:
        from longtail.models.neuralxc.continuation import PACES, continue_neuralxc
        from longtail.models.neuralxc.network import NeuralXCWeights
        from longtail.nn.continuation import NewSamples

        counts, n_samples = self.count_labels(Y), self.n_samples + X.shape[0]
        plan = self.plan(self.n_samples, self.n_features, self.n_labels)
        self._check_update(plan, self.plan(n_samples, self.n_features, Y.shape[1]))
        seen = np.flatnonzero(counts).astype(np.int32)  # labels without samples have no outputs
        places = np.searchsorted(seen, self.seen).astype(np.int32)
        vectors = np.zeros((len(seen), self.index.get_vector(0).shape[0]), np.float32)
        vectors[places] = np.stack([self.index.get_vector(i) for i in range(len(self.seen))])
        new = np.setdiff1d(np.arange(len(seen)), places).astype(np.int32)
        log_odds = compute_log_odds(counts[seen], n_samples)
        weights = NeuralXCWeights(self.autoencoder, self.latent_regressor, self.label_decoder, vectors)
        Y = sp.csr_array(Y[:, seen])
        known = None if known is None else sp.csr_array(known[:, seen])
        old = None if old is None else (old[0], sp.csr_array(old[1][:, seen]))
        samples = NewSamples.collect(X, Y, known, old, self.n_samples, PACES)
        weights = continue_neuralxc(samples, weights, new, log_odds[new], self, plan, progress)
        if self.sparse is not None:
            before = np.zeros(len(seen), np.int32)
            before[places] = self.label_counts[self.seen]
            of_part = UpdateSamples.collect(X, Y, known, old, self.n_samples, before)
            part = update_sparse_part(self.sparse, places, of_part, self.seed, self.threads, progress)
            weights = weights._replace(sparse=part)
        self.seen = seen
        self._set_weights(weights, X)
        return describe_update("networks trained", len(new))

    def _check_update(self, plan: NeuralXCPlan, after: NeuralXCPlan) -> None:
        """Raise an error for settings with which training cannot be continued."""
        if self.mode == "staged":
            found = "neuralxc with mode=staged cannot be updated: a saved model has no label encoder"
            raise LongtailError(found, hint="Train it again on all samples, or with mode=joint")
        shape = [
            (len(p.encoder_widths), len(p.label_encoder_widths), len(p.regressor_widths), p.code_activation, p.optimizer)
            for p in (plan, after)
        ]
        if shape[0] != shape[1]:
            found = "with the new labels, neuralxc has another network than the one that was trained"
            raise LongtailError(found, hint="Train it again on all samples")

    def _embed(self, X: sp.csr_array) -> Floats:
        """Return the input of the last layer of ψₒ, and a 1 that is multiplied by the label's bias [n, h + 1]."""
        H = self.label_decoder(self.latent_regressor(self.autoencoder.encoder(X)))
        return np.hstack([H, np.ones((len(H), 1), np.float32)])

    def _topk(self, X: sp.csr_array, k: int, allowed: Bools | None) -> TopK:
        among = None if allowed is None else allowed[self.seen]
        best = search_labels(self.index, self._embed(X), self.sparse, X, k, self.threads, among)
        logits = best.scores if self.sparse is None else self.sparse.average_logits(best.scores)
        scores = np.exp(-np.logaddexp(0, -logits))
        return TopK(np.where(best.ids >= 0, self.seen[best.ids], best.ids), scores)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Return the slopes of the log-odds, through φᵢ, f and ψₒ: Σ x · slopes is their difference from an empty sample."""
        parts = (self.autoencoder.encoder, self.latent_regressor, self.label_decoder)
        first, *rest = [W for part in parts for W in part.weights]
        biases = [b for part in parts for b in part.biases]
        activations = [activation for part in parts for activation in part.activations]
        number = int(np.searchsorted(self.seen, label))
        out = Mlp([first[x.indices], *rest], biases, activations).slopes(x.data, self.index.get_vector(number)[:-1])
        return out if self.sparse is None else self.sparse.average_logits(out + self.sparse.slopes(x, number))

    def encode(self, X: sp.csr_array) -> sp.csr_array:
        """Return the code φᵢ(x) of each sample [n, a], as features for any other method."""
        self._check_fitted()
        return self.autoencoder.transform(X)

    def novelty(self, X: sp.csr_array) -> Floats:
        """Return the relative reconstruction error of each sample [n]: high for samples unlike the training data."""
        self._check_fitted()
        return self.autoencoder.novelty(X)

    def _state(self) -> State:
        index = self.index.state()
        index["vectors"] = index["vectors"].astype(np.float16)
        networks, outputs = self.autoencoder.state(), self.autoencoder.outputs
        del networks[_FIRST_LAYER]
        return {
            **networks,
            **{f"{_FIRST_LAYER}.{name}": array for name, array in self.first_layer.state().items()},
            **({} if outputs is None else {"outputs": outputs}),
            **({} if self.sparse is None else {f"sparse.{name}": array for name, array in self.sparse.state().items()}),
            **self.latent_regressor.state("regressor"),
            **self.label_decoder.state("label_decoder"),
            **{f"index.{name}": array for name, array in index.items()},
            "seen": self.seen,
        }

    def _restore(self, state: State) -> None:
        plan = self.plan(self.n_samples, self.n_features, self.n_labels)
        n, n_label, n_between = len(plan.encoder_widths), len(plan.label_encoder_widths), len(plan.regressor_widths)
        if _FIRST_LAYER in state:  # a bundle of before it was stored in 8 bits
            half = check_array(state, _FIRST_LAYER, "f2", (self.n_features, None))
            table = QuantisedTable.quantise(half.astype(np.float32))
        else:
            table = QuantisedTable.from_state(extract_part(state, f"{_FIRST_LAYER}."), self.n_features)
        first = table.dequantise(np.arange(self.n_features, dtype=np.int32))
        activations = [*["relu"] * (n - 1), plan.code_activation]
        encoder = Mlp.from_state(state, "encoder", activations, self.n_features, first=first)
        code, outputs = encoder.output_dim(self.n_features), None
        if "outputs" in state:
            outputs = check_array(state, "outputs", "i4", (None,), minimum=0, maximum=self.n_features - 1, ascending=True)
        activations, n_out = [*["leaky0.2"] * (n - 1), plan.output_activation], len(outputs) if outputs is not None else None
        decoder = Mlp.from_state(state, "decoder", activations, code, self.n_features if n_out is None else n_out)
        self.first_layer, self.autoencoder = table, Autoencoder(encoder, decoder, outputs)
        self.latent_regressor = Mlp.from_state(state, "regressor", [*["relu"] * n_between, self.latent_activation], code)
        latent = self.latent_regressor.output_dim(code)
        self.label_decoder = Mlp.from_state(state, "label_decoder", ["relu"] * (n_label - 1), latent)
        self.seen = self.check_seen(state)
        sparse, n_seen = extract_part(state, "sparse."), len(self.seen)
        self.sparse = SparsePart.from_state(sparse, self.n_features, n_seen) if sparse else None
        self.index = LabelIndex.from_state(extract_part(state, "index."), n_seen, self.label_decoder.output_dim(latent) + 1)
        if self.sparse is not None and not isinstance(self.index.search, ExactIndex):
            raise refuse(state, "index.centres", "belongs to an approximate index", "With a sparse part, search is exact")
