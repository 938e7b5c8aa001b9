"""The commands: each reads, calls the library, and shows. One function per command, with its name."""

from __future__ import annotations

import json
import shlex
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from longtail.blending import blend as blend_taggers
from longtail.cli.calibrate import calibrate as calibrate
from longtail.cli.compare import compare as compare
from longtail.cli.compare import reproduce as reproduce
from longtail.cli.demo import demo as demo
from longtail.cli.labels import labels as labels
from longtail.cli.layout import get_layout
from longtail.cli.output import read_and_report, show, show_notes
from longtail.cli.predict import predict as predict
from longtail.cli.prepare import prepare as prepare
from longtail.cli.serve import serve as serve
from longtail.cli.train import choose as choose
from longtail.cli.train import train as train
from longtail.cli.train import tune as tune
from longtail.cli.update import update as update
from longtail.data.check import check as check_data
from longtail.data.labels import Labels
from longtail.data.read import read_layout
from longtail.data.sources import check_sources
from longtail.data.split import split as split_data
from longtail.data.stream import open_stream
from longtail.data.write import write_parts
from longtail.errors import DataError, MissingExtra, SettingError
from longtail.files import STDIN, check_new_file, open_atomic
from longtail.metrics.evaluate import Evaluation
from longtail.printable import escape_json, format_count, make_cell, make_visible
from longtail.progress import Display, format_duration
from longtail.report.checkup import render_check
from longtail.report.evaluation import render_evaluation
from longtail.report.methods import render_method, render_methods
from longtail.report.tree_svg import draw_tree
from longtail.tagger.bundle import check_target, load_manifest
from longtail.tagger.evaluation import Evaluated, evaluate_stream
from longtail.tagger.tagger import Tagger, load


def blend(arguments: Namespace) -> None:
    """Combine saved taggers into one."""
    display, out = Display(), Path(arguments.out)
    if any(out.resolve() == Path(model).resolve() for model in arguments.models):
        raise SettingError(f"{out} is one of the models to blend", hint="Choose another folder for the blend")
    check_target(out, overwrite=arguments.overwrite)
    check_sources(arguments.data, vocabulary=arguments.vocabulary)
    taggers = [load(model) for model in arguments.models]
    tagger = blend_taggers(taggers, read_and_report(arguments.data, arguments, display, trained=taggers[0].layout))
    tagger.save(out, overwrite=arguments.overwrite or None)
    display.say(f"blended {len(arguments.models)} models; saved in {out}")


def pretrain(arguments: Namespace) -> None:
    """Train an encoder on texts without labels."""
    try:
        from longtail.nn.pretraining import PretrainSettings
        from longtail.nn.pretraining import pretrain as pretrain_encoder
    except ImportError as error:
        raise MissingExtra("torch", "nn", "Pretraining") from error
    from longtail.settings import RUNTIME, describe, parse_settings

    known = {each.name: each.type for each in describe(PretrainSettings) if each.name not in RUNTIME}
    settings = parse_settings(arguments.set, known, "pretrain")
    display = Display()
    data = read_and_report(arguments.data, arguments, display, labelled=False)
    if data.texts is None:
        raise DataError("pretraining needs texts, this file holds feature vectors", where=arguments.data, hint="Give texts")
    start = time.monotonic()
    common = {"seed": arguments.seed, "threads": arguments.threads}
    done = pretrain_encoder(data.texts, arguments.out, **settings, **common, progress=display)
    took = format_duration(time.monotonic() - start)
    display.say(f"pretrained on {done.n_texts:,} texts, {done.n_tokens:,} tokens, in {took}; saved in {arguments.out}")
    losses = f"{done.loss_before:.3f} before, {done.loss:.3f} after; {done.unigram_loss:.3f} from word counts alone"
    show(f"loss on held-out texts  {losses}")
    words = ["longtail", "train", arguments.data, *get_layout(arguments).to_words()]
    words += ["--method", "aplc", "--set", f"encoder={arguments.out}"]
    words += ["--set", f"max_length={settings['max_length']}"] if "max_length" in settings else []  # both have one default
    show(f"next  {shlex.join([*words, '--out', 'MODEL'])}")


