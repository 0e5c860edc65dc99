"""Random scenarios keep the laws of placement."""

from __future__ import annotations

import pytest

from tests.laws.findings import ALL_LAWS, check_worlds
from tests.laws.outcomes import Outcome, Served, is_exactly_as_good, lost
from tests.laws.partitions import grid
from tests.laws.worlds import random_world

SEED = 1
WORLDS = 1000
WORLDS_A_TEST = 20
"""Of the long proof: one test is what a worker takes at a time."""
SAMPLE = 4
SAMPLE_STRIDE = 3
"""Every third law for a world, from another one on for the next: more worlds for the same time."""


def assert_kept(numbers: range, stride: int = 1) -> None:
    """Hold worlds to the laws that hold, and show the smallest that breaks one."""
    breaks = []
    for number in numbers:
        laws = ALL_LAWS[number % stride :: stride]
        for tally in check_worlds([number], SEED, laws).values():
            breaks += tally.unexplained
    smallest = min(breaks, key=lambda finding: finding.size, default=None)
    assert smallest is None, smallest.describe()


def outcome(**shares: float) -> Outcome:
    """Return a run of workloads by name, of which those that begin with b are deferrable."""
    workloads = {}
    for name, share in shares.items():
        priority = "deferrable" if name.startswith("b") else "interactive"
        missed = 100.0 * (1.0 - share)
        workloads[name] = Served(priority=priority, target=0.99, due=100.0, missed=missed)
    return Outcome(workloads=workloads, tokens=1.0, energy_kwh=1.0, hourly={})


@pytest.mark.parametrize(
    ("worse", "better", "difference"),
    [
        ({"a": 0.9, "a2": 0.5}, {"a": 0.6, "a2": 0.6}, 0.1),  # the lowest share counts
        ({"a": 0.8, "b": 0.9}, {"a": 0.9, "b": 0.1}, 0.1),  # the first class before the next
        ({"a": 1.0, "b": 0.8}, {"a": 0.99, "b": 0.9}, 0.1),  # but beyond its target after it
        ({"a": 0.992, "b": 0.9}, {"a": 1.0, "b": 0.9}, 0.008),
        ({"a": 0.9, "b": 0.5}, {"a": 0.8995, "b": 0.6}, 0.1),  # within the tolerance is equal
    ],
)
def test_the_objective_levels_each_class_up_to_its_targets_first(
    worse: dict[str, float], better: dict[str, float], difference: float
) -> None:
    assert lost(outcome(**better), outcome(**worse)) == pytest.approx(difference)
    assert lost(outcome(**worse), outcome(**better)) == 0.0


def test_a_tolerance_hides_a_small_gain_of_what_counts_first_and_the_exact_order_does_not() -> None:
    before = outcome(a=0.8995, b=0.6)
    after = outcome(a=0.9, b=0.5)
    assert lost(before, after) == pytest.approx(0.1)
    assert is_exactly_as_good(before, after)
    assert not is_exactly_as_good(after, before)
    assert is_exactly_as_good(before, before)


def test_a_grid_of_partitions_has_every_node_of_every_cluster() -> None:
    for number in range(30):
        world = random_world(SEED, number)
        for partition in grid(world):
            counts = [sum(column) for column in zip(*partition, strict=True)]
            assert counts == [cluster.count for cluster in world.clusters]


@pytest.mark.parametrize(("law", "number"), [("no-nodes", 70), ("truncated", 79)])
def test_a_cluster_that_is_not_there_moves_no_hour(law: str, number: int) -> None:
    """Overloaded sites: where pools read beyond their tables, and where partitions are searched in coarse steps."""
    assert not check_worlds([number], SEED, [law])[law].breaks


def test_a_sample_of_worlds_keeps_the_laws() -> None:
    assert_kept(range(SAMPLE), SAMPLE_STRIDE)


@pytest.mark.prove
@pytest.mark.parametrize("first", range(0, WORLDS, WORLDS_A_TEST))
def test_many_worlds_keep_the_laws(first: int) -> None:
    assert_kept(range(first, first + WORLDS_A_TEST))
