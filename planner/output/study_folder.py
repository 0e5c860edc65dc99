"""The files of a study."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.errors import PlannerError
from planner.output import study_rows
from planner.output.charts import study_pictures
from planner.output.columns import DescribedTable
from planner.output.csv_table import DEFAULT_FORMAT, CsvFormat, WrittenTable, csv_files, write_csv
from planner.output.folder import command_line
from planner.output.judgement import IN_TIME, SHED
from planner.output.plan_tables import evidence_tables, plan_tables
from planner.output.plan_workbooks import bands_page, plain_pages, statements_page, statistics_page
from planner.output.report.build import build_report
from planner.output.report.contents import REPORT, Contents, openable
from planner.output.study_rows import STUDY_TABLES
from planner.output.workbook import write_tables
from planner.run.result import RunResult
from planner.run.simulate import simulate
from planner.studies.analysis import Driver, Finished, Statistic
from planner.studies.decision import decisions
from planner.studies.designs import Morris, OneAtATime, Saltelli
from planner.studies.distributions import is_numeric, value_of
from planner.studies.headlines import headline_names
from planner.studies.indices import measures
from planner.studies.intervals import mean_estimate
from planner.studies.prepare import Prepared
from planner.studies.store import Store
from planner.studies.study import study_manifest

_SAMPLE_ROWS = 8_000
"""Rows of samples.csv written at once: some tens of megabytes of memory."""
USUAL_SAMPLES = 100_000
"""Rows that samples.csv has at most unless it is asked for: a spreadsheet takes a million, and writing them takes
longer than all statistics."""


def write_study(
    finished: Finished,
    form: CsvFormat = DEFAULT_FORMAT,
    *,
    charts: bool = True,
    samples: bool | None = None,
    command: Sequence[str] = (),
) -> None:
    """Write a finished study's tables, data dictionary, charts and manifest beside its stored replications."""
    store, prepared = finished.store, finished.prepared
    headline = finished.by_scenario(prepared.headline.name)
    measured = finished.output(prepared.headline.name, finished.detailed).T
    tables = [
        (STUDY_TABLES["percentiles"], study_rows.statistics_columns(finished.statistics())),
        (STUDY_TABLES["monthly_bands"], study_rows.band_columns(finished.bands())),
        (STUDY_TABLES["promise"], study_rows.promise_columns(prepared, finished.standings())),
        (STUDY_TABLES["decision"], study_rows.decision_columns(finished.decisions())),
        (
            STUDY_TABLES["sensitivity"],
            study_rows.driver_columns(finished.drivers(), study_rows.completed_rows(measured)),
        ),
        (STUDY_TABLES["distribution"], study_rows.distribution_columns(headline, prepared.names)),
        (STUDY_TABLES["convergence"], study_rows.convergence_columns(finished)),
    ]
    try:
        streamed = (_write_samples(finished, form),) if _writes_samples(finished, asked=samples) else ()
        writer = _Writer(
            prepared=prepared, store=store, rows=finished.rows, command=command, dropped=finished.dropped()
        )
        writer.write(tables, form, extra=streamed, charts=charts)
    except OSError as error:
        raise store.unwritable(error) from None
    finally:
        store.discard()


def write_designed(
    prepared: Prepared, design: OneAtATime | Morris | Saltelli, store: Store, rows: int, command: Sequence[str] = ()
) -> tuple[list[Driver], int]:
    """Measure a finished design, write its folder; return what drives the headline, and the rows that could be run."""
    headline = store.joined.column(f"out:{prepared.headline.name}", rows)
    drivers = list(measures(prepared, design, headline))
    first = headline[:: design.period]  # the first row of each period: as the design's report says
    groups = prepared.study.scramblings if isinstance(design, Saltelli) else len(first)
    finished = Finished(prepared=prepared, store=store, rows=rows)
    standings = finished.standings(design.period, groups)
    keeping = [which for which, standing in enumerate(standings) if standing.keeps_promise]
    compared = decisions(first.T, prepared.names, groups, keeping, lower_is_better=prepared.headline.lower_is_better)
    tables = [
        (STUDY_TABLES["percentiles"], study_rows.statistics_columns(_means(finished, design.period, groups))),
        (STUDY_TABLES["promise"], study_rows.promise_columns(prepared, standings)),
        (STUDY_TABLES["decision"], study_rows.decision_columns(compared)),
        (STUDY_TABLES["sensitivity"], study_rows.driver_columns(drivers, study_rows.completed_rows(headline.T))),
    ]
    try:
        writer = _Writer(prepared=prepared, store=store, rows=rows, command=command, dropped=finished.dropped())
        writer.write(tables, DEFAULT_FORMAT, charts=True)
    except OSError as error:
        raise store.unwritable(error) from None
    finally:
        store.discard()
    return drivers, study_rows.completed_rows(headline.T)


def _writes_samples(finished: Finished, *, asked: bool | None) -> bool:
    """Say whether samples.csv is written: as asked for, else while it is no longer than usual."""
    return finished.rows * len(finished.prepared.names) <= USUAL_SAMPLES if asked is None else asked


