"""What bursts add by load and rate, read between the rates and loads at which it is known."""

from __future__ import annotations

import numpy as np
import pytest

from planner.plan.parts import BurstTables
from tests.plan.burst_rates import at_rate

CELLS = np.arange(5.0)
TABLES = BurstTables(
    first_requests=100.0,
    added=np.stack(
        [np.stack([8.0 * CELLS, 4.0 * CELLS, 2.0 * CELLS]), np.stack([CELLS, CELLS, 0.0 * CELLS])]
    ),
    calm_cells=np.array([[0.0, 1.0, 2.0], [1.0, 1.0, np.inf]]),
    even_cells=3.5,
)


@pytest.mark.parametrize("requests", [100.0, 123.0, 160.0, 199.0, 200.0, 250.0, 400.0])
def test_what_falls_as_one_over_the_rate_is_met_at_any_rate(requests: float) -> None:
    """The first of the tables is 800 · cell / rate: linear in 1/λ, as what bursts add is in their variance."""
    place = np.array([0.0, 0.5, 1.0, 2.75, 4.0])
    share = TABLES.read(0, place, TABLES.between(np.full(5, requests)))
    assert share == pytest.approx(800.0 * place / requests)
    assert at_rate(TABLES, requests)[0] == pytest.approx(800.0 * CELLS / requests)


def test_beyond_the_ends_it_is_as_at_them() -> None:
    requests = np.array([0.0, 1.0, 1e9, 400.0, 100.0])
    place = np.array([4.0, 9.0, 4.0, 1e6, 1e6])
    assert TABLES.read(0, place, TABLES.between(requests)) == pytest.approx(
        [32.0, 32.0, 8.0, 8.0, 32.0]
    )
    assert TABLES.read(1, place, TABLES.between(requests)) == pytest.approx(
        [4.0, 4.0, 0.0, 0.0, 4.0]
    )
    longer = TABLES.pad_edge(9)
    assert longer.added.shape == (2, 3, 9)
    assert longer.read(0, place, longer.between(requests)) == pytest.approx(
        [32.0, 32.0, 8.0, 8.0, 32.0]
    )


def test_hours_count_from_the_load_at_which_bursts_of_their_rate_begin_to_tell() -> None:
    between = TABLES.between(np.array([100.0, 150.0, 200.0, 400.0, 400.0]))
    assert TABLES.adding(0, np.array([0.5, 0.0, 1.0, 2.0, 2.5]), between).tolist() == [0, 4]
    assert TABLES.adding(1, np.full(5, 3.0), between).tolist() == [0, 1, 2]
    # Some are refused by bursts where these are borne, or at the cluster's own load without any.
    bursts_at = np.array([3.0, 0.0, 0.0, 3.0, 0.0])
    assert TABLES.refusing(np.array([3.5, 3.0, 3.6, 3.5, 4.0]), bursts_at, between).tolist() == [
        0,
        2,
        4,
    ]


def test_some_hours_read_as_they_do_among_all() -> None:
    requests = np.array([100.0, 130.0, 240.0, 390.0])
    place = np.array([1.0, 2.0, 3.0, 3.5])
    shares = TABLES.read(0, place, TABLES.between(requests))
    some = np.array([1, 3])
    assert TABLES.read(0, place[some], TABLES.between(requests).part(some)) == pytest.approx(
        shares[some]
    )
    assert TABLES.read(0, place, TABLES.between(requests).part(slice(None))) == pytest.approx(
        shares
    )
