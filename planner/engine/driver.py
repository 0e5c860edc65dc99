"""The window driver: runs SimPy to the end of a window, then evaluates its hours as arrays.

Windows are half-open. With a monthly review of how months went they are as many calendar months as nothing can come of
what it decides meanwhile; without one, and where rules look at demand alone, the whole horizon is a single window.
Results do not depend on where the windows end.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import simpy

from planner.arrays import Bools, Floats
from planner.demand.plan import DemandPlan, hourly_requests_per_s
from planner.engine.histories import Histories, StepFunction
from planner.engine.hourly import NodeHours, WindowInput, WindowResult
from planner.engine.log import ChangeLog, Streams
from planner.engine.log import streams as streams_of
from planner.engine.memory import keep_memory, unsearched_memory
from planner.engine.processes import (
    Process,
    RunContext,
    SimulationContext,
    guarded,
    load_process,
    numbered,
    site_outages,
    stated,
)
from planner.engine.rental import Rentals, rent_for_shed
from planner.engine.repair_shop import RepairShop
from planner.engine.review import NOT_LOOKED_AT, MonthFigures, Review
from planner.engine.scan import steps_by_hour
from planner.engine.software import IncidentProcess
from planner.engine.supply import Supply
from planner.engine.window import evaluate_window
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.records import record
from planner.units import SECONDS_PER_HOUR


@record
class Run:
    """A finished simulation: its windows in order, and the log."""

    inputs: tuple[WindowInput, ...]
    """What each window was evaluated from."""
    windows: tuple[WindowResult, ...]
    node_hours: tuple[NodeHours, ...]
    log: ChangeLog
    shop: RepairShop
    on_offer: Bools | None
    """Hours in which instances can be had by burst rental, shape (hours,); None without it."""
    offers: Mapping[int, Bools]
    """By cluster that is rented by the hour, the hours in which its nodes can be had, shape (hours,)."""

    @property
    def is_capped(self) -> bool:
        """Whether anything limits what the site draws in any window."""
        return any(window.cap_kw is not None for window in self.inputs)


class Simulation:
    """One replication in progress."""

    def __init__(self, plan: Plan, streams: Streams, processes: Sequence[Process] = ()) -> None:
        self.plan = plan
        loaded_processes = map(load_process, plan.processes)
        user_processes = numbered([*loaded_processes, *processes])
        has_processes = bool(user_processes)
        reviews_months = any(not rule.forecasts for rule in plan.expansion.rules)
        self.has_monthly_figures = has_processes or reviews_months
        """Whether a rule or a process looks at how finished months went."""
        self.env = simpy.Environment()
        self.log = ChangeLog()
        self.shop = RepairShop(self.env, plan.reliability, plan.clusters)
        self.histories = Histories(plan, self.log, self.shop, has_processes=has_processes)
        # SimPy runs events of one moment in the order in which they were scheduled: machines of the first day come
        # before the software that waits for them, and users' processes after both.
        self.supply = Supply(self.env, plan, self.shop, self.log, streams)
        self.supply.start()
        self.incidents = IncidentProcess(self.env, plan, self.log, streams, self.supply.arrived)
        self.incidents.start()
        outages = site_outages(self.env, plan, self.log, streams)
        self.env.process(outages)
        self.months: list[MonthFigures] = []
        context = RunContext(
            plan=plan, shop=self.shop, supply=self.supply, log=self.log, months=self.months
        )
        all_processes = stated(plan.reliability) | user_processes
        for name, process in all_processes.items():
            # Each has random numbers of its own, by its name.
            world = SimulationContext(self.env, name, streams, context)
            steps = guarded(process, world)
            self.env.process(steps)
        # Drawn whole and ahead: no event of the fleet changes what is asked of it.
        self.demand_requests = _demand_requests(plan.demand, streams)
        burst = plan.money.market.burst
        self.on_offer = None
        if burst is not None:
            self.on_offer = burst.hourly.on_offer(plan.hours, streams)
        self.rentals = Rentals(plan, streams)
        self.inputs: list[WindowInput] = []
        self.windows: list[WindowResult] = []
        self.node_hours: list[NodeHours] = []

    def run(self, window_edges_h: Sequence[int]) -> Run:
        """Run all windows between the given hours, the last being the end of the horizon.

        With a review there are further ends, before which nothing that it may decide can have an effect.
        """
        review = None
        if self.plan.expansion.rules:
            review = Review(self.plan, self.supply, self.demand_requests)
        evaluated_h = 0
        clock_h = 0
        while clock_h < window_edges_h[-1]:
            clock_h = self._window_end(clock_h, window_edges_h, review)
            self.env.run(until=clock_h)
            # Rules that forecast demand need no hours evaluated: those wait for the next edge.
            if self.has_monthly_figures or clock_h in window_edges_h:
                self._evaluate(evaluated_h, clock_h)
                evaluated_h = clock_h
            for figures in self._finished_months(clock_h):
                self.months.append(figures)
                if review is not None:
                    review.close_month(figures)
        return Run(
            inputs=(*self.inputs,),
            windows=(*self.windows,),
            node_hours=(*self.node_hours,),
            log=self.log,
            shop=self.shop,
            on_offer=self.on_offer,
            offers=self.rentals.on_offer,
        )

    def _window_end(self, begin: int, window_edges_h: Sequence[int], review: Review | None) -> int:
        """Return the hour at which a window that begins at an hour ends."""
        stated_end = next(edge for edge in window_edges_h if edge > begin)
        if review is None:
            return stated_end
        months_h = self.plan.month_edges_h
        following = int(np.searchsorted(months_h, begin, side="right"))
        unmoved_h = review.unmoved_until_h()
        unmoved = int(np.searchsorted(months_h, unmoved_h, side="right")) - 1
        # At least a month, or the clock would stand still.
        month_end = int(months_h[max(following, unmoved)])
        return min(stated_end, month_end)

    def _evaluate(self, begin: int, end: int) -> None:
        """Evaluate the hours of a window."""
        self.histories.start_window(end)
        speed, incidents = self.histories.speeds(begin, end)
        lit_fraction, machines = self._node_hours(begin, end)
        # At the start nothing waits and nothing is placed.
        waiting = tuple(np.zeros(workload.deadline_h) for workload in self.plan.workloads)
        replicas = None
        if self.windows:
            waiting = self.windows[-1].waiting_requests
            replicas = self.windows[-1].replicas_after
        window = WindowInput(
            first_hour=begin,
            demand_requests=self._demand(begin, end),
            nodes=machines.healthy,
            speed=speed,
            incidents=incidents,
            waiting_requests=waiting,
            lit_fraction=lit_fraction,
            cap_kw=self._cap_kw(begin, end),
            replicas_before=replicas,
            present_nodes=machines.present,
        )
        # Rent follows the load of this window, so it comes after all else that shapes it.
        window, machines = self.rentals.hold(window, machines)
        self.inputs.append(window)
        result = evaluate_window(self.plan, window)
        self.windows.append(result)
        self.node_hours.append(machines)

    def _demand(self, begin: int, end: int) -> Floats:
        """Return the arrivals of some hours, with those that processes add, shape (workloads, hours)."""
        demand = self.demand_requests[:, begin:end]
        if not self.log.effects:
            return demand
        names = [workload.name for workload in self.plan.workloads]
        added_requests = self.log.added_requests(names, begin, end - begin)
        return demand + added_requests

    def _cap_kw(self, begin: int, end: int) -> Floats | None:
        """Return the site's power cap in some hours with what processes curtail, shape (hours,); None without any."""
        site_cap_kw = self.plan.site.cap_kw
        cap_kw = None if site_cap_kw is None else site_cap_kw[begin:end]
        hours = np.arange(begin, end, dtype=np.float64)
        for effect in self.log.effects:
            if effect.kind != "curtailment":
                continue
            # An hour that it begins or ends in counts as a whole.
            curtailed_fraction = quantities.open_fraction(hours, effect.start_h, effect.end_h)
            is_curtailed = curtailed_fraction > 0.0
            if is_curtailed.any():
                usual_kw = np.full(hours.size, np.inf) if cap_kw is None else cap_kw
                # The lowest counts where several limit the same hour.
                lower_kw = np.minimum(usual_kw, effect.amount)
                cap_kw = np.where(is_curtailed, lower_kw, usual_kw)
        return cap_kw

    def _node_hours(self, begin: int, end: int) -> tuple[Floats | None, NodeHours]:
        """Return the powered share of some hours, None if always 1, and the nodes by state, each a mean of the hour."""
        present = _by_hour(self.histories.present, begin, end)
        failed = _by_hour(self.histories.failed, begin, end)
        taken_out = _by_hour(self.histories.taken_out, begin, end)
        # Sums of parts of nodes leave a rest of rounding, which must not become a node below zero.
        np.clip(failed, 0.0, present, out=failed)
        np.clip(taken_out, 0.0, failed, out=taken_out)
        lit_fraction = None
        healthy = present - failed
        dark = np.zeros(present.shape)
        outages = [event for event in self.log.site if event.start_h < end and event.end_h > begin]
        if outages:
            # Outages of the site follow one another, so their begins and ends are in time order.
            times_h = np.array(outages).ravel()
            levels = np.tile([0.0, 1.0], len(outages))
            lit_fraction = steps_by_hour(times_h, levels, begin, end - begin)
            # A provider's machines keep their power.
            is_on_site = self.plan.on_site[:, None] > 0.0
            np.multiply(healthy, 1.0 - lit_fraction, out=dark, where=is_on_site)
            healthy -= dark
        machines = NodeHours(
            present=present, failed=failed, taken_out=taken_out, dark=dark, healthy=healthy
        )
        return lit_fraction, machines

    def _finished_months(self, clock_h: int) -> Iterator[MonthFigures]:
        """Yield the figures of months that have ended and were not reviewed yet."""
        edges_h = self.plan.month_edges_h
        month_count = int(np.searchsorted(edges_h, clock_h, side="right")) - 1
        months = range(len(self.months), month_count)
        if not self.has_monthly_figures:
            yield from itertools.repeat(NOT_LOOKED_AT, len(months))
        elif months:
            # Only windows with hours of these months: the others add nothing.
            month_start_h = edges_h[months.start]
            window_ends = [window.first_hour + window.nodes.shape[1] for window in self.windows]
            number = next(n for n, end in enumerate(window_ends) if end > month_start_h)
            windows = self.windows[number:]
            node_hours = self.node_hours[number:]
            # From the start on: what is held now depends on the hours before.
            rented = rent_for_shed(self.plan, self.windows, self.on_offer)
            yield from _figures(self.plan, months, windows, node_hours, rented.requests)


