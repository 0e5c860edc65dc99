"""What a catalogue entry holds: each value with its source, its date and its grade."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from planner.units import unit_of
from planner.validation import Strict

ValueT = TypeVar("ValueT")
Grade = Literal["A", "B", "C", "D"]
Fraction = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Vendor = Literal["amd", "nvidia"]
ArchitectureClass = Literal["dense", "mixture-of-experts", "custom-attention"]


class Sourced(Strict, Generic[ValueT]):
    """One value and where it comes from."""

    value: ValueT
    """The figure itself, in the unit that its key names."""
    source: str
    """A key of the catalogue's sources, or the source in words."""
    grade: Grade
    """A primary (datasheet, filing, paper, log), B credible secondary, C derived from A or B, D assumption."""
    date: datetime.date | None = None
    """When the figure held. Default: the date of its source."""
    note: str | None = None
    """What a reader should know about it."""


class Range(Strict):
    """A low, a base and a high figure (P10, P50, P90), and where they come from."""

    low: float
    """P10."""
    base: float
    """P50; what a single run uses."""
    high: float
    """P90."""
    source: str
    """A key of the catalogue's sources, or the source in words."""
    grade: Grade
    """A primary, B credible secondary, C derived, D assumption."""
    date: datetime.date | None = None
    """When the figures held. Default: the date of their source."""
    unit: str | None = None
    """The unit, where the key does not name it."""
    note: str | None = None
    """What a reader should know about it."""

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low <= self.base <= self.high:
            raise ValueError(f"low, base, high must be in order, not {self.low}, {self.base}, {self.high}")
        return self


def with_provenance(entry: dict[str, Any]) -> dict[str, Any]:
    """Write an entry's own source and grade into each of its values, so that each value stands alone."""
    provenance = {key: entry[key] for key in ("source", "grade", "date") if key in entry}
    spread: dict[str, Any] = {}
    for key, value in entry.items():
        if key in provenance:
            continue
        if isinstance(value, dict):
            spread[key] = {**provenance, **value}
        else:
            spread[key] = None if value is None else {"value": value, **provenance}
    return spread


