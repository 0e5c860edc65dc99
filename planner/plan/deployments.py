"""Deployments: what one group of accelerators may hold, in the layout that is best for the size of its pool.

A *deployment* is one model in a layout, or several models where a cluster is too small for one replica of each and
their weights fit together. A model with a few accelerators has few replicas behind its router, and serves less on each
than one with many; on one accelerator it may need another layout than on eight nodes. So each model on a cluster has a
deployment for every size of pool from which on an accelerator of it serves more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from planner.arrays import Floats
from planner.errors import CapacityError
from planner.physics.model_on_part import USABLE_FRACTION, MemoryFit
from planner.physics.replica import ReplicaSpec
from planner.plan.candidates import MOST_POOLED, as_first_bought, engine_options, pooled_nodes
from planner.plan.choice import Factors, Service, Services, capacity_table, served_by
from planner.plan.load_tables import MissTables
from planner.plan.miss_tables import miss_tables, pool_tables
from planner.plan.plan import Deployment, Plan
from planner.plan.reuse import Reuse
from planner.records import record
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import GB, SECONDS_PER_HOUR

LEAST_SHARED_SPEED = 0.5
"""Models share accelerators while these keep half their speed; assumption: below it a second node is the better buy."""
_FEW_NODES = 8
"""Nodes of a cluster up to which each of them tells: more sizes of pools are worked out, in both places of prefill."""
_SMALL_PART = 0.125
"""Of what a model needs, below which its pools are taken to serve as one of that part."""
_CALMER = 1e-3
"""Of requests: what has to be late less in a layout that serves less, for it to be worth having."""
_SAME = 1.02
"""What a node may sustain in one pool over a smaller one that is as good."""


@record
class Compiler:
    """What deployments are worked out from."""

    scenario: Scenario
    plan: Plan
    services: Services
    factors: Factors
    reuse: Reuse


@record
class _Engine:
    """One model in one layout on a cluster, serving one or more workloads."""

    spec: ReplicaSpec
    fit: MemoryFit
    workloads: tuple[int, ...]
    fine_tunes: int
    """Models of this shape, each with weights of its own."""
    cache_bytes: float
    """Cache of one replica at its operating point: running sequences · mean context · bytes of a token."""
    services: Mapping[int, Service]
    """How it serves its workloads."""
    waiting: Mapping[int, Service]
    """How it serves work of its model that can wait and whose best layout is another."""
    least_nodes: float = 0.0
    """Nodes of its pool from which it serves so."""
    stated: Cluster | None = None
    """A cluster of its pool's size in its layout, where it is tried and not yet chosen."""
    max_replicas: float = math.inf
    """Replicas among which its router chooses at the most."""

    @property
    def resident_bytes(self) -> float:
        """Weights and engine overhead in bytes on one accelerator."""
        return (self.fit.weight_bytes + self.fit.overhead_bytes) / self.spec.accelerators


def deployments_of(compiler: Compiler) -> list[Deployment]:
    """Return the deployments of all clusters, in cluster order, highest priority first.

    Where accelerators are too few for the smallest replica of each model, deferrable work shares the replicas of others
    of its model; where they are still too few, models share accelerators. Workloads without demand come last, and do
    not count in this.
    """
    held = list(_held_groups(compiler))
    deployments = []
    for c, group in held:
        neighbours = {others[0].workloads for cluster, others in held if cluster == c}
        is_alone = len(neighbours) == 1
        deployments.append(_deployment(compiler, c, group, is_alone=is_alone))
    return deployments


def deployed_services(compiler: Compiler) -> list[dict[int, Service]]:
    """Return how each of the deployments serves its workloads, in their order."""
    by_deployment = []
    for _, group in _held_groups(compiler):
        services: dict[int, Service] = {}
        for engine in group:
            services |= engine.services
        by_deployment.append(services)
    return by_deployment


