"""What a prefix cache finds: the working set of the traffic that shares it (Denning 1968), and no fitted constant.

A workload has a reuse curve H(T): the share of its input tokens that were last used at most T seconds before. Gaps
count from the end of the last request to the next arrival: in between, its sequence runs and is no part of the free
cache. A cache with C tokens free, which receives λ_i input tokens a second of workload i, holds what was used in the
last T seconds, with one T for all that share it:

    C = Σ_i λ_i · ∫ from 0 to T of (1 − H_i(t)) dt,     and workload i finds H_i(T) of its tokens there.

A second tier holds what left the first: together they find H(T₂), with T₂ from the tokens of both.

A router that sends each request to any of k replicas finds a prompt only where it last was. That replica is that of the
turn j before with probability (1 − 1/k)^(j − 1) / k, and then has what both prompts share: so a curve is kept for turns
1, 2, 4, ... before. A beginning that sessions have in common is used by all of them, on each replica by those there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

from planner.arrays import FloatLike, Floats
from planner.records import record

GAPS_S = np.append(0.0, np.geomspace(0.3, 200_000.0, 64))
"""Gaps at which curves are kept, up to two days: closer together than the gaps of public logs scatter."""
TURNS_BEFORE = 2 ** np.arange(8)
"""Turns before, for which curves are kept; between them they are interpolated in the logarithm."""
_MOST_TURNS = 512
"""Turns before, beyond which no replica is looked at: the remaining probability stays with none."""
_ATOMS = 128
"""Equally likely gaps that stand for a distribution of gaps."""
_ATOM_CENTRES = (np.arange(_ATOMS) + 0.5) / _ATOMS
"""Probabilities at which these gaps are read."""


@record
class ReuseCurve:
    """Share of a workload's input tokens by when they were last used, on one replica or behind a router by session."""

    reused_fraction: Floats
    """Share of input tokens that a prompt shares with that of 1, 2, 4, ... turns before it in its session, where that
    request ended at most :data:`GAPS_S` before; shape (turns before, gaps)."""
    shared_fraction: float = 0.0
    """Share of input tokens in a prefix that sessions have in common."""
    shared_gap_s: float = 0.0
    """Mean time between requests with the same common prefix, on all replicas together; 0: it is always in use."""

    @property
    def most_found(self) -> float:
        """Share of input tokens that an endless cache finds."""
        return self.shared_fraction + float(self.reused_fraction[0, -1])

    @property
    def common_fraction(self) -> float:
        """Share of every prompt that is found at any time."""
        return 0.0 if self.shared_gap_s else self.shared_fraction

    @property
    def turn_fraction(self) -> float:
        """Share of its prompt that a turn finds whose session's last prompt is still there.

        The others find nothing but what all have in common: first turns, and those whose prompt has gone. A curve says
        no more than what is found of all. Of what is never found half is taken to lie in first turns, in logarithms: of
        agents 50%, of a chat over documents 64%. Their logs have 58% and 67% of it in prompts that find next to none.
        """
        return float(np.sqrt(self.most_found - self.common_fraction))


@record
class WorkingSet:
    """What a workload finds in a cache, and what it puts there, by residence time; shape (gaps,)."""

    found_fraction: Floats
    """H(T) at :data:`GAPS_S`."""
    distinct_s: Floats
    """∫ from 0 to T of (1 − H): seconds of traffic that a cache must hold."""


def from_curves(
    gap_s: Sequence[float], reused_fraction: Sequence[Sequence[float]], shared_fraction: float
) -> ReuseCurve:
    """Return a curve from those of a log for 1, 2, 4, ... turns before, each at the same gaps."""
    rows = [np.interp(GAPS_S, gap_s, row, left=0.0) for row in reused_fraction]
    # Turns beyond those of the log have nothing in common any more.
    rows += [np.zeros_like(GAPS_S)] * (TURNS_BEFORE.size - len(rows))
    return ReuseCurve(reused_fraction=np.array(rows), shared_fraction=shared_fraction)


def always_found(share: float) -> ReuseCurve:
    """Return the curve of a workload of which a share is found at any time, and the rest never again."""
    return ReuseCurve(
        reused_fraction=np.zeros((TURNS_BEFORE.size, GAPS_S.size)), shared_fraction=share
    )


def from_points(points: Mapping[float, float]) -> ReuseCurve:
    """Return a curve from H at some gaps, straight between them in the logarithm of the gap.

    Points do not say how prompts grow: a token seen before is taken to be seen again with the same chance, whatever its
    age. On a log of agents that is within 3 points of what is shared with any turn before.
    """
    gaps = sorted(points)
    found = np.array([points[gap] for gap in gaps])
    # Nothing is used again at once: the curve rises to its first point.
    reused = np.interp(np.log(GAPS_S[1:]), np.log(gaps), found)
    is_before = GAPS_S[1:] < gaps[0]
    reused[is_before] = found[0] * GAPS_S[1:][is_before] / gaps[0]
    reused = np.append(0.0, reused)
    most = float(found[-1])
    shared_with_turn = most**TURNS_BEFORE
    distribution = reused / max(most, 1e-12)
    atoms = np.interp(_ATOM_CENTRES, distribution, GAPS_S)
    curve = _aged(np.asarray(shared_with_turn, dtype=np.float64), atoms)
    # The curve itself is as stated; only those of earlier turns come from its gaps.
    curve[0] = reused
    return ReuseCurve(reused_fraction=curve)


