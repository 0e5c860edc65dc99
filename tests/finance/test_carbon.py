from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.finance.tariffs import embodied_kg


@given(
    total=st.floats(0, 1e6), start=st.floats(0, 30), held=st.one_of(st.just(np.inf), st.floats(0, 60)),
    life=st.integers(1, 72),
)  # fmt: skip
def test_every_embodied_kilogram_is_charged_once(
    total: float, start: float, held: float, life: int
) -> None:
    charged = embodied_kg([total], ([start], [start + held]), life, np.arange(201.0))
    assert charged.sum() == pytest.approx(total)
    assert np.all(charged >= -1e-9)


def test_embodied_carbon_is_spread_by_days_and_cut_at_the_horizon() -> None:
    charged = embodied_kg([4_800.0], ([0.5], [np.inf]), 48, np.arange(13.0))
    assert charged[0, :2] == pytest.approx([50.0, 100.0])
    assert charged.sum() == pytest.approx(1_150.0)


def test_early_retirement_charges_the_rest_at_once() -> None:
    charged = embodied_kg([4_800.0], ([0.0], [6.5]), 48, np.arange(13.0))
    assert charged[0, 5] == pytest.approx(100.0)
    assert charged[0, 6] == pytest.approx(4_200.0)
    assert charged[0, 7:].sum() == 0
