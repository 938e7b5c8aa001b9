"""The tagger: features, model and label names as one object that is fitted, evaluated, saved, loaded and served."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, Unpack

import numpy as np
import scipy.sparse as sp

from longtail.data.frames import is_tabular
from longtail.data.labels import Labels
from longtail.data.layout import Layout, LayoutOptions
from longtail.data.read import read, read_any
from longtail.decisions.calibration import MIN_SAMPLES, Calibration
from longtail.decisions.constraints import Constraints, combine_constraints
from longtail.decisions.rules import LabelRules
from longtail.decisions.targets import Target
from longtail.errors import BundleError, DataError, LongtailError, OverwriteWarning, SettingError, suggest
from longtail.extractor import Encoded
from longtail.features.normaliser import Normaliser
from longtail.features.text import TextFeatures
from longtail.features.word_vectors import check_word_vectors
from longtail.html import format_table
from longtail.kernels import Bools, Floats
from longtail.labelspace.names import append_labels
from longtail.labelspace.propensity import DEFAULT_PROPENSITY
from longtail.metrics.evaluate import Evaluation, evaluate
from longtail.metrics.ranking import DEFAULT_KS
from longtail.model import Model, count_samples
from longtail.nn.hybrid import Hybrid
from longtail.pipeline import Pipeline, join_topk
from longtail.progress import Progress, resolve_progress
from longtail.registry import DEFAULT_METHOD
from longtail.spec import MethodSpec, TaggerSettings
from longtail.tagger.bundle import Bundle, check_target, has_bundle, load_bundle, save_bundle
from longtail.tagger.decisions import Decisions
from longtail.tagger.description import describe_tagger
from longtail.tagger.explanation import Explanation, Part, build_parts
from longtail.tagger.held_out import choose_depth, predict_held_out
from longtail.tagger.inputs import check_inputs, prepare_data, read_inputs
from longtail.tagger.register import PART as HISTORY
from longtail.tagger.register import Register
from longtail.tagger.search import LabelSearch
from longtail.tagger.sets import find_sets, limit_sets, resolve_target
from longtail.tagger.unseen import EVIDENCE_MEANING, UnseenLabels, fit_unseen
from longtail.tagger.unseen import PART as UNSEEN
from longtail.tagger.update import DEFAULT_REPLAY, FeedbackInput, UpdateReport, update_tagger
from longtail.topk import NO_LABEL, HeldOut, TopK, make_indicator

DEFAULT_K = 5  # labels that ``predict`` returns
_CONFIGURABLE = ("threads", "device")


class Tag(NamedTuple):
    """A label with its score, and its URI if it has one."""

    label: str
    score: float
    uri: str | None = None


class Tagger:
    """Texts (or feature vectors) in, label names out.

    >>> tagger = Tagger("ovr", min_df=1).fit(["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]])
    >>> tagger.predict(["a green apple"], k=1)[0][0].label
    'fruit'
    >>> tagger
    Tagger("ovr+min_df=1", fitted on 3 samples, 2 labels)
    """

    constraints: Constraints | None = None  # what must hold for all predictions, together with those of a request

    def __init__(
        self,
        method: str | MethodSpec = DEFAULT_METHOD,
        *,
        preset: str | None = None,
        seed: int = 0,
        threads: int | None = None,
        **settings: Any,
    ) -> None:
        """Build a tagger. A wrong name or value raises a ``SettingError``.

        :param method: A method (``"plt"``), a spec with preset and settings (``"plt:bonsai+beam=50"``), or a ``MethodSpec``.
            ``longtail methods`` lists them.
        :param preset: A preset of the method. None: ``best``.
        :param seed: Seed of everything random.
        :param threads: Threads. None: all cores.
        :param settings: Further settings of the method or of its features, by name.
        """
        spec = method if isinstance(method, MethodSpec) else MethodSpec.parse(method)
        self.pipeline = Pipeline(spec.override(preset, settings), seed=seed, threads=threads)
        self._settings.check()
        self.decisions = Decisions(self.model.default_threshold)
        self.reads_texts = True
        self.layout = Layout()  # the columns of the training data
        self.unseen: UnseenLabels | None = None  # scores labels without training samples by their names
        self._last_search: LabelSearch | None = None
        self._register: Register | None = None

    @classmethod
    def from_pipeline(
        cls,
        pipeline: Pipeline,
        labels: Labels,
        reads_texts: bool,
        layout: Layout | None = None,
        held_out: HeldOut | None = None,
    ) -> Self:
        """Build a fitted tagger from a fitted pipeline; it is calibrated on predictions for held-out samples, if given."""
        tagger = cls.__new__(cls)
        tagger.pipeline, tagger.reads_texts, tagger.layout = pipeline, reads_texts, layout or Layout()
        tagger._register, tagger.unseen, tagger._last_search = Register.from_labels(labels), None, None
        tagger.decisions = Decisions.fit(held_out, pipeline.model.default_threshold)
        return tagger

    @property
    def _settings(self) -> TaggerSettings:
        values = self.spec.resolve()
        return TaggerSettings(**{name: values[name] for name in TaggerSettings.param_names() if name in values})

    @property
    def calibration(self) -> Calibration | None:
        """What makes probabilities of scores; None: scores are those of the model."""
        return self.decisions.calibration

    @property
    def threshold(self) -> float:
        """The score with the best micro-F1 on held-out samples, or the default of the method."""
        return self.decisions.threshold

    @property
    def score_meaning(self) -> Literal["probability", "margin", "count"]:
        """What the scores of ``topk`` and ``predict`` are: calibrated probabilities, or the scores of the model."""
        return "probability" if self.calibration else self.model.score_meaning

    @property
    def spec(self) -> MethodSpec:
        """The method with the preset and the settings that were asked for."""
        return self.pipeline.spec

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.spec.method

    @property
    def model(self) -> Model:
        """The model, without its features."""
        return self.pipeline.model

    @property
    def features(self) -> TextFeatures | Hybrid | Normaliser | None:
        """The fitted features; None before ``fit`` and for methods that read texts."""
        return getattr(self.pipeline.extractor, "features", None)

    @property
    def is_fitted(self) -> bool:
        """Whether the tagger is fitted."""
        return self._register is not None

    @property
    def labels(self) -> Labels:
        """The labels that the tagger was fitted on, followed by those that were added; also retired and merged ones."""
        return self.register.labels

    @property
    def register(self) -> Register:
        """The labels with what each is predicted as, and how they were changed. ``longtail.edit_labels`` changes them."""
        if self._register is None:
            raise LongtailError("this tagger is not fitted yet", hint="Call fit() first")
        return self._register

    @register.setter
    def register(self, register: Register) -> None:
        self._register = register

    def fit(
        self,
        data: Any,
        labels: Any = None,
        *,
        valid: Any = None,
        progress: Progress | bool | None = None,
        **layout: Unpack[LayoutOptions],
    ) -> Self:
        """Fit the features and the model. If it fails, the tagger stays as it was.

        :param data: Data in any form that ``longtail.read`` takes: a file, a ``Dataset``, texts or feature vectors with
            their labels, a list of objects, a data frame.
        :param labels: For texts or feature vectors, a list of label names per sample, or an indicator matrix; for a file, a
            list of objects or a data frame, the column or columns with the labels. None: guessed.
        :param valid: Validation data in the same form; texts or feature vectors as a pair ``(inputs, labels)``. Scores
            are calibrated on it, the rules for sets of labels are fitted to it, and it stops the training of networks early.
            None: samples that are held out from the training data do that.
        :param progress: Whether to show progress bars. None: in terminals and notebooks.
        :param layout: Options of ``longtail.read``, such as ``text="body"``.
        """
        self.pipeline.check_requirements()
        if self._settings.unseen_vectors is not None:
            check_word_vectors(self._settings.unseen_vectors)
        train, display = read(data, labels, **layout), resolve_progress(progress)
        columns = replace(train.layout, text=train.fields[: len(train.layout.text)] or train.layout.text)
        pipeline, held_out = self.pipeline.unfitted(), None  # replaces the current one when everything has succeeded
        pipeline.model.check_valid(valid)
        pipeline.model.check_vocabulary(train.labels)
        if valid is not None:
            is_pair = isinstance(valid, tuple) and not is_tabular(valid)
            inputs, names = valid if is_pair else (valid, None)
            read_valid = read_any(inputs, names, layout, trained=columns)
            inputs, Y = prepare_data(read_valid, train.labels, train.texts is not None)
            held_out = (inputs, Y)
        X = pipeline.fit_features(train.inputs, train.Y, labels=train.labels, source=train.source, progress=display)
        encoded = None if held_out is None else (pipeline.encode(held_out[0]).X, held_out[1])
        known = None if encoded is None else (encoded[0], encoded[1][:, : train.n_labels])
        pipeline.fit_model(X, train.Y, known, labels=train.labels, progress=display)
        fitted = copy(self)
        fitted.pipeline, fitted._register = pipeline, Register.from_labels(train.labels)
        fitted.reads_texts, fitted.layout = train.texts is not None, Layout.from_columns(columns.columns)
        calibrate = self._settings.calibrate
        Y = append_labels(train.Y, pipeline.named)
        with display.stage("calibration", 1) as stage:
            held_out_topk = predict_held_out(pipeline.model, X, Y, encoded, calibrate)
            fitted.decisions = Decisions.fit(held_out_topk, pipeline.model.default_threshold, calibrate)
            stage.advance()
        fitted.unseen = None
        if train.texts is not None and self._settings.unseen and fitted.score_meaning == "probability":
            seed = pipeline.model.get_params().get("seed", 0)
            fitted.unseen = fit_unseen(train.texts, train.Y, train.labels, vectors=self._settings.unseen_vectors, seed=seed)
        vars(self).update(vars(fitted))
        return self

    def calibrate(
        self,
        data: Any,
        labels: Any = None,
        *,
        k: int | None = None,
        keep_curve: bool = False,
        **layout: Unpack[LayoutOptions],
    ) -> Self:
        """Fit the calibration again, and the rules for sets of labels, to data that the tagger was not fitted on.

        :param data: Data in one of the forms that ``fit`` takes.
        :param labels: Labels as for ``fit``.
        :param k: Labels per sample that sets are chosen from. None: four times the average number of labels, 20 to 100.
        :param keep_curve: Whether to keep the calibration and fit the rules only. What they promise about precision and
            recall is then exact; otherwise, both are fitted to the same samples, and it is an approximation.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        if keep_curve and not self.calibration:
            raise SettingError("there is no calibration to keep", hint="Calibrate without --keep-curve first")
        inputs, Y = prepare_data(read_any(data, labels, layout, trained=self.layout), self.labels, self.reads_texts)
        if Y.shape[0] < MIN_SAMPLES:
            hint = f"Give at least {MIN_SAMPLES}, better some thousand"
            raise DataError(f"{Y.shape[0]} samples are too few to calibrate scores", hint=hint)
        depth, source = choose_depth(Y) if k is None else k, f"{Y.shape[0]:,} samples given after training"
        best = self.pipeline.topk(inputs, depth)
        held_out = HeldOut(best, self.register.unfold(Y, self.model.n_labels), self.model.label_counts, source)
        fitted = self.decisions if keep_curve else Decisions.fit(held_out, self.model.default_threshold)
        self.decisions = fitted.fit_rules(held_out) if keep_curve else fitted
        return self

    def update(
        self,
        new: Any = None,
        labels: Any = None,
        *,
        feedback: FeedbackInput | None = None,
        old: Any = None,
        replay: float = DEFAULT_REPLAY,
        seed: int = 0,
        progress: Progress | bool | None = None,
        **layout: Unpack[LayoutOptions],
    ) -> UpdateReport:
        """Continue to learn from new samples and from feedback. If it fails, the tagger stays as it was.

        The features stay as they are. Labels keep their ids; new ones come after them. A tenth of the new samples is held
        out first, to measure the update, and then learned from, too.

        :param new: New samples in one of the forms that ``fit`` takes. None: only feedback.
        :param labels: Labels as for ``fit``.
        :param feedback: A JSONL file or a list of objects: ``{"text": …, "accepted": […], "rejected": […], "added": […]}``.
            Labels that are not named are unknown, not wrong.
        :param old: Data that the tagger was trained on, if it is still there, so that nothing is forgotten.
        :param replay: Share of the old data that is used again.
        :param seed: Seed of the choice of old samples and of those held out.
        :param progress: Whether to show progress bars. None: in terminals and notebooks.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.

        >>> tagger = Tagger("ovr", min_df=1).fit(["red apple", "red rose"], [["fruit"], ["flower"]])
        >>> tagger.update(["blue sea", "blue apple"], [["water"], ["fruit"]]).new_labels
        ('water',)
        """
        _ = self.labels  # an error before ``fit``
        data = None if new is None else read_any(new, labels, layout, trained=self.layout)
        old_data = None if old is None else read_any(old, None, layout, trained=self.layout)
        return update_tagger(self, data, feedback, old_data, replay, seed, resolve_progress(progress))

    def replace_pipeline(self, pipeline: Pipeline, labels: Labels) -> None:
        """Replace everything that was fitted, after an update."""
        self.pipeline, self.register = pipeline, self.register.extend(labels)

    def encode(self, inputs: Any, **layout: Unpack[LayoutOptions]) -> Encoded:
        """Compute the features of inputs once, for several of the calls below. All of them are in memory at the same time.

        :param inputs: Texts or feature vectors, or data in any form that ``longtail.read`` takes; labels are left out.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.

        >>> tagger = Tagger("ovr", min_df=1).fit(["red apple", "red rose"], [["fruit"], ["flower"]])
        >>> encoded = tagger.encode(["an apple", "nothing known"])
        >>> tagger.predict(encoded, k=1)[0][0].label, tagger.n_unknown(encoded)
        ('fruit', 1)
        """
        return inputs if isinstance(inputs, Encoded) else self.pipeline.encode(self._check(inputs, **layout))

    def topk(
        self,
        inputs: Any,
        k: int = 5,
        *,
        allowed: Bools | None = None,
        constraints: Constraints | Iterable[Constraints] | None = None,
        raw: bool = False,
        **layout: Unpack[LayoutOptions],
    ) -> TopK:
        """Return the ids of the k best labels of each sample, with their scores. Arguments as for ``predict``.

        :param allowed: Which labels may be predicted [n_labels]; None: all.
        """
        rules = self.resolve(constraints, allowed)
        return join_topk([self._search.topk(batch, k, rules, raw) for batch in self._batches(inputs, **layout)])

    def predict(
        self,
        inputs: Any,
        k: int | None = None,
        *,
        target: str | Target | None = None,
        threshold: float | None = None,
        constraints: Constraints | Iterable[Constraints] | None = None,
        raw: bool = False,
        **layout: Unpack[LayoutOptions],
    ) -> list[list[Tag]]:
        """Return labels of each text or feature vector, by name: the k best, or a set of any size.

        :param inputs: Texts or feature vectors; or data in any form that ``longtail.read`` takes (a file, a data frame, a
            list of objects), whose labels are left out; or what ``encode`` returned.
        :param k: Number of labels. None: 5. With a target or a threshold, sets have at most k labels; None: any number.
        :param target: What sets of labels should achieve: ``"expected-f1"``, ``"micro-f1"``, ``"macro-f1"``,
            ``"precision=0.9"``, ``"recall=0.8"`` or ``"count=3"``.
        :param threshold: Return the labels whose score is at least this.
        :param constraints: What must hold for the labels, in addition to the constraints of the tagger. If there are
            several, all of them must hold.
        :param raw: Whether scores are those of the model instead of calibrated probabilities. Labels without training
            samples have none, and are left out.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        best, labels = self._find_best(inputs, k, target, threshold, constraints, raw, **layout), self.labels
        return [
            [Tag(labels.names[i], score, labels.get_uri(i)) for i, score in zip(ids, scores, strict=True) if i != NO_LABEL]
            for ids, scores in zip(best.ids.tolist(), best.scores.tolist(), strict=True)
        ]

    def choose_sets(
        self,
        inputs: Any,
        target: str | Target | None = None,
        *,
        threshold: float | None = None,
        constraints: Constraints | Iterable[Constraints] | None = None,
        raw: bool = False,
        **layout: Unpack[LayoutOptions],
    ) -> TopK:
        """Return the ids of the labels in the set of each sample, with their scores; rows end with ``NO_LABEL``.

        Arguments as for ``predict``. Without a target and a threshold, sets have the highest expected F1; those of a tagger
        that is not calibrated have all labels from its ``threshold`` on.
        """
        chosen = resolve_target(target, threshold, self.calibration is not None and not raw, self.threshold)
        rules = self.resolve(constraints)
        return join_topk([self._choose_sets(batch, chosen, rules, raw) for batch in self._batches(inputs, **layout)])

    def predict_sets(self, inputs: Any, target: str | Target | None = None) -> sp.csr_array:
        """Return the sets of ``choose_sets`` as an indicator matrix [n_samples, n_labels]."""
        return make_indicator(self.choose_sets(inputs, target), len(self.labels))

    def resolve(
        self, constraints: Constraints | Iterable[Constraints] | None = None, allowed: Bools | None = None
    ) -> LabelRules | None:
        """Combine what must hold for one request with what always holds: all restrictions of labels meet here.

        :returns: None if every label may be predicted, and nothing else is required.
        """
        given = [constraints] if isinstance(constraints, Constraints) else list(constraints or ())
        own = [] if self.constraints is None else [self.constraints]
        return combine_constraints(self.labels, [*own, *given], allowed, self.register.retired)

    def n_unknown(self, inputs: Any) -> int:
        """Return how many inputs have no known word or feature; all of them get the same labels."""
        return sum(batch.n_unknown for batch in self._batches(inputs))

    def novelty(self, inputs: Any) -> Floats:
        """Return how unlike the training data each input is [n]: the share of it that an autoencoder cannot reconstruct."""
        return np.concatenate([self.pipeline.novelty(batch) for batch in self._batches(inputs)])

    def explain(self, sample: str | sp.csr_array, label: str | None = None) -> Explanation:
        """Explain why a text or feature vector gets a label, given by name or URI; None: its best label.

        >>> texts, labels = ["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]]
        >>> tagger = Tagger("ovr", min_df=1, ngrams=1).fit(texts, labels)
        >>> [word for word, weight in tagger.explain("An apple, red", "fruit").words]
        ['apple', 'red']
        """
        if label is None:
            return self.explain_topk(sample, 1)[0]
        labels, encoded = self.labels, self._encode_one(sample)
        if label not in labels.keys:
            raise SettingError(f'there is no label "{label}"', hint=suggest(label, labels.names))
        number = int(self.register.resolved[labels.keys[label]])
        hint = "It is never predicted, so there is nothing to explain"
        if number == NO_LABEL:
            raise SettingError(f'the label "{label}" is retired', hint=hint)
        if not self._search.can_find(number):
            raise SettingError(f'the label "{label}" has no training samples', hint=hint)
        return self._explain(encoded, number, self._search.score(encoded, number))

    def explain_topk(
        self,
        sample: str | sp.csr_array,
        k: int | None = None,
        *,
        target: str | Target | None = None,
        threshold: float | None = None,
        constraints: Constraints | Iterable[Constraints] | None = None,
        raw: bool = False,
    ) -> list[Explanation]:
        """Explain the labels of a text or feature vector: those that ``predict`` returns with the same arguments."""
        encoded = self._encode_one(sample)
        best = self._find_best(encoded, k, target, threshold, constraints, raw)
        pairs = zip(best.ids[0].tolist(), best.scores[0].tolist(), strict=True)
        return [self._explain(encoded, label, score) for label, score in pairs if label != NO_LABEL]

    def evaluate(
        self,
        data: Any,
        labels: Any = None,
        *,
        ks: Sequence[int] = DEFAULT_KS,
        propensity: tuple[float, float] = DEFAULT_PROPENSITY,
        target: str | Target | None = None,
        **layout: Unpack[LayoutOptions],
    ) -> Evaluation:
        """Evaluate on data that the tagger was not fitted on. Labels that it does not know count as missed.

        :param data: Data in one of the forms that ``fit`` takes.
        :param labels: Labels as for ``fit``.
        :param ks: Ranks to evaluate at.
        :param propensity: Constants A and B of the propensity-scored metrics.
        :param target: What sets of labels should achieve, as for ``predict``; they give F1 scores, precision and recall.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        chosen = resolve_target(target, None, self.calibration is not None, self.threshold)
        inputs, Y = prepare_data(read_any(data, labels, layout, trained=self.layout), self.labels, self.reads_texts)
        best, sets, rules = [], [], self.resolve()
        for batch in self.pipeline.encode_batches(inputs):
            best.append(self._search.topk(batch, max(ks), rules))
            sets.append(self._choose_sets(batch, chosen, rules))
        return evaluate(
            join_topk(best),
            self.register.fold(Y),
            label_counts=self.register.fold_counts(self.pipeline.label_counts),
            n_train=self.pipeline.n_samples,
            ks=ks,
            propensity=propensity,
            sets=join_topk(sets),
            target=str(chosen),
            probabilities=self.score_meaning == "probability",
            hierarchy=self.labels.hierarchy,
        )

    def configure(self, **machine: Any) -> Self:
        """Change how the machine is used, at any time: ``threads`` and ``device``. Predictions stay the same."""
        for name in machine:
            if name not in _CONFIGURABLE:
                raise SettingError(f'"{name}" cannot be configured', hint=suggest(name, _CONFIGURABLE))
        self.pipeline.configure(**machine)
        return self

    def save(self, folder: str | Path, *, overwrite: bool | None = None) -> None:
        """Write the tagger to a folder.

        :param folder: The folder. It is created if needed; content other than a saved tagger is never replaced.
        :param overwrite: Whether a saved tagger in it is replaced: True: yes; False: no, that is an error; None: yes, with a
            warning, so that no training is lost at its end, and no model is replaced unnoticed.
        """
        from longtail import __version__

        check_target(Path(folder), overwrite=overwrite is not False)
        if overwrite is None and has_bundle(Path(folder)):
            message = f"{folder}: the model that was saved there is replaced. To avoid this warning, set overwrite=True"
            warnings.warn(message, OverwriteWarning, stacklevel=2)
        about = {"longtail": __version__, **self.pipeline.about()}
        about |= {"reads_texts": self.reads_texts, "columns": self.layout.columns, **self.decisions.about()}
        state = {**self.pipeline.state(), **self.decisions.state()}
        about |= {} if self.constraints is None else {"constraints": self.constraints.to_dict()}
        if self.unseen:
            state[UNSEEN] = self.unseen.state()
        if self.register.history:
            about["history"], state[HISTORY] = self.register.about(), self.register.state()
        save_bundle(Bundle(about, state, self.labels), folder)

    def summary(self) -> dict[str, str]:
        """Describe the tagger in a few lines, by name."""
        return describe_tagger(self)

    def __repr__(self) -> str:
        """The spec, and what the tagger is fitted on."""
        spec, quote = str(self.spec), "'" if '"' in str(self.spec) else '"'
        if not self.is_fitted:
            return f"Tagger({quote}{spec}{quote}, not fitted)"
        return f"Tagger({quote}{spec}{quote}, fitted on {self.pipeline.n_samples:,} samples, {self.model.n_labels:,} labels)"

    def _repr_html_(self) -> str:
        return format_table(self.summary().items(), ("Tagger", "fitted" if self.is_fitted else "not fitted"))

    def _check(self, inputs: Any, **layout: Unpack[LayoutOptions]) -> list[str] | sp.csr_array:
        _ = self.labels  # an error before ``fit``
        return check_inputs(read_inputs(inputs, self.reads_texts, self.layout, **layout), self.reads_texts)

    def _batches(self, inputs: Any, **layout: Unpack[LayoutOptions]) -> Iterator[Encoded]:
        if isinstance(inputs, Encoded):
            return iter([inputs])
        return self.pipeline.encode_batches(self._check(inputs, **layout))

    def _encode_one(self, sample: Any) -> Encoded:
        inputs = [sample] if isinstance(sample, str) else np.atleast_2d(sample) if isinstance(sample, np.ndarray) else sample
        checked = self._check(inputs)
        if count_samples(checked) != 1:
            raise DataError(f"{count_samples(checked)} samples were passed", hint="Explain one sample at a time")
        return self.pipeline.encode(checked)

    @property
    def _search(self) -> LabelSearch:
        """The search with the present parts; kept, because it indexes the names of labels."""
        parts, last = (self.model, self.register, self.calibration, self.unseen), self._last_search
        if last is None or any(new is not old for new, old in zip(parts, last.parts, strict=True)):
            self._last_search = last = LabelSearch(*parts)
        return last

    def _find_best(
        self,
        inputs: Any,
        k: int | None,
        target: str | Target | None,
        threshold: float | None,
        constraints: Constraints | Iterable[Constraints] | None,
        raw: bool,
        **layout: Unpack[LayoutOptions],
    ) -> TopK:
        """Return the k best labels of each sample, or a set if there is a target or a threshold."""
        if target is None and threshold is None:
            return self.topk(inputs, DEFAULT_K if k is None else k, constraints=constraints, raw=raw, **layout)
        sets = self.choose_sets(inputs, target, threshold=threshold, constraints=constraints, raw=raw, **layout)
        return limit_sets(sets, k)

    def _choose_sets(self, batch: Encoded, target: Target, rules: LabelRules | None, raw: bool = False) -> TopK:
        def find(k: int) -> TopK:
            return self._search.topk(batch, k, rules, raw)

        sets = find_sets(find, target, self.decisions.set_rules, self.register.fold_counts(self.model.label_counts))
        return sets if rules is None or not len(rules.required) else rules.add_required(sets, find(len(rules.required)))

    def _explain(self, sample: Encoded, label: int, score: float) -> Explanation:
        parts: tuple[Part, ...] = ()
        meaning, given = self.model.weights_meaning, sample.inputs[0] if self.reads_texts else sample.inputs
        if (names := self._search.names) is not None and label in names.ids:
            meaning, parts = EVIDENCE_MEANING, build_parts(given, names.explain(given, label))
        elif label < self.model.n_labels and self.model.label_counts[label]:  # otherwise it is required, or implied
            parts = build_parts(given, self.pipeline.explain(sample, label))
        name, uri = self.labels.names[label], self.labels.get_uri(label)
        return Explanation(name, score, meaning, parts, uri)


def load(folder: str | Path) -> Tagger:
    """Load a tagger that ``Tagger.save`` wrote; it predicts exactly as before.

    :param folder: The folder of the bundle.
    """
    bundle = load_bundle(folder)
    about = bundle.about
    try:
        pipeline = Pipeline(MethodSpec.parse(about["spec"])).restore(about, bundle.arrays)
        layout = Layout.from_columns(about.get("columns", {}))
        tagger = Tagger.from_pipeline(pipeline, bundle.labels, bool(about["reads_texts"]), layout)
        tagger.decisions = Decisions.restore(about, bundle.arrays)
        tagger.unseen = UnseenLabels.from_state(bundle.arrays[UNSEEN]) if UNSEEN in bundle.arrays else None
        tagger.register = Register.restore(bundle.labels, about.get("history", ()), bundle.arrays.get(HISTORY, {}))
        if "constraints" in about:
            tagger.constraints = Constraints.from_dict(about["constraints"])
        return tagger
    except (KeyError, TypeError, ValueError, SettingError) as error:
        found = f"the bundle does not describe a tagger that this longtail can load ({error})"
        raise BundleError(found, where=str(folder), hint="Use the version of longtail that wrote it") from error
