"""Points of the unit cube: scrambled Sobol, Latin hypercube, plain. Point i is always the same, however many are asked.

Replication i takes point i // R of randomisation i % R, for R independent randomisations. All of them so grow together,
the study can be stopped anywhere, and the spread of R estimates gives an honest interval.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.scenario.study import Sampling

Floats = NDArray[np.float64]
Bits = NDArray[np.uint64]
_DIRECTIONS = Path(__file__).parent / "sobol_directions.csv"
_BITS = 32
_LHS_BLOCK = 16
"""Points of one Latin hypercube: the sample is a sequence of them, so that it can grow."""
MAX_DIMENSIONS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSet:
    """Randomised points, by replication."""

    sampling: Sampling
    dimensions: int
    scramblings: int
    seed: int

    def points(self, replications: NDArray[np.int64]) -> Floats:
        """Return the points of some replications, shape (replications, dimensions)."""
        found = np.empty((len(replications), self.dimensions))
        scrambling, index = replications % self.scramblings, replications // self.scramblings
        for which in np.unique(scrambling):
            own = scrambling == which
            found[own] = self._of(int(which), index[own])
        return found

    def _of(self, scrambling: int, index: NDArray[np.int64]) -> Floats:
        match self.sampling:
            case "sobol":
                numbers, shift = _scrambled(self.dimensions, self.seed, scrambling)
                digits = (_digital(numbers, index) ^ shift).astype(np.float64)
                return np.asarray((digits + 0.5) * 2.0**-_BITS, dtype=np.float64)
            case "lhs":
                return self._hypercube(scrambling, index)
            case "plain":
                rows = [_generator(self.seed, scrambling, 2, int(i)).random(self.dimensions) for i in index]
                return np.array(rows).reshape(len(index), self.dimensions)

    def _hypercube(self, scrambling: int, index: NDArray[np.int64]) -> Floats:
        """Return points of a sequence of Latin hypercubes (McKay, Beckman and Conover 1979)."""
        found = np.empty((len(index), self.dimensions))
        block = index // _LHS_BLOCK
        for which in np.unique(block):
            own = block == which
            found[own] = _latin(self.dimensions, self.seed, scrambling, int(which))[index[own] % _LHS_BLOCK]
        return found


def _generator(seed: int, *place: int) -> np.random.Generator:
    """Return the generator of one randomisation; apart from those of the simulation, which are keyed by replication."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(2**31, *place))))


@functools.lru_cache(maxsize=256)
def _latin(dimensions: int, seed: int, scrambling: int, block: int) -> Floats:
    """Return one Latin hypercube: each column has one point in each of as many equal strips as there are points."""
    generator = _generator(seed, scrambling, 1, block)
    strips = generator.permuted(np.tile(np.arange(_LHS_BLOCK)[:, np.newaxis], (1, dimensions)), axis=0)
    return (strips + generator.random((_LHS_BLOCK, dimensions))) / _LHS_BLOCK


@functools.lru_cache(maxsize=256)
def _scrambled(dimensions: int, seed: int, scrambling: int) -> tuple[Bits, Bits]:
    """Return direction numbers under a random linear matrix scramble, and a random digital shift (Matoušek 1998).

    Each dimension's digits are multiplied by a random lower triangular binary matrix with ones on its diagonal, which
    keeps the net's balance; the shift makes every point uniform, so that estimates have no bias.
    """
    generator = _generator(seed, scrambling, 0)
    numbers = direction_numbers(dimensions)
    lower = np.tril(generator.integers(0, 2, size=(dimensions, _BITS, _BITS)), -1) + np.eye(_BITS, dtype=np.int64)
    places = np.arange(_BITS - 1, -1, -1, dtype=np.uint64)
    digits = (numbers[:, :, np.newaxis] >> places) & np.uint64(1)  # most significant first
    mixed = np.einsum("drc,dbc->dbr", lower, digits.astype(np.int64)) % 2
    scrambled = (mixed.astype(np.uint64) << places).sum(axis=2, dtype=np.uint64)
    return scrambled, generator.integers(0, 2**_BITS, size=dimensions, dtype=np.uint64)


def _digital(numbers: Bits, index: NDArray[np.int64]) -> Bits:
    """Return points of the net as integers of 32 bits, in the order of the Gray code, shape (points, dimensions)."""
    gray = index.astype(np.uint64) ^ (index.astype(np.uint64) >> np.uint64(1))
    found = np.zeros((len(index), len(numbers)), dtype=np.uint64)
    for bit in range(int(gray.max(initial=0)).bit_length()):
        is_set = ((gray >> np.uint64(bit)) & np.uint64(1)).astype(bool)
        found[is_set] ^= numbers[:, bit]
    return found


@functools.lru_cache(maxsize=8)
def direction_numbers(dimensions: int) -> Bits:
    """Return Sobol's direction numbers, shape (dimensions, 32), from primitive polynomials (Bratley and Fox 1988).

    The polynomials and initial numbers are those of Joe and Kuo (2008), ``new-joe-kuo-6``.
    """
    numbers = np.zeros((dimensions, _BITS), dtype=np.uint64)
    numbers[:1] = 1 << np.arange(_BITS - 1, -1, -1, dtype=np.uint64)
    with _DIRECTIONS.open(encoding="utf-8", newline="") as stream:
        for place, row in zip(range(1, dimensions), csv.DictReader(stream), strict=False):
            polynomial = int(row["polynomial"])
            degree = polynomial.bit_length() - 1
            m = [int(number) for number in row["initial_numbers"].split()]
            for k in range(degree, _BITS):
                new = m[k - degree] ^ (m[k - degree] << degree)
                for i in range(1, degree):
                    if (polynomial >> (degree - i)) & 1:
                        new ^= m[k - i] << i
                m.append(new)
            numbers[place] = [number << (_BITS - 1 - k) for k, number in enumerate(m)]
    return numbers
