"""The site: electricity, cooling, space, power caps, outages and power blocks, and commissioning crews."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

from pydantic import Field

from planner.catalog.entries import Tariff as CatalogTariff
from planner.finance.financing import DiscountTier, Quote
from planner.finance.tariffs import EnergyTariff, TariffWindow
from planner.scenario.cluster import Cluster, VolumeDiscount
from planner.scenario.fields import (
    CrewCount,
    Fraction,
    LifeMonths,
    NonNegative,
    Plausible,
    Positive,
    Price,
    SitePower,
    YearlyChange,
)
from planner.validation import Strict

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
Month = Annotated[int, Field(ge=1, le=12)]
EnergyPrice = Annotated[float, Field(ge=0, le=10)]
# Three times beyond the prior on both sides: tariffs fall, too.
PowerRise = Annotated[
    YearlyChange,
    Plausible(
        -0.15, 0.3, "prior electricity_escalator has 0 to 0.1; up to three times that, and falls"
    ),
]
WEEKDAYS: tuple[Weekday, ...] = (
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
)


class PriceWindow(Strict):
    """One energy price over part of the local calendar."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the window on the bill: peak, off-peak, summer."""
    usd_per_kwh: Annotated[
        EnergyPrice,
        Plausible(
            0.002,
            1.0,
            "prior electricity_price has 0.045 to 0.13; windows range from nights of surplus to critical peaks",
        ),
    ]
    """Price of energy inside the window."""
    months: Annotated[tuple[Month, ...], Field(min_length=1, max_length=12)] = tuple(range(1, 13))
    """Calendar months of the window, 1 to 12. Default: all twelve."""
    weekdays: Annotated[tuple[Weekday, ...], Field(min_length=1, max_length=7)] = WEEKDAYS
    """Days of the week on which the window applies. Default: all seven."""
    start_hour: Annotated[int, Field(ge=0, le=23)] = 0
    """First local hour of the window. Default 0: from midnight."""
    end_hour: Annotated[int, Field(ge=1, le=24)] = 24
    """First local hour after the window. If it is below start_hour, the window covers the hours before end_hour and
    those from start_hour on, within each day. Default 24: to midnight."""


class Electricity(Strict):
    """A supply contract, instead of the catalogue's flat tariff."""

    windows: Annotated[tuple[PriceWindow, ...], Field(max_length=100)] = ()
    """Energy prices by month, weekday and hour; together the windows cover every hour exactly once. Default: one flat
    price."""
    timezone: str | None = None
    """Time zone of the windows, e.g. America/New_York. Default: that of the tariff, or UTC if the tariff has none."""
    escalator_per_year: PowerRise | None = None
    """Yearly rise of energy price and demand charge, on each anniversary of the start. Default:
    finance.inflation_per_year."""
    demand_charge_usd_per_kw_month: Annotated[
        float,
        Field(ge=0, le=1e6),
        Plausible(0.5, 100, "assumption: wider than the range of US utilities"),
    ] = 0.0
    """Monthly charge per kW of power in the month's highest hour. Default 0: the energy price includes it."""
    demand_ratchet_fraction: Annotated[
        Fraction, Plausible(0.1, 1, "assumption; US utilities use 0.5 to 1")
    ] = 0.0
    """The demand charge is due on at least this share of the highest peak of the previous eleven months. Default 0: no
    ratchet."""
    contracted_kw: Annotated[NonNegative, Plausible(10, 2_000_000)] = 0.0
    """Power contracted with the utility, take or pay from the first day. Default 0: none."""
    minimum_take_fraction: Annotated[Fraction, Plausible.prior("minimum_take")] = 0.85
    """Share of the contracted power on which the demand charge is due, whether used or not. Default 0.85: AEP Ohio's
    tariff of 2025."""


class PowerBlock(Strict):
    """A block of power that the utility energises on a date."""

    date: datetime.date
    """Day on which the block is energised."""
    it_kw: SitePower
    """IT load that the block can supply."""


class Curtailment(Strict):
    """A period of days in which the utility requires a lower load."""

    date: datetime.date
    """First day of the curtailment."""
    length_days: Annotated[
        Positive, Plausible(0.04, 92, "assumption: from an hour to a season")
    ] = 1.0
    """Number of days for which the curtailment lasts. Default 1: a day, as most curtailments last (assumption)."""
    hours_per_day: Annotated[
        float, Field(gt=0, le=24), Plausible(0.25, 24, "the hours of a day")
    ] = 24.0
    """Hours of each day in which the load is cut; if fewer than 24, they begin at 16:00 UTC. Default 24: all day."""
    cut_fraction: Annotated[Fraction, Plausible(0.01, 1)]
    """Share of the site's power cap that must not be drawn; if the site has no cap, the share of its provisioned
    power."""


