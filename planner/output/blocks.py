"""What a reader is shown, as data: sentences, grids with bars, charts, and the sections that they stand in.

The room that knows a fact makes these once; the renderers (terminal, HTML, SVG, workbook) turn any of them into a file,
and know nothing of what the answer is about. In text, words between backticks are something to type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import Literal, NamedTuple

from planner.output.scales import Points, Scale

Tone = Literal["headline", "note", "summary", ""]


class Sentence(NamedTuple):
    """A paragraph."""

    text: str
    """What it says."""
    tone: Tone = ""
    """How much of the reader's attention it asks for."""


def sentences(lines: Sequence[str], tone: Tone = "") -> list[Sentence]:
    """Return lines as paragraphs of one tone."""
    return [Sentence(text=line, tone=tone) for line in lines]


class BarPart(NamedTuple):
    """One part of a bar."""

    name: str
    """What it is."""
    share: float
    """Of the longest bar, 0 to 1."""
    colour: int
    """Index into the palette."""
    shown: str = ""
    """Its size in words."""


class Bar(NamedTuple):
    """A bar of parts in the cell of a grid; the numbers stand beside it, so a screen reader passes over it."""

    parts: Sequence[BarPart]
    lead: float = 0.0
    """Share of the longest bar at which it begins: a step of a waterfall."""
    is_group: bool = False
    """Parts below one another, for what is compared and does not add up."""


class Span(NamedTuple):
    """Bars about a middle, as shares of the cell's width: a tornado's swing, or percentiles about their median."""

    pieces: Sequence[tuple[str, float, float]]
    """Style, beginning and length of each."""
    middle: float


class Shade(NamedTuple):
    """A number on a tint, or struck out, with a hint for the pointer."""

    text: str
    depth: int | None
    """Of the tint, 0 to 4; None where the number is struck out."""
    hint: str = ""


class Path(NamedTuple):
    """A dotted path that a narrow column may break behind its dots and underscores."""

    text: str


Cell = str | Bar | Span | Shade | Path


class Grid(NamedTuple):
    """A table as a reader meets it; its first column names the rows."""

    caption: str
    header: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()
    """Columns aligned right."""
    unbroken: Sequence[int] = ()
    """Columns that keep to a line."""
    legend: Mapping[str, int] = MappingProxyType({})
    """Names and colours of what its bars are made of, shown above it."""
    swatches: Mapping[int, int] = MappingProxyType({})
    """Colours that stand before headings, by column."""


def bar_grid(
    header: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str], Cell | Sequence[BarPart]]],
    caption: str,
    legend: Mapping[str, int] | None = None,
) -> Grid:
    """Return a grid of (name, numbers, bar or its parts): the bar has the last column."""
    cells = [
        (name, *numbers, drawn if isinstance(drawn, str | Bar | Span | Shade | Path) else Bar(parts=drawn))
        for name, numbers, drawn in rows
    ]
    return Grid(caption=caption, header=header, rows=cells, numeric=range(1, len(header) - 1), legend=legend or {})


class Fact(NamedTuple):
    """One headline figure."""

    term: str
    value: str
    range: str = ""
    """Where it lies in other replications."""


class Facts(NamedTuple):
    """Headline figures side by side."""

    facts: Sequence[Fact]


class Bullets(NamedTuple):
    """A list of lines."""

    lines: Sequence[str]


class Command(NamedTuple):
    """A command on a line of its own."""

    text: str


class Links(NamedTuple):
    """Files that lie beside the page."""

    names: Sequence[str]


class Folded(NamedTuple):
    """Blocks that are folded until opened."""

    title: str
    blocks: Sequence[Block]
    is_open: bool = False
    css: Literal["", "dump", "plan", "roomy"] = ""
    """``dump`` is every row of a file that lies beside the report: print leaves it folded."""


class Series(NamedTuple):
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


class Marker(NamedTuple):
    """An event on the lanes below a chart."""

    kind: str
    """Lane it lies on."""
    start: float
    """Days since start."""
    end: float
    """Days since start; the same as ``start`` for what takes no time."""
    label: str
    """What happened, in a few words."""


class TimeChart(NamedTuple):
    """A chart over time, which a page lets its reader zoom and read."""

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
    markers: Sequence[Marker] = ()
    """Events to mark."""


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


class Line(NamedTuple):
    """A line through points, dots at them, or both."""

    points: Points
    colour: int
    stroke: float = 2.4
    """Width of the line; 0 for dots alone."""
    radius: float = 0.0
    """Of the dots; 0 for none."""


class Area(NamedTuple):
    """What lies between two edges."""

    upper: Points
    lower: Points
    colour: int
    opacity: float = 1.0


class Box(NamedTuple):
    """A bar from one corner to the other."""

    x: tuple[float, float]
    y: tuple[float, float]
    colour: int


class VerticalRule(NamedTuple):
    """A line from top to bottom, with a note at its head."""

    x: float
    note: str = ""
    is_dashed: bool = False


Mark = Line | Area | Box | VerticalRule


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
    """A chart that stands still: panels with axes, and marks in the coordinates of those axes."""

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


Figure = TimeChart | Picture
Block = Sentence | Grid | Facts | Bullets | Command | Links | Folded | TimeChart | Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a report."""

    key: str
    """Anchor."""
    title: str
    """The question it answers."""
    blocks: Sequence[Block]
