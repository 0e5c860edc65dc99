"""Clusters rented by the hour: whole nodes, held and billed, started with a delay, sold out together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.engine.driver import Run, Simulation, run_plan
from planner.engine.log import streams
from planner.finance.accounts import Account
from planner.finance.ledger import Dimension
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario

STEADY = {"reliability": {"failure_multiplier": 0}, "site": {"outages_per_year": 0}}
LENGTHS = {"input": {"mean": 500}, "output": {"mean": 100}}


def world(
    contract: dict[str, Any], *, nodes: int = 12, own: int = 1, **workload: Any
) -> dict[str, Any]:
    """A month of a chat on an own node and some rented ones."""
    chat = {"model": "llama-3.1-8b", "lengths": LENGTHS, "requests_per_s": 900, **workload}
    rented = {"accelerator": "H200", "nodes": nodes, "contract": {"kind": "on-demand", **contract}}
    clusters = {"own": {"accelerator": "H200", "nodes": own}, "rented": rented}
    stated = {"name": "w", "start": "2026-01-01", "horizon_months": 1, "workloads": {"chat": chat}}
    return {**stated, "clusters": clusters, **STEADY}


def held_of(run: Run) -> Any:
    """Return the rented nodes held by hour."""
    return np.concatenate([machines.present[1] for machines in run.node_hours])


@settings(max_examples=20, deadline=None)
@given(
    st.floats(50.0, 6000.0), st.floats(1.2, 2.5), st.integers(1, 30), st.sampled_from([0.0, 0.5, 1.0, 2.5]),
    st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 3), st.integers(1, 20),
)  # fmt: skip
def test_rent_is_paid_for_whole_nodes_held_and_never_less_than_what_works(
    requests: float, peak: float, hold_h: int, startup_h: float, share: float, warm: int, nodes: int
) -> None:
    contract = {
        "usd_per_accelerator_h": 3, "hold_h": hold_h, "startup_h": startup_h, "available_fraction": share,
        "gap_days": 1.5, "warm_nodes": warm,
    }  # fmt: skip
    profile = {"peak_to_mean": peak, "timezone": "UTC"}
    result = simulate(
        load_scenario(world(contract, nodes=nodes, requests_per_s=requests, load_profile=profile)),
        seed=1,
    )
    (window,), held = result.run.windows, held_of(result.run)
    table = result.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)
    assert table[1, list(Account).index(Account.RENT)] == round(held.sum() * 8 * 3 * 100)
    assert np.array_equal(held, np.rint(held))
    assert held.max() <= nodes
    assert np.all(held >= np.ceil(window.busy_nodes[1] - 1e-6))
    assert np.all(window.nodes[1] <= held)  # those that start serve later
    starts = np.flatnonzero(np.diff(held, prepend=0.0) > 0)
    assert result.run.offers[1][starts].all()  # none starts while they are sold out
    assert (
        np.all(held[starts[0] :] >= min(warm, nodes))
        if starts.size
        else share < 1.0 or not window.shed_requests.any()
    )


def test_nothing_to_be_had_is_as_no_rent_at_all_and_is_said() -> None:
    never = build_plan(
        load_scenario(
            world({"available_fraction": 0, "usd_per_accelerator_h": 3}, requests_per_s=2000)
        )
    )
    alone = build_plan(
        load_scenario(world({"usd_per_accelerator_h": 3}, nodes=0, requests_per_s=2000))
    )
    runs = [run_plan(plan, 1) for plan in (never, alone)]
    for name in ("served_requests", "shed_requests", "late_requests"):
        first, second = (getattr(run.windows[0], name) for run in runs)
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9)
    assert not held_of(runs[0]).any()
    assert any(
        "no H200 is available by the hour on any day" in warning for warning in never.warnings
    )
    stated = world({}, requests_per_s=10)
    stated["clusters"]["rented"]["accelerator"] = "MI325X"
    (warning,) = (
        text
        for text in build_plan(load_scenario(stated)).warnings
        if "available by the hour" in text
    )
    assert "rental_available_mi325x" in warning


def test_whoever_rents_a_part_is_sold_out_at_the_same_hours() -> None:
    stated = world({}, requests_per_s=10)
    stated["clusters"]["more"] = {**stated["clusters"]["rented"], "nodes": 3}
    stated["clusters"]["other"] = {**stated["clusters"]["rented"], "accelerator": "H100"}
    stated["finance"] = {"burst_rental": {}}
    run = run_plan(build_plan(load_scenario({**stated, "horizon_months": 12})), 1)
    assert run.on_offer is not None
    assert 0.0 < run.on_offer.mean() < 0.7
    assert np.array_equal(run.offers[1], run.offers[2])
    assert np.array_equal(run.offers[1], run.on_offer)
    assert not np.array_equal(run.offers[1], run.offers[3])


def test_the_catalogues_terms_are_those_of_the_part_and_its_vendor() -> None:
    """Rent 4.95, on offer on 21% of days, sold out for 6.5, ready in half an hour; a minimum is held for."""
    terms = {}
    for part in ("H100", "H200", "B200", "MI325X"):
        stated = world({"minimum_h": 48}, requests_per_s=10)
        stated["clusters"]["rented"]["accelerator"] = part
        rent = build_plan(load_scenario(stated)).clusters[1].rent
        assert rent is not None
        assert rent.hourly is not None
        terms[part] = rent.hourly
    shares = {
        part: (one.available_fraction, one.gap_days, one.startup_h) for part, one in terms.items()
    }
    assert shares == {
        "H100": (0.7, 1.5, 0.5), "H200": (0.21, 6.5, 0.5), "B200": (0.04, 24.0, 0.5), "MI325X": (0.0, 0.0, 1.0),
    }  # fmt: skip
    assert terms["H200"].usd_per_accelerator_h.tolist() == [4.95]
    assert terms["H200"].hold_h == 48


DEFERRED = {
    "priority": "deferrable",
    "model": "llama-3.1-8b",
    "lengths": LENGTHS,
    "requests_per_s": 400,
}


def test_where_windows_end_changes_neither_what_is_held_nor_what_is_served() -> None:
    contract = {
        "usd_per_accelerator_h": 3,
        "available_fraction": 0.5,
        "gap_days": 1,
        "startup_h": 1.5,
        "hold_h": 9,
    }
    stated = world(
        contract, requests_per_s=1700, load_profile={"peak_to_mean": 1.8, "timezone": "UTC"}
    )
    stated["workloads"]["batch"] = DEFERRED
    plan: Plan = build_plan(load_scenario(stated))
    together = run_plan(plan, 1)
    apart = Simulation(plan, streams(1, 0)).run([100, 101, 350, plan.hours])
    held = held_of(together)
    assert held.min() < held.max() - 1
    assert np.array_equal(held, held_of(apart))


def test_a_spot_node_that_is_taken_back_is_not_billed() -> None:
    contract = {
        "kind": "spot", "usd_per_accelerator_h": 2, "available_fraction": 1, "warm_nodes": "all", "startup_h": 0,
        "interruptions_per_year": 400, "interruption_h": 5,
    }  # fmt: skip
    result = simulate(load_scenario(world(contract, nodes=6)), seed=1)
    failed = np.concatenate([machines.failed[1] for machines in result.run.node_hours])
    table = result.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)
    assert failed.max() == 6.0  # all of them at once
    paid = (6 * 744 - failed.sum()) * 8 * 2 * 100
    assert table[1, list(Account).index(Account.RENT)] == pytest.approx(paid, abs=1)
