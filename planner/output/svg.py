"""The one drawer of charts: pictures and charts over time as SVG, and SVG as PNG.

A chart over time is drawn for a page in its own coordinates, (days since start) × (0 to 1,000), stretched to whatever
room there is: it is there without any script (a mail preview, a print), and the page's script only moves the window. As
a picture it is a panel like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Literal, NamedTuple, assert_never

from markupsafe import escape

from planner.errors import printable
from planner.output.blocks import (
    Area,
    Axis,
    Box,
    Figure,
    Line,
    Mark,
    Panel,
    Picture,
    Series,
    TimeChart,
    VerticalRule,
)
from planner.output.scales import (
    INK,
    TOTAL,
    Points,
    Scale,
    colour_of,
    dash_of,
    outline,
    ring,
    shortened,
)
from planner.output.words import axis_label, short

FORMATS = ("png", "svg")
PAPER = "#ffffff"
SOFT = "#565d66"
RULE = "#d9dde2"
FONT = "Source Sans Pro"
WIDTH = 1000
PNG_WIDTH = 1600
TEXT = 15
TITLE = 20
FULL = 1000
"""Height of a chart over time in its own coordinates."""
OFF_THE_CHART = 30.0
"""A logarithmic chart shows up to so many times the highest value of the whole."""
_LETTER = 0.54
_NARROW = frozenset("fijlrtI.,:;'|!-()[]/ ")
_WIDE = frozenset("mwMW@%×")
"""Width of most letters over the size of their text, and those that take half or half as much again: near enough to the
font of the PNG and to those of browsers."""
_LONGEST_NAME = 48
_BOLD = ' font-weight="bold"'
_MIDDLE = ' text-anchor="middle"'


def _text(content: str) -> str:
    """Escape text; control characters and marks that turn the reading direction are shown, not obeyed."""
    return str(escape(printable(content)))


def even_axis(low: float, high: float, label: str = "", *, unit: str = "") -> Axis:
    """Return an axis with equal differences at equal distances, labelled in ``unit`` as the report's axes are."""
    scale = Scale(low=low, high=high)
    ticks = scale.ticks(7)
    if unit:
        labels = [axis_label(tick, unit) for tick in ticks]
    else:  # one scale, and as many decimals as tell neighbours apart
        largest = max(map(abs, ticks))
        letter = short(largest)[-1:] if largest >= 1e4 else ""
        size = 10.0 ** {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15}.get(letter, 0)
        step = abs(ticks[1] - ticks[0]) / size if len(ticks) > 1 else largest or 1.0
        decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
        labels = [
            f"{tick / size:,.{decimals}f} {letter}".strip().replace("-", "−") for tick in ticks
        ]
    return Axis(scale=scale, ticks=list(zip(ticks, labels, strict=True)), label=label)


def ratio_axis(values: Sequence[float], label: str) -> Axis:
    """Return a logarithmic axis around some values."""
    above = [value for value in values if value > 0] or [1.0]
    low = math.log10(min(above))
    high = math.log10(max(above))
    room = 0.04 * max(high - low, 0.3)
    scale = Scale(low=low - room, high=max(high, low + 0.3) + room, logarithmic=True)
    return Axis(scale=scale, ticks=[(tick, short(tick)) for tick in scale.ticks()], label=label)


def names_axis(names: Sequence[str]) -> Axis:
    """Return an axis of names from the top down: name i lies about ``len(names) - i - 0.5``."""
    ticks = [(len(names) - i - 0.5, name) for i, name in enumerate(names)]
    return Axis(scale=Scale(low=0.0, high=float(len(names))), ticks=ticks, grid=False)


class Frame(NamedTuple):
    """Where a panel lies on the picture."""

    panel: Panel
    left: float
    top: float
    width: float

    def x(self, value: float) -> float:
        """Return how far right a value lies; what has no place lies at the left end."""
        return self.left + self.width * (self.panel.x.scale.share(value) or 0.0)

    def y(self, value: float) -> float | None:
        """Return how far down a value lies; None where there is no place for it."""
        share = self.panel.y.scale.share(value)
        return None if share is None else self.top + self.panel.height * (1 - share)


