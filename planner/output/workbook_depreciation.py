"""The depreciation sheet: one row a cohort in blocks by month, by formula.

The formulas are those of :mod:`planner.finance.depreciation` and :mod:`planner.finance.tax`, in whole cents, with the
same rounding: INT(x + 0.500001) is the running total's cent. Straight-line cohorts follow cost, residual and life;
declining-balance cohorts stay as simulated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.finance.cents import cents
from planner.finance.tax import monthly_fractions, tax_depreciation
from planner.output.workbook import FIRST_ROW, Sheets, address, write_headings
from planner.output.workbook_cohorts import COLUMN, is_restated
from planner.output.workbook_cohorts import SHEET as COHORTS
from planner.output.workbook_content import Content
from planner.output.workbook_inputs import LIFE, PRICE
from planner.run.cohorts import nodes_in_service
from planner.units import MONTHS_PER_YEAR

SHEET = "Depreciation"
NEVER_MONTHS = 1e6
"""Stands for never in service, never retired: a spreadsheet has no infinity."""
EDGE_ROW = 1
"""Row of the month coordinates; a month's column holds its start, the next column its end."""
FIRST_MONTH = 9
"""Column of the first month; the columns before it describe the cohort."""
COST, RESIDUAL_CENTS, LIFE_MONTHS, ENTERS, LEAVES, METHOD, PAID, OPENING = 1, 2, 3, 4, 5, 6, 7, 8
FIRST_BLOCK = 3
DEPRECIATION, DISPOSED, BOOK, CHARGE, PROPERTY_TAX, SERVICE, DEDUCTED = range(7)
BLOCKS = (
    "Depreciation, USD",
    "Book value disposed of, USD",
    "Book value at the end, USD",
    "Capital charge, running total, USD",
    "Property tax, running total, USD",
    "Years in service, running total",
    "Tax deductions, running total, cents",
)


def block_row(block: int, cohorts: int) -> int:
    """Return the row of a block's first cohort, counting from zero."""
    return FIRST_BLOCK + block * (cohorts + 2)


def block_range(content: Content, block: int, column: int, rows: slice = slice(None)) -> str:
    """Return the address of one month of a block, of all cohorts or of some."""
    count = content.assets.count
    first, last, _ = rows.indices(count)
    low, high = (address(block_row(block, count) + row, column, fixed="RC") for row in (first, last - 1))
    return f"{SHEET}!{low}:{high}"


class _Cells:
    """Addresses of one cohort's cells, for its formulas."""

    def __init__(self, row: int) -> None:
        self.cost = address(row, COST, fixed="C")
        self.residual = address(row, RESIDUAL_CENTS, fixed="C")
        self.life = address(row, LIFE_MONTHS, fixed="C")
        self.enters = address(row, ENTERS, fixed="C")
        self.leaves = address(row, LEAVES, fixed="C")
        self.opening = address(row, OPENING, fixed="C")
        self.paid = address(row, PAID, fixed="C")

    def accumulated(self, until: str) -> str:
        """Return the formula of depreciation charged until a month coordinate, in whole cents."""
        elapsed = f"MAX(0,MIN({self.life},MIN({until},{self.leaves})-{self.enters}))"
        return f"INT(({self.cost}-{self.residual})*({elapsed}/{self.life})+0.500001)"


def write_depreciation(sheets: Sheets, content: Content) -> None:
    """Write the sheet: headings, month coordinates, the blocks."""
    sheet, grid = sheets[SHEET], content.grid
    headings = ("Cohort", "Cost, cents", "Residual, cents", "Book life, months", "In service, month", "Retired, month")
    write_headings(sheet, sheets, [*headings, "Method", "Paid, month", "Opening book value, cents"])
    for column, edge in enumerate(grid.edges[:-1], start=FIRST_MONTH):
        sheet.write_datetime(0, column, edge.replace(day=1), sheets.formats["month_heading"])
    sheet.write_string(EDGE_ROW, 0, "Months since the start of the first one", sheets.formats["note"])
    sheet.write_row(EDGE_ROW, FIRST_MONTH, grid.edge_coordinates.tolist(), sheets.formats["plain"])
    count = content.assets.count
    blocks = _blocks(content)
    for block, name in enumerate(BLOCKS):
        if block in blocks:
            sheet.write_string(block_row(block, count) - 1, 0, name, sheets.formats["heading"])
    for row in range(count):
        _write_cohort(sheets, content, row)
        for block, figures in blocks.items():
            _write_months(sheets, content, (block, row), figures[row])
    sheet.set_column(0, FIRST_MONTH + grid.period_count, 16)


