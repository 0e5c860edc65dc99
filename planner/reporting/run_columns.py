"""The columns of a run's CSV files, described for the reference and the data dictionary."""

from __future__ import annotations

from planner.reporting.columns import Column, ColumnKind, TableDescription
from planner.units import unit_of


def _text(name: str, description: str) -> Column:
    return Column(name=name, kind=ColumnKind.TEXT, description=description)


def _number(name: str, description: str, decimals: int = 6, measured_by: str = "") -> Column:
    unit = unit_of(name) or ""
    return Column(
        name=name,
        kind=ColumnKind.DECIMAL,
        description=description,
        unit=unit,
        decimals=decimals,
        measured_by=measured_by,
    )


def _whole(name: str, description: str) -> Column:
    return Column(name=name, kind=ColumnKind.INTEGER, description=description)


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
        _number("availability_fraction", "Accelerator-hours in service over accelerator-hours on site."),
        _number("utilisation_fraction", "Accelerator-hours at work over accelerator-hours in service."),
        _number("demand_tokens", "Prompt and generated tokens asked for; fleet only.", 0),
        _number("served_tokens", "Prompt and generated tokens served.", 0),
        _number("shed_tokens", "Tokens of requests refused, or still waiting at their deadline; fleet only.", 0),
        _number("energy_kwh", "Energy at the meter: IT, cooling and distribution.", 3),
        _number("cost_usd", "Accrued cost: the sum of the month's and cluster's ledger rows but revenue and tax.", 2),
        _number("cost_per_million_tokens_usd", "`cost_usd` over millions of `served_tokens`."),
        _number("served_output_tokens", "Generated tokens served.", 0),
        _number("cost_per_million_output_tokens_usd", "`cost_usd` over millions of `served_output_tokens`."),
        _number(
            "backlog_tokens", "Tokens waiting at the end of the month: demanded − served − shed so far; fleet only.", 0
        ),
        _number("slo_attainment_fraction", "Requests served within their objective over requests; fleet only."),
        _number("peak_facility_kw", "Highest hour of the month at the meter; fleet only.", 3),
        _number("cumulative_cost_per_million_tokens_usd", "`cost_usd` over `served_tokens`, both from the start."),
        _number(
            "cumulative_cost_per_million_output_tokens_usd", "`cost_usd` over `served_output_tokens`, from the start."
        ),
        _number(
            "levelised_cost_per_million_tokens_usd",
            "Cash cost less the value of what is owned, over tokens, both discounted, from the start.",
        ),
        _number("levelised_cost_per_million_output_tokens_usd", "The same for generated tokens."),
        _number("rented_tokens", "Of `served_tokens`, those served on rented accelerators; fleet only.", 0),
    ),
)
TIMELINE_WORKLOADS = TableDescription(
    name="timeline_workloads",
    description="What became of each workload's tokens, by month.",
    key=("month", "workload"),
    columns=(
        _MONTH,
        _text("workload", "Workload."),
        _number("demand_tokens", "Prompt and generated tokens asked for.", 0),
        _number("served_tokens", "Tokens served.", 0),
        _number("shed_tokens", "Tokens refused, or still waiting at their deadline.", 0),
        _number("late_tokens", "Tokens of requests served past their objective, because of bursts inside the hour.", 0),
        _number("slo_attainment_fraction", "Requests served within their objective over requests."),
        _number("accelerator_h", "Accelerator-hours at work for it, on own machines.", 3),
        _number(
            "cost_usd",
            "Its share of the accrued cost: of each cluster by machine time, of what no machine time carries (an idle "
            "cluster, the site as a whole, rented machines) by tokens served.",
            2,
        ),
        _number("cost_per_million_tokens_usd", "`cost_usd` over millions of `served_tokens`."),
    ),
)


def _by_time(name: str, stamp: Column, step: str) -> TableDescription:
    return TableDescription(
        name=name,
        description=f"Utilisation, tokens and energy by {step}. Empty cells as in the monthly timeline.",
        key=(stamp.name, "cluster"),
        columns=(
            stamp,
            _CLUSTER,
            _number("accelerators_in_service", f"Accelerators in service, averaged over the {step}."),
            _number("availability_fraction", "Accelerator-hours in service over accelerator-hours on site."),
            _number("utilisation_fraction", "Accelerator-hours at work over accelerator-hours in service."),
            _number("demand_tokens", "Tokens asked for; fleet only.", 0),
            _number("served_tokens", "Tokens served.", 0),
            _number("shed_tokens", "Tokens shed; fleet only.", 0),
            _number("it_energy_kwh", "Energy of the IT load.", 3),
            _number("energy_kwh", "Energy at the meter; fleet only.", 3),
        ),
    )


