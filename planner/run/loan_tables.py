"""The tables of a lender's page: the loan by month, and what becomes of it under stress."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.finance.accounting.booked_run import BookedRun
from planner.finance.accounting.lender import lender_view, take_or_pay_usd
from planner.finance.accounts import ACCOUNT_CODES, Account
from planner.finance.ledger import Dimension, cents
from planner.finance.months import add_months
from planner.plan.plan import Plan
from planner.run.simulate import RunResult, counted_anew, simulate
from planner.scenario.fields import Spread
from planner.scenario.scenario import Scenario

STRESSED_FRACTION = 0.7
"""What is left of a price under stress: a fall of 30%, the middle of what lenders take off a market price (10 to 30%)
and of the first year's median and P10 of listed token prices (-14 and -58%)."""
LATE_MONTHS = 3
"""Months for which customers come late under stress: nothing is sold in them, and the loan is served all the same."""
LATE_WEEKS = 13
"""By which machines come late under stress: three months."""
STRESSES = {
    "as planned": (),
    "token prices -30%": ("price",),
    "resale values -30%": ("resale",),
    "deliveries three months late": ("deliveries",),
    "customers three months late": ("customers",),
    "all four": ("price", "resale", "deliveries", "customers"),
}
"""What each row of the stress grid changes."""


def with_late_deliveries(scenario: Scenario) -> Scenario | None:
    """Return a scenario in which whatever comes after the first day comes late; None where nothing does.

    An order is placed and its first payments fall due as planned, since it slips; a cluster with a stated day is paid
    on the day it comes. What would come after the horizon, or after it retires, does not come.
    """
    late = datetime.timedelta(weeks=LATE_WEEKS)
    end = add_months(scenario.start, scenario.horizon_months)
    clusters: dict[str, dict[str, object]] = {}
    for name, cluster in scenario.clusters.items():
        day = cluster.online
        if cluster.order is not None:
            clusters[name] = {"order": {"slip_weeks": _slipped(cluster.order.slip_weeks)}}
        elif day is not None and day > scenario.start and not cluster.is_api:
            gone = min(cluster.retire or end, end)
            clusters[name] = {"online": day + late} if day + late < gone else {"nodes": 0}
    changes: dict[str, object] = {"clusters": clusters} if clusters else {}
    for place, rule in enumerate(scenario.expansion.rules):
        changes[f"expansion.rules.{place}.slip_weeks"] = _slipped(rule.slip_weeks)
    return scenario.with_(changes) if changes else None


def _slipped(slip_weeks: Spread | None) -> dict[str, float]:
    """Return a delivery's slip as its field states it, three months longer whatever is drawn."""
    stated = {"low": 0.0, "base": 0.0, "high": 0.0} if slip_weeks is None else dict(slip_weeks)
    return {quantile: weeks + LATE_WEEKS for quantile, weeks in stated.items()}


def stressed(result: RunResult, stresses: tuple[str, ...]) -> RunResult:
    """Return a run under stress: simulated anew where machines come late, and its money counted again."""
    if "deliveries" in stresses:
        late_scenario = with_late_deliveries(result.scenario)
        if late_scenario is not None:
            result = simulate(late_scenario, result.seed, result.replication, result.processes)
    # Customers come late to what is delivered late.
    money_stresses = [stress for stress in stresses if stress != "deliveries"]
    if not money_stresses:
        return result
    plan = result.plan
    money = plan.money
    market = money.market
    capital = money.capital
    clusters = plan.clusters
    sold = market.token_price
    if "price" in stresses:
        clusters = tuple(
            cluster
            if cluster.api is None
            else replace(
                cluster, api=replace(cluster.api, prices=STRESSED_FRACTION * cluster.api.prices)
            )
            for cluster in clusters
        )
        sold = None if sold is None else STRESSED_FRACTION * sold
    if "customers" in stresses and sold is not None:
        sold = sold.copy()
        sold[: _first_sale(result) + LATE_MONTHS] = 0.0
    if "resale" in stresses:
        curves = [
            replace(curve, multiplier=STRESSED_FRACTION * curve.multiplier)
            for curve in capital.resale
        ]
        capital = replace(capital, resale=tuple(curves))
    stressed_money = replace(money, market=replace(market, token_price=sold), capital=capital)
    stressed_plan: Plan = replace(plan, money=stressed_money, clusters=clusters)
    return counted_anew(result, result.scenario, stressed_plan)


def _first_sale(result: BookedRun) -> int:
    """Return the place of the first month in which tokens are sold, 0 where none is."""
    sold = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    return int(np.argmax(sold[:, ACCOUNT_CODES[Account.REVENUE]] < 0))


def loan_rows(result: RunResult) -> Iterator[tuple[object, ...]]:
    """Yield the rows of loan_monthly.csv, money in cents; none without a loan."""
    if result.plan.money.capital.loan is None:
        return
    view = lender_view(result)
    take_usd, unused_usd = take_or_pay_usd(result)
    yield from zip(
        result.plan.months.labels,
        cents(view.balance_usd).tolist(),
        cents(view.undrawn_usd).tolist(),
        cents(view.orderly_usd).tolist(),
        cents(view.auction_usd).tolist(),
        view.loan_to_value.tolist(),
        cents(view.base_usd).tolist(),
        cents(view.cash_usd).tolist(),
        cents(view.service_usd).tolist(),
        view.loan_life_cover.tolist(),
        cents(take_usd).tolist(),
        cents(unused_usd).tolist(),
        strict=True,
    )


def stress_rows(result: RunResult) -> Iterator[tuple[object, ...]]:
    """Yield the rows of loan_stress.csv: the loan as planned and under each stress; none without a loan."""
    loan = result.plan.money.capital.loan
    if loan is None:
        return
    labels = result.plan.months.labels
    # Late deliveries are a simulation of their own, which the rows that have them share.
    late = stressed(result, ("deliveries",))
    for name, stresses in STRESSES.items():
        run = late if "deliveries" in stresses else result
        money_stresses = tuple(stress for stress in stresses if stress != "deliveries")
        view = lender_view(stressed(run, money_stresses))
        served = np.isfinite(view.quarter_cover)
        least_cover = None
        if served.any():
            least_cover = float(np.nanmin(view.quarter_cover))
        agreed = 0.0 if loan.least_cover_ratio is None else loan.least_cover_ratio
        # NaN, a quarter without debt service, breaks nothing.
        broken = np.flatnonzero(view.quarter_cover < agreed)
        above = np.flatnonzero(view.is_above_cap)
        owed = np.isfinite(view.loan_to_value)
        life_cover = view.loan_life_cover[np.isfinite(view.loan_life_cover)]
        yield (
            name,
            least_cover,
            view.quarters[broken[0]] if broken.size else "",
            float(life_cover.min()) if life_cover.size else None,
            float(np.nanmax(view.loan_to_value)) if owed.any() else None,
            labels[above[0]] if above.size else "",
            view.levered_irr,
            int(cents(view.balance_usd[-1])),
        )
