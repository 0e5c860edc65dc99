"""Catalogue entries: each value with its source, its date and its grade."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from planner.units import unit_of
from planner.validation import Strict

FOLDER = Path(__file__).parent
"""Where the shipped files lie."""
ValueT = TypeVar("ValueT")
Grade = Literal["A", "B", "C", "D"]
Fraction = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Status = Literal["public-sweep", "documented", "experimental", "not-supported", "broken"]
Feature = Literal["serving", "disaggregated", "speculation", "data-parallel"]
ArchitectureClass = Literal["dense", "mixture-of-experts", "custom-attention"]


class Sourced(Strict, Generic[ValueT]):
    """One value and its source."""

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
    """A low, a base and a high figure (P10, P50, P90), and their source."""

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
    drawn_for: str | None = None
    """Field of a scenario, as a dotted path, that is drawn from this prior unless a study says otherwise. In a path of
    clusters, ``*`` means those of the accelerator or vendor below. Default: none."""
    accelerator: str | None = None
    """Accelerator to whose clusters the prior applies. Default: any."""
    vendor: str | None = None
    """Vendor to whose clusters the prior applies. Default: any."""
    unless: str | None = None
    """Field that replaces the other one if a scenario states it. Default: none."""
    highest: float | None = None
    """Highest value that is drawn, unless a study states another end. Default: the field's own limit."""
    used_by: tuple[str, ...] = ()
    """Fields of a scenario that use the prior: it applies if one of them is stated; ``*`` means any name. Default: it
    applies if its own field is not zero."""
    times_stated: bool = False
    """Whether the prior, divided by its base, is a factor on any stated value. Default false: it is drawn only where a
    scenario leaves the default, and a stated value is taken as known."""

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        # Equal ends are allowed: a figure may be known in one direction.
        if not self.low <= self.base <= self.high:
            raise ValueError(
                f"low, base, high must be in order, not {self.low}, {self.base}, {self.high}"
            )
        return self


GROUPS = ("dense_tflops", "incidents", "maturity")
"""Keys of an entry that hold no value but further values by name."""
NESTED = ("incidents", "maturity")
"""Those of them whose values hold values by name once more."""


def with_provenance(entry: dict[str, Any], groups: tuple[str, ...] = GROUPS) -> dict[str, Any]:
    """Copy an entry's source and grade into each of its values that states none."""
    # Stated once at the top of an entry, since most of its values come from one datasheet.
    shared_keys = ("source", "grade", "date")
    provenance: dict[str, Any] = {key: entry[key] for key in shared_keys if key in entry}
    facts: dict[str, Any] = {}
    for key, value in entry.items():
        if key in provenance:
            continue
        if isinstance(value, dict) and key in groups:
            # A group may state a source of its own, which goes before the entry's.
            subgroups = tuple(value) if key in NESTED else ()
            group = {**provenance, **value}
            facts[key] = with_provenance(group, subgroups)
        elif isinstance(value, dict):
            facts[key] = {**provenance, **value}
        else:
            # Null removes a value of the layer below, and has no source.
            facts[key] = None
            if value is not None:
                facts[key] = {"value": value, **provenance}
    return facts


class Entry(Strict):
    """A catalogue entry; its own source and grade apply to every value that names none."""

    @model_validator(mode="before")
    @classmethod
    def _spread_provenance(cls, raw: Any) -> Any:
        # Not a mapping: validation says so in its own words.
        if isinstance(raw, dict):
            return with_provenance(raw)
        return raw

    def facts(self) -> Iterator[tuple[str, Sourced[Any] | Range, str | None]]:
        """Yield each stated value: its key (``dense_tflops.fp8``), the value with its provenance, its unit."""
        for name in type(self).model_fields:
            fact = getattr(self, name)
            if isinstance(fact, Sourced | Range):
                stated_unit = fact.unit if isinstance(fact, Range) else None
                yield name, fact, stated_unit or unit_of(name)
            parts = fact.items() if isinstance(fact, dict) else ()
            for key, part in parts:
                if isinstance(part, Entry):
                    for inner_key, inner_fact, unit in part.facts():
                        yield f"{name}.{key}.{inner_key}", inner_fact, unit
                else:
                    # Values by name, such as dense_tflops.fp8, have the unit of the field.
                    yield f"{name}.{key}", part, unit_of(name)


