"""The depreciation sheet: one row a cohort in four blocks, by formula.

The formulas are those of :mod:`planner.finance.depreciation`, in whole cents, with the same rounding: INT(x + 0.500001)
is the running total's cent. Straight-line cohorts follow the residual; declining-balance cohorts stay as simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from planner.finance.cents import cents
from planner.reporting.workbook_sheets import RATE_CELL, address, month_dates, write_headings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.reporting.workbook import Figures, WorkbookContent
    from planner.reporting.workbook_sheets import Sheets

NEVER_MONTHS = 1e6
"""Stands for never in service, never retired: a spreadsheet has no infinity."""
RESIDUAL_CELL = "Summary!$B$7"
EDGE_ROW = 1
"""Row of the month coordinates; a month's column holds its start, the next column its end."""
FIRST_MONTH = 9
"""Column of the first month; the columns before it describe the cohort."""
COST, RESIDUAL, LIFE, ENTERS, LEAVES, OPENING, METHOD, PAID = 1, 2, 3, 4, 5, 6, 7, 8
FIRST_BLOCK = 3
BLOCKS = ("depreciation", "disposed book value", "closing book value", "capital charge, running total")


def block_row(block: int, cohorts: int) -> int:
    """Return the row of a block's first cohort, counting from zero."""
    return FIRST_BLOCK + block * (cohorts + 2)


def block_range(block: int, cohorts: int, column: int) -> str:
    """Return the address of one month of a block, all cohorts."""
    first = block_row(block, cohorts)
    low, high = address(first, column, fixed="RC"), address(first + cohorts - 1, column, fixed="RC")
    return f"Depreciation!{low}:{high}"


class _Cells:
    """Addresses of one cohort's cells, for its formulas."""

    def __init__(self, row: int) -> None:
        self.cost = address(row, COST, fixed="C")
        self.residual = address(row, RESIDUAL, fixed="C")
        self.life = address(row, LIFE, fixed="C")
        self.enters = address(row, ENTERS, fixed="C")
        self.leaves = address(row, LEAVES, fixed="C")
        self.opening = address(row, OPENING, fixed="C")
        self.paid = address(row, PAID, fixed="C")

    def accumulated(self, until: str) -> str:
        """Return the formula of depreciation charged until a month coordinate, in whole cents."""
        elapsed = f"MAX(0,MIN({self.life},MIN({until},{self.leaves})-{self.enters}))"
        return f"INT(({self.cost}-{self.residual})*({elapsed}/{self.life})+0.500001)"


def write_depreciation(sheets: Sheets, content: WorkbookContent, figures: Figures) -> None:
    """Write the sheet: headings, month coordinates, the four blocks."""
    sheet, grid = sheets.depreciation, content.grid
    columns = ("cohort", "cost_cents", "residual_cents", "life_months", "in_service_months", "retired_months")
    write_headings(sheet, sheets, [*columns, "opening_book_cents", "method", "acquired_months"], row=0)
    for column, month in enumerate(month_dates(content), start=FIRST_MONTH):
        sheet.write_datetime(0, column, month, sheets.formats["month"])
    sheet.write_string(EDGE_ROW, 0, "month coordinate", sheets.formats["note"])
    sheet.write_row(EDGE_ROW, FIRST_MONTH, grid.edge_coordinates.tolist(), sheets.formats["plain"])
    count = content.cohorts.count
    for block, name in enumerate(BLOCKS):
        sheet.write_string(block_row(block, count) - 1, 0, f"{name}, USD", sheets.formats["heading"])
    for cohort in range(count):
        _write_cohort(sheets, content, figures, cohort)
        _write_months(sheets, content, figures, cohort)
    sheet.set_column(0, FIRST_MONTH + grid.period_count, 16)


