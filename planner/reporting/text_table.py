"""Tables for a terminal: aligned, plain, at most as wide as they need to be."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from planner.errors import printable


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows under a header; columns that hold numbers align right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    numeric = [all(_is_number(row[i]) for row in rows) and bool(rows) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def wrapped(sentences: Sequence[str]) -> list[str]:
    """Return sentences as lines of a terminal of 80 columns."""
    return [line for sentence in sentences for line in textwrap.wrap(sentence, 78, subsequent_indent="  ")]


def signed(number: float, pattern: str) -> str:
    """Return a number in a pattern; one that rounds to zero has no minus."""
    shown = format(number, pattern)
    return shown.removeprefix("-") if not any(sign in shown for sign in "123456789") else shown


def _is_number(cell: str) -> bool:
    text = cell.strip().rstrip("%").replace(",", "").removeprefix("-").removeprefix("+").removeprefix("$")
    return not text or text.replace(".", "", 1).isdigit()