class Accelerator(Entry):
    """One accelerator: datasheet figures and price."""

    vendor: Sourced[str]
    """Vendor, by its name under vendors; it decides which stacks run on the accelerator."""
    architecture: Sourced[str]
    """Architecture name, for the reader."""
    hbm_gb: Sourced[PositiveFloat]
    """Usable memory."""
    hbm_tb_per_s: Sourced[PositiveFloat]
    """Peak memory bandwidth."""
    dense_tflops: dict[str, Sourced[PositiveFloat]]
    """Peak dense rate, without sparsity, by precision; precisions in which the accelerator cannot compute are
    absent."""
    fp8_format: Sourced[Literal["ocp", "fnuz"]] | None = None
    """Encoding of eight-bit floats in which it computes; absent if it has none."""
    tdp_w: Sourced[PositiveFloat]
    """Board power limit."""
    idle_w: Sourced[PositiveFloat]
    """Board power with a model loaded but without work."""
    scaleup_gb_per_s: Sourced[PositiveFloat]
    """Scale-up link bandwidth of one accelerator, one direction."""
    scaleout_gb_per_s: Sourced[PositiveFloat] | None = None
    """Network bandwidth of one accelerator, one direction; absent: all traffic uses the scale-up link."""
    scaleup_accelerators: Sourced[PositiveInt]
    """Accelerators within one scale-up domain."""
    scaleup_switched: Sourced[bool]
    """True if links go through a switch, false if they form a mesh."""
    accelerators_per_node: Sourced[PositiveInt]
    """Accelerators in one server: the unit that is bought, fails and is repaired."""
    host_memory_gb: Sourced[PositiveFloat] | None = None
    """Host memory of one server, which may keep prompts evicted from accelerators; absent: none is counted."""
    host_link_gb_per_s: Sourced[PositiveFloat] | None = None
    """Bandwidth of one accelerator to host memory, one direction; absent: host memory holds no prompts."""
    node_max_kw: Sourced[PositiveFloat]
    """Nameplate power of one server."""
    available: Sourced[datetime.date]
    """Date of the first volume systems."""
    accelerator_price_usd: Sourced[NonNegative] | None = None
    """Purchase price of one accelerator; absent if no source names one."""
    host_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Server around it (chassis, CPUs, memory, NICs), per accelerator."""
    network_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Switches, optics and cables, per accelerator."""
    storage_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Storage, per accelerator."""
    embodied_kg_per_node: Sourced[NonNegative] | None = None
    """Emissions from making one server, kgCO2e; absent if no source names any."""


class Model(Entry):
    """One served model: the architecture numbers that memory fit and throughput need."""

    architecture_class: Sourced[ArchitectureClass]
    """How the model differs from a plain dense transformer; the maturity of its kernels depends on this."""
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
    """True if input and output embeddings are one matrix."""
    experts: Sourced[PositiveInt] | None = None
    """Routed experts per layer; absent for a dense model."""
    experts_per_token: Sourced[PositiveInt] | None = None
    """Routed experts that each token uses."""
    expert_intermediate_size: Sourced[PositiveInt] | None = None
    """Width of one expert."""
    shared_experts: Sourced[NonNegativeInt] | None = None
    """Experts that every token uses."""
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
    native_precision: Sourced[str] | None = None
    """Precision the weights were published in; absent: that of activations. FP4 also runs on parts without FP4."""
    shared_precision: Sourced[str] | None = None
    """Precision of all parts except routed experts in four-bit form; absent: that of the precision's own entry."""
    family: Sourced[str] | None = None
    """Model of the same shape, whose measurements are used for this one too; absent: none."""
    qk_norm: Sourced[bool] | None = None
    """True if queries and keys are normalised in every layer."""
    attention_parameters_per_layer: Sourced[PositiveInt] | None = None
    """Projection weights of a mean attention layer, if heads and widths do not determine them."""
    attended_tokens: Sourced[PositiveInt] | None = None
    """Cached tokens that sparse attention reads for one query; absent: all of them."""
    index_heads: Sourced[PositiveInt] | None = None
    """Heads of the indexer with which sparse attention chooses tokens; absent: attention is not sparse."""
    index_head_dim: Sourced[PositiveInt] | None = None
    """Width of the key that the indexer keeps for every cached token; absent: none."""
    released: Sourced[datetime.date] | None = None
    """Date of its weights; absent: before 2025-12, long enough ago for every engine to run it well."""
    cache_fraction: Sourced[Annotated[float, Field(gt=0, le=1)]] | None = None
    """Cache entries kept per token, if attention compresses several tokens into one; absent: 1."""
    request_state_bytes: Sourced[PositiveFloat] | None = None
    """Recurrent states of all layers that a finished request leaves in the prefix cache; absent: there are none."""
    api_input_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """API price of a million prompt tokens; absent: no price is known."""
    api_cached_input_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """API price of a million cached prompt tokens; absent: not listed; the prior cached_input_price_ratio is used."""
    api_output_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """API price of a million generated tokens."""


