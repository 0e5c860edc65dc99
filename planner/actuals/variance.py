"""Budget against actual: a flexible budget, whose causes sum to an account's difference to the cent.

The plan is run again, with the same random numbers, at the traffic that came: first in the planned mix of workloads,
then each at its own. Its books are then written at the prices paid, and then also at the quantities measured. What
each step adds is volume, mix, price (of what is sold) or rate (of what is bought), and efficiency. With Q of the run
at actual traffic, rate is (paid per unit − planned) · Q and efficiency paid per unit · (quantity − Q). An account's
quantity is that of its own driver in the table of accounts. Machines already bought stand in the books at what was
paid for them.

Two replications of one plan differ as well. An amount within two standard deviations of its account over replications
of the plan as stated is noise, and has no other cause. What the base case is off their mean is noise too. An account
that is on budget in every month has no cause at all.
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
from planner.finance.accounts import (
    ACCOUNT_CODES,
    CAPEX_ACCOUNTS,
    MEASURED_BY,
    Account,
    Category,
    Driver,
    View,
)
from planner.finance.ledger import Dimension, cents
from planner.finance.measure_names import FLEET, SeriesKey
from planner.finance.present_value import ratio as ratio_of
from planner.plan.plan import Plan
from planner.records import record
from planner.run.simulate import RunResult, booked_anew, simulate_plan

NOISE_DEVIATIONS = 2.0
"""Standard deviations of the plan's own replications within which an amount is noise: one in twenty lies beyond."""
_ABSENT_DEVIATIONS = 3.0
"""Standard deviations of accelerators in service beyond which machines are not on site, and not merely out of service:
of a normal distribution three in a thousand lie beyond."""
_FAILED_FRACTION = 0.02
"""Share of a fleet that failures take in and out of service from month to month, at the least (assumption)."""
_SAME_QUANTITY = 1e-6
"""Quantities this near are the same: a file that prints them rounds."""
_OPERATING = (Category.REVENUE, Category.COST_OF_SERVING, Category.OPERATING_EXPENSE)
_ON_SITE = "on_site_accelerator_h"
"""Figure of the drivers that follow what is on site."""
_METERED = (Driver.IT_ENERGY, Driver.OVERHEAD_ENERGY)
"""Drivers that one meter measures together."""


def is_cost(account: Account) -> bool:
    """Return whether an account is part of accrued cost."""
    return View.ACCRUAL in account.views and account.in_cost


def is_operating(account: Account) -> bool:
    """Return whether an account is part of operating income."""
    return View.ACCRUAL in account.views and account.category in _OPERATING


@record
class PlanReplications:
    """Replications of the plan as stated: what differs between them is noise."""

    keys: tuple[SeriesKey, ...]
    monthly: Floats
    """Shape (replications, series, months)."""

    def months_of(self, key: SeriesKey) -> Floats:
        """Return a series by replication, shape (replications, months)."""
        return np.asarray(self.monthly[:, self.keys.index(key)])

    def totals_usd(self, accounts: Sequence[Account], months: int) -> Floats:
        """Return what accounts sum to over the observed months, shape (replications,)."""
        totals = np.zeros(len(self.monthly))
        for account in accounts:
            by_month = self.months_of(account_key(account))[:, :months]
            totals += by_month.sum(axis=1)
        return totals

    def noise_usd(self, accounts: Sequence[Account], months: int) -> float:
        """Return within which difference the sum of accounts over the observed months is noise."""
        return NOISE_DEVIATIONS * float(self.totals_usd(accounts, months).std(ddof=1))


class AccountVariance(NamedTuple):
    """Budget and actual of one account over the observed months."""

    account: Account
    budget_cents: int
    actual_cents: int
    causes_cents: dict[str, int]
    """Actual less budget by cause; they sum to it."""
    noise_cents: int
    """Within which an amount is noise: two standard deviations over replications of the plan as stated."""


class _PurchaseRatios(NamedTuple):
    """What machines bought in the observed months cost over what was planned, shape (capital accounts,) each."""

    price: Floats
    """For as many machines as were planned."""
    amount: Floats
    """For as many as came."""


class _FlexedRuns(NamedTuple):
    """The plan as stated, and each step from it towards what happened."""

    budget: RunResult
    at_mean: RunResult
    """At the mean traffic of the plan's replications: what the base case is off it is noise."""
    at_volume: RunResult
    """At the traffic that came, in the planned mix of workloads."""
    at_mix: RunResult
    """Each workload at its own traffic."""
    at_prices: RunResult
    """Machines at the prices paid."""
    at_purchases: RunResult
    """As many machines as came, at the prices paid."""


