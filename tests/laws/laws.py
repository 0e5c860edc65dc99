"""The laws of placement: each changes a scenario, and says what must hold between the two runs.

They are about the objective (``tests.laws.outcomes``), not about each workload: where a division is fair, what one
workload gives another gets. A law is a function of a world that returns the changed world and what is expected, or
None where the world has nothing to change.
"""

from __future__ import annotations

import datetime
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from tests.laws.outcomes import PRIORITIES, TOLERANCE, Outcome, lost
from tests.laws.worlds import PARTS, RATES, START, Nodes, Stream, World

Item = TypeVar("Item")
Expectation = Callable[[Outcome, Outcome], float]
"""How far what is expected of two runs, before and after a change, is broken; 0 where it holds."""

LATER = datetime.date(2029, 2, 1)
"""After every horizon."""
HALVES_TOLERANCE = 0.005
"""Share of requests by which halves may be better: each half rounds to whole replicas anew."""
UNITS_TOLERANCE = 0.02
"""Of tokens and energy per unit when everything is twice as large."""
EQUAL_TOLERANCE = 1e-6
"""Of a figure that is to be equal: sums in another order, and a program that ends within a millionth of a node."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed world, and what is expected of its run."""

    world: World
    expectation: Expectation
    smaller: Literal["before", "after"] | None = None
    """Which of the two systems is the smaller, by whose replicas a placement may be off; None where it may not."""
    reference: World | None = None
    """What the changed world is held against, where that is not the world itself."""


Law = Callable[[World], Change | None]


def never_worse(before: Outcome, after: Outcome) -> float:
    """Return by how much the objective falls."""
    return lost(before, after)


def never_better(before: Outcome, after: Outcome) -> float:
    """Return by how much the objective rises."""
    return lost(after, before, HALVES_TOLERANCE)


def no_unearned_loss(before: Outcome, after: Outcome) -> float:
    """Return the largest loss of a workload, up to its target, from which none that had less has gained.

    None of its class or of a class before it.
    """
    worst = 0.0
    for name, old in before.workloads.items():
        loss = min(old.share, old.target) - after.workloads[name].share
        rank = PRIORITIES.index(old.priority)
        gainers = []
        for other, served in before.workloads.items():
            comes_first = PRIORITIES.index(served.priority) <= rank
            gain = after.workloads[other].share - served.share
            if comes_first and served.share < old.share and gain > TOLERANCE:
                gainers.append(other)
        if loss > TOLERANCE and not gainers:
            worst = max(worst, loss)
    return worst


def same_units(before: Outcome, after: Outcome) -> float:
    """Return how far tokens and energy are from twice as much, where that is beyond 2%.

    Larger pools may serve more of the requests: then tokens may rise, with energy no faster than tokens.
    """
    tokens_ratio = after.tokens / (2.0 * before.tokens)
    energy_ratio = after.energy_kwh / (2.0 * before.energy_kwh)
    if lost(after, before) > 0.0:
        shortfall = max(1.0 - tokens_ratio, energy_ratio / max(tokens_ratio, 1.0) - 1.0)
    else:
        shortfall = max(abs(tokens_ratio - 1.0), abs(energy_ratio - 1.0))
    return shortfall if shortfall > UNITS_TOLERANCE else 0.0


def equal(before: Outcome, after: Outcome) -> float:
    """Return the largest difference of the workloads' requests and of the energy, relative to all of them."""
    differences = [abs(after.energy_kwh / before.energy_kwh - 1.0)]
    for name, served in before.workloads.items():
        missed = after.workloads[name].missed
        differences.append(abs(missed - served.missed) / served.due)
    worst = max(differences)
    return worst if worst > EQUAL_TOLERANCE else 0.0


def same_hours(hours: int | None = None) -> Expectation:
    """Return the expectation that the first hours are the same to the last bit, of all that both runs have."""

    def difference(before: Outcome, after: Outcome) -> float:
        worst = 0.0
        for key, series in before.hourly.items():
            first_hours = series[:hours]
            other_hours = after.hourly[key][: len(first_hours)]
            if not np.array_equal(first_hours, other_hours):
                scale = max(float(first_hours.max()), float(other_hours.max()))
                worst = max(worst, float(np.abs(other_hours - first_hours).max()) / scale)
        return worst

    return difference


def _picked(world: World, law: str, items: Sequence[Item]) -> Item:
    """Return the item that a law changes in a world, the same one in every run."""
    random = np.random.default_rng([world.number, zlib.crc32(law.encode())])
    return items[int(random.integers(len(items)))]


