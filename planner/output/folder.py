"""Output folders: what an answer's folder holds, written whole or not at all, and read again by one reader."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from planner.errors import Problem, ScenarioError, raise_all
from planner.files import (
    MANIFEST,
    PRODUCT,
    check_place,
    is_inside,
    settle,
    sha256_of,
    staging,
    writing,
)
from planner.output.tables import Table, read_csv
from planner.records import record

CHARTS = "charts"
"""Folder, within an output folder, of the pictures that ``planner charts`` draws."""
REPORT = "report.html"
SUMMARY = "summary.json"
WORKBOOK = "workbook.xlsx"
NOT_READ = frozenset({"samples.csv", "timeline_hourly.csv", "timeline_hourly_clusters.csv"})
"""Tables of a size that no report shows row by row."""


@record
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
    on_page: bool = False
    """Whether it is shown on the live page or shared from there: no file lies beside it, and no option sets it."""

    @property
    def plans(self) -> list[str]:
        """Scenarios whose timelines lie side by side in the folder; none for a single run."""
        if self.kind == "run":
            return []
        monthly = self.table("timeline_monthly")
        if monthly is None or "scenario" not in monthly:
            return []
        return list(dict.fromkeys(monthly.texts("scenario")))

    def of_plan(self, plan: str) -> Contents:
        """Return the folder as one scenario's run would read."""
        return replace(self, plan=plan)

    @property
    def anchor(self) -> str:
        """Prefix of identifiers within the page, so that charts of several plans differ."""
        if not self.plan:
            return ""
        return f"plan-{replace(self, plan='').plans.index(self.plan) + 1}-"

    @property
    def kind(self) -> str:
        """What wrote the folder: run, compare, montecarlo, sensitivity and so on."""
        return str(self.manifest.get("kind", "run"))

    @property
    def name(self) -> str:
        """What the folder is of: the scenario, the study, or the scenarios compared."""
        manifest = self.manifest
        name = manifest.get("scenario") or manifest.get("name")
        if name:
            return str(name)
        identity = manifest.get("identity", {})
        scenarios = manifest.get("scenarios") or identity.get("scenarios", ())
        return ", ".join(map(str, scenarios)) or "plan"

    def table(self, name: str) -> Table | None:
        """Return a table by its name; None where there is none."""
        table = self.tables.get(name)
        if table is None or not self.plan or "scenario" not in table:
            return table
        return table.where("scenario", self.plan)


@contextlib.contextmanager
def fitting(place: str) -> Iterator[None]:
    """Refuse files that may have been changed, hashes and all, where they do not fit together."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"its files do not fit together: {type(error).__name__}: {error}"
        problem = Problem(file=place, message=message, hint="run again")
        raise ScenarioError(problem) from None


def openable(names: Iterable[str]) -> tuple[str, ...]:
    """Return the files beside a report that people open, the workbook and a plan first."""
    kinds = (".csv", ".xlsx", ".yaml")
    files = [name for name in names if name.endswith(kinds) and name not in NOT_READ]
    # False comes before true: tables last, each kind by name.
    ordered = sorted(files, key=lambda name: (name.endswith(".csv"), name))
    return tuple(ordered)


def read_contents(folder: Path) -> Contents:
    """Read what a report is made of; refuse a folder that planner did not write or whose tables have changed since."""
    check_place(folder)
    settle(folder)
    manifest = _read_manifest(folder / MANIFEST)
    hashes = manifest["files"]
    files: dict[str, bytes] = {}
    problems = []
    for name in hashes:
        path = folder / name
        check_place(path)
        # Pictures, pages and workbooks are made of these, and are not read again.
        if not name.endswith((".csv", ".json", ".parquet")):
            continue
        try:
            if name in NOT_READ or name.endswith(".parquet"):
                digest = sha256_of(path)  # in chunks: it may be larger than memory
            else:
                content = path.read_bytes()
                files[name] = content
                digest = hashlib.sha256(content).hexdigest()
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            problems.append(Problem(file=str(path), message=message))
            continue
        if digest != hashes[name]:
            message = "has changed since planner wrote it"
            problem = Problem(file=str(path), message=message, hint="run again")
            problems.append(problem)
    raise_all(problems)
    envelope = ("product", "files")
    identity = {key: value for key, value in manifest.items() if key not in envelope}
    return contents_of(identity, files, openable(hashes))


def _read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a folder that planner wrote; refuse any other."""
    check_place(path)
    message = ""
    manifest: Any = None
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        message = "is not JSON"
    else:
        is_ours = isinstance(manifest, dict) and manifest.get("product") == PRODUCT
        files = None
        if is_ours:
            files = manifest.get("files")
        if not isinstance(files, dict):
            message = "was not written by planner"
    if message:
        hint = "give a folder that planner run wrote"
        problem = Problem(file=str(path), message=message, hint=hint)
        raise ScenarioError(problem)
    # Whoever sends a folder to somebody must not have files of theirs read.
    problems = []
    for name in manifest["files"]:
        if not is_inside(name):
            message = f"names {name!r}, outside the folder"
            problems.append(Problem(file=str(path), message=message))
    raise_all(problems)
    return manifest  # type: ignore[no-any-return]


def contents_of(
    manifest: Mapping[str, Any], files: Mapping[str, bytes], beside: tuple[str, ...] = ()
) -> Contents:
    """Return what CSV and JSON files say."""
    tables = {}
    for file, content in files.items():
        if file.endswith(".csv"):
            name = file.removesuffix(".csv")
            tables[name] = read_csv(name, content)
    summary = _json(files, SUMMARY)
    return Contents(manifest=manifest, tables=tables, summary=summary, beside=beside)


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """Return a JSON file; an absent one is empty."""
    try:
        content = json.loads(files.get(name, b"{}"))
    except (ValueError, RecursionError):
        problem = Problem(file=name, message="is not JSON")
        raise ScenarioError(problem) from None
    if not isinstance(content, dict):
        raise ScenarioError(Problem(file=name, message="is not a JSON object"))
    return content


def command_line(
    verb: str, files: Sequence[str], options: Mapping[str, object], overrides: Sequence[str]
) -> list[str]:
    """Return the words of the command that writes a folder's bytes again, its files named as they were at first.

    An option is a switch where it is True, left out where it is False or None, and repeated for each of a list.
    """
    # A file whose name begins with a dash would be read as an option.
    names = [f"./{file}" if file.startswith("-") else file for file in files]
    words = ["planner", verb, *names]
    settings = {**options, "--set": overrides}
    for option, setting in settings.items():
        values = [setting]
        if isinstance(setting, list | tuple):
            values = [*setting]
        for value in values:
            if value is True:
                words.append(option)
            elif value is not None and value is not False:
                words += [option, str(value)]
    return words


def write_folder(folder: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """Write the files and their manifest to a temporary folder beside the target, then put it in the target's place."""
    with writing(folder):
        place_folder(folder, files, manifest)


def place_folder(folder: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """Do the same where the caller holds the folder's lock and has checked it."""
    with staging(folder) as staged:
        for name, content in files.items():
            staged.write(name, content)
        staged.commit(manifest)
