"""One replica as numbers: the work of a step at peak rates, and its time under a calibration.

A replica is a model at a precision on a number of accelerators with an engine. Its decode step with B running
sequences is a sum of physical terms (docs/explanation/throughput.md derives them):

    t(B) = fixed + routed·(1 − (1 − k/E)^B) + B·(per sequence + per cached token · context)

and one request's prefill of I tokens takes ``per token · I + per token² · I²``. Everything here is per replica, shape
(replicas,); the operating points in ``planner.physics.operating`` are per case.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import FloatLike, Floats, Ints
from planner.physics import coefficients
from planner.physics import model_on_part as on_part
from planner.physics.coefficients import Calibration, Doubt, Groups

ACTIVATION_BYTES = 2.0  # all-reduced activations travel at 16 bits
FEWEST_VISITS = 4
"""The fixed cost of a mixture's layer follows the experts a token visits; no rows have fewer than four."""
DISPATCH_BYTES = 3.0  # a token goes to its experts at 8 bits and comes back at 16 (DeepEP, DeepSeek-V3 report, 3.2.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """Definition of a replica: model, accelerator, engine, precision and parallelism."""

    part: on_part.AcceleratorSpec
    shape: on_part.ModelShape
    precision: str
    accelerators: int
    engine: str = ""
    """Serving engine; a name without calibration rows takes the common coefficients."""
    attention_data_parallel: int = 1
    """Groups into which attention is split, each with its own sequences; experts stay spread over all accelerators."""
    expert_parallel: bool = False
    """Whether whole experts sit on ranks, rather than a slice of each on every rank."""
    max_sequences: int | None = None
    """Sequences the engine admits to one attention group; None: its default."""
    chunk_tokens: int = on_part.CHUNK_TOKENS
    """Prompt tokens that one step computes at most, beside the sequences that decode."""
    drafted_tokens: int = 0
    """Tokens a draft proposes per step (speculative decoding, multi-token prediction); 0: none."""
    mean_acceptance_length: float = 1.0
    """Mean tokens a step yields, the certain one included."""
    reserved_output_fraction: float | None = None
    """Share of the output for which cache is held from the start; None: the engine's habit."""

    @property
    def layout(self) -> tuple[object, ...]:
        """By what replicas of one model differ: engine, precision, accelerators, attention groups, chunk, draft."""
        wide = (self.accelerators, self.attention_data_parallel, self.chunk_tokens, self.drafted_tokens)
        return self.engine, self.precision, *wide

    def memory(self) -> on_part.MemoryFit:
        """Return the memory layout of the model on this replica."""
        wide = (self.accelerators, self.attention_data_parallel, self.chunk_tokens)
        return on_part.memory_fit(self.part, self.shape, self.precision, *wide)

    def groups(self, kind: str) -> Groups:
        """Return the measurement groups of this replica; ``kind`` is serving or saturated."""
        experts = " experts whole" if self.expert_parallel and self.shape.experts else ""
        layout = f"{self.accelerators} in {self.attention_data_parallel}{experts}"
        attention = "latent attention" if self.shape.is_latent else "stored keys"
        packs = any(self.part.formats[name].packed for name in self.part.dense_flops_per_s)
        generation = f"{self.precision} on parts {'with' if packs else 'without'} four-bit arithmetic"
        traits = (self.precision, attention, generation, self.engine) if self.shape.experts else ()
        names = (self.shape.measured_as, self.part.name, self.engine, self.precision)
        return coefficients.groups_of(*names, kind, layout, self.part.vendor, traits)

    @property
    def is_unlike(self) -> bool:
        """Whether attention is sparse or tokens are drafted: of neither is a row in the fit."""
        return self.shape.index_heads > 0 or self.drafted_tokens > 0

    def doubt(self, calibration: Calibration, kind: str = coefficients.SERVING) -> Doubt | None:
        """Return the uncertainty of this replica's prediction, or None where the calibration states no spread."""
        begins_at, _ = self.part.bring_up.get(self.engine, (1.0, 0.0))
        mixture = self.shape.experts > 0
        return calibration.doubt(self.groups(kind), mixture, self.part.vendor, begins_at, self.is_unlike)


