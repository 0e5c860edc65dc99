"""The survey of a replication: its demand by month, and what a node of every purchase serves and costs in it.

It is read off one run with some nodes of every purchase. Demand, deliveries, software releases and prices do not depend
on what is bought, so one survey tells what any policy meets in the replication, but for routing and whole replicas.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats
from planner.engine.orders import node_values, peak_needs
from planner.finance.accounting.measures import present_cost_usd, running_factors
from planner.finance.accounts import Account, Driver
from planner.finance.financing import yearly_cost_usd
from planner.plan.plan import Plan
from planner.plan.staffing import Headcount
from planner.records import record
from planner.run.simulate import RunResult
from planner.run.slo_misses import lit_share, slo_ceilings
from planner.scenario.scenario import Sizing
from planner.sizing.evaluate import Changes, Evaluator
from planner.sizing.policy import Policy


def _driven_by(*drivers: Driver) -> tuple[Account, ...]:
    """Return the accounts that are proportional to one of these quantities."""
    return tuple(account for account in Account if account.driver in drivers)


WITH_LOAD = _driven_by(
    Driver.IT_ENERGY,
    Driver.OVERHEAD_ENERGY,
    Driver.FACILITY_ENERGY,
    Driver.PEAK_POWER,
    Driver.SPARE_PARTS,
    Driver.FAILURES,
    Driver.MISSED_TOKENS,
    Driver.BURST_HOURS,
    Driver.API_TOKENS,
)
"""Accounts that depend on load, replications or the other nodes, so that they are no figure of a node."""
WITH_HOURS = _driven_by(Driver.RENTED_HOURS, Driver.ACCELERATORS)
"""Accounts that are paid for the hours held, where the machines are rented by the hour."""
PEOPLE = _driven_by(Driver.ENGINEERS, Driver.STAFF)
"""Accounts of people, who come whole."""
_BIN_EDGES = (0.0, 0.005, 0.015, 0.04, 0.1, 0.25, 0.55, 1.0)
"""Shares of a month's hours, busiest first: narrow where an SLO target of one or two nines is decided."""
BINS = len(_BIN_EDGES) - 1


@record
class Survey:
    """One replication's figures; clusters are those of the scenario with every purchase."""

    hours: Floats
    """In each bin of each month, shape (months, bins)."""
    urgent: Floats
    """Requests an hour that cannot wait and that the SLO target needs served, shape (months, bins, workloads)."""
    requests: Floats
    """All requests of each bin that cannot wait, and last of each month that can, shape (months, bins + 1,
    workloads)."""
    fastest: Floats
    """Requests that the fastest node serves in an hour, shape (workloads,)."""
    overflow_usd: Floats
    """What a request costs that own machines do not serve, by API or as a miss, shape (months, workloads)."""
    waiting: Floats
    """Requests of each month that can wait, shape (months, workloads)."""
    rates: Floats
    """Requests that a node serves in an hour, failures and incidents counted, shape (clusters, workloads, months)."""
    present: Floats
    """Share of a cluster's nodes in service as each month begins, shape (clusters, months).

    What comes within a month is late for it, but for as much of it as the SLO target lets go."""
    node_usd: Floats
    """Present cost of one node without load and people, shape (clusters,)."""
    busy_usd: Floats
    """Present cost of an hour at work, shape (clusters, months)."""
    tokens: float
    """Discounted tokens asked for, in millions."""
    ceilings: Floats
    """SLO attainment that no purchase raises, by the names of :data:`~planner.plan.attainment.CEILINGS`."""
    peaks: Floats
    """Peak need by month in nodes of each cluster that is ordered on a signal, shape (clusters, months)."""
    worths: Floats
    """What a node of every cluster is worth in nodes of that one, shape (clusters ordered, clusters)."""
    rent_rates: Floats
    """Requests that a rented accelerator serves in an hour, shape (workloads, months); 0 where none is rented."""
    on_offer: Floats
    """Share of each month in which there is anything to rent, shape (months,)."""


