"""Output folders: what an answer's folder holds, written whole or not at all, and read again by one reader."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from planner.errors import Problem, ScenarioError, raise_all
from planner.files import (
    MANIFEST,
    PRODUCT,
    Staged,
    is_inside,
    settle,
    sha256_of,
    unwritable,
    writing,
)
from planner.output.tables import CsvFormat, Table, read_csv

CHARTS = "charts"
"""Folder, within an output folder, of the pictures that ``planner charts`` draws."""
REPORT = "report.html"
SUMMARY = "summary.json"
WORKBOOK = "workbook.xlsx"
DICTIONARY = "datapackage.json"
NOT_READ = frozenset({"samples.csv", "timeline_hourly.csv", "timeline_hourly_clusters.csv"})
"""Tables of a size that no report shows row by row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an answer's folder holds, whether it was just made or read from the disk."""

    manifest: Mapping[str, Any]
    """What identifies the answer, without the list of files."""
    tables: Mapping[str, Table]
    """Its tables by name."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """What summary.json says."""
    beside: tuple[str, ...] = ()
    """Files that a reader may open, by name: tables, the workbook, a plan that was found."""
    plan: str = ""
    """Scenario whose rows alone are read, where tables hold those of several; empty for all."""

    @property
    def plans(self) -> list[str]:
        """Scenarios whose timelines lie side by side in the folder; none for a single run."""
        monthly = self.table("timeline_monthly") if self.kind != "run" else None
        return (
            list(dict.fromkeys(monthly.texts("scenario")))
            if monthly is not None and "scenario" in monthly
            else []
        )

    def of_plan(self, plan: str) -> Contents:
        """Return the folder as one scenario's run would read."""
        return replace(self, plan=plan)

    @property
    def anchor(self) -> str:
        """Prefix of identifiers within the page, so that charts of several plans differ."""
        return f"plan-{replace(self, plan='').plans.index(self.plan) + 1}-" if self.plan else ""

    @property
    def kind(self) -> str:
        """What wrote the folder: run, compare, montecarlo, sensitivity and so on."""
        return str(self.manifest.get("kind", "run"))

    @property
    def name(self) -> str:
        """What the folder is of: the scenario, the study, or the scenarios compared."""
        if name := self.manifest.get("scenario") or self.manifest.get("name"):
            return str(name)
        scenarios = self.manifest.get("scenarios") or self.manifest.get("identity", {}).get(
            "scenarios", ()
        )
        return ", ".join(map(str, scenarios)) or "plan"

    def table(self, name: str) -> Table | None:
        """Return a table by its name; None where there is none."""
        table = self.tables.get(name)
        return (
            table.where("scenario", self.plan)
            if table is not None and self.plan and "scenario" in table
            else table
        )


