"""The one drawer of charts: pictures and charts over time as SVG, and SVG as PNG.

A chart over time is drawn for a page in its own coordinates, (days since start) × (0 to 1,000), stretched to whatever
room there is: it is there without any script (a mail preview, a print), and the page's script only moves the window. As
a picture it is a panel like any other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

PAPER = "#ffffff"
SOFT = "#565d66"
RULE = "#d9dde2"
FONT = "Source Sans Pro"
WIDTH = 1000
"""Of a picture, in its own pixels; every length below is in these."""
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
_END = ' text-anchor="end"'
_ON_PAPER = f' paint-order="stroke" stroke="{PAPER}" stroke-width="4"'
"""A rim of paper, so that text reads where it lies on a line."""
_PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
"""What the prefixes of an axis stand for."""


def _text(content: str) -> str:
    """Escape text; control characters and marks that turn the reading direction are shown, not obeyed."""
    return str(escape(printable(content)))


def even_axis(low: float, high: float, label: str = "", *, unit: str = "") -> Axis:
    """Return an axis with equal differences at equal distances, labelled in ``unit`` as the report's axes are."""
    scale = Scale(low=low, high=high)
    ticks = scale.ticks(7)
    if unit:
        labels = [axis_label(tick, unit) for tick in ticks]
    else:
        # One prefix for all ticks, and as many decimals as tell neighbours apart.
        largest = max(map(abs, ticks))
        prefix = ""
        if largest >= 1e4:
            prefix = short(largest)[-1:]
        size = _PREFIXES.get(prefix, 1.0)
        # A single tick has no neighbour; then its own size says how many decimals it needs.
        step = largest or 1.0
        if len(ticks) > 1:
            step = abs(ticks[1] - ticks[0]) / size
        decimals = 0
        if step:
            # A step of 0.1 may be a hair less, which must not add a decimal.
            power = math.floor(math.log10(step) + 1e-9)
            decimals = max(0, -power)
        texts = [f"{tick / size:,.{decimals}f} {prefix}" for tick in ticks]
        labels = [text.strip().replace("-", "−") for text in texts]
    labelled = list(zip(ticks, labels, strict=True))
    return Axis(scale=scale, ticks=labelled, label=label)