def flexible_budget(
    budget: RunResult, actuals: Actuals, replications: PlanReplications
) -> tuple[tuple[AccountVariance, ...], Floats]:
    """Return each reported account's variance by cause, and what prices paid for machines add by month in USD."""
    months = len(actuals.months)
    own_ratios = traffic_ratios(budget, actuals)
    total_ratios = _in_planned_mix(budget, own_ratios)
    mean_months = {
        key: replications.months_of(key)[:, :months].mean(axis=0) for key in actuals.series
    }
    mean_traffic = traffic_ratios(budget, replace(actuals, series=mean_months))
    at_volume = _at_traffic(budget, total_ratios)
    at_mix = at_volume
    if not np.allclose(own_ratios, total_ratios, rtol=_SAME_QUANTITY):
        at_mix = _at_traffic(budget, own_ratios)
    booked_usd = {
        account: actuals.series[account_key(account)]
        for account in ACCOUNT_CODES
        if account_key(account) in actuals.series
    }
    quantities = dict[Account, Floats]()
    for account in booked_usd:
        ratio = _quantity_ratio(at_mix, actuals, account, replications)
        if ratio is not None:
            quantities[account] = ratio
    purchases = _purchase_ratios(at_mix, booked_usd, quantities, months)
    runs = _FlexedRuns(
        budget=budget,
        at_mean=_at_traffic(budget, mean_traffic),
        at_volume=at_volume,
        at_mix=at_mix,
        at_prices=_repriced(at_mix, months, purchases.price),
        at_purchases=_repriced(at_mix, months, purchases.amount),
    )
    variances = tuple(
        _variance(account, usd, runs, quantities.get(account), replications)
        for account, usd in booked_usd.items()
    )
    repriced_cents = _repriced(budget, months, purchases.price).cost_cents()
    added_cents = repriced_cents - budget.cost_cents()
    return variances, books.usd(added_cents.sum(axis=1))


def account_key(account: Account) -> SeriesKey:
    """Return the series of an account over the fleet."""
    return SeriesKey("account", FLEET, account)


def _booked_by(run: RunResult, account: Account, months: int) -> Floats:
    """Return what a run books on an account in the observed months, in USD."""
    return observed(run, [account_key(account)])[0, :months]


def _purchase_ratios(
    flexed: RunResult,
    booked_usd: Mapping[Account, Floats],
    quantities: dict[Account, Floats],
    months: int,
) -> _PurchaseRatios:
    """Return what machines cost over the plan; set the quantity of capital accounts to that of the last month.

    Where no figure says how many came, an account has the quantity planned if its machines came in the months planned,
    and else none.
    """
    price = np.ones(len(CAPEX_ACCOUNTS))
    amount = np.ones(len(CAPEX_ACCOUNTS))
    for place, account in enumerate(CAPEX_ACCOUNTS):
        planned = _booked_by(flexed, account, months)
        actual = booked_usd.get(account, np.zeros(months))
        has_planned_months = np.array_equal(planned > 0, actual > 0)
        is_as_planned = (quantities.get(account, np.ones(1)) == 1.0).all()
        if is_as_planned and not has_planned_months:
            quantities.pop(account, None)
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
    account: Account,
    actual: Floats,
    runs: _FlexedRuns,
    quantity: Floats | None,
    replications: PlanReplications,
) -> AccountVariance:
    """Return an account's variance by cause."""
    months = len(actual)
    budget, at_mean, at_volume, at_mix, at_prices, at_quantities = (
        _booked_by(run, account, months) for run in runs
    )
    noise_cents = int(cents(replications.noise_usd([account], months)))
    # An account on budget in every month needs no cause, whatever its quantities say.
    if np.array_equal(cents(actual), cents(budget)):
        total_cents = int(cents(actual.sum()))
        return AccountVariance(account, total_cents, total_cents, {}, noise_cents)
    if quantity is not None and at_mix.any():
        # What was paid over the quantity measured is the price; a month without any keeps the plan's.
        at_prices = np.divide(actual, quantity, out=at_mix.copy(), where=quantity > 0)
        at_quantities = actual
    steps = (at_mean, at_volume, at_mix, at_prices, at_quantities, actual)
    # In whole cents before they are subtracted: the causes then sum to the difference exactly.
    amounts = [int(cents(amount.sum())) for amount in steps]
    price = "price" if account.is_income else "rate"
    efficiency = "timing" if account in CAPEX_ACCOUNTS else "efficiency"
    names = ("volume", "mix", price, efficiency, "unexplained")
    differences = np.diff(amounts).tolist()
    changes = dict(zip(names, differences, strict=True))
    # The runs above share the base case's random numbers, so the last step alone differs by chance: from the mean of
    # replications, not from what the base case happens to be.
    chance = efficiency if quantity is not None else "unexplained"
    mean_usd = replications.totals_usd([account], months).mean()
    base_case_cents = int(cents(mean_usd)) - amounts[0]
    budget_cents = int(cents(budget.sum()))
    difference = amounts[-1] - budget_cents
    causes = dict[str, int]()
    for cause, change in changes.items():
        from_mean = change - base_case_cents if cause == chance else change
        if change and abs(from_mean) > noise_cents:
            causes[cause] = from_mean
    noise = difference - sum(causes.values())
    if noise:
        causes["noise"] = noise
    return AccountVariance(account, budget_cents, amounts[-1], causes, noise_cents)