class Precision(Entry):
    """One number format in which weights may be served."""

    weight_bytes: Sourced[PositiveFloat]
    """Bytes of one weight with its scales."""
    published_weight_bytes: Sourced[PositiveFloat] | None = None
    """Bytes of a routed expert's weight in models published in this precision; absent: as weight_bytes."""
    cache_bytes: Sourced[PositiveFloat]
    """Bytes of one cached number when weights are served in this precision."""
    cache_stream_bytes: Sourced[PositiveFloat]
    """Time to read one cached number, as the number of bytes of 8-bit cache that take as long."""
    packed: Sourced[bool] | None = None
    """True if reading weights is priced with the coefficients of four-bit weights; absent: false."""
    shared_precision: Sourced[str] | None = None
    """In a mixture of experts, the precision of all but the routed experts; absent: this one."""
    published_shared_precision: Sourced[str] | None = None
    """Precision of all but the routed experts in models published in this one, unless the model says otherwise."""
    published_computes_in: Sourced[tuple[str, ...]] | None = None
    """Arithmetic for models published in it: the first in the list that the accelerator has; absent: this one."""
    falls_back_to: Sourced[tuple[str, ...]] | None = None
    """Arithmetic on accelerators that cannot compute in it: the first that they have; absent: it does not run there."""
    falls_back_for: Sourced[Literal["all", "published"]] | None = None
    """Which models fall back to such arithmetic: all, or only those published in this precision; absent: published."""
    wider: Sourced[str] | None = None
    """The next wider precision, used in response to wrong output; absent for the widest."""
    aliases: Sourced[tuple[str, ...]] | None = None
    """Other spellings in tables of measurements, in lower case without hyphens."""
    role: Sourced[Literal["activations", "default"]] | None = None
    """Role: precision of activations and attention, or default precision for serving; one entry for each role."""


class Vendor(Entry):
    """One accelerator vendor: figures common to all its accelerators."""

    lost_with_accelerator: Sourced[Literal["replica", "node"]]
    """Capacity lost with one failing accelerator: its tensor-parallel group, or the whole node."""
    failure_multiplier: Sourced[NonNegative]
    """Factor on the rates of the failure causes, for its nodes."""
    engineers_per_800: Sourced[NonNegative]
    """Software engineers paid for per 800 of its accelerators."""
    incident_multiplier: Sourced[NonNegative] | None = None
    """Factor on the incident rates of stacks, for its accelerators; absent: 1."""
    maturing_multiplier: Sourced[NonNegative] | None = None
    """Factor on the speed that stacks have still to gain, for its accelerators; absent: 1."""
    rollback_impossible_fraction: Range | None = None
    """Share of a release's incidents for which no older release serves the model; absent: 0."""

    def ratio(self, name: Literal["incident_multiplier", "maturing_multiplier"]) -> float:
        """Return one of the optional multipliers, 1 where absent."""
        # Optional in the file: a vendor of one's own need not state a ratio of 1.
        fact: Sourced[float] | None = getattr(self, name)
        if fact is None:
            return 1.0
        return fact.value


class StackIncident(Entry):
    """Rate and effect of one kind of incident on one stack."""

    per_year: Range | None = None
    """Incidents per served model and year that come at any time; absent: the figure of the kind, or 0."""
    per_upgrade: Range | None = None
    """Probability that an upgrade brings an incident to a served model; absent: the figure of the kind, or 0."""
    loss_fraction: Range | None = None
    """Throughput lost while an incident lasts."""
    most_loss_fraction: Sourced[Annotated[float, Field(ge=0, lt=1)]] | None = None
    """Highest throughput loss of an incident: a larger draw of loss_fraction is cut to it."""
    fix_days: Range | None = None
    """Days until the vendor has fixed it; absent: the figure of the kind, or of the stack."""


class IncidentKind(StackIncident):
    """One kind of software incident: its effect, and its default figures."""

    effect: Sourced[Literal["slows", "resets", "falsifies"]]
    """slows: throughput falls by loss_fraction. resets: the same, or by software.hang_loss_fraction if no loss is
    stated. falsifies: outputs are wrong, so the stack is rolled back or serves in a wider precision."""
    detection_h: Range | None = None
    """Hours from an upgrade until somebody notices its incident."""
    subtle_detection_h: Range | None = None
    """The same hours for a subtle incident; absent: as for any other."""
    subtle_fraction: Sourced[Fraction] | None = None
    """Share of incidents that are subtle whatever their loss; absent: 0."""
    subtle_below_loss_fraction: Sourced[Fraction] | None = None
    """Loss below which an incident is subtle; absent: 0."""


