"""A request on its way, and the sequences of one priority that run together on a replica."""

from __future__ import annotations

import math


class Request:
    """One request, from its arrival to its last token."""

    __slots__ = (
        "arrived_s",
        "cached_tokens",
        "evictions",
        "finished_s",
        "first_token_s",
        "kept_tokens",
        "left_tokens",
        "level",
        "lot",
        "needed_tokens",
        "number",
        "output_tokens",
        "prefilled_tokens",
        "prompt_tokens",
        "refused_s",
        "retries",
        "started_s",
        "workload",
    )

    def __init__(
        self, number: int, workload: int, level: int, arrived_s: float, lengths: tuple[int, int, int], lot: float = 0.0
    ) -> None:
        """Take prompt, cached and output tokens as ``lengths``; ``lot`` in 0..1 falls where routers do not look."""
        self.number, self.workload, self.level, self.arrived_s = number, workload, level, arrived_s
        self.lot = lot
        self.prompt_tokens, self.cached_tokens, self.output_tokens = lengths
        self.first_token_s = self.finished_s = self.refused_s = self.started_s = math.nan
        self.retries = self.evictions = 0
        self.begin()

    def begin(self) -> None:
        """Stand before the first step: nothing computed but the cached prefix."""
        self.needed_tokens = self.prompt_tokens
        self.prefilled_tokens = self.cached_tokens
        self.left_tokens = self.output_tokens
        self.kept_tokens = 0.0

    def resume(self, generated: int) -> None:
        """Stand before the first step again after an eviction: what was generated is now part of the prompt."""
        self.evictions += 1
        self.left_tokens -= generated
        self.needed_tokens += generated
        self.prefilled_tokens = self.cached_tokens

    def __lt__(self, other: Request) -> bool:
        """Stand before lower priorities and later arrivals."""
        return (self.level, self.number) < (other.level, other.number)


class Level:
    """The running sequences of one priority."""

    __slots__ = ("clock", "context_tokens", "ends", "growth", "newest", "sequences", "share")

    def __init__(self) -> None:
        self.clock = 0.0
        """Tokens that each of its sequences has generated since the replica began."""
        self.ends: list[tuple[float, int, Request, float]] = []
        """Heap of mark, number, request and growth of its context per token."""
        self.newest: list[int] = []
        """Numbers of its sequences in the order in which they joined; those gone are dropped when met."""
        self.context_tokens = 0.0
        self.growth = 0.0
        """Tokens by which all its contexts together grow as each generates one."""
        self.sequences = 0
        self.share = 1.0
        """Tokens each generates in the steps under way: below 1, sequences take turns."""
