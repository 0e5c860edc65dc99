"""Hours summed into months, and the conservation checks of every run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import in_hours
from planner.engine.driver import Run
from planner.engine.hourly import NodeHours, WindowResult, joined
from planner.engine.log import SpeedChange
from planner.errors import ConservationError
from planner.finance.ledger import ACCOUNT_CODES, CAPEX_ACCOUNTS, Account, Dimension, Ledger, cents
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.plan.quantities import fates, in_service, shares
from planner.run.cohorts import Cohort, nodes_in_service

_RELATIVE = 1e-9
Pair = tuple[int, int]
"""A cluster and a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Monthly:
    """Monthly sums; shape (months, clusters) unless stated.

    Node-hours are split so that the parts sum to the whole: present = failed + dark + busy + throttled + idle.
    """

    present_node_h: Floats
    """Delivered and not retired."""
    failed_node_h: Floats
    """Out of service for a hardware fault, or taken out by a user's process."""
    process_node_h: Floats
    """What users' processes took: nodes taken out, and what slowing others cost of those at work."""
    process_drag_node_h: Floats
    """Of that, the latter."""
    dark_node_h: Floats
    """Healthy, but the site had no power."""
    busy_node_h: Floats
    """At work."""
    drag_node_h: Floats
    """Of those at work, what slow software cost."""
    throttled_node_h: Floats
    """Had work and lost it to the power cap."""
    served_requests: Floats
    """Shape (months, clusters, workloads)."""
    it_kwh: Floats
    facility_kwh: Floats
    """IT, and cooling and distribution in proportion to it; by rated power where a month has none."""
    peak_facility_kw: Floats
    """Highest hour of each month, shape (months,)."""
    demand_requests: Floats
    """Shape (months, workloads)."""
    shed_requests: Floats
    """Shape (months, workloads)."""
    late_requests: Floats
    """Shape (months, workloads)."""

    @property
    def fates_node_h(self) -> dict[str, Floats]:
        """Node-hours on site by use or cause of loss; the parts sum to the whole."""
        return fates(
            present=self.present_node_h,
            failed=self.failed_node_h,
            by_process=(self.process_node_h, self.process_drag_node_h),
            dark=self.dark_node_h,
            busy=self.busy_node_h,
            drag=self.drag_node_h,
            throttled=self.throttled_node_h,
        )

    @property
    def in_service_node_h(self) -> Floats:
        """Healthy node-hours, powered or not."""
        return in_service(self.present_node_h, self.failed_node_h)


def sum_months(plan: Plan, run: Run) -> Monthly:
    """Sum a run's hours into months."""
    starts = plan.month_edges_h[:-1]

    def by_month(name: str, parts: Sequence[WindowResult | NodeHours] = run.windows) -> Floats:
        return np.moveaxis(np.add.reduceat(joined(name, parts), starts, axis=-1), -1, 0)

    it_kwh = by_month("it_kw")
    slowed = np.zeros_like(it_kwh)
    for (c, _), hours, changes, share, worked, _ in (
        slowed_hours(run) if any(e.process for e in run.log.software) else ()
    ):
        lost = share[[bool(change.process) for change in changes]].sum(axis=0) * worked
        np.add.at(slowed[:, c], plan.months.hour_periods[hours], lost)
    is_dark = any(part.dark.any() for part in run.node_hours)
    facility_kwh, peak_facility_kw = facility_months(plan, run, it_kwh)
    return Monthly(
        present_node_h=by_month("present", run.node_hours),
        failed_node_h=by_month("failed", run.node_hours),
        process_node_h=by_month("taken", run.node_hours) + slowed,
        process_drag_node_h=slowed,
        dark_node_h=by_month("dark", run.node_hours) if is_dark else np.zeros_like(it_kwh),
        busy_node_h=by_month("busy_nodes"),
        drag_node_h=by_month("drag_nodes"),
        throttled_node_h=by_month("throttled_nodes") if run.is_capped else np.zeros_like(it_kwh),
        served_requests=by_month("served_requests"),
        it_kwh=it_kwh,
        facility_kwh=facility_kwh,
        peak_facility_kw=peak_facility_kw,
        demand_requests=by_month("demand_requests"),
        shed_requests=by_month("shed_requests"),
        late_requests=by_month("late_requests"),
    )


def facility_months(plan: Plan, run: Run, it_kwh: Floats) -> tuple[Floats, Floats]:
    """Return the site's energy by month and cluster, shape (months, clusters), and its peak power by month."""
    drawn_kw = joined("facility_kw", run.windows)
    starts = plan.month_edges_h[:-1]
    energy = np.add.reduceat(drawn_kw, starts)[:, None] * shares_of_power(plan, it_kwh)
    return energy, np.maximum.reduceat(drawn_kw, starts)


