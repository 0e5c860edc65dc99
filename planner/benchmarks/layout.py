"""From a benchmark row's words to a replica: names as people write them, and what blank or odd tp and ep mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.catalog.physics import part_of, shape_of
from planner.physics.memory import candidate_degrees, memory_fit, smallest_fit
from planner.physics.precision import canonical_precision, refusal
from planner.validation import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.catalog.load import Catalog
    from planner.physics.model_shape import ModelShape
    from planner.physics.part import Part

_ENGINES = {
    "trt": "tensorrt-llm", "trtllm": "tensorrt-llm", "tensorrt": "tensorrt-llm", "tensorrtllm": "tensorrt-llm",
    "vllm": "vllm", "sglang": "sglang", "tgi": "tgi", "textgenerationinference": "tgi",
}  # fmt: skip
_MODEL_SUFFIXES = re.compile(r"-(instruct|chat|hf|it|fp8|fp4|nvfp4|mxfp4|bf16|fp16)(?=-|$)")
_MAX_ACCELERATORS = 128


class CannotPredictError(Exception):
    """A row that the formula has no answer for; its message is the reason shown to the user."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """How a row's model sits on its accelerators."""

    part: Part
    shape: ModelShape
    precision: str
    engine: str
    accelerators: int | None
    """Accelerators of one replica; None where the row leaves it open and saturation decides."""
    replicas_per_concurrency: float
    """By how much the row's concurrency is multiplied to count the whole replica."""


def find_model(name: str, catalog: Catalog) -> ModelShape:
    """Return the model a row names, whatever its case, publisher prefix or ``-instruct`` suffix."""
    plain = _MODEL_SUFFIXES.sub("", name.strip().lower().rsplit("/", 1)[-1]).replace("_", "-").replace(" ", "-")
    for candidate in (name.strip().lower(), plain, plain.replace("meta-", "")):
        if candidate in catalog.models:
            return shape_of(candidate, catalog.models[candidate])
    raise CannotPredictError(_unknown("model", name, catalog.models))


def find_part(name: str, catalog: Catalog) -> Part:
    """Return the accelerator a row names; ``H200 SXM`` or ``NVIDIA H200-SXM-141GB`` is an H200."""
    words = re.split(r"[\s_\-/()]+", name.strip().upper())
    for candidate in sorted(catalog.accelerators, key=len, reverse=True):
        if candidate.upper() in words or candidate.upper() == name.strip().upper():
            return part_of(candidate, catalog.accelerators[candidate])
    raise CannotPredictError(_unknown("accelerator", name, catalog.accelerators))


def find_engine(name: str) -> str:
    """Return the engine's usual name; one without calibration rows is kept and takes the common coefficients."""
    plain = re.sub(r"[\s_\-]+", "", name.strip().lower())
    return _ENGINES.get(plain, plain)


def find_precision(name: str, part: Part, shape: ModelShape) -> str:
    """Return the precision a row names; a blank one is the narrowest the model was published in or FP8 where there."""
    if not name.strip():
        native = shape.native_precision
        return native if refusal(part, shape, native) is None and native != "bf16" else "fp8"
    precision = canonical_precision(name)
    if precision is None:
        raise CannotPredictError(f"unknown precision {name!r}; choose from bf16, fp16, fp8, fp4")
    reason = refusal(part, shape, precision)
    if reason:
        raise CannotPredictError(reason)
    return precision


def lay_out(part: Part, shape: ModelShape, precision: str, tp: int | None, ep: int | None) -> tuple[int, float]:
    """Return the accelerators of one replica and the factor that turns a row's concurrency into the replica's.

    Published tables write parallelism in three ways. ``tp`` alone is tensor parallelism. With ``ep`` > 1 some write
    the product of both (64 for tp 8, ep 8): recognised where tp ≥ ep² and the smaller replica holds the model. And a
    ``tp`` on which the weights cannot fit means attention in parallel groups of tp over a larger expert-parallel
    replica, with the concurrency counted per group.
    """
    if tp is None:
        fit = smallest_fit(part, shape, precision)
        return fit.accelerators, float(fit.accelerators)
    count = tp
    if ep is not None and ep > 1 and tp >= ep * ep and tp % ep == 0 and _holds(part, shape, precision, tp // ep):
        count = tp // ep
    if not shape.divides_heads(count):
        raise CannotPredictError(f"tp {count} does not divide the {shape.heads} heads of {shape.name}")
    total = count
    while not _holds(part, shape, precision, total):
        total *= 2
        if total > _MAX_ACCELERATORS:
            smallest_fit(part, shape, precision)
            raise CannotPredictError(f"{shape.name} at {precision} does not fit {tp} × {part.name}")
    return total, (total / count if shape.experts else 1.0)


def open_degrees(part: Part, shape: ModelShape, precision: str) -> list[int]:
    """Return the degrees among which saturation may choose when a row leaves ``tp`` open."""
    return [degree for degree in candidate_degrees(part, shape) if _holds(part, shape, precision, degree)]


def _holds(part: Part, shape: ModelShape, precision: str, accelerators: int) -> bool:
    return shape.divides_heads(accelerators) and memory_fit(part, shape, precision, accelerators).fits


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    hint = nearest(name, names) or f"the catalogue has {', '.join(names)}"
    return f"unknown {what} {name!r} ({hint})"
