"""A report's headings, in the order in which a reader asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.output.blocks import Block, Section
from planner.output.folder import Contents

TITLES = {
    "answer": "Summary",
    "futures": "Futures",
    "time": "Over time",
    "money": "Cost",
    "losses": "Lost capacity",
    "sensitivities": "Sensitivities",
    "assumptions": "Assumptions",
    "error": "Model validation",
    "reproduce": "Reproduce",
}
"""Headings by the anchors of their sections."""
SectionMaker = Callable[[Contents], Section | None]
"""Makes a section of a folder's contents; None where what it needs is not there."""


def section(key: str, blocks: Sequence[Block], title: str = "") -> Section:
    """Return a section under the usual heading of its anchor, unless it has another."""
    return Section(key=key, title=title or TITLES[key], blocks=blocks)
