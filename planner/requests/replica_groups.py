"""Which replicas stand in one hour of one replication, what they serve, and how fast.

Replicas are those of the hourly model: a *deployment* is what a group of accelerators holds, and where whole replicas
count there are as many as the hourly model has placed in that hour. Elsewhere it serves any model with any share of a
cluster; here nodes stand still for the hour, divided among deployments in proportion to the work that the hourly model
gives them, spare nodes too. Deferrable work takes whatever replicas of its model there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.engine.hourly import WindowResult
from planner.errors import ConservationError
from planner.physics.coefficients import Calibration
from planner.physics.replica import ReplicaSpec, price_replicas
from planner.plan.plan import Plan
from planner.plan.pools import ROUNDING
from planner.plan.service import Service
from planner.requests.steps import StepTimes
from planner.scenario.scenario import Scenario
from planner.units import SECONDS_PER_HOUR

Services = dict[tuple[str, str], Service]
LEAST_REPLICAS = 4
"""Of the busiest stand in a sample: fewer pool worse than a real router does."""
_TRIED_SHARES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Replicas of one layout of one model on one cluster."""

    cluster: int
    model: str
    accelerators: int
    """Of one replica."""
    replicas_per_node: int
    replicas: int
    """In service at the beginning of the hour, on the whole cluster."""
    busy_nodes: float
    """Node-equivalents that the hourly model's work for it takes."""
    times: StepTimes
    served: tuple[int, ...]
    """Workloads it may serve."""
    pace_s: dict[int, float]
    """By workload, the mean time per token up to which a router that refuses takes requests."""
    capacity_requests_per_s: dict[int, float]
    """By workload, what one replica sustains by the hourly model; 0 where it has outgrown its objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where an hour lies, and what is up in it."""

    hour: int
    """Within its window."""
    month: int
    nodes: Floats
    """In service at its beginning, shape (clusters,)."""
    speeds: Mapping[tuple[int, int], float]
    """Of a cluster on a workload against day one, where software has changed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tenant:
    """One layout of one model within a deployment."""

    deployment: int
    leader: int
    """The workload whose service says what a replica is."""
    accelerators: int
    served: tuple[int, ...]


def stands_of(
    scenario: Scenario, plan: Plan, window: WindowResult, services: Services, standing: Standing
) -> tuple[Stand, ...]:
    """Return the replicas that stand in an hour, cluster by cluster."""
    calibration = scenario.load_calibration().calibration()
    stands: list[Stand] = []
    for c, cluster in enumerate(plan.clusters):
        tenants = _tenants(plan, services, c)
        rates = _node_rates(plan, c, standing)
        busy = _busy_nodes(plan, window, c, tenants, (rates, standing.hour))
        per_node = cluster.accelerators_per_node
        wanted = _wanted(plan, window, c, tenants, (busy, standing))
        room = math.floor(float(standing.nodes[c]) * per_node + ROUNDING)
        for tenant, nodes, replicas in zip(tenants, busy, _whole_replicas(tenants, wanted, room), strict=True):
            if not replicas:
                continue
            leader = plan.workloads[tenant.leader]
            share = tenant.accelerators / per_node / SECONDS_PER_HOUR * _deployed_speed(plan, tenant)
            stands.append(
                Stand(
                    cluster=c,
                    model=leader.model,
                    accelerators=tenant.accelerators,
                    replicas_per_node=max(per_node // tenant.accelerators, 1),
                    replicas=replicas,
                    busy_nodes=nodes,
                    times=_times(
                        services[cluster.name, leader.name], standing.speeds.get((c, tenant.leader), 1.0), calibration
                    ),
                    served=tenant.served,
                    pace_s={w: _pace_s(plan, services, c, w) for w in tenant.served},
                    capacity_requests_per_s={w: rates[w] * share for w in tenant.served},
                )
            )
    return tuple(stands)


def _tenants(plan: Plan, services: Services, cluster: int) -> list[_Tenant]:
    """Return the layouts that a cluster's deployments hold; deferrable work is served by any of its model."""
    tenants = []
    for d, held in enumerate(plan.placement.deployments if plan.placement is not None else ()):
        if held.cluster != cluster:
            continue
        layouts: dict[tuple[str, int], list[int]] = {}
        for w in sorted(held.workloads, key=lambda w: (plan.workloads[w].priority, w)):
            if w not in held.waiting_speed:
                load = plan.workloads[w]
                layout = (load.model, services[plan.clusters[cluster].name, load.name].tensor_parallel)
                layouts.setdefault(layout, []).append(w)
        for (model, accelerators), members in layouts.items():
            waiting = [w for w in held.waiting_speed if plan.workloads[w].model == model]
            tenants.append(
                _Tenant(
                    deployment=d,
                    leader=members[0],
                    accelerators=accelerators,
                    served=tuple(sorted({*members, *waiting})),
                )
            )
    return tenants


def _deployed_speed(plan: Plan, tenant: _Tenant) -> float:
    """Return what accelerators do over what they do for one model alone."""
    return 1.0 if plan.placement is None else plan.placement.deployments[tenant.deployment].speed


def _node_rates(plan: Plan, cluster: int, standing: Standing) -> list[float]:
    """Return the requests an hour that a node sustains of each workload."""
    table = plan.requests_per_node_h
    month = standing.month if table.shape[2] > 1 else 0
    return [
        float(table[cluster, w, month]) * standing.speeds.get((cluster, w), 1.0) for w in range(len(plan.workloads))
    ]


