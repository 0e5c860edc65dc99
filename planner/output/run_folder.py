"""The files of one run."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from planner.catalog.load import VERSION
from planner.engine.processes import name_of
from planner.errors import Problem, ScenarioError
from planner.files import MANIFEST, json_text, read_json
from planner.finance.statements import Frequency
from planner.output.assumptions import assumptions, model_error
from planner.output.columns import DescribedTable
from planner.output.csv_table import DEFAULT_FORMAT, CsvFormat, packaged, write_csv
from planner.output.folder import command_line, write_folder
from planner.output.plan_tables import run_columns_of
from planner.output.plan_workbooks import months_pages
from planner.output.report.build import report_of
from planner.output.report.contents import REPORT
from planner.output.run_columns import RUN_TABLES, TABLES
from planner.output.run_workbook import begin_workbook, workbook_content
from planner.output.summary import late_reasons, summary
from planner.parallel import shared
from planner.run import tables
from planner.run.measure_names import DRAWS, MEASURES
from planner.run.measures import measures
from planner.run.replications import Chance, ends_of
from planner.run.result import RunResult
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.units import unit_of
from planner.version import __version__

WORKBOOK = "workbook.xlsx"
_MEASURES = TABLES["measures"]
"""The one table of a run that has intervals."""


def scenario_sha256(scenario: Scenario) -> str:
    """Return the hash of what the scenario says, defaults included, wherever it was written."""
    return _sha256(scenario, exclude={"extends"})


def _sha256(model: BaseModel, exclude: set[str] | None = None) -> str:
    content = model.model_dump(mode="json", by_alias=True, exclude=exclude)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def scenario_file(scenario: Scenario) -> str:
    """Return the file that a scenario was read from, as it was named; nothing where it was given as a dict."""
    place = scenario.document.locate(())
    return place.file if place is not None and place.line is not None else ""


def command_again(verb: str, scenarios: Sequence[Scenario], options: Sequence[str]) -> list[str]:
    """Return the command that writes the same bytes; none where there is none: no file, or overrides that differ."""
    files, overrides = [scenario_file(scenario) for scenario in scenarios], common_overrides(scenarios)
    return command_line(verb, files, options, overrides) if all(files) and overrides is not None else []


def common_overrides(scenarios: Sequence[Scenario]) -> tuple[str, ...] | None:
    """Return the overrides laid over all scenarios alike; None where they differ."""
    first, *others = {scenario.document.overrides for scenario in scenarios}
    return None if others else first


def planned_from(plan: Path) -> tuple[Path, list[str], int | None]:
    """Return the file, overrides and seed of a plan: a scenario or study itself, or what a run's folder was made of."""
    if not plan.is_dir():
        return plan, [], None
    manifest = read_json(plan / MANIFEST)
    if manifest.get("kind") != "run" or not manifest.get("scenario_file"):
        hint = "give a scenario, a study, or a folder that planner run wrote"
        raise ScenarioError(Problem(file=str(plan), message="is not the folder of a run", hint=hint))
    file, overrides = (
        Path(str(manifest["scenario_file"])),
        [str(override) for override in manifest.get("overrides", ())],
    )
    if scenario_sha256(load_scenario(file, overrides)) != manifest.get("scenario_sha256"):
        message = f"{file} is no longer what the run was made of"
        raise ScenarioError(Problem(file=str(plan), message=message, hint="run it again, or give the scenario itself"))
    return file, overrides, int(manifest["seed"])


def manifest(result: RunResult) -> dict[str, Any]:
    """Return what identifies a run: the same manifest means the same bytes."""
    identity = scenario_identity(result.scenario, result.seed, result.replication)
    return identity | ({"processes": [name_of(process) for process in result.processes]} if result.processes else {})


def scenario_identity(scenario: Scenario, seed: int, replication: int) -> dict[str, Any]:
    """Return what identifies one replication of a scenario."""
    return {
        "kind": "run",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_file": scenario_file(scenario),
        "scenario_sha256": scenario_sha256(scenario),
        "overrides": list(scenario.document.overrides),
        "seed": seed,
        "replication": replication,
        "catalog": {
            "assumptions": scenario.catalog.assumptions,
            "version": VERSION,
            "sha256": _sha256(scenario.load_catalog()),
        },
        **({"files": hashes} if (hashes := _file_hashes(scenario)) else {}),
    }


def _file_hashes(scenario: Scenario) -> dict[str, str]:
    """Return the hashes of the further files that a scenario reads, by name."""
    files = sorted(scenario.document.files.items())
    return {Path(path).name: hashlib.sha256(content).hexdigest() for path, content in files}


