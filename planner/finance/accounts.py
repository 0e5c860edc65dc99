"""The chart of accounts: every kind of dollar the planner knows, and the views that count it.

Costs are positive, income is negative. Four views read the one ledger:

* **cash**: money that changes hands, when it does.
* **accrual**: the books: a purchase is spread over its life as depreciation, and the capital it ties up is
  charged.
* **economic**: cash, plus the value of what is still owned on the last day, as if sold then, less that of what is owned
  on the first, as if bought then. Net present value, TCO and levelised cost read this view; without those values a
  purchase late in the horizon would look like pure loss, and machines owned before it like a gift.

* **financing**: what lenders give and take. With cash it is the cash flow of the statements. It is in no measure of a
  plan's cost or value: the discount rate is the price of all capital, borrowed or own, and counts once.

An account may be in several views, and every dollar is posted once. Cash and accrual differ only in time: for
every cohort, capex − depreciation − book value disposed of = book value left. What is in no accrual view has
its counter-entry in ``balance_sheet``, so the plain sum of ledger rows, however grouped, is accrued cost.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Flag, StrEnum
from types import MappingProxyType


class View(Flag):
    """A way of reading the ledger."""

    CASH = 1
    ACCRUAL = 2
    ECONOMIC = 4
    FINANCING = 8


class Account(StrEnum):
    """An account of the ledger; :data:`ACCOUNTS` says what each holds."""

    CAPEX_ACCELERATORS = "capex_accelerators"
    CAPEX_HOSTS = "capex_hosts"
    CAPEX_NETWORK = "capex_network"
    CAPEX_STORAGE = "capex_storage"
    DEPRECIATION = "depreciation"
    RESALE = "resale"
    DISPOSAL_LOSS = "disposal_loss"
    RESIDUAL_VALUE = "residual_value"
    COST_OF_CAPITAL = "cost_of_capital"
    ENERGY = "energy"
    COOLING = "cooling"
    DEMAND_CHARGE = "demand_charge"
    COLOCATION = "colocation"
    OPERATIONS_STAFF = "operations_staff"
    SOFTWARE_ENGINEERS = "software_engineers"
    SUPPORT_CONTRACTS = "support_contracts"
    LICENCES = "licences"
    MAINTENANCE = "maintenance"
    INSURANCE = "insurance"
    SPARES = "spares"
    RMA = "rma"
    SLA_CREDITS = "sla_credits"
    CARBON = "carbon"
    BURST_RENTAL = "burst_rental"
    REVENUE = "revenue"
    TAX_CASH = "tax_cash"
    TAX_DEFERRED = "tax_deferred"
    BALANCE_SHEET = "balance_sheet"
    TAX_ON_END_VALUE = "tax_on_end_value"
    OPENING_VALUE = "opening_value"
    RENT = "rent"
    EXIT_FEES = "exit_fees"
    LOAN_DRAWN = "loan_drawn"
    LOAN_REPAID = "loan_repaid"
    LOAN_INTEREST = "loan_interest"
    TAX_ON_INTEREST = "tax_on_interest"
    PROPERTY_TAX = "property_tax"
    LEASE_STARTED = "lease_started"
    LEASE_USED = "lease_used"
    LEASE_PRINCIPAL = "lease_principal"
    LEASE_INTEREST = "lease_interest"
    OTHER_CAPITAL = "other_capital"
    LEASE_OWED = "lease_owed"
    ORDER_PAID = "order_paid"
    ORDER_SETTLED = "order_settled"
    ORDER_BALANCE = "order_balance"
    CAPEX_BUILDING = "capex_building"
    BUILDING_DEPRECIATION = "building_depreciation"
    SPACE = "space"


class Category(StrEnum):
    """The part of the statements an account belongs to (:mod:`planner.finance.statements`)."""

    REVENUE = "revenue"
    """Income statement, income."""
    COST_OF_SERVING = "cost_of_serving"
    """Income statement, what a gross margin takes off: machines, power, space, upkeep, what is rented or credited."""
    OPERATING_EXPENSE = "operating_expense"
    """Income statement, what an operating margin takes off besides: people, software, insurance, losses on what is
    retired. With these and the charge for capital, accrued cost is complete."""
    INTEREST = "interest"
    """Income statement, below operating income: what a lender or lessor is paid besides what was lent."""
    TAX = "tax"
    """Income statement, below income before tax."""
    LENDING = "lending"
    """Cash flow alone: what is lent and paid back."""
    INVESTING = "investing"
    """Cash flow alone: purchases and sales of hardware."""
    IMPUTED = "imputed"
    """In no statement: charges and values that no one pays, for cost and value to the owner."""
    COUNTER_ENTRY = "counter_entry"
    """In no statement: what makes all rows of a month sum to accrued cost."""
    TRANSFER = "transfer"
    """Balance sheet alone: moves two of its lines, and no cash."""


class Position(StrEnum):
    """A line of the balance sheet besides cash and equity."""

    HARDWARE = "hardware"
    """Asset: book value of what is owned."""
    RIGHT_OF_USE = "right_of_use"
    """Asset: book value of what is had under finance leases, until it is bought out."""
    BUILDING = "building"
    """Asset: book value of an owned building and its land."""
    DEPOSITS = "deposits"
    """Asset: paid on orders ahead of delivery, less what is owed after it; negative where more is owed."""
    LOANS = "loans"
    """Liability: what is owed to lenders."""
    LEASES = "leases"
    """Liability: what is owed to lessors under finance leases."""
    DEFERRED_TAX = "deferred_tax"
    """Liability: tax expense of the books that is not yet paid; negative where tax is paid ahead of the books."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountDescription:
    """What an account holds and which views count it."""

    description: str
    """One sentence for the reference page and the workbook."""
    views: View
    """The views that count it."""
    category: Category
    """The part of the statements it belongs to."""
    cause: str
    """The cause of a bridge that it belongs to; empty where it is no accrued cost."""
    positions: tuple[tuple[Position, int], ...]
    """Lines of the balance sheet that a posting moves besides cash and equity; +1 where it adds to a line, −1 where it
    takes from it."""


