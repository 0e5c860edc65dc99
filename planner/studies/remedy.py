"""Remedies for a missed SLO target: more nodes of one cluster, confirmed by simulation.

The cheapest plan is a matter for ``planner size``. This answers sooner: of each cluster that is in service in the worst
month, how many more nodes meet the target, and which of these clusters costs least. Nothing is named that was not run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from planner.errors import CapacityError, ScenarioError
from planner.plan.build import build_plan
from planner.plan.slo_target import Verdict
from planner.run.measures import measures
from planner.run.simulate import RunResult, simulate_plan

MOST_TIMES = 16
"""Times its stated nodes up to which a cluster is enlarged: beyond, what is missed lacks something else than nodes."""


class Remedy(NamedTuple):
    """Additional nodes of one cluster with which the SLO target is met."""

    cluster: str
    accelerator: str
    nodes: int
    """Beyond those stated."""
    nodes_in_all: int
    """With those stated: what the cluster's key is to say."""
    from_month: str
    """Month in which the cluster comes, and they with it."""
    month: str
    """The worst month of the run without them."""
    net_present_cost_usd: float
    """What they add, in the run's own replication."""
    slo_met_replications: int
    replications: int


def find_remedy(result: RunResult, replications: int, progress: Callable[[str], None]) -> Remedy | None:
    """Return the cheapest enlargement of one cluster that meets the SLO target in enough replications, or None.

    Nodes are sought by doubling and halving; a number is given up once more replications miss than may.
    """
    scenario, worst = result.scenario, result.slo_result().worst
    if worst is None:
        return None
    # As many may miss as leave the verdict MET; none where so few replications could never be.
    allowed, confidence = 0, scenario.slo_target.confidence
    while Verdict(replications - allowed - 1, replications, confidence).status == "MET":
        allowed += 1
    remedies: list[Remedy] = []
    labels = result.plan.months.labels
    for cluster, present_h in zip(result.plan.clusters, result.monthly.present_node_h.T, strict=True):
        if present_h[worst.month] <= 0.0:
            continue  # sold or not there yet: more of it would be neither
        comes = labels[int(np.argmax(present_h > 0.0))]
        progress(f"trying more nodes of {cluster.name}")
        stated = scenario.clusters[cluster.name].nodes

        @functools.cache
        def tried(more: int, name: str = cluster.name, stated: int = stated, comes: str = comes) -> Remedy | None:
            """Return ``more`` additional nodes as a remedy, or None where they are too few or impossible."""
            try:
                larger = scenario.laid_over([f"clusters.{name}.nodes={stated + more}"])
                plan = build_plan(larger)
            except (ScenarioError, CapacityError):
                return None
            missed, added_usd = 0, 0.0
            for place in range(replications):
                drawn = simulate_plan(larger, plan, result.seed, result.replication + place, result.processes)
                missed += not drawn.slo_result().is_met
                if missed > allowed:
                    return None
                if place == 0:
                    before, after = (measures(one)["npv_usd"] for one in (result, drawn))
                    added_usd = (before or 0.0) - (after or 0.0)
            month, accelerator = labels[worst.month], larger.clusters[name].accelerator
            return Remedy(
                name, accelerator, more, stated + more, comes, month, added_usd, replications - missed, replications
            )

        too_few, enough = 0, 1
        while tried(enough) is None and enough < MOST_TIMES * stated:
            too_few, enough = enough, 2 * enough
        while tried(enough) is not None and enough - too_few > 1:
            middle = (too_few + enough) // 2
            too_few, enough = (middle, enough) if tried(middle) is None else (too_few, middle)
        if (remedy := tried(enough)) is not None:
            remedies.append(remedy)
    return min(remedies, key=lambda remedy: remedy.net_present_cost_usd, default=None)
