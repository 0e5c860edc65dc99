"""The chart of accounts: one table, ``accounts.csv``, says everything the planner knows of an account.

A cell for each question, ``-`` where the answer is none. An empty or unknown cell, and a row without its member of
:class:`Account`, stop the program when it starts. What reads the table: the ledger's views and statements, bridges,
unit costs, FOCUS rows, processes that change a price, and the comparison with actual months.

A new account is a row of ``accounts.csv``, its member at the end of :class:`Account`, and a price: where it is paid
for a year per accelerator, person or dollar of machines, one line in :mod:`planner.finance.pricing`.
"""

from __future__ import annotations

from enum import Flag, StrEnum
from types import MappingProxyType

from planner.data_files import data_rows

NONE = "-"
"""Cell of a question that an account has no answer to."""


class View(Flag):
    """A view of the ledger: a set of accounts that is summed."""

    CASH = 1
    ACCRUAL = 2
    ECONOMIC = 4
    FINANCING = 8


class Category(StrEnum):
    """The section of the statements to which an account belongs (:mod:`planner.finance.statements`)."""

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
    WORKING_CAPITAL = "working_capital"
    """Cash flow alone: income and running cost paid in another month than their own."""


class Position(StrEnum):
    """A line of the balance sheet other than cash and equity."""

    HARDWARE = "hardware"
    """Asset: book value of what is owned."""
    RIGHT_OF_USE = "right_of_use"
    """Asset: book value of what is had under leases of more than a year, until it is bought out."""
    DEPOSITS = "deposits"
    """Asset: paid on orders ahead of delivery, less what is owed after it; negative where more is owed."""
    RECEIVABLES = "receivables"
    """Asset: sold and not yet received."""
    LOANS = "loans"
    """Liability: what is owed to lenders, less fees not yet amortised."""
    LEASES = "leases"
    """Liability: what is owed to lessors under leases of more than a year."""
    PAYABLES = "payables"
    """Liability: bought and not yet paid."""
    DEFERRED_TAX = "deferred_tax"
    """Liability: tax expense of the books that is not yet paid; negative where tax is paid ahead of the books."""


class Driver(StrEnum):
    """The quantity to which an account is proportional; a price is per unit of it."""

    DELIVERIES = "deliveries"
    RETIREMENTS = "retirements"
    BOOK_VALUE = "book_value"
    CAPITAL_IN_SERVICE = "capital_in_service"
    """What machines in service cost when they were bought."""
    ACCELERATORS = "accelerators"
    """Accelerators held, on average over a month."""
    ENGINEERS = "engineers"
    STAFF = "staff"
    RENTED_HOURS = "rented_hours"
    IT_ENERGY = "it_energy"
    OVERHEAD_ENERGY = "overhead_energy"
    """Cooling and distribution: energy at the meter less that of the machines."""
    FACILITY_ENERGY = "facility_energy"
    PEAK_POWER = "peak_power"
    PROVISIONED_POWER = "provisioned_power"
    SPARE_PARTS = "spare_parts"
    FAILURES = "failures"
    MISSED_TOKENS = "missed_tokens"
    BURST_HOURS = "burst_hours"
    API_TOKENS = "api_tokens"
    SOLD_TOKENS = "sold_tokens"
    CONTRACTS = "contracts"
    TAXABLE_INCOME = "taxable_income"
    LOANS = "loans"
    LEASES = "leases"
    ORDERS = "orders"
    INVOICES = "invoices"
    POSTINGS = "postings"


MEASURED_BY = MappingProxyType(
    {
        Driver.DELIVERIES: "on_site_accelerator_h",
        Driver.CAPITAL_IN_SERVICE: "on_site_accelerator_h",
        Driver.ACCELERATORS: "on_site_accelerator_h",
        Driver.ENGINEERS: "on_site_accelerator_h",
        Driver.STAFF: "on_site_accelerator_h",
        Driver.RENTED_HOURS: "on_site_accelerator_h",
        Driver.PROVISIONED_POWER: "on_site_accelerator_h",
        Driver.IT_ENERGY: "energy_kwh",
        Driver.OVERHEAD_ENERGY: "energy_kwh",
        Driver.FACILITY_ENERGY: "energy_kwh",
        Driver.PEAK_POWER: "peak_facility_kw",
        Driver.API_TOKENS: "served_tokens",
        Driver.SOLD_TOKENS: "served_tokens",
    }
)
"""The figure of actual months that a driver is proportional to; a driver that is not here is measured by none."""


class Dated(StrEnum):
    """When an account's money counts: through its month, or on a day of its own."""

    MONTH = "month"
    DELIVERY = "delivery"
    RETIREMENT = "retirement"
    FIRST_DAY = "first_day"
    LAST_DAY = "last_day"
    """As if all that is owned were sold, and all that is owed paid, when the horizon ends."""
    LEASE_PAYMENT = "lease_payment"
    ORDER_PAYMENT = "order_payment"
    ORDER_SETTLEMENT = "order_settlement"


_ALLOWED = {
    "category": tuple(Category),
    "driver": tuple(Driver),
    "sign": ("cost", "income"),
    "in_cost": ("yes", "no"),
    "dated": tuple(Dated),
    "terms": ("invoice", "at_once", NONE),
    "repriced_by": ("process", NONE),
    "behaviour": ("use", "load", "capacity", "one-off", NONE),
}
"""What a cell may say, by column; the other columns are free text."""
_ROWS = {row["account"]: row for row in data_rows(__file__, "accounts.csv")}


