"""What a run served in time, by workload, and which of two runs served better by the objective of placement."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from planner import api
from planner.arrays import Floats
from planner.engine.hourly import joined
from planner.plan.plan import Deployment
from planner.run.simulate import RunResult
from tests.laws.worlds import World

PRIORITIES = ("interactive", "standard", "deferrable")
TOLERANCE = 0.001
"""Share of requests by which a run may be worse: hours are levelled one by one, and a month's share is their sum."""

Series = tuple[str, str, str]
"""What is counted, of which cluster and of which workload; an empty name is for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One workload's requests over a run."""

    priority: str
    target: float
    """Share of requests in time that it is held to."""
    due: float
    """Requests served or shed; what may still wait at the end is not due."""
    missed: float
    """Requests late or shed."""

    @property
    def share(self) -> float:
        """Share of its requests served in time."""
        return 1.0 - self.missed / self.due


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run did: workloads of which nothing was due are left out."""

    workloads: Mapping[str, Served]
    tokens: float
    energy_kwh: float
    hourly: Mapping[Series, Floats] = field(repr=False)
    """Physical series by the hour."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """By accelerator, the one engine of its clusters."""
    routing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By workload, the clusters in the order in which they are offered it."""
    mixed_layouts: frozenset[str] = frozenset()
    """Workloads whose models stand in several layouts at once on clusters of one accelerator."""

    def describe(self) -> str:
        """Return the share of each workload in a line."""
        shares = [f"{name} {served.share:.4f}" for name, served in self.workloads.items()]
        return ", ".join(shares)


def outcome_of(result: RunResult) -> Outcome:
    """Return what a run did."""
    scenario = result.scenario
    due = result.settled_requests().sum(axis=0)
    missed = result.missed_requests().sum(axis=0)
    workloads = {}
    for index, (name, workload) in enumerate(scenario.workloads.items()):
        if due[index] > 0.0:
            workloads[name] = Served(
                priority=workload.priority,
                target=scenario.slo_target.attainment_of(name),
                due=float(due[index]),
                missed=float(missed[index]),
            )
    return Outcome(
        workloads=workloads,
        tokens=float(result.tokens(result.monthly.served_requests).sum()),
        energy_kwh=float(result.monthly.facility_kwh.sum()),
        hourly=_hourly(result),
        engines=_engines(result),
        routing=_routing(result),
        mixed_layouts=_mixed_layouts(result),
    )


def _engines(result: RunResult) -> dict[str, str]:
    """Return the engine by accelerator, where all clusters of it have the same one for all that they hold."""
    engines: dict[str, set[str]] = {}
    for accelerator, deployment in _deployments(result):
        assert isinstance(deployment.layout, tuple)
        for _, (engine, *_), _ in deployment.layout:
            engines.setdefault(accelerator, set()).add(engine)
    return {part: min(names) for part, names in engines.items() if len(names) == 1}


def _routing(result: RunResult) -> dict[str, tuple[str, ...]]:
    """Return the names of the clusters of each workload in routing order."""
    names = [cluster.name for cluster in result.plan.clusters]
    return {
        workload.name: tuple(names[c] for c in workload.cluster_order)
        for workload in result.plan.workloads
    }


def _mixed_layouts(result: RunResult) -> frozenset[str]:
    """Return the workloads whose pools have several layouts in one hour on clusters of one accelerator."""
    standing: dict[tuple[str, tuple[int, ...]], dict[Hashable, Floats]] = {}
    replicas = joined("replicas", result.run.windows)
    for row, (accelerator, deployment) in zip(replicas, _deployments(result), strict=True):
        by_layout = standing.setdefault((accelerator, deployment.workloads), {})
        by_layout[deployment.layout] = by_layout.get(deployment.layout, 0.0) + row
    mixed = set[str]()
    for (_, workloads), by_layout in standing.items():
        at_once = np.stack([row > 0.0 for row in by_layout.values()]).sum(axis=0)
        if at_once.max() > 1:
            mixed |= {result.plan.workloads[w].name for w in workloads}
    return frozenset(mixed)


def _deployments(result: RunResult) -> Iterator[tuple[str, Deployment]]:
    """Yield all deployments of a run, each with the accelerator that it is on."""
    plan = result.plan
    assert plan.placement is not None
    for deployment in plan.placement.deployments:
        cluster = plan.clusters[deployment.cluster]
        yield result.scenario.clusters[cluster.name].accelerator, deployment


def _hourly(result: RunResult) -> dict[Series, Floats]:
    """Return the physical series of a run by name of cluster and workload, over all its hours."""
    clusters = list(result.scenario.clusters)
    workloads = list(result.scenario.workloads)

    def joined(name: str) -> Floats:
        return np.concatenate([getattr(window, name) for window in result.run.windows], axis=-1)

    series: dict[Series, Floats] = {}
    for name in ("demand_requests", "late_requests", "shed_requests"):
        for workload, hours in zip(workloads, joined(name), strict=True):
            series[name, "", workload] = hours
    series["facility_kw", "", ""] = joined("facility_kw")
    for name in ("busy_nodes", "it_kw"):
        for cluster, hours in zip(clusters, joined(name), strict=True):
            series[name, cluster, ""] = hours
    for cluster, table in zip(clusters, joined("served_requests"), strict=True):
        for workload, hours in zip(workloads, table, strict=True):
            series["served_requests", cluster, workload] = hours
    return series


class Runs:
    """The outcomes of worlds, each simulated once."""

    def __init__(self) -> None:
        self._outcomes: dict[World, Outcome] = {}

    def outcome(self, world: World) -> Outcome:
        """Return what one replication of a world does."""
        if world not in self._outcomes:
            self._outcomes[world] = outcome_of(api.simulate(world.document()))
        return self._outcomes[world]


def objective(workloads: Iterable[Served]) -> tuple[float, ...]:
    """Return what placement raises, the most important figure first.

    The shares served in time of each priority, lowest first: class after class up to the targets, then beyond them.
    """
    ordered = sorted(workloads, key=lambda served: served.share)
    figures: list[float] = []
    for limits_at_target in (True, False):
        for priority in PRIORITIES:
            members = [served for served in ordered if served.priority == priority]
            if limits_at_target:
                figures += sorted(min(served.share, served.target) for served in members)
            else:
                figures += [served.share for served in members]
    return tuple(figures)


def is_exactly_as_good(before: Outcome, after: Outcome) -> bool:
    """Return whether a run is as good as another or better where the smallest difference counts."""
    names = [name for name in before.workloads if name in after.workloads]
    figures_before = objective([before.workloads[name] for name in names])
    return objective([after.workloads[name] for name in names]) >= figures_before


def lost(before: Outcome, after: Outcome, tolerance: float = TOLERANCE) -> float:
    """Return by how much a run is worse than another at the first figure of the objective in which they differ.

    Of the workloads that both have; 0 where it is as good or better. What differs by less than the tolerance is equal.
    """
    names = [name for name in before.workloads if name in after.workloads]
    figures_before = objective([before.workloads[name] for name in names])
    figures_after = objective([after.workloads[name] for name in names])
    for old, new in zip(figures_before, figures_after, strict=True):
        if abs(new - old) > tolerance:
            return max(old - new, 0.0)
    return 0.0