def ratio_axis(values: Sequence[float], label: str) -> Axis:
    """Return a logarithmic axis around some values."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.log10(min(positive))
    high = math.log10(max(positive))
    # Values at the ends of the axis would lie on its edge.
    room = 0.04 * max(high - low, 0.3)
    # Over less than a factor of two there would hardly be a tick.
    highest = max(high, low + 0.3)
    scale = Scale(low=low - room, high=highest + room, logarithmic=True)
    ticks = [(tick, short(tick)) for tick in scale.ticks()]
    return Axis(scale=scale, ticks=ticks, label=label)


def names_axis(names: Sequence[str]) -> Axis:
    """Return an axis of names from the top down: name i lies about ``len(names) - i - 0.5``."""
    count = len(names)
    ticks = [(count - i - 0.5, name) for i, name in enumerate(names)]
    scale = Scale(low=0.0, high=float(count))
    return Axis(scale=scale, ticks=ticks, grid=False)


class Frame(NamedTuple):
    """Where a panel lies on the picture."""

    panel: Panel
    left: float
    top: float
    width: float

    def x(self, value: float) -> float:
        """Return how far right a value lies; what has no place lies at the left end."""
        share = self.panel.x.scale.share(value) or 0.0
        return self.left + self.width * share

    def y(self, value: float) -> float | None:
        """Return how far down a value lies; None where there is no place for it."""
        share = self.panel.y.scale.share(value)
        if share is None:
            return None
        # Pixels count from the top down.
        return self.top + self.panel.height * (1 - share)


def _mark_svg(mark: Mark, frame: Frame) -> str:
    """Return a mark in the coordinates of its panel."""
    match mark:
        case Line():
            return _line_svg(mark, frame)
        case Area():
            path = ring(mark.upper, mark.lower, frame.x, frame.y)
            colour = colour_of(mark.colour)
            return f'<path d="{path}" fill="{colour}" fill-opacity="{mark.opacity}"></path>'
        case Box():
            left, right = sorted(map(frame.x, mark.x))
            heights = [frame.y(value) or 0.0 for value in mark.y]
            top, bottom = sorted(heights)
            size = f'width="{shortened(right - left)}" height="{shortened(bottom - top)}"'
            look = f'fill="{colour_of(mark.colour)}" shape-rendering="crispEdges"'
            return f'<rect x="{shortened(left)}" y="{shortened(top)}" {size} {look}></rect>'
        case VerticalRule():
            return _rule_svg(mark, frame)
        case _:
            assert_never(mark)


def _line_svg(line: Line, frame: Frame) -> str:
    """Return a line, its dots, or both."""
    colour = colour_of(line.colour)
    parts = []
    if line.stroke:
        path = f'd="{outline(line.points, frame.x, frame.y)}" fill="none" stroke="{colour}"'
        look = f'stroke-width="{line.stroke}" stroke-dasharray="{dash_of(line.colour)}"'
        parts.append(f'<path {path} {look} stroke-linejoin="round"></path>')
    dots = line.points if line.radius else ()
    for x, value in dots:
        y = None
        if value is not None:
            y = frame.y(value)
        if y is not None:
            centre = f'cx="{shortened(frame.x(x))}" cy="{shortened(y)}"'
            parts.append(f'<circle {centre} r="{line.radius}" fill="{colour}"></circle>')
    return "".join(parts)


def _rule_svg(rule: VerticalRule, frame: Frame) -> str:
    """Return a line from top to bottom, with its note."""
    x = frame.x(rule.x)
    dash = "5 4" if rule.is_dashed else "none"
    note = ""
    if rule.note:
        # At the right edge there is no room beside it.
        is_at_edge = x > frame.left + 0.88 * frame.width
        anchor = _END if is_at_edge else ""
        offset = -5 if is_at_edge else 5
        y = frame.top + TEXT
        note = _label(rule.note, x + offset, y, anchor + _ON_PAPER, size=TEXT - 2)
    place = f'x1="{shortened(x)}" x2="{shortened(x)}" y1="{frame.top}"'
    bottom = frame.top + frame.panel.height
    look = f'stroke="{INK}" stroke-width="1.4" stroke-dasharray="{dash}"'
    return f'<line {place} y2="{bottom}" {look}></line>{note}'


def bars(
    names: Sequence[str], layers: Mapping[str, Sequence[float]], label: str, colour: int = 0
) -> Panel:
    """Return bars that lie down, layers one after the other, in the palette's colours from ``colour`` on."""
    starts = [0.0] * len(names)
    edges = [0.0]
    boxes: list[Mark] = []
    for index, widths in enumerate(layers.values(), start=colour):
        stops = [start + width for start, width in zip(starts, widths, strict=True)]
        spans = zip(starts, stops, strict=True)
        for place, span in enumerate(spans):
            # A bar without width would be drawn as a hair.
            if span[0] != span[1]:
                sides = _bar(len(names), place)
                box = Box(x=span, y=sides, colour=index)
                boxes.append(box)
        starts = stops
        edges += stops
    # The longest bar does not touch the edge; without any bar there is still an axis.
    highest = 1.02 * max(edges) or 1.0
    x = even_axis(min(edges), highest, label)
    height = 34.0 * len(names) + 8
    return Panel(x=x, y=names_axis(names), marks=boxes, height=height)


def swings(
    rows: Sequence[tuple[str, Sequence[tuple[float, int]]]],
    middle: float,
    title: str,
    spans: Sequence[float] = (),
) -> Panel:
    """Return bars that lie down, from a middle to each of a row's (end, colour); the axis holds ``spans`` too."""
    edges = [middle, *spans]
    marks: list[Mark] = []
    for place, (_, ends) in enumerate(rows):
        sides = _bar(len(rows), place)
        for end, colour in ends:
            edges.append(end)
            box = Box(x=(middle, end), y=sides, colour=colour)
            marks.append(box)
    low = min(edges)
    high = max(edges)
    room = 0.03 * ((high - low) or 1.0)
    x = even_axis(low - room, high + room)
    names = [name for name, _ in rows]
    y = names_axis(names)
    # Last, so that it lies on the bars.
    marks.append(VerticalRule(x=middle))
    height = 26.0 * len(rows) + 8
    return Panel(x=x, y=y, marks=marks, title=title, height=height)