def slowed_hours(
    run: Run,
) -> Iterator[tuple[Pair, Ints, list[SpeedChange], Floats, Floats, Floats]]:
    """Yield the hours in which incidents or processes slow a cluster on a workload, and the changes of speed.

    With each change's share of the loss, shape (changes, hours), the node-hours at work for nothing, and those that
    the cluster has less, whether at work or not. A change counts until its incident has ended there: until its steps
    sum to nothing.
    """
    begun = defaultdict[Pair, list[SpeedChange]](list)
    level = defaultdict[Any, float](float)
    ends = dict[Any, float]()
    for change in run.log.speeds():
        if change.incident >= 0:
            here = (change.incident, change.cluster, change.workload)
            begun[here[1:]].append(change)
            level[here] = round(level[here] + change.log_factor, 12)
            ends[here] = math.inf if level[here] else change.time_h
    for given, window in zip(run.inputs, run.windows, strict=True):
        for pair, drag in window.drags.items():
            hours = drag.hours + window.first_hour
            slowness = [
                -change.log_factor
                * quantities.open_fraction(
                    hours.astype(np.float64), change.time_h, ends[change.incident, *pair]
                )
                for change in begun[pair]
            ]
            share = quantities.incident_node_h(
                np.ones(hours.size), np.array(slowness).reshape(-1, hours.size)
            )
            less = in_hours(given.nodes[pair[0]], drag.hours) * given.incidents[pair].lost_fraction
            yield pair, hours, begun[pair], share, drag.nodes, less


def shares_of_power(plan: Plan, it_kwh: Floats) -> Floats:
    """Return each cluster's share of the site's non-IT power, shape (months, clusters).

    By IT energy; in a month in which nothing ran by rated power, of which machines at a provider's have none here.
    """
    rated = (
        np.array([cluster.nodes * cluster.node_power.full_kw for cluster in plan.clusters])
        * plan.on_site
    )
    return shares(it_kwh, rated)


def check_run(plan: Plan, run: Run, monthly: Monthly) -> None:
    """Raise ConservationError unless tokens, machines, energy and capacity add up."""
    problems = [*_work(plan, run, monthly), *_machines(plan, run), *_energy(plan, run, monthly)]
    # Node-hours present = the sum of what became of them, none of it negative.
    off = np.abs(sum(monthly.fates_node_h.values()) - monthly.present_node_h)
    if np.any(off > 1e-6 * monthly.present_node_h + 1e-6):
        problems.append(f"node-hours by cause are off by {off.max():.3g}")
    if problems:
        raise ConservationError("this run does not add up: " + "; ".join(problems))


def check_books(
    plan: Plan, run: Run, monthly: Monthly, cohorts: tuple[Cohort, ...], ledger: Ledger
) -> None:
    """Raise ConservationError unless the ledger agrees with the deliveries, and the cohorts with the node-hours.

    Capex and debts of leases = Σ delivered nodes · their price in the books, by cluster and month of delivery. What was
    delivered before the start was paid then, and is no capex of the horizon. Held against the deliveries of the log,
    apart from cohorts, calendar coordinates and depreciation. Node-hours of the cohorts in service = node-hours on
    site, by cluster and month.
    """
    paid = np.zeros((plan.months.period_count, len(plan.clusters)), dtype=np.int64)
    for purchase in (purchase for purchase in run.log.purchases if purchase.time_h >= 0):
        month = int(plan.months.period_of_hour(np.array(purchase.time_h)))
        paid[month, purchase.cluster] += cents(purchase.nodes * sum(purchase.prices_usd))
    table = ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
    posted = table[
        :, :-1, [ACCOUNT_CODES[account] for account in (*CAPEX_ACCOUNTS, Account.LEASE_STARTED)]
    ]
    posted = posted.sum(axis=2)
    problems = [
        f"{plan.clusters[c].name}, {plan.months.labels[m]}: {posted[m, c] / 100:,.2f} USD of capex in the ledger, "
        f"{paid[m, c] / 100:,.2f} delivered"
        for m, c in np.argwhere(posted != paid)
    ]
    hours = np.zeros_like(monthly.present_node_h)
    if complete := tuple(cohort for cohort in cohorts if cohort.machines):
        owner = np.array([cohort.cluster for cohort in complete], dtype=np.intp)
        np.add.at(hours.T, owner, nodes_in_service(plan, complete) * plan.months.period_hours)
    off = np.abs(hours - monthly.present_node_h)
    rented = [*run.offers]  # of which some are held, and no more than there are
    off[:, rented] = np.maximum(monthly.present_node_h - hours, 0.0)[:, rented]
    if np.any(off > 1e-6 * monthly.present_node_h + 1e-3):
        problems.append(f"node-hours of cohorts in service are off by {off.max():.3g}")
    if problems:
        raise ConservationError("purchases and book values differ: " + "; ".join(problems))


