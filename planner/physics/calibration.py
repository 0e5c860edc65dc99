"""Fitting the coefficients to measurements: robust, pooled over engines and vendors, cross-validated.

The unknowns are logarithms of the coefficients (so none can be negative): one common value each, and a deviation for
each engine and for each vendor other than the reference. The fit minimises

    Σ ρ(ln(predicted/measured) / scale) + Σ (ln common − ln prior)²/σ² + Σ deviation²/σ_d²

with ρ(z) = 2·(√(1 + z²) − 1), quadratic near zero and linear in the tails, so that a mislabelled run cannot bend the
rest. The priors (planner.physics.coefficients) do the pooling: an engine with few rows stays near the common value,
one with none takes it. No coefficient is set by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.physics.coefficients import COEFFICIENTS, NAMES, Calibration
from planner.physics.operating import Traffic, at_concurrency, at_saturation
from planner.physics.replica import price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.physics.arrays import Bools, Floats
    from planner.physics.replica import ReplicaWork

QUANTITIES = ("tpot_s", "ttft_s", "output_tokens_per_s_per_accelerator")
SCALES = {"tpot_s": 0.05, "ttft_s": 0.7, "output_tokens_per_s_per_accelerator": 0.05}
"""Log error at which ρ turns from quadratic to linear. TTFT is a distribution's mean with a heavy tail and counts a
fourteenth as much: it must not bend the step time."""
REFERENCE_VENDOR = "nvidia"  # the vendor with most rows carries no deviation of its own
_DERIVATIVE_STEP = 1e-4
_MAX_EVALUATIONS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Measured operating points, one row each; arrays have shape (rows,), NaN where nothing was measured."""

    work: ReplicaWork
    engine: Sequence[str]
    vendor: Sequence[str]
    traffic: Traffic
    concurrency: Floats
    """Requests in the replica; NaN for saturation."""
    measured: dict[str, Floats]
    """Measured values by quantity."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.engine)


def predict(measurements: Measurements, coefficient: dict[str, Floats]) -> dict[str, Floats]:
    """Return the predicted quantities of each row; ``coefficient`` holds arrays of shape (rows,)."""
    replicas = price(measurements.work, coefficient)
    index = np.arange(measurements.rows)
    saturated = np.isnan(measurements.concurrency)
    loop = at_concurrency(replicas, index, measurements.traffic, np.where(saturated, 1.0, measurements.concurrency))
    full = at_saturation(replicas, index, measurements.traffic)
    return {name: np.where(saturated, getattr(full, name), getattr(loop, name)) for name in QUANTITIES}


def predict_with(measurements: Measurements, calibration: Calibration) -> dict[str, Floats]:
    """Return the predicted quantities of each row under a calibration."""
    return predict(measurements, calibration.coefficients(measurements.engine, measurements.vendor))


def fit(measurements: Measurements, keep: Bools | None = None) -> Calibration:
    """Fit a calibration to the rows that ``keep`` selects (all by default)."""
    from scipy.optimize import least_squares  # noqa: PLC0415  (scipy takes a second to import; only the fit needs it)

    problem = _Problem(measurements, np.ones(measurements.rows, dtype=bool) if keep is None else keep)
    solution = least_squares(
        problem.residuals,
        problem.start(),
        jac=problem.jacobian,
        method="lm",  # MINPACK: no threads to fight over, five times as fast here
        max_nfev=_MAX_EVALUATIONS,
        xtol=1e-7,
        ftol=1e-7,
        x_scale="jac",
    )
    return problem.calibration(np.asarray(solution.x))


def cross_validate(measurements: Measurements, groups: Sequence[str]) -> dict[str, Floats]:
    """Return predictions of each row by a fit that never saw its group (leave one group out)."""
    labels = np.asarray(groups)
    predicted = {name: np.full(measurements.rows, np.nan) for name in QUANTITIES}
    for label in dict.fromkeys(groups):
        left_out = labels == label
        held = predict_with(measurements, fit(measurements, ~left_out))
        for name in QUANTITIES:
            predicted[name][left_out] = held[name][left_out]
    return predicted


def residual_spread(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Return median and robust standard deviation of ln(measured/predicted): a prior for model error.

    The spread is 1.4826 times the median absolute deviation, the standard deviation of a normal distribution with the
    same quartiles; draw ``predicted · exp(N(median, spread))``.
    """
    known = np.isfinite(measured) & np.isfinite(predicted) & (predicted > 0)
    if not known.any():
        return 0.0, float("nan")
    error = np.log(measured[known] / predicted[known])
    median = float(np.median(error))
    return median, float(1.4826 * np.median(np.abs(error - median)))


