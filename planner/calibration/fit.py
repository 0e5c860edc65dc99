"""Fitting the coefficients to measurements: robust, pooled over engines, vendors and campaigns, cross-validated.

The unknowns are logarithms of the coefficients (so none can be negative): one common value each, a deviation for each
engine and for each vendor other than the reference, and one effect on time per token for each group of measurements
(model × engine, part × engine, the campaign itself, its runs in one layout, and pools of mixtures). The fit minimises

    Σ w²·ρ(ln(predicted/measured) / scale) + Σ (ln common − ln prior)²/σ² + Σ deviation²/σ_d² + Σ effect²/σ_g²

with ρ(z) = 2·(√(1 + z²) − 1), quadratic near zero and linear in the tails, so that a mislabelled run cannot bend the
rest. The rows of one campaign share what they have in common, so they count as ten rows at most: w² = min(1, 10/n).
The priors do the pooling: an engine with few rows stays near the common value, one with none takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from planner.arrays import Bools, Floats
from planner.calibration import predictions
from planner.physics.coefficients import COEFFICIENTS, GROUP_SIGMA, NAMES, REFERENCE_VENDOR, Calibration, Groups
from planner.physics.operating import Traffic, at_concurrency, at_saturation
from planner.physics.replica import ReplicaWork, describe, price
from planner.units import MILLISECOND

QUANTITIES = ("tpot_s", "ttft_s", "output_tokens_per_s_per_accelerator")
SCALES = {"tpot_s": 0.05, "ttft_s": 0.7, "output_tokens_per_s_per_accelerator": 0.05}
"""Log error at which ρ turns from quadratic to linear. TTFT is a distribution's mean with a heavy tail and counts a
fourteenth as much: it must not bend the step time."""
_DERIVATIVE_STEP = 1e-4
_MAX_STEPS = 40
_MOST_DAMPING = 1e4
_SMALLEST_GAIN = 1e-4  # of the sum of squares: the coefficients stand to three digits, their errors to four


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Measured operating points, one row each; arrays have shape (rows,), NaN where nothing was measured."""

    work: ReplicaWork
    engine: Sequence[str]
    vendor: Sequence[str]
    groups: Sequence[Groups]
    traffic: Traffic
    concurrency: Floats
    """Requests in the replica; NaN for saturation."""
    measured: dict[str, Floats]
    """Measured values by quantity."""
    first_token: Sequence[predictions.Labels] = ()
    """The groups whose recipes each row's first token follows; empty for none at all."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.engine)


def measurements(frame: pd.DataFrame, rows: predictions.BenchmarkRows, calibration: Calibration) -> Measurements:
    """Return the predictable rows as input of the fit; the given calibration settles open layouts."""
    pick, priced = rows.deployment >= 0, predictions.priced_rows(rows, calibration)
    return Measurements(
        work=describe(priced.specs),
        engine=[spec.engine for spec in priced.specs],
        vendor=[spec.part.vendor for spec in priced.specs],
        groups=priced.groups,
        traffic=rows.traffic(pick),
        concurrency=rows.concurrency[pick],
        measured={
            "tpot_s": frame["tpot_ms"].to_numpy()[pick] * MILLISECOND,
            "ttft_s": frame["ttft_ms"].to_numpy()[pick] * MILLISECOND,
            "output_tokens_per_s_per_accelerator": frame["output_tokens_per_s_per_gpu"].to_numpy()[pick],
        },
        first_token=[
            labels for labels, used in zip(predictions.first_token_labels(rows, priced), pick, strict=True) if used
        ],
    )


def predict(measurements: Measurements, coefficient: dict[str, Floats], log_effect: Floats) -> dict[str, Floats]:
    """Return the predicted quantities of each row; ``coefficient`` holds arrays of shape (rows,)."""
    replicas = price(measurements.work, coefficient, log_effect)
    index = np.arange(measurements.rows)
    saturated = np.isnan(measurements.concurrency)
    loop = at_concurrency(replicas, index, measurements.traffic, np.where(saturated, 1.0, measurements.concurrency))
    full = at_saturation(replicas, index, measurements.traffic)
    return {name: np.where(saturated, getattr(full, name), getattr(loop, name)) for name in QUANTITIES}


def predict_with(measurements: Measurements, calibration: Calibration) -> dict[str, Floats]:
    """Return the predicted quantities of each row under a calibration."""
    coefficient = calibration.coefficients(measurements.engine, measurements.vendor)
    predicted = predict(measurements, coefficient, calibration.log_effects(measurements.groups))
    if measurements.first_token:
        shown = calibration.first_token_log_effect.get(predictions.FORMULA, {})
        predicted["ttft_s"] = predicted["ttft_s"] * predictions.factors(measurements.first_token, shown)
    return predicted


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted calibration, and the unknowns from which cross-validation fits start."""

    calibration: Calibration
    unknowns: Floats


