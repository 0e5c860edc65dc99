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
    """Field of a scenario, as a dotted path, that is drawn from this prior where no study says otherwise; of clusters,
    ``*`` stands for those of the accelerator or the vendor below. Default: none."""
    accelerator: str | None = None
    """Accelerator whose clusters are meant. Default: any."""
    vendor: str | None = None
    """Vendor whose clusters are meant. Default: any."""
    unless: str | None = None
    """Field that takes the place of the other where a scenario states it. Default: none."""
    highest: float | None = None
    """Highest that is drawn, where a study states no other end. Default: the field's own limit."""
    used_by: tuple[str, ...] = ()
    """Fields of which a scenario states one where the prior is of use, ``*`` being any name. Default: it is of use
    where its own field is not zero."""
    times_stated: bool = False
    """Whether the prior is a factor, over its base, on whatever is stated. Default false: it stands for what is left to
    the default, and what is stated is known."""

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
    """Who makes it, by its name under vendors; decides which stacks run on it."""
    architecture: Sourced[str]
    """Architecture name, for the reader."""
    hbm_gb: Sourced[PositiveFloat]
    """Usable memory."""
    hbm_tb_per_s: Sourced[PositiveFloat]
    """Peak memory bandwidth."""
    dense_tflops: dict[str, Sourced[PositiveFloat]]
    """Peak dense rate, without sparsity, by precision; one that the part cannot compute in is absent."""
    fp8_format: Sourced[Literal["ocp", "fnuz"]] | None = None
    """Encoding of eight-bit floats that it computes in; absent where it has none."""
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
    host_memory_gb: Sourced[PositiveFloat] | None = None
    """Memory of one server, which may hold prompts that its accelerators let go; absent: none is counted."""
    host_link_gb_per_s: Sourced[PositiveFloat] | None = None
    """Bandwidth of one accelerator to the memory of its server, one direction; absent: nothing is held there."""
    node_max_kw: Sourced[PositiveFloat]
    """Nameplate power of one server."""
    available: Sourced[datetime.date]
    """First volume systems."""
    accelerator_price_usd: Sourced[NonNegative] | None = None
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
    native_precision: Sourced[str] | None = None
    """Precision the weights were published in; absent: that of activations. FP4 also runs on parts without FP4."""
    shared_precision: Sourced[str] | None = None
    """Precision of what is not a routed expert in four-bit form; absent: what the precision's own entry says."""
    family: Sourced[str] | None = None
    """Model of the same shape, whose measurements speak for this one too; absent: none."""
    qk_norm: Sourced[bool] | None = None
    """True where queries and keys are normalised in every layer."""
    attention_parameters_per_layer: Sourced[PositiveInt] | None = None
    """Projection weights of a mean attention layer, where heads and widths do not give them."""
    attended_tokens: Sourced[PositiveInt] | None = None
    """Cached tokens that sparse attention reads for one query; absent: all of them."""
    index_heads: Sourced[PositiveInt] | None = None
    """Heads of the indexer by which sparse attention chooses what it reads; absent: attention is not sparse."""
    index_head_dim: Sourced[PositiveInt] | None = None
    """Width of the key that the indexer keeps of every cached token; absent: none."""
    released: Sourced[datetime.date] | None = None
    """When its weights were published; absent: before 2025-12, longer ago than any engine takes to run it well."""
    cache_fraction: Sourced[Annotated[float, Field(gt=0, le=1)]] | None = None
    """Cache entries kept per token, where attention compresses several tokens into one; absent: 1."""
    api_input_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """What an API asks for a million prompt tokens; absent: no price is known."""
    api_cached_input_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """What it asks for those that it has cached; absent: none listed; the prior cached_input_price_ratio counts."""
    api_output_usd_per_million_tokens: Sourced[NonNegative] | None = None
    """What it asks for a million generated tokens."""


class Precision(Entry):
    """One number format that weights may be served in."""

    weight_bytes: Sourced[PositiveFloat]
    """Bytes of one weight with its scales."""
    published_weight_bytes: Sourced[PositiveFloat] | None = None
    """The same for the routed experts of a model published in this precision; absent: no different."""
    cache_bytes: Sourced[PositiveFloat]
    """Bytes of one cached number when weights are served in this precision."""
    cache_stream_bytes: Sourced[PositiveFloat]
    """What reading one cached number costs, in bytes of the 8-bit cache that the calibration prices."""
    packed: Sourced[bool] | None = None
    """True where reading weights is priced by the coefficients of four-bit weights; absent: false."""
    shared_precision: Sourced[str] | None = None
    """In a mixture of experts, the precision of all but the routed experts; absent: this one."""
    published_shared_precision: Sourced[str] | None = None
    """The same in models published in this precision, unless the model says otherwise."""
    published_computes_in: Sourced[tuple[str, ...]] | None = None
    """Arithmetic of models published in it on parts that have it: the first that the part has; absent: this one."""
    falls_back_to: Sourced[tuple[str, ...]] | None = None
    """Arithmetic on parts that cannot compute in it: the first that the part has; absent: it does not run there."""
    falls_back_for: Sourced[Literal["all", "published"]] | None = None
    """Whether all models fall back or only those published in this precision; absent: published."""
    wider: Sourced[str] | None = None
    """The next wider precision, which an answer to wrong numerics serves in; absent for the widest."""
    aliases: Sourced[tuple[str, ...]] | None = None
    """Other spellings in tables of measurements, in lower case without hyphens."""
    role: Sourced[Literal["activations", "default"]] | None = None
    """What activations and attention are kept in, or what is served where nobody states a precision; one of each."""