class Maturity(Entry):
    """Speed still to be gained by a stack's software on one class of models."""

    ceiling_gain_fraction: Range
    """Final gain of throughput over the calibration's measurements; never beyond the accelerator's roofline."""
    closing_months: Range
    """Time constant with which the gap to that ceiling closes, and with which a new model's extra incidents cease."""


class Stack(Entry):
    """One platform and serving engine: its maturity and its incidents."""

    platform: Sourced[str]
    """Software platform under the engine: CUDA, ROCm and the like."""
    vendor: Sourced[str]
    """Vendor of the accelerators on which it runs."""
    engine: Sourced[str]
    """Serving engine, as a cluster names it."""
    support: Sourced[Literal["first-class", "community"]]
    """Whether the engine's own project maintains it."""
    dense_multiplier: Sourced[PositiveFloat]
    """Throughput divided by that of the calibrated model, for dense models."""
    mixture_of_experts_multiplier: Sourced[PositiveFloat]
    """Throughput divided by that of the calibrated model, for mixture-of-experts models."""
    custom_attention_multiplier: Sourced[PositiveFloat]
    """Throughput divided by that of the calibrated model, for models with custom attention."""
    fix_days: Range
    """Days until the vendor has fixed an incident, for every kind without its own figure."""
    incidents: dict[str, StackIncident] = Field(default_factory=dict)
    """Rate and cost of incidents on this stack, by the kinds listed under incidents."""
    releases_per_year: Range
    """Releases of the platform."""
    release_spread_fraction: Sourced[NonNegative] | None = None
    """Spread of the speed of releases around the trend of maturing software: standard deviation of its logarithm;
    absent: 0."""
    maturity: dict[ArchitectureClass, Maturity] = Field(default_factory=dict)
    """Speed still to be gained, by class of models; nothing for a class that is not listed."""
    bring_up_weeks: Range
    """Weeks until a newly launched model runs at full speed: three time constants of the gap that closes."""
    bring_up_throughput_fraction: Range
    """Share of full speed at which a new model begins."""
    new_model_incident_multiplier: Sourced[Annotated[float, Field(ge=1)]] | None = None
    """Incident rate of a newly launched model divided by that of a model long served; absent: 1."""


class EngineSupport(Entry):
    """One statement on which engine serves what; the newest of the most specific ones counts."""

    engine: Sourced[str]
    """Serving engine, as a cluster names it."""
    model: Sourced[str]
    """Models, separated by spaces, or classes of models (dense, mixture-of-experts, custom-attention), or any."""
    accelerator: Sourced[str]
    """Accelerators, separated by spaces, or a vendor for all its accelerators, or any."""
    precision: Sourced[str] | None = None
    """Precisions, separated by spaces; absent: any."""
    feature: Sourced[Feature] | None = None
    """Feature: disaggregated prefill, speculation, data-parallel attention; absent: serving as such."""
    status: Sourced[Status]
    """public-sweep: it runs in public or own runs; documented; experimental; not-supported or broken: the engine is not
    considered."""
    since: Sourced[datetime.date] | None = None
    """First image date of the engine for which it holds; absent: unknown, so it holds for all images."""
    until: Sourced[datetime.date] | None = None
    """Day from which it no longer holds; absent: it still holds."""


class FailureCause(Entry):
    """One cause of node failures; failures neither soft nor medium are hard."""

    per_1000_node_days: Sourced[NonNegative]
    """Failures of a node for this reason, before its vendor's multiplier."""
    scope: Sourced[Literal["accelerator", "node"]]
    """Capacity lost: one accelerator with its tensor-parallel group, or the whole node."""
    soft_fraction: Sourced[Fraction]
    """Share of failures that a reset clears, without a technician."""
    medium_fraction: Sourced[Fraction]
    """Share of failures that a technician repairs on site without a new part."""


class Tariff(Entry):
    """Electricity price and emissions at one site."""

    energy_usd_per_kwh: Sourced[NonNegative]
    """Price of energy."""
    grid_carbon_g_per_kwh: Sourced[NonNegative]
    """Carbon intensity of the grid."""
    timezone: Sourced[str] | None = None
    """Time zone of the place, for time-of-use windows; absent if the price is not that of a single place."""


class Source(Strict):
    """A source shared by several values."""

    title: str
    """What it is."""
    date: datetime.date
    """When its figures held."""
