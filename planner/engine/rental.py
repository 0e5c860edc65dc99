"""Machines rented by the hour: how many are held and billed, and how many of them serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.arrays import Bools, Floats
from planner.engine.dispatch import allowed_loads, routes_of
from planner.engine.hourly import ALL, NodeHours, Route, WindowInput, WindowResult, joined
from planner.engine.log import Streams
from planner.engine.scan import clamp_scan
from planner.engine.window import evaluate_window
from planner.finance.money_plan import HourlyTerms
from planner.plan.placement import ROUNDING
from planner.plan.plan import Placement, Plan
from planner.records import record


def hold(
    terms: HourlyTerms,
    wanted_nodes: Floats,
    max_nodes: Floats,
    on_offer: Bools,
    past_hours: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Return the machines held, and those of them that serve, shape (hours,) each, and the state after the hours.

    Of n(t) machines wanted in an hour, H(t) = min(max(H(t−1), n(t) where on offer), most wanted in the last hold_h
    hours, most there are) are held and billed; those held since startup_h hours before serve, for the part of an hour
    that is left. The state is what was wanted and held in the last hours, shape (2, hours that count).
    """
    whole_h = int(terms.startup_h)
    width = max(terms.hold_h, whole_h + 2)
    if past_hours is None:
        past_hours = np.zeros((2, width))
    wanted_before, held_before = past_hours
    wanted = np.concatenate((wanted_before, wanted_nodes))
    most_wanted = _running_max(wanted, terms.hold_h)[width:]
    upper = np.minimum(most_wanted, max_nodes)
    # What is held stays when offers end; only new ones need an offer.
    wanted_within = np.minimum(wanted_nodes, max_nodes)
    startable = np.where(on_offer, wanted_within, 0.0)
    no_steps = np.zeros(wanted_nodes.size)
    billed = clamp_scan(no_steps, startable, upper, held_before[-1])
    levels = np.concatenate((held_before, billed))
    # The least held over the start-up's hours has started; a part of an hour lies between two whole numbers of them.
    # The least is the negative of the largest negative, which saves a second running filter.
    sooner = -_running_max(-levels, whole_h + 1)[width:]
    later = -_running_max(-levels, whole_h + 2)[width:]
    part_h = terms.startup_h - whole_h
    ready = sooner + part_h * (later - sooner)
    history = np.stack((wanted, levels))
    state = history[:, -width:]
    return billed, ready, state


def _running_max(series: Floats, width: int) -> Floats:
    """Return the largest of the last ``width`` hours, or of all so far, shape (hours,)."""
    highest = series.copy()
    reach = 1
    # Of twice as many hours with each step: scipy's filter is as fast, and takes a third of a second to load.
    while reach < width:
        shift = min(reach, width - reach)
        earlier = highest[:-shift]
        highest[shift:] = np.maximum(highest[shift:], earlier)
        reach += shift
    return highest


class Rentals:
    """The clusters rented by the hour, and what is held of them, window after window."""

    def __init__(self, plan: Plan, streams: Streams) -> None:
        self.plan = plan
        self.terms: dict[int, HourlyTerms] = {}
        self.warm_nodes: dict[int, float] = {}
        """By cluster, nodes that are held at all times."""
        for c, cluster in enumerate(plan.clusters):
            rent = cluster.rent
            if rent is not None and rent.hourly is not None:
                self.terms[c] = rent.hourly
                self.warm_nodes[c] = rent.warm_nodes
        self.on_offer: dict[int, Bools] = {}
        """By cluster, the hours in which nodes can be had, shape (hours,)."""
        for c, terms in self.terms.items():
            self.on_offer[c] = terms.on_offer(plan.hours, streams)
        self.states: dict[int, Floats] = {}
        self.unlimited: WindowResult | None = None
        """The last window as it would be with all nodes held at all times."""

    def hold(self, window: WindowInput, machines: NodeHours) -> tuple[WindowInput, NodeHours]:
        """Return a window with the rented nodes that serve, and the machines with the nodes that are held.

        A failure takes what the cluster's nodes in service fall short of those held: others take its place.
        """
        if not self.terms:
            return window, machines
        present = machines.present.copy()
        failed = machines.failed.copy()
        nodes = window.nodes.copy()
        needed = self._needed(window)
        for c, terms in self.terms.items():
            max_nodes = np.ceil(present[c] - ROUNDING)
            offers = self.on_offer[c][window.hours]
            wanted_nodes = np.maximum(needed[c], self.warm_nodes[c])
            np.minimum(wanted_nodes, max_nodes, out=wanted_nodes)
            state = self.states.get(c)
            billed, ready, state = hold(terms, wanted_nodes, max_nodes, offers, state)
            self.states[c] = state
            present[c] = billed
            # The provider replaces what failed as long as the cluster has others.
            missing = billed - nodes[c]
            failed[c] = np.maximum(missing, 0.0)
            nodes[c] = np.minimum(nodes[c], ready)
        machines = replace(
            machines,
            present=present,
            failed=failed,
            taken_out=np.minimum(machines.taken_out, failed),
            healthy=nodes,
        )
        return replace(window, nodes=nodes), machines

    def _needed(self, window: WindowInput) -> Floats:
        """Return the nodes that the load needs on each cluster within the SLO target, shape (clusters, hours).

        ceil(nodes at work, were all there / load that the SLO allows), in whole replicas where those count.
        """
        needed = np.zeros_like(window.nodes)
        plan = self.plan
        rented = [c for c in self.terms if plan.clusters[c].is_paid_by_the_hour]
        # Until the first node can be had nothing is followed: that saves an evaluation of the window.
        if not window.nodes[rented].any() and self.unlimited is None:
            return needed
        # What waits and what is placed follow from windows with all nodes, and not from those that were held.
        unlimited = self.unlimited
        if unlimited is not None:
            window = replace(
                window,
                waiting_requests=unlimited.waiting_requests,
                replicas_before=unlimited.replicas_after,
            )
        unlimited = evaluate_window(self.plan, window)
        self.unlimited = unlimited
        allowed = allowed_loads(plan, window.demand_requests)
        # Where no load keeps the objective nodes are filled, and not divided by 0.
        allowed = np.where(allowed > 0.0, allowed, 1.0)
        routes = routes_of(plan, window)
        ranked = _ranked_clusters(plan)
        placement = plan.placement
        for c in rented:
            if c in ranked and plan.preferred_utilisation > 0.0:
                allowed[c] = np.minimum(allowed[c], plan.preferred_utilisation)
            if placement is not None and placement.placed[c]:
                served = unlimited.served_requests[c]
                nodes = _replica_nodes(placement, c, served, routes, allowed[c])
            else:
                nodes = unlimited.busy_nodes[c] / allowed[c]
            if window.lit_fraction is not None:
                # What comes in a part of an hour that is dark here is served in that.
                dark_fraction = 1.0 - window.lit_fraction
                is_dark = window.lit_fraction < 1.0
                nodes = nodes / np.where(is_dark, dark_fraction, 1.0)
            needed[c] = np.ceil(nodes - ROUNDING)
        return needed


