"""What software incidents cost in a run."""

from __future__ import annotations

import math

import pytest

from planner.plan.distributions import ThreePoint
from planner.run.incidents import incident_rows
from planner.run.slo_misses import INCIDENT, lost_requests
from tests.run.test_slo_misses import run

FIGURES = ThreePoint(low=1.0, base=7.0, high=50.0)


def test_quantiles_are_those_of_the_lognormal() -> None:
    assert FIGURES.lognormal_at(1.28155) == pytest.approx(7.0 * math.sqrt(50.0), rel=1e-4)
    reaching_zero = ThreePoint(low=0.0, base=4.0, high=10.0)  # a normal, cut at zero
    assert [reaching_zero.lognormal_at(z) for z in (-1.28155, 0.0, 1.28155)] == pytest.approx(
        [0.0, 4.0, 9.0], abs=1e-3
    )


def test_incidents_by_kind_sum_to_the_losses_and_misses_of_the_run() -> None:
    result = run()
    rows = incident_rows(result)
    names = ("incidents", "open_h", "node_h", "missed", "attained")
    sums = {name: math.fsum(row[3 + place] for row in rows) for place, name in enumerate(names)}
    assert sums["node_h"] == pytest.approx(result.monthly.drag_node_h.sum())
    assert sums["missed"] == pytest.approx(lost_requests(result).requests[INCIDENT].sum())
    assert sums["missed"] > 0.0
    assert sums["attained"] == pytest.approx(sums["missed"] / result.settled_requests().sum())
    log = result.run.log.software
    assert sums["incidents"] == len({event.incident for event in log if event.incident >= 0})
    # A stack is its vendor's.
    assert {row[:2] for row in rows} <= {
        ("amd" if name.startswith("rocm") else "nvidia", name)
        for name in map(str, result.plan.software.stack_of.ravel())
    }


def test_an_incident_is_open_from_its_first_event_to_its_end() -> None:
    result = run()
    events = [event for event in result.run.log.software if event.incident >= 0]
    hours = 0.0
    for number in {event.incident for event in events}:
        times = {event.kind: event.time_h for event in events if event.incident == number}
        ends = [
            time_h for kind, time_h in times.items() if kind.endswith((" rolled back", " fixed"))
        ]
        hours += min([*ends, result.plan.hours]) - min(times.values())
    assert math.fsum(row[4] for row in incident_rows(result)) == pytest.approx(hours)
