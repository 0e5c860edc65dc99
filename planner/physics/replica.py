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
        wide = (
            self.accelerators,
            self.attention_data_parallel,
            self.chunk_tokens,
            self.drafted_tokens,
        )
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
        generation = (
            f"{self.precision} on parts {'with' if packs else 'without'} four-bit arithmetic"
        )
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
        return calibration.doubt(
            self.groups(kind), mixture, self.part.vendor, begins_at, self.is_unlike
        )


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
    part = spec.part
    shape = spec.shape
    precision = spec.precision
    count = spec.accelerators
    bandwidth = part.hbm_bytes_per_s
    formats = part.formats
    latent_width = (shape.qk_nope_head_dim + shape.qk_rope_head_dim + shape.v_head_dim) / 2
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
    missed = 1.0 - shape.experts_per_token / shape.experts if shape.experts else 1.0
    parameters = (
        shape.active_parameters + shape.index_parameters * group
    )  # an indexer is whole on every rank
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


def price(
    work: ReplicaWork, coefficient: Mapping[str, Floats], log_effect: FloatLike = 0.0
) -> Replicas:
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
    checked = 1.0 + work["drafted_tokens"]
    yielded = work["mean_acceptance_length"]
    draft = 1.0 + c["draft"] * work["drafted_tokens"]
    verified = 1.0 + c["verify"] * work["drafted_tokens"]
    names = (
        "accelerators",
        "window_tokens",
        "windowed_fraction",
        "attended_tokens",
        "index_fraction",
    )
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
        "sequence_s": (token_s + factor * c["request_s"] / work["attention_groups"])
        * verified
        / yielded,
        "kv_s_per_token": kv_stream
        * work["kv_stream_s_per_token"]
        * np.where(work["is_latent"], verified, one)
        / yielded,
        "prefill_s_per_token": token_s,
        "attention_s_per_token2": factor * c["attention_compute"] * work["attention_s_per_token2"],
        # Prompt and output together that the model attends to and the cache holds: no request is longer.
        "longest_tokens": np.minimum(work["max_context_tokens"], work["kv_capacity_tokens"]),
        "ttft_fixed_s": c["ttft_fixed_s"],
        **{
            name: c[name] / factor
            for name in ("ttft_prefill", "ttft_burst", "ttft_burst_steps", "ttft_arrival_steps")
        },
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
    coefficient = calibration.coefficients(
        [spec.engine for spec in specs], [spec.part.vendor for spec in specs]
    )
    groups = [
        spec.groups(kind)
        for spec, kind in zip(specs, kinds or [coefficients.SERVING] * len(specs), strict=True)
    ]
    return price(work, coefficient, calibration.log_effects(groups))


