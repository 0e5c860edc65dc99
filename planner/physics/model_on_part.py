"""A model on an accelerator: number formats, shapes, where a model can run, and its memory layout."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from planner.errors import CapacityError
from planner.records import record
from planner.units import GB

Role = Literal["", "activations", "default"]


@record
class NumberFormat:
    """One precision as the throughput formula uses it; in its references to other precisions, "" and () mean none."""

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
    """Return the number format with a role: that of activations, or the default one for serving."""
    return next(name for name, number_format in formats.items() if number_format.role == role)


def canonical_precision(formats: Formats, name: str) -> str | None:
    """Return the format meant by any usual spelling of it, or None."""
    # FP-8, fp_8 and FP8 are one.
    plain = name.strip().lower()
    for separator in ("-", "_", " "):
        plain = plain.replace(separator, "")
    for canonical, number_format in formats.items():
        if plain == canonical or plain in number_format.aliases:
            return canonical
    return None


def shared_weight_bytes(formats: Formats, shape: ModelShape, precision: str) -> float:
    """Return the bytes of one weight outside the routed experts.

    Four-bit mixtures quantise the experts only: the rest stays at ``shared_precision`` where the model's published
    configuration names one, at 16 bits in models published at four bits, at 8 bits in the FP4 checkpoints of others.
    """
    number_format = formats[precision]
    if not (number_format.shared_precision and shape.experts):
        return number_format.weight_bytes
    published = formats[shape.native_precision].published_shared_precision
    return formats[
        shape.shared_precision or published or number_format.shared_precision
    ].weight_bytes


def routed_weight_bytes(formats: Formats, shape: ModelShape, precision: str) -> float:
    """Return the bytes of one weight of a routed expert; MXFP4, the published form of gpt-oss, scales 32 at a time."""
    number_format = formats[precision]
    return (
        number_format.published_weight_bytes
        if shape.native_precision == precision
        else number_format.weight_bytes
    )


@record
class ModelShape:
    """Architecture numbers of one model, as its published configuration names them.

    Fields that do not apply are zero: a dense model has no ``experts``, a model without latent attention has no
    ``kv_lora_rank``, one without sliding windows no ``sliding_window_tokens``.
    """

    name: str
    layers: int
    hidden_size: int
    intermediate_size: int
    """Width of the dense feed-forward; for a mixture without ``expert_intermediate_size`` also that of one expert."""
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    """Leading layers of a mixture-of-experts model with a dense feed-forward."""
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    """Rank of the latent key-value vector (multi-head latent attention); 0 means keys and values are stored."""
    qk_rope_head_dim: int = 0
    qk_nope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window_tokens: int = 0
    sliding_layers_fraction: float = 0.0
    """Share of the layers that attend within ``sliding_window_tokens`` only."""
    tied_embeddings: bool = False
    max_context_tokens: int = 131072
    native_precision: str = "bf16"
    """Precision the weights were published in; weights published at fp4 also run on parts without fp4 arithmetic."""
    shared_precision: str = ""
    """Precision of what is not a routed expert in the four-bit form; empty: 16 bits if published so, else 8."""
    family: str = ""
    """Model whose measurements also speak for this one (same shape); empty: its own name."""
    qk_norm: bool = False
    """Whether queries and keys are normalised in every layer: two more small kernels."""
    attention_parameters_per_layer: float = 0.0
    """Projection weights of one attention layer where heads and widths do not give them; 0: they do."""
    attended_tokens: int = 0
    """Cached tokens that sparse attention reads for one query, however long the context; 0: all."""
    index_heads: int = 0
    """Heads of the indexer by which sparse attention chooses what it reads; 0: attention is not sparse."""
    index_head_dim: int = 0
    """Width of the key that the indexer keeps of every cached token."""
    released: datetime.date | None = None
    """When its weights were published; None: so long ago that no engine still learns to run it."""
    cache_fraction: float = 1.0
    """Cache entries kept per token, below 1 where attention compresses several tokens into one entry."""
    request_state_bytes: float = 0.0
    """Recurrent states that a finished request leaves in the prefix cache, which resumes prompts only there."""

    @property
    def moe_layers(self) -> int:
        """Layers whose feed-forward is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def measured_as(self) -> str:
        """Name under which measurements of this shape are pooled."""
        return self.family or self.name

    @property
    def is_latent(self) -> bool:
        """Whether attention stores one latent vector instead of keys and values."""
        return self.kv_lora_rank > 0

    @property
    def expert_parameters(self) -> float:
        """Parameters of one routed expert: gate, up and down projections."""
        width = self.expert_intermediate_size or self.intermediate_size
        return 3.0 * self.hidden_size * width if self.experts else 0.0

    @property
    def layer_attention_parameters(self) -> float:
        """Projection parameters of one attention layer.

        Grouped queries: ``h·d·(2·H + 2·H_kv)``. Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1):
        down and up projections of queries, the joint key-value down projection, its up projection, the output.
        """
        if self.attention_parameters_per_layer:
            return self.attention_parameters_per_layer
        if not self.is_latent:
            head_width = self.heads * self.head_dim
            query_and_output = 2.0 * self.hidden_size * self.heads * self.head_dim
            if self.q_lora_rank:  # low-rank queries and output over stored keys
                query_and_output = 2.0 * self.q_lora_rank * (self.hidden_size + head_width)
            key_and_value = 2.0 * self.hidden_size * self.kv_heads * self.head_dim
            return query_and_output + key_and_value
        # Latent queries have a part with positions and one without.
        query_dim = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        query = self.hidden_size * query_dim
        if self.q_lora_rank:
            query = self.q_lora_rank * (self.hidden_size + query_dim)
        down_projection = self.hidden_size * (self.kv_lora_rank + self.qk_rope_head_dim)
        key_and_value_dim = self.qk_nope_head_dim + self.v_head_dim
        up_projection = self.kv_lora_rank * self.heads * key_and_value_dim
        output = self.heads * self.v_head_dim * self.hidden_size
        return float(query + down_projection + up_projection + output)

    @property
    def shared_parameters(self) -> float:
        """Transformer parameters every token passes through: attention, dense feed-forward, shared experts, head.

        The input embedding is left out: a step reads one row of it per token.
        """
        # In a dense model every layer has a dense feed-forward.
        dense_layers = self.dense_layers if self.experts else self.layers
        feed_forward = dense_layers * 3.0 * self.hidden_size * self.intermediate_size
        # Each mixture layer has a router that scores every expert.
        routers = self.hidden_size * self.experts
        shared_experts = self.shared_experts * self.expert_parameters
        feed_forward += self.moe_layers * (shared_experts + routers)
        head = float(self.vocabulary * self.hidden_size)
        return self.layers * self.layer_attention_parameters + feed_forward + head

    @property
    def routed_parameters(self) -> float:
        """Parameters of all routed experts."""
        return self.moe_layers * self.experts * self.expert_parameters

    @property
    def active_parameters(self) -> float:
        """Parameters one token is multiplied with."""
        experts = self.moe_layers * self.experts_per_token * self.expert_parameters
        return self.shared_parameters + experts

    @property
    def kv_values_per_token_per_layer(self) -> float:
        """Numbers one token adds to the KV cache of one layer."""
        if self.is_latent:
            return float(self.kv_lora_rank + self.qk_rope_head_dim)
        if self.kv_heads == 1 and self.q_lora_rank:  # one shared vector serves as key and as value
            return float(self.head_dim)
        return 2.0 * self.kv_heads * self.head_dim

    @property
    def index_fraction(self) -> float:
        """What the indexer keeps and reads of a cached token, over what attention does."""
        return self.index_head_dim / self.kv_values_per_token_per_layer

    @property
    def index_parameters(self) -> float:
        """Parameters of the indexers of all layers, whole on every rank: queries, keys and weights of the heads."""
        query_inputs = self.q_lora_rank or self.hidden_size
        queries = query_inputs * self.index_heads * self.index_head_dim
        keys_and_weights = self.hidden_size * (self.index_head_dim + self.index_heads)
        return float(self.layers * (queries + keys_and_weights))

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """Return the bytes one token adds to the KV cache, before any attention window has passed it."""
        return (
            self.layers * self.kv_values_per_token_per_layer * self.cache_fraction * bytes_per_value
        )

    def divides_heads(self, tensor_parallel: int) -> bool:
        """Say whether the query heads split evenly over this many accelerators."""
        return self.heads % tensor_parallel == 0