def _write_cohort(sheets: Sheets, content: WorkbookContent, figures: Figures, cohort: int) -> None:
    """Write what describes a cohort, in the first block; the other blocks repeat its name."""
    sheet, cohorts, formats = sheets.depreciation, content.cohorts, sheets.formats
    row, name = block_row(0, cohorts.count), content.ledger.labels.cohorts[cohort]
    for block in range(len(BLOCKS)):
        sheet.write_string(block_row(block, cohorts.count) + cohort, 0, name)
    row += cohort
    residual = int(cents(cohorts.residual_usd)[cohort])
    # What is written off: the cost, or the book value stated for machines that are owned already.
    sheet.write_number(row, COST, int(cents(cohorts.basis_usd)[cohort]), formats["count"])
    if "residual" in figures.fixed:
        sheet.write_number(row, RESIDUAL, residual, formats["count"])
    else:
        formula = f"=INT({address(row, COST)}*{RESIDUAL_CELL}+0.500001)"
        sheet.write_formula(row, RESIDUAL, formula, formats["count"], residual)
    enters, leaves = float(cohorts.basis_months[cohort]), float(cohorts.retired_months[cohort])
    sheet.write_number(row, LIFE, cohorts.life_months[cohort], formats["count"])
    sheet.write_number(row, ENTERS, enters if np.isfinite(enters) else NEVER_MONTHS, formats["plain"])
    sheet.write_number(row, PAID, cohorts.acquired_months[cohort], formats["plain"])
    sheet.write_number(row, LEAVES, leaves if np.isfinite(leaves) else NEVER_MONTHS, formats["plain"])
    opening = int(figures.schedule.opening_book_cents[cohort])
    straight = cohorts.declining_factor[cohort] == 0
    if straight:
        cells, start = _Cells(row), address(EDGE_ROW, FIRST_MONTH, fixed="RC")
        owned = f"AND({cells.paid}<{start},{cells.leaves}>={start})"
        formula = f"=IF({owned},{cells.cost}-{cells.accumulated(start)},0)"
        sheet.write_formula(row, OPENING, formula, formats["count"], opening)
    else:
        sheet.write_number(row, OPENING, opening, formats["count"])
    sheet.write_string(row, METHOD, "straight line" if straight else "declining balance (fixed)")


def _write_months(sheets: Sheets, content: WorkbookContent, figures: Figures, cohort: int) -> None:
    """Write a cohort's months in all four blocks."""
    cohorts, schedule, count = content.cohorts, figures.schedule, content.cohorts.count
    rows = [block_row(block, count) + cohort for block in range(len(BLOCKS))]
    values: tuple[NDArray[Any], ...] = (
        schedule.depreciation_cents[cohort] / 100,
        schedule.disposed_book_cents[cohort] / 100,
        schedule.closing_book_cents[cohort] / 100,
        np.cumsum(figures.charge_usd[cohort]),
    )
    straight = cohorts.declining_factor[cohort] == 0
    formats = sheets.formats
    for period in range(content.grid.period_count):
        column = FIRST_MONTH + period
        formulas = _month_formulas(rows, column)
        for block, row in enumerate(rows):
            value = float(values[block][period])
            if block < 2 and not straight:
                sheets.depreciation.write_number(row, column, value, formats["usd"])
            else:
                sheets.depreciation.write_formula(row, column, formulas[block], formats["usd"], value)


def _month_formulas(rows: list[int], column: int) -> tuple[str, str, str, str]:
    """Return the formulas of one cohort and month, one for each block."""
    cells = _Cells(rows[0])
    start, end = address(EDGE_ROW, column, fixed="R"), address(EDGE_ROW, column + 1, fixed="R")
    charge, disposed = address(rows[0], column), address(rows[1], column)
    first = column == FIRST_MONTH
    opening = f"{cells.opening}/100" if first else address(rows[2], column - 1)
    before = "0" if first else address(rows[3], column - 1)
    entered = f"IF(AND({start}<={cells.paid},{cells.paid}<{end}),{cells.cost}/100,0)"
    leaves = f"AND({start}<={cells.leaves},{cells.leaves}<{end})"
    held = f"MAX(0,MIN({end},{cells.leaves})-MAX({start},{cells.paid}))"
    growth = f"(EXP(LN(1+{RATE_CELL})*{held}/12)-1)"
    return (
        f"=({cells.accumulated(end)}-{cells.accumulated(start)})/100",
        f"=IF({leaves},({cells.cost}-{cells.accumulated(cells.leaves)})/100,0)",
        f"=ROUND({opening}+{entered}-{charge}-{disposed},2)",
        f"={before}+({opening}+{entered})*{growth}",
    )
