"""Charts over time as SVG: drawn here once, in the chart's own coordinates; the page's script only moves the window.

The marks lie in an inner ``svg`` whose viewBox is (days since start) × (0 to 1,000), stretched to whatever room there
is. So the chart is there without any script (a mail preview, a print), and zooming or a narrower screen is a change of
one attribute and of the labels around it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import date, timedelta

from planner.records import dataclass
from planner.reporting.picture import Area, Axis, Line, Mark, Panel
from planner.reporting.report.html import Html, details, macro, table, text
from planner.reporting.report.words import axis_label
from planner.reporting.scales import TOTAL, Points, Scale, outline, ring, shortened

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 260, 62, 10, 10, 26
LANE_HEIGHT = 16
FULL = 1000
OFF_THE_CHART = 30.0
"""A logarithmic chart shows up to so many times the highest value of the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, or one layer of a stack, over time."""

    name: str
    """What it shows; series of one name are shown and hidden together in all charts."""
    points: Points
    """(days since start, value), in time order; None leaves a gap."""
    colour: int
    """Index into the palette; −1 is the colour of text, for the whole."""
    fine: Points = ()
    """The same at a finer step, drawn faint behind."""
    bands: Sequence[tuple[Points, Points]] = ()
    """Lower and upper edges of bands around the line, the widest first."""

    @property
    def x_attribute(self) -> str:
        """The days as the page's script reads them."""
        return " ".join(shortened(x) for x, _ in self.points)

    @property
    def v_attribute(self) -> str:
        """The values as the page's script reads them."""
        return " ".join("-" if v is None else f"{v:.5g}" for _, v in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """An event on the lanes below a chart."""

    kind: str
    """Lane it lies on."""
    start: float
    """Days since start."""
    end: float
    """Days since start; the same as ``start`` for what takes no time."""
    label: str
    """What happened, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChart:
    """What a chart over time shows."""

    key: str
    """Identifier within the page."""
    title: str
    """Heading."""
    summary: str
    """What is to be seen, for those who cannot see it."""
    unit: str
    """percent, usd, or the word for what is counted."""
    start: date
    """First day."""
    days: float
    """Length of the horizon."""
    series: Sequence[Series]
    """Lines or layers; layers are stacked in this order from the bottom."""
    stacked: bool = False
    """Layers on one another instead of lines."""
    logarithmic: bool = False
    """Equal ratios at equal distances."""
    markers: Sequence[Marker] = field(default_factory=tuple)
    """Events to mark."""


def draw(chart: TimeChart) -> Html:
    """Return the figure: heading, legend, zoom, the chart, and its numbers as a table."""
    scale = scale_of(chart)
    lanes = list(dict.fromkeys(marker.kind for marker in chart.markers))
    inner = HEIGHT - TOP - BOTTOM
    ticks = [(TOP + inner * (1 - (scale.share(tick) or 0.0)), axis_label(tick, chart.unit)) for tick in scale.ticks()]
    frame = {
        "width": WIDTH, "height": HEIGHT + LANE_HEIGHT * len(lanes), "left": LEFT, "right": WIDTH - RIGHT, "top": TOP,
        "bottom": HEIGHT - BOTTOM, "lane": LANE_HEIGHT, "full": FULL, "days": shortened(chart.days),
        "y_ticks": [(shortened(y), shortened(y + 4), label) for y, label in ticks],
        "x_ticks": [
            (shortened(LEFT + (WIDTH - LEFT - RIGHT) * day / chart.days), label)
            for day, label in _month_labels(chart.start, chart.days)
        ],
    }  # fmt: skip
    data = {
        "data-unit": chart.unit, "data-start": chart.start.isoformat(), "data-days": shortened(chart.days),
        "data-low": repr(scale.low), "data-high": repr(scale.high), "data-log": "1" if chart.logarithmic else None,
        "data-stacked": "1" if chart.stacked else None, "data-lanes": len(lanes),
    }  # fmt: skip
    paths, events = _paths(chart, scale), _events(tuple(chart.markers), tuple(lanes))
    return macro("timechart.html", "figure", chart, data, frame, paths, lanes, events, _numbers(chart))


@functools.lru_cache(maxsize=16)  # all charts of a report have the same
def _events(markers: Sequence[Marker], lanes: Sequence[str]) -> Html:
    """Return the marks on the lanes."""
    return Html(
        "".join(
            f'<rect x="{shortened(marker.start)}" y="{lanes.index(marker.kind) * 10 + 1}" '
            f'width="{shortened(max(marker.end - marker.start, 0.05))}" height="8" '
            f'class="event e-{text(marker.kind)}" data-label="{text(marker.label)}"></rect>\n'
            for marker in markers
        )
    )


def _stack(series: Sequence[Series]) -> list[tuple[Series, list[float], list[float]]]:
    """Return each layer with its lower and upper edge."""
    below = [0.0] * len(series[0].points) if series else []
    layers = []
    for layer in series:
        above = [base + (value or 0.0) for base, (_, value) in zip(below, layer.points, strict=True)]
        layers.append((layer, below, above))
        below = above
    return layers


def scale_of(chart: TimeChart) -> Scale:
    """Return the vertical scale; zero is on it unless it is logarithmic."""
    if chart.stacked:
        values = [v for _, below, above in _stack(chart.series) for v in (*below, *above)]
    else:
        edges = (p for s in chart.series for p in (s.points, *(edge for band in s.bands for edge in band)))
        values = [v for points in edges for _, v in points if v is not None]
    values = [v for v in values if math.isfinite(v) and (v > 0 or not chart.logarithmic)]
    if not values:
        return Scale(low=0.0, high=1.0, logarithmic=chart.logarithmic)
    if chart.logarithmic:
        low, high = math.log10(min(values)), math.log10(max(values))
        totals = [v for s in chart.series if s.colour == TOTAL for _, v in s.points if v is not None and v > 0]
        if totals:  # a part that hardly works costs any amount: let it leave the chart before it flattens the rest
            high = min(high, math.log10(OFF_THE_CHART * max(totals)))
        return Scale(low=low - 0.05, high=max(high, low + 0.3) + 0.05, logarithmic=True)
    low, high = min(0.0, *values), max(0.0, *values)
    if chart.unit == "percent" and high <= 1.0 and high > 0.5:
        return Scale(low=low, high=1.0)
    return Scale(low=low * 1.05, high=high * 1.05 or 1.0)


def _layers(chart: TimeChart) -> Iterator[tuple[Series, Points, Points]]:
    """Yield the layers of a stack with their lower and upper edges."""
    for layer, below, above in _stack(chart.series):
        days = [x for x, _ in layer.points]
        yield layer, list(zip(days, below, strict=True)), list(zip(days, above, strict=True))


def panel_of(chart: TimeChart, title: str = "", height: float = 320.0) -> Panel:
    """Return a chart as a panel of a picture, which nobody can point at or zoom."""
    scale = scale_of(chart)
    marks: list[Mark] = []
    if chart.stacked:
        marks += [Area(upper=upper, lower=lower, colour=layer.colour) for layer, lower, upper in _layers(chart)]
    else:
        for line in chart.series:
            marks += [Area(upper=upper, lower=lower, colour=line.colour, opacity=0.13) for lower, upper in line.bands]
        for line in chart.series:
            marks.append(Line(points=line.points, colour=line.colour, stroke=3.2 if line.colour == TOTAL else 2.4))
    return Panel(
        x=Axis(scale=Scale(low=0.0, high=chart.days), ticks=_month_labels(chart.start, chart.days), grid=False),
        y=Axis(scale=scale, ticks=[(t, axis_label(t, chart.unit)) for t in scale.ticks()], label=chart.summary),
        marks=marks, title=title, height=height,
    )  # fmt: skip


def _paths(chart: TimeChart, scale: Scale) -> list[tuple[Series, list[tuple[str, str]]]]:
    """Return the paths of each series with their style classes, in days across and thousandths down."""

    def place(value: float) -> float | None:
        share = scale.share(value)
        return None if share is None else round(FULL * (1 - share), 1)

    if chart.stacked:
        return [(layer, [("layer", ring(high, low, float, place))]) for layer, low, high in _layers(chart)]
    return [
        (
            line,
            [
                *(("band", ring(high, low, float, place)) for low, high in line.bands),
                *([("fine", outline(line.fine, float, place))] if line.fine else []),
                ("line", outline(line.points, float, place)),
            ],
        )
        for line in chart.series
    ]


def _month_labels(start: date, days: float) -> list[tuple[float, str]]:
    """Return at most a dozen firsts of months to label."""
    months = max(1, round(days / 30.4))
    every = next(step for step in (1, 2, 3, 6, 12, 24, 60, 120, 1200) if months / step <= 12)
    labels, current = [], start.replace(day=1)
    while (current - start).days < days:
        if (current.month - 1) % min(every, 12) == 0 and current >= start and current.year % max(1, every // 12) == 0:
            labels.append((float((current - start).days), current.strftime("%Y-%m")))
        current = (current + timedelta(days=32)).replace(day=1)
    return labels


def _numbers(chart: TimeChart) -> Html:
    """Return the numbers behind the chart, folded."""
    first = chart.series[0].points if chart.series else ()
    days = [(chart.start + timedelta(days=x)).strftime("%Y-%m") for x, _ in first]
    values = [[v for _, v in series.points] for series in chart.series]
    rows = [
        (day, *("" if column[i] is None else axis_label(column[i] or 0.0, chart.unit) for column in values))
        for i, day in enumerate(days)
    ]
    header = ("month", *(series.name for series in chart.series))
    shown = table(header, rows, f"{chart.title}, the numbers", numeric=range(1, len(header)))
    return details("The numbers", shown)
