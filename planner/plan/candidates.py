"""Candidate layouts: every engine, precision and replica layout in which a cluster could serve a model."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.catalog.entries import Feature, Status
from planner.catalog.load import Catalog, part_of, shape_of
from planner.errors import CapacityError
from planner.physics import model_on_part
from planner.physics.coefficients import Calibration
from planner.physics.model_on_part import AcceleratorSpec, ModelShape, memory_fit
from planner.physics.replica import (
    Replicas,
    ReplicaSpec,
    ReplicaWork,
    Traffic,
    describe,
    price_work,
)
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import GIGA

CHUNKS = tuple(1024 * 2**doublings for doublings in range(6))
"""Prompt tokens of a step among which the planner chooses: 1,024 to 32,768, as engines are run in public. Their own
defaults are 8,192 and, on parts of 160 GB and more, 16,384; the smallest of audited runs are 768 to 1,536. Less is
computed only where a user states it."""
PREFILL_CHUNK_TOKENS = 16_384
"""Prompt tokens of a step of workers that only prefill: as public runs with pools apart have it."""
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
    neither states a precision, it is the one that public serving runs use. An engine that is known not to serve the
    model there is no option; one of which nothing is known is. One that is experimental there is, where it is stated or
    no other engine is known to serve it.
    """
    options = supported_options(cluster, workload, catalog)
    statuses = [_status(option, workload, catalog) for option in options]
    is_known = any(status in ("public-sweep", "documented") for status in statuses)
    if cluster.engine != "auto" or not is_known:
        return options
    by_status = zip(options, statuses, strict=True)
    return [option for option, status in by_status if status != "experimental"]


def supported_options(cluster: Cluster, workload: Workload, catalog: Catalog) -> list[Cluster]:
    """Return a cluster with every engine and precision that is not known to fail there."""
    pairs = _stated_pairs(cluster, workload, catalog)
    found = [_supported(cluster, *pair, workload, catalog) for pair in pairs]
    # A copy takes longer than to see what the engine supports.
    return [cluster.model_copy(update=fields) for fields in found if isinstance(fields, dict)]


def _status(option: Cluster, workload: Workload, catalog: Catalog) -> Status | None:
    """Return how an engine stands to a model on an accelerator; None where nothing is known."""
    key = (option.engine, workload.model, option.accelerator, str(option.precision))
    row = catalog.support.row(*key, image_date=option.engine_date)
    return row.status if row is not None else None


def _stated_pairs(
    cluster: Cluster, workload: Workload, catalog: Catalog
) -> Iterable[tuple[str, str]]:
    """Return every engine and precision that a cluster and a workload state or leave open."""
    # A vendor's parts run the engines that have a stack for it.
    vendor = catalog.accelerator(cluster.accelerator).vendor.value
    engines = [cluster.engine]
    if cluster.engine == "auto":
        engines = catalog.engines(vendor)
    precisions: tuple[str, ...] = workload.precisions
    if cluster.precision in precisions or not precisions:
        precisions = (cluster.precision or catalog.precision_with("default"),)
    # A precision stated twice is one option; dict keys keep the order of preference, which a set would lose.
    return product(engines, dict.fromkeys(precisions))


def refused_options(cluster: Cluster, workload: Workload, catalog: Catalog) -> list[str]:
    """Return why engines and precisions with which a cluster might serve a workload are no options."""
    pairs = _stated_pairs(cluster, workload, catalog)
    found = [_supported(cluster, *pair, workload, catalog) for pair in pairs]
    return [reason for reason in found if isinstance(reason, str)]


def _supported(
    stated: Cluster, engine: str, precision: str, workload: Workload, catalog: Catalog
) -> dict[str, object] | str:
    """Return the fields of a cluster of one engine and precision that are not as stated, or why there is none.

    What is left to the planner (auto) is narrowed to what the engine is known to do there: nobody's plan should rest on
    pools, or on attention in groups, that nobody has run. What is stated is taken, unless it is known not to work.
    """
    key = (engine, workload.model, stated.accelerator, str(precision))

    def refusal(feature: Feature) -> str | None:
        return catalog.support.refusal(*key, feature, stated.engine_date)

    def is_practised(feature: Feature) -> bool:
        return catalog.support.is_practised(*key, feature, stated.engine_date)

    no_service = refusal("serving")
    if no_service:
        return no_service
    fields: dict[str, object] = {"engine": engine, "precision": precision}
    no_pools = refusal("disaggregated") if stated.prefill_decode == "disaggregated" else None
    if no_pools:
        return no_pools
    if stated.prefill_decode == "auto" and not is_practised("disaggregated"):
        fields["prefill_decode"] = "colocated"
    no_drafts = refusal("speculation") if stated.speculation is not None else None
    if no_drafts and stated.speculation is not None:
        if stated.speculation.use == "always":
            return no_drafts
        fields["speculation"] = None
    no_groups = refusal("data-parallel") if stated.attention == "data-parallel" else None
    if no_groups:
        return no_groups
    if stated.attention == "auto" and not is_practised("data-parallel"):
        fields["attention"] = "tensor-parallel"
    return fields


