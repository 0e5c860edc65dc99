"""Charts over time as SVG: drawn here once, in the chart's own coordinates; the page's script only moves the window.

The marks lie in an inner ``svg`` whose viewBox is (days since start) × (0 to 1,000), stretched to whatever room there
is. So the chart is there without any script (a mail preview, a print), and zooming or a narrower screen is a change of
one attribute and of the labels around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from planner.reporting.report.html import Html, details, element, join, table
from planner.reporting.report.words import axis_label

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 260, 62, 10, 10, 26
LANE_HEIGHT = 16
FULL = 1000
COLOURS = 8
OFF_THE_CHART = 30.0
"""A logarithmic chart shows up to so many times the highest value of the whole."""
FLEET = "fleet"

Points = Sequence[tuple[float, float | None]]


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
    lower: Points = ()
    """Lower edge, for a band around the line."""
    upper: Points = ()
    """Upper edge, for a band around the line."""


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


def nice_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return round numbers within a range: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / wanted
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next((m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw * 0.999), 10 * magnitude)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two powers given by their logarithms; fewer over a wide range."""
    steps = (1.0, 2.0, 5.0) if high - low < 2.5 else (1.0,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    return [t for p in powers for m in steps if low - 1e-9 <= (t := math.log10(m) + p) <= high + 1e-9]


def draw(chart: TimeChart) -> Html:
    """Return the figure: heading, legend, zoom, the chart, and its numbers as a table."""
    low, high = _limits(chart)
    lanes = list(dict.fromkeys(marker.kind for marker in chart.markers))
    frame = element(
        "svg",
        _axes(chart, low, high, lanes),
        _marks(chart, low, high),
        _lanes(chart, lanes),
        viewBox=f"0 0 {WIDTH} {HEIGHT + LANE_HEIGHT * len(lanes)}",
        class_="frame",
        role="img",
        aria_labelledby=f"{chart.key}-title",
        aria_describedby=f"{chart.key}-summary",
    )
    return element(
        "figure",
        element("h3", chart.title, id=f"{chart.key}-title"),
        element("p", chart.summary, id=f"{chart.key}-summary", class_="summary"),
        _toolbar(chart),
        element("div", frame, class_="plot", tabindex="0", role="group", aria_label=_how_to_use(chart)),
        element("div", "", class_="tip", role="status", hidden=True),
        _numbers(chart),
        class_="chart",
        id=chart.key,
        data_unit=chart.unit,
        data_start=chart.start.isoformat(),
        data_days=_short(chart.days),
        data_low=repr(low),
        data_high=repr(high),
        data_log="1" if chart.logarithmic else None,
        data_stacked="1" if chart.stacked else None,
        data_lanes=len(lanes),
    )


def _how_to_use(chart: TimeChart) -> str:
    return f"{chart.title}: left and right arrows read the values, plus and minus zoom, 0 shows all"


def _short(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _stack(series: Sequence[Series]) -> list[tuple[Series, list[float], list[float]]]:
    """Return each layer with its lower and upper edge."""
    below = [0.0] * len(series[0].points) if series else []
    layers = []
    for layer in series:
        above = [base + (value or 0.0) for base, (_, value) in zip(below, layer.points, strict=True)]
        layers.append((layer, below, above))
        below = above
    return layers


def _limits(chart: TimeChart) -> tuple[float, float]:
    """Return the range of the vertical axis; logarithms for a logarithmic one, and zero included otherwise."""
    if chart.stacked:
        values = [v for _, below, above in _stack(chart.series) for v in (*below, *above)]
    else:
        parts = (p for s in chart.series for p in (s.points, s.lower, s.upper))
        values = [v for points in parts for _, v in points if v is not None]
    values = [v for v in values if math.isfinite(v) and (v > 0 or not chart.logarithmic)]
    if not values:
        return 0.0, 1.0
    if chart.logarithmic:
        low, high = math.log10(min(values)), math.log10(max(values))
        whole = [v for s in chart.series if s.colour < 0 for _, v in s.points if v is not None and v > 0]
        if whole:  # a part that hardly works costs any amount: let it leave the chart before it flattens the rest
            high = min(high, math.log10(OFF_THE_CHART * max(whole)))
        return low - 0.05, max(high, low + 0.3) + 0.05
    low, high = min(0.0, *values), max(0.0, *values)
    if chart.unit == "percent" and high <= 1.0 and high > 0.5:
        return low, 1.0
    return low * 1.05, high * 1.05 or 1.0


def _y(value: float, low: float, high: float, *, logarithmic: bool) -> float:
    """Return the place of a value between 0 (top) and 1,000 (bottom)."""
    scaled = (math.log10(value) if value > 0 else low) if logarithmic else value
    return round(FULL * (1 - (scaled - low) / (high - low)), 1)


def _path(points: Points, chart: TimeChart, low: float, high: float) -> str:
    parts, pen_down = [], False
    for x, value in points:
        if value is None or (chart.logarithmic and value <= 0):
            pen_down = False
            continue
        y = _y(value, low, high, logarithmic=chart.logarithmic)
        parts.append(f"{'L' if pen_down else 'M'}{_short(x)},{_short(y)}")
        pen_down = True
    return "".join(parts)


def _ring(upper: Points, lower: Points, chart: TimeChart, low: float, high: float) -> str:
    """Return the closed outline between two edges."""
    there = [(x, v) for x, v in upper if v is not None]
    back = [(x, v) for x, v in reversed(lower) if v is not None]
    outline = _path([*there, *back], chart, low, high)
    return outline + "Z" if outline else ""


def _marks(chart: TimeChart, low: float, high: float) -> Html:
    groups = []
    if chart.stacked:
        for layer, below, above in _stack(chart.series):
            xs = [x for x, _ in layer.points]
            upper, lower = list(zip(xs, above, strict=True)), list(zip(xs, below, strict=True))
            ring = element("path", d=_ring(upper, lower, chart, low, high), class_="layer")
            groups.append(_series_group(layer, [ring]))
    else:
        for line in chart.series:
            paths = []
            if line.upper:
                paths.append(element("path", d=_ring(line.upper, line.lower, chart, low, high), class_="band"))
            if line.fine:
                paths.append(element("path", d=_path(line.fine, chart, low, high), class_="fine"))
            paths.append(element("path", d=_path(line.points, chart, low, high), class_="line"))
            groups.append(_series_group(line, paths))
    return element(
        "svg",
        *groups,
        x=LEFT,
        y=TOP,
        width=WIDTH - LEFT - RIGHT,
        height=HEIGHT - TOP - BOTTOM,
        viewBox=f"0 0 {_short(chart.days)} {FULL}",
        preserveAspectRatio="none",
        class_="marks",
    )


def _series_group(series: Series, paths: Iterable[Html]) -> Html:
    return element(
        "g",
        *paths,
        class_=colour_class(series.colour),
        data_series=series.name,
        data_x=" ".join(_short(x) for x, _ in series.points),
        data_v=" ".join("-" if v is None else f"{v:.5g}" for _, v in series.points),
    )


def colour_class(index: int) -> str:
    """Return the style class of a series: its colour and dash."""
    return "whole" if index < 0 else f"c{index % COLOURS}"


def _axes(chart: TimeChart, low: float, high: float, lanes: Sequence[str]) -> Html:
    """Return grid lines and labels, for the width that the page has without its script."""
    parts = []
    inner = HEIGHT - TOP - BOTTOM
    for tick in log_ticks(low, high) if chart.logarithmic else nice_ticks(low, high):
        y = TOP + inner * (1 - (tick - low) / (high - low))
        label = axis_label(10**tick if chart.logarithmic else tick, chart.unit)
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_short(y), y2=_short(y), class_="grid"))
        parts.append(element("text", label, x=LEFT - 6, y=_short(y + 4), class_="ytick"))
    foot = HEIGHT + LANE_HEIGHT * len(lanes) - 8
    for day, label in _month_labels(chart.start, chart.days):
        x = LEFT + (WIDTH - LEFT - RIGHT) * day / chart.days
        parts.append(element("text", label, x=_short(x), y=foot, class_="xtick"))
    return element("g", *parts, class_="axes", aria_hidden="true")


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


