"""One replica as numbers: the work of a step at peak rates, its time under a calibration, and its operating points.

A replica is a model at a precision on a number of accelerators with an engine. Its decode step with B running
sequences is a sum of physical terms (docs/explanation/throughput.md derives them):

    t(B) = fixed + routed·(1 − (1 − k/E)^B) + B·(per sequence + per cached token · context)

and one request's prefill of I tokens takes ``per token · I + per token² · I²``. All of this is per replica, shape
(replicas,).

Operating points are per case: at a concurrency, at a latency objective, at saturation. With B sequences decoding, every
step also carries the prefill of the requests that replace finished ones, B/O a step, so the time per output token is
explicit in B and so is everything else:

    TPOT(B) = fixed + routed·(1 − (1 − k/E)^B) + B·(per sequence + cache·context + prefill/O)
    TTFT    = first + prefills ahead + steps·TPOT
    C       = B·(1 + TTFT / (O·TPOT))                                  (Little's law over one request)

A given concurrency is solved for B as a quadratic (the experts' term by its tangent, five times); an objective by
bracketing B.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from planner.arrays import Bools, FloatLike, Floats, Ints
from planner.physics import coefficients
from planner.physics import model_on_part as on_part
from planner.physics.coefficients import Calibration, Evidence, Groups, Uncertainty
from planner.records import record

ACTIVATION_BYTES = 2.0
"""Bytes of one all-reduced activation: they travel at 16 bits."""
FEWEST_VISITS = 4
"""The fixed cost of a mixture's layer follows the experts a token visits; no rows have fewer than four."""
DISPATCH_BYTES = 3.0
"""Bytes of one activation to its experts, at 8 bits, and back, at 16 (DeepEP, DeepSeek-V3 report, section 3.2.2)."""


@record
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
        wide = (
            self.accelerators,
            self.attention_data_parallel,
            self.chunk_tokens,
            self.drafted_tokens,
        )
        return self.engine, self.precision, *wide

    def memory(self) -> on_part.MemoryFit:
        """Return the memory layout of the model on this replica."""
        groups = self.attention_data_parallel
        degrees = (self.accelerators, groups, self.chunk_tokens)
        return on_part.memory_fit(self.part, self.shape, self.precision, *degrees)

    def groups(self, kind: str) -> Groups:
        """Return the measurement groups of this replica; ``kind`` is serving or saturated."""
        has_experts = self.shape.experts > 0
        experts = " experts whole" if self.expert_parallel and has_experts else ""
        layout = f"{self.accelerators} in {self.attention_data_parallel}{experts}"
        attention = "latent attention" if self.shape.is_latent else "stored keys"
        formats = self.part.formats
        packs = any(formats[name].packed for name in self.part.dense_flops_per_s)
        arithmetic = "with four-bit arithmetic" if packs else "without four-bit arithmetic"
        generation = f"{self.precision} on parts {arithmetic}"
        # Only mixtures of experts are pooled by traits.
        traits: tuple[str, ...] = ()
        if has_experts:
            traits = (self.precision, attention, generation, self.engine)
        names = (self.shape.measured_as, self.part.name, self.engine, self.precision)
        return coefficients.groups_of(*names, kind, layout, self.part.vendor, traits)

    @property
    def is_unlike(self) -> bool:
        """Whether attention is sparse or tokens are drafted: of neither is a row in the fit."""
        return self.shape.index_heads > 0 or self.drafted_tokens > 0

    def uncertainty(
        self, calibration: Calibration, kind: str = coefficients.SERVING
    ) -> Uncertainty | None:
        """Return the uncertainty of this replica's prediction, or None where the calibration states no spread."""
        begins_at, _ = self.part.bring_up.get(self.engine, (1.0, 0.0))
        groups = self.groups(kind)
        mixture = self.shape.experts > 0
        vendor = self.part.vendor
        return calibration.uncertainty(groups, mixture, vendor, begins_at, self.is_unlike)

    def evidence(
        self, calibration: Calibration, kind: str = coefficients.SERVING
    ) -> Evidence | None:
        """Return what measurements say of this replica's throughput; None where the calibration has no spread."""
        uncertainty = self.uncertainty(calibration, kind)
        if uncertainty is None:
            return None
        groups = self.groups(kind)
        grade, rows = calibration.grade(groups, self.is_unlike)
        log_effect = float(calibration.log_effects([groups])[0])
        return Evidence(grade=grade, rows=rows, log_gain=-log_effect, uncertainty=uncertainty)


ReplicaWork = Mapping[str, Floats]
"""The work of replicas at peak rates, before any coefficient, by name as :func:`describe` has it, shape (replicas,)."""
Replicas = Mapping[str, Floats]
"""Replicas timed by a calibration: seconds per step and token, by name as :func:`price` has it; shape (replicas,)."""


def all_reduce_hops(part: on_part.AcceleratorSpec, accelerators: int) -> float:
    """Return the latency hops of one all-reduce: log₂ n through a switch, n − 1 along direct links."""
    if accelerators == 1:
        return 0.0
    if part.switched:
        return float(np.log2(accelerators))
    return float(accelerators - 1)


def port_bytes_per_s(part: on_part.AcceleratorSpec, accelerators: int) -> float:
    """Return the bandwidth of one accelerator to the others of its replica.

    Through a switch that is the whole port. Along direct links only those to the replica's members carry anything: of
    the seven links of an MI300X, two accelerators use one, four use three.
    """
    # A mesh has a link from each accelerator to every other.
    links = part.scaleup_accelerators - 1
    if part.switched or links < 1:
        return part.link_bytes_per_s
    # At least one link, also of an accelerator alone.
    used_links = min(max(accelerators - 1, 1), links)
    return part.link_bytes_per_s * used_links / links


def describe(specs: Sequence[ReplicaSpec]) -> ReplicaWork:
    """Compute the work of each replica; it takes microseconds each, so do it once per distinct replica."""
    columns = [_describe_one(spec) for spec in specs]
    return {
        name: np.array([replica[name] for replica in columns], dtype=float) for name in columns[0]
    }


