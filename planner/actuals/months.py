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
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from planner.actuals.vllm_metrics import monthly_metrics
from planner.arrays import Floats
from planner.errors import Problem, ScenarioError, raise_all
from planner.finance.accounts import Account, Category
from planner.finance.measure_names import FLEET, SeriesKey
from planner.finance.months import MonthGrid
from planner.records import record
from planner.scenario.scenario import Scenario
from planner.validation import MAX_PROBLEMS, Strict, choices, nearest, validate
from planner.yaml_io import MAX_FILE_BYTES, KeyPath, read_bytes, read_document

MAPPING = "mapping.yaml"
LEAVE_OUT = "leave_out"
CLUSTER_FIGURES = (
    "accelerators_in_service", "on_site_accelerator_h", "availability_fraction", "utilisation_fraction",
    "served_tokens", "served_output_tokens", "energy_kwh", "lost_to_failures_node_h", "lost_to_software_node_h",
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
_MONTH_TEXT = re.compile(r"(\d{4})-(\d{2})(-\d{2})?$")
_KEY_COLUMNS = ("month", "cluster", "workload")
"""Columns that say whose a figure is, and when."""


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


@record
class Actuals:
    """Observed months, which are the first of a plan's horizon."""

    months: tuple[str, ...]
    series: Mapping[SeriesKey, Floats]
    """Shape (months,) each; NaN where a month has no figure."""
    mapping: ActualsMapping
    notes: tuple[str, ...]

    def error_fraction(self, key: SeriesKey) -> float:
        """Return the stated error of a series."""
        return self.mapping.errors.get(key.figure, self.mapping.error_fraction)


class _Reader:
    """Reads a folder of actuals, collecting figures and problems."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.folder = folder
        self.scenario = scenario
        self.grid = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.figures_by_month: dict[SeriesKey, dict[str, float]] = {}
        self.covered: dict[str, set[str]] = {}
        """Months that each file holds."""
        self.first_lines: dict[tuple[str, ...], int] = {}
        """Where a file has a row of an entity and month first."""

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
            delimiter = ";" if file.decimal_comma else ","
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            header = next(reader, [])
            if not self.has_columns(name, file, header, needed):
                return
            columns = [file.columns.get(heading, heading) for heading in header]
            for row in reader:
                if len(row) != len(header):
                    message = f"has {len(row)} cells where the heading has {len(header)}"
                    self.wrong(name, reader.line_num, message)
                elif len(self.problems) < MAX_PROBLEMS:  # more would not be shown
                    cells = [cell.strip() for cell in row]
                    yield reader.line_num, dict(zip(columns, cells, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            self.wrong(name, None, f"is not a CSV file: {error}")

    def has_columns(
        self, name: str, file: _File, header: Sequence[str], needed: Sequence[str]
    ) -> bool:
        """Return whether a file has the columns mapped and needed, each once; problems are recorded."""
        problems_before = len(self.problems)
        absent = [heading for heading in file.columns if heading not in header]
        for heading in absent:
            hint = nearest(heading, header) or f"it has {choices(header)}"
            self.wrong(name, 1, f"no column {heading!r}", hint)
        columns = [file.columns.get(heading, heading) for heading in header]
        # A heading that is mistyped in the mapping would be reported a second time as a missing column.
        missing = [column for column in needed if column not in columns and not absent]
        for column in missing:
            hint = f"name it under files.{name}.columns in {MAPPING}; it has {choices(header)}"
            self.wrong(name, 1, f"no column {column!r}", hint)
        repeated = {column for column in columns if columns.count(column) > 1}
        for column in sorted(repeated):
            self.wrong(name, 1, f"two columns are {column!r}")
        return len(self.problems) == problems_before

    def number(self, name: str, line: int, text: str, *, comma: bool) -> float | None:
        """Return a cell as a number; None, with a problem recorded, where it is not one."""
        # Thousands separators go; which mark they are depends on the decimal one.
        plain = text.replace(",", "")
        if comma:
            without_points = text.replace(".", "")
            plain = without_points.replace(",", ".")
        try:
            number = float(plain)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
        # "nan" and "inf" are numbers to Python, not to the books.
        hint = None if comma else "decimal_comma: true reads 1.234,5"
        self.wrong(name, line, f"{text!r} is not a number", hint)
        return None

    def month(self, name: str, line: int, text: str) -> str | None:
        """Return a cell as a month of the horizon; None, with a problem recorded, where it is not one."""
        parts = _MONTH_TEXT.match(text)
        if parts is None:
            self.wrong(name, line, f"{text!r} is not a month", "write 2026-03, or a day of it")
            return None
        month = f"{parts[1]}-{parts[2]}"
        labels = self.grid.labels
        if month not in labels:
            message = f"{month} lies outside the plan, which runs from {labels[0]} to {labels[-1]}"
            self.wrong(name, line, message)
            return None
        self.covered.setdefault(name, set()).add(month)
        return month

    def is_repeated(self, name: str, line: int, entity: str, month: str, *cluster: str) -> bool:
        """Return whether a file has a row of the same month before, with a problem recorded."""
        place = (name, entity, month, *cluster)
        first_line = self.first_lines.setdefault(place, line)
        if first_line == line:
            return False
        hint = "sum the lines of an account and month" if cluster else None
        message = f"{entity} of {month} is there twice, first on line {first_line}"
        self.wrong(name, line, message, hint)
        return True

    def add(self, key: SeriesKey, month: str, number: float) -> None:
        """Add a figure to its series and month, summing accounts that map to the same one."""
        by_month = self.figures_by_month.setdefault(key, {})
        by_month[month] = by_month.get(month, 0.0) + number

    def read(self, name: str, file: ActualsFile) -> None:
        """Read a file of any kind."""
        match file:
            case FinanceFile():
                self.finance(name, file)
            case MetricsFile():
                self.metrics(name, file)
            case FiguresFile():
                self.figures(name, file)
        if not self.problems and name not in self.covered:
            self.wrong(name, None, "holds no month")

    def finance(self, name: str, file: FinanceFile) -> None:
        """Read a finance export."""
        clusters = (FLEET, "site", *self.scenario.clusters)
        needed = ("account", "month", "usd")
        for line, row in self.rows(name, file, needed):
            month = self.month(name, line, row["month"])
            account = self.account(name, line, file, row["account"])
            if account is None:
                continue
            usd = self.number(name, line, row["usd"], comma=file.decimal_comma)
            # The cluster is checked but not kept: accounts are compared over the fleet.
            cluster = row.get("cluster", FLEET) or FLEET
            if cluster not in clusters:
                hint = nearest(cluster, self.scenario.clusters)
                self.wrong(name, line, f"unknown cluster {cluster!r}", hint)
            # Whatever is wrong has been recorded: the other rows may have more to tell.
            if month is None or usd is None:
                continue
            if self.is_repeated(name, line, row["account"], month, cluster):
                continue
            # In the ledger income is negative.
            is_turned = file.income == "positive" and account.is_income
            signed_usd = -usd if is_turned else usd
            key = SeriesKey("account", FLEET, account)
            self.add(key, month, signed_usd)

    def account(self, name: str, line: int, file: FinanceFile, text: str) -> Account | None:
        """Return the planner's account of one of the books'; None where it is left out or, a problem, unknown."""
        mapped = file.accounts.get(text, text)
        if mapped in BOOKED:
            return Account(mapped)
        if mapped != LEAVE_OUT:
            hint = f"name it under files.{name}.accounts in {MAPPING}, or {LEAVE_OUT}"
            self.wrong(name, line, f"unknown account {text!r}", nearest(mapped, BOOKED) or hint)
        return None

    def figures(self, name: str, file: FiguresFile) -> None:
        """Read figures under the planner's own names."""
        ignored: dict[str, None] = {}
        for line, row in self.rows(name, file, ("month",)):
            month = self.month(name, line, row["month"])
            kind: Literal["cluster", "workload"] = "workload" if "workload" in row else "cluster"
            entity = row.get(kind, FLEET) or FLEET
            entities = [*self.scenario.workloads]
            if kind == "cluster":
                entities = [*self.scenario.clusters, FLEET]
            if entity not in entities:
                hint = nearest(entity, entities) or f"there are {choices(entities)}"
                self.wrong(name, line, f"unknown {kind} {entity!r}", hint)
                continue
            if month is None or self.is_repeated(name, line, entity, month):
                continue
            allowed = _figures_of(kind, entity)
            for figure, cell in row.items():
                if figure in _KEY_COLUMNS or not cell:
                    continue
                if figure not in allowed:
                    ignored[figure] = None
                    continue
                number = self.number(name, line, cell, comma=file.decimal_comma)
                if number is not None:
                    self.add(SeriesKey(kind, entity, figure), month, number)
        if ignored:
            self.notes.append(f"{name}: not compared with the plan: {choices(ignored)}")

    def metrics(self, name: str, file: MetricsFile) -> None:
        """Read vLLM's Prometheus counters."""
        workloads = self.scenario.workloads
        mapped = file.workloads.values()
        unknown = [workload for workload in mapped if workload not in workloads]
        for workload in unknown:
            hint = nearest(workload, workloads)
            self.wrong(MAPPING, None, f"unknown workload {workload!r}", hint)
        needed = ("time", "metric", "value")
        rows = list(self.rows(name, file, needed))
        if unknown or self.problems:
            return  # counters of rows that could not be read would be short
        objectives = {
            workload: (stated.slo.ttft_s, stated.slo.tpot_s)
            for workload, stated in workloads.items()
        }
        report = functools.partial(self.wrong, name)
        figures = monthly_metrics(rows, self.grid, file.workloads, objectives, report)
        if any(figure == "slo_attainment_fraction" for _, figure, _ in figures):
            self.notes.append(
                f"{name}: SLO attainment is an upper limit: vLLM does not count refused requests"
            )
        for (workload, figure, month), number in figures.items():
            self.covered.setdefault(name, set()).add(month)
            kind: Literal["cluster", "workload"] = "workload" if workload else "cluster"
            self.add(SeriesKey(kind, workload or FLEET, figure), month, number)

    def months(self) -> tuple[str, ...]:
        """Return the months that every file holds, from the plan's first; problems are recorded where one has a gap."""
        # Labels such as 2026-03 sort as the months do.
        final_months = (max(months) for months in self.covered.values())
        end = max(final_months, default="")
        months = tuple(label for label in self.grid.labels if label <= end)
        for name, covered in self.covered.items():
            missing = [month for month in months if month not in covered]
            if missing:
                hint = "every file needs the same months: from the plan's first, without a gap"
                self.wrong(name, None, f"{choices(missing)} missing", hint)
        return months


def _figures_of(kind: str, entity: str) -> tuple[str, ...]:
    """Return the figures that a workload, a cluster or the fleet may have."""
    if kind == "workload":
        return WORKLOAD_FIGURES
    if entity == FLEET:
        return (*CLUSTER_FIGURES, *FLEET_FIGURES)
    return CLUSTER_FIGURES


def read_actuals(folder: Path, scenario: Scenario) -> "Actuals":
    """Read a folder of actuals; raise one ScenarioError with all problems."""
    document = read_document(folder / MAPPING)
    mapping = validate(ActualsMapping, document)
    reader = _Reader(folder, scenario)
    names = {*CLUSTER_FIGURES, *FLEET_FIGURES, *WORKLOAD_FIGURES, *BOOKED}
    paths: dict[KeyPath, str] = {("errors", name): name for name in mapping.errors}
    paths |= {("leave_out", place): name for place, name in enumerate(mapping.leave_out)}
    for path, name in paths.items():
        if name not in names:
            message = f"no figure or account is named {name!r}"
            hint = nearest(name, names)
            reader.problems.append(document.problem(path, message, hint))
    for name, file in mapping.files.items():
        reader.read(name, file)
    # Gaps between files mean something only where every file could be read.
    raise_all(reader.problems[:MAX_PROBLEMS])
    months = reader.months()
    raise_all(reader.problems[:MAX_PROBLEMS])
    _refuse_turned_income(reader, folder)
    series = {}
    for key, by_month in reader.figures_by_month.items():
        # An account without a row in a month was not booked in it; a figure without one was not measured.
        absent = 0.0 if key.kind == "account" else math.nan
        figures = [by_month.get(month, absent) for month in months]
        series[key] = np.array(figures)
    notes = tuple(reader.notes)
    return Actuals(months=months, series=series, mapping=mapping, notes=notes)


def _refuse_turned_income(reader: _Reader, folder: Path) -> None:
    """Raise ScenarioError where revenue or resale has the sign of a cost: the export has income positive."""
    turned = []
    for key, by_month in reader.figures_by_month.items():
        is_sale = key.figure in (Account.REVENUE, Account.RESALE)
        is_income = key.kind == "account" and is_sale
        # Over all months: one credit note does not turn an account.
        if is_income and sum(by_month.values()) > 0:
            turned.append(key.figure)
    if turned:
        message = f"{choices(turned)} would be read as a cost: income is negative in a ledger"
        hint = "state income: positive for the finance file in mapping.yaml"
        file = str(folder / MAPPING)
        raise ScenarioError(Problem(file=file, message=message, hint=hint))
