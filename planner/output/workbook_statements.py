"""The statements sheet: income statement, cash flow and balance sheet of the whole plan, by formula from the accounts.

Fiscal years come first, then quarters, then months. Signs are accounting's: what comes in is positive, what goes out
stands in brackets. The arrangement is that of :mod:`planner.finance.statements`, which the values are taken from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.arrays import Cents
from planner.finance.accounts import (
    ACCOUNT_CODES,
    ACCOUNT_ORDER,
    INCOME_CATEGORIES,
    Account,
    Category,
    Position,
)
from planner.finance.cents import cents
from planner.finance.statements import LIABILITIES, Frequency, fiscal_label, line_weights
from planner.finance.tax import tax_depreciation
from planner.output.workbook import Sheets, address, words
from planner.output.workbook_content import Content, Layout
from planner.output.workbook_depreciation import OPENING, block_range
from planner.run import tables
from planner.run.cohorts import is_opening
from planner.run.measure_names import FLEET

SHEET = "Statements"
HEADING_ROW = 3
_CASH_LINES = {
    Category.REVENUE: "Received from customers",
    Category.COST_OF_SERVING: "Paid for serving",
    Category.OPERATING_EXPENSE: "Paid for people, software and other expense",
    Category.TAX: "Income tax paid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the statements, by month."""

    label: str
    cents: Cents | None = None
    """As simulated, shape (months,); None for a heading."""
    accounts: tuple[Account, ...] = ()
    """Accounts whose sum it is, with the other sign."""
    sums: tuple[tuple[str, int], ...] = ()
    """Lines that it is the sum of, each with its sign."""
    opening: str = ""
    """Of a balance: what it is before the first month, as a formula; each month adds to it."""
    is_total: bool = False
    is_balance: bool = False
    """Whether it holds at a period's end and does not run through it."""


def lines_of(content: Content, layout: Layout) -> list[Line]:
    """Return the lines from the top."""
    table = tables.statement(content.result)
    fleet = np.array([cluster == FLEET for cluster in table["cluster"]])
    fleet_cents = {name: np.asarray(column)[fleet] for name, column in table.items() if name.endswith("_usd")}
    shown = [account for account in Account if str(account) in layout.columns]
    return [*_income(content, shown, fleet_cents), *_cash(content, shown, fleet_cents), *_balance(content, fleet_cents)]


def _signs(line: str) -> dict[Account, int]:
    """Return the accounts that a line of the statements is made of, each with its sign."""
    names, weights = line_weights()
    signs = weights[:, names.index(line)].tolist()
    return {account: sign for account, sign in zip(ACCOUNT_ORDER, signs, strict=True) if sign}


def _line(content: Content, label: str, accounts: tuple[Account, ...]) -> Line:
    """Return a line of accounts."""
    codes = [ACCOUNT_CODES[account] for account in accounts]
    return Line(label=label, accounts=accounts, cents=-content.table_cents[:, codes].sum(axis=1))


def _income(content: Content, shown: list[Account], fleet_cents: dict[str, Cents]) -> list[Line]:
    """Return the income statement: each account, and a total after each part."""
    totals = {
        Category.COST_OF_SERVING: ("Gross profit", "gross_profit_usd"),
        Category.OPERATING_EXPENSE: ("Operating income", "operating_income_usd"),
        Category.TAX: ("Net income", "net_income_usd"),
    }
    lines, above = [Line(label="Income statement")], []
    for category in INCOME_CATEGORIES:
        for account in (account for account in shown if account.category is category):
            lines.append(_line(content, words(str(account)), (account,)))
            above.append((lines[-1].label, 1))
        if category in totals:
            label, name = totals[category]
            lines.append(Line(label=label, cents=fleet_cents[name], sums=tuple(above), is_total=True))
            above = [(label, 1)]
    return lines