def _held_groups(compiler: Compiler) -> Iterator[tuple[int, list[_Engine]]]:
    """Yield the cluster and the models of each deployment."""
    workloads = compiler.scenario.workloads
    for c, cluster in enumerate(compiler.plan.clusters):
        of_cluster = {
            w: compiler.services[cluster.name, load.name]
            for w, load in enumerate(compiler.plan.workloads)
            if (cluster.name, load.name) in compiler.services
        }
        names = [load.name for load in compiler.plan.workloads]
        wanted = [w for w in of_cluster if workloads[names[w]].requests_per_s > 0]
        unwanted = [w for w in of_cluster if w not in wanted]
        engines = _engines(compiler, c, {w: of_cluster[w] for w in wanted})
        idle_engines = _engines(compiler, c, {w: of_cluster[w] for w in unwanted})
        room = _room(compiler.scenario, cluster.name, cluster.accelerators_per_node)
        # Models that come later have pools of their own: they change nothing of those before them.
        later = [engine for engine in engines if _comes_later(compiler.plan, engine)]
        groups = _groups(compiler, c, [one for one in engines if one not in later], room)
        groups += [_pool_sizes(compiler, c, group) for group in _apart(later)]
        groups += [[group] for group in _apart(idle_engines)]
        for sizes in groups:
            yield from ((c, group) for group in sizes)


def _comes_later(plan: Plan, engine: _Engine) -> bool:
    """Return whether no workload of an engine is there from the start."""
    return all(plan.workloads[w].begins_h > 0.0 for w in engine.workloads)


def _groups(
    compiler: Compiler, c: int, engines: Sequence[_Engine], room: float
) -> list[list[list[_Engine]]]:
    """Return the groups of models that a cluster may hold, each by size of its pool."""
    for candidates in (engines, _joined(compiler.plan, engines)):
        groups = [_pool_sizes(compiler, c, group) for group in _apart(candidates)]
        # The smallest pools come first.
        smallest = [sizes[0] for sizes in groups]
        if sum(map(_accelerators, smallest)) <= room:
            return groups
    return [[group] for group in _shared([group[0] for group in smallest])]


def _room(scenario: Scenario, name: str, per_node: int) -> float:
    """Return the accelerators available to a cluster's models; infinity for a cluster without nodes.

    A cluster without nodes has room for nothing and asks nothing: models that shared it would only tie workloads
    together that share nothing else, and so change how others are served.
    """
    return as_first_bought(scenario, name).nodes * per_node or math.inf


def _pool_sizes(compiler: Compiler, c: int, group: list[_Engine]) -> list[list[_Engine]]:
    """Return a group in pools of rising size, from each size on at which an accelerator serves more.

    Fine-tunes have pools of their number of models, and are as their cluster has them. So are models whose requests any
    replica takes: what the cache of a few nodes finds flatters a pool of more. Layouts are searched for on one
    node, on the cluster as it is bought and on the largest that rules make of it: other pools have the best of those.
    """
    (engine, *_) = group
    workloads = compiler.plan.workloads
    stated = [compiler.scenario.workloads[workloads[w].name] for w in engine.workloads]
    is_routed_anywhere = any(
        workload.reuse is not None and workload.prefix_routing == "random" for workload in stated
    )
    if len(group) > 1 or engine.fine_tunes > 1 or is_routed_anywhere:
        return [group]

    def precedence(w: int) -> tuple[bool, bool, float, int]:
        is_there = workloads[w].begins_h <= 0.0
        return not workloads[w].deadline_h, is_there, _nodes_needed(compiler, engine, w), -w

    # Whoever takes most of it from the start chooses the layout; what can wait takes what the others choose.
    leader = max(engine.workloads, key=precedence)
    # A size is worth having that serves more of any of those that cannot wait and are there from the start.
    served = [w for w in engine.workloads if precedence(w) >= (True, True)] or [leader]
    cluster = compiler.plan.clusters[c]
    bought = as_first_bought(compiler.scenario, cluster.name)
    if not bought.nodes:
        # It never has a pool.
        return [group]
    most_nodes = _most_nodes(compiler, c)
    layouts = _layouts(compiler, bought, engine, leader, most_nodes)
    other_place = _other_place(compiler, bought, engine, leader)
    per_node = cluster.accelerators_per_node
    own_size = pooled_nodes(bought.nodes) * per_node
    pools: list[_Engine] = []
    largest: _Engine | None = None
    steps = _steps(per_node, most_nodes, own_size, _nodes_needed(compiler, engine, leader))
    for accelerators in steps:
        gain = 0.0
        is_looked_at = most_nodes <= _FEW_NODES and other_place is not None
        if largest is not None:
            is_as_whole = accelerators < own_size and _is_as_fast(largest, engine, served)
            if is_as_whole and not is_looked_at:
                continue
            # What a cluster ends as counts by itself; on the way there a pool has to be worth it.
            gain = 1.0 if accelerators == steps[-1] else _SAME
        in_layouts = layouts
        is_looked_at &= accelerators >= per_node
        if other_place is not None and (is_looked_at or accelerators in (per_node, own_size)):
            in_layouts = [*layouts, other_place]
        if accelerators == own_size:
            # How the cluster serves in its own layout is known.
            own_layout = engine.services[leader].as_keys()
            in_layouts = [layout for layout in in_layouts if layout != own_layout]
        candidates = _pool_clusters(bought, in_layouts, accelerators, per_node)
        in_pools = _in_pools(compiler, engine, leader, candidates)
        if accelerators == own_size:
            in_pools = [engine, *in_pools]
            gain = 0.0
        worth = _worth_having(in_pools, leader)
        if largest is not None and worth and _is_as_fast(largest, worth[-1], served, gain):
            continue
        pools += [dataclasses.replace(one, least_nodes=accelerators / per_node) for one in worth]
        largest = worth[-1] if worth else largest
    # The smallest pools are there from one replica on, whatever they were worked out for.
    smallest = pools[0].least_nodes
    for place, pool in enumerate(pools):
        if pool.least_nodes == smallest:
            pools[place] = dataclasses.replace(pool, least_nodes=0.0)
    distinct = _distinct(pools, leader, served)
    return [[_chosen(compiler, pool, leader)] for pool in distinct]


