"""The columns of the files in which months that happened are held against a plan."""

from __future__ import annotations

from planner.finance.variance import CAUSE_MEANINGS
from planner.reporting.columns import Column, ColumnKind, TableDescription, number_column, text_column

_MONTH = Column(name="month", kind=ColumnKind.MONTH, description="Calendar month.")
_FIGURE = text_column("figure", "Figure, as in `timeline_monthly.csv`; its name ends in its unit.")


def _money(name: str, description: str) -> Column:
    return Column(name=name, kind=ColumnKind.CENTS, description=description, unit="USD")


def _measured(name: str, description: str) -> Column:
    return number_column(name, description, measured_by="figure")


VARIANCE = TableDescription(
    name="variance",
    description="Budget and actual of every account reported, over the months that happened, and why they differ: the "
    "causes sum to the difference to the cent. Costs are positive, income negative, as in `ledger.csv`.",
    key=("account",),
    columns=(
        text_column("account", "Account, as in `accounts.csv`."),
        _money("budget_usd", "The plan's, as stated."),
        _money("actual_usd", "What was booked."),
        _money("difference_usd", "`actual_usd` less `budget_usd`."),
        *(_money(f"{cause}_usd", meaning) for cause, meaning in CAUSE_MEANINGS.items()),
    ),
)
VARIANCE_MONTHLY = TableDescription(
    name="variance_monthly",
    description="Budget and actual of every account reported, by month.",
    key=("account", "month"),
    columns=(
        text_column("account", "Account, as in `accounts.csv`."),
        _MONTH,
        _money("budget_usd", "The plan's, as stated."),
        _money("actual_usd", "What was booked."),
        _money("difference_usd", "`actual_usd` less `budget_usd`."),
    ),
)
HELD = TableDescription(
    name="actuals",
    description="Every figure and account that was reported, beside the plan's and the interval that nine of ten "
    "replications of its study lie in.",
    key=("kind", "of", "figure", "month"),
    columns=(
        text_column("kind", "What it belongs to: cluster, workload or account."),
        text_column("of", "Cluster or workload; `fleet` for all."),
        text_column("figure", "Figure or account."),
        _MONTH,
        _measured("plan", "The plan's, as stated."),
        _measured("low", "Lower end of the interval (P5)."),
        _measured("high", "Its upper end (P95)."),
        _measured("actual", "What happened; empty where the month has no figure."),
        Column(name="is_outside", kind=ColumnKind.BOOLEAN, description="Whether it lies outside the interval."),
        text_column("forecast", "`moves it`, or why it does not move the forecast."),
    ),
)
FORECAST_MONTHLY = TableDescription(
    name="forecast_monthly",
    description="The forecast before and after the months that happened, by month; of a month that happened the actual "
    "takes the place of the forecast, for cost that of the accounts reported.",
    key=("figure", "month"),
    columns=(
        _FIGURE,
        _MONTH,
        _measured("actual", "What happened; empty for months to come and figures not reported."),
        *(
            _measured(f"{age}_{place}", f"{place.upper()} of the {said}")
            for age, said in (
                ("old", "forecast before."),
                ("new", "forecast after."),
            )
            for place in ("p5", "p50", "p95")
        ),
    ),
)
FORECAST_INPUTS = TableDescription(
    name="forecast_inputs",
    description="What the months that happened say about each uncertain input, and by how much that moves the cost of "
    "the months to come. The last row, `chance and curvature`, is what the inputs one by one do not explain.",
    key=("input",),
    columns=(
        text_column("input", "Uncertain input, by its path."),
        *(
            number_column(f"{age}_{place}", f"{place.upper()} {said}.")
            for age, said in (("old", "before"), ("new", "after"))
            for place in ("p10", "p50", "p90")
        ),
        number_column("moved_sd", "How far its mean moved, in standard deviations of what was thought before."),
        number_column("moved_usd", "By how much that moves the expected cost of the months to come.", 2),
    ),
)
ACTUALS_TABLES = (VARIANCE, VARIANCE_MONTHLY, HELD, FORECAST_MONTHLY, FORECAST_INPUTS)
