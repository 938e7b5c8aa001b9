"""Changes of the labels of a fitted tagger: rename, merge, retire, restore, add, constrain. Weights stay as they are.

Each function takes a register and returns the changed one with a summary; ``Register.commit`` logs the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from longtail.data.dataset import Dataset
from longtail.data.labels import COLUMNS, Labels
from longtail.decisions.constraints import Constraints, combine_constraints
from longtail.errors import DataError, SettingError, suggest
from longtail.printable import make_visible
from longtail.tagger.register import Register
from longtail.text_lines import check_text
from longtail.topk import NO_LABEL

_N_SHOWN = 3  # labels in a summary

Changed = tuple[Register, str]


def find_label(register: Register, name: str) -> int:
    """Return the id of a label that can be predicted, given by name, URI, notation, other or former name."""
    label = register.labels.keys.get(name)
    if label is None:
        active = (name for name, alive in zip(register.labels.names, register.is_active, strict=True) if alive)
        raise SettingError(f'there is no label "{name}"', hint=suggest(name, active))
    if not register.is_active[label]:
        raise SettingError(f'the label "{name}" {_describe_end(register, label)}', hint="Restore it first")
    return label


def rename(register: Register, old: str, new: str) -> Changed:
    """Give a label another name. Data with the former name is still understood."""
    label, new = find_label(register, old), check_text(new, "label").strip()
    name = register.labels.names[label]
    if not new:
        raise SettingError("the new name is empty", hint="Give a name")
    if make_visible(new) != new:
        raise SettingError(f'the new name "{new}" has control characters', hint="Remove tabs, line ends and the like")
    if new == name:
        raise SettingError(f'the label "{old}" has this name already', hint="Give another name")
    taken = register.labels.ids.get(new)
    if taken is not None and register.is_active[taken]:
        raise SettingError(f'there is another label "{new}"', hint="Choose another name, or merge the two labels")
    if new in (register.labels.uris or ()) and new != register.labels.get_uri(label):
        owner = register.labels.names[register.labels.keys[new]]
        raise SettingError(f'"{new}" is the URI of the label "{owner}"', hint="Choose another name")
    return replace(register, labels=rename_labels(register, {label: new})), f'"{name}" is now "{new}"'


def merge(register: Register, names: Sequence[str], into: str) -> Changed:
    """Predict one label in place of several. Its score is the highest of theirs.

    :param register: The register.
    :param names: The labels to merge.
    :param into: The label that remains: one of them, another label, or a new name, which the first of them gets.
    """
    sources = list(dict.fromkeys(find_label(register, name) for name in names))
    renamed = register
    if into not in register.labels.keys:
        if len(sources) < 2:
            raise SettingError(f'only one label would be merged into "{into}"', hint="Use rename to change its name")
        renamed, _ = rename(register, register.labels.names[sources[0]], into)
        kept = sources[0]
    else:
        kept = find_label(register, into)
    merged = [label for label in sources if label != kept]
    if not merged:
        raise SettingError(f'"{into}" cannot be merged into itself', hint="Name at least one other label")
    target = register.target.copy()
    target[merged] = kept
    shown = _list_names(register.labels, sources if renamed is not register else merged)
    labels = _replace_parents(renamed.labels, {renamed.labels.names[i]: renamed.labels.names[kept] for i in merged})
    return replace(renamed, labels=labels, target=target), f'{shown} into "{renamed.labels.names[kept]}"'


def retire(register: Register, names: Sequence[str]) -> Changed:
    """Predict some labels no longer."""
    for name in names:
        if (label := register.labels.keys.get(name)) is not None and register.target[label] == NO_LABEL:
            raise SettingError(f'the label "{name}" is retired already', hint="Leave it out")
    labels = [find_label(register, name) for name in names]
    target = register.target.copy()
    target[labels] = NO_LABEL
    if not (target == np.arange(len(target))).any():
        raise SettingError("no label would remain", hint="Leave at least one label")
    return replace(register, target=target), _list_names(register.labels, labels)


def restore(register: Register, names: Sequence[str]) -> Changed:
    """Predict labels again that were retired or merged."""
    labels = []
    for name in names:
        label = register.labels.keys.get(name)
        if label is not None and register.is_active[label] and name in _column(register.labels, "former_names")[label]:
            found = f'"{name}" was renamed to "{register.labels.names[label]}", which is predicted'
            raise SettingError(found, hint="Use rename to give it this name again, or undo")
        if label is None or register.is_active[label]:
            ended = [register.labels.names[i] for i in np.flatnonzero(~register.is_active)]
            raise SettingError(f'"{name}" is not a label that was retired or merged', hint=suggest(name, ended))
        labels.append(label)
    target = register.target.copy()
    target[labels] = labels
    return replace(register, target=target), _list_names(register.labels, labels)


def add(register: Register, new: Labels, texts: Dataset | None = None) -> Changed:
    """Add labels, which have no training samples. Those that were retired are restored; existing ones stay as they are.

    :param register: The register.
    :param new: The labels, with other names and descriptions if there are any.
    :param texts: Texts with some of the new labels, which become their examples.
    """
    if texts is not None:
        new = add_examples(new, texts)
    labels, ids = register.labels.merge(new)
    n_old = len(register.labels)
    target = np.concatenate([register.target, np.arange(n_old, len(labels), dtype=np.int32)])
    retired = ids[(ids < n_old) & (target[ids] == NO_LABEL)]
    target[retired] = retired
    changed = [*range(n_old, len(labels)), *retired.tolist()]
    if not changed:
        raise SettingError("all of these labels are there already", hint="Use sync to change names, parents or texts")
    return replace(register, labels=labels, target=target), _list_names(labels, changed)


def constrain(register: Register, old: Constraints | None, new: Constraints | None) -> Changed:
    """Replace the constraints of a tagger; None: there are none. The register stays as it is."""
    if new == old:
        found = "this model has no constraints" if new is None else "these are the constraints of the model already"
        raise SettingError(found, hint="There is nothing to change")
    if new is not None:
        combine_constraints(register.labels, [new], predicted_as=register.predicted_as)
    return register, "none" if new is None else _summarise(new)


def check_constraints(register: Register, constraints: Constraints | None) -> None:
    """Raise an error if a change of the labels makes the constraints of the tagger impossible."""
    if constraints is None:
        return
    try:
        combine_constraints(register.labels, [constraints], predicted_as=register.predicted_as)
    except SettingError as error:
        hint = "Change the constraints first: `longtail labels MODEL constraints`, or LabelEditor.set_constraints"
        raise SettingError(f"the constraints of the model would be impossible: {error.found}", hint=hint) from error


def add_examples(labels: Labels, data: Dataset) -> Labels:
    """Append the texts of samples to the examples of their labels."""
    aligned = data.align(labels)
    if data.texts is None:
        raise DataError("these are feature vectors, not texts", where=data.source, hint="Give texts with their labels")
    Y = aligned.Y.tocsc()
    found = [tuple(data.texts[row] for row in Y.indices[Y.indptr[i] : Y.indptr[i + 1]]) for i in range(len(labels))]
    if not any(found):
        hint = "The texts must have labels that are added"
        raise DataError("no text has one of the new labels", where=data.source, hint=hint)
    examples = [(*old, *more) for old, more in zip(_column(labels, "examples"), found, strict=True)]
    return replace(labels, examples=tuple(examples))


def rename_labels(register: Register, names: Mapping[int, str]) -> Labels:
    """Return the labels with new names, and with the names that they had as former names.

    A label that cannot be predicted gives its name away if another label gets it. Parents are renamed, too.
    """
    labels, taken = register.labels, set(names.values())
    new = dict(names)
    for name in taken:
        holder = labels.ids.get(name)
        if holder is not None and holder not in names:
            new[holder] = free_name(name, {*labels.ids, *taken})
    final = tuple(new.get(i, name) for i, name in enumerate(labels.names))
    former = list(_column(labels, "former_names"))
    for i, name in names.items():
        former[i] = tuple(dict.fromkeys(each for each in (*former[i], labels.names[i]) if each != name))
    parents = labels.parents and replace_names(labels.parents, {labels.names[i]: name for i, name in new.items()})
    return replace(labels, names=final, parents=parents, former_names=tuple(former))


def free_name(name: str, taken: set[str]) -> str:
    """Return a name for a label that can no longer be predicted, because another label gets its name.

    >>> free_name("cats", {"cats", "cats (retired)"})
    'cats (retired 2)'
    """
    out, number = f"{name} (retired)", 2
    while out in taken:
        out, number = f"{name} (retired {number})", number + 1
    return out


def replace_names(cells: Sequence[tuple[str, ...]], new: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Replace names in cells of several names; a name is kept once."""
    return tuple(tuple(dict.fromkeys(new.get(name, name) for name in cell)) if cell else cell for cell in cells)