def _work(plan: Plan, run: Run, monthly: Monthly) -> Iterator[str]:
    """Yield violations of demand = served + shed + waiting, by workload, and of shedding in outages.

    Shed ≥ demand × dark share of the hour, for workloads that can neither wait nor be served at a provider's. Nothing
    is asked of a model before its launch, and nothing served.
    """
    demand = monthly.demand_requests.sum(axis=0)
    served = monthly.served_requests.sum(axis=(0, 1))
    waiting = np.array([row.sum() for row in run.windows[-1].waiting_requests])
    difference = np.abs(demand - served - monthly.shed_requests.sum(axis=0) - waiting)
    for w in np.flatnonzero(difference > _RELATIVE * demand + 1e-3).tolist():
        yield (
            f"{plan.workloads[w].name}: {demand[w]:.9g} requests came, {served[w]:.9g} were served, the rest is off by "
            f"{difference[w]:.3g}"
        )
    # Outages follow one another: start, end, start, end, ...
    moments = np.array(run.log.site).ravel() if run.log.site else np.zeros(1)
    gone_h = np.concatenate(
        ([0.0], np.cumsum(np.diff(moments) * (np.arange(moments.size - 1) % 2 == 0)))
    )
    for window in run.windows if run.log.site else ():
        edges = np.arange(window.first_hour, window.first_hour + window.nodes.shape[1] + 1)
        owed = window.demand_requests * np.diff(np.interp(edges, moments, gone_h))
        short = owed - window.shed_requests > _RELATIVE * window.demand_requests + 1e-6
        for w, workload in enumerate(plan.workloads):
            if not workload.deadline_h and plan.is_here[w] and short[w].any():
                yield f"{workload.name}: requests that arrived in an outage were served"
    for w, workload in enumerate(plan.workloads):
        for window in run.windows:
            before = max(0, math.ceil(workload.launch_h or 0.0) - window.first_hour)
            if (
                window.demand_requests[w, :before].any()
                or window.served_requests[:, w, :before].any()
            ):
                yield f"{workload.name}: served before its model's launch"


def _machines(plan: Plan, run: Run) -> Iterator[str]:
    """Yield violations of in service = delivered − failed + repaired − retired, at the last hour's end."""
    for index, cluster in enumerate(plan.clusters):
        changes = [change for change in run.log.changes if change.cluster == index]
        present = sum(change.accelerators for change in changes if change.time_h <= plan.hours - 1)
        settled = any(change.time_h > plan.hours - 1 for change in changes)
        counted = run.node_hours[-1].present[index, -1] * cluster.accelerators_per_node
        off = counted - present if index in run.offers else abs(counted - present)
        if not settled and off > 1e-6 * max(present, 1):
            yield f"{cluster.name}: {counted:.6g} accelerators on site, {present} delivered less retired"
    if any(bool(np.any(machines.healthy > machines.present)) for machines in run.node_hours):
        yield "more nodes healthy than present"


def _energy(plan: Plan, run: Run, monthly: Monthly) -> Iterator[str]:
    """Yield violations of kWh = Σ kW·h, and of node power between idle and full load."""
    it = sum(float(window.it_kw.sum()) for window in run.windows)
    facility = sum(float(window.facility_kw.sum()) for window in run.windows)
    if abs(monthly.it_kwh.sum() - it) > _RELATIVE * it:
        yield f"IT energy by month {monthly.it_kwh.sum():.9g} kWh, by hour {it:.9g}"
    node_h = (monthly.present_node_h - monthly.failed_node_h - monthly.dark_node_h) * plan.on_site
    idle, full = (
        np.array([getattr(c.node_power, name) for c in plan.clusters])
        for name in ("idle_kw", "full_kw")
    )
    least = np.zeros_like(node_h) if run.is_capped else node_h * idle
    too_much = monthly.it_kwh > (1.0 + _RELATIVE) * node_h * full + 1e-6
    if np.any(too_much | (monthly.it_kwh < (1.0 - _RELATIVE) * least - 1e-6)):
        yield "a cluster draws more than its nodes do at full load, or less than at rest"
    if it > 0 and abs(monthly.facility_kwh.sum() - facility) > 1e-6 * facility:
        yield f"facility energy by month {monthly.facility_kwh.sum():.9g} kWh, by hour {facility:.9g}"
