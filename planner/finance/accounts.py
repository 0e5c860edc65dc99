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
from enum import Flag, StrEnum
from types import MappingProxyType


class View(Flag):
    """A way of reading the ledger."""

    CASH = 1
    ACCRUAL = 2
    ECONOMIC = 4
    FINANCING = 8


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


_NONE, _PAID = View(0), View.CASH | View.ECONOMIC
_EVERY = _PAID | View.ACCRUAL


class Account(StrEnum):
    """An account of the ledger, in the order of the reports; new ones are added at the end, as codes are places."""

    views: View
    """The views that count it."""
    category: Category
    """The part of the statements it belongs to."""
    cause: str
    """The cause of a bridge that it belongs to; empty where it is no accrued cost."""
    positions: tuple[tuple[Position, int], ...]
    """Lines of the balance sheet that a posting moves besides cash and equity; +1 where it adds to a line, −1 where it
    takes from it."""
    description: str
    """One sentence for the reference page and the workbook."""

    def __new__(
        cls, name: str, views: View = _NONE, category: Category = Category.TRANSFER, cause: str = "",
        positions: tuple[tuple[Position, int], ...] = (), description: str = "",
    ) -> Account:  # fmt: skip
        """Make an account with all that is known of it; one that is there is found by its name alone."""
        account = str.__new__(cls, name)
        account._value_ = name
        account.views, account.category, account.cause = views, category, cause
        account.positions, account.description = positions, description
        return account

    # fmt: off
    CAPEX_ACCELERATORS = ("capex_accelerators", _PAID, Category.INVESTING, "", ((Position.HARDWARE, 1),),
        "Accelerators bought, at the discounted price.")
    CAPEX_HOSTS = ("capex_hosts", _PAID, Category.INVESTING, "", ((Position.HARDWARE, 1),),
        "Servers the accelerators sit in: boards, CPUs, memory, chassis.")
    CAPEX_NETWORK = ("capex_network", _PAID, Category.INVESTING, "", ((Position.HARDWARE, 1),),
        "Switches, cables and adapters of the cluster.")
    CAPEX_STORAGE = ("capex_storage", _PAID, Category.INVESTING, "", ((Position.HARDWARE, 1),),
        "Storage bought with the cluster.")
    DEPRECIATION = ("depreciation", View.ACCRUAL, Category.COST_OF_SERVING, "price", ((Position.HARDWARE, -1),),
        "Book depreciation of the month.")
    RESALE = ("resale", _PAID, Category.INVESTING, "", ((Position.HARDWARE, 1),),
        "Money received for retired hardware (negative).")
    DISPOSAL_LOSS = ("disposal_loss", View.ACCRUAL, Category.OPERATING_EXPENSE, "price", ((Position.HARDWARE, -1),),
        "Book value of retired hardware not recovered by its sale; negative for a gain.")
    RESIDUAL_VALUE = ("residual_value", View.ECONOMIC, Category.IMPUTED, "", (),
        "Value of what is still owned on the horizon's last day (negative), as if sold then.")
    COST_OF_CAPITAL = ("cost_of_capital", View.ACCRUAL, Category.IMPUTED, "price", (),
        "Charge for capital tied up in book value; not cash, and never discounted as well.")
    ENERGY = ("energy", _EVERY, Category.COST_OF_SERVING, "power", (),
        "Electricity of the IT load.")
    COOLING = ("cooling", _EVERY, Category.COST_OF_SERVING, "power", (),
        "Electricity above the IT load: (PUE − 1) times it.")
    DEMAND_CHARGE = ("demand_charge", _EVERY, Category.COST_OF_SERVING, "power", (),
        "Charge per kW of the month's highest hour.")
    COLOCATION = ("colocation", _EVERY, Category.COST_OF_SERVING, "power", (),
        "Rent per provisioned kW, used or not.")
    OPERATIONS_STAFF = ("operations_staff", _EVERY, Category.OPERATING_EXPENSE, "people", (),
        "People who run the site and the fleet.")
    SOFTWARE_ENGINEERS = ("software_engineers", _EVERY, Category.OPERATING_EXPENSE, "people", (),
        "Extra engineers a software stack needs.")
    SUPPORT_CONTRACTS = ("support_contracts", _EVERY, Category.OPERATING_EXPENSE, "people", (),
        "Vendor support: named engineers, response times.")
    LICENCES = ("licences", _EVERY, Category.OPERATING_EXPENSE, "price", (),
        "Software licences.")
    MAINTENANCE = ("maintenance", _EVERY, Category.COST_OF_SERVING, "price", (),
        "Upkeep of hardware, as a share of its cost.")
    INSURANCE = ("insurance", _EVERY, Category.OPERATING_EXPENSE, "price", (),
        "Insurance, as a share of hardware cost.")
    SPARES = ("spares", _EVERY, Category.COST_OF_SERVING, "failures", (),
        "Spare parts bought for the stock.")
    RMA = ("rma", _EVERY, Category.COST_OF_SERVING, "failures", (),
        "Repairs and replacements the warranty does not pay.")
    SLA_CREDITS = ("sla_credits", _EVERY, Category.COST_OF_SERVING, "utilisation", (),
        "Credits to customers for a missed service level.")
    CARBON = ("carbon", _EVERY, Category.COST_OF_SERVING, "power", (),
        "Emissions at the carbon price.")
    BURST_RENTAL = ("burst_rental", _EVERY, Category.COST_OF_SERVING, "utilisation", (),
        "Accelerators rented by the hour for what would be shed.")
    REVENUE = ("revenue", _EVERY, Category.REVENUE, "", (),
        "Tokens sold, where a price is given (negative).")
    TAX_CASH = ("tax_cash", _EVERY, Category.TAX, "", (),
        "Income tax paid; negative where a loss lowers other tax.")
    TAX_DEFERRED = ("tax_deferred", View.ACCRUAL, Category.TAX, "", ((Position.DEFERRED_TAX, 1),),
        "Tax expense of the books not yet paid.")
    BALANCE_SHEET = ("balance_sheet", _NONE, Category.COUNTER_ENTRY, "", (),
        "Counter-entry of purchases, sales and end value, which the books carry on the balance sheet: with "
        "it, all rows of a month and cluster sum to accrued cost.")
    TAX_ON_END_VALUE = ("tax_on_end_value", View.ECONOMIC, Category.IMPUTED, "", (),
        "Income tax on what selling everything on the last day would bring above its tax basis; negative "
        "below it.")
    OPENING_VALUE = ("opening_value", View.ECONOMIC, Category.IMPUTED, "", (),
        "What machines owned before the start would fetch on the first day, after tax on their sale: what "
        "keeping them costs.")
    RENT = ("rent", _EVERY, Category.COST_OF_SERVING, "price", (),
        "Machines under contract: reserved, leased, on demand, spot.")
    EXIT_FEES = ("exit_fees", _EVERY, Category.OPERATING_EXPENSE, "price", (),
        "Rent owed for the rest of a term that is left early.")
    LOAN_DRAWN = ("loan_drawn", View.FINANCING, Category.LENDING, "", ((Position.LOANS, -1),),
        "Lent on purchases (negative).")
    LOAN_REPAID = ("loan_repaid", View.FINANCING, Category.LENDING, "", ((Position.LOANS, -1),),
        "Paid back of what was lent.")
    LOAN_INTEREST = ("loan_interest", View.FINANCING, Category.INTEREST, "", (),
        "Interest and fees of loans.")
    TAX_ON_INTEREST = ("tax_on_interest", View.FINANCING, Category.TAX, "", (),
        "Income tax that interest and fees save (negative).")
    PROPERTY_TAX = ("property_tax", _EVERY, Category.OPERATING_EXPENSE, "price", (),
        "Property tax on hardware and an owned building, assessed at book value.")
    LEASE_STARTED = ("lease_started", _NONE, Category.TRANSFER, "", ((Position.RIGHT_OF_USE, 1), (Position.LEASES, 1)),
        "Right to use machines under a finance lease, and the debt for it: the worth of its payments then.")
    LEASE_USED = ("lease_used", _NONE, Category.TRANSFER, "", ((Position.HARDWARE, 1), (Position.RIGHT_OF_USE, -1)),
        "Book value of leased machines written off, given back or bought out, from right of use to hardware.")
    LEASE_PRINCIPAL = ("lease_principal", _PAID, Category.LENDING, "", ((Position.LEASES, -1),),
        "Paid off what is owed under finance leases, the buy-out included.")
    LEASE_INTEREST = ("lease_interest", _EVERY, Category.INTEREST, "price", (),
        "Interest of finance leases.")
    OTHER_CAPITAL = ("other_capital", View.ACCRUAL, Category.IMPUTED, "price", (),
        "Charge for capital in what is paid on orders ahead of delivery, less that in what is owed to vendors "
        "and lessors, which is theirs.")
    LEASE_OWED = ("lease_owed", View.ECONOMIC, Category.IMPUTED, "", (),
        "Owed on the last day for leased machines that count at their value then, as if paid off.")
    ORDER_PAID = ("order_paid", _PAID, Category.INVESTING, "", ((Position.DEPOSITS, 1),),
        "Deposits and milestones: paid on orders on other days than their deliveries'.")
    ORDER_SETTLED = ("order_settled", _PAID, Category.INVESTING, "", ((Position.DEPOSITS, 1),),
        "Of a delivery, what is paid on other days than its own (negative): set off against its cost.")
    ORDER_BALANCE = ("order_balance", View.ECONOMIC, Category.IMPUTED, "", (),
        "Owed to vendors on the last day for what has come (positive), paid ahead for what has not "
        "(negative).")
    CAPEX_BUILDING = ("capex_building", _PAID, Category.INVESTING, "", ((Position.BUILDING, 1),),
        "Paid for an owned building and its land.")
    BUILDING_DEPRECIATION = ("building_depreciation", View.ACCRUAL, Category.COST_OF_SERVING, "power",
        ((Position.BUILDING, -1),), "Book depreciation of an owned building.")
    SPACE = ("space", _EVERY, Category.COST_OF_SERVING, "power", (),
        "Charged to clusters for their part of an owned building, and received by the site: together nothing.")
    # fmt: on


