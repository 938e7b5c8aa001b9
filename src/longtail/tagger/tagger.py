"""The tagger: features, model and label names as one object that is fitted, evaluated, saved, loaded and served."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import numpy as np
import scipy.sparse as sp

from longtail.data.labels import Labels
from longtail.data.layout import Layout, LayoutOptions
from longtail.data.read import read_any
from longtail.data.stream import SampleStream, open_stream
from longtail.decisions.calibration import Calibration
from longtail.decisions.constraints import Constraints, ConstraintsInput, collect_constraints, combine_constraints
from longtail.decisions.rules import LabelRules
from longtail.decisions.targets import Target
from longtail.errors import LongtailError, OverwriteWarning, SettingError, suggest
from longtail.extractor import Encoded
from longtail.features.normaliser import Normaliser
from longtail.features.text import TextFeatures
from longtail.html import format_table
from longtail.kernels import Bools, Floats
from longtail.labelspace.propensity import DEFAULT_PROPENSITY
from longtail.metrics.evaluate import Evaluation
from longtail.metrics.ranking import DEFAULT_KS
from longtail.model import Model
from longtail.nn.hybrid import Hybrid
from longtail.pipeline import Pipeline, join_topk
from longtail.progress import Progress, resolve_progress
from longtail.registry import DEFAULT_METHOD
from longtail.sharding.cluster import Cluster
from longtail.sharding.processes import Processes, resolve_processes
from longtail.spec import MethodSpec, TaggerSettings
from longtail.tagger.bundle import check_target, has_bundle, load_bundle, save_bundle
from longtail.tagger.decisions import Decisions
from longtail.tagger.description import describe_tagger
from longtail.tagger.evaluation import evaluate_stream
from longtail.tagger.explanation import Explanation, encode_sample, explain_label, find_explainable
from longtail.tagger.fitting import fit_decisions, fit_parts
from longtail.tagger.inputs import prepare_data
from longtail.tagger.prediction import (
    DEFAULT_K,
    Tag,
    choose_batch_sets,
    encode_batches,
    find_best,
    load_inputs,
    name_labels,
)
from longtail.tagger.register import Change, Register
from longtail.tagger.saving import pack_tagger, unpack_tagger
from longtail.tagger.search import LabelSearch
from longtail.tagger.sets import resolve_target
from longtail.tagger.training_file import TrainingFile
from longtail.tagger.unseen import UnseenLabels
from longtail.tagger.update import FeedbackInput, UpdateReport, update_tagger
from longtail.topk import NO_LABEL, HeldOut, TopK, make_indicator

_CONFIGURABLE = ("threads", "device")


class Tagger:
    """Texts (or feature vectors) in, label names out.

    >>> tagger = Tagger("ovr", min_df=1).fit(["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]])
    >>> tagger.predict(["a green apple"], k=1)[0][0].label
    'fruit'
    >>> tagger
    Tagger("ovr+min_df=1", fitted on 3 samples, 2 labels)
    """

    constraints: Constraints | None = None  # what must hold for all predictions, together with those of a request
    training_file: TrainingFile | None = None  # set by the command line

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
        cluster: Cluster | None = None,
        processes: int | Processes | None = None,
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
        :param cluster: What trains parts of the model (``longtail.cluster``). None: this process.
        :param processes: How many processes of this machine train a network together. None: this process trains it.
        :param progress: Whether to show progress bars. None: in terminals and notebooks.
        :param layout: Options of ``longtail.read``, such as ``text="body"``.
        """
        parts = self.pipeline.unfitted(), self._settings
        with resolve_processes(processes) as ranks:
            fitted = fit_parts(*parts, data, labels, valid, layout, resolve_progress(progress), cluster, ranks)
        self.pipeline, self.register = fitted.pipeline, Register.from_labels(fitted.labels)
        self.reads_texts, self.layout = fitted.reads_texts, fitted.layout
        self.decisions, self.unseen, self.training_file = fitted.decisions, fitted.unseen, None
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

        A ``CalibrationWarning`` says if P@1 is far higher on the data than on samples that were held out from training:
        then the tagger was probably trained on the data.
        """
        if keep_curve and not self.calibration:
            raise SettingError("there is no calibration to keep", hint="Calibrate without --keep-curve first")
        held_out = prepare_data(read_any(data, labels, layout, trained=self.layout), self.labels, self.reads_texts)
        before, self.decisions = self.decisions.precision, fit_decisions(self, held_out, k, keep_curve)
        if before is not None and self.decisions.precision is not None:
            self.decisions.precision.warn_if_far_above(before)
        return self

    def update(
        self,
        new: Any = None,
        labels: Any = None,
        *,
        feedback: FeedbackInput | None = None,
        old: Any = None,
        replay: float | None = None,
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
        :param replay: Share of the old data that is used again. None: 0.2.
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

    def replace_pipeline(self, pipeline: Pipeline, labels: Labels, update: Change) -> None:
        """Replace everything that was fitted, after an update, and log it."""
        self.pipeline, self.register = pipeline, self.register.extend(labels, self.model.n_labels, update)

    def encode(self, inputs: Any, **layout: Unpack[LayoutOptions]) -> Encoded:
        """Compute the features of inputs once, for several of the calls below. All of them are in memory at the same time.

        :param inputs: Texts or feature vectors, or data in any form that ``longtail.read`` takes; labels are left out.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.

        >>> tagger = Tagger("ovr", min_df=1).fit(["red apple", "red rose"], [["fruit"], ["flower"]])
        >>> encoded = tagger.encode(["an apple", "nothing known"])
        >>> tagger.predict(encoded, k=1)[0][0].label, tagger.n_unknown(encoded)
        ('fruit', 1)
        """
        return inputs if isinstance(inputs, Encoded) else self.pipeline.encode(load_inputs(self, inputs, **layout))

    def topk(
        self,
        inputs: Any,
        k: int = DEFAULT_K,
        *,
        allowed: Bools | None = None,
        constraints: ConstraintsInput | None = None,
        raw: bool = False,
        **layout: Unpack[LayoutOptions],
    ) -> TopK:
        """Return the ids of the k best labels of each sample, with their scores. Arguments as for ``predict``.

        :param allowed: Which labels may be predicted [n_labels]; None: all.
        """
        rules = self.resolve(constraints, allowed)
        return join_topk([self.search.topk(batch, k, rules, raw) for batch in encode_batches(self, inputs, **layout)])

    def predict(
        self,
        inputs: Any,
        k: int | None = None,
        *,
        target: str | Target | None = None,
        threshold: float | None = None,
        constraints: ConstraintsInput | None = None,
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
        :param constraints: What must hold for the labels, in addition to the constraints of the tagger: ``Constraints``, a
            dictionary such as ``{"deny": ["axis"]}``, or a list of these, which must all hold.
        :param raw: Whether scores are those of the model instead of calibrated probabilities. Labels without training
            samples have none, and are left out.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        return name_labels(find_best(self, inputs, k, target, threshold, constraints, raw, **layout), self.labels)

    def choose_sets(
        self,
        inputs: Any,
        target: str | Target | None = None,
        *,
        threshold: float | None = None,
        constraints: ConstraintsInput | None = None,
        raw: bool = False,
        **layout: Unpack[LayoutOptions],
    ) -> TopK:
        """Return the ids of the labels in the set of each sample, with their scores; rows end with ``NO_LABEL``.

        Arguments as for ``predict``. Without a target and a threshold, sets have the highest expected F1; those of a tagger
        that is not calibrated have all labels from its ``threshold`` on.
        """
        chosen = resolve_target(target, threshold, self.calibration is not None and not raw, self.threshold)
        rules, batches = self.resolve(constraints), encode_batches(self, inputs, **layout)
        return join_topk([choose_batch_sets(self, batch, chosen, rules, raw) for batch in batches])

    def predict_sets(self, inputs: Any, target: str | Target | None = None) -> sp.csr_array:
        """Return the sets of ``choose_sets`` as an indicator matrix [n_samples, n_labels]."""
        return make_indicator(self.choose_sets(inputs, target), len(self.labels))

    def resolve(self, constraints: ConstraintsInput | None = None, allowed: Bools | None = None) -> LabelRules | None:
        """Combine what must hold for one request with what always holds: all restrictions of labels meet here.

        :returns: None if every label may be predicted, and nothing else is required.
        """
        given = [*collect_constraints(self.constraints), *collect_constraints(constraints)]
        return combine_constraints(self.labels, given, allowed, self.register.predicted_as)

    def n_unknown(self, inputs: Any) -> int:
        """Return how many inputs have no known word or feature; all of them get the same labels."""
        return sum(batch.n_unknown for batch in encode_batches(self, inputs))

    def novelty(self, inputs: Any) -> Floats:
        """Return how unlike the training data each input is [n]: the share of it that an autoencoder cannot reconstruct."""
        return np.concatenate([self.pipeline.novelty(batch) for batch in encode_batches(self, inputs)])

    def explain(self, sample: str | sp.csr_array, label: str | None = None) -> Explanation:
        """Explain why a text or feature vector gets a label, given by name or URI; None: its best label.

        >>> texts, labels = ["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]]
        >>> tagger = Tagger("ovr", min_df=1, ngrams=1).fit(texts, labels)
        >>> [word for word, weight in tagger.explain("An apple, red", "fruit").words]
        ['apple', 'red']
        """
        if label is None:
            explained = self.explain_topk(sample, 1)
            if not explained:
                raise LongtailError("no label was found for this sample", hint="Name the label to explain")
            return explained[0]
        encoded, number = encode_sample(self, sample), find_explainable(self, label)
        return explain_label(self, encoded, number, self.search.score(encoded, number))

    def explain_topk(
        self,
        sample: str | sp.csr_array,
        k: int | None = None,
        *,
        target: str | Target | None = None,
        threshold: float | None = None,
        constraints: ConstraintsInput | None = None,
        raw: bool = False,
    ) -> list[Explanation]:
        """Explain the labels of a text or feature vector: those that ``predict`` returns with the same arguments."""
        encoded = encode_sample(self, sample)
        best = find_best(self, encoded, k, target, threshold, constraints, raw)
        pairs = zip(best.ids[0].tolist(), best.scores[0].tolist(), strict=True)
        return [explain_label(self, encoded, label, score) for label, score in pairs if label != NO_LABEL]

    def evaluate(
        self,
        data: Any,
        labels: Any = None,
        *,
        ks: Sequence[int] = DEFAULT_KS,
        propensity: tuple[float, float] = DEFAULT_PROPENSITY,
        target: str | Target | None = None,
        threshold: float | None = None,
        **layout: Unpack[LayoutOptions],
    ) -> Evaluation:
        """Evaluate on data that the tagger was not fitted on. Labels that it does not know count as missed.

        :param data: Data in one of the forms that ``fit`` takes. Files are read block by block.
        :param labels: Labels as for ``fit``.
        :param ks: Ranks to evaluate at.
        :param propensity: Constants A and B of the propensity-scored metrics.
        :param target: What sets of labels should achieve, as for ``predict``; they give F1 scores, precision and recall.
        :param threshold: Evaluate the sets of labels whose score is at least this.
        :param layout: Options of ``longtail.read``; by default, the columns of the training data are used.
        """
        chosen = self.resolve_target(target, threshold)
        if isinstance(data, str | Path) and labels is None:
            with open_stream(data, Layout.from_options(**layout), trained=self.layout) as stream:
                return evaluate_stream(self, stream, chosen, ks, propensity).result
        found = read_any(data, labels, layout, trained=self.layout)
        return evaluate_stream(self, SampleStream(found, found.layout), chosen, ks, propensity).result

    def resolve_target(self, target: str | Target | None, threshold: float | None = None) -> Target:
        """Return what sets of labels should achieve; None: what suits the scores."""
        return resolve_target(target, threshold, self.calibration is not None, self.threshold)

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
        check_target(Path(folder), overwrite=overwrite is not False)
        if overwrite is None and has_bundle(Path(folder)):
            message = f"{folder}: the model that was saved there is replaced. To avoid this warning, set overwrite=True"
            warnings.warn(message, OverwriteWarning, stacklevel=2)
        save_bundle(pack_tagger(self), folder, overwrite=overwrite is not False)

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

    @property
    def search(self) -> LabelSearch:
        """What finds labels, with the present model and labels; kept, because it indexes the names of labels."""
        parts, last = (self.model, self.register, self.calibration, self.unseen), self._last_search
        if last is None or any(new is not old for new, old in zip(parts, last.parts, strict=True)):
            self._last_search = last = LabelSearch(*parts)
        return last


def load(folder: str | Path) -> Tagger:
    """Load a tagger that ``Tagger.save`` wrote; it predicts exactly as before.

    :param folder: The folder of the bundle.
    """
    return unpack_tagger(Tagger, load_bundle(folder), folder)
