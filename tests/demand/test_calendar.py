from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.demand.shape import (
    Horizon,
    is_zone,
    local_day_index,
    local_hour_index,
    utc_offset_s,
    zone,
    zone_names,
)
from planner.errors import ScenarioError

ZONES = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Africa/Cairo",
]


def _offset_hour_by_hour(horizon: Horizon, name: str) -> list[int]:
    """The same offsets, asked of the standard library one hour at a time."""
    tz = ZoneInfo(name)
    return [
        int((datetime.fromtimestamp(0, UTC) + (horizon.start_utc + timedelta(hours=h) - datetime.fromtimestamp(0, UTC)))
            .astimezone(tz).utcoffset().total_seconds())  # type: ignore[union-attr]
        for h in range(horizon.hours)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ZONES)
def test_offsets_agree_with_the_library_asked_hour_by_hour(name: str) -> None:
    horizon = Horizon(start=date(2026, 1, 1), hours=8760 + 13)
    assert utc_offset_s(horizon, name).tolist() == _offset_hour_by_hour(horizon, name)


def test_daylight_saving_skips_and_repeats_an_hour_of_the_week() -> None:
    horizon = Horizon(
        start=date(2026, 3, 29), hours=24
    )  # Berlin springs forward at 01:00 UTC, a Sunday
    hours = local_hour_index(horizon, "Europe/Berlin") % 24
    assert hours[:3].tolist() == [1, 3, 4]
    horizon = Horizon(start=date(2026, 10, 25), hours=24)  # and falls back at 01:00 UTC
    assert (local_hour_index(horizon, "Europe/Berlin") % 24)[:3].tolist() == [2, 2, 3]


def test_hour_of_week_starts_on_monday() -> None:
    horizon = Horizon(start=date(2026, 1, 5), hours=168)  # a Monday
    assert (local_hour_index(horizon, "UTC") % 168).tolist() == list(range(168))


def test_half_hour_zone_takes_the_hour_it_overlaps_most() -> None:
    horizon = Horizon(
        start=date(2026, 1, 5), hours=1
    )  # 05:30 to 06:30 in Kolkata: its middle is 06:00
    assert (local_hour_index(horizon, "Asia/Kolkata") % 24).tolist() == [6]


@settings(deadline=None, max_examples=30)
@given(st.dates(date(1975, 1, 1), date(2035, 1, 1)), st.sampled_from(ZONES))
def test_local_day_matches_the_library(day: date, name: str) -> None:
    horizon = Horizon(start=day, hours=30)
    local = [
        (horizon.start_utc + timedelta(hours=h, minutes=30)).astimezone(ZoneInfo(name))
        for h in range(30)
    ]
    assert (local_hour_index(horizon, name) // 24).tolist() == [
        local_day_index(moment.date()) for moment in local
    ]
    assert (local_hour_index(horizon, name) % 24).tolist() == [moment.hour for moment in local]
    assert (local_hour_index(horizon, name) // 24 % 7).tolist() == [
        moment.weekday() for moment in local
    ]


def test_hours_and_dates_of_a_horizon() -> None:
    horizon = Horizon(start=date(2026, 1, 1), hours=48)
    assert horizon.hour_of(date(2026, 1, 3)) == 48.0
    assert horizon.hour_of(date(2025, 12, 31)) == -24.0


def test_bad_zone_names_the_nearest() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'Europe/Berlin'"):
        zone("Europe/Berlim")
    with pytest.raises(ScenarioError, match="no time zone"):
        zone("../../etc/passwd")
    with pytest.raises(ScenarioError, match="no time zone"):
        zone("")


def test_hours_of_a_zone_are_shared_and_locked() -> None:
    hours = local_hour_index(Horizon(start=date(2026, 1, 1), hours=24), "UTC")
    assert hours is local_hour_index(Horizon(start=date(2026, 1, 1), hours=24), "UTC")
    with pytest.raises(ValueError, match="read-only"):
        hours[0] = 1


def test_a_name_is_a_zone_as_the_machine_s_own_list_has_it() -> None:
    assert all(is_zone(name) for name in zone_names())
    for name in (
        "localtime",
        "Europe/Berlim",
        "europe/berlin",
        "posix/Europe/Berlin",
        "../UTC",
        "",
        "zones",
    ):
        assert is_zone(name) == (name in zone_names()), name
    assert not is_zone("localtime"), "that is another place on every machine"
