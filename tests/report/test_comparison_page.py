from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from longtail.comparison.results import Comparison, Disagreement, Example, MethodResult
from longtail.metrics.intervals import PairedDifference
from longtail.metrics.sets import SET_METRICS
from longtail.report import comparison_page
from longtail.report.axes import make_linear_axis, make_log_axis, spread_out
from longtail.report.charts import N_COLOURS, ChartPoint, draw_scatter
from longtail.report.comparison import render_comparison, summarise
from longtail.report.comparison_page import render_page

EVIL = '<script>alert("x")</script>'
VOID = {"meta", "br", "hr", "wbr", "img", "input", "link"}


class Checked(HTMLParser):
    """Every element that is opened is closed, in order; nothing is loaded."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe") and not {"src", "href"} & {name for name, _ in attributes}
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert self.open and "svg" in self.open

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def entry(name: str, value: float, behind: float = 0.0, p_value: float = 0.5, **costs: float) -> MethodResult:
    metrics = [f"{metric}@{k}" for metric in ("P", "nDCG", "recall", "PSP", "PSnDCG") for k in (1, 5)]
    return MethodResult(
        name,
        description=f"{name}, C=1",
        notes=["it has collapsed"] if name == EVIL else [],
        values=dict.fromkeys([*metrics, *SET_METRICS], value),
        intervals=dict.fromkeys(metrics, (value - 2, value + 2)),
        behind=dict.fromkeys(metrics, PairedDifference(behind, p_value)) if behind else {},
        slices={"head": {"labels": 2, "true": 9, "recall@5": value}, "tail": {"labels": 0, "true": 0, "recall@5": 0}},
        precision_curve=[value / k for k in range(1, 11)],
        costs={"p50": 1.0, "p99": 2.0, "throughput": 3.0, "memory": 4.0, "size": 5.0, **costs},
        history=[{"epoch": 1, "loss": 2.0, "metric": 30.0}, {"epoch": 2, "loss": 1.0, "metric": 40.0}],
    )


def result(texts: bool = True) -> Comparison:
    facts = {"train": "a&b.jsonl", "test": EVIL, "kind": "texts" if texts else "feature vectors", "n_train": 10, "n_test": 8}
    facts |= {"n_labels": 3, "labels_per_sample": 1.5, "seed": 0, "threads": None, "longtail": "1", "date": ""}
    entries = [
        entry(EVIL, 60.0, training=60.0),
        entry("small", 59.0, behind=1.0, p_value=0.4, size=1.0),
        entry("quick", 50.0, behind=10.0, p_value=0.001, p50=0.1),
        entry("floor", 5.0, behind=55.0, p_value=0.001, size=0.001),
        MethodResult("broken", "aplc", failure=f"no encoder {EVIL}"),
    ]
    first = {EVIL: [(EVIL, True)], "small": [("b", False)]}
    groups = [Disagreement([EVIL], ["small"], 3, [Example(7, EVIL if texts else None, [EVIL, "b"] * 10, first)])]
    return Comparison(facts, (1, 5), entries, [[100.0] * 4] * 4, groups)


@pytest.mark.parametrize("texts", [True, False])
def test_the_page_is_complete_self_contained_and_escaped(texts: bool) -> None:
    page = render_page(result(texts))
    count = Checked(page).count
    assert "<script" not in page and "http" not in page and "&lt;script&gt;" in page
    assert count["svg"] == 2 + 1 + 4 * 2  # costs, precision over k, training
    assert page.count('class="bars"') == 1  # the one slice with true labels
    assert count["article"] == 1 and ("Sample 7" in page) is not texts
    assert "Failures and warnings" in page and "no encoder" in page and "it has collapsed" in page and "… 8 more" in page


def test_a_page_of_failures_only() -> None:
    failed = Comparison(result().facts, (1, 5), [MethodResult("broken", "aplc", failure="why")], [], [])
    assert "svg" not in Checked(render_page(failed)).count
    assert render_comparison(failed).split("\n") == ["broken failed.", "", "broken failed: why"]


def test_the_summary() -> None:
    words = " ".join(summarise(result())).replace(EVIL, "best")
    assert words == (
        "best is best on P@1: the first label is right for 60 of 100 texts. "
        "small is not significantly worse and is 5.0 times smaller. "
        "quick is 10.0 points behind, but 10 times faster. floor is 55.0 points behind. broken failed."
    )


def test_the_summary_of_many_methods_stays_short() -> None:
    best = entry("best", 60.0, size=8.0)
    costs = {"a": {"size": 2.0}, "b": {"size": 8.0, "p50": 0.5}}
    equal = [entry(name, 59.0, behind=1.0, p_value=0.4, **cost) for name, cost in costs.items()]
    worse = [entry(f"w{i}", 50.0 - i, behind=10.0 + i, p_value=0.01) for i in range(4)]
    assert summarise(Comparison(result().facts, (1, 5), [best, *equal, *worse], [], []))[1:] == [
        "a and b are not significantly worse; a is 4.0 times smaller and b is 2.0 times faster.",
        "The other 4 are 10.0 to 13.0 points behind.",
    ]


def test_the_tables_mark_the_best_and_what_is_not_significantly_worse() -> None:
    text = render_comparison(result()).replace(EVIL, "best")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    accuracy = {row[0]: row[1] for row in rows if " – " in row[-1]}
    assert accuracy == {"best": "60.00 *", "small": "59.00 ≈", "quick": "50.00", "floor": "5.00"}
    training = {row[0]: row[1] for row in rows if row[-1].endswith("MB")}
    assert training == {"best": "1 min 0 s", "small": "–", "quick": "–", "floor": "–"}  # the others were not trained here


def test_methods_with_long_names_have_numbers_in_charts_and_full_names_in_a_legend() -> None:
    names = ["plt", "lightattention+epochs=4+word_dim=64", *(f"glas+dim={64 + i}" for i in range(8))]
    entries = [entry(name, 60.0 - i, behind=float(i)) for i, name in enumerate(names)]
    page = render_page(Comparison(result().facts, (1, 5), entries, [[100.0] * 10] * 10, []))
    legend = page.split('class="legend"')[1].split("</ul>")[0]
    assert "lightattention+<wbr>epochs=4+<wbr>word_dim=64" in legend and legend.count("<li>") == 10
    keys = re.findall(r'<span class="key s(\d+)" title="[^"]*">(\d+)</span>', legend)
    assert len({colour for colour, _ in keys}) == 10 <= N_COLOURS  # each method has its own colour
    assert [number for _, number in keys] == [str(i) for i in range(1, 11)]
    labels = set(re.findall(r'<text class="name"[^>]*>([^<]*)</text>', page))
    assert labels == {str(i) for i in range(1, 11)}


def test_every_series_has_a_different_colour_that_can_be_read_in_both_modes() -> None:
    light, dark = Path(comparison_page.__file__).with_name("page.css").read_text().split("prefers-color-scheme: dark")
    for style in (light, dark):
        colours = dict(re.findall(r"--(c\d+|card): #(\w+);", style))
        card = measure_luminance(colours.pop("card"))
        assert len(colours) == len(set(colours.values())) == N_COLOURS
        for colour in colours.values():
            low, high = sorted((card, measure_luminance(colour)))
            assert (high + 0.05) / (low + 0.05) >= 4.5  # the contrast of WCAG 2, level AA


def measure_luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it, of a colour with three or six hexadecimal digits."""
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_few_methods_with_short_names_need_no_legend() -> None:
    entries = [entry("plt", 60.0), entry("ovr", 59.0, behind=1.0)]
    page = render_page(Comparison(result().facts, (1, 5), entries, [[100.0] * 2] * 2, []))
    assert 'class="legend"' not in page
    assert set(re.findall(r'<text class="name"[^>]*>([^<]*)</text>', page)) == {"plt", "ovr"}


