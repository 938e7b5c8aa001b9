"""The tagger: features, model and label names as one object that is fitted, evaluated, saved, loaded and served."""

from __future__ import annotations

import json
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
from longtail.decisions.calibration import MIN_SAMPLES, Calibration, fit_calibration
from longtail.decisions.constraints import Constraints, combine_constraints
from longtail.decisions.rules import LabelRules
from longtail.errors import BundleError, DataError, LongtailError, OverwriteWarning, SettingError, suggest
from longtail.extractor import Encoded
from longtail.features.normaliser import Normaliser
from longtail.features.text import TextFeatures
from longtail.html import format_table
from longtail.kernels import Bools, Floats, Longs
from longtail.labelspace.propensity import DEFAULT_PROPENSITY
from longtail.metrics.evaluate import Evaluation, evaluate
from longtail.metrics.ranking import DEFAULT_KS
from longtail.metrics.sets import choose_threshold
from longtail.model import Model, count_samples
from longtail.nn.hybrid import Hybrid
from longtail.pipeline import Pipeline, join_topk
from longtail.progress import Progress, resolve_progress
from longtail.registry import DEFAULT_METHOD
from longtail.spec import MethodSpec, TaggerSettings
from longtail.tagger.bundle import Bundle, check_target, has_bundle, load_bundle, save_bundle
from longtail.tagger.explanation import Explanation, Part, build_parts
from longtail.tagger.held_out import choose_depth, predict_held_out
from longtail.tagger.inputs import check_inputs, prepare_data, read_inputs
from longtail.tagger.register import PART as HISTORY
from longtail.tagger.register import Register
from longtail.tagger.unseen import EVIDENCE_MEANING, UnseenLabels, UnseenNames, find_vectors, fit_unseen, mix
from longtail.tagger.unseen import PART as UNSEEN
from longtail.topk import NO_LABEL, HeldOut, TopK, select_above

