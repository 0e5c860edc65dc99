"""Budget against actual: a flexible budget, whose causes sum to an account's difference to the cent.

The plan is run again, with the same random numbers, at the traffic that came; its books are then written at the prices
paid, and then also at the quantities measured. What each step adds is volume, price and efficiency; what the last
leaves is unexplained. With Q of the run at actual traffic, price is (paid per unit − planned) · Q and efficiency paid
per unit · (quantity − Q). Machines already bought stand in the books at what was paid for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.actuals.months import Actuals
from planner.arrays import Floats
from planner.finance import ledger as books
from planner.finance.accounting.measures import observed
from planner.finance.accounts import ACCOUNT_CODES, CAPEX_ACCOUNTS, Account, View
from planner.finance.ledger import Dimension, cents
from planner.finance.measure_names import FLEET, SeriesKey
from planner.plan.plan import Plan
from planner.run.simulate import RunResult, booked_anew, simulate_plan

_FAILED_FRACTION = 0.02
"""Share of a fleet that failures take in and out of service from month to month (assumption)."""


def is_cost(account: Account) -> bool:
    """Return whether an account is part of accrued cost."""
    return View.ACCRUAL in account.views and account.in_cost


class AccountVariance(NamedTuple):
    """Budget and actual of one account over the observed months."""

    account: Account
    budget_cents: int
    actual_cents: int
    causes_cents: dict[str, int]
    """Actual less budget by cause; they sum to it."""


class _PurchaseRatios(NamedTuple):
    """What machines bought in the observed months cost over what was planned, shape (capital accounts,) each."""

    price: Floats
    """For as many machines as were planned."""
    amount: Floats
    """For as many as came."""


def flexible_budget(
    budget: RunResult, actuals: Actuals
) -> tuple[tuple[AccountVariance, ...], Floats]:
    """Return each reported account's variance by cause, and what prices paid for machines add by month in USD."""
    months = len(actuals.months)
    plan_at_volume = at_volume(budget, actuals)
    flexed = simulate_plan(budget.scenario, plan_at_volume, budget.seed)
    booked_usd = {
        account: actuals.series[_account_key(account)]
        for account in ACCOUNT_CODES
        if _account_key(account) in actuals.series
    }
    quantities = dict[Account, Floats]()
    for account in booked_usd:
        ratio = _quantity_ratio(flexed, actuals, account)
        if ratio is not None:
            quantities[account] = ratio
    purchases = _purchase_ratios(flexed, booked_usd, quantities, months)
    runs = (
        budget,
        flexed,
        _repriced(flexed, months, purchases.price),
        _repriced(flexed, months, purchases.amount),
    )
    variances = tuple(
        _variance(account, usd, runs, quantities.get(account))
        for account, usd in booked_usd.items()
    )
    repriced_cents = _repriced(budget, months, purchases.price).cost_cents()
    added_cents = repriced_cents - budget.cost_cents()
    return variances, books.usd(added_cents.sum(axis=1))


def _account_key(account: Account) -> SeriesKey:
    """Return the series of an account over the fleet."""
    return SeriesKey("account", FLEET, account)


def _booked_by(run: RunResult, account: Account, months: int) -> Floats:
    """Return what a run books on an account in the observed months, in USD."""
    return observed(run, [_account_key(account)])[0, :months]


def _purchase_ratios(
    flexed: RunResult,
    booked_usd: Mapping[Account, Floats],
    quantities: dict[Account, Floats],
    months: int,
) -> _PurchaseRatios:
    """Return what machines cost over the plan; set the quantity of capital accounts to that of the last month.

    Without a quantity of its own, an account whose machines came in the months planned has the quantity planned.
    """
    price = np.ones(len(CAPEX_ACCOUNTS))
    amount = np.ones(len(CAPEX_ACCOUNTS))
    for place, account in enumerate(CAPEX_ACCOUNTS):
        planned = _booked_by(flexed, account, months)
        actual = booked_usd.get(account, np.zeros(months))
        if account not in quantities and not np.array_equal(planned > 0, actual > 0):
            continue
        # Machines stay: what is in service at the end is what was bought.
        quantity = quantities.get(account, np.ones(1))[-1]
        quantities[account] = np.full(months, quantity)
        planned_usd = planned.sum()
        if min(planned_usd, actual.sum(), quantity) > 0:
            amount[place] = actual.sum() / planned_usd
            price[place] = amount[place] / quantity
    return _PurchaseRatios(price, amount)


def _variance(
    account: Account, actual: Floats, runs: Sequence[RunResult], quantity: Floats | None
) -> AccountVariance:
    """Return an account's variance by cause; ``runs`` are the budget, at actual volume, prices, and quantities."""
    budget, at_volume, at_prices, at_quantities = (
        _booked_by(run, account, len(actual)) for run in runs
    )
    if quantity is not None and at_volume.any():
        # What was paid over the quantity measured is the price; a month without any keeps the plan's.
        at_prices = np.divide(actual, quantity, out=at_volume.copy(), where=quantity > 0)
        at_quantities = actual
    steps = (budget, at_volume, at_prices, at_quantities, actual)
    # In whole cents before they are subtracted: the causes then sum to the difference exactly.
    amounts = [int(cents(amount.sum())) for amount in steps]
    efficiency = "timing" if account in CAPEX_ACCOUNTS else "efficiency"
    names = ("volume", "price", efficiency, "unexplained")
    differences = np.diff(amounts).tolist()
    changes = dict(zip(names, differences, strict=True))
    causes = {cause: change for cause, change in changes.items() if change}
    return AccountVariance(account, amounts[0], amounts[-1], causes)


