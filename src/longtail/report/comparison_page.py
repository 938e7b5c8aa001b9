"""A comparison of methods as one HTML page that needs nothing else: no network, no script, no font of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from longtail.compare.results import CHANCE, MOST_TRUE, Comparison, Entry, Example, Group, pareto
from longtail.report.charts import COLOURS, Line, Point, bars, lines, scatter
from longtail.report.comparison import (
    BEST,
    COST_TITLES,
    EQUAL,
    LOWEST_BEST,
    cost_titles,
    digits,
    interval,
    joined,
    shown_cost,
    shown_metrics,
    shown_slices,
    standing,
    summary,
)

STYLE = Path(__file__).with_name("page.css")
RANKED = ("P", "nDCG", "recall", "PSP", "PSnDCG")
SEEN = {"head": "100 training samples or more", "torso": "10–99 training samples", "tail": "1–9 training samples"}


def comparison_page(result: Comparison) -> str:
    """The whole page."""
    parts = [header(result)]
    if result.done:
        parts += [accuracy(result), costs(result), trade_offs(result), depth(result), rare_labels(result)]
        parts += [training(result), disagreement(result), all_figures(result)]
    parts += [problems(result), footer(result)]
    title = f"longtail: {len(result.entries)} methods on {Path(result.facts['test']).name}"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{escape(title)}</title>\n<style>\n{STYLE.read_text('utf-8')}</style>"
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body><main>\n{body}\n</main></body>\n</html>\n'


def header(result: Comparison) -> str:
    """What was compared, on what, and what came out."""
    facts = result.facts
    samples = "texts" if facts["kind"] == "texts" else "samples"
    numbers = {
        f"training {samples}": f"{facts['n_train']:,}",
        f"test {samples}": f"{facts['n_test']:,}",
        "labels": f"{facts['n_labels']:,}",
        f"labels per {samples[:-1]}": f"{facts['labels_per_sample']:.1f}",
        "methods": f"{len(result.entries)}",
    }
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in numbers.items())
    lead, *more = summary(result)
    day = f" · {escape(facts['date'])}" if facts["date"] else ""
    return f"""<header>
