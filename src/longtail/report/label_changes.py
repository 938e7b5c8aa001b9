"""What a vocabulary changes in the labels of a tagger, as text."""

from __future__ import annotations

from collections.abc import Iterator

from longtail.printable import make_cell
from longtail.tagger.vocabulary_diff import VocabularyDiff

_N_UNTRAINED = 20  # labels that need training and do not change, in the table


def render_diff(diff: VocabularyDiff) -> str:
    """Render the number of labels of each kind, then a tab-separated table with a row for each label that changes."""
    counts = "\n".join(f"{name.replace('_', ' '):<16}{n:>8,}" for name, n in diff.counts.items())
    rows = "\n".join("\t".join(make_cell(" ".join(cell.split())) for cell in row) for row in _list_rows(diff))
    return f"{counts}\n\nchange\tlabel\tdetails\n{rows}" if rows else counts


def _list_rows(diff: VocabularyDiff) -> Iterator[tuple[str, str, str]]:
    for old, new in diff.renamed:
        yield "renamed", old, new
    for label, former, present in diff.moved:
        yield "moved", label, f"{'; '.join(former) or 'no parent'} -> {'; '.join(present) or 'no parent'}"
    untrained = set(diff.needs_training)
    for kind, names in (("gone", diff.gone), ("new", diff.new), ("restored", diff.restored)):
        for name in names:
            yield kind, name, "needs training" if name in untrained else ""
    for label, what in diff.updated:
        yield "updated", label, ", ".join(what)
    listed = {*diff.new, *diff.restored}
    others = [name for name in diff.needs_training if name not in listed]
    for name in others[:_N_UNTRAINED]:
        yield "needs training", name, ""
    if len(others) > _N_UNTRAINED:
        yield "needs training", f"… and {len(others) - _N_UNTRAINED:,} more", ""
