"""The columns of a run's CSV files, described for the reference and the data dictionary."""

from __future__ import annotations

from planner.reporting.columns import Column, ColumnKind, TableDescription
from planner.units import unit_of


def _text(name: str, description: str) -> Column:
    return Column(name=name, kind=ColumnKind.TEXT, description=description)


def _number(name: str, description: str, decimals: int = 6) -> Column:
    kind = ColumnKind.INTEGER if decimals == 0 else ColumnKind.DECIMAL
    return Column(name=name, kind=kind, description=description, unit=unit_of(name) or "", decimals=decimals)


_MONTH = Column(name="month", kind=ColumnKind.MONTH, description="Calendar month.")
_CLUSTER = _text("cluster", "Cluster, or `fleet` for all of them together.")

TIMELINE_MONTHLY = TableDescription(
    name="timeline_monthly",
    description="Utilisation and cost by month. An empty cell means that there is nothing to divide by, or that the "
    "figure belongs to the fleet as a whole.",
    key=("month", "cluster"),
    columns=(
        _MONTH,
        _CLUSTER,
        _number("accelerators_in_service", "Accelerators in service, averaged over the month."),
        _number("availability_fraction", "Accelerator-hours in service over accelerator-hours delivered."),
        _number("utilisation_fraction", "Accelerator-hours at work over accelerator-hours in service."),
        _number("demand_tokens", "Prompt and generated tokens asked for; fleet only.", 0),
        _number("served_tokens", "Prompt and generated tokens served.", 0),
        _number("shed_tokens", "Tokens of requests refused, or still waiting at their deadline; fleet only.", 0),
        _number("energy_kwh", "Energy at the meter: IT energy times PUE.", 3),
        _number("cost_usd", "Accrued cost: the sum of this month's and cluster's ledger rows.", 2),
        _number("cost_per_million_tokens_usd", "`cost_usd` over millions of `served_tokens`."),
        _number("served_output_tokens", "Generated tokens served.", 0),
        _number("cost_per_million_output_tokens_usd", "`cost_usd` over millions of `served_output_tokens`."),
        _number(
            "backlog_tokens", "Tokens waiting at the end of the month: demanded − served − shed so far; fleet only.", 0
        ),
    ),
)
LEDGER = TableDescription(
    name="ledger",
    description="Every dollar, posted once. The rows of a month and cluster sum to `cost_usd` in the timeline.",
    key=("month", "cluster", "account", "cohort"),
    columns=(
        _MONTH,
        _CLUSTER,
        _text("account", "Account, see below."),
        _number("amount_usd", "Cost positive, income negative.", 2),
        _text("cohort", "Purchase that the amount belongs to; empty for running costs."),
    ),
)
EVENTS = TableDescription(
    name="events",
    description="Every change of the fleet, in time order.",
    columns=(
        _text("time", "Moment of the change, site time, ISO 8601."),
        _number("time_h", "Hours since the start.", 4),
        _text("cluster", "Cluster that changed."),
        _text("event", "What happened."),
        _text("cause", "Why."),
        _number("node", "Which node of the cluster; −1 for the cluster as a whole.", 0),
        _number("nodes_in_service_change", "Nodes that entered (positive) or left (negative) service.", 0),
    ),
)
ASSUMPTIONS = TableDescription(
    name="assumptions",
    description="Every input of the run and where it comes from: the scenario's keys, then the catalogue values used.",
    key=("path",),
    columns=(
        _text("path", "Dotted path of the scenario key or catalogue value."),
        _text("value", "The value; low / base / high for a range."),
        _text("unit", "Its unit; empty for a count, a name or a switch."),
        _text("source", "File and line, `--set`, a default with its reason, or the catalogue's source."),
        _text("date", "Date at which a catalogue value held."),
        _text("grade", "A to D for a catalogue value, `user` or `default` for a scenario key."),
    ),
)
RUN_TABLES = (TIMELINE_MONTHLY, LEDGER, EVENTS, ASSUMPTIONS)
