"""The columns of a run's CSV files, described for the reference and the data dictionary."""

from __future__ import annotations

from planner.finance.statements import LINES, Frequency
from planner.reporting.columns import (
    Column,
    ColumnKind,
    TableDescription,
    figure_column,
    number_column,
    text_column,
    whole_column,
)
from planner.results.measure_names import DEFINITIONS, FLEET_ONLY, TIMELINE

_MONTH = Column(name="month", kind=ColumnKind.MONTH, description="Calendar month.")
_CLUSTER = text_column("cluster", "Cluster, or `fleet` for all of them together.")
_TO_DATE = "From the start to the month, what is owned then counted as if sold."
_NOTES = {f"levelised_cost_per_million_{kind}_usd": _TO_DATE for kind in ("tokens", "output_tokens")}

TIMELINE_MONTHLY = TableDescription(
    name="timeline_monthly",
    description="Utilisation and cost by month. An empty cell means that there is nothing to divide by, or that the "
    "figure belongs to the fleet as a whole.",
    key=("month", "cluster"),
    columns=(
        _MONTH,
        _CLUSTER,
        *(figure_column(name, _NOTES.get(name, "Fleet only." if name in FLEET_ONLY else "")) for name in TIMELINE),
    ),
)
TIMELINE_WORKLOADS = TableDescription(
    name="timeline_workloads",
    description="What became of each workload's tokens, by month.",
    key=("month", "workload"),
    columns=(
        _MONTH,
        text_column("workload", "Workload."),
        *(
            figure_column(name)
            for name in ("demand_tokens", "served_tokens", "shed_tokens", "late_tokens", "slo_attainment_fraction")
        ),
        figure_column("accelerator_h", decimals=3),
        figure_column(
            "cost_usd",
            "Its share: of each cluster by machine time; of what no machine time carries (an idle cluster, the site as "
            "a whole, rented machines) by tokens served, or asked for in a month that served none. Workloads sum to "
            "the fleet to the cent.",
        ),
        figure_column("cost_per_million_tokens_usd"),
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
            *(figure_column(name) for name in TIMELINE[:3]),
            figure_column("demand_tokens", "Fleet only."),
            figure_column("served_tokens"),
            figure_column("shed_tokens", "Fleet only."),
            figure_column("it_energy_kwh"),
            figure_column("energy_kwh", "Fleet only."),
        ),
    )


