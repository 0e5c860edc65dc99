"""A report's headings, in the order in which a reader asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from planner.output.blocks import Block, Section

TITLES = {
    "answer": "Summary",
    "futures": "Futures",
    "time": "Over time",
    "money": "Cost",
    "loan": "Loan",
    "losses": "Lost capacity",
    "sensitivities": "Sensitivities",
    "assumptions": "Assumptions",
    "error": "Model validation",
    "reproduce": "Reproduce",
}
"""Headings by the anchors of their sections."""


def section(key: str, blocks: Sequence[Block | None], title: str = "") -> Section:
    """Return a section under the usual heading of its anchor, unless it has another; blocks of None are left out."""
    return Section(
        key=key,
        title=title or TITLES[key],
        blocks=[block for block in blocks if block is not None],
    )