def _bar(count: int, place: int) -> tuple[float, float]:
    """Return the lower and upper side of a bar among some, the first on top."""
    return count - place - 0.9, count - place - 0.1


def _room(text: str) -> float:
    """Return about how wide text is: the page's font is not known here."""
    narrow = sum(letter in _NARROW for letter in text)
    wide = sum(letter in _WIDE for letter in text)
    letters = len(text) - 0.45 * narrow + 0.55 * wide
    return _LETTER * TEXT * letters


def _label(
    content: str, x: float, y: float, attributes: str = "", *, size: float = TEXT, fill: str = INK
) -> str:
    """Return text at a place, with further attributes."""
    place = f'x="{shortened(x)}" y="{shortened(y)}"'
    return f'<text {place} font-size="{size}" fill="{fill}"{attributes}>{_text(content)}</text>'


def _cut(content: str, longest: int) -> str:
    if len(content) <= longest:
        return content
    return content[: longest - 1] + "…"


def picture_of(figure: Figure) -> Picture:
    """Return a figure as a picture that stands still."""
    if isinstance(figure, Picture):
        return figure
    # Series of one name share a colour, and so an entry of the legend.
    keys = {series.name: series.colour for series in figure.series}
    shape: Literal["square", "line"] = "square" if figure.stacked else "line"
    panels = [panel_of(figure)]
    return Picture(title=figure.title, panels=panels, keys=keys, shape=shape)


def svg_of(figure: Figure) -> str:
    """Return a figure as an SVG file; the same figure gives the same bytes."""
    picture = picture_of(figure)
    head, top = _head(picture)
    rooms = [32.0]
    for panel in picture.panels:
        names = [_cut(label, _LONGEST_NAME) for _, label in panel.y.ticks]
        rooms += map(_room, names)
    # All panels leave the room of the widest label, so that their left ends stand in line.
    left = 16 + max(rooms)
    width = WIDTH / picture.columns
    parts = [head]
    for start in range(0, len(picture.panels), picture.columns):
        row = picture.panels[start : start + picture.columns]
        # Panels side by side begin at one height, whichever of them has a title.
        top += max(_room_above(panel) for panel in row)
        for column, panel in enumerate(row):
            panel_left = column * width + left
            panel_width = width - left - 24
            frame = Frame(panel, left=panel_left, top=top, width=panel_width)
            parts.append(_panel(frame, f"panel-{start + column}"))
        tick_labels: list[str] = []
        for panel in row:
            tick_labels += [label for _, label in panel.x.ticks]
        label_room = 24 if any(tick_labels) else 4
        top += max(panel.height for panel in row) + label_room
        has_axis_label = any(panel.x.label for panel in row)
        top += 30 if has_axis_label else 6
    height = shortened(top + 6)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="{FONT}, Source Sans 3, Segoe UI, Helvetica, Arial, sans-serif">'
        f"<title>{_text(picture.title)}</title>"
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"></rect>{"".join(parts)}</svg>\n'
    )


def _room_above(panel: Panel) -> float:
    """Return the room for a panel's title and the label of its upright axis."""
    title = 28 if panel.title else 0
    label = 24 if panel.y.label else 10
    return title + label