TIMELINE_DAILY = _by_time("timeline_daily", Column(name="date", kind=ColumnKind.DATE, description="Day, UTC."), "day")
TIMELINE_HOURLY = _by_time("timeline_hourly", text_column("time", "Beginning of the hour, UTC, ISO 8601."), "hour")
LOSSES = TableDescription(
    name="losses",
    description="Where the node-hours on site went, by month and cluster. The parts sum to `present_node_h`.",
    key=("month", "cluster"),
    columns=(
        _MONTH,
        _CLUSTER,
        *(figure_column(name, decimals=4) for name in DEFINITIONS if name.endswith("_node_h")),
    ),
)
LATE_REASONS = TableDescription(
    name="late_reasons",
    description="Why requests were not in time, by month and workload: the month evaluated again with one cause after "
    "another taken away, in the order of the rows (docs/explanation/traffic.md). The shares of a month and workload "
    "sum to 1 − `slo_attainment_fraction` of `timeline_workloads.csv`.",
    key=("month", "workload", "reason"),
    columns=(
        _MONTH,
        text_column("workload", "Workload."),
        text_column(
            "reason",
            "power_cap; outage (machines out of service, or the site dark); incident (software); bursts (within the "
            "hour); no_capacity (beyond what nodes sustain at the objective); queueing; too_long (prompts that miss "
            "the objective on an idle replica).",
        ),
        number_column("lost_fraction", "Share of the month's requests lost to it.", 9),
        number_column("lost_requests", "The same in requests.", 3),
        number_column(
            "mend_amount", "How much would mend it, of what the next column says; empty where nothing is lost.", 4
        ),
        text_column(
            "mend",
            "What would, to be read after the amount: nodes that carry what its worst hour of the month loses; nodes "
            "that halve the queueing; kW that the cap lacks; the first-token objective at which half as many prompts "
            "are too long, and no more than its percentile allows.",
        ),
    ),
)
PLACEMENT = TableDescription(
    name="placement",
    description="The models that clusters hold, by month, for every workload that a cluster can serve. Workloads of "
    "one model and layout share its replicas, and models on the same accelerators share theirs: their rows agree.",
    key=("month", "cluster", "workload"),
    columns=(
        _MONTH,
        text_column("cluster", "Cluster."),
        text_column("workload", "Workload."),
        text_column("model", "Its model."),
        whole_column(
            "replicas",
            "Most replicas held at once. On a cluster so large that rounding does not matter, those that the work of "
            "the highest hour amounts to.",
        ),
        number_column("nodes", "Nodes that these replicas take.", 4),
        number_column("memory_fraction", "Weights and engines over the memory of their accelerators."),
        number_column(
            "load_node_h",
            "Node-hours in which weights were loaded; in `losses.csv` they count as without demand. On a large cluster "
            "what hourly changes of the mix would take, which is not taken off what serves.",
            4,
        ),
    ),
)
ROUTING_MONTHLY = TableDescription(
    name="routing_monthly",
    description="What each cluster served of each workload that it can serve, by month.",
    key=("month", "cluster", "workload"),
    columns=(
        _MONTH,
        text_column("cluster", "Cluster."),
        text_column("workload", "Workload."),
        whole_column("replicas", "Most replicas held at once, as in `placement.csv`."),
        figure_column("served_tokens"),
        number_column(
            "utilisation_fraction",
            "Node-hours of its work over those that may serve it: its model's replicas, or the cluster "
            "where that is so large that any share of it may.",
        ),
    ),
)
LEDGER = TableDescription(
    name="ledger",
    description="Every dollar, posted once. The rows of a month and cluster, `revenue`, `tax_cash` and `tax_deferred` "
    "left out, sum to `cost_usd` in the timeline; rows of `site` belong to no cluster, and count in the fleet only.",
    key=("month", "cluster", "account", "cohort"),
    columns=(
        _MONTH,
        text_column("cluster", "Cluster, or `site` for what belongs to none: tax, credits, burst rental."),
        text_column("account", "Account, see below."),
        Column(name="amount_usd", kind=ColumnKind.CENTS, description="Cost positive, income negative.", unit="USD"),
        text_column("cohort", "Purchase that the amount belongs to; empty for running costs."),
    ),
)
ACCOUNTS = TableDescription(
    name="accounts",
    description="The chart of accounts: what each account of `ledger.csv` holds, and its place in the statements.",
    key=("account",),
    columns=(
        text_column("account", "Account."),
        text_column("view", "Views that count it: cash, accrual, economic, financing; empty for none."),
        text_column(
            "category",
            "Part of the statements it belongs to; `imputed` and `counter_entry` stand in none.",
        ),
        text_column("sign", "`cost`: amounts are positive in the ledger; `income`: negative."),
        text_column("position", "Lines of the balance sheet it moves besides cash and equity; empty for none."),
        text_column("description", "What it holds."),
    ),
)
_PERIOD = text_column("period", "Fiscal quarter or year, which has the number of the calendar year in which it ends.")


def _statement(name: str, stamp: Column, span: str) -> TableDescription:
    return TableDescription(
        name=name,
        description=f"Income statement, cash flow and balance sheet by {span}, one column a line. Costs are positive "
        "in the income statement, money that comes in is in the cash flow. Balances hold at its end. Tax, credits "
        "and burst rental belong to the site as a whole.",
        key=(stamp.name, "cluster"),
        columns=(
            stamp,
            text_column("cluster", "Cluster, `site` for what belongs to none, or `fleet` for all of it."),
            *(Column(name=line, kind=ColumnKind.CENTS, description=text, unit="USD") for line, text in LINES.items()),
        ),
    )


