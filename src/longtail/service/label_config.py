"""The labelling configuration of Label Studio: which control takes labels, and which field of a task has the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from longtail.service.errors import ServiceError

_KINDS = {"Choices": "choices", "Taxonomy": "taxonomy"}
_MAX_DEPTH = 64
_HINT = "The configuration needs <Text name=… value=$text> and <Choices> or <Taxonomy> with toName"


@dataclass(frozen=True)
class LabelControl:
    """What a configuration says."""

    kind: str  # choices or taxonomy
    from_name: str
    to_name: str
    field: str  # of the data of a task
    is_single: bool  # whether a text has one label
    paths: tuple[tuple[str, ...], ...]  # the labels that can be chosen, with those above them; empty: any


@dataclass
class _Reader:
    """Collects what the elements say."""

    controls: list[dict[str, str]] = field(default_factory=list)
    objects: dict[str, str] = field(default_factory=dict)
    paths: list[tuple[str, ...]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)  # values of the choices around the present element

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.stack.append(tag)
        if len(self.stack) > _MAX_DEPTH:
            raise ServiceError(400, "the configuration is nested too deeply", hint=_HINT)
        if tag in _KINDS and "name" in attributes and "toName" in attributes:
            self.controls.append({"tag": tag, **attributes})
        elif tag == "Choice":
            self.inside.append(attributes.get("value", ""))
            if len(self.controls) == 1:
                self.paths.append(tuple(self.inside))
        elif attributes.get("value", "").startswith("$") and "name" in attributes:
            self.objects[attributes["name"]] = attributes["value"][1:]

    def end(self, tag: str) -> None:
        self.stack.pop()
        if tag == "Choice":
            self.inside.pop()


def parse_label_config(text: str) -> LabelControl:
    """Find the first control for choices or a taxonomy, and the text that it is about.

    Entities and document types are refused, so that a configuration can neither grow nor read files.

    >>> parse_label_config('<View><Text name="t" value="$body"/><Choices name="c" toName="t"/></View>').field
    'body'
    """
    reader, parser = _Reader(), expat.ParserCreate("utf-8")  # whatever encoding the text says it had
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.StartDoctypeDeclHandler = _refuse
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise ServiceError(400, f"the configuration is not XML ({expat.ErrorString(error.code)})", hint=_HINT) from error
    if not reader.controls or reader.controls[0]["toName"].partition(",")[0] not in reader.objects:
        raise ServiceError(400, "the configuration has no choices for a text", hint=_HINT)
    first = reader.controls[0]
    to_name = first["toName"].partition(",")[0]
    return LabelControl(
        kind=_KINDS[first["tag"]],
        from_name=first["name"],
        to_name=to_name,
        field=reader.objects[to_name],
        is_single=first["tag"] == "Choices" and first.get("choice", "single") != "multiple",
        paths=tuple(path for path in reader.paths if all(path)),
    )


def _refuse(*_: object) -> None:
    raise ServiceError(400, "the configuration has a document type or an entity", hint="Remove it")
