"""A blend of methods: each proposes labels, and a logistic regression fitted on held-out samples combines them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp

from longtail.csr import check_features
from longtail.data.holdout import split_holdout
from longtail.data.labels import Labels
from longtail.errors import SettingError
from longtail.kernels import Bools, Floats, Ints
from longtail.linear.logistic import fit_logistic
from longtail.model import Model, PartWeights, Valid
from longtail.models.blend.explanation import add_up, explain_members
from longtail.models.blend.mentions import Mentions
from longtail.models.blend.settings import FEW_LABELS_MEMBERS, MANY_LABELS, MANY_LABELS_MEMBERS, BlendSettings
from longtail.models.blend.stacking import collect_candidates, to_log_odds
from longtail.pipeline import Pipeline
from longtail.placement import check_can_shard, check_processes
from longtail.progress import Progress
from longtail.samples import count_samples
from longtail.spec import MethodSpec, join_specs, split_specs
from longtail.state import MAX_WEIGHT, State, check_array, extract_part, get_entry, get_json, refuse
from longtail.topk import NO_LABEL, HeldOut, TopK

_SAMPLES_PER_BLOCK = 2048  # samples whose candidates are in memory at a time
_PARTS = ("model", "features", "autoencoder", "names")  # of the state of a member


class Blend(BlendSettings, Model):
    """Several methods combined: each proposes labels, and weights fitted on held-out samples combine their evidence.

    P(l | x) = σ(w · z), where z has, for each member, the log-odds (or margin) of the label, the reciprocal of its rank, and
    whether the member proposes it at all; and the logarithm of the label's frequency. Labels whose names occur in the text
    are proposed, too, as by one more member.

    Presets: ``best`` is the defaults and takes a minute or two. ``attention`` and ``minilm`` are for texts with up to some
    thousand labels and take minutes to an hour: their members read word order, or use a pretrained encoder.

    >>> X, Y = np.repeat(np.eye(4), 10, axis=0), np.repeat(np.array([[1, 0], [1, 0], [0, 1], [0, 1]]), 10, axis=0)
    >>> Blend(members="ovr, plt").fit(sp.csr_array(X), Y).topk(sp.csr_array(X[::10]), k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    input = "anything"
    weights_meaning = "contribution of each part to the log-odds, through the scores of the members"
    presets: ClassVar = {
        "best": {},
        "attention": {"members": "plt+dense=wordllama, lightattention+epochs=6+sparse_part=false"},
        "minilm": {"members": "plt+dense=minilm, aplc:minilm-tuned, lightattention+epochs=6+sparse_part=false"},
    }

    can_shard = trains_network = True  # those members that can
    pipelines: list[Pipeline]  # the fitted members
    label_ids: list[Ints]  # of each member: the blend's id of each of its labels
    mentions: Mentions | None
    weights: Floats  # of the columns of z, then the bias
    _held_out: HeldOut | None = None  # predictions before the members are fitted again; not saved

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The probability of the logistic regression."""
        return "probability"

    def check(self) -> None:
        """Check the settings, and those of the members."""
        super().check()
        if self.members is not None:
            for spec in self._parse_members(self.members):
                Pipeline(spec, seed=self.seed, threads=self.threads)

    def check_requirements(self) -> None:
        """Raise an error if a package or pretrained weights that a member needs are not installed."""
        for spec in () if self.members is None else self._parse_members(self.members):
            Pipeline(spec, check=False).check_requirements()  # also before an update of a model of an earlier version

    def check_vocabulary(self, labels: Labels | None) -> None:
        """Raise an error if a member needs something about the labels that is not known."""
        for spec in () if self.members is None else self._parse_members(self.members):
            Pipeline(spec).model.check_vocabulary(labels)

    def configure(self, **machine: Any) -> None:
        """Change settings of the machine, also those of the members."""
        super().configure(**machine)
        for pipeline in getattr(self, "pipelines", ()):
            pipeline.configure(**machine)

    def can_read(self, *, texts: bool) -> bool:
        """Whether all members read texts, or else feature vectors."""
        return (texts or self.mentions is None) and all(pipeline.can_read(texts=texts) for pipeline in self.pipelines)

    def choose_members(self, reads_texts: bool) -> list[MethodSpec]:
        """Return the members of the settings, or those that suit the data."""
        many = reads_texts and self.n_seen > MANY_LABELS
        default = MANY_LABELS_MEMBERS if many else FEW_LABELS_MEMBERS
        return self._parse_members(default if self.members is None else self.members)

    def _parse_members(self, members: str) -> list[MethodSpec]:
        specs = [MethodSpec.parse(text) for text in split_specs(members)]
        if len(specs) < 2:
            raise SettingError(f'members is "{members}"', hint='Name at least two methods: "plt, glas"')
        if any(spec.method == "blend" for spec in specs):
            raise SettingError("a blend cannot be a member of a blend", hint="Name its members instead")
        return specs

    def _check_input(self, X: Any) -> Any:
        X = super()._check_input(X)
        return check_features(X) if sp.issparse(X) or isinstance(X, np.ndarray) else list(X)

    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        reads_texts, self._held_out = not sp.issparse(X), None
        specs = self.choose_members(reads_texts)
        pipelines = [Pipeline(spec) for spec in specs]
        for pipeline in pipelines:  # before the first of them is fitted
            pipeline.check_requirements()
        if self.cluster is not None and not any(pipeline.model.can_shard for pipeline in pipelines):
            check_can_shard(pipelines[0].model)
        if self.processes is not None:
            for pipeline in [each for each in pipelines if each.model.trains_network] or pipelines[:1]:
                check_processes(pipeline.model, self.processes.n)
        if valid is None:
            inputs, known, held_out = split_holdout(X, Y, self.holdout, self.seed)
        else:
            inputs, known, held_out = X, Y, valid
        self.pipelines = [self._fit_member(spec, inputs, known, valid, progress) for spec in specs]
        self.label_ids = [np.arange(Y.shape[1], dtype=np.int32)] * len(specs)
        self.mentions = None
        if self.label_names and self.labels is not None and reads_texts:
            self.mentions = Mentions(self.labels.names, self.labels.alt_names).fit(inputs, known)
        label_counts, n_labels = self.label_counts, self.n_labels
        # The number of samples of a label is evidence. It must not include the samples that the weights are fitted to: of
        # two labels with one other sample each, the one with the higher number would always be right.
        self.label_counts = fitted = np.bincount(known.indices, minlength=n_labels).astype(np.int32)
        self.fit_weights(*(held_out or (X, Y)))  # too few samples to hold some out: those of the members
        if held_out is not None:
            source = f"{held_out[1].shape[0]:,} samples that the weights of the members were fitted to"
            self._held_out = HeldOut(self._topk(held_out[0], self.n_candidates, None), held_out[1], fitted, source)
        self.label_counts = label_counts
        if valid is None and self.refit:
            self.pipelines = [self._fit_member(spec, X, Y, None, progress) for spec in specs]
            if self.mentions is not None:
                self.mentions.fit(X, Y)

    def predict_held_out(self, X: Any, Y: sp.csr_array, k: int) -> HeldOut | None:
        """Return what the members predicted before they were fitted again on all samples."""
        if self._held_out is None:
            return None
        best = self._held_out.topk
        return self._held_out._replace(topk=TopK(best.ids[:, :k], best.scores[:, :k]))

    def _fit_member(self, spec: MethodSpec, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> Pipeline:
        pipeline = Pipeline(spec, seed=self.seed, threads=self.threads)
        pipeline.model.cluster = self.cluster if pipeline.model.can_shard else None
        pipeline.model.processes = self.processes if pipeline.model.trains_network else None
        return pipeline.fit(X, Y, valid, labels=self.labels, progress=progress)

    @classmethod
    def from_members(cls, pipelines: Sequence[Pipeline], label_ids: Sequence[Ints], valid: Valid) -> Self:
        """Blend methods that are fitted already.

        Label names are not used: their precision would have to be estimated on other samples than the weights.

        :param pipelines: The members.
        :param label_ids: For each member, the column of Y of each of its labels.
        :param valid: Samples that no member was fitted on, and their labels Y.
        """
        self = cls(members=join_specs(pipeline.spec for pipeline in pipelines), label_names=False)
        self.pipelines, self.label_ids, self.mentions = list(pipelines), list(label_ids), None
        self.n_samples = max(pipeline.n_samples for pipeline in pipelines)
        inputs, Y = valid
        self.n_features = inputs.shape[1] if sp.issparse(inputs) else 0
        self.label_counts = np.zeros(Y.shape[1], np.int32)
        for pipeline, ids in zip(pipelines, label_ids, strict=True):
            self.label_counts[ids] = np.maximum(self.label_counts[ids], pipeline.label_counts)
        self.fit_weights(inputs, Y)
        return self

    def fit_weights(self, inputs: Any, Y: sp.csr_array) -> None:
        """Fit the weights to samples that the members were not fitted on."""
        rows, targets = [], []
        for start in range(0, count_samples(inputs), _SAMPLES_PER_BLOCK):
            block = slice(start, start + _SAMPLES_PER_BLOCK)
            candidates, Z = self._collect(inputs[block], self.n_candidates)  # [n, c], [n, c, n_columns]
            ids, y = candidates.ravel(), Y[block]
            filled = np.flatnonzero(ids != NO_LABEL)
            samples = np.repeat(np.arange(len(candidates)), candidates.shape[1])[filled]
            rows.append(Z.reshape(-1, Z.shape[2])[filled])
            targets.append(np.asarray(y[samples, ids[filled]]).ravel() > 0)
        self.weights = fit_logistic(np.concatenate(rows).astype(np.float64), np.concatenate(targets).tolist())

    def _update(self, X: Any, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress) -> str:
        """Update the members. The weights of their predictions stay, and what the names of labels in a text mean."""
        pipelines, label_ids = [], []
        for member, ids in zip(self.pipelines, self.label_ids, strict=True):
            own = np.concatenate([ids, np.setdiff1d(np.arange(Y.shape[1]), ids)]).astype(np.int32)
            pipeline = copy(member)
            pipeline.model = copy(member.model)
            replayed = None if old is None else (member.encode(old[0]).X, old[1][:, own])
            named = None if known is None else known[:, own]
            pipeline.model.update(member.encode(X).X, Y[:, own], known=named, old=replayed, progress=progress)
            pipelines.append(pipeline)
            label_ids.append(own)
        self.pipelines, self.label_ids = pipelines, label_ids
        return " and ".join(f"{each.spec.method} ({each.model.updated.replace('; ', ', ')})" for each in pipelines)

    def _topk(self, X: Any, k: int, allowed: Bools | None) -> TopK:
        parts = []
        for start in range(0, count_samples(X), _SAMPLES_PER_BLOCK):
            ids, Z = self._collect(X[start : start + _SAMPLES_PER_BLOCK], max(self.n_candidates, k), allowed)
            refused = ids == NO_LABEL if allowed is None else (ids == NO_LABEL) | ~allowed[ids]
            scores = Z @ self.weights[:-1] + self.weights[-1]
            scores = np.where(refused, -np.inf, 1 / (1 + np.exp(-scores)))
            ids = np.where(refused, NO_LABEL, ids)
            order = np.lexsort((ids, -scores), axis=1)[:, :k]
            parts.append((np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1).astype(np.float32)))
        return TopK(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))

    def _collect(self, inputs: Any, n_candidates: int, allowed: Bools | None = None) -> tuple[Ints, Floats]:
        """Return the candidates [n, c], each once and then NO_LABEL, and their evidence z [n, c, n_columns].

        If only some labels are allowed, each member proposes its best labels as always, so that ranks mean the same, and
        then searches for the best of the allowed ones.
        """
        found = self._search(inputs, n_candidates, None)
        width = max(best.k for best, _, _ in found)
        extra = [] if allowed is None else self._search(inputs, n_candidates, allowed)
        extra_width = max((best.k for best, _, _ in extra), default=0)
        ids = np.full((len(found), count_samples(inputs), width + extra_width), NO_LABEL, np.int32)
        scores = np.zeros(ids.shape, np.float32)
        for start, results in ((0, found), (width, extra)):
            for member, (best, meaning, own) in enumerate(results):
                part = slice(start, start + best.k)
                ids[member, :, part] = np.where(best.ids != NO_LABEL, own[best.ids], NO_LABEL)
                scores[member, :, part] = to_log_odds(best.scores.astype(np.float32, copy=False), meaning)
        candidates = np.full((ids.shape[1], len(found) * ids.shape[2]), NO_LABEL, np.int32)
        Z = np.zeros((*candidates.shape, 3 * len(found) + 1), np.float32)
        collect_candidates(ids, scores, width, candidates, Z)
        if self.mentions is not None:
            Z[:, :, -4] *= Z[:, :, -2]  # a label that is not mentioned gets no evidence against it
        Z[:, :, -1] = np.log(np.maximum(self.label_counts, 1))[candidates]
        return candidates, Z

    def _search(self, inputs: Any, k: int, allowed: Bools | None) -> list[tuple[TopK, str, Ints]]:
        """Return the k best labels of each member and of mentions, what their scores are, and the blend's ids of labels."""
        n, out = count_samples(inputs), list[tuple[TopK, str, Ints]]()
        for pipeline, ids in zip(self.pipelines, self.label_ids, strict=True):
            own = None if allowed is None else allowed[ids]
            if own is not None and not (own & (pipeline.model.label_counts > 0)).any():
                best = TopK(np.full((n, 1), NO_LABEL), np.full((n, 1), -np.inf))
            else:
                best = pipeline.topk(inputs, k, allowed=own)
            out.append((best, pipeline.model.score_meaning, ids))
        if self.mentions is not None:
            ids = np.arange(self.n_labels, dtype=np.int32)
            out.append((self.mentions.topk(inputs, k, allowed), "probability", ids))
        return out

    def _explain(self, sample: Any, label: int) -> PartWeights:
        """Return the contributions of the members' parts to the blend's log-odds, through their log-odds or margins.

        Ranks, and whether a label is proposed at all, have no slopes and are not explained, except for names in the text:
        their places share everything that the name contributes. A member is left out if its weights contribute neither to
        log-odds, margin nor log-probability (attention, for example), or if it does not propose the label but another does.
        """
        inputs = [sample] if isinstance(sample, str) else sample
        parts = explain_members(self.pipelines, self.label_ids, self.weights, inputs, label, self.n_candidates)
        if self.mentions is not None and (places := self.mentions.find(sample).get(label)):
            starts, ends = np.array([start for start, _ in places]), np.array([end for _, end in places])
            parts.append((starts, ends, np.full(len(places), self._name_contribution(sample, label) / len(places))))
        return add_up(parts)

    def _name_contribution(self, text: str, label: int) -> float:
        """Return the contribution of the label's name in a text to the log-odds of the label."""
        candidates, Z = self._collect([text], self.n_candidates)
        (evidence,) = Z[0, candidates[0] == label, -4:-1] if label in candidates[0] else np.zeros((1, 3))
        return float(evidence @ self.weights[-5:-2])

    def _state(self) -> State:
        about = json.dumps([pipeline.about() for pipeline in self.pipelines]).encode()
        out: State = {"weights": self.weights, "about": np.frombuffer(about, np.uint8)}
        if self.mentions is not None:
            out |= {f"mentions.{name}": array for name, array in self.mentions.state().items()}
        for member, pipeline in enumerate(self.pipelines):
            out[f"{member}.label_ids"] = self.label_ids[member]
            for part, arrays in pipeline.state().items():
                out.update({f"{member}.{part}.{name}": array for name, array in arrays.items()})
        return out

    def _restore(self, state: State) -> None:
        self.pipelines, self.label_ids = [], []
        mentions, n_labels = extract_part(state, "mentions."), self.n_labels
        self.mentions = Mentions.from_state(mentions, n_labels) if mentions else None
        for member, about in enumerate(get_json(state, "about", list)):
            spec = MethodSpec.parse(get_entry(about, "spec", str))
            if spec.method == "blend":
                raise refuse(state, "about", "has a blend as a member", "A blend cannot be a member of a blend")
            parts = {part: extract_part(state, f"{member}.{part}.") for part in _PARTS}
            self.pipelines.append(Pipeline(spec, check=False).restore(about, parts))
            shape = (self.pipelines[-1].model.n_labels,)
            ids = check_array(state, f"{member}.label_ids", "i4", shape, minimum=0, maximum=n_labels - 1, distinct=True)
            self.label_ids.append(ids)
        n_weights = 3 * (len(self.pipelines) + (self.mentions is not None)) + 2
        self.weights = check_array(state, "weights", "f4", (n_weights,), minimum=-MAX_WEIGHT, maximum=MAX_WEIGHT)
        if not self.pipelines:
            raise refuse(state, "about", "names no members", "There must be at least one")