_CONFIGURABLE = ("threads", "device")
_FIRST_K = 64  # labels among which the score of a given one is looked up first


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
        self.calibration: Calibration | None = None  # None: scores are those of the model
        self.calibrated_on = ""  # the samples that the calibration was fitted to, for people
        self.threshold = self.model.default_threshold  # smallest score of the labels in ``predict_sets``
        self.reads_texts = True
        self.layout = Layout()  # the columns of the training data
        self.unseen: UnseenLabels | None = None  # scores labels without training samples by their names
        self._indexed: tuple[Register, UnseenNames | None] | None = None
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
        tagger._register, tagger.unseen, tagger._indexed = Register.from_labels(labels), None, None
        tagger._fit_decisions(held_out)
        return tagger

    @property
    def _settings(self) -> TaggerSettings:
        values = self.spec.resolve()
        return TaggerSettings(**{name: values[name] for name in TaggerSettings.param_names() if name in values})

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
            are calibrated on it, the threshold of ``predict_sets`` is the one with the best micro-F1 on it, and it stops the
            training of networks early. None: samples that are held out from the training data do that.
        :param progress: Whether to show progress bars. None: in terminals and notebooks.
        :param layout: Options of ``longtail.read``, such as ``text="body"``.
        """
        self.pipeline.check_requirements()
        train, display = read(data, labels, **layout), resolve_progress(progress)
        columns = replace(train.layout, text=train.fields[: len(train.layout.text)] or train.layout.text)
        pipeline, held_out = self.pipeline.unfitted(), None  # replaces the current one when everything has succeeded
        pipeline.model.check_valid(valid)
        pipeline.model.check_vocabulary(train.labels)
        if valid is not None:
            is_pair = isinstance(valid, tuple) and not is_tabular(valid)
            inputs, known = valid if is_pair else (valid, None)
            read_valid = read_any(inputs, known, layout, trained=columns)
            inputs, Y = prepare_data(read_valid, train.labels, train.texts is not None)
            held_out = (inputs, Y[:, : train.n_labels])
        X = pipeline.fit_features(train.inputs, train.Y, source=train.source, progress=display)
        encoded = None if held_out is None else (pipeline.encode(held_out[0]).X, held_out[1])
        pipeline.fit_model(X, train.Y, encoded, labels=train.labels, progress=display)
        fitted = copy(self)
        fitted.pipeline, fitted._register = pipeline, Register.from_labels(train.labels)
        fitted.reads_texts, fitted.layout = train.texts is not None, Layout.from_columns(columns.columns)
        calibrate = self._settings.calibrate
        with display.stage("calibration", 1) as stage:
            fitted._fit_decisions(predict_held_out(pipeline.model, X, train.Y, encoded, calibrate), calibrate)
            stage.advance()
        fitted.unseen = None
        if train.texts is not None and self._settings.unseen and fitted.score_meaning == "probability":
            seed = pipeline.model.get_params().get("seed", 0)
            fitted.unseen = fit_unseen(train.texts, train.Y, train.labels, vectors=find_vectors(), seed=seed)
        vars(self).update(vars(fitted))
        return self

    def calibrate(self, data: Any, labels: Any = None, **layout: Unpack[LayoutOptions]) -> Self:
        """Fit the calibration again, and the threshold of ``predict_sets``, to data that the tagger was not fitted on.

        :param data: Data in one of the forms that ``fit`` takes.
        :param labels: Labels as for ``fit``.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        inputs, Y = prepare_data(read_any(data, labels, layout, trained=self.layout), self.labels, self.reads_texts)
        if Y.shape[0] < MIN_SAMPLES:
            hint = f"Give at least {MIN_SAMPLES}, better some thousand"
            raise DataError(f"{Y.shape[0]} samples are too few to calibrate scores", hint=hint)
        best, source = self.pipeline.topk(inputs, choose_depth(Y)), f"{Y.shape[0]:,} samples given after training"
        known = self.register.unfold(Y, self.model.n_labels)
        self._fit_decisions(HeldOut(best, known, self.model.label_counts, source))
        return self

    def _fit_decisions(self, held_out: HeldOut | None, calibrate: bool = True) -> None:
        """Fit what turns scores into decisions to predictions for held-out samples, if there are any."""
        self.calibration, self.calibrated_on, self.threshold = None, "", self.model.default_threshold
        if held_out is None or (held_out.topk.ids == NO_LABEL).all():
            return
        best = held_out.topk
        if calibrate and best.n_samples >= MIN_SAMPLES:
            self.calibration = fit_calibration(best, held_out.Y, held_out.label_counts)
            self.calibrated_on = held_out.source
            best = self.calibration.apply(best, held_out.label_counts)
        self.threshold = choose_threshold(best, held_out.Y)

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
        return join_topk([self._topk(batch, k, rules, raw) for batch in self._batches(inputs, **layout)])

    def predict(
        self,
        inputs: Any,
        k: int = 5,
        *,
        constraints: Constraints | Iterable[Constraints] | None = None,
        raw: bool = False,
        **layout: Unpack[LayoutOptions],
    ) -> list[list[Tag]]:
        """Return the k best labels of each text or feature vector, by name.

        :param inputs: Texts or feature vectors; or data in any form that ``longtail.read`` takes (a file, a data frame, a
            list of objects), whose labels are left out; or what ``encode`` returned.
        :param k: Number of labels.
        :param constraints: What must hold for the labels, in addition to the constraints of the tagger. If there are
            several, all of them must hold.
        :param raw: Whether scores are those of the model instead of calibrated probabilities. Labels without training
            samples have none, and are left out.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        best, labels = self.topk(inputs, k, constraints=constraints, raw=raw, **layout), self.labels
        return [
            [Tag(labels.names[i], score, labels.get_uri(i)) for i, score in zip(ids, scores, strict=True) if i != NO_LABEL]
            for ids, scores in zip(best.ids.tolist(), best.scores.tolist(), strict=True)
        ]

    def predict_sets(self, inputs: Any) -> sp.csr_array:
        """Return an indicator matrix of all labels whose score reaches the threshold."""
        rules = self.resolve()
        return sp.vstack([self._predict_sets(batch, rules) for batch in self._batches(inputs)], format="csr")

    def resolve(
        self, constraints: Constraints | Iterable[Constraints] | None = None, allowed: Bools | None = None
    ) -> LabelRules | None:
        """Combine what must hold for one request with what always holds: all restrictions of labels meet here.

        :returns: None if every label may be predicted, and nothing else is required.
        """
        given = [constraints] if isinstance(constraints, Constraints) else list(constraints or ())
        own = [] if self.constraints is None else [self.constraints]
        retired = None if self.register.is_original else ~self.register.is_active
        return combine_constraints(self.labels, [*own, *given], allowed, retired)

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
        is_named = self._unseen_names is not None and number in self._unseen_names.ids
        if not is_named and not self.register.fold_counts(self.model.label_counts)[number]:
            raise SettingError(f'the label "{label}" has no training samples', hint=hint)
        return self._explain(encoded, number, self._score(encoded, number))

    def explain_topk(
        self,
        sample: str | sp.csr_array,
        k: int = 5,
        *,
        constraints: Constraints | Iterable[Constraints] | None = None,
        raw: bool = False,
    ) -> list[Explanation]:
        """Explain the k best labels of a text or feature vector. Arguments as for ``predict``."""
        encoded = self._encode_one(sample)
        best = self._topk(encoded, k, self.resolve(constraints), raw)
        pairs = zip(best.ids[0].tolist(), best.scores[0].tolist(), strict=True)
        return [self._explain(encoded, label, score) for label, score in pairs if label != NO_LABEL]

    def evaluate(
        self,
        data: Any,
        labels: Any = None,
        *,
        ks: Sequence[int] = DEFAULT_KS,
        propensity: tuple[float, float] = DEFAULT_PROPENSITY,
        **layout: Unpack[LayoutOptions],
    ) -> Evaluation:
        """Evaluate on data that the tagger was not fitted on. Labels that it does not know count as missed.

        :param data: Data in one of the forms that ``fit`` takes.
        :param labels: Labels as for ``fit``.
        :param ks: Ranks to evaluate at.
        :param propensity: Constants A and B of the propensity-scored metrics.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        inputs, Y = prepare_data(read_any(data, labels, layout, trained=self.layout), self.labels, self.reads_texts)
        best, sets, rules = [], [], self.resolve()
        for batch in self.pipeline.encode_batches(inputs):
            best.append(self._topk(batch, max(ks), rules))
            sets.append(self._predict_sets(batch, rules))
        return evaluate(
            join_topk(best),
            self.register.fold(Y),
            label_counts=self.register.fold_counts(self.model.label_counts),
            n_train=self.model.n_samples,
            ks=ks,
            propensity=propensity,
            predicted=sp.vstack(sets, format="csr"),
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
        about |= {"reads_texts": self.reads_texts, "threshold": self.threshold, "columns": self.layout.columns}
        state = self.pipeline.state()
        if self.calibration:
            about["calibration"], state["calibration"] = {"samples": self.calibrated_on}, self.calibration.state()
        about |= {} if self.constraints is None else {"constraints": self.constraints.to_dict()}
        if self.unseen:
            state[UNSEEN] = self.unseen.state()
        if self.register.history:
            about["history"], state[HISTORY] = self.register.about(), self.register.state()
        save_bundle(Bundle(about, state, self.labels), folder)

    def summary(self) -> dict[str, str]:
        """Describe the tagger in a few lines, by name."""
        out = {"method": str(self.spec)}
        if self.is_fitted:
            model, extractor = self.model, self.pipeline.extractor
            out["features"] = "none" if extractor is None else extractor.describe(model.n_features)
            out["labels"] = f"{len(self.labels):,} ({model.n_seen:,} with training samples)"
            if n_inactive := int((~self.register.is_active).sum()):
                out["labels"] += f", {n_inactive:,} of them retired or merged"
            if self.register.history:
                out["last change"] = str(self.register.history[-1])
            out["training samples"] = f"{model.n_samples:,}"
            out["scores"] = f"{self.score_meaning}; labels are predicted from {self.threshold:.3g}"
            fitted = f"{model.score_meaning} to probability, on {self.calibrated_on}"
            out["calibration"] = fitted if self.calibration else "none: scores are those of the model"
            if self.constraints is not None:
                out["constraints"] = json.dumps(self.constraints.to_dict(), ensure_ascii=False)
            if self.pipeline.decisions:
                out["chosen"] = "; ".join(self.pipeline.decisions)
        return out

    def __repr__(self) -> str:
        """The spec, and what the tagger is fitted on."""
        spec, quote = str(self.spec), "'" if '"' in str(self.spec) else '"'
        if not self.is_fitted:
            return f"Tagger({quote}{spec}{quote}, not fitted)"
        return f"Tagger({quote}{spec}{quote}, fitted on {self.model.n_samples:,} samples, {self.model.n_labels:,} labels)"

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

    def _topk(self, batch: Encoded, k: int, rules: LabelRules | None = None, raw: bool = False) -> TopK:
        """Return the k best labels of encoded samples for which the rules hold."""
        if rules is None:
            return self._search(batch, k, None, raw)
        n_samples, trained = count_samples(batch.X), self.register.fold_counts(self.model.label_counts) > 0
        if (names := None if raw else self._unseen_names) is not None:
            trained[names.ids] = True  # these can be found, too

        def search(rows: Longs, k: int, allowed: Bools | None) -> TopK:
            return self._search(batch if len(rows) == n_samples else batch.take(rows), k, allowed, raw)

        return rules.search(search, n_samples, k, trained & self.register.is_active)

    def _search(self, batch: Encoded, k: int, allowed: Bools | None, raw: bool) -> TopK:
        """Return the k best of the allowed labels: those that the model has learned, and those that are known by name."""

        def search(k: int, allowed: Bools | None) -> TopK:
            best = self.model.topk(batch.X, k, allowed=allowed)
            return best if raw or not self.calibration else self.calibration.apply(best, self.model.label_counts)

        names = None if raw else self._unseen_names
        if names is None:
            return self.register.topk(search, k, self.model.n_labels, allowed)
        best = names.topk(batch.inputs, k, allowed)
        outputs = self.register.find_outputs(self.model.n_labels, allowed)
        if best.k and not (outputs & (self.model.label_counts > 0)).any():
            return best
        return mix(self.register.topk(search, k, self.model.n_labels, allowed), best, k)

    @property
    def _unseen_names(self) -> UnseenNames | None:
        """The names of labels without training samples; None if there are none, or if scores are not probabilities."""
        if self.unseen is None or self.score_meaning != "probability":
            return None
        if self._indexed is None or self._indexed[0] is not self.register:  # the labels have changed
            self._indexed = self.register, self.unseen.index(self.register, self.model.label_counts)
        return self._indexed[1]

    def _predict_sets(self, batch: Encoded, rules: LabelRules | None) -> sp.csr_array:
        """Return an indicator matrix of the labels of encoded samples that reach the threshold or are required."""
        sets = select_above(lambda k: self._topk(batch, k, rules), self.threshold, len(self.labels))
        return sets if rules is None else rules.add_required(sets)

    def _score(self, sample: Encoded, label: int) -> float:
        """Return the score of a label for one sample; 0 if no search finds the label."""
        k = _FIRST_K
        while True:
            best = self._search(sample, k, None, False)
            if label in best.ids[0] or k >= len(self.labels):
                return float(best.scores[0, best.ids[0] == label].sum())
            k *= 8

    def _explain(self, sample: Encoded, label: int, score: float) -> Explanation:
        parts: tuple[Part, ...] = ()
        meaning, given = self.model.weights_meaning, sample.inputs[0] if self.reads_texts else sample.inputs
        if (names := self._unseen_names) is not None and label in names.ids:
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
        tagger.threshold = float(about["threshold"])
        if "calibration" in about:
            tagger.calibration = Calibration.from_state(bundle.arrays["calibration"])
            tagger.calibrated_on = about["calibration"]["samples"]
        tagger.unseen = UnseenLabels.from_state(bundle.arrays[UNSEEN]) if UNSEEN in bundle.arrays else None
        tagger.register = Register.restore(bundle.labels, about.get("history", ()), bundle.arrays.get(HISTORY, {}))
        if "constraints" in about:
            tagger.constraints = Constraints.from_dict(about["constraints"])
        return tagger
    except (KeyError, TypeError, ValueError, SettingError) as error:
        found = f"the bundle does not describe a tagger that this longtail can load ({error})"
        raise BundleError(found, where=str(folder), hint="Use the version of longtail that wrote it") from error
