"""Data of the linear relaxation: one replication's demand, and a node's capacity and cost in it.

They are read off one run of the scenario with a few nodes of every purchase. Demand, deliveries, releases of software
and prices do not depend on what is bought; what does (failures, incidents, late requests, routing) is left out, always
to the plan's advantage, so that a bound from these figures is one. Last stand the prices of the program's columns: of
nodes, days, and hours at work.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.finance.financing import yearly_cost_usd
from planner.finance.ledger import Account
from planner.plan.parts import Headcount
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan, load_grid
from planner.run.measures import present_cost_usd, running_factors
from planner.run.simulate import RunResult
from planner.run.slo_misses import lit_share
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Evaluator, Trial

WITH_LOAD = (
    Account.ENERGY, Account.COOLING, Account.DEMAND_CHARGE, Account.CARBON, Account.SPARES, Account.RMA,
    Account.SLA_CREDITS, Account.BURST_RENTAL, Account.SPACE,
)  # fmt: skip
"""Accounts that depend on load, luck or the other nodes, so that they are no figure of a node."""
WITH_HOURS = (Account.RENT, Account.SUPPORT_CONTRACTS, Account.LICENCES)
"""Accounts that are paid for hours at work, where the machines are."""
_BIN_EDGES = (0.0, 0.005, 0.015, 0.04, 0.1, 0.25, 0.55, 1.0)
"""Shares of a month's hours, busiest first: narrow where an SLO target of one or two nines is decided."""
BINS = len(_BIN_EDGES) - 1
_LEAST_IDLE = 0.9  # share of nodes that draw idle power, at least: the rest is out for repair, or parked under a cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """One replication's figures; clusters are those of the scenario with every purchase."""

    hours: Floats
    """In each bin of each month, shape (months, bins)."""
    demand: Floats
    """Requests, shape (months, bins, workloads)."""
    lit_demand: Floats
    """Of those, what arrives while the site has power, or can wait for it; same shape."""
    least_demand: Floats
    """Least and most of that in any one hour of each bin; same shape."""
    most_demand: Floats
    tail: Floats
    """Of those, requests that may still wait at the month's end, shape (months, workloads)."""
    present: Floats
    """Share of each bin's hours in which what is bought of a cluster is there, shape (clusters, months, bins)."""
    rates: Floats
    """Most requests that a node serves in an hour, shape (clusters, workloads, months); 0 where it cannot."""
    slo_capacity: Floats
    """By how much they exceed capacity at the objective: overloaded, more are in time, shape (clusters, workloads)."""
    attainment: Floats
    """Share in time at each load over capacity, on the best cluster, shape (workloads, loads)."""
    working: Floats
    """Capacity at the objective, failures and incidents counted, shape (clusters, workloads, months, bins)."""
    capital_usd: Floats
    """Price of one node, shape (clusters,)."""
    owned_usd: Floats
    """Present cost of one node without energy, shape (clusters,)."""
    people_usd: Floats
    """Of that, its share of people who come whole, as they are in the run that figures are read off; same shape."""
    idle_usd: Floats
    """Present cost of a node's energy without load, shape (clusters,)."""
    busy_usd: Floats
    """Present cost of what an hour at work adds, at least, shape (clusters, months)."""
    tokens: float
    """Discounted tokens asked for, in millions."""


