"""Remedies for a missed SLO target: more nodes of one cluster, confirmed by simulation.

The cheapest plan is a matter for ``planner size``. This answers sooner: of each cluster that is in service in the worst
month, how many more nodes meet the target, and which of these clusters costs least. Nothing is named that was not run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.errors import CapacityError, ScenarioError
from planner.plan.attainment import Verdict
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.run.measures import measures
from planner.run.simulate import RunResult, simulate_plan
from planner.scenario.scenario import Scenario

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


_HARDEST = 3
"""Replications beyond those that may miss, the hardest, in which nodes are sought before all of them confirm."""


def find_remedy(
    result: RunResult,
    replications: int,
    progress: Callable[[str], None],
    hardest: Sequence[int] = (),
) -> Remedy | None:
    """Return the cheapest enlargement of one cluster that meets the SLO target in enough replications, or None.

    Nodes are sought by doubling and halving in the ``hardest`` replications, by their places, and confirmed in all; a
    number is given up once more replications miss than may.
    """
    scenario = result.scenario
    worst = result.slo_result().worst
    if worst is None:
        return None
    # As many may miss as leave the verdict MET; none where so few replications could never be.
    allowed = 0
    while Verdict.of(scenario, replications - allowed - 1, replications).status == "MET":
        allowed += 1
    order = tuple(dict.fromkeys((*hardest, *range(replications))))
    best: Remedy | None = None
    labels = result.plan.months.labels
    there_h = result.monthly.present_node_h
    busy_h = result.monthly.busy_node_h[worst.month]
    for place in np.argsort(
        -busy_h, kind="stable"
    ).tolist():  # what works most is what most is known of
        cluster = result.plan.clusters[place]
        present_h = there_h[:, place]
        if present_h[worst.month] <= 0.0:
            continue  # sold or not there yet: more of it would be neither
        comes = labels[int(np.argmax(present_h > 0.0))]
        progress(f"trying more nodes of {cluster.name}")
        name, stated = cluster.name, scenario.clusters[cluster.name].nodes

        @functools.cache
        def larger(
            more: int, name: str = name, stated: int = stated
        ) -> tuple[Scenario, Plan] | None:
            """Return the plan with additional nodes, or None where it is impossible."""
            try:
                made = scenario.laid_over([f"clusters.{name}.nodes={stated + more}"])
                return made, build_plan(made)
            except (ScenarioError, CapacityError):
                return None

        @functools.cache
        def missed(more: int, places: tuple[int, ...]) -> int:
            """Return in how many replications ``more`` additional nodes are too few, as far as that matters."""
            if (plan := larger(more)) is None:
                return len(places) + allowed
            count = 0
            for place in places:
                drawn = simulate_plan(
                    *plan, result.seed, result.replication + place, result.processes
                )
                count += not drawn.slo_result().is_met
                if count > allowed:
                    break
            return count

        @functools.cache
        def added_usd(more: int) -> float:
            """Return what ``more`` additional nodes add to net present cost."""
            if (plan := larger(more)) is None:
                return math.inf
            drawn = simulate_plan(*plan, result.seed, result.replication, result.processes)
            return (measures(result)["npv_usd"] or 0.0) - (measures(drawn)["npv_usd"] or 0.0)

        few = order[: allowed + _HARDEST]
        most = MOST_TIMES * max(stated, 1)
        if best is not None:  # no more than cost less than what is known to meet it
            most = min(most, int(best.net_present_cost_usd / max(added_usd(1), 1e-9)))
            if most < 1 or missed(most, few) > allowed:
                continue
        too_few = 0
        enough = 1
        while missed(enough, few) > allowed and enough < most:
            too_few = enough
            enough = min(2 * enough, most)
        while enough - too_few > 1 and missed(enough, few) <= allowed:
            middle = (too_few + enough) // 2
            too_few, enough = (
                (middle, enough) if missed(middle, few) > allowed else (too_few, middle)
            )
        while (count := missed(enough, order)) > allowed and enough < most:
            enough += max(1, enough // 16)
        if count <= allowed and (best is None or added_usd(enough) < best.net_present_cost_usd):
            month = labels[worst.month]
            accelerator = scenario.clusters[name].accelerator
            met = replications - count
            added = added_usd(enough)
            best = Remedy(
                name, accelerator, enough, stated + enough, comes, month, added, met, replications
            )
    return best
