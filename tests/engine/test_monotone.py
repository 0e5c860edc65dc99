"""What must not get worse: by a looser objective, a node more, or a workload of next to no requests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.arrays import Floats
from planner.run.simulate import RunResult, simulate
from planner.scenario.scenario import SloTarget
from tests.engine.test_scale import EXAMPLES, fleets
from tests.engine.worlds import merged, scenario_from

OBJECTIVES = ("ttft_s", "tpot_s")
LOOSER = st.sampled_from([1.1, 1.25, 2.0])


def run(world: dict[str, Any], *changes: dict[str, Any]) -> RunResult:
    return simulate(scenario_from(merged(world, {"router_pool": None}, *changes)))


def missed(result: RunResult) -> Floats:
    """Share of each workload's requests that is late or shed."""
    missing = result.missed_requests().sum(axis=0)
    settled = result.settled_requests().sum(axis=0)
    return np.asarray(missing / np.maximum(settled, 1e-9))


def tightened(world: dict[str, Any], objective: str, factor: float) -> tuple[RunResult, RunResult]:
    """The first workload at an objective that an idle machine keeps, and at a looser one."""
    slo = {"ttft_s": 3.0, "tpot_s": 0.04}
    stated = (
        {"workloads": {"w0": {"slo": slo | {objective: slo[objective] * by}}}}
        for by in (1.0, factor)
    )
    tight, loose = (run(world, change) for change in stated)
    return tight, loose


@settings(max_examples=EXAMPLES)
@given(fleets(), st.sampled_from(OBJECTIVES), LOOSER)
def test_in_a_stated_layout_a_looser_objective_never_misses_more(
    world: dict[str, Any], objective: str, factor: float
) -> None:
    """One workload and one cluster, so that nothing is routed or laid out otherwise for it."""
    name, cluster = next(iter(world["clusters"].items()))
    alone = {
        **world,
        "workloads": {"w0": world["workloads"]["w0"]},
        "clusters": {name: cluster | {"tensor_parallel": 8}},
    }
    tight, loose = tightened(alone, objective, factor)
    assert missed(loose)[0] <= missed(tight)[0] + 1e-6


@settings(max_examples=EXAMPLES)
@given(fleets(), st.sampled_from(OBJECTIVES), LOOSER)
def test_a_looser_objective_stays_within_the_target(
    world: dict[str, Any], objective: str, factor: float
) -> None:
    """Layouts and clusters are chosen for cost: more may be missed, but none of what the target does not allow."""
    tight, loose = tightened(world, objective, factor)
    assert missed(loose)[0] <= max(missed(tight)[0], 1.0 - SloTarget().attainment) + 1e-3


@settings(max_examples=EXAMPLES)
@given(fleets())
def test_a_workload_of_next_to_no_requests_changes_nothing(world: dict[str, Any]) -> None:
    """One more of a model that is there, so that it needs no replica of its own; to a thousandth."""
    tiny = {"workloads": {"tiny": world["workloads"]["w0"] | {"requests_per_s": 1e-6}}}
    one = run(world)
    other = run(world, tiny)
    count = len(world["workloads"])
    served = [result.monthly.served_requests.sum(axis=(0, 1))[:count] for result in (one, other)]
    np.testing.assert_allclose(served[1], served[0], rtol=1e-3)
    np.testing.assert_allclose(missed(other)[:count], missed(one), atol=1e-3)
    np.testing.assert_allclose(
        other.monthly.facility_kwh.sum(), one.monthly.facility_kwh.sum(), rtol=1e-3
    )


@settings(max_examples=EXAMPLES)
@given(fleets(), st.data())
def test_a_node_more_never_lowers_what_urgent_workloads_get(
    world: dict[str, Any], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(world["clusters"])))
    one = run(world)
    other = run(world, {"clusters": {name: {"nodes": world["clusters"][name]["nodes"] + 1}}})
    urgent = [w for w, load in enumerate(one.plan.workloads) if not load.deadline_h]
    served = [result.monthly.served_requests.sum(axis=(0, 1))[urgent] for result in (one, other)]
    assert (served[1] >= served[0] * (1.0 - 1e-3)).all()