def traffic_ratios(budget: RunResult, actuals: Actuals) -> Floats:
    """Return each workload's actual over planned tokens, demanded or else served, shape (workloads, months).

    1 in the months to come, and where no file has a workload's tokens or the fleet's.
    """
    plan = budget.plan
    ratios = np.ones((len(plan.workloads), plan.months.period_count))
    for w, workload in enumerate(plan.workloads):
        ratio = _volume_ratio(budget, actuals, workload.name)
        if ratio is not None:
            ratios[w, : ratio.size] = ratio
    return ratios


def _in_planned_mix(budget: RunResult, ratios: Floats) -> Floats:
    """Return the same tokens in all with every workload at its planned share of them, shape (workloads, months)."""
    keys = [
        SeriesKey("workload", workload.name, "demand_tokens") for workload in budget.plan.workloads
    ]
    planned = observed(budget, keys)
    total = ratio_of((planned * ratios).sum(axis=0), planned.sum(axis=0))
    # A month without any traffic has no mix.
    return np.broadcast_to(np.nan_to_num(total, nan=1.0), ratios.shape)


def _at_traffic(budget: RunResult, ratios: Floats) -> RunResult:
    """Return the budget run again, with the same random numbers, at other traffic; ratios by workload and month."""
    plan = at_traffic(budget.plan, ratios)
    return simulate_plan(budget.scenario, plan, budget.seed, budget.replication)


def at_traffic(plan: Plan, ratios: Floats) -> Plan:
    """Return a plan with its traffic times ratios of shape (workloads, months)."""
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
            beyond_requests=placement.beyond_requests * ratios[:, :, None],
            full_requests=placement.full_requests * ratios,
        )
    return replace(plan, demand=demand, placement=placement)


def _volume_ratio(budget: RunResult, actuals: Actuals, workload: str) -> Floats | None:
    """Return a workload's actual over planned tokens: its own, or the fleet's; None where no file has them."""
    # Its own figures first: the fleet's would spread one workload's growth over all.
    own = [SeriesKey("workload", workload, "")]
    for entities in (own, *_fleet_entities(budget.plan)):
        for figure in ("demand_tokens", "served_tokens"):
            ratio = _actual_over_run(budget, actuals, entities, figure)
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
    result: RunResult, actuals: Actuals, entities: Sequence[SeriesKey], figure: str
) -> Floats | None:
    """Return actual over simulated Σ over entities of a figure, by observed month; None where not all are known."""
    keys = [entity._replace(figure=figure) for entity in entities]
    has_all = all(key in actuals.series for key in keys)
    if not keys or not has_all:
        return None
    actual = np.sum([actuals.series[key] for key in keys], axis=0)
    planned = observed(result, keys)[:, : len(actuals.months)].sum(axis=0)
    # A month that plan and actuals have nothing of is as planned.
    is_nothing = (planned == 0) & (actual == 0)
    # A month without a plan, or with a missing figure (NaN fails both), gives no ratio.
    is_usable = (is_nothing | ((planned > 0) & (actual >= 0))).all()
    if not is_usable:
        return None
    return np.where(is_nothing, 1.0, ratio_of(actual, planned))


