"""What the throughput formula needs to know of one accelerator, and what may run on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.physics.precision import format_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.physics.model_shape import ModelShape
    from planner.physics.precision import Formats


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One accelerator: memory, arithmetic and links, all per accelerator and dense (no sparsity)."""

    name: str
    vendor: str
    hbm_bytes: float
    hbm_bytes_per_s: float
    dense_flops_per_s: Mapping[str, float]
    """Dense arithmetic rate by precision; a precision the part lacks is absent."""
    formats: Formats
    """Every number format a model may be served in, whether the part computes in it or not."""
    dialects: Mapping[str, str]
    """Encoding of a precision that has several."""
    tdp_w: float
    link_bytes_per_s: float
    """Scale-up bandwidth of one accelerator in one direction."""
    scaleup_accelerators: int
    """Size of the scale-up domain."""
    switched: bool
    """Whether any pair in the domain may use a port's whole bandwidth (NVSwitch) or only one of many links."""
    accelerators_per_node: int
    network_bytes_per_s: float = 50e9
    """Bandwidth of one accelerator to those of other nodes, over which a cache moves between pools."""

    def __post_init__(self) -> None:
        """Refuse a part no formula could use."""
        positive = {
            "hbm_bytes": self.hbm_bytes,
            "hbm_bytes_per_s": self.hbm_bytes_per_s,
            "tdp_w": self.tdp_w,
            "link_bytes_per_s": self.link_bytes_per_s,
            "scaleup_accelerators": self.scaleup_accelerators,
            "accelerators_per_node": self.accelerators_per_node,
            **{f"dense_flops_per_s[{name}]": rate for name, rate in self.dense_flops_per_s.items()},
        }
        wrong = [f"{name} = {number}" for name, number in positive.items() if not number > 0]
        if wrong:
            raise ValueError(f"{self.name}: must be above zero: {', '.join(wrong)}")
        unknown = set(self.dense_flops_per_s) - set(self.formats)
        always = format_with(self.formats, "activations")
        if unknown or always not in self.dense_flops_per_s:
            raise ValueError(f"{self.name}: precisions are {', '.join(self.formats)} with {always} always present")

    @property
    def activation_flops_per_s(self) -> float:
        """Dense rate at the precision of activations, in which attention runs."""
        return self.dense_flops_per_s[format_with(self.formats, "activations")]

    def has_precision(self, precision: str) -> bool:
        """Say whether the part's arithmetic units run this precision natively."""
        return precision in self.dense_flops_per_s


def refusal(part: Part, shape: ModelShape, precision: str) -> str | None:
    """Say why a model at this precision cannot run on the part, or return None when it can.

    A part needs the arithmetic of the format or something to fall back to: engines unpack integer weights for every
    model, FP4 weights only for a model published with them (gpt-oss).
    """
    written = part.formats[precision]
    held = any(map(part.has_precision, written.falls_back_to))
    if part.has_precision(precision) or (held and (written.falls_back_for_all or shape.native_precision == precision)):
        return None
    return f"{part.name} has no {precision} arithmetic; it has {', '.join(part.dense_flops_per_s)}"


def is_unpacked(part: Part, precision: str) -> bool:
    """Say whether packed weights are unpacked before the arithmetic: on parts that cannot compute with them."""
    return part.formats[precision].packed and not part.has_precision(precision)


def arithmetic(part: Part, shape: ModelShape, precision: str) -> str:
    """Return the number format in which this model's matrix products run.

    Models published with FP4 weights keep 8-bit activations where the part has FP4, 16-bit ones where it has not.
    """
    written = part.formats[precision]
    if not part.has_precision(precision):
        return next(filter(part.has_precision, written.falls_back_to), precision)
    if shape.native_precision == precision:
        return next(filter(part.has_precision, written.published_computes_in), precision)
    return precision


def compute_flops_per_s(part: Part, shape: ModelShape, precision: str) -> float:
    """Return the dense arithmetic rate at which this model's matrix products run."""
    return part.dense_flops_per_s[arithmetic(part, shape, precision)]


def wider_precision(part: Part, shape: ModelShape, precision: str) -> str:
    """Return the next wider format that the part runs this model in; the widest is its own."""
    wider = part.formats[precision].wider
    while wider and refusal(part, shape, wider):  # ends: the catalogue makes weights grow from each to its wider one
        wider = part.formats[wider].wider
    return wider or precision
