"""Bars as table cells: they read as numbers first, need no script, and print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.reporting.report.html import Html, breakable, macro
from planner.reporting.scales import colour_class

TABLES = "tables.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a bar."""

    name: str
    """What it is."""
    share: float
    """Of the longest bar, 0 to 1."""
    colour: int
    """Index into the palette."""
    shown: str
    """Its size in words."""


def bar(parts: Sequence[Part], lead: float = 0.0) -> Html:
    """Return a bar of one or more parts that begins at a share of the longest: a step of a waterfall.

    The numbers stand beside it, so it is decoration to a screen reader.
    """
    return macro(TABLES, "bar", parts, lead)


def group(parts: Sequence[Part]) -> Html:
    """Return bars below one another, one for each part: what is compared, not what adds up."""
    return macro(TABLES, "group", parts)


def spread(ends: tuple[float, float, float, float, float], highest: float, colour: int) -> Html:
    """Return P5 to P95 as a thin bar, P10 to P90 as a thick one, and the median as a line, on a scale from zero."""
    low, lower, middle, upper, high = (max(0.0, min(end / highest, 1.0)) for end in ends)
    css = colour_class(colour)
    pieces = [(f"span {css}", low, high - low), (f"swing {css}", lower, upper - lower)]
    return macro(TABLES, "spread", pieces, middle)


def legend(names: Sequence[tuple[str, int]]) -> Html:
    """Return a legend of coloured squares."""
    return macro(TABLES, "legend", names)


def bar_table(
    header: Sequence[str], rows: Sequence[tuple[str, Sequence[str], Sequence[Part] | Html]], caption: str
) -> Html:
    """Return a table of (name, numbers, bar or its parts): the bar has the last column."""
    drawn = [(name, numbers, cell if isinstance(cell, Html) else bar(cell)) for name, numbers, cell in rows]
    return macro(TABLES, "bar_table", header, drawn, caption)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """One bar of a tornado."""

    name: str
    """The input."""
    low: float
    """The answer at one end."""
    high: float
    """The answer at the other."""
    shown: tuple[str, str]
    """Both in words."""
    span: str = ""
    """From where to where the input goes, with its unit."""
    is_noise: bool = False
    """Whether chance alone moves the answer as far."""


def tornado(swings: Sequence[Swing], middle: float, caption: str, ends: tuple[str, str]) -> Html:
    """Return a tornado about a middle; ``ends`` say what the two answers of a bar are."""
    places = [end for swing in swings for end in (swing.low, swing.high)] or [middle]
    left, right = min(*places, middle), max(*places, middle)
    span = (right - left) or 1.0

    rows = []
    for swing in swings:
        pieces = [
            (f"swing {'noise' if swing.is_noise else css}", (min(end, middle) - left) / span, abs(end - middle) / span)
            for end, css in ((swing.low, "c0"), (swing.high, "c1"))
        ]
        drawn = macro(TABLES, "spread", pieces, (middle - left) / span)
        rows.append((breakable(swing.name), swing.span, swing.shown, drawn))
    return macro(TABLES, "tornado", rows, caption, ends)
