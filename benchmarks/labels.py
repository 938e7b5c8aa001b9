"""Changes of the labels of a saved tagger: seconds of each operation, reading and writing included, by number of labels.

    python benchmarks/labels.py --labels 50000

Also how long an error takes to suggest the most similar of 100,000 names (``--names``), which every unknown label needs.

The tagger is trained on synthetic texts; names, URIs, parents and other names are synthetic, too. The new version of the
vocabulary renames 1 % of the labels, moves 1 %, drops 1 % and adds 1 %.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import MB, Row, Stopwatch, make_parser, report, time_best

from longtail import Dataset, LabelEditor, Labels, Tagger, load
from longtail.data.vocabulary import format_vocabulary
from longtail.errors import suggest


def make_labels(n: int) -> Labels:
    """Make labels with URIs, parents and other names."""
    names = tuple(f"label number {i}" for i in range(n))
    parents = tuple((names[i // 10],) if i else () for i in range(n))
    uris = tuple(f"http://example.org/{i}" for i in range(n))
    return Labels(names, uris=uris, parents=parents, alt_names=tuple((f"other name {i}",) for i in range(n)))


def change_labels(labels: Labels, random: np.random.Generator) -> Labels:
    """Make the next version of a vocabulary."""
    n, few = len(labels), len(labels) // 100
    renamed, moved, dropped = random.permutation(np.arange(n // 2, n))[: 3 * few].reshape(3, few).tolist()
    names, parents = list(labels.names), list(labels.parents or ())
    for i in renamed:
        names[i] = f"renamed label {i}"
    for i in moved:
        parents[i] = (names[0],)
    kept = np.setdiff1d(np.arange(n), dropped).tolist()
    uris = [labels.uris[i] for i in kept] if labels.uris else []
    alt_names = [labels.alt_names[i] for i in kept] if labels.alt_names else []
    new = [f"new label {i}" for i in range(few)]
    return Labels(
        (*(names[i] for i in kept), *new),
        uris=(*uris, *(f"http://example.org/new/{i}" for i in range(few))),
        parents=(*(parents[i] for i in kept), *((names[0],) for _ in new)),
        alt_names=(*alt_names, *(() for _ in new)),
    )


def write_skos(labels: Labels, path: Path) -> None:
    """Write labels as Turtle."""
    skos = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    uri = dict(zip(labels.names, labels.uris or (), strict=True))
    lines = [
        f'<{uri[name]}> a skos:Concept ; skos:prefLabel "{name}"@en'
        + "".join(f" ; skos:broader <{uri[parent]}>" for parent in parents)
        + "".join(f' ; skos:altLabel "{other}"@en' for other in others)
        + " .\n"
        for name, parents, others in zip(labels.names, labels.parents or (), labels.alt_names or (), strict=True)
    ]
    path.write_text(skos + "".join(lines))


def measure(n_labels: int, folder: Path) -> list[Row]:
    """Time every operation on a saved tagger."""
    random = np.random.default_rng(0)
    labels = make_labels(n_labels)
    ids = np.arange(2 * n_labels, dtype=np.int32) % n_labels
    Y = sp.csr_array((np.ones(len(ids), np.float32), ids, np.arange(len(ids) + 1)), shape=(len(ids), n_labels))
    texts = [f"text about {labels.names[i]}" for i in ids]
    Tagger("popularity").fit(Dataset(Y, labels, texts=texts), progress=False).save(folder / "model")
    new = change_labels(labels, random)
    (folder / "new.tsv").write_text(format_vocabulary(new))
    write_skos(replace(new, alt_names=tuple((*other, "more") for other in new.alt_names or ())), folder / "new.ttl")
    (folder / "names.txt").write_text("".join(f"added label {i}\n" for i in range(n_labels // 100)))
    some = random.permutation(np.arange(n_labels // 2))[:1000].tolist()
    names = labels.names
    operations = {
        "rename one": lambda editor: editor.rename(names[some[0]], "another name"),
        "merge two": lambda editor: editor.merge([names[some[1]], names[some[2]]], into=names[some[1]]),
        "retire 500": lambda editor: editor.retire([names[i] for i in some[500:]]),
        "add 1 %": lambda editor: editor.add(folder / "names.txt"),
        "diff, TSV": lambda editor: editor.diff(folder / "new.tsv"),
        "sync, TSV": lambda editor: editor.sync(folder / "new.tsv"),
        "undo the sync": lambda editor: editor.undo(),
        "sync, SKOS (Turtle)": lambda editor: editor.sync(folder / "new.ttl"),
        "history": lambda editor: editor.history,
    }
    rows: list[Row] = []
    for name, operation in operations.items():
        before = {path.name for path in (folder / "model").iterdir()}
        with Stopwatch() as watch:
            operation(LabelEditor(folder / "model"))
        written = sum(p.stat().st_size for p in (folder / "model").iterdir() if p.name not in before)
        rows.append({"labels": n_labels, "operation": name, "CPU-s": watch.cpu, "new files MB": written / MB})
    with Stopwatch() as watch:
        load(folder / "model")
    return [*rows, {"labels": n_labels, "operation": "load the tagger", "CPU-s": watch.cpu}]


def measure_suggestions(n_names: int, repeat: int) -> list[Row]:
    """Time the suggestion of a similar name, for several wrong names. The names are random words, as many as in titles."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("aeiklmnorstu"), size)) for size in random.integers(3, 12, 5000)]
    names = [" ".join(words[i] for i in random.integers(0, len(words), random.integers(1, 4))) for _ in range(n_names)]
    right = next(name for name in names if len(name) > 12)
    rows: list[Row] = []
    for kind, wrong in {
        "two letters exchanged": right[:2] + right[3] + right[2] + right[4:],
        "nothing similar": "qqqq zzzz",
        "a very long name": " ".join(words[:50]),
    }.items():
        hint, _, cpu = time_best(repeat, lambda wrong=wrong: suggest(wrong, names))
        found = f'Did you mean "{right}"' in hint
        rows.append({"names": n_names, "wrong name": kind, "CPU-ms": 1e3 * cpu, "finds the name": found})
    return rows


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[5000, 50_000], help="numbers of labels (5000 50000)")
    parser.add_argument("--names", type=int, default=100_000, help="names to choose a suggestion from (100000)")
    args = parser.parse_args()
    rows = []
    for n_labels in args.labels:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(n_labels, Path(folder))
    suggestions = measure_suggestions(args.names, args.repeat)
    notes = [
        "Each change reads the bundle and writes what has changed; one thread",
        "Suggestions: the best of --repeat runs",
    ]
    report({"Changes of labels": rows, "Suggestions for a wrong name": suggestions}, notes, args.json)


if __name__ == "__main__":
    main()
