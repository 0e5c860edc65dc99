"""The money of the memo, from a folder's ledger: cash by year, and what cheaper accelerators would change."""

from __future__ import annotations

from planner.finance.accounts import ACCOUNT_ORDER, Account, View
from planner.output.report.contents import Contents, Table
from planner.output.report.run_sections import account_totals
from planner.output.report.words import NOTHING, dollars, percent, unit_price
from planner.run.measure_names import FLEET

BOUGHT = tuple(account.value for account in ACCOUNT_ORDER if account.value.startswith("capex_"))
FOLLOW_THE_PRICE = frozenset(
    {Account.DEPRECIATION, Account.DISPOSAL_LOSS, Account.COST_OF_CAPITAL, Account.MAINTENANCE, Account.INSURANCE}
)
"""Accrued accounts that are a share of what hardware cost."""
PRICE_FALL = 0.2
"""How much cheaper the accelerators of the question what if are."""


def cash_by_year(ledger: Table) -> dict[str, dict[str, float]]:
    """Return cash paid by year: for purchases, running, received by sales and resale, and in all; USD."""
    cash = {account.value for account in ACCOUNT_ORDER if View.CASH in account.views}
    years: dict[str, dict[str, float]] = {}
    for month, account, amount in ledger.rows("month", "account", totals=["amount_usd"]):
        row = years.setdefault(month[:4], {"purchases": 0.0, "running": 0.0, "received": 0.0, "paid in all": 0.0})
        if account in cash:
            kind = "purchases" if account in BOUGHT else "received" if amount < 0 else "running"
            row[kind] += amount
            row["paid in all"] += amount
    return years


def price_effect(contents: Contents, fall: float) -> tuple[float, float] | None:
    """Return what purchases and accrued cost lose, USD, where accelerators cost a share less; None without purchases.

    Of each cluster's capital and of the accounts that are a share of it (depreciation, cost of capital, maintenance,
    insurance) the accelerators' part falls. Machines owned before the start were paid long ago.
    """
    ledger, assumptions = contents.table("ledger"), contents.table("assumptions")
    if ledger is None:
        return None
    paths = assumptions.texts("path") if assumptions is not None else []
    bought = accrued = 0.0
    for cluster, by_account in ledger.sums("cluster", "account", "amount_usd").items():
        capital = sum(by_account[account] for account in BOUGHT)
        if capital <= 0.0 or any(path.startswith(f"clusters.{cluster}.owned") for path in paths):
            continue
        accelerators = by_account[Account.CAPEX_ACCELERATORS] * fall
        bought += accelerators
        accrued += accelerators / capital * sum(by_account[account] for account in FOLLOW_THE_PRICE)
    return (bought, accrued) if bought else None


def _tokens(contents: Contents) -> float:
    monthly = contents.table("timeline_monthly")
    return sum(monthly.where("cluster", FLEET).totals("served_tokens")) if monthly is not None else 0.0


def books(contents: Contents, plan: str) -> tuple[str, str]:
    """Return a plan's cost per million tokens in the books, as it is and with accelerators a fifth cheaper."""
    if plan not in contents.plans or not (tokens := _tokens(of_plan := contents.of_plan(plan)) / 1e6):
        return NOTHING, NOTHING
    cost = sum(account_totals(of_plan).values())
    _, less = price_effect(of_plan, PRICE_FALL) or (0.0, 0.0)
    return unit_price(cost / tokens), unit_price((cost - less) / tokens)


def price_line(of_plan: Contents) -> str:
    """Say what the plan would cost if accelerators cost a fifth less."""
    effect, tokens = price_effect(of_plan, PRICE_FALL), _tokens(of_plan)
    if effect is None or not tokens:
        return ""
    bought, accrued = effect
    return (
        f"If accelerators cost {percent(PRICE_FALL, 0)} less, purchases fall by {dollars(bought)} and the cost in the "
        f"books by {dollars(accrued)}, {unit_price(accrued / tokens * 1e6)} per million tokens, before tax."
    )