def _drawn(mark: Mark, frame: Frame) -> str:
    """Return a mark in the coordinates of its panel."""
    match mark:
        case Line():
            colour, dash = colour_of(mark.colour), dash_of(mark.colour)
            drawn = [
                f'<path d="{outline(mark.points, frame.x, frame.y)}" fill="none" stroke="{colour}" '
                f'stroke-width="{mark.stroke}" stroke-dasharray="{dash}" stroke-linejoin="round"></path>'
            ]
            for x, value in mark.points if mark.radius else ():
                if value is not None and (y := frame.y(value)) is not None:
                    place = f'cx="{shortened(frame.x(x))}" cy="{shortened(y)}"'
                    drawn.append(f'<circle {place} r="{mark.radius}" fill="{colour}"></circle>')
            return "".join(drawn if mark.stroke else drawn[1:])
        case Area():
            d = ring(mark.upper, mark.lower, frame.x, frame.y)
            colour = colour_of(mark.colour)
            return f'<path d="{d}" fill="{colour}" fill-opacity="{mark.opacity}"></path>'
        case Box():
            left, right = sorted(map(frame.x, mark.x))
            top, bottom = sorted(frame.y(value) or 0.0 for value in mark.y)
            size = f'width="{shortened(right - left)}" height="{shortened(bottom - top)}"'
            look = f'fill="{colour_of(mark.colour)}" shape-rendering="crispEdges"'
            return f'<rect x="{shortened(left)}" y="{shortened(top)}" {size} {look}></rect>'
        case VerticalRule():
            at = shortened(frame.x(mark.x))
            dash = "5 4" if mark.is_dashed else "none"
            # At the right edge there is no room beside it.
            aside, end = (
                (-5, ' text-anchor="end"')
                if frame.x(mark.x) > frame.left + 0.88 * frame.width
                else (5, "")
            )
            note = (
                _label(mark.note, frame.x(mark.x) + aside, frame.top + TEXT, end, size=TEXT - 2)
                if mark.note
                else ""
            )
            return (
                f'<line x1="{at}" x2="{at}" y1="{frame.top}" y2="{frame.top + frame.panel.height}" stroke="{INK}" '
                f'stroke-width="1.4" stroke-dasharray="{dash}"></line>{note}'
            )
        case _:
            assert_never(mark)


def bars(
    names: Sequence[str], layers: Mapping[str, Sequence[float]], label: str, first: int = 0
) -> Panel:
    """Return bars that lie down, layers one after the other, in colours from the palette's ``first`` on."""
    left = [0.0] * len(names)
    ends = [0.0]
    boxes = list[Mark]()
    for colour, widths in enumerate(layers.values(), start=first):
        right = [a + b for a, b in zip(left, widths, strict=True)]
        spans = enumerate(zip(left, right, strict=True))
        boxes += [
            Box(x=(a, b), y=_bar(len(names), i), colour=colour) for i, (a, b) in spans if a != b
        ]
        left = right
        ends = [*ends, *right]
    x = even_axis(min(ends), 1.02 * max(ends) or 1.0, label)
    return Panel(x=x, y=names_axis(names), marks=boxes, height=34.0 * len(names) + 8)


def swings(
    rows: Sequence[tuple[str, Sequence[tuple[float, int]]]],
    middle: float,
    title: str,
    spans: Sequence[float] = (),
) -> Panel:
    """Return bars that lie down, from a middle to each of a row's (end, colour); the axis holds ``spans`` too."""
    ends = [middle, *spans, *(end for _, row in rows for end, _ in row)]
    room = 0.03 * ((max(ends) - min(ends)) or 1.0)
    placed = [(_bar(len(rows), i), row) for i, (_, row) in enumerate(rows)]
    boxes = [Box(x=(middle, end), y=y, colour=colour) for y, row in placed for end, colour in row]
    x = even_axis(min(ends) - room, max(ends) + room)
    y = names_axis([name for name, _ in rows])
    return Panel(
        x=x, y=y, marks=[*boxes, VerticalRule(x=middle)], title=title, height=26.0 * len(rows) + 8
    )


