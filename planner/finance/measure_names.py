"""The registry of figures: names, formulas and meanings, without their computation.

The arithmetic of each is one function in :mod:`planner.plan.quantities` or :mod:`planner.finance.present_value`;
columns, data dictionary and reference take their words from ``figures.csv``, a line for each figure, and need no array
library.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from planner.data_files import data_rows
from planner.records import record

FLEET = "fleet"
"""All clusters and the site together, in every table."""
SITE = "site"
"""What belongs to no cluster, in the ledger: tax, credits, burst rental."""
DRAWS = 19
"""How often a run and a comparison draw a plan unless told otherwise: the fewest whose ends hold nine in ten."""


class SeriesKey(NamedTuple):
    """One monthly series of a run: a figure of a cluster or workload, or an account."""

    kind: Literal["cluster", "workload", "account"]
    entity: str
    """Cluster or workload; ``fleet`` for all."""
    figure: str
    """Figure or account."""


SLO_MISSED = SeriesKey("cluster", FLEET, "slo_missed")
"""Whether a month misses the plan's SLO target: 1 where it does, 0 where it does not."""


@record
class MeasureDescription:
    """Name, formula and meaning of a measure, for the files and the docs."""

    name: str
    """With its unit as suffix."""
    view: str
    """The view of the ledger it reads; empty where it reads none."""
    formula: str
    """Over the sums of the ledger; docs/explanation/finance.md says how these are made."""
    meaning: str
    """What it says, and what it needs, for the reference (Markdown)."""
    needs: str = ""
    """The key without which it has no meaning; empty where it always has one."""


# The file's order is the order of every table and page.
_LINES = data_rows(__file__, "figures.csv")
FIGURES = {line["name"]: line for line in _LINES}
"""The line of every figure by its name: beside its words the ``parts`` it is made of, and patterns of the ``inputs``
that enter by its own formula, not by a part."""


def _measures(kind: str) -> tuple[MeasureDescription, ...]:
    """Return the measures of a kind, in registry order."""
    return tuple(
        MeasureDescription(
            name=line["name"],
            view=line["view"],
            formula=line["formula"],
            meaning=f"{line['meaning']} The metric needs `{needs}`." if needs else line["meaning"],
            needs=needs,
        )
        for line in _LINES
        if line["kind"] == kind
        for needs in [line["needs"]]
    )


def _placed(column: str) -> tuple[str, ...]:
    """Return the names of the figures that have a rank in a column, in rank order."""
    return tuple(
        line["name"]
        for line in sorted(_LINES, key=lambda line: int(line[column] or 0))
        if line[column]
    )


MEASURES = _measures("measure")
"""Every measure of a run, in the order of the files."""
AGAINST_BASELINE = _measures("against baseline")
"""Measures of one scenario against the baseline, at the baseline's discount rate."""
DEFINITIONS = {measure.name: measure.meaning for measure in MEASURES} | {
    line["name"]: line["meaning"] for line in _LINES if line["kind"] == "figure"
}
"""What each figure is, once for every file that has it."""
HIGHER_IS_BETTER = frozenset(line["name"] for line in _LINES if line["better"] == "higher")
"""Figures of which more is better; of all others less is."""
SERVICE = _placed("service")
"""How a plan served: what a cost per token must be read with."""
TIMELINE = _placed("timeline")
"""The figures of the monthly timeline, in the order of its columns."""
FLEET_ONLY = frozenset(line["name"] for line in _LINES if line["fleet_only"])
"""Figures of the timeline that belong to no cluster."""
