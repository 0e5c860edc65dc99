"""What bursts add by load and rate, read between the rates and loads at which it is known."""

from __future__ import annotations

import numpy as np
import pytest

from planner.plan.load_tables import BurstTables
from tests.plan.burst_rates import at_rate

CELLS = np.arange(5.0)
TABLES = BurstTables(
    first_requests=100.0,
    least_requests=125.0,
    added=np.stack(
        [np.stack([8.0 * CELLS, 4.0 * CELLS, 2.0 * CELLS]), np.stack([CELLS, CELLS, 0.0 * CELLS])]
    ),
    calm_cells=np.array([[0.0, 1.0, 2.0], [1.0, 1.0, np.inf]]),
    even_cells=3.5,
)


@pytest.mark.parametrize("requests", [0.0, 124.0, 126.0, 199.0, 200.0, 250.0, 400.0])
def test_what_falls_as_one_over_the_rate_is_met_at_any_rate(requests: float) -> None:
    """The first of the tables is 800 · cell / rate: linear in 1/λ, as what bursts add is in their variance.

    Fewer requests than the least are read as the least.
    """
    place = np.array([0.0, 0.5, 1.0, 2.75, 4.0])
    share = TABLES.read(0, place, TABLES.between(np.full(5, requests)))
    rate = max(requests, 125.0)
    assert share == pytest.approx(800.0 * place / rate)
    assert at_rate(TABLES, requests)[0] == pytest.approx(800.0 * CELLS / rate)


def test_beyond_the_ends_it_is_as_at_them() -> None:
    requests = np.array([0.0, 1.0, 1e9, 400.0, 100.0])
    place = np.array([4.0, 9.0, 4.0, 1e6, 1e6])
    assert TABLES.read(0, place, TABLES.between(requests)) == pytest.approx(
        [25.6, 25.6, 8.0, 8.0, 25.6]
    )
    assert TABLES.read(1, place, TABLES.between(requests)) == pytest.approx(
        [4.0, 4.0, 0.0, 0.0, 4.0]
    )
    longer = TABLES.pad_edge(9)
    assert longer.added.shape == (2, 3, 9)
    assert longer.read(0, place, longer.between(requests)) == pytest.approx(
        [25.6, 25.6, 8.0, 8.0, 25.6]
    )
