"""``workbook.xlsx``: the run as finance works with it, with live formulas.

Three input cells on the summary sheet (discount rate, electricity price, residual value) move every sheet: the monthly
profit and loss and the cash flow are sums over the ledger sheet, depreciation and capital charge are computed cohort by
cohort, energy cluster by cluster, and the headline measures follow. Every formula is stored with the value the
simulation found, so that a reader that does not calculate shows the right figures. With the inputs as simulated, every
cell equals the ledger to the cent; with others, what a new run would find.

What an input moves: the discount rate moves NPV, levelised cost and cost of capital. The electricity price moves energy
and cooling, hour by hour in ratio whatever the tariff's shape, and not demand charges. The residual moves the books
alone: depreciation, losses on disposal, cost of capital. Tax follows all three. An input that the sheets cannot follow
in some setting is not painted as one there, and the summary says why (:func:`figures_of`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.errors import ConservationError
from planner.finance.accounts import Account, View
from planner.finance.depreciation import capital_charge_usd, depreciate
from planner.finance.ledger import Dimension
from planner.finance.money import cents, series_cents, whole_cents
from planner.finance.tax import LossRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from planner.finance.depreciation import Cohorts, DepreciationSchedule
    from planner.finance.ledger import Ledger
    from planner.finance.months import MonthGrid
    from planner.finance.tax import TaxRules


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetTable:
    """A plain table for a sheet: headings and rows of text and numbers."""

    headings: tuple[str, ...]
    """Column headings."""
    rows: Sequence[Sequence[object]]
    """Rows of cells; None is an empty cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkbookContent:
    """Everything the workbook shows."""

    title: str
    """Name of the scenario."""
    created: datetime
    """Time stamp stored in the file; given, not read from a clock, so that the same run gives the same bytes."""
    grid: MonthGrid
    """The months of the horizon."""
    ledger: Ledger
    """Every dollar."""
    cohorts: Cohorts
    """The purchase cohorts, in the order of the ledger's cohort names."""
    discount_rate_per_year: float
    """Discount rate and rate of the capital charge."""
    running_months: NDArray[np.float64]
    """Months from the start to when each month's running flows count, shape (months,)."""
    dated_rows: NDArray[np.intp]
    """Ledger rows that count on a day of their own: purchases, sales, end value."""
    dated_months: NDArray[np.float64]
    """Months from the start to that day, in the order of those rows."""
    electricity_usd_per_kwh: float
    """Price of energy on the first day, or its average under time-of-use windows."""
    energy_usd: NDArray[np.float64]
    """Energy before rounding, shape (months, clusters)."""
    cooling_usd: NDArray[np.float64]
    """Cooling before rounding, shape (months, clusters)."""
    output_tokens: NDArray[np.float64]
    """Output tokens served by month, shape (months,)."""
    total_tokens: NDArray[np.float64]
    """All tokens served by month, shape (months,)."""
    assumptions: SheetTable
    """The assumptions with their sources."""
    events: SheetTable
    """What happened, in time order."""
    levelised_usd_per_million: Mapping[str, float | None]
    """Levelised cost as simulated, of ``output`` and ``total`` tokens."""
    tax: TaxRules | None = None
    purchase_income_cents: NDArray[np.int64] | None = None
    """What purchases add to taxable income (gains on sales less tax depreciation), shape (months,); None untaxed."""
    more: Mapping[str, SheetTable] = field(default_factory=dict)
    """Further sheets of plain tables, by their names, after all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures behind the formulas, worked out once from the content."""

    schedule: DepreciationSchedule
    """Book life of each cohort."""
    charge_usd: NDArray[np.float64]
    """Cost of capital before rounding, shape (cohorts, months)."""
    residual_fraction: float | None
    """The residual as a share of cost where all cohorts share one; None where they do not."""
    fixed: Mapping[str, str]
    """Inputs that the sheets do not follow in this run, and why: ``electricity``, ``residual``, ``levelised``."""
    table_cents: NDArray[np.int64]
    """The ledger by month and account, shape (months, accounts)."""
    charge_cents: NDArray[np.int64]
    """Cost of capital in cents, shape (cohorts, months)."""


