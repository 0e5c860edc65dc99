"""The quantities of a fleet against figures worked out by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.arrays import Floats
from planner.plan import quantities


def array(*figures: float) -> Floats:
    return np.array(figures, dtype=np.float64)


def test_machine_time_is_shared_out_as_it_is_named() -> None:
    """Of 100 accelerator-hours on site 10 are failed; of the 90 in service 20 are dark, which does not shorten them."""
    served = quantities.in_service(array(100.0), array(10.0))
    assert quantities.availability(served, array(100.0)) == pytest.approx(0.9)
    assert quantities.utilisation(array(45.0), served) == pytest.approx(0.5)
    assert np.isnan(quantities.utilisation(array(0.0), array(0.0)))


def test_requests_in_time_are_of_those_settled() -> None:
    """Ten come, four wait: three are served, one late; three are refused, of which two are rented for."""
    shed = quantities.shed_requests(array(3.0), array(2.0))
    settled = quantities.settled_requests(array(3.0), array(3.0))
    assert quantities.attainment(
        quantities.missed_requests(array(1.0), shed), settled
    ) == pytest.approx(4 / 6)
    assert quantities.shed_share(array(150.0), array(1000.0)) == pytest.approx(0.15)
    assert quantities.shed_requests(array(1.0), array(1.0 + 1e-12)) == 0.0
    assert np.isnan(quantities.attainment(array(0.0), array(0.0)))


def test_what_became_of_node_hours_sums_to_them() -> None:
    parts = quantities.fates(
        present=array(100.0), failed=array(5.0), dark=array(7.0), busy=array(40.0), drag=array(11.0),
        throttled=array(3.0), by_process=(array(4.0), array(1.0)),
    )  # fmt: skip
    assert {name: float(part[0]) for name, part in parts.items()} == {
        "working": 29.0, "lost_to_failures": 2.0, "lost_to_software": 10.0, "lost_to_processes": 4.0,
        "lost_to_outages": 7.0, "lost_to_power_cap": 3.0, "idle": 45.0,
    }  # fmt: skip


def test_a_failure_takes_its_group_s_part_of_a_node() -> None:
    assert quantities.failure_node_h(np.array([6.0]), np.array([2]), np.array([8.0])).tolist() == [
        1.5
    ]


def test_the_part_of_an_hour_between_two_moments() -> None:
    hours = array(0, 1, 2, 3, 4)
    assert quantities.open_fraction(hours, 1.25, 3.5).tolist() == [0.0, 0.75, 1.0, 0.5, 0.0]
    assert quantities.open_fraction(hours, 1.25, math.inf).tolist() == [0.0, 0.75, 1.0, 1.0, 1.0]


def test_incidents_share_a_loss_by_the_logarithm_of_their_speeds() -> None:
    """Speeds of 1/2 and 1/4: one to two where both are open, all to the one that is open alone, none without any."""
    slowness = np.array([[math.log(2), math.log(2), 0.0], [math.log(4), 0.0, 0.0]])
    taken = quantities.incident_node_h(array(9.0, 5.0, 7.0), slowness)
    assert taken.sum(axis=1) == pytest.approx([3.0 + 5.0, 6.0])


def test_the_usual_mix_gives_workloads_the_nodes_they_ask_for() -> None:
    """4 requests at 2 a node take two nodes, 3 at 1 take three: two of five carry 2 · 100, three 1000 tokens."""
    rates = np.array(
        [[2.0, 1.0], [5.0, 0.0], [0.0, 0.0]]
    )  # the second serves the first workload alone, the third none
    found = quantities.usual_tokens_per_node_h(rates, array(4.0, 3.0), array(100.0, 1000.0))
    assert found == pytest.approx([(2 * 200 + 3 * 1000) / 5, 500.0, 0.0])


def test_machine_time_is_requests_over_their_rate() -> None:
    served = np.array([[[10.0, 6.0], [0.0, 4.0]]])
    rates = np.array([[[5.0, 2.0], [0.0, 8.0]]])
    assert quantities.machine_time(served, rates).tolist() == [[[2.0, 3.0], [0.0, 0.5]]]


@given(st.lists(st.tuples(*[st.integers(0, 50)] * 3), min_size=1, max_size=4))
def test_shares_follow_the_first_weights_that_are_not_all_zero(
    tables: list[tuple[int, int, int]],
) -> None:
    chosen = next((table for table in tables if sum(table)), (1, 1, 1))
    expected = [float(Fraction(weight, sum(chosen))) for weight in chosen]
    assert quantities.shares(*(array(*table) for table in tables)) == pytest.approx(expected)


def test_shares_are_decided_row_by_row() -> None:
    first = np.array([[1.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    second = np.array([[9.0, 1.0], [9.0, 1.0], [0.0, 0.0]])
    assert quantities.shares(first, second).tolist() == [[0.25, 0.75], [0.9, 0.1], [0.5, 0.5]]


def test_what_is_refused_would_take_as_much_machine_time_as_what_is_served() -> None:
    """Ten accelerators serve 80 tokens and refuse 40: all of it would take fifteen."""
    found = quantities.needed(
        array(10.0, 10.0, 0.0, 0.0), array(80.0, 80.0, 0.0, 5.0), array(40.0, 0.0, 7.0, 0.0)
    )
    assert found[:2].tolist() == [15.0, 10.0]
    assert np.isnan(found[2])
    assert found[3] == 0.0
