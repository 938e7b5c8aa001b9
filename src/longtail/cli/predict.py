"""The command that predicts labels. Texts are read, and answers written, one by one."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from longtail.cli.answers import Answer, AnswerFormat, check_id, make_format
from longtail.cli.arrivals import SAMPLES_PER_BATCH, batch_all, batch_arrived, prompt_for_texts
from longtail.cli.constraints import check_options, get_constraints
from longtail.cli.layout import get_layout
from longtail.cli.output import show_notes
from longtail.data.prepared import is_prepared
from longtail.data.read import stream_samples
from longtail.data.records import Sample
from longtail.data.stream import stream_vectors
from longtail.decisions.constraints import Constraints
from longtail.decisions.sets import MIN_CHANCE
from longtail.decisions.targets import Target
from longtail.errors import SettingError
from longtail.files import STDIN, is_endless, open_atomic
from longtail.printable import format_count, make_visible
from longtail.progress import Display
from longtail.report.explanation import WIDTH, describe_marks, render_explanations
from longtail.samples import count_samples
from longtail.tagger.prediction import DEFAULT_K
from longtail.tagger.tagger import Tagger, load

_SHUFFLED = "prepared samples are in random order; their positions in the source are in samples/order.npy"


class SampleBatch(NamedTuple):
    """Texts or feature vectors, with their ids."""

    inputs: Any
    ids: list[str | None]


def predict(arguments: Namespace) -> None:
    """Predict the labels of each text."""
    name = choose_output(arguments)
    if arguments.cluster is not None:
        from longtail.cli.predict_parts import predict_on_cluster

        predict_on_cluster(arguments)
        return
    tagger, display = load(arguments.model).configure(threads=arguments.threads), Display()
    constraints = get_constraints(arguments)
    check_options(arguments, tagger.labels)
    k = choose_k(tagger, arguments, constraints)  # reports unknown labels before texts are read
    with _open_output(arguments.out) as write:
        answers = make_format(name, write, k=k, index=arguments.index)
        if arguments.explain and name == "tsv":
            display.say(describe_marks(tagger.model.weights_meaning))
        n_unknown = n_empty = n_samples = 0
        for batch in read_batches(tagger, arguments, display):
            unknown, empty = answer_batch(tagger, batch, answers, write, arguments, constraints)
            n_unknown, n_empty, n_samples = n_unknown + unknown, n_empty + empty, n_samples + len(batch.ids)
        answers.end()
    report_counts(tagger, arguments, n_unknown, n_empty, n_samples, display)


def choose_output(arguments: Namespace) -> str:
    """Return the name of the output; an error if options contradict each other."""
    name: str = arguments.output or ("jsonl" if arguments.json else "tsv")
    if arguments.json and name != "jsonl":
        raise SettingError(f"--json and --output {name} contradict each other", hint="Give one of the two")
    if arguments.explain and name not in ("tsv", "jsonl"):
        raise SettingError(f"--output {name} has no place for explanations", hint="Use --output jsonl, or leave it out")
    has_sets = arguments.target is not None or arguments.threshold is not None
    if has_sets and name == "csv" and arguments.k is None:
        raise SettingError(
            "a table has a fixed number of columns, sets of labels have none", hint="Add --k, the largest size"
        )
    return name


def choose_k(tagger: Tagger, arguments: Namespace, constraints: list[Constraints]) -> int:
    """Return the largest number of labels per text; an error if a constraint names an unknown label."""
    rules = tagger.resolve(constraints)
    return max(min(arguments.k or DEFAULT_K, len(tagger.labels)), 0 if rules is None else len(rules.always))


def report_counts(
    tagger: Tagger, arguments: Namespace, n_unknown: int, n_empty: int, n_samples: int, display: Display
) -> None:
    """Say how many samples have no known word or feature, and how many got no label."""
    if n_unknown:
        unknown = format_count(n_unknown, "sample")
        display.say(f"{unknown} without a known word or feature got the labels of an empty sample")
    if n_empty and (arguments.target is not None or arguments.threshold is not None):
        display.say(f"{n_empty:,} of {n_samples:,} samples got no label{_name_threshold(tagger, arguments.target)}")


def _name_threshold(tagger: Tagger, target: str | None) -> str:
    """The probability that a target requires of all labels; nothing if it has none."""
    rules, wanted = tagger.decisions.set_rules, Target.parse(target or "threshold=0")
    if rules is None or wanted.name in ("macro-f1", "threshold"):
        return ""
    limit = MIN_CHANCE if wanted.name == "expected-f1" else rules.find_threshold(wanted)
    return f": with {wanted}, labels need a probability of {limit:.3f}"


def answer_batch(
    tagger: Tagger,
    batch: SampleBatch,
    answers: AnswerFormat,
    write: Callable[[str], Any],
    arguments: Namespace,
    constraints: list[Constraints],
) -> tuple[int, int]:
    """Write the answers to a batch. Returns how many samples have no known word or feature, and how many got no label."""
    for id in batch.ids:
        check_id(answers, id, arguments.file)
    encoded = tagger.encode(batch.inputs)
    n_samples = count_samples(batch.inputs)
    novelty = tagger.novelty(encoded).tolist() if arguments.novelty else [None] * n_samples
    n_empty = 0
    wanted = {name: getattr(arguments, name) for name in ("k", "target", "threshold", "raw")}
    if not arguments.explain:
        predicted = tagger.predict(encoded, constraints=constraints, **wanted)
        for tags, id, novel in zip(predicted, batch.ids, novelty, strict=True):
            answers.add(Answer(tags, id, novel))
            n_empty += not tags
    for at in range(n_samples if arguments.explain else 0):
        one = batch.inputs[at] if tagger.reads_texts else batch.inputs[[at]]
        explained = tagger.explain_topk(one, constraints=constraints, **wanted)
        answer = Answer((), batch.ids[at], novelty[at], explained, tagger.reads_texts)
        n_empty += not explained
        if arguments.json or arguments.output == "jsonl":
            answers.add(answer)
        else:
            write(_render(one if tagger.reads_texts else None, answer))
    write("")
    return tagger.n_unknown(encoded), n_empty


def _render(text: str | None, answer: Answer) -> str:
    """Render the explanations of one text for people."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((WIDTH, 0)).columns, WIDTH)
    title = "" if answer.id is None else f"{make_visible(answer.id)}\n"
    shown = render_explanations(text, answer.explanations or (), colour=colour, width=width).rstrip("\n")
    novelty = "" if answer.novelty is None else f"     novelty {answer.novelty:.3f}\n"
    return f"{title}{shown}\n{novelty}\n"