def _quantity_ratio(
    flexed: RunResult, actuals: Actuals, account: Account, replications: PlanReplications
) -> Floats | None:
    """Return what an account is proportional to over that at actual traffic; None where no figure measures it."""
    figure = MEASURED_BY.get(account.driver)
    if figure is None:
        return None
    plan = flexed.plan
    by_cluster = flexed.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)
    # The last row of the ledger is the site, which has no machines.
    bears = by_cluster[:-1, ACCOUNT_CODES[account]] != 0
    bearing = np.flatnonzero(bears)
    fleet, clusters, workloads = _fleet_entities(plan)
    choices = [fleet, clusters, workloads]
    # Where some clusters alone bear it, the fleet's figures would hide what moved.
    if 0 < len(bearing) < bears.size:
        choices = [[clusters[c] for c in bearing]]
    for entities in choices:
        ratio = _actual_over_run(flexed, actuals, entities, figure)
        if ratio is not None:
            is_same = np.abs(ratio - 1.0) <= _SAME_QUANTITY
            same_ratio = np.where(is_same, 1.0, ratio)
            if account.driver in _METERED:
                return _metered_ratio(flexed, actuals, account, same_ratio)
            return same_ratio
    if figure != _ON_SITE:
        return None
    # How long machines that are rented by the hour were held is not in the plan, but in the traffic.
    is_hourly = any(plan.clusters[c].is_paid_by_the_hour for c in bearing)
    if account is Account.RENT and is_hourly:
        return None
    for entities in choices:
        ratio = _present_ratio(flexed, actuals, entities, replications)
        if ratio is not None:
            return ratio
    # Machines are on site as the plan has bought them, unless a figure says otherwise.
    return np.ones(len(actuals.months))


def _present_ratio(
    flexed: RunResult,
    actuals: Actuals,
    entities: Sequence[SeriesKey],
    replications: PlanReplications,
) -> Floats | None:
    """Return machines on site over the plan's, as those in service show it; None where none are reported.

    Failures alone take some out of service: as far as replications of the plan differ, all are on site.
    """
    ratio = _actual_over_run(flexed, actuals, entities, "accelerators_in_service")
    if ratio is None:
        return None
    keys = [entity._replace(figure="accelerators_in_service") for entity in entities]
    months = ratio.size
    by_entity = [replications.months_of(key)[:, :months] for key in keys]
    in_service = np.sum(by_entity, axis=0)
    mean = in_service.mean(axis=0)
    # From the run at actual traffic to the mean of replications: of one run, what failed by chance would count.
    run = observed(flexed, keys)[:, :months].sum(axis=0)
    from_mean = ratio * np.nan_to_num(ratio_of(run, mean), nan=1.0)
    deviation = ratio_of(in_service.std(axis=0, ddof=1), mean)
    room = np.fmax(_ABSENT_DEVIATIONS * deviation, _FAILED_FRACTION)
    on_site_keys = [entity._replace(figure=_ON_SITE) for entity in entities]
    on_site_h = observed(flexed, on_site_keys)[:, :months].sum(axis=0)
    hours = flexed.plan.months.period_hours[:months]
    # All that the plan has on site may be in service at best.
    is_planned = (from_mean >= 1.0) & (ratio * run * hours <= on_site_h * (1.0 + _SAME_QUANTITY))
    is_planned |= np.abs(from_mean - 1.0) <= room
    return np.where(is_planned, 1.0, from_mean)


def _metered_ratio(
    flexed: RunResult, actuals: Actuals, account: Account, meter_ratio: Floats
) -> Floats:
    """Return an account's own kWh over the plan's: its part of the bill, at the bill's price of a kWh.

    One meter measures what machines and cooling take. Where both are booked, their sum over the meter's kWh is the
    price of each, so that a better PUE is no efficiency of the machines.
    """
    months = meter_ratio.size
    accounts = [other for other in Account if other.driver in _METERED]
    has_all = all(account_key(other) in actuals.series for other in accounts)
    if not has_all:
        return meter_ratio
    paid = np.sum([actuals.series[account_key(other)] for other in accounts], axis=0)
    planned = np.sum([_booked_by(flexed, other, months) for other in accounts], axis=0)
    rate_ratio = ratio_of(ratio_of(paid, planned), meter_ratio)
    own = ratio_of(actuals.series[account_key(account)], _booked_by(flexed, account, months))
    ratio = ratio_of(own, rate_ratio)
    # A month without kWh or without a bill says nothing of a part's own.
    return np.where(np.isfinite(ratio), ratio, meter_ratio)


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
