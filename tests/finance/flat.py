"""A tariff with one energy price."""

from planner.finance.tariffs import EnergyTariff, TariffWindow


def flat_tariff(
    price_usd_per_kwh: float,
    *,
    escalator_per_year: float = 0.0,
    demand_charge_usd_per_kw_month: float = 0.0,
) -> EnergyTariff:
    """Return a tariff with one energy price."""
    return EnergyTariff(
        windows=(TariffWindow(name="flat", price_usd_per_kwh=price_usd_per_kwh),),
        escalator_per_year=escalator_per_year,
        demand_charge_usd_per_kw_month=demand_charge_usd_per_kw_month,
    )
