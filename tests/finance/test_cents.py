from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from planner.errors import ConservationError
from planner.finance.ledger import cents, series_cents, split_cents

SERIES = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e7, 1e7))


def test_cents_round_halves_away_from_zero() -> None:
    assert cents([0.125, 0.375, -0.125, -1.0, 19.99, 0.1249]).tolist() == [
        13,
        38,
        -13,
        -100,
        1999,
        12,
    ]
    assert cents(1.005) == 101  # a half that a float holds a little low is still a half


@given(amount_usd=SERIES)
def test_a_series_never_drifts_by_more_than_half_a_cent(amount_usd: np.ndarray) -> None:
    posted = series_cents(amount_usd)
    exact = np.cumsum(amount_usd) * 100
    assert np.all(np.abs(np.cumsum(posted) - exact) <= 0.5 + 1e-6)
    assert np.all(np.abs(posted - amount_usd * 100) <= 1 + 1e-6)


@given(
    total=st.integers(-(10**12), 10**12),
    weights=st.lists(st.integers(1, 1000), min_size=1, max_size=9),
)
def test_a_split_loses_no_cent(total: int, weights: list[int]) -> None:
    parts = split_cents(np.array(total), np.array(weights) / sum(weights))
    assert int(parts.sum()) == total
    assert np.all(np.abs(parts - total * np.array(weights) / sum(weights)) <= 1.001)


def test_shares_that_do_not_sum_to_one_are_our_bug() -> None:
    with pytest.raises(ConservationError, match="sum to one"):
        split_cents(np.array([100]), [0.5, 0.4])


@pytest.mark.parametrize("amount", [np.nan, np.inf, 1e15])
def test_money_that_no_cent_can_hold_is_our_bug(amount: float) -> None:
    with pytest.raises(ConservationError):
        cents(amount)
