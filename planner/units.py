"""Constants, and the few conversions between users' units and internal units.

Internal units: seconds for latencies, hours for simulated time, bytes, flop/s, watts inside physics, kilowatts and
kilowatt-hours in the fleet, US dollars, tokens.
"""

from __future__ import annotations

import functools
import math

from planner.data_files import data_rows

HOURS_PER_DAY = 24.0
HOURS_PER_WEEK = 168.0
HOURS_PER_YEAR = 8766.0  # 365.25 days, so that 36 months and three years agree
DAYS_PER_YEAR = 365.25
MONTHS_PER_YEAR = 12
SECONDS_PER_HOUR = 3600.0
GB = 1e9
TB = 1e12
GIB = 2.0**30  # what memory capacities marketed in GB hold: an H200 of "141 GB" reports 143,771 MiB
TERA = 1e12
GIGA = 1e9
KILO = 1e3
MILLION = 1e6
MILLISECOND = 1e-3

DOLLARS = "USD"
"""The unit of an amount of money; a price per anything else has another."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 node, 1,200 nodes."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# What a field's name says about its unit, longest suffix first. The reference, the catalogue and the data dictionary
# all read units from here, so a name and its unit cannot disagree.
_UNIT_BY_SUFFIX = {row["suffix"]: row["unit"] for row in data_rows(__file__, "units.csv")}
_SUFFIXES = sorted(_UNIT_BY_SUFFIX, key=len, reverse=True)


@functools.lru_cache(maxsize=4096)  # asked of every row of a table
def unit_of(name: str) -> str | None:
    """Return the unit that a name ends in or is, or None for a count, a name or a switch.

    Where the suffix found is only part of what something is counted per, as in ``water_litres_per_kwh``, the unit is
    that of the name before over it; None where either is not known.
    """
    numerator, _, denominator = name.rpartition("_per_")
    for suffix in _SUFFIXES:
        # A short name such as "kw" could be anything; a longer one may be a unit by itself.
        is_suffix = name.endswith(suffix)
        is_whole_name = len(name) > 3 and name == suffix[1:]
        if not (is_suffix or is_whole_name):
            continue
        # Longer than what is counted per: the suffix holds the whole unit, as _usd_per_kwh does.
        if not numerator or len(suffix) > len(denominator) + 1:
            return _UNIT_BY_SUFFIX[suffix]
        numerator_unit = unit_of(f"_{numerator}")
        if numerator_unit is None or suffix != f"_{denominator}":
            return None
        return f"{numerator_unit}/{_UNIT_BY_SUFFIX[suffix]}"
    return None


def rounded_up(number: float, digits: int) -> float:
    """Return a number rounded up to ``digits`` significant digits."""
    if not math.isfinite(number) or number == 0.0:
        return number
    nearest = float(f"{number:.{digits}g}")
    step = 10.0 ** (math.floor(math.log10(abs(number))) - digits + 1)
    return nearest if nearest >= number else float(f"{number + step:.{digits}g}")


_DECIMALS = {"tokens": 0, "kWh": 3, "kW": 3, DOLLARS: 2}


def decimals_of(name: str) -> int:
    """Return the number of decimals of a figure in files: its unit's, six for most."""
    return _DECIMALS.get(unit_of(name) or "", 6)


def unit_suffixes() -> dict[str, str]:
    """Return every unit suffix with its unit, for the nomenclature page."""
    return dict(_UNIT_BY_SUFFIX)
