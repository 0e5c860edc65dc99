"""Continuous batching walked token by token: no jumps, no closed forms, no heaps; what the engine must equal."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.requests.batching import StepTimes


@dataclass
class Sequence:
    """One request of the walk."""

    number: int
    arrived_s: float
    prompt: int
    cached: int
    output: int
    prefilled: int = 0
    generated: int = 0
    first_s: float = 0.0
    finished_s: float = 0.0


@dataclass
class Walk:
    """One replica, one priority, endless cache."""

    times: StepTimes
    sequences: list[Sequence]
    running: list[Sequence] = field(default_factory=list)

    def run(self) -> None:
        """Walk until everything is finished."""
        waiting = sorted(self.sequences, key=lambda s: s.arrived_s)
        prompts: list[Sequence] = []
        now = 0.0
        for sequence in waiting:
            sequence.prefilled = sequence.cached
        while waiting or prompts or self.running:
            if not prompts and not self.running and waiting[0].arrived_s > now:
                now = waiting[0].arrived_s
            while waiting and waiting[0].arrived_s <= now + 1e-12:
                prompts.append(waiting.pop(0))
            now = self._step(prompts, now)

    def _step(self, prompts: list[Sequence], now: float) -> float:
        times = self.times
        decoding = list(self.running)
        context = sum(s.prompt + s.generated for s in decoding)
        step_s = (
            times.fixed_s + times.sequence_s * (len(decoding) or 1) + times.kv_s_per_token * context
        )
        budget = times.chunk_tokens
        compute_s = 0.0
        done = []
        for sequence in prompts:
            tokens = min(sequence.prompt - sequence.prefilled, budget)
            if tokens <= 0:
                break
            start = sequence.prefilled
            end = sequence.prefilled + tokens
            # attention at peak: every new token attends to all before it, halved as half lie ahead on the average
            compute_s += times.prefill_s_per_token * tokens + times.attention_s_per_token2 * 0.5 * (
                end**2 - start**2
            )
            sequence.prefilled = end
            budget = budget - tokens
            if end == sequence.prompt:
                done.append(sequence)
        now += (
            step_s - times.stream_s + (times.stream_s**4 + compute_s**4) ** 0.25
        )  # the weights stream meanwhile
        for sequence in decoding:
            sequence.generated += 1
        for sequence in done:
            prompts.remove(sequence)
            sequence.generated = 1
            sequence.first_s = now
            self.running.append(sequence)
        for sequence in [s for s in self.running if s.generated >= s.output]:
            sequence.finished_s = now
            self.running.remove(sequence)
        return now
