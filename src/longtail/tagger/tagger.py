"""The tagger: features, model and label names as one object that is fitted, evaluated, saved, loaded and served."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import scipy.sparse as sp

from longtail.data.labels import Labels
from longtail.data.layout import Layout, LayoutOptions
from longtail.data.read import read_any
from longtail.decisions.constraints import ConstraintsInput
from longtail.decisions.targets import Target
from longtail.errors import OverwriteWarning, SettingError, suggest
from longtail.extractor import Encoded
from longtail.html import format_table
from longtail.kernels import Bools, Floats
from longtail.labelspace.propensity import DEFAULT_PROPENSITY
from longtail.metrics.evaluate import Evaluation
from longtail.metrics.ranking import DEFAULT_KS
from longtail.pipeline import Pipeline
from longtail.progress import Progress, resolve_progress
from longtail.registry import DEFAULT_METHOD
from longtail.sharding.cluster import Cluster
from longtail.sharding.processes import Processes, resolve_processes
from longtail.spec import MethodSpec, TaggerSettings
from longtail.tagger.bundle import check_target, has_bundle, load_bundle, save_bundle
from longtail.tagger.decisions import Decisions
from longtail.tagger.description import describe_tagger, represent
from longtail.tagger.evaluation import evaluate_data
from longtail.tagger.explanation import Explanation, explain_sample, explain_topk
from longtail.tagger.fitting import fit_decisions, fit_parts
from longtail.tagger.inputs import prepare_data
from longtail.tagger.parts import TaggerParts
from longtail.tagger.prediction import (
    DEFAULT_K,
    Tag,
    choose_label_sets,
    encode_batches,
    find_best,
    find_topk,
    load_inputs,
    name_labels,
)
from longtail.tagger.register import Register
from longtail.tagger.saving import pack_tagger, unpack_tagger
from longtail.tagger.update import FeedbackInput, UpdateReport, update_tagger
from longtail.topk import HeldOut, TopK, make_indicator

_CONFIGURABLE = ("threads", "device")


class Tagger(TaggerParts):
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
        super().__init__(Pipeline(spec.override(preset, settings), seed=seed, threads=threads))
        self._settings.check()

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
        TaggerParts.__init__(tagger, pipeline)
        tagger.register, tagger.reads_texts, tagger.layout = Register.from_labels(labels), reads_texts, layout or Layout()
        tagger.decisions = Decisions.fit(held_out, pipeline.model.default_threshold)
        return tagger

    @property
    def _settings(self) -> TaggerSettings:
        values = self.spec.resolve()
        return TaggerSettings(**{name: values[name] for name in TaggerSettings.param_names() if name in values})

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
        return find_topk(self, inputs, k, allowed, constraints, raw, **layout)

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
        return choose_label_sets(self, inputs, target, threshold, constraints, raw, **layout)

    def predict_sets(self, inputs: Any, target: str | Target | None = None) -> sp.csr_array:
        """Return the sets of ``choose_sets`` as an indicator matrix [n_samples, n_labels]."""
        return make_indicator(self.choose_sets(inputs, target), len(self.labels))

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
        return explain_sample(self, sample, label)

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
        return explain_topk(self, sample, k, target, threshold, constraints, raw)

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
        return evaluate_data(self, data, labels, self.resolve_target(target, threshold), ks, propensity, layout)

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
        return f"Tagger({represent(self)})"

    def _repr_html_(self) -> str:
        return format_table(self.summary().items(), ("Tagger", "fitted" if self.is_fitted else "not fitted"))


def load(folder: str | Path) -> Tagger:
    """Load a tagger that ``Tagger.save`` wrote; it predicts exactly as before.

    :param folder: The folder of the bundle.
    """
    return unpack_tagger(Tagger, load_bundle(folder), folder)
