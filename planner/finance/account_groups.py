"""Accounts that count together: purchases, what is no cost, what is paid on a day of its own."""

from __future__ import annotations

from planner.finance.accounts import Account, Category, accounts_of

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
