"""What energy costs: hourly prices times hourly load, demand charges from monthly peaks."""

from __future__ import annotations

import numpy as np

from planner.arrays import Floats
from planner.engine.driver import Run
from planner.finance.tariffs import demand_charges_of_peaks_usd
from planner.plan.plan import Plan
from planner.run.monthly import Monthly, shares_of_power


def energy_usd(plan: Plan, run: Run, monthly: Monthly) -> tuple[Floats, Floats]:
    """Return the cost of IT energy and of cooling, shape (months, clusters) each.

    Cooling (and distribution) belongs to the site; clusters bear it in proportion to their IT energy, or to rated power
    where a month has none. Machines at a provider's draw none of the site's.
    """
    prices = plan.money.power
    if prices.hourly_usd_per_kwh is None:
        price = prices.monthly_usd_per_kwh[:, None]
        return monthly.it_kwh * price, (monthly.facility_kwh - monthly.it_kwh) * price
    it = np.zeros_like(monthly.it_kwh)
    site = np.zeros(it.shape[0])
    for window in run.windows:
        hours = slice(window.first_hour, window.first_hour + window.facility_kw.shape[0])
        price = prices.hourly_usd_per_kwh[hours]
        edges = np.clip(plan.month_edges_h - window.first_hour, 0, price.size)
        inside = np.flatnonzero(np.diff(edges) > 0)
        it[inside] += np.add.reduceat(window.it_kw * price, edges[inside], axis=-1).T
        site[inside] += np.add.reduceat(window.facility_kw * price, edges[inside])
    return it, (site - it.sum(axis=1))[:, None] * shares_of_power(plan, monthly.it_kwh)


def demand_charge_usd(plan: Plan, monthly: Monthly) -> Floats:
    """Return the charge for each month's highest hour, borne like energy, shape (months, clusters)."""
    charge = demand_charges_of_peaks_usd(plan.money.power.tariff, plan.months, monthly.peak_facility_kw)
    return charge[:, None] * shares_of_power(plan, monthly.it_kwh)
