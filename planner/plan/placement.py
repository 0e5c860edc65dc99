"""Placement of whole replicas: which share of a cluster each resident model has, hour by hour.

A *deployment* is what one group of accelerators holds: one model, or several where a cluster is too small for one
replica of each and their weights fit together. A cluster on which rounding to whole replicas matters is split into
pools, one for each deployment and one for what holds nothing, and its hours are routed as if the pools were clusters:
no workload takes more of a cluster than the replicas placed for it carry.

Replicas are placed at the monthly review, for the highest hour that the forecast has for the month, by priority: one
for each model, then as many as its work needs, then what is left in proportion. In an hour whose need passes what is
placed, the hour's own work is placed first. What was not there in the hour before is loaded, and serves that much less.
Each hour is placed from what the review, the hour and the one before it know, so the end of a window changes nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.errors import CapacityError
from planner.physics.model_on_part import USABLE_FRACTION, MemoryFit
from planner.physics.replica import ReplicaSpec
from planner.plan.candidates import as_first_bought
from planner.plan.choice import (
    Factors,
    Service,
    Services,
    build_services,
    capacity_table,
    served_by,
)
from planner.plan.plan import Deployment, Placement, Plan, WorkloadPlan
from planner.plan.reuse import Reuse
from planner.scenario.scenario import Scenario
from planner.units import GB, SECONDS_PER_HOUR

ROUNDING = 1e-6
"""Of a replica or a node: what sums of parts may be off by."""


def with_placement(plan: Plan, deployments: Sequence[Deployment]) -> Plan:
    """Return a plan that places whole replicas on the clusters where rounding to whole replicas matters."""
    placed = []
    asked = {
        w
        for w, requests_per_s in enumerate(plan.demand.expected_requests_per_s)
        if requests_per_s.any()
    }
    for c in range(len(plan.clusters)):
        # What nobody asks for takes no replica, so that it need not be one of several.
        here = [held for held in deployments if held.cluster == c and asked & set(held.workloads)]
        # One replica of one model may be any share of a cluster, unless it is slower than that model alone.
        slower = any(
            held.speed < 1.0 or set(held.workloads) & set(held.waiting_speed) for held in here
        )
        several = slower or sum(held.least_replicas for held in here) > 1
        placed.append(several)
    deployment_of = {
        (held.cluster, w): d for d, held in enumerate(deployments) for w in held.workloads
    }
    pools: list[tuple[int, int | None]] = []
    for c, whole_replicas in enumerate(placed):
        pools += [
            (c, d) for d, held in enumerate(deployments) if held.cluster == c and whole_replicas
        ]
        pools.append((c, None))
    pool_cluster = [c for c, _ in pools]
    speed = np.zeros((len(pools), *plan.requests_per_node_h.shape[1:]))
    for pool, (c, d) in enumerate(pools):
        if d is None:  # a cluster left whole serves all, and nodes that hold nothing serve none
            speed[pool] = not placed[c]
        else:
            speed[pool, list(deployments[d].workloads)] = deployments[d].speed
            for w, waiting in deployments[d].waiting_speed.items():
                speed[pool, w] = deployments[d].speed * waiting

    def in_pools(w: int, workload: WorkloadPlan) -> WorkloadPlan:
        rank = {c: place for place, tier in enumerate(workload.cluster_tiers) for c in tier}
        paid = len(workload.cluster_tiers) - workload.rented_tiers
        tiers: dict[tuple[bool, bool, int, float], list[int]] = {}
        for pool, (c, d) in enumerate(pools):
            if c in rank and speed[pool, w].any():
                of_others = d not in (None, deployment_of[c, w])
                # What idles in others' pools is paid anyway: it goes before machines that are rented for the work.
                tiers.setdefault(
                    (rank[c] >= paid, of_others, rank[c], -speed[pool, w, 0]), []
                ).append(pool)
        in_order = tuple(tuple(tiers[key]) for key in sorted(tiers))
        rented = sum(is_rented for is_rented, *_ in tiers)
        return dataclasses.replace(workload, cluster_tiers=in_order, rented_tiers=rented)

    # A month's review places for the highest hour that the forecast has for it, or its mean for work that can wait,
    # over the utilisation at which clusters are taken as full.
    forecast = plan.demand.expected_requests_per_s * SECONDS_PER_HOUR
    starts = plan.month_edges_h[:-1]
    peak = np.maximum.reduceat(forecast, starts, axis=1)
    mean = np.add.reduceat(forecast, starts, axis=1) / np.diff(plan.month_edges_h)
    waits = np.array([workload.deadline_h > 0 for workload in plan.workloads])
    placement = Placement(
        deployments=tuple(deployments),
        placed=tuple(placed),
        review_requests=np.where(waits[:, None], mean, peak) / (plan.preferred_utilisation or 1.0),
        pools=dataclasses.replace(
            plan,
            clusters=tuple(plan.clusters[c] for c in pool_cluster),
            workloads=tuple(in_pools(w, workload) for w, workload in enumerate(plan.workloads)),
            **figures_in_pools(plan, pool_cluster, speed),
        ),
        pool_cluster=tuple(pool_cluster),
        pool_deployment=tuple(d for _, d in pools),
        pool_speed=speed,
        deployment_of=deployment_of,
    )
    return dataclasses.replace(plan, placement=placement)


def figures_in_pools(plan: Plan, pool_cluster: Sequence[int], speed: Floats) -> dict[str, Any]:
    """Return a plan's figures by pool instead of cluster; ``speed`` has shape (pools, workloads, months or 1)."""
    at = list(pool_cluster)
    return {
        "requests_per_node_h": plan.requests_per_node_h[at] * speed,
        "late_tables": plan.late_tables[at],
        "refused_tables": plan.refused_tables[at],
        "most_loads": plan.most_loads[at],
        "no_burst_tables": None if plan.no_burst_tables is None else plan.no_burst_tables[:, at],
        "burst_tables": {
            (pool, w): by_rate
            for pool, c in enumerate(at)
            for (on, w), by_rate in plan.burst_tables.items()
            if on == c
        },
    }


