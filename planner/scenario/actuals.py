"""Actuals: a folder of CSV files, and the ``mapping.yaml`` that maps their columns.

Three kinds of file are read: a finance export (account, month, usd), vLLM's Prometheus metrics (time, metric, value and
labels), and figures under the planner's own names (month, cluster or workload, figures). All that is wrong with a
folder is said at once.
"""

import csv
import functools
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from planner.arrays import Floats
from planner.errors import Problem, ScenarioError, raise_all
from planner.finance.ledger import INCOME_ACCOUNTS, Account, Category
from planner.finance.months import MonthGrid
from planner.scenario.metrics import monthly_metrics
from planner.scenario.scenario import Scenario
from planner.validation import MAX_PROBLEMS, Strict, choices, nearest, validate
from planner.yaml_io import MAX_FILE_BYTES, KeyPath, read_bytes, read_document

MAPPING = "mapping.yaml"
LEAVE_OUT = "leave_out"
FLEET = "fleet"
CLUSTER_FIGURES = (
    "accelerators_in_service", "availability_fraction", "utilisation_fraction", "served_tokens",
    "served_output_tokens", "energy_kwh", "lost_to_failures_node_h", "lost_to_software_node_h",
)  # fmt: skip
"""What a cluster's month, and the fleet's, may be held against."""
FLEET_FIGURES = ("demand_tokens", "shed_tokens", "slo_attainment_fraction", "peak_facility_kw")
"""What only the fleet's may."""
WORKLOAD_FIGURES = (
    "demand_tokens", "served_tokens", "served_output_tokens", "shed_tokens", "late_tokens", "slo_attainment_fraction",
)  # fmt: skip
"""What a workload's month may be held against."""
BOOKED = tuple(account for account in Account if account.category is not Category.COUNTER_ENTRY)
"""Accounts that a finance file may hold."""
_MONTH = re.compile(r"(\d{4})-(\d{2})(-\d{2})?$")
_KEYS = ("month", "cluster", "workload")


class Seen(NamedTuple):
    """One observed series that a run also has."""

    kind: Literal["cluster", "workload", "account"]
    of: str
    """Cluster or workload; ``fleet`` for all."""
    name: str
    """Figure or account."""


class _File(Strict):
    """A CSV file of the actuals folder."""

    columns: dict[str, str] = Field(default_factory=dict)
    """The file's headings, each with the planner's name for it. Default none: a heading is its own name."""
    decimal_comma: bool = False
    """Whether numbers are written 1,5 and cells end in a semicolon. Default false: as most exports do."""


class FinanceFile(_File):
    """An export of the general ledger: one row per account and month, and per cluster where it has that column."""

    kind: Literal["finance"]
    """Finance: columns account, month, usd, and cluster where costs are kept by cluster."""
    accounts: dict[str, str] = Field(default_factory=dict)
    """The books' accounts, each with the planner's (`accounts.csv` lists them), or leave_out. Several may share one.
    Default none: they are named as in `ledger.csv`."""
    income: Literal["negative", "positive"] = "negative"
    """Sign of revenue, resale and other income. Default negative: as in `ledger.csv`."""


class MetricsFile(_File):
    """Counters of vLLM's Prometheus metrics, sampled over the months: rows of time, metric, value and labels."""

    kind: Literal["vllm"]
    """Vllm: columns time (ISO 8601 or seconds since 1970), metric, value; others are labels that tell series apart."""
    workloads: dict[str, str] = Field(default_factory=dict)
    """Values of the label model_name, each with its workload. Default none: all together are the fleet's."""


class FiguresFile(_File):
    """Figures under the planner's own names, one row per month and cluster or workload."""

    kind: Literal["figures"]
    """Figures: columns month, cluster or workload (neither: the fleet's), and figures as in `timeline_monthly.csv`,
    `timeline_workloads.csv` and `losses.csv`."""


ActualsFile = Annotated[FinanceFile | MetricsFile | FiguresFile, Field(discriminator="kind")]


class ActualsMapping(Strict):
    """The kinds and columns of the files in a folder of actuals."""

    files: Annotated[dict[str, ActualsFile], Field(min_length=1, max_length=100)]
    """CSV files by name."""
    error_fraction: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Standard deviation of the error with which a monthly figure is known, and the model is right about it, over the
    figure itself. Default 0.02: meters and token counters agree to one or two percent (assumption)."""
    errors: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    """The same for single figures or accounts. Default none."""
    leave_out: tuple[str, ...] = ()
    """Figures and accounts that are held against the plan but do not move the forecast. Default none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuals:
    """Observed months, which are the first of a plan's horizon."""

    months: tuple[str, ...]
    series: Mapping[Seen, Floats]
    """Shape (months,) each; NaN where a month has no figure."""
    mapping: ActualsMapping
    notes: tuple[str, ...]

    def error_fraction(self, seen: Seen) -> float:
        """Return the stated error of a series."""
        return self.mapping.errors.get(seen.name, self.mapping.error_fraction)


