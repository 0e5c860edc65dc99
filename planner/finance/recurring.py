"""What is paid month after month: people, colocation, support, licences, spares.

Every function returns dollars of shape (periods, clusters); yearly amounts are prorated by each period's
share of a month, and rise once a year on the anniversary of the horizon's start.
"""

from __future__ import annotations

import numpy as np

from planner.arrays import Floats
from planner.finance import refusals
from planner.finance.months import MonthGrid
from planner.finance.tariffs import escalation
from planner.units import MONTHS_PER_YEAR


def yearly_cost_usd(
    quantity: Floats, unit_usd_per_year: float, grid: MonthGrid, escalator_per_year: float = 0.0
) -> Floats:
    """Return quantity × yearly unit price, by period, shape (periods, clusters) both ways.

    The quantity is the period's average: engineers, support contracts, licensed accelerators, dollars
    insured.
    """
    refusals.raise_problems(
        [
            refusals.not_negative("unit_usd_per_year", unit_usd_per_year),
            refusals.annual_rate("escalator_per_year", escalator_per_year),
            refusals.not_negative("quantity", float(np.min(quantity, initial=0.0))),
        ]
    )
    per_period = unit_usd_per_year / MONTHS_PER_YEAR * grid.month_fractions * escalation(grid, escalator_per_year)
    return quantity * per_period[:, None]


def colocation_usd(
    provisioned_kw: Floats,
    rent_usd_per_kw_month: float,
    grid: MonthGrid,
    escalator_per_year: float,
) -> Floats:
    """Return the rent for provisioned power, used or not, shape (periods, clusters)."""
    return yearly_cost_usd(provisioned_kw, rent_usd_per_kw_month * MONTHS_PER_YEAR, grid, escalator_per_year)
