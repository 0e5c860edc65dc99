"""A figure explained: what it means, its formula, the parts it is made of, and the inputs that enter it.

Names, formulas, parts and inputs are the lines of ``planner/finance/figures.csv``; values are those of a run's tables.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from planner.answers.evidence import ASSUMPTION_COLUMNS
from planner.answers.json_records import Json, fields_json
from planner.answers.run import run_tables
from planner.answers.run_summary import key_figures
from planner.data_files import data_rows
from planner.errors import Problem, ScenarioError
from planner.finance.accounts import Account, View
from planner.finance.measure_names import FIGURES, FLEET, TIMELINE
from planner.finance.months import MonthGrid
from planner.finance.present_value import CashFlowTiming, discount_factors, running_months
from planner.output.folder import Contents, fitting, read_contents
from planner.output.terminal import text_table
from planner.output.words import figure as in_words
from planner.records import record
from planner.run.simulate import RunResult
from planner.units import unit_of
from planner.validation import nearest

_DISCOUNTED = "·v"
"""Ends the name of a part of which each month counts at its present value."""
_NAMES_SHOWN = 3
"""Names offered in place of one that is not there."""


@record
class Part:
    """A figure, an account or a line that another figure is made of."""

    name: str
    value: float | None
    unit: str | None


@record
class Explanation:
    """A figure, and where a run is at hand what it is there."""

    figure: str
    meaning: str
    unit: str | None
    view: str
    """The view of the ledger it reads; empty where it reads none."""
    formula: str
    """Empty where the meaning says it all."""
    needs: str
    """The key without which it has no meaning; empty where it always has one."""
    tables: Sequence[str]
    """Tables that have it as a column, as folder/table."""
    value: float | None
    low: float | None
    """Lower end of what further replications give."""
    high: float | None
    by_month: Mapping[str, float | None]
    """Its values by month, where it is no figure of the whole run."""
    parts: Sequence[Part]
    """What it is made of, in the order of the formula."""
    inputs: Sequence[Mapping[str, str]]
    """Inputs that enter it or a part of it, stated or measured before defaults; without a run their keys alone."""
    inputs_left_out: int
    """Further ones: of a cost there are hundreds."""

    def to_json(self) -> Json:
        """Return what ``--json`` prints."""
        return fields_json(self)

    def text(self) -> str:
        """Return what a terminal shows."""
        facts = {
            "value": _value_text(self),
            "unit": self.unit,
            "view": self.view,
            "formula": self.formula,
            "needs": self.needs,
            "columns of": ", ".join(self.tables),
        }
        lines = [f"{name:<12}{fact}" for name, fact in facts.items() if fact]
        blocks = [self.figure, self.meaning, "\n".join(lines)]
        if self.parts:
            rows = [(part.name, _number_text(part.value), part.unit or "") for part in self.parts]
            blocks.append(text_table(("part", "value", "unit"), rows))
        if self.by_month:
            months = [(month, _number_text(value)) for month, value in self.by_month.items()]
            blocks.append(text_table(("month", "value"), months))
        if self.inputs:
            shown = [_input_cells(row) for row in self.inputs]
            header = ("input", "value", "grade", "source")
            blocks.append(text_table(header[: len(shown[0])], shown))
        if self.inputs_left_out:
            blocks.append(f"{self.inputs_left_out} more inputs affect it: --inputs N lists more")
        return "\n\n".join(blocks)


def _number_text(value: float | None) -> str:
    """Return a number with four significant digits; a dash for one that is not known."""
    return "-" if value is None else in_words(repr(value))


def _input_cells(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return an input as a terminal shows it; without a run its key alone."""
    if "value" not in row:
        return (row["path"],)
    value = f"{row['value']} {row['unit']}".strip()
    # A reason is taken from documentation, which has its own line breaks.
    source = " ".join([*row["source"].split(), row["date"]]).strip()
    return row["path"], value, row["grade"], source


