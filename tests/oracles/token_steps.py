"""An inference engine walked token by token: a list of requests, and steps one after another.

Nothing is shared with the planner but how long a step takes, which comes in as an argument. Every step decodes one
token of each running sequence, then carries prompts in chunks up to its budget. A request is served by priority, then
by arrival. When the cache is full, the newest sequence of the lowest priority is thrown out and computed anew. Work of
lower priority takes part in a step only as far as every sequence above it can afford: each may take ``pace_s`` per
token from its first token on. What is left of that after all decoding goes to their prompts.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

SMALLEST_CHUNK = 64
"""Tokens: a smaller piece of a prompt waits for the next step, unless it is the prompt's last."""


class Times(Protocol):
    """How long a step takes, and what fits into one replica."""

    @property
    def kv_capacity_tokens(self) -> float:
        """Tokens of cache."""

    @property
    def reserves_output(self) -> bool:
        """Whether a reply has its cache from the start."""

    @property
    def overhead_s(self) -> float:
        """Added to the first token and the last."""

    @property
    def max_sequences(self) -> int:
        """Most requests at once."""

    @property
    def chunk_tokens(self) -> int:
        """Most prompt tokens of a step."""

    def decode_s(self, sequences: float, context_tokens: float) -> float:
        """Return the duration of a step that decodes."""

    def beside_s(self, compute_s: float, sequences: float, tokens: float) -> float:
        """Return by how much chunks lengthen it."""

    def chunk_s(self, prompt_tokens: float, start: float, end: float) -> float:
        """Return the arithmetic of one chunk."""

    def kept_tokens(self, context_tokens: float) -> float:
        """Return the cache that a context takes."""


@dataclass(eq=False, slots=True)
class Job:
    """One request."""

    arrived_s: float
    level: int
    prompt: int
    cached: int
    output: int
    generated: int = 0
    computed: int = 0
    """Tokens of prompt, and of replies thrown out, in the cache."""
    due: int = 0
    """Tokens that must be in the cache before it decodes."""
    joined: int = 0
    first_s: float = math.nan
    last_s: float = math.nan
    thrown_out: int = 0

    def __post_init__(self) -> None:
        self.computed, self.due = self.cached, self.prompt

    def turn(self) -> tuple[int, float]:
        """Return what it is served by: priority, then arrival."""
        return self.level, self.arrived_s

    def is_late(self, ttft_s: float, tpot_s: float) -> bool:
        """Whether it missed an objective; one that never ended did."""
        if math.isnan(self.last_s):
            return True
        per_token = (self.last_s - self.first_s) / max(self.output - 1, 1)
        return self.first_s - self.arrived_s > ttft_s or per_token > tpot_s