def _cash(content: Content, shown: list[Account], fleet_cents: dict[str, Cents]) -> list[Line]:
    """Return the cash flow: operating by kind, investing and financing by account."""
    statement = [Line(label="Cash flow")]

    def section(label: str, name: str, lines: list[Line]) -> None:
        parts = tuple((line.label, 1) for line in lines)
        statement.extend([*lines, Line(label=label, cents=fleet_cents[name], sums=parts, is_total=True)])

    kinds: dict[Category, list[Account]] = {}
    for account in (account for account in shown if account in _signs("operating_cash_flow_usd")):
        kinds.setdefault(account.category, []).append(account)
    running = [
        _line(content, _CASH_LINES.get(kind, words(str(kind))), tuple(accounts)) for kind, accounts in kinds.items()
    ]
    section("Operating cash flow", "operating_cash_flow_usd", running)
    for kind in ("Investing", "Financing"):
        name = f"{kind.lower()}_cash_flow_usd"
        paid = [account for account in shown if account in _signs(name)]
        section(f"{kind} cash flow", name, [_line(content, f"{kind}: {words(str(a))}", (a,)) for a in paid])
    flows = tuple((f"{kind} cash flow", 1) for kind in ("Operating", "Investing", "Financing"))
    return [*statement, Line(label="Net cash flow", cents=fleet_cents["net_cash_flow_usd"], sums=flows, is_total=True)]


def _balance(content: Content, fleet_cents: dict[str, Cents]) -> list[Line]:
    """Return the balance sheet: what each line is before the first month, and what each month adds to it."""
    owned = [line for line in Position if line not in LIABILITIES]
    cash = repr(content.result.plan.money.capital.opening_cash_usd)
    opening = {line: f"({_opening_cents(content, fleet_cents, line)}/100)" for line in Position}
    for line, formula in ((Position.HARDWARE, _opening_book(content)), (Position.DEFERRED_TAX, _opening_tax(content))):
        opening[line] += formula

    def position(line: Position) -> Line:
        moved = tuple((str(account), sign) for account, sign in _signs(f"{line}_usd").items())
        label = words(str(line))
        return Line(label=label, cents=fleet_cents[f"{line}_usd"], sums=moved, opening=opening[line], is_balance=True)

    def total(label: str, name: str, parts: Iterable[str]) -> Line:
        signed = tuple((part, 1) for part in parts)
        return Line(label=label, cents=fleet_cents[name], sums=signed, is_total=True, is_balance=True)

    balance = cash + "".join(f"{'-' if line in LIABILITIES else '+'}({opening[line]})" for line in Position)
    net, equity = (("Net cash flow", 1),), (("Net income", 1),)
    check = (("Assets", 1), ("Liabilities", -1), ("Equity", -1))
    return [
        Line(label="Balance sheet, at the end of the period"),
        Line(label="Cash", cents=fleet_cents["cash_usd"], sums=net, opening=cash, is_balance=True),
        *(position(line) for line in owned),
        total("Assets", "assets_usd", ["Cash", *(words(str(line)) for line in owned)]),
        *(position(line) for line in LIABILITIES),
        total("Liabilities", "liabilities_usd", [words(str(line)) for line in LIABILITIES]),
        Line(
            label="Equity",
            cents=fleet_cents["equity_usd"],
            sums=equity,
            opening=balance,
            is_total=True,
            is_balance=True,
        ),
        Line(
            label="Assets less liabilities and equity", cents=0 * fleet_cents["equity_usd"], sums=check, is_balance=True
        ),
    ]


def _opening_cents(content: Content, fleet_cents: dict[str, Cents], line: Position) -> int:
    """Return what a line held before the first month, besides what follows the inputs: its end less what moved it."""
    moved = sum(sign * int(content.account_cents(account)[0]) for account, sign in _signs(f"{line}_usd").items())
    begun = int(fleet_cents[f"{line}_usd"][0]) - moved
    followed = int(content.schedule.opening_book_cents.sum())
    if line is Position.HARDWARE:
        return begun - followed
    if line is Position.DEFERRED_TAX and (due := _opening_gain(content)) is not None:
        rate, basis = due
        return begun - int(cents((followed - basis) / 100 * rate))
    return begun


def _opening_book(content: Content) -> str:
    """Return the book value of what is owned before the first month, as a formula to be added."""
    return f"+SUM({block_range(content, 0, OPENING)})/100" if content.assets.count else ""