def run_tables(result: RunResult, *, hourly: bool = False) -> list[DescribedTable]:
    """Return every table of a run with its columns; that of the measures without intervals."""
    columns: dict[str, Mapping[str, Any]] = {
        **run_columns_of(result),
        "late_reasons": tables.late_reasons(result),
        "timeline_daily": tables.timeline_daily(result),
        "accounts": tables.accounts(),
        **{f"statement_{span}ly": tables.statement(result, span) for span in Frequency},
        _MEASURES.name: measure_rows(result),
        "assumptions": assumptions(result.scenario),
        "model_error": model_error(),
    }
    written = [(table, columns[table.name]) for table in RUN_TABLES]
    if hourly:
        written.append((TABLES["timeline_hourly"], tables.timeline_hourly(result)))
    return written


def measure_rows(result: RunResult, chance: Chance | None = None) -> dict[str, Any]:
    """Return the columns of measures.csv."""
    figures = measures(result)
    bands = [ends_of(chance.interval(name) if chance is not None else None) for name in figures]
    return _MEASURES.filled(
        (name, value, *ends, unit_of(name) or "", measure.view, measure.formula)
        for (name, value), ends, measure in zip(figures.items(), bands, MEASURES, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run's folder holds beyond the usual, and how its CSV files are written."""

    form: CsvFormat = DEFAULT_FORMAT
    hourly: bool = False
    parquet: bool = False


USUAL = Wanted()


def write_run(
    result: RunResult,
    folder: Path,
    *,
    chance: Chance | None = None,
    wanted: Wanted = USUAL,
    command: Sequence[str] = (),
) -> None:
    """Write a run's folder, whole or not at all.

    ``chance`` is the plan drawn again, for intervals; ``command`` what writes the same bytes, where it is not a run.
    """
    begin_run(result, wanted, command)(folder, chance)


def begin_run(
    result: RunResult, wanted: Wanted = USUAL, command: Sequence[str] = ()
) -> Callable[[Path, Chance | None], None]:
    """Work out what a run's folder holds of the run itself; the function that is handed out writes it, with intervals.

    So the plan may be drawn again meanwhile.
    """
    scenario = result.scenario
    tables = run_tables(result, hourly=wanted.hourly)
    shown = {table.name: columns for table, columns in tables}
    csv = {table.name: write_csv(table, columns, wanted.form) for table, columns in tables if table is not _MEASURES}
    timelines = {name: columns for name, columns in shown.items() if wanted.parquet and name.startswith("timeline_")}
    parquet = {f"{name}.parquet": parquet_bytes(columns) for name, columns in timelines.items()}
    identity, finish_workbook = manifest(result), begin_workbook(workbook_content(result, shown))
    late_reasons(result)  # kept for the summary: the plan is compiled and routed anew for them

    def finish(folder: Path, chance: Chance | None) -> None:
        with_intervals = write_csv(_MEASURES, measure_rows(result, chance), wanted.form)
        contents = [(table, csv.get(table.name, with_intervals)) for table, _ in tables]
        files = packaged(scenario.name.lower(), contents, wanted.form) | parquet
        files["summary.json"] = json_text(summary(result, chance)).encode()
        drawn = months_pages(result.plan.months.labels, {scenario.name: chance}) if chance else {}
        identity["draws"] = 1 if chance is None else chance.draws
        identity["command"] = list(command) or _command(scenario, identity, wanted)
        workbook, report = shared(
            [lambda: finish_workbook(drawn), lambda: report_of(files, identity, also=(WORKBOOK,))]
        )
        write_folder(folder, {**files, WORKBOOK: workbook, REPORT: report}, identity)

    return finish


def _command(scenario: Scenario, identity: dict[str, Any], wanted: Wanted) -> list[str]:
    """Return the command that writes the same bytes again."""
    options = ["--seed", str(identity["seed"])]
    if identity["draws"] != DRAWS:
        options += ["--draws", str(identity["draws"])]
    options += [word for process in identity.get("processes", ()) for word in ("--process", process)]
    options += [option for option, asked in (("--hourly", wanted.hourly), ("--parquet", wanted.parquet)) if asked]
    return command_again("run", [scenario], [*options, *wanted.form.options])


def parquet_bytes(columns: Mapping[str, Any]) -> bytes:
    """Return a Parquet file of columns of equal length; the same columns give the same bytes."""
    import pyarrow as pa  # noqa: PLC0415 - a tenth of a second that only this format costs
    from pyarrow import parquet  # noqa: PLC0415 - as above

    sink = io.BytesIO()
    parquet.write_table(pa.table(dict(columns)), sink, compression="zstd")
    return sink.getvalue()
