"""A run's factors for a bridge, per token or in dollars, checked against its ledger."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.compile import build_plan
from planner.errors import ConservationError
from planner.finance.accounts import ACCOUNT_CODES, NOT_COST_ACCOUNTS, Account, View
from planner.finance.bridge import CAUSES, Factors
from planner.finance.cents import usd
from planner.finance.ledger import Dimension
from planner.finance.unit_costs import ratio
from planner.finance.variance import ClusterSpending, Spending, dollar_bridge
from planner.fleet import quantities
from planner.language.scenario import Scenario
from planner.results.accounting import write_ledger
from planner.results.cohorts import cohorts_of
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
        cause: sum(result.ledger.account_cents(account) for account in Account if account.cause == cause)
        for cause, factors in CAUSES.items()
        if f"{cause}_usd" in factors
    }
    accrued = int(result.ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS).sum())
    if sum(causes.values()) != accrued:
        raise ConservationError(f"the causes of a bridge hold {sum(causes.values())} cents, the ledger {accrued}")
    return causes


BOOKS = ("depreciation_months", "depreciation_method", "declining_balance_ratio", "residual_fraction", "residual_basis")
"""Choices of the books that move accrued cost and no cash."""
CLUSTER_BOOKS = ("depreciation_months", "residual_fraction", "components")
"""Those that a cluster may make for itself."""
PAID_BY_KWH = (Account.ENERGY, Account.COOLING, Account.CARBON)


def dollars(result: RunResult, base: RunResult) -> dict[str, int] | None:
    """Return a run's accrued cost less the baseline's by cause, in cents; None where one of them served nothing."""
    restated = _by_the_books_of(result, base.scenario)
    spent, same_books = spending_of(result), spending_of(restated)
    return dollar_bridge(spending_of(base), same_books, spent.cents - same_books.cents)


def _by_the_books_of(result: RunResult, other: Scenario) -> RunResult:
    """Return the same run with its ledger kept by another scenario's choices: the same machines, hours and cash."""
    scenario = result.scenario
    finance = scenario.finance.model_copy(update={name: getattr(other.finance, name) for name in BOOKS})
    clusters = {
        name: cluster.model_copy(
            update={field: getattr(other.clusters[name], field) if name in other.clusters else None
                    for field in CLUSTER_BOOKS}
        )
        for name, cluster in scenario.clusters.items()
    }  # fmt: skip
    if finance == scenario.finance and clusters == scenario.clusters:
        return result
    plan = build_plan(scenario.model_copy(update={"finance": finance, "clusters": clusters}))
    cohorts = cohorts_of(plan, result.run.log)
    ledger = write_ledger(plan, result.run, result.monthly, cohorts, result.rented)
    return replace(result, plan=plan, cohorts=cohorts, ledger=ledger)


def spending_of(result: RunResult) -> Spending:
    """Return a run's accrued cost in factors."""
    sums, monthly, plan = sums_of(result).over_run(), result.monthly, result.plan
    table = usd(result.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT, view=View.ACCRUAL))
    table[:, [ACCOUNT_CODES[account] for account in NOT_COST_ACCOUNTS]] = 0.0
    metered = table[:, [ACCOUNT_CODES[account] for account in PAID_BY_KWH]].sum(axis=1)
    most = (monthly.present_node_h / plan.months.period_hours[:, None]).max(axis=0) * plan.accelerators_per_node
    clusters, elsewhere = {}, float(table[-1].sum())
    for c, cluster in enumerate(plan.clusters):
        hours, kwh = float(sums.on_site_h[0, c]), float(sums.energy_kwh[0, c])
        if hours <= 0:
            elsewhere += float(table[c].sum())
            continue
        by_kwh = float(metered[c]) if kwh > 0 else 0.0
        clusters[cluster.name] = ClusterSpending(
            machines=float(most[c]),
            hours=hours / float(most[c]),
            usd_per_h=(float(table[c].sum()) - by_kwh) / hours,
            kwh_per_h=kwh / hours,
            usd_per_kwh=by_kwh / kwh if kwh > 0 else 0.0,
        )
    tokens = float(sums.served_tokens[0, -1])
    return Spending(
        cents=int(np.round(table.sum() * 100)),
        tokens=tokens,
        missed_usd_per_token=elsewhere / tokens if tokens > 0 else 0.0,
        clusters=clusters,
    )
