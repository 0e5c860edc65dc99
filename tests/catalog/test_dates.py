"""No source is older than the date stated for it: a figure of August 2025 is not one of November 2026."""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Iterator

import pytest

from planner.catalog.load import ASSUMPTION_SETS, load_catalog

_MONTHS = {name.lower()[:3]: number for number, name in enumerate(calendar.month_name) if name}
_NAMED = "|".join(f"{name}|{name[:3]}" for name in calendar.month_name if name)
_DAY = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")
_MONTH = re.compile(rf"\b({_NAMED})\.? (20\d\d)\b")
_SHORT = re.compile(rf"\b({_NAMED})-(\d\d)\b")
_QUARTER = re.compile(r"\b(20\d\d) ?Q([1-4])\b")
_FISCAL = re.compile(r"\bFY(20\d\d)\b")
_YEARS = re.compile(r"\b(20\d\d)-(\d\d)\b(?!-)")
_YEAR = re.compile(r"(?<![\w.#/-])(20[12]\d)(?![\w.,/]\d|-\d|\d| ?USD| W\b)\b")


def _end(year: int, month: int) -> datetime.date:
    return datetime.date(year, month, calendar.monthrange(year, month)[1])


def days_named(text: str) -> Iterator[datetime.date]:
    """Yield the last days of the months, quarters and years that a text names."""
    for year, month, day in _DAY.findall(text):
        if 1 <= int(month) <= 12:
            yield (
                datetime.date(int(year), int(month), int(day))
                if day
                else _end(int(year), int(month))
            )
    for name, year in _MONTH.findall(text):
        yield _end(int(year), _MONTHS[name.lower()[:3]])
    for name, year in _SHORT.findall(text):
        yield _end(2000 + int(year), _MONTHS[name.lower()[:3]])
    for year, quarter in _QUARTER.findall(text):
        yield _end(int(year), 3 * int(quarter))
    for year in _FISCAL.findall(text):
        yield _end(int(year), 12)
    for year, later in _YEARS.findall(text):  # 2025-26 is a span of years
        if int(later) == int(year) % 100 + 1:
            yield _end(2000 + int(later), 12)
    for pattern in (_DAY, _MONTH, _SHORT, _QUARTER, _YEARS):
        text = pattern.sub(" ", text)
    for year in _YEAR.findall(text):
        yield _end(int(year), 12)


def stated(assumption_set: str) -> dict[str, tuple[str, datetime.date]]:
    """Return the text and the stated date of every source and prior."""
    catalog = load_catalog(assumption_set)
    sources = {
        f"sources.{name}": (source.title, source.date) for name, source in catalog.sources.items()
    }
    priors = {
        f"priors.{name}": (prior.source or "", prior.date)
        for name, prior in catalog.priors.items()
        if prior.date
    }
    return {**sources, **priors}


@pytest.mark.parametrize("assumption_set", ASSUMPTION_SETS)
def test_no_source_is_older_than_its_stated_date(assumption_set: str) -> None:
    older = {
        name: (str(date), str(max(named)))
        for name, (text, date) in stated(assumption_set).items()
        if not text.startswith("assumption")
        and (named := list(days_named(text)))
        and max(named) < date
    }
    assert not older


def test_dates_are_read_as_they_are_written() -> None:
    text = "EIA (Nov-25), survey of August 2025, thread of 2026-04-03, 2024 Q2, T&T 2025-26, 2,026 USD, part #2023"
    assert max(days_named(text)) == datetime.date(2026, 12, 31)
    assert set(days_named("EIA (Nov-25)")) == {datetime.date(2025, 11, 30)}
    assert set(days_named("August 2025 survey; 2024 Q2")) == {
        datetime.date(2025, 8, 31),
        datetime.date(2024, 6, 30),
    }
    assert not list(days_named("H100 at 2,026 USD, issue #2025, zone1970.tab"))
