"""What a terminal shows: tables, aligned and no wider than they need be."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

from planner.errors import printable

_TERMINAL = 80
_NARROWEST = 24  # a last column narrower than this is better left to run over


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows under a header; columns that hold numbers align right.

    A table that would be wider than a terminal of 80 columns has one space between its columns instead of two, and
    text in its last column goes on below itself. One that is wider still goes on below itself, its first column again.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    numeric = [all(_is_number(row[i]) for row in rows) and bool(rows) for i in range(len(header))]
    ends = itertools.accumulate(
        widths, lambda end, width: end + 1 + width
    )  # with one space between columns
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= _TERMINAL else " "
    room = _TERMINAL - sum(widths[:-1]) - len(gap) * (len(widths) - 1)
    if not numeric[-1] and widths[-1] > room >= _NARROWEST:
        widths[-1] = room
        rows, above = [], rows
        for *cells, last in above:
            first, *more = textwrap.wrap(last, room) or [""]
            rows += [[*cells, first], *([*[""] * len(cells), text] for text in more)]
    elif (fit := max(sum(end <= _TERMINAL for end in ends), 2)) < len(widths):
        parts = ([0, *range(1, fit)], [0, *range(fit, len(widths))])
        halves = ([[line[i] for i in part] for line in [header, *rows]] for part in parts)
        return "\n\n".join(text_table(heading, below) for heading, *below in halves)

    def line(cells: Sequence[str]) -> str:
        parts = zip(cells, widths, numeric, strict=True)
        return gap.join(
            cell.rjust(width) if right else cell.ljust(width) for cell, width, right in parts
        ).rstrip()

    rule = gap.join("-" * width for width in widths)
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def wrapped(sentences: Sequence[str]) -> list[str]:
    """Return sentences as lines of a terminal of 80 columns; options and names with hyphens stay whole."""
    wrap = textwrap.TextWrapper(78, subsequent_indent="  ", break_on_hyphens=False).wrap
    return [line for sentence in sentences for line in wrap(sentence)]


def signed(number: float, pattern: str) -> str:
    """Return a number in a pattern; one that rounds to zero has no minus."""
    shown = format(number, pattern)
    return shown.removeprefix("-") if not any(sign in shown for sign in "123456789") else shown


def cell(value: float | None, pattern: str, scale: float = 1.0) -> str:
    """Return a number over a scale in a pattern; nothing where it is not known."""
    return "" if value is None else signed(value / scale, pattern)


def _is_number(cell: str) -> bool:
    text = (
        cell.strip()
        .rstrip("%")
        .replace(",", "")
        .removeprefix("-")
        .removeprefix("+")
        .removeprefix("$")
    )
    return not text or text.replace(".", "", 1).isdigit()