def _bar(count: int, place: int) -> tuple[float, float]:
    """Return the lower and upper side of a bar among some, the first on top."""
    return count - place - 0.9, count - place - 0.1


def _room(text: str) -> float:
    return (
        _LETTER
        * TEXT
        * sum(0.55 if letter in _NARROW else 1.55 if letter in _WIDE else 1.0 for letter in text)
    )


def _label(
    content: str, x: float, y: float, more: str = "", *, size: float = TEXT, fill: str = INK
) -> str:
    """Return text at a place; ``more`` are further attributes."""
    at = f'x="{shortened(x)}" y="{shortened(y)}"'
    return f'<text {at} font-size="{size}" fill="{fill}"{more}>{_text(content)}</text>'


def _cut(content: str, longest: int) -> str:
    return content if len(content) <= longest else content[: longest - 1] + "…"


def picture_of(figure: Figure) -> Picture:
    """Return a figure as a picture that stands still."""
    if isinstance(figure, Picture):
        return figure
    keys = {series.name: series.colour for series in figure.series}
    shape: Literal["square", "line"] = "square" if figure.stacked else "line"
    return Picture(title=figure.title, panels=[panel_of(figure)], keys=keys, shape=shape)


def svg_of(figure: Figure) -> str:
    """Return a figure as an SVG file; the same figure gives the same bytes."""
    picture = picture_of(figure)
    head, top = _head(picture)
    names = [_cut(label, _LONGEST_NAME) for panel in picture.panels for _, label in panel.y.ticks]
    left = 16 + max([32.0, *map(_room, names)])
    width = WIDTH / picture.columns
    parts = [head]
    for first in range(0, len(picture.panels), picture.columns):
        row = picture.panels[first : first + picture.columns]
        above = max((28 if panel.title else 0) + (24 if panel.y.label else 10) for panel in row)
        for column, panel in enumerate(row):
            frame = Frame(
                panel, left=column * width + left, top=top + above, width=width - left - 24
            )
            parts.append(_panel(frame, f"panel-{first + column}"))
        has_labels = any(label for panel in row for _, label in panel.x.ticks)
        below = (24 if has_labels else 4) + (24 if any(panel.x.label for panel in row) else 0)
        top += above + max(panel.height for panel in row) + below + 6
    height = shortened(top + 6)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="{FONT}, Source Sans 3, Segoe UI, Helvetica, Arial, sans-serif">'
        f"<title>{_text(picture.title)}</title>"
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"></rect>{"".join(parts)}</svg>\n'
    )


def _head(picture: Picture) -> tuple[str, float]:
    """Return title, note and legend, and where they end."""
    longest = int((WIDTH - 32) / (_LETTER * TITLE))
    parts = [_label(_cut(picture.title, longest), 16, 32, _BOLD, size=TITLE)]
    y = 40.0
    if picture.note:
        parts.append(_label(picture.note, 16, y + 16, fill=SOFT))
        y += 24
    x = 16.0
    swatch = 38 if picture.shape == "line" else 22
    for name, index in picture.keys.items():
        needed = swatch + _room(name) + 24
        colour = colour_of(index)
        if x > 16 and x + needed > WIDTH:
            x = 16.0
            y = y + 24
        ends = f'x1="{x}" x2="{x + 32}" y1="{y + 14}" y2="{y + 14}"'
        dash = dash_of(index)
        shapes = {
            "square": f'<rect x="{x}" y="{y + 7}" width="16" height="14" fill="{colour}"></rect>',
            "dot": f'<circle cx="{x + 8}" cy="{y + 14}" r="5" fill="{colour}"></circle>',
            "line": f'<line {ends} stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"></line>',
        }
        parts += [shapes[picture.shape], _label(name, x + swatch, y + 19)]
        x += needed
    return "".join(parts), y + (30 if picture.keys else 0)