def _by_hour(histories: Sequence[StepFunction], begin: int, end: int) -> Floats:
    series = [history.by_hour(begin, end) for history in histories]
    return np.stack(series)


def _figures(
    plan: Plan,
    months: range,
    windows: Sequence[WindowResult],
    node_hours: Sequence[NodeHours],
    rented: Floats,
) -> Iterator[MonthFigures]:
    """Yield the figures of finished months that the expansion review uses."""
    month_edges_h = plan.month_edges_h[months.start : months.stop + 1]

    def totals(hourly: Sequence[Floats], axis: int | tuple[int, ...] = 1) -> Floats:
        """Return monthly sums of an hourly series of each window, hours last, shape (months, rows)."""
        rows = hourly[0].shape[-2]
        sums = np.zeros((len(months), rows))
        for window, series in zip(windows, hourly, strict=True):
            edges = month_edges_h - window.first_hour
            edges = np.clip(edges, 0, window.nodes.shape[1])
            months_h = itertools.pairwise(edges.tolist())
            for number, (begin, end) in enumerate(months_h):
                if begin < end:  # the window has hours of this month
                    month_series = series[..., begin:end]
                    sums[number] += month_series.sum(axis=axis)
        return sums

    def tokens_of(requests: Floats) -> Floats:
        """Return the tokens of requests by month and workload, shape (months,)."""
        tokens = plan.tokens_per_request[chosen]
        # Row by row: a product of whole tables would add up in another order.
        return np.array([row @ length for row, length in zip(requests, tokens, strict=True)])

    chosen = slice(months.start, months.stop)
    present = totals([machines.present for machines in node_hours])
    failed = totals([machines.failed for machines in node_hours])
    busy = totals([window.busy_nodes for window in windows])
    demand = totals([window.demand_requests for window in windows])
    refused = totals([window.shed_requests for window in windows])
    late = totals([window.late_requests for window in windows])
    served = totals([window.served_requests for window in windows], axis=(0, 2))
    shed = quantities.shed_requests(refused, rented[chosen])
    missed = quantities.missed_requests(late, shed)
    settled = quantities.settled_requests(served, refused)
    in_service = quantities.in_service(present, failed)
    utilisation = quantities.utilisation(busy, in_service)
    shed_tokens = tokens_of(shed)
    all_tokens = tokens_of(demand)
    shed_fraction = quantities.shed_share(shed_tokens, all_tokens)
    all_missed = missed.sum(axis=1)
    attainment = quantities.attainment(all_missed, settled.sum(axis=1))
    missed_fraction = 1.0 - attainment
    names = [cluster.name for cluster in plan.clusters]
    # A month without machines or requests gives no reason to act: nothing to divide by counts as nothing.
    utilisation = np.nan_to_num(utilisation)
    shed_fraction = np.nan_to_num(shed_fraction)
    missed_fraction = np.nan_to_num(missed_fraction)
    for month in range(len(months)):
        by_cluster = utilisation[month].tolist()
        yield MonthFigures(
            utilisation=dict(zip(names, by_cluster, strict=True)),
            shed_fraction=float(shed_fraction[month]),
            missed_fraction=float(missed_fraction[month]),
        )


@functools.lru_cache(maxsize=1)
def _demand_requests(demand: DemandPlan, streams: Streams) -> Floats:
    """Return the requests of each hour, shape (workloads, hours), read-only and shared by plans of one seed."""
    requests = hourly_requests_per_s(demand, streams).T
    requests *= SECONDS_PER_HOUR
    # Shared, so nobody may write into it.
    requests.flags.writeable = False
    return requests


def run_plan(
    plan: Plan,
    seed: int,
    replication: int = 0,
    window_h: int | None = None,
    processes: Sequence[Process] = (),
) -> Run:
    """Run one replication of a plan, with the user's own processes.

    Windows end with the months where a process looks at them, where a review may have had an effect, and with the
    horizon; ``window_h`` adds further ends, every so many hours.
    """
    keep_memory()
    edges_h = {0, plan.hours}
    if processes or plan.processes:
        edges_h.update(plan.month_edges_h.tolist())
    if window_h is not None:
        edges_h.update(range(0, plan.hours, window_h))
    with unsearched_memory():
        simulation = Simulation(plan, streams_of(seed, replication), processes)
        return simulation.run(sorted(edges_h))
