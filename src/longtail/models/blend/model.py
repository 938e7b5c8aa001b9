"""A blend of methods: each proposes labels, and a small logistic model, fitted on held-out samples, weighs what they say."""
# mypy: disable-error-code="arg-type,return-value"

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import check_features
from longtail.errors import SettingError
from longtail.features.mlp import secant
from longtail.kernels import Floats, Ints
from longtail.model import (
    IN_LOG_PROBABILITY,
    IN_MARGIN,
    IN_ODDS,
    WITHOUT,
    Model,
    Spans,
    Valid,
    count,
)
from longtail.models.blend.mentions import Mentions
from longtail.models.blend.stacking import LEAST, collect, logistic, spread_out
from longtail.pipeline import Pipeline
from longtail.progress import Progress
from longtail.settings import MAX_SEED, Settings, setting, settings
from longtail.spec import MethodSpec, split_specs
from longtail.state import State, inside
from longtail.topk import NO_LABEL, TopK

FEW, MANY = "plt, glas", "plt, plt+ngrams=1"  # members for some thousand labels; and for texts with more
MANY_LABELS = 4096
MOST_HELD_OUT = 5000  # samples; more tell no more
ROWS = 2048  # samples whose candidates are held at a time


@settings
class BlendSettings(Settings):
    """Settings of a blend."""

    members: str | None = setting(
        None,
        'Methods to blend, as specs: "plt+dense=minilm, glas:paper+epochs=5".'
        ' None: "plt, glas", or "plt, plt+ngrams=1" for texts with more than 4,096 labels.',
    )
    names: bool = setting(True, "Whether label names that occur in the text count.")
    wide: int = setting(30, "Labels that each member proposes.", positive=True, below=2**15)
    holdout: float = setting(
        0.1, "Share of the samples held out to fit the weights if no validation set is given.", positive=True, maximum=0.5
    )
    refit: bool = setting(True, "Whether members are fitted again on all samples, including those held out.")
    seed: int = setting(0, "Seed of the members and of the hold-out.", minimum=0, maximum=MAX_SEED)
    threads: int | None = setting(None, "Threads. None: all cores.", positive=True)