_EVERY = View.CASH | View.ACCRUAL | View.ECONOMIC
_PAID = View.CASH | View.ECONOMIC
INCOME_CATEGORIES = (
    Category.REVENUE,
    Category.COST_OF_SERVING,
    Category.OPERATING_EXPENSE,
    Category.INTEREST,
    Category.TAX,
)
"""The parts of the income statement, from the top."""


def _describe(
    description: str, views: View, category: Category, cause: str = "", position: tuple[Position, int] | None = None
) -> AccountDescription:
    """Return one entry of the chart; ``position`` is a line of the balance sheet and the sign of a posting there."""
    positions = () if position is None else (position,)
    return AccountDescription(description=description, views=views, category=category, cause=cause, positions=positions)


def _transfer(description: str, *positions: tuple[Position, int]) -> AccountDescription:
    """Return an entry that moves lines of the balance sheet against each other."""
    return AccountDescription(
        description=description, views=View(0), category=Category.TRANSFER, cause="", positions=positions
    )


_ADDS, _TAKES = (Position.HARDWARE, 1), (Position.HARDWARE, -1)


ACCOUNTS = MappingProxyType(
    {
        Account.CAPEX_ACCELERATORS: _describe(
            "Accelerators bought, at the discounted price.", _PAID, Category.INVESTING, position=_ADDS
        ),
        Account.CAPEX_HOSTS: _describe(
            "Servers the accelerators sit in: boards, CPUs, memory, chassis.", _PAID, Category.INVESTING, position=_ADDS
        ),
        Account.CAPEX_NETWORK: _describe(
            "Switches, cables and adapters of the cluster.", _PAID, Category.INVESTING, position=_ADDS
        ),
        Account.CAPEX_STORAGE: _describe("Storage bought with the cluster.", _PAID, Category.INVESTING, position=_ADDS),
        Account.DEPRECIATION: _describe(
            "Book depreciation of the month.", View.ACCRUAL, Category.COST_OF_SERVING, "price", position=_TAKES
        ),
        Account.RESALE: _describe(
            "Money received for retired hardware (negative).", _PAID, Category.INVESTING, position=_ADDS
        ),
        Account.DISPOSAL_LOSS: _describe(
            "Book value of retired hardware not recovered by its sale; negative for a gain.",
            View.ACCRUAL,
            Category.OPERATING_EXPENSE,
            "price",
            position=_TAKES,
        ),
        Account.RESIDUAL_VALUE: _describe(
            "Value of what is still owned on the horizon's last day (negative), as if sold then.",
            View.ECONOMIC,
            Category.IMPUTED,
        ),
        Account.COST_OF_CAPITAL: _describe(
            "Charge for capital tied up in book value; not cash, and never discounted as well.",
            View.ACCRUAL,
            Category.IMPUTED,
            "price",
        ),
        Account.ENERGY: _describe("Electricity of the IT load.", _EVERY, Category.COST_OF_SERVING, "power"),
        Account.COOLING: _describe(
            "Electricity above the IT load: (PUE − 1) times it.", _EVERY, Category.COST_OF_SERVING, "power"
        ),
        Account.DEMAND_CHARGE: _describe(
            "Charge per kW of the month's highest hour.", _EVERY, Category.COST_OF_SERVING, "power"
        ),
        Account.COLOCATION: _describe(
            "Rent per provisioned kW, used or not.", _EVERY, Category.COST_OF_SERVING, "power"
        ),
        Account.OPERATIONS_STAFF: _describe(
            "People who run the site and the fleet.", _EVERY, Category.OPERATING_EXPENSE, "people"
        ),
        Account.SOFTWARE_ENGINEERS: _describe(
            "Extra engineers a software stack needs.", _EVERY, Category.OPERATING_EXPENSE, "people"
        ),
        Account.SUPPORT_CONTRACTS: _describe(
            "Vendor support: named engineers, response times.", _EVERY, Category.OPERATING_EXPENSE, "people"
        ),
        Account.LICENCES: _describe("Software licences.", _EVERY, Category.OPERATING_EXPENSE, "price"),
        Account.MAINTENANCE: _describe(
            "Upkeep of hardware, as a share of its cost.", _EVERY, Category.COST_OF_SERVING, "price"
        ),
        Account.INSURANCE: _describe(
            "Insurance, as a share of hardware cost.", _EVERY, Category.OPERATING_EXPENSE, "price"
        ),
        Account.SPARES: _describe("Spare parts bought for the stock.", _EVERY, Category.COST_OF_SERVING, "failures"),
        Account.RMA: _describe(
            "Repairs and replacements the warranty does not pay.", _EVERY, Category.COST_OF_SERVING, "failures"
        ),
        Account.SLA_CREDITS: _describe(
            "Credits to customers for a missed service level.", _EVERY, Category.COST_OF_SERVING, "utilisation"
        ),
        Account.CARBON: _describe("Emissions at the carbon price.", _EVERY, Category.COST_OF_SERVING, "power"),
        Account.BURST_RENTAL: _describe(
            "Accelerators rented by the hour for what would be shed.", _EVERY, Category.COST_OF_SERVING, "utilisation"
        ),
        Account.REVENUE: _describe("Tokens sold, where a price is given (negative).", _EVERY, Category.REVENUE),
        Account.TAX_CASH: _describe("Income tax paid; negative where a loss lowers other tax.", _EVERY, Category.TAX),
        Account.TAX_DEFERRED: _describe(
            "Tax expense of the books not yet paid.", View.ACCRUAL, Category.TAX, position=(Position.DEFERRED_TAX, 1)
        ),
        Account.BALANCE_SHEET: _describe(
            "Counter-entry of purchases, sales and end value, which the books carry on the balance sheet: with it, "
            "all rows of a month and cluster sum to accrued cost.",
            View(0),
            Category.COUNTER_ENTRY,
        ),
        Account.TAX_ON_END_VALUE: _describe(
            "Income tax on what selling everything on the last day would bring above its tax basis; negative below it.",
            View.ECONOMIC,
            Category.IMPUTED,
        ),
        Account.OPENING_VALUE: _describe(
            "What machines owned before the start would fetch on the first day, after tax on their sale: what keeping "
            "them costs.",
            View.ECONOMIC,
            Category.IMPUTED,
        ),
        Account.RENT: _describe(
            "Machines under contract: reserved, leased, on demand, spot.", _EVERY, Category.COST_OF_SERVING, "price"
        ),
        Account.EXIT_FEES: _describe(
            "Rent owed for the rest of a term that is left early.", _EVERY, Category.OPERATING_EXPENSE, "price"
        ),
        Account.LOAN_DRAWN: _describe(
            "Lent on purchases (negative).", View.FINANCING, Category.LENDING, position=(Position.LOANS, -1)
        ),
        Account.LOAN_REPAID: _describe(
            "Paid back of what was lent.", View.FINANCING, Category.LENDING, position=(Position.LOANS, -1)
        ),
        Account.LOAN_INTEREST: _describe("Interest and fees of loans.", View.FINANCING, Category.INTEREST),
        Account.TAX_ON_INTEREST: _describe(
            "Income tax that interest and fees save (negative).", View.FINANCING, Category.TAX
        ),
        Account.PROPERTY_TAX: _describe(
            "Property tax on hardware and an owned building, assessed at book value.",
            _EVERY,
            Category.OPERATING_EXPENSE,
            "price",
        ),
        Account.LEASE_STARTED: _transfer(
            "Right to use machines under a finance lease, and the debt for it: the worth of its payments then.",
            (Position.RIGHT_OF_USE, 1),
            (Position.LEASES, 1),
        ),
        Account.LEASE_USED: _transfer(
            "Book value of leased machines written off, given back or bought out, from right of use to hardware.",
            (Position.HARDWARE, 1),
            (Position.RIGHT_OF_USE, -1),
        ),
        Account.LEASE_PRINCIPAL: _describe(
            "Paid off what is owed under finance leases, the buy-out included.",
            _PAID,
            Category.LENDING,
            position=(Position.LEASES, -1),
        ),
        Account.LEASE_INTEREST: _describe("Interest of finance leases.", _EVERY, Category.INTEREST, "price"),
        Account.OTHER_CAPITAL: _describe(
            "Charge for capital in what is paid on orders ahead of delivery, less that in what is owed to vendors and "
            "lessors, which is theirs.",
            View.ACCRUAL,
            Category.IMPUTED,
            "price",
        ),
        Account.LEASE_OWED: _describe(
            "Owed on the last day for leased machines that count at their value then, as if paid off.",
            View.ECONOMIC,
            Category.IMPUTED,
        ),
        Account.ORDER_PAID: _describe(
            "Deposits and milestones: paid on orders on other days than their deliveries'.",
            _PAID,
            Category.INVESTING,
            position=(Position.DEPOSITS, 1),
        ),
        Account.ORDER_SETTLED: _describe(
            "Of a delivery, what is paid on other days than its own (negative): set off against its cost.",
            _PAID,
            Category.INVESTING,
            position=(Position.DEPOSITS, 1),
        ),
        Account.ORDER_BALANCE: _describe(
            "Owed to vendors on the last day for what has come (positive), paid ahead for what has not (negative).",
            View.ECONOMIC,
            Category.IMPUTED,
        ),
        Account.CAPEX_BUILDING: _describe(
            "Paid for an owned building and its land.", _PAID, Category.INVESTING, position=(Position.BUILDING, 1)
        ),
        Account.BUILDING_DEPRECIATION: _describe(
            "Book depreciation of an owned building.",
            View.ACCRUAL,
            Category.COST_OF_SERVING,
            "power",
            position=(Position.BUILDING, -1),
        ),
        Account.SPACE: _describe(
            "Charged to clusters for their part of an owned building, and received by the site: together nothing.",
            _EVERY,
            Category.COST_OF_SERVING,
            "power",
        ),
    }
)
"""What each account holds, in the order of the reports."""

ACCOUNT_ORDER = tuple(Account)
"""Accounts by code: the code of an account is its position here. New accounts are added at the end."""
ACCOUNT_CODES = MappingProxyType({account: code for code, account in enumerate(ACCOUNT_ORDER)})


def accounts_of(category: Category) -> tuple[Account, ...]:
    """Return the accounts of a category, in the order of the reports."""
    return tuple(account for account in Account if ACCOUNTS[account].category is category)


@functools.cache
def codes_in(view: View) -> list[int]:
    """Return the codes of the accounts a view counts."""
    return [ACCOUNT_CODES[account] for account in Account if view in ACCOUNTS[account].views]
