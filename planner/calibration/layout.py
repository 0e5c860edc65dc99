"""From a benchmark row's words to a replica: names as people write them, and what blank or odd tp and ep mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.catalog.load import Catalog
from planner.catalog.physics import part_of, shape_of
from planner.physics.coefficients import DEFAULT_RESERVED_OUTPUT_FRACTION
from planner.physics.memory import candidate_degrees, memory_fit, smallest_fit
from planner.physics.model_shape import ModelShape
from planner.physics.part import Part, refusal
from planner.physics.precision import canonical_precision, format_with
from planner.physics.replica import ReplicaSpec
from planner.validation import nearest

_ENGINES = {
    "trt": "tensorrt-llm", "trtllm": "tensorrt-llm", "tensorrt": "tensorrt-llm", "tensorrtllm": "tensorrt-llm",
    "vllm": "vllm", "sglang": "sglang", "atom": "atom", "tgi": "tgi", "textgenerationinference": "tgi",
}  # fmt: skip
_ROUTERS = ("dynamo", "mori", "llmd")  # what stands before an engine's name where it sends requests to several
_MODEL_SUFFIXES = re.compile(r"-(instruct|chat|hf|it|fp8|fp4|nvfp4|mxfp4|bf16|fp16|int4|0324|0528|thinking)(?=-|$)")
_SAME_SHAPE = {
    "deepseek-v3.1": "deepseek-v3", "deepseek-v4": "deepseek-v4-pro", "glm-5.1": "glm-5", "kimi-k2.6": "kimi-k2.5",
    "minimax-m2": "minimax-m2.5", "minimax-m2.1": "minimax-m2.5", "minimax-m2.7": "minimax-m2.5",
    "qwen3.5": "qwen3.5-397b-a17b", "gpt-oss": "gpt-oss-120b",
}  # fmt: skip
"""Releases whose configuration is that of an entry, and short names of a family's large model."""
_MAX_ACCELERATORS = 128
DECODE_ACCELERATORS = 32
"""Accelerators of a decode pool whose workers are not stated: four workers of eight in the published recipes (a
deployment of 36 accelerators is one prefill worker of four and these)."""
CROWDED_SEQUENCES = 100
"""Sequences per accelerator of one worker from which the same recipes run one worker alone (12 accelerators: four that
prefill and one decode worker of eight for 2,252 sequences)."""
USUAL_WORKER = 8
"""Accelerators of a decode worker where a table gives those of the whole deployment."""


class CannotPredictError(Exception):
    """A row that the formula has no answer for; its message is the reason shown to the user."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a replica is spread over its accelerators."""

    accelerators: int
    attention_data_parallel: int
    replicas_per_concurrency: float
    """By how much the row's concurrency is multiplied to count the whole replica."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a row runs: a model at a precision under an engine, and the layouts it may have."""

    part: Part
    shape: ModelShape
    precision: str
    engine: str
    layouts: tuple[Layout, ...]
    """One, or several where the row leaves the layout open; the best is taken."""
    expert_parallel: bool
    max_sequences: int | None

    def specs(self, is_open: bool) -> list[ReplicaSpec]:
        """Return the replica of each layout; ``is_open`` says whether requests arrive on their own."""
        return [
            ReplicaSpec(
                part=self.part,
                shape=self.shape,
                precision=self.precision,
                accelerators=layout.accelerators,
                engine=self.engine,
                attention_data_parallel=layout.attention_data_parallel,
                expert_parallel=self.expert_parallel or layout.attention_data_parallel > 1,
                max_sequences=self.max_sequences,
                # Servers tuned for independent arrivals admit by what is written, not by what might be.
                reserved_output_fraction=DEFAULT_RESERVED_OUTPUT_FRACTION if is_open else None,
            )
            for layout in self.layouts
        ]


def find_model(name: str, catalog: Catalog) -> ModelShape:
    """Return the model a row names, whatever its case, publisher prefix or ``-instruct`` suffix."""
    plain = _MODEL_SUFFIXES.sub("", name.strip().lower().rsplit("/", 1)[-1]).replace("_", "-").replace(" ", "-")
    for candidate in (name.strip().lower(), plain, plain.replace("meta-", ""), _SAME_SHAPE.get(plain, plain)):
        if candidate in catalog.models:
            return shape_of(candidate, catalog)
    raise CannotPredictError(_unknown("model", name, catalog.models))


def find_part(name: str, catalog: Catalog) -> Part:
    """Return the accelerator a row names; ``H200 SXM`` or ``NVIDIA H200-SXM-141GB`` is an H200."""
    words = re.split(r"[\s_\-/()]+", name.strip().upper())
    for candidate in sorted(catalog.accelerators, key=len, reverse=True):
        if candidate.upper() in words or candidate.upper() == name.strip().upper():
            return part_of(candidate, catalog)
    raise CannotPredictError(_unknown("accelerator", name, catalog.accelerators))


