"""Pictures that stand still, as SVG and PNG files: panels with axes, and marks in the coordinates of those axes.

The report's charts over time (``report/timechart.py``) share their scales and outlines, and turn into panels too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from planner.output.report.contents import Contents
from planner.output.report.html import Html, element, join
from planner.output.report.words import axis_label, short
from planner.output.scales import INK, PAPER, RULE, SOFT, Points, Scale, colour_of, dash_of, outline, ring, shortened

FORMATS = ("png", "svg")
FONT = "Source Sans Pro"
WIDTH, PNG_WIDTH = 1000, 1600
TEXT, TITLE = 15, 20
_LETTER, _NARROW, _WIDE = 0.54, frozenset("fijlrtI.,:;'|!-()[]/ "), frozenset("mwMW@%×")
"""Width of most letters over the size of their text, and those that take half or half as much again: near enough to the
font of the PNG and to those of browsers."""
_LONGEST_NAME = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One side of a panel."""

    scale: Scale
    """What it spans."""
    ticks: Sequence[tuple[float, str]] = ()
    """Values with their labels; a label may be empty."""
    label: str = ""
    """What it shows, with its unit."""
    grid: bool = True
    """Whether lines cross the panel at the ticks."""


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


class Mark(Protocol):
    """Something drawn in the coordinates of a panel."""

    def drawn(self, frame: Frame) -> Html:
        """Return it as SVG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through points, dots at them, or both."""

    points: Points
    colour: int
    stroke: float = 2.4
    """Width of the line; 0 for dots alone."""
    radius: float = 0.0
    """Of the dots; 0 for none."""
    is_dashed: bool = True
    """Whether it has the dash of its colour."""

    def drawn(self, frame: Frame) -> Html:
        """Return it as SVG."""
        path = element("path", d=outline(self.points, frame.x, frame.y), fill="none", stroke=colour_of(self.colour),
                       stroke_width=self.stroke, stroke_dasharray=dash_of(self.colour) if self.is_dashed else "none",
                       stroke_linejoin="round")  # fmt: skip
        dots = [
            element("circle", cx=shortened(frame.x(x)), cy=shortened(place), r=self.radius, fill=colour_of(self.colour))
            for x, value in (self.points if self.radius else ())
            if value is not None and (place := frame.y(value)) is not None
        ]
        return join([path, *dots] if self.stroke else dots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """What lies between two edges."""

    upper: Points
    lower: Points
    colour: int
    opacity: float = 1.0

    def drawn(self, frame: Frame) -> Html:
        """Return it as SVG."""
        path = ring(self.upper, self.lower, frame.x, frame.y)
        return element("path", d=path, fill=colour_of(self.colour), fill_opacity=self.opacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A bar from one corner to the other."""

    x: tuple[float, float]
    y: tuple[float, float]
    colour: int

    def drawn(self, frame: Frame) -> Html:
        """Return it as SVG."""
        left, right = sorted(map(frame.x, self.x))
        top, bottom = sorted(frame.y(value) or 0.0 for value in self.y)
        return element(
            "rect", x=shortened(left), y=shortened(top), width=shortened(right - left), height=shortened(bottom - top),
            fill=colour_of(self.colour), shape_rendering="crispEdges",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A line from top to bottom, with a note at its head."""

    x: float
    note: str = ""
    is_dashed: bool = False

    def drawn(self, frame: Frame) -> Html:
        """Return it as SVG."""
        x, bottom = frame.x(self.x), frame.top + frame.height
        line = element("line", x1=shortened(x), x2=shortened(x), y1=frame.top, y2=bottom, stroke=INK,
                       stroke_width=1.4, stroke_dasharray="5 4" if self.is_dashed else "none")  # fmt: skip
        return join([line, _text(self.note, x + 5, frame.top + TEXT, size=TEXT - 2)]) if self.note else line


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Marks between two axes."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    height: float = 320.0
    """Of the room between the axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a file shows."""

    title: str
    panels: Sequence[Panel]
    keys: Mapping[str, int] = field(default_factory=dict)
    """Legend: names with the index of their colour."""
    shape: Literal["line", "square", "dot"] = "line"
    """What stands before a name in the legend."""
    note: str = ""
    """A line below the title."""
    columns: int = 1
    """Panels beside one another."""


Draw = Callable[[Contents], Picture | None]
"""Draws a folder's files; None where those it needs are not there."""


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


def _text(content: str, x: float, y: float, *, size: float = TEXT, **attributes: object) -> Html:
    given = {"fill": INK, **attributes}
    return element("text", content, x=shortened(x), y=shortened(y), font_size=size, **given)


def _cut(content: str, longest: int) -> str:
    return content if len(content) <= longest else content[: longest - 1] + "…"


def svg_of(picture: Picture) -> str:
    """Return a picture as an SVG file; the same picture gives the same bytes."""
    head, top = _head(picture)
    names = [_cut(label, _LONGEST_NAME) for panel in picture.panels for _, label in panel.y.ticks]
    left = 16 + max([32.0, *map(_room, names)])
    width = WIDTH / picture.columns
    parts = [head]
    for first in range(0, len(picture.panels), picture.columns):
        row = picture.panels[first : first + picture.columns]
        above = max((28 if panel.title else 0) + (24 if panel.y.label else 10) for panel in row)
        for column, panel in enumerate(row):
            frame = Frame(x_scale=panel.x.scale, y_scale=panel.y.scale, left=column * width + left, top=top + above,
                          width=width - left - 24, height=panel.height)  # fmt: skip
            parts.append(_panel(panel, frame, f"panel-{first + column}"))
        has_labels = any(label for panel in row for _, label in panel.x.ticks)
        below = (24 if has_labels else 4) + (24 if any(panel.x.label for panel in row) else 0)
        top += above + max(panel.height for panel in row) + below + 6
    height = shortened(top + 6)
    svg = element(
        "svg", element("title", picture.title), element("rect", width=WIDTH, height=height, fill=PAPER), *parts,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height}", width=WIDTH, height=height, role="img",
        font_family=f"{FONT}, Source Sans 3, Segoe UI, Helvetica, Arial, sans-serif",
    )  # fmt: skip
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'


def _head(picture: Picture) -> tuple[Html, float]:
    """Return title, note and legend, and where they end."""
    longest = int((WIDTH - 32) / (_LETTER * TITLE))
    parts, y = [_text(_cut(picture.title, longest), 16, 32, size=TITLE, font_weight="bold")], 40.0
    if picture.note:
        parts.append(_text(picture.note, 16, y + 16, fill=SOFT))
        y += 24
    x, swatch = 16.0, 38 if picture.shape == "line" else 22
    for name, colour in picture.keys.items():
        needed = swatch + _room(name) + 24
        if x > 16 and x + needed > WIDTH:
            x, y = 16.0, y + 24
        parts += [_swatch(picture.shape, colour, x, y + 14), _text(name, x + swatch, y + 19)]
        x += needed
    return join(parts), y + (30 if picture.keys else 0)


def _swatch(shape: str, colour: int, x: float, y: float) -> Html:
    if shape == "square":
        return element("rect", x=x, y=y - 7, width=16, height=14, fill=colour_of(colour))
    if shape == "dot":
        return element("circle", cx=x + 8, cy=y, r=5, fill=colour_of(colour))
    return element("line", x1=x, x2=x + 32, y1=y, y2=y, stroke=colour_of(colour), stroke_width=3,
                   stroke_dasharray=dash_of(colour))  # fmt: skip


def _panel(panel: Panel, frame: Frame, key: str) -> Html:
    """Return title, grid, labels and marks; what leaves the room between the axes is not drawn."""
    right, bottom = frame.left + frame.width, frame.top + frame.height
    parts = []
    if panel.title:
        parts.append(_text(panel.title, frame.left, frame.top - (30 if panel.y.label else 10), font_weight="bold"))
    if panel.y.label:
        parts.append(_text(panel.y.label, frame.left, frame.top - 9, size=TEXT - 1, fill=SOFT))
    for value, label in panel.y.ticks:
        if (y := frame.y(value)) is not None:
            parts.append(_grid(frame.left, right, y, y) if panel.y.grid else Html(""))
            parts.append(_text(_cut(label, _LONGEST_NAME), frame.left - 8, y + 5, fill=SOFT, text_anchor="end"))
    for value, label in panel.x.ticks:
        x = frame.x(value)
        parts.append(_grid(x, x, frame.top, bottom) if panel.x.grid else _grid(x, x, bottom, bottom + 5))
        if label:
            parts.append(_text(label, x, bottom + 21, fill=SOFT, text_anchor="middle"))
    if panel.x.label:
        parts.append(_text(panel.x.label, frame.left + frame.width / 2, bottom + 45, text_anchor="middle"))
    room = element("rect", x=shortened(frame.left), y=frame.top, width=shortened(frame.width), height=frame.height)
    marks = element("g", *(mark.drawn(frame) for mark in panel.marks), clip_path=f"url(#{key})")
    axis = element("line", x1=shortened(frame.left), x2=shortened(right), y1=bottom, y2=bottom, stroke=SOFT)
    return join([*parts, element("clipPath", room, id=key), marks, axis])


def _grid(x1: float, x2: float, y1: float, y2: float) -> Html:
    return element("line", x1=shortened(x1), x2=shortened(x2), y1=shortened(y1), y2=shortened(y2), stroke=RULE)


def png_of(svg: str) -> bytes:
    """Return a picture as a PNG file in a font that comes with the planner: a machine without fonts draws text too."""
    import font_source_sans_pro  # noqa: PLC0415 - only pictures need it
    import resvg_py  # noqa: PLC0415 - as above

    files = font_source_sans_pro.font_files_ttf
    return resvg_py.svg_to_bytes(
        svg_string=svg, width=PNG_WIDTH, skip_system_fonts=True, font_family=FONT,
        font_files=[files["SourceSansPro"], files["SourceSansProBold"]],
    )  # fmt: skip


def files_of(picture: Picture, formats: Sequence[str] = FORMATS) -> dict[str, bytes]:
    """Return a picture in each format."""
    svg = svg_of(picture)
    return {suffix: svg.encode() if suffix == "svg" else png_of(svg) for suffix in formats}
