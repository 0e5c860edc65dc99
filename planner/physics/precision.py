"""Number formats: what they weigh, what computes them, and what may run where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from planner.physics.model_shape import ModelShape

Role = Literal["", "activations", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """One precision as the throughput formula sees it; other precisions are named, "" and () standing for none."""

    name: str
    weight_bytes: float
    """Bytes of one weight with its scales."""
    published_weight_bytes: float
    """The same for the routed experts of a model published in this format."""
    cache_bytes: float
    """Bytes of one cached number when weights are served in this format."""
    cache_stream_bytes: float
    """What reading one cached number costs, in bytes of the cache that the calibration prices."""
    packed: bool = False
    """Whether reading its weights is priced by the coefficients of four-bit weights."""
    shared_precision: str = ""
    """In a mixture, the format of all but the routed experts; empty: this one."""
    published_shared_precision: str = ""
    """The same in models that were published in this format."""
    published_computes_in: tuple[str, ...] = ()
    """Arithmetic of models published in it on parts that have it, the first the part has; empty: this format."""
    falls_back_to: tuple[str, ...] = ()
    """Arithmetic on parts without it, the first the part has; empty: it does not run there."""
    falls_back_for_all: bool = False
    """Whether every model falls back, or only those published in this format."""
    wider: str = ""
    """The next wider format."""
    aliases: tuple[str, ...] = ()
    role: Role = ""


Formats = Mapping[str, NumberFormat]
"""The number formats that the catalogue knows, by name."""


def format_with(formats: Formats, role: Role) -> str:
    """Return the format in which activations are kept, or that is served where nobody states one."""
    return next(name for name, form in formats.items() if form.role == role)


def canonical_precision(formats: Formats, name: str) -> str | None:
    """Return the format meant by any usual spelling of it, or None."""
    plain = name.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
    return next((known for known, form in formats.items() if plain == known or plain in form.aliases), None)


def shared_weight_bytes(formats: Formats, shape: ModelShape, precision: str) -> float:
    """Return the bytes of one weight outside the routed experts.

    Four-bit mixtures quantise the experts only: the rest stays at ``shared_precision`` where the model's published
    configuration names one, at 16 bits in models published at four bits, at 8 bits in the FP4 checkpoints of others.
    """
    written = formats[precision]
    if not (written.shared_precision and shape.experts):
        return written.weight_bytes
    published = formats[shape.native_precision].published_shared_precision
    return formats[shape.shared_precision or published or written.shared_precision].weight_bytes


def routed_weight_bytes(formats: Formats, shape: ModelShape, precision: str) -> float:
    """Return the bytes of one weight of a routed expert; MXFP4, the published form of gpt-oss, scales 32 at a time."""
    written = formats[precision]
    return written.published_weight_bytes if shape.native_precision == precision else written.weight_bytes
