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
    """The figure itself, in the unit that the name of its key ends in."""
    source: str
    """A key of the catalogue's sources, or the source in words."""
    grade: Grade
    """Grade of the evidence: A primary (datasheet, filing, paper, log), B credible secondary, C derived from A or B, D
    assumption."""
    date: datetime.date | None = None
    """Date at which the figure held. Default: the date of its source."""
    note: str | None = None
    """What a reader should know about the figure."""


class Range(Strict):
    """A low, a base and a high figure (P10, P50, P90), and their source."""

    low: float
    """Low figure: the 10th percentile (P10)."""
    base: float
    """Middle figure: the median (P50), which a single run uses."""
    high: float
    """High figure: the 90th percentile (P90)."""
    source: str
    """A key of the catalogue's sources, or the source in words."""
    grade: Grade
    """Grade of the evidence: A primary, B credible secondary, C derived, D assumption."""
    date: datetime.date | None = None
    """Date at which the figures held. Default: the date of their source."""
    unit: str | None = None
    """Unit of the figures, if the key does not name it."""
    note: str | None = None
    """What a reader should know about the figures."""
    drawn_for: str | None = None
    """Field of a scenario, as a dotted path, that is drawn from this prior unless a study says otherwise. In a path
    with clusters, ``*`` means all clusters of the prior's accelerator or vendor. Default: none."""
    accelerator: str | None = None
    """Accelerator to whose clusters the prior applies. Default: any."""
    vendor: str | None = None
    """Vendor to whose clusters the prior applies. Default: any."""
    unless: str | None = None
    """Field of a scenario that replaces the field in drawn_for: if it is stated, the prior is not drawn. Default:
    none."""
    highest: float | None = None
    """Highest value that is drawn, unless a study states another limit. Default: the limit of the field itself."""
    used_by: tuple[str, ...] = ()
    """Fields of a scenario that use the prior: it is drawn only if one of them is stated. ``*`` means any name.
    Default: it is drawn if the field in drawn_for is not zero."""
    times_stated: bool = False
    """Whether the value drawn, divided by the prior's base, is a factor on whatever the scenario states. Default false:
    the prior is drawn only if a scenario leaves the field open, and a stated value is taken as known."""

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
    """Name of the architecture, for information only."""
    hbm_gb: Sourced[PositiveFloat]
    """Usable accelerator memory."""
    hbm_tb_per_s: Sourced[PositiveFloat]
    """Peak memory bandwidth."""
    dense_tflops: dict[str, Sourced[PositiveFloat]]
    """Peak arithmetic rate without sparsity, by precision. Precisions in which the accelerator cannot compute are left
    out."""
    fp8_format: Sourced[Literal["ocp", "fnuz"]] | None = None
    """Encoding of 8-bit floating-point numbers in which the accelerator computes; absent: it has no such arithmetic."""
    tdp_w: Sourced[PositiveFloat]
    """Limit of the board's power."""
    idle_w: Sourced[PositiveFloat]
    """Power of the board with a model loaded but no work."""
    scaleup_gb_per_s: Sourced[PositiveFloat]
    """Bandwidth of one accelerator on the scale-up link, in one direction."""
    scaleout_gb_per_s: Sourced[PositiveFloat] | None = None
    """Bandwidth of one accelerator on the network, in one direction; absent: all traffic uses the scale-up link."""
    scaleup_accelerators: Sourced[PositiveInt]
    """Number of accelerators that a scale-up domain connects."""
    scaleup_switched: Sourced[bool]
    """True if scale-up links go through a switch, false if they form a mesh."""
    accelerators_per_node: Sourced[PositiveInt]
    """Accelerators in one server: the unit that is bought, fails and is repaired."""
    host_memory_gb: Sourced[PositiveFloat] | None = None
    """Host memory of one server, which may keep prompts evicted from accelerator memory; absent: it keeps none."""
    host_link_gb_per_s: Sourced[PositiveFloat] | None = None
    """Bandwidth from one accelerator to host memory, in one direction; absent: host memory keeps no prompts."""
    node_max_kw: Sourced[PositiveFloat]
    """Nameplate power of one server."""
    available: Sourced[datetime.date]
    """Date on which volume shipments of systems began."""
    accelerator_price_usd: Sourced[NonNegative] | None = None
    """Purchase price of one accelerator; absent: no source names one."""
    host_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Price of the server without accelerators (chassis, CPUs, memory, NICs), per accelerator."""
    network_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Price of switches, optics and cables, per accelerator."""
    storage_usd_per_accelerator: Sourced[NonNegative] | None = None
    """Price of storage, per accelerator."""
    embodied_kg_per_node: Sourced[NonNegative] | None = None
    """Emissions from making one server, kgCO2e; absent: no source names any."""