def _checked(name: str) -> dict[str, str]:
    """Return an account's row of the table, raising an error for a cell that is missing or unknown."""
    if name not in _ROWS:
        raise ValueError(f"accounts.csv has no row of the account {name}")
    row = _ROWS[name]
    for column, cell in row.items():
        if not cell:
            raise ValueError(f"accounts.csv: {name} has no {column}; write {NONE} for none")
        if column in _ALLOWED and cell not in _ALLOWED[column]:
            allowed = ", ".join(_ALLOWED[column])
            raise ValueError(f"accounts.csv: {column} of {name} is {cell}, none of {allowed}")
    if row["in_cost"] == "yes":
        # Without these a cost would be missing from bridges, unit costs and FOCUS in silence.
        needed = {"cause": "accrual", "behaviour": "accrual", "focus_charge": "cash"}
        for column, view in needed.items():
            if view in row["views"] and row[column] == NONE:
                raise ValueError(f"accounts.csv: {name} is a cost and needs a {column}")
    return row


def _text(cell: str) -> str:
    """Return a cell's text, empty for none."""
    return "" if cell == NONE else cell


class Account(StrEnum):
    """An account of the ledger, in report order; new ones go at the end, since codes are positions."""

    views: View
    """The views that count it."""
    category: Category
    """The part of the statements it belongs to."""
    driver: Driver
    """The quantity it is proportional to."""
    unit: str
    """Unit of that quantity."""
    is_income: bool
    """Whether it is gained: its amounts are negative in the ledger."""
    in_cost: bool
    """Whether cost per token counts it; income, its receipt and tax on it are not."""
    dated: Dated
    """When its money counts in present values."""
    is_invoiced: bool
    """Whether a vendor gives credit for it; pay, rent, fees and credits to customers are paid at once."""
    is_repriced: bool
    """Whether a process may change its price."""
    cause: str
    """The cause of a bridge that it belongs to; empty where it is no accrued cost."""
    behaviour: str
    """What it follows in unit costs: use; load, beyond what is there without any; capacity; or none of them (one-off).
    Empty where it is no accrued cost."""
    positions: tuple[tuple[Position, int], ...]
    """Lines of the balance sheet that a posting moves besides cash and equity; +1 where it adds to a line, −1 where it
    takes from it."""
    focus_charge: str
    """Charge category of FOCUS."""
    focus_service: str
    """Service category of FOCUS."""
    description: str
    """One sentence for the reference page and the workbook."""

    def __new__(cls, name: str) -> Account:
        """Return an account with the cells of its row in the chart of accounts."""
        account = str.__new__(cls, name)
        account._value_ = name
        row = _checked(name)
        account.views = View(0)
        for view in _text(row["views"]).split():
            account.views |= View[view.upper()]
        account.category = Category(row["category"])
        account.driver = Driver(row["driver"])
        account.unit = row["unit"]
        account.is_income = row["sign"] == "income"
        account.in_cost = row["in_cost"] == "yes"
        account.dated = Dated(row["dated"])
        account.is_invoiced = row["terms"] == "invoice"
        account.is_repriced = row["repriced_by"] == "process"
        account.cause = _text(row["cause"])
        account.behaviour = _text(row["behaviour"])
        moves = _text(row["positions"]).split()
        account.positions = tuple((Position(move[1:]), int(f"{move[0]}1")) for move in moves)
        account.focus_charge = row["focus_charge"]
        account.focus_service = row["focus_service"]
        account.description = row["description"]
        return account

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
    API = "api"
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
    LOAN_FEES = "loan_fees"
    LOAN_FEES_AMORTISED = "loan_fees_amortised"
    RENT_LEASED = "rent_leased"
    RENT_CAPITALISED = "rent_capitalised"
    RIGHT_OF_USE_COST = "right_of_use_cost"
    RENT_INTEREST = "rent_interest"
    RECEIVABLES = "receivables"
    PAYABLES = "payables"
    RECEIVABLES_END = "receivables_end"


ACCOUNT_ORDER = tuple(Account)
"""Accounts by code: the code of an account is its position here."""
ACCOUNT_CODES = MappingProxyType({account: code for code, account in enumerate(ACCOUNT_ORDER)})
if [*_ROWS] != [*Account]:
    raise ValueError(
        "the rows of accounts.csv and the members of Account differ: "
        + ", ".join(sorted({*_ROWS} ^ {*Account}) or ["their order"])
    )


CAPEX_ACCOUNTS = tuple(account for account in Account if account.dated is Dated.DELIVERY)
"""The accounts a cohort's cost is made of, in the order of a node's prices."""
COST_OF_SERVING_ACCOUNTS = tuple(
    account for account in Account if account.category is Category.COST_OF_SERVING and account.views
)
"""Of accrued cost, which no accounting standard moves."""
OPERATING_EXPENSE_ACCOUNTS = tuple(
    account for account in Account if account.category is Category.OPERATING_EXPENSE
)
NOT_COST_ACCOUNTS = tuple(account for account in Account if not account.in_cost)
"""Left out of cost per token: income, when it is received, and tax on it."""
END_ACCOUNTS = tuple(account for account in Account if account.dated is Dated.LAST_DAY)
"""What would change hands on the last day if all that is owned were sold."""
DATED_ACCOUNTS = tuple(account for account in Account if account.dated is not Dated.MONTH)
"""What counts on a day of its own; all else runs through its month."""
