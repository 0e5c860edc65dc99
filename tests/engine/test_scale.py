"""Scale is neutral: so many times the traffic and nodes cost, draw and serve so many times as much.

Without chance, and with routers that see one node's replicas: those of a cluster keep more in time the more there are.
What is left are lumps: a replica is whole, a person too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plan.plan import Plan
from planner.run.simulate import RunResult, simulate
from tests.engine.worlds import QUIET, SHARED, scenario_from

EXAMPLES = 10 if settings().max_examples < 200 else 200
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b")
UNSTAFFED = {
    "software": {**QUIET["software"], "engineers": 0},
    "finance": {"operations_staff_per_1000_accelerators": 0},
}
"""One engineer is one, of however many machines."""


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    """A month of one to three workloads on one to three clusters, in which nothing fails."""

    def load() -> dict[str, Any]:
        tokens = draw(st.sampled_from([(300, 200), (1200, 200), (4000, 30)]))
        waits = {"priority": "deferrable", "completion_window_h": 12}
        return {
            "model": draw(st.sampled_from(MODELS)),
            "requests_per_s": draw(st.sampled_from([2, 20, 60])),
            "lengths": {"input": {"mean": tokens[0]}, "output": {"mean": tokens[1]}},
            **draw(st.sampled_from([{"priority": "interactive"}, {"priority": "standard"}, waits])),
        }

    def cluster(accelerator: str) -> dict[str, Any]:
        return SHARED | {"accelerator": accelerator, "nodes": draw(st.sampled_from([8, 30, 60]))}

    parts = draw(
        st.lists(st.sampled_from(["H200", "MI325X", "B200"]), min_size=1, max_size=3, unique=True)
    )
    return {
        **QUIET, "name": "scaled", "start": "2026-01-01", "horizon_months": 1, "router_pool": "node",
        "workloads": {f"w{n}": load() for n in range(draw(st.integers(1, 3)))},
        "clusters": {part.lower(): cluster(part) for part in parts},
    }  # fmt: skip


def times(scale: int, world: dict[str, Any]) -> dict[str, Any]:
    loads = {
        n: {**w, "requests_per_s": scale * w["requests_per_s"]}
        for n, w in world["workloads"].items()
    }
    return {
        **world,
        "workloads": loads,
        "clusters": {n: {**c, "nodes": scale * c["nodes"]} for n, c in world["clusters"].items()},
    }


def lump(plan: Plan) -> float:
    """By how much figures per unit of scale may differ: one replica of a cluster, and at least a fiftieth."""
    assert plan.placement is not None
    replicas = [
        deployment.nodes_per_replica / plan.clusters[deployment.cluster].nodes
        for deployment in plan.placement.deployments
    ]
    return max(0.02, *replicas)


def in_time(result: RunResult) -> float:
    """Return the share of requests served in time."""
    return 1.0 - float(result.missed_requests().sum() / result.settled_requests().sum())


def served_tokens(result: RunResult) -> float:
    """Return the tokens served."""
    return float(result.tokens(result.monthly.served_requests).sum())


@settings(max_examples=EXAMPLES)
@given(fleets(), st.sampled_from([2, 10]))
def test_so_many_times_the_traffic_and_nodes_are_so_many_times_the_same(
    world: dict[str, Any], scale: int
) -> None:
    """Never served worse, at the same tokens and cost.

    Of more nodes more pool sizes are to be had, among them those of layouts in which fewer requests are late: such a
    layout draws up to a twentieth more or less.
    """
    one = simulate(scenario_from({**world, **UNSTAFFED}))
    many = simulate(scenario_from({**times(scale, world), **UNSTAFFED}))
    tolerance = lump(one.plan)
    energy_kwh = float(one.monthly.facility_kwh.sum())
    assert in_time(many) >= in_time(one) - 1e-3
    assert many.monthly.facility_kwh.sum() / scale == pytest.approx(
        energy_kwh, rel=max(0.05, tolerance)
    )
    assert served_tokens(many) / scale == pytest.approx(served_tokens(one), rel=tolerance)
    assert many.cost_cents().sum() / scale == pytest.approx(one.cost_cents().sum(), rel=tolerance)


@pytest.mark.parametrize("scale", [2, 10])
def test_people_are_rounded_up_once(scale: int) -> None:
    """Their cost is at most that of one engineer and one operator more than so many times as much, and never less."""
    load = {
        "model": MODELS[0],
        "requests_per_s": 20,
        "lengths": {"input": {"mean": 300}, "output": {"mean": 200}},
    }
    world = {
        **QUIET, "name": "people", "start": "2026-01-01", "horizon_months": 1, "router_pool": "node",
        "workloads": {"chat": load}, "clusters": {"h200": SHARED | {"accelerator": "H200", "nodes": 100}},
    }  # fmt: skip
    (one, bare_one), (many, bare_many) = (
        [
            float(simulate(scenario_from({**of, **staff})).cost_cents().sum())
            for staff in ({}, UNSTAFFED)
        ]
        for of in (world, times(scale, world))
    )
    people = one - bare_one
    more = many - bare_many
    month = 31 / 365 * 100 * (280_000.0 + 150_000.0)
    assert people > 0.0
    assert scale * (people - 1.01 * month) <= more <= scale * people
    np.testing.assert_allclose(bare_many / scale, bare_one, rtol=1e-6)
