"""A run's factors for a bridge, checked against its ledger."""

from __future__ import annotations

from planner.errors import ConservationError
from planner.finance.accounts import ACCOUNTS, NOT_COST_ACCOUNTS, Account, View
from planner.finance.bridge import CAUSES, Factors
from planner.finance.cents import usd
from planner.finance.unit_costs import ratio
from planner.fleet import quantities
from planner.results.measures import sums_of
from planner.results.result import RunResult


def factors_of(result: RunResult) -> Factors | None:
    """Return a run's factors; None where it served nothing, and a token therefore has no cost."""
    sums = sums_of(result).over_run()
    working = sums.busy_h - sums.drag_h
    if min(sums.served_tokens[0, -1], sums.served_output_tokens[0, -1], working[0, -1]) <= 0:
        return None
    fleet = {
        "available_fraction": quantities.availability(sums.in_service_h, sums.on_site_h),
        "utilised_fraction": quantities.utilisation(sums.busy_h, sums.in_service_h),
        "undragged_fraction": ratio(working, sums.busy_h),
        "throughput_tokens": ratio(sums.served_tokens, working),
        "throughput_output_tokens": ratio(sums.served_output_tokens, working),
    }
    spent = {f"{cause}_usd": float(usd(cents)) for cause, cents in cents_by_cause(result).items()}
    return Factors(
        **{name: amount / float(sums.on_site_h[0, -1]) for name, amount in spent.items()},
        **{name: float(figures[0, -1]) for name, figures in fleet.items()},
    )


def cents_by_cause(result: RunResult) -> dict[str, int]:
    """Return accrued cost by the cause that each account names; all of it, or ConservationError."""
    causes = {
        cause: sum(result.ledger.account_cents(account) for account in Account if ACCOUNTS[account].cause == cause)
        for cause, factors in CAUSES.items()
        if f"{cause}_usd" in factors
    }
    accrued = int(result.ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS).sum())
    if sum(causes.values()) != accrued:
        raise ConservationError(f"the causes of a bridge hold {sum(causes.values())} cents, the ledger {accrued}")
    return causes
