"""A plan compared with its actual months: budget, interval, variances, and the forecast before and after."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.actuals.months import Actuals
from planner.actuals.reforecast import (
    Forecast,
    PlanRuns,
    reforecast,
    weighted_quantiles,
)
from planner.actuals.variance import (
    AccountVariance,
    PlanReplications,
    flexible_budget,
    is_cost,
    is_operating,
)
from planner.arrays import Floats
from planner.finance.accounting.measures import observed
from planner.finance.accounts import Account
from planner.finance.measure_names import FLEET, SLO_MISSED, SeriesKey
from planner.progress import PrintLine, silent
from planner.records import record
from planner.run.simulate import RunResult, simulate
from planner.studies.designs import Listed
from planner.studies.engines import Workforce
from planner.studies.prepare import Prepared
from planner.yaml_io import KeyPath

INTERVAL = (0.05, 0.95)
"""The interval that a figure is compared with: nine replications in ten."""
NOISE_REPLICATIONS = 100
"""Replications of the plan as stated, whose standard deviation is known to 7%."""
COST = SeriesKey("cluster", FLEET, "cost_usd")
SLO = SeriesKey("cluster", FLEET, "slo_attainment_fraction")
FORECAST = (
    COST,
    SLO,
    SeriesKey("cluster", FLEET, "served_tokens"),
    SeriesKey("cluster", FLEET, "demand_tokens"),
    SeriesKey("cluster", FLEET, "utilisation_fraction"),
)
"""What is forecast by month."""
PAID_FIELDS = (
    "accelerator_price_usd",
    "host_usd_per_node",
    "discount_fraction",
    "volume_discounts",
    "quotes",
)
"""Fields of a cluster that say what its machines cost when they are bought."""


@record
class ActualsReview:
    """A plan compared with its actual months."""

    result: RunResult
    """The plan as stated: its budget."""
    prepared: Prepared
    actuals: Actuals
    keys: tuple[SeriesKey, ...]
    """The series that are compared or forecast."""
    budget: Floats
    """The plan's series as stated, shape (series, months)."""
    interval: Floats
    """P5 and P95 of the study's replications, shape (2, series, months)."""
    accounts: tuple[AccountVariance, ...]
    noise_usd: float
    """Within which difference operating income in the accounts reported is noise."""
    forecast: Forecast
    paid_usd: Floats
    """What prices paid for machines already bought add to the cost of each month as planned, shape (months,)."""

    @property
    def months(self) -> int:
        """Number of actual months."""
        return len(self.actuals.months)

    def budget_of(self, key: SeriesKey) -> Floats:
        """Return a series of the plan as stated, shape (months,)."""
        return np.asarray(self.budget[self.keys.index(key)])

    def outside(self, key: SeriesKey) -> list[str]:
        """Return the months in which a series was outside its interval."""
        actual = self.actuals.series[key]
        place = self.keys.index(key)
        low, high = self.interval[:, place, : self.months]
        # An actual that equals an end of the interval may differ from it by rounding.
        slack = 1e-9 * np.abs(actual)
        is_below = actual < low - slack
        is_above = actual > high + slack
        is_outside = is_below | is_above
        months = self.actuals.months
        return [months[month] for month in np.flatnonzero(is_outside)]

    def reported_costs(self) -> dict[SeriesKey, Floats]:
        """Return the amounts by month of the cost accounts that were reported."""
        return {
            key: usd
            for key, usd in self.actuals.series.items()
            if key.kind == "account" and is_cost(Account(key.figure))
        }

    def capacity_months(self, *, is_prior: bool = False) -> Floats:
        """Return by replication how many months pass before the first to come that misses the SLO target.

        All months of the horizon where none does.
        """
        runs = self.forecast.prior if is_prior else self.forecast.posterior
        to_come = runs.monthly[:, self.keys.index(SLO_MISSED), self.months :]
        is_missed = to_come > 0
        first = np.where(is_missed.any(axis=1), is_missed.argmax(axis=1), is_missed.shape[1])
        return np.asarray(self.months + first, dtype=np.float64)

    @property
    def met_fraction(self) -> float:
        """Share of the forecast's replications that meet the SLO target in all months to come."""
        months = len(self.result.plan.months.labels)
        is_met = self.capacity_months() >= months
        return float(self.forecast.weights @ is_met)

    def is_met(self) -> bool:
        """Return whether as many replications as the target asks for meet it in the months to come."""
        return self.met_fraction >= self.result.scenario.slo_target.confidence - 1e-9

    def prior(self, key: SeriesKey) -> Floats:
        """Return a series as forecast before the actual months, shape (replications, months)."""
        place = self.keys.index(key)
        return np.asarray(self.forecast.prior.monthly[:, place])

    def posterior(self, key: SeriesKey) -> Floats:
        """Return a series as forecast after them, what happened in its place, shape (replications, months).

        Of cost, the accounts reported are replaced, and machines already bought are at the prices paid.
        """
        monthly = self.forecast.posterior.monthly
        place = self.keys.index(key)
        series = monthly[:, place].copy()
        past = slice(0, self.months)
        if key in self.actuals.series:
            actual = self.actuals.series[key]
            # A month without a figure keeps its forecast.
            is_known = np.isfinite(actual)
            series[:, past] = np.where(is_known, actual, series[:, past])
        if key == COST:
            # Accounts that were not reported stay as each replication has them.
            # What was booked takes the place of the replication's own figure.
            for account, usd in self.reported_costs().items():
                simulated = monthly[:, self.keys.index(account), past]
                series[:, past] += usd - simulated
            series[:, self.months :] += self.paid_usd[self.months :]
        return np.asarray(series)

    def remaining_costs(self) -> tuple[Floats, Floats]:
        """Return the cost of the months to come by replication, as forecast before and after."""
        to_come = slice(self.months, None)
        prior_months = self.prior(COST)[:, to_come]
        prior = prior_months.sum(axis=1)
        posterior_months = self.posterior(COST)[:, to_come]
        posterior = posterior_months.sum(axis=1)
        return prior, posterior


