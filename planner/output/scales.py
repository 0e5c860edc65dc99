"""What all charts are drawn with: the palette, round ticks, scales, and outlines of lines and areas."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

from planner.records import record

# The light palette of the report (report.css): told apart by colour-blind readers, and each with a dash of its own.
COLOURS = ("#0067a5", "#c44e00", "#00795a", "#c2579c", "#8a6500", "#5b5bd6", "#a8323e", "#4a5f6a")
"""Colours of lines and layers, by index."""
DASHES = ("none", "7 3", "2 2.5", "9 3 2 3", "4 2", "1 2", "12 4", "6 2 1 2 1 2")
"""Dash of each colour, for readers and printers without colours."""
INK = "#1a1d21"
"""The colour of text."""
TOTAL = -1
"""In place of a colour's index: the colour of text, for the whole of which other lines are parts."""

Points = Sequence[tuple[float, float | None]]
"""(place along the axis, value), in order; None leaves a gap."""


def colour_of(index: int) -> str:
    """Return a colour of the palette, that of text for the whole."""
    if index == TOTAL:
        return INK
    return COLOURS[index % len(COLOURS)]


def colour_class(index: int) -> str:
    """Return the report's style class of a colour with its dash."""
    return "whole" if index == TOTAL else f"c{index % len(COLOURS)}"


def dash_of(index: int) -> str:
    """Return the dash that goes with a colour; another one where the colours begin again."""
    if index == TOTAL:
        return "none"
    # One on for each turn through the colours, so that no pair of the two comes again soon.
    turns = index // len(COLOURS)
    return DASHES[(index + turns) % len(DASHES)]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers within a range: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = math.floor(math.log10(raw))
    magnitude = 10.0**power
    steps = [multiple * magnitude for multiple in (1, 2, 5, 10)]
    # A range that is a hair wider than round must not have half as many ticks.
    smallest = raw * 0.999
    wide_enough = (step for step in steps if step >= smallest)
    step = next(wide_enough, steps[-1])
    # An end that is a tick but for rounding has its tick.
    lowest = math.ceil(low / step - 1e-9)
    highest = math.floor(high / step + 1e-9)
    return [multiple * step for multiple in range(lowest, highest + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two powers given by their logarithms; fewer over a wide range."""
    # Over more than three powers of ten the labels would touch.
    steps = (1.0, 2.0, 5.0) if high - low < 3.5 else (1.0,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = []
    for power, step in itertools.product(powers, steps):
        tick = math.log10(step) + power
        # As above: an end that is a tick but for rounding has its tick.
        if low - 1e-9 <= tick <= high + 1e-9:
            ticks.append(tick)
    return ticks


@functools.lru_cache(maxsize=8192)  # the lines of a chart have their days in common
def shortened(number: float) -> str:
    """Return a coordinate: a hundredth of a pixel is enough."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


@record
class Scale:
    """A range of values along an axis."""

    low: float
    """Lowest value shown; its logarithm to the base ten where the scale is logarithmic."""
    high: float
    """Highest value shown, likewise."""
    logarithmic: bool = False
    """Equal ratios at equal distances."""

    def share(self, value: float) -> float | None:
        """Return where a value lies, 0 at the low end and 1 at the high; None where there is no place for it."""
        if self.logarithmic:
            if value <= 0:
                return None
            value = math.log10(value)
        # A scale of one value has no width to divide by.
        width = (self.high - self.low) or 1.0
        return (value - self.low) / width

    def ticks(self, count: int = 5) -> list[float]:
        """Return round values within the scale, about as many as asked for."""
        if self.logarithmic:
            powers = log_ticks(self.low, self.high)
            return [10.0**power for power in powers]
        return nice_ticks(self.low, self.high, count)


def outline(points: Points, x: Callable[[float], float], y: Callable[[float], float | None]) -> str:
    """Return a path through the points, the pen lifted where there is no value or no place for it."""
    parts = []
    pen_down = False
    for position, value in points:
        height = None
        if value is not None and math.isfinite(value):
            height = y(value)
        if height is not None:
            command = "L" if pen_down else "M"
            parts.append(f"{command}{shortened(x(position))},{shortened(height)}")
        pen_down = height is not None
    return "".join(parts)


def ring(
    upper: Points, lower: Points, x: Callable[[float], float], y: Callable[[float], float | None]
) -> str:
    """Return the closed outline between two edges."""
    # Along the upper edge and back along the lower one; a gap within is closed over.
    edges = [*upper, *reversed(lower)]
    corners = [point for point in edges if point[1] is not None]
    closed = outline(corners, x, y)
    return closed + "Z" if closed else ""
