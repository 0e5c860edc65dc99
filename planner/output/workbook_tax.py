"""The tax sheet: taxable income and the income of the books month by month, and the tax on each.

    taxable income = gains on sales − tax depreciation − running costs + revenue
    tax paid       = rate · income, rounded on its running total, where losses lower other tax at once; or else, in the
                     last month of a year, rate · max(income of the year − losses used, 0), losses used being at most
                     80% of that income and what is carried into the year
    tax expense    = rate · income of the books

as :mod:`planner.finance.tax` has it.
"""

from __future__ import annotations

import numpy as np

from planner.arrays import Cents
from planner.finance.accounts import ACCOUNT_CODES, CAPITAL_CHARGE_ACCOUNTS, NOT_COST_ACCOUNTS, Account, View
from planner.finance.ledger import view_cents
from planner.finance.tax import LOSS_LIMIT_FRACTION, LossRule, TaxRules, tax_depreciation, tax_years
from planner.output.workbook import FIRST_ROW, Sheets, address, write_headings
from planner.output.workbook_cohorts import cohort_range, in_month
from planner.output.workbook_content import Content, Layout
from planner.output.workbook_depreciation import DEDUCTED, FIRST_MONTH, OPENING, block_range
from planner.run.building import building_of
from planner.run.cohorts import tax_base

SHEET = "Tax"
COLUMNS = {
    "purchases": "Gains on sales less tax depreciation, USD",
    "before_sales": "Taxable income before what the tokens are sold for, USD",
    "taxable": "Taxable income, USD",
    "year": "Of the tax year to date, USD",
    "carried": "Losses carried into the tax year, USD",
    "paid": "Tax paid, running total, cents",
    "book": "Income of the books before tax, USD",
    "expense": "Tax expense, running total, cents",
}
"""The columns after the month; those of the tax year hold only where losses are carried forward."""
COLUMN = {name: 1 + place for place, name in enumerate(COLUMNS)}
_WRITTEN_OFF = (Account.DEPRECIATION, Account.DISPOSAL_LOSS, Account.BUILDING_DEPRECIATION)
"""Costs of the books in place of which tax has deductions of its own."""


def tax_range(name: str, months: int) -> str:
    """Return the address of a column of the tax sheet."""
    column = COLUMN[name]
    return f"{SHEET}!{address(FIRST_ROW, column, fixed='RC')}:{address(FIRST_ROW + months - 1, column, fixed='RC')}"


def tax_month(name: str, period: int) -> str:
    """Return the formula of a month of tax paid or of tax expense, in dollars: the change of its running total."""
    column, row = COLUMN[name], FIRST_ROW + period
    before = f"-{SHEET}!{address(row - 1, column, fixed='RC')}" if period else ""
    return f"({SHEET}!{address(row, column, fixed='RC')}{before})/100"


def end_tax_cell(content: Content) -> str:
    """Return the address of the tax on what a sale of all on the last day would bring, in cents."""
    return f"{SHEET}!{address(FIRST_ROW + content.grid.period_count + 2, 1, fixed='RC')}"


def write_tax(sheets: Sheets, content: Content, layout: Layout) -> None:
    """Write taxable income and the income of the books month by month, and the tax on each."""
    sheet, formats, rules = sheets[SHEET], sheets.formats, content.result.plan.money.market.tax
    if rules is None:
        sheet.write_string(0, 0, "No income tax: finance.tax is not set.", formats["note"])
        return
    carries = rules.losses is LossRule.CARRY_FORWARD
    write_headings(sheet, sheets, ["Month", *COLUMNS.values()])
    stored, others = _simulated_cents(content, rules), _others_cents(content, rules)
    for period, edge in enumerate(content.grid.edges[:-1]):
        row = FIRST_ROW + period
        sheet.write_datetime(row, 0, edge.replace(day=1), formats["month"])
        formulas = _carried(content, rules, period) if carries else _offset(rules, period)
        formulas |= _incomes(layout, period, rules.rate_fraction)
        formulas["purchases"] = _purchases(content, period, int(others[period]))
        for name, formula in formulas.items():
            in_cents = name in ("paid", "expense")
            value = float(stored[name][period]) / (1 if in_cents else 100)
            sheet.write_formula(row, COLUMN[name], f"={formula}", formats["count" if in_cents else "usd"], value)
    if content.assets.count:
        _write_end(sheets, content, rules)
    sheet.set_column(0, len(COLUMNS), 22)


