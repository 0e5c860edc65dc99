"""Outages of the whole site."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from planner.engine.log import ChangeLog, SiteEvent
from planner.engine.streams import Streams
from planner.plan.plan import Plan
from planner.units import HOURS_PER_YEAR


def site_outages(
    env: simpy.Environment, plan: Plan, log: ChangeLog, streams: Streams
) -> Generator[simpy.Event, Any, None]:
    """Let the whole site lose power now and then, each time for an exponential while; a provider's machines keep on."""
    draw = streams("site/outages")
    if plan.site.outages_per_year <= 0:
        return
    while True:
        yield env.timeout(draw.exponential(HOURS_PER_YEAR / plan.site.outages_per_year))
        length_h = draw.exponential(plan.site.outage_h)
        log.site.append(SiteEvent(float(env.now), float(env.now) + length_h))
        yield env.timeout(length_h)