@dataclass(eq=False)
class Engine:
    """One replica."""

    times: Times
    pace_s: Sequence[float]
    """By level, seconds per token that a sequence can afford for the sake of levels below."""
    alone_s: float = 0.1
    """The longest step of a lower level with nobody above it."""
    waiting: list[Job] = field(default_factory=list)
    prompts: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    """The highest level first, in the order in which they joined."""
    joined: int = 0
    is_busy: bool = False
    urgent: int = 0
    """Requests of the first level that it has."""
    longest: int = 0
    """Tokens of the longest request it was given."""

    def cache(self) -> float:
        """Return the cache in use."""
        kept = self.times.kept_tokens
        if self.times.reserves_output:
            return sum(kept(job.prompt + job.output) for job in (*self.running, *self.prompts))
        return sum(kept(job.prompt + job.generated) for job in self.running) + sum(
            kept(job.due) for job in self.prompts
        )

    def throw_out(self, lowest: int) -> bool:
        """Throw the newest sequence of the lowest level out, if there is one from a level on."""
        if (
            not self.running
            or self.running[-1].level < lowest
            or (len(self.running) == 1 and not lowest)
        ):
            return False
        loser = self.running.pop()
        loser.due, loser.computed = loser.prompt + loser.generated, loser.cached
        loser.thrown_out += 1
        self.waiting.append(loser)
        return True

    def admit(self) -> None:
        """Take prompts from the queue while they fit."""
        times = self.times
        while self.waiting:
            job = min(self.waiting, key=Job.turn)
            before = [one for one in self.prompts if one.turn() <= job.turn()]
            if sum(one.due - one.computed for one in before) >= times.chunk_tokens:
                return  # they fill the next step
            need = times.kept_tokens(job.prompt + job.output if times.reserves_output else job.due)
            while (
                self.cache() + need > times.kv_capacity_tokens
                or len(self.running) + len(self.prompts) >= times.max_sequences
            ):
                if not self.throw_out(job.level + 1):
                    return
            self.waiting.remove(job)
            self.prompts.append(job)
            self.prompts.sort(key=Job.turn)

    def afforded_s(self, level: int, now_s: float) -> float:
        """Return how long a step may take for the sake of a level."""
        above = [job for job in self.running if job.level < level]
        if not above and not any(job.level < level for job in self.prompts):
            return self.alone_s
        # The token in the step is its generated-th after the first.
        slack = [self.pace_s[job.level] * job.generated - (now_s - job.first_s) for job in above]
        return min([*self.pace_s[:level], *slack])

    def step(self, now_s: float) -> tuple[float, list[Job], list[tuple[Job, int]]]:
        """Return how long the next step takes, who decodes in it and how far prompts come; 0 where nobody can."""
        times, kept = self.times, self.times.kept_tokens
        self.admit()
        lower = {job.level for jobs in (self.running[-1:], self.prompts[-1:]) for job in jobs}
        limits = [
            math.inf,
            *(self.afforded_s(level, now_s) for level in range(1, 1 + max(lower, default=0))),
        ]
        decoding = self.running
        context = 0.0
        for place, job in enumerate(self.running):
            with_it = context + kept(job.prompt + job.generated)
            if job.level and times.decode_s(place + 1, with_it) > limits[job.level]:
                decoding = self.running[:place]  # those below can afford no more
                break
            context = with_it
        step_s = times.decode_s(len(decoding), context) if decoding else times.decode_s(1, 0.0)
        chunks = list[tuple[Job, int]]()
        budget = times.chunk_tokens
        compute_s = 0.0
        carried = 0
        for job in self.prompts:
            tokens = min(job.due - job.computed, budget)

            def lasts_s(
                tokens: int, job: Job = job, compute_s: float = compute_s, carried: int = carried
            ) -> float:
                more_s = times.chunk_s(job.due, job.computed, job.computed + tokens)
                return step_s + times.beside_s(compute_s + more_s, len(decoding), carried + tokens)

            if job.level and lasts_s(tokens) > limits[job.level]:
                fits = 0  # by halving
                most = tokens
                while most - fits > 1:
                    middle = (fits + most) // 2
                    fits, most = (
                        (middle, most) if lasts_s(middle) <= limits[job.level] else (fits, middle)
                    )
                tokens = fits if fits >= SMALLEST_CHUNK else 0
            if tokens <= 0 and job.due > job.computed:
                break
            compute_s += times.chunk_s(job.due, job.computed, job.computed + tokens)
            budget = budget - tokens
            carried = carried + tokens
            chunks.append((job, tokens))
        if not decoding and not chunks:
            return 0.0, [], []
        return (
            step_s + (times.beside_s(compute_s, len(decoding), carried) if carried else 0.0),
            decoding,
            chunks,
        )

    def end(self, now_s: float, decoding: list[Job], chunks: list[tuple[Job, int]]) -> None:
        """Count the tokens of a step that has ended."""
        ended = False
        for job in decoding:
            job.generated += 1
            ended = ended or job.generated >= job.output
        for job, tokens in chunks:
            job.computed += tokens
            if job.computed >= job.due:
                self.prompts.remove(job)
                job.first_s = now_s if math.isnan(job.first_s) else job.first_s
                job.generated += 1
                ended = ended or job.generated >= job.output
                job.joined = self.joined = self.joined + 1
                self.running.append(job)
        if chunks:
            self.running.sort(key=lambda job: (job.level, job.joined))
        if ended:
            for job in self.running:
                job.last_s = now_s if job.generated >= job.output else math.nan
            self.running = [job for job in self.running if job.generated < job.output]
        crowded = len(self.running) * self.longest > self.times.kv_capacity_tokens
        while crowded and self.cache() > self.times.kv_capacity_tokens and self.throw_out(0):
            pass


def serve(
    times: Times,
    replicas: int,
    jobs: Sequence[Job],
    pace_s: Sequence[float],
    until_s: float,
    deferrable: int = 99,
) -> None:
    """Serve requests by replicas behind one router until a time.

    An urgent request goes to the replica with the fewest of them; work of level ``deferrable`` lies in one queue, and a
    replica whose queue is empty takes the next.
    """
    engines = [Engine(times, pace_s) for _ in range(replicas)]
    coming = deque(sorted(jobs, key=lambda job: job.arrived_s))
    lying = deque[Job]()
    ends: list[tuple[float, int, list[Job], list[tuple[Job, int]]]] = []
    now_s = coming[0].arrived_s

    def give(engine: Engine, job: Job) -> None:
        engine.waiting.append(job)
        engine.urgent += job.level < deferrable
        engine.longest = max(engine.longest, job.prompt + job.output)

    def go(place: int) -> None:
        engine = engines[place]
        if (
            lying
            and not engine.waiting
            and not any(job.level >= deferrable for job in engine.prompts)
        ):
            give(engine, lying.popleft())
        lasts_s, decoding, chunks = engine.step(now_s)
        engine.is_busy = lasts_s > 0.0
        if engine.is_busy:
            heapq.heappush(ends, (now_s + lasts_s, place, decoding, chunks))

    while now_s < until_s and (ends or coming):
        if coming and (not ends or coming[0].arrived_s <= ends[0][0]):
            job = coming.popleft()
            now_s = job.arrived_s
            idle = [place for place, engine in enumerate(engines) if not engine.is_busy]
            if job.level >= deferrable:
                lying.append(job)
                place = idle[0] if idle else -1
            else:
                place = min(range(replicas), key=lambda place: engines[place].urgent)
                give(engines[place], job)
            if place in idle:
                go(place)
        else:
            now_s, place, decoding, chunks = heapq.heappop(ends)
            engine = engines[place]
            before = [*decoding, *(job for job, _ in chunks)]
            engine.end(now_s, decoding, chunks)
            engine.urgent -= sum(job.level < deferrable and job.last_s == now_s for job in before)
            go(place)
    for job in jobs:
        job.first_s, job.last_s = job.first_s + times.overhead_s, job.last_s + times.overhead_s
