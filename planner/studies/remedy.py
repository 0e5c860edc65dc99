"""What meets an SLO target that a run misses: more nodes of one cluster, found by simulating them.

The cheapest plan is a matter for ``planner size``. This answers sooner: of each cluster that is in service in the worst
month, how many more nodes meet the target, and which of these clusters costs least. Nothing is named that was not run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

from planner.plan.build import build_plan
from planner.run.measures import measures
from planner.run.simulate import RunResult, simulate_plan

_MOST_TIMES = 16  # a cluster that is not enough at so many times its size lacks something else than nodes
_STEP = 1.15  # by which an answer for one replication grows until it does for all of them
_TRIES = 8


class Remedy(NamedTuple):
    """More nodes of one cluster that meet the target."""

    cluster: str
    accelerator: str
    nodes: int
    """Beyond those stated."""
    month: str
    """The worst month of the run without them."""
    net_present_cost_usd: float
    """What they add, replication 0 against itself."""
    slo_met_replications: int
    replications: int


def find_remedy(result: RunResult, replications: int, progress: Callable[[str], None]) -> Remedy | None:
    """Return the cheapest enlargement of one cluster with which enough replications meet the SLO target, None if none.

    Nodes are sought by doubling and halving on the run's own replication, then enlarged until all replications agree.
    """
    scenario, worst = result.scenario, result.verdict().worst
    if worst is None:
        return None
    allowed = math.floor((1.0 - scenario.slo_target.confidence) * replications + 1e-9)
    answer: list[Remedy] = []
    for cluster, present_h in zip(result.plan.clusters, result.monthly.present_node_h[worst.month], strict=True):
        if present_h <= 0.0:
            continue  # sold or not there yet: more of it would be neither
        progress(f"trying more nodes of {cluster.name}")
        stated = scenario.clusters[cluster.name].nodes

        @functools.cache
        def run(more: int, replication: int, name: str = cluster.name, stated: int = stated) -> RunResult:
            larger = scenario.laid_over([f"clusters.{name}.nodes={stated + more}"])
            return simulate_plan(larger, build_plan(larger), result.seed, replication, result.processes)

        def misses(more: int) -> bool:
            return not run(more, result.replication).verdict().is_met

        too_few, enough = 0, 1
        while misses(enough) and enough < _MOST_TIMES * stated:
            too_few, enough = enough, 2 * enough
        if misses(enough):
            continue
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            too_few, enough = (middle, enough) if misses(middle) else (too_few, middle)
        for _ in range(_TRIES):
            drawn = (run(enough, result.replication + place) for place in range(replications))
            met = sum(one.verdict().is_met for one in drawn)
            if met >= replications - allowed:
                base, larger = (measures(one)["npv_usd"] for one in (result, run(enough, result.replication)))
                month, added = result.plan.months.labels[worst.month], (base or 0.0) - (larger or 0.0)
                answer.append(Remedy(cluster.name, cluster.accelerator, enough, month, added, met, replications))
                break
            enough = math.ceil(_STEP * enough) + (enough < 4)
    return min(answer, key=lambda remedy: remedy.net_present_cost_usd, default=None)
