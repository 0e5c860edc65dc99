"""Failures that take several nodes at once, and planned work that drains them: processes like a user's own.

Those that a scenario states run with it (:func:`stated`); a process of one's own may call them with other figures,
``return failures_of(world, DomainPlan(name="pdu", nodes=12, per_year=0.1, repair_h=5.0))``. Nodes of one domain are
those with neighbouring numbers in their cluster. Racks, feeds and windows are the site's: machines at a provider's have
no part in them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import simpy

from planner.engine.open_shop import DOMAIN, PLANNED, Claim
from planner.engine.processes import Process, World
from planner.plan.reliability_plan import DomainPlan, PlannedWork, ReliabilityPlan
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR

Steps = Generator[simpy.Event, Any, None]
_LOOK_AGAIN_H = 30 * HOURS_PER_DAY  # how often the number of domains is counted anew


def stated(plan: ReliabilityPlan) -> dict[str, Process]:
    """Return the processes that a plan states, by name."""
    processes: dict[str, Process] = {
        f"failure domain {domain.name}": partial(failures_of, domain=domain)
        for domain in plan.domains
        if domain.per_year > 0.0
    }
    if plan.maintenance is not None:
        processes["maintenance"] = partial(windows, work=plan.maintenance)
    if plan.firmware is not None:
        processes["firmware"] = partial(rollouts, work=plan.firmware)
    return processes


def failures_of(world: World, domain: DomainPlan) -> Steps:
    """Let domains fail as a Poisson process each, and take all their nodes until a crew has mended it.

    Waits are exponential, which has no memory, so a wait that is cut short to count the domains anew changes nothing.
    """
    while True:
        places = [(c, p) for c in world.on_site for p in sorted({node // domain.nodes for node in world.nodes(c)})]
        wait_h = world.random.exponential(HOURS_PER_YEAR / (domain.per_year * max(len(places), 1)))
        yield world.timeout(min(wait_h, _LOOK_AGAIN_H))
        if wait_h <= _LOOK_AGAIN_H and places:
            cluster, place = places[int(world.random.integers(len(places)))]
            struck = [node for node in world.nodes(cluster) if node // domain.nodes == place]
            world.env.process(_mend(world, cluster, struck, domain))


def _mend(world: World, cluster: str, nodes: Sequence[int], domain: DomainPlan) -> Steps:
    held = world.take_out(cluster, nodes, domain.name, DOMAIN)
    yield world.crews.take()
    for claim in held:
        claim.begin_h = world.now_h
    yield world.timeout(domain.repair_h)
    world.crews.give()
    world.bring_back(held)


def windows(world: World, work: PlannedWork, reserve: int | None = None) -> Steps:
    """Open windows in which as many nodes are drained as Poisson draws of those on site, within the reserve."""
    while True:
        yield world.timeout(work.every_h)
        for cluster in world.on_site:
            nodes = world.nodes(cluster)
            count = min(int(world.random.poisson(work.nodes_fraction * len(nodes))), len(nodes))
            chosen = sorted(world.random.choice(nodes, count, replace=False).tolist()) if count else []
            world.env.process(_drain(world, cluster, chosen, "maintenance", work.length_h, reserve))


def rollouts(world: World, work: PlannedWork, reserve: int | None = None, cause: str = "firmware") -> Steps:
    """Drain every node of every cluster on site once a round, never more of a cluster than its reserve.

    Rounds begin one interval apart, the first after one interval; one that takes longer puts off the next.
    """
    number = 0
    while True:
        number += 1
        yield world.timeout(max(0.0, number * work.every_h - world.now_h))
        begun_h = world.now_h
        yield simpy.AllOf(
            world.env,
            [
                world.env.process(_drain(world, cluster, world.nodes(cluster), cause, work.length_h, reserve))
                for cluster in world.on_site
            ],
        )
        world.note(f"round {number} done after {(world.now_h - begun_h) / HOURS_PER_DAY:.1f} days")


def _drain(world: World, cluster: str, nodes: Sequence[int], cause: str, length_h: float, reserve: int | None) -> Steps:
    """Take nodes out in turn, each once fewer than the reserve are down for whatever reason."""
    at_work = []
    for node in nodes:
        yield from world.within_reserve(cluster, reserve)
        if world.is_there(cluster, node):  # it may have been retired meanwhile
            held = world.take_out(cluster, [node], cause, PLANNED)
            at_work.append(world.env.process(_finish(world, held, length_h)))
    yield simpy.AllOf(world.env, at_work)


def _finish(world: World, held: Sequence[Claim], length_h: float) -> Steps:
    yield world.timeout(length_h)
    world.bring_back(held)
