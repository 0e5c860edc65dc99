"""Sessions of a zoom: gaps as the curve has them, caches as an exact LRU has them, and both models find the same."""

from __future__ import annotations

import numpy as np
import pytest

from planner.catalog.load import reuse_curve
from planner.physics.prefix_cache import GAPS_S, found_within, with_states, working_set
from planner.requests.sessions import Found, KeptPrompts, draw_sessions
from tests.requests.agreement import MEMORY_CELLS, MemoryCell, compare_memory


def test_gaps_between_turns_are_those_of_the_curve() -> None:
    curve = reuse_curve("agentic")
    generator = np.random.default_rng(3)
    times_s = np.sort(generator.random(40_000) * 10_000.0)
    stays_s = np.full(times_s.size, 2.0)
    sessions = draw_sessions(curve, times_s, stays_s, generator)
    last_s: dict[int, float] = {}
    gaps = []
    for time_s, session in zip(times_s.tolist(), sessions.tolist(), strict=True):
        # The first half has less before it than a gap may take.
        if time_s > 5_000.0:
            gaps.append(time_s - last_s.get(session, -np.inf) - 2.0)
        last_s[session] = time_s
    within = [float(np.mean(np.array(gaps) <= gap_s)) for gap_s in (5.0, 10.0, 30.0, 100.0, 500.0)]
    turns = curve.reused_fraction[0] / curve.turn_fraction
    expected = np.interp([5.0, 10.0, 30.0, 100.0, 500.0], GAPS_S, turns)
    assert within == pytest.approx(expected.tolist(), abs=0.02)


def test_a_cache_drops_the_end_of_what_was_used_longest_ago() -> None:
    kept = KeptPrompts(host_tokens=320.0)
    for session in (1, 2, 3):
        kept.keep(session, 320.0, 640.0)
    # 960 tokens in room for 640 and 320: the oldest is in the server.
    assert kept.found(1, 320.0, 640.0) == Found(320, 320)
    assert kept.found(3, 160.0, 640.0) == Found(160, 0)
    # Running sequences take half of a session's: the second lies half in each, and of the first half is gone.
    assert kept.found(2, 320.0, 480.0) == Found(320, 160)
    assert kept.found(1, 320.0, 640.0) == Found(160, 160)
    kept.take(3, 1.0)
    assert kept.found(3, 320.0, 640.0) == Found(0, 0)
    # Without room nothing is kept, and of a session that never came nothing is found.
    assert kept.found(9, 320.0, 640.0) == Found(0, 0)
    empty = KeptPrompts(host_tokens=0.0)
    empty.keep(1, 320.0, 0.0)
    assert empty.found(1, 320.0, 640.0) == Found(0, 0)


def test_states_stay_behind_when_a_session_goes_on() -> None:
    kept = KeptPrompts(host_tokens=0.0, state_tokens=80.0)
    kept.keep(1, 320.0, 800.0)
    kept.take(1, 1.0)
    kept.keep(1, 320.0, 800.0)
    # A state of the first turn, and all of the second.
    assert kept.found(1, 320.0, 480.0) == Found(320, 0)
    # Room for half of the second once the first has gone.
    assert kept.found(1, 320.0, 200.0) == Found(160, 0)


@pytest.mark.parametrize("state_tokens", [0.0, 1_000.0])
def test_turns_of_drawn_sessions_find_what_the_formula_says(state_tokens: float) -> None:
    curve = reuse_curve("agentic")
    generator = np.random.default_rng(5)
    times_s = np.sort(generator.random(60_000) * 20_000.0)
    sessions = draw_sessions(curve, times_s, np.zeros(times_s.size), generator)
    for contexts in (60, 200):
        kept = KeptPrompts(host_tokens=0.0, state_tokens=state_tokens)
        room = contexts * 10_000.0
        found = []
        for request, session in enumerate(sessions.tolist()):
            if times_s[request] > 10_000.0:
                found.append(kept.found(session, 10_000.0 * curve.turn_fraction, room).tokens)
            kept.take(session, curve.turn_fraction)
            kept.keep(session, 10_000.0, room)
        traffic = with_states(working_set(curve), state_tokens / 10_000.0)
        by_formula = found_within(traffic, contexts / 3.0)
        assert np.mean(found) / 10_000.0 == pytest.approx(float(by_formula), abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [*MEMORY_CELLS[:2], MEMORY_CELLS[-2]], ids=str)
def test_the_hour_and_the_zoom_agree_on_what_memory_finds(cell: MemoryCell) -> None:
    compared = compare_memory(cell)
    assert compared.agrees, compared
