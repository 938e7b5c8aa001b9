"""The commands and options of the command line. No command is imported here, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from longtail import __version__
from longtail.cli.arguments import Parser, parse_output, parse_positive, parse_seed
from longtail.cli.constraints import FILE_HELP, add_constraint_options
from longtail.cli.layout import DATA, add_layout_options
from longtail.cli.options import (
    add_cluster,
    add_metrics,
    add_overwrite,
    add_seed_and_threads,
    add_settings,
    add_target,
    add_threads,
)

_Add = Callable[[str, str], argparse.ArgumentParser]

# Each help text ends with two examples.
EXAMPLES = {
    "train": (
        "longtail train train.jsonl --out model",
        "longtail train train.jsonl --method plt:bonsai+beam=20 --threads 1 --out trees",
    ),
    "choose": ("longtail choose train.jsonl", "longtail choose train.jsonl --minutes 2 --out chosen"),
    "tune": (
        "longtail tune train.jsonl --method ovr --minutes 0.1",
        "longtail tune train.jsonl --method plt+C=1 --minutes 0.1 --out tuned",
    ),
    "pretrain": (
        "longtail pretrain train.jsonl --out encoder --set width=32 --set layers=1 --set epochs=1",
        "longtail pretrain builtin:pydoc --out encoder-large",
    ),
    "evaluate": (
        "longtail evaluate model test.jsonl --target micro-f1",
        "longtail evaluate model test.jsonl --k 1,10 --json metrics.json",
    ),
    "compare": (
        "longtail compare train.jsonl test.jsonl --methods popularity,ovr,plt --out report",
        "longtail compare train.jsonl test.jsonl --methods ovr,wide=plt+beam=50,model --out report2",
    ),
    "blend": (
        "longtail blend valid.jsonl model trees --out both",
        "longtail blend test.jsonl report/models/ovr report/models/plt --out both2",
    ),
    "reproduce": ("longtail reproduce popularity.pydoc", "longtail reproduce plt.pydoc --threads 1"),
    "labels": (
        'longtail labels model rename fruit fruits --reason "plural, as in the thesaurus"',
        "longtail labels model undo",
    ),
    "predict": (
        "echo 'Sort a list in place.' | longtail predict model --k 3",
        "longtail predict model test.jsonl --target expected-f1 --json --threads 1",
    ),
    "calibrate": ("longtail calibrate model valid.jsonl", "longtail calibrate trees test.jsonl --out calibrated"),
    "update": (
        "longtail update model test.jsonl --old train.jsonl --out updated",
        "longtail update model --feedback feedback.jsonl --threads 1 --out corrected",
    ),
    "check": ("longtail check train.jsonl", "longtail check train.jsonl test.jsonl"),
    "split": ("longtail split builtin:pydoc --test 0.2", "longtail split train.jsonl --test 0.1 --out parts --seed 1"),
    "prepare": (
        "longtail prepare train.jsonl --out prepared",
        "longtail prepare train.jsonl --method plt+min_df=2 --memory 0.5 --out prepared-plt",
    ),
    "info": ("longtail info model", "longtail info trees --tree tree.svg"),
    "methods": ("longtail methods", "longtail methods plt"),
    "serve": ("longtail serve model", "longtail serve model subjects=trees --port 8080 --token-file tokens.txt"),
    "demo": ("longtail demo --quick", "longtail demo --out tour --open"),
}


def build_parser() -> Parser:
    """All commands with their options."""
    top = Parser(prog="longtail", description="Give a text the few right labels out of thousands or millions.")
    top.add_argument("--version", action="version", version=f"longtail {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog="examples:\n" + "".join(f"  {line}\n" for line in EXAMPLES[name]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    _add_training(add)
    _add_comparison(add)
    _add_pretraining(add)
    _add_demo(add)
    _add_selection(add)
    _add_prediction(add)
    _add_changes(add)
    _add_descriptions(add)
    _add_labels(add)
    _add_service(add)
    _add_data(add)
    return top


def _add_training(add: _Add) -> None:
    train = add("train", "Train a tagger on labelled data and save it.")
    train.add_argument("data", metavar="DATA", help=DATA)
    method = "method, or method:preset+name=value…; see `longtail methods`. auto: as `choose` proposes (default: ovr)"
    train.add_argument("--method", default="ovr", metavar="SPEC", help=method)
    train.add_argument("--out", required=True, metavar="MODEL", help="folder to save the model in")
    train.add_argument("--valid", metavar="DATA", help="validation data: to calibrate scores on, and to report on")
    train.add_argument("--preset", metavar="NAME", help="named group of settings, see `longtail methods`")
    minutes = "stop training after N minutes, with the best weights so far: neural methods, and --method auto"
    train.add_argument("--minutes", type=float, metavar="N", help=minutes)
    train.add_argument("--constraints", metavar="FILE", help=f"{FILE_HELP}; they hold for all predictions of the model")
    train.set_defaults(trial=False)
    add_cluster(train)
    shards = "into how many shards each task is divided (default: 4 for each worker)"
    train.add_argument("--shards", type=parse_positive, metavar="N", help=shards)
    ddp = "train a network by N processes, each with a part of every batch; a killed one is replaced, from a checkpoint"
    train.add_argument("--ddp", type=parse_positive, metavar="N", help=ddp)
    add_overwrite(train)
    add_settings(train, "one setting, as in --method; may be repeated")
    add_seed_and_threads(train)
    add_layout_options(train)


def _add_comparison(add: _Add) -> None:
    compare = add("compare", "Train and evaluate methods side by side: tables, results as JSON, and a page with plots.")
    compare.add_argument("train", metavar="TRAIN", help=f"data to train on: {DATA}")
    compare.add_argument("test", metavar="TEST", help="data to evaluate on")
    methods = (
        "comma-separated: method (plt), spec (plt:bonsai+beam=50), or folder of a saved model; NAME= before it names it"
    )
    compare.add_argument("--methods", required=True, metavar="A,B,…", help=methods)
    out = "folder for models and reports; finished work in it is not repeated"
    compare.add_argument("--out", required=True, metavar="FOLDER", help=out)
    compare.add_argument("--valid", metavar="DATA", help="validation data, for methods that use it")
    add_metrics(compare)
    add_cluster(compare)
    add_settings(compare, "one setting of one method, METHOD.name=value; may be repeated")
    add_seed_and_threads(compare)
    add_layout_options(compare)

    reproduce = add("reproduce", "Train and evaluate as recipes say, and check that the metrics are reproduced.")
    reproduce.add_argument("recipes", nargs="+", metavar="RECIPE", help="name of a recipe (plt.bibtex), or a TOML file")
    reproduce.add_argument("--record", action="store_true", help="write the measured values into the recipes")
    reproduce.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="train with N seeds, and show by how much the values differ"
    )
    add_threads(reproduce)


def _add_pretraining(add: _Add) -> None:
    pretrain = add(
        "pretrain", "Train an XLNet encoder on the texts of a corpus, without labels, for use by aplc and secseq."
    )
    pretrain.add_argument("data", metavar="DATA", help=f"{DATA}; labels are ignored")
    pretrain.add_argument("--out", required=True, metavar="FOLDER", help="new folder to save the encoder in")
    add_settings(pretrain, "one setting, such as width=128, layers=4, epochs=20 or max_length=64; may be repeated")
    add_seed_and_threads(pretrain)
    add_layout_options(pretrain, reads_labels=False)


def _add_demo(add: _Add) -> None:
    demo = add("demo", "Build a corpus, compare methods on it, write a report, and tag an example.")
    demo.add_argument("--out", default="demo", metavar="FOLDER", help="folder to write to (default: demo)")
    demo.add_argument("--quick", action="store_true", help="linear methods only")
    demo.add_argument("--open", action="store_true", help="open the report in a browser")
    demo.add_argument("--serve", action="store_true", help="then serve the best model, and open its page in a browser")


def _add_selection(add: _Add) -> None:
    choose = add("choose", "Propose a method for the data and a budget, and estimate what each method would cost.")
    choose.add_argument("data", metavar="DATA", help=DATA)
    choose.add_argument("--minutes", type=float, default=10.0, metavar="N", help="wall time for training (default: 10)")
    choose.add_argument("--memory", type=float, metavar="GB", help="memory for training (default: what is free)")
    trial = "train the two or three best on a part of the data, and keep the best"
    choose.add_argument("--try", dest="trial", action="store_true", help=trial)
    choose.add_argument("--out", metavar="MODEL", help="train the chosen method and save it in this folder")
    add_overwrite(choose)
    add_seed_and_threads(choose)
    add_layout_options(choose)

    tune = add("tune", "Search for settings of a method: random search with successive halving on held-out training data.")
    tune.add_argument("data", metavar="DATA", help=DATA)
    method = "method, or method:preset+name=value…; settings that it names are not changed (default: ovr)"
    tune.add_argument("--method", default="ovr", metavar="NAME", help=method)
    add_settings(tune, "one setting that is not changed, such as ngrams=1; may be repeated")
    tune.add_argument("--minutes", type=float, default=10.0, metavar="N", help="wall time of the search (default: 10)")
    tune.add_argument("--out", metavar="MODEL", help="train with the best settings and save the model in this folder")
    add_overwrite(tune)
    add_seed_and_threads(tune)
    add_layout_options(tune)


def _add_prediction(add: _Add) -> None:
    evaluate = add("evaluate", "Evaluate a saved tagger on data that it was not trained on.")
    evaluate.add_argument("model", metavar="MODEL")
    evaluate.add_argument("data", metavar="DATA", help=DATA)
    evaluate.add_argument("--json", metavar="FILE", help="write the metrics to a file (-: JSON to standard output only)")
    evaluate.add_argument("--per-label", metavar="FILE", help="write a table with one row per label")
    add_metrics(evaluate)
    add_target(evaluate)
    add_threads(evaluate)
    add_layout_options(evaluate)

    predict = add("predict", "Predict the labels of texts.")
    predict.add_argument("model", metavar="MODEL")
    source = f"{DATA}; a plain text file has one text per line; labels are left out (default: -)"
    predict.add_argument("file", nargs="?", default="-", metavar="FILE", help=source)
    k = "number of labels (default: 5); with --target or --threshold, at most N (default: any number)"
    predict.add_argument("--k", type=parse_positive, metavar="N", help=k)
    add_target(predict)
    output = "tsv (default), csv, jsonl, or updates for a search engine: elasticsearch (also OpenSearch), solr"
    predict.add_argument("--output", type=parse_output, metavar="FORMAT", help=output)
    predict.add_argument("--json", action="store_true", help='same as --output jsonl: {"labels": [{"label", "score"}, …]}')
    out = "write the answers to a file (default: standard output); with --cluster, a folder for one file per part"
    predict.add_argument("--out", metavar="FILE", help=out)
    predict.add_argument("--index", metavar="NAME", help="index to update, for --output elasticsearch")
    predict.add_argument(
        "--novelty", action="store_true", help="show how unlike the training data each text is (0 to about 1)"
    )
    predict.add_argument("--explain", action="store_true", help="show which words contribute to each label")
    predict.add_argument("--raw", action="store_true", help="show the scores of the model instead of probabilities")
    add_cluster(predict)
    add_threads(predict)
    add_constraint_options(predict, "FILE comes before these.")
    add_layout_options(predict, reads_labels=False)


def _add_changes(add: _Add) -> None:
    calibrate = add("calibrate", "Fit the probabilities of a saved tagger again, to data that it was not trained on.")
    calibrate.add_argument("model", metavar="MODEL", help="folder of a saved model")
    calibrate.add_argument("data", metavar="VALID", help=f"data to calibrate on: {DATA}")
    keep = "keep the probabilities, fit the rules for sets of labels only: what --target promises is then exact"
    depth = "labels per text that sets are chosen from (default: four times the average number of labels, 20 to 100)"
    calibrate.add_argument("--k", type=parse_positive, metavar="N", help=depth)
    calibrate.add_argument("--keep-curve", action="store_true", help=keep)
    out = "folder to save the calibrated model in (default: it replaces MODEL)"
    calibrate.add_argument("--out", metavar="MODEL", help=out)
    add_overwrite(calibrate)
    add_threads(calibrate)
    add_layout_options(calibrate)

    blend = add("blend", "Combine saved taggers, with weights learned on data that none of them was trained on.")
    blend.add_argument("data", metavar="VALID", help=f"data to learn the weights on: {DATA}")
    blend.add_argument("models", nargs="+", metavar="MODEL", help="folders of two or more saved models")
    blend.add_argument("--out", required=True, metavar="MODEL", help="folder to save the blend in")
    add_overwrite(blend)
    add_layout_options(blend)

    update = add("update", "Continue to train a saved tagger: on new samples, and on feedback about its predictions.")
    update.add_argument("model", metavar="MODEL")
    update.add_argument("data", nargs="?", metavar="NEW", help=f"new samples: {DATA}")
    feedback = 'JSONL, {"text": …, "accepted": […], "rejected": […], "added": […]} per line; what is not named is unknown'
    update.add_argument("--feedback", metavar="FILE", help=feedback)
    old = "data that the model was trained on, so that nothing is forgotten (default: the file of `train`, if unchanged)"
    update.add_argument("--old", metavar="DATA", help=old)
    replay = "share of the data of --old that is used again (default: 0.2); 0: none"
    update.add_argument("--replay", type=float, metavar="SHARE", help=replay)
    update.add_argument("--out", metavar="MODEL", help="folder to save the updated model in (default: it replaces MODEL)")
    add_overwrite(update)
    add_seed_and_threads(update)
    add_layout_options(update)


def _add_descriptions(add: _Add) -> None:
    info = add("info", "Describe a saved tagger.")
    info.add_argument("model", metavar="MODEL")
    info.add_argument("--tree", metavar="FILE.svg", help="draw the label tree, for methods that have one")

    methods = add("methods", "List the methods with their presets; with a name, every setting of that method.")
    methods.add_argument("method", nargs="?", metavar="METHOD", help="method whose settings to describe")


def _add_labels(add: _Add) -> None:
    labels = add("labels", "Change the labels of a saved tagger without training; every change is logged and can be undone.")
    labels.add_argument("model", metavar="MODEL")
    operations = labels.add_subparsers(dest="operation", metavar="OPERATION", required=True, parser_class=Parser)

    def operation(name: str, summary: str, *, logged: bool = True) -> argparse.ArgumentParser:
        parser = operations.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if logged:
            parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the history")
        return parser

    names = "name, URI, notation, other or former name"
    rename = operation("rename", "Give a label another name.")
    rename.add_argument("old", metavar="LABEL", help=names)
    rename.add_argument("new", metavar="NAME")
    merge = operation("merge", "Predict one label in place of several, with the highest of their scores.")
    merge.add_argument("labels", nargs="+", metavar="LABEL", help=f"{names}; or several, separated by commas")
    merge.add_argument("--into", required=True, metavar="LABEL", help="the label that remains, or a new name")
    for name, summary in (
        ("retire", "Predict labels no longer: the best of the others are returned."),
        ("restore", "Predict labels again that were retired or merged."),
    ):
        operation(name, summary).add_argument("labels", nargs="+", metavar="LABEL", help=names)
    add_labels = operation("add", "Add labels, which are predicted by their names and descriptions until there are samples.")
    add_labels.add_argument("--texts", metavar="DATA", help="texts with the new labels: similar texts get them, too")
    diff = operation("diff", "Show what a new version of a vocabulary would change.", logged=False)
    sync = operation("sync", "Apply a new version of a vocabulary: rename, retire, add, update.")
    for parser in (add_labels, diff, sync):
        parser.add_argument("vocabulary", metavar="VOCABULARY", help="list of names, table (TSV, CSV) or SKOS")
        language = "language of the label names, such as fi (default: en, or the most frequent)"
        parser.add_argument("--vocabulary-language", metavar="CODE", help=language)
    summary = "Show the constraints of the model as JSON; with options, replace them; they hold for all predictions."
    constraints = operation("constraints", summary)
    constraints.add_argument("--clear", action="store_true", help="remove all constraints of the model")
    add_constraint_options(constraints)
    history = operation("history", "List the changes, oldest first.", logged=False)
    for parser in (diff, sync, history):
        parser.add_argument("--json", action="store_true", help="print JSON")
    export = operation("export", "Write the labels that are predicted, for other programs.", logged=False)
    formats = "annif: the CSV file that `annif load-vocab` reads"
    export.add_argument("--format", choices=("annif",), required=True, help=formats)
    export.add_argument("--language", default="en", metavar="CODE", help="language of the names (default: en)")
    export.add_argument("--out", metavar="FILE", help="write to a file (default: standard output)")
    operation("undo", "Undo the last change that was not undone yet.", logged=False)


def _add_service(add: _Add) -> None:
    serve = add("serve", "Serve saved taggers over HTTP, with a web page; until stopped with Ctrl-C or SIGTERM.")
    models = "folder of a saved model; NAME=FOLDER names it; the first is the default"
    serve.add_argument("models", nargs="*", metavar="MODEL", help=models)
    serve.add_argument("--port", type=int, metavar="N", help="port to listen on (default: 8000)")
    serve.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1, this machine only)")
    serve.add_argument("--config", metavar="FILE", help="TOML file with settings, and with models in the table [models]")
    tokens = "file with access tokens, one per line: scopes (predict, learn, admin; separated by commas) and the token"
    serve.add_argument("--token-file", metavar="FILE", help=tokens)
    serve.add_argument("--insecure", action="store_true", help="listen beyond this machine without access tokens")
    serve.add_argument("--open", action="store_true", help="open the page in a browser")
    serve.add_argument("--feedback", metavar="FOLDER", help="folder for feedback (default: feedback)")
    add_settings(serve, "one further setting, such as deadline=10 or max_texts=100; may be repeated")
    add_threads(serve)


def _add_data(add: _Add) -> None:
    check = add("check", "Check data: counts, label frequencies, suspicious samples, and what to do about them.")
    check.add_argument("data", metavar="DATA", help=DATA)
    check.add_argument("test", nargs="?", metavar="TEST", help="test data, to check for leakage")
    add_layout_options(check)

    prepare = add("prepare", "Prepare data larger than memory: shuffled, memory-mapped, with the features of a method.")
    prepare.add_argument("data", metavar="DATA", help=DATA)
    out = "folder to write to; after an interruption, the same command continues"
    prepare.add_argument("--out", required=True, metavar="FOLDER", help=out)
    method = "method, or method:preset+name=value…, whose features are computed (default: ovr)"
    prepare.add_argument("--method", default="ovr", metavar="SPEC", help=method)
    prepare.add_argument("--preset", metavar="NAME", help="named group of settings, see `longtail methods`")
    add_settings(prepare, "one setting, as in --method; may be repeated")
    memory = "memory to use, at least 0.4 (default: a quarter of what is free)"
    prepare.add_argument("--memory", type=float, metavar="GB", help=memory)
    add_seed_and_threads(prepare)
    add_layout_options(prepare)

    split = add("split", "Split data into training and test data; every label keeps its share, rare ones stay in training.")
    split.add_argument("data", metavar="DATA", help=DATA)
    split.add_argument("--test", type=float, default=0.2, metavar="SHARE", help="share of the test data (default: 0.2)")
    split.add_argument("--out", default=".", metavar="FOLDER", help="folder to write train and test to (default: .)")
    split.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="seed of the split (default: 0)")
    add_layout_options(split)