def evaluate(arguments: Namespace) -> None:
    """Evaluate a saved tagger."""
    for path in (arguments.json, arguments.per_label):
        check_new_file(None if path == STDIN else path)
    tagger = load(arguments.model).configure(threads=arguments.threads)
    result, labels, _ = _evaluate(tagger, arguments, Display())
    text = escape_json(json.dumps(result.to_json(), indent=1, ensure_ascii=False)) + "\n"
    if arguments.json == STDIN:
        show(text)
    else:
        show(render_evaluation(result, arguments.k))
    if arguments.json and arguments.json != STDIN:
        with open_atomic(arguments.json) as stream:
            stream.write(text.encode())
    if arguments.per_label:
        with open_atomic(arguments.per_label) as stream:
            stream.write(_render_labels(result, tagger, labels).encode())


def _evaluate(tagger: Tagger, arguments: Namespace, display: Display) -> Evaluated:
    """Evaluate on a file, which is read block by block."""
    target, layout = tagger.resolve_target(arguments.target, arguments.threshold), get_layout(arguments)
    metrics = (target, arguments.k, arguments.propensity)
    with open_stream(arguments.data, layout, trained=tagger.layout) as stream:
        found = evaluate_stream(tagger, stream, *metrics)
        sizes = f"{format_count(found.result.n_samples, 'sample')}, {format_count(len(stream.labels), 'label')}"
        display.say(f"{stream.source}: {sizes}")
        show_notes(stream.notes, display)
    if found.n_retired:
        show_notes([f"{found.n_retired:,} occurrences of retired labels count as missed"], display)
    return found


def check(arguments: Namespace) -> None:
    """Check data."""
    layout = get_layout(arguments)
    check_sources(arguments.data, arguments.test, vocabulary=arguments.vocabulary)
    test = read_layout(arguments.test, layout) if arguments.test else None
    show(render_check(check_data(read_layout(arguments.data, layout), test)))


def split(arguments: Namespace) -> None:
    """Split data and write both parts."""
    data = read_and_report(arguments.data, arguments, Display())
    parts = split_data(data, arguments.test, arguments.seed)
    for path, part in zip(write_parts(parts._asdict(), Path(arguments.out)), parts, strict=True):
        show(f"{path}\t{part.n_samples}")


def info(arguments: Namespace) -> None:
    """Describe a saved tagger."""
    manifest = load_manifest(Path(arguments.model))
    tagger = load(arguments.model)
    model = tagger.model
    rows = {
        **tagger.summary(),
        "settings": _render_settings(manifest["settings"]),
        "written by": f"longtail {manifest['longtail']}, format {manifest['format']}",
        "size": f"{sum(entry['bytes'] for entry in manifest['files'].values()) / 1e6:,.1f} MB; all hashes match",
    }
    for name, value in rows.items():
        show(f"{name:<18}{make_visible(str(value))}")
    tree = model.label_tree
    if tree is not None:
        show("\n" + tree.draw(tagger.labels.names, counts=model.label_counts))
    if arguments.tree:
        if tree is None:
            raise SettingError(f"{tagger.method} has no label tree to draw", hint="Leave --tree out")
        with open_atomic(arguments.tree) as stream:
            stream.write(draw_tree(tree, tagger.labels.names, model.label_counts).encode())


def methods(arguments: Namespace) -> None:
    """List the methods, or describe the settings of one."""
    show(render_method(arguments.method) if arguments.method else render_methods())


def _render_settings(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={'none' if value is None else json.dumps(value)}" for name, value in settings.items())


def _render_labels(result: Evaluation, tagger: Tagger, known: Labels) -> str:
    """One row per label of the training data or of this data."""
    names = known.names
    counts = tagger.model.label_counts
    labels = result.labels
    lines = ["label\ttrain\ttrue\tpredicted\tcorrect\tprecision\trecall"]
    for i, name in enumerate(names):
        true, predicted, correct = int(labels.true[i]), int(labels.predicted[i]), int(labels.correct[i])
        n_train = int(counts[i]) if i < len(counts) else 0
        precision = f"{100 * correct / predicted:.2f}" if predicted else ""
        recall = f"{100 * correct / true:.2f}" if true else ""
        lines.append(f"{make_cell(name)}\t{n_train}\t{true}\t{predicted}\t{correct}\t{precision}\t{recall}")
    return "\n".join(lines) + "\n"