def fit(measurements: Measurements, keep: Bools | None = None, start: Floats | None = None) -> Fit:
    """Fit a calibration to the rows that ``keep`` selects (all by default), by damped Gauss–Newton steps.

    What first tokens show beyond it is read off afterwards, so that no recipe for them bends the time per token.

    Levenberg and Marquardt's rule: a step that lowers the sum is taken and the damping eased, one that does not is
    thrown away and damped more. Some 300 unknowns against 3,000 residuals: the normal equations, well conditioned by
    the priors' unit rows, take a thirtieth of the time of MINPACK's factorisation.
    """
    used = np.ones(measurements.rows, dtype=bool) if keep is None else keep
    problem = _Problem(measurements, used)
    unknowns = np.zeros(problem.sigma.size) if start is None else start
    residuals = problem.residuals(unknowns)
    damping = 1e-3
    for _ in range(_MAX_STEPS):
        derivative = problem.jacobian(unknowns)
        normal, gradient = derivative.T @ derivative, derivative.T @ residuals
        while damping < _MOST_DAMPING:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            left = problem.residuals(unknowns + step)
            if left @ left < residuals @ residuals:
                break
            damping *= 10.0
        else:
            break
        gain = 1.0 - (left @ left) / (residuals @ residuals)
        unknowns, residuals, damping = unknowns + step, left, damping / 10.0
        if gain < _SMALLEST_GAIN:
            break
    calibration = problem.fitted(unknowns)
    if measurements.first_token:
        first_s = predict_with(measurements, calibration)["ttft_s"]
        log_ratio = np.where(used, np.log(measurements.measured["ttft_s"] / first_s), np.nan)
        effects = {predictions.FORMULA: predictions.fit_effects(measurements.first_token, log_ratio)}
        calibration = replace(calibration, first_token_log_effect=effects)
    return Fit(calibration, unknowns)


@dataclass(frozen=True, slots=True)
class Held:
    """Predictions of rows by fits that left them out."""

    predicted: dict[str, Floats]
    unseen: Bools
    """Which of a row's groups the fit knew nothing of, shape (rows, groups)."""

    def log_errors(self, measurements: Measurements, name: str) -> Floats:
        """Return ln(predicted/measured) of one quantity, shape (rows,); NaN where not measured."""
        log_ratio: Floats = np.log(self.predicted[name] / measurements.measured[name])
        return log_ratio


def cross_validate(measurements: Measurements, labels: Sequence[str], start: Floats) -> Held:
    """Return predictions of each row by a fit without the rows of its label (leave one label out)."""
    label_of_row = np.asarray(labels)
    predicted = {name: np.full(measurements.rows, np.nan) for name in QUANTITIES}
    unseen = np.zeros((measurements.rows, len(GROUP_SIGMA)), dtype=bool)
    for label in dict.fromkeys(labels):
        left_out = label_of_row == label
        held = predict_with(measurements, fit(measurements, ~left_out, start).calibration)
        for name in QUANTITIES:
            predicted[name][left_out] = held[name][left_out]
        known = {group for row in np.flatnonzero(~left_out).tolist() for group in measurements.groups[row]}
        for row in np.flatnonzero(left_out).tolist():
            unseen[row] = [group not in known for group in measurements.groups[row]]
    return Held(predicted, unseen)


