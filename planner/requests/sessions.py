"""Sessions that come back to their prompts, and what the memory of a replica holds of these.

The turns of a session follow one another after gaps as the workload's reuse curve has them. What a replica keeps of
finished prompts is dropped by block, the longest unused first and of each its end: first from the accelerators into
host memory where there is some, then altogether.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.physics.prefix_cache import GAPS_S, ReuseCurve, WorkingSet

_BLOCK_TOKENS = 16
"""Tokens of a block of the cache, as engines have them."""
_MOST_BEFORE = 100_000
"""Requests before a zoom by which its caches are filled."""


class Found(NamedTuple):
    """Tokens of a prompt that a replica holds."""

    tokens: int
    host_tokens: int
    """Of these, in the memory of the server."""


class Kept(NamedTuple):
    """What is left of a finished request."""

    tokens: float
    whole_tokens: float
    """That it had when it ended."""


class KeptPrompts:
    """The finished requests that one replica holds, in the order in which they ended."""

    def __init__(self, host_tokens: float, state_tokens: float = 0.0) -> None:
        """Hold nothing; ``host_tokens`` is what the memory of the server has room for.

        Each request leaves recurrent states as large as ``state_tokens``, which nobody takes along.
        """
        self._host_tokens = host_tokens
        self._state_tokens = state_tokens
        self._held: OrderedDict[int, Kept] = OrderedDict()
        self._last: dict[int, int] = {}
        """By session, its last request here."""
        self._ended = 0
        self._tokens = 0.0

    def found(self, session: int, shared_tokens: float, free_tokens: float) -> Found:
        """Return what a request finds that shares some tokens with the last of its session.

        Of these as large a part is gone as of the last request; ``free_tokens`` is what running sequences leave of the
        accelerators' memory.
        """
        self._drop(free_tokens)
        last = self._last.get(session)
        if last is None or last not in self._held:
            return Found(0, 0)
        kept = self._held[last]
        in_accelerators = kept.tokens
        # Only where not all fits there does it matter what was used since.
        if self._tokens > free_tokens:
            later = 0.0
            for number in reversed(self._held):
                if number == last:
                    break
                later += self._held[number].tokens
            in_accelerators = min(max(free_tokens - later, 0.0), kept.tokens)
        tokens = _blocks(shared_tokens * kept.tokens / kept.whole_tokens)
        near = _blocks(shared_tokens * in_accelerators / kept.whole_tokens)
        return Found(tokens, tokens - min(near, tokens))

    def take(self, session: int, shared_fraction: float) -> None:
        """Let the request that runs now hold what it shares; what its session uses no more stays for a while."""
        last = self._last.pop(session, None)
        if last is None or last not in self._held:
            return
        kept = self._held[last]
        taken_fraction = shared_fraction * (1.0 - self._state_tokens / kept.whole_tokens)
        unused = kept.tokens * (1.0 - taken_fraction)
        self._held[last] = Kept(unused, kept.whole_tokens)
        self._tokens += unused - kept.tokens

    def keep(self, session: int, tokens: float, free_tokens: float) -> None:
        """Hold a finished request."""
        self._ended += 1
        whole_tokens = tokens + self._state_tokens
        self._held[self._ended] = Kept(whole_tokens, whole_tokens)
        self._last[session] = self._ended
        self._tokens += whole_tokens
        self._drop(free_tokens)

    def _drop(self, free_tokens: float) -> None:
        """Drop what there is no room for, the longest unused first and of each its end."""
        room = max(free_tokens, 0.0) + self._host_tokens
        while self._tokens > room and self._held:
            number, kept = next(iter(self._held.items()))
            excess = self._tokens - room
            if kept.tokens > excess:
                self._held[number] = Kept(kept.tokens - excess, kept.whole_tokens)
                self._tokens = room
                return
            del self._held[number]
            self._tokens -= kept.tokens


def _blocks(tokens: float) -> int:
    """Return the tokens in whole blocks."""
    return int(tokens // _BLOCK_TOKENS) * _BLOCK_TOKENS


def seconds_before(traffic: WorkingSet, tokens_per_s: float, cache_tokens: float) -> float:
    """Return the seconds of traffic that fill caches, the longest that a zoom is preceded by."""
    held_s = cache_tokens / max(tokens_per_s, 1e-9)
    return float(np.interp(held_s, traffic.distinct_s, GAPS_S))


def most_seconds_before(requests_per_s: float) -> float:
    """Return the seconds before a zoom beyond which its requests would be too many."""
    return _MOST_BEFORE / max(requests_per_s, 1e-9)


def draw_sessions(
    curve: ReuseCurve, times_s: Floats, stays_s: Floats, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return the session of each request, in order of arrival; ``stays_s`` says how long each takes, about.

    A request that is no first turn comes a gap of the curve after the turn before it: after the one of those without a
    next turn that ended nearest to then. Where that would be before the first request, its session is not among them.
    """
    reused = curve.reused_fraction[0]
    most = max(float(reused[-1]), 1e-12)
    draws = generator.random(times_s.size)
    gaps_s = np.interp(draws, reused / most, GAPS_S)
    is_turn = generator.random(times_s.size) < most / curve.turn_fraction
    sessions = np.empty(times_s.size, dtype=np.int64)
    last: list[tuple[float, int]] = []
    """Ends of requests that have no next turn, and their sessions."""
    begin_s = float(times_s[0]) if times_s.size else 0.0
    number = 0
    columns = zip(
        times_s.tolist(), gaps_s.tolist(), is_turn.tolist(), stays_s.tolist(), strict=True
    )
    for request, (time_s, gap_s, has_earlier, stay_s) in enumerate(columns):
        ended_s = time_s - gap_s
        place = bisect_left(last, (ended_s, -1))
        # Nobody asks on before the answer is there.
        near = [
            index
            for index in (place - 1, place)
            if 0 <= index < len(last) and last[index][0] <= time_s
        ]
        if has_earlier and near and ended_s >= begin_s:
            offs = [abs(last[index][0] - ended_s) for index in near]
            _, session = last.pop(near[offs.index(min(offs))])
        else:
            session = number
            number += 1
        sessions[request] = session
        insort(last, (time_s + stay_s, session))
    return sessions