def _distinct(pools: Sequence[_Engine], leader: int, served: Sequence[int]) -> list[_Engine]:
    """Return pools of rising size without those that serve as the next larger one does in the same layout."""
    distinct: list[_Engine] = []
    for pool in reversed(pools):
        twins = [place for place, larger in enumerate(distinct) if _loaded(larger) == _loaded(pool)]
        if twins:
            larger = distinct[twins[-1]]
            more_missed = _missed(pool, leader, 0.5) - _missed(larger, leader, 0.5)
            if _is_as_fast(pool, larger, served) and abs(more_missed) <= _CALMER:
                distinct[twins[-1]] = dataclasses.replace(larger, least_nodes=pool.least_nodes)
                continue
        distinct.append(pool)
    # Stable: of one size the calmer pool stays before the faster one.
    distinct.reverse()
    return sorted(distinct, key=lambda pool: pool.least_nodes)


def _is_as_fast(
    pool: _Engine, larger: _Engine, workloads: Iterable[int], gain: float = _SAME
) -> bool:
    """Return whether a node of a pool sustains as much of all of some workloads as one of a larger pool."""
    return all(_rate(pool, w) * gain >= _rate(larger, w) for w in workloads)


def _missed(engine: _Engine, w: int, load: float) -> float:
    """Return the share of a workload's requests late or refused at a load over what an engine sustains."""
    late, refused = engine.services[w].lateness.at(np.array([load]))
    return float(late[0] + refused[0])


def _worth_having(pools: Sequence[_Engine], leader: int) -> list[_Engine]:
    """Return the pool of a size that serves most, last, after one in which fewer are late.

    Fewer are late at half of what the other sustains: more may fit into a layout in which each waits longer.
    """
    if not pools:
        return []
    best = max(pools, key=lambda pool: _rate(pool, leader))

    def missed(pool: _Engine) -> float:
        return _missed(pool, leader, 0.5 * _rate(best, leader) / _rate(pool, leader))

    calmest = min(pools, key=missed)
    is_calmer = missed(calmest) < missed(best) - _CALMER
    return [calmest, best] if is_calmer else [best]


def _layouts(
    compiler: Compiler, bought: Cluster, engine: _Engine, leader: int, most_nodes: float
) -> list[dict[str, object]]:
    """Return the layouts among which pools of a model choose; the first is that of one node where it has one."""
    layouts = [engine.services[leader].as_keys()]
    # Engine and precision are those of the cluster: nobody runs another for a smaller pool.
    stated = {"engine": engine.spec.engine, "precision": engine.spec.precision}
    if compiler.scenario.router_pool != "cluster":
        return layouts
    variants = []
    one_node = _in_pools(
        compiler, engine, leader, [(bought.model_copy(update={**layouts[0], "nodes": 1}), math.inf)]
    )
    if not one_node or not _is_as_fast(one_node[0], engine, [leader]):
        variants.append({**stated, "nodes": 1})
    if most_nodes > bought.nodes:
        variants.append({**stated, "nodes": min(most_nodes, MOST_POOLED)})
    for variant in variants:
        service = _tried(compiler, bought.model_copy(update=variant), leader)
        layout = None if service is None else service.as_keys()
        if layout is not None and layout not in layouts:
            layouts.insert(0 if variant.get("nodes") == 1 else len(layouts), layout)
    return layouts