def survey(evaluator: Evaluator, counts: Counts, replication: int) -> Survey:
    """Return the figures of one replication, from one run of a choice with some nodes of every purchase."""
    result = evaluator.unrouted(counts, replication)
    plan = result.plan
    nodes = np.array([cluster.nodes for cluster in plan.clusters], dtype=np.float64)
    demand = np.concatenate([window.demand_requests for window in result.run.windows], axis=1)
    highest = slo_capacity(plan)
    rates = _rates(result) * (highest * evaluator.pooling(counts))[:, :, None]
    edges, months = plan.month_edges_h, len(plan.month_edges_h) - 1
    # The hours of each month by falling load of what cannot wait, each workload by the nodes it takes.
    urgent = np.array([load.deadline_h == 0 for load in plan.workloads])
    weights = np.where(urgent if urgent.any() else True, 1.0 / np.maximum(rates.max(axis=(0, 2)), 1e-9), 0.0)
    load = weights @ demand
    order = [first + np.argsort(-load[first:last], kind="stable") for first, last in itertools.pairwise(edges)]
    starts_h = np.full(len(plan.clusters), np.inf)  # when first nodes are delivered, before any of them serves
    for purchase in result.run.log.purchases:
        starts_h[purchase.cluster] = min(starts_h[purchase.cluster], purchase.time_h)
    tail = np.zeros((months, len(plan.workloads)))  # the arrivals of as many hours as a workload may wait
    for index, workload in enumerate(plan.workloads):
        for month, end in enumerate(edges[1:]) if workload.deadline_h else ():
            first = max(int(end) - workload.deadline_h, int(edges[month]))
            tail[month, index] = demand[index, first:end].sum()
    hours, binned = np.zeros((months, BINS)), np.zeros((months, BINS, len(plan.workloads)))
    lit = demand * lit_share(result) if plan.money.market.burst is None else demand
    lit_bins = np.zeros((3, *binned.shape))
    present = np.zeros((len(plan.clusters), months, BINS))
    speeds, slowed = _speeds(result), np.zeros((len(plan.clusters), len(plan.workloads), months, BINS))
    ends_h = np.array([cluster.retire_h for cluster in plan.clusters])
    for month in range(months):
        cuts = [round(edge * len(order[month])) for edge in _BIN_EDGES[1:-1]]
        for place, chosen in enumerate(np.split(order[month], cuts)):
            hours[month, place] = chosen.size
            binned[month, place] = demand[:, chosen].sum(axis=1)
            if chosen.size:
                of = lit[:, chosen]
                lit_bins[:, month, place] = of.sum(axis=1), of.min(axis=1), of.max(axis=1)
                there = np.clip(chosen + 1.0 - starts_h[:, None], 0, 1) * np.clip(ends_h[:, None] - chosen, 0, 1)
                present[:, month, place] = there.mean(axis=1)
                slowed[:, :, month, place] = speeds[:, :, chosen].mean(axis=2)
    lit_demand, least, most = lit_bins
    idle_usd, busy_usd, running = _energy(plan, starts_h, ends_h)
    there, failed = result.monthly.present_node_h.sum(axis=0), result.monthly.failed_node_h.sum(axis=0)
    available = 1.0 - np.divide(failed, there, out=np.zeros_like(failed), where=there > 0)
    # Engineers, and crews and staff where crews are paid.
    people = (Account.SOFTWARE_ENGINEERS, Account.OPERATIONS_STAFF)[: 2 if plan.money.upkeep.crew_usd_per_year else 1]
    every, others = (present_cost_usd(result, leave_out)[:-1] for leave_out in ((), people))
    return Survey(
        hours=hours,
        demand=binned,
        lit_demand=lit_demand,
        least_demand=least,
        most_demand=most,
        tail=tail,
        present=present,
        rates=rates,
        slo_capacity=highest,
        attainment=_within_slo(plan)[1].max(axis=0),
        working=np.nan_to_num(plan.requests_per_node_h)[..., None] * slowed * available[:, None, None, None],
        capital_usd=np.array([0.0 if cluster.lease else sum(cluster.prices_usd) for cluster in plan.clusters]),
        owned_usd=_standing_usd(result) / np.maximum(nodes, 1.0),
        people_usd=(every - others) / np.maximum(nodes, 1.0),
        idle_usd=idle_usd,
        busy_usd=busy_usd,
        tokens=float((result.tokens(result.monthly.demand_requests).sum(axis=1) * running).sum() / 1e6),
    )