def review_actuals(
    prepared: Prepared,
    scenario_index: int,
    actuals: Actuals,
    replications: int,
    force: Workforce,
    progress: PrintLine = silent,
) -> ActualsReview:
    """Run a plan as stated and under its study's uncertain inputs, compare it with actuals, and reforecast."""
    keys = tuple(dict.fromkeys((*actuals.series, *FORECAST, SLO_MISSED)))
    # Series that are forecast are read from every run, reported or not.
    progress("simulating the plan as stated")
    scenario = prepared.scenarios[scenario_index].scenario
    result = simulate(scenario, prepared.seed)
    progress(f"running {NOISE_REPLICATIONS:,} replications of it, to separate causes from noise")
    as_stated = _as_stated(prepared)
    stated_plan = PlanRuns(
        prepared=as_stated, scenario_index=scenario_index, keys=keys, force=force
    )
    # The base case is replication 0.
    no_points = np.zeros((NOISE_REPLICATIONS, 0))
    design = Listed(listed=no_points, first_replication=1)
    stated_runs = stated_plan.run(design, NOISE_REPLICATIONS)
    noise = PlanReplications(keys=keys, monthly=stated_runs.monthly)
    accounts, paid_usd = flexible_budget(result, actuals, noise)
    operating = [row.account for row in accounts if is_operating(row.account)]
    # Prices that are paid are known, before the forecast as after: their spread would read as something learned.
    prepared = _without_paid_prices(prepared, result, len(actuals.months))
    plan = PlanRuns(prepared=prepared, scenario_index=scenario_index, keys=keys, force=force)
    progress(f"running {replications:,} replications")
    prior = plan.run(prepared.montecarlo(), replications)
    equal_weights = np.ones(len(prior.monthly))
    interval = weighted_quantiles(prior.monthly, equal_weights, np.array(INTERVAL))
    return ActualsReview(
        result=result,
        prepared=prepared,
        actuals=actuals,
        keys=keys,
        budget=observed(result, keys),
        interval=interval,
        accounts=accounts,
        noise_usd=noise.noise_usd(operating, len(actuals.months)),
        forecast=reforecast(plan, prior, actuals, progress),
        paid_usd=paid_usd,
    )


def _as_stated(prepared: Prepared) -> Prepared:
    """Return a study none of whose inputs is uncertain."""
    inputs = replace(prepared.inputs, entries=(), mixing=None)
    return replace(prepared, inputs=inputs)


def _without_paid_prices(prepared: Prepared, result: RunResult, months: int) -> Prepared:
    """Return a study whose inputs no longer set the prices of clusters that were bought in the observed months."""
    plan = result.plan
    end_h = plan.month_edges_h[months]
    # By cluster the last purchase: later ones come last, and take the place of earlier ones.
    # Sorted by cluster and time, since a mapping keeps the last of each key.
    log = result.run.log
    purchases = sorted((purchase.cluster, purchase.time_h) for purchase in log.purchases)
    last_purchase_h = dict(purchases)
    paid = {plan.clusters[c].name for c, time_h in last_purchase_h.items() if time_h < end_h}
    # A rule may order more of a cluster at any time.
    rules = plan.expansion.rules
    ruled = {plan.clusters[rule.cluster].name for rule in rules}
    paid -= ruled

    def is_open(path: KeyPath) -> bool:
        return len(path) < 3 or path[1] not in paid or path[2] not in PAID_FIELDS

    entries = []
    for entry in prepared.inputs.entries:
        # An input may still set the price of clusters that are yet to be bought.
        open_paths = (filter(is_open, paths) for paths in entry.targets)
        targets = tuple(map(tuple, open_paths))
        entries.append(replace(entry, targets=targets))
    inputs = replace(prepared.inputs, entries=tuple(entries))
    return replace(prepared, inputs=inputs)
