from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate.power_fit import clock_bound_fraction, throttled_clock_fraction
from planner.physics.power import (
    FITTED,
    BoardRating,
    board_power_w,
    power_fraction,
    throughput_fraction_at_cap,
)

H200 = BoardRating(tdp_w=700.0, idle_w=126.0)
PREFILL = (0.08, 0.59)
DECODE_1 = (0.745, 0.0036)
DECODE_32 = (0.784, 0.106)
DECODE_128 = (0.718, 0.278)
activities = st.tuples(st.floats(0.0, 0.9), st.floats(0.001, 0.8))


@pytest.mark.parametrize(
    ("activity", "measured_w"),
    [(DECODE_1, 501.6), (DECODE_32, 672.1), (DECODE_128, 709.5), (PREFILL, 713.5)],
)
def test_an_h200_draws_what_was_measured_within_seven_percent(
    activity: tuple[float, float], measured_w: float
) -> None:
    assert float(board_power_w(H200, *activity)) == pytest.approx(measured_w, rel=0.07)


@pytest.mark.parametrize(
    ("activity", "measured_mhz"), [(DECODE_1, 1980), (DECODE_32, 1980), ((0.783, 0.303), 1500)]
)
def test_clocks_fall_where_they_were_seen_to_fall(
    activity: tuple[float, float], measured_mhz: float
) -> None:
    assert float(throttled_clock_fraction(*activity)) * 1980 == pytest.approx(
        measured_mhz, rel=0.05
    )


def test_the_formula_against_a_closed_form_at_two_points() -> None:
    assert float(power_fraction(0.0, 0.0)) == pytest.approx(FITTED.active)
    assert float(power_fraction(1.0, 1.0)) == pytest.approx(
        FITTED.memory + FITTED.active + FITTED.compute
    )
    half = float(power_fraction(1.0, 0.0, 0.5))
    assert half == pytest.approx(FITTED.memory + FITTED.active * 0.5**FITTED.clock_exponent)


def test_idle_and_busy_time_average() -> None:
    busy_w = float(board_power_w(H200, *DECODE_1))
    mean_w = board_power_w(H200, *DECODE_1, busy_fraction=np.array([0.0, 0.25, 1.0]))
    np.testing.assert_allclose(mean_w, [126.0, 0.75 * 126.0 + 0.25 * busy_w, busy_w])


def test_work_that_only_streams_or_only_multiplies() -> None:
    np.testing.assert_allclose(
        clock_bound_fraction([0.5, 0.0, 0.0], [0.0, 0.5, 0.0]), [0.0, 1.0, 0.0]
    )


def test_a_cap_costs_boards_at_their_limit_and_spares_those_below() -> None:
    # Measured at 600 of 700 W: 4% (decode, batch 64) to 7% (prefill, decode at 128).
    cap = 600.0 / 700.0
    lost = {
        name: 1.0 - float(throughput_fraction_at_cap(*activity, cap))
        for name, activity in _by_name().items()
    }
    assert 0.04 <= lost["prefill"] <= 0.07
    assert lost["prefill"] == pytest.approx(lost["decode 128"])
    assert lost["decode 1"] == pytest.approx(0.0, abs=1e-9)
    assert lost["decode 128"] == pytest.approx(lost["decode 32"])  # both draw the limit


def _by_name() -> dict[str, tuple[float, float]]:
    return {
        "prefill": PREFILL,
        "decode 128": DECODE_128,
        "decode 32": DECODE_32,
        "decode 1": DECODE_1,
    }


@given(activities, st.floats(0.3, 1.0), st.floats(0.3, 1.0))
def test_a_lower_cap_never_gives_more(
    activity: tuple[float, float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    slo_met_low, slo_met_high = throughput_fraction_at_cap(*activity, np.array([low, high]))
    assert 0.0 <= slo_met_low <= slo_met_high + 1e-9 <= 1.0 + 2e-9


@given(activities, st.floats(0.3, 1.0))
def test_under_a_cap_the_board_draws_no_more_than_the_cap(
    activity: tuple[float, float], cap: float
) -> None:
    clock = float(throttled_clock_fraction(*activity, cap))
    bound = float(clock_bound_fraction(*activity))
    stretch = 1.0 - bound + bound / clock
    drawn = float(power_fraction(activity[0] / stretch, activity[1] / stretch, clock))
    assert drawn <= cap + 1e-9 or clock == pytest.approx(0.17)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 0.1))
def test_more_activity_never_draws_less(memory: float, compute: float, more: float) -> None:
    assert power_fraction(memory + more, compute) >= power_fraction(memory, compute)
    assert power_fraction(memory, compute + more) >= power_fraction(memory, compute)
