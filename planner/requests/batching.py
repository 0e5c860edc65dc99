"""A replica with continuous batching, as in vLLM and TensorRT-LLM.

Every step decodes one token of each running sequence and carries chunks of waiting prompts, up to a budget of tokens;
prompts are admitted while their cache fits; when the cache runs out the newest sequence of the lowest priority is
evicted and computed again later. Work of a lower priority has what the pace of those above leaves: its sequences first,
then its prompts in chunks. Where prompts of a higher priority have made the sequences above slower than that pace, it
stays out until they have caught up.

A Python event per token would take minutes for a second of a fleet. Instead a sequence's end is known when it starts:
all sequences of one priority advance together, so a *level* keeps one clock of tokens, and a sequence leaves when the
clock reaches its mark. Between an arrival, an end and a full cache nothing changes but contexts, whose growth has a
closed form, so the replica sleeps over all those steps at once and is woken when work comes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from planner.physics.coefficients import MAX_SEQUENCES
from planner.physics.model_on_part import CHUNK_TOKENS
from planner.physics.replica import Replicas

PACE_FRACTION = 0.85
"""By how much a queue may empty more slowly than lately, where a router judges whether a request would be late."""
YIELD_FRACTION = 0.7
"""Of the TPOT objective of a higher priority, what its mean step may take for the sake of a lower one. At 0.6 batch
beside chat falls a tenth behind on MI325X, at 0.85 code completion misses its SLO by two points more on H200."""
_MOST_DEBT_S = 2.0  # beyond which a higher priority is slow by its own doing
_ALONE_S = (
    0.1  # the longest step of a lower priority with nobody above it: a prompt above waits for it
)
_LEAST_CHUNK_TOKENS = 64  # a smaller piece of prompt is not worth a place in the step
_SHARE_MEMORY_S = (
    10.0  # over which the share of time in prefill is averaged: about as long as a reply takes
)


class Replica:
    """One replica as a SimPy process."""

    def __init__(
        self,
        env: simpy.Environment,
        times: StepTimes,
        pace_s: list[float],
        done: Callable[[Replica, Request], None],
        more: Callable[[Replica], bool] | None = None,
    ) -> None:
        """Take the longest step of each priority, a callback for finished requests, and one for deferrable work."""
        self.env = env
        self.times = times
        self.done = done
        self.more = more
        self.pace_s = pace_s
        self.is_up = True
        self._empty()
        self._chunks: list[tuple[Request, int]] = []
        self._steps = 0
        self._first_s = 0.0
        self._growth_s = 0.0
        self._began_s = 0.0
        self._chunk_s = self._beside_s = 0.0
        self._can_stop = False
        self._epoch = 0
        self.alarm: simpy.Event | None = None
        """What wakes it where it sleeps until work comes."""
        self._process = env.process(self._live())

    def _empty(self) -> None:
        """Hold no request."""
        levels = len(self.pace_s)
        self.levels = [Level() for _ in range(levels)]
        self.waiting: list[Request] = []
        self.prefilling: list[Request] = []
        self.held_tokens = 0.0
        """Cache held by prompts in prefill, and by everything where outputs are reserved."""
        self.requests = [0] * levels
        """Waiting, in prefill and running, by priority."""
        self.context_tokens = [0.0] * levels
        """What those read each step, halfway through their outputs."""
        self.pending_prefill_s = [0.0] * levels
        """Prefill still to be done, by priority."""
        self.prefill_share = [0.0] * levels
        """Share of recent time spent on prompts, by priority."""
        self.debt_s = [0.0] * levels
        """By priority, how far the sequences above it have fallen behind their pace."""

    @property
    def running(self) -> int:
        """Number of sequences decoding."""
        return sum([level.sequences for level in self.levels])

    @property
    def cached_tokens(self) -> float:
        """Tokens of KV cache in use."""
        if self.times.reserves_output:
            return self.held_tokens
        return self.held_tokens + sum([level.context_tokens for level in self.levels])

    def decoding_share(self, level: int) -> float:
        """Return the share of recent time left for decoding by prefills of a priority and above."""
        return max(1.0 - sum(self.prefill_share[: level + 1]), 0.05)

    def expected_ttft_s(self, request: Request) -> float:
        """Return the TTFT of a request if taken now: the rest of the step, queued prefills, and its own."""
        times = self.times
        level = request.level
        prefill_s = sum(self.pending_prefill_s[: level + 1]) + self._prefill_s(request)
        sequences = 0
        context = 0.0
        for one in self.levels[: level + 1]:
            sequences = sequences + one.sequences
            context = context + one.context_tokens
        step_s = times.decode_s(sequences, context)
        steps = math.ceil(prefill_s / max(times.prefill_s_per_token * times.chunk_tokens, 1e-12))
        if steps:
            prefill_s = steps * times.beside_s(prefill_s / steps, sequences, times.chunk_tokens)
        left_s = 0.0
        if self._steps:
            elapsed = self.env.now - self._began_s
            left_s = self._span_s(self._steps_by(elapsed)) - elapsed
        return left_s + prefill_s + steps * step_s + times.overhead_s

    def take(self, request: Request) -> None:
        """Queue a request and end the current run of steps after the present step."""
        heapq.heappush(self.waiting, request)
        request.started_s = self.env.now
        self.pending_prefill_s[request.level] += self._prefill_s(request)
        self.requests[request.level] += 1
        self.context_tokens[request.level] += request.prompt_tokens + 0.5 * request.output_tokens
        self.wake()

    def wake(self) -> None:
        """Look for work now, or when the present step ends."""
        if self.alarm is not None:
            self.alarm.succeed()
            self.alarm = None
        elif self._can_stop:
            self._can_stop = False
            self._process.interrupt()

    def fail(self) -> list[Request]:
        """Fail with all sequences; return the requests, whose computed tokens are lost."""
        lost = [*self.waiting, *self.prefilling]
        for level in self.levels:
            lost += [entry[2] for entry in level.ends]
        self._empty()
        self.is_up = False
        self._epoch += 1  # whatever the process sleeps over has not happened
        for request in lost:
            request.begin()
            request.first_token_s = math.nan
            request.retries += 1
        return sorted(lost)

    def _live(self) -> Generator[simpy.Event, Any, None]:
        env = self.env
        while True:
            epoch = self._epoch
            if not (self.is_up and self._next_steps()):
                self._steps = 0
                self.alarm = env.event()
                yield self.alarm
                continue
            self._began_s = env.now
            self._can_stop = self._steps > 1
            try:
                yield env.timeout(self._span_s(self._steps))
            except simpy.Interrupt:
                elapsed = env.now - self._began_s
                self._steps = self._steps_by(elapsed)
                yield env.timeout(max(self._span_s(self._steps) - elapsed, 0.0))
            self._can_stop = False
            if epoch == self._epoch:
                self._end_steps()

    def _span_s(self, steps: int) -> float:
        """Return the duration of the first steps of the current run of steps."""
        return steps * self._first_s + self._growth_s * (0.5 * steps * (steps - 1))

    def _steps_by(self, elapsed_s: float) -> int:
        """Return the number of steps ended after an elapsed time, counting the present one."""
        first = self._first_s
        growth = self._growth_s
        if self._steps == 1:
            return 1
        if growth <= 0.0:
            steps = elapsed_s / first
        else:
            base = first - 0.5 * growth
            steps = (math.sqrt(base * base + 2.0 * growth * elapsed_s) - base) / growth
        return min(max(math.ceil(steps - 1e-9), 1), self._steps)

    def _next_steps(self) -> bool:
        """Admit requests that fit, set who takes part, and return the number of steps until a change."""
        self._admit()
        self._chunks = []
        self._chunk_s = 0.0
        prompts = self.prefilling
        sequences, context, growth = self._shares()
        if not sequences and not prompts:
            return False
        step_s = (
            self.times.decode_s(sequences, context) if sequences else self.times.decode_s(1.0, 0.0)
        )
        if prompts:
            self._fill_step(sequences, step_s)
            if not sequences and not self._chunks:
                return False
        self._beside_s = 0.0
        if self._chunks:
            tokens = sum(end - request.prefilled_tokens for request, end in self._chunks)
            self._beside_s = self.times.beside_s(self._chunk_s, sequences, tokens)
        self._first_s = step_s + self._beside_s
        if self._chunks:
            self._steps = 1
            self._growth_s = 0.0
            return True
        attends_all = (
            context < sequences * self.times.attended_tokens
        )  # and so reads more with each step
        self._growth_s = (
            self.times.kv_s_per_token * growth * (attends_all + self.times.index_fraction)
        )
        self._steps = self._steps_to_change()
        return True

    def _shares(self) -> tuple[float, float, float]:
        """Set each priority's share of the next steps; return sequences, context and its growth per step."""
        times = self.times
        sequences = context = growth = 0.0
        for place, level in enumerate(self.levels):
            level.share = 0.0
            if not level.sequences:
                continue
            share = 1.0
            if sequences:
                room_s = self.allowed_s(place) - times.decode_s(sequences, context)
                cost_s = times.sequences_s(level.sequences, level.context_tokens)
                if 0.0 < cost_s > room_s:
                    share = max(room_s / cost_s, 0.0)
            level.share = share
            sequences += share * level.sequences
            context += share * level.context_tokens
            growth += share * share * level.growth
        return sequences, context, growth

    def allowed_s(self, place: int) -> float:
        """Return the longest step in which a priority may take part."""
        if not place:
            return math.inf
        if any(level.sequences for level in self.levels[:place]):
            return self.pace_s[place] if self.debt_s[place] <= 0.0 else 0.0
        return max(self.pace_s[place], _ALONE_S)

    def _fill_step(self, sequences: float, step_s: float) -> None:
        """Add chunks of prefill to the next step in order, within the token budget and the step time."""
        budget = self.times.chunk_tokens
        top = self.prefilling[0].level
        pace_s = self.allowed_s(top)
        for request in self.prefilling:
            if request.level > top or budget <= 0:
                break
            tokens = request.needed_tokens - request.prefilled_tokens
            tokens = min(tokens, budget)
            if pace_s < math.inf:
                within_s = self.times.within_s(pace_s - step_s, sequences, tokens) - self._chunk_s
                within = within_s / max(self.times.prefill_s_per_token, 1e-12)
                if tokens > within:
                    # An empty replica must make progress; beside others a crowded step carries no prompt.
                    least = 4 * _LEAST_CHUNK_TOKENS if not sequences and not self._chunks else 0
                    tokens = min(tokens, max(int(within), least))
                    if tokens < min(
                        _LEAST_CHUNK_TOKENS, request.needed_tokens - request.prefilled_tokens
                    ):
                        break
            end = request.prefilled_tokens + tokens
            self._chunk_s += self.times.chunk_s(
                request.needed_tokens, request.prefilled_tokens, end
            )
            self._chunks.append((request, end))
            budget -= tokens

    def _steps_to_change(self) -> int:
        """Return the steps until a sequence ends or the KV cache is full; preempt where it is full already."""
        while True:
            steps = math.inf
            written = 0.0
            for level in self.levels:
                if level.share > 0.0:
                    left = math.ceil((level.ends[0][0] - level.clock) / level.share - 1e-9)
                    if left < steps:
                        steps = left if left > 1 else 1
                    written += level.share * level.growth
            for place in range(1, len(self.levels)):
                if self.debt_s[place] > 0.0 and (self.levels[place].sequences or self.prefilling):
                    gained_s = max(self.pace_s[place] - self._first_s, 1e-6)
                    steps = min(steps, math.ceil(self.debt_s[place] / gained_s))
            if self.times.reserves_output or written <= 0.0:
                return int(steps)
            room = (self.times.kv_capacity_tokens - self.cached_tokens) / written
            if room >= 1.0:
                return int(min(steps, room))
            if not self._evict(0) or not self._shares()[0]:
                return 1  # a single sequence that just fits: rounding, not want of room

    def _admit(self) -> None:
        """Move waiting requests into prefill while KV cache and batch slots last, preempting lower priorities."""
        times = self.times
        while self.waiting or (self.more is not None and self.more(self)):
            request = self.waiting[0]
            ahead = self.prefilling[-1] if self.prefilling else None
            if (
                ahead is not None
                and ahead < request
                and self._prefilling_tokens() >= times.chunk_tokens
            ):
                return  # the next step is full already
            tokens = request.needed_tokens + (request.left_tokens if times.reserves_output else 0)
            need = times.kept_tokens(tokens)
            while (
                self.cached_tokens + need > times.kv_capacity_tokens
                or self.running + len(self.prefilling) >= times.most_sequences
            ):
                if not self._evict(request.level + 1):
                    return
            heapq.heappop(self.waiting)
            request.kept_tokens = need
            self.held_tokens += need
            self.prefilling.append(request)
            if ahead is not None and request < ahead:
                self.prefilling.sort()

    def _prefilling_tokens(self) -> int:
        return sum(request.needed_tokens - request.prefilled_tokens for request in self.prefilling)

    def _evict(self, lowest: int) -> bool:
        """Preempt the newest sequence of the lowest running priority, from ``lowest`` on, back to the queue."""
        for place in range(len(self.levels) - 1, lowest - 1, -1):
            level = self.levels[place]
            if level.sequences > (1 if lowest == 0 and self.running == 1 else 0):
                alive = {entry[1]: entry for entry in level.ends}
                while level.newest[-1] not in alive:
                    level.newest.pop()
                entry = alive[level.newest.pop()]
                level.ends.remove(entry)
                heapq.heapify(level.ends)
                left = entry[0] - level.clock
                self._leave(level, entry, left)
                entry[2].resume(entry[2].left_tokens - max(math.ceil(left - 1e-9), 1))
                self.pending_prefill_s[place] += self._prefill_s(entry[2])
                heapq.heappush(self.waiting, entry[2])
                return True
        return False

    def _leave(self, level: Level, entry: tuple[float, int, Request, float], left: float) -> None:
        """Remove a sequence with ``left`` tokens to go from its priority level, and free its KV cache."""
        _, _, request, growth = entry
        level.sequences -= 1
        level.growth -= growth
        level.context_tokens -= (
            self.times.kept_tokens(request.needed_tokens + request.left_tokens) - growth * left
        )
        if not level.sequences:
            level.context_tokens = level.growth = 0.0  # and no rounding is left behind
        if self.times.reserves_output:
            self.held_tokens -= request.kept_tokens

    def _end_steps(self) -> None:
        """Account for the finished steps: tokens, ended sequences, and first tokens of finished prefills."""
        span_s = self._span_s(self._steps)
        chunks = self._chunks
        levels = self.levels
        weight = math.exp(-span_s / _SHARE_MEMORY_S)
        self.prefill_share = [share * weight for share in self.prefill_share]
        if chunks:
            top = chunks[0][0].level
            self.prefill_share[top] += (1.0 - weight) * self._beside_s / span_s
            self.pending_prefill_s[top] = max(self.pending_prefill_s[top] - self._chunk_s, 0.0)
        steps = self._steps
        self._steps = 0
        above = levels[0].sequences  # the highest has none to fall behind: no debt
        for place in range(1, len(levels)):
            debt_s = self.debt_s[place] + span_s - steps * self.pace_s[place] if above else 0.0
            self.debt_s[place] = min(max(debt_s, 0.0), _MOST_DEBT_S)
            above += levels[place].sequences
        for level in levels:
            if level.share <= 0.0:
                continue
            tokens = level.share * steps
            level.clock += tokens
            level.context_tokens += level.growth * tokens
            ends = level.ends
            reached = level.clock + 1e-9
            while ends and ends[0][0] <= reached:
                entry = heapq.heappop(ends)
                self._leave(level, entry, entry[0] - level.clock)
                self._finish(entry[2])
        for request, end in chunks:
            request.prefilled_tokens = end
            if end >= request.needed_tokens:
                self.prefilling.remove(request)
                self._start_decoding(request)
        if not self.waiting and not self.prefilling:
            self.pending_prefill_s = [0.0] * len(self.levels)  # and no rounding is left behind

    def _start_decoding(self, request: Request) -> None:
        """Record a request's first token and start its decoding."""
        times = self.times
        if math.isnan(request.first_token_s):
            request.first_token_s = self.env.now + times.overhead_s
        if not times.reserves_output:
            self.held_tokens -= request.kept_tokens
        if request.left_tokens <= 1:
            if times.reserves_output:
                self.held_tokens -= request.kept_tokens
            self._finish(request)
            return
        level = self.levels[request.level]
        kept = times.kept_tokens(request.needed_tokens + request.left_tokens)
        start = times.kept_tokens(request.needed_tokens)
        growth = (
            kept - start
        ) / request.left_tokens  # straight between its two ends, exact without a window
        mark = level.clock + request.left_tokens - 1
        heapq.heappush(level.ends, (mark, request.number, request, growth))
        level.newest.append(request.number)
        level.sequences += 1
        level.growth += growth
        level.context_tokens += start + growth

    def _finish(self, request: Request) -> None:
        request.finished_s = self.env.now + self.times.overhead_s
        self.requests[request.level] -= 1
        self.context_tokens[request.level] -= request.prompt_tokens + 0.5 * request.output_tokens
        self.done(self, request)

    def _prefill_s(self, request: Request) -> float:
        return self.times.prefill_s(request.needed_tokens, request.prefilled_tokens)