def _describe_one(spec: ReplicaSpec) -> dict[str, float | bool]:
    """Return the work of one replica by name."""
    part = spec.part
    shape = spec.shape
    precision = spec.precision
    count = spec.accelerators
    bandwidth = part.hbm_bytes_per_s
    formats = part.formats
    query_width = shape.qk_nope_head_dim + shape.qk_rope_head_dim
    latent_width = (query_width + shape.v_head_dim) / 2
    head_width = latent_width if shape.is_latent else shape.head_dim
    groups = spec.attention_data_parallel
    group = count // groups
    # Two all-reduces a layer, after attention and after the feed-forward (Megatron-LM, arXiv 1909.08053, section 3),
    # each of 2·(n − 1)/n of the tensor. With attention in d groups the first stays inside a group and carries a d-th of
    # the tokens; the second becomes a dispatch of each token to its k experts and back, a n-th of the tokens a port.
    reduced = 2 * shape.layers * shape.hidden_size * ACTIVATION_BYTES
    after_attention = reduced * (group - 1) / group / groups
    after_feed_forward = reduced * (count - 1) / count
    if groups > 1 and shape.experts:
        visited = min(shape.experts_per_token, count)
        after_feed_forward = (
            shape.layers
            * visited
            * shape.hidden_size
            * DISPATCH_BYTES
            * (count - 1)
            / count
            / count
        )
    reserved = spec.reserved_output_fraction
    if reserved is None:
        habit = coefficients.DEFAULT_RESERVED_OUTPUT_FRACTION
        reserved = coefficients.KV_RESERVED_OUTPUT_FRACTION.get(spec.engine, habit)
    # A dense model has no experts to miss.
    missed = 1.0
    if shape.experts:
        missed = 1.0 - shape.experts_per_token / shape.experts
    # An indexer is whole on every rank.
    parameters = shape.active_parameters + shape.index_parameters * group
    shared_bytes = on_part.streamed_shared_bytes(formats, shape, precision, groups)
    expert_bytes = on_part.routed_weight_bytes(formats, shape, precision)
    flops_per_s = count * on_part.compute_flops_per_s(part, shape, precision)
    kv_bytes = shape.kv_bytes_per_token(formats[precision].cache_stream_bytes)
    kv_ranks = on_part.kv_shards(shape, group) * groups
    activations = on_part.format_with(formats, "activations")
    attention_flops = 4 * shape.heads * head_width * shape.layers
    visited_experts = shape.experts_per_token + shape.shared_experts
    arithmetic = on_part.arithmetic(part, shape, precision)
    fit = spec.memory()
    token_bytes = shape.kv_bytes_per_token(formats[precision].cache_bytes)
    token_bytes *= 1.0 + shape.index_fraction
    host_bytes = 0.0
    host_copy_s = 0.0
    if part.host_link_bytes_per_s:
        host_bytes = part.host_bytes * count / part.accelerators_per_node
        host_copy_s = fit.kv_bytes_per_token / (count * part.host_link_bytes_per_s)
    hops = all_reduce_hops(part, group) + all_reduce_hops(part, count)
    return {
        "accelerators": count,
        "attention_groups": groups,  # each of which schedules and samples its own sequences
        "shared_stream_s": shared_bytes / (count * bandwidth),
        "routed_stream_s": shape.routed_parameters * expert_bytes / (count * bandwidth),
        # With B tokens an expert stays untouched with probability (1 − k/E)^B.
        "log_expert_missed": float(np.log(max(missed, 1e-12))),
        "flops_s_per_token": 2 * parameters / flops_per_s,
        "link_s_per_token": (after_attention + after_feed_forward) / port_bytes_per_s(part, count),
        "kv_stream_s_per_token": kv_bytes / (kv_ranks * bandwidth),
        "attention_s_per_token2": attention_flops / (count * part.dense_flops_per_s[activations]),
        "dense_layers": shape.layers - shape.moe_layers,
        # Experts, routed and shared, that a token visits in all layers together.
        "expert_visits": shape.moe_layers * max(visited_experts, FEWEST_VISITS),
        "latent_layers": shape.layers if shape.is_latent else 0,
        "normed_layers": shape.layers if shape.qk_norm else 0,
        "sparse_layers": shape.layers if shape.index_heads else 0,
        "hops": shape.layers * hops,
        "window_tokens": shape.sliding_window_tokens,
        "windowed_fraction": shape.sliding_layers_fraction if shape.sliding_window_tokens else 0.0,
        "attended_tokens": shape.attended_tokens or np.inf,
        # What an indexer reads of every cached token to choose those attended to, over what attention reads of one.
        "index_fraction": shape.index_fraction,
        "kv_capacity_tokens": fit.kv_capacity_tokens,
        # States are split over all accelerators, also where keys and values are copied.
        "state_tokens": shape.request_state_bytes / fit.kv_bytes_per_token,
        # The memory of the server holds each token once, and each accelerator copies its part.
        "host_tokens": host_bytes / token_bytes,
        "host_copy_s_per_token": host_copy_s,
        "max_context_tokens": shape.max_context_tokens,
        "max_sequences": groups * (spec.max_sequences or coefficients.MAX_SEQUENCES),
        "chunk_tokens": spec.chunk_tokens,
        "reserved_output_fraction": reserved,
        "drafted_tokens": spec.drafted_tokens,
        "mean_acceptance_length": spec.mean_acceptance_length,
        "is_fp4": formats[precision].packed,
        "is_fp4_compute": formats[arithmetic].packed,
        "is_emulated": formats[precision].packed and not part.has_precision(precision),
        "is_moe": shape.experts > 0,
        "is_latent": shape.is_latent,
        "is_expert_parallel": spec.expert_parallel and shape.experts > 0,
    }  # fmt: skip