def from_sessions(
    *,
    turns: int,
    median_gap_s: float,
    p90_gap_s: float,
    growth_tokens: float,
    shared_tokens: float,
    shared_gap_s: float,
    mean_tokens: float,
) -> ReuseCurve:
    """Return the curve of sessions of equal length whose prompts grow by as many tokens each turn, of a mean length.

    Gaps between turns are lognormal and independent. Turn i of n has the prompt p + (i − 1)·g; with the turn j before
    it shares p + (i − 1 − j)·g, of which the common prefix of all sessions is counted apart.
    """
    first_tokens = mean_tokens - growth_tokens * (turns - 1) / 2.0
    prompts = first_tokens + growth_tokens * np.arange(turns)
    own_tokens = prompts - shared_tokens
    # Of n turns, n − j have a turn j before.
    shared_with_turn = [
        own_tokens[: max(turns - before, 0)].sum() / prompts.sum()
        for before in TURNS_BEFORE.tolist()
    ]
    # A lognormal's 90th percentile is exp(1.28·s) times its median.
    spread = np.log(p90_gap_s / median_gap_s) / NormalDist().inv_cdf(0.9)
    normal = np.array([NormalDist().inv_cdf(share) for share in _ATOM_CENTRES.tolist()])
    gap_atoms = np.asarray(median_gap_s * np.exp(spread * normal), dtype=np.float64)
    return ReuseCurve(
        reused_fraction=_aged(np.array(shared_with_turn), gap_atoms),
        shared_fraction=shared_tokens / mean_tokens,
        shared_gap_s=shared_gap_s,
    )


def _aged(shared_with_turn: Floats, gap_atoms: Floats) -> Floats:
    """Return curves for 1, 2, 4, ... turns before from independent gaps, shape (turns before, gaps)."""
    rows = []
    atoms = gap_atoms
    for share in shared_with_turn.tolist():
        distribution = np.interp(GAPS_S, atoms, _ATOM_CENTRES, left=0.0, right=1.0)
        rows.append(share * distribution)
        # Twice as many turns before: the sum of two gaps, again as equally likely atoms.
        sums = np.sort(np.add.outer(atoms, atoms), axis=None)
        atoms = sums.reshape(_ATOMS, _ATOMS).mean(axis=1)
    return np.array(rows)


def working_set(curve: ReuseCurve, routing: str = "session", replicas: float = 1.0) -> WorkingSet:
    """Return what a workload finds by residence time on one of some replicas under a routing policy.

    ``session`` sends all requests of a session to one replica, ``prefix`` all with the same beginning, and ``random``
    each request to any.
    """
    shares: Floats = np.ones(1)
    if routing == "random":
        turns = np.arange(1, _MOST_TURNS)
        elsewhere = 1.0 - 1.0 / replicas
        shares = np.asarray((1.0 - elsewhere) * elsewhere ** (turns - 1), dtype=np.float64)
    turns_before = np.arange(1, len(shares) + 1)
    # Between the turns of which there are curves, straight in the logarithm; beyond the last it counts as the last.
    place = np.minimum(np.log2(turns_before), TURNS_BEFORE.size - 1.0)
    low = np.minimum(place.astype(np.intp), TURNS_BEFORE.size - 2)
    offset = place - low
    weights = np.bincount(low, shares * (1.0 - offset), TURNS_BEFORE.size)
    weights += np.bincount(low + 1, shares * offset, TURNS_BEFORE.size)
    # A router that looks at beginnings keeps each on one replica; elsewhere each replica has every one.
    copies = 1.0 if routing == "prefix" else replicas
    shared_gap_s = max(curve.shared_gap_s * copies, 1e-9)
    shared = -np.expm1(-GAPS_S / shared_gap_s)
    if not curve.shared_gap_s:
        shared = np.ones_like(GAPS_S)
    found = curve.shared_fraction * shared + weights @ curve.reused_fraction
    unseen = 1.0 - found
    # Trapezoids: exact for straight lines between gaps.
    steps_s = np.diff(GAPS_S) * (unseen[1:] + unseen[:-1]) / 2.0
    return WorkingSet(found_fraction=found, distinct_s=np.append(0.0, np.cumsum(steps_s)))


def with_states(traffic: WorkingSet, states_s: float) -> WorkingSet:
    """Return a working set of which each second also leaves so many seconds' worth of tokens in recurrent states.

    A model with recurrent states resumes a prompt only where a state was kept: at the end of a prompt and in its reply.
    Each is as large as thousands of tokens, and is of no use once the session has gone on; but it leaves like
    everything else when it was not used for the residence time: C = λ·∫ from 0 to T of (1 − H(t)) dt + λ·s·T.
    """
    return WorkingSet(
        found_fraction=traffic.found_fraction, distinct_s=traffic.distinct_s + states_s * GAPS_S
    )


def found_within(traffic: WorkingSet, room_s: FloatLike) -> Floats:
    """Return the share of input tokens found in caches that hold so many seconds of new tokens.

    A cache of C tokens that receives λ a second holds C / λ. One without room keeps nothing.
    """
    residence = np.interp(room_s, traffic.distinct_s, GAPS_S)
    return np.asarray(np.interp(residence, GAPS_S, traffic.found_fraction))
