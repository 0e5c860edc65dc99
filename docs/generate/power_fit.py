"""Fits the coefficients of board and node power to measurements; its output is the shipped constants."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from planner.arrays import Bools, Floats
from planner.physics import power

_NUMBERS = {
    "board": ("memory_fraction", "compute_fraction", "clock_fraction", "power_fraction"),
    "cap": ("memory_fraction", "compute_fraction", "power_fraction", "throughput_fraction"),
    "throttle": ("power_fraction", "uncapped_power_fraction", "throughput_fraction"),
    "serving": ("batch", "input_tokens", "output_tokens", "boards", "board_load_w"),
    "node": ("boards", "board_idle_w", "board_load_w", "wall_idle_w", "wall_load_w"),
}
_TEXTS = (
    "record",
    "accelerator",
    "workload",
    "scenario",
    "precision",
    "engine",
    "cooling",
    "grade",
    "source",
)
_BOUNDS = ([0.0, 0.0, 0.0, 0.1, 0.8], [2.0, 1.0, 5.0, 1.0, 3.0])
_START = [0.4, 0.3, 0.8, 0.5, 1.2]
_LOWEST_CLOCK_FRACTION = 0.17  # 345 of 1,980 MHz, the lowest clock seen on an H200
_BISECTIONS = 40  # halves [0.17, 1] down to 1e-12
# Best measured over datasheet on an H200: copy 4.26 of 4.8 TB/s, prefill 0.58 of the dense rate at 0.74 of the clock.
_REACHABLE_BANDWIDTH = 0.89
_REACHABLE_RATE = 0.78


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMeasurement:
    """One row of the table of power measurements."""

    record: str
    """``board`` (power and clock under a load), ``cap`` (throughput kept, to hold the clock), ``throttle`` (throughput
    kept against power), ``serving`` (power of boards that serve requests, held out of the fit), or ``node`` (wall
    power)."""
    accelerator: str
    workload: str
    scenario: str
    cooling: str
    """Node rows: ``air`` or ``liquid``."""
    grade: str
    source: str
    numbers: dict[str, float]
    """The columns its record needs, by name."""
    precision: str = ""
    engine: str = ""
    """Serving rows: under which engine."""


def read_power_measurements(path: Path) -> list[PowerMeasurement]:
    """Return the table of power measurements, each with the numbers that its record needs."""
    with path.open(newline="", encoding="utf-8") as stream:
        return [
            PowerMeasurement(
                numbers={name: float(cells[name]) for name in _NUMBERS[cells["record"]]},
                **{name: cells[name] for name in _TEXTS},
            )
            for cells in csv.DictReader(stream)
        ]


def column(rows: list[PowerMeasurement], name: str) -> Floats:
    """Return one numeric column of rows, all of which must have it."""
    return np.array([row.numbers[name] for row in rows])


def fit_board_power(rows: list[PowerMeasurement]) -> power.PowerCoefficients:
    """Return the five coefficients fitted by least squares to power and to capped throughput, as fractions."""
    board = [row for row in rows if row.record == "board"]
    cap = [row for row in rows if row.record == "cap"]

    def coefficients(parameters: Floats) -> power.PowerCoefficients:
        names = ("memory", "active", "compute", "compute_exponent", "clock_exponent")
        return power.PowerCoefficients(**dict(zip(names, parameters.tolist(), strict=True)))

    def residuals(parameters: Floats) -> Floats:
        tried = coefficients(parameters)
        return np.concatenate([board_power_residuals(board, tried), cap_residuals(cap, tried)])

    # The bisection inside makes the residuals smooth to 1e-12, so differences want a step well above that.
    fit = least_squares(residuals, _START, bounds=_BOUNDS, diff_step=[1e-5] * len(_START))
    return coefficients(fit.x)


def board_power_residuals(
    rows: list[PowerMeasurement], coefficients: power.PowerCoefficients
) -> Floats:
    """Return predicted less measured power over TDP, at the measured clock."""
    memory, compute, clock = (column(rows, name) for name in _NUMBERS["board"][:3])
    return power.power_fraction(memory, compute, clock, coefficients) - column(
        rows, "power_fraction"
    )


def cap_residuals(rows: list[PowerMeasurement], coefficients: power.PowerCoefficients) -> Floats:
    """Return predicted less measured throughput under a power cap."""
    memory, compute, cap = (column(rows, name) for name in _NUMBERS["cap"][:3])
    kept = clocked_throughput_fraction(memory, compute, cap, coefficients)
    return kept - column(rows, "throughput_fraction")


def clocked_throughput_fraction(
    memory: Floats, compute: Floats, cap: Floats, coefficients: power.PowerCoefficients
) -> Floats:
    """Return throughput at the clock that a power cap forces, over that at the board's own limit.

    ``cap`` is over TDP, activities are as measured at the board's own limit. It holds the clock exponent of board power
    to measurements; what a cap costs is read from measured caps, by :func:`fit_cap_curve`.
    """

    def over(clock: Floats) -> Bools:
        return np.asarray(power.power_fraction(memory, compute, clock, coefficients) > 1.0)

    # κ depends on m/c alone, which stretching a step does not change.
    bound = clock_bound_fraction(memory, compute)
    free = largest_clock(over, memory.shape)
    at_full = 1.0 - bound + bound / free
    capped = throttled_clock_fraction(memory * at_full, compute * at_full, cap, coefficients)
    return np.asarray(at_full / (1.0 - bound + bound / capped))


def fit_cap_curve(rows: list[PowerMeasurement]) -> tuple[float, float]:
    """Return floor and exponent of throughput under a cap, fitted by least squares."""
    cap, uncapped, kept = (column(rows, name) for name in _NUMBERS["throttle"])

    def residuals(parameters: Floats) -> Floats:
        floor, exponent = parameters
        headroom = np.clip((cap - floor) / (uncapped - floor), 0.0, 1.0)
        return np.asarray(1.0 - (1.0 - headroom) ** exponent - kept)

    floor, exponent = least_squares(residuals, [0.2, 1.5]).x
    return float(floor), float(exponent)


def fit_host_slope(rows: list[PowerMeasurement], cooling: str) -> float:
    """Return the watts of fans, supplies and host per watt of boards above idle, fitted to nodes of one cooling type.

    Least squares through each node's own idle point: wall − idle wall = (1 + ρ) Σ(board − idle board).
    """
    nodes = [row for row in rows if row.record == "node" and row.cooling == cooling]
    rise = column(nodes, "boards") * (column(nodes, "board_load_w") - column(nodes, "board_idle_w"))
    wall_rise = column(nodes, "wall_load_w") - column(nodes, "wall_idle_w")
    return float(rise @ wall_rise / (rise @ rise) - 1.0)


def clock_bound_fraction(memory_fraction: ArrayLike, compute_fraction: ArrayLike) -> Floats:
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
    coefficients: power.PowerCoefficients = power.FITTED,
) -> Floats:
    """Return the clock (over its maximum) to which firmware throttles for work of activity m and c.

    Both activities thin out as the step stretches: T(f) = 1 − κ + κ/f with κ the clock-bound share.
    """
    memory, compute, cap = np.broadcast_arrays(memory_fraction, compute_fraction, cap_fraction)
    bound = clock_bound_fraction(memory, compute)

    def over(clock: Floats) -> Bools:
        stretch = 1.0 - bound + bound / clock
        return np.asarray(
            power.power_fraction(memory / stretch, compute / stretch, clock, coefficients) > cap
        )

    return largest_clock(over, memory.shape)


def largest_clock(over: Callable[[Floats], Bools], shape: tuple[int, ...]) -> Floats:
    """Return by bisection the largest clock within the limit, or the lowest clock where none is."""
    lower = np.full(shape, _LOWEST_CLOCK_FRACTION)
    upper = np.ones(shape)
    fits = ~over(upper)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (lower + upper)
        high = over(middle)
        lower = np.where(high, lower, middle)
        upper = np.where(high, middle, upper)
    return np.where(fits, 1.0, lower)
