"""The columns of a comparison's and a sweep's files, described for the reference and the data dictionary."""

from __future__ import annotations

from collections.abc import Sequence

from planner.finance.bridge import CAUSES
from planner.finance.variance import PLAN_CAUSE_MEANINGS
from planner.reporting.columns import Column, ColumnKind, TableDescription, figure_column, number_column, text_column
from planner.results.measure_names import MEASURES, SERVICE
from planner.studies.axes import Axis, number_of
from planner.units import DOLLARS, unit_of

_SCENARIO = text_column("scenario", "Scenario, by its name.")


def _measured(name: str, description: str) -> Column:
    return number_column(name, description, measured_by="measure")


COMPARISON = TableDescription(
    name="comparison",
    description="How every scenario served and every measure of it, beside the baseline's; definitions in "
    "docs/explanation/finance.md. An empty value means that the measure has no meaning there.",
    key=("scenario", "measure"),
    columns=(
        _SCENARIO,
        text_column("measure", "Measure; its name ends in its unit."),
        _measured("value", "Its value."),
        text_column("unit", "Its unit."),
        _measured("baseline_value", "The baseline's."),
        _measured("difference", "`value` less `baseline_value`."),
        number_column("difference_fraction", "`difference` over the size of `baseline_value`."),
        _measured(
            "low",
            "Lower end of what further replications give for `value`: other traffic noise, failures, incidents "
            "and slips, with every input as stated. Nine in ten lie between `low` and `high`, or as summary.json says.",
        ),
        _measured("high", "Upper end of it."),
        _measured("difference_low", "The same for `difference`, both plans in the same replications."),
        _measured("difference_high", "Upper end of it."),
    ),
)
BRIDGE = TableDescription(
    name="bridge",
    description="Why a scenario's tokens cost more or less than the baseline's, by cause: Shapley values. The causes "
    "of a scenario sum to the whole difference.",
    key=("scenario", "cause"),
    columns=(
        _SCENARIO,
        text_column("cause", "Cause: " + ", ".join(CAUSES) + "."),
        number_column("difference_per_million_tokens_usd", "Change of the cost per million tokens.", 9),
        number_column("difference_per_million_output_tokens_usd", "Change of the cost per million output tokens.", 9),
    ),
)
BRIDGE_USD = TableDescription(
    name="bridge_usd",
    description="Why a scenario's accrued cost over the horizon is more or less than the baseline's, by cause: Shapley "
    "values. The causes of a scenario sum to the whole difference to the cent; what the books' own choices move stands "
    "apart as policy.",
    key=("scenario", "cause"),
    columns=(
        _SCENARIO,
        text_column("cause", "Cause: " + " ".join(f"{c}: {m}" for c, m in PLAN_CAUSE_MEANINGS.items())),
        Column(name="difference_usd", kind=ColumnKind.CENTS, description="Change of accrued cost.", unit=DOLLARS),
    ),
)
COMPARISON_MONTHLY = TableDescription(
    name="comparison_monthly",
    description="Cost, tokens and cash of every scenario by month, and the cash saved against the baseline.",
    key=("month", "scenario"),
    columns=(
        Column(name="month", kind=ColumnKind.MONTH, description="Calendar month."),
        _SCENARIO,
        figure_column("cost_usd"),
        number_column("cash_flow_usd", "Income less cost and tax, in cash.", 2),
        number_column("cash_saving_usd", "`cash_flow_usd` less the baseline's.", 2),
        figure_column("served_tokens"),
        figure_column("cost_per_million_tokens_usd"),
        figure_column("cumulative_cost_per_million_tokens_usd"),
    ),
)
COMPARISON_TABLES = (COMPARISON, BRIDGE, BRIDGE_USD, COMPARISON_MONTHLY)


def sweep_description(axes: Sequence[Axis]) -> TableDescription:
    """Return the columns of sweep.csv: the keys varied, how the plan served, every measure."""
    figures = (*SERVICE, *(measure.name for measure in MEASURES))
    return TableDescription(
        name="sweep",
        description="One row per combination, under the same random numbers. Measures are defined in "
        "docs/explanation/finance.md; they are empty where a combination is not a scenario, and `problem` says why.",
        key=tuple(axis.path for axis in axes),
        columns=(
            *(_axis_column(axis) for axis in axes),
            *(figure_column(name, decimals=2 if unit_of(name) == DOLLARS else 6) for name in figures),
            text_column("problem", "Why the combination could not be run."),
        ),
    )


def _axis_column(axis: Axis) -> Column:
    """Return a column of numbers where all values are, of text otherwise."""
    numbers = [number_of(value) for value in axis.values]
    about = f"Value of {axis.path}."
    unit = unit_of(axis.path.rpartition(".")[2]) or ""
    if all(isinstance(number, int) for number in numbers):
        return Column(name=axis.path, kind=ColumnKind.INTEGER, description=about, unit=unit)
    if all(number is not None for number in numbers):
        decimals = max(len(value.partition(".")[2]) if "e" not in value.lower() else 9 for value in axis.values)
        return Column(name=axis.path, kind=ColumnKind.DECIMAL, description=about, unit=unit, decimals=decimals)
    return Column(name=axis.path, kind=ColumnKind.TEXT, description=about)