def _here(name: str, row: int, *, from_start: bool = False) -> str:
    """Return a cell of this sheet, or the sum of its column until it."""
    cell = address(row, COLUMN[name])
    return f"SUM({address(FIRST_ROW, COLUMN[name], fixed='R')}:{cell})" if from_start else cell


def _share(name: str, row: int, rate: float) -> str:
    """Return the tax on a column until a month, rounded to the cent."""
    total = f"ROUND({_here(name, row, from_start=True)}*100,0)*{rate!r}"
    return f"SIGN({total})*INT(ABS({total})+0.500001)"


def _incomes(layout: Layout, period: int, rate: float) -> dict[str, str]:
    """Return a month's incomes and the tax on the books, by column."""
    row = FIRST_ROW + period

    def book(name: str) -> str:
        return layout.cell(name, period)

    expenses = "-".join([book("cost"), *(book(str(account)) for account in CAPITAL_CHARGE_ACCOUNTS)])
    running = f"({'-'.join([expenses, *(book(str(account)) for account in _WRITTEN_OFF)])})"
    return {
        "before_sales": f"ROUND({_here('purchases', row)}-{running},2)",
        "taxable": f"ROUND({_here('before_sales', row)}-{book(Account.REVENUE)},2)",
        "book": f"ROUND(-({expenses})-{book(Account.REVENUE)},2)",
        "expense": _share("book", row, rate),
    }


def _purchases(content: Content, period: int, others_cents: int) -> str:
    """Return gains on what is retired in a month, less the month's tax depreciation, as a formula."""
    if not content.assets.count:
        return f"{others_cents}/100"
    column, month = FIRST_MONTH + period, address(FIRST_ROW + period, 0, fixed="C")
    now = block_range(content, DEDUCTED, column)
    before = block_range(content, DEDUCTED, column - 1 if period else OPENING)
    fetched, cost = (in_month(content, name, month, "retired") for name in ("proceeds", "cost"))
    deducted = f"SUMIFS({now},{cohort_range(content, 'retired')},{month})"
    return f"ROUND((SUM({before})-SUM({now})+{fetched}-{cost}+{deducted}+({others_cents}))/100,2)"


def _others_cents(content: Content, rules: TaxRules) -> Cents:
    """Return what adds to taxable income besides what the sheets follow, shape (months,): leases, a building."""
    income = _purchase_income_cents(content, rules)
    if not content.assets.count:
        return income
    tables = tax_depreciation(content.assets, content.grid, rules.bonus_fraction)
    return np.asarray(income - (tables.gain_cents - tables.deduction_cents).sum(axis=0))


def _purchase_income_cents(content: Content, rules: TaxRules) -> Cents:
    """Return what purchases, leases and a building add to taxable income, shape (months,)."""
    plan, cohorts, building = content.result.plan, content.result.cohorts, building_of(content.result.plan)
    income = np.zeros(content.grid.period_count, dtype=np.int64)
    if cohorts:
        income += tax_base(plan, cohorts, rules).income_cents.sum(axis=0)
    return income if building is None else income - building.deduction_cents


def _end_gain_cents(content: Content, rules: TaxRules) -> tuple[int, int]:
    """Return the gain of a sale of all on the last day, and what of it the sheets do not follow."""
    plan, assets, building = content.result.plan, content.assets, building_of(content.result.plan)
    gain = int(tax_base(plan, content.result.cohorts, rules).end_gain_cents[:, -1].sum())
    if building is not None:
        gain += int(building.value_cents[-1] - building.basis_cents[-1])
    tables = tax_depreciation(assets, content.grid, rules.bonus_fraction)
    basis = content.cohorts.cost_cents - tables.before_cents - tables.deduction_cents.sum(axis=1)
    followed = content.cohorts.end_cents.sum() - np.where(content.cohorts.is_owned, basis, 0).sum()
    return gain, gain - int(followed)


def _offset(rules: TaxRules, period: int) -> dict[str, str]:
    """Return tax paid where a loss lowers other tax at once."""
    return {"paid": _share("taxable", FIRST_ROW + period, rules.rate_fraction)}


