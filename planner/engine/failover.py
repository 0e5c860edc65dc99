"""An outage of the site: its machines are dark, and those at a provider's carry what they have room for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats
from planner.engine.hourly import WindowInput
from planner.engine.router import ways_of
from planner.engine.routing import Room, Way, fill
from planner.plan.plan import Plan


def with_carried(plan: Plan, window: WindowInput, ways: Sequence[Way] | None = None) -> WindowInput:
    """Return a window with what a provider's machines carry of the arrivals in its outages; ``ways`` where known.

    With the site lit for a share l of an hour, a provider's n nodes are alone for 1 − l of it: of d·(1 − l) requests
    that come then, n·(1 − l) node-hours serve what they can, by priority. Work that can wait is not lost, and waits.
    """
    if window.lit_fraction is None or plan.on_site.all():
        return window
    ways = ways_of(plan, window) if ways is None else ways
    dark = 1.0 - window.lit_fraction
    room = Room.empty(window.nodes * (1.0 - plan.on_site)[:, None] * dark, 1.0)
    carried: dict[tuple[int, int], Floats] = {}
    for w in plan.by_priority:
        if not plan.workloads[w].deadline_h:
            served = {c: np.zeros(dark.size) for c in ways[w].order}
            fill(window.demand_requests[w] * dark, room, ways[w], served)
            carried.update(((c, w), requests) for c, requests in served.items() if requests.any())
    return dataclasses.replace(window, carried_requests=carried)