INCOME_CATEGORIES = (
    Category.REVENUE,
    Category.COST_OF_SERVING,
    Category.OPERATING_EXPENSE,
    Category.INTEREST,
    Category.TAX,
)
"""The parts of the income statement, from the top."""
ACCOUNT_ORDER = tuple(Account)
"""Accounts by code: the code of an account is its position here."""
ACCOUNT_CODES = MappingProxyType({account: code for code, account in enumerate(ACCOUNT_ORDER)})


def accounts_of(category: Category) -> tuple[Account, ...]:
    """Return the accounts of a category, in the order of the reports."""
    return tuple(account for account in Account if account.category is category)


@functools.cache
def codes_in(view: View) -> list[int]:
    """Return the codes of the accounts a view counts."""
    return [ACCOUNT_CODES[account] for account in Account if view in account.views]


CAPEX_ACCOUNTS = (
    Account.CAPEX_ACCELERATORS,
    Account.CAPEX_HOSTS,
    Account.CAPEX_NETWORK,
    Account.CAPEX_STORAGE,
)
"""The accounts a cohort's cost is made of, in the order of a node's prices."""
COST_OF_SERVING_ACCOUNTS = accounts_of(Category.COST_OF_SERVING)
OPERATING_EXPENSE_ACCOUNTS = accounts_of(Category.OPERATING_EXPENSE)
NOT_COST_ACCOUNTS = (Account.REVENUE, Account.TAX_CASH, Account.TAX_DEFERRED, Account.TAX_ON_END_VALUE)
"""Left out of cost per token: income, and tax on it."""
INCOME_ACCOUNTS = (
    Account.REVENUE, Account.RESALE, Account.RESIDUAL_VALUE, Account.LOAN_DRAWN, Account.TAX_ON_INTEREST,
    Account.ORDER_SETTLED,
)  # fmt: skip
"""What is gained: their amounts are negative in the ledger."""
CAPITAL_CHARGE_ACCOUNTS = (Account.COST_OF_CAPITAL, Account.OTHER_CAPITAL)
"""Accrued cost that nobody pays: in no income, taxable or of the books."""
END_ACCOUNTS = (Account.RESIDUAL_VALUE, Account.TAX_ON_END_VALUE, Account.LEASE_OWED, Account.ORDER_BALANCE)
"""What would change hands on the last day if all that is owned were sold."""
LEASE_PAYMENTS = (Account.LEASE_PRINCIPAL, Account.LEASE_INTEREST)
"""What a lessor is paid, at the end of each month of a lease."""
DATED_ACCOUNTS = (
    *CAPEX_ACCOUNTS, Account.RESALE, *END_ACCOUNTS, Account.OPENING_VALUE, *LEASE_PAYMENTS, Account.ORDER_PAID,
    Account.ORDER_SETTLED, Account.CAPEX_BUILDING,
)  # fmt: skip
"""What counts on a day of its own; all else runs through its month."""
