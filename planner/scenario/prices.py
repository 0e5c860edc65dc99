"""What a scenario says about prices, as the finance package takes it; building either checks it whole."""

from __future__ import annotations

from planner.catalog.entries import Tariff as CatalogTariff
from planner.finance.purchase import DiscountTier, Quote, TierRule
from planner.finance.tariffs import Tariff, TariffWindow, flat_tariff
from planner.scenario.cluster import Cluster, VolumeDiscount
from planner.scenario.site import WEEKDAYS, Site


def _tiers(discounts: tuple[VolumeDiscount, ...]) -> tuple[DiscountTier, ...]:
    return tuple(
        DiscountTier(minimum_units=tier.from_accelerators, discount_fraction=tier.discount_fraction)
        for tier in discounts
    )


def standing_price(cluster: Cluster, list_price_usd: float) -> Quote:
    """Return the price of a cluster's accelerators where no dated offer holds."""
    return Quote(
        name="list price",
        list_price_usd=list_price_usd * (1.0 - cluster.discount_fraction),
        tiers=_tiers(cluster.volume_discounts),
    )


def dated_quotes(cluster: Cluster) -> tuple[Quote, ...]:
    """Return the offers a cluster names."""
    return tuple(
        Quote(
            name=offer.name,
            list_price_usd=offer.unit_price_usd,
            tiers=_tiers(offer.volume_discounts),
            tier_rule=TierRule.MARGINAL if offer.volume_rule == "marginal" else TierRule.WHOLE_ORDER,
            valid_from=offer.valid_from,
            valid_until=offer.valid_until,
        )
        for offer in cluster.quotes
    )


def window_zone(site: Site, tariff: CatalogTariff) -> str | None:
    """Return the clock by which time-of-use windows are read: the one stated, or else that of the tariff's place."""
    return site.electricity.timezone or (tariff.timezone.value if tariff.timezone is not None else None)


def tariff_of(site: Site, flat_usd_per_kwh: float) -> Tariff:
    """Return the site's supply contract; the flat price stands where no windows are given."""
    contract = site.electricity
    windows = tuple(
        TariffWindow(
            name=window.name,
            price_usd_per_kwh=window.usd_per_kwh,
            months=frozenset(window.months),
            weekdays=frozenset(WEEKDAYS.index(day) for day in window.weekdays),
            start_hour=window.start_hour,
            end_hour=window.end_hour,
        )
        for window in contract.windows
    )
    return Tariff(
        windows=windows or flat_tariff(flat_usd_per_kwh).windows,
        escalator_per_year=contract.escalator_per_year or 0.0,
        demand_charge_usd_per_kw_month=contract.demand_charge_usd_per_kw_month,
        demand_ratchet_fraction=contract.demand_ratchet_fraction,
    )
