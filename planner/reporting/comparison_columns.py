"""The columns of a comparison's and a sweep's files that follow from other lists, added to those of ``tables.csv``."""

from __future__ import annotations

from collections.abc import Sequence

from planner.finance.bridge import CAUSES
from planner.finance.variance import PLAN_CAUSE_MEANINGS
from planner.reporting.columns import Column, ColumnKind, TableDescription, described, figure_column, text_column
from planner.results.measure_names import MEASURES, SERVICE
from planner.studies.axes import Axis, number_of
from planner.units import DOLLARS, unit_of

COMPARISON = described("comparison")
BRIDGE = described("bridge", causes=", ".join(CAUSES))
BRIDGE_USD = described("bridge_usd", causes=" ".join(f"{c}: {m}" for c, m in PLAN_CAUSE_MEANINGS.items()))
COMPARISON_TABLES = (COMPARISON, BRIDGE, BRIDGE_USD, described("comparison_monthly"))


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
