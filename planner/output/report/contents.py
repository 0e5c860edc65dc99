"""An output folder as the report reads it: its manifest and its CSV and JSON files, and nothing from outside."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from planner.errors import Problem, ScenarioError, raise_all
from planner.files import MANIFEST, PRODUCT, is_inside, settle, sha256_of
from planner.output.csv_table import BYTE_ORDER_MARK, FORMULA_STARTS, shown_cells

if TYPE_CHECKING:
    from planner.output.columns import Column, TableDescription
    from planner.output.csv_table import Cells

REPORT = "report.html"
NOT_READ = frozenset({"samples.csv", "timeline_hourly.csv"})
"""Tables of a size that no report shows row by row."""
_CHANGED = "has changed since planner wrote it"
Made = TypeVar("Made")


class Lazy(Mapping[str, Made]):
    """Files, tables or columns that are made when a section first asks for them: most sections need a few."""

    def __init__(self, makers: Mapping[str, Callable[[], Made]]) -> None:
        """Take what makes each."""
        self._makers, self._made = makers, dict[str, Made]()

    def __getitem__(self, name: str) -> Made:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers  # a Mapping would make it to see whether it is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One CSV file, column by column, as text."""

    name: str
    """File name."""
    columns: Mapping[str, list[str]]
    """Cells by column heading."""
    decimal_mark: str = "."
    """What stands between units and tenths."""
    _numbers: dict[str, list[float | None]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Columns read as numbers already; a report asks for the same one more than once."""

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def __len__(self) -> int:
        return len(self.columns[next(iter(self.columns))]) if self.columns else 0

    def where(self, column: str, wanted: str) -> Table:
        """Return the rows whose cell in a column is the one wanted, without that column."""
        kept = [i for i, cell in enumerate(self.texts(column)) if cell == wanted]

        def picked(name: str) -> list[str]:
            cells = self.columns[name]
            return [cells[i] for i in kept]

        others = [name for name in self.columns if name != column]
        return replace(self, columns=Lazy({name: functools.partial(picked, name) for name in others}))

    def texts(self, column: str) -> list[str]:
        """Return a column as text."""
        if column not in self.columns:
            raise ScenarioError(Problem(file=self.name, path=column, message="the column is not there"))
        return self.columns[column]

    def numbers(self, column: str) -> list[float | None]:
        """Return a column as numbers; None for an empty cell."""
        if column not in self._numbers:
            self._numbers[column] = self._read(column)
        return self._numbers[column]

    def _read(self, column: str) -> list[float | None]:
        cells = self.texts(column)
        if self.decimal_mark != ".":
            cells = [cell.replace(self.decimal_mark, ".") for cell in cells]
        with contextlib.suppress(ValueError):
            return [float(cell) if cell else None for cell in cells]
        row = next(row for row, cell in enumerate(cells) if cell and not _is_number(cell))
        message = f"holds {self.texts(column)[row]!r}, which is no number"
        raise ScenarioError(Problem(file=self.name, line=row + 2, path=column, message=message))

    def totals(self, column: str) -> list[float]:
        """Return a column as numbers to be summed: an empty cell is nothing."""
        return [number or 0.0 for number in self.numbers(column)]

    def rows(self, *texts: str, numbers: Iterable[str] = (), totals: Iterable[str] = ()) -> Iterator[tuple[Any, ...]]:
        """Return the rows of some columns: first those of text, then numbers, then numbers to be summed."""
        columns = [*map(self.texts, texts), *map(self.numbers, numbers), *map(self.totals, totals)]
        return zip(*columns, strict=True)

    def summed(self, by: str, column: str) -> dict[str, float]:
        """Return the sums of a column by the cells of another."""
        sums: dict[str, float] = defaultdict(float)
        for name, number in self.rows(by, totals=[column]):
            sums[name] += number
        return sums

    def sums(self, first: str, second: str, column: str) -> dict[str, dict[str, float]]:
        """Return the sums of a column by the cells of two others; what is not there is zero."""
        sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for one, other, number in self.rows(first, second, totals=[column]):
            sums[one][other] += number
        return sums


def table_of(description: TableDescription, columns: Mapping[str, Cells]) -> Table:
    """Return a table as it would be read from its file; cells are written out when they are first asked for."""

    def written(column: Column) -> list[str]:
        return shown_cells(column, columns[column.name], columns[column.measured_by] if column.measured_by else None)

    makers = {column.name: functools.partial(written, column) for column in description.columns}
    return Table(name=f"{description.name}.csv", columns=Lazy(makers))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _as_meant(cells: Iterable[str]) -> list[str]:
    """Return cells without the apostrophe that keeps a spreadsheet from running one."""
    return [cell[1:] if cell[:1] == "'" and cell[1:].startswith(FORMULA_STARTS) else cell for cell in cells]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The files of an output folder."""

    manifest: Mapping[str, Any]
    """What identifies the run, without the list of files."""
    files: Mapping[str, bytes]
    """Tables and JSON by file name, without the manifest."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """Tables that stand in no file, by name without suffix: those of a plan that was only run."""
    beside: tuple[str, ...] = ()
    """Files that a reader may open, by name: tables, the workbook, a plan that was found."""
    plan: str = ""
    """Scenario whose rows alone are read, where tables hold those of several; empty for all."""
    _parsed: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Tables and JSON read already; a report asks for the same one more than once."""

    @property
    def plans(self) -> list[str]:
        """Scenarios whose timelines lie side by side in the folder; none for a single run."""
        monthly = self.table("timeline_monthly")
        return list(dict.fromkeys(monthly.texts("scenario"))) if monthly is not None and "scenario" in monthly else []

    def of_plan(self, plan: str) -> Contents:
        """Return the folder as one scenario's run would read."""
        return replace(self, plan=plan)

    @property
    def anchor(self) -> str:
        """What identifiers within the page begin with, so that several plans' charts are told apart."""
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
        scenarios = self.manifest.get("scenarios") or self.manifest.get("identity", {}).get("scenarios", ())
        return ", ".join(map(str, scenarios)) or "plan"

    @property
    def detailed(self) -> int | None:
        """Replications that fans and drivers are of, the first ones; None where they are of all."""
        detailed = self.manifest.get("detailed")
        return detailed if isinstance(detailed, int) else None

    @property
    def title(self) -> str:
        """What the report calls itself: of a study, the command that made it."""
        if self.kind != "study":
            return self.kind
        design = self.manifest.get("identity", {}).get("design", {})
        name = str(design.get("name", "montecarlo")) if isinstance(design, dict) else "study"
        return {"montecarlo": "Monte Carlo", "sobol": "Sobol", "morris": "Morris"}.get(name, name)

    def json(self, name: str) -> dict[str, Any]:
        """Return a JSON file; an absent one is empty."""
        if name not in self.files:
            return {}
        if name not in self._parsed:
            try:
                self._parsed[name] = json.loads(self.files[name])
            except (ValueError, RecursionError):
                raise ScenarioError(Problem(file=name, message="is not JSON")) from None
        content = self._parsed[name]
        if not isinstance(content, dict):
            raise ScenarioError(Problem(file=name, message="is not a JSON object"))
        return content

    def table(self, name: str) -> Table | None:
        """Return a table by its name without suffix; None where there is none."""
        file = f"{name}.csv"
        table: Table
        if name in self.tables:
            table = self.tables[name]
        elif file in self.files:
            if file not in self._parsed:
                self._parsed[file] = self._parse(file)
            table = self._parsed[file]
        else:
            return None
        return table.where("scenario", self.plan) if self.plan and "scenario" in table else table

    def _parse(self, file: str) -> Table:
        separator, mark = self._dialect(file)
        content = self.files[file].removeprefix(BYTE_ORDER_MARK)
        try:
            rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline=""), delimiter=separator, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise ScenarioError(Problem(file=file, message=f"is not a CSV file: {error}")) from None
        if not rows:
            raise ScenarioError(Problem(file=file, message="is empty"))
        header, body = rows[0], rows[1:]
        lengths = list(map(len, body))
        if odd := set(lengths) - {len(header)}:
            line = next(line for line, cells in enumerate(lengths, start=2) if cells in odd)
            message = f"has {lengths[line - 2]} cells where the heading has {len(header)}"
            raise ScenarioError(Problem(file=file, line=line, message=message))
        columns = zip(*body, strict=True) if body else ([] for _ in header)
        meant = _as_meant if b"'" in content else list
        listed = {heading: meant(cells) for heading, cells in zip(header, columns, strict=True)}
        return Table(name=file, columns=listed, decimal_mark=mark)

    def _dialect(self, file: str) -> tuple[str, str]:
        """Return separator and decimal mark of a file, as the data dictionary beside it says."""
        for resource in self.json("datapackage.json").get("resources", ()):
            if resource.get("path") == file:
                separator = str(resource.get("dialect", {}).get("delimiter", ","))
                return (";", ",") if separator == ";" else (",", ".")
        return ",", "."


