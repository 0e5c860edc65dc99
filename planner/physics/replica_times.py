"""One replica's step and prefill times for one workload's lengths, and what is asked of it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.physics.memory import PREFILL_CHUNK_TOKENS

if TYPE_CHECKING:
    from planner.arrays import Floats, Ints
    from planner.physics.replica import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Requests by length: prompts and outputs independent, each a set of lengths with weights that add up to 1."""

    prompt_tokens: Floats
    prompt_weights: Floats
    output_tokens: Floats
    output_weights: Floats
    cached_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is promised, and how requests reach replicas."""

    ttft_s: float
    tpot_s: float
    percentile: float
    pooled_replicas: float
    """Replicas that one router chooses between."""

    @property
    def alone(self) -> float:
        """One replica's share of those."""
        return 1.0 / self.pooled_replicas


class ReplicaTimes:
    """One replica's step and prefill times for one workload's lengths; arrays of shape (prompts,)."""

    def __init__(self, replicas: Replicas, index: int, speed: float, lengths: Lengths) -> None:
        """Work out the times of a replica that runs at ``speed`` over the formula's."""

        def of(name: str) -> float:
            return float(getattr(replicas, name)[index])

        self.lengths = lengths
        self.overhead_s = of("ttft_fixed_s")
        self.fixed_s, self.routed_s = of("fixed_s") / speed, of("routed_s") / speed
        self.log_missed = of("log_expert_missed")
        self.output_tokens, self.output_weights = lengths.output_tokens, lengths.output_weights
        self.output = float(self.output_weights @ self.output_tokens)
        self._halfway = float(self.output_weights @ self.output_tokens**2) / self.output / 2.0
        self._window, self._windowed = of("window_tokens"), of("windowed_fraction")
        self._attends = of("attended_tokens")
        # Distributions have tails that no model attends to: what is longer is cut, as requests are.
        prompt = np.minimum(lengths.prompt_tokens, max(of("longest_tokens") - self.output, 1.0))
        cached = np.floor(prompt * lengths.cached_fraction)
        attended = np.minimum(self._kept(0.5 * prompt), self._attends)
        self.prefill_s = of("prefill_s_per_token") * (prompt - cached)
        self.prefill_s += of("attention_s_per_token2") * attended / prompt * (prompt**2 - cached**2)
        self.prefill_s /= speed
        self._prefill_s2 = self.prefill_s**2
        self._placed: dict[tuple[bytes, int, int], tuple[Ints, Floats]] = {}
        self.chunks = np.ceil((prompt - cached) / PREFILL_CHUNK_TOKENS)
        self.alone_s = self.prefill_s + self.chunks * self.fixed_s + self.overhead_s  # to the first token, when idle
        self._prompt, self._context = prompt, self._kept(prompt + self._halfway)
        self._alone_s, self._kv_s = of("sequence_s"), of("kv_s_per_token")
        self._speed, self._reserved = speed, of("reserved_output_fraction")
        self._kv_tokens, self._max_sequences = of("kv_capacity_tokens"), of("max_sequences")
        self._weigh(lengths.prompt_weights)

    def _weigh(self, weights: Floats) -> None:
        """Work out what hangs on how often prompts of each length come."""
        self.prompt_weights = weights
        self.mean_prefill_s = float(weights @ self.prefill_s)
        self.square_prefill_s2 = float(weights @ self._prefill_s2)
        context = min(float(weights @ self._context), self._attends)
        self.sequence_s = (self._alone_s + self._kv_s * context) / self._speed
        mean_prompt = float(weights @ self._prompt)
        held = mean_prompt + 2.0 * self._halfway * self._reserved
        held -= self._windowed * max(held - self._window, 0.0)
        self.room = self._kv_tokens / held
        self.most_batch = min(self.room, self._max_sequences)

    def weighted(self, prompt_weights: Floats) -> ReplicaTimes:
        """Return the same replica where prompts of these lengths come otherwise often."""
        other = copy.copy(self)
        other._weigh(prompt_weights)
        return other

    def placed(self, cell_s: Floats, most: int, size: int) -> tuple[Ints, Floats]:
        """Return where prefills lie on grids of ``size`` cells each: the cells below and above, and the part of a cell.

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
        """Return the tokens of a context that a replica keeps: those of windowed layers end with the window."""
        return np.asarray(tokens - self._windowed * np.maximum(tokens - self._window, 0.0))

    def decode_s(self, batch: Floats) -> Floats:
        """Return a step without prompts."""
        if self.routed_s == 0.0:  # a dense model has no experts to touch
            return np.asarray(self.fixed_s + self.sequence_s * batch)
        touched = -np.expm1(batch * self.log_missed)
        return np.asarray(self.fixed_s + self.routed_s * touched + self.sequence_s * batch)

    def tpot_s(self, batch: Floats) -> Floats:
        """Return the mean time per token: a step and its share of the prompts computed beside it."""
        return self.decode_s(batch) + batch * self.mean_prefill_s / self.output

    def requests_per_s(self, batch: Floats) -> Floats:
        """Return the rate of requests that keeps a batch running: B / (E[output]·TPOT)."""
        return np.asarray(batch / (self.output * self.tpot_s(batch)))