def _value_text(explanation: Explanation) -> str:
    if explanation.value is None or explanation.low is None or explanation.high is None:
        return "" if explanation.value is None else _number_text(explanation.value)
    interval = f"{_number_text(explanation.low)} to {_number_text(explanation.high)}"
    return f"{_number_text(explanation.value)}, in further replications {interval}"


def contents_of_run(result: RunResult) -> Contents:
    """Return a run that was not written as its folder would read."""
    tables = {table.name: table for table in run_tables(result)}
    return Contents(manifest={}, tables=tables, summary=key_figures(result).to_json())


def contents_of_folder(folder: Path) -> Contents:
    """Return the folder of a run; refuse that of anything else, which has many values of a figure."""
    contents = read_contents(folder)
    if contents.kind != "run":
        message = f"is of {contents.kind}; a figure is explained in the folder of one run"
        raise ScenarioError(message, file=str(folder), hint="planner run writes one")
    return contents


def explain(
    figure: str, inputs_listed: int, contents: Contents | None = None, place: str = ""
) -> Explanation:
    """Explain a figure of the registry, an account or a column, with its values in a run if there is one."""
    tables = _columns()
    accounts = {str(account): account for account in Account}
    if figure in FIGURES:
        line = FIGURES[figure]
    elif figure in accounts:
        views = [str(view.name).lower() for view in View if view in accounts[figure].views]
        line = {"meaning": accounts[figure].description, "view": " ".join(views)}
    elif figure in tables:
        line = {"meaning": next(text for text in tables[figure].values() if text)}
    else:
        known = [*FIGURES, *accounts, *tables]
        # Part of a long name is far from it by its letters.
        longer = [name for name in known if figure and figure.lower() in name][:_NAMES_SHOWN]
        hint = f"did you mean {' or '.join(longer)}?" if longer else nearest(figure, known)
        hint = hint or "docs/reference/metrics.md lists all figures"
        raise ScenarioError(Problem(message=f"there is no figure {figure!r}", hint=hint))
    keys = list(dict.fromkeys(_input_patterns(figure)))
    value, low, high = None, None, None
    by_month: dict[str, float | None] = {}
    parts: list[Part] = []
    inputs: list[dict[str, str]] = [{"path": key} for key in keys]
    names = line.get("parts", "").split()
    if contents is None:
        parts = [Part(name=name, value=None, unit=_unit(name)) for name in names]
    else:
        with fitting(place):
            value, low, high = _interval(contents, figure)
            by_month = _months(contents, figure) if value is None else {}
            parts = [part for name in names for part in _parts(contents, name, line["view"])]
            inputs = _inputs(contents, keys)
    return Explanation(
        figure=figure,
        meaning=line["meaning"],
        unit="USD" if figure in accounts else unit_of(figure),
        view=line.get("view", ""),
        formula=line.get("formula", ""),
        needs=line.get("needs", ""),
        tables=list(tables.get(figure, ())),
        value=value,
        low=low,
        high=high,
        by_month=by_month,
        parts=parts,
        inputs=inputs[:inputs_listed],
        inputs_left_out=max(0, len(inputs) - inputs_listed),
    )


def _columns() -> dict[str, dict[str, str]]:
    """Return the description of every column of every folder: by its name, then by folder and table."""
    columns: dict[str, dict[str, str]] = {}
    for row in data_rows(__file__, "tables.csv"):
        if row["column"]:
            table = f"{row['folder']}/{row['table']}"
            columns.setdefault(row["column"], {})[table] = row["text"]
    # The registry has the words of its own figures, whatever a table adds.
    texts = {name: line["meaning"] for name, line in FIGURES.items()}
    for name, by_table in columns.items():
        if not any(by_table.values()):
            columns[name] = dict.fromkeys(by_table, texts.get(name, name))
    return columns


def _unit(part: str) -> str | None:
    return unit_of(part.removesuffix(_DISCOUNTED))


