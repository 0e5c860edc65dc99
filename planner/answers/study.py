"""A study as an answer: its tables, its folder, and what a program and a terminal get of it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.answers.answer import Answer
from planner.answers.json_records import fields_json
from planner.answers.plan_workbooks import (
    BANDS_SHEET,
    bands_page,
    plain_pages,
    statements_page,
    statistics_page,
)
from planner.answers.ranking import ATTAINMENT, SHED
from planner.answers.report import build_report
from planner.answers.run import evidence_tables, plan_tables
from planner.answers.study_screen import driver_text, study_text
from planner.answers.study_summary import completed_rows, study_summary
from planner.answers.tables import tables_of
from planner.errors import PlannerError
from planner.output import tables
from planner.output.folder import REPORT, WORKBOOK, Contents, command_line, openable
from planner.output.tables import Cells, Column, Table, number_column, text_column
from planner.output.workbook import Page, write_tables
from planner.run.simulate import RunResult, simulate
from planner.scenario.study import Prior, Study
from planner.studies import decision
from planner.studies.analysis import Finished, Statistic, first_missed_month, study_manifest
from planner.studies.decision import IntervalEstimate, mean_estimate
from planner.studies.designs import OneAtATime
from planner.studies.distributions import is_numeric, quantile, value_of
from planner.studies.inputs import UncertainInput, far_ends
from planner.studies.prepare import Prepared
from planner.studies.replicate import HEADLINES, MONTHLY, objective_names
from planner.studies.sensitivity import Driver, measures
from planner.studies.store import Store
from planner.units import unit_of

MAX_SAMPLES = 100_000
"""Rows that samples.csv has at most unless it is asked for: a spreadsheet takes a million, and writing them takes
longer than all statistics."""
SAMPLE_ROWS_AT_ONCE = 8_000
"""Rows of samples.csv written at once: some tens of megabytes of memory."""
BINS = 60
"""Bars of the histogram of a study's objective."""
BIN_PERCENTILES = (0.2, 99.8)
"""Ends of the histogram's scale: beyond them a few rows would squeeze all others together."""
STUDY_TABLES = tables_of(
    "study",
    {
        "samples": [
            number_column(output.name, output.description, output.decimals, output.unit)
            for output in HEADLINES
        ]
    },
    monthly=", ".join(output.name for output in MONTHLY),
)
"""Every CSV file of a study by its name, in the order of the reference."""
PLAIN_SHEETS = ("SLO target", "Decision", "Sensitivity", "Uncertain")
"""Sheets of the workbook that are tables as they stand."""


def statistics_rows(statistics: Iterable[Statistic]) -> Table:
    """Return percentiles.csv."""
    return STUDY_TABLES["percentiles"].of_rows(
        (
            statistic.scenario,
            statistic.output,
            statistic.statistic,
            *_interval(statistic.estimate),
            statistic.estimate.completed,
        )
        for statistic in statistics
    )


def _interval(estimate: IntervalEstimate) -> tuple[float, float, float]:
    """Return a figure and its interval."""
    return estimate.value, estimate.low, estimate.high


def _share_interval(estimate: IntervalEstimate) -> tuple[float, float, float]:
    """Return a share and its interval, which ends at none and all."""
    low = max(estimate.low, 0.0)
    high = min(estimate.high, 1.0)
    return estimate.value, low, high


def driver_rows(drivers: Iterable[Driver], completed: int) -> Table:
    """Return sensitivity.csv; ``completed`` replications, with every scenario run, stand behind it."""
    return STUDY_TABLES["sensitivity"].of_rows((*driver, completed) for driver in drivers)


def _target_rows(prepared: Prepared, standings: Iterable[decision.SloStanding]) -> Table:
    """Return slo_target.csv."""
    rows = []
    # In the study's own order, which is that of the standings.
    for base, standing in zip(prepared.scenarios, standings, strict=True):
        target = base.scenario.slo_target
        verdict = standing.verdict
        rows.append(
            (
                standing.scenario,
                target.attainment,
                target.per,
                target.scope,
                target.confidence,
                "yes" if base.scenario.states("slo_target") else "no",
                verdict.status,
                verdict.share,
                *verdict.interval,
                standing.shortfall_fraction,
                first_missed_month(prepared, standing) or "",
                *_share_interval(standing.best_fraction),
                *standing.past_mending.values(),
                verdict.replications,
            )
        )
    return STUDY_TABLES["slo_target"].of_rows(rows)