_UNPRICED = (
    "accelerators",
    "attention_groups",
    "host_tokens",
    "host_copy_s_per_token",
    "window_tokens",
    "windowed_fraction",
    "attended_tokens",
    "index_fraction",
    "kv_capacity_tokens",
    "state_tokens",
    "max_sequences",
    "chunk_tokens",
    "reserved_output_fraction",
)
"""Figures of a replica that are no times, and so take no coefficient."""
_TTFT_COUNTS = ("ttft_prefill", "ttft_burst", "ttft_burst_steps", "ttft_arrival_steps")
"""Coefficients of the first token, which the effects of a replica's groups do not lengthen."""


def price(
    work: ReplicaWork, coefficient: Mapping[str, Floats], log_effect: FloatLike = 0.0
) -> Replicas:
    """Multiply work by coefficients (each of shape (replicas,)) and return the times in seconds.

    ``log_effect`` is what the measurements of a replica's groups show beyond the formula: a factor on every second
    but those before the first token.
    """
    # Time per token of measured replicas over the formula's.
    factor = np.exp(np.asarray(log_effect, dtype=float))
    unit = np.ones(1)
    # A part without FP4 unpacks the weights of each expert that it visits: their stream is longer, and so is the visit.
    unpacking = np.where(work["is_emulated"], coefficient["emulated_fp4"], unit)
    is_fp4 = work["is_fp4"]
    fp4_weight = np.where(is_fp4, coefficient["fp4_weight"], unit)
    weight_stream = coefficient["weight_stream"] * fp4_weight
    fp4_expert = coefficient["fp4_expert"] * unpacking
    expert_stream = np.where(is_fp4, fp4_expert, coefficient["expert_stream"])
    imbalance = np.where(work["is_expert_parallel"], coefficient["expert_imbalance"], unit)
    expert_stream = expert_stream * imbalance
    fp4_compute = np.where(work["is_fp4_compute"], coefficient["fp4_compute"], unit)
    moe_compute = np.where(work["is_moe"], coefficient["moe_compute"], unit)
    compute = coefficient["compute"] * fp4_compute
    compute = compute * moe_compute
    token_s = factor * (
        compute * work["flops_s_per_token"] + coefficient["link"] * work["link_s_per_token"]
    )
    stream_s = factor * weight_stream * work["shared_stream_s"]
    fixed_s = stream_s + factor * (
        coefficient["step_s"]
        + coefficient["layer_s"] * work["dense_layers"]
        + coefficient["visit_s"] * unpacking * work["expert_visits"]
        + coefficient["latent_layer_s"] * work["latent_layers"]
        + coefficient["normed_layer_s"] * work["normed_layers"]
        + coefficient["sparse_layer_s"] * work["sparse_layers"]
        + coefficient["hop_s"] * work["hops"]
    )
    latent_kv = np.where(work["is_latent"], coefficient["latent_kv"], unit)
    kv_stream = factor * coefficient["kv_stream"] * latent_kv
    # A speculative step checks the draft's tokens beside the certain one and yields the accepted ones: weights and
    # stored keys are read once for all of them; experts, arithmetic and sampling are paid for each, and so is latent
    # attention, which 128 heads on one vector already bind by arithmetic. The draft adds a share of the fixed cost.
    drafted = work["drafted_tokens"]
    checked = 1.0 + drafted
    yielded = work["mean_acceptance_length"]
    draft = 1.0 + coefficient["draft"] * drafted
    verified = 1.0 + coefficient["verify"] * drafted
    verified_kv = np.where(work["is_latent"], verified, unit)
    # Each attention group schedules and samples its own sequences.
    request_s = factor * coefficient["request_s"] / work["attention_groups"]
    kv_s_per_token = kv_stream * work["kv_stream_s_per_token"]
    attention = factor * coefficient["attention_compute"]
    return {
        **{name: work[name] for name in _UNPRICED},
        "fixed_s": fixed_s * draft / yielded,
        # Of the fixed time, what the weights that every step reads take: the arithmetic of prompts hides it.
        "stream_s": stream_s / yielded,
        # More than one with drafts, and then all times of steps are of one token.
        "tokens_per_step": yielded,
        "routed_s": factor * expert_stream * work["routed_stream_s"] / yielded,
        "log_expert_missed": work["log_expert_missed"] * checked,
        "sequence_s": (token_s + request_s) * verified / yielded,
        "kv_s_per_token": kv_s_per_token * verified_kv / yielded,
        "prefill_s_per_token": token_s,
        "attention_s_per_token2": attention * work["attention_s_per_token2"],
        # Prompt and output together that the model attends to and the cache holds: no request is longer.
        "longest_tokens": np.minimum(work["max_context_tokens"], work["kv_capacity_tokens"]),
        "ttft_fixed_s": coefficient["ttft_fixed_s"],
        **{name: coefficient[name] / factor for name in _TTFT_COUNTS},
    }


def price_replicas(
    specs: Sequence[ReplicaSpec], calibration: Calibration, kinds: Sequence[str] = ()
) -> Replicas:
    """Return the times of replicas under their engine's and vendor's coefficients and their groups' effects.

    ``kinds`` says of each replica whether it serves or is saturated; all serve by default.
    """
    return price_work(describe(specs), specs, calibration, kinds)


def price_work(
    work: ReplicaWork,
    specs: Sequence[ReplicaSpec],
    calibration: Calibration,
    kinds: Sequence[str] = (),
) -> Replicas:
    """Return the times of replicas whose work is computed already, as :func:`price_replicas` does."""
    engines = [spec.engine for spec in specs]
    vendors = [spec.part.vendor for spec in specs]
    coefficient = calibration.coefficients(engines, vendors)
    kinds = kinds or [coefficients.SERVING] * len(specs)
    groups = [spec.groups(kind) for spec, kind in zip(specs, kinds, strict=True)]
    return price(work, coefficient, calibration.log_effects(groups))