def _other_place(
    compiler: Compiler, bought: Cluster, engine: _Engine, leader: int
) -> dict[str, object] | None:
    """Return the best layout of a cluster with prefill in the other place; None where that is stated, or does not tell.

    More may be served where prompts have accelerators of their own, and fewer be late where they have not.
    """
    is_stated = bought.throughput_tokens_per_s_per_accelerator is not None
    if bought.prefill_decode != "auto" or is_stated or compiler.plan.workloads[leader].deadline_h:
        return None
    # Nothing can be calmer than what is hardly ever late; on a few nodes whole workers may fit better.
    if _missed(engine, leader, 0.5) <= _CALMER and bought.nodes > _FEW_NODES:
        return None
    is_apart = engine.services[leader].prefill is not None
    own = {"engine": engine.spec.engine, "precision": engine.spec.precision}
    name = compiler.plan.workloads[leader].name
    workload = compiler.scenario.workloads[name]
    options = engine_options(bought.model_copy(update=own), workload, compiler.reuse.catalog)
    if not any(option.prefill_decode == "auto" for option in options):
        return None
    variant = {
        **own,
        "prefill_decode": "colocated" if is_apart else "disaggregated",
    }
    service = _tried(compiler, bought.model_copy(update=variant), leader)
    return None if service is None else service.as_keys()


def _most_nodes(compiler: Compiler, c: int) -> float:
    """Return the most nodes that a cluster can come to have."""
    name = compiler.plan.clusters[c].name
    nodes = as_first_bought(compiler.scenario, name).nodes
    rules = compiler.scenario.expansion.enlarging(name)
    return max([nodes, *(rule.max_nodes or math.inf for rule in rules), 1])


def _rate(engine: _Engine, w: int) -> float:
    """Return what a node of an engine sustains of a workload, requests per second."""
    return engine.services[w].requests_per_s


def _steps(per_node: int, most_nodes: float, own_size: int, nodes_needed: float) -> list[int]:
    """Return the sizes of pools for which figures are worked out, in accelerators, and that of its cluster.

    From a small part of what the model needs on day one, or of the cluster where that is less.
    """
    most = per_node * min(most_nodes, MOST_POOLED)
    least = max(_SMALL_PART * per_node * min(nodes_needed, most_nodes), 1.0)
    first_power = math.floor(math.log2(min(least, per_node)))
    final_power = math.floor(math.log2(most))
    steps = {2**power for power in range(first_power, final_power + 1)}
    # A node more is much where there are few.
    if most_nodes <= _FEW_NODES:
        steps |= {nodes * per_node for nodes in (3, 6) if nodes * per_node <= most}
    return sorted(steps | {own_size})