class Model(Entry):
    """One served model: the architecture numbers that memory fit and throughput need."""

    architecture_class: Sourced[ArchitectureClass]
    """Class of the architecture: dense, mixture of experts, or custom attention. The maturity of kernels depends on
    it."""
    attention: Sourced[Literal["grouped-query", "multi-query", "latent"]]
    """Kind of attention: grouped-query (including multi-head), multi-query (one key-value head for all queries) or
    latent."""
    layers: Sourced[PositiveInt]
    """Number of transformer layers."""
    hidden_size: Sourced[PositiveInt]
    """Width of the residual stream."""
    intermediate_size: Sourced[PositiveInt]
    """Width of a dense feed-forward layer."""
    heads: Sourced[PositiveInt]
    """Number of attention heads per layer."""
    kv_heads: Sourced[PositiveInt]
    """Number of key-value heads per layer."""
    head_dim: Sourced[PositiveInt]
    """Width of one attention head."""
    vocabulary: Sourced[PositiveInt]
    """Number of entries in the vocabulary."""
    max_context_tokens: Sourced[PositiveInt]
    """Longest context that the model accepts."""
    tied_embeddings: Sourced[bool] | None = None
    """True if input and output embeddings are one matrix."""
    experts: Sourced[PositiveInt] | None = None
    """Number of routed experts per layer; absent: the model is dense."""
    experts_per_token: Sourced[PositiveInt] | None = None
    """Number of routed experts that each token uses."""
    expert_intermediate_size: Sourced[PositiveInt] | None = None
    """Width of one expert."""
    shared_experts: Sourced[NonNegativeInt] | None = None
    """Number of experts that every token uses."""
    dense_layers: Sourced[NonNegativeInt] | None = None
    """In a mixture of experts, the number of first layers whose feed-forward block is dense."""
    q_lora_rank: Sourced[PositiveInt] | None = None
    """Rank of the compressed query (latent attention)."""
    kv_lora_rank: Sourced[PositiveInt] | None = None
    """Rank of the compressed key and value (latent attention), which the cache holds per token and layer."""
    qk_rope_head_dim: Sourced[PositiveInt] | None = None
    """Dimensions with rotary encoding that the cache holds beside the compressed key and value (latent attention)."""
    qk_nope_head_dim: Sourced[PositiveInt] | None = None
    """Dimensions of a query or key head without rotary encoding (latent attention)."""
    v_head_dim: Sourced[PositiveInt] | None = None
    """Width of a value head (latent attention)."""
    sliding_window_tokens: Sourced[PositiveInt] | None = None
    """Length of the window in layers that attend only to recent tokens."""
    sliding_layers_fraction: Sourced[Fraction] | None = None
    """Share of layers that attend only to recent tokens (sliding_window_tokens)."""
    native_precision: Sourced[str] | None = None
    """Precision in which the weights were published; absent: the precision of activations. FP4 weights also run on
    accelerators without FP4 arithmetic."""
    shared_precision: Sourced[str] | None = None
    """Precision of all weights but those of routed experts, if the experts are in a four-bit precision; absent: as the
    entry of that precision says."""
    family: Sourced[str] | None = None
    """Model of the same shape whose measurements also count for this model; absent: none."""
    qk_norm: Sourced[bool] | None = None
    """True if queries and keys are normalised in every layer."""
    attention_parameters_per_layer: Sourced[PositiveInt] | None = None
    """Projection weights of an attention layer, on average, if heads and widths do not determine them."""
    attended_tokens: Sourced[PositiveInt] | None = None
    """Number of cached tokens that sparse attention reads for one query; absent: all of them."""
    index_heads: Sourced[PositiveInt] | None = None
    """Heads of the indexer, which chooses the tokens that sparse attention reads; absent: attention is not sparse."""
    index_head_dim: Sourced[PositiveInt] | None = None
    """Width of the key that the indexer keeps for every cached token; absent: there is no indexer."""
    released: Sourced[datetime.date] | None = None
    """Date on which the weights were published; absent: before 2025-12, so every engine has had time to run the model
    well."""
    cache_fraction: Sourced[Annotated[float, Field(gt=0, le=1)]] | None = None
    """Number of cache entries per token, if attention compresses several tokens into one; absent: 1."""
    request_state_bytes: Sourced[PositiveFloat] | None = None
    """Size of the recurrent states of all layers that a finished request leaves in the prefix cache; absent: there are
    none."""
    api_input_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """API price of a million prompt tokens; absent: no price is known."""
    api_cached_input_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """API price of a million cached prompt tokens; absent: no price is listed, and prior cached_input_price_ratio is
    used."""
    api_output_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """API price of a million generated tokens; absent: no price is known."""