STATEMENTS = {
    Frequency.MONTH: _statement("statement_monthly", _MONTH, "month"),
    Frequency.QUARTER: _statement("statement_quarterly", _PERIOD, "fiscal quarter"),
    Frequency.YEAR: _statement("statement_yearly", _PERIOD, "fiscal year"),
}
EVENTS = TableDescription(
    name="events",
    description="Every event of the run, in time order, and what it cost.",
    columns=(
        text_column("time", "When it began, UTC, ISO 8601."),
        text_column("end_time", "When it ended; empty for what has no end or outlasts the run."),
        text_column("cluster", "Cluster concerned, or `fleet`."),
        text_column(
            "event",
            "delivered (into service), waiting (paid, without power), retired, failure, maintenance (drained for "
            "planned work), process (by a process of your own), software or outage.",
        ),
        text_column("cause", "Why: the failing part or domain, the planned work, the kind of software incident."),
        text_column("detail", "Node, severity and wait of a repair; stack, model and size of an incident."),
        whole_column("accelerators", "Accelerators that came, left or were lost."),
        number_column("duration_h", "Hours from beginning to end, within the horizon.", 4),
        number_column(
            "lost_node_h",
            "Node-hours it took, as `losses.csv` counts them: failures and nodes taken out, incidents and outages sum "
            "to the columns `lost_to_failures_node_h`, `lost_to_software_node_h` and `lost_to_outages_node_h` there.",
            4,
        ),
        number_column("lost_capacity_tokens", "Tokens that those node-hours carry in the cluster's usual mix.", 0),
    ),
)
ASSUMPTIONS = TableDescription(
    name="assumptions",
    description="Every input of the run and where it comes from: the scenario's keys, then the catalogue values used.",
    key=("path",),
    columns=(
        text_column("path", "Dotted path of the scenario key or catalogue value."),
        text_column("value", "The value; low / base / high for a range."),
        text_column("unit", "Its unit; empty for a count, a name or a switch."),
        text_column("source", "File and line, `--set`, a default with its reason, or the catalogue's source."),
        text_column("date", "Date at which a catalogue value held."),
        text_column("grade", "A to D for a catalogue value, `user` or `default` for a scenario key."),
    ),
)
WARNINGS = TableDescription(
    name="warnings",
    description="What is hardly meant about each scenario of a comparison or study as stated, and what follows from it "
    "that a reader should know; the first column, `scenario`, names it. A run has both in summary.json.",
    key=(),
    columns=(
        text_column("severity", "warning: hardly meant, an error under --strict; note: true, and may well be meant."),
        text_column("text", "What it is, with its place and numbers."),
    ),
)
MEASURES = TableDescription(
    name="measures",
    description="The measures of the run, one row each, defined in docs/explanation/finance.md; an empty value means "
    "that the measure has no meaning for this run (a margin without a price).",
    key=("measure",),
    columns=(
        text_column("measure", "Measure; its name ends in its unit."),
        number_column("value", "Its value.", measured_by="measure"),
        number_column(
            "low",
            "Lower end of what further replications give: other traffic noise, failures, incidents and slips, "
            "inputs as stated. Nine in ten lie between `low` and `high`, or as many as `chance` in summary.json says.",
            measured_by="measure",
        ),
        number_column("high", "Upper end of it.", measured_by="measure"),
        text_column("unit", "Its unit."),
        text_column("view", "View of the ledger it reads: accrual, cash or economic; empty for none."),
        text_column("formula", "How it follows from the ledger; v is the discount factor of the month."),
    ),
)
MODEL_ERROR = TableDescription(
    name="model_error",
    description="How far the throughput formula is from public measurements, as calibrated when the run was made.",
    key=("quantity", "group"),
    columns=(
        text_column(
            "quantity", "What was predicted: time per output token, time to first token, tokens/s at saturation."
        ),
        text_column("group", "All measurements, or those of one architecture class."),
        whole_column("rows", "Measurements."),
        number_column("fitted_median_fraction", "Median absolute error on the measurements fitted to."),
        number_column("fitted_mean_fraction", "Mean absolute error on the measurements fitted to."),
        number_column("unseen_median_fraction", "Median absolute error on models left out of the fit."),
        number_column("unseen_mean_fraction", "Mean absolute error on models left out of the fit."),
        number_column(
            "measured_half_width_fraction", "Half the 90% interval over the prediction, for a pair measured."
        ),
        number_column("unseen_half_width_fraction", "The same for a model never measured under the engine."),
    ),
)
RUN_TABLES = (
    TIMELINE_MONTHLY,
    TIMELINE_WORKLOADS,
    TIMELINE_DAILY,
    LOSSES,
    LATE_REASONS,
    PLACEMENT,
    ROUTING_MONTHLY,
    MEASURES,
    LEDGER,
    ACCOUNTS,
    *STATEMENTS.values(),
    EVENTS,
    ASSUMPTIONS,
    MODEL_ERROR,
)
"""The tables of every run; the hourly timeline is written on request."""
