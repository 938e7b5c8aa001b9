"""The tagger: features, model and label names as one object that is fitted, evaluated, saved, loaded and served."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
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
from longtail.decisions.sets import SetRules, fit_rules
from longtail.decisions.targets import Target
from longtail.errors import BundleError, DataError, LongtailError, OverwriteWarning, SettingError, suggest
from longtail.extractor import Encoded
from longtail.features.normaliser import Normaliser
from longtail.features.text import TextFeatures
from longtail.html import format_table
from longtail.kernels import Floats
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
from longtail.tagger.explanation import Explanation, build_parts
from longtail.tagger.held_out import choose_depth, predict_held_out
from longtail.tagger.inputs import check_inputs, prepare_data, read_inputs
from longtail.tagger.sets import find_sets, limit_sets, resolve_target
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
        self.set_rules: SetRules | None = None  # what sets of labels need; None if there is no calibration
        self.threshold = self.model.default_threshold  # with the best micro-F1 on held-out samples, if there are any
        self.reads_texts = True
        self.layout = Layout()  # the columns of the training data
        self._labels: Labels | None = None

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
        tagger.pipeline, tagger._labels, tagger.reads_texts, tagger.layout = (
            pipeline,
            labels,
            reads_texts,
            layout or Layout(),
        )
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
        return self._labels is not None

    @property
    def labels(self) -> Labels:
        """The labels that the tagger was fitted on."""
        if self._labels is None:
            raise LongtailError("this tagger is not fitted yet", hint="Call fit() first")
        return self._labels

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
        X = pipeline.fit_features(train.inputs, train.Y, source=train.source, progress=display)
        encoded = None if held_out is None else (pipeline.encode(held_out[0]).X, held_out[1])
        known = None if encoded is None else (encoded[0], encoded[1][:, : train.n_labels])
        pipeline.fit_model(X, train.Y, known, labels=train.labels, progress=display)
        fitted = copy(self)
        fitted.pipeline, fitted._labels = pipeline, train.labels
        fitted.reads_texts, fitted.layout = train.texts is not None, Layout.from_columns(columns.columns)
        calibrate = self._settings.calibrate
        with display.stage("calibration", 1) as stage:
            fitted._fit_decisions(predict_held_out(pipeline.model, X, train.Y, encoded, calibrate), calibrate)
            stage.advance()
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
        held_out = HeldOut(best, Y, self.model.label_counts, source)
        if keep_curve:
            self._fit_rules(held_out)
        else:
            self._fit_decisions(held_out)
        return self

    def _fit_decisions(self, held_out: HeldOut | None, calibrate: bool = True) -> None:
        """Fit what turns scores into decisions to predictions for held-out samples, if there are any."""
        self.calibration, self.calibrated_on, self.set_rules = None, "", None
        self.threshold = self.model.default_threshold
        if held_out is None or (held_out.topk.ids == NO_LABEL).all():
            return
        if calibrate and held_out.topk.n_samples >= MIN_SAMPLES:
            self.calibration = fit_calibration(held_out.topk, held_out.Y, held_out.label_counts)
            self.calibrated_on = held_out.source
            self._fit_rules(held_out)
        else:
            self.threshold = choose_threshold(held_out.topk, held_out.Y)

    def _fit_rules(self, held_out: HeldOut) -> None:
        """Fit the rules for sets of labels to calibrated predictions for held-out samples."""
        assert self.calibration
        calibrated = self.calibration.apply(held_out.topk, held_out.label_counts)
        self.set_rules = fit_rules(calibrated, held_out.Y, held_out.label_counts)
        self.threshold = self.set_rules.micro

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

    def topk(self, inputs: Any, k: int = 5, *, raw: bool = False, **layout: Unpack[LayoutOptions]) -> TopK:
        """Return the ids of the k best labels of each sample, with their scores. Arguments as for ``predict``."""
        return join_topk([self._topk(batch, k, raw) for batch in self._batches(inputs, **layout)])

    def predict(
        self,
        inputs: Any,
        k: int | None = None,
        *,
        target: str | Target | None = None,
        threshold: float | None = None,
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
        :param raw: Whether scores are those of the model instead of calibrated probabilities. The labels are the same.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        best, labels = self._find_best(inputs, k, target, threshold, raw, **layout), self.labels
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
        raw: bool = False,
        **layout: Unpack[LayoutOptions],
    ) -> TopK:
        """Return the ids of the labels in the set of each sample, with their scores; rows end with ``NO_LABEL``.

        Arguments as for ``predict``. Without a target and a threshold, sets have the highest expected F1; those of a tagger
        that is not calibrated have all labels from its ``threshold`` on.
        """
        chosen = resolve_target(target, threshold, self.calibration is not None and not raw, self.threshold)
        return join_topk([self._choose_sets(batch, chosen, raw) for batch in self._batches(inputs, **layout)])

    def predict_sets(self, inputs: Any, target: str | Target | None = None) -> sp.csr_array:
        """Return the sets of ``choose_sets`` as an indicator matrix [n_samples, n_labels]."""
        return make_indicator(self.choose_sets(inputs, target), self.model.n_labels)

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
        number = labels.keys[label]
        if not self.model.label_counts[number]:
            hint = "It is never predicted, so there is nothing to explain"
            raise SettingError(f'the label "{label}" has no training samples', hint=hint)
        return self._explain(encoded, number, self._score(encoded, number))

    def explain_topk(
        self,
        sample: str | sp.csr_array,
        k: int | None = None,
        *,
        target: str | Target | None = None,
        threshold: float | None = None,
        raw: bool = False,
    ) -> list[Explanation]:
        """Explain the labels of a text or feature vector: those that ``predict`` returns with the same arguments."""
        encoded = self._encode_one(sample)
        best = self._find_best(encoded, k, target, threshold, raw)
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
        best, sets = [], []
        for batch in self.pipeline.encode_batches(inputs):
            best.append(self._topk(batch, max(ks)))
            sets.append(self._choose_sets(batch, chosen))
        return evaluate(
            join_topk(best),
            Y,
            label_counts=self.model.label_counts,
            n_train=self.model.n_samples,
            ks=ks,
            propensity=propensity,
            sets=join_topk(sets),
            target=str(chosen),
            probabilities=self.score_meaning == "probability",
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
        if self.set_rules:
            about["sets"], state["sets"] = {"samples": self.set_rules.curve.n_samples}, self.set_rules.state()
        save_bundle(Bundle(about, state, self.labels), folder)

    def summary(self) -> dict[str, str]:
        """Describe the tagger in a few lines, by name."""
        out = {"method": str(self.spec)}
        if self.is_fitted:
            model, extractor = self.model, self.pipeline.extractor
            out["features"] = "none" if extractor is None else extractor.describe(model.n_features)
            out["labels"] = f"{model.n_labels:,} ({model.n_seen:,} with training samples)"
            out["training samples"] = f"{model.n_samples:,}"
            out["scores"] = self.score_meaning
            fitted = f"{model.score_meaning} to probability, on {self.calibrated_on}"
            out["calibration"] = fitted if self.calibration else "none: scores are those of the model"
            target = resolve_target(None, None, self.calibration is not None, self.threshold)
            out["sets"] = f"{target}; micro-F1 is best from {self.threshold:.3g}" if self.set_rules else str(target)
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

    def _topk(self, batch: Encoded, k: int, raw: bool = False) -> TopK:
        best = self.model.topk(batch.X, k)
        return best if raw or not self.calibration else self.calibration.apply(best, self.model.label_counts)

    def _find_best(
        self,
        inputs: Any,
        k: int | None,
        target: str | Target | None,
        threshold: float | None,
        raw: bool,
        **layout: Unpack[LayoutOptions],
    ) -> TopK:
        """Return the k best labels of each sample, or a set if there is a target or a threshold."""
        if target is None and threshold is None:
            return self.topk(inputs, DEFAULT_K if k is None else k, raw=raw, **layout)
        return limit_sets(self.choose_sets(inputs, target, threshold=threshold, raw=raw, **layout), k)

    def _choose_sets(self, batch: Encoded, target: Target, raw: bool = False) -> TopK:
        return find_sets(lambda k: self._topk(batch, k, raw), target, self.set_rules, self.model.label_counts)

    def _score(self, sample: Encoded, label: int) -> float:
        """Return the score of a label for one sample; 0 if no search finds the label."""
        best = self.pipeline.find(sample, label)
        best = self.calibration.apply(best, self.model.label_counts) if self.calibration else best
        return float(best.scores[0, best.ids[0] == label].sum())

    def _explain(self, sample: Encoded, label: int, score: float) -> Explanation:
        parts = build_parts(sample.inputs[0] if self.reads_texts else sample.inputs, self.pipeline.explain(sample, label))
        name, uri = self.labels.names[label], self.labels.get_uri(label)
        return Explanation(name, score, self.model.weights_meaning, parts, uri)


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
        if "sets" in about:
            tagger.set_rules = SetRules.from_state(bundle.arrays["sets"])
        return tagger
    except (KeyError, TypeError, ValueError, SettingError) as error:
        found = f"the bundle does not describe a tagger that this longtail can load ({error})"
        raise BundleError(found, where=str(folder), hint="Use the version of longtail that wrote it") from error
