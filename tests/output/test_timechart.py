from __future__ import annotations

import math
import re
from datetime import date
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.answers.timelines import EVENT_LANES, LINE_CHARTS
from planner.output.blocks import Marker, Series, TimeChart
from planner.output.html import blocks_html
from planner.output.scales import log_ticks, nice_ticks
from planner.output.svg import FULL, OFF_THE_CHART

START = date(2026, 1, 1)


def drawn(shown: TimeChart) -> str:
    return blocks_html([shown])


def chart(**changes: object) -> TimeChart:
    series = [Series(name="h200", points=[(15, 0.0), (45, 5.0), (75, 10.0)], colour=0)]
    arguments: dict[str, object] = {
        "key": "k", "title": "T", "summary": "S", "unit": "usd", "start": START, "days": 90.0, "series": series,
        **changes,
    }  # fmt: skip
    return TimeChart(**arguments)  # type: ignore[arg-type]


def path_of(markup: str, css: str) -> list[tuple[float, float]]:
    (found,) = re.findall(rf'<path d="([^"]*)" class="{css}">', markup)
    return [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+),([-\d.]+)", found)]


def test_a_line_lies_where_its_values_are() -> None:
    points = path_of(drawn(chart()), "line")
    high = 10.0 * 1.05
    assert [x for x, _ in points] == [15, 45, 75]
    assert [y for _, y in points] == pytest.approx(
        [FULL * (1 - v / high) for v in (0, 5, 10)], abs=0.1
    )


def test_a_logarithmic_line_puts_equal_ratios_at_equal_distances() -> None:
    line = Series(name="a", points=[(1, 0.1), (2, 1.0), (3, 10.0)], colour=0)
    ys = [y for _, y in path_of(drawn(chart(series=[line], logarithmic=True)), "line")]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)


def test_layers_lie_on_one_another() -> None:
    layers = [
        Series(name=name, points=[(1, 1.0), (2, 3.0)], colour=i) for i, name in enumerate("ab")
    ]
    markup = drawn(chart(series=layers, stacked=True))
    rings = re.findall(r'<path d="([^"]*)Z" class="layer">', markup)
    edges = [[float(y) for y in re.findall(r",([-\d.]+)", ring)] for ring in rings]
    assert edges[0][:2] == edges[1][2:][::-1]  # the top of one is the bottom of the next


def test_each_number_stands_in_its_month() -> None:
    owned = Series(name="owned", points=[(15, 1.0), (45, 2.0), (75, 3.0)], colour=0)
    delivered = Series(name="delivered in March", points=[(75, 9.0)], colour=1)
    markup = drawn(chart(series=[delivered, owned], unit="nodes"))
    (body,) = re.findall(r"<tbody>(.*?)</tbody>", markup, re.DOTALL)
    rows = [re.findall(r">([^<>\n]*)</t[hd]>", row) for row in body.split("<tr>")[1:]]
    assert rows == [["2026-01", "", "1"], ["2026-02", "", "2"], ["2026-03", "9", "3"]]


def test_a_band_lies_around_its_line() -> None:
    line = Series(
        name="a",
        points=[(1, 2.0), (2, 2.0)],
        bands=[([(1, 1.0), (2, 1.5)], [(1, 3.0), (2, 4.0)])],
        colour=0,
    )
    band = [y for _, y in path_of(drawn(chart(series=[line])), "band")]
    (y, *_) = [y for _, y in path_of(drawn(chart(series=[line])), "line")]
    assert min(band) < y < max(band)


def test_what_costs_any_amount_leaves_the_chart_before_it_flattens_the_rest() -> None:
    lines = [
        Series(name="a", points=[(1, 1e6)], colour=0),
        Series(name="fleet", points=[(1, 1.0)], colour=-1),
    ]
    markup = drawn(chart(series=lines, logarithmic=True))
    (high,) = re.findall(r'data-high="([^"]+)"', markup)
    assert float(high) == pytest.approx(math.log10(OFF_THE_CHART) + 0.05)


def test_events_have_a_lane_for_each_kind() -> None:
    happened = [
        Marker(kind="delivery", start=3, end=3, label="<b>came</b>"),
        Marker(kind="outage", start=5, end=9.5, label="gone"),
    ]
    markup = drawn(chart(markers=happened))
    assert markup.count('class="event e-delivery"') == 1
    assert markup.count('class="event e-outage"') == 1
    assert 'width="4.5"' in markup
    assert "<b>came" not in markup
    assert "&lt;b&gt;came" in markup


def test_a_kind_of_event_has_the_same_colour_whatever_lies_above_it_and_a_missed_slo_target_is_red() -> (
    None
):
    css = (files("planner.output") / "templates" / "report.css").read_text(encoding="utf-8")
    colour = dict(re.findall(r"\.e-(\w+)[^{]*\{ fill: var\((--\w+)\)", css))
    assert colour["missed"] == "--c6"
    assert colour["delivery"] != colour["missed"] != colour["outage"]
    # Retired and software share a rule.
    assert set(EVENT_LANES.values()) - {"software"} < set(colour)
    broken = [
        Marker(kind="missed", start=1, end=2, label="broken"),
        Marker(kind="delivery", start=3, end=3, label="a"),
    ]
    markup = drawn(chart(markers=broken))
    assert markup.count('class="event e-missed"') == markup.count('class="event e-delivery"') == 1


def test_the_numbers_are_there_as_a_table_too() -> None:
    markup = drawn(chart())
    assert "<caption>T, the numbers</caption>" in markup
    assert [
        row for row in ("2026-01", "2026-02", "2026-03") if f'scope="row">{row}<' in markup
    ] == [
        "2026-01",
        "2026-02",
        "2026-03",
    ]


@pytest.mark.parametrize("series", [[], [Series(name="a", points=[(1, None)], colour=0)]])
@pytest.mark.parametrize("logarithmic", [True, False])
def test_nothing_to_draw_is_no_error(series: list[Series], logarithmic: bool) -> None:
    assert "<figure" in drawn(chart(series=series, logarithmic=logarithmic))


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_few_even_and_inside(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    assert len(ticks) <= 12
    slack = 1e-6 * max(abs(low), span)
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)


@given(st.floats(-6, 6), st.floats(0.3, 8))
def test_logarithmic_ticks_are_round(low: float, span: float) -> None:
    for tick in log_ticks(low, low + span):
        mantissa = 10 ** (tick - math.floor(tick + 1e-9))
        assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 1e-6


@pytest.mark.parametrize("days", [5.0, 31.0, 365.0, 1096.0, 7300.0])
def test_the_dates_below_are_at_most_a_dozen(days: float) -> None:
    labels = re.findall(r'class="xtick">([^<]+)<', drawn(chart(days=days)))
    assert 1 <= len(labels) <= 13
    assert labels == sorted(set(labels))


def test_line_charts_are_of_clusters_or_workloads() -> None:
    other = [
        key for key, chart in LINE_CHARTS.items() if chart.names not in ("cluster", "workload")
    ]
    assert not other, (
        f"planner/answers/line_charts.csv: of is neither cluster nor workload: {other}"
    )
