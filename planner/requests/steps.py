"""What a step of a replica takes, from the throughput core, for a batch whose make-up is known sequence by sequence.

The core (``planner.physics.operating``) prices a mean batch; here the batch is the one that is running:

    t = fixed + routed·(1 − (1 − k/E)^B) + B·per sequence + per cached token · Σ context + Σ prefill of chunks

With the same B sequences, n steps take n·t₀ + per cached token · Σ growth · n(n−1)/2, since every sequence's context
grows by one token a step: that closed form is what lets a replica jump over hundreds of steps at once. A model that
attends to so many tokens at most reads B times as many, as soon as its mean context is longer: then nothing grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.physics.coefficients import MAX_SEQUENCES
from planner.physics.memory import PREFILL_CHUNK_TOKENS
from planner.physics.replica import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """One replica's seconds per step and per token, and what it has room for."""

    fixed_s: float
    sequence_s: float = 0.0
    kv_s_per_token: float = 0.0
    prefill_s_per_token: float = 0.0
    attention_s_per_token2: float = 0.0
    routed_s: float = 0.0
    log_expert_missed: float = 0.0
    window_tokens: float = 0.0
    windowed_fraction: float = 0.0
    attended_tokens: float = math.inf
    """The most of a context that a sequence reads: models of sparse attention choose."""
    kv_capacity_tokens: float = math.inf
    reserves_output: bool = False
    """Whether cache for the whole output is held from the start, so that nothing is ever evicted."""
    overhead_s: float = 0.0
    """Time to the first token that depends on nothing: network, tokenising, scheduling."""
    most_sequences: int = MAX_SEQUENCES
    chunk_tokens: int = PREFILL_CHUNK_TOKENS
    """Tokens of one step, prefill and decode together."""

    @staticmethod
    def of(replicas: Replicas, index: int, speed: float = 1.0) -> StepTimes:
        """Take one replica of the core; ``speed`` is its speed over the core's (stack, incidents, the user's own)."""

        def seconds(name: str) -> float:
            return float(getattr(replicas, name)[index]) / speed

        return StepTimes(
            fixed_s=seconds("fixed_s"),
            sequence_s=seconds("sequence_s"),
            kv_s_per_token=seconds("kv_s_per_token"),
            prefill_s_per_token=seconds("prefill_s_per_token"),
            attention_s_per_token2=seconds("attention_s_per_token2"),
            routed_s=seconds("routed_s"),
            log_expert_missed=float(replicas.log_expert_missed[index]),
            window_tokens=float(replicas.window_tokens[index]),
            windowed_fraction=float(replicas.windowed_fraction[index]),
            attended_tokens=float(replicas.attended_tokens[index]),
            kv_capacity_tokens=float(replicas.kv_capacity_tokens[index]),
            reserves_output=float(replicas.reserved_output_fraction[index]) >= 1.0,
            overhead_s=float(replicas.ttft_fixed_s[index]),
            most_sequences=int(replicas.max_sequences[index]),
        )

    def decode_s(self, sequences: float, context_tokens: float) -> float:
        """Return one step of some sequences whose cached contexts add up to so many tokens."""
        touched = -math.expm1(sequences * self.log_expert_missed) if self.routed_s else 0.0
        return self.fixed_s + self.routed_s * touched + self.sequences_s(sequences, context_tokens)

    def sequences_s(self, sequences: float, context_tokens: float) -> float:
        """Return what sequences add to a step, each its own work and its share of the cache read."""
        if not sequences:
            return 0.0
        most = sequences * self.attended_tokens
        return self.sequence_s * sequences + self.kv_s_per_token * (context_tokens if context_tokens < most else most)

    def growth_s(self, sequences: float, context_tokens: float, growth_tokens: float) -> float:
        """Return by how much each step is longer than the one before, as contexts grow by so many tokens a step."""
        return self.kv_s_per_token * growth_tokens if context_tokens < sequences * self.attended_tokens else 0.0

    def prefill_s(self, prompt_tokens: float, cached_tokens: float) -> float:
        """Return what a whole prompt adds to the steps that carry it."""
        return self.chunk_s(prompt_tokens, cached_tokens, prompt_tokens)

    def chunk_s(self, prompt_tokens: float, start: float, end: float) -> float:
        """Return what a prompt's tokens from ``start`` to ``end`` add to a step.

        Attention grows with what lies before, so the core's attention time of the whole prompt is spread over it as
        (end² − start²) / prompt²: the chunks of a prompt beyond its cached prefix add up to the core's prefill.
        """
        attended = 0.5 * prompt_tokens
        if self.windowed_fraction:
            attended -= self.windowed_fraction * max(attended - self.window_tokens, 0.0)
        whole_s = self.attention_s_per_token2 * min(attended, self.attended_tokens) / prompt_tokens
        return self.prefill_s_per_token * (end - start) + whole_s * (end * end - start * start)

    def kept_tokens(self, context_tokens: float) -> float:
        """Return the full-attention tokens that a context takes of the cache: windowed layers keep their window."""
        if not self.windowed_fraction:
            return context_tokens
        return context_tokens - self.windowed_fraction * max(context_tokens - self.window_tokens, 0.0)
