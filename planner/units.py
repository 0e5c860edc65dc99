"""Constants and the few conversions between what people write and what the core computes in.

Internal units: seconds for latencies, hours for simulated time, bytes, flop/s, watts inside physics, kilowatts
and kilowatt-hours in the fleet, US dollars, tokens.
"""

from __future__ import annotations

HOURS_PER_DAY = 24.0
HOURS_PER_YEAR = 8766.0  # 365.25 days, so that 36 months and three years agree
DAYS_PER_YEAR = 365.25
MONTHS_PER_YEAR = 12
SECONDS_PER_HOUR = 3600.0
GB = 1e9
TB = 1e12
TERA = 1e12
GIGA = 1e9
KILO = 1e3
MILLION = 1e6
MICROSECOND = 1e-6
MILLISECOND = 1e-3
