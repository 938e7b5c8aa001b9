"""GLaS: a vector for each input and each label, kept from overfitting (Guo et al., NeurIPS 2019).

Training is in ``longtail.models.glas.training`` and needs torch; prediction is here and needs none.
"""

from __future__ import annotations

from math import log2
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.holdout import split_holdout
from longtail.errors import BIG, SettingError, check_settings, missing_extra
from longtail.features.mlp import Mlp
from longtail.kernels import Floats, Ints
from longtail.linear.quantised import QuantisedTable
from longtail.model import Model, Valid
from longtail.models.glas.cooccurrence import MEANS
from longtail.progress import Progress
from longtail.search.index import LabelIndex
from longtail.state import State
from longtail.topk import TopK

CHOICES = {
    "loss": ("margin", "softmax", "bce"),
    "negatives": ("batch", "hardest", "all"),
    "regulariser": ("glas", "spread-out", "laplacian", "gravity"),
    "mean": MEANS,
    "label_sampling": ("frequency", "uniform"),
    "init": ("random", "pifa"),
    "optimizer": ("sgd", "adagrad", "adam"),
    "average": ("none", "swa", "ema"),
}
FEW = 4096  # labels up to which every step looks at all of them
QUERIES = 1000  # training samples that tell the index how far it must search