TIMELINE_DAILY = _by_time("timeline_daily", Column(name="date", kind=ColumnKind.DATE, description="Day, UTC."), "day")
TIMELINE_HOURLY = _by_time("timeline_hourly", _text("time", "Beginning of the hour, UTC, ISO 8601."), "hour")
LOSSES = TableDescription(
    name="losses",
    description="Where the node-hours on site went, by month and cluster. The parts sum to `present_node_h`.",
    key=("month", "cluster"),
    columns=(
        _MONTH,
        _CLUSTER,
        _number("present_node_h", "Nodes delivered and not retired, times hours.", 4),
        _number("working_node_h", "At work, at full speed.", 4),
        _number("lost_to_failures_node_h", "Out of service for a hardware fault, from failure to repair.", 4),
        _number("lost_to_software_node_h", "At work, but for nothing: what open software incidents cost.", 4),
        _number("lost_to_outages_node_h", "Healthy while the site had no power.", 4),
        _number("lost_to_power_cap_node_h", "Had work and lost it to the power cap.", 4),
        _number("without_demand_node_h", "Healthy, powered, and nothing to do.", 4),
    ),
)
LEDGER = TableDescription(
    name="ledger",
    description="Every dollar, posted once. The rows of a month and cluster, revenue and tax left out, sum to "
    "`cost_usd` in the timeline; rows of `fleet` belong to the site as a whole, and to no cluster.",
    key=("month", "cluster", "account", "cohort"),
    columns=(
        _MONTH,
        _CLUSTER,
        _text("account", "Account, see below."),
        Column(name="amount_usd", kind=ColumnKind.CENTS, description="Cost positive, income negative.", unit="USD"),
        _text("cohort", "Purchase that the amount belongs to; empty for running costs."),
    ),
)
EVENTS = TableDescription(
    name="events",
    description="Every event of the run, in time order, and what it cost.",
    columns=(
        _text("time", "When it began, UTC, ISO 8601."),
        _text("end_time", "When it ended; empty for what has no end or outlasts the run."),
        _text("cluster", "Cluster concerned, or `fleet`."),
        _text(
            "event",
            "delivered (into service), waiting (paid, without power), retired, failure, software or outage.",
        ),
        _text("cause", "Why: the failing part, the kind of software incident."),
        _text("detail", "Node, severity and wait of a repair; stack, model and size of an incident."),
        _whole("accelerators", "Accelerators that came, left or were lost."),
        _number("duration_h", "Hours from beginning to end, within the horizon.", 4),
        _number(
            "lost_node_h",
            "Node-hours it took, as `losses.csv` counts them: the failures, incidents and outages of a run sum to the "
            "columns `lost_to_failures_node_h`, `lost_to_software_node_h` and `lost_to_outages_node_h` there.",
            4,
        ),
        _number("lost_capacity_tokens", "Tokens that those node-hours carry in the cluster's usual mix.", 0),
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
WARNINGS = TableDescription(
    name="warnings",
    description="What is hardly meant about each scenario of a comparison or study as stated, and what follows from it "
    "that a reader should know; the first column, `scenario`, names it. A run has both in summary.json.",
    key=(),
    columns=(
        _text("severity", "warning: hardly meant, an error under --strict; note: true, and may well be meant."),
        _text("text", "What it is, with its place and numbers."),
    ),
)
MEASURES = TableDescription(
    name="measures",
    description="The measures of the run, one row each, defined in docs/explanation/finance.md; an empty value means "
    "that the measure has no meaning for this run (a margin without a price).",
    key=("measure",),
    columns=(
        _text("measure", "Measure; its name ends in its unit."),
        _number("value", "Its value.", measured_by="measure"),
        _number(
            "low",
            "Lower end of what further draws of chance give: other traffic noise, failures, incidents and slips, "
            "inputs as stated. Nine in ten lie between `low` and `high`, or as many as `chance` in summary.json says.",
            measured_by="measure",
        ),
        _number("high", "Upper end of it.", measured_by="measure"),
        _text("unit", "Its unit."),
        _text("view", "View of the ledger it reads: accrual, cash or economic; empty for none."),
        _text("formula", "How it follows from the ledger; v is the discount factor of the month."),
    ),
)
MODEL_ERROR = TableDescription(
    name="model_error",
    description="How far the throughput formula is from public measurements, as calibrated when the run was made.",
    key=("quantity", "group"),
    columns=(
        _text("quantity", "What was predicted: time per output token, time to first token, tokens/s at saturation."),
        _text("group", "All measurements, or those of one architecture class."),
        _whole("rows", "Measurements."),
        _number("fitted_median_fraction", "Median absolute error on the measurements fitted to."),
        _number("fitted_mean_fraction", "Mean absolute error on the measurements fitted to."),
        _number("unseen_median_fraction", "Median absolute error on models left out of the fit."),
        _number("unseen_mean_fraction", "Mean absolute error on models left out of the fit."),
    ),
)
RUN_TABLES = (
    TIMELINE_MONTHLY,
    TIMELINE_WORKLOADS,
    TIMELINE_DAILY,
    LOSSES,
    MEASURES,
    LEDGER,
    EVENTS,
    ASSUMPTIONS,
    MODEL_ERROR,
)
"""The tables of every run; the hourly timeline is written on request."""