def study_command(verb: str, prepared: Prepared, asked: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the command that makes the same study again, whatever it was resumed from and whoever ran it."""
    return command_line(
        verb, [study_rows.study_file(prepared.study)], [*asked, "--seed", str(prepared.seed)], overrides
    )


def _means(finished: Finished, every: int, groups: int) -> Iterator[Statistic]:
    """Yield the means of the headline and of service in every so many rows, each with its interval from groups."""
    for output in dict.fromkeys((finished.prepared.headline.name, IN_TIME, SHED)):
        table = finished.output(output)[::every]
        for which, name in enumerate(finished.prepared.names):
            yield Statistic(name, output, "mean", mean_estimate(table[:, which], groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Writes what studies have in common: the plans as stated, what they assume, charts, report and manifest."""

    prepared: Prepared
    store: Store
    rows: int
    command: Sequence[str]
    dropped: Sequence[str] = ()
    """What is to be said of replications that could not be run."""

    def write(
        self,
        tables: Sequence[DescribedTable],
        form: CsvFormat,
        *,
        extra: tuple[WrittenTable, ...] = (),
        charts: bool,
    ) -> None:
        """Write tables and pictures into the study's folder, then the manifest that says it is finished."""
        store = self.store
        results = self._results()
        all_tables = [
            *tables,
            (STUDY_TABLES["uncertain"], study_rows.uncertain_columns(self.prepared)),
            *self._stated(results),
        ]
        content = csv_files(self.prepared.study.name.lower(), all_tables, form, extra)
        content["workbook.xlsx"] = self._workbook(results, {table.name: columns for table, columns in all_tables})
        manifest = study_manifest(self.prepared, store, self.rows)
        if self.command:
            manifest["command"] = list(self.command)
        if self.dropped:
            manifest["dropped"] = list(self.dropped)
        contents = Contents(manifest=manifest, files=content, beside=openable(content))
        pictures = study_pictures(contents) if charts else {}
        content = {**content, **pictures, REPORT: build_report(contents)}
        for name, text in content.items():
            store.staged.write(name, text)
        store.commit(manifest)

    def _results(self) -> dict[str, RunResult]:
        """Run each scenario once as it is stated; one that cannot be run is left out."""
        results: dict[str, RunResult] = {}
        for base in self.prepared.scenarios:
            with contextlib.suppress(PlannerError):
                results[base.name] = simulate(base.scenario, seed=self.prepared.seed)
        return results

    def _stated(self, results: dict[str, RunResult]) -> list[DescribedTable]:
        """Return the tables of each scenario as it is stated."""
        scenarios = {base.name: base.scenario for base in self.prepared.scenarios}
        return [*plan_tables(results), *evidence_tables(scenarios)]

    def _workbook(self, results: dict[str, RunResult], shown: Mapping[str, Mapping[str, Any]]) -> bytes:
        """Return the workbook: percentiles of every figure and by month, what decides, statements as stated."""
        pages = {"Percentiles": statistics_page(shown["percentiles"])}
        if "monthly_bands" in shown:
            pages["By month"] = bands_page(shown["monthly_bands"], ("cost_usd", "served_tokens", "revenue_usd"))
        named = {"Promise": "promise", "Decision": "decision", "Sensitivity": "sensitivity", "Uncertain": "uncertain"}
        pages |= plain_pages({name: shown[table] for name, table in named.items()})
        pages |= statements_page(results) | plain_pages({"Assumptions": shown["assumptions"]})
        return write_tables(self.prepared.study.name, self.prepared.scenarios[0].scenario.start, pages)


def _write_samples(finished: Finished, form: CsvFormat) -> WrittenTable:
    """Write samples.csv part by part, so that memory does not grow with the study."""
    description = study_rows.samples_table(finished.prepared.inputs)
    staged, name = finished.store.staged, f"{description.name}.csv"
    digest, size = hashlib.sha256(), 0
    with (staged.path / name).open("wb") as stream:
        for columns in _sample_parts(finished):
            text = write_csv(description, columns, form)
            if size:
                text = text[text.index(b"\n") + 1 :]
            stream.write(text)
            digest.update(text)
            size += len(text)
    staged.add(name, digest.hexdigest())
    return WrittenTable(description=description, size_bytes=size, sha256=digest.hexdigest())


def _sample_parts(finished: Finished) -> Iterator[dict[str, Any]]:
    """Yield the columns of samples.csv, some rows at a time."""
    inputs = finished.prepared.inputs.entries
    for table in finished.store.joined.parts(_SAMPLE_ROWS):
        columns: dict[str, Any] = {
            "replication": table.column("replication").to_numpy(),
            "scenario": table.column("scenario").to_pylist(),
        }
        for uncertain in inputs:
            drawn = table.column(f"in:{uncertain.name}").to_numpy()
            columns[uncertain.name] = drawn
            if not is_numeric(uncertain.distribution):
                columns[uncertain.name] = [str(value_of(uncertain.distribution, place)) for place in drawn.tolist()]
        for name in headline_names():
            columns[name] = table.column(f"out:{name}").to_numpy()
        columns["error"] = table.column("error").to_pylist()
        yield columns
