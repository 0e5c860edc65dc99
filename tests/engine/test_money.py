from __future__ import annotations

import dataclasses
import datetime

import pytest

from planner.finance.financing import DiscountTier, Quote
from planner.finance.money_plan import PriceBook
from tests.engine.plans import cluster_plan

START = datetime.date(2026, 1, 1)
BOOK = PriceBook(
    start=START,
    list_price=Quote(name="list", list_price_usd=100.0, tiers=(DiscountTier(minimum_units=16, discount_fraction=0.1),)),
    quotes=(
        Quote(name="spring", list_price_usd=80.0, valid_until=datetime.date(2026, 3, 31)),
        Quote(name="flash", list_price_usd=60.0, valid_from=datetime.date(2026, 2, 1),
              valid_until=datetime.date(2026, 2, 28)),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("day", "price"),
    [
        (datetime.date(2025, 12, 1), 80.0),
        (datetime.date(2026, 2, 14), 60.0),
        (datetime.date(2026, 3, 31), 80.0),
        (datetime.date(2026, 4, 1), 50.0),
    ],
)
def test_the_offer_that_began_last_counts_then_the_list_price_that_moved(
    day: datetime.date, price: float
) -> None:
    assert BOOK.accelerator_usd(day, 8, list_factor=0.5) == price


def test_a_tier_of_the_list_price_is_reached_by_the_order() -> None:
    later = datetime.date(2026, 5, 1)
    assert BOOK.accelerator_usd(later, 15) == 100.0
    assert BOOK.accelerator_usd(later, 16) == 90.0


def test_a_later_order_is_priced_on_its_own_day() -> None:
    cluster = dataclasses.replace(cluster_plan(), price_book=BOOK)
    february = 45 * 24.0
    june = 160 * 24.0
    assert cluster.order_prices_usd(february, 1, 0.8) == pytest.approx(
        (480.0, 32_000.0, 16_000.0, 4_000.0)
    )
    assert cluster.order_prices_usd(june, 2, 0.8)[0] == pytest.approx(8 * 90 * 0.8)


def test_without_a_book_every_price_moves_alike() -> None:
    cluster = cluster_plan()
    assert cluster.order_prices_usd(0.0, 3, 0.5) == tuple(price / 2 for price in cluster.prices_usd)