def find_engine(name: str) -> str:
    """Return the engine's usual name; one without calibration rows is kept and takes the common coefficients."""
    plain = re.sub(r"[\s_\-]+", "", name.strip().lower())
    for router in _ROUTERS:
        plain = plain.removeprefix(router) or plain
    return _ENGINES.get(plain, plain)


def find_precision(name: str, part: Part, shape: ModelShape) -> str:
    """Return the precision a row names; a blank one is what the model was quantised to when published, or FP8."""
    formats = part.formats
    if not name.strip():
        native = shape.native_precision
        usable = refusal(part, shape, native) is None and formats[native].role != "activations"
        return native if usable else format_with(formats, "default")
    precision = canonical_precision(formats, name)
    if precision is None:
        raise CannotPredictError(_unknown("precision", name, formats))
    reason = refusal(part, shape, precision)
    if reason:
        raise CannotPredictError(reason)
    return precision


def lay_out(
    part: Part, shape: ModelShape, precision: str, tp: int | None, ep: int | None, attention_dp: int | None = None
) -> tuple[Layout, ...]:
    """Return the layouts a row may mean; more than one where it leaves something open and saturation may choose.

    Published tables write parallelism in several ways. ``tp`` alone is tensor parallelism. With ``ep`` > 1 some write
    the product of both (64 for tp 8, ep 8): recognised where tp ≥ ep² and the smaller replica holds the model. A
    ``tp`` on which the weights cannot fit means attention in parallel groups of tp over a larger expert-parallel
    replica, with the concurrency counted per group. ``attention_dp`` groups divide tp, or multiply it where they
    cannot divide it, or where ep says so.
    """
    if tp is None:
        fit = smallest_fit(part, shape, precision)
        degrees = [d for d in candidate_degrees(part, shape) if _holds(part, shape, precision, d)]
        return tuple(
            Layout(degree, groups, float(fit.accelerators))
            for degree in degrees
            for groups in _attention_groups(part, shape, precision, degree)
        )
    if attention_dp is not None and attention_dp > 1:
        total = tp
        if tp % attention_dp or ep == tp * attention_dp or not _holds(part, shape, precision, tp, attention_dp):
            total = tp * attention_dp
        if not _holds(part, shape, precision, total, attention_dp):
            raise CannotPredictError(f"{shape.name} at {precision} does not fit {total} × {part.name}")
        return (Layout(total, attention_dp, 1.0),)
    count = tp
    if ep is not None and ep > 1 and tp >= ep * ep and tp % ep == 0 and _holds(part, shape, precision, tp // ep):
        count = tp // ep
    if not shape.divides_heads(count):
        raise CannotPredictError(f"tp {count} does not divide the {shape.heads} heads of {shape.name}")
    total = count
    while not _holds(part, shape, precision, total, total // count):
        total *= 2
        if total > _MAX_ACCELERATORS:
            smallest_fit(part, shape, precision)
            raise CannotPredictError(f"{shape.name} at {precision} does not fit {tp} × {part.name}")
    if total > count:
        return (Layout(total, total // count if shape.experts else 1, total / count if shape.experts else 1.0),)
    chosen = _attention_groups(part, shape, precision, count) if attention_dp is None else [1]
    return tuple(Layout(count, groups, 1.0) for groups in chosen)


def decode_worker(
    part: Part, shape: ModelShape, precision: str, tp: int, attention_dp: int | None
) -> tuple[Layout, ...]:
    """Return the layouts of one decode worker.

    A tp that is no power of two is the whole deployment's: tables that know no more write it for both pools.
    """
    degree = tp if tp & (tp - 1) == 0 else USUAL_WORKER
    return lay_out(part, shape, precision, degree, None, attention_dp)


def decode_workers(stated: Floats, accelerators: Floats, concurrency: Floats) -> Floats:
    """Return how many decode workers share a deployment's concurrency, shape (rows,); NaN where it is not stated."""
    usual = np.where(concurrency >= CROWDED_SEQUENCES * accelerators, 1.0, DECODE_ACCELERATORS / accelerators)
    return np.where(np.isnan(stated), np.maximum(usual, 1.0), stated)


def _attention_groups(part: Part, shape: ModelShape, precision: str, accelerators: int) -> list[int]:
    """Return the numbers of attention groups worth trying: one, and for mixtures one per accelerator where it fits."""
    is_wide = shape.experts and accelerators > 1 and _holds(part, shape, precision, accelerators, accelerators)
    return [1, accelerators] if is_wide else [1]


def _holds(part: Part, shape: ModelShape, precision: str, accelerators: int, attention_groups: int = 1) -> bool:
    group = accelerators // attention_groups
    return shape.divides_heads(group) and memory_fit(part, shape, precision, accelerators, attention_groups).fits


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    hint = nearest(name, names) or f"the catalogue has {', '.join(names)}"
    return f"unknown {what} {name!r} ({hint})"