def _head(picture: Picture) -> tuple[str, float]:
    """Return title, note and legend, and where they end."""
    longest = int((WIDTH - 32) / (_LETTER * TITLE))
    title = _cut(picture.title, longest)
    parts = [_label(title, 16, 32, _BOLD, size=TITLE)]
    y = 40.0
    if picture.note:
        note = _label(picture.note, 16, y + 16, fill=SOFT)
        parts.append(note)
        y += 24
    x = 16.0
    # A line needs room to show its dash.
    swatch = 38 if picture.shape == "line" else 22
    for name, index in picture.keys.items():
        needed = swatch + _room(name) + 24
        colour = colour_of(index)
        # A name wider than the picture stays on its line: there is nowhere else.
        if x > 16 and x + needed > WIDTH:
            x = 16.0
            y += 24
        ends = f'x1="{x}" x2="{x + 32}" y1="{y + 14}" y2="{y + 14}"'
        dash = dash_of(index)
        shapes = {
            "square": f'<rect x="{x}" y="{y + 7}" width="16" height="14" fill="{colour}"></rect>',
            "dot": f'<circle cx="{x + 8}" cy="{y + 14}" r="5" fill="{colour}"></circle>',
            "line": f'<line {ends} stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"></line>',
        }
        parts.append(shapes[picture.shape])
        parts.append(_label(name, x + swatch, y + 19))
        x += needed
    if picture.keys:
        y += 30
    return "".join(parts), y


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
        rise = 30 if panel.y.label else 10
        title = _label(panel.title, frame.left, frame.top - rise, _BOLD)
        parts.append(title)
    if panel.y.label:
        label_y = frame.top - 9
        axis_name = _label(panel.y.label, frame.left, label_y, size=TEXT - 1, fill=SOFT)
        parts.append(axis_name)
    for value, label in panel.y.ticks:
        y = frame.y(value)
        if y is None:
            continue
        if panel.y.grid:
            rule(frame.left, right, y, y)
        name = _cut(label, _LONGEST_NAME)
        tick_label = _label(name, frame.left - 8, y + 5, _END, fill=SOFT)
        parts.append(tick_label)
    for value, label in panel.x.ticks:
        x = frame.x(value)
        if panel.x.grid:
            rule(x, x, frame.top, bottom)
        else:
            rule(x, x, bottom, bottom + 5)
        if label:
            tick_label = _label(label, x, bottom + 21, _MIDDLE, fill=SOFT)
            parts.append(tick_label)
    if panel.x.label:
        middle = frame.left + frame.width / 2
        axis_name = _label(panel.x.label, middle, bottom + 45, _MIDDLE)
        parts.append(axis_name)
    left = shortened(frame.left)
    width = shortened(frame.width)
    room = f'<rect x="{left}" y="{frame.top}" width="{width}" height="{panel.height}"></rect>'
    marks = "".join(_mark_svg(mark, frame) for mark in panel.marks)
    axis = f'<line x1="{left}" x2="{shortened(right)}" y1="{bottom}" y2="{bottom}" stroke="{SOFT}"></line>'
    clipped = f'<clipPath id="{key}">{room}</clipPath><g clip-path="url(#{key})">{marks}</g>'
    return "".join([*parts, clipped, axis])


def png_of(svg: str) -> bytes:
    """Return a picture as a PNG file in a font that comes with the planner: a machine without fonts draws text too."""
    import font_source_sans_pro  # noqa: PLC0415 - only pictures need it
    import resvg_py  # noqa: PLC0415 - as above

    # Only two cuts are used; all of them would take a second to read.
    files = font_source_sans_pro.font_files_ttf
    return resvg_py.svg_to_bytes(
        svg_string=svg,
        width=PNG_WIDTH,
        skip_system_fonts=True,
        font_family=FONT,
        font_files=[files["SourceSansPro"], files["SourceSansProBold"]],
    )


def _layers(chart: TimeChart) -> Iterator[tuple[Series, Points, Points]]:
    """Yield the layers of a stack with their lower and upper edges."""
    lower: list[float] = []
    if chart.series:
        lower = [0.0] * len(chart.series[0].points)
    for layer in chart.series:
        days = [day for day, _ in layer.points]
        # A gap in a layer is nothing of it: those above lie on those below.
        heights = [value or 0.0 for _, value in layer.points]
        steps = zip(lower, heights, strict=True)
        upper = [edge + height for edge, height in steps]
        lower_edge = list(zip(days, lower, strict=True))
        upper_edge = list(zip(days, upper, strict=True))
        yield layer, lower_edge, upper_edge
        lower = upper


def _values(lines: Iterable[Points], *, logarithmic: bool) -> list[float]:
    """Return the values of lines that have a place on a scale."""
    points = itertools.chain.from_iterable(lines)
    values = [value for _, value in points if value is not None]
    values = [value for value in values if math.isfinite(value)]
    if not logarithmic:
        return values
    # Zero and less have no logarithm.
    return [value for value in values if value > 0]


