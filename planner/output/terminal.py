"""What a terminal shows: tables, aligned and no wider than they need be."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence

from planner.errors import printable

_TERMINAL = 80
"""Columns of the narrowest terminal that people use."""
_NARROWEST = 24
"""A last column narrower than this is better left to run over."""
_NUMBER = re.compile(r"-?\+?\$?([\d,]*\.?[\d,]+|[\d,]+\.)?%*")
"""A number as tables write it."""


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, rule: bool = True) -> str:
    """Lay out rows under a header; columns that hold numbers align right.

    A table that would be wider than a terminal of 80 columns has one space between its columns instead of two, and
    text in its last column goes on below itself. One that is wider still goes on below itself, its first column again.
    """
    lines = [[printable(cell) for cell in row] for row in rows]
    columns = list(zip(header, *lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = []
    for column in columns:
        is_numeric = all(map(_is_number, column[1:]))
        # Without rows nothing says that a column holds numbers.
        numeric.append(bool(lines) and is_numeric)
    gaps = len(widths) - 1
    is_narrow = sum(widths) + 2 * gaps <= _TERMINAL
    gap = "  " if is_narrow else " "
    other_columns = sum(widths[:-1]) + len(gap) * gaps
    room = _TERMINAL - other_columns
    # Columns that fit with one space between them; a table of one column cannot be cut.
    ends = itertools.accumulate(widths, lambda end, width: end + 1 + width)
    columns_in_sight = sum(end <= _TERMINAL for end in ends)
    fitting = max(columns_in_sight, 2)
    # A narrow column of text is better left to run over than broken at every word.
    is_wrapped = widths[-1] > room >= _NARROWEST
    if is_wrapped and not numeric[-1]:
        widths[-1] = room
        lines = _wrapped_rows(lines, room)
    elif fitting < len(widths):
        left_half = [0, *range(1, fitting)]
        right_half = [0, *range(fitting, len(widths))]
        parts = [_part_of_table(half, header, lines) for half in (left_half, right_half)]
        return "\n\n".join(parts)

    def line(cells: Sequence[str]) -> str:
        """Return a row with its cells aligned."""
        texts = []
        aligned = zip(cells, widths, numeric, strict=True)
        for cell, width, is_right in aligned:
            texts.append(cell.rjust(width) if is_right else cell.ljust(width))
        return gap.join(texts).rstrip()

    body = [line(cells) for cells in lines]
    if rule:
        body.insert(0, gap.join("-" * width for width in widths))
    return "\n".join([line(header), *body])


def _part_of_table(places: list[int], header: Sequence[str], rows: list[list[str]]) -> str:
    """Return some columns of a table as a table of its own."""
    heading = [header[place] for place in places]
    lines = [[cells[place] for place in places] for cells in rows]
    return text_table(heading, lines)


def _wrapped_rows(rows: list[list[str]], room: int) -> list[list[str]]:
    """Return rows whose last cell goes on below itself."""
    lines = []
    for *cells, text in rows:
        # Of empty text there is still a line.
        start, *rest = textwrap.wrap(text, room) or [""]
        lines.append([*cells, start])
        empty = [""] * len(cells)
        lines += [[*empty, part] for part in rest]
    return lines


def wrapped(sentences: Sequence[str]) -> list[str]:
    """Return sentences as lines of a terminal of 80 columns; options and names with hyphens stay whole."""
    wrapper = textwrap.TextWrapper(78, subsequent_indent="  ", break_on_hyphens=False)
    lines: list[str] = []
    for sentence in sentences:
        lines += wrapper.wrap(sentence)
    return lines


def signed(number: float, pattern: str) -> str:
    """Return a number in a pattern; one that rounds to zero has no minus."""
    text = format(number, pattern)
    is_zero = not any(digit in text for digit in "123456789")
    if is_zero:
        return text.removeprefix("-")
    return text


def cell(value: float | None, pattern: str, scale: float = 1.0) -> str:
    """Return a number over a scale in a pattern; nothing where it is not known."""
    if value is None:
        return ""
    return signed(value / scale, pattern)


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number, or empty: a sign, dollars, digits, a percent sign."""
    return _NUMBER.fullmatch(cell.strip()) is not None
