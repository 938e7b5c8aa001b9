"""NeuralXC: autoencoders of inputs and of label sets, and a regression from code to code (Srinivasan, Rao and Agarwal).

Training is in ``longtail.models.neuralxc.training`` and needs torch; prediction is here and needs none.
"""

from __future__ import annotations

import re
from math import log2
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.holdout import split_holdout
from longtail.errors import BIG, SettingError, check_settings, missing_extra
from longtail.features.autoencoder import Autoencoder
from longtail.features.mlp import ACTIVATIONS, Mlp, halved
from longtail.kernels import Floats, Ints
from longtail.model import Model, Valid
from longtail.progress import Progress
from longtail.search.index import LabelIndex
from longtail.state import State
from longtail.topk import TopK

CHOICES = {
    "mode": ("joint", "staged"),
    "code_activation": tuple(ACTIVATIONS),
    "latent_activation": tuple(ACTIVATIONS),
    "output_activation": ("none", "relu", "sigmoid"),
    "optimizer": ("sgd", "adam"),
    "average": ("none", "swa", "ema"),
}
PUBLISHED = "published"
# (features, labels) of a corpus -> widths of φᵢ, φₒ and between the codes, last activation of ψᵢ, Adam's rate
WIDTHS: dict[tuple[int, int], tuple[list[int], list[int], list[int], str, float]] = {
    (1836, 159): ([1152, 600, 256], [96, 32], [112], "sigmoid", 3e-4),  # Bibtex
    (500, 983): ([250, 125], [326, 163, 82], [104], "sigmoid", 3e-4),  # Delicious
    (120, 101): ([100, 50], [75, 50, 32], [41], "sigmoid", 1e-3),  # Mediamill
    (5000, 3993): ([2500, 1250, 500], [1331, 443, 141], [325], "relu", 3e-4),  # EURLex-4K
}
FEW = 4096  # labels up to which every step looks at all of them
QUERIES = 1000  # training samples that tell the index how far it must search