class Site(Strict):
    """The site of the machines: power, cooling, space and commissioning."""

    tariff: str = "us-average"
    """Electricity tariff, by its catalogue name. Default us-average: the middle of the catalogue's states."""
    electricity_usd_per_kwh: (
        Annotated[
            EnergyPrice,
            Plausible(
                0.01,
                0.65,
                "prior electricity_price has 0.045 to 0.13; from a fifth of that to five times",
            ),
        ]
        | None
    ) = None
    """Price of energy, in place of the tariff's price. Default: the tariff's price."""
    electricity: Electricity = Electricity()
    """Time-of-use windows, yearly rise and demand charge. Default: one price at all hours."""
    grid_carbon_g_per_kwh: (
        Annotated[
            NonNegative,
            Plausible(5, 1200, "from grids of hydro and nuclear power to lignite (IPCC)"),
        ]
        | None
    ) = None
    """Carbon intensity of the energy, in place of the tariff's figure. Default: the tariff's figure."""
    pue_ratio: Annotated[
        float,
        Field(ge=1, le=3),
        Plausible(
            1,
            2.2,
            "from P10 of prior pue_liquid_hyperscale, 1.08, to P90 of prior pue_legacy, 1.8, and a little beyond",
        ),
    ] = 1.3
    """Facility power over IT power at rated load. Default 1.3: typical of new large colocation sites (Uptime)."""
    pue_fixed_fraction: Annotated[Fraction, Plausible(0.02, 0.9)] = 0.3
    """Share of the cooling and distribution load that remains when the IT load falls. Default 0.3: assumption."""
    pue_season_fraction: Annotated[Fraction, Plausible(0, 0.6)] = 0.1
    """Swing of the cooling and distribution load between summer and winter, as a share of that load. Default 0.1:
    assumption for a temperate climate."""
    facility_power_cap_kw: SitePower | None = None
    """Limit on the facility power that the site may draw. At the cap, nodes are parked or clocked down, whichever
    serves more, and workloads of lower priority give way. Default: no cap."""
    power_blocks: Annotated[tuple[PowerBlock, ...], Field(max_length=100)] = ()
    """Blocks of IT power that become available on dates. Nodes are paid on delivery and wait for power. Default: all
    power is there from the start."""
    curtailments: Annotated[tuple[Curtailment, ...], Field(max_length=1000)] = ()
    """Periods in which the utility requires a lower load. Default: none."""
    weight_load_gb_per_s_per_node: Annotated[Positive, Plausible.prior("weight_load_bandwidth")] = (
        4.3
    )
    """Speed at which a node reads weights from storage into its accelerators when it changes to another model. Default
    4.3: measured with the usual loader on a node of eight H200 (prior weight_load_bandwidth)."""
    outages_per_year: Annotated[
        NonNegative, Plausible(0.01, 12, "assumption: from one in a hundred years to one a month")
    ] = 0.2
    """Outages of the whole site a year; machines at a provider are not affected. Default 0.2: one in five years
    (assumption; Uptime reports one operator in three)."""
    outage_h: Annotated[Positive, Plausible(0.05, 168, "assumption: from minutes to a week")] = 4.0
    """Mean length of an outage of the site. Default 4: assumption."""
    colocation_usd_per_kw_month: Annotated[Price, Plausible.prior("colo_rent")] = 180.0
    """Monthly rent of space per provisioned kW of IT load. Default 180: primary markets in 2025 (CBRE)."""
    colocation_escalator_per_year: (
        Annotated[
            YearlyChange,
            Plausible(
                -0.15, 0.25, "prior colo_rent_escalator has 0.02 to 0.07; rents rose by 19% in 2023"
            ),
        ]
        | None
    ) = None
    """Yearly rise of the rent of space. Default: finance.inflation_per_year (CBRE saw +2 to +7% a year)."""
    colocation_term_months: Annotated[
        LifeMonths, Plausible(1, 180, "from one month to 15 years")
    ] = 1
    """Months for which space is contracted when machines need it. The space is paid to the end of that term, whether
    used or not, and then from month to month. Default 1: paid only while machines are there."""
    commissioning_crews: Annotated[CrewCount, Plausible(1, 200)] = 4
    """Crews that install and accept ordered nodes. Default 4: assumption."""
    commissioning_h_per_node: Annotated[NonNegative, Plausible(0.25, 200)] = 6.0
    """Crew hours to install and accept one node. Default 6: assumption."""


def _tiers(discounts: tuple[VolumeDiscount, ...]) -> tuple[DiscountTier, ...]:
    return tuple(
        DiscountTier(minimum_units=tier.from_accelerators, discount_fraction=tier.discount_fraction)
        for tier in discounts
    )


def standing_price(cluster: Cluster, list_price_usd: float) -> Quote:
    """Return the price of a cluster's accelerators where no dated quote is valid."""
    # Volume discounts come on top, tier by tier, in the quote itself.
    discounted_usd = list_price_usd * (1.0 - cluster.discount_fraction)
    return Quote(
        name="list price", list_price_usd=discounted_usd, tiers=_tiers(cluster.volume_discounts)
    )


def dated_quotes(cluster: Cluster) -> tuple[Quote, ...]:
    """Return the dated quotes of a cluster."""
    return tuple(
        Quote(
            name=offer.name,
            list_price_usd=offer.accelerator_price_usd,
            tiers=_tiers(offer.volume_discounts),
            tier_rule=offer.volume_rule,
            valid_from=offer.valid_from,
            valid_until=offer.valid_until,
        )
        for offer in cluster.quotes
    )


def window_zone(site: Site, tariff: CatalogTariff) -> str | None:
    """Return the time zone of time-of-use windows: the one stated, or that of the tariff's location."""
    # An average over states has no clock of its own; windows are then in UTC.
    tariff_zone = None
    if tariff.timezone is not None:
        tariff_zone = tariff.timezone.value
    return site.electricity.timezone or tariff_zone


def tariff_of(site: Site, flat_usd_per_kwh: float) -> EnergyTariff:
    """Return the site's electricity tariff; the flat price applies where no windows are given."""
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
    return EnergyTariff(
        # A flat price is one window of all hours, so that the bill has one formula.
        windows=windows or (TariffWindow(name="flat", price_usd_per_kwh=flat_usd_per_kwh),),
        escalator_per_year=contract.escalator_per_year or 0.0,
        demand_charge_usd_per_kw_month=contract.demand_charge_usd_per_kw_month,
        demand_ratchet_fraction=contract.demand_ratchet_fraction,
        least_billed_kw=contract.contracted_kw * contract.minimum_take_fraction,
    )
