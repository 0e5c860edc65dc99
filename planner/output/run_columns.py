"""The columns of a run's CSV files that follow from other lists, added to those of ``tables.csv``."""

from __future__ import annotations

from planner.finance.statements import LINES, Frequency
from planner.output.columns import cents_column, figure_column, tables_of
from planner.run.measure_names import DEFINITIONS, FLEET_ONLY, TIMELINE

_TO_DATE = "From the start to the month, what is owned then counted as if sold."
_NOTES = {f"levelised_cost_per_million_{kind}_usd": _TO_DATE for kind in ("tokens", "output_tokens")}
_USED = [figure_column(name) for name in TIMELINE[:3]]
_MORE = {
    "timeline_monthly": [
        figure_column(name, _NOTES.get(name, "Fleet only." if name in FLEET_ONLY else "")) for name in TIMELINE
    ],
    "timeline_daily": _USED,
    "timeline_hourly": _USED,
    "losses": [figure_column(name, decimals=4) for name in DEFINITIONS if name.endswith("_node_h")],
    **{f"statement_{span}ly": [cents_column(line, text) for line, text in LINES.items()] for span in Frequency},
}

TABLES = tables_of("run", _MORE)
"""The tables of runs by their names."""
RUN_TABLES = tuple(table for name, table in TABLES.items() if name not in ("timeline_hourly", "warnings"))
"""Those of every run: the hourly timeline is written on request, and a run's warnings stand in its summary."""