def cost_of_a_dollar(evaluator: Evaluator, counts: Counts) -> Floats:
    """Return the present cost of one dollar on the price of a node's accelerators, shape (clusters,).

    As volume discounts tell it, with which and without which a choice is run; 0 where it has none.
    """
    choices, changes = evaluator.trial.choices, dict[tuple[str, str], object]()
    for purchase in choices.purchases:
        changes[purchase.name, "volume_discounts"] = ()
        changes[purchase.name, "quotes"] = tuple(
            {**quote.model_dump(), "volume_discounts": ()} for quote in choices.scenario.clusters[purchase.name].quotes
        )
    plain, without = (evaluator.unrouted(counts, 0, made) for made in ({}, changes))
    nodes = np.array([cluster.nodes for cluster in plain.plan.clusters], dtype=np.float64)
    prices = ([cluster.upkeep_prices_usd[0] for cluster in result.plan.clusters] for result in (plain, without))
    paid, list_usd = (nodes * price for price in prices)
    more = _standing_usd(without) - _standing_usd(plain)
    return np.divide(more, list_usd - paid, out=np.zeros_like(more), where=list_usd > paid)


def _standing_usd(result: RunResult) -> Floats:
    """Return the present cost of each cluster that does not depend on load."""
    fixed, unrented = (present_cost_usd(result, (*WITH_LOAD, *more))[:-1] for more in ((), WITH_HOURS))
    return np.where([cluster.is_paid_by_the_hour for cluster in result.plan.clusters], unrented, fixed)


def _rates(result: RunResult) -> Floats:
    """Return the most requests per node and hour in each month: without incidents, on the best upgrade."""
    plan = result.plan
    level = np.zeros((len(plan.clusters), len(plan.workloads), len(plan.month_edges_h) - 1))
    for event in sorted(result.run.log.software, key=lambda event: event.time_h):
        if event.kind != "upgrade":
            continue
        month = int(np.searchsorted(plan.month_edges_h, event.time_h, side="right")) - 1
        for (cluster, workload), factor in zip(event.pairs, event.log_factors, strict=True):
            level[cluster, workload, month + 1 :] += factor
            level[cluster, workload, month] += max(factor, 0.0)  # at least: the better of before and after
    wide = plan.software.wide_precision_factor
    gain = np.maximum(np.nan_to_num(wide, nan=1.0), 1.0)  # a wider precision that is faster serves faster
    return np.asarray(np.nan_to_num(plan.requests_per_node_h) * np.exp(level) * gain[:, :, None], dtype=np.float64)


def _within_slo(plan: Plan) -> tuple[Floats, Floats]:
    """Return loads over capacity, and the SLO attainment at each, shape (clusters, workloads, loads)."""
    loads = load_grid(plan.late_tables.shape[2] - 1)
    missed = plan.late_tables + plan.refused_tables
    for (c, w), by_rate in plan.burst_tables.items():
        assert plan.no_burst_tables is not None  # what bursts add, they add to something
        least = by_rate.added.sum(axis=0).min(axis=0)  # in the busiest hours: no hour has more in time
        missed[c, w] = plan.no_burst_tables[:, c, w].sum(axis=0) + least
    if plan.no_burst_tables is not None:  # where others stand by for its bursts, they are none of a cluster's
        several = np.array([len(load.cluster_order) > 1 for load in plan.workloads])[:, None]
        missed = np.where(several, np.minimum(missed, plan.no_burst_tables.sum(axis=0)), missed)
    share = np.where(loads <= plan.most_loads[:, :, None], 1.0 - missed, 0.0)
    urgent = np.array([load.deadline_h == 0 for load in plan.workloads])[:, None]
    return loads, np.where(urgent, share, (loads <= 1.0).astype(np.float64))


def slo_capacity(plan: Plan) -> Floats:
    """Return the highest goodput over capacity: the maximum of load · attainment, shape (clusters, workloads).

    A cluster that is offered more than it sustains at its percentile serves more in time, though a smaller share.
    """
    loads, share = _within_slo(plan)
    return np.asarray(np.maximum((loads * share).max(axis=2), 1.0))