def _blocks(content: Content) -> dict[int, NDArray[Any]]:
    """Return the blocks a run needs as simulated, shape (cohorts, months) each; deductions have a month before."""
    result, schedule = content.result, content.schedule
    blocks: dict[int, NDArray[Any]] = {
        DEPRECIATION: schedule.depreciation_cents / 100,
        DISPOSED: schedule.disposed_book_cents / 100,
        BOOK: schedule.closing_book_cents / 100,
        CHARGE: np.cumsum(content.charge_usd, axis=1),
    }
    if content.property_usd.any():
        blocks[PROPERTY_TAX] = np.cumsum(content.property_usd, axis=1)
    if content.assets.count:
        nodes = np.array([cohort.nodes for cohort in result.cohorts])[:, None]
        serving = nodes_in_service(result.plan, result.cohorts) / nodes
        blocks[SERVICE] = np.cumsum(serving * (content.grid.month_fractions / MONTHS_PER_YEAR), axis=1)
    if (rules := result.plan.money.market.tax) is not None and content.assets.count:
        tables = tax_depreciation(content.assets, content.grid, rules.bonus_fraction)
        blocks[DEDUCTED] = np.cumsum(np.column_stack((tables.before_cents, tables.deduction_cents)), axis=1)
    return blocks


def _write_cohort(sheets: Sheets, content: Content, row: int) -> None:
    """Write what describes a cohort, in the first block; the other blocks repeat its name."""
    sheet, assets, formats, inputs = sheets[SHEET], content.assets, sheets.formats, content.inputs
    cohort, place = content.result.cohorts[row], block_row(DEPRECIATION, assets.count) + row
    for block in _blocks(content):
        sheet.write_string(block_row(block, assets.count) + row, 0, cohort.name)
    cost, residual, life = int(cents(assets.basis_usd)[row]), int(cents(assets.residual_usd)[row]), LIFE_MONTHS
    straight = assets.declining_factor[row] == 0
    if is_restated(content, row):  # what is written off is the book value stated for machines that are owned already
        sheet.write_number(place, COST, cost, formats["count"])
        sheet.write_number(place, RESIDUAL_CENTS, residual, formats["count"])
    else:
        for column, name, figure in ((COST, "cost", cost), (RESIDUAL_CENTS, "residual", residual)):
            formula = f"={COHORTS}!{address(FIRST_ROW + row, COLUMN[name], fixed='RC')}"
            sheet.write_formula(place, column, formula, formats["count"], figure)
    if inputs.is_live(LIFE, cohort.cluster):
        cell = inputs.cell(LIFE, cohort.cluster)
        sheet.write_formula(place, life, f"={cell}", formats["count"], float(assets.life_months[row]))
    else:
        sheet.write_number(place, life, assets.life_months[row], formats["count"])
    enters, leaves = float(assets.basis_months[row]), float(assets.retired_months[row])
    sheet.write_number(place, ENTERS, enters if np.isfinite(enters) else NEVER_MONTHS, formats["plain"])
    sheet.write_number(place, PAID, assets.acquired_months[row], formats["plain"])
    sheet.write_number(place, LEAVES, leaves if np.isfinite(leaves) else NEVER_MONTHS, formats["plain"])
    sheet.write_string(place, METHOD, "straight line" if straight else "declining balance (fixed)")
    opening = int(content.schedule.opening_book_cents[row])
    if straight:
        cells, start = _Cells(place), address(EDGE_ROW, FIRST_MONTH, fixed="RC")
        owned = f"AND({cells.paid}<{start},{cells.leaves}>={start})"
        formula = f"=IF({owned},{cells.cost}-{cells.accumulated(start)},0)"
        sheet.write_formula(place, OPENING, formula, formats["count"], opening)
    else:
        sheet.write_number(place, OPENING, opening, formats["count"])


