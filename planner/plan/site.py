"""The site, compiled: power cap, cooling overhead, power blocks and outages."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterable

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.plan.plan import ClusterPlan, Plan, SitePlan
from planner.scenario.scenario import Scenario
from planner.scenario.site import Curtailment
from planner.units import DAYS_PER_YEAR, HOURS_PER_DAY

_HOTTEST_DAY = 200.0
"""Day of the year of the highest cooling load, 19 July: northern sites."""
_CURTAILMENT_HOUR = 16.0
"""UTC hour at which a daily curtailment begins: the American afternoon peak."""


def site_plan(scenario: Scenario, clusters: tuple[ClusterPlan, ...], hours: int) -> SitePlan:
    """Compile the site's power cap, cooling, power blocks and outages."""
    site = scenario.site
    rated_kw = _rated_kw(clusters, hours)
    stated_kw = np.inf if site.facility_power_cap_kw is None else site.facility_power_cap_kw
    season = site.pue_season_fraction * _season(scenario.start, hours)
    # The hottest hour of a year has the largest overhead: what fits then always fits.
    mean_overhead = site.pue_ratio - 1.0
    hottest = 1.0 + mean_overhead * (1.0 + site.pue_season_fraction)
    most_kw = stated_kw / hottest
    cap_kw = np.full(hours, stated_kw)
    # What a curtailment cuts where no cap is stated: the site at full load in a mean season.
    reference_kw = rated_kw * site.pue_ratio if stated_kw == np.inf else cap_kw.copy()
    for cut in site.curtailments:
        cut_kw = reference_kw * (1.0 - cut.cut_fraction)
        is_cut = _is_curtailed(cut, scenario.start, hours)
        # Curtailments may overlap: the deepest cut holds.
        cap_kw[is_cut] = np.minimum(cap_kw[is_cut], cut_kw[is_cut])
    blocks = sorted(site.power_blocks, key=lambda block: block.date)
    block_h = []
    for block in blocks:
        energised_h = (block.date - scenario.start).days * HOURS_PER_DAY
        # What was energised before the start is there on the first day.
        block_h.append(max(0.0, energised_h))
    is_capped = bool(site.curtailments) or stated_kw < np.inf
    return SitePlan(
        cap_kw=cap_kw if is_capped else None,
        overhead_ratio=mean_overhead * (1.0 + season),
        fixed_fraction=site.pue_fixed_fraction,
        most_it_kw=most_kw,
        rated_kw=np.minimum(
            rated_kw, most_kw
        ),  # nobody builds cooling for more than the site may draw
        block_h=np.array(block_h),
        block_kw=np.cumsum([block.it_kw for block in blocks]),
        outages_per_year=site.outages_per_year,
        outage_h=site.outage_h,
        commissioning_crews=site.commissioning_crews,
        commissioning_h=site.commissioning_h_per_node,
    )


def _is_curtailed(cut: Curtailment, start: datetime.date, hours: int) -> Bools:
    """Return whether each hour is curtailed, shape (hours,): for some hours of each of its days, or all day."""
    hour = np.arange(hours)
    elapsed_h = hour - (cut.date - start).days * HOURS_PER_DAY
    length_h = cut.length_days * HOURS_PER_DAY
    is_cut = (elapsed_h >= 0) & (elapsed_h < length_h)
    if cut.hours_per_day < HOURS_PER_DAY:
        # Modulo a day, so that a curtailment may run past midnight.
        since_begin_h = (hour - _CURTAILMENT_HOUR) % HOURS_PER_DAY
        is_cut &= since_begin_h < cut.hours_per_day
    return is_cut


# Kept, since plans compiled one after another mostly share their start and horizon.
@functools.lru_cache(maxsize=4)
def _season(start: datetime.date, hours: int) -> Floats:
    """Return the yearly wave of the cooling load, from −1 to 1, shape (hours,)."""
    first_day = start.timetuple().tm_yday
    day = first_day + np.arange(hours) / HOURS_PER_DAY
    angle = 2.0 * np.pi * (day - _HOTTEST_DAY) / DAYS_PER_YEAR
    return np.asarray(np.cos(angle))


def on_site_kw(
    clusters: Iterable[ClusterPlan], hours: int, node_kw: Callable[[ClusterPlan], float]
) -> list[float]:
    """Return the total power on site by a given figure per node, at each cluster's first hour and at the end.

    Power on site rises only where a cluster comes, so its highest value is among these.
    """
    present = [cluster for cluster in clusters if cluster.nodes and not cluster.is_hosted]
    hours_of_change = [cluster.earliest_h for cluster in present]
    hours_of_change.append(hours - 1.0)

    def power_kw(hour: float) -> float:
        return sum(
            cluster.nodes * node_kw(cluster)
            for cluster in present
            if cluster.earliest_h <= hour < cluster.retire_h
        )

    return [power_kw(hour) for hour in hours_of_change]


def _rated_kw(clusters: Iterable[ClusterPlan], hours: int) -> Floats:
    """Return the highest IT power at full load of the machines on site up to each hour, shape (hours,).

    Cooling is built as machines come, and stays when they go: what is delivered later is not cooled for before.
    """
    hour = np.arange(hours)
    full_kw = np.zeros(hours)
    for cluster in clusters:
        if not cluster.is_hosted:
            is_there = (hour >= cluster.earliest_h) & (hour < cluster.retire_h)
            full_kw += cluster.nodes * cluster.node_power.full_kw * is_there
    return np.maximum.accumulate(full_kw)


def full_load_kw(clusters: Iterable[ClusterPlan], hours: int) -> float:
    """Return the highest IT power of the machines on site at full load at any one time."""
    return max(on_site_kw(clusters, hours, lambda cluster: cluster.node_power.full_kw))


def facility_kw(plan: Plan, it_kw: Floats, hours: slice | Ints) -> Floats:
    """Return facility power, shape (hours,): IT + (PUE − 1)·s(h)·(f·rated + (1 − f)·IT).

    s is the season, rated the IT power for which cooling has been built and f the share of overhead that does not fall
    with load, so that PUE is the stated one at rated load in a mean season and rises as load falls.
    """
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    fixed_kw = fixed * plan.site.rated_kw[hours]
    cooled_kw = fixed_kw + (1.0 - fixed) * it_kw
    power_kw: Floats = it_kw + overhead * cooled_kw
    return power_kw


def allowed_it_kw(plan: Plan, cap_kw: Floats, hours: slice | Ints) -> Floats:
    """Return the IT power at which facility power meets the cap: the inverse of :func:`facility_kw`."""
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    fixed_kw = overhead * fixed * plan.site.rated_kw[hours]
    kw_per_it_kw = 1.0 + overhead * (1.0 - fixed)
    # A cap below the overhead that never falls leaves nothing for machines.
    return np.maximum((cap_kw - fixed_kw) / kw_per_it_kw, 0.0)