class Request:
    """One request, from its arrival to its last token."""

    def __init__(
        self,
        number: int,
        workload: int,
        level: int,
        arrived_s: float,
        lengths: tuple[int, int, int],
        lot: float = 0.0,
    ) -> None:
        """Take prompt, cached and output tokens as ``lengths``; ``lot`` in 0..1 selects the pool of a group."""
        self.number = number
        self.workload = workload
        self.level = level
        self.arrived_s = arrived_s
        self.lot = lot
        self.prompt_tokens, self.cached_tokens, self.output_tokens = lengths
        self.first_token_s = self.finished_s = self.refused_s = self.started_s = math.nan
        self.retries = self.preemptions = 0
        self.begin()

    def begin(self) -> None:
        """Reset to the state before the first step: nothing computed but the cached prefix."""
        self.needed_tokens = self.prompt_tokens
        self.prefilled_tokens = self.cached_tokens
        self.left_tokens = self.output_tokens
        self.kept_tokens = 0.0

    def resume(self, generated: int) -> None:
        """Reset to the state before the first step after a preemption; generated tokens join the prompt."""
        self.preemptions += 1
        self.left_tokens -= generated
        self.needed_tokens += generated
        self.prefilled_tokens = self.cached_tokens

    def __lt__(self, other: Request) -> bool:
        """Order by priority, then by arrival."""
        return (self.level, self.number) < (other.level, other.number)


