"""What the throughput formula needs to know of one accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.physics.precision import format_with

if TYPE_CHECKING:
    from collections.abc import Mapping

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