_STEP_TIMES = (
    "fixed_s",
    "stream_s",
    "routed_s",
    "sequence_s",
    "kv_s_per_token",
    "prefill_s_per_token",
    "attention_s_per_token2",
)
"""Times of a step: those that a faster stack shortens."""


def at_speed(replicas: Replicas, speed: FloatLike) -> Replicas:
    """Return replicas whose steps run at ``speed`` times their speed, one for all or one each."""
    faster = {name: replicas[name] / speed for name in _STEP_TIMES}
    return {**replicas, **faster}


def beside_s(stream_s: FloatLike, compute_s: FloatLike) -> Floats:
    """Return by how much prompts lengthen a step: their arithmetic overlaps with the stream of the weights.

    (stream⁴ + compute⁴)^¼ − stream, held to mixed steps measured on an H200 (docs/explanation/throughput.md). What
    sequences add to a step, their arithmetic and their cache, comes on top as in a step without prompts.
    """
    stream = np.asarray(stream_s, dtype=float)
    compute = np.asarray(compute_s, dtype=float)
    # The fourth root as the root of a hypotenuse of squares: quicker than powers.
    squares = np.hypot(stream * stream, compute * compute)
    overlapped = np.sqrt(squares)
    return np.asarray(overlapped - stream)


@record
class Lengths:
    """Distributions of prompt and output lengths, independent of each other: lengths, and weights that sum to 1."""

    prompt_tokens: Floats
    prompt_weights: Floats
    output_tokens: Floats
    output_weights: Floats
    cached_fraction: FloatLike
    """Share of every prompt found in the prefix cache, or that of each, shape (prompts,)."""
    host_fraction: FloatLike = 0.0
    """Share of prompts copied from the memory of the server: part of what is cached."""


@record
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
    if mean.ndim:
        return mean[:, None]
    return float(mean)


