"""The one drawer of charts: pictures and charts over time as SVG, and SVG as PNG.

A chart over time is drawn for a page in its own coordinates, (days since start) × (0 to 1,000), stretched to whatever
room there is: it is there without any script (a mail preview, a print), and the page's script only moves the window. As
a picture it is a panel like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import assert_never

from markupsafe import Markup, escape

from planner.errors import printable
from planner.output.blocks import Area, Axis, Box, Figure, Line, Mark, Panel, Picture, Rule, Series, TimeChart
from planner.output.scales import (
    INK,
    PAPER,
    RULE,
    SOFT,
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
FONT = "Source Sans Pro"
WIDTH, PNG_WIDTH = 1000, 1600
TEXT, TITLE = 15, 20
FULL = 1000
"""Height of a chart over time in its own coordinates."""
OFF_THE_CHART = 30.0
"""A logarithmic chart shows up to so many times the highest value of the whole."""
_LETTER, _NARROW, _WIDE = 0.54, frozenset("fijlrtI.,:;'|!-()[]/ "), frozenset("mwMW@%×")
"""Width of most letters over the size of their text, and those that take half or half as much again: near enough to the
font of the PNG and to those of browsers."""
_LONGEST_NAME = 48


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Return one element of SVG; ``class_`` stands for class, ``stroke_width`` for stroke-width."""
    given = "".join(f' {name.rstrip("_").replace("_", "-")}="{_text(part)}"' for name, part in attributes.items())
    return Markup(f"<{tag}{given}>{''.join(map(_text, children))}</{tag}>")


def _text(content: object) -> Markup:
    """Escape text; control characters and marks that turn the reading direction are shown, not obeyed."""
    return content if isinstance(content, Markup) else escape(printable(str(content)))


def join(parts: Sequence[Markup]) -> Markup:
    """Join pieces of markup."""
    return Markup("".join(parts))


def even_axis(low: float, high: float, label: str = "", *, unit: str = "") -> Axis:
    """Return an axis with equal differences at equal distances, labelled in ``unit`` as the report's axes are."""
    scale = Scale(low=low, high=high)
    ticks = scale.ticks(7)
    labels = [axis_label(tick, unit) for tick in ticks] if unit else _alike(ticks)
    return Axis(scale=scale, ticks=list(zip(ticks, labels, strict=True)), label=label)


def _alike(ticks: Sequence[float]) -> list[str]:
    """Return numbers with one scale and as many decimals as tell neighbours apart."""
    largest = max(map(abs, ticks))
    letter = short(largest)[-1:] if largest >= 1e4 else ""
    size = 10.0 ** {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15}.get(letter, 0)
    step = abs(ticks[1] - ticks[0]) / size if len(ticks) > 1 else largest or 1.0
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    return [f"{tick / size:,.{decimals}f} {letter}".strip().replace("-", "−") for tick in ticks]


def ratio_axis(values: Sequence[float], label: str) -> Axis:
    """Return a logarithmic axis around some values."""
    above = [value for value in values if value > 0] or [1.0]
    low, high = math.log10(min(above)), math.log10(max(above))
    room = 0.04 * max(high - low, 0.3)
    scale = Scale(low=low - room, high=max(high, low + 0.3) + room, logarithmic=True)
    return Axis(scale=scale, ticks=[(tick, short(tick)) for tick in scale.ticks()], label=label)


