"""An owned building: on the books over a life of its own, and charged to the clusters that stand in it.

It belongs to the site as a whole. Each month clusters are charged what it costs (depreciation, the charge for capital,
property tax, upkeep) by their nameplate on site, and the site receives it, so that a cluster's cost has its space in it
and the fleet's has it once. It counts at book value on the first and the last day.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.arrays import Cents
from planner.finance.cents import cents, series_cents, usd
from planner.finance.depreciation import (
    DepreciationSchedule,
    capital_charge_usd,
    depreciate,
    make_cohorts,
    property_tax_usd,
)
from planner.finance.recurring import yearly_cost_usd
from planner.finance.tax import TaxRules
from planner.plan.plan import Plan

TAX_LIFE_MONTHS = 468
"""Nonresidential real property: 39 years, straight line, mid-month convention (IRS Publication 946, Table A-7a)."""


class BuildingBooks(NamedTuple):
    """An owned building's figures in cents, shape (periods,) where not stated."""

    opened_months: float
    """Month coordinate of the day it is paid and in service."""
    schedule: DepreciationSchedule
    """Of one cohort."""
    charge_cents: Cents
    """Cost of capital."""
    property_tax_cents: Cents
    upkeep_cents: Cents
    deduction_cents: Cents
    """Tax depreciation."""
    basis_cents: Cents
    """Tax basis as each period begins, and at the end, shape (periods + 1,)."""
    value_cents: Cents
    """What it counts at as each period begins, and at the end, shape (periods + 1,)."""

    @property
    def cost_cents(self) -> Cents:
        """What clusters are charged for."""
        running = self.charge_cents + self.property_tax_cents + self.upkeep_cents
        return np.asarray(self.schedule.depreciation_cents[0] + running, dtype=np.int64)

    def after_tax_cents(self, rules: TaxRules | None) -> int:
        """Return what it counts at on the first day, after tax on its sale."""
        gain = usd(self.value_cents[0] - self.basis_cents[0]) * (rules.rate_fraction if rules else 0.0)
        return int(self.value_cents[0] - cents(gain))

    def deferred_tax_cents(self, rules: TaxRules) -> int:
        """Return rate × (book value − tax basis) on the first day."""
        return int(cents(usd(self.schedule.opening_book_cents[0] - self.basis_cents[0]) * rules.rate_fraction))


def building_of(plan: Plan) -> BuildingBooks | None:
    """Return the books of the site's building, if it owns one."""
    building, grid, capital = plan.money.capital.building, plan.months, plan.money.capital
    if building is None:
        return None
    edges = grid.edge_coordinates
    opened = float(grid.coordinate_of_hour(np.array([building.opened_h]))[0])
    asset = make_cohorts(
        building.cost_usd + building.land_usd, opened, residual_usd=building.land_usd, life_months=building.life_months
    )
    schedule = depreciate(asset, edges)
    owned = opened < edges
    written_off = np.clip(edges - np.floor(opened) - 0.5, 0.0, TAX_LIFE_MONTHS) / TAX_LIFE_MONTHS
    deducted = np.where(owned, cents(building.cost_usd * written_off), 0)
    closing = np.append(schedule.opening_book_cents, schedule.closing_book_cents[0])
    held = schedule.held_months[0] / grid.month_fractions
    upkeep = yearly_cost_usd(np.array(building.cost_usd * held)[:, None], building.upkeep_fraction_per_year, grid)
    taxed = property_tax_usd(schedule, building.property_tax_fraction_per_year)
    return BuildingBooks(
        opened_months=opened,
        schedule=schedule,
        charge_cents=series_cents(capital_charge_usd(schedule, capital.discount_rate_per_year)[0]),
        property_tax_cents=series_cents(taxed[0]),
        upkeep_cents=series_cents(upkeep[:, 0]),
        deduction_cents=np.diff(deducted),
        basis_cents=np.where(owned, cents(building.cost_usd + building.land_usd) - deducted, 0),
        value_cents=closing * (capital.end_value != "none"),
    )
