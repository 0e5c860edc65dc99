"""Lines of a few characters that show how a figure goes over the months."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from planner.reporting.text_table import text_table
from planner.simulation import tables
from planner.simulation.measure_names import FLEET
from planner.simulation.result import RunResult

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = ".:-=+*#@"
GAP = " "
WIDTH = 36
"""Characters of a line: with name, range and the gaps between, the widest row stays within 80."""


def sparkline(values: Sequence[float | None], width: int = WIDTH, levels: str = BLOCKS) -> str:
    """Return one character a value, low to high from its lowest to its highest; longer series are averaged down.

    A value that is not there leaves a gap; a series without change is drawn at mid-height.
    """
    shrunk = _shrink([math.nan if v is None else float(v) for v in values], width)
    known = [v for v in shrunk if math.isfinite(v)]
    if not known:
        return GAP * len(shrunk)
    low, span = min(known), max(known) - min(known)

    def mark(value: float) -> str:
        if not math.isfinite(value):
            return GAP
        share = (value - low) / span if span > 0 else 0.5
        return levels[min(len(levels) - 1, int(share * len(levels)))]

    return "".join(mark(value) for value in shrunk)


def _shrink(values: list[float], width: int) -> list[float]:
    """Average neighbours until a series fits."""
    if len(values) <= width:
        return values
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    groups = [[v for v in values[a:b] if math.isfinite(v)] for a, b in itertools.pairwise(edges)]
    return [sum(group) / len(group) if group else math.nan for group in groups]


def month_lines(result: RunResult, encoding: str = "utf-8") -> str:
    """Return utilisation and cost per token by month, a line for each cluster, with lowest and highest."""
    levels = BLOCKS if encoding.lower().replace("-", "") in ("utf8", "utf16", "utf32") else ASCII
    timeline = tables.timeline_monthly(result)
    names = timeline["cluster"][: len(result.plan.clusters) + 1]
    labels = result.plan.months.labels
    rows = []
    for column, unit in (("utilisation_fraction", "utilised"), ("cost_per_million_tokens_usd", "USD/Mtok")):
        for index, name in enumerate(names):
            values = [float(v) for v in timeline[column][index :: len(names)]]
            known = [v for v in values if math.isfinite(v)]
            if known and (column == "utilisation_fraction" or name == FLEET):
                pattern = "{:.0%} to {:.0%}" if unit == "utilised" else "{:.3g} to {:.3g}"
                span = pattern.format(min(known), max(known))
                rows.append((name[:10], unit, sparkline(values, WIDTH, levels), span))
    return text_table(("cluster", "", f"{labels[0]} to {labels[-1]}", "lowest to highest"), rows)
