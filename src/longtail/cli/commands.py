"""What each command does: read, call the library, show. One function per command, named like it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from longtail.cli.comparison import compare as compare
from longtail.cli.demo import demo as demo
from longtail.cli.output import show, told
from longtail.cli.reproduction import reproduce as reproduce
from longtail.cli.settings import methods_text, pretrain_settings
from longtail.cli.training import choose as choose
from longtail.cli.training import train as train
from longtail.data.check import check as check_data
from longtail.data.dataset import Dataset
from longtail.data.jsonl import parse_object
from longtail.data.read import read
from longtail.data.split import parted
from longtail.data.write import write_all
from longtail.errors import DataError, SettingError, missing_extra
from longtail.files import STDIN, reading, text_lines, writing
from longtail.metrics.evaluate import Evaluation
from longtail.model import count
from longtail.progress import Display, clock
from longtail.report.checkup import checkup_text
from longtail.report.evaluation import evaluation_tables
from longtail.report.explanation import WIDTH, explanation_text
from longtail.report.tree_svg import tree_svg
from longtail.tagger.blending import blended
from longtail.tagger.bundle import check_target, load_manifest
from longtail.tagger.explanation import Explanation
from longtail.tagger.tagger import Tagger, load

BATCH = 1024  # texts tagged at a time
MOST_PARTS = 10  # of a text, that --json lists for a label


def blend(arguments: Namespace) -> None:
    """Make one tagger of several saved ones."""
    display, out = Display(), Path(arguments.out)
    check_target(out)
    if any(out.resolve() == Path(model).resolve() for model in arguments.models):
        raise SettingError(f"{out} is one of the models to blend", hint="Choose another folder for the blend")
    tagger = blended([load(model) for model in arguments.models], told(read(arguments.data), display))
    tagger.save(out)
    display.say(f"blended {len(arguments.models)} models; saved to {out}")


def pretrain(arguments: Namespace) -> None:
    """Train an encoder on texts alone."""
    try:
        settings = pretrain_settings(arguments.set)
        from longtail.nn.pretraining import pretrain
    except ImportError as error:
        raise missing_extra("torch", "nn", "Pretraining") from error
    display, own = Display(), {"seed": arguments.seed, "threads": arguments.threads}
    data = told(read(arguments.data), display)
    if data.texts is None:
        raise DataError("pretraining reads texts, this holds feature vectors", where=arguments.data, hint="Give texts")
    start = time.monotonic()
    done = pretrain(data.texts, arguments.out, **settings, **own, progress=display)
    took = clock(time.monotonic() - start)
    display.say(f"pretrained on {done.n_texts:,} texts, {done.n_tokens:,} word pieces, in {took}; saved to {arguments.out}")
    losses = f"{done.before:.3f} before, {done.after:.3f} after; {done.frequencies:.3f} by frequencies of words alone"
    show(f"loss on held-out texts  {losses}")
    words = ["longtail", "train", arguments.data, "--method", "aplc", "--set", f"encoder={arguments.out}"]
    words += ["--set", f"max_length={settings['max_length']}"] if "max_length" in settings else []  # both have one default
    show(f"next  {shlex.join([*words, '--out', 'MODEL'])}")


def evaluate(arguments: Namespace) -> None:
    """Measure a saved tagger."""
    tagger = load(arguments.model)
    data = told(read(arguments.data), Display())
    result = tagger.evaluate(data, arguments.k, propensity=arguments.propensity)
    text = json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n"
    if arguments.json == STDIN:
        show(text)
    else:
        show(evaluation_tables(result, arguments.k))
    if arguments.json and arguments.json != STDIN:
        with writing(arguments.json) as stream:
            stream.write(text.encode())
    if arguments.per_label:
        with writing(arguments.per_label) as stream:
            stream.write(per_label_table(result, tagger, data).encode())


def predict(arguments: Namespace) -> None:
    """Give each text its labels."""
    tagger = load(arguments.model)
    if not tagger.reads_texts:
        batches: Iterator[Any] = iter([read(arguments.file).inputs])
    else:
        texts = texts_of(arguments.file)
        batches = iter(lambda: list(islice(texts, BATCH)), [])
    n_unknown = 0
    if arguments.explain:
        Display().say(f"weights: {tagger.model.weights_meaning}")
    for batch in batches:
        n_unknown += tagger.n_unknown(batch)
        novelty = tagger.novelty(batch).tolist() if arguments.novelty else [None] * count(batch)
        if arguments.explain:
            for at, novel in enumerate(novelty):
                one = batch[at] if tagger.reads_texts else batch[[at]]
                show_why(one, tagger.explanations(one, arguments.k), novel, arguments.json)
            continue
        for tags, novel in zip(tagger.predict(batch, arguments.k), novelty, strict=True):
            if arguments.json:
                show_json([{"label": label, "score": rounded(score)} for label, score in tags], novel)
            else:
                first = [] if novel is None else [f"{novel:.3f}"]
                show("\t".join([*first, *(f"{label} {score:.3f}" for label, score in tags)]))
    if n_unknown:
        Display().say(f"{n_unknown:,} of the samples hold no known word or feature; they got the labels of an empty one")


def show_why(one: Any, why: list[Explanation], novel: float | None, as_json: bool) -> None:
    """A text, or row of features, with its labels and what speaks for each."""
    text = one if isinstance(one, str) else None
    if as_json:
        show_json([as_plain(each, text is not None) for each in why], novel)
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((WIDTH, 0)).columns, WIDTH)
    show(explanation_text(text, why, colour=colour, width=width))
    show("" if novel is None else f"     novelty {novel:.3f}\n")


def as_plain(why: Explanation, of_text: bool) -> dict[str, Any]:
    """A label and what speaks most for it or against it, for JSON."""
    parts = []
    for text, weight, start, end in why.parts[:MOST_PARTS]:
        place: dict[str, Any] = {"text": text, "start": start, "end": end} if of_text else {"feature": start}
        parts.append({**place, "weight": rounded(weight)})
    return {"label": why.label, "score": rounded(why.score), "why": parts}


def show_json(labels: list[dict[str, Any]], novel: float | None) -> None:
    """One line for one sample."""
    show(json.dumps({"labels": labels, **({} if novel is None else {"novelty": rounded(novel)})}, ensure_ascii=False))


def check(arguments: Namespace) -> None:
    """Show what the data doctor says."""
    data = read(arguments.data)
    test = read(arguments.test) if arguments.test else None
    show(checkup_text(check_data(data, test)))


def split(arguments: Namespace) -> None:
    """Write the two sides of a stratified split."""
    display = Display()
    data = told(read(arguments.data), display)
    parts = parted(data, arguments.test, arguments.seed)
    for path, part in zip(write_all(parts, Path(arguments.out)), parts.values(), strict=True):
        show(f"{path}\t{part.n_samples}")


def info(arguments: Namespace) -> None:
    """Show what a saved tagger is."""
    manifest = load_manifest(Path(arguments.model))
    tagger = load(arguments.model)
    rows = {
        "method": tagger.method,
        "settings": pairs(manifest["settings"]),
        "features": "none",
        "labels": f"{len(tagger.known_labels):,} ({(tagger.model.label_counts > 0).sum():,} with samples)",
        "trained on": f"{tagger.model.n_samples:,} samples",
        "a score is a": f"{tagger.model.score_meaning}; labels are on from {tagger.threshold:.3g}",
        "written by": f"longtail {manifest['longtail']}, format {manifest['format']}",
        "size": f"{sum(entry['bytes'] for entry in manifest['files'].values()) / 1e6:,.1f} MB; all hashes are right",
    }
    if manifest["features"]:
        width = f"{tagger.pipeline.coder.n_features if tagger.pipeline.coder else tagger.model.n_features:,} features"
        rows["features"] = f"{manifest['features']['kind']}, {width} {pairs(manifest['features']['settings'])}".strip()
    if tagger.pipeline.coder:
        rows["features"] += f", written as {tagger.model.n_features:,} numbers by an autoencoder"
    for name, value in rows.items():
        show(f"{name:<14}{value}")
    tree = tagger.model.label_tree
    if tree is not None:
        show("\n" + tree.drawn(tagger.known_labels.names, counts=tagger.model.label_counts))
    if arguments.tree:
        if tree is None:
            raise SettingError(f"{tagger.method} has no tree of labels to draw", hint="Leave --tree out")
        with writing(arguments.tree) as stream:
            stream.write(tree_svg(tree, tagger.known_labels.names, tagger.model.label_counts).encode())


def methods(arguments: Namespace) -> None:
    """List the methods."""
    show(methods_text())


def rounded(number: float) -> float:
    """As JSON gets it: with six digits that count."""
    return float(f"{number:.6g}")


def pairs(settings: dict[str, Any]) -> str:
    """Settings as they are written behind --set."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())