def mean_load(share: Floats, slo_attainment_fraction: float) -> Floats:
    """Return the highest mean load at which an SLO attainment is possible, for any spread, shape (workloads,).

    With g(L) the concave envelope of load · share in time, by Jensen no spread of loads with mean L has more in time
    than g(L), so L is at most where g(L) = q·L.
    """
    loads = load_grid(share.shape[1] - 1)
    load = np.ones(len(share))
    for workload, attainment in enumerate(loads * share):
        corners = _hull(loads, attainment)
        envelope = np.interp(loads, loads[corners], attainment[corners])
        load[workload] = loads[envelope >= slo_attainment_fraction * loads - 1e-12].max()
    return load + MOST_LOAD / LOAD_CELLS  # the next cell is the first that is known not to do


def _hull(x: Floats, y: Floats) -> list[int]:
    """Return the corners of the upper concave hull of points in rising order (Andrew's monotone chain)."""
    corners: list[int] = []
    for at in range(x.size):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[at] - x[a]) > (y[at] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(at)
    return corners


def averaged(of: Survey, slo_attainment_fraction: float) -> Survey:
    """Return a survey with each month in one bin, and a node's capacity at the highest mean load."""

    def first(figures: Floats) -> Floats:
        padded = np.zeros_like(figures)
        padded[:, 0] = figures.sum(axis=1)
        return padded

    there = of.hours[:, :, None] > 0
    least, most = np.zeros_like(of.least_demand), np.zeros_like(of.most_demand)
    least[:, 0] = np.where(there, of.least_demand, np.inf).min(axis=1)
    most[:, 0] = of.most_demand.max(axis=1)

    present = np.zeros_like(of.present)
    present[:, :, 0] = (of.present * of.hours).sum(axis=2) / of.hours.sum(axis=1)
    rates = of.rates / of.slo_capacity[:, :, None] * mean_load(of.attainment, slo_attainment_fraction)[:, None]
    return dataclasses.replace(
        of,
        hours=first(of.hours),
        demand=first(of.demand),
        lit_demand=first(of.lit_demand),
        least_demand=least,
        most_demand=most,
        present=present,
        rates=rates,
    )


def _speeds(result: RunResult) -> Floats:
    """Return each cluster's speed on each workload as this run had it, shape (clusters, workloads, hours)."""
    plan = result.plan
    level = np.zeros((len(plan.clusters), len(plan.workloads), plan.hours + 1))
    for change in result.run.log.speeds():
        level[change.cluster, change.workload, min(int(change.time_h + 0.5), plan.hours)] += change.log_factor
    return np.asarray(np.exp(np.cumsum(level, axis=2)[:, :, :-1]))


def _energy(plan: Plan, starts_h: Floats, ends_h: Floats) -> tuple[Floats, Floats, Floats]:
    """Return a node's energy cost without load, the least cost of a busy hour, and monthly discount factors.

    At a provider's there is none of the first, and of the second the rent where it is paid for hours at work alone.
    A node draws P(u) ≥ P(0) + s·u with s = min (P(u) − P(0)) / u, and the meter 1 + (PUE − 1)·(1 − f) times as much,
    f being the share of cooling that does not fall with load.
    """
    power, site, edges, running = plan.money.power, plan.site, plan.month_edges_h, running_factors(plan)
    price = power.monthly_usd_per_kwh
    if power.hourly_usd_per_kwh is not None:
        price = np.minimum.reduceat(power.hourly_usd_per_kwh, edges[:-1])
    overhead = np.add.reduceat(site.overhead_ratio, edges[:-1]) / np.diff(edges)
    present_usd = price * (1.0 + overhead * (1.0 - site.fixed_fraction)) * running
    there_h = np.clip(np.minimum(edges[1:], ends_h[:, None]) - np.maximum(edges[:-1], starts_h[:, None]), 0.0, None)
    idle_kw = np.array([cluster.node_power.idle_kw for cluster in plan.clusters])
    slopes = []
    for cluster in plan.clusters:
        load_kw = cluster.node_power.load_kw
        loads = np.arange(1, load_kw.size) / (load_kw.size - 1)
        slopes.append(max(float(((load_kw[1:] - load_kw[0]) / loads).min()), 0.0))
    idle_usd = _LEAST_IDLE * idle_kw * (there_h @ present_usd) * plan.on_site
    busy_usd = (np.array(slopes) * plan.on_site)[:, None] * present_usd
    upkeep = plan.money.upkeep
    yearly = upkeep.support_usd_per_accelerator_year + upkeep.licence_usd_per_accelerator_year
    month = yearly_cost_usd(np.ones((len(running), 1)), yearly, plan.months, upkeep.escalator_per_year)[:, 0]
    for place, cluster in enumerate(plan.clusters):
        if cluster.rent is not None and cluster.is_paid_by_the_hour:
            usd_per_h = cluster.rent.usd_per_accelerator_h + month / plan.months.period_hours
            busy_usd[place] += cluster.accelerators_per_node * usd_per_h * running
    return idle_usd, busy_usd, running


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Mean prices by column of the program: purchases, then the dates of each retirement."""

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
    """Return the weight of a dollar in each replication: 1, or 1 / tokens for the levelised cost."""
    return [1.0 / max(survey[0].tokens, 1e-9) if trial.objective == "levelised" else 1.0 for survey in surveys]


def prices_of(trial: Trial, surveys: Sequence[Sequence[Survey]], *, bound: bool) -> Prices:
    """Return mean prices over replications by variant; a bound leaves out costs that vary by replication."""
    choices, objective = trial.choices, trial.objective
    weights = weights_of(trial, surveys)
    names = [cluster.name for cluster in choices.plan.clusters]
    nodes = np.array([cluster.nodes for cluster in choices.plan.clusters])

    def mean(figures: Sequence[Floats]) -> Floats:
        return np.asarray(np.mean([weight * figure for weight, figure in zip(weights, figures, strict=True)], axis=0))

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
    chosen = {one.name for one in choices.purchases} | {one.cluster for one in choices.retirements}
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
    """Return a bound's prices for one replication, with a share of its load-dependent cost."""
    share *= weights_of(trial, [[of]])[0]
    fixed = prices.fixed - prices.least_work
    return dataclasses.replace(prices, work=share * of.busy_usd, rents=share, fixed=fixed, least_work=0.0)


def _least_energy(trial: Trial, surveys: Sequence[Sequence[Survey]]) -> float:
    """Return the least energy cost of meeting the SLO target, averaged over replications."""
    slo_target = trial.slo_target
    is_told_apart = slo_target.is_per_workload and slo_target.is_per_month
    if not is_told_apart or trial.choices.plan.money.market.burst is not None:
        return 0.0
    least = []
    for weight, (survey, *_) in zip(weights_of(trial, surveys), surveys, strict=True):
        hours = np.divide(1.0, survey.rates, out=np.full(survey.rates.shape, np.inf), where=survey.rates > 0)
        usd = (np.where(np.isfinite(hours), hours, np.inf) * np.maximum(survey.busy_usd, 1e-300)[:, None]).min(axis=0)
        owed = (survey.demand.sum(axis=1) - survey.tail).T * slo_target.attainment
        least.append(weight * float(np.where(np.isfinite(usd), usd * owed, 0.0).sum()))
    return float(np.sort(least)[: math.ceil(slo_target.confidence * len(least) - 1e-9)].sum() / len(least))


def staffed_usd(plan: Plan, there: Floats) -> float:
    """Return the present cost of staff for the given nodes of each cluster, shape (clusters, months).

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
    """Return the headcount in each month, shape (months,)."""
    return np.array([headcount.number(count) for count in accelerators.sum(axis=0).tolist()], dtype=np.float64)