def _replace_parents(labels: Labels, new: Mapping[str, str]) -> Labels:
    """Replace parents by others; no label becomes the parent of itself."""
    if labels.parents is None:
        return labels
    cells = zip(replace_names(labels.parents, new), labels.names, strict=True)
    return replace(labels, parents=tuple(tuple(parent for parent in cell if parent != name) for cell, name in cells))


def _column(labels: Labels, name: str) -> Sequence[Any]:
    """Return a column of labels, empty cells if there is none."""
    column: Sequence[Any] | None = getattr(labels, name)
    return (COLUMNS[name][1],) * len(labels) if column is None else column


def _describe_end(register: Register, label: int) -> str:
    into = register.target[label]
    return "is retired" if into == NO_LABEL else f'was merged into "{register.labels.names[into]}"'


def _list_names(labels: Labels, ids: Sequence[int]) -> str:
    return list_words([labels.names[i] for i in ids])


def list_words(words: Sequence[str]) -> str:
    """List the first names: '"cats", "dogs", "cows" and 2 others'."""
    shown = ", ".join(f'"{word}"' for word in words[:_N_SHOWN])
    return shown + (f" and {len(words) - _N_SHOWN:,} others" if len(words) > _N_SHOWN else "")


def _summarise(constraints: Constraints) -> str:
    """Summarise constraints: 'deny "cats", "dogs"; with_parents'."""
    lists = {name: getattr(constraints, name) for name in ("allow", "deny", "subtrees", "required")}
    parts = [f"{name} {list_words(words)}" for name, words in lists.items() if words]
    parts += [f"at_most_one {list_words(group)}" for group in constraints.at_most_one]
    return "; ".join([*parts, *(["with_parents"] if constraints.with_parents else [])])