class _Reader:
    """Reads a folder of actuals, collecting figures and problems."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.folder = folder
        self.scenario = scenario
        self.grid = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.cells: dict[Seen, dict[str, float]] = {}
        self.covered: dict[str, set[str]] = {}
        self.first_lines: dict[tuple[str, ...], int] = {}

    def wrong(self, file: str, line: int | None, message: str, hint: str | None = None) -> None:
        """Add a problem with a file."""
        self.problems.append(
            Problem(file=str(self.folder / file), line=line, message=message, hint=hint)
        )

    def rows(
        self, name: str, file: _File, needed: Sequence[str]
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield a file's rows by the planner's column names, with line numbers; none where columns are missing."""
        raw = read_bytes(self.folder / name, MAX_FILE_BYTES)
        try:
            text = io.StringIO(raw.decode("utf-8-sig"), newline="")
            reader = csv.reader(text, delimiter=";" if file.decimal_comma else ",", strict=True)
            header = next(reader, [])
            absent = [heading for heading in file.columns if heading not in header]
            for heading in absent:
                self.wrong(
                    name,
                    1,
                    f"no column {heading!r}",
                    nearest(heading, header) or f"it has {choices(header)}",
                )
            names = [file.columns.get(heading, heading) for heading in header]
            twice = sorted({name for name in names if names.count(name) > 1})
            missing = [name for name in needed if name not in names] if not absent else []
            for column in missing:
                hint = f"name it under files.{name}.columns in {MAPPING}; it has {choices(header)}"
                self.wrong(name, 1, f"no column {column!r}", hint)
            for column in twice:
                self.wrong(name, 1, f"two columns are {column!r}")
            if absent or missing or twice:
                return
            for row in reader:
                if len(row) != len(header):
                    self.wrong(
                        name,
                        reader.line_num,
                        f"has {len(row)} cells where the heading has {len(header)}",
                    )
                elif len(self.problems) < MAX_PROBLEMS:
                    yield (
                        reader.line_num,
                        dict(zip(names, (cell.strip() for cell in row), strict=True)),
                    )
        except (UnicodeDecodeError, csv.Error) as error:
            self.wrong(name, None, f"is not a CSV file: {error}")

    def number(self, name: str, line: int, text: str, *, comma: bool) -> float | None:
        """Return a cell as a number; None, with a problem recorded, where it is not one."""
        try:
            number = float(
                text.replace(".", "").replace(",", ".") if comma else text.replace(",", "")
            )
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.wrong(
                name,
                line,
                f"{text!r} is no number",
                None if comma else "decimal_comma: true reads 1.234,5",
            )
            return None
        return number

    def month(self, name: str, line: int, text: str) -> str | None:
        """Return a cell as a month of the horizon; None, with a problem recorded, where it is not one."""
        if (parts := _MONTH.match(text)) is None:
            self.wrong(name, line, f"{text!r} is no month", "write 2026-03, or a day of it")
            return None
        month = f"{parts[1]}-{parts[2]}"
        labels = self.grid.labels
        if month not in labels:
            self.wrong(
                name,
                line,
                f"{month} lies outside the plan, which runs from {labels[0]} to {labels[-1]}",
            )
            return None
        self.covered.setdefault(name, set()).add(month)
        return month

    def is_repeated(self, name: str, line: int, of: str, month: str, *cluster: str) -> bool:
        """Return whether a file has a row of the same month before, with a problem recorded."""
        before = self.first_lines.setdefault((name, of, month, *cluster), line)
        if before != line:
            hint = "sum the lines of an account and month" if cluster else None
            self.wrong(name, line, f"{of} of {month} is there twice, first on line {before}", hint)
        return before != line

    def put(self, seen: Seen, month: str, number: float) -> None:
        """Add a figure to its series and month, summing accounts that map to the same one."""
        months = self.cells.setdefault(seen, {})
        months[month] = months.get(month, 0.0) + number

    def finance(self, name: str, file: FinanceFile) -> None:
        """Read a finance export."""
        for line, row in self.rows(name, file, ("account", "month", "usd")):
            text = file.accounts.get(row["account"], row["account"])
            month = self.month(name, line, row["month"])
            if text == LEAVE_OUT:
                continue
            if text not in BOOKED:
                hint = (
                    nearest(text, BOOKED)
                    or f"name it under files.{name}.accounts in {MAPPING}, or {LEAVE_OUT}"
                )
                self.wrong(name, line, f"unknown account {row['account']!r}", hint)
                continue
            usd = self.number(name, line, row["usd"], comma=file.decimal_comma)
            cluster = row.get("cluster", FLEET) or FLEET
            if cluster not in (FLEET, "site", *self.scenario.clusters):
                self.wrong(
                    name,
                    line,
                    f"unknown cluster {cluster!r}",
                    nearest(cluster, self.scenario.clusters),
                )
            if month is None or usd is None:
                continue
            if self.is_repeated(name, line, row["account"], month, cluster):
                continue
            account = Account(text)
            is_turned = file.income == "positive" and account in INCOME_ACCOUNTS
            self.put(Seen("account", FLEET, account), month, -usd if is_turned else usd)

    def figures(self, name: str, file: FiguresFile) -> None:
        """Read figures under the planner's own names."""
        ignored: dict[str, None] = {}
        for line, row in self.rows(name, file, ("month",)):
            month = self.month(name, line, row["month"])
            kind: Literal["cluster", "workload"] = "workload" if "workload" in row else "cluster"
            of = row.get(kind, FLEET) or FLEET
            there = (
                self.scenario.workloads if kind == "workload" else (*self.scenario.clusters, FLEET)
            )
            if of not in there:
                self.wrong(
                    name,
                    line,
                    f"unknown {kind} {of!r}",
                    nearest(of, there) or f"there are {choices(there)}",
                )
                continue
            if month is None:
                continue
            if self.is_repeated(name, line, of, month):
                continue
            allowed: tuple[str, ...] = WORKLOAD_FIGURES if kind == "workload" else CLUSTER_FIGURES
            allowed += FLEET_FIGURES if (kind, of) == ("cluster", FLEET) else ()
            for figure, cell in row.items():
                if figure in _KEYS or not cell:
                    continue
                if figure not in allowed:
                    ignored[figure] = None
                elif (
                    number := self.number(name, line, cell, comma=file.decimal_comma)
                ) is not None:
                    self.put(Seen(kind, of, figure), month, number)
        if ignored:
            self.notes.append(f"{name}: not held against the plan: {choices(ignored)}")

    def metrics(self, name: str, file: MetricsFile) -> None:
        """Read vLLM's Prometheus counters."""
        unknown = [w for w in file.workloads.values() if w not in self.scenario.workloads]
        for workload in unknown:
            self.wrong(
                MAPPING,
                None,
                f"unknown workload {workload!r}",
                nearest(workload, self.scenario.workloads),
            )
        rows = list(self.rows(name, file, ("time", "metric", "value")))
        if unknown or self.problems:
            return
        objectives = {
            w: (load.slo.ttft_s, load.slo.tpot_s) for w, load in self.scenario.workloads.items()
        }
        figures = monthly_metrics(
            rows, self.grid, file.workloads, objectives, functools.partial(self.wrong, name)
        )
        if any(figure == "slo_attainment_fraction" for _, figure, _ in figures):
            self.notes.append(
                f"{name}: SLO attainment is at most this: requests refused are not among vLLM's"
            )
        for (workload, figure, month), number in figures.items():
            self.covered.setdefault(name, set()).add(month)
            kind: Literal["cluster", "workload"] = "workload" if workload else "cluster"
            self.put(Seen(kind, workload or FLEET, figure), month, number)