class _Problem:
    """The least-squares problem: unknowns of shape (1 + engines + vendors, coefficients), flattened."""

    def __init__(self, measurements: Measurements, keep: Bools) -> None:
        self.measurements = measurements
        self.engines = sorted(set(measurements.engine))
        self.vendors = sorted(set(measurements.vendor) - {REFERENCE_VENDOR})
        labels = [np.asarray(measurements.engine) == engine for engine in self.engines]
        labels += [np.asarray(measurements.vendor) == vendor for vendor in self.vendors]
        self.members = np.stack([np.ones(measurements.rows, dtype=bool), *labels]).astype(float)
        self.used = {name: keep & np.isfinite(measurements.measured[name]) for name in QUANTITIES}
        self.log_centre = np.log([c.centre for c in COEFFICIENTS])
        sigma = [[c.pool_sigma for c in COEFFICIENTS]] + [[c.deviation_sigma for c in COEFFICIENTS]] * len(labels)
        self.sigma = np.array(sigma)

    def start(self) -> Floats:
        """Return the unknowns at the prior medians."""
        unknowns = np.zeros_like(self.sigma)
        unknowns[0] = self.log_centre
        return unknowns.ravel()

    def log_coefficients(self, unknowns: Floats) -> Floats:
        """Return the log coefficients of each row, shape (coefficients, rows)."""
        product: Floats = unknowns.reshape(self.sigma.shape).T @ self.members
        return product

    def log_errors(self, log_coefficients: Floats) -> Floats:
        """Return scaled log errors of all measured quantities, one after the other."""
        coefficient = dict(zip(NAMES, np.exp(log_coefficients), strict=True))
        predicted = predict(self.measurements, coefficient)
        return np.concatenate(
            [
                np.log(predicted[name][used] / self.measurements.measured[name][used]) / SCALES[name]
                for name, used in self.used.items()
            ]
        )

    def residuals(self, unknowns: Floats) -> Floats:
        """Return residuals whose squares sum to the objective."""
        error = self.log_errors(self.log_coefficients(unknowns))
        robust = np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0))
        departure = unknowns.reshape(self.sigma.shape).copy()
        departure[0] -= self.log_centre
        return np.concatenate([robust, (departure / self.sigma).ravel()])

    def jacobian(self, unknowns: Floats) -> Floats:
        """Return the derivative of the residuals.

        A deviation acts on a row exactly as the common value does, so one numerical derivative per coefficient serves
        all of them.
        """
        logs = self.log_coefficients(unknowns)
        base = self.log_errors(logs)
        robust = np.sign(base) * np.sqrt(2.0 * (np.sqrt(1.0 + base**2) - 1.0))
        chain = np.where(np.abs(base) < 1e-9, 1.0, base / (np.sqrt(1.0 + base**2) * np.where(robust == 0, 1.0, robust)))
        rows_of_errors = np.concatenate([np.flatnonzero(used) for used in self.used.values()])
        groups, coefficients = self.sigma.shape
        derivative = np.zeros((base.size, groups, coefficients))
        for column in range(coefficients):
            moved = logs.copy()
            moved[column] += _DERIVATIVE_STEP
            slope = chain * (self.log_errors(moved) - base) / _DERIVATIVE_STEP
            derivative[:, :, column] = slope[:, None] * self.members.T[rows_of_errors]
        return np.concatenate([derivative.reshape(base.size, -1), np.diag(1.0 / self.sigma.ravel())])

    def calibration(self, unknowns: Floats) -> Calibration:
        """Return the unknowns by name."""
        logs = unknowns.reshape(self.sigma.shape)
        deviations = [dict(zip(NAMES, map(float, row), strict=True)) for row in logs[1:]]
        return Calibration(
            common=dict(zip(NAMES, map(float, np.exp(logs[0])), strict=True)),
            engine_log_deviation=dict(zip(self.engines, deviations, strict=False)),
            vendor_log_deviation=dict(zip(self.vendors, deviations[len(self.engines) :], strict=True)),
        )