def _input_patterns(figure: str) -> Iterator[str]:
    """Yield the patterns of the keys that enter a figure: its own, then those of its parts."""
    # No figure is a part of itself, so this ends.
    line = FIGURES.get(figure.removesuffix(_DISCOUNTED), {})
    yield from line.get("inputs", "").split()
    for part in line.get("parts", "").split():
        yield from _input_patterns(part)


def _inputs(contents: Contents, patterns: Iterable[str]) -> list[dict[str, str]]:
    """Return the rows of assumptions.csv whose keys match, in the order of the patterns, defaults last."""
    rows = list(contents.tables["assumptions"].rows(*ASSUMPTION_COLUMNS))
    by_path = {}
    for pattern in patterns:
        for row in rows:
            if fnmatch.fnmatchcase(row[0], pattern):
                by_path[row[0]] = dict(zip(ASSUMPTION_COLUMNS, row, strict=True))
    return sorted(by_path.values(), key=lambda row: row["grade"] == "default")


def _interval(contents: Contents, figure: str) -> tuple[float | None, float | None, float | None]:
    """Return a figure of the whole run with the ends of its interval; None where it has none."""
    measures = contents.tables["measures"]
    for name, *interval in measures.rows("measure", numbers=["value", "low", "high"]):
        if name == figure:
            value, low, high = interval
            return value, low, high
    fleet = contents.summary["clusters"][FLEET]
    if figure in fleet:
        return fleet[figure], None, None
    ledger = contents.tables["ledger"].summed("account", "amount_usd")
    return ledger.get(figure), None, None


def _months(contents: Contents, figure: str) -> dict[str, float | None]:
    """Return a figure of the monthly timeline by month; nothing where it has no such figure."""
    timeline = contents.tables["timeline_monthly"]
    if figure not in TIMELINE:
        return {}
    return dict(timeline.rows("month", numbers=[figure]))


def _parts(contents: Contents, name: str, view: str) -> Iterator[Part]:
    """Yield a part of a figure with its value; accounts and lines are as many parts as a run has of them."""
    if name in ("accounts", "flows"):
        ledger = contents.tables["ledger"].summed("account", "amount_usd")
        for account in Account:
            is_part = View[view.upper()] in account.views and (account.in_cost or name == "flows")
            if is_part and account in ledger:
                yield Part(name=str(account), value=ledger[account], unit="USD")
    elif name == "lines":
        reconciliation = contents.tables["reconciliation"]
        for line, amount_usd in reconciliation.rows("line", numbers=["amount_usd"]):
            yield Part(name=line, value=amount_usd, unit="USD")
    else:
        column = name.removesuffix(_DISCOUNTED)
        value = _interval(contents, column)[0]
        timeline = contents.tables["timeline_monthly"]
        if name != column:
            value = _present_value(contents, timeline.totals(column))
        elif value is None and column in timeline:
            value = sum(timeline.totals(column))
        yield Part(name=name, value=value, unit=_unit(name))


def _present_value(contents: Contents, by_month: Sequence[float]) -> float:
    """Return Σ amount·v of what runs through the months, by the run's own rate, basis and timing."""
    assumed = contents.tables["assumptions"]
    inputs = dict(assumed.rows("path", "value"))
    rate = float(inputs["finance.discount_rate_per_year"])
    if inputs["finance.discount_rate_basis"] == "real":
        rate = (1.0 + rate) * (1.0 + float(inputs["finance.inflation_per_year"])) - 1.0
    start = date.fromisoformat(contents.summary["start"])
    months = MonthGrid(start=start, horizon_months=contents.summary["horizon_months"])
    edges = months.edge_coordinates - months.edge_coordinates[0]
    timing = CashFlowTiming(inputs["finance.cash_flow_timing"])
    factors = discount_factors(rate, running_months(edges, timing))
    return float(factors @ by_month)