class ReplicaTimes:
    """One replica's step and prefill times for one workload's lengths; arrays of shape (prompts,).

    Of several replicas, arrays have a row for each, and what is a number of one is a column.
    """

    def __init__(
        self, replicas: Replicas, index: int | Ints, speed: float, lengths: Lengths
    ) -> None:
        """Compute the times of replicas that run at ``speed`` times the formula's speed."""

        def figure(name: str) -> Any:
            figures = replicas[name][index]
            if figures.ndim:
                return figures[:, None]
            return float(figures)

        self.lengths = lengths
        self.fixed_s = figure("fixed_s") / speed
        self.routed_s = figure("routed_s") / speed
        self.log_missed = figure("log_expert_missed")
        # A dense model has no experts to touch.
        self._has_experts = bool(np.any(self.routed_s))
        self.output_tokens = lengths.output_tokens
        self.output_weights = lengths.output_weights
        self.output = float(self.output_weights @ self.output_tokens)
        # A token is seen halfway through its reply, and long replies have more tokens: E[o²] / E[o] / 2.
        square_output = float(self.output_weights @ self.output_tokens**2)
        self._halfway = square_output / self.output / 2.0
        self._window = figure("window_tokens")
        self._windowed = figure("windowed_fraction")
        self._attends = figure("attended_tokens")
        self._indexed = figure("index_fraction")
        # Distributions have tails that no model attends to: what is longer is cut, as requests are.
        longest = np.maximum(figure("longest_tokens") - self.output, 1.0)
        prompt = np.minimum(lengths.prompt_tokens, longest)
        cached = np.floor(prompt * lengths.cached_fraction)
        halfway_context = self._kept(0.5 * prompt)
        attended = self._read(halfway_context)
        fresh = prompt - cached
        self.overhead_s = figure("ttft_fixed_s")
        if np.any(lengths.host_fraction):
            # Nothing of a prompt is computed before what is copied of it is there.
            copied = prompt * lengths.host_fraction
            self.overhead_s = self.overhead_s + figure("host_copy_s_per_token") * copied
        chunk = figure("chunk_tokens")
        compute_s = figure("prefill_s_per_token") * fresh
        attention_s = figure("attention_s_per_token2") * attended / prompt
        compute_s += attention_s * (prompt**2 - cached**2)
        compute_s /= speed
        chunk_s = compute_s * chunk / np.maximum(fresh, 1.0)
        full = np.floor(fresh / chunk)
        # With drafts a step yields several tokens: all times but these are of one token.
        yielded = figure("tokens_per_step")
        weights_s = figure("stream_s") + figure("routed_s")
        stream_s = yielded * weights_s / speed
        full_s = beside_s(stream_s, chunk_s)
        # Prompts that share a step hide its weights once: 1 + λ·(E[S] + D) of them, prompts taking half of the time.
        mean_s = _mean(compute_s, lengths.prompt_weights)
        mean_s = np.maximum(mean_s, 1e-12)
        rest_s = np.maximum(compute_s - full * chunk_s, 0.0)
        step_s = yielded * (self.fixed_s + self.routed_s)
        sharing_prompts = 1.0 + 0.5 * (1.0 + step_s / mean_s)
        hidden_s = (rest_s - beside_s(stream_s, rest_s)) / sharing_prompts
        self.prefill_s = full * full_s + rest_s - hidden_s
        self._full_chunk_s = full_s / yielded
        # Prompts rise in length, and with it the time of a full chunk, but where not the same is found of all.
        self._by_chunk: Ints | slice = slice(None)
        if np.ndim(lengths.cached_fraction) == 1:
            self._by_chunk = np.argsort(self._full_chunk_s, kind="stable")
        self.steps = yielded * fresh / chunk
        self._prefill_s2 = self.prefill_s**2
        self._placed: dict[tuple[bytes, int, int], tuple[Ints, Floats]] = {}
        self.chunks = yielded * np.ceil(fresh / chunk)
        # To the first token, on an idle replica.
        self.alone_s = self.prefill_s + self.chunks * self.fixed_s + self.overhead_s
        self._prompt = prompt
        self._context = self._kept(prompt + self._halfway)
        self._alone_s = figure("sequence_s")
        self._kv_s = figure("kv_s_per_token")
        self._speed = speed
        self._reserved = figure("reserved_output_fraction")
        self._kv_tokens = figure("kv_capacity_tokens")
        self._max_sequences = figure("max_sequences")
        self._weigh(lengths.prompt_weights)

    def _weigh(self, weights: Floats) -> None:
        """Compute the figures that depend on the weights of prompt lengths."""
        self.prompt_weights = weights
        self.mean_steps = _mean(self.steps, weights)
        self._tokens_up_to = np.cumsum((weights * self.steps)[..., self._by_chunk], axis=-1)
        self.mean_prefill_s = _mean(self.prefill_s, weights)
        self.square_prefill_s2 = _mean(self._prefill_s2, weights)
        context = _mean(self._context, weights)
        context_s = self._kv_s * self._read(context)
        self.sequence_s = (self._alone_s + context_s) / self._speed
        # Twice the middle of a reply is its end, of which the engine holds a share from the start.
        reserved_tokens = 2.0 * self._halfway * self._reserved
        prompt_tokens = _mean(self._prompt, weights)
        cache_tokens = self._kept(prompt_tokens + reserved_tokens)
        self.mean_prompt_tokens = prompt_tokens
        self.kept_fraction = self._kept(prompt_tokens) / prompt_tokens
        self.room = self._kv_tokens / cache_tokens
        self.most_batch = np.minimum(self.room, self._max_sequences)

    def slow_chunks(self, room_s: Floats) -> Floats:
        """Return the share of prompt tokens in chunks that lengthen a step by more than some times, of their shape."""
        tokens = self._tokens_up_to
        quick = np.interp(room_s, self._full_chunk_s[self._by_chunk], tokens, left=0.0)
        # A workload whose prompts are all cached computes no tokens: the quotient is then 0 / 1e-300.
        all_tokens = max(float(tokens[-1]), 1e-300)
        return np.asarray(1.0 - quick / all_tokens)

    def weighted(self, prompt_weights: Floats) -> ReplicaTimes:
        """Return the same replica with other weights for its prompt lengths."""
        reweighted = copy.copy(self)
        reweighted._weigh(prompt_weights)
        return reweighted

    def placed(self, cell_s: Floats, most_cells: int, size: int) -> tuple[Ints, Floats]:
        """Return the positions of prefill times on grids of ``size`` cells: cells below and above, and the offset.

        Cells of all grids are numbered on, first those below, then those above, shape (2 · grids · prompts,); the part
        has shape (grids, prompts). What takes more than ``most`` cells lies there. Worked out once, for the same grids:
        that hangs on no prompt's weight.
        """
        # By value: the same objectives come back for every share refused.
        grids = cell_s.tobytes(), most_cells, size
        if grids not in self._placed:
            place = self.prefill_s / cell_s[:, None]
            np.minimum(place, float(most_cells), out=place)
            low = place.astype(np.intp)
            begins = size * np.arange(cell_s.size)[:, None]
            cells = (low + begins).ravel()
            both_cells = np.concatenate([cells, cells + 1])
            self._placed[grids] = both_cells, place - low
        return self._placed[grids]

    def _kept(self, tokens: Floats) -> Floats:
        """Return the tokens of a context that stay in the KV cache: windowed layers cache their window only."""
        outside = np.maximum(tokens - self._window, 0.0)
        return np.asarray(tokens - self._windowed * outside)

    def _read(self, context: Floats) -> Floats:
        """Return the tokens read of a context: those attended to, and an indexer's share of each."""
        attended = np.minimum(context, self._attends)
        return np.asarray(attended + self._indexed * context)

    def decode_s(self, batch: Floats) -> Floats:
        """Return the time of a decode step without prefill."""
        if not self._has_experts:
            return np.asarray(self.fixed_s + self.sequence_s * batch)
        touched = -np.expm1(batch * self.log_missed)
        weights_s = self.fixed_s + self.routed_s * touched
        return np.asarray(weights_s + self.sequence_s * batch)

    def tpot_s(self, batch: Floats) -> Floats:
        """Return the mean time per output token: a decode step and its share of the prefills beside it."""
        prefill_s = batch * self.mean_prefill_s / self.output
        return np.asarray(self.decode_s(batch) + prefill_s)

    def requests_per_s(self, batch: Floats) -> Floats:
        """Return the request rate that sustains a batch: B / (E[output]·TPOT)."""
        reply_s = self.output * self.tpot_s(batch)
        return np.asarray(batch / reply_s)


TANGENT_STEPS = 5
"""Tangents of the experts' term by which a concurrency is solved."""
BRACKET_STEPS = 11
"""Steps of false position by which an objective is solved."""


@record
class Traffic:
    """Request lengths, cached share and burstiness; every field is a number or an array of shape (cases,)."""

    input_tokens: FloatLike
    """Mean prompt length, cached prefix included."""
    output_tokens: FloatLike
    cached_fraction: FloatLike = 0.0
    """Share of the prompt found in the prefix cache: no prefill, but it occupies memory and is read every step."""
    input_cv: FloatLike = 0.0
    """Coefficient of variation of prompt lengths; attention grows with the square."""
    output_cv: FloatLike = 0.0
    """Coefficient of variation of output lengths; a token sees the context of longer outputs more often."""
    burst_fraction: FloatLike = 0.0
    """1 for a benchmark client that starts its whole concurrency at once, 0 for independent arrivals."""