def _decision_rows(pairs: Iterable[decision.PairwiseDecision]) -> Table:
    """Return decision.csv."""
    return STUDY_TABLES["decision"].of_rows(
        (
            pair.scenario,
            pair.against,
            *_share_interval(pair.probability_better),
            *_interval(pair.mean_difference),
            pair.mean_regret.value,
            pair.p95_regret.value,
            pair.mean_difference.completed,
        )
        for pair in pairs
    )


def _uncertain_rows(prepared: Prepared) -> Table:
    """Return uncertain.csv: what is drawn, with its percentiles and where it comes from."""
    study = prepared.study
    bases = {base.name: base for base in prepared.scenarios}
    warnings = far_ends(study, bases, prepared.inputs)
    rows = []
    for entry in prepared.inputs.entries:
        distribution = entry.distribution
        probabilities = np.array([0.1, 0.5, 0.9])
        places = quantile(distribution, probabilities).tolist()
        values = [value_of(distribution, place) for place in places]
        # A factor has no unit, whatever the key ends in.
        is_factor = entry.times_stated or entry.throughput_of is not None
        texts = (f"{value:.6g}" if is_numeric(distribution) else str(value) for value in values)
        rows.append(
            (
                entry.name,
                distribution.kind,
                *texts,
                "factor" if is_factor else _unit(entry.name),
                *_source(prepared, entry),
                warnings.get(entry.name, ""),
            )
        )
    return STUDY_TABLES["uncertain"].of_rows(rows)


def _source(prepared: Prepared, entry: UncertainInput) -> tuple[str, str, str]:
    """Return source, date and grade of an input: the catalogue's of a prior, file and line of what a study states."""
    if entry.throughput_of is not None:
        return "error of the throughput model, from its calibration", "", "C"
    study = prepared.study
    stated = study.uncertain[entry.name]
    if isinstance(stated, Prior):
        catalog = prepared.scenarios[0].scenario.load_catalog()
        prior = catalog.prior(stated.prior)
        return *catalog.provenance(prior), prior.grade
    place = study.document.locate(("uncertain", entry.name))
    line = ""
    if place is not None and place.line is not None:
        line = f":{place.line}"
    return f"{Path(study_file(study)).name}{line}", "", "user"


def _unit(path: str) -> str:
    """Return the unit that the key of a scenario ends in."""
    return unit_of(path.rpartition(".")[2]) or ""


def study_file(study: Study) -> str:
    """Return the file that a study was read from, as it was named."""
    place = study.document.locate(())
    if place is not None:
        return place.file
    return f"{study.name}.yaml"


def study_command(
    verb: str, prepared: Prepared, options: Mapping[str, object], overrides: Sequence[str]
) -> list[str]:
    """Return the command that makes the same study again, whatever it was resumed from and whoever ran it."""
    # The seed last: it was drawn where none was stated.
    return command_line(
        verb, [study_file(prepared.study)], {**options, "--seed": prepared.seed}, overrides
    )


def _histogram_rows(finished: Finished) -> list[tuple[object, ...]]:
    """Return the bins of the objective by scenario, all on one scale, so that they can be compared."""
    objective = finished.by_scenario(finished.prepared.objective.name)
    finite = objective[np.isfinite(objective)]
    low, high = (0.0, 1.0)
    if finite.size:
        # In place: of a large study a second copy of all rows would not fit.
        low, high = np.percentile(finite, BIN_PERCENTILES, overwrite_input=True)
    del finite
    # All answers alike: a scale needs a length.
    end = high if high > low else low + 1.0
    edges = np.linspace(low, end, BINS + 1)
    rows: list[tuple[object, ...]] = []
    for name, figures in zip(finished.prepared.names, objective, strict=True):
        completed = figures[np.isfinite(figures)]
        counts = np.histogram(completed, edges)[0].tolist()
        bounds = edges.tolist()
        bins = zip(bounds[:-1], bounds[1:], counts, strict=True)
        rows += [(name, *bin_cells, completed.size) for bin_cells in bins]
    return rows


