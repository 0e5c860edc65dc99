"""Colour on a terminal, and nowhere else."""

from __future__ import annotations

import os
import sys
from typing import TextIO

CODES = {"red": "31", "yellow": "33", "bold": "1"}


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Return the text in a colour where the stream is a terminal that shows colours and the user has not refused them.

    NO_COLOR is obeyed as no-color.org asks: present and not empty.
    """
    target = sys.stderr if stream is None else stream
    if not target.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{CODES[colour]}m{text}\x1b[0m"
