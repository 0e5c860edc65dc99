"""The questions that a report answers, in the order in which a reader asks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.output.blocks import Block, Section
from planner.output.folder import Contents

TITLES = {
    "answer": "What should we do?",
    "time": "How it goes over time",
    "money": "Where the money goes",
    "losses": "Where capacity was lost, and to what",
    "hangs": "What the answer hangs on",
    "assumptions": "What it assumes",
    "error": "How wrong the model is",
    "reproduce": "How to get it again",
}
"""The questions by the anchors of their sections."""
SectionMaker = Callable[[Contents], Section | None]
"""Makes a section of a folder's contents; None where what it needs is not there."""


def section(key: str, blocks: Sequence[Block], title: str = "") -> Section:
    """Return a section under the usual question of its anchor, unless it answers another."""
    return Section(key=key, title=title or TITLES[key], blocks=blocks)
