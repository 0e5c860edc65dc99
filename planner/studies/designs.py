"""Study designs: the inputs and random seed of each row, and the sampling points in the unit cube.

A row is one set of inputs, in the unit cube, and one number from which the simulation draws all its chance. Rows can be
asked for in any order and any portion, so workers need no more than the design and a range.

Inputs that are money alone move no machine. Rows that differ in nothing else share one simulation: those of a tornado,
of Saltelli that move such an input, and the further draws of a nested Monte Carlo study.

Points are scrambled Sobol or plain; point i is always the same, however many are asked. Replication i takes point
i // R of randomisation i % R, for R independent randomisations. All of them so grow together, the study can be stopped
anywhere, and the spread of R estimates gives an honest interval.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.scenario.study import Sampling

Integers = NDArray[np.int64]
LOW = 0.1
HIGH = 0.9
"""The probabilities between which one-at-a-time studies move: P10 and P90, as the trade does."""
_BLOCK: dict[Sampling, int] = {"sobol": 128, "plain": 16}
"""Points made together: scrambling Sobol's takes longer than making them by the hundred; scipy wants powers of two."""
_BITS = 32
PILOT = 256
"""Rows of a Monte Carlo study that show how much of the variance is money's, at least."""
MAX_DIMENSIONS = 21201
"""As many as scipy has Sobol's direction numbers for (Joe and Kuo 2008); a test holds it to ``qmc.Sobol.MAXDIM``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSet:
    """Randomised sampling points, by replication."""

    sampling: Sampling
    dimensions: int
    scramblings: int
    seed: int

    def points(self, replications: Integers) -> Floats:
        """Return the points of some replications, shape (replications, dimensions)."""
        points = np.empty((len(replications), self.dimensions))
        scrambling = replications % self.scramblings
        index = replications // self.scramblings
        size = _BLOCK[self.sampling]
        for which, block in {*zip(scrambling.tolist(), (index // size).tolist(), strict=True)}:
            asked = (scrambling == which) & (index // size == block)
            points[asked] = _block(self.sampling, self.dimensions, self.seed, which, block)[
                index[asked] % size
            ]
        return points


def _generator(seed: int, *place: int) -> np.random.Generator:
    """Return the generator of one randomisation, independent of the simulation's, which are keyed by replication."""
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(2**31, *place)))
    )


@functools.lru_cache(maxsize=128)
def _block(sampling: Sampling, dimensions: int, seed: int, scrambling: int, block: int) -> Floats:
    """Return one randomisation's points of one block, shape (``_BLOCK[sampling]``, dimensions).

    Sobol's are scrambled by a random matrix and a digital shift (Matoušek 1998), which keeps the net's balance and
    makes each point uniform; one randomisation is one scrambling throughout.
    """
    size = _BLOCK[sampling]
    if sampling == "plain":
        index = range(block * size, (block + 1) * size)
        return np.stack([_generator(seed, scrambling, 2, i).random(dimensions) for i in index])
    from scipy.stats import qmc  # noqa: PLC0415 - takes most of a second, which only a study should wait for

    engine = qmc.Sobol(dimensions, bits=_BITS, rng=_generator(seed, scrambling, 0))
    if block:  # scipy cannot go forward by nothing
        engine.fast_forward(block * size)
    # The middle of each point's cell: never 0, where a quantile is infinite.
    return engine.random(size) + 2.0 ** -(_BITS + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonteCarlo:
    """A design in which each row has a new point and a new replication, or only new money after the pilot.

    After the pilot a block of R · ``draws`` rows has R replications, one per randomisation, and then their further
    draws of money. A replication so stays within its randomisation, and every row has the distribution of a plain one.
    """

    points: PointSet
    draws: int = 1
    name: str = "montecarlo"
    period: int = 1

    @property
    def pilot(self) -> int:
        """Rows that have a replication each, whatever comes after: whole batches of all randomisations."""
        return math.lcm(self.points.scramblings, 16) * -(
            -PILOT // math.lcm(self.points.scramblings, 16)
        )

    def rows(self, first: int, last: int) -> tuple[Floats, Integers]:
        """Return the points and replication numbers of a range of rows."""
        rows = np.arange(first, last)
        scramblings = self.points.scramblings
        block, place = np.divmod(rows - self.pilot, scramblings * self.draws)
        replications = np.where(
            rows < self.pilot, rows, self.pilot + block * scramblings + place % scramblings
        )
        return self.points.points(replications), replications

    def money_points(self, first: int, last: int) -> Floats:
        """Return the points of a range of rows at which money is drawn: after the pilot those of a set of its own."""
        # Another seed, which no study states: its points are independent of the machines'.
        rows = np.arange(first, last)
        other = replace(self.points, seed=self.points.seed + 2**64)
        return np.where(rows[:, None] < self.pilot, self.points.points(rows), other.points(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A design of given points, each with its own replication, as after importance sampling."""

    listed: Floats
    """Shape (rows, inputs)."""
    first_chance: int
    """Replications number of the first row; the others follow."""
    name: str = "listed"
    period: int = 1

    def rows(self, first: int, last: int) -> tuple[Floats, Integers]:
        """Return the points and replication numbers of a range of rows."""
        return self.listed[first:last], np.arange(
            self.first_chance + first, self.first_chance + last
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OneAtATime:
    """A design per replication: all inputs at their median, then each alone at P10 and at P90."""

    inputs: int
    name: str = "tornado"

    @property
    def period(self) -> int:
        """Rows per replication."""
        return 1 + 2 * self.inputs

    def rows(self, first: int, last: int) -> tuple[Floats, Integers]:
        """Return rows in the order base, input 1 low, input 1 high, input 2 low, ..., then the next replication."""
        index = np.arange(first, last)
        place = index % self.period
        points = np.full((len(index), self.inputs), 0.5)
        moved = np.flatnonzero(place)
        points[moved, (place[moved] - 1) // 2] = np.where(place[moved] % 2 == 1, LOW, HIGH)
        return points, index // self.period


@dataclass(frozen=True, slots=True, kw_only=True)
class Saltelli:
    """Two independent samples A and B, and A with one input, or the replication, from B (Saltelli and others 2010).

    Replications counts as one more input, so that its share of the variance is seen beside the others'.
    """

    points: PointSet
    """Of twice as many dimensions as there are inputs."""
    name: str = "sobol"

    @property
    def inputs(self) -> int:
        """Number of uncertain inputs, not counting the replication."""
        return self.points.dimensions // 2

    @property
    def period(self) -> int:
        """Rows per point: A, B, one for each input, one for the replication."""
        return self.inputs + 3

    def rows(self, first: int, last: int) -> tuple[Floats, Integers]:
        """Return rows in the order A, B, A with input 1 of B, ..., A with the replication of B, then the next point."""
        index = np.arange(first, last)
        base = index // self.period
        place = index % self.period
        both = self.points.points(base)
        a = both[:, : self.inputs]
        b = both[:, self.inputs :]
        points = np.where((place == 1)[:, np.newaxis], b, a)
        swapped = np.flatnonzero((place >= 2) & (place < self.period - 1))
        points[swapped, place[swapped] - 2] = b[swapped, place[swapped] - 2]
        from_b = (place == 1) | (place == self.period - 1)
        return points, 2 * base + from_b


Design = MonteCarlo | Listed | OneAtATime | Saltelli
"""What a row of a study is: each has a name, its rows, and the period of those that share inputs or replications.

The study's correlations are laid on the points of a design without one: period 1."""
