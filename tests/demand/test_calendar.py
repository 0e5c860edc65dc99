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


def test_bad_zone_names_the_nearest() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'Europe/Berlin'"):
        zone("Europe/Berlim")
    with pytest.raises(ScenarioError, match="no time zone"):
        zone("../../etc/passwd")
    with pytest.raises(ScenarioError, match="no time zone"):
        zone("")


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