class Precision(Entry):
    """One number format in which weights may be served."""

    weight_bytes: Sourced[PositiveFloat]
    """Bytes of one weight, including its scales."""
    published_weight_bytes: Sourced[PositiveFloat] | None = None
    """Bytes of one weight of a routed expert, in models published in this precision; absent: as weight_bytes."""
    cache_bytes: Sourced[PositiveFloat]
    """Bytes of one number in the KV cache when weights are served in this precision."""
    cache_stream_bytes: Sourced[PositiveFloat]
    """Time to read one number of the KV cache, stated as the bytes of an 8-bit cache that take as long to read."""
    packed: Sourced[bool] | None = None
    """True if the time to read weights is computed with the coefficients of four-bit weights; absent: false."""
    shared_precision: Sourced[str] | None = None
    """In a mixture of experts, the precision of all weights but those of routed experts; absent: this precision."""
    published_shared_precision: Sourced[str] | None = None
    """In models published in this precision, that of all weights but those of routed experts, unless the model says
    otherwise."""
    published_computes_in: Sourced[tuple[str, ...]] | None = None
    """Arithmetic for models published in this precision: the first in the list that the accelerator has; absent: this
    precision."""
    falls_back_to: Sourced[tuple[str, ...]] | None = None
    """Arithmetic on accelerators that cannot compute in this precision: the first in the list that they have; absent:
    models in this precision do not run there."""
    falls_back_for: Sourced[Literal["all", "published"]] | None = None
    """Models that may use the arithmetic in falls_back_to: all, or only those published in this precision; absent:
    published."""
    wider: Sourced[str] | None = None
    """Next wider precision, which may be served after wrong output was noticed; absent: this is the widest."""
    aliases: Sourced[tuple[str, ...]] | None = None
    """Other names of the precision in tables of measurements, in lower case without hyphens."""
    role: Sourced[Literal["activations", "default"]] | None = None
    """Role of the precision: for activations and attention (activations), or for serving where none is stated
    (default). Each of the two roles belongs to exactly one precision."""


class Vendor(Entry):
    """One accelerator vendor: figures common to all its accelerators."""

    lost_with_accelerator: Sourced[Literal["replica", "node"]]
    """Capacity that is lost when one accelerator fails: its tensor-parallel group (replica), or the whole node."""
    failure_multiplier: Sourced[NonNegative]
    """Factor on the failure rates of the vendor's nodes."""
    engineers_per_800: Sourced[NonNegative]
    """Software engineers that are paid for every 800 of the vendor's accelerators."""
    incident_multiplier: Sourced[NonNegative] | None = None
    """Factor on the incident rates of stacks on the vendor's accelerators; absent: 1."""
    maturing_multiplier: Sourced[NonNegative] | None = None
    """Factor on the speed that stacks have still to gain on the vendor's accelerators; absent: 1."""
    rollback_impossible_fraction: Range | None = None
    """Share of a release's incidents that a roll-back cannot end, because no older release serves the model; absent:
    0."""

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
    """Incidents a year for each served model, at any time; absent: the figure of this kind of incident, or 0."""
    per_upgrade: Range | None = None
    """Probability that an upgrade brings an incident to a served model; absent: the figure of this kind of incident, or
    0."""
    loss_fraction: Range | None = None
    """Share of throughput that is lost while an incident lasts."""
    most_loss_fraction: Sourced[Annotated[float, Field(ge=0, lt=1)]] | None = None
    """Highest share of throughput that an incident takes: higher draws of loss_fraction are cut to it."""
    fix_days: Range | None = None
    """Days until the vendor has fixed an incident; absent: the figure of this kind of incident, or that of the
    stack."""


class IncidentKind(StackIncident):
    """One kind of software incident: its effect, and its default figures."""

    effect: Sourced[Literal["slows", "resets", "falsifies"]]
    """Effect of the incident. slows: throughput falls by loss_fraction. resets: the same, or by
    software.hang_loss_fraction if no loss is stated. falsifies: outputs are wrong, so the stack is rolled back or
    serves in a wider precision."""
    detection_h: Range | None = None
    """Hours from an upgrade until somebody notices the incident that came with it."""
    subtle_detection_h: Range | None = None
    """Hours until somebody notices a subtle incident; absent: as for any other incident."""
    subtle_fraction: Sourced[Fraction] | None = None
    """Share of incidents that are subtle (noticed later), whatever the loss; absent: 0."""
    subtle_below_loss_fraction: Sourced[Fraction] | None = None
    """Share of throughput lost below which an incident is subtle (noticed later); absent: 0."""


