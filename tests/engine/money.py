"""Money made by hand: flat prices, straight line, nothing sold and nothing owed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from planner.finance.accounts import Account
from planner.finance.depreciation import ResaleCurve
from planner.finance.financing import Books
from planner.finance.money_plan import (
    CapitalPlan,
    MarketPlan,
    MoneyPlan,
    PowerPricePlan,
    UpkeepPlan,
)
from planner.finance.months import MonthGrid
from planner.finance.present_value import CashFlowTiming
from tests.finance.flat import flat_tariff


def money_plan(grid: MonthGrid, clusters: int, **changes: Any) -> MoneyPlan:
    """Plain money; changes name a field of any of its four parts."""
    months = grid.period_count
    parts: dict[str, Any] = {
        "capital": CapitalPlan(
            depreciation_months=(36,) * clusters,
            declining_factor=0.0,
            residual_fraction=(0.1,) * clusters,
            resale=(ResaleCurve(age_months=(36.0,), fractions=(0.1,)),) * clusters,
            end_value="market",
            discount_rate_per_year=0.1,
            timing=CashFlowTiming.MID_MONTH,
            fiscal_year_start_month=1,
            opening_cash_usd=0.0,
            books=Books.US_GAAP,
            borrowing_rate_per_year=0.1,
            receivable_days=0.0,
            payable_days=0.0,
            property_tax_fraction_per_year=0.0,
            loan=None,
        ),
        "power": PowerPricePlan(
            tariff=flat_tariff(0.08),
            monthly_usd_per_kwh=np.full(months, 0.08),
            hourly_usd_per_kwh=None,
            colocation_usd_per_kw_month=150.0,
            colocation_escalator_per_year=0.0,
            colocation_term_months=1,
            grid_carbon_g_per_kwh=400.0,
            carbon_usd_per_tonne=np.zeros(months),
            embodied_kg=np.full(clusters, 4000.0),
            service_life_months=60.0,
        ),
        "upkeep": UpkeepPlan(
            yearly_usd={
                Account.MAINTENANCE: 0.03,
                Account.INSURANCE: 0.0,
                Account.SOFTWARE_ENGINEERS: 280_000.0,
                Account.OPERATIONS_STAFF: 150_000.0,
                Account.SUPPORT_CONTRACTS: 300.0,
                Account.LICENCES: 0.0,
            },
            staff_per_accelerator=0.0,
            crew_usd_per_year=0.0,
            escalator_per_year=0.0,
            part_usd=np.zeros(clusters),
            rma_usd=0.0,
            replacement_usd=np.zeros(clusters),
            warranty_h=26_298.0,
        ),
        "market": MarketPlan(
            token_price=None,
            is_listed=np.zeros(1, dtype=bool),
            api_price=None,
            is_api_listed=False,
            price_change_per_year=0.0,
            burst=None,
            sla_objective_fraction=0.99,
            sla_credit_usd_per_million_tokens=0.0,
            tax=None,
        ),
    }
    for name, part in parts.items():
        own = {field.name for field in dataclasses.fields(part)} & set(changes)
        parts[name] = dataclasses.replace(part, **{field: changes.pop(field) for field in own})
    assert not changes, changes
    return MoneyPlan(**parts)
