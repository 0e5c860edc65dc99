"""The columns of a sizing's files, described for the reference and the data dictionary."""

from __future__ import annotations

from planner.reporting.columns import Column, ColumnKind, TableDescription, number_column, text_column, whole_column

_PLAN = text_column("plan", "What is bought and retired, and when.")
_COST = number_column(
    "cost", "What is minimised, mean over the replications of the search: net present cost or capital in USD, or "
    "levelised cost in USD per million tokens.", 6,
)  # fmt: skip
_PRESENT = number_column(
    "net_present_cost_usd", "All that is paid, less what is owned on the last day as if sold then, discounted from "
    "its time, before income and tax; mean over the replications of the search.", 2,
)  # fmt: skip
_CAPITAL = number_column("capital_usd", "Paid for nodes, mean over the replications of the search.", 2)
_SERVICE = number_column(
    "in_time_fraction", "Share in time that enough replications reach, in the worst month and workload "
    "that the promise is about."
)  # fmt: skip
_KEPT = number_column("kept_fraction", "Share of the search's replications that keep the promise.")

PLAN = TableDescription(
    name="plan",
    description="What to buy and what to retire, and what happens with one node fewer: a row for each purchase and for "
    "each cluster that is retired.",
    key=("cluster",),
    columns=(
        text_column("cluster", "Cluster, as plan.yaml calls it."),
        text_column("accelerator", "Accelerator, by its catalogue name."),
        Column(
            name="date",
            kind=ColumnKind.DATE,
            description="Day it comes online or is ordered; of what is retired, leaves.",
        ),
        text_column("contract", "How they are had: bought, or the kind of their contract."),
        whole_column("nodes", "Nodes taken; negative for what is retired."),
        number_column("capital_usd", "Paid for them at the prices stated; nothing for what is leased or rented.", 2),
        number_column("node_saves", "What one node fewer saves, in the unit of `cost`; empty for what is retired.", 6),
        number_column(
            "kept_fewer_fraction", "Share of the search's replications that keep the promise with one node fewer."
        ),
        text_column(
            "breaks_month",
            "Month that breaks first then, in the replication where it breaks by least; empty where none does.",
        ),
        text_column("breaks_workload", "Workload that breaks there; empty where the promise is of all together."),
        number_column("breaks_in_time_fraction", "Share in time there."),
    ),
)
FRONTIER = TableDescription(
    name="frontier",
    description="Plans found that no other beats in cost, service and probability to keep the promise, cheapest first.",
    columns=(
        _COST, _PRESENT, _CAPITAL, _SERVICE, _KEPT,
        whole_column("nodes", "Nodes bought."),
        Column(name="is_answer", kind=ColumnKind.BOOLEAN, description="Whether it is the plan that is proposed."),
        _PLAN,
    ),
)  # fmt: skip
FAMILIES = TableDescription(
    name="families",
    description="The best plan of each part alone, and of several, beside the answer, and by how much each part's "
    "price would have to change for it to cost as much: a row for each kind and part.",
    key=("family", "accelerator"),
    columns=(
        text_column("family", "Kind: all of one part, or mixed of several where the answer is of one."),
        text_column("accelerator", "Part whose price changes; empty where no plan of the kind keeps the promise."),
        number_column("price_change_fraction", "Change of its accelerators' price at which this kind costs as much as "
                      "the answer; empty where no change of it does."),
        _COST, _PRESENT, _CAPITAL, _SERVICE, _KEPT,
        number_column("bound", "No plan of the kind that keeps the promise costs less, in the unit of `cost`.", 6),
        _PLAN,
    ),
)  # fmt: skip
MONTHS = TableDescription(
    name="months",
    description="What binds in each month of the answer.",
    key=("month",),
    columns=(
        Column(name="month", kind=ColumnKind.MONTH, description="Calendar month."),
        text_column("workload", "Workload with the least share in time; empty where the promise is of all together."),
        number_column("in_time_fraction", "Its share in time that the promised share of replications reaches."),
        number_column("slack_fraction", "That share less the promised one."),
        number_column("broken_fraction", "Share of replications that break the promise in this month."),
        number_column("utilisation_fraction", "Accelerator-hours at work over those in service, in the mean."),
        number_column("power_kw", "Most nameplate IT power on site in the month, as scheduled.", 3),
        number_column("capital_usd", "Paid by the month's end for what is chosen, at the prices stated.", 2),
        text_column("binds", "What binds: capacity for a workload where one node fewer breaks the month first; "
                    "power, budget or nodes where one node more would exceed it; nothing otherwise."),
    ),
)  # fmt: skip
PROMISES = TableDescription(
    name="promises",
    description="What each promised share costs: the cheapest plan found that keeps it in as many replications.",
    key=("promised_fraction",),
    columns=(
        number_column("promised_fraction", "Share of requests promised to be in time."),
        _COST, _PRESENT, _CAPITAL,
        number_column("cost_difference", "`cost` less that of the answer.", 6),
        _PLAN,
    ),
)  # fmt: skip
PRECISIONS = TableDescription(
    name="precisions",
    description="What a precision narrower than usual contributes: a row for each cluster of the answer that has one, "
    "and workload.",
    key=("cluster", "workload"),
    columns=(
        text_column("cluster", "Cluster, as plan.yaml calls it."),
        text_column("precision", "Precision it serves in."),
        text_column("workload", "Workload."),
        number_column("requests_ratio", "Requests that a node serves over those in the workload's precision; "
                      "empty where it serves neither way."),
        number_column("kept_fraction", "Share of replications that keep the promise if the cluster serves in "
                      "that precision instead."),
    ),
)  # fmt: skip
REVIEW = TableDescription(
    name="review",
    description="What a review on a later day is worth: ways to decide, on the same fresh replications, each held to "
    "the same promise. Only where `choose.review` is stated.",
    key=("decided",),
    columns=(
        text_column("decided", "How: with a review, at which purchases from then on depend on what was seen; all fixed "
                    "on the first day; everything bought before the review; with a review but without the parts "
                    "that can be bought only from it on."),
        number_column("cost", "What is minimised, mean over the fresh replications, in the unit of frontier.csv; empty "
                      "where nothing of the kind keeps the promise.", 6),
        number_column("kept_fraction", "Share of those replications that keep the promise."),
        number_column("review_saves", "`cost` less that of the way with a review, mean of the differences of "
                      "replications.", 6),
        number_column("review_saves_low", "Lower end of the 95% interval of that mean.", 6),
        number_column("review_saves_high", "Upper end of the 95% interval of that mean.", 6),
        _PLAN,
    ),
)  # fmt: skip
LEVELS = TableDescription(
    name="levels",
    description="What may be seen at the review, in a few levels, and what is bought from then on at each. Only where "
    "`choose.review` is stated.",
    key=("level",),
    columns=(
        whole_column("level", "Level, from 1."),
        number_column("replications_fraction", "Share of the search's replications that show it."),
        Column(name="late", kind=ColumnKind.BOOLEAN, description="Whether something due by the review is missing."),
        number_column("forecast_low_ratio", "Least demand of the last month, forecast at the growth seen until the "
                      "review, over the mean forecast of all replications."),
        number_column("forecast_high_ratio", "Highest such forecast."),
        text_column("plan", "All that is bought and retired where this is seen."),
        text_column("file", "The plan as a scenario that runs as it is."),
    ),
)  # fmt: skip
SIZE_TABLES = (PLAN, FRONTIER, FAMILIES, MONTHS, PROMISES, PRECISIONS, REVIEW, LEVELS)
"""Tables of a sizing, in the order of the reference."""
