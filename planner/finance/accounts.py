"""The chart of accounts: every kind of dollar the planner knows, and the views that count it.

Costs are positive, income is negative. Three views read the one ledger:

* **cash**: money that changes hands, when it does.
* **accrual**: the books: a purchase is spread over its life as depreciation, and the capital it ties up is
  charged.
* **economic**: cash, plus the value of what is still owned on the last day, as if sold then, less that of what is owned
  on the first, as if bought then. Net present value, TCO and levelised cost read this view; without those values a
  purchase late in the horizon would look like pure loss, and machines owned before it like a gift.

An account may be in several views, and every dollar is posted once. Cash and accrual differ only in time: for
every cohort, capex − depreciation − book value disposed of = book value left. What is in no accrual view has
its counter-entry in ``balance_sheet``, so the plain sum of ledger rows, however grouped, is accrued cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, StrEnum
from types import MappingProxyType


class View(Flag):
    """A way of reading the ledger."""

    CASH = 1
    ACCRUAL = 2
    ECONOMIC = 4


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountDescription:
    """What an account holds and which views count it."""

    description: str
    """One sentence for the reference page and the workbook."""
    views: View
    """The views that count it."""
    cause: str
    """The cause of a bridge that it belongs to; empty where it is no accrued cost."""


_EVERY = View.CASH | View.ACCRUAL | View.ECONOMIC
_PAID = View.CASH | View.ECONOMIC


def _describe(description: str, views: View, cause: str = "") -> AccountDescription:
    """Return one entry of the chart."""
    return AccountDescription(description=description, views=views, cause=cause)


ACCOUNTS = MappingProxyType(
    {
        Account.CAPEX_ACCELERATORS: _describe("Accelerators bought, at the discounted price.", _PAID),
        Account.CAPEX_HOSTS: _describe("Servers the accelerators sit in: boards, CPUs, memory, chassis.", _PAID),
        Account.CAPEX_NETWORK: _describe("Switches, cables and adapters of the cluster.", _PAID),
        Account.CAPEX_STORAGE: _describe("Storage bought with the cluster.", _PAID),
        Account.DEPRECIATION: _describe("Book depreciation of the month.", View.ACCRUAL, "price"),
        Account.RESALE: _describe("Money received for retired hardware (negative).", _PAID),
        Account.DISPOSAL_LOSS: _describe(
            "Book value of retired hardware not recovered by its sale; negative for a gain.", View.ACCRUAL, "price"
        ),
        Account.RESIDUAL_VALUE: _describe(
            "Value of what is still owned on the horizon's last day (negative), as if sold then.",
            View.ECONOMIC,
        ),
        Account.COST_OF_CAPITAL: _describe(
            "Charge for capital tied up in book value; not cash, and never discounted as well.", View.ACCRUAL, "price"
        ),
        Account.ENERGY: _describe("Electricity of the IT load.", _EVERY, "power"),
        Account.COOLING: _describe("Electricity above the IT load: (PUE − 1) times it.", _EVERY, "power"),
        Account.DEMAND_CHARGE: _describe("Charge per kW of the month's highest hour.", _EVERY, "power"),
        Account.COLOCATION: _describe("Rent per provisioned kW, used or not.", _EVERY, "power"),
        Account.OPERATIONS_STAFF: _describe("People who run the site and the fleet.", _EVERY, "people"),
        Account.SOFTWARE_ENGINEERS: _describe("Extra engineers a software stack needs.", _EVERY, "people"),
        Account.SUPPORT_CONTRACTS: _describe("Vendor support: named engineers, response times.", _EVERY, "people"),
        Account.LICENCES: _describe("Software licences.", _EVERY, "price"),
        Account.MAINTENANCE: _describe("Upkeep of hardware, as a share of its cost.", _EVERY, "price"),
        Account.INSURANCE: _describe("Insurance, as a share of hardware cost.", _EVERY, "price"),
        Account.SPARES: _describe("Spare parts bought for the stock.", _EVERY, "failures"),
        Account.RMA: _describe("Repairs and replacements the warranty does not pay.", _EVERY, "failures"),
        Account.SLA_CREDITS: _describe("Credits to customers for a missed service level.", _EVERY, "utilisation"),
        Account.CARBON: _describe("Emissions at the carbon price.", _EVERY, "power"),
        Account.BURST_RENTAL: _describe(
            "Accelerators rented by the hour for what would be shed.", _EVERY, "utilisation"
        ),
        Account.REVENUE: _describe("Tokens sold, where a price is given (negative).", _EVERY),
        Account.TAX_CASH: _describe("Income tax paid; negative where a loss lowers other tax.", _EVERY),
        Account.TAX_DEFERRED: _describe("Tax expense of the books not yet paid.", View.ACCRUAL),
        Account.BALANCE_SHEET: _describe(
            "Counter-entry of purchases, sales and end value, which the books carry on the balance sheet: with it, "
            "all rows of a month and cluster sum to accrued cost.",
            View(0),
        ),
        Account.TAX_ON_END_VALUE: _describe(
            "Income tax on what selling everything on the last day would bring above its tax basis; negative below it.",
            View.ECONOMIC,
        ),
        Account.OPENING_VALUE: _describe(
            "What machines owned before the start would fetch on the first day, after tax on their sale: what keeping "
            "them costs.",
            View.ECONOMIC,
        ),
    }
)
"""What each account holds, in the order of the reports."""

ACCOUNT_ORDER = tuple(Account)
"""Accounts by code: the code of an account is its position here. New accounts are added at the end."""
ACCOUNT_CODES = MappingProxyType({account: code for code, account in enumerate(ACCOUNT_ORDER)})
CAPEX_ACCOUNTS = (
    Account.CAPEX_ACCELERATORS,
    Account.CAPEX_HOSTS,
    Account.CAPEX_NETWORK,
    Account.CAPEX_STORAGE,
)
"""The accounts a cohort's cost is made of, in the order of a node's prices."""
COST_OF_SERVING_ACCOUNTS = (
    Account.DEPRECIATION,
    Account.ENERGY,
    Account.COOLING,
    Account.DEMAND_CHARGE,
    Account.COLOCATION,
    Account.MAINTENANCE,
    Account.SPARES,
    Account.RMA,
    Account.SLA_CREDITS,
    Account.CARBON,
    Account.BURST_RENTAL,
)
"""Cost of revenue, which a gross margin takes off: machines, power, space, upkeep, what is rented or credited."""
OPERATING_EXPENSE_ACCOUNTS = (
    Account.DISPOSAL_LOSS,
    Account.OPERATIONS_STAFF,
    Account.SOFTWARE_ENGINEERS,
    Account.SUPPORT_CONTRACTS,
    Account.LICENCES,
    Account.INSURANCE,
)
"""What an operating margin takes off besides: people, software, insurance, losses on what is retired. With these and
the charge for capital, accrued cost is complete."""
NOT_COST_ACCOUNTS = (Account.REVENUE, Account.TAX_CASH, Account.TAX_DEFERRED, Account.TAX_ON_END_VALUE)
"""Left out of cost per token: income, and tax on it."""
END_ACCOUNTS = (Account.RESIDUAL_VALUE, Account.TAX_ON_END_VALUE)
"""What would change hands on the last day if all that is owned were sold."""
DATED_ACCOUNTS = (*CAPEX_ACCOUNTS, Account.RESALE, *END_ACCOUNTS, Account.OPENING_VALUE)
"""What counts on a day of its own; all else runs through its month."""


def codes_in(view: View) -> list[int]:
    """Return the codes of the accounts a view counts."""
    return [ACCOUNT_CODES[account] for account in Account if view in ACCOUNTS[account].views]
