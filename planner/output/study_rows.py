"""The tables of a study: what each holds, and its columns from what was drawn and measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.output.columns import TableDescription, number_column, tables_of, text_column
from planner.scenario.scenario import Scenario
from planner.scenario.study import Prior, Study
from planner.studies.analysis import Band, Driver, Finished, Statistic, first_broken_month
from planner.studies.decision import ByScenario, Comparison, Standing, sound_rows
from planner.studies.distributions import is_numeric, quantile, value_of
from planner.studies.headlines import HEADLINES, MONTHLY
from planner.studies.inputs import Input, Inputs
from planner.studies.intervals import Estimate
from planner.studies.prepare import Prepared
from planner.studies.resolve import far_ends
from planner.units import unit_of

Columns = dict[str, list[Any]]
_BINS = 60
_PROBABILITIES = np.array([0.1, 0.5, 0.9])
_MODEL_ERROR = ("the throughput model's own error, from its calibration", "", "C")
STUDY_TABLES = tables_of(
    "study",
    {"samples": [number_column(out.name, out.description, out.decimals, out.unit) for out in HEADLINES]},
    monthly=", ".join(output.name for output in MONTHLY),
)
"""Every CSV file of a study by its name, in the order of the reference."""


def samples_table(inputs: Inputs) -> TableDescription:
    """Return the description of samples.csv with a study's own input columns."""
    input_columns = tuple(
        number_column(drawn.name, _meaning(drawn.times_stated), 9, unit_of(drawn.name.rpartition(".")[2]) or "")
        if is_numeric(drawn.distribution)
        else text_column(drawn.name, _meaning(times_stated=False))
        for drawn in inputs.entries
    )
    samples = STUDY_TABLES["samples"]
    return replace(samples, columns=(*samples.columns[:2], *input_columns, *samples.columns[2:]))


def _meaning(times_stated: bool) -> str:
    return "Input drawn: a factor on what is stated." if times_stated else "Input drawn."


def statistics_columns(statistics: Iterable[Statistic]) -> Columns:
    """Lay out percentiles.csv."""
    return STUDY_TABLES["percentiles"].filled(
        (row.scenario, row.output, row.statistic, *_ends(row.estimate), row.estimate.completed) for row in statistics
    )


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    """Return a figure and its interval."""
    return estimate.value, estimate.low, estimate.high


def _share(estimate: Estimate) -> tuple[float, float, float]:
    """Return a share and its interval, which ends at none and all."""
    return estimate.value, max(estimate.low, 0.0), min(estimate.high, 1.0)


def band_columns(bands: Iterable[Band]) -> Columns:
    """Lay out monthly_bands.csv."""
    return STUDY_TABLES["monthly_bands"].filled(
        (*of_month, *percentiles, completed) for *of_month, percentiles, completed in bands
    )


def decision_columns(comparisons: Iterable[Comparison]) -> Columns:
    """Lay out decision.csv."""
    return STUDY_TABLES["decision"].filled(
        (
            row.scenario, row.against, *_share(row.probability_better), *_ends(row.mean_difference),
            row.mean_regret.value, row.p95_regret.value, row.mean_difference.completed,
        )
        for row in comparisons
    )  # fmt: skip


def promise_columns(prepared: Prepared, standings: Iterable[Standing]) -> Columns:
    """Lay out promise.csv."""

    def row(scenario: Scenario, standing: Standing) -> tuple[Any, ...]:
        promise, yes = scenario.promise, {True: "yes", False: "no"}
        stated = (promise.in_time, promise.each, promise.of, promise.in_replications, yes[scenario.states("promise")])
        kept = (yes[standing.keeps_promise], *_share(standing.kept_fraction), standing.shortfall_fraction)
        first = first_broken_month(prepared, standing) or ""
        completed = standing.kept_fraction.completed
        return (standing.scenario, *stated, *kept, first, *_share(standing.best_fraction), completed)

    scenarios = [base.scenario for base in prepared.scenarios]
    return STUDY_TABLES["promise"].filled(map(row, scenarios, standings))