def _pool_clusters(
    bought: Cluster, layouts: Sequence[dict[str, object]], accelerators: int, per_node: int
) -> Iterator[tuple[Cluster, float]]:
    """Yield a cluster of a pool's size in each layout, and the replicas that its router has at the most.

    Part of a node has replicas of that part or less, widest first; prompts have no accelerators of their own there.
    """
    if accelerators >= per_node:
        nodes = {"nodes": accelerators // per_node}
        for place, layout in enumerate(layouts):
            if layout not in layouts[:place]:
                yield bought.model_copy(update={**layout, **nodes}), math.inf
        return
    if bought.prefill_decode == "disaggregated":
        return
    layout = {**layouts[0], "nodes": 1, "prefill_decode": "colocated"}
    for power in reversed(range(accelerators.bit_length())):
        degree = 2**power
        if bought.tensor_parallel in (None, degree):
            narrow = {**layout, "tensor_parallel": degree, "attention": bought.attention}
            yield bought.model_copy(update=narrow), accelerators // degree


def _in_pools(
    compiler: Compiler,
    engine: _Engine,
    leader: int,
    candidates: Iterable[tuple[Cluster, float]],
) -> list[_Engine]:
    """Return an engine as tried in some pools, where all of its workloads can be served."""
    pools = []
    for stated, max_replicas in candidates:
        services = {}
        in_layout = stated
        for w in (leader, *(other for other in engine.workloads if other != leader)):
            service = _tried(compiler, in_layout, w, max_replicas)
            if service is None:
                break
            services[w] = service
            in_layout = stated.model_copy(update=services[leader].as_keys())
        if len(services) < len(engine.workloads):
            continue
        pools.append(
            dataclasses.replace(
                engine,
                spec=services[leader].spec,
                services={w: services[w] for w in engine.workloads},
                stated=stated,
                max_replicas=max_replicas,
            )
        )
    return pools


def _chosen(compiler: Compiler, pool: _Engine, leader: int) -> _Engine:
    """Return how a pool that was tried serves all its workloads, and those of its model that can wait."""
    if pool.stated is None:
        return pool
    in_layout = pool.stated.model_copy(update=pool.services[leader].as_keys())
    services = {}
    for w in (*pool.services, *pool.waiting):
        cluster = pool.stated if w == leader else in_layout
        service = _service(compiler, cluster, w, pool.max_replicas)
        if service is not None:
            services[w] = service
    own_services = {w: services[w] for w in pool.services}
    fit = pool.spec.memory()
    return dataclasses.replace(
        pool,
        fit=fit,
        cache_bytes=_cache_bytes(compiler, own_services, fit),
        services=own_services,
        waiting={w: services[w] for w in pool.waiting if w in services},
    )


def _cache_bytes(compiler: Compiler, services: Mapping[int, Service], fit: MemoryFit) -> float:
    """Return the cache of one replica at its operating point: that of the workload that takes most of it."""
    tokens = 0.0
    for w, service in services.items():
        lengths = compiler.scenario.workloads[compiler.plan.workloads[w].name].lengths
        context = lengths.input.mean + lengths.output.mean / 2
        tokens = max(tokens, service.batch * context)
    return min(tokens, fit.kv_capacity_tokens) * fit.kv_bytes_per_token


def _nodes_needed(compiler: Compiler, engine: _Engine, w: int) -> float:
    """Return the nodes that a workload of day one takes."""
    name = compiler.plan.workloads[w].name
    return compiler.scenario.workloads[name].requests_per_s / engine.services[w].requests_per_s


def _service(
    compiler: Compiler,
    stated: Cluster,
    w: int,
    max_replicas: float = math.inf,
) -> Service | None:
    """Return how a cluster as stated serves a workload; None where it does not."""
    workload = compiler.scenario.workloads[compiler.plan.workloads[w].name]
    return _served(compiler, stated, workload, max_replicas)


def _tried(
    compiler: Compiler, stated: Cluster, w: int, max_replicas: float = math.inf
) -> Service | None:
    """Return how a cluster serves a workload, as far as layouts and sizes are chosen by it.

    That is by day one and up to capacity: what grows later, and who is refused beyond, takes longer to work out than
    all else, and is worked out for the chosen alone.
    """
    workload = compiler.scenario.workloads[compiler.plan.workloads[w].name]
    lengths = workload.lengths.model_copy(update={"growth_per_year": 0.0})
    tried = workload.model_copy(update={"admission": "queue", "lengths": lengths})
    return _served(compiler, stated, tried, max_replicas)


def _served(
    compiler: Compiler, stated: Cluster, workload: Workload, max_replicas: float
) -> Service | None:
    """Return how a cluster as stated serves a workload; None where it does not."""
    service = served_by(
        stated, workload, compiler.scenario, compiler.reuse, compiler.factors, max_replicas
    )
    return None if isinstance(service, CapacityError) else service


def _engines(compiler: Compiler, c: int, services: Mapping[int, Service]) -> list[_Engine]:
    """Return the models of a cluster with their layouts; workloads of one model and layout share its replicas."""
    plan = compiler.plan
    stated = [compiler.scenario.workloads[load.name] for load in plan.workloads]
    layouts: dict[tuple[object, ...], list[int]] = {}
    for w in plan.by_priority:
        if w not in services:
            continue
        spec = services[w].spec
        # Weights of its own are nobody else's.
        own_weights = w if stated[w].fine_tunes > 1 else None
        layout = (spec.shape.name, spec.layout, services[w].prefill is None, own_weights)
        layouts.setdefault(layout, []).append(w)
    engines = []
    for members in layouts.values():
        leader = services[members[0]]
        fine_tunes = stated[members[0]].fine_tunes
        fit = leader.spec.memory()
        own_services = {w: services[w] for w in members}
        waiting = {}
        in_layout = as_first_bought(compiler.scenario, plan.clusters[c].name).model_copy(
            update=leader.as_keys()
        )
        for w, service in services.items():
            # Whoever has weights of its own serves nobody else.
            is_same = (service.spec.shape, service.spec.precision) == (
                leader.spec.shape,
                leader.spec.precision,
            )
            if fine_tunes > 1 or not is_same or not plan.workloads[w].deadline_h or w in members:
                continue
            borrowed = _service(compiler, in_layout, w)
            if borrowed is not None:
                waiting[w] = borrowed
        engines.append(
            _Engine(
                spec=leader.spec,
                fit=fit,
                workloads=tuple(members),
                fine_tunes=fine_tunes,
                cache_bytes=_cache_bytes(compiler, own_services, fit),
                services=own_services,
                waiting=waiting,
            )
        )
    return engines


def _apart(engines: Sequence[_Engine]) -> list[list[_Engine]]:
    """Return groups with one model each, with as many fine-tunes on the same accelerators as lose no speed."""
    return [[engine] * _together(engine, 1.0) for engine in engines]


def _joined(plan: Plan, engines: Sequence[_Engine]) -> list[_Engine]:
    """Return the engines with deferrable-only ones merged into the fastest other engine of their model."""
    joined = list(engines)
    for engine in engines:
        if any(not plan.workloads[w].deadline_h for w in engine.workloads):
            continue
        hosts = [
            host
            for host in joined
            if host is not engine and all(w in host.waiting for w in engine.workloads)
        ]
        if hosts:
            guests = engine.workloads
            best = max(hosts, key=lambda host: min(host.waiting[w].requests_per_s for w in guests))
            joined.remove(engine)
            joined[joined.index(best)] = dataclasses.replace(
                best,
                workloads=best.workloads + guests,
                services={**best.services, **{w: best.waiting[w] for w in guests}},
            )
    return joined


def _together(engine: _Engine, least_speed: float) -> int:
    """Return how many fine-tunes of a model fit on the same accelerators at a least speed; at least one."""
    for count in range(1, engine.fine_tunes):
        if _speed([engine] * (count + 1)) < least_speed:
            return count
    return engine.fine_tunes


def _replicas(group: Sequence[_Engine]) -> int:
    """Return the number of replicas that hold all fine-tunes of a model, ``len(group)`` on each."""
    return math.ceil(group[0].fine_tunes / len(group)) if group[0].fine_tunes > 1 else 1


def _accelerators(group: Sequence[_Engine]) -> int:
    """Return the fewest accelerators on which a group of models can serve."""
    return _replicas(group) * max(engine.spec.accelerators for engine in group)


def _shared(engines: Sequence[_Engine]) -> list[list[_Engine]]:
    """Group models on shared accelerators by first fit, smallest first, while the speed stays acceptable."""
    several = [engine for engine in engines if engine.fine_tunes > 1]
    groups = [[engine] * _together(engine, LEAST_SHARED_SPEED) for engine in several]
    singles = [engine for engine in engines if engine.fine_tunes == 1]
    for engine in sorted(singles, key=lambda engine: engine.resident_bytes):
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
    resident = sum(engine.resident_bytes for engine in group)
    free = USABLE_FRACTION * group[0].spec.part.hbm_bytes - resident
    most = max(engine.cache_bytes / engine.spec.accelerators for engine in group)
    return float(np.clip(free / most, 0.0, 1.0))


def _deployment(
    compiler: Compiler, c: int, group: Sequence[_Engine], *, is_alone: bool
) -> Deployment:
    """Return the deployment of models that share accelerators; the widest replica sets their number.

    Whether it is alone on its cluster says how its misses are worked out. A node reads weights at its bandwidth, of
    which each of its accelerators has an equal share.
    """
    cluster = compiler.plan.clusters[c]
    per_node = cluster.accelerators_per_node
    accelerators = max(engine.spec.accelerators for engine in group)
    weights = sum(engine.fit.weight_bytes / engine.spec.accelerators for engine in group)
    bytes_per_s = compiler.scenario.site.weight_load_gb_per_s_per_node * GB
    load_h = weights * per_node / bytes_per_s / SECONDS_PER_HOUR
    own_services: dict[int, Service] = {}
    for engine in group:
        own_services.update(engine.services)
    waiting: dict[int, Service] = {}
    for engine in group:
        # Whoever has joined others is served as they serve it; whoever has a layout of its own there is not.
        borrowed = engine.waiting.items()
        waiting |= {w: one for w, one in borrowed if own_services.get(w, one) is one}
    return Deployment(
        cluster=c,
        workloads=tuple(own_services),
        least_replicas=_replicas(group),
        nodes_per_replica=accelerators / per_node,
        speed=_speed(group),
        resident_bytes=sum(engine.resident_bytes for engine in group) * accelerators,
        memory_bytes=group[0].spec.part.hbm_bytes * accelerators,
        load_h=min(1.0, load_h),
        waiting_speed={w: _speeds(compiler, c, w, service) for w, service in waiting.items()},
        layout=tuple(_loaded(engine) for engine in group),
        least_nodes=group[0].least_nodes,
        pool_speed=_pool_speed(compiler, c, own_services, waiting),
        tables=_tables(compiler, c, own_services, is_alone=is_alone),
    )


def _loaded(engine: _Engine) -> Hashable:
    """Return what is loaded for an engine: its model and layout, and where prompts are prefilled."""
    service = engine.services[engine.workloads[0]]
    prefill = None if service.prefill is None else service.prefill.spec.layout
    return engine.spec.shape.name, engine.spec.layout, prefill


def _speeds(compiler: Compiler, c: int, w: int, service: Service) -> Floats:
    """Return a service's speed on a workload over the plan's figure, shape (months or 1,)."""
    plan = compiler.plan
    pair = (plan.clusters[c].name, plan.workloads[w].name)
    stated = plan.requests_per_node_h[c, w]
    table = capacity_table(compiler.scenario, {pair: service}, plan.months.mid_years)[c, w]
    return np.asarray(np.divide(table, stated, out=np.zeros_like(stated), where=stated > 0))


def _pool_speed(
    compiler: Compiler, c: int, services: Mapping[int, Service], waiting: Mapping[int, Service]
) -> dict[int, float]:
    """Return what a node of a pool sustains over the plan's figure, by workload where that is another."""
    speeds = {}
    for w, service in services.items():
        pair = (compiler.plan.clusters[c].name, compiler.plan.workloads[w].name)
        stated = compiler.services[pair]
        if service is not stated and w not in waiting:
            speeds[w] = service.requests_per_s / stated.requests_per_s
    return speeds


def _tables(
    compiler: Compiler, c: int, services: Mapping[int, Service], *, is_alone: bool
) -> dict[int, MissTables]:
    """Return the misses by load of a pool, by workload where they are others than the plan's.

    A cluster of one model has no other pools, and those of its sizes are worked out in full.
    """
    plan = compiler.plan
    tables = {}
    for w, service in services.items():
        name = plan.workloads[w].name
        stated = compiler.services[plan.clusters[c].name, name]
        if service.lateness == stated.lateness or plan.workloads[w].deadline_h:
            continue
        pool = None
        if is_alone:
            pool = miss_tables(compiler.scenario, name, service, plan.demand, compiler.reuse)
        elif plan.no_burst_tables is not None:
            pool = pool_tables(plan, c, w, service.lateness)
        if pool is not None:
            tables[w] = pool
    return tables


def sharing_notes(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Return notes on which models share accelerators, and at what cost in speed."""
    placement = plan.placement
    assert placement is not None  # a compiled plan has one
    for group in placement.groups:
        deployment = placement.deployments[group[-1]]
        cluster = plan.clusters[deployment.cluster]
        models = sorted({plan.workloads[w].model for w in deployment.workloads})
        leader = plan.workloads[deployment.workloads[0]]
        tuned = scenario.workloads[leader.name].fine_tunes
        if tuned > 1:
            accelerators = deployment.min_nodes * cluster.accelerators_per_node
            yield (
                f"cluster {cluster.name} holds the {tuned} fine-tunes of {models[0]} on "
                f"at least {accelerators:g} accelerators, "
                f"at {deployment.speed:.0%} of the speed that a single one would have"
            )
        if len(models) > 1:
            yield (
                f"cluster {cluster.name} has too few accelerators for one replica of each model: {', '.join(models)} "
                f"share accelerators, at {deployment.speed:.0%} of the speed that each would have by itself"
            )
