"""Board power by what the board does, and the throughput it loses under a power cap.

A board's power follows what it streams and what it multiplies, not a "utilisation": an H200 rests at 126 W, draws
500 W while it decodes a single sequence, and from a batch of about 64 sits at its 700 W limit with its clock falling
from 1,980 to about 1,500 MHz. As a fraction of the thermal design power (TDP)::

    p(m, c, f) = a m + (s + k (c / f)^g) f^e

    m   bytes moved over time × datasheet bandwidth      f   clock over its maximum
    c   operations over time × datasheet dense rate      c/f work per clock cycle
        at the precision served

The memory's share does not see the clock; the cores' share (leakage and clock tree ``s``, arithmetic ``k``) does.
Where p(m, c, 1) exceeds the limit, firmware lowers f until p equals it. What a lower cap costs is read from measured
caps (``throughput_fraction_at_cap``).

``planner.calibration.power_fit`` fits the five coefficients to ``planner/catalog/power_measurements.csv``; a test
refits them. They are H200 measurements carried to other parts by fraction of TDP, which the B200 node rows
bear out to 5%.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

_LOWEST_CLOCK_FRACTION = 0.17  # 345 of 1,980 MHz, the lowest clock seen on an H200
_BISECTIONS = 40  # halves [0.17, 1] down to 1e-12
# Best measured over datasheet on an H200: copy 4.26 of 4.8 TB/s, prefill 0.58 of the dense rate at 0.74 of the clock.
_REACHABLE_BANDWIDTH = 0.89
_REACHABLE_RATE = 0.78


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCoefficients:
    """Coefficients of board power as a fraction of TDP; see the module's formula."""

    memory: float
    """a: power at full datasheet bandwidth."""
    active: float
    """s: power of cores that run at full clock and multiply nothing."""
    compute: float
    """k: power of arithmetic at one datasheet rate's worth of work per cycle."""
    compute_exponent: float
    """g: below 1, since a small batch fills whole tiles of the matrix units."""
    clock_exponent: float
    """e: near 1, since voltage is at its floor over most of the range where caps act."""


# Output of planner.calibration.power_fit.fit_board_power on the shipped table.
FITTED = PowerCoefficients(
    memory=0.32029, active=0.39317, compute=1.05523, compute_exponent=0.47529, clock_exponent=1.05901
)
# Output of planner.calibration.power_fit.fit_cap_curve on the shipped table.
CAP_FLOOR_FRACTION = 0.1915
CAP_EXPONENT = 1.7228


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRating:
    """What a board may draw, and what it draws at rest."""

    tdp_w: float
    idle_w: float
    """With a model loaded and nothing running."""

    def __post_init__(self) -> None:
        """Refuse what no board is."""
        if not (np.isfinite(self.tdp_w) and 0.0 < self.idle_w < self.tdp_w):
            raise ValueError(f"not a board: {self}")


def power_fraction(
    memory_fraction: ArrayLike,
    compute_fraction: ArrayLike,
    clock_fraction: ArrayLike = 1.0,
    coefficients: PowerCoefficients = FITTED,
) -> Array:
    """Return power over TDP at a given clock, before any limit acts: p(m, c, f) of the module's formula."""
    clock = np.asarray(clock_fraction, dtype=np.float64)
    cores = (np.asarray(compute_fraction, dtype=np.float64) / clock) ** coefficients.compute_exponent
    cores *= coefficients.compute
    cores += coefficients.active
    cores = cores * clock**coefficients.clock_exponent
    return np.asarray(cores + coefficients.memory * np.asarray(memory_fraction, dtype=np.float64))


def board_power_w(
    rating: BoardRating,
    memory_fraction: ArrayLike,
    compute_fraction: ArrayLike,
    busy_fraction: ArrayLike = 1.0,
    limit_w: float | None = None,
) -> Array:
    """Return mean board power for a share of time busy at an activity, and the rest of it idle.

    Activities are those measured while the board is busy; all arguments broadcast. A limit below the TDP clips what
    is drawn; ``throughput_fraction_at_cap`` gives what it costs.
    """
    limit_w = rating.tdp_w if limit_w is None else min(limit_w, rating.tdp_w)
    busy_w = power_fraction(memory_fraction, compute_fraction)
    busy_w *= rating.tdp_w
    np.clip(busy_w, rating.idle_w, max(limit_w, rating.idle_w), out=busy_w)
    busy_w -= rating.idle_w
    return np.asarray(rating.idle_w + busy_w * np.asarray(busy_fraction, dtype=np.float64))


def clock_bound_fraction(memory_fraction: ArrayLike, compute_fraction: ArrayLike) -> Array:
    """Return the share of a busy step that stretches as 1/clock.

    The time the matrix units need at the rate they can reach, over that plus the time the memory needs at the
    bandwidth it can reach: 1 for pure arithmetic, 0 for pure streaming.
    """
    compute = np.asarray(compute_fraction, dtype=np.float64) / _REACHABLE_RATE
    memory = np.asarray(memory_fraction, dtype=np.float64) / _REACHABLE_BANDWIDTH
    total = compute + memory
    return np.divide(compute, total, out=np.zeros_like(total), where=total > 0.0)


def throttled_clock_fraction(
    memory_fraction: ArrayLike,
    compute_fraction: ArrayLike,
    cap_fraction: ArrayLike = 1.0,
    coefficients: PowerCoefficients = FITTED,
) -> Array:
    """Return the clock (over its maximum) to which firmware falls for work that takes m and c at full clock.

    Both activities thin out as the step stretches: T(f) = 1 − κ + κ/f with κ the clock-bound share.
    """
    memory, compute, cap = np.broadcast_arrays(memory_fraction, compute_fraction, cap_fraction)
    bound = clock_bound_fraction(memory, compute)

    def over(clock: Array) -> NDArray[np.bool_]:
        stretch = 1.0 - bound + bound / clock
        return np.asarray(power_fraction(memory / stretch, compute / stretch, clock, coefficients) > cap)

    return largest_clock(over, memory.shape)


def throughput_fraction_at_cap(
    memory_fraction: ArrayLike, compute_fraction: ArrayLike, cap_fraction: ArrayLike
) -> Array:
    """Return throughput under a board cap, over throughput at the board's own limit.

    ``cap_fraction`` is the cap over TDP. With d what the board draws uncapped, and floor and n fitted to measurements::

        kept = 1 − (1 − (cap − floor) / (d − floor))^n

    The first watts taken cost little, since clock and voltage fall together and memory does not wait for the cores; the
    last cost most.
    """
    wanted = np.minimum(power_fraction(memory_fraction, compute_fraction), 1.0)
    headroom = (np.asarray(cap_fraction, dtype=np.float64) - CAP_FLOOR_FRACTION) / (wanted - CAP_FLOOR_FRACTION)
    return np.asarray(1.0 - (1.0 - np.clip(headroom, 0.0, 1.0)) ** CAP_EXPONENT)


def largest_clock(over: Callable[[Array], NDArray[np.bool_]], shape: tuple[int, ...]) -> Array:
    """Return by bisection the largest clock that is not over the limit, or the lowest clock where none is."""
    lower, upper = np.full(shape, _LOWEST_CLOCK_FRACTION), np.ones(shape)
    fits = ~over(upper)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (lower + upper)
        high = over(middle)
        lower, upper = np.where(high, lower, middle), np.where(high, middle, upper)
    return np.where(fits, 1.0, lower)
