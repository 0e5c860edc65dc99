"""Burst rental: instances are had when there are any, take an hour to start, and are billed while they are held."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.arrays import Floats
from planner.engine.driver import Simulation, run_plan
from planner.engine.log import streams
from planner.engine.rental import rent_by_hour, rent_for_shed
from planner.errors import ScenarioError
from planner.finance.money_plan import BurstPlan
from planner.scenario.loading import load_scenario
from tests.engine.plans import hourly_terms
from tests.engine.worlds import BASE, merged, plan_of


def burst_plan(startup_h: float = 0.0, hold_h: int = 1, **changes: Any) -> BurstPlan:
    """One accelerator serves two requests an hour; instances of four start within the hour and are always on offer."""
    plain = BurstPlan(
        most_accelerators=1000.0, accelerators_per_instance=4,
        hourly=hourly_terms(startup_h=startup_h, hold_h=hold_h), accelerator_h_per_request=np.array([[0.5]]),
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def rented(
    burst: BurstPlan, wanted: Sequence[float] | Floats, on_offer: list[int] | None = None
) -> tuple[Any, Any]:
    """Return the accelerators that serve and those billed, by hour, for accelerators wanted."""
    per_request = burst.accelerator_h_per_request[:1]
    months = SimpleNamespace(hour_periods=np.zeros(len(wanted), dtype=int))
    plan: Any = SimpleNamespace(
        money=SimpleNamespace(market=SimpleNamespace(burst=burst)), months=months
    )
    offered = None if on_offer is None else np.array(on_offer, dtype=bool)
    served, billed = rent_by_hour(plan, np.array(wanted)[None] / per_request, offered)
    return (served * per_request)[0], billed


def walked(
    burst: BurstPlan, wanted: list[float], on_offer: list[int]
) -> tuple[list[float], list[float]]:
    """Return the same by a walk over every instance and hour."""
    size = burst.accelerators_per_instance
    count = int(burst.most_accelerators // burst.accelerators_per_instance)
    asked_h: dict[int, int] = {}
    """By instance that is held, since when."""
    needed_h = dict[int, int]()
    served = list[float]()
    billed = list[float]()
    for hour, (accelerators, has_offers) in enumerate(zip(wanted, on_offer, strict=True)):
        needs = min(int(np.ceil(accelerators / size)), count)
        needed_h |= dict.fromkeys(range(needs), hour)
        for instance in [i for i in asked_h if hour - needed_h[i] >= burst.hourly.hold_h]:
            del asked_h[instance]
        for instance in range(needs if has_offers else 0):
            asked_h.setdefault(instance, hour)
        ready = sum(
            min(max(hour + 1 - since - burst.hourly.startup_h, 0.0), 1.0)
            for since in asked_h.values()
        )
        served.append(min(accelerators, ready * size))
        billed.append(len(asked_h) * size)
    return served, billed


def test_what_no_accelerator_serves_is_not_rented_for() -> None:
    """A workload that has outgrown its objective: nothing is served of it, whether or not something is shed."""
    burst = burst_plan(
        accelerator_h_per_request=np.array([[np.inf], [0.5]]),
        accelerators_per_instance=1,
        most_accelerators=8.0,
    )
    months = SimpleNamespace(hour_periods=np.zeros(2, dtype=int))
    plan: Any = SimpleNamespace(
        money=SimpleNamespace(market=SimpleNamespace(burst=burst)), months=months
    )
    served, billed = rent_by_hour(plan, np.array([[0.0, 5.0], [4.0, 32.0]]), None)
    assert served.tolist() == [[0.0, 0.0], [4.0, 16.0]]
    assert billed.tolist() == [2.0, 8.0]


LOADS = st.lists(
    st.tuples(st.one_of(st.just(0.0), st.floats(0.01, 60.0)), st.integers(0, 1)),
    min_size=1,
    max_size=300,
)


@given(
    LOADS,
    st.sampled_from([0.0, 0.5, 1.0, 2.25, 5.0]),
    st.integers(1, 30),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([8.0, 50.0]),
)
def test_held_instances_are_those_of_a_walk_and_cost_no_less_than_they_serve(
    loads: list[tuple[float, int]], startup_h: float, hold_h: int, size: int, most: float
) -> None:
    burst = burst_plan(
        startup_h=startup_h, hold_h=hold_h, accelerators_per_instance=size, most_accelerators=most
    )
    wanted = [load for load, _ in loads]
    offers = [offer for _, offer in loads]
    served, billed = rented(burst, wanted, offers)
    expected_served, expected_billed = walked(burst, wanted, offers)
    assert served.tolist() == pytest.approx(expected_served)
    assert billed.tolist() == expected_billed
    assert np.all(billed >= served - 1e-9)
    assert np.all(billed % size == 0.0)
    assert billed.max() <= most
    part = len(loads) // 2 + 1  # what comes later changes nothing before
    cut_served, cut_billed = rented(burst, wanted[:part], offers[:part])
    assert cut_billed.tolist() == billed[:part].tolist()
    assert cut_served.tolist() == pytest.approx(served[:part].tolist())


@pytest.mark.parametrize(("share", "gap_days"), [(0.21, 6.5), (0.7, 1.5), (0.04, 24.0)])
def test_offers_are_as_frequent_and_gaps_as_long_as_stated(share: float, gap_days: float) -> None:
    """Over 400 runs of three years; gaps that the horizon cuts, and hours, leave their mean a little off."""
    terms = hourly_terms(available_fraction=share, gap_days=gap_days)
    hours = 26_304
    runs = 400
    drawn = np.array([terms.on_offer(hours, streams(1, run)) for run in range(runs)])
    shares = drawn.mean(axis=1)
    assert abs(shares.mean() - share) < 4 * shares.std(ddof=1) / np.sqrt(runs)
    gaps = np.count_nonzero(drawn[:, :-1] & ~drawn[:, 1:])
    assert (~drawn).sum() / gaps / 24 == pytest.approx(
        gap_days, rel=4 / np.sqrt(gaps) + 1 / (24 * gap_days * share)
    )
    assert hourly_terms().on_offer(9, streams(1)).all()
    assert not hourly_terms(available_fraction=0.0).on_offer(9, streams(1)).any()


BUSY = {
    "horizon_months": 5,
    "workloads": {"chat": {"requests_per_s": 2500}},
    "finance": {"burst_rental": {"usd_per_accelerator_h": 3, "gap_days": 2, "available_fraction": 0.5}},
    "expansion": {"rules": [
        {"when": "shed_above", "threshold_fraction": 0.001, "months": 1, "cluster": "h200", "nodes": 1,
         "lead_weeks": 5},
    ]},
}  # fmt: skip


def test_where_windows_end_changes_no_rent_and_no_order() -> None:
    plan = plan_of(BUSY)
    together = run_plan(plan, 1)
    short = run_plan(plan, 1, window_h=100)
    apart = Simulation(plan, streams(1, 0)).run(plan.month_edges_h[1:].tolist())
    one = rent_for_shed(plan, together.windows, together.on_offer)
    assert one.accelerator_h.min() > 0.0
    assert one.requests.sum() < sum(window.shed_requests.sum() for window in together.windows)
    for run in (apart, short):
        other = rent_for_shed(plan, run.windows, run.on_offer)
        np.testing.assert_allclose(one.requests, other.requests, rtol=1e-7)
        np.testing.assert_array_equal(one.accelerator_h, other.accelerator_h)
        assert run.log.purchases == together.log.purchases
    assert len(together.log.purchases) > 2


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"most_accelerators": 7}, "most_accelerators, 7, is less than one instance of 8"),
        ({"available_fraction": 1.2}, "finance.burst_rental.available_fraction"),
        ({"hold_h": 0}, "finance.burst_rental.hold_h"),
        ({"startup_h": -1}, "finance.burst_rental.startup_h"),
        ({"hold_hours": 5}, "did you mean hold_h?"),
    ],
)
def test_rent_that_cannot_be_is_refused(stated: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(
            merged(BASE, {"finance": {"burst_rental": {"usd_per_accelerator_h": 3, **stated}}})
        )
    assert message in str(caught.value)