class Blend(BlendSettings, Model):
    """Several methods at once: each proposes labels, and what they say is weighed as held-out samples teach.

    P(l | x) = σ(w · z), where z holds, for each member, the log-odds (or margin) it gives the label, one over the label's
    rank, and whether it proposes the label at all; and the logarithm of the label's frequency. Labels whose names stand in
    the text are proposed, too, as by one more member.

    Presets: ``best`` is the defaults, in about a minute or two. ``attention`` and ``minilm`` are for texts with up to some
    thousand labels, and take minutes to an hour: members that read sentences, and a pretrained encoder.

    >>> X, Y = np.repeat(np.eye(4), 10, axis=0), np.repeat(np.array([[1, 0], [1, 0], [0, 1], [0, 1]]), 10, axis=0)
    >>> Blend(members="ovr, plt").fit(sp.csr_array(X), Y).topk(sp.csr_array(X[::10]), k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    input = "anything"
    weights_meaning = "what each adds to the log-odds by what the members say of the label"
    mentions: Mentions | None
    presets: ClassVar = {
        "best": {},
        "attention": {"members": "plt+dense=wordllama, lightattention+epochs=6"},
        "minilm": {"members": "plt+dense=minilm, aplc:minilm-tuned, lightattention+epochs=6"},
    }

    @property
    def score_meaning(self) -> Literal["probability"]:
        """Of the logistic model."""
        return "probability"

    def _checked(self, X: Any) -> Any:
        """Texts as they are, vectors as every model of vectors wants them."""
        X = super()._checked(X)
        return check_features(X) if sp.issparse(X) or isinstance(X, np.ndarray) else list(X)

    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        members = self.chosen_members(not sp.issparse(X))
        self._check_settings(members)
        inputs, known, given = X, Y, valid
        if valid is None:
            inputs, known, valid = parted(X, Y, self.holdout, self.seed)
        self.pipelines = [self._trained(member, inputs, known, given, progress) for member in members]
        self.numbers = [np.arange(Y.shape[1], dtype=np.int32)] * len(self.pipelines)
        self.mentions = None
        if self.names and self.labels is not None and not sp.issparse(X):
            self.mentions = Mentions(self.labels.names).fit(inputs, known)
        self.weigh(*valid)
        if given is None and self.refit:
            self.pipelines = [self._trained(member, X, Y, None, progress) for member in members]
            if self.mentions is not None:
                self.mentions.fit(X, Y)

    @classmethod
    def of(cls, pipelines: Sequence[Pipeline], numbers: Sequence[Ints], valid: Valid) -> Blend:
        """A blend of members that are trained already; ``valid`` are samples that none of them has learned from.

        numbers: of each member, which label of ``valid`` each of its own is. Names do not count: how often they are right
        would have to be counted on other samples than those that weigh it.
        """
        self = cls(members=", ".join(pipeline.method for pipeline in pipelines), names=False)
        self.pipelines, self.numbers, self.mentions = list(pipelines), list(numbers), None
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
        meanings = [pipeline.model.score_meaning for pipeline in self.pipelines]
        numbers = list(self.numbers)
        if self.mentions is not None:
            found.append(self.mentions.topk(inputs, wide))
            meanings.append("probability")
            numbers.append(np.arange(self.n_labels, dtype=np.int32))
        width = max(best.ids.shape[1] for best in found)
        ids = np.full((len(found), count(inputs), width), NO_LABEL, np.int32)
        says = np.zeros(ids.shape, np.float32)
        for at, (best, meaning, own) in enumerate(zip(found, meanings, numbers, strict=True)):
            ids[at, :, : best.ids.shape[1]] = np.where(best.ids != NO_LABEL, own[best.ids], NO_LABEL)
            says[at, :, : best.ids.shape[1]] = spread_out(best.scores, meaning)
        candidates = np.full((ids.shape[1], len(found) * width), NO_LABEL, np.int32)
        Z = np.zeros((*candidates.shape, 3 * len(found) + 1), np.float32)
        collect(ids, says, candidates, Z)
        if self.mentions is not None:
            Z[:, :, -4] *= Z[:, :, -2]  # what is not mentioned is not denied
        Z[:, :, -1] = np.log(np.maximum(self.label_counts, 1))[candidates]
        return candidates, Z

    def _explain(self, one: Any, label: int) -> Spans:
        """What the members' parts add to the blend's log-odds, through the log-odds or margins of the members.

        Ranks, and whether a label is proposed at all, have no slopes and are not explained, but for names that stand in the
        text: the places share all that these add. A member whose weights add to neither log-odds, margin nor logarithm
        (attention, say) has no part in it, nor has one that does not propose the label, unless none does.
        """
        found = [pipeline.topk([one] if isinstance(one, str) else one, self.wide) for pipeline in self.pipelines]
        named = [own[best.ids[best.ids != NO_LABEL]] for own, best in zip(self.numbers, found, strict=True)]
        proposed = np.array([label in labels for labels in named])
        starts, ends, weights = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
        for number, pipeline in enumerate(self.pipelines):
            theirs = np.flatnonzero(self.numbers[number] == label)  # what the member calls it, if it knows it
            if len(theirs) and pipeline.model.label_counts[theirs[0]] and (proposed[number] or not proposed.any()):
                start, end, adds = pipeline.explain(one, int(theirs[0]))
                starts.append(start)
                ends.append(end)
                slope = log_odds_slope(pipeline, one, int(theirs[0]), adds.sum())
                weights.append(float(self.weights[3 * number]) * adds * slope)
        if self.mentions is not None and (where := self.mentions.places(one).get(label)):
            candidates, Z = self._evidence([one], self.wide)
            (evidence,) = Z[0, candidates[0] == label, -4:-1] if label in candidates[0] else np.zeros((1, 3))
            starts.append(np.array([start for start, _ in where]))
            ends.append(np.array([end for _, end in where]))
            weights.append(np.full(len(where), float(evidence @ self.weights[-5:-2]) / len(where)))
        places = np.stack([np.concatenate(starts), np.concatenate(ends)], axis=1)
        once, which = np.unique(places, axis=0, return_inverse=True)
        return once[:, 0], once[:, 1], np.bincount(which.ravel(), np.concatenate(weights), minlength=len(once))

    def chosen_members(self, of_texts: bool) -> list[str]:
        """Those that are named, or what suits the data."""
        default = MANY if of_texts and self.n_seen > MANY_LABELS else FEW
        return split_specs(default if self.members is None else self.members)

    def _trained(self, member: str, inputs: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> Pipeline:
        pipeline = MethodSpec.parse(member).build_pipeline(self.seed, self.threads)
        return pipeline.fit(inputs, Y, valid, labels=self.labels, progress=progress)

    def _check_settings(self, members: list[str]) -> None:
        if len(members) < 2:
            raise SettingError(f'members is "{self.members}"', hint='Name at least two methods: "plt, glas"')
        for member in members:
            if member.startswith("blend"):
                raise SettingError("a blend cannot be a member of a blend", hint="Name its members instead")
            MethodSpec.parse(member).build_pipeline(self.seed, self.threads)

    def _state(self) -> State:
        out: State = {"weights": self.weights}
        about = json.dumps([pipeline.about() for pipeline in self.pipelines]).encode()
        out["about"] = np.frombuffer(about, np.uint8)
        if self.mentions is not None:
            out |= {f"mentions.{name}": array for name, array in self.mentions.state().items()}
        for number, pipeline in enumerate(self.pipelines):
            out[f"{number}.numbers"] = self.numbers[number]
            for part, arrays in pipeline.state().items():
                out.update({f"{number}.{part}.{name}": array for name, array in arrays.items()})
        return out

    def _restore(self, state: State) -> None:
        self.weights, self.pipelines, self.numbers = state["weights"], [], []
        mentions = inside(state, "mentions.")
        self.mentions = Mentions.restored(mentions) if mentions else None
        for number, about in enumerate(json.loads(bytes(state["about"]))):
            self.numbers.append(state[f"{number}.numbers"])
            parts: dict[str, State] = {"model": {}, "features": {}, "coder": {}}
            for name, array in state.items():
                for part, arrays in parts.items():
                    if name.startswith(prefix := f"{number}.{part}."):
                        arrays[name.removeprefix(prefix)] = array
            self.pipelines.append(Pipeline.restored(about, parts))


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