class Maturity(Entry):
    """Speed still to be gained by a stack's software on one class of models."""

    ceiling_gain_fraction: Range
    """Highest gain of throughput over the measurements of the calibration; throughput never exceeds the accelerator's
    roofline."""
    closing_months: Range
    """Time constant with which throughput approaches its highest gain, and with which the extra incidents of a new
    model cease."""


class Stack(Entry):
    """One platform and serving engine: its maturity and its incidents."""

    platform: Sourced[str]
    """Software platform under the engine: CUDA, ROCm and the like."""
    vendor: Sourced[str]
    """Vendor of the accelerators on which it runs."""
    engine: Sourced[str]
    """Serving engine, as a cluster names it."""
    support: Sourced[Literal["first-class", "community"]]
    """Who maintains the engine on this platform: `first-class`, the engine's own project; `community`, others."""
    dense_multiplier: Sourced[PositiveFloat]
    """Throughput on this stack divided by what the throughput formula predicts, for dense models."""
    mixture_of_experts_multiplier: Sourced[PositiveFloat]
    """Throughput on this stack divided by what the throughput formula predicts, for mixture-of-experts models."""
    custom_attention_multiplier: Sourced[PositiveFloat]
    """Throughput on this stack divided by what the throughput formula predicts, for models with custom attention."""
    fix_days: Range
    """Days until the vendor has fixed an incident, for kinds of incident that state no figure."""
    incidents: dict[str, StackIncident] = Field(default_factory=dict)
    """Rates and effects of incidents on this stack, by kind of incident."""
    releases_per_year: Range
    """Releases of the platform a year."""
    release_spread_fraction: Sourced[NonNegative] | None = None
    """Variation of speed from release to release around the trend, as the standard deviation of its logarithm; absent:
    0."""
    maturity: dict[ArchitectureClass, Maturity] = Field(default_factory=dict)
    """Speed that software has still to gain, by class of models; a class that is not listed gains nothing."""
    bring_up_weeks: Range
    """Weeks until a newly launched model runs at nearly full speed (95% of the gap is closed: three time constants)."""
    bring_up_throughput_fraction: Range
    """Share of full speed at which a newly launched model begins."""
    new_model_incident_multiplier: Sourced[Annotated[float, Field(ge=1)]] | None = None
    """Incident rate of a newly launched model, divided by that of a model served for long; absent: 1."""


class EngineSupport(Entry):
    """One statement on which engine serves what; the newest of the most specific ones counts."""

    engine: Sourced[str]
    """Serving engine, as a cluster names it."""
    model: Sourced[str]
    """Models, separated by spaces, or classes of models (dense, mixture-of-experts, custom-attention), or the word
    any."""
    accelerator: Sourced[str]
    """Accelerators, separated by spaces, or a vendor (all its accelerators), or the word any."""
    precision: Sourced[str] | None = None
    """Precisions, separated by spaces; absent: any."""
    feature: Sourced[Feature] | None = None
    """Feature that the statement is about: disaggregated prefill, speculation or data-parallel attention; absent:
    serving itself."""
    status: Sourced[Status]
    """Evidence of support. public-sweep: it runs in public measurements or our own; documented; experimental;
    not-supported or broken: the engine is not considered."""
    since: Sourced[datetime.date] | None = None
    """Date of the first image of the engine for which the statement holds; absent: unknown, so it holds for all
    images."""
    until: Sourced[datetime.date] | None = None
    """Day from which the statement no longer holds; absent: it still holds."""


class FailureCause(Entry):
    """One cause of node failures; failures neither soft nor medium are hard."""

    per_1000_node_days: Sourced[NonNegative]
    """Failures for this reason, before the vendor's multiplier."""
    scope: Sourced[Literal["accelerator", "node"]]
    """Capacity that is lost: one accelerator with its tensor-parallel group, or the whole node."""
    soft_fraction: Sourced[Fraction]
    """Share of failures that a reset clears without a technician."""
    medium_fraction: Sourced[Fraction]
    """Share of failures that a technician repairs on site without a spare part."""


class Tariff(Entry):
    """Electricity price and emissions at one site."""

    energy_usd_per_kwh: Sourced[NonNegative]
    """Price of energy."""
    grid_carbon_g_per_kwh: Sourced[NonNegative]
    """Carbon intensity of the grid."""
    timezone: Sourced[str] | None = None
    """Time zone of the place, for time-of-use windows; absent: the price is an average over several places."""


class Source(Strict):
    """A source shared by several values."""

    title: str
    """Title of the source."""
    date: datetime.date
    """Date at which the source's figures held."""
