"""The layouts in which a cluster may serve a model, and what a step takes in each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from planner.catalog.physics import part_of, shape_of
from planner.errors import CapacityError
from planner.physics.coefficients import Calibration, roofline_calibration
from planner.physics.memory import candidate_degrees, memory_fit, smallest_fit
from planner.physics.model_shape import ModelShape
from planner.physics.part import Part, wider_precision
from planner.physics.replica import (
    Replicas,
    ReplicaSpec,
    ReplicaWork,
    describe,
    joined,
    price_replicas,
    price_work,
    taken,
)
from planner.plan.disaggregation import Apart
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.units import counted


class Layouts(NamedTuple):
    """Layouts of one model on one part; arrays have one element for each."""

    specs: list[ReplicaSpec]
    work: ReplicaWork
    replicas: Replicas
    beside_others: Replicas
    """The same, then under perfect software, then in the next wider precision."""
    wider: str
    """That precision."""

    def only(self, places: list[int]) -> Layouts:
        """Return some of the layouts."""
        beside = [place + turn * len(self.specs) for turn in range(3) for place in places]
        return Layouts(
            [self.specs[place] for place in places],
            taken(self.work, places),
            taken(self.replicas, places),
            taken(self.beside_others, beside),
            self.wider,
        )


def layouts_of(cluster: Cluster, model: str, precision: str, tokens: float, reuse: Reuse) -> Layouts:
    """Return the layouts in which a cluster may serve requests of some tokens; raise CapacityError where none holds it.

    Workloads of one model mostly share them, whatever is asked, and one of them that is tried by itself is among all.
    """
    catalog = reuse.catalog
    part = reuse.once(("part", cluster.accelerator), lambda: part_of(cluster.accelerator, catalog))
    shape = reuse.once(("model", model), lambda: shape_of(model, catalog))
    stated = (cluster.accelerator, cluster.engine, model, precision, cluster.max_sequences, cluster.speculation)

    def priced(of: Cluster) -> Layouts:
        specs = candidates(of, part, shape, precision, tokens)
        return reuse.once(("layouts", stated, _widths(specs)), lambda: _priced(specs, reuse.calibration))

    if cluster.tensor_parallel is None and cluster.attention == "auto":
        return priced(cluster)
    wanted = _widths(candidates(cluster, part, shape, precision, tokens))
    known = priced(cluster.model_copy(update={"tensor_parallel": None, "attention": "auto"}))
    return known.only([place for place, wide in enumerate(_widths(known.specs)) if wide in wanted])


def _widths(specs: Sequence[ReplicaSpec]) -> tuple[tuple[int, int, int], ...]:
    """Return what layouts of a model on a part of a cluster differ by."""
    return tuple((spec.accelerators, spec.attention_data_parallel, spec.drafted_tokens) for spec in specs)


def _priced(specs: list[ReplicaSpec], calibration: Calibration) -> Layouts:
    work = describe(specs)
    replicas = price_work(work, specs, calibration)
    wider = wider_precision(specs[0].part, specs[0].shape, specs[0].precision)
    wides = [dataclasses.replace(spec, precision=wider) for spec in specs]
    others = price_work(work, specs, roofline_calibration()), price_replicas(wides, calibration)
    return Layouts(specs, work, replicas, joined(replicas, *others), wider)


def candidates(cluster: Cluster, part: Part, shape: ModelShape, precision: str, tokens: float) -> list[ReplicaSpec]:
    """Return the layouts a cluster may serve a model in; raise CapacityError where none holds it."""
    smallest = smallest_fit(part, shape, precision, tokens).accelerators
    degrees = [d for d in candidate_degrees(part, shape) if d >= smallest]
    if cluster.tensor_parallel is not None:
        if cluster.tensor_parallel not in degrees:
            raise CapacityError(
                f"{shape.name} at {precision} runs on {', '.join(map(str, degrees))} x {cluster.accelerator}, "
                f"not on {cluster.tensor_parallel}"
            )
        degrees = [cluster.tensor_parallel]
    layouts = [(degree, 1) for degree in degrees if cluster.attention != "data-parallel" or not shape.experts]
    if shape.experts and cluster.attention != "tensor-parallel":
        # Each of the groups holds its own sequences: one must fit in a group's share of the cache.
        layouts += [
            (degree, degree)
            for degree in degrees
            if degree > 1 and memory_fit(part, shape, precision, degree, degree).kv_capacity_tokens >= degree * tokens
        ]
    if not layouts:
        raise CapacityError(
            f"{shape.name} at {precision} does not fit with attention in data parallel on {max(degrees)} x "
            f"{cluster.accelerator}; tensor-parallel would hold it"
        )
    drafts = [(0, 1.0)] if cluster.speculation is None or cluster.speculation.use == "auto" else []
    drafts += [(cluster.speculation.drafted_tokens, cluster.speculation.accepted_tokens)] if cluster.speculation else []
    return [
        ReplicaSpec(
            part=part,
            shape=shape,
            precision=precision,
            accelerators=degree,
            engine=cluster.engine,
            attention_data_parallel=groups,
            expert_parallel=groups > 1,
            max_sequences=cluster.max_sequences,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
        )
        for drafted, accepted in drafts
        for degree, groups in layouts
    ]


def layout_in_words(spec: ReplicaSpec, apart: Apart | None) -> str:
    """Say how a replica is laid out, for those who set it up."""
    words = f"{counted(spec.accelerators, 'accelerator')} a replica"
    if spec.attention_data_parallel > 1:
        words += f", attention in {spec.attention_data_parallel} groups"
    if apart is not None:
        words += f", prompts on a pool of {apart.prefill_share:.0%} in replicas of {apart.prefill_accelerators}"
    if spec.drafted_tokens:
        words += f", {spec.drafted_tokens} tokens drafted"
    return words