@record
class OperatingPoint:
    """Latencies and throughput of replicas, shape (cases,) each; infeasible cases have infinite latency, no tokens."""

    ttft_s: Floats
    tpot_s: Floats
    running_sequences: Floats
    """Sequences decoding at once."""
    concurrency: Floats
    """Requests in the replica: decoding, in prefill or waiting."""
    output_tokens_per_s_per_accelerator: Floats
    requests_per_s: Floats
    fits: Bools
    """Whether the model and one sequence fit in memory."""
    memory_limited: Bools
    """Whether requests wait for cache memory."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of the throughput formula by case, shape (cases,)."""

    output_tokens: Floats
    accelerators: Floats
    fixed_s: Floats
    routed_s: Floats
    log_missed: Floats
    sequence_s: Floats
    """Cost of one more running sequence, its share of prefill included."""
    prefill_s: Floats
    first_s: Floats
    ahead_s: Floats
    """Waiting for prefills ahead, per request in the replica."""
    queue_s: Floats
    """Mean residual prefill, (1 + cv²)/2 of one: what an arrival that finds the replica prefilling waits."""
    steps: Floats
    largest_batch: Floats
    fits: Bools

    def only(self, cases: Ints) -> _Terms:
        """Return the terms of some of the cases."""
        columns = (getattr(self, field.name) for field in fields(self))
        return _Terms(*(column.take(cases) for column in columns))

    def tpot_s(self, batch: Floats) -> Floats:
        """Return the time per output token with ``batch`` sequences decoding."""
        touched = -np.expm1(batch * self.log_missed)
        weights_s = self.fixed_s + self.routed_s * touched
        return weights_s + self.sequence_s * batch

    def at_batch(self, batch: Floats) -> tuple[Floats, Floats, Floats]:
        """Return TPOT, TTFT and concurrency with ``batch`` sequences decoding and none queued for memory."""
        tpot_s = self.tpot_s(batch)
        decode_s = self.output_tokens * tpot_s
        step_wait_s = self.steps * tpot_s
        queue_s = self.waited_s(batch, decode_s)
        base_s = self.first_s + step_wait_s + queue_s
        # Prefills ahead of a request grow with the concurrency that they make: solved for it, short of saturation.
        queue_share = np.minimum(self.ahead_s * batch / decode_s, 0.99)
        concurrency = batch * (1.0 + base_s / decode_s) / (1.0 - queue_share)
        ttft_s = base_s + self.ahead_s * concurrency
        return tpot_s, ttft_s, concurrency

    def waited_s(self, batch: Floats, decode_s: Floats) -> Floats:
        """Return the wait for prefills under way (Pollaczek–Khinchine at the share of time spent in prefill)."""
        share = np.minimum(batch * self.prefill_s / decode_s, 0.95)
        waited: Floats = self.queue_s * share / (1.0 - share)
        return waited


def at_concurrency(
    replicas: Replicas, replica: Ints, traffic: Traffic, concurrency: FloatLike
) -> OperatingPoint:
    """Return the operating points at a fixed concurrency (closed loop); ``replica`` selects replicas by index."""
    return _solved(replicas, replica, traffic, _solve_concurrency, concurrency)


def at_objective(
    replicas: Replicas, replica: Ints, traffic: Traffic, ttft_s: FloatLike, tpot_s: FloatLike
) -> OperatingPoint:
    """Return the largest load at which mean TTFT and TPOT meet their objectives (infinity: no objective)."""
    return _solved(replicas, replica, traffic, _solve_objective, ttft_s, tpot_s)


def lone_step_s(replicas: Replicas, traffic: Traffic) -> Floats:
    """Return the decode step of each replica with a single sequence whose prompt is in its cache."""
    index = np.arange(replicas["accelerators"].size)
    decode_traffic = replace(traffic, cached_fraction=1.0)
    lone: Floats = at_concurrency(replicas, index, decode_traffic, 1.0).tpot_s
    return lone


def disaggregated(
    replicas: Replicas,
    traffic: Traffic,
    objectives_s: tuple[float, float],
    transfer_s: Floats,
    handover_s: float,
) -> tuple[Floats, OperatingPoint]:
    """Return the requests each replica prefills a second within the TTFT objective, and its point as a decode worker.

    A prefill worker is a queue with one server: at the share ρ of time it works, an arrival waits (1 + cv²)/2·ρ/(1 − ρ)
    prefills (Pollaczek–Khinchine), so the objective leaves room for ρ = s/(s + (1 + cv²)/2·prefill), s being what is
    left of it after the prefill, the cache's transfer and the handover. A decode worker prefills nothing. The objective
    on the time per token binds the decode worker alone: a looser one leaves first tokens as they were.
    """
    ttft_s, tpot_s = objectives_s
    index = np.arange(replicas["accelerators"].size)
    terms = _terms(replicas, index, traffic)
    decode_traffic = replace(traffic, cached_fraction=1.0)
    decode = at_objective(replicas, index, decode_traffic, np.inf, tpot_s)
    slack_s = ttft_s - terms.first_s - transfer_s - handover_s
    slack_s = np.maximum(slack_s, 0.0)
    busy = slack_s / (slack_s + terms.queue_s)
    rate = np.minimum(busy, 0.95) / terms.prefill_s
    requests_per_s = np.where(decode.fits, rate, 0.0)
    return requests_per_s, decode


# First token behind a prefill pool, fitted to 380 public runs on NVIDIA that state their workers: half of them are met
# within 55%, and of 149 on AMD within 49%. Idle prompts of 1,024 tokens take 0.11 to 0.32 s there. Its steps are those
# of a lone sequence: they do not grow with an objective.
HANDOVER_S = 0.222
"""Fixed time to the first token: router, transfer of the cache, second scheduler."""
OWN_PREFILL_FRACTION = 1.21
"""Of a prompt's own prefill time, what its first token waits for."""
HANDOVER_STEPS = 1.0
"""Decode steps of a lone sequence that a first token waits for."""
BURST_FRACTION = 0.141
"""Of a round's prefills, those ahead of a request as clients start together."""
FILL_BLUR = 0.155
"""How gradually the pool fills up, over a round of prefills: 0 would be a sharp bend where it no longer keeps up."""


def handover_s(lone_s: FloatLike) -> Floats:
    """Return the time from a prompt's prefill to its first token, by the decode workers' step of a lone sequence."""
    return np.asarray(HANDOVER_S + HANDOVER_STEPS * np.asarray(lone_s))


