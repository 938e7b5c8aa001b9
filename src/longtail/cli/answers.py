"""The outputs of ``predict``: how the labels of each text are written."""

from __future__ import annotations

import csv
import io
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from longtail.errors import DataError, SettingError
from longtail.printable import escape_json, make_cell
from longtail.tagger.explanation import Explanation
from longtail.tagger.prediction import Tag

_MAX_PARTS = 10  # parts of a text that JSON lists per label


class Answer(NamedTuple):
    """The labels of one text."""

    tags: Sequence[Tag]
    id: str | None = None
    novelty: float | None = None
    explanations: Sequence[Explanation] | None = None
    has_text: bool = True  # or a feature vector


class AnswerFormat:
    """Writes answers one by one.

    :param write: Where the output goes.
    """

    needs_ids = False

    def __init__(self, write: Callable[[str], Any]) -> None:
        self.write = write

    @abstractmethod
    def add(self, answer: Answer) -> None:
        """Write one answer."""

    def end(self) -> None:
        """Write what comes after the last answer."""


class TsvAnswers(AnswerFormat):
    """One line per text: id and novelty if there are any, then ``label score`` for each label, between tabs."""

    def add(self, answer: Answer) -> None:
        """Write one answer."""
        first = [] if answer.id is None else [make_cell(answer.id)]
        first += [] if answer.novelty is None else [f"{answer.novelty:.3f}"]
        self.write("\t".join([*first, *(f"{make_cell(tag.label)} {tag.score:.3f}" for tag in answer.tags)]) + "\n")


class CsvAnswers(AnswerFormat):
    """A table with a header; each label and its score have a column."""

    def __init__(self, write: Callable[[str], Any], k: int) -> None:
        super().__init__(write)
        self.k, self.has_header = k, False

    def add(self, answer: Answer) -> None:
        """Write one answer, after the header if it is the first."""
        first = {} if answer.id is None else {"id": answer.id}
        first |= {} if answer.novelty is None else {"novelty": f"{answer.novelty:.3f}"}
        if not self.has_header:
            columns = [f"{name}_{rank}" for rank in range(1, self.k + 1) for name in ("label", "score")]
            self.write(_format_row([*first, *columns]))
            self.has_header = True
        cells = [cell for tag in answer.tags for cell in (tag.label, f"{tag.score:.6g}")]
        self.write(_format_row([*first.values(), *cells, *[""] * (2 * self.k - len(cells))]))


class JsonAnswers(AnswerFormat):
    """One object per text: ``{"id": …, "labels": [{"label": …, "uri": …, "score": …}, …]}``; without what there is not."""

    def add(self, answer: Answer) -> None:
        """Write one answer."""
        if answer.explanations is None:
            labels = [_describe_tag(tag) for tag in answer.tags]
        else:
            labels = [_explain(each, answer.has_text) for each in answer.explanations]
        first = {} if answer.id is None else {"id": answer.id}
        last = {} if answer.novelty is None else {"novelty": _round(answer.novelty)}
        self.write(_to_json({**first, "labels": labels, **last}) + "\n")


class ElasticsearchAnswers(AnswerFormat):
    """Bulk updates of Elasticsearch and OpenSearch: an action and a partial document per text."""

    needs_ids = True

    def __init__(self, write: Callable[[str], Any], index: str | None = None) -> None:
        super().__init__(write)
        self.index = {} if index is None else {"_index": index}

    def add(self, answer: Answer) -> None:
        """Write one answer."""
        self.write(_to_json({"update": {**self.index, "_id": answer.id}}) + "\n")
        self.write(_to_json({"doc": _to_document(answer, lambda value: value)}) + "\n")


class SolrAnswers(AnswerFormat):
    """Atomic updates of Solr in one JSON list. If ``predict`` fails, the list stays open, so that Solr refuses all of it."""

    needs_ids = True

    def __init__(self, write: Callable[[str], Any]) -> None:
        super().__init__(write)
        self.separator = "[\n"

    def add(self, answer: Answer) -> None:
        """Write one answer."""
        update = {"id": answer.id, **_to_document(answer, lambda value: {"set": value})}
        self.write(self.separator + _to_json(update))
        self.separator = ",\n"

    def end(self) -> None:
        """Close the list."""
        self.write("[]\n" if self.separator == "[\n" else "\n]\n")


def make_format(name: str, write: Callable[[str], Any], *, k: int, index: str | None = None) -> AnswerFormat:
    """Build an output by its name.

    :param name: tsv, csv, jsonl, elasticsearch or solr.
    :param write: Where the output goes.
    :param k: The largest number of labels per text.
    :param index: The index to update, for elasticsearch.
    """
    if index is not None and name != "elasticsearch":
        raise SettingError(f"--index has no meaning for --output {name}", hint="Use --output elasticsearch, or leave it out")
    match name:
        case "csv":
            return CsvAnswers(write, k)
        case "jsonl":
            return JsonAnswers(write)
        case "elasticsearch":
            return ElasticsearchAnswers(write, index)
        case "solr":
            return SolrAnswers(write)
        case _:
            return TsvAnswers(write)


def check_id(answer_format: AnswerFormat, id: str | None, where: str) -> None:
    """Raise an error if an answer needs an id and there is none."""
    if answer_format.needs_ids and not id:
        hint = "Name the column of the ids with --id; a file of lines has none"
        raise DataError("updates of a search engine need ids, and a text has none", where=where, hint=hint)


def _to_document(answer: Answer, wrap: Callable[[Any], Any]) -> dict[str, Any]:
    labels = {"labels": wrap([tag.label for tag in answer.tags])}
    return labels | ({} if answer.novelty is None else {"novelty": wrap(_round(answer.novelty))})


def _explain(explanation: Explanation, has_text: bool) -> dict[str, Any]:
    parts = []
    for text, weight, start, end in explanation.parts[:_MAX_PARTS]:
        place: dict[str, Any] = {"text": text, "start": start, "end": end} if has_text else {"feature": start}
        parts.append({**place, "weight": _round(weight)})
    return {**_describe_tag(explanation), "why": parts}


def _describe_tag(tag: Tag | Explanation) -> dict[str, Any]:
    """Return the label, its URI if it has one, and the score."""
    return {"label": tag.label, **({"uri": tag.uri} if tag.uri else {}), "score": _round(tag.score)}


def _to_json(value: Any) -> str:
    return escape_json(json.dumps(value, ensure_ascii=False))


def _format_row(cells: Sequence[str]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow(map(make_cell, cells))
    return stream.getvalue()


def _round(number: float) -> float:
    """Six significant digits."""
    return float(f"{number:.6g}")