def driver_columns(drivers: Iterable[Driver], completed: int) -> Columns:
    """Lay out sensitivity.csv; ``completed`` replications, with every scenario run, stand behind it."""
    return STUDY_TABLES["sensitivity"].filled((*driver, completed) for driver in drivers)


def completed_rows(headline: ByScenario) -> int:
    """Return the rows in which every scenario could be run."""
    return int(sound_rows(headline).sum())


def distribution_columns(headline: ByScenario, names: Sequence[str]) -> Columns:
    """Lay out distribution.csv: one scale for all scenarios, so that they can be held against each other."""
    known = np.empty(len(names) * len(headline[0]))
    count = 0
    for which in range(len(names)):  # one scenario at a time in memory besides all of them together
        count += _laid(_runs(headline[which]), known[count:])
    low, high = np.percentile(known[:count], [0.2, 99.8], overwrite_input=True) if count else (0.0, 1.0)
    del known
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    rows = []
    for which, name in enumerate(names):
        runs = _runs(headline[which])
        cells = zip(edges[:-1].tolist(), edges[1:].tolist(), np.histogram(runs, edges)[0].tolist(), strict=True)
        rows += [(name, *cell, runs.size) for cell in cells]
    return STUDY_TABLES["distribution"].filled(rows)


def _runs(rows: Floats) -> Floats:
    """Return the rows that could be run."""
    return rows[np.isfinite(rows)]


def _laid(rows: Floats, into: Floats) -> int:
    """Lay rows into the beginning of an array; return how many there are."""
    into[: rows.size] = rows
    return rows.size


def convergence_columns(finished: Finished) -> Columns:
    """Lay out convergence.csv."""
    return STUDY_TABLES["convergence"].filled(
        (name, end, *_ends(mean), mean.completed) for name, end, mean in finished.convergence()
    )


def uncertain_columns(prepared: Prepared) -> dict[str, list[Any]]:
    """Return the columns of uncertain.csv."""
    far = far_ends(prepared.study, {base.name: base for base in prepared.scenarios}, prepared.inputs)
    rows = [(*_row(prepared, drawn), far.get(drawn.name, "")) for drawn in prepared.inputs.entries]
    return STUDY_TABLES["uncertain"].filled(rows)


def _row(prepared: Prepared, uncertain: Input) -> tuple[str, ...]:
    drawn = quantile(uncertain.distribution, _PROBABILITIES).tolist()
    shown = [value_of(uncertain.distribution, draw) for draw in drawn]
    cells = [f"{cell:.6g}" if is_numeric(uncertain.distribution) else str(cell) for cell in shown]
    is_factor = uncertain.times_stated or uncertain.throughput_of is not None
    unit = "factor" if is_factor else unit_of(uncertain.name.rpartition(".")[2]) or ""
    source = _MODEL_ERROR if uncertain.throughput_of is not None else _source(prepared, uncertain.name)
    return (uncertain.name, uncertain.distribution.kind, *cells, unit, *source)


def _source(prepared: Prepared, name: str) -> tuple[str, str, str]:
    """Return source, date and grade: the catalogue's for a prior, file and line for what the study states itself."""
    written = prepared.study.uncertain[name]
    if isinstance(written, Prior):
        catalog = prepared.scenarios[0].scenario.load_catalog()
        prior = catalog.prior(written.prior)
        return (*catalog.provenance(prior), prior.grade)
    place = prepared.study.document.locate(("uncertain", name))
    line = f":{place.line}" if place is not None and place.line is not None else ""
    return f"{Path(study_file(prepared.study)).name}{line}", "", "user"


def study_file(study: Study) -> str:
    """Return the file that a study was read from, as it was named."""
    place = study.document.locate(())
    return place.file if place is not None else f"{study.name}.yaml"