def disaggregated_ttft_s(
    replicas: Replicas,
    replica: Ints,
    traffic: Traffic,
    tpot_s: Floats,
    per_prefill_accelerator: Floats,
    busy: Floats,
) -> Floats:
    """Return the mean TTFT of closed-loop clients with a separate prefill pool, shape (cases,).

    The pool takes R = C·prefill/W for one request of each of C clients. It keeps up where R is below the O·TPOT that
    they decode meanwhile; beyond, a client waits for what is left of a round, R − O·TPOT. The pool is given by C over
    its accelerators, and by the share of time for which it works at most.
    """
    terms = _terms(replicas, replica, traffic)
    decode_s = terms.output_tokens * tpot_s
    lone_s = at_concurrency(replicas, replica, replace(traffic, cached_fraction=1.0), 1.0).tpot_s
    pool_s = terms.prefill_s * terms.accelerators * per_prefill_accelerator
    round_s = np.minimum(pool_s, busy * decode_s)
    late_s = round_s - decode_s
    blurred_s = np.hypot(late_s, FILL_BLUR * round_s)
    late_s = 0.5 * (late_s + blurred_s)
    first_s: Floats = (
        handover_s(lone_s)
        + OWN_PREFILL_FRACTION * terms.prefill_s
        + BURST_FRACTION * round_s
        + late_s
    )
    return first_s


def at_saturation(replicas: Replicas, replica: Ints, traffic: Traffic) -> OperatingPoint:
    """Return the operating points at saturation (offline): the largest batch that memory or the engine allows."""
    return _solved(replicas, replica, traffic, _solve_saturation)


_Solution: TypeAlias = "tuple[Floats, Floats, Floats, Floats]"
"""Batch, TPOT, TTFT and concurrency, each of shape (cases,)."""


def _solve_concurrency(terms: _Terms, concurrency: Floats) -> _Solution:
    """Return batch, TPOT, TTFT and concurrency at a fixed concurrency (closed loop).

    Little's law with TPOT = s₀ + s₁·B is D·s₁·B² + (D·s₀ + G − C·s₁)·B − C·s₀ = 0, D = 1 + steps/O and G the rest of
    TTFT over O. What exceeds the largest batch waits for memory: C/B_max cycles fill one.
    """
    output = terms.output_tokens
    # Coefficients of the quadratic in B.
    one_and_steps = 1.0 + terms.steps / output
    first_s = terms.first_s + terms.ahead_s * concurrency
    guess_s = queue_s = np.zeros_like(first_s)
    # No more than half the others' prefills can lie ahead.
    most_queue_s = concurrency * terms.queue_s
    batch = np.minimum(concurrency, terms.largest_batch)
    previous: tuple[Floats, Floats] | None = None
    for _ in range(TANGENT_STEPS):
        first_share_s = (first_s + guess_s) / output
        missed = np.exp(batch * terms.log_missed)
        routed_slope = terms.routed_s * terms.log_missed * missed
        slope = terms.sequence_s - routed_slope
        routed_s = terms.routed_s * (1.0 - missed)
        start = terms.fixed_s + routed_s + (terms.sequence_s - slope) * batch
        linear = one_and_steps * start + first_share_s - concurrency * slope
        half_linear = 0.5 * linear
        square = one_and_steps * slope
        discriminant = half_linear * half_linear + square * concurrency * start
        batch = (np.sqrt(discriminant) - half_linear) / square
        decode_s = output * (start + slope * batch)
        waited_s = terms.waited_s(batch, decode_s)
        queue_s = np.minimum(waited_s, most_queue_s)
        # A longer wait makes a smaller batch, which waits less: putting the result in as the next guess swings around
        # the answer, and halves the miss at best. So it is the secant through this guess and the one before.
        miss_s = queue_s - guess_s
        following_s = queue_s
        if previous is not None:
            previous_guess_s, previous_miss_s = previous
            change_s = miss_s - previous_miss_s
            # A miss that no longer moves has arrived: it takes no further step.
            step_s = np.zeros_like(change_s)
            moved_s = guess_s - previous_guess_s
            np.divide(moved_s, change_s, out=step_s, where=change_s != 0.0)
            following_s = np.maximum(guess_s - miss_s * step_s, 0.0)
        previous = (guess_s, miss_s)
        guess_s = following_s
    batch = np.minimum(batch, terms.largest_batch)
    tpot_s = terms.tpot_s(batch)
    decode_s = output * tpot_s
    ttft_s = first_s + queue_s + terms.steps * tpot_s
    # Little's law once more: what is not decoding waits for memory.
    waiting_s = concurrency / batch * decode_s - decode_s - ttft_s
    queued_ttft_s = ttft_s + np.maximum(waiting_s, 0.0)
    is_full = batch >= terms.largest_batch
    ttft_s = np.where(is_full, queued_ttft_s, ttft_s)
    return batch, tpot_s, ttft_s, concurrency


