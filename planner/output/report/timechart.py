"""Charts over time as SVG: drawn here once, in the chart's own coordinates; the page's script only moves the window.

The marks lie in an inner ``svg`` whose viewBox is (days since start) × (0 to 1,000), stretched to whatever room there
is. So the chart is there without any script (a mail preview, a print), and zooming or a narrower screen is a change of
one attribute and of the labels around it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from planner.output.picture import Area, Axis, Line, Mark, Panel
from planner.output.report.html import BREAK, Html, details, element, filled, join, table, text
from planner.output.report.words import axis_label
from planner.output.scales import TOTAL, Points, Scale, colour_class, outline, ring, shortened

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
    lanes = tuple(dict.fromkeys(marker.kind for marker in chart.markers))
    body = filled(
        "timechart.html",
        key=chart.key, title=chart.title, summary=chart.summary,
        legend=join(_toggle(series, "layer" if chart.stacked else "line") for series in chart.series),
        zooms=join(_zoom(chart.title, *button) for button in _ZOOMS),
        width=WIDTH, height=HEIGHT + LANE_HEIGHT * len(lanes), left=LEFT, top=TOP,
        across=WIDTH - RIGHT - LEFT, down=HEIGHT - BOTTOM - TOP, days=shortened(chart.days), full=FULL,
        axes=_axes(chart, scale, HEIGHT + LANE_HEIGHT * len(lanes)), marks=_marks(chart, scale),
        lanes=_lanes(chart, lanes), numbers=_numbers(chart),
    )  # fmt: skip
    return element(
        "figure", BREAK, body, class_="chart", id=chart.key,
        data_unit=chart.unit, data_start=chart.start.isoformat(), data_days=shortened(chart.days),
        data_low=repr(scale.low), data_high=repr(scale.high), data_log="1" if chart.logarithmic else None,
        data_stacked="1" if chart.stacked else None, data_lanes=len(lanes),
    )  # fmt: skip


_ZOOMS = (("+", "in", "Zoom in"), ("−", "out", "Zoom out"), ("all", "all", "Show all"))


def _zoom(title: str, sign: str, action: str, words: str) -> Html:
    return element("button", sign, type="button", class_="zoom", data_zoom=action, aria_label=f"{words}: {title}")


def _toggle(series: Series, css: str) -> Html:
    """Return the button that shows and hides a series, with its colour and dash."""
    line = element("line", x1="0", y1="6", x2="24", y2="6", class_=css)
    colour = f"swatch {colour_class(series.colour)}"
    swatch = element("svg", line, viewBox="0 0 24 12", class_=colour, aria_hidden="true")
    words = (swatch, series.name)
    return element("button", *words, type="button", class_="toggle", aria_pressed="true", data_series=series.name)


def _axes(chart: TimeChart, scale: Scale, height: int) -> Html:
    """Return the lines and labels of the values, then the labels of the months."""
    inner, parts = HEIGHT - TOP - BOTTOM, list[object]()
    for tick in scale.ticks():
        y = TOP + inner * (1 - (scale.share(tick) or 0.0))
        parts += [
            element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=shortened(y), y2=shortened(y), class_="grid"),
            element("text", axis_label(tick, chart.unit), x=LEFT - 6, y=shortened(y + 4), class_="ytick"),
            BREAK,
        ]
    for day, label in _month_labels(chart.start, chart.days):
        x = shortened(LEFT + (WIDTH - LEFT - RIGHT) * day / chart.days)
        parts.append(element("text", label, x=x, y=height - 8, class_="xtick"))
    return join(parts)


def _marks(chart: TimeChart, scale: Scale) -> Html:
    """Return the series with what the page's script reads of them; their coordinates need no escape."""
    groups = []
    for series, paths in _paths(chart, scale):
        drawn = "".join(f'<path d="{path}" class="{css}"></path>' for css, path in paths)
        groups.append(
            f'<g class="{colour_class(series.colour)}" data-series="{text(series.name)}" '
            f'data-x="{series.x_attribute}" data-v="{series.v_attribute}">{drawn}</g>\n'
        )
    return Html("".join(groups))


def _lanes(chart: TimeChart, lanes: Sequence[str]) -> Html:
    """Return the names of the lanes and the events on them; nothing where there are none."""
    if not lanes:
        return Html("")
    below = HEIGHT - BOTTOM
    names = [
        element("text", lane, x=LEFT - 6, y=below + 17 + LANE_HEIGHT * place, class_="ytick lane-name")
        for place, lane in enumerate(lanes)
    ]
    events = element(
        "svg", BREAK, _events(tuple(chart.markers), tuple(lanes)),
        x=LEFT, y=below + 6, width=WIDTH - RIGHT - LEFT, height=LANE_HEIGHT * len(lanes),
        viewBox=f"0 0 {shortened(chart.days)} {10 * len(lanes)}", preserveAspectRatio="none", class_="lanes",
    )  # fmt: skip
    return join([*names, events, BREAK])


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