def _lanes(chart: TimeChart, lanes: Sequence[str]) -> Html:
    """Return the events below the chart: one lane for each kind."""
    if not lanes:
        return Html("")
    top = HEIGHT - BOTTOM + 6
    names = [
        element("text", lane, x=LEFT - 6, y=top + LANE_HEIGHT * i + 11, class_="ytick lane-name")
        for i, lane in enumerate(lanes)
    ]
    events = [
        element(
            "rect",
            x=_short(marker.start),
            y=lanes.index(marker.kind) * 10 + 1,
            width=_short(max(marker.end - marker.start, 0.05)),
            height=8,
            class_=f"event e{lanes.index(marker.kind)}",
            data_label=marker.label,
        )
        for marker in chart.markers
    ]
    inner = element(
        "svg",
        *events,
        x=LEFT,
        y=top,
        width=WIDTH - LEFT - RIGHT,
        height=LANE_HEIGHT * len(lanes),
        viewBox=f"0 0 {_short(chart.days)} {10 * len(lanes)}",
        preserveAspectRatio="none",
        class_="lanes",
    )
    return join([*names, inner])


def _toolbar(chart: TimeChart) -> Html:
    """Return the legend, whose entries show and hide, and the zoom buttons."""
    legend = [
        element(
            "button",
            element(
                "svg",
                element("line", x1=0, y1=6, x2=24, y2=6, class_="layer" if chart.stacked else "line"),
                viewBox="0 0 24 12",
                class_=f"swatch {colour_class(series.colour)}",
                aria_hidden="true",
            ),
            series.name,
            type="button",
            class_="toggle",
            aria_pressed="true",
            data_series=series.name,
        )
        for series in chart.series
    ]
    zoom = [
        element("button", sign, type="button", class_="zoom", data_zoom=action, aria_label=f"{words}: {chart.title}")
        for sign, action, words in (("+", "in", "Zoom in"), ("−", "out", "Zoom out"), ("all", "all", "Show all"))
    ]
    shown = element("div", *legend, class_="legend", role="group", aria_label=f"Show or hide, {chart.title}")
    return element("div", shown, element("div", *zoom, class_="zooms"), class_="toolbar")


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
