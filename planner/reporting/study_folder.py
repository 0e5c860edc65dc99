"""The files of a study."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import PlannerError
from planner.reporting import study_columns
from planner.reporting.csv_table import DEFAULT_FORMAT, CsvFormat, write_csv
from planner.reporting.datapackage import StreamedTable, WrittenTable, data_package
from planner.reporting.folder import CHARTS, PRODUCT, json_text
from planner.reporting.plan_tables import DescribedTable, evidence_tables, plan_tables
from planner.reporting.report.build import build_report
from planner.reporting.report.contents import REPORT, Contents
from planner.reporting.study_charts import study_pictures
from planner.reporting.study_rows import (
    band_columns,
    convergence_columns,
    decision_columns,
    distribution_columns,
    driver_columns,
    statistics_columns,
)
from planner.reporting.uncertain_inputs import uncertain_columns
from planner.simulation.result import RunResult
from planner.simulation.run import simulate
from planner.studies.analysis import Driver, Finished, Statistic
from planner.studies.decision import decisions
from planner.studies.designed import measures
from planner.studies.designs import Morris, OneAtATime, Saltelli
from planner.studies.distributions import is_numeric, value_of
from planner.studies.headlines import headline_names
from planner.studies.intervals import mean_estimate
from planner.studies.prepare import Prepared
from planner.studies.store import CLEARED, STUDY, WHOLE, Store

Floats = NDArray[np.float64]

_SAMPLE_ROWS = 20_000
"""Rows of samples.csv written at once: some tens of megabytes of memory."""


def write_study(
    finished: Finished, form: CsvFormat = DEFAULT_FORMAT, *, charts: bool = True, command: Sequence[str] = ()
) -> None:
    """Write a finished study's tables, data dictionary, charts and manifest beside its stored replications."""
    store, prepared = finished.store, finished.prepared
    tables = [
        (study_columns.PERCENTILES, statistics_columns(finished.statistics())),
        (study_columns.MONTHLY_BANDS, band_columns(finished.bands())),
        (study_columns.DECISION, decision_columns(finished.decisions())),
        (study_columns.SENSITIVITY, driver_columns(finished.drivers())),
        (study_columns.DISTRIBUTION, distribution_columns(finished.output(prepared.headline.name), prepared.names)),
        (study_columns.CONVERGENCE, convergence_columns(finished)),
    ]
    try:
        store.unfinish()
        samples = _write_samples(finished, form)
        writer = _Writer(prepared=prepared, store=store, rows=finished.rows, command=command)
        writer.write(tables, form, extra=(samples,), charts=charts)
    except OSError as error:
        raise store.unwritable(error) from None


def write_designed(
    prepared: Prepared, design: OneAtATime | Morris | Saltelli, store: Store, rows: int, command: Sequence[str] = ()
) -> list[Driver]:
    """Measure a finished design, write its tables, tornado and manifest, and return what drives the headline."""
    headline = np.asarray(store.column(f"out:{prepared.headline.name}", rows), dtype=np.float64)
    drivers = list(measures(prepared, design, headline))
    first = headline[:: design.period]  # the first row of each period: as the design's report says
    groups = prepared.study.scramblings if isinstance(design, Saltelli) else len(first)
    compared = decisions(first, prepared.names, groups, lower_is_better=prepared.headline.lower_is_better)
    tables = [
        (study_columns.PERCENTILES, statistics_columns(_means(prepared, first, groups))),
        (study_columns.DECISION, decision_columns(compared)),
        (study_columns.SENSITIVITY, driver_columns(drivers)),
    ]
    try:
        store.unfinish()
        writer = _Writer(prepared=prepared, store=store, rows=rows, command=command)
        writer.write(tables, DEFAULT_FORMAT, charts=True)
    except OSError as error:
        raise store.unwritable(error) from None
    return drivers