def survey(
    evaluator: Evaluator, policy: Policy, replication: int, changes: Changes | None = None
) -> Survey:
    """Return the figures of one replication, from one run with some nodes of every purchase."""
    result = evaluator.unrouted(policy, replication, changes)
    plan = result.plan
    choices = evaluator.trial.choices
    attainment = np.broadcast_to(plan.slo_attainments, len(plan.workloads))
    demand = np.concatenate([window.demand_requests for window in result.run.windows], axis=1)
    edges = plan.month_edges_h
    months = len(plan.month_edges_h) - 1
    rates = np.nan_to_num(plan.requests_per_node_h)
    waits = np.array([load.deadline_h > 0 for load in plan.workloads])
    nodes = np.array([cluster.nodes for cluster in plan.clusters], dtype=np.float64)
    starts_h = np.full(
        len(plan.clusters), np.inf
    )  # when first nodes are delivered, before any of them serves
    for purchase in result.run.log.purchases:
        starts_h[purchase.cluster] = min(starts_h[purchase.cluster], purchase.time_h)
    ends_h = np.array([cluster.retire_h for cluster in plan.clusters])
    there_h = np.clip(
        np.minimum(edges[1:], ends_h[:, None]) - np.maximum(edges[:-1], starts_h[:, None]),
        0.0,
        None,
    )
    lit = demand * lit_share(result) if plan.money.market.burst is None else demand
    # Of what cannot wait, as much is clipped off the busiest hours of a month as the SLO target lets go.
    clipped = np.where(waits[:, None], 0.0, lit)
    load = np.where(waits, 0.0, 1.0 / np.maximum(rates.max(axis=(0, 2)), 1e-9)) @ demand
    hours = np.zeros((months, BINS))
    urgent = np.zeros((months, BINS, len(plan.workloads)))
    requests = np.zeros((months, BINS + 1, len(plan.workloads)))
    overflow_usd, by_api = _overflow(plan, choices.choose)
    for month, (first, last) in enumerate(itertools.pairwise(edges)):
        busy = clipped[:, first:last]
        part = np.minimum(busy, _clip_level(busy, attainment)[:, None])
        order = np.argsort(-load[first:last], kind="stable")
        cuts = [round(edge * order.size) for edge in _BIN_EDGES[1:-1]]
        for place, chosen in enumerate(np.split(order, cuts)):
            hours[month, place] = chosen.size
            urgent[month, place] = part[:, chosen].mean(axis=1) if chosen.size else 0.0
            requests[month, place] = busy[:, chosen].sum(axis=1)
        requests[month, BINS] = np.where(waits, lit[:, first:last].sum(axis=1), 0.0)
    monthly = result.monthly
    gone = monthly.present_node_h.sum(axis=0)
    failed = monthly.failed_node_h.sum(axis=0)
    available = 1.0 - np.divide(failed, gone, out=np.zeros_like(failed), where=gone > 0)
    speed = np.add.reduceat(_speeds(result), edges[:-1], axis=2) / np.diff(edges)
    running = running_factors(plan)
    ordered = [
        choices.place(choices.purchases[place].name) for place in choices.first_of_reactive()
    ]
    rent_rates = np.zeros((len(plan.workloads), months))
    on_offer = np.zeros(months)
    if (burst := plan.money.market.burst) is not None:
        per_request = np.broadcast_to(burst.accelerator_h_per_request, rent_rates.shape)
        rent_rates = np.divide(
            1.0, per_request, out=rent_rates, where=np.isfinite(per_request) & (per_request > 0)
        )
        offered = (
            np.ones(plan.hours)
            if result.run.on_offer is None
            else result.run.on_offer.astype(np.float64)
        )
        on_offer = np.add.reduceat(offered, edges[:-1]) / np.diff(edges)
    waiting = np.add.reduceat(np.where(waits[:, None], lit, 0.0), edges[:-1], axis=1).T
    present = _in_service(result, nodes, float(attainment.max()))
    for c, offers in result.run.offers.items():  # what is sold out is not there
        present[c] *= np.add.reduceat(offers.astype(np.float64), edges[:-1]) / np.diff(edges)
    return Survey(
        hours=hours,
        urgent=np.maximum(urgent - by_api, 0.0),
        requests=requests,
        fastest=rates.max(axis=(0, 2)),
        overflow_usd=overflow_usd,
        waiting=np.maximum(waiting * attainment - by_api * np.diff(edges)[:, None], 0.0),
        rates=rates * speed * available[:, None, None],
        present=present,
        node_usd=_standing_usd(result) / np.maximum(nodes, 1.0) + _idle_usd(plan, there_h, running),
        busy_usd=_busy_usd(plan, running),
        tokens=float((result.tokens(monthly.demand_requests).sum(axis=1) * running).sum() / 1e6),
        ceilings=np.array([*slo_ceilings(result).values()]),
        peaks=np.array([peak_needs(plan, c, demand) for c in ordered]).reshape(
            len(ordered), months
        ),
        worths=np.array([node_values(plan, c, demand) for c in ordered]).reshape(
            len(ordered), len(plan.clusters)
        ),
        rent_rates=rent_rates,
        on_offer=on_offer,
    )