def _ranked_clusters(plan: Plan) -> set[int]:
    """Return the clusters that the user ranked among owned ones: they are filled as all others are."""
    ranked: set[int] = set()
    for load in plan.workloads:
        # All tiers where none is rented: −0 would be an empty slice.
        owned_tiers = load.cluster_tiers[: -load.rented_tiers or None]
        for tier in owned_tiers:
            ranked.update(tier)
    return ranked


def _replica_nodes(
    placement: Placement, cluster: int, served: Floats, routes: Sequence[Route], allowed: Floats
) -> Floats:
    """Return the nodes of the whole replicas that a cluster's work needs, shape (hours,)."""
    nodes = np.zeros(served.shape[-1])
    for group in placement.groups:
        # In the largest pool, whose figures are nearest to the plan's.
        deployment = placement.deployments[group[-1]]
        if deployment.cluster != cluster:
            continue
        size = deployment.nodes_per_replica
        work = sum(routes[w].nodes(served[w], cluster, ALL) for w in deployment.workloads)
        load = work / deployment.speed / allowed
        replicas = np.ceil(load / size - ROUNDING)
        # None where there is no work, and no fewer than the least where there is any.
        least_replicas = np.where(replicas > 0.0, deployment.least_replicas, 0.0)
        nodes += np.maximum(replicas, least_replicas) * size
    return nodes


@record
class Rented:
    """Requests served on rented accelerators, and accelerator-hours billed."""

    requests: Floats
    """Shape (months, workloads)."""
    accelerator_h: Floats
    """Shape (months,)."""


def rent_by_hour(plan: Plan, shed: Floats, on_offer: Bools | None) -> tuple[Floats, Floats]:
    """Return requests served by burst rental, shape (workloads, hours), and accelerators billed, shape (hours,).

    A request takes as long on a rented accelerator as on the plan's best for its workload. Where an hour needs more
    than there are, every workload gets the same share of its need. ``shed``, shape (workloads, hours), begins with the
    horizon; ``on_offer`` None is always.
    """
    burst = plan.money.market.burst
    hours = shed.shape[1]
    if burst is None:
        return np.zeros_like(shed), np.zeros(hours)
    month = plan.months.hour_periods[:hours]
    hours_per_request = burst.accelerator_h_per_request
    # A time that never changes is stored for one month alone.
    if hours_per_request.shape[1] > 1:
        hours_per_request = hours_per_request[:, month]
    with np.errstate(invalid="ignore"):  # 0 · ∞: nothing is shed of what no accelerator serves
        needed = shed * hours_per_request
    # What is not shed needs nothing, also where the time it would take is infinite.
    needed[shed <= 0] = 0.0
    is_servable = np.isfinite(needed)
    needed[~is_servable] = 0.0
    accelerators = needed.sum(axis=0)
    size = burst.accelerators_per_instance
    max_instances = np.full(hours, burst.most_accelerators // size)
    instances = np.ceil(accelerators / size - ROUNDING)
    instances = np.minimum(instances, max_instances)
    offers = np.ones(hours, dtype=np.bool_)
    if on_offer is not None:
        offers = on_offer[:hours]
    billed, ready, _ = hold(burst.hourly, instances, max_instances, offers)
    ready *= size
    share = np.divide(ready, accelerators, out=np.ones(hours), where=accelerators > 0)
    servable = np.where(is_servable, shed, 0.0)
    return servable * np.minimum(1.0, share), billed * size


def rent_for_shed(
    plan: Plan, windows: Sequence[WindowResult], on_offer: Bools | None = None
) -> Rented:
    """Return the shed requests that burst rental serves instead; sums by month of the windows from the start on."""
    months = plan.month_edges_h.size - 1
    requests = np.zeros((months, len(plan.workloads)))
    accelerator_h = np.zeros(months)
    if plan.money.market.burst is not None:
        shed = joined("shed_requests", windows)
        served, billed = rent_by_hour(plan, shed, on_offer)
        # Of a run in progress, only the months that have begun.
        months_begun = np.flatnonzero(plan.month_edges_h[:-1] < billed.size)
        edges_h = plan.month_edges_h[months_begun]
        requests[months_begun] = np.add.reduceat(served, edges_h, axis=1).T
        accelerator_h[months_begun] = np.add.reduceat(billed, edges_h)
    return Rented(requests=requests, accelerator_h=accelerator_h)
