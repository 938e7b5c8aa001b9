"""The section of the comparison page about disagreement: how often methods agree, and examples where they do not."""

from __future__ import annotations

from longtail.comparison.results import MAX_TRUE_LABELS, Comparison, Disagreement, Example
from longtail.html import escape
from longtail.report.comparison import join_words
from longtail.report.page_parts import (
    break_long,
    render_html_table,
    render_method_cell,
    render_name,
    render_number,
    render_section,
)


def render_disagreements(result: Comparison) -> str:
    """How often two methods agree, and examples where they do not."""
    if len(result.done) < 2:
        return ""
    rows = []
    for entry, shares in zip(result.done, result.agreement, strict=True):
        cells = "".join(
            '<td class="heat">–</td>' if other is entry else f'<td class="heat" style="--v:{share:.0f}%">{share:.0f}</td>'
            for other, share in zip(result.done, shares, strict=True)
        )
        rows.append(render_method_cell(result, entry) + cells)
    header = ["same first label, %", *(render_number(result, e) for e in result.done)]
    table = render_html_table("Samples with the same first label, in percent", header, rows)
    kind = "text" if result.facts["kind"] == "texts" else "sample"
    words = (
        f"For how many {kind}s two methods predict the same first label; then {kind}s whose first label only some methods "
        "predict correctly, of those that are at least half as accurate as the best."
    )
    groups = "".join(_render_group(result, group) for group in result.disagreements)
    return render_section("Disagreement", words, table, groups)


def _render_group(result: Comparison, group: Disagreement) -> str:
    """Examples that the same methods predict correctly. The title names the methods of the smaller side."""
    if len(group.right) <= len(group.wrong):
        title = f"Only {join_words(group.right)} right"
    else:
        title = f"Only {join_words(group.wrong)} wrong"
    kind = "texts" if result.facts["kind"] == "texts" else "samples"
    count = f"{group.n_samples:,} of {result.facts['n_test']:,} {kind}"
    cards = "".join(_render_example(result, example) for example in group.examples)
    return f'<h3 class="group">{break_long(title)} <small>{count}</small></h3><div class="cards">{cards}</div>'


def _render_example(result: Comparison, example: Example) -> str:
    """A text, its labels, and the predictions of each method."""
    text = (
        f"<blockquote>{escape(example.text)}</blockquote>"
        if example.text is not None
        else f"<p><b>Sample {example.number:,}</b></p>"
    )
    more = len(example.true) - MAX_TRUE_LABELS
    true = "".join(f"<li>{escape(label)}</li>" for label in example.true[:MAX_TRUE_LABELS])
    true += f"<li>… {more} more</li>" if more > 0 else ""
    rows = [f'<div><dt>true labels</dt><dd><ul class="chips">{true}</ul></dd></div>']
    for entry in [entry for entry in result.done if entry.name in example.first]:
        chips = "".join(
            f'<li class="right"><span aria-label="right">✓</span> {escape(label)}</li>'
            if right
            else f"<li>{escape(label)}</li>"
            for label, right in example.first[entry.name]
        )
        rows.append(f'<div><dt>{render_name(result, entry)}</dt><dd><ul class="chips">{chips}</ul></dd></div>')
    return f'<article>{text}<dl class="said">{"".join(rows)}</dl></article>'
