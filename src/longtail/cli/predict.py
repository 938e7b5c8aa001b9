"""The command that predicts labels: one line of output per text."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from typing import Any

from longtail.cli.output import show
from longtail.data.jsonl import parse_object
from longtail.data.read import read
from longtail.files import open_read, read_lines
from longtail.model import count_samples
from longtail.progress import Display
from longtail.report.explanation import WIDTH, describe_marks, render_explanations
from longtail.tagger.explanation import Explanation
from longtail.tagger.tagger import Tag, load

_BATCH = 1024  # texts
_MAX_PARTS = 10  # parts of a text that --json lists per label


def predict(arguments: Namespace) -> None:
    """Predict the labels of each text."""
    tagger = load(arguments.model).configure(threads=arguments.threads)
    if not tagger.reads_texts:
        batches: Iterator[Any] = iter([read(arguments.file).inputs])
    else:
        texts = _read_texts(arguments.file)
        batches = iter(lambda: list(islice(texts, _BATCH)), [])
    n_unknown = 0
    if arguments.explain and not arguments.json:
        Display().say(describe_marks(tagger.model.weights_meaning))
    for batch in batches:
        encoded = tagger.encode(batch)
        n_unknown += tagger.n_unknown(encoded)
        novelty = tagger.novelty(encoded).tolist() if arguments.novelty else [None] * count_samples(batch)
        if arguments.explain:
            for at, novel in enumerate(novelty):
                one = batch[at] if tagger.reads_texts else batch[[at]]
                _show_explanations(one, tagger.explain_topk(one, arguments.k), novel, arguments.json)
            continue
        for tags, novel in zip(tagger.predict(encoded, arguments.k), novelty, strict=True):
            if arguments.json:
                _show_json([_describe_tag(tag) for tag in tags], novel)
            else:
                first = [] if novel is None else [f"{novel:.3f}"]
                show("\t".join([*first, *(f"{tag.label} {tag.score:.3f}" for tag in tags)]))
    if n_unknown:
        Display().say(f"{n_unknown:,} samples have no known word or feature; they got the labels of an empty sample")


def _show_explanations(one: Any, explanations: list[Explanation], novel: float | None, as_json: bool) -> None:
    text = one if isinstance(one, str) else None
    if as_json:
        _show_json([_to_json(each, text is not None) for each in explanations], novel)
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((WIDTH, 0)).columns, WIDTH)
    show(render_explanations(text, explanations, colour=colour, width=width))
    show("" if novel is None else f"     novelty {novel:.3f}\n")


def _to_json(explanation: Explanation, has_text: bool) -> dict[str, Any]:
    parts = []
    for text, weight, start, end in explanation.parts[:_MAX_PARTS]:
        place: dict[str, Any] = {"text": text, "start": start, "end": end} if has_text else {"feature": start}
        parts.append({**place, "weight": _round(weight)})
    return {**_describe_tag(explanation), "why": parts}


def _describe_tag(tag: Tag | Explanation) -> dict[str, Any]:
    """The label, its URI if it has one, and the score, for ``--json``."""
    return {"label": tag.label, **({"uri": tag.uri} if tag.uri else {}), "score": _round(tag.score)}


def _show_json(labels: list[dict[str, Any]], novel: float | None) -> None:
    show(json.dumps({"labels": labels, **({} if novel is None else {"novelty": _round(novel)})}, ensure_ascii=False))


def _round(number: float) -> float:
    """Six significant digits."""
    return float(f"{number:.6g}")


def _read_texts(path: str) -> Iterator[str]:
    """Texts one by one from a file of lines or JSONL, recognised by its name or first line."""
    with open_read(path) as stream:
        is_json: bool | None = True if re.sub(r"\.(gz|xz)$", "", path).endswith((".jsonl", ".ndjson")) else None
        n_blank = 0  # lines before the first that shows the format
        for number, line in read_lines(stream, path):
            if is_json is None:
                if not line.strip():
                    n_blank += 1
                    continue
                is_json = line.lstrip().startswith("{")
                yield from [""] * (0 if is_json else n_blank)
            if not is_json:
                yield line
            elif line.strip():
                yield parse_object(line, path, number)["text"]
        if is_json is None:
            yield from [""] * n_blank