def _write_months(sheets: Sheets, content: Content, place: tuple[int, int], figures: NDArray[Any]) -> None:
    """Write a cohort's months of a block."""
    block, row = place
    sheet, formats, count = sheets[SHEET], sheets.formats, content.assets.count
    at, straight = block_row(block, count) + row, content.assets.declining_factor[row] == 0
    style = formats["count" if block == DEDUCTED else "plain" if block == SERVICE else "usd"]
    if block == DEDUCTED:
        shares = _deducted_fraction(content, row)
        sheet.write_number(at, OPENING, int(figures[0]), style)
        figures = figures[1:]
    for period, figure in enumerate(figures.tolist()):
        column = FIRST_MONTH + period
        if block == DEDUCTED and shares is not None:
            cost = address(block_row(DEPRECIATION, count) + row, COST, fixed="C")
            sheet.write_formula(at, column, f"=INT({cost}*{float(shares[period])!r}+0.500001)", style, figure)
        elif block in (SERVICE, DEDUCTED) or (block in (DEPRECIATION, DISPOSED) and not straight):
            sheet.write_number(at, column, figure, style)
        else:
            sheet.write_formula(at, column, _month_formula(content, block, row, column), style, figure)


def _deducted_fraction(content: Content, row: int) -> Floats | None:
    """Return the share of a cohort's cost deducted until each month's end; None where its cost does not move."""
    rules = content.result.plan.money.market.tax
    assert rules is not None
    if not content.inputs.is_live(PRICE, content.result.cohorts[row].cluster):
        return None
    period, fractions = monthly_fractions(content.assets, row, content.grid, rules.bonus_fraction)
    monthly = np.zeros(content.grid.period_count)
    inside = (period >= 0) & (period < monthly.size)
    monthly[period[inside]] = fractions[inside]
    return np.cumsum(monthly)


def _month_formula(content: Content, block: int, row: int, column: int) -> str:
    """Return the formula of one cohort and month of a block."""
    rows = [block_row(block, content.assets.count) + row for block in range(len(BLOCKS))]
    cells = _Cells(rows[DEPRECIATION])
    start, end = address(EDGE_ROW, column, fixed="R"), address(EDGE_ROW, column + 1, fixed="R")
    first = column == FIRST_MONTH
    opening = f"{cells.opening}/100" if first else address(rows[BOOK], column - 1)
    before = "0" if first else address(rows[block], column - 1)
    entered = f"IF(AND({start}<={cells.paid},{cells.paid}<{end}),{cells.cost}/100,0)"
    held = f"MAX(0,MIN({end},{cells.leaves})-MAX({start},{cells.paid}))"
    match block:
        case 0:
            return f"=({cells.accumulated(end)}-{cells.accumulated(start)})/100"
        case 1:
            leaves = f"AND({start}<={cells.leaves},{cells.leaves}<{end})"
            return f"=IF({leaves},({cells.cost}-{cells.accumulated(cells.leaves)})/100,0)"
        case 2:
            gone = f"{address(rows[DEPRECIATION], column)}-{address(rows[DISPOSED], column)}"
            return f"=ROUND({opening}+{entered}-{gone},2)"
        case 3:
            return f"={before}+({opening}+{entered})*(EXP(LN(1+{content.rate_cell})*{held}/12)-1)"
        case _:
            yearly = content.result.plan.money.capital.property_tax_fraction_per_year
            return f"={before}+({opening}+{entered})*{yearly / MONTHS_PER_YEAR!r}*{held}"