@dataclass(slots=True)
class Level:
    """The running sequences of one priority."""

    clock: float = 0.0
    """Tokens that each of its sequences has generated since the replica began."""
    ends: list[tuple[float, int, Request, float]] = field(default_factory=list)
    """Heap of mark, number, request and growth of its context per token."""
    newest: list[int] = field(default_factory=list)
    """Numbers of its sequences in the order in which they joined; those gone are dropped when met."""
    context_tokens: float = 0.0
    growth: float = 0.0
    """Tokens by which all its contexts together grow as each generates one."""
    sequences: int = 0
    share: float = 1.0
    """Tokens each generates in the steps under way: below 1, sequences take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """One replica's seconds per step and per token, and its capacity for sequences and tokens."""

    fixed_s: float
    stream_s: float = 0.0
    """Of the fixed time, what the weights that every step reads take."""
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
    index_fraction: float = 0.0
    """What they read of every token to choose, over what attention reads of one."""
    kv_capacity_tokens: float = math.inf
    reserves_output: bool = False
    """Whether cache for the whole output is held from the start, so that nothing is ever evicted."""
    overhead_s: float = 0.0
    """Time to the first token that depends on nothing: network, tokenising, scheduling."""
    most_sequences: int = MAX_SEQUENCES
    chunk_tokens: int = CHUNK_TOKENS
    """Prompt tokens of one step, beside the sequences that decode."""

    @staticmethod
    def of(replicas: Replicas, index: int, speed: float = 1.0) -> StepTimes:
        """Return the step times of one replica at ``speed`` times the formula's speed."""
        decode = ("fixed_s", "stream_s", "routed_s", "sequence_s", "kv_s_per_token")
        timed = (*decode, "prefill_s_per_token", "attention_s_per_token2")
        others = (
            "log_expert_missed",
            "window_tokens",
            "windowed_fraction",
            "attended_tokens",
            "index_fraction",
        )
        figures: dict[str, Any] = {name: float(replicas[name][index]) / speed for name in timed}
        figures |= {name: float(replicas[name][index]) for name in (*others, "kv_capacity_tokens")}
        return StepTimes(
            **figures,
            reserves_output=float(replicas["reserved_output_fraction"][index]) >= 1.0,
            overhead_s=float(replicas["ttft_fixed_s"][index]),
            most_sequences=int(replicas["max_sequences"][index]),
            chunk_tokens=max(
                int(replicas["chunk_tokens"][index] / replicas["tokens_per_step"][index]), 1
            ),
        )

    def decode_s(self, sequences: float, context_tokens: float) -> float:
        """Return the time of a decode step for a number of sequences and their total context tokens."""
        touched = -math.expm1(sequences * self.log_expert_missed) if self.routed_s else 0.0
        return self.fixed_s + self.routed_s * touched + self.sequences_s(sequences, context_tokens)

    def beside_s(self, compute_s: float, sequences: float, tokens: float) -> float:
        """Return by how much a chunk's arithmetic lengthens a step with sequences: :func:`replica.beside_s`.

        A chunk's tokens touch experts that the sequences do not, and all of them are read.
        """
        stream_s, read_s = self._streams_s(sequences, tokens)
        return math.sqrt(math.hypot(read_s * read_s, compute_s * compute_s)) - stream_s

    def within_s(self, beside_s: float, sequences: float, tokens: float) -> float:
        """Return the arithmetic time of a chunk that lengthens a step by ``beside_s``: that method's inverse."""
        stream_s, read_s = self._streams_s(sequences, tokens)
        return max((beside_s + stream_s) ** 4 - read_s**4, 0.0) ** 0.25 if beside_s > 0.0 else 0.0

    def _streams_s(self, sequences: float, tokens: float) -> tuple[float, float]:
        """Return the time to read the weights that sequences touch, and that they and a chunk touch together."""
        if not self.routed_s:
            return self.stream_s, self.stream_s
        sequences = max(sequences, 1.0)
        missed = self.log_expert_missed
        both = (math.expm1(touching * missed) for touching in (sequences, sequences + tokens))
        stream_s, read_s = (self.stream_s - self.routed_s * untouched for untouched in both)
        return stream_s, read_s

    def sequences_s(self, sequences: float, context_tokens: float) -> float:
        """Return the time that sequences add to a step: their own work and reading their KV cache."""
        if not sequences:
            return 0.0
        most = sequences * self.attended_tokens
        read = (
            context_tokens if context_tokens < most else most
        ) + self.index_fraction * context_tokens
        return self.sequence_s * sequences + self.kv_s_per_token * read

    def prefill_s(self, prompt_tokens: float, cached_tokens: float) -> float:
        """Return the time that a whole prompt adds to the steps that carry it."""
        return self.chunk_s(prompt_tokens, cached_tokens, prompt_tokens)

    def chunk_s(self, prompt_tokens: float, start: float, end: float) -> float:
        """Return the time that a prompt's tokens from ``start`` to ``end`` add to a step.

        Attention grows with what lies before, so the core's attention time of the whole prompt is spread over it as
        (end² − start²) / prompt²: the chunks of a prompt beyond its cached prefix add up to the core's prefill.
        """
        attended = 0.5 * prompt_tokens
        if self.windowed_fraction:
            attended -= self.windowed_fraction * max(attended - self.window_tokens, 0.0)
        read = min(attended, self.attended_tokens) + self.index_fraction * attended
        whole_s = self.attention_s_per_token2 * read / prompt_tokens
        return self.prefill_s_per_token * (end - start) + whole_s * (end * end - start * start)

    def kept_tokens(self, context_tokens: float) -> float:
        """Return the KV cache use of a context in full-attention tokens: windowed layers cache their window only."""
        if not self.windowed_fraction:
            return context_tokens
        return context_tokens - self.windowed_fraction * max(
            context_tokens - self.window_tokens, 0.0
        )