def _overflow(plan: Plan, choose: Sizing) -> tuple[Floats, Floats]:
    """Return the cost of a request that own machines do not serve, and the most requests an hour that APIs take.

    Shape (months, workloads) and (workloads,): where an API takes so many tokens, workloads share them evenly.
    """
    miss_usd = [choose.miss_usd(load.name) for load in plan.workloads]
    usd = np.tile(miss_usd, (plan.tokens_per_request.shape[0], 1))
    most = np.zeros(len(plan.workloads))
    for c, cluster in enumerate(plan.clusters):
        if cluster.api is not None:
            may = [*cluster.api.workloads]
            usd[:, may] = plan.api_request_usd(c)[:, may]
            most[may] += (
                cluster.api.most_tokens_per_h
                / len(may)
                / plan.tokens_per_request[:, may].max(axis=0)
            )
    return usd, most


def _clip_level(requests: Floats, shares: Floats) -> Floats:
    """Return the level at which each row is clipped so that its share of its sum remains, shape (rows,)."""
    ranked = np.sort(requests, axis=1)
    below = np.cumsum(ranked, axis=1)
    above = np.arange(requests.shape[1] - 1, -1, -1)
    kept = below + ranked * above  # of the sum, where everything above each value is clipped to it
    levels = [
        np.interp(share * total, row, level)
        for share, total, row, level in zip(shares, below[:, -1], kept, ranked, strict=True)
    ]
    return np.array(levels)


def _in_service(result: RunResult, nodes: Floats, attainment: float) -> Floats:
    """Return the share of each cluster's nodes that serve from near the beginning of a month to near its end."""
    plan, edges = result.plan, result.plan.month_edges_h
    spared_h = (1.0 - attainment) * np.diff(edges)
    serving = np.zeros((len(plan.clusters), edges.size - 1))
    for change in result.run.log.changes:
        if change.accelerators > 0:
            is_there = change.time_h <= edges[:-1] + spared_h
            serving[change.cluster] += (
                is_there * change.accelerators / plan.accelerators_per_node[change.cluster]
            )
    stays = (
        np.array([cluster.retire_h for cluster in plan.clusters])[:, None] >= edges[1:] - spared_h
    )
    return np.asarray(serving * stays / np.maximum(nodes, 1.0)[:, None])


def _standing_usd(result: RunResult) -> Floats:
    """Return the present cost of each cluster that depends neither on load nor on people."""
    fixed, unrented = (
        present_cost_usd(result, (*WITH_LOAD, *PEOPLE, *more))[:-1] for more in ((), WITH_HOURS)
    )
    return np.where(
        [cluster.is_paid_by_the_hour for cluster in result.plan.clusters], unrented, fixed
    )