def _panel(frame: Frame, key: str) -> str:
    """Return title, grid, labels and marks; what leaves the room between the axes is not drawn."""
    panel = frame.panel
    right = frame.left + frame.width
    parts = list[str]()
    bottom = frame.top + panel.height

    def rule(x1: float, x2: float, y1: float, y2: float) -> None:
        ends = (
            f'x1="{shortened(x1)}" x2="{shortened(x2)}" y1="{shortened(y1)}" y2="{shortened(y2)}"'
        )
        parts.append(f'<line {ends} stroke="{RULE}"></line>')

    if panel.title:
        parts.append(
            _label(panel.title, frame.left, frame.top - (30 if panel.y.label else 10), _BOLD)
        )
    if panel.y.label:
        parts.append(_label(panel.y.label, frame.left, frame.top - 9, size=TEXT - 1, fill=SOFT))
    for value, label in panel.y.ticks:
        if (y := frame.y(value)) is not None:
            if panel.y.grid:
                rule(frame.left, right, y, y)
            parts.append(
                _label(
                    _cut(label, _LONGEST_NAME),
                    frame.left - 8,
                    y + 5,
                    ' text-anchor="end"',
                    fill=SOFT,
                )
            )
    for value, label in panel.x.ticks:
        x = frame.x(value)
        rule(x, x, *((frame.top, bottom) if panel.x.grid else (bottom, bottom + 5)))
        if label:
            parts.append(_label(label, x, bottom + 21, _MIDDLE, fill=SOFT))
    if panel.x.label:
        parts.append(_label(panel.x.label, frame.left + frame.width / 2, bottom + 45, _MIDDLE))
    left = shortened(frame.left)
    width = shortened(frame.width)
    room = f'<rect x="{left}" y="{frame.top}" width="{width}" height="{panel.height}"></rect>'
    marks = "".join(_drawn(mark, frame) for mark in panel.marks)
    axis = f'<line x1="{left}" x2="{shortened(right)}" y1="{bottom}" y2="{bottom}" stroke="{SOFT}"></line>'
    clipped = f'<clipPath id="{key}">{room}</clipPath><g clip-path="url(#{key})">{marks}</g>'
    return "".join([*parts, clipped, axis])


def png_of(svg: str) -> bytes:
    """Return a picture as a PNG file in a font that comes with the planner: a machine without fonts draws text too."""
    import font_source_sans_pro  # noqa: PLC0415 - only pictures need it
    import resvg_py  # noqa: PLC0415 - as above

    files = font_source_sans_pro.font_files_ttf
    return resvg_py.svg_to_bytes(
        svg_string=svg,
        width=PNG_WIDTH,
        skip_system_fonts=True,
        font_family=FONT,
        font_files=[files["SourceSansPro"], files["SourceSansProBold"]],
    )


def files_of(figure: Figure, formats: Sequence[str] = FORMATS) -> dict[str, bytes]:
    """Return a figure in each format."""
    svg = svg_of(figure)
    return {suffix: svg.encode() if suffix == "svg" else png_of(svg) for suffix in formats}


def _layers(chart: TimeChart) -> Iterator[tuple[Series, Points, Points]]:
    """Yield the layers of a stack with their lower and upper edges."""
    below = [0.0] * len(chart.series[0].points) if chart.series else []
    for layer in chart.series:
        above = [
            base + (value or 0.0) for base, (_, value) in zip(below, layer.points, strict=True)
        ]
        days = [x for x, _ in layer.points]
        yield layer, list(zip(days, below, strict=True)), list(zip(days, above, strict=True))
        below = above