@record
class AcceleratorSpec:
    """One accelerator: memory, arithmetic and links, all per accelerator and dense (no sparsity)."""

    name: str
    vendor: str
    hbm_bytes: float
    hbm_bytes_per_s: float
    dense_flops_per_s: Mapping[str, float]
    """Dense arithmetic rate by precision; a precision the part lacks is absent."""
    formats: Formats
    """Every number format a model may be served in, whether the part computes in it or not."""
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
    host_bytes: float = 0.0
    """Memory of one node's processors."""
    host_link_bytes_per_s: float = 0.0
    """Bandwidth of one accelerator to that memory, one direction; 0: nothing is held there."""
    bring_up: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Share of full speed with which a new model begins, and weeks until it has it, by engine of the vendor."""

    def has_precision(self, precision: str) -> bool:
        """Say whether the accelerator's arithmetic units run this precision natively."""
        return precision in self.dense_flops_per_s


def refusal(part: AcceleratorSpec, shape: ModelShape, precision: str) -> str | None:
    """Return why a model at this precision cannot run on the accelerator, or None when it can.

    A part needs the arithmetic of the format or something to fall back to: engines unpack integer weights for every
    model, FP4 weights only for a model published with them (gpt-oss).
    """
    number_format = part.formats[precision]
    has_fallback = any(map(part.has_precision, number_format.falls_back_to))
    if part.has_precision(precision) or (
        has_fallback and (number_format.falls_back_for_all or shape.native_precision == precision)
    ):
        return None
    return f"{part.name} has no {precision} arithmetic; it has {', '.join(part.dense_flops_per_s)}"


