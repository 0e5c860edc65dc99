"""Tables by load: how far they reach, and what a cluster far beyond its capacity serves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.compile.load_tables import _most_load
from planner.demand.bursts import Lateness
from planner.fleet.plan import LOAD_CELLS, MOST_LOAD, load_grid
from planner.results.run import simulate
from planner.studies.sizing.survey import most_in_time
from tests.simulation.worlds import QUIET, merged, plan_of, scenario_of


def long_prompts(requests_per_s: float, **load: Any) -> dict[str, Any]:
    """A model of 405 billion weights, asked with long prompts, on one node of H200."""
    steady = {"shape": {"peak_to_mean": 1.0, "weekend_fraction": 1.0}, "noise": {"sigma": 0}}
    asked = {
        "model": "llama-3.1-405b",
        "requests_per_s": requests_per_s,
        "burst_index_of_dispersion": 1.0,
        "tokens": {"input": {"mean": 12000}, "output": {"mean": 343}},
        "slo": {"ttft_s": 30.0, "tpot_s": 0.1},
    }
    works = {"chat": steady | asked | load, "nightly": None}
    return merged(QUIET, {"workloads": works, "clusters": {"mi325x": None, "h200": {"nodes": 1}}, "horizon_months": 1})


def in_time(change: dict[str, Any]) -> float:
    """Return the share of requests in time over the run."""
    result = simulate(scenario_of(change))
    return 1.0 - float(result.missed_requests().sum() / result.settled_requests().sum())


@pytest.mark.parametrize(("requests_per_s", "by_request"), [(0.08, 0.961), (0.11, 0.962), (0.15, 0.905)])
def test_a_node_far_beyond_its_capacity_serves_what_it_does_request_by_request(
    requests_per_s: float, by_request: float
) -> None:
    """Two to four times what it sustains for 99% in time, as the zoom has it; all beyond twice that was shed before."""
    change = long_prompts(requests_per_s)
    assert requests_per_s * 3600 > MOST_LOAD * plan_of(change).requests_per_node_h.item()
    assert in_time(change) == pytest.approx(by_request, abs=0.045)


def test_twice_the_capacity_is_no_cliff() -> None:
    sustained = plan_of(long_prompts(0.1)).requests_per_node_h.item() / 3600
    below, above = (in_time(long_prompts(load * sustained)) for load in (1.95, 2.15))
    assert 0.0 <= below - above < 0.01
    waiting = [in_time(long_prompts(load * sustained, on_overload="queue")) for load in (1.95, 2.15)]
    assert 0.0 <= waiting[0] - waiting[1] < 0.02


def test_tables_are_longer_only_where_work_is_offered_beyond() -> None:
    chat = plan_of(merged(QUIET, {"workloads": {"nightly": None}}))
    assert chat.late_tables.shape[2] == 2 * LOAD_CELLS + 1
    assert (chat.most_loads <= 2 * MOST_LOAD).all()
    far = plan_of(long_prompts(0.1))
    assert far.late_tables.shape[2] > 2 * LOAD_CELLS
    assert load_grid(far.late_tables.shape[2] - 1)[-1] >= far.most_loads.item() > MOST_LOAD
    assert most_in_time(far).item() > MOST_LOAD  # which the bound of a sizing must know


def test_bursts_make_more_late_than_calm_traffic() -> None:
    calm, bursty = (plan_of(long_prompts(0.05, burst_index_of_dispersion=index)) for index in (1.0, 8.0))
    assert bursty.calm_tables is not None
    assert calm.late_tables == pytest.approx(bursty.calm_tables[0])
    assert bursty.late_tables[0, 0, LOAD_CELLS // 4] > bursty.calm_tables[0, 0, 0, LOAD_CELLS // 4]


def test_a_pair_reads_the_same_beside_one_of_longer_tables() -> None:
    """As at its own end wherever the longer table goes on."""
    alone = merged(QUIET, {"workloads": {"nightly": None}, "clusters": {"mi325x": None, "h200": {"nodes": 1}}})
    short, other = plan_of(alone), long_prompts(0.1)["workloads"]["chat"]
    both = plan_of(merged(alone, {"workloads": {"other": other}}))
    at = [load.name for load in both.workloads].index("chat")
    cells = short.late_tables.shape[2]
    assert both.late_tables.shape[2] > cells
    for table in ("late_tables", "refused_tables"):
        one, longer = getattr(short, table)[:, 0], getattr(both, table)[:, at]
        np.testing.assert_array_equal(longer[:, :cells], one)
        np.testing.assert_array_equal(longer[:, cells:], np.repeat(one[:, -1:], longer.shape[1] - cells, axis=1))


def test_work_that_queues_is_offered_what_a_replica_takes_at_all() -> None:
    def queue(most: float) -> Lateness:
        return Lateness(loads=(0.0, most, most * 1.000001), late_fractions=(0, 0, 1), refuses=False)

    assert _most_load(queue(1.3)) == MOST_LOAD
    assert _most_load(queue(5.0)) == 5.0
    assert _most_load(queue(500.0)) == 8 * MOST_LOAD
    assert _most_load(Lateness()) == 1.0