class NeuralXC(Model):
    """Autoencoders of inputs and of label sets, and a regression between their codes.

    ŷ = ψₒ(f(φᵢ(x))), trained by α ‖ψᵢ(φᵢ(x)) − x‖² + β ‖ψₒ(φₒ(y)) − y‖² + BCE(ŷ, y) (eq. 1).

    Presets: ``paper`` is what was published: deep networks with a Tanh around the label code, all terms as means over
    coordinates, Adam with L2; on Bibtex and EURLex it collapses to the most frequent labels, there as here. ``best`` has one
    layer in each network, no Tanh, sums over labels, biases that start at the labels' frequencies, dropout, plain gradient
    descent for the first layer, an average of the weights, and early stopping.

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> NeuralXC(encoder="8", label_encoder="4", holdout=0).fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "best": {"ngrams": 1},  # pairs of words make the first layer several times as large, and are of no use here
        "paper": {
            **{"encoder": PUBLISHED, "label_encoder": PUBLISHED, "regressor": PUBLISHED, "alpha": 0.01, "beta": 0.01},
            **{"code_activation": "none", "latent_activation": "tanh", "output_activation": "sigmoid", "mean": True},
            **{"prior": False, "keep": 1.0, "optimizer": "adam", "decay": 1e-4, "batch": 64, "epochs": 25, "rate": None},
            **{"schedule": "constant", "average": "none", "patience": 0, "holdout": 0.0, "ngrams": 1},
        },
    }

    history: list[dict[str, float]]  # one row for each epoch; not saved

    def __init__(
        self,
        *,
        encoder: str = "256",
        label_encoder: str = "256",
        regressor: str = "",
        mode: str = "joint",
        alpha: float = 0.01,
        beta: float = 0.01,
        gamma: float = 0.0,
        mean: bool = False,
        code_activation: str = "relu",
        latent_activation: str = "none",
        output_activation: str = "none",
        prior: bool = True,
        keep: float = 0.8,
        batch: int | None = None,
        epochs: int | None = None,
        optimizer: str = "sgd",
        rate: float | None = None,
        label_rate: float | None = None,
        decay: float = 0.0,
        schedule: str = "linear",
        average: str = "ema",
        patience: int = 5,
        holdout: float = 0.05,
        seed: int = 0,
        threads: int | None = None,
        device: str = "cpu",
        log: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Store the settings.

        encoder, label_encoder: widths of φᵢ and φₒ up to their codes, such as "1152-600-256"; the decoders have them
        backwards. regressor: widths of f between the codes. All three may be "published": those of the paper for data of the
        sizes of its corpora, halved from layer to layer for others. mode: joint (eq. 1), or staged, the paper's words: an
        autoencoder of x, one of y, and then f. alpha, beta: weights of the two reconstructions (paper 0.01). gamma: weight
        of ‖f(φᵢ(x)) − φₒ(y)‖² (paper 0: it has no such term). mean: whether losses are means over the features and labels
        (the paper's code) or sums (its equation). code_activation, latent_activation, output_activation: after φᵢ; after φₒ
        and f; after ψᵢ (paper none, tanh, sigmoid). prior: whether label biases start at the log-odds of the labels (paper:
        no). keep: share of the features that input dropout leaves (paper 1). batch: samples of a step (paper 64).
        epochs: at most so many (paper: not given). optimizer: adam with L2 for all (paper), or sgd for
        the first layer and Adam for the rest. rate: of all, or of the first layer; label_rate: of the rest. decay: L2 inside
        Adam (paper 1e-4), or weight decay of the rest. schedule, average: of rates and weights. patience: epochs without a
        better metric before it stops. holdout: share of the samples that is held out for that, unless validation data is
        given. device: cpu or cuda. log: a file for one line of JSON for each epoch. checkpoint: a file from which a killed
        run goes on.

        By default, found on held-out training data: batch 32 to 128, epochs 30, rate 30, label_rate 0.001; above 4,096
        labels 512, 15, 100, 0.003.
        """
        self.encoder, self.label_encoder, self.regressor, self.mode = encoder, label_encoder, regressor, mode
        self.alpha, self.beta, self.gamma, self.mean = alpha, beta, gamma, mean
        self.code_activation, self.latent_activation = code_activation, latent_activation
        self.output_activation, self.prior, self.keep = output_activation, prior, keep
        self.batch, self.epochs, self.optimizer, self.rate = batch, epochs, optimizer, rate
        self.label_rate, self.decay, self.schedule, self.average = label_rate, decay, schedule, average
        self.patience, self.holdout, self.seed = patience, holdout, seed
        self.threads, self.device, self.log, self.checkpoint = threads, device, log, checkpoint

    @property
    def score_meaning(self) -> Literal["probability"]:
        """What the last layer gives, through a sigmoid."""
        return "probability"

    def _chosen(self) -> dict[str, Any]:
        """The settings, with widths as lists, and with those that depend on the sizes of the data."""
        names = ("encoder", "label_encoder", "regressor")
        out = {**self.get_params(), **{name: widths(name, getattr(self, name)) for name in names}}
        *published, output, rate = published_or_derived(self.n_features, self.n_labels)
        out.update({name: value for name, value in zip(names, published, strict=True) if getattr(self, name) == PUBLISHED})
        if self.encoder == PUBLISHED:
            out["output_activation"] = output
        small = min(max(2 ** round(log2(self.n_samples / 128)), 32), 128)  # few samples, smaller steps
        few = {"batch": small, "epochs": 30, "rate": 30.0, "label_rate": 0.001}
        many = {"batch": 512, "epochs": 15, "rate": 100.0, "label_rate": 0.003}
        chosen = few if self.n_labels <= FEW else many
        chosen |= {"rate": rate} if self.optimizer == "adam" else {}
        return out | {name: value for name, value in chosen.items() if out[name] is None}

    def _check_settings(self) -> None:
        check_settings(
            self.get_params(),
            choices=CHOICES,
            above_zero=("keep", "batch", "epochs", "rate", "label_rate"),
            at_most={
                **dict.fromkeys(("alpha", "beta", "gamma", "decay", "patience"), BIG),
                **{"keep": 1, "holdout": 0.5, "seed": 2**63 - 1},
            },
            whole=("batch", "epochs", "patience", "seed"),
        )

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        self._check_settings()
        s = SimpleNamespace(**self._chosen())
        try:
            from longtail.models.neuralxc.training import fit, plain
        except ImportError as error:
            raise missing_extra("torch", "nn", "Training neuralxc") from error
        if valid is None and self.holdout:
            X, Y, valid = split_holdout(X, Y, self.holdout, self.seed)
        net, self.history = fit(X, Y, s, valid, progress)
        self.autoencoder, self.between, self.inner, vectors = plain(net, s.output_activation)
        if s.output_activation == "none":
            self.autoencoder = self.autoencoder.refitted(X)
        self.seen: Ints = np.flatnonzero(self.label_counts).astype(np.int32)
        vectors = vectors[self.seen].astype(np.float16).astype(np.float32)  # as it will be saved
        self.index = LabelIndex.build(vectors, queries=self._queries(X[:QUERIES]), seed=self.seed)

    def _queries(self, X: sp.csr_array) -> Floats:
        """What the last layer of ψₒ reads, and a 1 that meets the label's bias [n, h + 1]."""
        H = self.inner(self.between(self.autoencoder.encoder(X)))
        return np.hstack([H, np.ones((len(H), 1), np.float32)])

    def _topk(self, X: sp.csr_array, k: int) -> TopK:
        best = self.index.topk(self._queries(X), k, self.threads)
        scores = np.exp(-np.logaddexp(0, -best.scores))
        return TopK(np.where(best.ids >= 0, self.seen[best.ids], best.ids), scores)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Through φᵢ, f and ψₒ: Σ x · slopes is by how much the log-odds differ from those without features."""
        first, *rest = [W for part in self._parts() for W in part.weights]
        biases = [b for part in self._parts() for b in part.biases]
        names = [name for part in self._parts() for name in part.activations]
        of_label = self.index.vector(np.searchsorted(self.seen, label))[:-1]
        return Mlp([first[x.indices], *rest], biases, names).slopes(x.data, of_label)

    def _parts(self) -> tuple[Mlp, Mlp, Mlp]:
        """From the input to the last layer."""
        return self.autoencoder.encoder, self.between, self.inner

    def encode(self, X: sp.csr_array) -> sp.csr_array:
        """The code of each input, φᵢ(x) [n, a]: features for any other method."""
        self._must_be_fitted()
        return self.autoencoder.transform(X)

    def novelty(self, X: sp.csr_array) -> Floats:
        """How much of each input its code does not tell [n]: high for what is unlike the training data."""
        self._must_be_fitted()
        return self.autoencoder.novelty(X)

    def _state(self) -> State:
        index = self.index.state()
        index["vectors"] = index["vectors"].astype(np.float16)
        return {
            **self.autoencoder.state(),
            **self.between.state("regressor"),
            **self.inner.state("inner"),
            **{f"index.{name}": array for name, array in index.items()},
            "seen": self.seen,
        }

    def _restore(self, state: State) -> None:
        s = SimpleNamespace(**self._chosen())
        self.autoencoder, self.between, self.inner = restored_networks(state, s)
        self.seen = state["seen"]
        index = {name.removeprefix("index."): array for name, array in state.items() if name.startswith("index.")}
        self.index = LabelIndex.restored({**index, "vectors": index["vectors"].astype(np.float32)})


def restored_networks(state: State, s: SimpleNamespace) -> tuple[Autoencoder, Mlp, Mlp]:
    """Networks from their arrays; their activations follow from the settings."""
    n, n_labels, between = len(s.encoder), len(s.label_encoder), len(s.regressor)
    encoder = Mlp.restored(state, "encoder", [*["relu"] * (n - 1), s.code_activation])
    decoder = Mlp.restored(state, "decoder", [*["leaky0.2"] * (n - 1), s.output_activation])
    regressor = Mlp.restored(state, "regressor", [*["relu"] * between, s.latent_activation])
    return Autoencoder(encoder, decoder), regressor, Mlp.restored(state, "inner", ["relu"] * (n_labels - 1))


def published_or_derived(n_features: int, n_labels: int) -> tuple[list[int], list[int], list[int], str, float]:
    """The row of ``WIDTHS`` for data of these sizes; for others by the same rule of thumb: halved from layer to layer.

    >>> published_or_derived(500, 983)[0], published_or_derived(2000, 300)[:3]
    ([250, 125], ([1000, 500, 256], [150, 75], [165]))
    """
    if (n_features, n_labels) in WIDTHS:
        return WIDTHS[n_features, n_labels]
    a, b = min(max(n_features // 4, 1), 256), min(max(n_labels // 4, 1), 128)
    return halved(n_features, a), halved(n_labels, b), [(a + b) // 2], "sigmoid", 3e-4


def widths(name: str, text: str) -> list[int]:
    """Widths as they are written, from one end of a network to the other.

    >>> widths("encoder", "1152-600-256"), widths("regressor", "")
    ([1152, 600, 256], [])
    """
    if text == PUBLISHED or (text == "" and name == "regressor"):
        return []
    if not isinstance(text, str) or not re.fullmatch(r"[1-9]\d{0,6}(-[1-9]\d{0,6})*", text):
        raise SettingError(f'{name} is "{text}"', hint='Give widths such as "512-256", or "published"')
    return [int(word) for word in text.split("-")]
