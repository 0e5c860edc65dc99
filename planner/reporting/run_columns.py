"""The columns of a run's CSV files that follow from other lists, added to those of ``tables.csv``."""

from __future__ import annotations

from planner.finance.statements import LINES, Frequency
from planner.reporting.columns import cents_column, described, figure_column
from planner.results.measure_names import DEFINITIONS, FLEET_ONLY, TIMELINE

_TO_DATE = "From the start to the month, what is owned then counted as if sold."
_NOTES = {f"levelised_cost_per_million_{kind}_usd": _TO_DATE for kind in ("tokens", "output_tokens")}
_LINES = [cents_column(line, text) for line, text in LINES.items()]
_USED = [figure_column(name) for name in TIMELINE[:3]]

TIMELINE_MONTHLY = described(
    "timeline_monthly",
    [figure_column(name, _NOTES.get(name, "Fleet only." if name in FLEET_ONLY else "")) for name in TIMELINE],
)
TIMELINE_WORKLOADS = described("timeline_workloads")
TIMELINE_DAILY = described("timeline_daily", _USED)
TIMELINE_HOURLY = described("timeline_hourly", _USED)
LOSSES = described("losses", [figure_column(name, decimals=4) for name in DEFINITIONS if name.endswith("_node_h")])
LATE_REASONS = described("late_reasons")
PLACEMENT = described("placement")
ROUTING_MONTHLY = described("routing_monthly")
LEDGER = described("ledger")
ACCOUNTS = described("accounts")
STATEMENTS = {
    Frequency.MONTH: described("statement_monthly", _LINES),
    Frequency.QUARTER: described("statement_quarterly", _LINES),
    Frequency.YEAR: described("statement_yearly", _LINES),
}
EVENTS = described("events")
ASSUMPTIONS = described("assumptions")
WARNINGS = described("warnings")
MEASURES = described("measures")
MODEL_ERROR = described("model_error")
RUN_TABLES = (
    TIMELINE_MONTHLY, TIMELINE_WORKLOADS, TIMELINE_DAILY, LOSSES, LATE_REASONS, PLACEMENT, ROUTING_MONTHLY, MEASURES,
    LEDGER, ACCOUNTS, *STATEMENTS.values(), EVENTS, ASSUMPTIONS, MODEL_ERROR,
)  # fmt: skip
"""The tables of every run; the hourly timeline is written on request."""