def test_a_baseline_never_wins_a_cost_and_is_never_on_the_front() -> None:
    page = render_page(result())
    costs = page.split("<h2>Costs</h2>")[1].split("</section>")[0]
    (floor,) = (row for row in costs.split("<tr>") if "floor" in row)
    assert 'class="best"' not in floor and 'class="best"' in costs  # although it is the smallest
    fronts = re.findall(r"On the front: ([^<]*)\.", page)
    assert fronts and not any("floor" in front for front in fronts)


def test_points_far_below_are_drawn_at_the_edge() -> None:
    points = [ChartPoint("high", 1.0, 80.0, 78.0, 82.0, 0, "a"), ChartPoint("low", 10.0, 4.0, 3.0, 5.0, 1, "b")]
    drawn = draw_scatter("title", points, [0], "x", "y", str)
    assert "low: 4.0 ↘" in drawn and drawn.count('class="error"') == 1
    assert drawn.count('class="mark"') == 1 and drawn.count('class="hollow"') == 1  # only the first is on the front


def test_axes_and_names_that_do_not_touch() -> None:
    scale, ticks = make_linear_axis(56.0, 66.0, 100.0, 0.0)
    assert ticks == [56, 58, 60, 62, 64, 66] and (scale(56), scale(66)) == (100, 0)
    scale, ticks = make_log_axis([0.1, 100.0], 0.0, 300.0)
    assert ticks == pytest.approx([0.1, 1, 10, 100]) and scale(1.0) == pytest.approx(100)
    scale, ticks = make_log_axis([5.0], 0.0, 100.0)
    assert scale(5.0) == pytest.approx(50) and ticks == [4, 6, 8]  # so narrow that there is no power of ten
    assert spread_out([95.0, 96.0, 99.0], 10, 0, 100) == [80, 90, 100]