def read_batches(tagger: Tagger, arguments: Namespace, display: Display) -> Iterator[SampleBatch]:
    """Read the inputs in batches: of a fixed size from files, what has arrived from pipes, one by one from a terminal."""
    path, layout = arguments.file, get_layout(arguments)
    notes = [_SHUFFLED] if is_prepared(Path(path)) else []
    if not tagger.reads_texts:
        for X in stream_vectors(path, layout, notes):
            for start in range(0, X.shape[0], SAMPLES_PER_BATCH):
                part = X[start : start + SAMPLES_PER_BATCH]
                yield SampleBatch(part, [None] * part.shape[0])
        show_notes(notes, display)
        return
    if path == STDIN and sys.stdin.isatty() and layout.format in (None, "lines"):
        batches: Iterator[list[Sample]] = ([sample] for sample in prompt_for_texts())
    else:
        samples = stream_samples(path, layout, trained=tagger.layout, notes=notes)
        batches = batch_arrived(samples) if is_endless(path) else batch_all(samples)
    n_shown = 0
    for batch in batches:
        show_notes(notes[n_shown:], display)
        n_shown = len(notes)
        yield SampleBatch([sample.text for sample in batch], [sample.id for sample in batch])
    show_notes(notes[n_shown:], display)


@contextmanager
def _open_output(path: str | None) -> Iterator[Callable[[str], Any]]:
    """Open a file or standard output; yields a function that writes, and shows everything when it gets an empty string."""
    if path is None or path == STDIN:

        def write(text: str) -> None:
            if text:
                sys.stdout.write(text)
            else:
                sys.stdout.flush()

        yield write
        return
    with open_atomic(path) as stream:
        yield lambda text: stream.write(text.encode())
