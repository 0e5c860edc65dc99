"""Number formats: what they weigh, what computes them, and what may run where."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.physics.model_shape import ModelShape
    from planner.physics.part import Fp8Dialect, Part

_ALIASES = {
    "bf16": ("bf16", "bfloat16", "fp16", "float16", "half", "f16"),
    "fp8": ("fp8", "float8", "fp8e4m3", "e4m3", "e4m3fn", "e4m3fnuz", "mxfp8", "f8"),
    "fp4": ("fp4", "float4", "mxfp4", "nvfp4", "e2m1", "f4"),
    "int8": ("int8", "w8a8", "i8"),
    "int4": ("int4", "w4a16", "awq", "gptq", "i4"),
}
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0 + 4.0 / 128**2, "fp4": 0.5 + 1.0 / 16, "int8": 1.0, "int4": 0.5 + 2.0 / 32}
"""Bytes of one weight with its scales: one FP32 scale per 128 × 128 block (FP8), one byte per 16 weights (NVFP4), one
16-bit scale per 32 weights (INT4, the group size of Kimi-K2.5); per-channel INT8 scales weigh nothing."""

FOUR_BIT = ("fp4", "int4")

KV_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 1.0, "int8": 1.0, "int4": 2.0}
"""Bytes of one cached number. Serving runs at FP8 and FP4 weights keep the cache in FP8: the number of sequences at
which the public 8,192-token runs begin to queue (47 on one H200) matches one byte and rules out two."""

KV_STREAM_BYTES = {"bf16": 1.2, "fp8": 1.0, "fp4": 1.0, "int8": 1.0, "int4": 1.2}
"""What reading one cached number costs, in bytes of the FP8 cache that the calibration prices. Measured on an H200,
a 16-bit cache streams at 1.05 of peak time (H200 kernel measurements); the calibrated FP8 price is about 1.75, so a
16-bit number costs 2 × 1.05 / 1.75 = 1.2 of an 8-bit one. Grade C."""


def canonical_precision(name: str) -> str | None:
    """Return ``bf16``, ``fp8``, ``fp4``, ``int8`` or ``int4`` for any usual spelling, or None."""
    return _CANONICAL.get(name.strip().lower().replace("-", "").replace("_", "").replace(" ", ""))


def refusal(part: Part, shape: ModelShape, precision: str) -> str | None:
    """Say why a model at this precision cannot run on the part, or return None when it can.

    FP4 needs FP4 arithmetic, except for a model published with FP4 weights (gpt-oss): engines unpack those to 16 bits.
    Integer weights run everywhere: four bits unpacked to 16, eight on the 8-bit units or unpacked.
    """
    if part.has_precision(precision) or precision.startswith("int"):
        return None
    if precision == "fp4" and shape.native_precision == "fp4":
        return None
    return f"{part.name} has no {precision} arithmetic; it has {', '.join(part.dense_flops_per_s)}"


def is_unpacked(part: Part, precision: str) -> bool:
    """Say whether four-bit weights are unpacked before the arithmetic: INT4 always, FP4 on parts without it."""
    return precision == "int4" or (precision == "fp4" and not part.has_precision("fp4"))


def arithmetic(part: Part, shape: ModelShape, precision: str) -> str:
    """Return the number format in which this model's matrix products run.

    Models published with FP4 weights keep 8-bit activations where the part has FP4, 16-bit ones where it has not.
    """
    if precision == "int4" or (is_unpacked(part, precision) and shape.native_precision == "fp4"):
        return "bf16"
    if precision == "int8" or (precision == "fp4" and shape.native_precision == "fp4"):
        return "fp8" if part.has_precision("fp8") else "bf16"
    return precision


def compute_flops_per_s(part: Part, shape: ModelShape, precision: str) -> float:
    """Return the dense arithmetic rate at which this model's matrix products run."""
    return part.dense_flops_per_s[arithmetic(part, shape, precision)]


def shared_weight_bytes(shape: ModelShape, precision: str) -> float:
    """Return the bytes of one weight outside the routed experts.

    Four-bit mixtures quantise the experts only: the rest stays at ``shared_precision`` where the model's published
    configuration names one, at 16 bits in models published at four bits, at 8 bits in the FP4 checkpoints of others.
    """
    if precision in FOUR_BIT and shape.experts:
        native = shape.native_precision in FOUR_BIT
        return WEIGHT_BYTES[shape.shared_precision or ("bf16" if native else "fp8")]
    return WEIGHT_BYTES[precision]


def routed_weight_bytes(shape: ModelShape, precision: str) -> float:
    """Return the bytes of one weight of a routed expert; MXFP4, the published form of gpt-oss, scales 32 at a time."""
    if precision == "fp4" and shape.native_precision == "fp4":
        return 0.5 + 1.0 / 32
    return WEIGHT_BYTES[precision]


def needs_fp8_conversion(part: Part, checkpoint_dialect: Fp8Dialect) -> bool:
    """Say whether FP8 weights written in one dialect must be rescaled before this part may use them.

    The same byte means half as much in *fnuz* (exponent bias 8) as in OCP (bias 7): loading one as the other is wrong
    by a factor of two (HIP documentation, FP8 types). gfx942 reads *fnuz* alone; gfx950 and NVIDIA read OCP.
    """
    return part.fp8_dialect != checkpoint_dialect


def may_share_fp8(one: Part, other: Part) -> bool:
    """Say whether two parts may exchange FP8 tensors (a cache moved between pools) without conversion."""
    return one.fp8_dialect == other.fp8_dialect
