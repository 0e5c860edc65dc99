"""Physical causes for which a law may not hold, each shown by a run in which it is taken away.

A law is about placement. What else is decided for a whole cluster, or in whole numbers, may turn with a change: the
engine of a cluster, the order in which a router goes through clusters, the last replica.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.laws.laws import (
    Change,
    doubled,
    never_better,
    never_worse,
    same_units,
    twice_per_unit,
)
from tests.laws.outcomes import Outcome, Runs, is_exactly_as_good
from tests.laws.worlds import World

Statement = Callable[[World, Outcome], World]
"""A world in which something is stated as it was in a run."""

SMALL_GAIN = "what counts first gains, if by less than the tolerance"
"""A placement compares shares exactly, so it gives up a point of the last class for any gain of the first."""
EXACT_NODES = 8
EXACT_MODELS = 3
"""Sites that are placed exactly: no law allows for whole replicas there."""
OTHER_SHARES = 0.005
"""Of a workload's requests: where more or fewer are served, a fleet's tokens are others."""


def _with_engines(world: World, outcome: Outcome) -> World:
    return world.with_engines(outcome.engines)


def _with_routing(world: World, outcome: Outcome) -> World:
    return world.with_routing(outcome.routing)


def _with_both(world: World, outcome: Outcome) -> World:
    return _with_routing(_with_engines(world, outcome), outcome)


STATEMENTS: dict[str, Statement] = {
    "a cluster runs one engine for all its models": _with_engines,
    "the router goes to the cheaper cluster first": _with_routing,
    "engine and order of clusters turn": _with_both,
}


def cause_of(world: World, change: Change, runs: Runs) -> str | None:
    """Return what explains that a change breaks a law; None where nothing does."""
    if change.smaller is None and change.expectation is not same_units:
        # What must be equal is equal whatever turns.
        return None
    before = runs.outcome(change.reference or world)
    after = runs.outcome(change.world)
    if change.expectation is never_worse and is_exactly_as_good(before, after):
        return SMALL_GAIN
    if _is_within_replica(world, change, runs):
        return "whole replicas"
    if change.expectation is never_better and after.mixed_layouts - before.mixed_layouts:
        return "a model has one layout on a cluster"
    if change.expectation is same_units:
        if _serves_others(before, after):
            return "larger pools serve other shares"
        larger = twice_per_unit(doubled(world))
        if same_units(after, runs.outcome(larger.world)) == 0.0:
            return "whole replicas: from twice the size on units are the same"
    for cause, stated in STATEMENTS.items():
        outcomes = [
            runs.outcome(stated(each, before)) for each in (change.reference or world, change.world)
        ]
        if change.expectation(*outcomes) == 0.0:
            return cause
    return None


def one_replica_less(world: World) -> World | None:
    """Return a world without a node of each cluster for each model, or None where it is placed exactly.

    A replica takes a node at most, but for layouts that span several.
    """
    model_count = len(world.models)
    is_exact = world.nodes <= EXACT_NODES and model_count <= EXACT_MODELS
    counts = [cluster.count - model_count for cluster in world.clusters]
    if is_exact or max(counts) <= 0:
        return None
    return world.with_nodes(counts)


def _is_within_replica(world: World, change: Change, runs: Runs) -> bool:
    """Return whether a change of the objective is less than a replica of each model on each cluster makes."""
    smaller = world if change.smaller == "before" else change.world
    reduced = one_replica_less(smaller)
    if change.smaller is None or reduced is None:
        return False
    before = world if change.smaller == "after" else reduced
    after = change.world if change.smaller == "before" else reduced
    return change.expectation(runs.outcome(before), runs.outcome(after)) == 0.0


def _serves_others(before: Outcome, after: Outcome) -> bool:
    """Return whether a share of some workload changes so much that tokens and energy are those of another mix."""
    for name, served in before.workloads.items():
        if abs(after.workloads[name].share - served.share) > OTHER_SHARES:
            return True
    return False