def maturity_factor(cluster: Cluster, workload: Workload, catalog: Catalog) -> float:
    """Return the speed of a cluster's stack over the throughput formula's."""
    # The catalogue has a multiplier for each class of models.
    architecture = catalog.model(workload.model).architecture_class.value
    field_name = architecture.replace("-", "_") + "_multiplier"
    vendor = catalog.accelerator(cluster.accelerator).vendor.value
    stack = catalog.stack(vendor, cluster.engine)
    return float(getattr(stack, field_name).value)


def traffic_of(workload: Workload, growth: Floats | float = 1.0) -> Traffic:
    """Return a workload's mean requests as the throughput formula takes them, scaled by a growth factor."""
    lengths = workload.lengths
    return Traffic(
        input_tokens=lengths.input.mean * growth,
        output_tokens=lengths.output.mean * growth,
        cached_fraction=workload.prefix_cache_hit_fraction,
        input_cv=lengths.input.distribution.coefficient_of_variation,
        output_cv=lengths.output.distribution.coefficient_of_variation,
    )


def hardware_key(cluster: Cluster) -> tuple[Hashable, ...]:
    """Return the figures of a cluster that decide its layouts, whatever the workload and the number of nodes."""
    return (
        cluster.accelerator,
        cluster.engine,
        cluster.engine_date,
        cluster.precision,
        cluster.max_sequences,
        cluster.speculation,
        cluster.tensor_parallel,
        cluster.attention,
        cluster.chunk_tokens,
        cluster.layouts,
        cluster.prefill_decode,
        cluster.throughput_tokens_per_s_per_accelerator,
        cluster.throughput_measured_at,
        cluster.kv_offload,
        cluster.host_memory_gb,
    )


def layout_key(cluster: Cluster, workload: Workload) -> Hashable:
    """Return the figures that decide the layouts of a cluster for a workload, and their mean times."""
    # The curve of sessions in groups hangs on the rate at which a group comes back.
    groups = None
    if workload.reuse is not None and workload.reuse.sessions is not None:
        groups = workload.requests_per_s
    cached = (
        workload.prefix_cache_hit_fraction,
        workload.reuse,
        workload.prefix_routing,
        groups,
    )
    traffic = (workload.model, workload.lengths, cached, workload.slo)
    return hardware_key(cluster), traffic


class CandidateLayouts(NamedTuple):
    """Layouts of one model on one accelerator; arrays have one element for each layout."""

    specs: list[ReplicaSpec]
    work: ReplicaWork
    predicted: Replicas
    """Their times as predicted."""
    replicas: Replicas
    """Their times as far as these are known (``planner.plan.shrinkage``)."""
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
    if cluster.host_memory_gb is not None:
        part = replace(part, host_bytes=cluster.host_memory_gb * GIGA)
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
        return CandidateLayouts(specs, work, replicas, replicas, is_any_allowed)

    machine = (cluster.accelerator, cluster.engine, cluster.host_memory_gb, model, precision)
    limits = (cluster.max_sequences, cluster.speculation)
    layouts = tuple(spec.layout for spec in specs)
    key = ("layouts", machine, limits, layouts)
    allowed_layouts = {spec.layout for spec in allowed}
    is_allowed = np.array([spec.layout in allowed_layouts for spec in specs])
    if cluster.layouts == "measured":
        is_known = is_allowed & are_measured(specs, reuse.calibration)
        is_allowed = is_known if is_known.any() else is_allowed
    return reuse.once(key, timed)._replace(is_allowed=is_allowed)


def are_measured(specs: Sequence[ReplicaSpec], calibration: Calibration) -> Bools:
    """Return which replicas rows measured in their own layout, whatever the chunk, shape (replicas,)."""
    evidence = [spec.evidence(calibration) for spec in specs]
    return np.array([one is not None and one.grade == "measured" for one in evidence])


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