def beside_s(stream_s: FloatLike, compute_s: FloatLike) -> Floats:
    """Return by how much prompts lengthen a step: their arithmetic overlaps with the stream of the weights.

    (stream⁴ + compute⁴)^¼ − stream, held to mixed steps measured on an H200 (docs/explanation/throughput.md). What
    sequences add to a step, their arithmetic and their cache, comes on top as in a step without prompts.
    """
    stream = np.asarray(stream_s, dtype=float)
    compute = np.asarray(compute_s, dtype=float)
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

    def __init__(
        self, replicas: Replicas, index: int | Ints, speed: float, lengths: Lengths
    ) -> None:
        """Compute the times of replicas that run at ``speed`` times the formula's speed."""

        def of(name: str) -> Any:
            figures = replicas[name][index]
            return figures[:, None] if figures.ndim else float(figures)

        self.lengths = lengths
        self.overhead_s = of("ttft_fixed_s")
        self.fixed_s, self.routed_s = of("fixed_s") / speed, of("routed_s") / speed
        self.log_missed = of("log_expert_missed")
        self.output_tokens = lengths.output_tokens
        self.output_weights = lengths.output_weights
        self.output = float(self.output_weights @ self.output_tokens)
        self._halfway = float(self.output_weights @ self.output_tokens**2) / self.output / 2.0
        self._window, self._windowed = of("window_tokens"), of("windowed_fraction")
        self._attends, self._indexed = of("attended_tokens"), of("index_fraction")
        # Distributions have tails that no model attends to: what is longer is cut, as requests are.
        prompt = np.minimum(
            lengths.prompt_tokens, np.maximum(of("longest_tokens") - self.output, 1.0)
        )
        cached = np.floor(prompt * lengths.cached_fraction)
        before = self._kept(0.5 * prompt)
        attended = np.minimum(before, self._attends) + self._indexed * before
        fresh = prompt - cached
        chunk = of("chunk_tokens")
        compute_s = of("prefill_s_per_token") * fresh
        compute_s += of("attention_s_per_token2") * attended / prompt * (prompt**2 - cached**2)
        compute_s /= speed
        chunk_s = compute_s * chunk / np.maximum(fresh, 1.0)
        full = np.floor(fresh / chunk)
        # With drafts a step yields several tokens: all times but these are of one token.
        yielded = of("tokens_per_step")
        stream_s = yielded * (of("stream_s") + of("routed_s")) / speed
        full_s = beside_s(stream_s, chunk_s)
        # Prompts that share a step hide its weights once: 1 + λ·(E[S] + D) of them, prompts taking half of the time.
        mean_s = _mean(compute_s, lengths.prompt_weights)
        rest_s = np.maximum(compute_s - full * chunk_s, 0.0)
        together = 1.0 + 0.5 * (
            1.0 + yielded * (self.fixed_s + self.routed_s) / np.maximum(mean_s, 1e-12)
        )
        self.prefill_s = full * full_s + rest_s - (rest_s - beside_s(stream_s, rest_s)) / together
        self._full_chunk_s = full_s / yielded
        self.steps = yielded * fresh / chunk
        self._prefill_s2 = self.prefill_s**2
        self._placed: dict[tuple[bytes, int, int], tuple[Ints, Floats]] = {}
        self.chunks = yielded * np.ceil(fresh / chunk)
        self.alone_s = (
            self.prefill_s + self.chunks * self.fixed_s + self.overhead_s
        )  # to the first token, when idle
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
        return np.asarray(
            1.0
            - np.interp(room_s, self._full_chunk_s, up_to, left=0.0) / max(float(up_to[-1]), 1e-300)
        )

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


TANGENT_STEPS = 5
BRACKET_STEPS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return _Terms(*(getattr(self, field.name).take(cases) for field in fields(self)))

    def tpot_s(self, batch: Floats) -> Floats:
        """Return the time per output token with ``batch`` sequences decoding."""
        touched = -np.expm1(batch * self.log_missed)
        return self.fixed_s + self.routed_s * touched + self.sequence_s * batch

    def at_batch(self, batch: Floats) -> tuple[Floats, Floats, Floats]:
        """Return TPOT, TTFT and concurrency with ``batch`` sequences decoding and none queued for memory."""
        tpot_s = self.tpot_s(batch)
        decode_s = self.output_tokens * tpot_s
        base_s = self.first_s + self.steps * tpot_s + self.waited_s(batch, decode_s)
        ahead = self.ahead_s * batch / decode_s
        concurrency = batch * (1.0 + base_s / decode_s) / (1.0 - np.minimum(ahead, 0.99))
        return tpot_s, base_s + self.ahead_s * concurrency, concurrency

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


def disaggregated(
    replicas: Replicas, traffic: Traffic, objectives_s: tuple[float, float], transfer_s: Floats
) -> tuple[Floats, OperatingPoint]:
    """Return the requests each replica prefills a second within the TTFT objective, and its point as a decode worker.

    A prefill worker is a queue with one server: at the share ρ of time it works, an arrival waits (1 + cv²)/2·ρ/(1 − ρ)
    prefills (Pollaczek–Khinchine), so the objective leaves room for ρ = s/(s + (1 + cv²)/2·prefill), s being what is
    left of it after the prefill, the cache's transfer and the first step. A decode worker prefills nothing.
    """
    ttft_s, tpot_s = objectives_s
    index = np.arange(replicas["accelerators"].size)
    terms = _terms(replicas, index, traffic)
    decode = at_objective(replicas, index, replace(traffic, cached_fraction=1.0), np.inf, tpot_s)
    slack_s = np.maximum(ttft_s - terms.first_s - transfer_s - decode.tpot_s, 0.0)
    busy = np.minimum(slack_s / (slack_s + terms.queue_s), 0.95)
    return np.where(decode.fits, busy / terms.prefill_s, 0.0), decode


