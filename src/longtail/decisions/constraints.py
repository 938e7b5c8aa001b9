"""Constraints on the labels of texts: which are allowed or required, which exclude each other, which imply their parents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fnmatch import translate
from pathlib import Path
from typing import Any, Self

import numpy as np

from longtail.data.labels import Labels
from longtail.decisions.rules import LabelRules
from longtail.errors import SettingError, suggest
from longtail.files import open_atomic
from longtail.kernels import Bools, Ints, Longs
from longtail.samples import check_mask
from longtail.topk import NO_LABEL

_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Constraints:
    """What must hold for the labels of every text. Labels are given by name, URI, notation, other or former name.

    A label that was merged into another one stands for that one.
    A word with ``*``, ``?`` or ``[…]`` that is not itself the name of a label stands for all labels with such a name, URI or
    notation: ``field::*``. The result has the best k labels for which everything holds, not those of the best k labels.

    :param allow: Labels that may be predicted. None: all; with ``subtrees``, those below these.
    :param deny: Labels that may not be predicted.
    :param subtrees: Labels that may be predicted together with all labels below them in the hierarchy, in addition to
        ``allow``.
    :param required: Labels that every text gets, with the score that the model gives them: if it is low, they replace the
        last of the k labels. They need not be among the labels that ``allow`` and ``subtrees`` name.
    :param at_most_one: Groups of labels that exclude each other: of each group, only the best label stays.
    :param with_parents: Whether labels imply their parents, the parents of these, and so on: a parent gets at least the
        score of each of its children. A parent that may not be predicted is not added.

    >>> Constraints(allow=["field::*"], at_most_one=[["field::art", "field::law"]]).to_dict()
    {'allow': ['field::*'], 'at_most_one': [['field::art', 'field::law']]}
    """

    allow: Sequence[str] | None = None
    deny: Sequence[str] = ()
    subtrees: Sequence[str] | None = None
    required: Sequence[str] = ()
    at_most_one: Sequence[Sequence[str]] = ()
    with_parents: bool = False

    def __post_init__(self) -> None:
        for name in ("allow", "deny", "subtrees", "required"):
            object.__setattr__(self, name, _to_words(name, getattr(self, name)))
        if not _is_list(self.at_most_one):
            raise SettingError(f"at_most_one is {self.at_most_one!r}", hint='Pass a list of groups: [["A", "B"]]')
        if words := [word for word in self.at_most_one if isinstance(word, str)]:
            found = f'at_most_one contains "{words[0]}", which is not a group'
            raise SettingError(found, hint=f"Pass a list of groups: {json.dumps([words], ensure_ascii=False)}")
        groups = tuple(_to_words("a group of at_most_one", group) for group in self.at_most_one)
        object.__setattr__(self, "at_most_one", groups)
        if not isinstance(self.with_parents, bool):
            raise SettingError(f"with_parents is {self.with_parents!r}", hint="It must be true or false")

    def check_groups(self, where: str = "") -> Self:
        """Raise an error for a group of one label, which excludes nothing; a pattern stands for several labels.

        :param where: Where the constraints come from, for the message.
        """
        for group in self.at_most_one:
            if len(group) < 2 and not any(map(is_pattern, group)):
                found = f'one label, "{group[0]}"' if group else "no label"
                hint = "Name at least two labels that exclude each other"
                raise SettingError(f"a group of at_most_one has {found}", where=where, hint=hint)
        return self

    @property
    def limits_labels(self) -> bool:
        """Whether only some labels are allowed."""
        return self.allow is not None or self.subtrees is not None

    def resolve(self, labels: Labels, predicted_as: Ints | None = None) -> LabelRules:
        """Find the labels that the words stand for. The result for the last labels is kept.

        :param labels: The labels.
        :param predicted_as: [n_labels] The label that is predicted in place of each, which a word then stands for: itself,
            the one that it was merged into, or ``NO_LABEL`` if it is retired. None: itself.
        """
        known = vars(self).get("_resolved")
        if known is None or known[0] is not labels or known[1] is not predicted_as:
            known = (labels, predicted_as, self._resolve(labels, predicted_as))
            object.__setattr__(self, "_resolved", known)
        rules: LabelRules = known[2]
        return rules

    def _resolve(self, labels: Labels, predicted_as: Ints | None) -> LabelRules:
        def find(words: Sequence[str]) -> Bools:
            return _find_labels(labels, words, predicted_as)

        allowed = find(self.allow or ()) if self.limits_labels else np.ones(len(labels), bool)
        if self.subtrees is not None:
            if labels.parents is None:
                hint = "Train on data with a vocabulary that has them: SKOS, or a table with the columns name and parents"
                raise SettingError("subtrees need the parents of the labels, which are not known", hint=hint)
            allowed |= labels.hierarchy.find_descendants(np.flatnonzero(find(self.subtrees)))
        required = np.flatnonzero(find(self.required))
        if predicted_as is not None and (retired := [i for i in required if predicted_as[i] == NO_LABEL]):
            hint = "Take it out of the required labels, or restore it"
            raise SettingError(f'the label "{labels.names[retired[0]]}" is required, but retired', hint=hint)
        groups = tuple(np.flatnonzero(find(group)) for group in self.at_most_one)
        return LabelRules(allowed, find(self.deny), required, groups, labels.hierarchy if self.with_parents else None)

    def translate(self, labels: Labels, others: Labels, ids: Ints) -> Constraints:
        """Return constraints for other labels. A word that means something else there is replaced by names of labels.

        :param labels: The labels that the constraints are about.
        :param others: The labels that the result is about; they include all ``labels``, maybe with other names.
        :param ids: The id in ``others`` of each label of ``labels``.
        """

        def convert(words: Sequence[str]) -> list[str]:
            out: list[str] = []
            for word in words:
                wanted = np.unique(ids[_find_labels(labels, [word])])
                same = np.array_equal(np.intersect1d(_match_word(others, word), ids), wanted)
                out += [word] if same else [others.names[i] for i in wanted]
            return out

        return Constraints(
            allow=None if self.allow is None else convert(self.allow),
            deny=convert(self.deny),
            subtrees=None if self.subtrees is None else convert(self.subtrees),
            required=convert(self.required),
            at_most_one=[convert(group) for group in self.at_most_one],
            with_parents=self.with_parents,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the constraints in plain types, without those that are not set."""
        defaults = {each.name: each.default for each in fields(self)}
        values = {name: value for name, value in asdict(self).items() if value != defaults[name]}
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain

    @classmethod
    def from_dict(cls, values: Any, where: str = "") -> Self:
        """Make constraints from what ``to_dict`` returned.

        :param where: Where the values come from, for error messages.
        """
        known = [each.name for each in fields(cls)]
        if not isinstance(values, Mapping):
            hint = f'Write an object such as {{"deny": ["some label"]}} with some of: {", ".join(known)}'
            raise SettingError(f"these are no constraints: {values!r}", where=where, hint=hint)
        for name in values:
            if name not in known:
                raise SettingError(f'there is no constraint "{name}"', where=where, hint=suggest(name, known))
        try:
            return cls(**values)
        except SettingError as error:
            raise SettingError(error.found, where=where, hint=error.hint) from error

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read constraints from a JSON file: an object with the names of the parameters above."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls.from_dict(values, where=str(path)).check_groups(str(path))
        except OSError as error:
            raise SettingError(
                f"the file cannot be read ({error.strerror})", where=str(path), hint="Check the name"
            ) from error
        except ValueError as error:
            hint = 'Write an object such as {"deny": ["some label"]}'
            raise SettingError(f"the file is not JSON ({error})", where=str(path), hint=hint) from error

    def to_file(self, path: str | Path) -> None:
        """Write the constraints to a JSON file."""
        with open_atomic(path) as stream:
            stream.write((json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n").encode())


ConstraintsInput = Constraints | Mapping[str, Any] | Iterable[Constraints | Mapping[str, Any]]


def collect_constraints(given: ConstraintsInput | None) -> list[Constraints]:
    """Return constraints as a list; each may be given as a dictionary, as ``to_dict`` returns it.

    >>> collect_constraints({"deny": ["axis"]})
    [Constraints(allow=None, deny=('axis',), subtrees=None, required=(), at_most_one=(), with_parents=False)]
    """
    several = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    parts: Iterable[Any] = given if several else () if given is None else (given,)  # type: ignore[assignment]
    return [part if isinstance(part, Constraints) else Constraints.from_dict(part) for part in parts]


def combine_constraints(
    labels: Labels,
    constraints: Iterable[Constraints],
    allowed: Bools | None = None,
    predicted_as: Ints | None = None,
) -> LabelRules | None:
    """Combine constraints that must all hold; None if there is nothing that must hold.

    :param labels: The labels of the tagger.
    :param constraints: Constraints of the tagger and of the request.
    :param allowed: Labels that may be predicted [n_labels]; None: all.
    :param predicted_as: The label that is predicted in place of each [n_labels]; see ``Constraints.resolve``.
    """
    rules = [each.resolve(labels, predicted_as) for each in constraints]
    if allowed is not None or predicted_as is not None:
        nothing = np.zeros(len(labels), bool)
        mask = ~nothing if allowed is None else check_mask(allowed, len(labels))
        rules.append(LabelRules(mask, nothing if predicted_as is None else predicted_as != np.arange(len(labels))))
    if not rules:
        return None
    first, *others = rules
    for each in others:
        first = first.combine(each)
    first.check(labels.names)
    return first


def merge_constraints(
    labels: Labels, constraints: Iterable[Constraints], predicted_as: Ints | None = None
) -> Constraints | None:
    """Write constraints that must all hold as one; None if there are none.

    Words stay as they are, so that they also stand for labels that are added later. If there are different lists of allowed
    labels, the labels that are in all of them are listed by name. An error if nothing can fulfil all constraints.

    >>> labels = Labels(("cats", "cows", "dogs"))
    >>> merge_constraints(labels, [Constraints(allow=["c*"], deny=["dogs"]), Constraints(allow=["cows", "dogs"])]).to_dict()
    {'allow': ['cows'], 'deny': ['dogs']}
    """
    given = [each for each in dict.fromkeys(constraints) if each != Constraints()]
    if not given:
        return None
    combine_constraints(labels, given, predicted_as=predicted_as)  # an error if they contradict each other
    lists = list(dict.fromkeys((each.allow, each.subtrees) for each in given if each.limits_labels))
    allow, subtrees = lists[0] if lists else (None, None)
    if len(lists) > 1:
        allowed = np.logical_and.reduce([each.resolve(labels, predicted_as).allowed for each in given])
        allow, subtrees = [labels.names[i] for i in np.flatnonzero(allowed)], None
    return Constraints(
        allow=allow,
        deny=list(dict.fromkeys(word for each in given for word in each.deny)),
        subtrees=subtrees,
        required=list(dict.fromkeys(word for each in given for word in each.required)),
        at_most_one=list(dict.fromkeys(tuple(group) for each in given for group in each.at_most_one)),
        with_parents=any(each.with_parents for each in given),
    )


def is_pattern(word: str) -> bool:
    """Whether a word that is not itself the name of a label stands for several labels.

    >>> is_pattern("field::*"), is_pattern("field::art")
    (True, False)
    """
    return _WILDCARD.search(word) is not None


def _is_list(words: Any) -> bool:
    """Whether words are in a list or the like, and not one word or an object."""
    return isinstance(words, Iterable) and not isinstance(words, str | Mapping)


def _to_words(name: str, words: Any) -> tuple[str, ...] | None:
    """Convert a list of labels to a tuple."""
    if words is None and name in ("allow", "subtrees"):
        return None
    if not _is_list(words):
        example = repr(words) if isinstance(words, str) else '"some label"'
        raise SettingError(f"{name} is {words!r}", hint=f"Pass a list of labels: [{example}]")
    out = tuple(words)
    if wrong := [word for word in out if not isinstance(word, str)]:
        raise SettingError(f"{name} contains {wrong[0]!r}", hint="Labels are given by their names")
    return out


def _find_labels(labels: Labels, words: Sequence[str], predicted_as: Ints | None = None) -> Bools:
    """[n_labels] The labels that some words stand for. The name of a merged label stands for the one that is predicted."""
    found = np.zeros(len(labels), bool)
    for word in words:
        matches = _match_word(labels, word)
        if not len(matches):
            what = "no label matches" if is_pattern(word) else "there is no label"
            raise SettingError(f'{what} "{word}"', hint=suggest(word, labels.names))
        if predicted_as is not None and word in labels.keys:  # a pattern describes names, not one label
            matches = np.where(predicted_as[matches] == NO_LABEL, matches, predicted_as[matches])
        found[matches] = True
    return found


def _match_word(labels: Labels, word: str) -> Longs:
    """The label that a word stands for; or the labels with a name, URI or notation that matches a shell-style pattern."""
    number = labels.keys.get(word)
    if number is not None:
        return np.array([number])
    if not is_pattern(word):
        return np.empty(0, np.int64)
    matches = re.compile(translate(word)).match
    columns = [labels.names, *(column for column in (labels.uris, labels.notations) if column is not None)]
    return np.unique([i for column in columns for i, text in enumerate(column) if matches(text)]).astype(np.int64)
