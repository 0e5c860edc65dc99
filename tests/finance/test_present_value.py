from __future__ import annotations

import numpy as np
import pytest
import pyxirr
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.finance.present_value import (
    CashFlows,
    CashFlowTiming,
    internal_rate,
    net_present_value,
)


@given(rate=st.floats(-0.3, 1.0), flows=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=72))
def test_npv_agrees_with_another_library(rate: float, flows: list[float]) -> None:
    ours = net_present_value(rate, flows)
    theirs = pyxirr.npv((1 + rate) ** (1 / 12) - 1, flows)
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-4)


def test_flows_of_one_sign_have_no_rate() -> None:
    assert internal_rate([-100, -20, 0, -5]) is None
    assert internal_rate([0.0, 0.0]) is None


def test_of_two_rates_none_is_chosen() -> None:
    # Roots at monthly 1% and 3%: (x − 1/1.01)(x − 1/1.03) scaled.
    a = 1.01
    b = 1.03
    assert internal_rate([-1.0, a + b, -a * b]) is None
    # 1 paid, 2,000 earned a year later and 1 paid after a hundred: 1 + r = 2000, and 1 / 2000^(1/99).
    assert internal_rate([-1.0, 2000.0, -1.0], [0.0, 12.0, 1200.0]) is None


def test_the_rate_where_a_common_library_fails() -> None:
    # A series that doubles its money in the first year: the answer is near +100%, not −99.98%.
    flows = np.concatenate([[-100.0], np.full(36, 8.5)])
    found = internal_rate(flows)
    assert found is not None
    assert net_present_value(found, flows) == pytest.approx(0, abs=1e-9)
    assert 1.0 < found < 1.7


def test_a_rate_beyond_the_search_is_none() -> None:
    assert internal_rate([-1.0, 1e9]) is None


def flows(
    running: list[float],
    *dated: tuple[float, float],
    timing: CashFlowTiming = CashFlowTiming.MID_MONTH,
    first_month: float = 1.0,
) -> CashFlows:
    """Return monthly flows and (month, amount) flows; the first period may be part of a month."""
    return CashFlows(
        running_usd=np.array(running),
        edge_months=np.concatenate([[0.0], first_month + np.arange(len(running))]),
        dated_months=np.array([month for month, _ in dated]),
        dated_usd=np.array([amount for _, amount in dated]),
        timing=timing,
    )


def test_what_is_paid_on_day_one_and_earned_back_evenly_pays_back_by_hand() -> None:
    # 4.7 million on the first day, 200,000 a month: 23.5 months.
    plan = flows([200_000.0] * 36, (0.0, -4_700_000.0))
    assert plan.payback_months() == pytest.approx(23.5, rel=1e-12)
    assert plan.payback_months(0.0) == plan.payback_months()
    at_the_end = flows([200_000.0] * 36, (0.0, -4_700_000.0), timing=CashFlowTiming.MONTH_END)
    assert at_the_end.payback_months() == 24.0
    # At 10% a year the k-th month brings 200,000·1.1^(−(k − ½)/12); the 27th turns the total.
    brought = 200_000 * 1.1 ** (-(np.arange(36) + 0.5) / 12)
    whole = int(np.flatnonzero(np.cumsum(brought) >= 4_700_000)[0])
    share = (4_700_000 - brought[:whole].sum()) / brought[whole]
    assert plan.payback_months(0.1) == pytest.approx(whole + share, rel=1e-12)


def test_a_purchase_inside_a_month_jumps_on_its_day() -> None:
    # 100 a month; 150 on day one, 120 at 2.25: back at 1.5, in loss again from 2.25 on (225 − 270), back at 2.7.
    plan = flows([100.0] * 6, (0.0, -150.0), (2.25, -120.0))
    assert plan.payback_months() == pytest.approx(2.7)
    sold = flows([-10.0] * 4, (0.0, -60.0), (3.5, 200.0))
    assert sold.payback_months() == 3.5  # the sale itself turns it
    later = flows(
        [0.0] * 25, (0.0, -100.0), (24.0, 120.0)
    )  # 121 would be worth the 100 at 10% a year
    assert later.payback_months(0.09) == 24.0
    assert later.payback_months(0.1) is None


def test_payback_is_zero_without_a_loss_and_nothing_without_a_gain() -> None:
    assert flows([5.0, 5.0]).payback_months() == 0.0
    assert (
        flows([5.0], (0.0, -5.001)).payback_months() == 1.0
    )  # a loss of less than half a cent is none
    assert flows([5.0, 5.0], (0.0, -11.0)).payback_months() is None
    assert flows([0.0]).payback_months() == 0.0


def test_flows_count_at_the_middle_of_their_month_and_on_their_day() -> None:
    plan = flows([12.0, 24.0], (0.0, -100.0), (1.75, 30.0), (1.5, 50.0), first_month=0.5)
    by_hand = (
        -100
        + 12 * 1.2 ** (-0.25 / 12)
        + 24 * 1.2 ** (-1 / 12)
        + 30 * 1.2 ** (-1.75 / 12)
        + 50 * 1.2 ** (-1.5 / 12)
    )
    assert plan.net_present_value(0.2) == pytest.approx(by_hand, rel=1e-12)
    late = flows([12.0, 24.0], (0.0, -100.0), timing=CashFlowTiming.MONTH_END, first_month=0.5)
    assert late.net_present_value(0.2) == pytest.approx(
        -100 + 12 * 1.2 ** (-0.5 / 12) + 24 * 1.2 ** (-1.5 / 12), rel=1e-12
    )


@given(
    outlay=st.floats(1e3, 1e6),
    running=st.lists(st.floats(1, 1e5), min_size=3, max_size=48),
    end=st.floats(0, 1e5),
)
def test_rate_and_value_agree_with_another_library_on_half_months(
    outlay: float, running: list[float], end: float
) -> None:
    assume(0.3 * outlay < sum(running) + end < 10 * outlay)
    plan = flows(running, (0.0, -outlay), (len(running), end))
    # The same money on a grid of half months, which is all that library needs to know of time.
    grid = np.zeros(2 * len(running) + 1)
    grid[0] = -outlay
    grid[1::2] = running
    grid[-1] += end
    assert plan.net_present_value(0.1) == pytest.approx(
        pyxirr.npv(1.1 ** (1 / 24) - 1, grid.tolist()), rel=1e-9, abs=1e-5
    )
    theirs = pyxirr.irr(grid.tolist())
    ours = plan.internal_rate()
    if theirs is not None and ours is not None:
        assert np.log1p(ours) / 24 == pytest.approx(np.log1p(theirs), abs=1e-7)


def test_a_difference_of_plans_is_the_difference_of_their_values() -> None:
    first = flows([10.0, 20.0], (0.0, -25.0))
    second = flows([5.0, 5.0], (0.5, -7.0))
    for rate in (0.0, 0.3):
        both = first.net_present_value(rate) - second.net_present_value(rate)
        assert (first - second).net_present_value(rate) == pytest.approx(both)
