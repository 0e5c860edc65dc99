"""Remedies for a missed SLO target: more nodes of one cluster that can still be bought, confirmed by simulation.

The cheapest plan is a matter for ``planner size``. This answers sooner: of each cluster that can be bought and is in
service in the worst month, how many more nodes meet the target, and which of these clusters costs least. A cluster that
is quoted, with no node stated yet, is one of them; machines that are owned already are not, since nobody sells more of
them at their book value. Nodes are sought in the run's own replications, and confirmed in others that the search has
not seen.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.errors import CapacityError, ScenarioError
from planner.finance.accounting.measures import measures
from planner.plan.attainment import Verdict
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.records import record
from planner.run.simulate import RunResult, simulate_plan
from planner.run.slo_misses import long_prompts
from planner.scenario.scenario import Scenario

MOST_TIMES = 16
"""Times the nodes of the whole plan up to which a cluster is enlarged: beyond, the plan lacks something else."""
_MOST_CONFIRMATIONS = 4
"""Blocks of fresh replications that one cluster may use: each failure adds a sixteenth to its nodes."""


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
    """Of the fresh replications, which the search has not seen."""
    replications: int
    """Fresh replications in which the nodes were confirmed."""


@record
class NoRemedy:
    """No number of nodes of one cluster was found that meets the SLO target."""

    cluster: None = None
    reason: str
    """Why, in words that follow a colon."""


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

    def confirmed_nodes(
        self, nodes: int, limit: int, seen: tuple[int, ...]
    ) -> tuple[int, int] | None:
        """Return nodes that meet the target in those seen and in as many fresh replications, and in how many of these.

        None where none up to a limit do. A block of replications that failed is not used again: nodes chosen by it
        would no longer be tested by it.
        """
        replications = len(seen)
        for block in range(1, 1 + _MOST_CONFIRMATIONS):
            first = block * replications
            fresh = tuple(range(first, first + replications))
            if self.is_enough(nodes, seen) and self.is_enough(nodes, fresh):
                return nodes, replications - self.misses(nodes, fresh)
            nodes += max(1, nodes // 16)
            if nodes > limit:
                break
        return None

    def months_present(self, nodes: int) -> Floats:
        """Return the node-hours of the enlarged cluster by month; zero where the plan is impossible."""
        plan = self.plan(nodes)
        if plan is None:
            return np.zeros(len(self.result.plan.months.labels))
        run = self._run(plan, 0)
        names = [cluster.name for cluster in run.plan.clusters]
        return run.monthly.present_node_h[:, names.index(self.cluster)]


def find_remedy(
    result: RunResult,
    replications: int,
    progress: Callable[[str], None],
    hardest: Sequence[int] = (),
) -> Remedy | NoRemedy:
    """Return the cheapest enlargement of one cluster that meets the SLO target, or why there is none.

    Nodes are sought by doubling and halving in the ``hardest`` replications, by their places, then in all of the run's
    own; a number is given up once more replications miss than may. As many fresh ones confirm it.
    """
    scenario = result.scenario
    worst = result.slo_result().worst
    if worst is None:
        return NoRemedy(reason="there is no request to serve")
    too_long = long_prompts(result)
    # With a faster cluster on offer nodes may mend it.
    if any(prompts.faster_cluster is None for prompts in too_long):
        names = " and ".join(prompts.workload for prompts in too_long)
        return NoRemedy(
            reason=f"prompts of {names} take longer than the TTFT objective even on idle replicas"
        )
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
    tried: list[str] = []
    # What works most is what most is known of.
    busy_h = result.monthly.busy_node_h[worst.month]
    busiest = np.argsort(-busy_h, kind="stable")
    plan_nodes = sum(cluster.nodes for cluster in scenario.clusters.values())
    most_nodes = MOST_TIMES * max(plan_nodes, 1)
    for place in busiest.tolist():
        name = result.plan.clusters[place].name
        cluster = scenario.clusters[name]
        if cluster.is_api or cluster.owned is not None:
            continue
        larger = _Enlargement(result, name, allowed)
        present_h = result.monthly.present_node_h[:, place]
        if not cluster.nodes:  # a quote: when it would be there, a node of it tells
            present_h = larger.months_present(1)
        if present_h[worst.month] <= 0.0:
            continue  # sold or not there yet: more of it would be neither
        progress(f"trying more nodes of {name}")
        tried.append(name)
        limit = most_nodes
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
        if nodes > limit or not larger.is_enough(nodes, order):
            continue
        confirmed = larger.confirmed_nodes(nodes, limit, order)
        if confirmed is None:
            continue
        nodes, met_replications = confirmed
        cost_usd = larger.added_usd(nodes)
        if best is None or cost_usd < best.net_present_cost_usd:
            best = Remedy(
                cluster=name,
                accelerator=cluster.accelerator,
                nodes=nodes,
                nodes_in_all=larger.stated_nodes + nodes,
                from_month=labels[int(np.argmax(present_h > 0.0))],
                month=labels[worst.month],
                net_present_cost_usd=cost_usd,
                slo_met_replications=met_replications,
                replications=replications,
            )
    if best is not None:
        return best
    month = labels[worst.month]
    if not tried:
        return NoRemedy(reason=f"no cluster that can be bought is in service in {month}")
    return NoRemedy(reason=f"adding nodes to {' or '.join(tried)} does not meet the target")