def _busy_nodes(
    plan: Plan, window: WindowResult, cluster: int, tenants: Sequence[_Tenant], at: tuple[Sequence[float], int]
) -> list[float]:
    """Return the nodes that each layout keeps busy on a cluster, deferrable work with the layouts it shares.

    Where the hourly model gives a cluster nothing to do, what the hour's demand would need there. ``at`` are the rates
    of a node and the hour.
    """
    rates, hour = at
    busy = [0.0] * len(tenants)
    served = window.served_requests[cluster, :, hour]
    wanted = served if served.sum() > 0.0 else window.demand_requests[:, hour]
    for w in sorted(range(len(plan.workloads)), key=lambda w: plan.workloads[w].deadline_h > 0):
        homes = [place for place, tenant in enumerate(tenants) if w in tenant.served]
        if not homes or rates[w] <= 0.0 or wanted[w] <= 0.0:
            continue
        weights = [busy[place] for place in homes]
        if not sum(weights):
            weights = [1.0] * len(homes)
        for place, weight in zip(homes, weights, strict=True):
            busy[place] += float(wanted[w]) / rates[w] * weight / sum(weights)
    return busy


def _wanted(
    plan: Plan, window: WindowResult, cluster: int, tenants: Sequence[_Tenant], at: tuple[Sequence[float], Standing]
) -> list[float]:
    """Return the accelerators of each layout: those placed where whole replicas count, else by the work they have.

    Models that share accelerators have them by their work; what is down at the hour's beginning all have less of.
    ``at`` are the nodes that each keeps busy, and the hour.
    """
    busy, standing = at
    room = float(standing.nodes[cluster]) * plan.clusters[cluster].accelerators_per_node
    placement = plan.placement
    if placement is None or not placement.placed[cluster]:
        total = sum(busy)
        return [room * nodes / total if total > 0.0 else 0.0 for nodes in busy]
    wanted = []
    for place, tenant in enumerate(tenants):
        sharing = [busy[n] for n, other in enumerate(tenants) if other.deployment == tenant.deployment]
        part = busy[place] / sum(sharing) if sum(sharing) > 0.0 else 1.0 / len(sharing)
        held = placement.deployments[tenant.deployment]
        replicas = float(window.replicas[tenant.deployment, standing.hour])
        wanted.append(replicas * held.nodes_per_replica * plan.clusters[cluster].accelerators_per_node * part)
    scale = min(room / sum(wanted), 1.0) if sum(wanted) > 0.0 else 0.0
    return [accelerators * scale for accelerators in wanted]


def _whole_replicas(tenants: Sequence[_Tenant], wanted: Sequence[float], room: int) -> list[int]:
    """Return how many replicas accelerators make: whole ones, then those with none yet, then the largest rests.

    Of models that share accelerators each has one at the least: they take turns.
    """
    exact = [accelerators / tenant.accelerators for accelerators, tenant in zip(wanted, tenants, strict=True)]
    counts = [math.floor(replicas + ROUNDING) for replicas in exact]
    left = room - sum(count * tenant.accelerators for count, tenant in zip(counts, tenants, strict=True))
    deployments = [tenant.deployment for tenant in tenants]
    for place in sorted(range(len(tenants)), key=lambda place: (counts[place] > 0, counts[place] - exact[place])):
        takes_turns = counts[place] == 0 and deployments.count(deployments[place]) > 1
        if exact[place] - counts[place] > ROUNDING and (tenants[place].accelerators <= left or takes_turns):
            counts[place] += 1
            left -= tenants[place].accelerators
    return counts


def spec_of(service: Service) -> ReplicaSpec:
    """Return the replica that serves a workload."""
    if service.spec is None:
        raise ConservationError("a service without a replica")
    return service.spec


def _times(service: Service, speed: float, calibration: Calibration) -> StepTimes:
    return StepTimes.of(price_replicas([spec_of(service)], calibration), 0, service.speed * speed)


def _pace_s(plan: Plan, services: Services, cluster: int, workload: int) -> float:
    """Return the mean time per token up to which a router that refuses takes requests, at its day-one speed."""
    service = services[plan.clusters[cluster].name, plan.workloads[workload].name]
    return service.held_tpot_s / service.speed


def sample_share(stands: Sequence[Stand], expected_requests: float, wanted_requests: int) -> float:
    """Return the share of the fleet to simulate, chosen near the wanted one so that whole replicas match it best."""
    wanted = wanted_requests / expected_requests if expected_requests > 0.0 else 1.0
    busiest = max(stands, key=lambda stand: stand.busy_nodes, default=None)
    least = max(wanted, LEAST_REPLICAS / busiest.replicas if busiest is not None else 1.0)
    if least >= 1.0:
        return 1.0
    tried = np.linspace(least, min(1.3 * least, 1.0), _TRIED_SHARES)
    replicas = np.array([stand.replicas for stand in stands], dtype=np.float64)
    weight = np.array([stand.busy_nodes for stand in stands])
    exact = tried[:, None] * replicas
    off = np.abs(np.maximum(np.rint(exact), 1.0) / exact - 1.0) @ (weight / weight.sum())
    return float(tried[int(np.argmin(off))])


def capacity_share(w: int, stands: Sequence[Stand], replicas: Sequence[int], share: float) -> float:
    """Return the share of a workload's capacity that some replicas of each stand are; ``share`` where none serves it.

    Of a model with few replicas one is simulated at the least: with the fleet's share of its traffic it would idle.
    """
    serving = [(stand, count) for stand, count in zip(stands, replicas, strict=True) if w in stand.served]
    standing = sum(stand.capacity_requests_per_s[w] * stand.replicas for stand, _ in serving)
    simulated = sum(stand.capacity_requests_per_s[w] * count for stand, count in serving)
    return simulated / standing if standing > 0.0 else share