def _speeds(result: RunResult) -> Floats:
    """Return each cluster's speed on each workload as this run had it, shape (clusters, workloads, hours)."""
    plan = result.plan
    level = np.zeros((len(plan.clusters), len(plan.workloads), plan.hours + 1))
    for change in result.run.log.speeds():
        level[change.cluster, change.workload, min(int(change.time_h + 0.5), plan.hours)] += (
            change.log_factor
        )
    return np.asarray(np.exp(np.cumsum(level, axis=2)[:, :, :-1]))


def _energy_usd(plan: Plan, running: Floats) -> Floats:
    """Return the present cost of a kilowatt of IT power for an hour in each month, shape (months,)."""
    power = plan.money.power
    site = plan.site
    edges = plan.month_edges_h
    price = power.monthly_usd_per_kwh
    if power.hourly_usd_per_kwh is not None:
        price = np.add.reduceat(power.hourly_usd_per_kwh, edges[:-1]) / np.diff(edges)
    overhead = np.add.reduceat(site.overhead_ratio, edges[:-1]) / np.diff(edges)
    return np.asarray(price * (1.0 + overhead) * running)


def _idle_usd(plan: Plan, there_h: Floats, running: Floats) -> Floats:
    """Return the present cost of a node's energy without load, shape (clusters,)."""
    idle_kw = np.array([cluster.node_power.idle_kw for cluster in plan.clusters])
    return np.asarray(idle_kw * plan.on_site * (there_h @ _energy_usd(plan, running)))


def _busy_usd(plan: Plan, running: Floats) -> Floats:
    """Return the present cost of what an hour at work adds: energy, and rent paid for such hours alone."""
    more_kw = np.array(
        [cluster.node_power.full_kw - cluster.node_power.idle_kw for cluster in plan.clusters]
    )
    busy_usd = (more_kw * plan.on_site)[:, None] * _energy_usd(plan, running)
    upkeep = plan.money.upkeep
    yearly = sum(upkeep.yearly_usd[account] for account in _driven_by(Driver.ACCELERATORS))
    month = yearly_cost_usd(
        np.ones((len(running), 1)), yearly, plan.months, upkeep.escalator_per_year
    )[:, 0]
    for place, cluster in enumerate(plan.clusters):
        if cluster.rent is not None and cluster.is_paid_by_the_hour:
            usd_per_h = cluster.rent.usd_per_accelerator_h + month / plan.months.period_hours
            busy_usd[place] += cluster.accelerators_per_node * usd_per_h * running
    return np.asarray(busy_usd)


def staffed_usd(plan: Plan, there: Floats) -> float:
    """Return the present cost of people for the given nodes of each cluster, shape (clusters, months).

    They are as many as the accelerators there in each month need, whole people.
    """
    upkeep = plan.money.upkeep
    accelerators = there * plan.accelerators_per_node[:, None]
    bought = there.max(axis=1) > 0
    paid = np.zeros(there.shape[1])
    for team in plan.software.teams:
        if bought[list(team.clusters)].any():
            paid += upkeep.yearly_usd[Account.SOFTWARE_ENGINEERS] * _numbers(
                team.engineers, accelerators[list(team.clusters)]
            )
    here = np.flatnonzero(plan.on_site)
    if bought[here].any():
        paid += upkeep.crew_usd_per_year * _numbers(plan.reliability.crews, accelerators[here])
        paid += (
            upkeep.yearly_usd[Account.OPERATIONS_STAFF]
            * upkeep.staff_per_accelerator
            * accelerators[here].sum(axis=0)
        )
    usd = yearly_cost_usd(paid[:, None], 1.0, plan.months, upkeep.escalator_per_year)[:, 0]
    return float(usd @ running_factors(plan))


def _numbers(headcount: Headcount, accelerators: Floats) -> Floats:
    """Return the headcount in each month, shape (months,)."""
    return np.array(
        [headcount.number(count) for count in accelerators.sum(axis=0).tolist()], dtype=np.float64
    )


def mean_of(surveys: Sequence[Survey], weights: Sequence[float], name: str) -> Floats:
    """Return the weighted mean of a figure over replications."""
    return np.asarray(
        np.mean([w * getattr(s, name) for w, s in zip(weights, surveys, strict=True)], axis=0)
    )