class Entry(Strict):
    """A catalogue entry; a source and grade at its top hold for every value that names none itself."""

    @model_validator(mode="before")
    @classmethod
    def _spread_provenance(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        return with_provenance(raw)

    def facts(self) -> Iterator[tuple[str, Sourced[Any] | Range, str | None]]:
        """Yield each value that is there: its key, the value with its provenance, its unit."""
        for name in type(self).model_fields:
            fact = getattr(self, name)
            if fact is not None:
                unit = fact.unit if isinstance(fact, Range) and fact.unit else unit_of(name)
                yield name, fact, unit


class Accelerator(Entry):
    """One accelerator: what its datasheet says, what it costs."""

    vendor: Sourced[Vendor]
    """Who makes it; decides the platform (CUDA or ROCm)."""
    architecture: Sourced[str]
    """Architecture name, for the reader."""
    hbm_gb: Sourced[PositiveFloat]
    """Usable memory."""
    hbm_tb_per_s: Sourced[PositiveFloat]
    """Peak memory bandwidth."""
    bf16_dense_tflops: Sourced[PositiveFloat]
    """Peak dense BF16 rate, without sparsity."""
    fp8_dense_tflops: Sourced[PositiveFloat] | None = None
    """Peak dense FP8 rate; absent where the part has none."""
    fp4_dense_tflops: Sourced[PositiveFloat] | None = None
    """Peak dense FP4 rate; absent where the part has none."""
    fp8_dialect: Sourced[Literal["fnuz", "ocp"]] | None = None
    """Which FP8 encoding the part computes in."""
    tdp_w: Sourced[PositiveFloat]
    """Board power limit."""
    idle_w: Sourced[PositiveFloat]
    """Board power with a model loaded and nothing to do."""
    scaleup_gb_per_s: Sourced[PositiveFloat]
    """Scale-up link bandwidth of one accelerator, one direction."""
    scaleout_gb_per_s: Sourced[PositiveFloat] | None = None
    """Network bandwidth of one accelerator, one direction; absent: the scale-up link reaches as far."""
    scaleup_accelerators: Sourced[PositiveInt]
    """Accelerators within one scale-up domain."""
    scaleup_switched: Sourced[bool]
    """True where links go through a switch, false where they form a mesh."""
    accelerators_per_node: Sourced[PositiveInt]
    """Accelerators in one server: the unit that is bought, fails and is repaired."""
    node_max_kw: Sourced[PositiveFloat]
    """Nameplate power of one server."""
    available: Sourced[datetime.date]
    """First volume systems."""
    unit_price_usd: Sourced[NonNegative] | None = None
    """Purchase price of one accelerator; absent where no source names one."""
    host_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Server around it (chassis, CPUs, memory, NICs), per accelerator."""
    network_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Switches, optics and cables, per accelerator."""
    storage_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Storage, per accelerator."""
    embodied_kg_per_node: Sourced[NonNegative] | None = None
    """Emissions of making one server, kgCO2e; absent where no source names any."""


class Model(Entry):
    """One served model: the architecture numbers that memory fit and throughput need."""

    architecture_class: Sourced[ArchitectureClass]
    """How far it departs from a plain dense transformer, which decides how mature its kernels are."""
    attention: Sourced[Literal["grouped-query", "multi-query", "latent"]]
    """Grouped-query (incl. multi-head), one shared key-value head, or latent attention."""
    layers: Sourced[PositiveInt]
    """Transformer layers."""
    hidden_size: Sourced[PositiveInt]
    """Width of the residual stream."""
    intermediate_size: Sourced[PositiveInt]
    """Width of a dense feed-forward layer."""
    heads: Sourced[PositiveInt]
    """Attention heads."""
    kv_heads: Sourced[PositiveInt]
    """Key-value heads."""
    head_dim: Sourced[PositiveInt]
    """Width of one head."""
    vocabulary: Sourced[PositiveInt]
    """Entries in the vocabulary."""
    max_context_tokens: Sourced[PositiveInt]
    """Longest context it accepts."""
    tied_embeddings: Sourced[bool] | None = None
    """True where input and output embeddings are one matrix."""
    experts: Sourced[PositiveInt] | None = None
    """Routed experts per layer; absent for a dense model."""
    experts_per_token: Sourced[PositiveInt] | None = None
    """Routed experts that each token visits."""
    expert_intermediate_size: Sourced[PositiveInt] | None = None
    """Width of one expert."""
    shared_experts: Sourced[NonNegativeInt] | None = None
    """Experts that every token visits."""
    dense_layers: Sourced[NonNegativeInt] | None = None
    """Leading layers with a dense feed-forward block in a mixture-of-experts model."""
    q_lora_rank: Sourced[PositiveInt] | None = None
    """Rank of the compressed query (latent attention)."""
    kv_lora_rank: Sourced[PositiveInt] | None = None
    """Rank of the compressed key-value (latent attention): what the cache holds per token and layer."""
    qk_rope_head_dim: Sourced[PositiveInt] | None = None
    """Rotary dimensions kept beside the compressed key-value."""
    qk_nope_head_dim: Sourced[PositiveInt] | None = None
    """Non-rotary dimensions of a query or key head."""
    v_head_dim: Sourced[PositiveInt] | None = None
    """Width of a value head (latent attention)."""
    sliding_window_tokens: Sourced[PositiveInt] | None = None
    """Window of the layers that attend only to recent tokens."""
    sliding_layers_fraction: Sourced[Fraction] | None = None
    """Share of layers with that window."""
    native_precision: Sourced[Literal["bf16", "fp8", "fp4", "int4"]] | None = None
    """Precision the weights were published in; absent means bf16. FP4 weights also run on parts without FP4."""
    shared_precision: Sourced[Literal["bf16", "fp8"]] | None = None
    """Precision of what is not a routed expert in four-bit form; absent: bf16 if published at four bits, else fp8."""
    family: Sourced[str] | None = None
    """Model of the same shape, whose measurements speak for this one too; absent: none."""
    qk_norm: Sourced[bool] | None = None
    """True where queries and keys are normalised in every layer."""
    attention_parameters_per_layer: Sourced[PositiveInt] | None = None
    """Projection weights of a mean attention layer, where heads and widths do not give them."""
    attended_tokens: Sourced[PositiveInt] | None = None
    """Cached tokens that sparse attention reads for one query; absent: all of them."""
    cache_fraction: Sourced[Fraction] | None = None
    """Cache entries kept per token, where attention compresses several tokens into one; absent: 1."""


class Stack(Entry):
    """One platform and serving engine: how mature it is, and what goes wrong with it."""

    platform: Sourced[Literal["cuda", "rocm"]]
    """CUDA or ROCm."""
    vendor: Sourced[Vendor]
    """Whose accelerators it runs on."""
    engine: Sourced[str]
    """Serving engine, as a cluster names it."""
    support: Sourced[Literal["first-class", "community"]]
    """Whether the engine's own project maintains it."""
    dense_multiplier: Sourced[PositiveFloat]
    """Throughput against the calibrated model, dense models."""
    mixture_of_experts_multiplier: Sourced[PositiveFloat]
    """Throughput against the calibrated model, mixture-of-experts models."""
    custom_attention_multiplier: Sourced[PositiveFloat]
    """Throughput against the calibrated model, models with an attention of their own."""
    regressions_per_year: Range
    """Throughput regressions, per served model."""
    regression_loss_fraction: Range
    """Throughput lost while a regression lasts."""
    regression_days: Range
    """Days until a regression is fixed or rolled back."""
    wrong_numerics_per_year: Range
    """Incidents of wrong numerics, per served model."""
    hangs_per_year: Range
    """Hangs or resets that take nodes down, per served model."""
    releases_per_year: Range
    """Releases of the platform."""
    release_gain_fraction: Range
    """Throughput gained by a release; negative is a loss."""
    bring_up_weeks: Range
    """Weeks until a newly launched model runs at full speed."""
    bring_up_throughput_fraction: Range
    """Share of full speed while a new model is being brought up."""


class FailureCause(Entry):
    """One reason why a node fails; what is neither soft nor medium is hard."""

    per_1000_node_days: Sourced[NonNegative]
    """Failures of an NVIDIA node for this reason."""
    scope: Sourced[Literal["accelerator", "node"]]
    """What is lost: one accelerator, and with it its tensor-parallel group, or the whole node."""
    soft_fraction: Sourced[Fraction]
    """Share that a reset heals, without a technician."""
    medium_fraction: Sourced[Fraction]
    """Share that a technician heals on site without a new part."""


class Tariff(Entry):
    """Electricity at one site."""

    energy_usd_per_kwh: Sourced[NonNegative]
    """Price of energy."""
    grid_carbon_g_per_kwh: Sourced[NonNegative]
    """Carbon intensity of the grid."""
    timezone: Sourced[str] | None = None
    """Clock of the place, by which time-of-use windows are read; absent where the price is of no one place."""


class Source(Strict):
    """A source that several values share."""

    title: str
    """What it is."""
    date: datetime.date
    """When its figures held."""
