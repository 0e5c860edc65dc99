from __future__ import annotations

from datetime import date
from typing import Literal

import pytest

from planner.finance.financing import (
    DiscountTier,
    Quote,
    choose_quote,
)

TIERS = (
    DiscountTier(minimum_units=100, discount_fraction=0.05),
    DiscountTier(minimum_units=800, discount_fraction=0.14),
)


def quote(rule: Literal["whole-order", "marginal"]) -> Quote:
    return Quote(name="list", list_price_usd=22_000.0, tiers=TIERS, tier_rule=rule)


@pytest.mark.parametrize(
    ("units", "usd"),
    [(0, 0), (1, 22_000), (99, 99 * 22_000), (100, 100 * 20_900), (800, 800 * 18_920)],
)
def test_the_tier_reached_prices_the_whole_order(units: int, usd: float) -> None:
    assert quote("whole-order").order_cents(units) == round(usd * 100)


def test_a_quote_expires_and_the_price_list_stands_again() -> None:
    offer = Quote(
        name="spring offer", list_price_usd=20_000.0,
        valid_from=date(2026, 3, 1), valid_until=date(2026, 5, 31),
    )  # fmt: skip
    standing = quote("whole-order")
    quotes = [offer, standing]
    assert choose_quote(quotes, date(2026, 5, 31)) is offer
    assert choose_quote(quotes, date(2026, 6, 1)) is standing
    assert choose_quote(quotes, date(2026, 2, 28)) is standing


def test_the_newest_quote_wins() -> None:
    old = Quote(name="old", list_price_usd=1.0, valid_from=date(2026, 1, 1))
    new = Quote(name="new", list_price_usd=2.0, valid_from=date(2026, 6, 1))
    assert choose_quote([new, old], date(2026, 7, 1)) is new
    assert choose_quote([new, old], date(2026, 5, 1)) is old


def test_a_quote_may_hold_for_one_day_and_discount_every_unit() -> None:
    day = date(2026, 3, 1)
    tiers = (DiscountTier(minimum_units=1, discount_fraction=0.25), *TIERS[1:])
    once = Quote(name="fair", list_price_usd=100.0, tiers=tiers, valid_from=day, valid_until=day)
    assert choose_quote([once], day) is once
    assert once.order_cents(2) == 15_000


def test_a_date_may_have_no_quote() -> None:
    only = Quote(
        name="spring",
        list_price_usd=1.0,
        valid_from=date(2026, 3, 1),
        valid_until=date(2026, 5, 31),
    )
    assert choose_quote([only], date(2026, 7, 1)) is None
    assert choose_quote([], date(2026, 7, 1)) is None
