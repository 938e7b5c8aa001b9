"""Public functions that combine several parts of the package: one for each of these commands, with the same options."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Unpack

from longtail.comparison.candidates import Candidate, parse_candidates
from longtail.comparison.results import Comparison, evaluate_runs
from longtail.comparison.runs import MIN_DEPTH, ComparisonTask, run_all
from longtail.data.dataset import Dataset
from longtail.data.layout import Layout, LayoutOptions
from longtail.data.prepare import prepare_samples
from longtail.data.read import read
from longtail.data.sources import check_sources
from longtail.data.write import write_parts
from longtail.errors import SettingError
from longtail.files import STDIN, create_temporary_folder, find_unwritable, is_endless, open_atomic
from longtail.labelspace.propensity import DEFAULT_PROPENSITY
from longtail.metrics.ranking import DEFAULT_KS
from longtail.pipeline import Pipeline
from longtail.progress import Progress, resolve_progress
from longtail.registry import DEFAULT_METHOD
from longtail.report.comparison_page import render_page
from longtail.selection.machine import choose_memory
from longtail.selection.plan import DEFAULT_MINUTES, Budget, Plan, make_plan
from longtail.selection.profile import profile_data
from longtail.selection.tuning import DEFAULT_TUNING_MINUTES, TuningResult, search_settings
from longtail.sharding.cluster import Cluster
from longtail.spec import MethodSpec


def compare(
    train: Any,
    test: Any,
    methods: str | Iterable[str | MethodSpec],
    *,
    out: str | Path | None = None,
    valid: Any = None,
    settings: Iterable[str] = (),
    ks: Sequence[int] = DEFAULT_KS,
    propensity: tuple[float, float] = DEFAULT_PROPENSITY,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | bool | None = None,
    labels: Any = None,
    cluster: Cluster | None = None,
    **layout: Unpack[LayoutOptions],
) -> Comparison:
    """Train methods on the same data and evaluate them on the same test data.

    A method that fails does not stop the others: its result has a ``failure``.

    :param train: Data to train on, in any form that ``longtail.read`` takes.
    :param test: Data to evaluate on.
    :param methods: Specs such as ``"plt:bonsai+beam=50"``, or folders of saved models; ``NAME=`` before one names it.
    :param out: Folder for models, results.json and a page, index.html. What is done there already is not repeated.
    :param valid: Data for methods that choose something while they train.
    :param settings: Further settings, ``NAME.setting=value`` each.
    :param ks: Ranks to evaluate at.
    :param propensity: Constants A and B of propensity-scored metrics.
    :param seed: Seed of everything random.
    :param threads: Threads. None: all cores.
    :param progress: Whether to show progress bars. None: in terminals and notebooks.
    :param labels: The column with the labels. None: guessed.
    :param cluster: Workers, each of which trains one method at a time: ``with longtail.cluster("local:2") as c: …``. ``out``
        must be on a disk that all of them share. None: one method after the other.
    :param layout: Further options of ``longtail.read``.
    """
    if cluster is not None and threads is None:
        threads = 1  # there is a worker for each core
    with create_temporary_folder() as temporary:
        folder = temporary if out is None else Path(out)
        parts = {"train": train, "test": test, **({} if valid is None else {"valid": valid})}
        check_sources(*parts.values(), vocabulary=layout.get("vocabulary"))
        candidates = check_candidates(parse_candidates(methods, settings), folder, seed, threads)
        data = {name: store_part(name, part, folder, read(part, labels, **layout)) for name, part in parts.items()}
        task = ComparisonTask(data["train"], data["test"], data.get("valid"), seed, threads, max(MIN_DEPTH, *ks))
        result = run_comparison(task, candidates, folder, ks, propensity, resolve_progress(progress), cluster)
    return result


def check_candidates(candidates: list[Candidate], folder: Path, seed: int, threads: int | None) -> list[Candidate]:
    """Report wrong settings, missing packages and a folder that cannot be written before hours of training."""
    for one in candidates:
        if one.spec:
            one.spec.build(seed, threads).pipeline.check_requirements()
    if (closed := find_unwritable(folder)) is not None:
        raise SettingError("the folder is not writable", where=str(closed), hint="Choose another folder")
    return candidates


def run_comparison(
    task: ComparisonTask,
    candidates: list[Candidate],
    folder: Path,
    ks: Sequence[int],
    propensity: tuple[float, float],
    progress: Progress,
    cluster: Cluster | None = None,
) -> Comparison:
    """Run the candidates on data that comes from files; write results.json and index.html to the folder."""
    runs = run_all(task, candidates, folder, progress, cluster)
    date = time.strftime("%Y-%m-%d")
    result = evaluate_runs(task, runs, ks=ks, propensity=propensity, date=date, progress=progress)
    contents = {
        "results.json": json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n",
        "index.html": render_page(result),
    }
    for name, content in contents.items():
        with open_atomic(folder / name) as stream:
            stream.write(content.encode())
    return result


def prepare(
    data: Any,
    out: str | Path,
    *,
    method: str | MethodSpec = DEFAULT_METHOD,
    memory: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    labels: Any = None,
    progress: Progress | bool | None = None,
    **layout: Unpack[LayoutOptions],
) -> Dataset:
    """Prepare data that is larger than memory: write it to a folder from which taggers are fitted without texts in memory.

    Samples are written in random order, and with them the features that a method computes for them. The same call
    continues what an interrupted one has begun. ``Tagger(method).fit(out)`` then needs no further pass over the texts.

    :param data: The training data, in any form that ``longtail.read`` takes. Files are read block by block.
    :param out: The folder. It must not exist, or be what an interrupted call has left.
    :param method: The method or spec whose features are computed. Other methods compute theirs when they are fitted.
    :param memory: GB of memory that this may use, and the features of the texts later on. None: a quarter of what is free.
    :param seed: Seed of the order, and of what the method decides about features.
    :param threads: Threads. None: all cores.
    :param labels: The column with the labels. None: guessed.
    :param progress: Whether to show progress bars. None: in terminals and notebooks.
    :param layout: Further options of ``longtail.read``.
    :returns: The prepared data, which is memory-mapped; ``longtail.read(out)`` returns the same.
    """
    spec = method if isinstance(method, MethodSpec) else MethodSpec.parse(method)
    display, limit = resolve_progress(progress), choose_memory() if memory is None else memory
    return prepare_layout(data, Layout.from_options(labels, **layout), out, spec, limit, seed, threads, display)


def prepare_layout(
    data: Any,
    layout: Layout,
    out: str | Path,
    spec: MethodSpec,
    memory: float,
    seed: int,
    threads: int | None,
    progress: Progress,
) -> Dataset:
    """Same as ``prepare``, with a given layout."""
    pipeline = Pipeline(spec, seed=seed, threads=threads)  # reports wrong settings before the data is read
    pipeline.check_requirements()
    found = prepare_samples(data, layout, Path(out), memory=memory, seed=seed, progress=progress)
    if found.texts is not None and pipeline.extractor is not None:
        pipeline.fit_features(found.texts, found.Y, labels=found.labels, source=found.source, progress=progress)
    return found


def choose(
    data: Any,
    labels: Any = None,
    *,
    minutes: float = DEFAULT_MINUTES,
    memory: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    **layout: Unpack[LayoutOptions],
) -> Plan:
    """Propose a method for the data, and estimate what each method would cost.

    ``plan.proposed.spec.build(seed, threads)`` is the tagger to fit.

    :param data: Data in any form that ``longtail.read`` takes.
    :param labels: The column with the labels. None: guessed.
    :param minutes: Wall time that training may take.
    :param memory: GB of memory that training may take. None: what is free.
    :param seed: Seed of the sample of texts that is looked at.
    :param threads: Threads. None: all cores.
    :param layout: Further options of ``longtail.read``.
    """
    return make_plan(profile_data(read(data, labels, **layout), seed), Budget(minutes, memory), threads=threads)


def tune(
    data: Any,
    method: str | MethodSpec = DEFAULT_METHOD,
    *,
    minutes: float = DEFAULT_TUNING_MINUTES,
    seed: int = 0,
    threads: int | None = None,
    labels: Any = None,
    progress: Progress | bool | None = None,
    **layout: Unpack[LayoutOptions],
) -> TuningResult:
    """Search for settings of a method that suit the data: random search with successive halving on held-out training data.

    ``result.spec.build(seed, threads)`` is the tagger to fit. Settings that ``method`` names are not changed.

    :param data: The training data, in any form that ``longtail.read`` takes.
    :param method: A method or spec.
    :param minutes: Wall time of the search. A longer search tries the same settings in the same order, and more.
    :param seed: Seed of the settings that are tried, and of the samples that are held out.
    :param threads: Threads. None: all cores.
    :param labels: The labels of the samples, as for ``longtail.read``.
    :param progress: Whether to show each attempt. None: in terminals and notebooks.
    :param layout: Further options of ``longtail.read``.
    """
    spec = method if isinstance(method, MethodSpec) else MethodSpec.parse(method)
    if not minutes > 0:
        raise SettingError(f"minutes is {minutes}", hint="It must be a positive number")
    display = resolve_progress(progress)
    return search_settings(read(data, labels, **layout), spec, minutes=minutes, seed=seed, threads=threads, progress=display)


def store_part(name: str, given: Any, folder: Path, data: Dataset) -> Dataset:
    """Write data to a file if it does not come from one, because worker processes read files.

    :param name: The name of the part: train, test or valid.
    :param given: What the user passed.
    :param folder: The folder of the comparison.
    :param data: The data that was read from it.
    """
    if isinstance(given, str | Path) and str(given) != STDIN and not is_endless(given):
        return data
    place = folder / "data" / name  # a folder for each, with the vocabulary that belongs to it
    shutil.rmtree(place, ignore_errors=True)
    (path,) = write_parts({name: data}, place)
    return read(path)