@contextlib.contextmanager
def fitting(place: str) -> Iterator[None]:
    """Refuse files that may have been changed, hashes and all, where they do not fit together."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"its files do not fit together: {type(error).__name__}: {error}"
        raise ScenarioError(Problem(file=place, message=message, hint="run again")) from None


def openable(names: Iterable[str]) -> tuple[str, ...]:
    """Return the files beside a report that people open, the workbook and a plan first."""
    files = [
        name for name in names if name.endswith((".csv", ".xlsx", ".yaml")) and name not in NOT_READ
    ]
    return tuple(sorted(files, key=lambda name: (name.endswith(".csv"), name)))


def read_contents(folder: Path) -> Contents:
    """Read what a report is made of; refuse a folder that planner did not write or whose tables have changed since."""
    settle(folder)
    path = folder / MANIFEST
    hint = "give a folder that planner run wrote"
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise ScenarioError(
            Problem(file=str(path), message=f"cannot be read: {error.strerror}", hint=hint)
        ) from None
    except (ValueError, RecursionError):
        raise ScenarioError(Problem(file=str(path), message="is not JSON", hint=hint)) from None
    is_ours = isinstance(manifest, dict) and manifest.get("product") == PRODUCT
    if not (is_ours and isinstance(hashes := manifest.get("files"), dict)):
        raise ScenarioError(
            Problem(file=str(path), message="was not written by planner", hint=hint)
        )
    outside = [name for name in hashes if not is_inside(name)]
    raise_all(
        [Problem(file=str(path), message=f"names {name!r}, outside the folder") for name in outside]
    )
    files = dict[str, bytes]()
    problems = []
    for name in (name for name in hashes if name.endswith((".csv", ".json", ".parquet"))):
        try:
            if name in NOT_READ or name.endswith(".parquet"):
                digest = sha256_of(folder / name)
            else:
                files[name] = (folder / name).read_bytes()
                digest = hashlib.sha256(files[name]).hexdigest()
        except OSError as error:
            problems.append(
                Problem(file=str(folder / name), message=f"cannot be read: {error.strerror}")
            )
            continue
        if digest != hashes[name]:
            message = "has changed since planner wrote it"
            problems.append(Problem(file=str(folder / name), message=message, hint="run again"))
    raise_all(problems)
    identity = {key: value for key, value in manifest.items() if key not in ("product", "files")}
    return contents_of(identity, files, openable(hashes))


def contents_of(
    manifest: Mapping[str, Any], files: Mapping[str, bytes], beside: tuple[str, ...] = ()
) -> Contents:
    """Return what CSV and JSON files say; the data dictionary says which columns of a table are numbers."""
    described = {
        resource.get("path"): resource for resource in _json(files, DICTIONARY).get("resources", ())
    }
    tables = {}
    for file in (file for file in files if file.endswith(".csv")):
        resource = described.get(file, {})
        name = file.removesuffix(".csv")
        fields = resource.get("schema", {}).get("fields", ())
        numbers = {field.get("name") for field in fields if field.get("type") == "number"}
        form = CsvFormat(decimal_comma=resource.get("dialect", {}).get("delimiter") == ";")
        tables[name] = read_csv(name, files[file], form, numbers)
    return Contents(manifest=manifest, tables=tables, summary=_json(files, SUMMARY), beside=beside)


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """Return a JSON file; an absent one is empty."""
    try:
        content = json.loads(files.get(name, b"{}"))
    except (ValueError, RecursionError):
        raise ScenarioError(Problem(file=name, message="is not JSON")) from None
    if not isinstance(content, dict):
        raise ScenarioError(Problem(file=name, message="is not a JSON object"))
    return content


def command_line(
    verb: str, files: Sequence[str], options: Mapping[str, object], overrides: Sequence[str]
) -> list[str]:
    """Return the words of the command that writes a folder's bytes again, its files named as they were at first.

    An option is a switch where it is True, left out where it is False or None, and repeated for each of a list.
    """
    words = [
        "planner",
        verb,
        *(f"./{file}" if file.startswith("-") else file for file in files),
    ]  # no option
    for option, given in {**options, "--set": overrides}.items():
        for one in given if isinstance(given, list | tuple) else (given,):
            if one is not None and one is not False:
                words += [option] if one is True else [option, str(one)]
    return words


def write_folder(folder: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """Write the files and their manifest to a temporary folder beside the target, then put it in the target's place."""
    with writing(folder):
        place_folder(folder, files, manifest)


def place_folder(folder: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """Do the same where the caller holds the folder's lock and has checked it."""
    try:
        staged = Staged(folder)
        try:
            for name, content in files.items():
                staged.write(name, content)
            staged.commit(manifest)
        finally:
            staged.discard()
    except OSError as error:
        raise unwritable(folder, error) from None


def parquet_bytes(table: Table) -> bytes:
    """Return a Parquet file of a table; the same table gives the same bytes."""
    import pyarrow as pa  # noqa: PLC0415 - a tenth of a second that only this format costs
    from pyarrow import parquet  # noqa: PLC0415 - as above

    sink = io.BytesIO()
    columns = dict[str, Any](table.columns)
    for name in columns.keys() & {"month", "date"}:
        columns[name] = pa.array(table.texts(name)).cast("date32")
    parquet.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue()
