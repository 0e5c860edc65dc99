"""Power that a plan's machines may draw: at full load together, and at the meter with cooling."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from planner.arrays import Floats, Ints
from planner.plan.plan import ClusterPlan, Plan


def on_site_kw(clusters: Iterable[ClusterPlan], hours: int, kw: Callable[[ClusterPlan], float]) -> list[float]:
    """Return what the machines on site draw by some figure of a node, each time that a cluster comes, and at the end.

    A cluster is there from its first day, at the earliest, until it is retired.
    """
    here = [cluster for cluster in clusters if cluster.nodes and not cluster.is_hosted]
    begins = [_begins_h(cluster) for cluster in here]
    return [
        sum(c.nodes * kw(c) for c, begin_h in zip(here, begins, strict=True) if begin_h <= at_h < c.retire_h)
        for at_h in (*begins, hours - 1.0)
    ]


def full_load_kw(clusters: Iterable[ClusterPlan], hours: int) -> float:
    """Return the most IT power that the machines on site draw at full load: those that are there together."""
    return max(on_site_kw(clusters, hours, lambda cluster: cluster.node_power.full_kw))


def _begins_h(cluster: ClusterPlan) -> float:
    """Return when the first machines of a cluster are there at the earliest."""
    order = cluster.order
    return (cluster.online_h or 0.0) if order is None else max(order.placed_h + order.lead_h + order.slip_h.low, 0.0)


def facility_kw(plan: Plan, it: Floats, hours: slice | Ints) -> Floats:
    """Return facility power, shape (hours,): IT + (PUE − 1)·s(h)·(f·rated + (1 − f)·IT).

    s is the season, rated the IT power for which the cooling is built and f the share of overhead that does not fall
    with load, so that PUE is the stated one at rated load in a mean season and rises as load falls.
    """
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    power: Floats = it + overhead * (fixed * plan.site.rated_kw + (1.0 - fixed) * it)
    return power


def allowed_it_kw(plan: Plan, cap_kw: Floats, hours: slice | Ints) -> Floats:
    """Return the IT power at which facility power meets the cap: the inverse of :func:`facility_kw`."""
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    allowed: Floats = (cap_kw - overhead * fixed * plan.site.rated_kw) / (1.0 + overhead * (1.0 - fixed))
    return np.maximum(allowed, 0.0)
