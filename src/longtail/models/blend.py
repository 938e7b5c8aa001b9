"""A blend of methods: each proposes labels, and a small logistic model, fitted on held-out samples, weighs what they say."""
# mypy: disable-error-code="arg-type,return-value"

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import checked_features
from longtail.errors import SettingError
from longtail.features.stack import secant
from longtail.kernels import Floats, Ints, kernel
from longtail.models.base import (
    IN_LOG_PROBABILITY,
    IN_MARGIN,
    IN_ODDS,
    WITHOUT,
    Model,
    Spans,
    Valid,
    count,
)
from longtail.models.pipeline import Pipeline
from longtail.models.settings import parsed_settings
from longtail.progress import Progress
from longtail.state import State
from longtail.topk import NO_LABEL, TopK

FARTHEST = 12.0  # log-odds; scores beyond it say no more
LEAST = 1e-12  # probability; below it, none is told from another
ITERATIONS, RIDGE = 50, 1e-3  # of the weights
MOST_HELD_OUT = 5000  # samples; more tell no more
ROWS = 2048  # samples whose candidates are held at a time

Doubles = NDArray[np.float64]


class Blend(Model):
    """Several methods at once: each proposes labels, and what they say is weighed as held-out samples teach.

    P(l | x) = σ(w · z), where z holds, for each member, the log-odds (or margin) it gives the label, one over the label's
    rank, and whether it proposes the label at all; and the logarithm of the label's frequency.

    >>> X, Y = np.repeat(np.eye(4), 10, axis=0), np.repeat(np.array([[1, 0], [1, 0], [0, 1], [0, 1]]), 10, axis=0)
    >>> Blend(members="ovr, plt").fit(sp.csr_array(X), Y).topk(sp.csr_array(X[::10]), k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    input = "anything"
    weights_meaning = "what each adds to the log-odds by what the members say of the label"
    presets: ClassVar = {"best": {}}

    def __init__(
        self,
        *,
        members: str = "plt, glas",
        wide: int = 30,
        holdout: float = 0.1,
        refit: bool = True,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        """Store the settings.

        members: methods, each with a preset if it is not the default one, and with settings of its own behind a plus:
        "plt+dense=minilm, glas:paper+epochs=5". wide: labels that each member proposes. holdout: share of the samples that
        the weights are learned from (at most 5,000), unless validation data is given. refit: whether members then learn from
        all samples, those held out included. seed: of members and holdout.
        """
        self.members, self.wide, self.holdout, self.refit = members, wide, holdout, refit
        self.seed, self.threads = seed, threads

    @property
    def score_meaning(self) -> Literal["probability"]:
        """Of the logistic model."""
        return "probability"

    def _checked(self, X: Any) -> Any:
        """Texts as they are, vectors as every model of vectors wants them."""
        X = super()._checked(X)
        return checked_features(X) if sp.issparse(X) or isinstance(X, np.ndarray) else list(X)

    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        self._check_settings()
        inputs, known, given = X, Y, valid
        if valid is None:
            inputs, known, valid = parted(X, Y, self.holdout, self.seed)
        self.pipelines = [self._trained(member, inputs, known, given, progress) for member in self._names()]
        self.numbers = [np.arange(Y.shape[1], dtype=np.int32)] * len(self.pipelines)
        self.weigh(*valid)
        if given is None and self.refit:
            self.pipelines = [self._trained(member, X, Y, None, progress) for member in self._names()]

    @classmethod
    def of(cls, pipelines: Sequence[Pipeline], numbers: Sequence[Ints], valid: Valid) -> Blend:
        """A blend of members that are trained already; ``valid`` are samples that none of them has learned from.

        numbers: of each member, which label of ``valid`` each of its own is.
        """
        self = cls(members=", ".join(pipeline.method for pipeline in pipelines))
        self.pipelines, self.numbers = list(pipelines), list(numbers)
        self.n_samples = max(pipeline.model.n_samples for pipeline in pipelines)
        inputs, Y = valid
        self.n_features = inputs.shape[1] if sp.issparse(inputs) else 0
        self.label_counts = np.zeros(Y.shape[1], np.int32)
        for pipeline, own in zip(pipelines, numbers, strict=True):
            self.label_counts[own] = np.maximum(self.label_counts[own], pipeline.model.label_counts)
        self.weigh(inputs, Y)
        return self

    def weigh(self, inputs: Any, Y: sp.csr_array) -> None:
        """Learn the weights from samples that the members have not learned from."""
        rows, targets = [], []
        for start in range(0, count(inputs), ROWS):
            ids, Z = self._evidence(inputs[start : start + ROWS], self.wide)  # [n, c], [n, c, n_columns]
            y = Y[start : start + ROWS]
            at = np.flatnonzero(ids.ravel() != NO_LABEL)
            of = np.repeat(np.arange(len(ids)), ids.shape[1])[at]
            rows.append(Z.reshape(-1, Z.shape[2])[at])
            targets.append(np.asarray(y[of, ids.ravel()[at]]).ravel() > 0)
        self.weights = logistic(np.concatenate(rows).astype(np.float64), np.concatenate(targets))

    def _topk(self, X: Any, k: int) -> TopK:
        parts = []
        for start in range(0, count(X), ROWS):
            ids, Z = self._evidence(X[start : start + ROWS], max(self.wide, k))
            scores = Z @ self.weights[:-1] + self.weights[-1]
            scores = np.where(ids == NO_LABEL, -np.inf, 1 / (1 + np.exp(-scores)))
            order = np.lexsort((ids, -scores), axis=1)[:, :k]
            parts.append((np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1).astype(np.float32)))
        return TopK(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))

    def _evidence(self, inputs: Any, wide: int) -> tuple[Ints, Floats]:
        """Candidates [n, c], each once, NO_LABEL behind the last, and what is said of them [n, c, n_columns]."""
        for pipeline in self.pipelines:
            if "threads" in pipeline.model.param_names():
                pipeline.model.set_params(threads=self.threads)  # it is of the machine: a loaded blend may have others
        found = [pipeline.topk(inputs, wide) for pipeline in self.pipelines]
        width = max(best.ids.shape[1] for best in found)
        ids = np.full((len(found), count(inputs), width), NO_LABEL, np.int32)
        says = np.zeros(ids.shape, np.float32)
        for number, (best, pipeline) in enumerate(zip(found, self.pipelines, strict=True)):
            there = best.ids != NO_LABEL
            ids[number, :, : best.ids.shape[1]] = np.where(there, self.numbers[number][best.ids], NO_LABEL)
            says[number, :, : best.ids.shape[1]] = spread_out(best.scores, pipeline.model.score_meaning)
        n_columns = 3 * len(found) + 1
        candidates = np.full((ids.shape[1], len(found) * width), NO_LABEL, np.int32)
        Z = np.zeros((*candidates.shape, n_columns), np.float32)
        collect(ids, says, candidates, Z)
        Z[:, :, -1] = np.log(np.maximum(self.label_counts, 1))[candidates]
        return candidates, Z

    def _explain(self, one: Any, label: int) -> Spans:
        """What the members' parts add to the blend's log-odds, through the log-odds or margins of the members.

        Ranks, and whether a label is proposed at all, have no slopes and are not explained. A member whose weights add to
        neither log-odds, margin nor logarithm (attention, say) has no part in it, nor has one that does not propose the
        label, unless none does.
        """
        found = [pipeline.topk([one] if isinstance(one, str) else one, self.wide) for pipeline in self.pipelines]
        proposed = np.array([label in own[best.ids] for own, best in zip(self.numbers, found, strict=True)])
        starts, ends, weights = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
        for number, pipeline in enumerate(self.pipelines):
            theirs = np.flatnonzero(self.numbers[number] == label)  # what the member calls it, if it knows it
            if len(theirs) and pipeline.model.label_counts[theirs[0]] and (proposed[number] or not proposed.any()):
                start, end, adds = pipeline.explain(one, int(theirs[0]))
                starts.append(start)
                ends.append(end)
                slope = log_odds_slope(pipeline, one, int(theirs[0]), adds.sum())
                weights.append(float(self.weights[3 * number]) * adds * slope)
        places = np.stack([np.concatenate(starts), np.concatenate(ends)], axis=1)
        once, which = np.unique(places, axis=0, return_inverse=True)
        return once[:, 0], once[:, 1], np.bincount(which.ravel(), np.concatenate(weights), minlength=len(once))

    def _names(self) -> list[str]:
        return [name for name in re.split(r"[,\s]+", self.members) if name]

    def _trained(self, member: str, inputs: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> Pipeline:
        pipeline = made(member, self.seed, self.threads)
        return pipeline.fit(inputs, Y, valid, labels=self.labels, progress=progress)

    def _check_settings(self) -> None:
        if len(self._names()) < 2:
            raise SettingError(f'members is "{self.members}"', mend='Name at least two methods: "plt, glas"')
        for member in self._names():
            if member.startswith("blend"):
                raise SettingError("a blend cannot be a member of a blend", mend="Name its members instead")
            made(member, self.seed, self.threads)
        if not (isinstance(self.wide, int | np.integer) and 0 < self.wide < 2**15):
            raise SettingError(f"wide is {self.wide}", mend="It must be a whole number above 0")
        if not 0 < self.holdout <= 0.5:
            raise SettingError(f"holdout is {self.holdout}", mend="It must be above 0 and at most 0.5")

    def _state(self) -> State:
        out: State = {"weights": self.weights}
        about = json.dumps([pipeline.about() for pipeline in self.pipelines]).encode()
        out["about"] = np.frombuffer(about, np.uint8)
        for number, pipeline in enumerate(self.pipelines):
            out[f"{number}.numbers"] = self.numbers[number]
            for part, arrays in pipeline.state().items():
                out.update({f"{number}.{part}.{name}": array for name, array in arrays.items()})
        return out

    def _restore(self, state: State) -> None:
        self.weights, self.pipelines, self.numbers = state["weights"], [], []
        for number, about in enumerate(json.loads(bytes(state["about"]))):
            self.numbers.append(state[f"{number}.numbers"])
            parts: dict[str, State] = {"model": {}, "features": {}, "coder": {}}
            for name, array in state.items():
                for part, arrays in parts.items():
                    if name.startswith(prefix := f"{number}.{part}."):
                        arrays[name.removeprefix(prefix)] = array
            self.pipelines.append(Pipeline.restored(about, parts))


def made(member: str, seed: int, threads: int | None) -> Pipeline:
    """A member that has learned nothing, from METHOD[:PRESET][+name=value …]."""
    what, *words = member.split("+")
    method, _, preset = what.partition(":")
    return Pipeline(method, preset=preset or None, seed=seed, threads=threads, **parsed_settings(method, words))


def parted(X: Any, Y: sp.csr_array, share: float, seed: int) -> tuple[Any, sp.csr_array, Valid]:
    """Samples to learn from, and some that are held out; all of them for both where there are too few to spare."""
    tell = np.flatnonzero(np.diff(Y.indptr))
    n = min(round(share * len(tell)), MOST_HELD_OUT)
    if n == 0:
        return X, Y, (X, Y)
    out = np.sort(np.random.default_rng(seed).permutation(tell)[:n])
    rest = np.setdiff1d(np.arange(Y.shape[0]), out)
    return taken(X, rest), Y[rest], (taken(X, out), Y[out])


def taken(X: Any, rows: NDArray[Any]) -> Any:
    """Some of the inputs."""
    return X[rows] if sp.issparse(X) else [X[row] for row in rows]


def spread_out(scores: Floats, meaning: str) -> Floats:
    """Probabilities as log-odds, other scores as they are."""
    if meaning != "probability":
        return scores
    p = np.clip(scores.astype(np.float64), LEAST, 1 - 1e-7)
    odds: Floats = np.clip(np.log(p) - np.log1p(-p), -FARTHEST, FARTHEST).astype(np.float32)
    return odds


def log_odds_slope(pipeline: Pipeline, one: Any, label: int, change: float) -> float:
    """By how much what a member says of a label (``spread_out``) rises with the weights of its explanation.

    change: the sum of the weights, which is how far a logarithm of a probability has come from where it is without features.
    """
    if pipeline.model.weights_meaning in (IN_MARGIN, IN_ODDS, WITHOUT):
        return 1.0
    if pipeline.model.weights_meaning != IN_LOG_PROBABILITY:
        return 0.0
    end = np.log(max(pipeline.score(one, label), LEAST))
    return float(secant(lambda logarithm: spread_out(np.exp(logarithm), "probability"), end - change, end))


@kernel
def collect(ids: Ints, says: Floats, candidates: Ints, Z: Floats) -> None:
    """Fill candidates [n, c] with each label that any of the m members names [m, n, w], and Z [n, c, 3 m + 1].

    A member that does not name a label is taken to say the lowest it said of any.
    """
    n_members, n_rows, width = ids.shape
    for row in range(n_rows):
        n_found = 0
        for member in range(n_members):
            for at in range(width):
                label = ids[member, row, at]
                if label == NO_LABEL:
                    break
                known = 0
                while known < n_found and candidates[row, known] != label:  # few labels: looking through them beats sorting
                    known += 1
                if known == n_found:
                    candidates[row, known] = label
                    n_found += 1
                Z[row, known, 3 * member] = says[member, row, at]
                Z[row, known, 3 * member + 1] = np.float32(1) / np.float32(at + 1)
                Z[row, known, 3 * member + 2] = np.float32(1)
        for member in range(n_members):
            lowest = np.float32(0)
            for at in range(width):
                if ids[member, row, at] == NO_LABEL:
                    break
                lowest = says[member, row, at]
            for known in range(n_found):
                if Z[row, known, 3 * member + 2] == 0:
                    Z[row, known, 3 * member] = lowest


def logistic(Z: Doubles, y: Sequence[bool]) -> Floats:
    """Weights and bias of a logistic regression, by Newton's method; columns are brought to one scale for the ridge.

    >>> logistic(np.array([[0.0], [0.0], [1.0], [1.0]]), [True, False, True, False]).round(6).tolist()
    [0.0, 0.0]
    """
    mean, scale = Z.mean(0), np.maximum(Z.std(0), 1e-6)
    A = np.hstack([(Z - mean) / scale, np.ones((len(Z), 1))])
    target, w = np.asarray(y, np.float64), np.zeros(A.shape[1])
    ridge = RIDGE * len(A) * np.append(np.ones(Z.shape[1]), 0)
    for _ in range(ITERATIONS):
        p = 1 / (1 + np.exp(-np.clip(A @ w, -30, 30)))
        hessian = (A * (p * (1 - p) + 1e-9)[:, None]).T @ A + np.diag(ridge + 1e-9)
        step = np.linalg.solve(hessian, A.T @ (p - target) + ridge * w)
        w -= step
        if np.abs(step).max() < 1e-8:
            break
    weights = w[:-1] / scale
    return np.append(weights, w[-1] - weights @ mean).astype(np.float32)