class Vendor(Entry):
    """One accelerator vendor: figures common to all its accelerators."""

    lost_with_accelerator: Sourced[Literal["replica", "node"]]
    """What one failing accelerator takes down: its tensor-parallel group, or the whole node."""
    failure_multiplier: Sourced[NonNegative]
    """Failures of its nodes against the rates of the failure causes."""
    engineers_per_800: Sourced[NonNegative]
    """Software engineers paid for per 800 of its accelerators."""
    incident_multiplier: Sourced[NonNegative] | None = None
    """Software incidents on its parts against the rates of their stacks; absent: 1."""
    maturing_multiplier: Sourced[NonNegative] | None = None
    """What software has still to gain on its parts against what their stacks say; absent: 1."""
    rollback_impossible_fraction: Range | None = None
    """Share of incidents of a release after which no older release serves the model; absent: 0."""

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
    """Incidents per served model and year, at any time; absent: the kind's own, or none come."""
    per_upgrade: Range | None = None
    """Probability that an upgrade brings one to a served model; absent: the kind's own, or none come."""
    loss_fraction: Range | None = None
    """Throughput lost while one lasts."""
    most_loss_fraction: Sourced[Annotated[float, Field(ge=0, lt=1)]] | None = None
    """Most throughput that one takes: a larger draw of loss_fraction is this."""
    fix_days: Range | None = None
    """Days until its vendor has fixed it; absent: the kind's own, or the stack's."""


class IncidentKind(StackIncident):
    """One kind of software incident: its effect, and its default figures."""

    effect: Sourced[Literal["slows", "resets", "falsifies"]]
    """slows: throughput falls by loss_fraction; resets: the same, by software.hang_loss_fraction where no loss is
    stated; falsifies: outputs are wrong, so the stack is rolled back or serves in a wider precision."""
    detection_h: Range | None = None
    """Hours from an upgrade until somebody notices what came with it."""
    subtle_detection_h: Range | None = None
    """The same of a subtle one; absent: as any other."""
    subtle_fraction: Sourced[Fraction] | None = None
    """Share that is subtle whatever its loss; absent: 0."""
    subtle_below_loss_fraction: Sourced[Fraction] | None = None
    """Loss below which one is subtle; absent: 0."""


class Maturity(Entry):
    """Speed still to be gained by a stack's software on one class of models."""

    ceiling_gain_fraction: Range
    """Throughput to be gained in the end over what the calibration measured; never past the part's roofline."""
    closing_months: Range
    """Time constant with which the gap to that ceiling closes, and with which a new model's further incidents cease."""


class Stack(Entry):
    """One platform and serving engine: its maturity and its incidents."""

    platform: Sourced[str]
    """What lies beneath the engine: CUDA, ROCm and the like."""
    vendor: Sourced[str]
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
    fix_days: Range
    """Days until its vendor has fixed an incident, for every kind that states none of its own."""
    incidents: dict[str, StackIncident] = Field(default_factory=dict)
    """How often incidents of each kind come on this stack and what they cost; kinds are those under incidents."""
    releases_per_year: Range
    """Releases of the platform."""
    release_spread_fraction: Sourced[NonNegative] | None = None
    """How far releases lie about the course of maturing: standard deviation of the logarithm of speed; absent: 0."""
    maturity: dict[ArchitectureClass, Maturity] = Field(default_factory=dict)
    """What is left to gain, by class of models; nothing on a class that is not there."""
    bring_up_weeks: Range
    """Weeks until a newly launched model runs at full speed: three time constants of the gap that closes."""
    bring_up_throughput_fraction: Range
    """Share of full speed with which a new model begins."""
    new_model_incident_multiplier: Sourced[Annotated[float, Field(ge=1)]] | None = None
    """Incidents of a model just launched against those of one long served; absent: 1."""


class EngineSupport(Entry):
    """One statement on which engine serves what; the newest of the most specific ones counts."""

    engine: Sourced[str]
    """Serving engine, as a cluster names it."""
    model: Sourced[str]
    """Models, separated by spaces, or classes of models (dense, mixture-of-experts, custom-attention), or any."""
    accelerator: Sourced[str]
    """Accelerators, separated by spaces, or a vendor for all of his, or any."""
    precision: Sourced[str] | None = None
    """Precisions, separated by spaces; absent: any."""
    feature: Sourced[Feature] | None = None
    """What of serving: disaggregated prefill, speculation, data-parallel attention; absent: serving at all."""
    status: Sourced[Status]
    """public-sweep: it runs in public runs or one's own; documented; experimental; with not-supported and broken the
    engine is no candidate."""
    since: Sourced[datetime.date] | None = None
    """From which day of an engine's image on; absent: unknown, and so for all images."""
    until: Sourced[datetime.date] | None = None
    """From which day on no more; absent: it still holds."""


class FailureCause(Entry):
    """One cause of node failures; failures neither soft nor medium are hard."""

    per_1000_node_days: Sourced[NonNegative]
    """Failures of a node for this reason, before its vendor's multiplier."""
    scope: Sourced[Literal["accelerator", "node"]]
    """What is lost: one accelerator, and with it its tensor-parallel group, or the whole node."""
    soft_fraction: Sourced[Fraction]
    """Share that a reset heals, without a technician."""
    medium_fraction: Sourced[Fraction]
    """Share that a technician heals on site without a new part."""


class Tariff(Entry):
    """Electricity price and emissions at one site."""

    energy_usd_per_kwh: Sourced[NonNegative]
    """Price of energy."""
    grid_carbon_g_per_kwh: Sourced[NonNegative]
    """Carbon intensity of the grid."""
    timezone: Sourced[str] | None = None
    """Clock of the place, by which time-of-use windows are read; absent where the price is of no one place."""


class Source(Strict):
    """A source shared by several values."""

    title: str
    """What it is."""
    date: datetime.date
    """When its figures held."""
