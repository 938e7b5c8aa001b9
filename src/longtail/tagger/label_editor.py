"""``edit_labels``: change the labels and constraints of a tagger in memory or on disk. Every change is logged, with undo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.read import read
from longtail.data.vocabulary import read_vocabulary
from longtail.decisions.constraints import Constraints, ConstraintsInput, collect_constraints, merge_constraints
from longtail.errors import BundleError, DataError
from longtail.kernels import Ints
from longtail.state import UNDESCRIBED, check_array
from longtail.tagger import lifecycle
from longtail.tagger.bundle import Bundle, amend_bundle, load_bundle
from longtail.tagger.decisions import PART as CALIBRATION
from longtail.tagger.register import PART, Change, Register, get_date
from longtail.tagger.tagger import Tagger
from longtail.tagger.unseen import EXAMPLES
from longtail.tagger.unseen import PART as UNSEEN
from longtail.tagger.vocabulary_diff import VocabularyDiff, apply_vocabulary, compare_vocabulary


class LabelEditor:
    """Changes the labels and constraints of a fitted tagger, or of a saved one, which is written again at once.

    Weights are not touched. Labels are given by name, URI, notation, other or former name.

    >>> tagger = Tagger("ovr", min_df=1).fit(["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]])
    >>> editor = LabelEditor(tagger)
    >>> editor.rename("fruit", "fruits", reason="plural, as in the thesaurus").summary
    '"fruit" is now "fruits"'
    >>> editor.retire("flower").operation, [tag.label for tag in tagger.predict(["a rose"])[0]]
    ('retire', ['fruits'])
    >>> editor.undo().operation, [change.operation for change in editor.history]
    ('retire', ['rename', 'retire'])
    """

    def __init__(self, model: Tagger | str | Path) -> None:
        """model: a fitted tagger, or the folder of a saved one."""
        self.tagger = model if isinstance(model, Tagger) else None
        self.folder = None if isinstance(model, Tagger) else Path(model)
        self.notes: tuple[str, ...] = ()  # what was guessed or left out while the last vocabulary was read
        self._about: dict[str, Any] = {}  # the manifest of a saved tagger
        if isinstance(model, Tagger):
            self._is_calibrated, self._knows_names = model.calibration is not None, model.unseen is not None
            self._knows_examples = model.unseen is not None and model.unseen.by_example is not None
            self._register, self._saved_counts = model.register, model.model.label_counts
        else:
            self._register, self._saved_counts = self._load(Path(model))

    def _load(self, folder: Path) -> tuple[Register, Ints]:
        """Read the labels of a bundle, and their training samples; the weights are not read."""
        bundle = load_bundle(folder, checked=("labels", PART))
        self._about = bundle.about
        self._is_calibrated, self._knows_names = CALIBRATION in bundle.arrays, UNSEEN in bundle.arrays
        self._knows_examples = f"{EXAMPLES}.x" in bundle.arrays.get(UNSEEN, {})
        try:
            register = Register.restore(bundle.labels, bundle.about.get("history", ()), bundle.arrays.get(PART, {}))
            n_labels = len(bundle.labels)
            counts = check_array(bundle.arrays.get("model", {}), "label_counts", "i4", (None,), minimum=0)
            if len(counts) > n_labels:
                raise BundleError(f"the model has {len(counts):,} labels, but {n_labels:,} have names", where=str(folder))
            return register, counts
        except UNDESCRIBED as error:
            found = f"the bundle does not describe labels that this longtail can change ({error})"
            raise BundleError(found, where=str(folder), hint="Use the version of longtail that wrote it") from error

    @property
    def register(self) -> Register:
        """The labels, what each is predicted as, and the history."""
        return self.tagger.register if self.tagger is not None else self._register  # an update may have changed it

    @property
    def _scores_names(self) -> bool:
        """Whether labels without training samples are predicted by their names."""
        return self._is_calibrated and self._knows_names

    @property
    def _label_counts(self) -> Ints:
        """The training samples of each output of the model."""
        return self.tagger.model.label_counts if self.tagger is not None else self._saved_counts

    @property
    def constraints(self) -> Constraints | None:
        """What must hold for all predictions of the tagger; None: there are no constraints."""
        if self.tagger is not None:
            return self.tagger.constraints
        stored = self._about.get("constraints")
        return None if stored is None else Constraints.from_dict(stored, where=str(self.folder))

    @property
    def history(self) -> tuple[Change, ...]:
        """The changes of the labels and the updates of the model, oldest first."""
        return self.register.history

    def rename(self, old: str, new: str, *, reason: str = "") -> Change:
        """Give a label another name. Data with the former name is still understood."""
        return self._commit("rename", reason, lifecycle.rename(self.register, old, new))

    def merge(self, labels: str | Sequence[str], into: str, *, reason: str = "") -> Change:
        """Predict one label in place of several; its score is the highest of theirs.

        :param labels: The labels to merge.
        :param into: The label that remains: one of them, another one, or a new name, which the first of them gets.
        :param reason: Why, for the history.
        """
        return self._commit("merge", reason, lifecycle.merge(self.register, _list(labels), into))

    def retire(self, labels: str | Sequence[str], *, reason: str = "") -> Change:
        """Predict some labels no longer: the search then returns the best k of the others."""
        return self._commit("retire", reason, lifecycle.retire(self.register, _list(labels)))

    def restore(self, labels: str | Sequence[str], *, reason: str = "") -> Change:
        """Predict labels again that were retired or merged."""
        return self._commit("restore", reason, lifecycle.restore(self.register, _list(labels)))

    def add(
        self,
        labels: Labels | Sequence[str] | str | Path,
        texts: Any = None,
        *,
        reason: str = "",
        language: str | None = None,
    ) -> Change:
        """Add labels, which are predicted by their names, descriptions and examples until they have training samples.

        :param labels: The labels, a list of names, or a vocabulary in any form that ``longtail.read_vocabulary`` reads.
        :param texts: Data with texts of the new labels, in any form that ``longtail.read`` takes. They are examples: similar
            texts get these labels. ``Tagger.update`` learns from texts, and is better once there are some for each label.
        :param reason: Why, for the history.
        :param language: The language of the names of a vocabulary.
        """
        data = None if texts is None else _read_examples(texts)
        new, _ = self._read(labels, language)
        self._note_untrained()
        if data is not None and self._scores_names:
            self._note_examples()
        return self._commit("add", reason, lifecycle.add(self.register, new, data))

    def diff(self, vocabulary: Labels | str | Path, *, language: str | None = None) -> VocabularyDiff:
        """Find out what a new version of a vocabulary would change. Nothing is changed.

        :param vocabulary: The labels, or a file in any form that ``longtail.read_vocabulary`` reads.
        :param language: The language of the names of a vocabulary.
        """
        return self._compare(*self._read(vocabulary, language))

    def sync(self, vocabulary: Labels | str | Path, *, reason: str = "", language: str | None = None) -> VocabularyDiff:
        """Apply a new version of a vocabulary as one change: rename, retire what is gone, add what is new, update the rest.

        Arguments and result as for ``diff``.
        """
        new, source = self._read(vocabulary, language)
        found = self._compare(new, source)
        if found.new:
            self._note_untrained()
        if not found.is_empty:
            after = apply_vocabulary(self.register, new, source).register
            self._commit("sync", reason, (after, f"{found}{f', from {Path(source).name}' if source else ''}"))
        return found

    def set_constraints(self, constraints: ConstraintsInput | None, *, reason: str = "") -> Change:
        """Replace the constraints of the tagger, which hold for all its predictions.

        :param constraints: The constraints, or dictionaries as of ``Constraints.to_dict``. If there are several, all of them
            must hold. None: there are none any more.
        :param reason: Why, for the history.
        """
        given = collect_constraints(constraints)
        old, new = self.constraints, merge_constraints(self.register.labels, given, self.register.predicted_as)
        register, summary = lifecycle.constrain(self.register, old, new)
        change = Change(get_date(), "constraints", summary, reason)
        self._replace(self.register.commit(register, change, constraints=None if old is None else old.to_dict()), new)
        return change

    def undo(self) -> Change:
        """Undo the last change that was not undone yet. Without an update since, predictions are exactly those before it.

        An update of the model cannot be undone; nor can changes up to the last one that added labels before an update.
        """
        register, change, replaced = self.register.undo(len(self._label_counts))
        former = replaced.get("constraints")
        constraints = None if former is None else Constraints.from_dict(former)
        self._replace(register, constraints if "constraints" in replaced else self.constraints)
        return change

    def _read(self, labels: Labels | Sequence[str] | str | Path, language: str | None) -> tuple[Labels, str]:
        """Return labels, and the file that they come from."""
        self.notes = ()
        if isinstance(labels, str | Path):
            new, self.notes = read_vocabulary(labels, language)
            return new, str(labels)
        return labels if isinstance(labels, Labels) else Labels(tuple(labels)), ""

    def _compare(self, new: Labels, source: str) -> VocabularyDiff:
        """Compare with a vocabulary, and note if most labels are gone."""
        found = compare_vocabulary(self.register, new, self._label_counts, source)
        n_active = int(self.register.is_active.sum())
        if 2 * len(found.gone) > n_active:
            gone = f"{len(found.gone):,} of {n_active:,} labels are not in the vocabulary, and are retired by sync"
            self.notes += (f"{gone}: check that it is the right one",)
        return found

    def _note_untrained(self) -> None:
        """Note that new labels are not predicted, if the tagger does not score names."""
        if self._scores_names:
            return
        why = "does not score names" if self._is_calibrated else "is not calibrated, and does not score names"
        self.notes += (f"this model {why}: new labels are predicted after `longtail update` with samples of them",)

    def _note_examples(self) -> None:
        """Note what the texts of new labels are used for."""
        note = "texts of new labels are only compared with other texts: `longtail update` learns from them"
        if not self._knows_examples:
            note = "this model does not compare texts, and does not use those of new labels: `longtail update` does"
        self.notes += (note,)

    def _commit(self, operation: str, reason: str, changed: lifecycle.Changed) -> Change:
        register, summary = changed
        lifecycle.check_constraints(register, self.constraints)
        change = Change(get_date(), operation, summary, reason)
        self._replace(self.register.commit(register, change), self.constraints)
        return change

    def _replace(self, register: Register, constraints: Constraints | None) -> None:
        if self.tagger is not None:
            self.tagger.register, self.tagger.constraints = register, constraints
        if self.folder is not None:
            about = {name: value for name, value in self._about.items() if name != "constraints"}
            about |= {"history": register.about(), **({} if constraints is None else {"constraints": constraints.to_dict()})}
            amended = Bundle(about, {PART: register.state()}, register.labels)
            self._about = amend_bundle(self.folder, amended, base=self._about)
        self._register = register


def edit_labels(model: Tagger | str | Path) -> LabelEditor:
    """Change the labels and constraints of a fitted tagger, or of a saved one: rename, merge, retire, add, undo, and so on.

    :param model: A tagger; or the folder of a saved one, in which each change is written at once.
    """
    return LabelEditor(model)


def _read_examples(texts: Any) -> Dataset:
    """Read texts with their labels. There are no options for their layout."""
    try:
        return read(texts)
    except DataError as error:
        if "--format" not in error.hint:
            raise
        hint = 'Write one {"text": "…", "labels": ["…"]} per line, or a CSV or TSV table with the columns text and labels'
        raise DataError(error.found, where=error.where, hint=hint) from error


def _list(labels: str | Sequence[str]) -> Sequence[str]:
    return [labels] if isinstance(labels, str) else labels
