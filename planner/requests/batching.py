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
from planner.records import record
from planner.requests.sessions import Found, KeptPrompts

PACE_FRACTION = 0.85
"""By how much a queue may empty more slowly than lately, where a router judges whether a request would be late."""
YIELD_FRACTION = 0.7
"""Of the TPOT objective of a higher priority, what its mean step may take for the sake of a lower one. At 0.6 batch
beside chat falls a tenth behind on MI325X, at 0.85 code completion misses its SLO by two points more on H200."""
_MAX_DEBT_S = 2.0
"""Debt beyond which a higher priority is slow by its own doing, and no longer by a lower one's."""
_ALONE_S = 0.1
"""The longest step of a lower priority with nobody above it: a prompt that comes above waits for that step."""
_MIN_CHUNK_TOKENS = 64
"""A smaller piece of prompt is not worth a place in the step."""
_SHARE_MEMORY_S = 10.0
"""Seconds over which the share of time in prefill is averaged: about as long as a reply takes."""
_ROUNDING = 1e-9
"""Tokens and steps are sums of shares: a count this near to a whole one is that whole one."""


class Replica:
    """One replica as a SimPy process."""

    def __init__(
        self,
        env: simpy.Environment,
        times: StepTimes,
        pace_s: list[float],
        on_finish: Callable[[Replica, Request], None],
        pull_deferrable: Callable[[Replica], bool] | None = None,
    ) -> None:
        """Take the longest step of each priority, a callback for finished requests, and one for deferrable work."""
        self.env = env
        self.times = times
        self.on_finish = on_finish
        self.pull_deferrable = pull_deferrable
        self.pace_s = pace_s
        self.is_up = True
        self.kept = KeptPrompts(times.host_tokens, times.state_tokens)
        """Of finished requests, what is there for the next turns of their sessions."""
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
        prefill_share = sum(self.prefill_share[: level + 1])
        # Never quite nothing: prompts that fill every second would otherwise stop all admission.
        return max(1.0 - prefill_share, 0.05)

    def expected_ttft_s(self, request: Request) -> float:
        """Return the TTFT of a request if taken now: the rest of the step, queued prefills, and its own."""
        times = self.times
        level = request.level
        queued_s = sum(self.pending_prefill_s[: level + 1])
        prefill_s = queued_s + self._prefill_s(request)
        sequences = 0
        context = 0.0
        for running_level in self.levels[: level + 1]:
            sequences += running_level.sequences
            context += running_level.context_tokens
        step_s = times.decode_s(sequences, context)
        # Prompts are computed in chunks, and each chunk lengthens a step in which the others decode.
        chunk_s = times.prefill_s_per_token * times.chunk_tokens
        steps = math.ceil(prefill_s / max(chunk_s, 1e-12))
        if steps:
            # All chunks are taken as alike, also the last, which is shorter.
            prefill_s = steps * times.beside_s(prefill_s / steps, sequences, times.chunk_tokens)
        step_remaining_s = 0.0
        if self._steps:
            elapsed = self.env.now - self._began_s
            step_remaining_s = self._span_s(self._steps_by(elapsed)) - elapsed
        return step_remaining_s + prefill_s + steps * step_s + times.overhead_s

    @property
    def free_tokens(self) -> float:
        """Tokens of KV cache that running sequences leave for finished ones."""
        return self.times.kv_capacity_tokens - self.cached_tokens

    def look_up(self, request: Request) -> None:
        """Set what a request that belongs to a session would find here of its prompt."""
        if request.session is not None:
            shared = request.shared_tokens
            found = self.kept.found(request.session, shared, self.free_tokens)
            request.find(found, self.times.host_copy_s_per_token)

    def take(self, request: Request) -> None:
        """Queue a request and end the current run of steps after the present step."""
        self.look_up(request)
        if request.session is not None:
            self.kept.take(request.session, request.shared_tokens / request.prompt_tokens)
        # By priority, then by arrival: an evicted request that comes back is older than most.
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
            # Once is enough: the process ends its present step and looks for work then.
            self._can_stop = False
            self._process.interrupt()

    def fail(self) -> list[Request]:
        """Fail with all sequences; return the requests, whose computed tokens are lost."""
        lost = [*self.waiting, *self.prefilling]
        for level in self.levels:
            lost += [entry[2] for entry in level.ends]
        self._empty()
        # What it held is gone with it: it comes back cold.
        self.kept = KeptPrompts(self.times.host_tokens, self.times.state_tokens)
        self.is_up = False
        # The process still sleeps over steps that never end: by the epoch it sees that they did not happen.
        self._epoch += 1
        for request in lost:
            # A client that loses its connection asks again: the first token counts from the new reply.
            request.begin()
            request.first_token_s = math.nan
            request.retries += 1
        return sorted(lost)

    def _live(self) -> Generator[simpy.Event, Any, None]:
        """Run steps while there is work, and sleep until some comes."""
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
                # Work came during a run of steps: the present step ends first, as a step cannot be cut short.
                elapsed = env.now - self._began_s
                self._steps = self._steps_by(elapsed)
                remaining_s = self._span_s(self._steps) - elapsed
                yield env.timeout(max(remaining_s, 0.0))
            self._can_stop = False
            if epoch == self._epoch:
                self._end_steps()

    def _span_s(self, steps: int) -> float:
        """Return the duration of the first steps of the current run of steps."""
        growths = 0.5 * steps * (steps - 1)
        return steps * self._first_s + self._growth_s * growths

    def _steps_by(self, elapsed_s: float) -> int:
        """Return the number of steps ended after an elapsed time, counting the present one."""
        first_step_s = self._first_s
        growth_s = self._growth_s
        if self._steps == 1:
            return 1
        # The inverse of _span_s: all steps alike, or the root of a quadratic where contexts grow.
        if growth_s <= 0.0:
            steps = elapsed_s / first_step_s
        else:
            base = first_step_s - 0.5 * growth_s
            root = math.sqrt(base * base + 2.0 * growth_s * elapsed_s)
            steps = (root - base) / growth_s
        # At least the present step, and no more than were planned.
        whole_steps = math.ceil(steps - _ROUNDING)
        return min(max(whole_steps, 1), self._steps)

    def _next_steps(self) -> bool:
        """Admit requests that fit, set who takes part, and return the number of steps until a change."""
        # Admission comes first: it may preempt sequences that would otherwise share the next step.
        self._admit()
        self._chunks = []
        self._chunk_s = 0.0
        prompts = self.prefilling
        sequences, context, growth = self._shares()
        if not sequences and not prompts:
            return False
        # A step that carries prompts alone still reads the weights, as one sequence without a context does.
        step_s = self.times.decode_s(sequences or 1.0, context)
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
            # The next step carries other chunks: no run of equal steps.
            self._steps = 1
            self._growth_s = 0.0
            return True
        # Sequences that attend to all of their contexts read more with each step; an index grows in any case.
        attends_all = context < sequences * self.times.attended_tokens
        read_growth = growth * (attends_all + self.times.index_fraction)
        self._growth_s = self.times.kv_s_per_token * read_growth
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
                decode_s = times.decode_s(sequences, context)
                room_s = self.allowed_s(place) - decode_s
                cost_s = times.sequences_s(level.sequences, level.context_tokens)
                # Too slow for those above: its sequences take turns, each in a share of the steps.
                if 0.0 < cost_s > room_s:
                    share = max(room_s / cost_s, 0.0)
            level.share = share
            sequences += share * level.sequences
            context += share * level.context_tokens
            # The share of its sequences that is in a step, each of which grows in that share of the steps.
            growth += share * share * level.growth
        return sequences, context, growth

    def allowed_s(self, place: int) -> float:
        """Return the longest step in which a priority may take part."""
        if not place:
            return math.inf
        # A debt keeps it out of the step altogether, until those above have caught up.
        if any(level.sequences for level in self.levels[:place]):
            if self.debt_s[place] <= 0.0:
                return self.pace_s[place]
            return 0.0
        # Alone it need not hold their pace, but one of them may come within the step.
        return max(self.pace_s[place], _ALONE_S)

    def _fill_step(self, sequences: float, step_s: float) -> None:
        """Add chunks of prefill to the next step in order, within the token budget and the step time."""
        budget = self.times.chunk_tokens
        top_level = self.prefilling[0].level
        pace_s = self.allowed_s(top_level)
        for request in self.prefilling:
            # One priority's prompts a step: those below wait for the next.
            if request.level > top_level or budget <= 0:
                break
            missing_tokens = request.needed_tokens - request.prefilled_tokens
            tokens = min(missing_tokens, budget)
            if pace_s < math.inf:
                chunks_s = self.times.within_s(pace_s - step_s, sequences, tokens)
                within_s = chunks_s - self._chunk_s
                tokens_within = within_s / max(self.times.prefill_s_per_token, 1e-12)
                if tokens > tokens_within:
                    # An empty replica must make progress; beside others a crowded step carries no prompt.
                    is_empty = not sequences and not self._chunks
                    minimum_tokens = 4 * _MIN_CHUNK_TOKENS if is_empty else 0
                    tokens_allowed = max(int(tokens_within), minimum_tokens)
                    tokens = min(tokens, tokens_allowed)
                    smallest_chunk = min(_MIN_CHUNK_TOKENS, missing_tokens)
                    if tokens < smallest_chunk:
                        break
            end = request.prefilled_tokens + tokens
            self._chunk_s += self.times.chunk_s(
                request.needed_tokens, request.prefilled_tokens, end
            )
            self._chunks.append((request, end))
            budget -= tokens

    def _steps_to_change(self) -> int:
        """Return the steps until a sequence ends or the KV cache is full; preempt where it is full already."""
        # Ends: every turn preempts a sequence, and a single one is never preempted for its own growth.
        while True:
            steps = math.inf
            cache_growth = 0.0
            for level in self.levels:
                if level.share > 0.0:
                    tokens_to_go = level.ends[0][0] - level.clock
                    steps_to_end = math.ceil(tokens_to_go / level.share - _ROUNDING)
                    steps = min(steps, max(steps_to_end, 1))
                    cache_growth += level.share * level.growth
            # A priority that stays out joins again when those above have caught up: the run ends there.
            for place in range(1, len(self.levels)):
                has_work = self.levels[place].sequences or self.prefilling
                if self.debt_s[place] > 0.0 and has_work:
                    gained_s = max(self.pace_s[place] - self._first_s, 1e-6)
                    # A gain of a microsecond at the least: a step as long as the pace would never
                    # catch up.
                    steps_to_join = math.ceil(self.debt_s[place] / gained_s)
                    steps = min(steps, steps_to_join)
            if self.times.reserves_output or cache_growth <= 0.0:
                return int(steps)
            # Contexts grow by so many tokens a step: the cache lasts for that many steps.
            free_tokens = self.times.kv_capacity_tokens - self.cached_tokens
            steps_to_full = free_tokens / cache_growth
            if steps_to_full >= 1.0:
                return int(min(steps, steps_to_full))
            if not self._evict(0) or not self._shares()[0]:
                return 1  # a single sequence that just fits: rounding, not want of room

    def _pulls_deferrable(self) -> bool:
        """Take deferrable work, where there is some and this replica serves it; return whether it did."""
        return self.pull_deferrable is not None and self.pull_deferrable(self)

    def _admit(self) -> None:
        """Move waiting requests into prefill while KV cache and batch slots last, preempting lower priorities."""
        times = self.times
        while self.waiting or self._pulls_deferrable():
            request = self.waiting[0]
            previous = None
            if self.prefilling:
                previous = self.prefilling[-1]
            is_behind = previous is not None and previous < request
            if is_behind and self._prefilling_tokens() >= times.chunk_tokens:
                return  # the next step is full already
            reserved_tokens = request.left_tokens if times.reserves_output else 0
            cache_tokens = times.kept_tokens(request.needed_tokens + reserved_tokens)
            while (
                self.cached_tokens + cache_tokens > times.kv_capacity_tokens
                or self.running + len(self.prefilling) >= times.max_sequences
            ):
                if not self._evict(request.level + 1):
                    return
            heapq.heappop(self.waiting)
            request.kept_tokens = cache_tokens
            self.held_tokens += cache_tokens
            self.prefilling.append(request)
            if previous is not None and request < previous:
                self.prefilling.sort()

    def _prefilling_tokens(self) -> int:
        """Return the prompt tokens that the admitted requests still need."""
        return sum(request.needed_tokens - request.prefilled_tokens for request in self.prefilling)

    def _evict(self, lowest: int) -> bool:
        """Preempt the newest sequence of the lowest running priority, from ``lowest`` on, back to the queue."""
        # From the lowest priority up, and never one of the request's own.
        for place in reversed(range(lowest, len(self.levels))):
            level = self.levels[place]
            # The only sequence of a replica stays: evicted, it would come back to the same full cache for ever.
            is_last = lowest == 0 and self.running == 1
            if level.sequences > is_last:
                running_entries = {entry[1]: entry for entry in level.ends}
                # Numbers of sequences that have ended meanwhile lie on the stack until they are met here.
                while level.newest[-1] not in running_entries:
                    level.newest.pop()
                entry = running_entries[level.newest.pop()]
                level.ends.remove(entry)
                heapq.heapify(level.ends)
                tokens_to_go = entry[0] - level.clock
                self._leave(level, entry, tokens_to_go)
                whole_tokens_to_go = max(math.ceil(tokens_to_go - _ROUNDING), 1)
                entry[2].resume(entry[2].left_tokens - whole_tokens_to_go)
                self.pending_prefill_s[place] += self._prefill_s(entry[2])
                heapq.heappush(self.waiting, entry[2])
                return True
        return False

    def _leave(
        self, level: Level, entry: tuple[float, int, Request, float], tokens_to_go: float
    ) -> None:
        """Remove a sequence with ``left`` tokens to go from its priority level, and free its KV cache."""
        _, _, request, growth = entry
        level.sequences -= 1
        level.growth -= growth
        # Its cache of now: that at its end, less what it has yet to generate.
        final_tokens = self.times.kept_tokens(request.needed_tokens + request.left_tokens)
        level.context_tokens -= final_tokens - growth * tokens_to_go
        if not level.sequences:
            level.context_tokens = level.growth = 0.0  # and no rounding is left behind
        if self.times.reserves_output:
            self.held_tokens -= request.kept_tokens

    def _end_steps(self) -> None:
        """Account for the finished steps: tokens, ended sequences, and first tokens of finished prefills."""
        span_s = self._span_s(self._steps)
        chunks = self._chunks
        levels = self.levels
        # An exponential mean over the last seconds, of whatever lengths the runs of steps are.
        weight = math.exp(-span_s / _SHARE_MEMORY_S)
        self.prefill_share = [share * weight for share in self.prefill_share]
        if chunks:
            top = chunks[0][0].level
            prefill_fraction = (1.0 - weight) * self._beside_s / span_s
            self.prefill_share[top] += prefill_fraction
            pending_s = self.pending_prefill_s[top] - self._chunk_s
            self.pending_prefill_s[top] = max(pending_s, 0.0)
        steps = self._steps
        self._steps = 0
        # Debt of a priority: by how much those above it were slower than the pace held for them.
        sequences_above = levels[0].sequences
        for place in range(1, len(levels)):
            debt_s = (
                self.debt_s[place] + span_s - steps * self.pace_s[place] if sequences_above else 0.0
            )
            # The pace of a step is held for the next ones: a gain from before is not saved up.
            self.debt_s[place] = min(max(debt_s, 0.0), _MAX_DEBT_S)
            sequences_above += levels[place].sequences
        for level in levels:
            if level.share <= 0.0:
                continue
            tokens = level.share * steps
            level.clock += tokens
            level.context_tokens += level.growth * tokens
            ends = level.ends
            clock_reached = level.clock + _ROUNDING
            while ends and ends[0][0] <= clock_reached:
                entry = heapq.heappop(ends)
                self._leave(level, entry, entry[0] - level.clock)
                self._finish(entry[2])
        # Prompts last: a sequence that begins now has no share in the steps that just ended.
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
            request.first_token_s = self.env.now + times.overhead_s + request.copy_s
        if not times.reserves_output:
            self.held_tokens -= request.kept_tokens
        if request.left_tokens <= 1:
            # Its prompt's step gave its only token.
            if times.reserves_output:
                self.held_tokens -= request.kept_tokens
            self._finish(request)
            return
        level = self.levels[request.level]
        all_tokens = request.needed_tokens + request.left_tokens
        final_tokens = times.kept_tokens(all_tokens)
        start_tokens = times.kept_tokens(request.needed_tokens)
        # A straight line between its two ends: exact without a window of attention.
        growth = (final_tokens - start_tokens) / request.left_tokens
        # The prompt's step gave the first token: one fewer is to come.
        mark = level.clock + request.left_tokens - 1
        heapq.heappush(level.ends, (mark, request.number, request, growth))
        level.newest.append(request.number)
        level.sequences += 1
        level.growth += growth
        level.context_tokens += start_tokens + growth

    def _finish(self, request: Request) -> None:
        """Hand a finished request to the pool, and count it no more."""
        request.finished_s = self.env.now + self.times.overhead_s
        # Half of the output, as when it was taken: a router looks at the mean over its life.
        self.requests[request.level] -= 1
        mean_context = request.prompt_tokens + 0.5 * request.output_tokens
        self.context_tokens[request.level] -= mean_context
        if request.session is not None:
            tokens = self.times.kept_tokens(request.prompt_tokens + request.output_tokens)
            self.kept.keep(request.session, tokens, self.free_tokens)
        self.on_finish(self, request)

    def _prefill_s(self, request: Request) -> float:
        """Return the prefill that a request still needs."""
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
        session: int | None = None,
        shared_tokens: int = 0,
    ) -> None:
        """Take prompt, cached and output tokens as ``lengths``; ``lot`` in 0..1 selects the pool of a group.

        Cached tokens are held everywhere; what is shared with the turn before in a session, where that was.
        """
        self.session = session
        self.shared_tokens = shared_tokens
        self.copy_s = 0.0
        """In which what is found in host memory is copied."""
        self.number = number
        self.workload = workload
        self.level = level
        self.arrived_s = arrived_s
        self.lot = lot
        self.prompt_tokens, self.cached_tokens, self.output_tokens = lengths
        self._common_tokens = self.cached_tokens
        self.first_token_s = self.finished_s = self.refused_s = self.started_s = math.nan
        self.retries = self.preemptions = 0
        self.begin()

    def begin(self) -> None:
        """Reset to the state before the first step: nothing computed but the cached prefix."""
        self.needed_tokens = self.prompt_tokens
        self.prefilled_tokens = self.cached_tokens
        self.left_tokens = self.output_tokens
        self.kept_tokens = 0.0

    def find(self, found: Found, copy_s_per_token: float) -> None:
        """Set what is found of the prompt on a replica, before the first step."""
        # One token at least is computed: the first of the reply comes from it.
        self.cached_tokens = min(self._common_tokens + found.tokens, self.prompt_tokens - 1)
        self.prefilled_tokens = self.cached_tokens
        self.copy_s = found.host_tokens * copy_s_per_token

    def resume(self, generated: int) -> None:
        """Reset to the state before the first step after a preemption; generated tokens join the prompt."""
        self.preemptions += 1
        self.left_tokens -= generated
        self.needed_tokens += generated
        self.prefilled_tokens = self.cached_tokens

    def __lt__(self, request: Request) -> bool:
        """Order by priority, then by arrival."""
        return (self.level, self.number) < (request.level, request.number)


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