def more_nodes(world: World) -> Change:
    """A cluster has a quarter more nodes."""
    cluster = _picked(world, "more nodes", world.clusters)
    larger = replace(cluster, count=math.ceil(1.25 * cluster.count))
    return Change(world.with_cluster(larger), never_worse, smaller="before")


def no_loser(world: World) -> Change:
    """A cluster has a quarter more nodes: who loses, loses to one that had less."""
    return replace(more_nodes(world), expectation=no_unearned_loss)


def faster_nodes(world: World) -> Change:
    """A cluster is a fifth faster."""
    cluster = _picked(world, "faster nodes", world.clusters)
    return Change(world.with_cluster(replace(cluster, speed=1.2)), never_worse, smaller="before")


def looser_tpot(world: World) -> Change:
    """A workload may take a fifth longer per token."""
    workload = _picked(world, "looser tpot", world.workloads)
    looser = replace(workload, tpot_s=1.2 * workload.tpot_s)
    return Change(world.with_workload(looser), never_worse, smaller="before")


def looser_ttft(world: World) -> Change:
    """A workload may take half as long again to its first token."""
    workload = _picked(world, "looser ttft", world.workloads)
    looser = replace(workload, ttft_s=1.5 * workload.ttft_s)
    return Change(world.with_workload(looser), never_worse, smaller="before")


def shorter_replies(world: World) -> Change:
    """A workload's replies are a quarter shorter."""
    workload = _picked(world, "shorter replies", world.workloads)
    shorter = replace(workload, output_tokens=0.75 * workload.output_tokens)
    return Change(world.with_workload(shorter), never_worse, smaller="before")


def less_demand(world: World) -> Change:
    """A workload has a quarter fewer requests."""
    workload = _picked(world, "less demand", world.workloads)
    smaller = replace(workload, requests_per_s=0.75 * workload.requests_per_s)
    return Change(world.with_workload(smaller), never_worse, smaller="before")


def workload_removed(world: World) -> Change | None:
    """A workload is gone; the others are compared."""
    if len(world.workloads) == 1:
        return None
    gone = _picked(world, "workload removed", world.workloads)
    others = [workload for workload in world.workloads if workload is not gone]
    return Change(replace(world, workloads=tuple(others)), never_worse, smaller="before")


def cluster_added(world: World) -> Change:
    """A cluster of another part, or of the same, is there from the first day."""
    cluster = _added_cluster(world, "cluster added")
    return Change(
        replace(world, clusters=(*world.clusters, cluster)), never_worse, smaller="before"
    )


def _added_cluster(world: World, law: str) -> Nodes:
    """Return a cluster of one to four nodes that a law adds to a world."""
    part = _picked(world, law, list(PARTS))
    count = _picked(world, law, [1, 2, 4])
    return Nodes(name="added", accelerator=part, count=count)


def more_cache(world: World) -> Change:
    """A workload finds 0.3 more of its prompts in the prefix cache."""
    workload = _picked(world, "more cache", world.workloads)
    cached = replace(workload, cached_fraction=workload.cached_fraction + 0.3)
    return Change(world.with_workload(cached), never_worse, smaller="before")


def longer_window(world: World) -> Change | None:
    """Work that can wait may wait twice as long."""
    patient = [workload for workload in world.workloads if workload.window_h is not None]
    if not patient:
        return None
    workload = _picked(world, "longer window", patient)
    window_h = 2.0 * (workload.window_h or 0.0)
    return Change(
        world.with_workload(replace(workload, window_h=window_h)), never_worse, smaller="before"
    )


def doubled(world: World) -> World:
    """Return a world with twice the nodes and twice the requests."""
    counts = [2 * cluster.count for cluster in world.clusters]
    workloads = [
        replace(workload, requests_per_s=2.0 * workload.requests_per_s)
        for workload in world.workloads
    ]
    return replace(world.with_nodes(counts), workloads=tuple(workloads))


def twice_everything(world: World) -> Change:
    """Twice the nodes and twice the requests: larger pools serve no worse."""
    return Change(doubled(world), never_worse, smaller="before")


def twice_per_unit(world: World) -> Change:
    """Twice the nodes and twice the requests: tokens and energy per unit are the same."""
    return Change(doubled(world), same_units)