HANDOVER_S = 0.34
OWN_PREFILL = 0.64
STEPS_APART = 10.0
BURST_SHARE = 0.116
BLUR = 0.23
"""First token behind a prefill pool: fixed time (router, transfer of the cache, second scheduler), own prefills, decode
steps, share of a round's prefills ahead of a request as clients start together, and how gradually the pool fills up;
fitted to 82 public runs that state their workers, 29% off in the median and 21 to 45% on a part left out."""


def first_token_apart_s(
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
    round_s = np.minimum(
        terms.prefill_s * terms.accelerators * per_prefill_accelerator, busy * decode_s
    )
    late_s = round_s - decode_s
    late_s = 0.5 * (late_s + np.hypot(late_s, BLUR * round_s))
    first_s: Floats = (
        HANDOVER_S
        + OWN_PREFILL * terms.prefill_s
        + STEPS_APART * tpot_s
        + BURST_SHARE * round_s
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
    one_and_steps = 1.0 + terms.steps / output
    first_s = terms.first_s + terms.ahead_s * concurrency
    guess_s = queue_s = np.zeros_like(first_s)
    most_queue_s = (
        concurrency * terms.queue_s
    )  # no more than half the others' prefills can lie ahead
    batch = np.minimum(concurrency, terms.largest_batch)
    before: tuple[Floats, Floats] | None = None
    for _ in range(TANGENT_STEPS):
        first = (first_s + guess_s) / output
        missed = np.exp(batch * terms.log_missed)
        slope = terms.sequence_s - terms.routed_s * terms.log_missed * missed
        start = terms.fixed_s + terms.routed_s * (1.0 - missed) + (terms.sequence_s - slope) * batch
        half = 0.5 * (one_and_steps * start + first - concurrency * slope)
        square = one_and_steps * slope
        batch = (np.sqrt(half * half + square * concurrency * start) - half) / square
        queue_s = np.minimum(terms.waited_s(batch, output * (start + slope * batch)), most_queue_s)
        # A longer wait makes a smaller batch, which waits less: putting the result in as the next guess swings around
        # the answer, and halves the miss at best. So it is the secant through this guess and the one before.
        miss_s = queue_s - guess_s
        following_s = queue_s
        if before is not None:
            turn_s = miss_s - before[1]
            step_s = np.divide(
                guess_s - before[0], turn_s, out=np.zeros_like(turn_s), where=turn_s != 0.0
            )
            following_s = np.maximum(guess_s - miss_s * step_s, 0.0)
        before = (guess_s, miss_s)
        guess_s = following_s
    batch = np.minimum(batch, terms.largest_batch)
    tpot_s = terms.tpot_s(batch)
    decode_s = output * tpot_s
    ttft_s = first_s + queue_s + terms.steps * tpot_s
    waiting_s = concurrency / batch * decode_s - decode_s - ttft_s
    ttft_s = np.where(batch >= terms.largest_batch, ttft_s + np.maximum(waiting_s, 0.0), ttft_s)
    return batch, tpot_s, ttft_s, concurrency


def _solve_objective(terms: _Terms, ttft_s: Floats, tpot_s: Floats) -> _Solution:
    """Return batch, TPOT, TTFT and concurrency of the largest feasible load; batch 0 where one sequence is too slow."""
    one = np.ones_like(terms.largest_batch)
    # The experts' term is never negative, so no batch beyond this meets TPOT: a bracket that a dense model ends at.
    high = np.clip((tpot_s - terms.fixed_s) / terms.sequence_s, 1.0, terms.largest_batch)
    excess_low = _excess(terms, one, ttft_s, tpot_s)
    excess_high = _excess(terms, high, ttft_s, tpot_s)
    feasible = excess_low <= 0.0
    batch = np.where(feasible, high, 0.0)
    open_cases = np.flatnonzero(feasible & (excess_high > 0.0))
    if open_cases.size:
        # The largest batch within the objectives, by false position that halves the retained end (Illinois).
        some = terms.only(open_cases)
        objectives = (ttft_s[open_cases], tpot_s[open_cases])
        low = one[open_cases]
        high = high[open_cases]
        excess_low = excess_low[open_cases]
        excess_high = excess_high[open_cases]
        for step in range(BRACKET_STEPS):
            if (
                step % 4 == 1
            ):  # the experts' term bends the curve: now and then halve the bracket's ratio instead
                middle = np.sqrt(low * high)
            else:
                falls = np.minimum(excess_low - excess_high, -1e-12)
                middle = np.clip(low + (high - low) * excess_low / falls, low, high)
            excess = _excess(some, middle, *objectives)
            below = excess <= 0.0
            low = np.where(below, middle, low)
            high = np.where(below, high, middle)
            excess_low = np.where(below, excess, 0.5 * excess_low)
            excess_high = np.where(below, 0.5 * excess_high, excess)
        batch[open_cases] = low
    reached_tpot_s, reached_ttft_s, concurrency = terms.at_batch(np.maximum(batch, 1.0))
    return batch, reached_tpot_s, reached_ttft_s, np.where(feasible, concurrency, 0.0)


def _excess(terms: _Terms, batch: Floats, ttft_s: Floats, tpot_s: Floats) -> Floats:
    """Return by what fraction the worse of the two objectives is exceeded; negative where both are met."""
    reached_tpot_s, reached_ttft_s, _ = terms.at_batch(batch)
    over: Floats = np.maximum(reached_tpot_s / tpot_s, reached_ttft_s / ttft_s) - 1.0
    return over


def _solve_saturation(terms: _Terms) -> _Solution:
    """Return batch, TPOT, TTFT and concurrency at saturation, where the queue and the wait are endless."""
    batch = terms.largest_batch
    endless = np.full_like(batch, np.inf)
    return batch, terms.tpot_s(batch), endless, endless


def _terms(replicas: Replicas, replica: Ints, traffic: Traffic) -> _Terms:
    """Return the throughput formula's terms by case, gathered by replica."""

    def of(name: str) -> Floats:
        return replicas[name].take(replica)

    lengths = (traffic.input_tokens, traffic.output_tokens)
    spreads = (traffic.input_cv, traffic.output_cv)
    given = np.broadcast_arrays(
        replica, *lengths, *spreads, traffic.cached_fraction, traffic.burst_fraction
    )[1:]
    prompt, output, input_cv, output_cv, cached, burst = (
        np.asarray(column, dtype=float) for column in given
    )
    input_cv2 = 1.0 + input_cv**2
    output_cv2 = 1.0 + output_cv**2
    windowed = of("windowed_fraction")
    window = of("window_tokens")
    indexed = of("index_fraction")

    def kept(context: Floats) -> Floats:
        tokens: Floats = context - windowed * np.maximum(context - window, 0.0)
        return tokens

    def read(context: Floats) -> Floats:
        """Return the tokens read of a context: those attended to, and an indexer's share of each."""
        tokens: Floats = np.minimum(context, of("attended_tokens")) + indexed * context
        return tokens

    attended = read(kept(0.5 * prompt))
    prefill_s = of("prefill_s_per_token") * prompt * (1.0 - cached)
    prefill_s += (
        of("attention_s_per_token2") * prompt * attended * input_cv2 * (1.0 - cached * cached)
    )
    context = read(kept(prompt + 0.5 * output * output_cv2))
    held = kept(prompt + output * of("reserved_output_fraction") * output_cv2)
    room = of("kv_capacity_tokens") / held
    return _Terms(
        output,
        of("accelerators"),
        of("fixed_s"),
        of("routed_s"),
        of("log_expert_missed"),
        of("sequence_s") + of("kv_s_per_token") * context + prefill_s / output,
        prefill_s,
        of("ttft_fixed_s") + of("ttft_prefill") * prefill_s,
        of("ttft_burst") * burst * prefill_s * input_cv2,
        0.5 * prefill_s * input_cv2 * (1.0 - burst),
        of("ttft_burst_steps") * burst + of("ttft_arrival_steps") * (1.0 - burst),
        np.clip(room, 1.0, of("max_sequences")),
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
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        terms = _terms(replicas, replica, traffic)
        wanted = (
            np.broadcast_to(np.asarray(target, dtype=float), replica.shape) for target in targets
        )
        batch, tpot_s, ttft_s, concurrency = solve(terms, *wanted)
        served = np.where(
            terms.fits, batch, 0.0
        )  # what does not fit serves nothing and answers never
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