class Glas(Model):
    """Inputs and labels as vectors of a few hundred numbers; the labels whose vectors lie nearest are found by search.

    h(x) = φ(x)ᵀ V with φ(x) = ReLU(E x + b). The loss has a term that ties the label vectors' inner products to how often
    labels stand together, λ/B² ‖VᵀV − U‖² (eq. 3).

    Presets: ``paper`` is algorithm 2 as published (a second layer, vectors of one shared length, one drawn label for each
    sample, margin loss against the other labels drawn, 1024 numbers, λ 10, ρ 0.8, batches of 4096, at most 10 epochs).
    ``best`` starts labels at the centres of their samples, trains E by plain gradient descent, averages the weights of all
    epochs, and uses binary cross-entropy over all labels where there are few.

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> Glas(d=8, holdout=0).fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    presets: ClassVar = {
        "best": {"ngrams": 1},  # pairs of words make E several times as large, and are of no use here
        "paper": {
            **{"d": 1024, "second": True, "unit": True, "init": "random", "loss": "margin", "negatives": "batch"},
            **{"regulariser": "glas", "weight": 10.0, "keep": 0.8, "batch": 4096, "epochs": 10, "discount": 0.0},
            **{"optimizer": "sgd", "rate": 10.0, "label_rate": 0.003, "schedule": "constant", "average": "none"},
            "ngrams": 1,
        },
    }

    history: list[dict[str, float]]  # one row for each epoch; not saved

    def __init__(
        self,
        *,
        d: int = 256,
        relu: bool = True,
        second: bool = False,
        unit: bool = False,
        init: str = "pifa",
        label_length: float | None = None,
        loss: str | None = None,
        negatives: str | None = None,
        n_hardest: int = 50,
        discount: float = 0.5,
        regulariser: str = "glas",
        weight: float = 10.0,
        mean: str = "arithmetic",
        label_sampling: str = "frequency",
        keep: float = 0.8,
        rescale: bool = False,
        batch: int | None = None,
        epochs: int | None = None,
        optimizer: str = "sgd",
        rate: float | None = None,
        label_rate: float | None = None,
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

        d: numbers of a vector (paper 1024). relu: whether φ has one (paper: yes). second: a second layer (paper: yes, by
        our reading). unit: weight vectors of a layer share one length (paper: yes). init: where label vectors start:
        random, or pifa, the centre of their samples, ``label_length`` long. loss: margin (paper), softmax or bce.
        negatives: batch (the labels drawn for the other samples; paper), hardest (the ``n_hardest`` of these) or all.
        discount: power of a label's frequency that is taken out of its scores in training, as frequent labels are drawn
        more often (paper 0). regulariser: glas (paper), spread-out, laplacian or gravity, with its weight λ (paper 10)
        and, for the pairs, their mean (paper: arithmetic) and whether labels are drawn by frequency (paper) or evenly.
        keep: ρ, the share of features that input dropout leaves (paper 0.8); rescale: whether it makes up for the others
        (paper: no). batch: samples of a step (paper 4096). epochs: at most so many (paper 10). optimizer and rate: of E;
        label_rate: of all else, by Adam (paper: not given). schedule, average: of rates and weights. patience: epochs
        without a better metric before it stops. holdout: share of the samples that is held out for that, unless
        validation data is given. device: cpu or cuda. log: a file for one line of JSON for each epoch. checkpoint: a
        file from which a killed run goes on.

        By default, up to 4,096 labels are all compared by bce (label_length 1, batch 32 to 128, epochs 30, rate 30,
        label_rate 0.001), and more by softmax in the batch (10, 1024, 15, 100, 0.003).
        """
        self.d, self.relu, self.second, self.unit = d, relu, second, unit
        self.init, self.label_length = init, label_length
        self.loss, self.negatives, self.n_hardest, self.discount = loss, negatives, n_hardest, discount
        self.regulariser, self.weight, self.mean, self.label_sampling = regulariser, weight, mean, label_sampling
        self.keep, self.rescale, self.batch, self.epochs = keep, rescale, batch, epochs
        self.optimizer, self.rate, self.label_rate, self.schedule = optimizer, rate, label_rate, schedule
        self.average, self.patience, self.holdout, self.seed = average, patience, holdout, seed
        self.threads, self.device, self.log, self.checkpoint = threads, device, log, checkpoint

    @property
    def score_meaning(self) -> Literal["probability", "margin"]:
        """Probability under binary cross-entropy, otherwise the inner product."""
        return "probability" if self._chosen()["loss"] == "bce" else "margin"

    def _chosen(self) -> dict[str, Any]:
        """The settings, with those that depend on the number of labels and samples; found on held-out training data."""
        fitted = hasattr(self, "label_counts")
        few = not fitted or self.n_seen <= FEW
        negatives = self.negatives or ("all" if few and self.loss != "margin" else "batch")
        loss = self.loss or ("bce" if negatives == "all" else "softmax")
        small = min(max(2 ** round(log2((self.n_samples if fitted else 1) / 128)), 32), 128)  # few samples, smaller steps
        of_all = {"label_length": 1.0, "batch": small, "epochs": 30, "rate": 30.0, "label_rate": 0.001}
        of_some = {"label_length": 10.0, "batch": 1024, "epochs": 15, "rate": 100.0, "label_rate": 0.003}
        given = {name: value for name, value in self.get_params().items() if value is not None}
        unset = dict.fromkeys(self.param_names())
        return {**unset, **(of_all if negatives == "all" else of_some), **given, "loss": loss, "negatives": negatives}

    def _check_settings(self) -> None:
        check_settings(
            self.get_params(),
            choices=CHOICES,
            above_zero=("d", "label_length", "n_hardest", "keep", "batch", "epochs", "rate", "label_rate"),
            at_most={"keep": 1, "holdout": 0.5, "weight": BIG, "discount": BIG, "patience": BIG, "seed": 2**63 - 1},
            whole=("d", "n_hardest", "batch", "epochs", "patience", "seed"),
        )
        if self.loss == "margin" and self.negatives == "all":
            raise SettingError("loss=margin does not go with negatives=all", hint="Take bce or softmax, or negatives=batch")

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        self._check_settings()
        try:
            from longtail.models.glas.training import fit
        except ImportError as error:
            raise missing_extra("torch", "nn", "Training glas") from error
        if valid is None and self.holdout:
            X, Y, valid = split_holdout(X, Y, self.holdout, self.seed)
        arrays, run = fit(X, Y, SimpleNamespace(**self._chosen()), valid, progress)
        self.history = run.history
        self.E, self.shift, self.second_layer = QuantisedTable.rounded(arrays["E"]), arrays["shift"], arrays.get("W2")
        self.seen: Ints = np.flatnonzero(self.label_counts).astype(np.int32)
        vectors = np.hstack([arrays["V"], arrays["bias"][:, None]])[self.seen]
        vectors = vectors.astype(np.float16).astype(np.float32)  # as it will be saved
        self.index = LabelIndex.build(vectors, queries=self._queries(X[:QUERIES]), seed=self.seed)

    def _queries(self, X: sp.csr_array) -> Floats:
        """φ of some samples, and a 1 that meets the label's bias [n, d + 1]."""
        H = self.E.bag(X, self.threads) + self.shift
        if self.relu:
            np.maximum(H, 0, out=H)
        if self.second_layer is not None:
            H = H @ self.second_layer.T
        return np.hstack([H, np.ones((len(H), 1), np.float32)])

    def _topk(self, X: sp.csr_array, k: int) -> TopK:
        best = self.index.topk(self._queries(X), k, self.threads)
        scores = np.exp(-np.logaddexp(0, -best.scores)) if self.score_meaning == "probability" else best.scores
        return TopK(np.where(best.ids >= 0, self.seen[best.ids], best.ids), scores)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Through φ: Σ x · slopes is by how much the inner product differs from that without features."""
        layers, shifts, names = [self.E.rows(x.indices)], [self.shift], ["relu" if self.relu else "none"]
        if self.second_layer is not None:
            layers, shifts, names = [*layers, self.second_layer.T], [*shifts, np.zeros(self.d, np.float32)], [*names, "none"]
        return Mlp(layers, shifts, names).slopes(x.data, self.index.vector(np.searchsorted(self.seen, label))[:-1])

    def _state(self) -> State:
        index = self.index.state()
        index["vectors"] = index["vectors"].astype(np.float16)
        second = {} if self.second_layer is None else {"second_layer": self.second_layer}
        return {
            **{f"E.{name}": array for name, array in self.E.state().items()},
            **{f"index.{name}": array for name, array in index.items()},
            **{"shift": self.shift, "seen": self.seen, **second},
        }

    def _restore(self, state: State) -> None:
        self.E = QuantisedTable(state["E.values"], state["E.scale"])
        self.shift, self.seen, self.second_layer = state["shift"], state["seen"], state.get("second_layer")
        index = {name.removeprefix("index."): array for name, array in state.items() if name.startswith("index.")}
        self.index = LabelIndex.restored({**index, "vectors": index["vectors"].astype(np.float32)})