class _Problem:
    """The least-squares problem; unknowns are departures from the priors: coefficients, then group effects.

    Coefficients form a table of shape (1 + engines + vendors, coefficients) of which only cells with a prior spread
    are free: an engine or vendor shares what it is not allowed to differ in.
    """

    def __init__(self, measurements: Measurements, keep: Bools) -> None:
        self.measurements = measurements
        self.engines = sorted(set(measurements.engine))
        self.vendors = sorted(set(measurements.vendor) - {REFERENCE_VENDOR})
        labels = [np.asarray(measurements.engine) == engine for engine in self.engines]
        labels += [np.asarray(measurements.vendor) == vendor for vendor in self.vendors]
        self.members = np.stack([np.ones(measurements.rows, dtype=bool), *labels]).astype(float)
        self.log_centre = np.log([c.centre for c in COEFFICIENTS])
        table = [[c.pool_sigma for c in COEFFICIENTS]]
        table += [[c.engine_sigma for c in COEFFICIENTS]] * len(self.engines)
        table += [[c.vendor_sigma for c in COEFFICIENTS]] * len(self.vendors)
        self.free = np.array(table) > 0
        group_sigma = {
            label: sigma
            for level, sigma in enumerate(GROUP_SIGMA)
            for label in (row[level] for row in measurements.groups)
        }
        self.groups = list(group_sigma)
        place = {label: number for number, label in enumerate(self.groups)}
        self.in_group = np.zeros((measurements.rows, len(self.groups)))
        for number, row in enumerate(measurements.groups):
            self.in_group[number, [place[label] for label in row]] = 1.0
        self.sigma = np.concatenate([np.array(table)[self.free], list(group_sigma.values())])
        self.used = {name: keep & np.isfinite(measurements.measured[name]) for name in QUANTITIES}
        self.scale = np.concatenate([np.full(used.sum(), SCALES[name]) for name, used in self.used.items()])
        kept = [[measurements.groups[row] for row in np.flatnonzero(used).tolist()] for used in self.used.values()]
        self.weight = np.concatenate([weights(groups) for groups in kept])

    def split(self, unknowns: Floats) -> tuple[Floats, Floats]:
        """Return the log coefficients of each row, shape (coefficients, rows), and its log effect, shape (rows,)."""
        departure = np.zeros(self.free.shape)
        departure[self.free] = (unknowns * self.sigma)[: self.free.sum()]
        logs: Floats = self.log_centre[:, None] + departure.T @ self.members
        return logs, self.in_group @ (unknowns * self.sigma)[self.free.sum() :]

    def errors(self, logs: Floats, effect: Floats) -> Floats:
        """Return scaled log errors of all measured quantities, concatenated."""
        predicted = predict(self.measurements, dict(zip(NAMES, np.exp(logs), strict=True)), effect)
        measured = self.measurements.measured
        log_ratio = [np.log(predicted[name][used] / measured[name][used]) for name, used in self.used.items()]
        scaled: Floats = np.concatenate(log_ratio) / self.scale
        return scaled

    def residuals(self, unknowns: Floats) -> Floats:
        """Return residuals whose squares sum to the objective."""
        return np.concatenate([self.weight * _robust(self.errors(*self.split(unknowns))), unknowns])

    def jacobian(self, unknowns: Floats) -> Floats:
        """Return the derivative of the residuals.

        A deviation acts on a row exactly as the common value does, and every effect on a row as any other: one
        numerical derivative per coefficient, and one for the effects, serve them all.
        """
        logs, effect = self.split(unknowns)
        base = self.errors(logs, effect)
        robust = _robust(base)
        chain = np.where(np.abs(base) < 1e-9, 1.0, base / (np.sqrt(1.0 + base**2) * np.where(robust == 0, 1.0, robust)))
        chain *= self.weight / _DERIVATIVE_STEP
        row = np.concatenate([np.flatnonzero(used) for used in self.used.values()])
        table = np.zeros((base.size, *self.free.shape))
        for column in range(len(NAMES)):
            moved = logs.copy()
            moved[column] += _DERIVATIVE_STEP
            slope = chain * (self.errors(moved, effect) - base)
            table[:, :, column] = slope[:, None] * self.members.T[row]
        slope = chain * (self.errors(logs, effect + _DERIVATIVE_STEP) - base)
        derivative = np.concatenate([table[:, self.free], slope[:, None] * self.in_group[row]], axis=1) * self.sigma
        return np.concatenate([derivative, np.eye(self.sigma.size)])

    def fitted(self, unknowns: Floats) -> Calibration:
        """Return the unknowns by name, except for unknowns that no row moved from the prior."""
        count = int(self.free.sum())
        logs = np.zeros(self.free.shape)
        logs[self.free] = (unknowns * self.sigma)[:count]
        deviations = [
            {name: float(value) for name, value, free in zip(NAMES, row, cells, strict=True) if free}
            for row, cells in zip(logs[1:], self.free[1:], strict=True)
        ]
        effects = (unknowns * self.sigma)[count:]
        return Calibration(
            common=dict(zip(NAMES, map(float, np.exp(logs[0] + self.log_centre)), strict=True)),
            engine_log_deviation=dict(zip(self.engines, deviations, strict=False)),
            vendor_log_deviation=dict(zip(self.vendors, deviations[len(self.engines) :], strict=True)),
            group_log_effect=dict(zip(self.groups, map(float, effects), strict=True)),
        )


def _robust(error: Floats) -> Floats:
    """Return the signed root of the robust loss ρ, whose square the fit sums."""
    return np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0))


def weights(groups: Sequence[Groups]) -> Floats:
    """Return the weight of each row, with a campaign counting as ten rows at most."""
    size = Counter(row.campaign for row in groups)
    return np.array([np.sqrt(min(1.0, predictions.CAMPAIGN_ROWS / size[row.campaign])) for row in groups])