ReplicaWork = Mapping[str, Floats]
"""The work of replicas at peak rates, before any coefficient, by name as :func:`describe` has it, shape (replicas,)."""
Replicas = Mapping[str, Floats]
"""Replicas timed by a calibration: seconds per step and token, by name as :func:`price` has it; shape (replicas,)."""


def all_reduce_hops(part: on_part.AcceleratorSpec, accelerators: int) -> float:
    """Return the latency hops of one all-reduce: log₂ n through a switch, n − 1 along direct links."""
    if accelerators == 1:
        return 0.0
    return float(np.log2(accelerators)) if part.switched else float(accelerators - 1)


def port_bytes_per_s(part: on_part.AcceleratorSpec, accelerators: int) -> float:
    """Return the bandwidth of one accelerator to the others of its replica.

    Through a switch that is the whole port. Along direct links only those to the replica's members carry anything: of
    the seven links of an MI300X, two accelerators use one, four use three.
    """
    links = part.scaleup_accelerators - 1
    if part.switched or links < 1:
        return part.link_bytes_per_s
    return part.link_bytes_per_s * min(max(accelerators - 1, 1), links) / links


def describe(specs: Sequence[ReplicaSpec]) -> ReplicaWork:
    """Compute the work of each replica; it takes microseconds each, so do it once per distinct replica."""
    columns = [_describe_one(spec) for spec in specs]
    return {name: np.array([one[name] for one in columns], dtype=float) for name in columns[0]}


