"""Months that happened held against a plan: budget and actual by account and cause, figures and their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.actuals.reforecast import FORECAST, Forecast, Plan, reforecast
from planner.arrays import Floats
from planner.finance.accounts import ACCOUNT_CODES, NOT_COST_ACCOUNTS, Account, View
from planner.finance.cents import cents
from planner.finance.variance import ARRIVED, DRIVERS, account_variance
from planner.run.observed import observed
from planner.run.result import RunResult
from planner.run.simulate import simulate
from planner.scenario.actuals import FLEET, Actuals, Seen
from planner.studies.posterior import weighted_quantiles
from planner.studies.prepare import Prepared
from planner.studies.runner import Workforce

INTERVAL = (0.05, 0.95)
"""The interval that a figure is held against: nine replications in ten."""
_FAILED_FRACTION = 0.02
"""Share of a fleet that failures take in and out of service from month to month (assumption)."""
_FLEET = ("served_tokens", "energy_kwh", "accelerators_in_service", "peak_facility_kw", "demand_tokens")


def is_cost(account: Account) -> bool:
    """Return whether an account is part of accrued cost."""
    return View.ACCRUAL in account.views and account not in NOT_COST_ACCOUNTS


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountVariance:
    """One account over the months seen."""

    account: Account
    budget_cents: int
    actual_cents: int
    causes_cents: dict[str, int]
    """Actual less budget by cause; they sum to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A plan and the months that happened."""

    result: RunResult
    """The plan as stated: its budget."""
    prepared: Prepared
    which: int
    actuals: Actuals
    seen: tuple[Seen, ...]
    budget: Floats
    """The plan's series as stated, shape (series, months)."""
    interval: Floats
    """P5 and P95 of the study's replications, shape (2, series, months)."""
    accounts: tuple[AccountVariance, ...]
    forecast: Forecast

    @property
    def months(self) -> tuple[str, ...]:
        """The months that happened."""
        return self.actuals.months

    def outside(self, series: Seen) -> list[str]:
        """Return the months in which a series lay outside its interval."""
        place, happened = self.seen.index(series), self.actuals.series[series]
        low, high = self.interval[:, place, : len(self.months)]
        slack = 1e-9 * np.abs(happened)
        beyond = (happened < low - slack) | (happened > high + slack)
        return [month for month, is_beyond in zip(self.months, beyond, strict=True) if is_beyond]


def hold(
    prepared: Prepared,
    which: int,
    actuals: Actuals,
    replications: int,
    force: Workforce,
    progress: Callable[[str], None] = lambda _: None,
) -> Held:
    """Run a plan as stated and under its study's uncertain inputs, hold what happened against it, and forecast anew."""
    fleet = [Seen("cluster", FLEET, name) for name in _FLEET]
    seen = tuple(dict.fromkeys((*actuals.series, *FORECAST, *fleet)))
    progress("simulating the plan as stated")
    result = simulate(prepared.scenarios[which].scenario, prepared.seed)
    plan = Plan(prepared=prepared, which=which, seen=seen, force=force)
    progress(f"running {replications:,} replications")
    old = plan.run(prepared.montecarlo(), replications)
    budget = observed(result, seen)
    parts = {
        "cluster": [cluster.name for cluster in result.plan.clusters],
        "workload": [workload.name for workload in result.plan.workloads],
    }
    return Held(
        result=result,
        prepared=prepared,
        which=which,
        actuals=actuals,
        seen=seen,
        budget=budget,
        interval=weighted_quantiles(old.monthly, np.ones(len(old.monthly)), np.array(INTERVAL)),
        accounts=_variances(actuals, seen, budget, parts),
        forecast=reforecast(plan, old, actuals, progress),
    )


def _variances(
    actuals: Actuals, seen: tuple[Seen, ...], budget: Floats, parts: Mapping[str, Sequence[str]]
) -> tuple[AccountVariance, ...]:
    """Return budget and actual of each account that was reported, in the order of the chart."""
    count = len(actuals.months)
    quantities: dict[str, tuple[float, float]] = {}
    for name in {name for drivers in DRIVERS.values() for name in drivers}:
        happened = _fleet_series(actuals, name, parts)
        if happened is not None and np.isfinite(happened).all():
            planned = budget[seen.index(Seen("cluster", FLEET, name)), :count]
            quantities[name] = (float(planned.sum()), float(happened.sum()))
            if name == "accelerators_in_service":
                quantities[ARRIVED] = _as_many(float(planned[-1]), float(happened[-1]))
                quantities[name] = _as_many(*quantities[name])
    variances = []
    for series in sorted(
        (s for s in actuals.series if s.kind == "account"), key=lambda s: ACCOUNT_CODES[Account(s.name)]
    ):
        account, planned = Account(series.name), budget[seen.index(series)]
        both = (int(cents(planned[:count].sum())), int(cents(actuals.series[series].sum())))
        planned_cents = int(cents(planned.sum()))
        causes = account_variance(account, both, planned_cents, quantities)
        variances.append(
            AccountVariance(account=account, budget_cents=both[0], actual_cents=both[1], causes_cents=causes)
        )
    return tuple(variances)


def _as_many(planned: float, happened: float) -> tuple[float, float]:
    """Return both counts of machines, the same where failures alone, which come and go, can tell them apart."""
    return (planned, planned) if abs(happened - planned) <= _FAILED_FRACTION * planned else (planned, happened)


def _fleet_series(actuals: Actuals, name: str, parts: Mapping[str, Sequence[str]]) -> Floats | None:
    """Return a figure of the fleet as it was seen: its own, or the sum over all workloads or all clusters."""
    if (stated := actuals.series.get(Seen("cluster", FLEET, name))) is not None or name == "peak_facility_kw":
        return stated
    for kind in ("workload", "cluster"):
        by_part = [actuals.series.get(Seen(kind, of, name)) for of in parts[kind]]
        if all(series is not None for series in by_part):
            return np.asarray(np.sum(np.array(by_part, dtype=np.float64), axis=0))
    return None
