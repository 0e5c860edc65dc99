"""Electricity by the hour: the windows of a time-of-use tariff."""

from typing import Annotated, Literal

from pydantic import Field

from planner.language.fields import Fraction, Plausible
from planner.validation import Strict

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
Month = Annotated[int, Field(ge=1, le=12)]
WEEKDAYS: tuple[Weekday, ...] = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class PriceWindow(Strict):
    """One energy price over part of the local calendar."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """What the bill calls it: peak, off-peak, summer."""
    usd_per_kwh: Annotated[
        float,
        Field(ge=0, le=10),
        Plausible(
            0.002, 1.0, "prior electricity_price 0.045 to 0.13; windows reach from surplus nights to critical peaks"
        ),
    ]
    """Price of energy inside the window."""
    months: Annotated[tuple[Month, ...], Field(min_length=1, max_length=12)] = tuple(range(1, 13))
    """Calendar months, 1 to 12. Default: all twelve."""
    weekdays: Annotated[tuple[Weekday, ...], Field(min_length=1, max_length=7)] = WEEKDAYS
    """Days of the week. Default: all seven."""
    start_hour: Annotated[int, Field(ge=0, le=23)] = 0
    """First local hour. Default 0: from midnight."""
    end_hour: Annotated[int, Field(ge=1, le=24)] = 24
    """First local hour after it; below start_hour the window wraps within each day. Default 24: to midnight."""


class Electricity(Strict):
    """A supply contract, in place of the catalogue's flat tariff."""

    windows: Annotated[tuple[PriceWindow, ...], Field(max_length=100)] = ()
    """Prices by month, weekday and hour; together they cover every hour once. Default: the flat price."""
    timezone: str | None = None
    """Clock by which the windows are read, e.g. America/New_York. Default: that of the tariff, or UTC."""
    escalator_per_year: (
        Annotated[
            float,
            Field(gt=-1, le=10),
            Plausible(-0.15, 0.3, "prior electricity_escalator 0 to 0.1, three times beyond"),
        ]
        | None
    ) = None
    """Yearly rise of energy price and demand charge, on the anniversary of the start. Default: as
    finance.inflation_per_year says."""
    demand_charge_usd_per_kw_month: Annotated[
        float, Field(ge=0, le=1e6), Plausible(0.5, 100, "assumption: below and above what US utilities charge")
    ] = 0.0
    """Charge per kW of each month's highest hour. Default 0: inside the energy price."""
    demand_ratchet_fraction: Annotated[Fraction, Plausible(0.1, 1, "assumption; US utilities take 0.5 to 1")] = 0.0
    """Bill at least this share of the highest peak of the eleven months before. Default 0: no ratchet."""
