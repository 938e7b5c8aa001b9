"""The command ``labels``: changes the labels and the constraints of a saved tagger."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from longtail.cli.constraints import get_constraints
from longtail.cli.output import show, show_notes
from longtail.data.annif import format_annif_vocabulary
from longtail.errors import SettingError
from longtail.files import open_atomic
from longtail.printable import escape_json, make_visible
from longtail.progress import Display
from longtail.report.label_changes import render_diff
from longtail.tagger.label_editor import LabelEditor


def labels(arguments: Namespace) -> None:
    """Change the labels of a saved tagger, or show what was or would be changed."""
    editor = LabelEditor(arguments.model)
    match arguments.operation:
        case "rename":
            change = editor.rename(arguments.old, arguments.new, reason=arguments.reason)
        case "merge":
            change = editor.merge(_split(arguments.labels, editor), arguments.into, reason=arguments.reason)
        case "retire":
            change = editor.retire(arguments.labels, reason=arguments.reason)
        case "restore":
            change = editor.restore(arguments.labels, reason=arguments.reason)
        case "add":
            language = arguments.vocabulary_language
            change = editor.add(arguments.vocabulary, arguments.texts, reason=arguments.reason, language=language)
        case "constraints":
            given = get_constraints(arguments)
            if given and arguments.clear:
                raise SettingError("--clear and other constraints contradict each other", hint="Give one of the two")
            if not given and not arguments.clear:
                show(_to_json(editor.constraints.to_dict() if editor.constraints else {}))
                return
            change = editor.set_constraints(given, reason=arguments.reason)
        case "undo":
            change = editor.undo()
        case "export":
            _export(editor, arguments)
            return
        case _:
            _show(editor, arguments)
            return
    show_notes(editor.notes, Display())
    show(make_visible(str(change)))


def _show(editor: LabelEditor, arguments: Namespace) -> None:
    """Show the history, or compare with a vocabulary and follow it."""
    if arguments.operation == "history":
        listed = [asdict(change) for change in editor.history]
        show(_to_json(listed) if arguments.json else "\n".join(make_visible(str(change)) for change in editor.history))
        return
    if arguments.operation == "sync":
        found = editor.sync(arguments.vocabulary, reason=arguments.reason, language=arguments.vocabulary_language)
    else:
        found = editor.diff(arguments.vocabulary, language=arguments.vocabulary_language)
    show_notes(editor.notes, Display())
    if arguments.json:
        show(_to_json(found.to_json()))
    else:
        show("nothing to change" if arguments.operation == "sync" and found.is_empty else render_diff(found))


def _export(editor: LabelEditor, arguments: Namespace) -> None:
    """Write the labels that are predicted."""
    active = editor.register.is_active.nonzero()[0].tolist()
    text = format_annif_vocabulary(editor.register.labels, active, arguments.language)
    if arguments.out is None:
        show(text)
        return
    with open_atomic(arguments.out) as stream:
        stream.write(text.encode())


def _to_json(value: Any) -> str:
    return escape_json(json.dumps(value, indent=1, ensure_ascii=False))


def _split(words: list[str], editor: LabelEditor) -> list[str]:
    """Split a list of labels at commas, unless it is the name of a label, which may contain commas."""
    return [
        part
        for word in words
        for part in ([word] if word in editor.register.labels.keys else [part.strip() for part in word.split(",")])
    ]
