"""Scale is neutral: so many times the traffic and nodes cost, draw and serve so many times as much.

Without chance, and with routers that see one node's replicas: those of a cluster keep more in time the more there are.
What is left are lumps: a replica is whole, a person too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.run.simulate import simulate
from tests.engine.worlds import QUIET, SHARED, scenario_from

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b")
UNSTAFFED = {
    "software": {**QUIET["software"], "engineers": 0},
    "finance": {"operations_staff_per_1000_accelerators": 0},
}
"""One engineer is one, of however many machines."""


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
