"""Points of the unit cube: scrambled Sobol, Latin hypercube, plain. Point i is always the same, however many are asked.

Replication i takes point i // R of randomisation i % R, for R independent randomisations. All of them so grow together,
the study can be stopped anywhere, and the spread of R estimates gives an honest interval.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.scenario.study import Sampling

_BLOCK: dict[Sampling, int] = {"sobol": 128, "lhs": 16, "plain": 16}
"""Points made together: a Latin hypercube has 16, so that a sample of them can grow; Sobol's, whose scrambling takes
longer than its points, are made by the hundred, and scipy asks for a power of two."""
_BITS = 32
MAX_DIMENSIONS = 21201
"""As many as scipy has Sobol's direction numbers for (Joe and Kuo 2008); a test holds it to ``qmc.Sobol.MAXDIM``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSet:
    """Randomised points, by replication."""

    sampling: Sampling
    dimensions: int
    scramblings: int
    seed: int

    def points(self, replications: NDArray[np.int64]) -> Floats:
        """Return the points of some replications, shape (replications, dimensions)."""
        points = np.empty((len(replications), self.dimensions))
        scrambling, index = replications % self.scramblings, replications // self.scramblings
        size = _BLOCK[self.sampling]
        for which, block in {*zip(scrambling.tolist(), (index // size).tolist(), strict=True)}:
            asked = (scrambling == which) & (index // size == block)
            made = _block(self.sampling, self.dimensions, self.seed, which, block)
            points[asked] = made[index[asked] % size]
        return points


def _generator(seed: int, *place: int) -> np.random.Generator:
    """Return the generator of one randomisation; apart from those of the simulation, which are keyed by replication."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(2**31, *place))))


@functools.lru_cache(maxsize=128)
def _block(sampling: Sampling, dimensions: int, seed: int, scrambling: int, block: int) -> Floats:
    """Return one randomisation's points of one block, shape (``_BLOCK[sampling]``, dimensions).

    Sobol's are scrambled by a random matrix and a digital shift (Matoušek 1998), which keeps the net's balance and
    makes each point uniform; one randomisation is one scrambling throughout. Each block of Latin hypercubes (McKay,
    Beckman and Conover 1979) is a hypercube of its own.
    """
    size = _BLOCK[sampling]
    if sampling == "plain":
        index = range(block * size, (block + 1) * size)
        return np.stack([_generator(seed, scrambling, 2, i).random(dimensions) for i in index])
    from scipy.stats import qmc  # noqa: PLC0415 - takes most of a second, which only a study should wait for

    if sampling == "lhs":
        return qmc.LatinHypercube(dimensions, rng=_generator(seed, scrambling, 1, block)).random(size)
    engine = qmc.Sobol(dimensions, bits=_BITS, rng=_generator(seed, scrambling, 0))
    if block:  # scipy cannot go forward by nothing
        engine.fast_forward(block * size)
    # The middle of each point's cell: never 0, where a quantile is infinite.
    return engine.random(size) + 2.0 ** -(_BITS + 1)
