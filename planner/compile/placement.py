"""What the accelerators of a cluster hold: one model a group, or several where there are too few for one each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.compile.capacity import Factors, Service, build_services
from planner.compile.reuse import Reuse
from planner.errors import ScenarioError
from planner.fleet.placement import Deployment
from planner.fleet.plan import Plan
from planner.language.scenario import Scenario
from planner.physics.memory import USABLE_FRACTION, MemoryFit, memory_fit
from planner.physics.replica import ReplicaSpec
from planner.units import GB, SECONDS_PER_HOUR

LEAST_SHARED_SPEED = 0.5
"""Models share accelerators, or make do with fewer, while these keep half their speed; assumption: below it a second
node is the better buy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engine:
    """A model that a cluster serves at one layout, for one workload or several."""

    spec: ReplicaSpec
    fit: MemoryFit
    workloads: tuple[int, ...]
    fine_tunes: int
    """Models of this shape, each with weights of its own."""
    cache_bytes: float
    """Cache of one replica at its operating point: running sequences · mean context · bytes of a token."""

    @property
    def resident_bytes(self) -> float:
        """Weights and engine on one accelerator."""
        return (self.fit.weight_bytes + self.fit.overhead_bytes) / self.spec.accelerators


def deployments_of(scenario: Scenario, plan: Plan, services: dict[tuple[str, str], Service]) -> list[Deployment]:
    """Return what each cluster's accelerators hold, clusters in order, the highest priority first."""
    found = []
    for c, cluster in enumerate(plan.clusters):
        engines = _engines(scenario, plan, services, cluster.name)
        per_node = cluster.accelerators_per_node
        groups = [[engine] * min(engine.fine_tunes, _together(engine, 1.0)) for engine in engines]
        if sum(_accelerators(group) for group in groups) > cluster.nodes * per_node:
            groups = _shared(engines)
        bytes_per_s = scenario.site.weight_load_gb_per_s_per_node * GB
        found += [_deployment(c, per_node, group, bytes_per_s) for group in groups]
    return found


def _together(engine: _Engine, least_speed: float) -> int:
    """Return how many fine-tunes of a model the same accelerators hold at a speed; at least one."""
    return next(count for count in itertools.count(1) if _speed([engine] * (count + 1)) < least_speed)


def _replicas(group: Sequence[_Engine]) -> int:
    """Return the replicas that hold all fine-tunes of a model between them, ``len(group)`` of them each."""
    return math.ceil(group[0].fine_tunes / len(group)) if group[0].fine_tunes > 1 else 1


def _accelerators(group: Sequence[_Engine]) -> int:
    """Return the accelerators without which what is held together serves nobody."""
    return _replicas(group) * max(engine.spec.accelerators for engine in group)


def narrowed(
    scenario: Scenario, services: dict[tuple[str, str], Service], factors: Factors, reuse: Reuse
) -> dict[tuple[str, str], Service]:
    """Return services on the fewest accelerators that stay fast enough, on clusters too small for each at its best.

    The layout that serves most per accelerator may be eight wide where two would hold the model: no matter where there
    are many replicas, but a cluster with room for few then holds fewer models than it could.
    """
    found = dict(services)
    for name, cluster in scenario.clusters.items():
        own = {workload: service for (c, workload), service in services.items() if c == name}
        loads = scenario.workloads
        layouts = {(loads[w].model, each.tensor_parallel, loads[w].fine_tunes) for w, each in own.items()}
        room = cluster.nodes * reuse.catalog.accelerator(cluster.accelerator).accelerators_per_node.value
        if cluster.tensor_parallel is not None or sum(wide * tuned for _, wide, tuned in layouts) <= room:
            continue
        for workload, service in own.items():
            for degree in (2**k for k in range(service.tensor_parallel.bit_length() - 1)):
                narrow = cluster.model_copy(update={"tensor_parallel": degree})
                alone = scenario.model_copy(
                    update={"clusters": {name: narrow}, "workloads": {workload: loads[workload]}}
                )
                try:
                    (tried,) = build_services(alone, reuse.calibration, reuse, factors)[0].values()
                except ScenarioError:  # it does not fit, or no batch meets the objective
                    continue
                if tried.requests_per_s >= LEAST_SHARED_SPEED * service.requests_per_s:
                    found[name, workload] = tried
                    break
    return found