def write_study(
    finished: Finished,
    *,
    samples: bool | None = None,
    command: Sequence[str] = (),
) -> None:
    """Write a finished study's tables, data dictionary and manifest beside its stored replications.

    ``samples`` says whether samples.csv is among them; unless it does, that is while it is no longer than usual.
    """
    # Unasked, a long study has none: writing it would take longer than its statistics.
    if samples is None:
        samples_rows = finished.rows * len(finished.prepared.names)
        samples = samples_rows <= MAX_SAMPLES
    study_tables = [
        statistics_rows(finished.statistics()),
        _target_rows(finished.prepared, finished.standings()),
        _decision_rows(finished.decisions()),
        driver_rows(finished.drivers(), finished.driven.size),
        STUDY_TABLES["monthly_bands"].of_rows(finished.bands()),
        STUDY_TABLES["distribution"].of_rows(_histogram_rows(finished)),
    ]
    _write(finished, study_tables, command, samples=samples)


def write_designed(
    prepared: Prepared,
    design: OneAtATime,
    store: Store,
    rows: int,
    command: Sequence[str] = (),
) -> tuple[list[Driver], int]:
    """Measure a finished design, write its folder; return what drives the headline, and the rows that could be run."""
    finished = Finished(prepared=prepared, store=store, rows=rows)
    objective = finished.output(prepared.objective.name)
    drivers = list(measures(prepared, design, objective))
    completed = completed_rows(objective.T)
    # The first row of each period is the design's base: the others move inputs on purpose.
    base_rows = objective[:: design.period]
    groups = len(base_rows)
    standings = finished.standings(design.period, groups)
    # Who is MISSED is no candidate for the best, however cheap.
    candidates = [place for place, standing in enumerate(standings) if standing.may_meet]
    decisions = decision.decisions(
        base_rows.T,
        prepared.names,
        groups,
        candidates,
        lower_is_better=prepared.objective.lower_is_better,
    )
    means = []
    # Each once: the objective may itself be one of the two.
    outputs = (prepared.objective.name, ATTAINMENT, SHED)
    for output in dict.fromkeys(outputs):
        figures = finished.output(output)[:: design.period]
        means += [
            Statistic(name, output, "mean", mean_estimate(figures[:, place], groups))
            for place, name in enumerate(prepared.names)
        ]
    study_tables = [
        statistics_rows(means),
        _target_rows(prepared, standings),
        _decision_rows(decisions),
        driver_rows(drivers, completed),
    ]
    _write(finished, study_tables, command)
    return drivers, completed


def _write(
    finished: Finished,
    study_tables: Sequence[Table],
    command: Sequence[str],
    *,
    samples: bool = False,
) -> None:
    """Write tables, the plans as stated and report into the study's folder, then the manifest that ends it."""
    prepared = finished.prepared
    store = finished.store
    try:
        # First, straight to the disk: of a large study it does not fit into memory.
        streamed = [_write_samples(finished)] if samples else []
        results = _results_as_stated(prepared)
        scenarios = {base.name: base.scenario for base in prepared.scenarios}
        # In the order of the reference, whatever the design has of them.
        all_tables = (*study_tables, _uncertain_rows(prepared))
        unordered = {table.name: table for table in all_tables}
        by_name = {name: unordered[name] for name in STUDY_TABLES if name in unordered}
        further = (*plan_tables(results), *evidence_tables(scenarios))
        by_name |= {table.name: table for table in further}
        files = tables.csv_files(prepared.study.name.lower(), by_name.values(), streamed)
        start = prepared.scenarios[0].scenario.start
        sheets = _sheets(by_name, results)
        files[WORKBOOK] = write_tables(prepared.study.name, start, sheets)
        manifest = study_manifest(prepared, store, finished.rows)
        if command:
            manifest["command"] = list(command)
        if finished.dropped():
            manifest["dropped"] = finished.dropped()
        contents = Contents(manifest=manifest, tables=by_name, beside=openable(files))
        files[REPORT] = build_report(contents)
        for name, content in files.items():
            store.staged.write(name, content)
        # The manifest last: a folder without one is unfinished work, which can be resumed.
        store.commit(manifest)
    except OSError as error:
        raise store.unwritable(error) from None
    finally:
        # What was staged and not committed is no part of the study.
        store.discard()