def _describe_one(spec: ReplicaSpec) -> dict[str, float | bool]:
    """Return the work of one replica by name."""
    part, shape, precision, count = spec.part, spec.shape, spec.precision, spec.accelerators
    bandwidth, formats = part.hbm_bytes_per_s, part.formats
    latent_width = (shape.qk_nope_head_dim + shape.qk_rope_head_dim + shape.v_head_dim) / 2
    head_width = latent_width if shape.is_latent else shape.head_dim
    groups = spec.attention_data_parallel
    group = count // groups
    # Two all-reduces a layer, after attention and after the feed-forward (Megatron-LM, arXiv 1909.08053, section 3),
    # each of 2·(n − 1)/n of the tensor. With attention in d groups the first stays inside a group and carries a d-th of
    # the tokens; the second becomes a dispatch of each token to its k experts and back, a n-th of the tokens a port.
    reduced = 2 * shape.layers * shape.hidden_size * ACTIVATION_BYTES
    after_attention, after_feed_forward = reduced * (group - 1) / group / groups, reduced * (count - 1) / count
    if groups > 1 and shape.experts:
        visited = min(shape.experts_per_token, count)
        after_feed_forward = shape.layers * visited * shape.hidden_size * DISPATCH_BYTES * (count - 1) / count / count
    reserved = spec.reserved_output_fraction
    if reserved is None:
        habit = coefficients.DEFAULT_RESERVED_OUTPUT_FRACTION
        reserved = coefficients.KV_RESERVED_OUTPUT_FRACTION.get(spec.engine, habit)
    missed = 1.0 - shape.experts_per_token / shape.experts if shape.experts else 1.0
    parameters = shape.active_parameters + shape.index_parameters * group  # an indexer is whole on every rank
    return {
        "accelerators": count,
        "attention_groups": groups,  # each of which schedules and samples its own sequences
        "shared_stream_s": on_part.streamed_shared_bytes(formats, shape, precision, groups) / (count * bandwidth),
        "routed_stream_s": shape.routed_parameters * on_part.routed_weight_bytes(formats, shape, precision)
        / (count * bandwidth),
        # With B tokens an expert stays untouched with probability (1 − k/E)^B.
        "log_expert_missed": float(np.log(max(missed, 1e-12))),
        "flops_s_per_token": 2 * parameters
        / (count * on_part.compute_flops_per_s(part, shape, precision)),
        "link_s_per_token": (after_attention + after_feed_forward) / port_bytes_per_s(part, count),
        "kv_stream_s_per_token": shape.kv_bytes_per_token(formats[precision].cache_stream_bytes)
        / (on_part.kv_shards(shape, group) * groups * bandwidth),
        "attention_s_per_token2": 4 * shape.heads * head_width * shape.layers
        / (count * part.dense_flops_per_s[on_part.format_with(formats, "activations")]),
        "dense_layers": shape.layers - shape.moe_layers,
        # Experts, routed and shared, that a token visits in all layers together.
        "expert_visits": shape.moe_layers * max(shape.experts_per_token + shape.shared_experts, FEWEST_VISITS),
        "latent_layers": shape.layers if shape.is_latent else 0,
        "normed_layers": shape.layers if shape.qk_norm else 0,
        "sparse_layers": shape.layers if shape.index_heads else 0,
        "hops": shape.layers * (all_reduce_hops(part, group) + all_reduce_hops(part, count)),
        "window_tokens": shape.sliding_window_tokens,
        "windowed_fraction": shape.sliding_layers_fraction if shape.sliding_window_tokens else 0.0,
        "attended_tokens": shape.attended_tokens or np.inf,
        # What an indexer reads of every cached token to choose those attended to, over what attention reads of one.
        "index_fraction": shape.index_fraction,
        "kv_capacity_tokens": spec.memory().kv_capacity_tokens,
        "max_context_tokens": shape.max_context_tokens,
        "max_sequences": groups * (spec.max_sequences or coefficients.MAX_SEQUENCES),
        "chunk_tokens": spec.chunk_tokens,
        "reserved_output_fraction": reserved,
        "drafted_tokens": spec.drafted_tokens,
        "mean_acceptance_length": spec.mean_acceptance_length,
        "is_fp4": formats[precision].packed,
        "is_fp4_compute": formats[on_part.arithmetic(part, shape, precision)].packed,
        "is_emulated": formats[precision].packed and not part.has_precision(precision),
        "is_moe": shape.experts > 0,
        "is_latent": shape.is_latent,
        "is_expert_parallel": spec.expert_parallel and shape.experts > 0,
    }  # fmt: skip


