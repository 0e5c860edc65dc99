"""Candidate layouts: every engine, precision and replica layout in which a cluster could serve a model."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from itertools import product
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools
from planner.catalog.load import Catalog, part_of, shape_of
from planner.errors import CapacityError
from planner.physics import model_on_part
from planner.physics.model_on_part import AcceleratorSpec, ModelShape, memory_fit
from planner.physics.replica import Replicas, ReplicaSpec, ReplicaWork, describe, price_work
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload

CHUNKS = tuple(256 * 2**doublings for doublings in range(7))
"""Prompt tokens of a step among which the planner chooses."""
MOST_POOLED = 64
"""Replicas or nodes behind a router beyond which a larger pool changes nothing that shows."""
POOL_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MOST_POOLED)
"""Numbers of nodes and replicas behind a router for which figures are worked out."""


def as_first_bought(scenario: Scenario, name: str) -> Cluster:
    """Return a cluster with the node count that layouts and queueing delays are computed for.

    A cluster that is empty until a rule enlarges it never serves with fewer nodes than that rule first orders. As a
    cluster of no node it would keep the long waits and the shared memory of one for good.
    """
    cluster = scenario.clusters[name]
    rules = scenario.expansion.enlarging(name)
    if cluster.nodes or not rules:
        return cluster
    # A rule whose limit is below its order never orders more than the limit.
    first_order = min(min(rule.nodes, rule.max_nodes or rule.nodes) for rule in rules)
    return cluster.model_copy(update={"nodes": first_order})


@functools.cache
def pooled_nodes(nodes: int) -> int:
    """Return a router's pool size rounded down to the grid of sizes for which figures are computed.

    So plans that differ by a few nodes share them, and a node more never lowers what each sustains.
    """
    reached_steps = [step for step in POOL_STEPS if step <= nodes]
    # A cluster without a node is worked out as one of one node.
    return max(reached_steps, default=1)


def engine_options(cluster: Cluster, workload: Workload, catalog: Catalog) -> list[Cluster]:
    """Return a cluster with every engine and precision with which it may serve a workload.

    What either states is binding: no cluster serves a workload in a precision that the workload does not allow. Where
    neither states a precision, it is the one that public serving runs use.
    """
    # A vendor's parts run the engines that have a stack for it.
    vendor = catalog.accelerator(cluster.accelerator).vendor.value
    engines = [cluster.engine]
    if cluster.engine == "auto":
        engines = catalog.engines(vendor)
    precisions: tuple[str, ...] = workload.precisions
    if cluster.precision in precisions or not precisions:
        precisions = (cluster.precision or catalog.precision_with("default"),)
    # A precision stated twice is one option; dict keys keep the order of preference, which a set would lose.
    return [
        cluster.model_copy(update={"engine": engine, "precision": precision})
        for engine, precision in product(engines, dict.fromkeys(precisions))
    ]


def hardware_key(cluster: Cluster) -> tuple[Hashable, ...]:
    """Return the figures of a cluster that decide its layouts, whatever the workload and the number of nodes."""
    return (
        cluster.accelerator,
        cluster.engine,
        cluster.precision,
        cluster.max_sequences,
        cluster.speculation,
        cluster.tensor_parallel,
        cluster.attention,
        cluster.chunk_tokens,
        cluster.prefill_decode,
        cluster.throughput_tokens_per_s_per_accelerator,
        cluster.throughput_measured_at,
    )


def layout_key(cluster: Cluster, workload: Workload) -> Hashable:
    """Return the figures that decide the layouts of a cluster for a workload, and their mean times."""
    cached = workload.prefix_cache_hit_fraction
    traffic = (workload.model, workload.lengths, cached, workload.slo)
    return hardware_key(cluster), traffic


class CandidateLayouts(NamedTuple):
    """Layouts of one model on one accelerator; arrays have one element for each layout."""

    specs: list[ReplicaSpec]
    work: ReplicaWork
    replicas: Replicas
    is_allowed: Bools
    """Those in which the cluster may serve. Prefill workers may take the others too."""


def layouts_of(
    cluster: Cluster, model: str, precision: str, tokens: float, reuse: Reuse
) -> CandidateLayouts:
    """Return a cluster's candidate layouts for requests of this many tokens; raise CapacityError where none fits.

    All layouts are timed together, whether the cluster states one of them or not: so workloads of one model, and
    clusters that differ in what they state, mostly share the work.
    """

    def catalogue_entries() -> tuple[AcceleratorSpec, ModelShape]:
        part = part_of(cluster.accelerator, reuse.catalog)
        return part, shape_of(model, reuse.catalog)

    entries_key = ("part and model", cluster.accelerator, model)
    part, shape = reuse.once(entries_key, catalogue_entries)
    unbound = cluster.model_copy(
        update={"tensor_parallel": None, "attention": "auto", "chunk_tokens": None}
    )
    specs = replica_specs(unbound, part, shape, precision, tokens)
    allowed = replica_specs(cluster, part, shape, precision, tokens)
    usual = {spec.layout for spec in specs}
    # A stated chunk may lie beside the grid of chunks.
    specs += [spec for spec in allowed if spec.layout not in usual]

    def timed() -> CandidateLayouts:
        work = describe(specs)
        replicas = price_work(work, specs, reuse.calibration)
        # What may serve is the cluster's own, and set below: what is kept is shared by clusters.
        is_any_allowed = np.ones(len(specs), dtype=bool)
        return CandidateLayouts(specs, work, replicas, is_any_allowed)

    machine = (cluster.accelerator, cluster.engine, model, precision)
    limits = (cluster.max_sequences, cluster.speculation)
    layouts = tuple(spec.layout for spec in specs)
    key = ("layouts", machine, limits, layouts)
    allowed_layouts = {spec.layout for spec in allowed}
    is_allowed = np.array([spec.layout in allowed_layouts for spec in specs])
    return reuse.once(key, timed)._replace(is_allowed=is_allowed)


def replica_specs(
    cluster: Cluster, part: AcceleratorSpec, shape: ModelShape, precision: str, tokens: float
) -> list[ReplicaSpec]:
    """Return the replica layouts in which a cluster can serve a model; raise CapacityError where none fits."""
    speculation = cluster.speculation
    # A step without a draft yields one token.
    drafts = [(0, 1.0)]
    if speculation is not None:
        draft = (speculation.drafted_tokens, speculation.mean_acceptance_length)
        # On auto plain decoding stays a candidate, and wins ties since it comes first.
        drafts = [*drafts, draft] if speculation.use == "auto" else [draft]
    # The order of the product is that in which ties are decided.
    parallelism = _parallelism(cluster, part, shape, precision, tokens)
    chunks = [cluster.chunk_tokens] if cluster.chunk_tokens else CHUNKS
    return [
        ReplicaSpec(
            part=part,
            shape=shape,
            precision=precision,
            accelerators=accelerators,
            engine=cluster.engine,
            attention_data_parallel=groups,
            expert_parallel=groups > 1,
            max_sequences=cluster.max_sequences,
            chunk_tokens=chunk,
            drafted_tokens=drafted,
            mean_acceptance_length=acceptance_length,
        )
        for (drafted, acceptance_length), (accelerators, groups), chunk in product(
            drafts, parallelism, chunks
        )
    ]


def _parallelism(
    cluster: Cluster, part: AcceleratorSpec, shape: ModelShape, precision: str, tokens: float
) -> list[tuple[int, int]]:
    """Return the accelerators of a replica and its attention groups, of each that holds one sequence."""
    smallest = model_on_part.smallest_fit(part, shape, precision, tokens).accelerators
    degrees = [
        degree for degree in model_on_part.candidate_degrees(part, shape) if degree >= smallest
    ]
    if cluster.tensor_parallel is not None:
        if cluster.tensor_parallel not in degrees:
            raise CapacityError(
                f"{shape.name} at {precision} runs on {', '.join(map(str, degrees))} x {cluster.accelerator}, "
                f"not on {cluster.tensor_parallel}"
            )
        degrees = [cluster.tensor_parallel]
    layouts: list[tuple[int, int]] = []
    # Only mixtures of experts have data-parallel attention: a dense model ignores the key.
    if cluster.attention != "data-parallel" or not shape.experts:
        layouts += [(degree, 1) for degree in degrees]
    if shape.experts and cluster.attention != "tensor-parallel":
        for degree in degrees:
            fit = memory_fit(part, shape, precision, degree, degree)
            # Each of the groups holds its own sequences: one must fit in a group's share of the cache.
            if degree > 1 and fit.kv_capacity_tokens >= degree * tokens:
                layouts.append((degree, degree))
    if not layouts:
        raise CapacityError(
            f"{shape.name} at {precision} does not fit with attention in data parallel on {max(degrees)} x "
            f"{cluster.accelerator}; tensor-parallel would hold it"
        )
    return layouts
