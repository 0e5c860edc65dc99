"""What the columns of a sizing's program cost: nodes, days, and hours at work."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.finance.recurring import yearly_cost_usd
from planner.plan.plan import Plan
from planner.plan.software_plan import Headcount
from planner.sizing.evaluate import Trial
from planner.sizing.lp_data import Survey, running_factors


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What the mean replication charges, by column of the program: purchases, then the days of each retirement."""

    column: Floats
    """Cost of one node, or of leaving on a day, shape (columns,)."""
    work: Floats
    """Cost of an hour at work, shape (clusters, months); zeros in a bound, which has its least in ``fixed``."""
    rents: float
    """Share of what rented accelerators cost that counts: none in a bound, since few replications may need them."""
    fixed: float
    """Cost of what is there whatever is chosen."""
    least_work: float = 0.0
    """Of that, what work costs at least whatever is chosen, in a bound."""


def weights_of(trial: Trial, surveys: Sequence[Sequence[Survey]]) -> list[float]:
    """Return what a dollar counts in each replication: one, or one by its tokens where those are to be cheap."""
    return [1.0 / max(survey[0].tokens, 1e-9) if trial.objective == "levelised" else 1.0 for survey in surveys]


def prices_of(trial: Trial, surveys: Sequence[Sequence[Survey]], *, bound: bool) -> Prices:
    """Return mean prices over replications, each surveyed by variant; those of a bound leave out what luck decides."""
    choices, objective = trial.choices, trial.objective
    weights = weights_of(trial, surveys)
    names = [cluster.name for cluster in choices.plan.clusters]
    nodes = np.array([cluster.nodes for cluster in choices.plan.clusters])

    def mean(figures: Sequence[Floats]) -> Floats:
        weighted: Floats = np.mean([weight * figure for weight, figure in zip(weights, figures, strict=True)], axis=0)
        return weighted

    def node(variant: int) -> Floats:
        if objective == "capital":
            return mean([survey[variant].capital_usd for survey in surveys])
        figures = [survey[variant] for survey in surveys]
        # People come whole, so fewer nodes may take none: they are no cost of a node, least of all in a bound.
        return mean([figure.owned_usd + figure.idle_usd - figure.people_usd for figure in figures])

    stays = node(0)
    column = [stays[names.index(purchase.name)] for purchase in choices.purchases]
    for retirement in choices.retirements:
        place = names.index(retirement.cluster)
        column += [nodes[place] * node(day)[place] for day in range(1 + len(retirement.dates))]
    chosen = {purchase.name for purchase in choices.purchases} | {
        retirement.cluster for retirement in choices.retirements
    }
    fixed = sum(nodes[place] * stays[place] for place, name in enumerate(names) if name not in chosen)
    work, least_work, rents = np.zeros_like(surveys[0][0].busy_usd), 0.0, 0.0
    if objective != "capital":
        if bound:
            least_work = _least_energy(trial, surveys)
        else:
            work, rents = mean([survey[0].busy_usd for survey in surveys]), 1.0
    fixed = float(fixed) + least_work
    return Prices(column=np.array(column), work=work, rents=rents, fixed=fixed, least_work=least_work)


def with_work(trial: Trial, prices: Prices, of: Survey, share: float) -> Prices:
    """Return a bound's prices for one replication in which a share of what its work costs is paid."""
    share *= weights_of(trial, [[of]])[0]
    fixed = prices.fixed - prices.least_work
    return dataclasses.replace(prices, work=share * of.busy_usd, rents=share, fixed=fixed, least_work=0.0)


def _least_energy(trial: Trial, surveys: Sequence[Sequence[Survey]]) -> float:
    """Return what serving as much as is promised costs in energy at least, in the mean over replications."""
    promise = trial.promise
    if not (promise.of_workload and promise.each_month) or trial.choices.plan.money.market.burst is not None:
        return 0.0
    least = []
    for weight, (survey, *_) in zip(weights_of(trial, surveys), surveys, strict=True):
        hours = np.divide(1.0, survey.rates, out=np.full(survey.rates.shape, np.inf), where=survey.rates > 0)
        usd = (np.where(np.isfinite(hours), hours, np.inf) * np.maximum(survey.busy_usd, 1e-300)[:, None]).min(axis=0)
        owed = (survey.demand.sum(axis=1) - survey.tail).T * promise.in_time_fraction
        least.append(weight * float(np.where(np.isfinite(usd), usd * owed, 0.0).sum()))
    kept = math.ceil(promise.in_replications_fraction * len(least) - 1e-9)
    return float(np.sort(least)[:kept].sum() / len(least))


def staffed_usd(plan: Plan, there: Floats) -> float:
    """Return the present cost of people with some nodes of each cluster, shape (clusters, months).

    They are those of a survey's ``people_usd``: as many as the accelerators there in each month need, whole people.
    """
    upkeep, accelerators = plan.money.upkeep, there * plan.accelerators_per_node[:, None]
    bought, paid = there.max(axis=1) > 0, np.zeros(there.shape[1])
    for team in plan.software.teams:
        if bought[list(team.clusters)].any():
            paid += upkeep.engineer_usd_per_year * _numbers(team.engineers, accelerators[list(team.clusters)])
    here = np.flatnonzero(plan.on_site)
    if upkeep.crew_usd_per_year and bought[here].any():
        paid += upkeep.crew_usd_per_year * _numbers(plan.reliability.crews, accelerators[here])
        paid += upkeep.staff_usd_per_year * upkeep.staff_per_accelerator * accelerators[here].sum(axis=0)
    usd = yearly_cost_usd(paid[:, None], 1.0, plan.months, upkeep.escalator_per_year)[:, 0]
    return float(usd @ running_factors(plan))


def _numbers(headcount: Headcount, accelerators: Floats) -> Floats:
    """Return how many people there are in each month, shape (months,)."""
    return np.array([headcount.number(count) for count in accelerators.sum(axis=0).tolist()], dtype=np.float64)