@record
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
    max_sequences: int = MAX_SEQUENCES
    chunk_tokens: int = CHUNK_TOKENS
    """Prompt tokens of one step, beside the sequences that decode."""
    host_tokens: float = 0.0
    """Tokens of finished requests for which there is room in the memory of the server."""
    host_copy_s_per_token: float = 0.0
    state_tokens: float = 0.0
    """Tokens of cache that the recurrent states take which a finished request leaves."""

    @staticmethod
    def of_replica(
        replicas: Replicas, index: int, speed: float = 1.0, *, has_host: bool = False
    ) -> StepTimes:
        """Return the step times of one replica at ``speed`` times the formula's speed."""

        def figure(name: str) -> float:
            return float(replicas[name][index])

        # With speculation a step gives several tokens of a sequence: the budget is in steps' own tokens.
        chunk_tokens = int(figure("chunk_tokens") / figure("tokens_per_step"))
        return StepTimes(
            fixed_s=figure("fixed_s") / speed,
            stream_s=figure("stream_s") / speed,
            routed_s=figure("routed_s") / speed,
            sequence_s=figure("sequence_s") / speed,
            kv_s_per_token=figure("kv_s_per_token") / speed,
            prefill_s_per_token=figure("prefill_s_per_token") / speed,
            attention_s_per_token2=figure("attention_s_per_token2") / speed,
            log_expert_missed=figure("log_expert_missed"),
            window_tokens=figure("window_tokens"),
            windowed_fraction=figure("windowed_fraction"),
            attended_tokens=figure("attended_tokens"),
            index_fraction=figure("index_fraction"),
            kv_capacity_tokens=figure("kv_capacity_tokens"),
            reserves_output=figure("reserved_output_fraction") >= 1.0,
            overhead_s=figure("ttft_fixed_s"),
            max_sequences=int(figure("max_sequences")),
            chunk_tokens=max(chunk_tokens, 1),
            host_tokens=figure("host_tokens") if has_host else 0.0,
            host_copy_s_per_token=figure("host_copy_s_per_token"),
            state_tokens=figure("state_tokens"),
        )

    def decode_s(self, sequences: float, context_tokens: float) -> float:
        """Return the time of a decode step for a number of sequences and their total context tokens."""
        touched = 0.0
        if self.routed_s:
            touched = -math.expm1(sequences * self.log_expert_missed)
        own_s = self.sequences_s(sequences, context_tokens)
        return self.fixed_s + self.routed_s * touched + own_s

    def beside_s(self, compute_s: float, sequences: float, tokens: float) -> float:
        """Return by how much a chunk's arithmetic lengthens a step with sequences: :func:`replica.beside_s`.

        A chunk's tokens touch experts that the sequences do not, and all of them are read.
        """
        stream_s, read_s = self._streams_s(sequences, tokens)
        # The 4-norm of reading and arithmetic: they overlap but where one nears the other.
        mixed_s = math.sqrt(math.hypot(read_s * read_s, compute_s * compute_s))
        return mixed_s - stream_s

    def within_s(self, beside_s: float, sequences: float, tokens: float) -> float:
        """Return the arithmetic time of a chunk that lengthens a step by ``beside_s``: that method's inverse."""
        stream_s, read_s = self._streams_s(sequences, tokens)
        if beside_s <= 0.0:
            return 0.0
        # The time of a mixed step is the 4-norm of its reading and its arithmetic: solved for the latter.
        mixed_s = beside_s + stream_s
        compute_s4 = max(mixed_s**4 - read_s**4, 0.0)
        return float(compute_s4**0.25)

    def _streams_s(self, sequences: float, tokens: float) -> tuple[float, float]:
        """Return the time to read the weights that sequences touch, and that they and a chunk touch together."""
        if not self.routed_s:
            return self.stream_s, self.stream_s
        sequences = max(sequences, 1.0)
        # expm1 is minus the share of experts that so many tokens touch.
        by_sequences = math.expm1(sequences * self.log_expert_missed)
        by_both = math.expm1((sequences + tokens) * self.log_expert_missed)
        sequences_stream_s = self.stream_s - self.routed_s * by_sequences
        both_stream_s = self.stream_s - self.routed_s * by_both
        return sequences_stream_s, both_stream_s

    def sequences_s(self, sequences: float, context_tokens: float) -> float:
        """Return the time that sequences add to a step: their own work and reading their KV cache."""
        if not sequences:
            return 0.0
        attended_limit = sequences * self.attended_tokens
        attended_tokens = min(context_tokens, attended_limit)
        tokens_read = attended_tokens + self.index_fraction * context_tokens
        return self.sequence_s * sequences + self.kv_s_per_token * tokens_read

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
            beyond_window = max(attended - self.window_tokens, 0.0)
            attended -= self.windowed_fraction * beyond_window
        attended_tokens = min(attended, self.attended_tokens)
        tokens_read = attended_tokens + self.index_fraction * attended
        whole_s = self.attention_s_per_token2 * tokens_read / prompt_tokens
        linear_s = self.prefill_s_per_token * (end - start)
        return linear_s + whole_s * (end * end - start * start)

    def kept_tokens(self, context_tokens: float) -> float:
        """Return the KV cache use of a context in full-attention tokens: windowed layers cache their window only."""
        if not self.windowed_fraction:
            return context_tokens
        beyond_window = max(context_tokens - self.window_tokens, 0.0)
        return context_tokens - self.windowed_fraction * beyond_window
