"""Failures that take several nodes at once, and planned work that drains them: processes like a user's own.

None runs unless it is asked for: ``planner run --process planner.simulation.domains:rack_failures``, or from a process
of one's own with other figures, ``return failures_of(world, "rack", nodes=2)``. Rates and lengths come from the
catalogue's priors. Nodes of one domain are those with neighbouring numbers in their cluster.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

import simpy

from planner.catalog.load import load_catalog
from planner.simulation.processes import World
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR

Steps = Generator[simpy.Event, Any, None]
_LOOK_AGAIN_H = 30 * HOURS_PER_DAY  # how often the number of domains is counted anew
_TRY_AGAIN_H = 1.0
RACK_NODES, SWITCH_NODES, FEED_NODES, LOOP_NODES = 4, 8, 16, 32
"""Nodes of eight accelerators behind each: 40 kW a rack, two racks a switch, four a feed, eight a loop; assumption."""


def rack_failures(world: World) -> Steps:
    """Lose a rack now and then."""
    return failures_of(world, "rack", nodes=RACK_NODES)


def switch_failures(world: World) -> Steps:
    """Lose what hangs on a top-of-rack switch."""
    return failures_of(world, "switch", nodes=SWITCH_NODES)


def power_feed_failures(world: World) -> Steps:
    """Lose what hangs on a power feed."""
    return failures_of(world, "power_feed", nodes=FEED_NODES)


def cooling_loop_failures(world: World) -> Steps:
    """Lose what hangs on a cooling loop."""
    return failures_of(world, "cooling_loop", nodes=LOOP_NODES)


def failures_of(
    world: World, domain: str, nodes: int, per_year: float | None = None, repair_h: float | None = None
) -> Steps:
    """Let domains of so many nodes fail as a Poisson process each, and take all their nodes until a crew has mended it.

    Waits are exponential, which has no memory, so a wait that is cut short to count the domains anew changes nothing.
    """
    catalog = load_catalog()
    per_year = catalog.prior(f"{domain}_failure_rate").base if per_year is None else per_year
    repair_h = catalog.prior(f"{domain}_repair").base if repair_h is None else repair_h
    while True:
        places = [(c, place) for c in world.clusters for place in range(math.ceil(len(world.nodes(c)) / nodes))]
        wait_h = world.random.exponential(HOURS_PER_YEAR / (per_year * max(len(places), 1)))
        yield world.timeout(min(wait_h, _LOOK_AGAIN_H))
        if wait_h <= _LOOK_AGAIN_H and places:
            cluster, place = places[int(world.random.integers(len(places)))]
            struck = [node for node in world.nodes(cluster) if node // nodes == place]
            world.env.process(_mend(world, cluster, struck, domain, repair_h))


def _mend(world: World, cluster: str, nodes: Sequence[int], domain: str, repair_h: float) -> Steps:
    held = world.take_out(cluster, nodes, domain.replace("_", " "))
    yield world.crews.take()
    yield world.timeout(repair_h)
    world.crews.give()
    world.bring_back(held)


def maintenance_windows(world: World) -> Steps:
    """Open a window every week in which the nodes are drained that planned work has come up for since the last."""
    catalog = load_catalog()
    per_node_week = catalog.prior("planned_interruption_rate").base / 1000.0 * HOURS_PER_WEEK / HOURS_PER_DAY
    return windows(world, per_node_week, catalog.prior("planned_interruption_length").base)


def windows(world: World, per_node_week: float, length_h: float, reserve: int = 1) -> Steps:
    """Drain as many nodes a week as Poisson draws at this rate, one after another, within the reserve."""
    while True:
        yield world.timeout(HOURS_PER_WEEK)
        for cluster in world.clusters:
            up = world.nodes_up(cluster)
            count = min(int(world.random.poisson(per_node_week * len(up))), len(up))
            chosen = sorted(world.random.choice(up, count, replace=False).tolist()) if count else []
            world.env.process(_drain(world, cluster, chosen, "maintenance", length_h, reserve))


def firmware_rollout(world: World) -> Steps:
    """Roll firmware out over the fleet, as often as the catalogue says, node by node."""
    catalog = load_catalog()
    every_h = HOURS_PER_YEAR / catalog.prior("firmware_rollouts").base
    return rounds(world, "firmware", every_h, catalog.prior("firmware_update_length").base)


def rounds(world: World, cause: str, every_h: float, length_h: float, reserve: int = 1) -> Steps:
    """Drain every node of every cluster once a round, never more of a cluster than its reserve.

    ``reserve`` is the N + reserve for which the plan was made: while as many nodes of a cluster are down, for whatever
    reason, work on the next one waits. Rounds begin one interval apart, the first after one interval.
    """
    number = 0
    while True:
        number += 1
        yield world.timeout(max(0.0, number * every_h - world.now_h))
        yield simpy.AllOf(
            world.env,
            [
                world.env.process(_drain(world, cluster, world.nodes(cluster), cause, length_h, reserve))
                for cluster in world.clusters
            ],
        )


def _drain(world: World, cluster: str, nodes: Sequence[int], cause: str, length_h: float, reserve: int) -> Steps:
    """Take nodes out one after another, each once fewer than the reserve are down."""
    for node in nodes:
        while node in world.nodes(cluster) and len(world.nodes(cluster)) - len(world.nodes_up(cluster)) >= reserve:
            yield world.timeout(_TRY_AGAIN_H)
        if node in world.nodes(cluster):  # it may have been retired meanwhile
            held = world.take_out(cluster, [node], cause)
            yield world.timeout(length_h)
            world.bring_back(held)
