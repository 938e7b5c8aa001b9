"""What a tagger consists of, and what follows from it: the search for labels, and what must hold for predictions."""

from __future__ import annotations

from typing import Literal

from longtail.data.labels import Labels
from longtail.data.layout import Layout
from longtail.decisions.calibration import Calibration
from longtail.decisions.constraints import Constraints, ConstraintsInput, collect_constraints, combine_constraints
from longtail.decisions.rules import LabelRules
from longtail.decisions.targets import Target
from longtail.errors import LongtailError
from longtail.features.normaliser import Normaliser
from longtail.features.text import TextFeatures
from longtail.kernels import Bools
from longtail.model import Model
from longtail.nn.hybrid import Hybrid
from longtail.pipeline import Pipeline
from longtail.spec import MethodSpec
from longtail.tagger.decisions import Decisions
from longtail.tagger.register import Change, Register
from longtail.tagger.search import LabelSearch
from longtail.tagger.sets import resolve_target
from longtail.tagger.training_file import TrainingFile
from longtail.tagger.unseen import UnseenLabels


class TaggerParts:
    """The parts of a tagger, which the functions that predict, explain, evaluate and save read. ``Tagger`` is the interface.

    :param pipeline: The features and the model.
    """

    constraints: Constraints | None = None  # what must hold for all predictions, together with those of a request
    training_file: TrainingFile | None = None  # set by the command line

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.decisions = Decisions(pipeline.model.default_threshold)
        self.reads_texts = True
        self.layout = Layout()  # the columns of the training data
        self.unseen: UnseenLabels | None = None  # scores labels without training samples by their names
        self._last_search: LabelSearch | None = None
        self._register: Register | None = None

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

    @property
    def search(self) -> LabelSearch:
        """What finds labels, with the present model and labels; kept, because it indexes the names of labels."""
        parts, last = (self.model, self.register, self.calibration, self.unseen), self._last_search
        if last is None or any(new is not old for new, old in zip(parts, last.parts, strict=True)):
            self._last_search = last = LabelSearch(*parts)
        return last

    def resolve(self, constraints: ConstraintsInput | None = None, allowed: Bools | None = None) -> LabelRules | None:
        """Combine what must hold for one request with what always holds: all restrictions of labels meet here.

        :returns: None if every label may be predicted, and nothing else is required.
        """
        given = [*collect_constraints(self.constraints), *collect_constraints(constraints)]
        return combine_constraints(self.labels, given, allowed, self.register.predicted_as)

    def resolve_target(self, target: str | Target | None, threshold: float | None = None) -> Target:
        """Return what sets of labels should achieve; None: what suits the scores."""
        return resolve_target(target, threshold, self.calibration is not None, self.threshold)

    def replace_pipeline(self, pipeline: Pipeline, labels: Labels, update: Change) -> None:
        """Replace everything that was fitted, after an update, and log it."""
        self.pipeline, self.register = pipeline, self.register.extend(labels, self.model.n_labels, update)