def at_volume(budget: RunResult, actuals: Actuals) -> Plan:
    """Return a plan whose traffic of the observed months is what came: tokens demanded, or else those served."""
    plan = budget.plan
    ratios = np.ones((len(plan.workloads), plan.months.period_count))
    for w, workload in enumerate(plan.workloads):
        ratio = _volume_ratio(budget, actuals, workload.name)
        if ratio is not None:
            ratios[w, : ratio.size] = ratio
    hours = np.diff(plan.month_edges_h)
    hourly = np.repeat(ratios, hours, axis=1)
    expected = plan.demand.expected_requests_per_s * hourly
    noise_base = plan.demand.noise_base_requests_per_s * hourly
    demand = replace(
        plan.demand,
        expected_requests_per_s=expected,
        noise_base_requests_per_s=noise_base,
    )
    placement = plan.placement
    if placement is not None:
        placement = replace(
            placement,
            target_requests=placement.target_requests * ratios[:, :, None],
            full_requests=placement.full_requests * ratios,
        )
    return replace(plan, demand=demand, placement=placement)


def _volume_ratio(budget: RunResult, actuals: Actuals, workload: str) -> Floats | None:
    """Return a workload's actual over planned tokens: its own, or the fleet's; None where no file has them."""
    # Its own figures first: the fleet's would spread one workload's growth over all.
    own = [SeriesKey("workload", workload, "")]
    for entities in (own, *_fleet_entities(budget.plan)):
        for figure in ("demand_tokens", "served_tokens"):
            ratio = _actual_over_run(budget, actuals, entities, [figure])
            if ratio is not None:
                return ratio
    return None


def _fleet_entities(plan: Plan) -> tuple[list[SeriesKey], list[SeriesKey], list[SeriesKey]]:
    """Return the entities whose figures sum to the fleet's: itself, its clusters, its workloads."""
    clusters = [SeriesKey("cluster", cluster.name, "") for cluster in plan.clusters]
    workloads = [SeriesKey("workload", workload.name, "") for workload in plan.workloads]
    fleet = [SeriesKey("cluster", FLEET, "")]
    return fleet, clusters, workloads


def _actual_over_run(
    result: RunResult, actuals: Actuals, entities: Sequence[SeriesKey], figures: Sequence[str]
) -> Floats | None:
    """Return actual over simulated Σ over entities of Π of figures, by observed month; None where not all are known."""
    keys = list[SeriesKey]()
    for entity in entities:
        keys += [entity._replace(figure=figure) for figure in figures]
    has_all = all(key in actuals.series for key in keys)
    if not keys or not has_all:
        return None
    months = len(actuals.months)
    shape = (len(entities), len(figures), months)
    actual = np.array([actuals.series[key] for key in keys])
    planned = observed(result, keys)[:, :months]
    actual_products = actual.reshape(shape).prod(axis=1)
    planned_products = planned.reshape(shape).prod(axis=1)
    actual = actual_products.sum(axis=0)
    planned = planned_products.sum(axis=0)
    # A month without a plan, or with a missing figure (NaN fails both), gives no ratio.
    is_usable = (planned > 0).all() and (actual >= 0).all()
    if not is_usable:
        return None
    return np.asarray(actual / planned)


def _quantity_ratio(flexed: RunResult, actuals: Actuals, account: Account) -> Floats | None:
    """Return an account's measured quantity over that at actual volume, of the clusters that bear it."""
    plan = flexed.plan
    figures = [account.actual_figure] if account.actual_figure else []
    by_cluster = flexed.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)
    # The last row of the ledger is the site, which has no machines.
    bears = by_cluster[:-1, ACCOUNT_CODES[account]] != 0
    bearing = np.flatnonzero(bears)
    is_hourly = all(plan.clusters[c].is_paid_by_the_hour for c in bearing)
    if account is Account.RENT and is_hourly:
        # What is rented by the hour is paid for as long as it is used.
        figures.append("utilisation_fraction")
    fleet, clusters, workloads = _fleet_entities(plan)
    choices = [fleet, clusters, workloads]
    # Where some clusters alone bear it, the fleet's figures would hide what moved.
    if 0 < len(bearing) < bears.size:
        choices = [[clusters[c] for c in bearing]]
    for entities in choices:
        ratio = _actual_over_run(flexed, actuals, entities, figures)
        if ratio is not None:
            # Within what failures alone explain, as many machines as planned are there.
            tolerance = _FAILED_FRACTION * (figures == ["accelerators_in_service"])
            is_near = np.abs(ratio - 1.0) <= tolerance
            return np.where(is_near, 1.0, ratio)
    return None


def _repriced(result: RunResult, months: int, ratios: Floats) -> RunResult:
    """Return a run with its books written again, machines bought in the observed months at other prices.

    ``ratios`` are those of accelerators, hosts, network and storage.
    """
    log = result.run.log
    end_h = result.plan.month_edges_h[months]
    purchases = []
    for purchase in log.purchases:
        # What is leased is not bought, and what was there at the start is paid.
        is_leased = result.plan.clusters[purchase.cluster].lease is not None
        is_paid = 0 <= purchase.time_h < end_h and not is_leased
        own_ratios = ratios if is_paid else np.ones(len(ratios))
        new_prices = own_ratios * purchase.prices_usd
        prices_usd = tuple(new_prices.tolist())
        purchases.append(purchase._replace(prices_usd=prices_usd))
    log = replace(log, purchases=purchases)
    run = replace(result.run, log=log)
    return booked_anew(replace(result, run=run))
