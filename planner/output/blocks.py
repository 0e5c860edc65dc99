"""What a reader is shown, as data: sentences, grids, charts, and the sections that they stand in.

The room that knows a fact makes these once; the renderers (terminal, HTML, SVG, workbook) turn any of them into a file,
and know nothing of what the answer is about. In text, words between backticks are something to type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import date
from typing import Literal, NamedTuple

from planner.output.scales import Points, Scale
from planner.records import record

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


class Grid(NamedTuple):
    """A table as a reader meets it; its first column names the rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[int] = ()
    """Columns aligned right."""
    unbroken: Sequence[int] = ()
    """Columns that keep to a line."""
    drawn: int | None = None
    """Column of numbers behind which a page draws bars."""


class Fact(NamedTuple):
    """One headline figure."""

    term: str
    value: str
    range: str = ""
    """Where it lies in other replications."""


class Facts(NamedTuple):
    """Headline figures side by side."""

    facts: Sequence[Fact]


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
    css: Literal["", "plan", "roomy"] = ""


class Series(NamedTuple):
    """One line, or one layer of a stack, over time."""

    name: str
    """What it shows; series of one name are shown and hidden together in all charts."""
    points: Points
    """(days since start, value), in time order; None leaves a gap."""
    colour: int
    """Index into the palette; −1 is the colour of text, for the whole."""
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


@record
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


@record
class Panel:
    """Marks between two axes."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    height: float = 320.0
    """Of the room between the axes."""


@record
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
Block = Sentence | Grid | Facts | Command | Links | Folded | TimeChart | Picture


@record
class Section:
    """One part of a report."""

    key: str
    """Anchor."""
    title: str
    """The question it answers."""
    blocks: Sequence[Block]
