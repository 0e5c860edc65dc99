"""Machines rented by the hour: how many are held and billed, and how many of them serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Bools, Floats
from planner.engine.dispatch import allowed_loads, routes_of
from planner.engine.hourly import ALL, NodeHours, WindowInput, WindowResult, joined
from planner.engine.log import Streams
from planner.engine.scan import clamp_scan
from planner.engine.window import evaluate_window
from planner.plan.parts import HourlyTerms
from planner.plan.placement import ROUNDING
from planner.plan.plan import Plan
from planner.plan.sizes import at_sizes


def hold(
    terms: HourlyTerms, wanted: Floats, most: Floats, on_offer: Bools, before: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return the machines held, and those of them that serve, shape (hours,) each, and the state after the hours.

    Of n(t) machines wanted in an hour, H(t) = min(max(H(t−1), n(t) where on offer), most wanted in the last hold_h
    hours, most there are) are held and billed; those held since startup_h hours before serve, for the part of an hour
    that is left. The state is what was wanted and held in the last hours, shape (2, hours that count).
    """
    width = max(terms.hold_h, int(terms.startup_h) + 2)
    before = np.zeros((2, width)) if before is None else before
    wants = np.concatenate((before[0], wanted))
    whole_h = int(terms.startup_h)
    highest = np.minimum(_running_max(wants, terms.hold_h)[width:], most)
    startable = np.where(on_offer, np.minimum(wanted, most), 0.0)
    held = clamp_scan(np.zeros(wanted.size), startable, highest, before[1, -1])
    levels = np.concatenate((before[1], held))
    sooner, later = (-_running_max(-levels, whole_h + hours)[width:] for hours in (1, 2))
    ready = sooner + (terms.startup_h - whole_h) * (later - sooner)
    return held, ready, np.stack((wants, levels))[:, -width:]


def _running_max(series: Floats, width: int) -> Floats:
    """Return the largest of the last ``width`` hours, or of all so far, shape (hours,).

    Of twice as many hours with each step: scipy's filter is as fast, and takes a third of a second to load.
    """
    highest = series.copy()
    reach = 1
    while reach < width:
        further = min(reach, width - reach)
        highest[further:] = np.maximum(highest[further:], highest[:-further])
        reach += further
    return highest


class Rentals:
    """The clusters rented by the hour, and what is held of them, window after window."""

    def __init__(self, plan: Plan, streams: Streams) -> None:
        self.plan = plan
        rents = ((c, cluster.rent) for c, cluster in enumerate(plan.clusters))
        self.terms = {
            c: (rent.hourly, rent)
            for c, rent in rents
            if rent is not None and rent.hourly is not None
        }
        self.on_offer = {
            c: terms.on_offer(plan.hours, streams) for c, (terms, _) in self.terms.items()
        }
        """By cluster, the hours in which nodes can be had, shape (hours,)."""
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
        for c, (terms, rent) in self.terms.items():
            most = np.ceil(present[c] - ROUNDING)
            offers = self.on_offer[c][window.hours]
            wanted = np.minimum(np.maximum(needed[c], rent.warm_nodes), most)
            held, ready, self.states[c] = hold(terms, wanted, most, offers, self.states.get(c))
            present[c], failed[c] = held, np.maximum(held - nodes[c], 0.0)
            nodes[c] = np.minimum(nodes[c], ready)
        taken = np.minimum(machines.taken, failed)
        machines = replace(machines, present=present, failed=failed, taken=taken, healthy=nodes)
        return replace(window, nodes=nodes), machines

    def _needed(self, window: WindowInput) -> Floats:
        """Return the nodes that the load needs on each cluster within the SLO target, shape (clusters, hours).

        ceil(nodes at work, were all there / load that the SLO allows), in whole replicas where those count.
        """
        needed = np.zeros_like(window.nodes)
        plan = at_sizes(self.plan, window.sizes)
        followed = [c for c in self.terms if plan.clusters[c].is_paid_by_the_hour]
        if not window.nodes[followed].any() and self.unlimited is None:
            return needed
        if (before := self.unlimited) is not None:
            waiting = before.waiting_requests
            replicas = before.replicas_after
            window = replace(window, waiting_requests=waiting, replicas_before=replicas)
        self.unlimited = result = evaluate_window(self.plan, window)
        allowed = allowed_loads(plan, window.demand_requests)
        routes = routes_of(plan, window)
        allowed = np.where(allowed > 0.0, allowed, 1.0)
        placement = plan.placement
        tiers = (
            tier
            for load in plan.workloads
            for tier in load.cluster_tiers[: -load.rented_tiers or None]
        )
        ranked = {c for tier in tiers for c in tier}  # by the user: filled as all others are
        for c in followed:
            if c in ranked and plan.preferred_utilisation > 0.0:
                allowed[c] = np.minimum(allowed[c], plan.preferred_utilisation)
            total = result.busy_nodes[c] / allowed[c]
            if placement is not None and placement.placed[c]:
                total = np.zeros_like(total)
                for deployment in (one for one in placement.deployments if one.cluster == c):
                    served = {w: result.served_requests[c, w] for w in deployment.workloads}
                    work = (
                        sum(routes[w].nodes(requests, c, ALL) for w, requests in served.items())
                        / deployment.speed
                    )
                    replicas = np.ceil(work / allowed[c] / deployment.nodes_per_replica - ROUNDING)
                    least = np.where(replicas > 0.0, deployment.least_replicas, 0.0)
                    total += np.maximum(replicas, least) * deployment.nodes_per_replica
            if (
                window.lit_fraction is not None
            ):  # what comes in a part of an hour that is dark here is served in that
                total = total / np.where(window.lit_fraction < 1.0, 1.0 - window.lit_fraction, 1.0)
            needed[c] = np.ceil(total - ROUNDING)
        return needed


@dataclass(frozen=True, slots=True, kw_only=True)
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
    per_request = burst.accelerator_h_per_request
    with np.errstate(invalid="ignore"):  # 0 · ∞: nothing is shed of what no accelerator serves
        needed = shed * (per_request[:, month] if per_request.shape[1] > 1 else per_request)
    needed[shed <= 0] = 0.0
    servable = np.isfinite(needed)
    needed[~servable] = 0.0
    wanted = needed.sum(axis=0)
    size = burst.accelerators_per_instance
    most = np.full(hours, burst.most_accelerators // size)
    instances = np.minimum(np.ceil(wanted / size - ROUNDING), most)
    offers = np.ones(hours, dtype=np.bool_) if on_offer is None else on_offer[:hours]
    held, ready, _ = hold(burst.hourly, instances, most, offers)
    ready *= size
    share = np.minimum(1.0, np.divide(ready, wanted, out=np.ones(hours), where=wanted > 0))
    return np.where(servable, shed, 0.0) * share, held * size


def rent_for_shed(
    plan: Plan, windows: Sequence[WindowResult], on_offer: Bools | None = None
) -> Rented:
    """Return the shed requests that burst rental serves instead; sums by month of the windows from the start on."""
    months = plan.month_edges_h.size - 1
    requests = np.zeros((months, len(plan.workloads)))
    accelerator_h = np.zeros(months)
    if plan.money.market.burst is not None:
        served, billed = rent_by_hour(plan, joined("shed_requests", windows), on_offer)
        begun = np.flatnonzero(plan.month_edges_h[:-1] < billed.size)
        requests[begun] = np.add.reduceat(served, plan.month_edges_h[begun], axis=1).T
        accelerator_h[begun] = np.add.reduceat(billed, plan.month_edges_h[begun])
    return Rented(requests=requests, accelerator_h=accelerator_h)
