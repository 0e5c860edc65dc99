"""Study designs: the inputs and random seed of each row, and the sampling points in the unit cube.

A row is one set of inputs, in the unit cube, and one replication number, from which the simulation
draws its random streams. Rows can be asked for in any order and any portion, so workers need no more
than the design and a range.

Inputs that are money alone move no machine. Rows that differ in nothing else share one simulation: those of a tornado,
and the further draws of a nested Monte Carlo study.

Points are scrambled Sobol; point i is always the same, however many are asked. Replication i takes point
i // R of randomisation i % R, for R independent randomisations. All of them so grow together, the study can be stopped
anywhere, and the spread of R estimates gives an honest interval.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.records import record

Integers = NDArray[np.int64]
LOW = 0.1
"""Where one-at-a-time studies put an input below its median: P10, as the trade does."""
HIGH = 0.9
"""And above it: P90."""
_BLOCK = 128
"""Points made together: scrambling takes longer than making them by the hundred; scipy wants powers of two."""
_BITS = 32
"""Of a Sobol point's coordinate, as scipy counts them: points repeat after 2³²."""
PILOT = 256
"""Rows of a Monte Carlo study that show how much of the variance is money's, at least."""
MAX_DIMENSIONS = 21201
"""As many as scipy has Sobol's direction numbers for (Joe and Kuo 2008); a test holds it to ``qmc.Sobol.MAXDIM``."""


@record
class PointSet:
    """Randomised sampling points, by replication."""

    dimensions: int
    scramblings: int
    seed: int

    def points(self, replications: Integers) -> Floats:
        """Return the points of some replications, shape (replications, dimensions)."""
        points = np.empty((len(replications), self.dimensions))
        scramblings = replications % self.scramblings
        index = replications // self.scramblings
        blocks = index // _BLOCK
        # A block takes long to make and a point of it nothing: each block is asked for once.
        pairs = zip(scramblings.tolist(), blocks.tolist(), strict=True)
        needed = set(pairs)
        for scrambling, block in needed:
            is_inside = (scramblings == scrambling) & (blocks == block)
            block_points = _block(self.dimensions, self.seed, scrambling, block)
            places = index[is_inside] % _BLOCK
            points[is_inside] = block_points[places]
        return points


def _generator(seed: int, *place: int) -> np.random.Generator:
    """Return the generator of one randomisation, independent of the simulation's, which are keyed by replication."""
    # The first number keeps these apart from the simulation's: no replication has so high a one.
    key = (2**31, *place)
    sequence = np.random.SeedSequence(seed, spawn_key=key)
    return np.random.Generator(np.random.PCG64(sequence))


@functools.lru_cache(maxsize=128)
def _block(dimensions: int, seed: int, scrambling: int, block: int) -> Floats:
    """Return one randomisation's points of one block, shape (``_BLOCK``, dimensions).

    Sobol's are scrambled by a random matrix and a digital shift (Matoušek 1998), which keeps the net's balance and
    makes each point uniform; one randomisation is one scrambling throughout.
    """
    from scipy.stats import qmc  # noqa: PLC0415 - takes most of a second, which only a study should wait for

    generator = _generator(seed, scrambling, 0)
    engine = qmc.Sobol(dimensions, bits=_BITS, rng=generator)
    if block:  # scipy cannot go forward by nothing
        engine.fast_forward(block * _BLOCK)
    # The middle of each point's cell: never 0, where a quantile is infinite.
    half_a_cell = 2.0 ** -(_BITS + 1)
    return engine.random(_BLOCK) + half_a_cell


@record
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
        step = math.lcm(self.points.scramblings, 16)
        return step * math.ceil(PILOT / step)

    def rows(self, start: int, stop: int) -> tuple[Floats, Integers]:
        """Return the points and replication numbers of a range of rows."""
        rows = np.arange(start, stop)
        scramblings = self.points.scramblings
        rows_per_block = scramblings * self.draws
        # Before the pilot's end these are negative, and not used.
        block, place = np.divmod(rows - self.pilot, rows_per_block)
        nested = self.pilot + block * scramblings + place % scramblings
        replications = np.where(rows < self.pilot, rows, nested)
        return self.points.points(replications), replications

    def money_points(self, start: int, stop: int) -> Floats:
        """Return the points of a range of rows at which money is drawn: after the pilot those of a set of its own."""
        rows = np.arange(start, stop)
        # Another seed, which no study states: its points are independent of the machines'.
        seed = self.points.seed + 2**64
        money = replace(self.points, seed=seed)
        is_pilot = rows[:, None] < self.pilot
        return np.where(is_pilot, self.points.points(rows), money.points(rows))


@record
class Listed:
    """A design of given points, each with its own replication, as after importance sampling."""

    listed: Floats
    """Shape (rows, inputs)."""
    first_replication: int
    """Replication number of the first row; the others follow."""
    name: str = "listed"
    period: int = 1

    def rows(self, start: int, stop: int) -> tuple[Floats, Integers]:
        """Return the points and replication numbers of a range of rows."""
        replications = self.first_replication + np.arange(start, stop)
        return self.listed[start:stop], replications


@record
class OneAtATime:
    """A design per replication: all inputs at their median, then each alone at P10 and at P90."""

    inputs: int
    name: str = "tornado"

    @property
    def period(self) -> int:
        """Rows per replication."""
        return 1 + 2 * self.inputs

    def rows(self, start: int, stop: int) -> tuple[Floats, Integers]:
        """Return rows in the order base, input 1 low, input 1 high, input 2 low, ..., then the next replication."""
        index = np.arange(start, stop)
        place = index % self.period
        # 0.5 of every input is its median.
        points = np.full((len(index), self.inputs), 0.5)
        # Place 0 is the base; of the others, two follow each other for each input.
        moved = np.flatnonzero(place)
        moved_input = (place[moved] - 1) // 2
        is_low = place[moved] % 2 == 1
        points[moved, moved_input] = np.where(is_low, LOW, HIGH)
        return points, index // self.period


Design = MonteCarlo | Listed | OneAtATime
"""What a row of a study is: each has a name, its rows, and the period of those that share inputs or replications.

The study's correlations are laid on the points of a design without one: period 1."""
