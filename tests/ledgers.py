"""What the ledger of a run says of some accounts, in dollars."""

from __future__ import annotations

from collections.abc import Callable

from planner.finance.accounts import Account
from planner.finance.ledger import Dimension
from planner.run.simulate import RunResult

Run = Callable[..., RunResult]
"""The fixture that simulates the tiny scenario with overrides."""


def by_month(result: RunResult, *accounts: Account) -> list[float]:
    return _along(result, Dimension.MONTH, accounts)


def by_cluster(result: RunResult, *accounts: Account) -> list[float]:
    return _along(result, Dimension.CLUSTER, accounts)


def _along(result: RunResult, dimension: Dimension, accounts: tuple[Account, ...]) -> list[float]:
    table = result.ledger.totals_cents(dimension, Dimension.ACCOUNT)
    columns = [list(Account).index(account) for account in accounts]
    return [float(cents) / 100 for cents in table[:, columns].sum(axis=1)]


def total(result: RunResult, *accounts: Account) -> float:
    return sum(result.ledger.account_cents(account) for account in accounts) / 100
