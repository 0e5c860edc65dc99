"""Streams of random numbers: told apart by name, seed and replication, and by nothing else."""

from __future__ import annotations

import itertools

import numpy as np

from planner.engine.log import streams


def test_a_stream_is_the_same_whenever_it_is_asked_for() -> None:
    one = streams(1, 3)
    other = streams(1, 3)
    one("demand/chat/noise").random(100)
    assert np.array_equal(one("failures/h200/1").random(50), other("failures/h200/1").random(50))


def test_names_seeds_and_replications_give_streams_of_their_own() -> None:
    asked = itertools.product((1, 2), (0, 1), ("a", "b", "demand/a/noise"))
    drawn = [tuple(streams(seed, replication)(name).random(4)) for seed, replication, name in asked]
    assert len(set(drawn)) == len(drawn)


def test_streams_are_not_correlated() -> None:
    """Largest of 190 correlations of 20,000 numbers: below 4.5 standard errors."""
    rows = np.array(
        [streams(1, replication)("x").standard_normal(20_000) for replication in range(20)]
    )
    correlation = np.corrcoef(rows) - np.eye(20)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(20_000)
    assert abs(rows.mean()) < 4.5 / np.sqrt(rows.size)
