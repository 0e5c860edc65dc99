from __future__ import annotations

from planner.plan.build import build_plan
from planner.scenario.loading import load_scenario
from tests.benchmarks.growth import Cost, grown
from tests.benchmarks.lines import figure
from tests.benchmarks.study import ROWS, Study, row_lines


def test_a_grown_plan_has_the_fleet_and_the_traffic_it_had() -> None:
    small, large = (load_scenario(grown(*size), ["horizon_months=1"]) for size in ((4, 4), (10, 6)))
    assert (len(large.clusters), len(large.workloads)) == (10, 6)
    assert sum(c.nodes for c in small.clusters.values()) == sum(
        c.nodes for c in large.clusters.values()
    )
    plans = [
        build_plan(scenario).demand.expected_requests_per_s.sum() for scenario in (small, large)
    ]
    assert abs(plans[1] / plans[0] - 1.0) < 1e-9


def test_tables_say_what_was_not_measured() -> None:
    cost = Cost(what="1 months", replication=5.0, noise=0.5, sheet=2.5)
    assert cost.line().split() == ["1", "months", "5.0", "10.0", "2.0"]
    processes = Study(200, 1.0, 0.1, 0.02)
    dask = Study(200, 2.0, 0.1, 0.1)
    lines = row_lines(processes, dask)[1:]
    assert ["extrapolated" in line for line in lines] == [rows > 200 for rows in ROWS]
    assert lines[0].split() == ["100", "6", "7", "6", "7"]
    assert lines[2].split()[:5] == ["10,000", "501", "502", "109", "502"]


def test_a_figure_says_whether_its_bar_is_missed() -> None:
    assert figure("wait, s", 1.5, at_most=1.5).split() == [
        "wait,",
        "s",
        "1.50",
        "at",
        "most",
        "1.5",
    ]
    assert figure("wait, s", 1.6, at_most=1.5).endswith("at most 1.5, missed")
    assert figure("speed", 0.9, at_least=1).endswith("at least 1, missed")