def _carried(content: Content, rules: TaxRules, period: int) -> dict[str, str]:
    """Return tax paid where losses wait for later years, assessed in the last month of each."""
    row, years = FIRST_ROW + period, tax_years(content.grid)
    begins = period == 0 or years[period] != years[period - 1]
    ends = period + 1 == years.size or years[period + 1] != years[period]
    year, carried = _here("year", row), _here("carried", row)
    last_year, last_carried = _here("year", row - 1), _here("carried", row - 1)
    left = f"{last_carried}+MAX(-{last_year},0)-{_used(last_year, last_carried)}"
    before = _here("paid", row - 1) if period else "0"
    due = f"+INT({_due(year, carried, rules)}*100+0.500001)" if ends else ""
    return {
        "year": _here("taxable", row) if begins else f"{last_year}+{_here('taxable', row)}",
        "carried": "0" if period == 0 else left if begins else last_carried,
        "paid": f"{before}{due}",
    }


def _used(income: str, carried: str) -> str:
    """Return what a year's income uses of the losses carried into it."""
    return f"MIN({carried},{LOSS_LIMIT_FRACTION!r}*MAX({income},0))"


def _due(income: str, carried: str, rules: TaxRules) -> str:
    """Return a year's tax."""
    return f"{rules.rate_fraction!r}*MAX({income}-{_used(income, carried)},0)"


def _write_end(sheets: Sheets, content: Content, rules: TaxRules) -> None:
    """Write the gain of a sale of all that is owned on the last day, and the tax on it."""
    sheet, months = sheets[SHEET], content.grid.period_count
    last, row = FIRST_ROW + months - 1, FIRST_ROW + months + 1
    owned, cost = cohort_range(content, "owned"), cohort_range(content, "cost")
    deducted = block_range(content, DEDUCTED, FIRST_MONTH + months - 1)
    basis = f"SUMPRODUCT({owned},{cost})-SUMPRODUCT({owned},{deducted})"
    gain = address(row, 1)
    if rules.losses is LossRule.CARRY_FORWARD:
        year, carried = _here("year", last), _here("carried", last)
        total = f"({_due(f'({year}+{gain}/100)', carried, rules)}-{_due(year, carried, rules)})*100"
    else:
        total = f"{rules.rate_fraction!r}*{gain}"
    gains, others = _end_gain_cents(content, rules)
    sheet.write_string(row, 0, "Gain if all were sold on the last day, cents")
    formula = f"=SUM({cohort_range(content, 'end_value')})-({basis})+({others})"
    sheet.write_formula(row, 1, formula, sheets.formats["count"], gains)
    sheet.write_string(row + 1, 0, "Tax on it, cents")
    simulated = int(content.account_cents(Account.TAX_ON_END_VALUE)[-1])
    sheet.write_formula(row + 1, 1, f"=SIGN({total})*INT(ABS({total})+0.500001)", sheets.formats["count"], simulated)


def _simulated_cents(content: Content, rules: TaxRules) -> dict[str, Cents]:
    """Return the columns as simulated, in cents, shape (months,) each."""
    table = content.table_cents
    cost = view_cents(table, View.ACCRUAL, leave_out=(*NOT_COST_ACCOUNTS, *CAPITAL_CHARGE_ACCOUNTS))
    written_off = table[:, [ACCOUNT_CODES[account] for account in _WRITTEN_OFF]]
    revenue, paid, deferred = (
        content.account_cents(account) for account in (Account.REVENUE, Account.TAX_CASH, Account.TAX_DEFERRED)
    )
    bought = _purchase_income_cents(content, rules)
    before = bought - cost + written_off.sum(axis=1)
    taxable, years = before - revenue, tax_years(content.grid)
    year, carried = np.zeros_like(taxable), np.zeros_like(taxable)
    for period, income in enumerate(taxable.tolist()):
        begins = period == 0 or years[period] != years[period - 1]
        year[period] = income if begins else year[period - 1] + income
        if period:
            lost, held = max(-int(year[period - 1]), 0), int(carried[period - 1])
            used = min(held, LOSS_LIMIT_FRACTION * max(int(year[period - 1]), 0))
            carried[period] = held + lost - used if begins else held
    return {
        "purchases": bought, "before_sales": before, "taxable": taxable, "year": year, "carried": carried,
        "paid": np.cumsum(paid), "book": -cost - revenue, "expense": np.cumsum(paid + deferred),
    }  # fmt: skip
