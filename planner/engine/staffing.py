"""The crews and spares that the nodes on site need, and from when."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from planner.arrays import Floats
from planner.plan.plan import ClusterPlan
from planner.plan.reliability_plan import ReliabilityPlan


class Staffing:
    """How many crews and spares the nodes on site need, and from when; a provider mends its machines itself."""

    def __init__(self, plan: ReliabilityPlan, clusters: Sequence[ClusterPlan]) -> None:
        self.plan = plan
        self.clusters = clusters
        self.on_site = [0] * len(clusters)
        """Nodes of each cluster that are there, or known to be on their way into service."""

    @property
    def accelerators(self) -> int:
        """Accelerators on site."""
        nodes = zip(self.on_site, self.clusters, strict=True)
        return sum(count * cluster.accelerators_per_node for count, cluster in nodes if not cluster.is_hosted)

    def crews(self) -> int:
        """Return the crews for the accelerators on site."""
        return self.plan.crews.number(self.accelerators)

    def spares(self, cluster: int, more: int = 0) -> int:
        """Return the spares for a cluster's nodes on site and some more."""
        nodes = self.on_site[cluster] + more
        return self.plan.spares.number(nodes * self.clusters[cluster].accelerators_per_node, nodes)

    def crews_from(self, cluster: int, service_h: Floats) -> list[float]:
        """Return when each crew begins that nodes need which enter service at these times, rising."""
        there, size = self.accelerators, self.clusters[cluster].accelerators_per_node
        if self.clusters[cluster].is_hosted:
            return []
        return _from(service_h, lambda more: self.plan.crews.number(there + more * size))

    def spares_from(self, cluster: int, service_h: Floats) -> list[float]:
        """Return when each spare is in stock that nodes need which enter service at these times, rising."""
        return _from(service_h, lambda more: self.spares(cluster, more))


def _from(service_h: Floats, needed: Callable[[int], int]) -> list[float]:
    """Return, for each further one needed, when that node is there with which so many are."""
    wanted = range(needed(0) + 1, needed(service_h.size) + 1)
    # Needs rise with nodes, so the node is found by halving: a few steps for each of thousands of nodes.
    return [float(service_h[bisect_left(range(1, service_h.size), count, key=needed)]) for count in wanted]