def scale_of(chart: TimeChart) -> Scale:
    """Return the vertical scale; zero is on it unless it is logarithmic."""
    if chart.stacked:
        edges = [edge for _, *both in _layers(chart) for edge in both]
    else:
        edges = [
            p
            for s in chart.series
            for p in (s.points, *(edge for band in s.bands for edge in band))
        ]
    known = (v for points in edges for _, v in points if v is not None)
    values = [v for v in known if math.isfinite(v) and (v > 0 or not chart.logarithmic)]
    if not values:
        return Scale(low=0.0, high=1.0, logarithmic=chart.logarithmic)
    if chart.logarithmic:
        low = math.log10(min(values))
        high = math.log10(max(values))
        totals = [
            v
            for s in chart.series
            if s.colour == TOTAL
            for _, v in s.points
            if v is not None and v > 0
        ]
        if totals:  # a part that hardly works costs any amount: let it leave the chart before it flattens the rest
            high = min(high, math.log10(OFF_THE_CHART * max(totals)))
        return Scale(low=low - 0.05, high=max(high, low + 0.3) + 0.05, logarithmic=True)
    low = min(0.0, *values)
    high = max(0.0, *values)
    if chart.unit == "percent" and high <= 1.0 and high > 0.5:
        return Scale(low=low, high=1.0)
    return Scale(low=low * 1.05, high=high * 1.05 or 1.0)


def panel_of(chart: TimeChart, title: str = "", height: float = 320.0) -> Panel:
    """Return a chart as a panel of a picture, which nobody can point at or zoom."""
    scale = scale_of(chart)
    marks: list[Mark] = []
    if chart.stacked:
        marks += [Area(upper, lower, layer.colour) for layer, lower, upper in _layers(chart)]
    else:
        marks += [
            Area(upper, lower, line.colour, 0.13)
            for line in chart.series
            for lower, upper in line.bands
        ]
        marks += [
            Line(s.points, s.colour, stroke=3.2 if s.colour == TOTAL else 2.4) for s in chart.series
        ]
    x = Axis(
        scale=Scale(low=0.0, high=chart.days),
        ticks=month_labels(chart.start, chart.days),
        grid=False,
    )
    y = Axis(
        scale=scale,
        ticks=[(t, axis_label(t, chart.unit)) for t in scale.ticks()],
        label=chart.summary,
    )
    return Panel(x=x, y=y, marks=marks, title=title, height=height)


def paths_of(chart: TimeChart, scale: Scale) -> list[tuple[Series, list[tuple[str, str]]]]:
    """Return the paths of each series with their style classes, in days across and thousandths down."""

    def place(value: float) -> float | None:
        share = scale.share(value)
        return None if share is None else round(FULL * (1 - share), 1)

    if chart.stacked:
        return [
            (layer, [("layer", ring(high, low, float, place))])
            for layer, low, high in _layers(chart)
        ]
    drawn = []
    for line in chart.series:
        paths = [("band", ring(high, low, float, place)) for low, high in line.bands]
        paths += [("fine", outline(line.fine, float, place))] if line.fine else []
        drawn.append((line, [*paths, ("line", outline(line.points, float, place))]))
    return drawn


def month_labels(start: date, days: float) -> list[tuple[float, str]]:
    """Return at most a dozen firsts of months to label."""
    months = max(1, round(days / 30.4))
    every = next(step for step in (1, 2, 3, 6, 12, 24, 60, 120, 1200) if months / step <= 12)
    labels = []
    current = start.replace(day=1)
    while (current - start).days < days:
        if (
            (current.month - 1) % min(every, 12) == 0
            and current >= start
            and current.year % max(1, every // 12) == 0
        ):
            labels.append((float((current - start).days), current.strftime("%Y-%m")))
        current = (current + timedelta(days=32)).replace(day=1)
    return labels
