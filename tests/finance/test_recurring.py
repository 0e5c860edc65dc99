from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from planner.finance.financing import yearly_cost_usd
from planner.finance.months import MonthGrid
from planner.finance.present_value import net_present_value
from tests.finance.annuity import annuity_factor

GRID = MonthGrid(start=date(2026, 1, 1), horizon_months=36)


def test_a_part_month_is_paid_by_days() -> None:
    grid = MonthGrid(start=date(2026, 4, 16), horizon_months=12)
    cost = yearly_cost_usd(np.ones((13, 1)), 12_000.0, grid)
    assert cost[0, 0] == pytest.approx(500.0)
    assert cost.sum() == pytest.approx(12_000.0)


@pytest.mark.parametrize("growth", [0.0, 0.04])
def test_present_value_of_escalating_rent_is_a_growing_annuity(growth: float) -> None:
    # A year's twelve payments are one annuity due; the years are a growing annuity.
    rate = 0.1
    monthly = 1.1 ** (1 / 12) - 1
    cost = yearly_cost_usd(np.ones((36, 1)), 12.0, GRID, growth)[:, 0]
    one_year = annuity_factor(monthly, 12) * (1 + monthly)
    years = sum(((1 + growth) / (1 + rate)) ** year for year in range(3))
    assert net_present_value(rate, cost) == pytest.approx(one_year * years)