def read_actuals(folder: Path, scenario: Scenario) -> "Actuals":
    """Read a folder of actuals; raise one ScenarioError with all problems."""
    document = read_document(folder / MAPPING)
    mapping = validate(ActualsMapping, document)
    reader = _Reader(folder, scenario)
    known = {*CLUSTER_FIGURES, *FLEET_FIGURES, *WORKLOAD_FIGURES, *BOOKED}
    paths: dict[KeyPath, str] = {("errors", name): name for name in mapping.errors}
    paths |= {("leave_out", place): name for place, name in enumerate(mapping.leave_out)}
    for path, name in paths.items():
        if name not in known:
            message = f"no figure or account is called {name!r}"
            reader.problems.append(document.problem(path, message, nearest(name, known)))
    for name, file in mapping.files.items():
        if isinstance(file, FinanceFile):
            reader.finance(name, file)
        elif isinstance(file, MetricsFile):
            reader.metrics(name, file)
        else:
            reader.figures(name, file)
        if not reader.problems and name not in reader.covered:
            reader.wrong(name, None, "holds no month")
    raise_all(reader.problems[:MAX_PROBLEMS])
    last = max((month for months in reader.covered.values() for month in months), default="")
    months = tuple(label for label in reader.grid.labels if label <= last)
    for name, covered in reader.covered.items():
        if missing := [month for month in months if month not in covered]:
            hint = "months run from the plan's first without a gap, and every file has them all"
            reader.wrong(name, None, f"{choices(missing)} missing", hint)
    raise_all(reader.problems[:MAX_PROBLEMS])
    booked = {
        seen.name: sum(cells.values())
        for seen, cells in reader.cells.items()
        if seen.kind == "account"
    }
    if turned := [
        name for name in booked if name in (Account.REVENUE, Account.RESALE) and booked[name] > 0
    ]:
        message = (
            f"{choices(turned)} would be a cost: income is negative in the ledger as it is read"
        )
        hint = "add income: positive to the finance file"
        raise ScenarioError(Problem(file=str(folder / MAPPING), message=message, hint=hint))
    series = {
        # An account without a row in a month was not booked in it; a figure without one was not measured.
        seen: np.array(
            [cells.get(month, 0.0 if seen.kind == "account" else math.nan) for month in months]
        )
        for seen, cells in reader.cells.items()
    }
    return Actuals(months=months, series=series, mapping=mapping, notes=tuple(reader.notes))
