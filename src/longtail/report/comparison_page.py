"""A comparison of methods as one self-contained HTML page: no network, no scripts, no external fonts."""

from __future__ import annotations

from pathlib import Path

from longtail.comparison.results import SIGNIFICANCE_LEVEL, Comparison, MethodResult
from longtail.html import escape
from longtail.metrics.ranking import RANKING_METRICS
from longtail.report.comparison import (
    BEST,
    COST_TITLES,
    EQUAL,
    LOWER_IS_BETTER,
    describe_set_target,
    format_cost,
    format_interval,
    format_set_metric,
    list_cost_titles,
    list_metrics,
    list_set_metrics,
    list_strong,
    rank_against_best,
    summarise,
)
from longtail.report.comparison_examples import render_disagreements
from longtail.report.comparison_figures import (
    render_calibration,
    render_precision,
    render_rare_labels,
    render_trade_offs,
    render_training,
)
from longtail.report.page_parts import break_long, render_html_table, render_method_cell, render_section

_STYLE = Path(__file__).with_name("page.css")


def render_page(result: Comparison) -> str:
    """The page as HTML, without scripts or external files."""
    parts = [_render_header(result)]
    if result.done:
        parts += [_render_accuracy(result), _render_sets(result), _render_costs(result)]
        parts += [render_trade_offs(result), render_precision(result), render_rare_labels(result)]
        parts += [render_calibration(result), render_training(result), render_disagreements(result)]
        parts += [_render_all_metrics(result)]
    parts += [_render_problems(result), _render_footer(result)]
    title = f"longtail: {len(result.results)} methods on {Path(result.facts['test']).name}"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{escape(title)}</title>\n<style>\n{_STYLE.read_text('utf-8')}</style>"
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body><main>\n{body}\n</main></body>\n</html>\n'


def _render_header(result: Comparison) -> str:
    """The summary and the size of the data."""
    facts = result.facts
    samples = "texts" if facts["kind"] == "texts" else "samples"
    numbers = {
        f"training {samples}": f"{facts['n_train']:,}",
        f"test {samples}": f"{facts['n_test']:,}",
        "labels": f"{facts['n_labels']:,}",
        f"labels per {samples[:-1]}": f"{facts['labels_per_sample']:.1f}",
        "methods": f"{len(result.results)}",
    }
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in numbers.items())
    lead, *more = summarise(result)
    day = f" · {escape(facts['date'])}" if facts["date"] else ""
    return f"""<header>
<p class="eyebrow">longtail compare{day}</p>
<h1>{break_long(lead)}</h1>
<p class="lead">{break_long(" ".join(more))}</p>
<dl class="tiles">{tiles}</dl>
</header>"""


def _render_metric(entry: MethodResult, metric: str) -> str:
    """A value with its interval, marked if it is the best or not significantly worse."""
    kind = rank_against_best(entry, metric)
    if kind == BEST:
        tip = "the best"
    else:
        pair = entry.behind[metric]
        tip = f"{pair.difference:.2f} behind the best, p = {pair.p_value:.4f}"
    mark = '<span class="equal">≈</span>' if kind == EQUAL else ""
    value = f"{mark}<b>{entry.values[metric]:.2f}</b><small>{format_interval(entry, metric)}</small>"
    return f'<td class="{kind}" title="{tip}">{value}</td>'


def _render_accuracy(result: Comparison) -> str:
    """The table of metrics."""
    metrics = list_metrics(result.ks)
    rows = [render_method_cell(result, e) + "".join(_render_metric(e, m) for m in metrics) for e in result.done]
    words = (
        '<b class="pill">Bold on colour</b> is the best of a column; <span class="equal">≈</span> is not significantly '
        f"worse (paired randomisation test, p ≥ {SIGNIFICANCE_LEVEL:g}). Small numbers are 95 % confidence intervals. All "
        "values are percentages. PSP (propensity-scored precision) counts rare labels more."
    )
    return render_section("Accuracy", words, render_html_table("Accuracy", ["method", *metrics], rows))


def _render_sets(result: Comparison) -> str:
    """The metrics of the sets of labels; the best of the F1 scores are marked."""
    metrics = list_set_metrics(result)
    best = {name: max(e.values[name] for e in result.done) for name in metrics if name.endswith("F1")}
    rows = []
    for e in result.done:
        marks = [BEST if len(result.done) > 1 and e.values[name] == best.get(name) else "" for name in metrics]
        texts = [format_set_metric(e, name) for name in metrics]
        cells = [f'<td class="{mark}"><b>{text}</b></td>' for mark, text in zip(marks, texts, strict=True)]
        rows.append(render_method_cell(result, e) + "".join(cells))
    table = render_html_table("Sets of labels", ["method", *metrics.values()], rows)
    return render_section("Sets of labels", escape(describe_set_target(result)), table)


def _render_costs(result: Comparison) -> str:
    """Time, memory and size."""
    rows, strong = [], list_strong(result)  # a baseline that is cheap and useless must not win
    for e in result.done:
        cells = []
        for name in COST_TITLES:
            every = [other.costs[name] for other in strong if name in other.costs]
            best = e in strong and every and e.costs.get(name) == (min(every) if name in LOWER_IS_BETTER else max(every))
            cells.append(f'<td class="{BEST if best and len(every) > 1 else ""}"><b>{escape(format_cost(e, name))}</b></td>')
        rows.append(render_method_cell(result, e) + "".join(cells))
    kind = "text" if result.facts["kind"] == "texts" else "sample"
    words = (
        f"Each method was trained and evaluated in a separate process. Latency: time to predict one {kind}, median (p50) "
        f"and 99th percentile (p99). {kind.capitalize()}s/s: all test data at once. Memory: peak of the process, with "
        "Python and the data, in training and in prediction. Size: on disk. The best value of a column is marked, among "
        "methods that are at least half as accurate as the best."
    )
    return render_section("Costs", words, render_html_table("Costs", ["method", *list_cost_titles(result)], rows))


def _render_all_metrics(result: Comparison) -> str:
    """Every metric at every k, with intervals."""
    tables = []
    for name in RANKING_METRICS:
        metrics = [f"{name}@{k}" for k in result.ks]
        rows = [render_method_cell(result, e) + "".join(_render_metric(e, m) for m in metrics) for e in result.done]
        tables.append(render_html_table(name, ["method", *metrics], rows))
    return f'<details><summary>All metrics</summary><div class="pair">{"".join(tables)}</div></details>'


def _render_problems(result: Comparison) -> str:
    """Failures and warnings."""
    failed = [(e.name, f"{e.description} failed: {e.failure}") for e in result.results if e.failure]
    warned = [(e.name, note) for e in result.done for note in e.notes]
    items = "".join(f"<li><b>{escape(name)}</b> {escape(text)}</li>" for name, text in [*failed, *warned])
    return f'<section class="problems"><h2>Failures and warnings</h2><ul>{items}</ul></section>' if items else ""


def _render_footer(result: Comparison) -> str:
    """Data, seed, threads and version."""
    facts = result.facts
    threads = f"threads: {facts['threads']}" if facts["threads"] else "all cores"
    return (
        f"<footer><p>Trained on {escape(facts['train'])}, evaluated on {escape(facts['test'])}; seed {facts['seed']}, "
        f"{escape(threads)}, longtail {escape(facts['longtail'])}. Propensities and label frequencies are those of the "
        "training data. p-values are not corrected for the number of comparisons. All values are in results.json, next to "
        "this page.</p></footer>"
    )