def arithmetic(part: AcceleratorSpec, shape: ModelShape, precision: str) -> str:
    """Return the number format in which this model's matrix products run.

    Models published with FP4 weights keep 8-bit activations where the part has FP4, 16-bit ones where it has not.
    """
    number_format = part.formats[precision]
    if not part.has_precision(precision):
        return next(filter(part.has_precision, number_format.falls_back_to), precision)
    if shape.native_precision == precision:
        return next(filter(part.has_precision, number_format.published_computes_in), precision)
    return precision


def compute_flops_per_s(part: AcceleratorSpec, shape: ModelShape, precision: str) -> float:
    """Return the dense arithmetic rate at which this model's matrix products run."""
    return part.dense_flops_per_s[arithmetic(part, shape, precision)]


def wider_precision(part: AcceleratorSpec, shape: ModelShape, precision: str) -> str:
    """Return the next wider format in which the accelerator runs this model; the widest returns itself."""
    wider = part.formats[precision].wider
    # Ends: the catalogue makes weights grow from each format to its wider one.
    while wider and refusal(part, shape, wider):
        wider = part.formats[wider].wider
    return wider or precision


USABLE_FRACTION = 0.9
"""Share of memory an engine takes for weights, activations and cache (vLLM's and TensorRT-LLM's default)."""
ENGINE_OVERHEAD_BYTES = 1.0e9
"""Runtime, graphs and communication buffers of one accelerator; grade D, engines report 0.5 to 2 GB."""
CHUNK_TOKENS = 8192
"""Prompt tokens of one step where nothing else is stated, whose activations must fit beside the cache (vLLM's)."""
_HEAD_BYTES = 2.0
"""Bytes of one weight of embeddings and output head, which stay at 16 bits in quantised checkpoints."""


@record
class MemoryFit:
    """Memory layout of a model on one replica: weights, overhead and room for the KV cache."""

    accelerators: int
    weight_bytes: float
    """Weights of the whole replica, scales included."""
    overhead_bytes: float
    """Activations and engine overhead of the whole replica."""
    kv_capacity_tokens: float
    """Tokens of full-attention context the replica can cache; zero or less when the model does not fit."""
    kv_bytes_per_token: float
    """Cache bytes of one token over the whole replica, copies on ranks that share a head included."""

    @property
    def fits(self) -> bool:
        """Whether weights fit and leave room for a cache."""
        return self.kv_capacity_tokens > 0


def weight_bytes(
    formats: Formats, shape: ModelShape, precision: str, attention_copies: int = 1
) -> float:
    """Return the bytes of all weights: body at its precision, embeddings and head at 16 bits.

    With attention in data parallel each group holds the attention projections whole: ``attention_copies`` of them.
    """
    # Tied embeddings are the output head, which is counted already.
    embedding = 0.0
    if not shape.tied_embeddings:
        embedding = float(shape.vocabulary * shape.hidden_size)
    shared = streamed_shared_bytes(formats, shape, precision, attention_copies)
    routed = shape.routed_parameters * routed_weight_bytes(formats, shape, precision)
    return shared + routed + embedding * _HEAD_BYTES


def streamed_shared_bytes(
    formats: Formats, shape: ModelShape, precision: str, attention_copies: int = 1
) -> float:
    """Return the bytes that each decode step reads at any batch: all but routed experts and embeddings."""
    head = float(shape.vocabulary * shape.hidden_size)
    layer_parameters = shape.layers * shape.layer_attention_parameters
    further_copies = layer_parameters * (attention_copies - 1)
    body = shape.shared_parameters - head + further_copies
    body_bytes = body * shared_weight_bytes(formats, shape, precision)
    return body_bytes + head * _HEAD_BYTES