def price(work: ReplicaWork, coefficient: Mapping[str, Floats], log_effect: FloatLike = 0.0) -> Replicas:
    """Multiply work by coefficients (each of shape (replicas,)) and return the times in seconds.

    ``log_effect`` is what the measurements of a replica's groups show beyond the formula: a factor on every second
    but those before the first token.
    """
    c = coefficient
    factor = np.exp(np.asarray(log_effect, dtype=float))
    one = np.ones(1)
    # A part without FP4 unpacks the weights of each expert that it visits: their stream is longer, and so is the visit.
    unpacking = np.where(work["is_emulated"], c["emulated_fp4"], one)
    weight_stream = c["weight_stream"] * np.where(work["is_fp4"], c["fp4_weight"], one)
    expert_stream = np.where(work["is_fp4"], c["fp4_expert"] * unpacking, c["expert_stream"])
    expert_stream = expert_stream * np.where(work["is_expert_parallel"], c["expert_imbalance"], one)
    compute = c["compute"] * np.where(work["is_fp4_compute"], c["fp4_compute"], one)
    compute = compute * np.where(work["is_moe"], c["moe_compute"], one)
    token_s = factor * (compute * work["flops_s_per_token"] + c["link"] * work["link_s_per_token"])
    stream_s = factor * weight_stream * work["shared_stream_s"]
    fixed_s = stream_s + factor * (
        c["step_s"]
        + c["layer_s"] * work["dense_layers"]
        + c["visit_s"] * unpacking * work["expert_visits"]
        + c["latent_layer_s"] * work["latent_layers"]
        + c["normed_layer_s"] * work["normed_layers"]
        + c["sparse_layer_s"] * work["sparse_layers"]
        + c["hop_s"] * work["hops"]
    )
    kv_stream = factor * c["kv_stream"] * np.where(work["is_latent"], c["latent_kv"], one)
    # A speculative step checks the draft's tokens beside the certain one and yields the accepted ones: weights and
    # stored keys are read once for all of them; experts, arithmetic and sampling are paid for each, and so is latent
    # attention, which 128 heads on one vector already bind by arithmetic. The draft adds a share of the fixed cost.
    checked, yielded = 1.0 + work["drafted_tokens"], work["mean_acceptance_length"]
    draft, verified = 1.0 + c["draft"] * work["drafted_tokens"], 1.0 + c["verify"] * work["drafted_tokens"]
    names = ("accelerators", "window_tokens", "windowed_fraction", "attended_tokens", "index_fraction")
    most = ("kv_capacity_tokens", "max_sequences", "chunk_tokens", "reserved_output_fraction")
    same = {name: work[name] for name in (*names, *most)}
    return {
        **same,
        "fixed_s": fixed_s * draft / yielded,
        # Of the fixed time, what the weights that every step reads take: the arithmetic of prompts hides it.
        "stream_s": stream_s / yielded,
        # More than one with drafts, and then all times of steps are of one token.
        "tokens_per_step": yielded,
        "routed_s": factor * expert_stream * work["routed_stream_s"] / yielded,
        "log_expert_missed": work["log_expert_missed"] * checked,
        "sequence_s": (token_s + factor * c["request_s"] / work["attention_groups"]) * verified / yielded,
        "kv_s_per_token": kv_stream
        * work["kv_stream_s_per_token"]
        * np.where(work["is_latent"], verified, one)
        / yielded,
        "prefill_s_per_token": token_s,
        "attention_s_per_token2": factor * c["attention_compute"] * work["attention_s_per_token2"],
        # Prompt and output together that the model attends to and the cache holds: no request is longer.
        "longest_tokens": np.minimum(work["max_context_tokens"], work["kv_capacity_tokens"]),
        "ttft_fixed_s": c["ttft_fixed_s"],
        **{name: c[name] / factor for name in ("ttft_prefill", "ttft_burst", "ttft_burst_steps", "ttft_arrival_steps")},
    }


def price_replicas(specs: Sequence[ReplicaSpec], calibration: Calibration, kinds: Sequence[str] = ()) -> Replicas:
    """Return the times of replicas under their engine's and vendor's coefficients and their groups' effects.

    ``kinds`` says of each replica whether it serves or is saturated; all serve by default.
    """
    return price_work(describe(specs), specs, calibration, kinds)


def price_work(
    work: ReplicaWork, specs: Sequence[ReplicaSpec], calibration: Calibration, kinds: Sequence[str] = ()
) -> Replicas:
    """Return the times of replicas whose work is computed already, as :func:`price_replicas` does."""
    coefficient = calibration.coefficients([spec.engine for spec in specs], [spec.part.vendor for spec in specs])
    groups = [spec.groups(kind) for spec, kind in zip(specs, kinds or [coefficients.SERVING] * len(specs), strict=True)]
    return price(work, coefficient, calibration.log_effects(groups))