def halves(world: World) -> Change | None:
    """Every cluster is cut in two: smaller pools serve no better."""
    clusters = []
    for cluster in world.clusters:
        larger_half = (cluster.count + 1) // 2
        counts = (larger_half, cluster.count - larger_half)
        for side, count in zip("ab", counts, strict=True):
            if count > 0:
                clusters.append(replace(cluster, name=f"{cluster.name}-{side}", count=count))
    if len(clusters) == len(world.clusters):
        return None
    return Change(replace(world, clusters=tuple(clusters)), never_better, smaller="after")


def reordered(world: World) -> Change | None:
    """Clusters and workloads stand in the opposite order."""
    if len(world.clusters) == len(world.workloads) == 1:
        return None
    workloads = world.workloads[::-1]
    return Change(replace(world, workloads=workloads, clusters=world.clusters[::-1]), equal)


def zero_rate(world: World) -> Change:
    """A workload of which nothing is asked is added."""
    model = _picked(world, "zero rate", list(RATES))
    nothing = Stream(
        name="nothing",
        model=model,
        requests_per_s=0.0,
        input_tokens=1200,
        output_tokens=300,
        ttft_s=5.0,
        tpot_s=0.1,
    )
    return Change(replace(world, workloads=(*world.workloads, nothing)), equal)


def no_nodes(world: World) -> Change:
    """A cluster without a node is added: an offer that nobody takes up."""
    offer = replace(_added_cluster(world, "no nodes"), count=0)
    return Change(replace(world, clusters=(*world.clusters, offer)), equal)


def step_after_horizon(world: World) -> Change:
    """Growth dated three years on."""
    workload = _picked(world, "step after horizon", world.workloads)
    return Change(world.with_workload(replace(workload, step=(LATER, 50.0))), same_hours())


def longer_horizon(world: World) -> Change:
    """A workload that grows is looked at for 12 months more."""
    workload = _picked(world, "longer horizon", world.workloads)
    reference = world.with_workload(replace(workload, growth_per_year=1.0))
    longer = replace(reference, months=world.months + 12)
    return Change(longer, same_hours(), reference=reference)


def second_month(world: World) -> Change | None:
    """From the second month on a workload has three times the requests, and a cluster comes weeks earlier."""
    if world.months == 1:
        return None
    date = datetime.date(2026, 2, 1)
    last_day = datetime.date(2026, 2, 28)
    workload = _picked(world, "second month", world.workloads)
    cluster = _added_cluster(world, "second month")
    # It stands in both files: sums over one cluster more are rounded otherwise.
    reference = replace(world, clusters=(*world.clusters, replace(cluster, online=last_day)))
    grown = reference.with_workload(replace(workload, step=(date, 3.0)))
    changed = grown.with_cluster(replace(cluster, online=date))
    hours = 24 * (date - START).days
    return Change(changed, same_hours(hours), reference=reference)


def truncated(world: World) -> Change | None:
    """Growth, a launch and a delivery of the second month: a file that has none of them is the same until then."""
    if world.months == 1:
        return None
    date = datetime.date(2026, 2, 1)
    workload = _picked(world, "truncated", world.workloads)
    model = _picked(world, "launched", list(RATES))
    launched = replace(workload, name="launched", model=model, launch=LATER)
    cut = replace(world, workloads=(*world.workloads, launched))
    dated = cut.with_workload(replace(workload, step=(date, 3.0)))
    dated = dated.with_workload(replace(launched, launch=date))
    arrival = replace(_added_cluster(world, "truncated"), online=date)
    dated = replace(dated, clusters=(*world.clusters, arrival))
    hours = 24 * (date - START).days
    return Change(dated, same_hours(hours), reference=cut)


LAWS: dict[str, Law] = {
    "more-nodes": more_nodes,
    "no-loser": no_loser,
    "faster-nodes": faster_nodes,
    "looser-tpot": looser_tpot,
    "looser-ttft": looser_ttft,
    "shorter-replies": shorter_replies,
    "less-demand": less_demand,
    "workload-removed": workload_removed,
    "cluster-added": cluster_added,
    "more-cache": more_cache,
    "longer-window": longer_window,
    "twice-everything": twice_everything,
    "twice-per-unit": twice_per_unit,
    "halves": halves,
    "reordered": reordered,
    "zero-rate": zero_rate,
    "no-nodes": no_nodes,
    "step-after-horizon": step_after_horizon,
    "longer-horizon": longer_horizon,
    "second-month": second_month,
    "truncated": truncated,
}
