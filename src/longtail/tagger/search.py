"""How a tagger finds labels: the search of the model, calibrated, with labels that changed or are known by name only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from longtail.decisions.calibration import Calibration
from longtail.decisions.rules import LabelRules
from longtail.extractor import Encoded
from longtail.kernels import Bools, Longs
from longtail.model import Model
from longtail.samples import count_samples
from longtail.tagger.register import Register
from longtail.tagger.unseen import UnseenLabels, UnseenNames, mix
from longtail.topk import SEARCH_DEPTH, TopK


@dataclass(frozen=True, eq=False)
class LabelSearch:
    """Finds the best labels of encoded samples.

    The model ranks its outputs; the calibration makes probabilities of its scores; the register says which label each output
    stands for now; labels without training samples are ranked by their names; and rules say which labels are possible.
    """

    model: Model
    register: Register
    calibration: Calibration | None
    unseen: UnseenLabels | None

    @property
    def parts(self) -> tuple[object, ...]:
        """What the search consists of."""
        return self.model, self.register, self.calibration, self.unseen

    @cached_property
    def names(self) -> UnseenNames | None:
        """The names of labels without training samples; None if there are none, or if scores are not calibrated."""
        return self.unseen.index(self.register, self.model.label_counts) if self.unseen and self.calibration else None

    def topk(self, batch: Encoded, k: int, rules: LabelRules | None = None, raw: bool = False) -> TopK:
        """Return the k best labels of each sample for which the rules hold.

        :param raw: Whether scores are those of the model. Labels that are known by name only have none, and are left out.
        """
        if rules is None:
            return self._search(batch, k, None, raw)
        n_samples, possible = count_samples(batch.X), self.register.fold_counts(self.model.label_counts) > 0
        if self.names is not None and not raw:
            possible[self.names.ids] = True

        def search(rows: Longs, k: int, allowed: Bools | None) -> TopK:
            return self._search(batch if len(rows) == n_samples else batch.take(rows), k, allowed, raw)

        return rules.search(search, n_samples, k, possible & self.register.is_active)

    def score(self, sample: Encoded, label: int) -> float:
        """Return the score of a label for one sample; 0 if no search finds the label."""
        k = SEARCH_DEPTH  # predictions of up to this many labels have the same score
        while True:
            best = self._search(sample, k, None, raw=False)
            if label in best.ids[0] or k >= len(self.register.labels):
                return float(best.scores[0, best.ids[0] == label].sum())
            k *= 8

    def can_find(self, label: int) -> bool:
        """Whether a label is ever predicted: it has training samples, or is known by name."""
        is_named = self.names is not None and label in self.names.ids
        return is_named or bool(self.register.fold_counts(self.model.label_counts)[label])

    def _search(self, batch: Encoded, k: int, allowed: Bools | None, raw: bool) -> TopK:
        def search(k: int, allowed: Bools | None) -> TopK:
            if raw or self.calibration is None:
                return self.model.topk(batch.X, k, allowed=allowed)
            return self._calibrate(self.calibration, batch, k, allowed)

        n_outputs = self.model.n_labels
        if raw or self.names is None:
            return self.register.topk(search, k, n_outputs, allowed)
        best = self.names.topk(batch.inputs, k, allowed)
        if best.k and not (self.register.find_outputs(n_outputs, allowed) & (self.model.label_counts > 0)).any():
            return best
        return mix(self.register.topk(search, k, n_outputs, allowed), best, k)

    def _calibrate(self, calibration: Calibration, batch: Encoded, k: int, allowed: Bools | None) -> TopK:
        """Search labels with probabilities, which depend on the ``SEARCH_DEPTH`` best labels, whichever are allowed."""
        is_part = calibration.uses_others and allowed is not None
        depth = max(k, SEARCH_DEPTH) if calibration.uses_others and not is_part else k
        best = self.model.topk(batch.X, depth, allowed=allowed)
        every = self.model.topk(batch.X, SEARCH_DEPTH) if is_part else None
        out = calibration.apply(best, self.model.label_counts, every)
        return out if out.k <= k else TopK(out.ids[:, :k], out.scores[:, :k])
