"""The columns of a study's CSV files, described for the reference and the data dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.reporting.columns import Column, ColumnKind, TableDescription, text_column, whole_column
from planner.studies.headlines import HEADLINES, MONTHLY
from planner.units import unit_of

if TYPE_CHECKING:
    from planner.studies.inputs import Inputs

_IN_ITS_UNIT = "in the unit of the output"


def _number(name: str, description: str, unit: str = "", decimals: int = 9) -> Column:
    by = "output" if unit == _IN_ITS_UNIT else ""
    return Column(
        name=name, kind=ColumnKind.DECIMAL, description=description, unit=unit, decimals=decimals, measured_by=by
    )


_REPLICATION = whole_column("replication", "Number of the replication; `planner replay` takes it.")
_SCENARIO = text_column("scenario", "Scenario, by its name in the study.")
_AGAINST = text_column("against", "Scenario it is held against; empty where it stands alone or against all others.")
_OUTPUT = text_column("output", "Headline figure, by its column in samples.csv.")
_INTERVAL = "of the 95% interval, from independent randomisations; empty where rows are too few for one"

_COMPLETED = whole_column(
    "completed", "Replications behind the row: those that could be run. manifest.json has how many there are."
)

SAMPLES = TableDescription(
    name="samples",
    description="Every replication of every scenario: inputs drawn, headline figures, and the error of a run that "
    "failed. Input columns are the study's paths; the example shows none.",
    key=("replication", "scenario"),
    columns=(
        _REPLICATION,
        _SCENARIO,
        *(_number(output.name, output.description, output.unit, output.decimals) for output in HEADLINES),
        text_column("error", "Why the run failed; empty where it did not."),
    ),
)
PERCENTILES = TableDescription(
    name="percentiles",
    description="Statistics of every headline figure of every scenario, each with its interval.",
    key=("scenario", "output", "statistic"),
    columns=(
        _SCENARIO,
        _OUTPUT,
        text_column("statistic", "mean, sd, p5, p10, p50, p90, p95, or cvar95: the mean of the worst twentieth."),
        _number("value", "The statistic.", _IN_ITS_UNIT),
        _number("low", f"Lower end {_INTERVAL}.", _IN_ITS_UNIT),
        _number("high", f"Upper end {_INTERVAL}.", _IN_ITS_UNIT),
        _COMPLETED,
    ),
)
MONTHLY_BANDS = TableDescription(
    name="monthly_bands",
    description="Fan bands by month: percentiles over replications.",
    key=("scenario", "output", "cluster", "month"),
    columns=(
        _SCENARIO,
        text_column(
            "output", f"Monthly figure: {', '.join(output.name for output in MONTHLY)} (where tokens are sold)."
        ),
        text_column("cluster", "`fleet`, or a cluster of the scenario (cost, tokens and revenue alone)."),
        Column(name="month", kind=ColumnKind.MONTH, description="Calendar month."),
        _number("mean", "Mean over replications.", _IN_ITS_UNIT),
        *(_number(f"p{p}", f"{p}th percentile over replications.", _IN_ITS_UNIT) for p in (5, 10, 50, 90, 95)),
        _COMPLETED,
    ),
)
PROMISE = TableDescription(
    name="promise",
    description="How each scenario stands to its promise over the replications, and how often it is best of those that "
    "keep theirs.",
    key=("scenario",),
    columns=(
        _SCENARIO,
        _number("in_time_fraction", "Share of requests promised to be in time.", "1"),
        text_column("each", "Over what it is kept: each month, or the horizon."),
        text_column("of", "Whose requests are counted: each workload's, or the whole fleet's."),
        _number("in_replications_fraction", "Share of replications promised to keep it.", "1"),
        text_column("stated", "Whether the scenario states it: yes, or no for the default."),
        text_column("kept", "Whether so many replications keep it: yes or no."),
        _number("kept_fraction", "Share of replications that keep it.", "1"),
        _number("kept_low", f"Lower end {_INTERVAL}.", "1"),
        _number("kept_high", f"Upper end {_INTERVAL}.", "1"),
        _number(
            "shortfall_fraction",
            "What the worst share in time falls short of the promised one, in the promised share of replications at "
            "most; 0 where the promise is kept.",
            "1",
        ),
        text_column(
            "first_broken_month", "Month in which it first breaks in too many replications; empty where it is kept."
        ),
        _number(
            "best_fraction",
            "Share of replications in which the headline is best of the scenarios that keep their promise; ties count "
            "half. Empty for a scenario that breaks its own.",
            "1",
        ),
        _number("best_low", f"Lower end {_INTERVAL}.", "1"),
        _number("best_high", f"Upper end {_INTERVAL}.", "1"),
        _COMPLETED,
    ),
)
DECISION = TableDescription(
    name="decision",
    description="Scenarios held against each other on the study's headline, replication by replication; of more "
    "than two that keep their promise, each also against all others of them, where against is empty.",
    key=("scenario", "against"),
    columns=(
        _SCENARIO,
        _AGAINST,
        _number("probability_better", "Share of replications in which the scenario is better; ties count half.", "1"),
        _number("probability_low", f"Lower end {_INTERVAL}.", "1"),
        _number("probability_high", f"Upper end {_INTERVAL}.", "1"),
        _number("mean_difference", "Mean of the scenario's headline less the other's.", "unit of the headline"),
        _number("difference_low", f"Lower end {_INTERVAL}.", "unit of the headline"),
        _number("difference_high", f"Upper end {_INTERVAL}.", "unit of the headline"),
        _number(
            "mean_regret",
            "Mean of what choosing the scenario gives away where the other is better.",
            "unit of the headline",
        ),
        _number("p95_regret", "The same in the worst of twenty replications.", "unit of the headline"),
        _COMPLETED,
    ),
)
SENSITIVITY = TableDescription(
    name="sensitivity",
    description="What drives the headline, by method: conditional-mean (tornado in ten bins), rank-correlation, "
    "variance-share, pawn, flip, information (what knowing a pair's throughput before the choice would be worth over "
    "choosing the scenario, in dollars where the headline is money), and by "
    "new runs tornado (one at a time, P10 to P90), morris, sobol. Where against is "
    "not empty, it is the scenario's headline less the other's that is explained.",
    key=("scenario", "against", "method", "input", "measure"),
    columns=(
        _SCENARIO,
        text_column("against", "Scenario whose headline is taken away; empty for the headline itself."),
        text_column("method", "How it was measured."),
        text_column("input", "Path of the input; chance for what a run draws itself."),
        text_column("measure", "What is measured; the page on uncertainty explains each."),
        _number("value", "The measure.", "unit of the headline, of the input for a flip, USD for a worth, or 1"),
        _number("low", "Lower end of the interval, or of a conditional-mean bar.", "as value"),
        _number("high", "Upper end of the interval, or of a conditional-mean bar.", "as value"),
        _COMPLETED,
    ),
)
DISTRIBUTION = TableDescription(
    name="distribution",
    description="How the study's headline is spread: replications of each scenario by bins that all of them share. "
    "One replication in 500 at either end lies outside the bins.",
    key=("scenario", "bin_low"),
    columns=(
        _SCENARIO,
        _number("bin_low", "Lower edge of the bin.", "unit of the headline"),
        _number("bin_high", "Upper edge of the bin.", "unit of the headline"),
        whole_column("replications", "Replications within it."),
        _COMPLETED,
    ),
)
CONVERGENCE = TableDescription(
    name="convergence",
    description="The mean of the study's headline after more and more replications.",
    key=("scenario", "replications"),
    columns=(
        _SCENARIO,
        whole_column("replications", "Replications so far."),
        _number("mean", "Mean so far.", "unit of the headline"),
        _number("low", f"Lower end {_INTERVAL}.", "unit of the headline"),
        _number("high", f"Upper end {_INTERVAL}.", "unit of the headline"),
        _COMPLETED,
    ),
)
UNCERTAIN = TableDescription(
    name="uncertain",
    description="What the study draws, and where each distribution comes from.",
    key=("input",),
    columns=(
        text_column("input", "Path of the input; throughput_error for the model's own error."),
        text_column("distribution", "Kind of distribution; a prior is one of percentiles."),
        text_column("p10", "One draw in ten lies below."),
        text_column("p50", "The median."),
        text_column("p90", "One draw in ten lies above."),
        text_column("unit", "Unit of the three; factor where they multiply what is stated or modelled."),
        text_column("source", "The catalogue's source of a prior, or file and line of the study."),
        text_column("date", "Date at which a prior held."),
        text_column("grade", "A to D for a prior or the model's error, `user` for what the study states itself."),
        text_column("warning", "What is hardly meant about one draw in ten or more; empty where nothing is."),
    ),
)
STUDY_TABLES = (
    SAMPLES,
    PERCENTILES,
    MONTHLY_BANDS,
    PROMISE,
    DECISION,
    SENSITIVITY,
    DISTRIBUTION,
    CONVERGENCE,
    UNCERTAIN,
)
"""Every CSV file of a study, in the order of the reference."""


def samples_table(inputs: Inputs) -> TableDescription:
    """Return the description of samples.csv with a study's own input columns."""
    from planner.studies.distributions import is_numeric  # noqa: PLC0415 - the reference describes without arrays

    input_columns = tuple(
        _number(drawn.name, _meaning(drawn.times_stated), unit_of(drawn.name.rpartition(".")[2]) or "")
        if is_numeric(drawn.distribution)
        else text_column(drawn.name, _meaning(times_stated=False))
        for drawn in inputs.entries
    )
    columns = (*SAMPLES.columns[:2], *input_columns, *SAMPLES.columns[2:])
    return TableDescription(name=SAMPLES.name, description=SAMPLES.description, key=SAMPLES.key, columns=columns)


def _meaning(times_stated: bool) -> str:
    return "Input drawn: a factor on what is stated." if times_stated else "Input drawn."