def figures_of(content: WorkbookContent) -> Figures:
    """Return the figures behind the formulas, or raise ConservationError where cohorts and ledger disagree."""
    ledger, cohorts = content.ledger, content.cohorts
    if len(ledger.labels.cohorts) != cohorts.count or len(ledger.labels.months) != content.grid.period_count:
        msg = "the workbook's cohorts or months are not those of its ledger"
        raise ConservationError(msg)
    schedule = depreciate(cohorts, content.grid.edge_coordinates)
    charge = capital_charge_usd(schedule, content.discount_rate_per_year)
    figures = Figures(
        schedule=schedule,
        charge_usd=charge,
        charge_cents=series_cents(charge, axis=1),
        residual_fraction=_common_fraction(cohorts),
        fixed=_fixed(content),
        table_cents=ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT),
    )
    by_account = ledger.totals_cents(Dimension.ACCOUNT, Dimension.MONTH)
    expected = {
        Account.DEPRECIATION: schedule.depreciation_cents,
        Account.DISPOSAL_LOSS: schedule.disposal_loss_cents,
        Account.COST_OF_CAPITAL: figures.charge_cents,
        Account.ENERGY: series_cents(content.energy_usd).T,
        Account.COOLING: series_cents(content.cooling_usd).T,
    }
    for account, table in expected.items():
        found = by_account[list(Account).index(account)]
        if np.any(found != table.sum(axis=0)):
            msg = f"{account}: the ledger does not hold what the workbook's sheets give"
            raise ConservationError(msg)
    return figures


def _common_fraction(cohorts: Cohorts) -> float | None:
    """Return the share of cost that gives every cohort's residual to the cent, or None."""
    priced = np.flatnonzero(cohorts.cost_usd > 0)
    if priced.size == 0:
        return 0.0
    fraction = round(float(cohorts.residual_usd[priced[0]] / cohorts.cost_usd[priced[0]]), 9)
    same = np.array_equal(
        whole_cents(cents(cohorts.cost_usd).astype(np.float64) * fraction), cents(cohorts.residual_usd)
    )
    return fraction if same else None


def _fixed(content: WorkbookContent) -> dict[str, str]:
    """Return the inputs that the sheets do not follow in this run, and why."""
    fixed = {}
    if np.any(content.cohorts.declining_factor > 0):
        fixed["residual"] = "does not follow: declining balance is as simulated"
    elif content.ledger.account_cents(Account.PROPERTY_TAX):
        fixed["residual"] = "does not follow: property tax on book value is as simulated"
    elif not np.array_equal(content.cohorts.basis_usd, content.cohorts.cost_usd):
        fixed["residual"] = "does not follow: machines owned already have a stated book value"
    elif _common_fraction(content.cohorts) is None:
        fixed["residual"] = "does not follow: it differs by cohort, see residual_cents on Depreciation"
    if content.tax is not None and content.tax.losses is LossRule.CARRY_FORWARD:
        fixed["electricity"] = "does not follow: tax with losses carried forward is as simulated"
        fixed["levelised"] = "as simulated: losses carried forward take a search"
    elif content.electricity_usd_per_kwh <= 0:
        fixed["electricity"] = "does not follow: a price of zero cannot be scaled"
    return fixed


def write_workbook(content: WorkbookContent) -> bytes:
    """Return the workbook as bytes; the same content gives the same bytes."""
    import xlsxwriter  # type: ignore[import-untyped]  # noqa: PLC0415 - only this function needs it

    from planner.reporting.workbook_depreciation import write_depreciation  # noqa: PLC0415 - reads this module
    from planner.reporting.workbook_sheets import Sheets, write_ledger, write_plain  # noqa: PLC0415 - as above
    from planner.reporting.workbook_statements import write_statement  # noqa: PLC0415 - as above
    from planner.reporting.workbook_summary import write_summary  # noqa: PLC0415 - as above
    from planner.reporting.workbook_workings import write_energy, write_tax  # noqa: PLC0415 - as above

    figures = figures_of(content)
    target = BytesIO()
    options: dict[str, Any] = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(target, options) as book:
        book.set_properties({"title": content.title, "created": content.created})
        sheets = Sheets.add_to(book)
        write_ledger(sheets, content)
        write_depreciation(sheets, content, figures)
        write_energy(sheets, content, figures)
        accrual = write_statement(sheets, content, figures, View.ACCRUAL)
        economic = write_statement(sheets, content, figures, View.ECONOMIC)
        write_tax(sheets, content, accrual)
        write_summary(sheets, content, figures, (accrual, economic))
        write_plain(sheets.assumptions, sheets, content.assumptions)
        write_plain(sheets.events, sheets, content.events)
        for name, table in content.more.items():
            write_plain(book.add_worksheet(name), sheets, table)
    return target.getvalue()