def activation_bytes(
    shape: ModelShape, accelerators: int, chunk_tokens: int = CHUNK_TOKENS
) -> float:
    """Return the activations of one prefill chunk on one accelerator, at 16 bits.

    The residual stream and its copy are whole on every rank, the feed-forward's gate and up halves are split.
    """
    # A mixture's token passes through several experts of a smaller width.
    expert_width = shape.expert_intermediate_size or shape.intermediate_size
    routed = shape.experts_per_token * expert_width
    feed_forward = 2.0 * max(shape.intermediate_size, routed) / accelerators
    width = 4.0 * shape.hidden_size + feed_forward
    return chunk_tokens * width * 2.0


def memory_fit(
    part: AcceleratorSpec,
    shape: ModelShape,
    precision: str,
    accelerators: int,
    attention_data_parallel: int = 1,
    chunk_tokens: int = CHUNK_TOKENS,
) -> MemoryFit:
    """Return the memory layout of a model over a replica of ``accelerators`` that share every layer.

    Attention runs in ``attention_data_parallel`` groups, each with its own sequences and all of attention's weights.
    Within a group key-value heads are split until each rank has one, then copied; a latent vector is on every rank.
    """
    weights = weight_bytes(part.formats, shape, precision, attention_data_parallel)
    activations = activation_bytes(shape, accelerators, chunk_tokens)
    overhead = accelerators * (ENGINE_OVERHEAD_BYTES + activations)
    usable = USABLE_FRACTION * part.hbm_bytes * accelerators
    free = usable - weights - overhead
    group = accelerators // attention_data_parallel
    # Ranks beyond the number of key-value heads hold copies.
    copies = group / kv_shards(shape, group)
    cached = shape.kv_bytes_per_token(part.formats[precision].cache_bytes)
    per_token = cached * (1.0 + shape.index_fraction) * copies
    return MemoryFit(
        accelerators=accelerators,
        weight_bytes=weights,
        overhead_bytes=overhead,
        kv_capacity_tokens=free / per_token,
        kv_bytes_per_token=per_token,
    )


def kv_shards(shape: ModelShape, accelerators: int) -> int:
    """Return the number of ranks over which one sequence's KV cache is split."""
    return 1 if shape.is_latent else min(accelerators, shape.kv_heads)


def candidate_degrees(part: AcceleratorSpec, shape: ModelShape) -> list[int]:
    """Return the tensor-parallel degrees that divide the heads and stay within the scale-up domain."""
    degrees = []
    # Up to 128: no scale-up domain is wider.
    for power in range(8):
        degree = 2**power
        if degree <= part.scaleup_accelerators and shape.divides_heads(degree):
            degrees.append(degree)
    return degrees


def smallest_fit(
    part: AcceleratorSpec, shape: ModelShape, precision: str, context_tokens: float = 1.0
) -> MemoryFit:
    """Return the smallest replica that holds the weights and one sequence; raise CapacityError with advice if none."""
    reason = refusal(part, shape, precision)
    if reason:
        raise CapacityError(f"{shape.name}: {reason}")
    degrees = candidate_degrees(part, shape)
    fits = [memory_fit(part, shape, precision, degree) for degree in degrees]
    # Degrees rise, so the first that holds one sequence is the smallest.
    for fit in fits:
        if fit.kv_capacity_tokens >= context_tokens:
            return fit
    largest = fits[-1]
    needed = largest.weight_bytes + largest.overhead_bytes
    room = USABLE_FRACTION * part.hbm_bytes * largest.accelerators
    advice = _narrower_advice(part, shape, precision, largest.accelerators)
    if advice is None:
        # Where no narrower format fits, as many accelerators as memory alone would take.
        count = math.ceil(needed / room * largest.accelerators)
        advice = f"{count} would hold it"
    raise CapacityError(
        f"{shape.name} at {precision} takes {needed / GB:,.0f} GB with activations and a cache; "
        f"{largest.accelerators} × {part.name} offer {room / GB:,.0f} GB: {advice}"
    )


def _narrower_advice(
    part: AcceleratorSpec, shape: ModelShape, precision: str, accelerators: int
) -> str | None:
    """Return the widest format below a precision that would fit, as advice; None where there is none."""
    own_bytes = part.formats[precision].weight_bytes
    # Widest first: it loses the least.
    by_width = sorted(part.formats.items(), key=lambda named: -named[1].weight_bytes)
    for name, number_format in by_width:
        # A checkpoint that someone must quantise first is no advice.
        if number_format.weight_bytes >= own_bytes or number_format.falls_back_for_all:
            continue
        is_served = refusal(part, shape, name) is None
        if is_served and memory_fit(part, shape, name, accelerators).fits:
            return f"{name} would fit"
    return None
