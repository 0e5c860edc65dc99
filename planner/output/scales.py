"""What all charts are drawn with: the palette, round ticks, scales, and outlines of lines and areas."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# The light palette of the report (report.css): told apart by colour-blind readers, and each with a dash of its own.
COLOURS = ("#0067a5", "#c44e00", "#00795a", "#c2579c", "#8a6500", "#5b5bd6", "#a8323e", "#4a5f6a")
DASHES = ("none", "7 3", "2 2.5", "9 3 2 3", "4 2", "1 2", "12 4", "6 2 1 2 1 2")
INK = "#1a1d21"
TOTAL = -1
"""In place of a colour's index: the colour of text, for the whole of which other lines are parts."""

Points = Sequence[tuple[float, float | None]]
"""(place along the axis, value), in order; None leaves a gap."""


def colour_of(index: int) -> str:
    """Return a colour of the palette, that of text for the whole."""
    return INK if index == TOTAL else COLOURS[index % len(COLOURS)]


def colour_class(index: int) -> str:
    """Return the report's style class of a colour with its dash."""
    return "whole" if index == TOTAL else f"c{index % len(COLOURS)}"


def dash_of(index: int) -> str:
    """Return the dash that goes with a colour; another one where the colours begin again."""
    return "none" if index == TOTAL else DASHES[(index + index // len(COLOURS)) % len(DASHES)]


def nice_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return round numbers within a range: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / wanted
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(
        (m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw * 0.999), 10 * magnitude
    )
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two powers given by their logarithms; fewer over a wide range."""
    steps = (1.0, 2.0, 5.0) if high - low < 3.5 else (1.0,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    return [
        t for p in powers for m in steps if low - 1e-9 <= (t := math.log10(m) + p) <= high + 1e-9
    ]


@functools.lru_cache(maxsize=8192)  # the lines of a chart have their days in common
def shortened(number: float) -> str:
    """Return a coordinate: a hundredth of a pixel is enough."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return (value - self.low) / ((self.high - self.low) or 1.0)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Return round values within the scale, about as many as wanted."""
        if self.logarithmic:
            return [10.0**tick for tick in log_ticks(self.low, self.high)]
        return nice_ticks(self.low, self.high, wanted)


def outline(points: Points, x: Callable[[float], float], y: Callable[[float], float | None]) -> str:
    """Return a path through the points, the pen lifted where there is no value or no place for it."""
    parts = []
    pen_down = False
    for at, value in points:
        place = None if value is None or not math.isfinite(value) else y(value)
        if place is not None:
            parts.append(f"{'L' if pen_down else 'M'}{shortened(x(at))},{shortened(place)}")
        pen_down = place is not None
    return "".join(parts)


def ring(
    upper: Points, lower: Points, x: Callable[[float], float], y: Callable[[float], float | None]
) -> str:
    """Return the closed outline between two edges."""
    there = [point for point in upper if point[1] is not None]
    back = [point for point in reversed(lower) if point[1] is not None]
    closed = outline([*there, *back], x, y)
    return closed + "Z" if closed else ""