<p class="eyebrow">longtail compare{day}</p>
<h1>{escape(lead)}</h1>
<p class="lead">{escape(" ".join(more))}</p>
<dl class="tiles">{tiles}</dl>
</header>"""


def section(title: str, words: str, *content: str) -> str:
    """A heading, a sentence on how to read what follows, and what follows."""
    return f"<section><h2>{escape(title)}</h2>\n<p>{words}</p>\n" + "\n".join(content) + "\n</section>"


def figure(title: str, content: str, words: str = "") -> str:
    """A chart with its caption."""
    note = f"<p>{words}</p>" if words else ""
    return f"<figure><figcaption><h3>{escape(title)}</h3>{note}</figcaption>\n{content}</figure>"


def grid_table(caption: str, header: Sequence[str], rows: Sequence[str]) -> str:
    """A table that scrolls by itself where it is too wide."""
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def method_cell(result: Comparison, entry: Entry) -> str:
    """The name of a method with its colour, and what it is if the name does not say it."""
    what = "" if entry.what == entry.name else f"<small>{escape(entry.what)}</small>"
    return f'<th scope="row"><span class="key s{number_of(result, entry)}"></span>{escape(entry.name)}{what}</th>'


def number_of(result: Comparison, entry: Entry) -> int:
    """Which of the colours a method has."""
    return result.entries.index(entry) % COLOURS


def metric_cell(entry: Entry, metric: str) -> str:
    """A figure with its interval and how it stands to the best."""
    kind = standing(entry, metric)
    if kind == BEST:
        tip = "the best"
    else:
        pair = entry.behind[metric]
        tip = f"{pair.difference:.2f} behind the best, p = {pair.p_value:.4f}"
    mark = '<span class="equal">≈</span>' if kind == EQUAL else ""
    value = f"{mark}<b>{entry.values[metric]:.2f}</b><small>{interval(entry, metric)}</small>"
    return f'<td class="{kind}" title="{tip}">{value}</td>'


def accuracy(result: Comparison) -> str:
    """The table that answers most questions."""
    metrics = shown_metrics(result.ks)
    rows = [method_cell(result, e) + "".join(metric_cell(e, m) for m in metrics) for e in result.done]
    words = (
        '<b class="pill">Bold on colour</b> is the best of a column; <span class="equal">≈</span> may be as good: a paired '
        f"randomisation test finds that chance alone makes such a difference in {100 * CHANCE:.0f} % of cases or more. "
        "Small figures are 95 % intervals. All figures are percent."
    )
    return section("How good they are", words, grid_table("Accuracy", ["method", *metrics], rows))


def costs(result: Comparison) -> str:
    """What each takes to train and to use."""
    rows = []
    for e in result.done:
        cells = []
        for name in COST_TITLES:
            every = [other.costs[name] for other in result.done if name in other.costs]
            best = every and e.costs.get(name) == (min(every) if name in LOWEST_BEST else max(every))
            cells.append(f'<td class="{BEST if best and len(every) > 1 else ""}"><b>{escape(shown_cost(e, name))}</b></td>')
        rows.append(method_cell(result, e) + "".join(cells))
    kind = "text" if result.facts["kind"] == "texts" else "sample"
    words = (
        f"Each method was trained and measured in a process of its own. One {kind} at a time: the median (p50) and the "
        f"slowest of a hundred (p99). {kind.capitalize()}s/s: all test data at once. Memory: the most that the process "
        "held, with Python and the data."
    )
    return section("What they cost", words, grid_table("Costs", ["method", *cost_titles(result)], rows))


def trade_offs(result: Comparison) -> str:
    """Accuracy against latency and against size."""
    plots = []
    for name, title, axis in (
        ("p50", "Accuracy and latency", "milliseconds for one text (median, logarithmic)"),
        ("size", "Accuracy and size", "megabytes on disk (logarithmic)"),
    ):
        if result.facts["kind"] != "texts":
            axis = axis.replace("text", "sample")
        done = [e for e in result.done if name in e.costs]
        points = []
        for e in done:
            low, high = e.intervals[result.main]
            tip = f"{e.name}: {result.main} {e.values[result.main]:.2f} [{low:.1f}, {high:.1f}], {shown_cost(e, name)}"
            points.append(Point(e.name, e.costs[name], e.values[result.main], low, high, result.entries.index(e), tip))
        front = pareto([p.x for p in points], [p.y for p in points])
        tells = f"On the front: {joined([points[i].name for i in front])}."
        plot = scatter(f"{title}. {tells}", points, front, axis, f"{result.main}, %", digits)
        plots.append(figure(title, plot, escape(tells)))
    words = (
        "Up and to the left is better. The line is the Pareto front: the best that can be had at each cost. Filled marks "
        "are on it; for a hollow one, another method is at least as good at no higher cost. Bars are 95 % intervals."
    )
    return section("What accuracy costs", words, f'<div class="pair">{"".join(plots)}</div>')


def depth(result: Comparison) -> str:
    """Precision over k."""
    series = [
        Line(e.name, [[(float(k), value) for k, value in enumerate(e.curve, 1)]], result.entries.index(e))
        for e in result.done
    ]
    chart = lines("Precision at k for k from 1 to 10", series, "k: labels that are shown", "P@k, %", size=(660.0, 380.0))
    words = "The share of right labels among the first k. It falls where fewer than k labels are true, for every method."
    return section("How far down the list stays right", words, figure("Precision over k", chart))


def rare_labels(result: Comparison) -> str:
    """Recall by label frequency."""
    deepest = f"recall@{max(result.ks)}"
    panels = []
    slices = shown_slices(result.done[0])
    for name in slices:
        rows = [(e.name, e.slices[name][deepest], number_of(result, e)) for e in result.done]
        part = result.done[0].slices[name]
        words = f"{part['labels']:,} labels with {SEEN[name]}; {part['true']:,} times true in the test data"
        chart = bars(
            f"{deepest} of {name} labels", rows, most=max(e.slices[s][deepest] for e in result.done for s in slices)
        )
        panels.append(figure(name.capitalize(), chart, escape(words)))
    words = f"How many percent of the true labels are among the first {max(result.ks)}, by how often training saw them."
    return section("Frequent and rare labels", words, f'<div class="grid">{"".join(panels)}</div>') if panels else ""


def training(result: Comparison) -> str:
    """Curves of the methods that learn in epochs."""
    panels = []
    for e in result.done:
        if not e.history:
            continue
        charts = []
        for key, title in (("metric", "held-out precision, %"), ("loss", "loss")):
            segments = segments_of(e.history, key)
            if segments:
                line = Line("", segments, result.entries.index(e))
                name = f"{title} of {e.name} by epoch"
                charts.append(lines(name, [line], "epoch", title, size=(430.0, 230.0), from_zero=False, marked=False))
        seconds = sum(row.get("seconds", 0.0) for row in e.history)
        words = f"{len(e.history)} epochs, {seconds:,.0f} s"
        panels.append(figure(e.name, f'<div class="pair">{"".join(charts)}</div>', escape(words)))
    words = (
        "Methods that learn in epochs: precision (mean of P@1, P@3 and P@5) on samples held out from the training data, and "
        "the loss. A line begins anew where a method trains several parts."
    )
    return section("How they learned", words, *panels) if panels else ""


def segments_of(history: Sequence[dict[str, float]], key: str) -> list[list[tuple[float, float]]]:
    """The values of an epoch's row over all epochs; a new segment where epochs are counted anew.

    >>> segments_of([{"epoch": 1, "loss": 3}, {"epoch": 2, "loss": 2}, {"epoch": 1, "loss": 5}], "loss")
    [[(1.0, 3), (2.0, 2)], [(3.0, 5)]]
    """
    out: list[list[tuple[float, float]]] = []
    before = 0.0
    for number, row in enumerate(history, 1):
        if key in row:
            if not out or row["epoch"] <= before:
                out.append([])
            out[-1].append((float(number), row[key]))
        before = row["epoch"]
    return out


def disagreement(result: Comparison) -> str:
    """How often two methods say the same, and examples where they do not."""
    names = [e.name for e in result.done]
    if len(names) < 2:
        return ""
    rows = []
    for entry, shares in zip(result.done, result.agreement, strict=True):
        cells = "".join(
            '<td class="heat">–</td>'
            if other == entry.name
            else f'<td class="heat" style="--v:{share:.0f}%">{share:.0f}</td>'
            for other, share in zip(names, shares, strict=True)
        )
        rows.append(method_cell(result, entry) + cells)
    table = grid_table("Samples with the same first label, in percent", ["same first label, %", *names], rows)
    words = "How often two methods give a text the same first label, then texts whose first label only some have right."
    if result.facts["kind"] != "texts":
        words = words.replace("text", "sample")
    groups = "".join(group_of(result, group) for group in result.groups)
    return section("Where they disagree", words, table, groups)


def group_of(result: Comparison, group: Group) -> str:
    """Examples that the same methods have right."""
    title = f"{joined(group.right)} right, {joined(group.wrong)} wrong"
    kind = "texts" if result.facts["kind"] == "texts" else "samples"
    count = f"{group.n_samples:,} of {result.facts['n_test']:,} {kind}"
    cards = "".join(example_card(result, example) for example in group.examples)
    return f'<h3 class="group">{escape(title)} <small>{count}</small></h3><div class="cards">{cards}</div>'


def example_card(result: Comparison, example: Example) -> str:
    """A text, its labels, and what each method said."""
    text = (
        f"<blockquote>{escape(example.text)}</blockquote>"
        if example.text is not None
        else f"<p><b>Sample {example.number:,}</b></p>"
    )
    more = len(example.true) - MOST_TRUE
    true = "".join(f"<li>{escape(label)}</li>" for label in example.true[:MOST_TRUE])
    true += f"<li>… {more} more</li>" if more > 0 else ""
    rows = [f'<div><dt>true</dt><dd><ul class="chips">{true}</ul></dd></div>']
    for entry in [entry for entry in result.done if entry.name in example.first]:
        chips = "".join(
            f'<li class="right"><span aria-label="right">✓</span> {escape(label)}</li>'
            if right
            else f"<li>{escape(label)}</li>"
            for label, right in example.first[entry.name]
        )
        key = f'<span class="key s{number_of(result, entry)}"></span>'
        rows.append(f'<div><dt>{key}{escape(entry.name)}</dt><dd><ul class="chips">{chips}</ul></dd></div>')
    return f'<article>{text}<dl class="said">{"".join(rows)}</dl></article>'


def all_figures(result: Comparison) -> str:
    """Every ranking metric at every k, with intervals."""
    tables = []
    for name in RANKED:
        metrics = [f"{name}@{k}" for k in result.ks]
        rows = [method_cell(result, e) + "".join(metric_cell(e, m) for m in metrics) for e in result.done]
        tables.append(grid_table(name, ["method", *metrics], rows))
    return f'<details><summary>All figures</summary><div class="pair">{"".join(tables)}</div></details>'


def problems(result: Comparison) -> str:
    """What went wrong."""
    failed = [(e.name, f"{e.what} failed: {e.failure}") for e in result.entries if e.failure]
    warned = [(e.name, note) for e in result.done for note in e.notes]
    items = "".join(f"<li><b>{escape(name)}</b> {escape(text)}</li>" for name, text in [*failed, *warned])
    return f'<section class="problems"><h2>What went wrong</h2><ul>{items}</ul></section>' if items else ""


def footer(result: Comparison) -> str:
    """How it was measured."""
    facts = result.facts
    threads = f"threads: {facts['threads']}" if facts["threads"] else "all cores"
    return (
        f"<footer><p>Learned from {escape(facts['train'])}, measured on {escape(facts['test'])}; seed {facts['seed']}, "
        f"{escape(threads)}, longtail {escape(facts['longtail'])}. Propensities and label frequencies are those of the "
        "training data. "
        "p-values are of single comparisons with the best and not corrected for their number. "
        "All figures are in results.json beside this page.</p></footer>"
    )