def _opening_gain(content: Content) -> tuple[float, int] | None:
    """Return the rate of deferred tax on what is owned before the first month, and its tax basis; None for none."""
    result, rules = content.result, content.result.plan.money.market.tax
    before = is_opening(result.cohorts)
    if rules is None or not before.any():
        return None
    deducted = tax_depreciation(content.assets, content.grid, rules.bonus_fraction).before_cents
    return rules.rate_fraction, int(np.where(before, cents(content.assets.cost_usd) - deducted, 0).sum())


def _opening_tax(content: Content) -> str:
    """Return the deferred tax on it, t·(book value − tax basis), as a formula to be added."""
    if (due := _opening_gain(content)) is None:
        return ""
    rate, basis = due
    return f"+ROUND((SUM({block_range(content, 0, OPENING)})/100-({basis}/100))*{rate!r},2)"


def write_statements(sheets: Sheets, content: Content, layout: Layout) -> str:
    """Write the three statements by fiscal year, quarter and month; return where they say that they tie."""
    sheet, formats = sheets[SHEET], sheets.formats
    lines, months = lines_of(content, layout), content.grid.period_count
    start = content.result.plan.money.capital.fiscal_year_start_month
    spans = [span for kind in (Frequency.YEAR, Frequency.QUARTER) for span in _spans(content, kind, start)]
    first = 1 + len(spans)
    sheet.write_string(0, 0, f"{content.result.scenario.name}: statements, USD", formats["title"])
    note = f"Fiscal years begin in month {start} and bear the number of the year they end in. Below zero: in brackets."
    sheet.write_string(1, 0, note, formats["note"])
    sheet.write_row(HEADING_ROW, 0, ["", *(label for label, _, _ in spans)], formats["heading"])
    for period, edge in enumerate(content.grid.edges[:-1]):
        sheet.write_datetime(HEADING_ROW, first + period, edge.replace(day=1), formats["month_heading"])
    places = {line.label: HEADING_ROW + 1 + place for place, line in enumerate(lines)}
    for line in lines:
        row = places[line.label]
        heading = formats["heading"] if line.cents is None else formats["usd_bold"] if line.is_total else None
        sheet.write_string(row, 0, line.label, heading)
        if line.cents is None:
            continue
        style = formats["usd_bold" if line.is_total else "usd"]
        for period in range(months):
            formula = _month_formula(line, layout, places, (row, first, period))
            sheet.write_formula(row, first + period, f"={formula}", style, float(line.cents[period]) / 100)
        for column, (_, low, high) in enumerate(spans, start=1):
            span = f"{address(row, first + low)}:{address(row, first + high)}"
            formula = f"={address(row, first + high)}" if line.is_balance else f"=SUM({span})"
            figure = line.cents[high] if line.is_balance else line.cents[low : high + 1].sum()
            sheet.write_formula(row, column, formula, style, float(figure) / 100)
    sheet.freeze_panes(HEADING_ROW + 1, 1)
    sheet.set_column(0, 0, 44)
    sheet.set_column(1, first + months, 16)
    sheet.print_area(0, 0, max(places.values()), len(spans))  # months are for the screen
    checked = max(places.values())
    return f"{SHEET}!{address(checked, first, fixed='RC')}:{address(checked, first + months - 1, fixed='RC')}"


def _spans(content: Content, frequency: Frequency, start: int) -> list[tuple[str, int, int]]:
    """Return the fiscal periods: their label, first and last month."""
    labels = [fiscal_label(edge.year, edge.month, start, frequency) for edge in content.grid.edges[:-1]]
    names = list(dict.fromkeys(labels))
    return [(name, labels.index(name), len(labels) - 1 - labels[::-1].index(name)) for name in names]


def _month_formula(line: Line, layout: Layout, places: dict[str, int], cell: tuple[int, int, int]) -> str:
    """Return the formula of a line's month."""
    row, first, period = cell
    if line.accounts:
        return "ROUND(" + "".join(f"-{layout.cell(str(account), period)}" for account in line.accounts) + ",2)"
    terms = []
    for name, sign in line.sums:
        at = address(places[name], first + period) if name in places else layout.cell(name, period)
        if at != "0":
            terms.append(f"{'+' if sign > 0 else '-'}{at}")
    before = ""
    if line.opening:
        before = address(row, first + period - 1) if period else line.opening
    return f"ROUND({before}{''.join(terms)},2)" if before or terms else "0"