def _results_as_stated(prepared: Prepared) -> dict[str, RunResult]:
    """Return a run of each plan as it is stated; one that cannot be run so is left out."""
    results = {}
    for base in prepared.scenarios:
        with contextlib.suppress(PlannerError):
            # A plan may be impossible as stated, and possible in what the study draws.
            results[base.name] = simulate(base.scenario, seed=prepared.seed)
    return results


def _sheets(by_name: Mapping[str, Table], results: Mapping[str, RunResult]) -> dict[str, Page]:
    """Return the sheets of a study's workbook."""
    columns = {name: table.columns for name, table in by_name.items()}
    pages = {"Percentiles": statistics_page(columns["percentiles"])}
    if "monthly_bands" in columns:  # a designed study has none
        charted = ("cost_usd", "served_tokens", "revenue_usd")
        pages[BANDS_SHEET] = bands_page(columns["monthly_bands"], charted)
    plain = {}
    for page in PLAIN_SHEETS:
        table = page.lower().replace(" ", "_")
        plain[page] = columns[table]
    pages |= plain_pages(plain)
    return pages | statements_page(results) | plain_pages({"Assumptions": columns["assumptions"]})


def _input_column(entry: UncertainInput) -> Column:
    """Return the column of samples.csv that has the draws of an input."""
    description = "Input drawn."
    if entry.times_stated:
        description = "Input drawn: a factor on the stated value."
    if is_numeric(entry.distribution):
        return number_column(entry.name, description, 9, _unit(entry.name))
    return text_column(entry.name, description)


def _write_samples(finished: Finished) -> dict[str, object]:
    """Write samples.csv part by part, so that memory does not grow with the study, and return its dictionary entry."""
    inputs = finished.prepared.inputs.entries
    samples = STUDY_TABLES["samples"]
    input_columns = map(_input_column, inputs)
    # Inputs stand between what names a row and what came of it.
    description = replace(
        samples, columns=(*samples.columns[:2], *input_columns, *samples.columns[2:])
    )
    staged = finished.store.staged
    name = f"{description.name}.csv"
    digest = hashlib.sha256()
    size = 0
    with (staged.path / name).open("wb") as stream:
        for part in finished.store.samples(SAMPLE_ROWS_AT_ONCE):
            columns: dict[str, Cells] = {
                "scenario": part.column("scenario").to_pylist(),
                "error": part.column("error").to_pylist(),
                "replication": part.column("replication").to_numpy(),
            }
            for output in objective_names():
                columns[output] = part.column(f"out:{output}").to_numpy()
            for entry in inputs:
                draws = part.column(f"in:{entry.name}").to_numpy()
                columns[entry.name] = draws
                if not is_numeric(entry.distribution):
                    columns[entry.name] = [
                        str(value_of(entry.distribution, draw)) for draw in draws.tolist()
                    ]
            # The header goes before the first part alone.
            content = tables.write_csv(Table(description, columns), header=not size)
            stream.write(content)
            digest.update(content)
            size += len(content)
    staged.add(name, digest.hexdigest())
    return tables.dictionary_entry(description, size, digest.hexdigest())


def study_answer(folder: Path, finished: Finished) -> Answer[Finished]:
    """Return a study as an answer: the objective's percentiles."""
    return Answer(
        folder=folder,
        result=finished,
        warnings=finished.prepared.warnings,
        notes=finished.prepared.study.notes,
        summarise=lambda: fields_json(study_summary(finished)),
        say=lambda verbose: study_text(study_summary(finished), verbose=verbose),
        is_met=lambda: _is_met(finished),
        rows=lambda: statistics_rows(finished.statistics()),
    )


def design_answer(
    folder: Path, finished: Finished, drivers: Sequence[Driver], completed: int
) -> Answer[Finished]:
    """Return a study that was designed to find what drives its objective as an answer."""
    return Answer(
        folder=folder,
        result=finished,
        warnings=finished.prepared.warnings,
        notes=finished.prepared.study.notes,
        summarise=lambda: driver_rows(drivers, completed).records(),
        say=lambda _: driver_text(finished.prepared, drivers),
        is_met=lambda: _is_met(finished),
        rows=lambda: driver_rows(drivers, completed),
    )


def _is_met(finished: Finished) -> bool:
    return any(standing.verdict.status == "MET" for standing in finished.standings())