def _engines(scenario: Scenario, plan: Plan, services: dict[tuple[str, str], Service], cluster: str) -> list[_Engine]:
    """Return the models of a cluster, each at its layout: workloads of one model and layout share its replicas."""
    loads: dict[tuple[object, ...], tuple[ReplicaSpec, list[int]]] = {}
    for w in plan.by_priority:
        service = services.get((cluster, plan.workloads[w].name))
        if service is not None and (spec := service.spec) is not None:
            tuned = scenario.workloads[plan.workloads[w].name].fine_tunes
            layout: tuple[object, ...] = (
                spec.shape.name,
                spec.precision,
                spec.accelerators,
                spec.attention_data_parallel,
            )
            layout += (w if tuned > 1 else None,)  # weights of its own are nobody else's
            loads.setdefault(layout, (spec, []))[1].append(w)
    engines = []
    for spec, members in loads.values():
        own = [services[cluster, plan.workloads[w].name] for w in members]
        fit = memory_fit(spec.part, spec.shape, spec.precision, spec.accelerators, spec.attention_data_parallel)
        tokens = [scenario.workloads[plan.workloads[w].name].tokens for w in members]
        contexts = [each.input.mean + each.output.mean / 2 for each in tokens]
        cached = max(service.batch * context for service, context in zip(own, contexts, strict=True))
        cache = min(cached, fit.kv_capacity_tokens) * fit.kv_bytes_per_token
        tuned = scenario.workloads[plan.workloads[members[0]].name].fine_tunes
        engines.append(_Engine(spec=spec, fit=fit, workloads=tuple(members), fine_tunes=tuned, cache_bytes=cache))
    return engines


def _shared(engines: Sequence[_Engine]) -> list[list[_Engine]]:
    """Put models together on accelerators, as long as these stay fast enough: first fit, the smallest first."""
    several = [engine for engine in engines if engine.fine_tunes > 1]
    groups = [[engine] * min(engine.fine_tunes, _together(engine, LEAST_SHARED_SPEED)) for engine in several]
    for engine in sorted((one for one in engines if one.fine_tunes == 1), key=lambda engine: engine.resident_bytes):
        others = groups[len(several) :]
        room = [group for group in others if _speed([*group, engine]) >= LEAST_SHARED_SPEED]
        if room:
            room[0].append(engine)
        else:
            groups.append([engine])
    return groups


def _speed(group: Sequence[_Engine]) -> float:
    """Return the speed of accelerators that models share over that for one alone: min(1, free / max(cache)).

    A share x of an accelerator's work needs a share x of the cache at the model's operating point, and the shares sum
    to at most 1: with the memory that all weights leave free, work up to free / max(cache) is sure to fit.
    """
    if len(group) == 1:
        return 1.0
    free = USABLE_FRACTION * group[0].spec.part.hbm_bytes - sum(engine.resident_bytes for engine in group)
    most = max(engine.cache_bytes / engine.spec.accelerators for engine in group)
    return float(np.clip(free / most, 0.0, 1.0))


def _deployment(cluster: int, per_node: int, group: Sequence[_Engine], bytes_per_s: float) -> Deployment:
    """Return what models on the same accelerators are to placement; the widest replica decides how many these are.

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


def sharing_notes(scenario: Scenario, plan: Plan) -> list[str]:
    """Say which models share accelerators, and what that costs."""
    placement = plan.placement
    if placement is None:
        return []
    notes = []
    for each in placement.deployments:
        models = sorted({plan.workloads[w].model for w in each.workloads})
        tuned = scenario.workloads[plan.workloads[each.workloads[0]].name].fine_tunes
        if tuned > 1:
            notes.append(
                f"cluster {plan.clusters[each.cluster].name} holds the {tuned} fine-tunes of {models[0]} on "
                f"{each.least_nodes * plan.clusters[each.cluster].accelerators_per_node:g} accelerators at the least, "
                f"at {each.speed:.0%} of the speed that one has alone"
            )
        if len(models) > 1:
            notes.append(
                f"cluster {plan.clusters[each.cluster].name} has fewer accelerators than one replica of each model "
                f"takes: {', '.join(models)} share theirs, at {each.speed:.0%} of the speed that each has alone"
            )
    return notes
