"""Power at the site: what may be drawn, what is spared at the cap, when idle nodes are switched off."""

from __future__ import annotations

from dataclasses import dataclass

from planner.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingPlan:
    """Idle nodes are switched off, and on again for work."""

    headroom_fraction: float
    wake_h: float
    """At most half an hour: what wakes in an hour then carries half of its work at least, as the tables by load go."""
    parked_kw: float
    """What a parked node draws."""
    wake_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """Power at the site, as the hours see it."""

    cap_kw: Floats | None
    """Facility power that may be drawn, shape (hours,); None without a cap or curtailment."""
    overhead_ratio: Floats
    """(PUE − 1) by season, shape (hours,)."""
    fixed_fraction: float
    """Share of that overhead which does not fall with IT load."""
    most_it_kw: float
    """IT power that fits under the cap in the hottest hour of a year; infinity without a cap."""
    rated_kw: float
    """IT power for which the cooling is built: nodes that are there together at full load, or what the cap allows."""
    throttle_order: tuple[int, ...]
    """Clusters to spare at the cap where as much is served without them, the first before the next."""
    block_h: Floats
    """When each power block is energised, shape (blocks,)."""
    block_kw: Floats
    """IT power energised by then in all, shape (blocks,)."""
    outages_per_year: float
    outage_h: float
    commissioning_crews: int
    commissioning_h: float
    parking: ParkingPlan | None = None
