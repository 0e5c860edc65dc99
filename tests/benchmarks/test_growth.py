from __future__ import annotations

from planner.plan.build import build_plan
from planner.scenario.loading import load_scenario
from tests.benchmarks.growth import ROWS, Cost, grown, plan_lines, row_lines
from tests.benchmarks.study import Pace


def test_a_grown_plan_has_the_fleet_and_the_traffic_it_had() -> None:
    small, large = (load_scenario(grown(*size), ["horizon_months=1"]) for size in ((4, 4), (10, 6)))
    assert (len(large.clusters), len(large.workloads)) == (10, 6)
    assert sum(c.nodes for c in small.clusters.values()) == sum(c.nodes for c in large.clusters.values())
    plans = [build_plan(scenario).demand.expected_requests_per_s.sum() for scenario in (small, large)]
    assert abs(plans[1] / plans[0] - 1.0) < 1e-9


def test_tables_say_what_was_not_measured() -> None:
    costs = [Cost(what="1 months", compiled=10.0, replication=5.0, noise=0.5, simpy=50.0, sheet=2.5)]
    assert plan_lines(costs)[1].split() == ["1", "months", "10", "5.0", "10.0", "10.0", "2.0"]
    slow, slower = (Pace(start_s=start, wall_s=0.05, cpu_s=0.1) for start in (1.0, 2.0))
    lines = row_lines(slow, slower, 700)[1:]
    assert ["extrapolated" in line for line in lines] == [rows > 700 for rows in ROWS]
    assert lines[0].split() == ["100", "6.0", "7.0", "1.17"]