@contextlib.contextmanager
def fitting(place: str) -> Iterator[None]:
    """Refuse files that may have been changed, hashes and all, where they do not fit together."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"its files do not fit together: {type(error).__name__}: {error}"
        raise ScenarioError(Problem(file=place, message=message, hint="run again")) from None


def read_contents(folder: Path) -> Contents:
    """Read what a report is made of; refuse a folder that planner did not write or whose tables have changed since."""
    settle(folder)
    manifest = _read_manifest(folder)
    tables = [name for name in manifest["files"] if name.endswith((".csv", ".json", ".parquet"))]
    unread = [name for name in tables if name in NOT_READ or name.endswith(".parquet")]
    changed = [name for name in unread if not _is_intact(folder / name, manifest["files"][name])]
    if changed:
        problems = [Problem(file=str(folder / name), message=_CHANGED, hint="run again") for name in changed]
        raise ScenarioError(problems)
    return _read(folder, manifest, [name for name in tables if name not in unread])


def _is_intact(path: Path, sha256: Any) -> bool:
    """Say whether a file that no report shows still has its hash."""
    try:
        return bool(sha256_of(path) == sha256)
    except OSError:
        return False


def openable(names: Iterable[str]) -> tuple[str, ...]:
    """Return the files beside a report that people open, the workbook and a plan first."""
    files = [name for name in names if name.endswith((".csv", ".xlsx", ".yaml")) and name not in NOT_READ]
    return tuple(sorted(files, key=lambda name: (name.endswith(".csv"), name)))


def _read(folder: Path, manifest: dict[str, Any], names: list[str]) -> Contents:
    files, problems = {}, []
    known = manifest["files"]
    for name in names:
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            problems.append(Problem(file=str(folder / name), message=f"cannot be read: {error.strerror}"))
            continue
        if hashlib.sha256(content).hexdigest() != known[name]:
            problems.append(Problem(file=str(folder / name), message=_CHANGED, hint="run again"))
        files[name] = content
    raise_all(problems)
    identity = {key: value for key, value in manifest.items() if key not in ("product", "files")}
    return Contents(manifest=identity, files=files, beside=openable(known))


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    hint = "give a folder that planner run wrote"
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be read: {error.strerror}", hint=hint)) from None
    except (ValueError, RecursionError):
        raise ScenarioError(Problem(file=str(path), message="is not JSON", hint=hint)) from None
    if (
        not isinstance(manifest, dict)
        or manifest.get("product") != PRODUCT
        or not isinstance(manifest.get("files"), dict)
    ):
        raise ScenarioError(Problem(file=str(path), message="was not written by planner", hint=hint))
    outside = [
        Problem(file=str(path), message=f"names {name!r}, outside the folder")
        for name in manifest["files"]
        if not is_inside(name)
    ]
    if outside:
        raise ScenarioError(outside)
    return manifest