def texts_of(path: str) -> Iterator[str]:
    """Texts one by one from a file of lines or JSONL, told by the name or by the first line."""
    with reading(path) as stream:
        as_json: bool | None = True if re.sub(r"\.(gz|xz)$", "", path).endswith((".jsonl", ".ndjson")) else None
        blank = 0  # lines before the first that tells
        for number, line in text_lines(stream, path):
            if as_json is None:
                if not line.strip():
                    blank += 1
                    continue
                as_json = line.lstrip().startswith("{")
                yield from [""] * (0 if as_json else blank)
            if not as_json:
                yield line
            elif line.strip():
                yield parse_object(line, path, number)["text"]
        if as_json is None:
            yield from [""] * blank


def per_label_table(result: Evaluation, tagger: Tagger, data: Dataset) -> str:
    """A row for each label that training or this data know."""
    names = data.aligned(tagger.known_labels).labels.names
    counts = tagger.model.label_counts
    labels = result.labels
    lines = ["label\ttrain\ttrue\tpredicted\tright\tprecision\trecall"]
    for i, name in enumerate(names):
        true, predicted, right = int(labels.true[i]), int(labels.predicted[i]), int(labels.right[i])
        n_train = int(counts[i]) if i < len(counts) else 0
        precision = f"{100 * right / predicted:.2f}" if predicted else ""
        recall = f"{100 * right / true:.2f}" if true else ""
        lines.append(f"{' '.join(name.split())}\t{n_train}\t{true}\t{predicted}\t{right}\t{precision}\t{recall}")
    return "\n".join(lines) + "\n"