def names_axis(names: Sequence[str]) -> Axis:
    """Return an axis of names from the top down: name i lies about ``len(names) - i - 0.5``."""
    ticks = [(len(names) - i - 0.5, name) for i, name in enumerate(names)]
    return Axis(scale=Scale(low=0.0, high=float(len(names))), ticks=ticks, grid=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where a panel lies on the picture."""

    x_scale: Scale
    y_scale: Scale
    left: float
    top: float
    width: float
    height: float

    def x(self, value: float) -> float:
        """Return how far right a value lies; what has no place lies at the left end."""
        return self.left + self.width * (self.x_scale.share(value) or 0.0)

    def y(self, value: float) -> float | None:
        """Return how far down a value lies; None where there is no place for it."""
        share = self.y_scale.share(value)
        return None if share is None else self.top + self.height * (1 - share)


def _drawn(mark: Mark, frame: Frame) -> Markup:
    """Return a mark in the coordinates of its panel."""
    match mark:
        case Line():
            dash = dash_of(mark.colour) if mark.is_dashed else "none"
            path = element(
                "path",
                d=outline(mark.points, frame.x, frame.y),
                fill="none",
                stroke=colour_of(mark.colour),
                stroke_width=mark.stroke,
                stroke_dasharray=dash,
                stroke_linejoin="round",
            )
            dots = [
                element(
                    "circle", cx=shortened(frame.x(x)), cy=shortened(place), r=mark.radius, fill=colour_of(mark.colour)
                )
                for x, value in (mark.points if mark.radius else ())
                if value is not None and (place := frame.y(value)) is not None
            ]
            return join([path, *dots] if mark.stroke else dots)
        case Area():
            outlined = ring(mark.upper, mark.lower, frame.x, frame.y)
            return element("path", d=outlined, fill=colour_of(mark.colour), fill_opacity=mark.opacity)
        case Box():
            left, right = sorted(map(frame.x, mark.x))
            top, bottom = sorted(frame.y(value) or 0.0 for value in mark.y)
            return element(
                "rect",
                x=shortened(left),
                y=shortened(top),
                width=shortened(right - left),
                height=shortened(bottom - top),
                fill=colour_of(mark.colour),
                shape_rendering="crispEdges",
            )
        case Rule():
            x, bottom = frame.x(mark.x), frame.top + frame.height
            line = element(
                "line",
                x1=shortened(x),
                x2=shortened(x),
                y1=frame.top,
                y2=bottom,
                stroke=INK,
                stroke_width=1.4,
                stroke_dasharray="5 4" if mark.is_dashed else "none",
            )
            return join([line, _label(mark.note, x + 5, frame.top + TEXT, size=TEXT - 2)]) if mark.note else line
        case _:
            assert_never(mark)


def bars(names: Sequence[str], layers: Mapping[str, Sequence[float]], label: str, first: int = 0) -> Panel:
    """Return bars that lie down, layers one after the other, in colours from the palette's ``first`` on."""
    left = [0.0] * len(names)
    ends, boxes = [0.0], []
    for colour, widths in enumerate(layers.values(), start=first):
        right = [a + b for a, b in zip(left, widths, strict=True)]
        boxes += [
            Box(x=(a, b), y=_bar(len(names), i), colour=colour)
            for i, (a, b) in enumerate(zip(left, right, strict=True))
        ]
        left, ends = right, [*ends, *right]
    x = even_axis(min(ends), 1.02 * max(ends) or 1.0, label)
    return Panel(
        x=x, y=names_axis(names), marks=[mark for mark in boxes if mark.x[0] != mark.x[1]], height=34.0 * len(names) + 8
    )


def swings(
    rows: Sequence[tuple[str, Sequence[tuple[float, int]]]], middle: float, title: str, spans: Sequence[float] = ()
) -> Panel:
    """Return bars that lie down, from a middle to each of a row's (end, colour); the axis holds ``spans`` too."""
    ends = [middle, *spans, *(end for _, row in rows for end, _ in row)]
    room = 0.03 * ((max(ends) - min(ends)) or 1.0)
    boxes = [
        Box(x=(middle, end), y=_bar(len(rows), i), colour=colour)
        for i, (_, row) in enumerate(rows)
        for end, colour in row
    ]
    x, y = even_axis(min(ends) - room, max(ends) + room), names_axis([name for name, _ in rows])
    return Panel(x=x, y=y, marks=[*boxes, Rule(x=middle)], title=title, height=26.0 * len(rows) + 8)


def _bar(count: int, place: int) -> tuple[float, float]:
    """Return the lower and upper side of a bar among some, the first on top."""
    return count - place - 0.9, count - place - 0.1


def _room(text: str) -> float:
    return _LETTER * TEXT * sum(0.55 if letter in _NARROW else 1.55 if letter in _WIDE else 1.0 for letter in text)


def _label(content: str, x: float, y: float, *, size: float = TEXT, **attributes: object) -> Markup:
    given = {"fill": INK, **attributes}
    return element("text", content, x=shortened(x), y=shortened(y), font_size=size, **given)


def _cut(content: str, longest: int) -> str:
    return content if len(content) <= longest else content[: longest - 1] + "…"


def picture_of(figure: Figure) -> Picture:
    """Return a figure as a picture that stands still."""
    if isinstance(figure, Picture):
        return figure
    keys = {series.name: series.colour for series in figure.series}
    return Picture(
        title=figure.title, panels=[panel_of(figure)], keys=keys, shape="square" if figure.stacked else "line"
    )


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
                x_scale=panel.x.scale,
                y_scale=panel.y.scale,
                left=column * width + left,
                top=top + above,
                width=width - left - 24,
                height=panel.height,
            )
            parts.append(_panel(panel, frame, f"panel-{first + column}"))
        has_labels = any(label for panel in row for _, label in panel.x.ticks)
        below = (24 if has_labels else 4) + (24 if any(panel.x.label for panel in row) else 0)
        top += above + max(panel.height for panel in row) + below + 6
    height = shortened(top + 6)
    svg = element(
        "svg",
        element("title", picture.title),
        element("rect", width=WIDTH, height=height, fill=PAPER),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        width=WIDTH,
        height=height,
        role="img",
        font_family=f"{FONT}, Source Sans 3, Segoe UI, Helvetica, Arial, sans-serif",
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'


def _head(picture: Picture) -> tuple[Markup, float]:
    """Return title, note and legend, and where they end."""
    longest = int((WIDTH - 32) / (_LETTER * TITLE))
    parts, y = [_label(_cut(picture.title, longest), 16, 32, size=TITLE, font_weight="bold")], 40.0
    if picture.note:
        parts.append(_label(picture.note, 16, y + 16, fill=SOFT))
        y += 24
    x, swatch = 16.0, 38 if picture.shape == "line" else 22
    for name, colour in picture.keys.items():
        needed = swatch + _room(name) + 24
        if x > 16 and x + needed > WIDTH:
            x, y = 16.0, y + 24
        parts += [_swatch(picture.shape, colour, x, y + 14), _label(name, x + swatch, y + 19)]
        x += needed
    return join(parts), y + (30 if picture.keys else 0)


def _swatch(shape: str, colour: int, x: float, y: float) -> Markup:
    if shape == "square":
        return element("rect", x=x, y=y - 7, width=16, height=14, fill=colour_of(colour))
    if shape == "dot":
        return element("circle", cx=x + 8, cy=y, r=5, fill=colour_of(colour))
    return element(
        "line", x1=x, x2=x + 32, y1=y, y2=y, stroke=colour_of(colour), stroke_width=3, stroke_dasharray=dash_of(colour)
    )


def _panel(panel: Panel, frame: Frame, key: str) -> Markup:
    """Return title, grid, labels and marks; what leaves the room between the axes is not drawn."""
    right, bottom = frame.left + frame.width, frame.top + frame.height
    parts = []
    if panel.title:
        parts.append(_label(panel.title, frame.left, frame.top - (30 if panel.y.label else 10), font_weight="bold"))
    if panel.y.label:
        parts.append(_label(panel.y.label, frame.left, frame.top - 9, size=TEXT - 1, fill=SOFT))
    for value, label in panel.y.ticks:
        if (y := frame.y(value)) is not None:
            parts.append(_grid(frame.left, right, y, y) if panel.y.grid else Markup(""))
            parts.append(_label(_cut(label, _LONGEST_NAME), frame.left - 8, y + 5, fill=SOFT, text_anchor="end"))
    for value, label in panel.x.ticks:
        x = frame.x(value)
        parts.append(_grid(x, x, frame.top, bottom) if panel.x.grid else _grid(x, x, bottom, bottom + 5))
        if label:
            parts.append(_label(label, x, bottom + 21, fill=SOFT, text_anchor="middle"))
    if panel.x.label:
        parts.append(_label(panel.x.label, frame.left + frame.width / 2, bottom + 45, text_anchor="middle"))
    room = element("rect", x=shortened(frame.left), y=frame.top, width=shortened(frame.width), height=frame.height)
    marks = element("g", *(_drawn(mark, frame) for mark in panel.marks), clip_path=f"url(#{key})")
    axis = element("line", x1=shortened(frame.left), x2=shortened(right), y1=bottom, y2=bottom, stroke=SOFT)
    return join([*parts, element("clipPath", room, id=key), marks, axis])


def _grid(x1: float, x2: float, y1: float, y2: float) -> Markup:
    return element("line", x1=shortened(x1), x2=shortened(x2), y1=shortened(y1), y2=shortened(y2), stroke=RULE)


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
        x=Axis(scale=Scale(low=0.0, high=chart.days), ticks=month_labels(chart.start, chart.days), grid=False),
        y=Axis(scale=scale, ticks=[(t, axis_label(t, chart.unit)) for t in scale.ticks()], label=chart.summary),
        marks=marks,
        title=title,
        height=height,
    )


def paths_of(chart: TimeChart, scale: Scale) -> list[tuple[Series, list[tuple[str, str]]]]:
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


def month_labels(start: date, days: float) -> list[tuple[float, str]]:
    """Return at most a dozen firsts of months to label."""
    months = max(1, round(days / 30.4))
    every = next(step for step in (1, 2, 3, 6, 12, 24, 60, 120, 1200) if months / step <= 12)
    labels, current = [], start.replace(day=1)
    while (current - start).days < days:
        if (current.month - 1) % min(every, 12) == 0 and current >= start and current.year % max(1, every // 12) == 0:
            labels.append((float((current - start).days), current.strftime("%Y-%m")))
        current = (current + timedelta(days=32)).replace(day=1)
    return labels