LEAST_SHARED_SPEED = 0.5
"""Models share accelerators, or make do with fewer, while these keep half their speed; assumption: below it a second
node is the better buy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engine:
    """One model in one layout on a cluster, serving one or more workloads."""

    spec: ReplicaSpec
    fit: MemoryFit
    workloads: tuple[int, ...]
    fine_tunes: int
    """Models of this shape, each with weights of its own."""
    cache_bytes: float
    """Cache of one replica at its operating point: running sequences · mean context · bytes of a token."""
    waiting: Mapping[int, Service]
    """How it serves work of its model that can wait and whose best layout is another."""

    @property
    def resident_bytes(self) -> float:
        """Weights and engine overhead in bytes on one accelerator."""
        return (self.fit.weight_bytes + self.fit.overhead_bytes) / self.spec.accelerators


def deployments_of(
    scenario: Scenario, plan: Plan, services: Services, factors: Factors, reuse: Reuse
) -> list[Deployment]:
    """Return the deployments of all clusters, in cluster order, highest priority first.

    Where accelerators are too few for one replica of each layout, deferrable work shares the replicas of others of its
    model; where they are still too few, models share accelerators. Workloads without demand come last, and do not
    count in this.
    """
    deployments = []
    asked = {
        pair: served
        for pair, served in services.items()
        if scenario.workloads[pair[1]].requests_per_s > 0
    }
    idle = {pair: service for pair, service in services.items() if pair not in asked}
    for c, cluster in enumerate(plan.clusters):
        engines, unasked = (
            _engines(scenario, plan, of, cluster.name, factors, reuse) for of in (asked, idle)
        )
        per_node = cluster.accelerators_per_node
        room = _room(scenario, cluster.name, per_node)
        groups = _apart(engines)
        if sum(_accelerators(group) for group in groups) > room:
            groups = _apart(engines := _joined(plan, engines))
        if sum(_accelerators(group) for group in groups) > room:
            groups = _shared(engines)
        for group in [*groups, *_apart(unasked)]:
            held = _deployment(c, per_node, group, scenario.site.weight_load_gb_per_s_per_node * GB)
            speeds = {}  # over those of the layouts that the cluster chose, shape (months or 1,)
            for w, service in _waiting(group).items():
                pair = (cluster.name, plan.workloads[w].name)
                chosen = plan.requests_per_node_h[c, w]
                here = capacity_table(scenario, {pair: service}, plan.months.mid_years)[c, w]
                speeds[w] = np.divide(here, chosen, out=np.zeros_like(chosen), where=chosen > 0)
            deployments.append(dataclasses.replace(held, waiting_speed=speeds))
    return deployments


def _room(scenario: Scenario, name: str, per_node: int) -> float:
    """Return the accelerators available to a cluster's models; infinity for a cluster without nodes.

    A cluster without nodes has room for nothing and asks nothing: models that shared it would only tie workloads
    together that share nothing else, and so change how others are served.
    """
    return as_first_bought(scenario, name).nodes * per_node or math.inf


def _apart(engines: Sequence[_Engine]) -> list[list[_Engine]]:
    """Return deployments with one model each, with as many fine-tunes on the same accelerators as lose no speed."""
    return [[engine] * _together(engine, 1.0) for engine in engines]


def _joined(plan: Plan, engines: Sequence[_Engine]) -> list[_Engine]:
    """Return the engines with deferrable-only ones merged into the fastest other engine of their model."""
    kept = list(engines)
    for engine in engines:
        if any(not plan.workloads[w].deadline_h for w in engine.workloads):
            continue
        hosts = [
            host
            for host in kept
            if host is not engine and all(w in host.waiting for w in engine.workloads)
        ]
        if hosts:
            best = max(
                hosts,
                key=lambda host: min(host.waiting[w].requests_per_s for w in engine.workloads),
            )
            kept.remove(engine)
            kept[kept.index(best)] = dataclasses.replace(
                best, workloads=best.workloads + engine.workloads
            )
    return kept


def _waiting(group: Sequence[_Engine]) -> dict[int, Service]:
    """Return how a group serves deferrable workloads whose best layout is another."""
    not_waiting = {w for engine in group for w in engine.workloads if w not in engine.waiting}
    return {
        w: service
        for engine in group
        for w, service in engine.waiting.items()
        if w not in not_waiting
    }


def _together(engine: _Engine, least_speed: float) -> int:
    """Return how many fine-tunes of a model fit on the same accelerators at a least speed; at least one."""
    more = range(1, engine.fine_tunes)
    return next(
        (count for count in more if _speed([engine] * (count + 1)) < least_speed), engine.fine_tunes
    )


def _replicas(group: Sequence[_Engine]) -> int:
    """Return the number of replicas that hold all fine-tunes of a model, ``len(group)`` on each."""
    return math.ceil(group[0].fine_tunes / len(group)) if group[0].fine_tunes > 1 else 1


def _accelerators(group: Sequence[_Engine]) -> int:
    """Return the fewest accelerators on which a group of models can serve."""
    return _replicas(group) * max(engine.spec.accelerators for engine in group)


def services_of(scenario: Scenario, factors: Factors, reuse: Reuse) -> tuple[Services, list[str]]:
    """Return how each cluster serves each workload, in layouts it has room for, and why others are infeasible.

    The layout that serves most per accelerator may be eight wide where two would hold the model: no matter where there
    are many replicas, but a cluster with room for few then holds fewer models than it could. On clusters too small for
    each at its best, services are on the fewest accelerators that stay fast enough.
    """
    services, refused = build_services(scenario, reuse, factors)
    kept = dict(services)
    loads = scenario.workloads
    for name, cluster in scenario.machines.items():
        per_node = reuse.catalog.accelerator(cluster.accelerator).accelerators_per_node.value
        of_cluster = {
            w: service
            for (c, w), service in services.items()
            if c == name and loads[w].requests_per_s > 0
        }
        # What can wait needs no replica of its own beside others of its model.
        urgent = {loads[w].model for w in of_cluster if loads[w].priority != "deferrable"}
        layouts = {
            (loads[w].model, service.tensor_parallel, loads[w].fine_tunes)
            for w, service in of_cluster.items()
            if loads[w].priority != "deferrable"
            or loads[w].fine_tunes > 1
            or loads[w].model not in urgent
        }
        room = _room(scenario, name, per_node)
        if (
            cluster.tensor_parallel is not None
            or sum(wide * tuned for _, wide, tuned in layouts) <= room
        ):
            continue
        for workload, service in of_cluster.items():
            for degree in (2**k for k in range(service.tensor_parallel.bit_length() - 1)):
                tried = laid_out(
                    scenario, factors, reuse, name, workload, {"tensor_parallel": degree}
                )
                if (
                    tried is not None
                    and tried.requests_per_s >= LEAST_SHARED_SPEED * service.requests_per_s
                ):
                    kept[name, workload] = tried
                    break
    return kept, refused


def laid_out(
    scenario: Scenario,
    factors: Factors,
    reuse: Reuse,
    cluster: str,
    workload: str,
    layout: Mapping[str, object],
) -> Service | None:
    """Return how a cluster serves a workload in a given layout; None where it does not fit or is too slow."""
    stated = as_first_bought(scenario, cluster).model_copy(update=layout)
    service = served_by(stated, scenario.workloads[workload], scenario, reuse, factors)
    return None if isinstance(service, CapacityError) else service


def _engines(
    scenario: Scenario, plan: Plan, services: Services, cluster: str, factors: Factors, reuse: Reuse
) -> list[_Engine]:
    """Return the models of a cluster with their layouts; workloads of one model and layout share its replicas."""
    of = {
        w: services[cluster, load.name]
        for w, load in enumerate(plan.workloads)
        if (cluster, load.name) in services
    }
    stated = [scenario.workloads[load.name] for load in plan.workloads]
    layouts: dict[tuple[object, ...], list[int]] = {}
    for w in (w for w in plan.by_priority if w in of):
        spec = of[w].spec  # weights of its own are nobody else's
        alone = w if stated[w].fine_tunes > 1 else None
        layout = (spec.shape.name, spec.layout, of[w].prefill is None, alone)
        layouts.setdefault(layout, []).append(w)
    engines = []
    for members in layouts.values():
        spec = of[members[0]].spec
        tuned = stated[members[0]].fine_tunes
        waiting = {}
        fit = spec.memory()
        lengths = [stated[w].lengths for w in members]
        contexts = [tokens.input.mean + tokens.output.mean / 2 for tokens in lengths]
        cached = max(of[w].batch * context for w, context in zip(members, contexts, strict=True))
        cache = min(cached, fit.kv_capacity_tokens) * fit.kv_bytes_per_token
        for w, service in (
            of.items() if tuned == 1 else ()
        ):  # whoever has weights of its own serves nobody else
            same = (service.spec.shape.name, service.spec.precision) == (
                spec.shape.name,
                spec.precision,
            )
            if same and plan.workloads[w].deadline_h and w not in members:
                at = of[members[0]].as_keys()
                if (
                    tried := laid_out(scenario, factors, reuse, cluster, plan.workloads[w].name, at)
                ) is not None:
                    waiting[w] = tried
        engines.append(
            _Engine(
                spec=spec,
                fit=fit,
                workloads=tuple(members),
                fine_tunes=tuned,
                cache_bytes=cache,
                waiting=waiting,
            )
        )
    return engines


def _shared(engines: Sequence[_Engine]) -> list[list[_Engine]]:
    """Group models on shared accelerators by first fit, smallest first, while the speed stays acceptable."""
    several = [engine for engine in engines if engine.fine_tunes > 1]
    groups = [[engine] * _together(engine, LEAST_SHARED_SPEED) for engine in several]
    for engine in sorted(
        (one for one in engines if one.fine_tunes == 1), key=lambda engine: engine.resident_bytes
    ):
        for group in groups[len(several) :]:
            if _speed([*group, engine]) >= LEAST_SHARED_SPEED:
                group.append(engine)
                break
        else:
            groups.append([engine])
    return groups


def _speed(group: Sequence[_Engine]) -> float:
    """Return the speed of accelerators shared by models over that with one model: min(1, free / max(cache)).

    A share x of an accelerator's work needs a share x of the cache at the model's operating point, and the shares sum
    to at most 1: with the memory that all weights leave free, work up to free / max(cache) is sure to fit.
    """
    if len(group) == 1:
        return 1.0
    free = USABLE_FRACTION * group[0].spec.part.hbm_bytes - sum(
        engine.resident_bytes for engine in group
    )
    most = max(engine.cache_bytes / engine.spec.accelerators for engine in group)
    return float(np.clip(free / most, 0.0, 1.0))


def _deployment(
    cluster: int, per_node: int, group: Sequence[_Engine], bytes_per_s: float
) -> Deployment:
    """Return the deployment of models that share accelerators; the widest replica sets their number.

    A node reads weights at its bandwidth, of which each of its accelerators has an equal share.
    """
    accelerators = max(engine.spec.accelerators for engine in group)
    weights = sum(engine.fit.weight_bytes / engine.spec.accelerators for engine in group)
    return Deployment(
        cluster=cluster,
        workloads=tuple(dict.fromkeys(w for engine in group for w in engine.workloads)),
        least_replicas=_replicas(group),
        nodes_per_replica=accelerators / per_node,
        speed=_speed(group),
        resident_bytes=sum(engine.resident_bytes for engine in group) * accelerators,
        memory_bytes=group[0].spec.part.hbm_bytes * accelerators,
        load_h=min(1.0, weights * per_node / bytes_per_s / SECONDS_PER_HOUR),
    )


def sharing_notes(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Return notes on which models share accelerators, and at what cost in speed."""
    placement = plan.placement
    assert placement is not None  # a compiled plan has one
    for deployment in placement.deployments:
        cluster = plan.clusters[deployment.cluster]
        models = sorted({plan.workloads[w].model for w in deployment.workloads})
        tuned = scenario.workloads[plan.workloads[deployment.workloads[0]].name].fine_tunes
        if tuned > 1:
            yield (
                f"cluster {cluster.name} holds the {tuned} fine-tunes of {models[0]} on "
                f"{deployment.min_nodes * cluster.accelerators_per_node:g} accelerators at the least, "
                f"at {deployment.speed:.0%} of the speed that one has alone"
            )
        if len(models) > 1:
            yield (
                f"cluster {cluster.name} has fewer accelerators than one replica of each model "
                f"takes: {', '.join(models)} share theirs, at {deployment.speed:.0%} of the speed that each has alone"
            )