def _solve_objective(terms: _Terms, ttft_s: Floats, tpot_s: Floats) -> _Solution:
    """Return batch, TPOT, TTFT and concurrency of the largest feasible load; batch 0 where one sequence is too slow."""
    single = np.ones_like(terms.largest_batch)
    # The experts' term is never negative, so no batch beyond this meets TPOT: a bracket that a dense model ends at.
    bracket = (tpot_s - terms.fixed_s) / terms.sequence_s
    high = np.clip(bracket, 1.0, terms.largest_batch)
    excess_low = _excess(terms, single, ttft_s, tpot_s)
    excess_high = _excess(terms, high, ttft_s, tpot_s)
    feasible = excess_low <= 0.0
    batch = np.where(feasible, high, 0.0)
    open_cases = np.flatnonzero(feasible & (excess_high > 0.0))
    if open_cases.size:
        # The largest batch within the objectives, by false position that halves the retained end (Illinois).
        open_terms = terms.only(open_cases)
        objectives = (ttft_s[open_cases], tpot_s[open_cases])
        low = single[open_cases]
        high = high[open_cases]
        excess_low = excess_low[open_cases]
        excess_high = excess_high[open_cases]
        for step in range(BRACKET_STEPS):
            if step % 4 == 1:
                # The experts' term bends the curve: now and then halve the bracket's ratio instead.
                middle = np.sqrt(low * high)
            else:
                falls = np.minimum(excess_low - excess_high, -1e-12)
                middle = low + (high - low) * excess_low / falls
                middle = np.clip(middle, low, high)
            excess = _excess(open_terms, middle, *objectives)
            is_within = excess <= 0.0
            low = np.where(is_within, middle, low)
            high = np.where(is_within, high, middle)
            excess_low = np.where(is_within, excess, 0.5 * excess_low)
            excess_high = np.where(is_within, 0.5 * excess_high, excess)
        batch[open_cases] = low
    # Batch 0 has no times: those of one sequence say by how much it is too slow.
    running = np.maximum(batch, 1.0)
    reached_tpot_s, reached_ttft_s, concurrency = terms.at_batch(running)
    concurrency = np.where(feasible, concurrency, 0.0)
    return batch, reached_tpot_s, reached_ttft_s, concurrency


def _excess(terms: _Terms, batch: Floats, ttft_s: Floats, tpot_s: Floats) -> Floats:
    """Return by what fraction the worse of the two objectives is exceeded; negative where both are met."""
    reached_tpot_s, reached_ttft_s, _ = terms.at_batch(batch)
    tpot_ratio = reached_tpot_s / tpot_s
    ttft_ratio = reached_ttft_s / ttft_s
    excess: Floats = np.maximum(tpot_ratio, ttft_ratio) - 1.0
    return excess


def _solve_saturation(terms: _Terms) -> _Solution:
    """Return batch, TPOT, TTFT and concurrency at saturation, where the queue and the wait are endless."""
    batch = terms.largest_batch
    endless = np.full_like(batch, np.inf)
    return batch, terms.tpot_s(batch), endless, endless


def _terms(replicas: Replicas, replica: Ints, traffic: Traffic) -> _Terms:
    """Return the throughput formula's terms by case, gathered by replica."""

    def figure(name: str) -> Floats:
        return replicas[name].take(replica)

    lengths = (traffic.input_tokens, traffic.output_tokens)
    spreads = (traffic.input_cv, traffic.output_cv)
    columns = np.broadcast_arrays(
        replica, *lengths, *spreads, traffic.cached_fraction, traffic.burst_fraction
    )[1:]
    prompt, output, input_cv, output_cv, cached, burst = (
        np.asarray(column, dtype=float) for column in columns
    )
    # Means of squares over squares of means: attention grows with the square of a prompt, and long outputs are seen
    # more often.
    input_cv2 = 1.0 + input_cv**2
    output_cv2 = 1.0 + output_cv**2
    windowed = figure("windowed_fraction")
    window = figure("window_tokens")
    indexed = figure("index_fraction")

    def kept(context: Floats) -> Floats:
        outside = np.maximum(context - window, 0.0)
        tokens: Floats = context - windowed * outside
        return tokens

    def read(context: Floats) -> Floats:
        """Return the tokens read of a context: those attended to, and an indexer's share of each."""
        attended = np.minimum(context, figure("attended_tokens"))
        tokens: Floats = attended + indexed * context
        return tokens

    attended = read(kept(0.5 * prompt))
    prefill_s = figure("prefill_s_per_token") * prompt * (1.0 - cached)
    attention_s = figure("attention_s_per_token2") * prompt * attended
    prefill_s += attention_s * input_cv2 * (1.0 - cached * cached)
    half_output = 0.5 * output * output_cv2
    context = read(kept(prompt + half_output))
    reserved = output * figure("reserved_output_fraction") * output_cv2
    cache_tokens = kept(prompt + reserved)
    room = figure("kv_capacity_tokens") / cache_tokens
    context_s = figure("kv_s_per_token") * context
    burst_steps = figure("ttft_burst_steps") * burst
    arrival_steps = figure("ttft_arrival_steps") * (1.0 - burst)
    return _Terms(
        output,
        figure("accelerators"),
        figure("fixed_s"),
        figure("routed_s"),
        figure("log_expert_missed"),
        figure("sequence_s") + context_s + prefill_s / output,
        prefill_s,
        figure("ttft_fixed_s") + figure("ttft_prefill") * prefill_s,
        figure("ttft_burst") * burst * prefill_s * input_cv2,
        0.5 * prefill_s * input_cv2 * (1.0 - burst),
        burst_steps + arrival_steps,
        np.clip(room, 1.0, figure("max_sequences")),
        room >= 1.0,
    )


def _solved(
    replicas: Replicas,
    replica: Ints,
    traffic: Traffic,
    solve: Callable[..., _Solution],
    *targets: FloatLike,
) -> OperatingPoint:
    """Return the operating points of all cases, one for each replica selected, each at its own target or all at one."""
    # Cases that do not fit divide by zero on the way; they are overwritten below.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        terms = _terms(replicas, replica, traffic)
        target_columns = []
        for target in targets:
            column = np.asarray(target, dtype=float)
            target_columns.append(np.broadcast_to(column, replica.shape))
        batch, tpot_s, ttft_s, concurrency = solve(terms, *target_columns)
        # What does not fit serves nothing and answers never.
        served = np.where(terms.fits, batch, 0.0)
        rate = served / tpot_s
        return OperatingPoint(
            ttft_s=np.where(terms.fits, ttft_s, np.inf),
            tpot_s=np.where(terms.fits, tpot_s, np.inf),
            running_sequences=served,
            concurrency=concurrency,
            output_tokens_per_s_per_accelerator=rate / terms.accelerators,
            requests_per_s=rate / terms.output_tokens,
            fits=terms.fits,
            memory_limited=batch >= terms.largest_batch,
        )
