"""Parts of the comparison page: sections, figures, tables, and the names of methods with their number and colour.

A method has the same number and colour in every table and chart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from longtail.comparison.results import Comparison, MethodResult
from longtail.html import escape
from longtail.report.charts import N_COLOURS

_MAX_LABEL, _MAX_LABELLED = 14, 6  # characters of a name, and methods, up to which charts show names instead of numbers


def render_section(title: str, words: str, *content: str) -> str:
    """A heading, how to read the content, and the content."""
    return f"<section><h2>{escape(title)}</h2>\n<p>{words}</p>\n" + "\n".join(content) + "\n</section>"


def render_figure(title: str, content: str, words: str = "") -> str:
    """A chart with its caption."""
    note = f"<p>{words}</p>" if words else ""
    return f"<figure><figcaption><h3>{break_long(title)}</h3>{note}</figcaption>\n{content}</figure>"


def render_html_table(caption: str, header: Sequence[str], rows: Sequence[str]) -> str:
    """A table that scrolls if it is too wide.

    :param header: Titles of the columns, as HTML.
    :param rows: The cells of each row, as HTML.
    """
    titles = "".join(f'<th scope="col">{title}</th>' for title in header)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def render_method_cell(result: Comparison, entry: MethodResult) -> str:
    """The first cell of a row: the name of a method, and its spec if that is not the name."""
    spec = "" if entry.description == entry.name else f"<small>{break_long(entry.description)}</small>"
    return f'<th scope="row">{render_name(result, entry, spec)}</th>'


def render_name(result: Comparison, entry: MethodResult, more: str = "") -> str:
    """The number of a method in its colour, and its name."""
    return f'<span class="who">{render_number(result, entry)}<span>{break_long(entry.name)}{more}</span></span>'


def render_number(result: Comparison, entry: MethodResult) -> str:
    """The number of a method in its colour."""
    index = result.results.index(entry)
    return f'<span class="key s{index % N_COLOURS}" title="{escape(entry.name)}">{index + 1}</span>'


def render_legend(result: Comparison) -> str:
    """The methods with their numbers; empty if charts show names."""
    if _has_short_names(result):
        return ""
    return '<ul class="legend">' + "".join(f"<li>{render_name(result, e)}</li>" for e in result.done) + "</ul>"


def choose_label(result: Comparison, entry: MethodResult) -> str:
    """The label of a method in charts: its name if all names are short, or its number."""
    return entry.name if _has_short_names(result) else str(result.results.index(entry) + 1)


def _has_short_names(result: Comparison) -> bool:
    return len(result.done) <= _MAX_LABELLED and all(len(e.name) <= _MAX_LABEL for e in result.done)


def break_long(text: str) -> str:
    """Text as HTML in which long specs may break after a separator.

    >>> break_long("plt+beam=50 & more")
    'plt+<wbr>beam=50 &amp; more'
    """
    return re.sub(r"(?<=\S)([+,/])(?=\S)", r"\1<wbr>", escape(text))