def scale_of(chart: TimeChart) -> Scale:
    """Return the vertical scale; zero is on it unless it is logarithmic."""
    edges: list[Points] = []
    if chart.stacked:
        for _, lower, upper in _layers(chart):
            edges += [lower, upper]
    else:
        for series in chart.series:
            edges.append(series.points)
            edges += itertools.chain.from_iterable(series.bands)
    values = _values(edges, logarithmic=chart.logarithmic)
    if not values:
        return Scale(low=0.0, high=1.0, logarithmic=chart.logarithmic)
    low = min(values)
    high = max(values)
    if chart.logarithmic:
        totals = [series.points for series in chart.series if series.colour == TOTAL]
        total = max(_values(totals, logarithmic=True), default=math.inf)
        # A part that hardly works costs any amount: it leaves the chart before it flattens the rest.
        highest = math.log10(OFF_THE_CHART * total)
        high = min(math.log10(high), highest)
        low = math.log10(low)
        # At least a factor of two, or there would hardly be a tick.
        high = max(high, low + 0.3)
        return Scale(low=low - 0.05, high=high + 0.05, logarithmic=True)
    low = min(0.0, low)
    high = max(0.0, high)
    # A share that nearly fills its axis is read against 100%.
    if chart.unit == "percent" and 0.5 < high <= 1.0:
        return Scale(low=low, high=1.0)
    # Some room beyond the ends; all at zero still has an axis.
    highest = high * 1.05 or 1.0
    return Scale(low=low * 1.05, high=highest)


def panel_of(chart: TimeChart, title: str = "", height: float = 320.0) -> Panel:
    """Return a chart as a panel of a picture, which nobody can point at or zoom."""
    scale = scale_of(chart)
    marks: list[Mark] = []
    if chart.stacked:
        for layer, lower, upper in _layers(chart):
            marks.append(Area(upper, lower, layer.colour))
    else:
        # Bands lie below all lines.
        for series in chart.series:
            for lower, upper in series.bands:
                marks.append(Area(upper, lower, series.colour, 0.13))
        for series in chart.series:
            stroke = 3.2 if series.colour == TOTAL else 2.4
            line = Line(series.points, series.colour, stroke=stroke)
            marks.append(line)
    months = month_labels(chart.start, chart.days)
    days = Scale(low=0.0, high=chart.days)
    x = Axis(scale=days, ticks=months, grid=False)
    ticks = [(tick, axis_label(tick, chart.unit)) for tick in scale.ticks()]
    y = Axis(scale=scale, ticks=ticks, label=chart.summary)
    return Panel(x=x, y=y, marks=marks, title=title, height=height)


def paths_of(chart: TimeChart, scale: Scale) -> list[tuple[Series, list[tuple[str, str]]]]:
    """Return the paths of each series with their style classes, in days across and thousandths down."""

    def height(value: float) -> float | None:
        share = scale.share(value)
        if share is None:
            return None
        # From the top down; a tenth of a thousandth is below a pixel.
        return round(FULL * (1 - share), 1)

    groups = []
    if chart.stacked:
        for layer, lower, upper in _layers(chart):
            path = ring(upper, lower, float, height)
            groups.append((layer, [("layer", path)]))
        return groups
    for line in chart.series:
        paths = []
        for lower, upper in line.bands:
            paths.append(("band", ring(upper, lower, float, height)))
        coarse = outline(line.points, float, height)
        paths.append(("line", coarse))
        groups.append((line, paths))
    return groups


def month_labels(start: date, days: float) -> list[tuple[float, str]]:
    """Return at most a dozen firsts of months to label."""
    months = max(1, round(days / 30.4))
    steps = (1, 2, 3, 6, 12, 24, 60, 120, 1200)
    step = next(step for step in steps if months / step <= 12)
    years = max(1, step // 12)
    labels = []
    current = start.replace(day=1)
    while (current - start).days < days:
        is_month_due = (current.month - 1) % min(step, 12) == 0
        is_year_due = current.year % years == 0
        # The first of the first month may lie before the start.
        if is_month_due and is_year_due and current >= start:
            day = float((current - start).days)
            labels.append((day, current.strftime("%Y-%m")))
        # 32 days after the first of a month lies in the next one, whatever its length.
        next_month = current + timedelta(days=32)
        current = next_month.replace(day=1)
    return labels
