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
from planner.finance.accounting.measures import measures
from planner.plan.attainment import Verdict
from planner.plan.build import build_plan
from planner.plan.plan import Plan
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


class _Enlargement:
    """More nodes of one cluster, and what they do; each number of nodes is planned and run once."""

    def __init__(self, result: RunResult, cluster: str, allowed_misses: int) -> None:
        self.result = result
        self.cluster = cluster
        self.stated_nodes = result.scenario.clusters[cluster].nodes
        self.allowed_misses = allowed_misses
        # The searches below ask for the same numbers again and again.
        self.plan = functools.cache(self._plan)
        self.misses = functools.cache(self._misses)
        self.added_usd = functools.cache(self._added_usd)

    def _plan(self, nodes: int) -> tuple[Scenario, Plan] | None:
        """Return the plan with additional nodes, or None where it is impossible."""
        override = f"clusters.{self.cluster}.nodes={self.stated_nodes + nodes}"
        try:
            scenario = self.result.scenario.laid_over([override])
            return scenario, build_plan(scenario)
        except (ScenarioError, CapacityError):
            return None

    def _run(self, plan: tuple[Scenario, Plan], replication: int) -> RunResult:
        """Run a plan in a replication, counted from the run's own."""
        result = self.result
        number = result.replication + replication
        return simulate_plan(*plan, result.seed, number, result.processes)

    def _misses(self, nodes: int, replications: tuple[int, ...]) -> int:
        """Return in how many replications additional nodes are too few, as far as that matters."""
        plan = self.plan(nodes)
        # A plan that cannot be built misses in all of them, and so beyond what may.
        if plan is None:
            return len(replications) + self.allowed_misses
        misses = 0
        for replication in replications:
            slo_result = self._run(plan, replication).slo_result()
            misses += not slo_result.is_met
            # Each run takes a second: how many more would miss decides nothing.
            if misses > self.allowed_misses:
                break
        return misses

    def is_enough(self, nodes: int, replications: tuple[int, ...]) -> bool:
        """Return whether additional nodes miss the target in no more replications than may."""
        misses = self.misses(nodes, replications)
        return bool(misses <= self.allowed_misses)

    def _added_usd(self, nodes: int) -> float:
        """Return what additional nodes add to net present cost."""
        plan = self.plan(nodes)
        if plan is None:
            return math.inf
        npv_usd = measures(self.result)["npv_usd"] or 0.0
        larger = measures(self._run(plan, 0))
        larger_npv_usd = larger["npv_usd"] or 0.0
        return npv_usd - larger_npv_usd

    def fewest_nodes(self, hardest: tuple[int, ...], limit: int) -> int:
        """Return the fewest nodes, up to a limit, that are enough in the hardest replications."""
        too_few = 0
        sufficient = 1
        # Double until it is enough, so that any number is met after a few runs.
        while sufficient < limit and not self.is_enough(sufficient, hardest):
            too_few = sufficient
            sufficient = min(2 * sufficient, limit)
        # Halve what lies between; where even the limit is too few there is nothing to halve.
        while sufficient - too_few > 1 and self.is_enough(sufficient, hardest):
            middle = (too_few + sufficient) // 2
            if self.is_enough(middle, hardest):
                sufficient = middle
            else:
                too_few = middle
        return sufficient


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

    def is_met(misses: int) -> bool:
        verdict = Verdict.of(scenario, replications - misses, replications)
        return verdict.status == "MET"

    while is_met(allowed + 1):
        allowed += 1
    # The hardest first, then all others, each of them once.
    numbers = (*hardest, *range(replications))
    order = tuple(dict.fromkeys(numbers))
    hard = order[: allowed + _HARDEST]
    best: Remedy | None = None
    labels = result.plan.months.labels
    # What works most is what most is known of.
    busy_h = result.monthly.busy_node_h[worst.month]
    busiest = np.argsort(-busy_h, kind="stable")
    for place in busiest.tolist():
        name = result.plan.clusters[place].name
        present_h = result.monthly.present_node_h[:, place]
        if present_h[worst.month] <= 0.0:
            continue  # sold or not there yet: more of it would be neither
        progress(f"trying more nodes of {name}")
        larger = _Enlargement(result, name, allowed)
        limit = MOST_TIMES * max(larger.stated_nodes, 1)
        if best is not None:
            # No more nodes than cost less than what is known to meet the target.
            added_usd = max(larger.added_usd(1), 1e-9)  # a node that costs nothing sets no limit
            limit = min(limit, int(best.net_present_cost_usd / added_usd))
            if limit < 1 or not larger.is_enough(limit, hard):
                continue
        nodes = larger.fewest_nodes(hard, limit)
        # Steps of a sixteenth: one node at a time, a large cluster would take hundreds of runs.
        while nodes < limit and not larger.is_enough(nodes, order):
            nodes += max(1, nodes // 16)
        if not larger.is_enough(nodes, order):
            continue
        cost_usd = larger.added_usd(nodes)
        if best is None or cost_usd < best.net_present_cost_usd:
            first_month = int(np.argmax(present_h > 0.0))
            misses = larger.misses(nodes, order)
            best = Remedy(
                cluster=name,
                accelerator=scenario.clusters[name].accelerator,
                nodes=nodes,
                nodes_in_all=larger.stated_nodes + nodes,
                from_month=labels[first_month],
                month=labels[worst.month],
                net_present_cost_usd=cost_usd,
                slo_met_replications=replications - misses,
                replications=replications,
            )
    return best
