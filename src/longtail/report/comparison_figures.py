"""Sections of the comparison page with charts: trade-offs, precision at k, rare labels, training."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.comparison.results import Comparison, find_pareto_front
from longtail.html import escape
from longtail.report.charts import N_COLOURS, ChartLine, ChartPoint, draw_lines, draw_reliability, draw_scatter
from longtail.report.comparison import (
    format_cost,
    format_number,
    join_words,
    list_calibrated,
    list_errors,
    list_slices,
    list_strong,
)
from longtail.report.page_parts import (
    break_long,
    choose_label,
    render_figure,
    render_html_table,
    render_legend,
    render_method_cell,
    render_name,
    render_section,
)

_SLICE_TITLES = {"head": "100 training samples or more", "torso": "10–99 training samples", "tail": "1–9 training samples"}


def render_trade_offs(result: Comparison) -> str:
    """Accuracy against latency and against size."""
    kind = "text" if result.facts["kind"] == "texts" else "sample"
    plots = [
        _render_trade_off(result, "p50", "Accuracy and latency", f"milliseconds for one {kind} (median, log scale)"),
        _render_trade_off(result, "size", "Accuracy and size", "megabytes on disk (log scale)"),
    ]
    words = (
        "Up and to the left is better. The line is the Pareto front: the best accuracy at each cost. Filled marks are on "
        "it, hollow ones are not: another method is at least as accurate at no higher cost, or the method is less than half "
        "as accurate as the best. Vertical bars are 95 % confidence intervals. An arrow: the point lies outside the chart."
    )
    return render_section("Accuracy and cost", words, f'<div class="pair">{"".join(plots)}</div>', render_legend(result))


def _render_trade_off(result: Comparison, cost: str, title: str, axis: str) -> str:
    """Accuracy against a cost, with the Pareto front of the methods that are not mere baselines."""
    metric, points = result.main_metric, []
    done = [e for e in result.done if cost in e.costs]
    for e in done:
        low, high = e.intervals[metric]
        tip = f"{e.name}: {metric} {e.values[metric]:.2f} [{low:.1f}, {high:.1f}], {format_cost(e, cost)}"
        series = result.results.index(e)
        points.append(ChartPoint(choose_label(result, e), e.costs[cost], e.values[metric], low, high, series, tip))
    strong = [i for i, e in enumerate(done) if e in list_strong(result)]
    front = [strong[i] for i in find_pareto_front([points[i].x for i in strong], [points[i].y for i in strong])]
    caption = f"On the front: {join_words([done[i].name for i in front])}."
    plot = draw_scatter(f"{title}. {caption}", points, front, axis, f"{metric}, %", format_number)
    return render_figure(title, plot, break_long(caption))


def render_precision(result: Comparison) -> str:
    """Precision over k."""
    series = []
    for e in result.done:
        curve = [(float(k), value) for k, value in enumerate(e.precision_curve, 1)]
        series.append(ChartLine(choose_label(result, e), [curve], result.results.index(e), e.name))
    chart = draw_lines("Precision at k for k from 1 to 10", series, "k", "P@k, %")
    words = "The percentage of the first k labels that are true. It must fall where samples have fewer than k true labels."
    content = f'<div class="beside">{chart}{render_legend(result)}</div>'
    return render_section("Precision at k", words, render_figure("Precision over k", content))


def render_rare_labels(result: Comparison) -> str:
    """Recall by label frequency."""
    deepest = f"recall@{max(result.ks)}"
    slices = list_slices(result.done[0])
    most = max((e.slices[name][deepest] for e in result.done for name in slices), default=0.0)
    panels = []
    for name in slices:
        part = result.done[0].slices[name]
        words = f"{part['labels']:,} labels with {_SLICE_TITLES[name]}; {part['true']:,} occurrences in the test data"
        panels.append(render_figure(name.capitalize(), _render_bars(result, name, deepest, most), escape(words)))
    words = (
        f"{deepest}: the percentage of true labels that are among the first {max(result.ks)} predictions, by the number of "
        "training samples of the label."
    )
    return render_section("Frequent and rare labels", words, f'<div class="grid">{"".join(panels)}</div>') if panels else ""


def _render_bars(result: Comparison, slice_name: str, metric: str, most: float) -> str:
    """A bar for each method, below its name and with its value.

    :param most: The value of a full bar.
    """
    rows = []
    for e in result.done:
        value = e.slices[slice_name][metric]
        bar = f'<i class="s{result.results.index(e) % N_COLOURS}" style="--v:{100 * value / (most or 1.0):.1f}%"></i>'
        rows.append(f'<li>{render_name(result, e)}<span class="track">{bar}<b>{value:.1f}</b></span></li>')
    return f'<ul class="bars">{"".join(rows)}</ul>'


def render_calibration(result: Comparison) -> str:
    """Reliability, and the calibration error by label frequency, of the methods whose scores are probabilities."""
    entries, k = list_calibrated(result), max(result.ks)
    if not entries:
        return ""
    lines = []
    for e in entries:
        curve = [(one.predicted, one.observed) for one in e.reliability]
        lines.append(ChartLine(choose_label(result, e), [curve], result.results.index(e), e.name))
    title = f"Right labels by probability, of the first {k} labels"
    chart = draw_reliability(title, lines, "probability, %", "right, %")
    rows = []
    for e in entries:
        cells = "".join(f"<td><b>{error:.2f}</b></td>" for error in list_errors(e, k).values())
        rows.append(render_method_cell(result, e) + cells)
    table = render_html_table("Calibration error", ["method", *list_errors(entries[0], k)], rows)
    words = (
        f"Of the labels that get a probability of 70 %, 70 % should be right: the diagonal. Each dot is a twentieth of the "
        f"first {k} labels of all samples. ECE@{k}, the calibration error, is the mean distance of the dots from the "
        "diagonal in percentage points, of all labels and by the number of training samples of the label; lower is better."
    )
    content = f'<div class="beside">{chart}{table}</div>'
    return render_section("Probabilities", words, render_figure("Reliability", content))


def render_training(result: Comparison) -> str:
    """Training curves of neural methods."""
    panels = []
    for e in result.done:
        if not e.history:
            continue
        charts = []
        for key, title in (("metric", "held-out precision, %"), ("loss", "loss")):
            segments = split_segments(e.history, key)
            if segments:
                line = ChartLine("", segments, result.results.index(e), e.name)
                name = f"{title} of {e.name} by epoch"
                charts.append(draw_lines(name, [line], "epoch", title, height=230.0, from_zero=False, marked=False))
        seconds = sum(row.get("seconds", 0.0) for row in e.history)
        words = f"{len(e.history)} epochs, {seconds:,.0f} s"
        panels.append(render_figure(e.name, f'<div class="pair">{"".join(charts)}</div>', escape(words)))
    words = (
        "Precision (mean of P@1, P@3 and P@5) on samples held out from the training data, and the loss, by epoch. A line "
        "starts again where a method trains several parts."
    )
    return render_section("Training", words, *panels) if panels else ""


def split_segments(history: Sequence[dict[str, float]], key: str) -> list[list[tuple[float, float]]]:
    """The values of a key over all epochs; a new segment where epochs start again.

    >>> split_segments([{"epoch": 1, "loss": 3}, {"epoch": 2, "loss": 2}, {"epoch": 1, "loss": 5}], "loss")
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
