"""The columns of a study's CSV files that follow from other lists, added to those of ``tables.csv``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from planner.reporting.columns import TableDescription, described, number_column, text_column
from planner.studies.headlines import HEADLINES, MONTHLY
from planner.units import unit_of

if TYPE_CHECKING:
    from planner.studies.inputs import Inputs

SAMPLES = described(
    "samples", [number_column(output.name, output.description, output.decimals, output.unit) for output in HEADLINES]
)
PERCENTILES = described("percentiles")
MONTHLY_BANDS = described("monthly_bands", monthly=", ".join(output.name for output in MONTHLY))
PROMISE = described("promise")
DECISION = described("decision")
SENSITIVITY = described("sensitivity")
DISTRIBUTION = described("distribution")
CONVERGENCE = described("convergence")
UNCERTAIN = described("uncertain")
STUDY_TABLES = (
    SAMPLES, PERCENTILES, MONTHLY_BANDS, PROMISE, DECISION, SENSITIVITY, DISTRIBUTION, CONVERGENCE, UNCERTAIN
)  # fmt: skip
"""Every CSV file of a study, in the order of the reference."""


def samples_table(inputs: Inputs) -> TableDescription:
    """Return the description of samples.csv with a study's own input columns."""
    from planner.studies.distributions import is_numeric  # noqa: PLC0415 - the reference describes without arrays

    input_columns = tuple(
        number_column(drawn.name, _meaning(drawn.times_stated), 9, unit_of(drawn.name.rpartition(".")[2]) or "")
        if is_numeric(drawn.distribution)
        else text_column(drawn.name, _meaning(times_stated=False))
        for drawn in inputs.entries
    )
    columns = (*SAMPLES.columns[:2], *input_columns, *SAMPLES.columns[2:])
    return replace(SAMPLES, columns=columns)


def _meaning(times_stated: bool) -> str:
    return "Input drawn: a factor on what is stated." if times_stated else "Input drawn."
