"""Carbon: what the power station emits while we run, and what making the machines emitted before.

Operational emissions are location-based, energy at the meter times the grid's intensity. Embodied emissions
are spread evenly over the service life, by exact days, whatever the books do: a shorter depreciation does not
make a server dirtier.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from planner.arrays import Floats
from planner.finance import refusals

GRAMS_PER_KILOGRAM = 1000.0
KILOGRAMS_PER_TONNE = 1000.0


def operational_kg(energy_kwh: ArrayLike, intensity_g_per_kwh: ArrayLike) -> Floats:
    """Return kgCO2e = kWh · g/kWh / 1000; shapes broadcast (hourly, monthly, by cluster)."""
    intensity = np.asarray(intensity_g_per_kwh, dtype=np.float64)
    refusals.raise_problems([refusals.not_negative("carbon.intensity_g_per_kwh", float(intensity.min(initial=0.0)))])
    return np.asarray(energy_kwh, dtype=np.float64) * intensity / GRAMS_PER_KILOGRAM


def embodied_kg(
    total_kg: ArrayLike,
    service_months: tuple[ArrayLike, ArrayLike],
    life_months: ArrayLike,
    edge_coordinates: Floats,
) -> Floats:
    """Return the embodied kgCO2e charged to each period, shape (cohorts, periods).

    ``service_months`` is (month coordinate in service, month coordinate retired or infinity). What is left of
    the life on early retirement is charged in the period of retirement: it was emitted for nothing else.
    """
    total = np.atleast_1d(np.asarray(total_kg, dtype=np.float64))[:, None]
    life = np.atleast_1d(np.asarray(life_months, dtype=np.float64))[:, None]
    refusals.raise_problems(
        [
            refusals.not_negative("carbon.embodied_kg", float(total.min(initial=0.0))),
            *(refusals.life_months("carbon.life_months", months) for months in sorted(set(life.ravel().tolist()))),
        ]
    )
    start, retired = (np.atleast_1d(np.asarray(times, dtype=np.float64))[:, None] for times in service_months)
    edges = edge_coordinates[None, :]
    charged = np.clip((edges - start) / life, 0.0, 1.0)
    return total * np.diff(np.where(edges > retired, 1.0, charged), axis=1)


def carbon_cost_usd(emissions_kg: ArrayLike, price_usd_per_tonne: ArrayLike) -> Floats:
    """Return what the emissions cost at a carbon price; shapes broadcast."""
    price = np.asarray(price_usd_per_tonne, dtype=np.float64)
    refusals.raise_problems([refusals.not_negative("carbon.price_usd_per_tonne", float(price.min(initial=0.0)))])
    return np.asarray(emissions_kg, dtype=np.float64) / KILOGRAMS_PER_TONNE * price