def _means(prepared: Prepared, rows: Floats, groups: int) -> Iterator[Statistic]:
    """Yield the headline's mean of each scenario, with its interval from independent groups of rows."""
    for which, name in enumerate(prepared.names):
        found = mean_estimate(rows[:, which], groups)
        yield Statistic(scenario=name, output=prepared.headline.name, statistic="mean", estimate=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Writes what studies have in common: the plans as stated, what they assume, charts, report and manifest."""

    prepared: Prepared
    store: Store
    rows: int
    command: Sequence[str]

    def write(
        self,
        tables: Sequence[DescribedTable],
        form: CsvFormat,
        *,
        extra: tuple[StreamedTable, ...] = (),
        charts: bool,
    ) -> None:
        """Write tables and pictures into the study's folder, then the manifest that says it is finished."""
        store = self.store
        whole = [*tables, (study_columns.UNCERTAIN, uncertain_columns(self.prepared)), *self._stated()]
        written = [WrittenTable(description=table, content=write_csv(table, columns, form)) for table, columns in whole]
        content = {f"{table.description.name}.csv": table.content for table in written}
        content["datapackage.json"] = data_package(self.prepared.study.name.lower(), [*extra, *written], form)
        manifest = self._manifest()
        contents = Contents(manifest=manifest, files=content)
        pictures = study_pictures(contents) if charts else {}
        content = {**content, **pictures, REPORT: build_report(contents)}
        self._drop_older_charts()
        for name, text in content.items():
            store.replace(name, text)
        names = [*content, *(f"{table.description.name}.csv" for table in extra), STUDY, WHOLE]
        hashes = {name: _sha256_of(store.folder / name) for name in sorted(names)}
        store.finish(json_text({"product": PRODUCT, **manifest, "files": hashes}).encode())

    def _manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = {
            "kind": "study",
            "name": self.prepared.study.name,
            "headline": self.prepared.headline.name,
            "replications": self.rows,
            "identity": self.store.identity,
        }
        return {**manifest, "command": list(self.command)} if self.command else manifest

    def _stated(self) -> list[DescribedTable]:
        """Return the tables of each scenario as it is stated, run once; one that cannot be run has none."""
        scenarios = {base.name: base.scenario for base in self.prepared.scenarios}
        results: dict[str, RunResult] = {}
        for name, scenario in scenarios.items():
            with contextlib.suppress(PlannerError):
                results[name] = simulate(scenario, seed=self.prepared.seed)
        return [*plan_tables(results), *evidence_tables(scenarios)]

    def _drop_older_charts(self) -> None:
        """Remove what ``planner charts`` drew of fewer replications, and nothing that it did not draw."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads((self.store.folder / CLEARED).read_bytes())["files"]
            for name in known:
                if Path(name).parts[:-1] == (CHARTS,):
                    (self.store.folder / name).unlink(missing_ok=True)
            (self.store.folder / CHARTS).rmdir()


def _sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_samples(finished: Finished, form: CsvFormat) -> StreamedTable:
    """Write samples.csv part by part, so that memory does not grow with the study."""
    description = study_columns.samples_table(finished.prepared.inputs)
    store = finished.store
    part = store.folder / ".samples.csv.part"
    digest, size = hashlib.sha256(), 0
    try:
        with part.open("wb") as stream:
            for columns in _sample_parts(finished):
                text = write_csv(description, columns, form)
                if size:
                    text = text[text.index(b"\n") + 1 :]
                stream.write(text)
                digest.update(text)
                size += len(text)
        part.replace(store.folder / "samples.csv")
    finally:
        part.unlink(missing_ok=True)
    return StreamedTable(description=description, size_bytes=size, sha256=digest.hexdigest())


def _sample_parts(finished: Finished) -> Iterator[dict[str, Any]]:
    """Yield the columns of samples.csv, some rows at a time."""
    inputs = finished.prepared.inputs.each
    for table in finished.store.parts(_SAMPLE_ROWS):
        columns: dict[str, Any] = {
            "replication": table.column("replication").to_numpy(),
            "scenario": table.column("scenario").to_pylist(),
        }
        for found in inputs:
            drawn = table.column(f"in:{found.name}").to_numpy()
            columns[found.name] = drawn
            if not is_numeric(found.distribution):
                columns[found.name] = [str(value_of(found.distribution, place)) for place in drawn.tolist()]
        for name in headline_names():
            columns[name] = table.column(f"out:{name}").to_numpy()
        columns["error"] = table.column("error").to_pylist()
        yield columns