def beside_s(stream_s: FloatLike, compute_s: FloatLike) -> Floats:
    """Return by how much prompts lengthen a step: their arithmetic overlaps with the stream of the weights.

    (stream⁴ + compute⁴)^¼ − stream, held to mixed steps measured on an H200 (docs/explanation/throughput.md). What
    sequences add to a step, their arithmetic and their cache, comes on top as in a step without prompts.
    """
    stream, compute = np.asarray(stream_s, dtype=float), np.asarray(compute_s, dtype=float)
    return np.asarray(np.sqrt(np.hypot(stream * stream, compute * compute)) - stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Distributions of prompt and output lengths, independent of each other: lengths, and weights that sum to 1."""

    prompt_tokens: Floats
    prompt_weights: Floats
    output_tokens: Floats
    output_weights: Floats
    cached_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTerms:
    """Latency objectives of a workload, and the number of replicas behind one router."""

    ttft_s: float
    tpot_s: float
    percentile: float
    pooled_replicas: float
    """Replicas that one router chooses between."""

    @property
    def alone(self) -> float:
        """One replica's share of the replicas behind a router."""
        return 1.0 / self.pooled_replicas


def _mean(of_prompts: Floats, weights: Floats) -> Any:
    """Return the mean over prompts: a number of one replica, a column of several."""
    mean = of_prompts @ weights
    return mean[:, None] if mean.ndim else float(mean)


class ReplicaTimes:
    """One replica's step and prefill times for one workload's lengths; arrays of shape (prompts,).

    Of several replicas, arrays have a row for each, and what is a number of one is a column.
    """

    def __init__(self, replicas: Replicas, index: int | Ints, speed: float, lengths: Lengths) -> None:
        """Compute the times of replicas that run at ``speed`` times the formula's speed."""

        def of(name: str) -> Any:
            figures = replicas[name][index]
            return figures[:, None] if figures.ndim else float(figures)

        self.lengths = lengths
        self.overhead_s = of("ttft_fixed_s")
        self.fixed_s, self.routed_s = of("fixed_s") / speed, of("routed_s") / speed
        self.log_missed = of("log_expert_missed")
        self.output_tokens, self.output_weights = lengths.output_tokens, lengths.output_weights
        self.output = float(self.output_weights @ self.output_tokens)
        self._halfway = float(self.output_weights @ self.output_tokens**2) / self.output / 2.0
        self._window, self._windowed = of("window_tokens"), of("windowed_fraction")
        self._attends, self._indexed = of("attended_tokens"), of("index_fraction")
        # Distributions have tails that no model attends to: what is longer is cut, as requests are.
        prompt = np.minimum(lengths.prompt_tokens, np.maximum(of("longest_tokens") - self.output, 1.0))
        cached = np.floor(prompt * lengths.cached_fraction)
        before = self._kept(0.5 * prompt)
        attended = np.minimum(before, self._attends) + self._indexed * before
        fresh, chunk = prompt - cached, of("chunk_tokens")
        compute_s = of("prefill_s_per_token") * fresh
        compute_s += of("attention_s_per_token2") * attended / prompt * (prompt**2 - cached**2)
        compute_s /= speed
        chunk_s, full = compute_s * chunk / np.maximum(fresh, 1.0), np.floor(fresh / chunk)
        # With drafts a step yields several tokens: all times but these are of one token.
        yielded = of("tokens_per_step")
        stream_s = yielded * (of("stream_s") + of("routed_s")) / speed
        full_s = beside_s(stream_s, chunk_s)
        # Prompts that share a step hide its weights once: 1 + λ·(E[S] + D) of them, prompts taking half of the time.
        mean_s, rest_s = _mean(compute_s, lengths.prompt_weights), np.maximum(compute_s - full * chunk_s, 0.0)
        together = 1.0 + 0.5 * (1.0 + yielded * (self.fixed_s + self.routed_s) / np.maximum(mean_s, 1e-12))
        self.prefill_s = full * full_s + rest_s - (rest_s - beside_s(stream_s, rest_s)) / together
        self._full_chunk_s, self.steps = full_s / yielded, yielded * fresh / chunk
        self._prefill_s2 = self.prefill_s**2
        self._placed: dict[tuple[bytes, int, int], tuple[Ints, Floats]] = {}
        self.chunks = yielded * np.ceil(fresh / chunk)
        self.alone_s = self.prefill_s + self.chunks * self.fixed_s + self.overhead_s  # to the first token, when idle
        self._prompt, self._context = prompt, self._kept(prompt + self._halfway)
        self._alone_s, self._kv_s = of("sequence_s"), of("kv_s_per_token")
        self._speed, self._reserved = speed, of("reserved_output_fraction")
        self._kv_tokens, self._max_sequences = of("kv_capacity_tokens"), of("max_sequences")
        self._weigh(lengths.prompt_weights)

    def _weigh(self, weights: Floats) -> None:
        """Compute the figures that depend on the weights of prompt lengths."""
        self.prompt_weights = weights
        self.mean_steps = _mean(self.steps, weights)
        self._tokens_up_to = np.cumsum(weights * self.steps, axis=-1)
        self.mean_prefill_s = _mean(self.prefill_s, weights)
        self.square_prefill_s2 = _mean(self._prefill_s2, weights)
        context = _mean(self._context, weights)
        read = np.minimum(context, self._attends) + self._indexed * context
        self.sequence_s = (self._alone_s + self._kv_s * read) / self._speed
        held = _mean(self._prompt, weights) + 2.0 * self._halfway * self._reserved
        held = held - self._windowed * np.maximum(held - self._window, 0.0)
        self.room = self._kv_tokens / held
        self.most_batch = np.minimum(self.room, self._max_sequences)

    def slow_chunks(self, room_s: Floats) -> Floats:
        """Return the share of prompt tokens in chunks that lengthen a step by more than some times, of their shape."""
        up_to = self._tokens_up_to
        return np.asarray(1.0 - np.interp(room_s, self._full_chunk_s, up_to, left=0.0) / max(float(up_to[-1]), 1e-300))

    def weighted(self, prompt_weights: Floats) -> ReplicaTimes:
        """Return the same replica with other weights for its prompt lengths."""
        other = copy.copy(self)
        other._weigh(prompt_weights)
        return other

    def placed(self, cell_s: Floats, most: int, size: int) -> tuple[Ints, Floats]:
        """Return the positions of prefill times on grids of ``size`` cells: cells below and above, and the offset.

        Cells of all grids are numbered on, first those below, then those above, shape (2 · grids · prompts,); the part
        has shape (grids, prompts). What takes more than ``most`` cells lies there. Worked out once, for the same grids:
        that hangs on no prompt's weight.
        """
        grids = cell_s.tobytes(), most, size
        if grids not in self._placed:
            place = np.minimum(self.prefill_s / cell_s[:, None], float(most))
            low = place.astype(np.intp)
            cells = (low + size * np.arange(cell_s.size)[:, None]).ravel()
            self._placed[grids] = np.concatenate([cells, cells + 1]), place - low
        return self._placed[grids]

    def _kept(self, tokens: Floats) -> Floats:
        """Return the tokens of a context that stay in the KV cache: windowed layers cache their window only."""
        return np.asarray(tokens - self._windowed * np.maximum(tokens - self._window, 0.0))

    def decode_s(self, batch: Floats) -> Floats:
        """Return the time of a decode step without prefill."""
        if not np.any(self.routed_s):  # a dense model has no experts to touch
            return np.asarray(self.fixed_s + self.sequence_s * batch)
        touched = -np.expm1(batch * self.log_missed)
        return np.asarray(self.fixed_s + self.routed_s * touched + self.sequence_s * batch)

    def tpot_s(self, batch: Floats) -> Floats:
        """Return the mean time per output token: a decode step and its share of the prefills beside it."""
        return np.asarray(self.decode_s(batch) + batch * self.mean_prefill_s / self.output)

    def requests_per_s(self, batch: Floats) -> Floats:
        """Return the request rate that sustains a batch: B / (E[output]·TPOT)."""
        return np.asarray(batch / (self.output * self.tpot_s(batch)))
