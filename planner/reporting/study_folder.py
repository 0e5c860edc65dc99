"""The files of a study."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.reporting import study_columns
from planner.reporting.columns import TableDescription
from planner.reporting.csv_table import DEFAULT_FORMAT, CsvFormat, write_csv
from planner.reporting.datapackage import StreamedTable, WrittenTable, data_package
from planner.reporting.folder import MANIFEST, PRODUCT, json_text
from planner.reporting.report.build import build_report
from planner.reporting.report.contents import REPORT, Contents
from planner.studies.analysis import Band, Driver, Finished, Statistic
from planner.studies.decision import Comparison
from planner.studies.distributions import is_numeric, value_of
from planner.studies.headlines import headline_names
from planner.studies.store import STUDY, WHOLE, Store

_SAMPLE_ROWS = 20_000
"""Rows of samples.csv written at once: some tens of megabytes of memory."""


def write_study(finished: Finished, form: CsvFormat = DEFAULT_FORMAT, *, charts: bool = True) -> None:
    """Write a finished study's tables, data dictionary, charts and manifest beside its stored replications."""
    drivers = list(finished.drivers())
    comparisons = finished.decisions()
    tables = [
        (study_columns.PERCENTILES, statistics_columns(finished.statistics())),
        (study_columns.MONTHLY_BANDS, band_columns(finished.bands())),
        (study_columns.DECISION, decision_columns(comparisons)),
        (study_columns.SENSITIVITY, driver_columns(drivers)),
    ]
    pictures: Mapping[str, bytes] = {}
    if charts:
        from planner.reporting.study_charts import study_charts  # noqa: PLC0415 - matplotlib takes a second

        pictures = study_charts(finished, drivers)
    store = finished.store
    try:
        samples = _write_samples(finished, form)
        write_tables(store, tables, form, extra=(samples,), files=pictures, rows=finished.rows)
    except OSError as error:
        raise store.unwritable(error) from None


def write_tables(
    store: Store,
    tables: Iterable[tuple[TableDescription, Mapping[str, Any]]],
    form: CsvFormat,
    *,
    extra: tuple[StreamedTable, ...] = (),
    files: Mapping[str, bytes] | None = None,
    rows: int,
) -> None:
    """Write tables and other files into a study's folder, then the manifest that says it is finished."""
    written = [WrittenTable(description=table, content=write_csv(table, columns, form)) for table, columns in tables]
    content = {f"{table.description.name}.csv": table.content for table in written} | dict(files or {})
    content["datapackage.json"] = data_package(store.folder.name.lower(), [*extra, *written], form)
    manifest: dict[str, Any] = {"kind": "study", "replications": rows, "identity": store.identity}
    content[REPORT] = build_report(Contents(manifest=manifest, files=content))
    for name, text in content.items():
        store.replace(name, text)
    names = [*content, *(f"{table.description.name}.csv" for table in extra), STUDY, WHOLE]
    hashes = {name: _sha256_of(store.folder / name) for name in sorted(names)}
    store.replace(MANIFEST, json_text({"product": PRODUCT, **manifest, "files": hashes}).encode())


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


def statistics_columns(statistics: Iterable[Statistic]) -> dict[str, list[Any]]:
    """Lay out percentiles.csv."""
    rows = list(statistics)
    return {
        "scenario": [row.scenario for row in rows],
        "output": [row.output for row in rows],
        "statistic": [row.statistic for row in rows],
        "value": [row.estimate.value for row in rows],
        "low": [row.estimate.low for row in rows],
        "high": [row.estimate.high for row in rows],
    }


def band_columns(bands: Iterable[Band]) -> dict[str, list[Any]]:
    """Lay out monthly_bands.csv."""
    rows = list(bands)
    names = ("p5", "p10", "p50", "p90", "p95")
    columns: dict[str, list[Any]] = {
        "scenario": [row.scenario for row in rows],
        "output": [row.output for row in rows],
        "month": [row.month for row in rows],
        "mean": [row.mean for row in rows],
    }
    columns.update({name: [row.percentiles[place] for row in rows] for place, name in enumerate(names)})
    return columns


def decision_columns(comparisons: Iterable[Comparison]) -> dict[str, list[Any]]:
    """Lay out decision.csv."""
    rows = list(comparisons)
    return {
        "scenario": [row.scenario for row in rows],
        "against": [row.against for row in rows],
        "probability_better": [row.probability_better.value for row in rows],
        "probability_low": [max(row.probability_better.low, 0.0) for row in rows],
        "probability_high": [min(row.probability_better.high, 1.0) for row in rows],
        "mean_difference": [row.mean_difference.value for row in rows],
        "difference_low": [row.mean_difference.low for row in rows],
        "difference_high": [row.mean_difference.high for row in rows],
        "mean_regret": [row.mean_regret.value for row in rows],
        "p95_regret": [row.p95_regret.value for row in rows],
    }


def driver_columns(drivers: Iterable[Driver]) -> dict[str, list[Any]]:
    """Lay out sensitivity.csv."""
    rows = list(drivers)
    names = ("scenario", "against", "method", "input", "measure", "value", "low", "high")
    return {name: [getattr(row, name) for row in rows] for name in names}
