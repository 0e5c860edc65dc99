"""Fits the throughput formula to a table of measurements; its output is the shipped calibration.

The unknowns are logarithms of the coefficients (so none can be negative): one common value each, a deviation for each
engine and for each vendor other than the reference, and one effect on time per token for each group of measurements
(model × engine, part × engine, the campaign itself, its runs in one layout, and pools of mixtures). The fit minimises

    Σ w²·ρ(ln(predicted/measured) / scale) + Σ (ln common − ln prior)²/σ² + Σ deviation²/σ_d² + Σ effect²/σ_g²

with ρ(z) = 2·(√(1 + z²) − 1), quadratic near zero and linear in the tails, so that a mislabelled run cannot bend the
rest. The rows of one campaign share what they have in common, so they count as ten rows at most: w² = min(1, 10/n).
The priors do the pooling: an engine with few rows stays near the common value, one with none takes it. Then rows are
left out, by setting, layout, campaign, model and part, and predicted by fits to the others (cross-validation).

``python -m docs.generate.throughput_fit MEASUREMENTS.csv OUT.yaml`` writes the file and prints its errors; it takes
minutes. What one's own rows show of a pair is ``planner calibrate``'s to tell, which moves no coefficient.
"""

from __future__ import annotations

import datetime
import itertools
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from docs.generate.by_request import REQUESTS, predict_by_request
from planner.arrays import Bools, Floats
from planner.calibration import predictions
from planner.calibration.benchmarks import DISAGGREGATED_SCENARIO, OPEN_SCENARIOS
from planner.calibration.calibrate import CAMPAIGN_ROWS, absolute_errors, read_rows, weights
from planner.calibration.check import QUANTITY_TITLES, plain_table
from planner.catalog import calibration as records
from planner.catalog.load import load_catalog
from planner.physics import coefficients
from planner.physics.coefficients import (
    COEFFICIENTS,
    DENSE,
    GROUP_SIGMA,
    MIXTURE,
    NAMES,
    NORMAL_90,
    REFERENCE_VENDOR,
    Calibration,
    Groups,
)
from planner.physics.replica import (
    ReplicaSpec,
    ReplicaWork,
    Traffic,
    at_concurrency,
    at_saturation,
    describe,
    price,
)
from planner.units import MILLISECOND

QUANTITIES = ("tpot_s", "ttft_s", "output_tokens_per_s_per_accelerator")
SCALES = {"tpot_s": 0.05, "ttft_s": 0.7, "output_tokens_per_s_per_accelerator": 0.05}
"""Log error at which ρ turns from quadratic to linear. TTFT is a distribution's mean with a heavy tail and counts a
fourteenth as much: it must not bend the step time."""
_DERIVATIVE_STEP = 1e-4
_MAX_STEPS = 40
_MOST_DAMPING = 1e4
_SMALLEST_GAIN = (
    1e-4  # of the sum of squares: the coefficients stand to three digits, their errors to four
)


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


def measurements(
    frame: pd.DataFrame, rows: predictions.BenchmarkRows, calibration: Calibration
) -> Measurements:
    """Return the predictable rows as input of the fit; the given calibration settles open layouts."""
    pick = rows.deployment >= 0
    priced = predictions.priced_rows(rows, calibration)
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
            "output_tokens_per_s_per_accelerator": frame["output_tokens_per_s_per_gpu"].to_numpy()[
                pick
            ],
        },
        first_token=[
            labels
            for labels, used in zip(predictions.first_token_labels(rows, priced), pick, strict=True)
            if used
        ],
    )


def predict(
    measurements: Measurements, coefficient: dict[str, Floats], log_effect: Floats
) -> dict[str, Floats]:
    """Return the predicted quantities of each row; ``coefficient`` holds arrays of shape (rows,)."""
    replicas = price(measurements.work, coefficient, log_effect)
    index = np.arange(measurements.rows)
    saturated = np.isnan(measurements.concurrency)
    loop = at_concurrency(
        replicas, index, measurements.traffic, np.where(saturated, 1.0, measurements.concurrency)
    )
    full = at_saturation(replicas, index, measurements.traffic)
    return {
        name: np.where(saturated, getattr(full, name), getattr(loop, name)) for name in QUANTITIES
    }


def predict_with(measurements: Measurements, calibration: Calibration) -> dict[str, Floats]:
    """Return the predicted quantities of each row under a calibration."""
    coefficient = calibration.coefficients(measurements.engine, measurements.vendor)
    predicted = predict(measurements, coefficient, calibration.log_effects(measurements.groups))
    if measurements.first_token:
        shown = calibration.first_token_log_effect.get(predictions.FORMULA, {})
        predicted["ttft_s"] = predicted["ttft_s"] * predictions.factors(
            measurements.first_token, shown
        )
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
        normal = derivative.T @ derivative
        gradient = derivative.T @ residuals
        while damping < _MOST_DAMPING:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            left = problem.residuals(unknowns + step)
            if left @ left < residuals @ residuals:
                break
            damping *= 10.0
        else:
            break
        gain = 1.0 - (left @ left) / (residuals @ residuals)
        unknowns = unknowns + step
        residuals = left
        damping = damping / 10.0
        if gain < _SMALLEST_GAIN:
            break
    calibration = problem.fitted(unknowns)
    if measurements.first_token:
        first_s = predict_with(measurements, calibration)["ttft_s"]
        log_ratio = np.where(used, np.log(measurements.measured["ttft_s"] / first_s), np.nan)
        effects = {predictions.FORMULA: fit_effects(measurements.first_token, log_ratio)}
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
        known = {
            group
            for row in np.flatnonzero(~left_out).tolist()
            for group in measurements.groups[row]
        }
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
        self.scale = np.concatenate(
            [np.full(used.sum(), SCALES[name]) for name, used in self.used.items()]
        )
        kept = [
            [measurements.groups[row] for row in np.flatnonzero(used).tolist()]
            for used in self.used.values()
        ]
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
        log_ratio = [
            np.log(predicted[name][used] / measured[name][used]) for name, used in self.used.items()
        ]
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
        chain = np.where(
            np.abs(base) < 1e-9,
            1.0,
            base / (np.sqrt(1.0 + base**2) * np.where(robust == 0, 1.0, robust)),
        )
        chain *= self.weight / _DERIVATIVE_STEP
        row = np.concatenate([np.flatnonzero(used) for used in self.used.values()])
        table = np.zeros((base.size, *self.free.shape))
        for column in range(len(NAMES)):
            moved = logs.copy()
            moved[column] += _DERIVATIVE_STEP
            slope = chain * (self.errors(moved, effect) - base)
            table[:, :, column] = slope[:, None] * self.members.T[row]
        slope = chain * (self.errors(logs, effect + _DERIVATIVE_STEP) - base)
        derivative = (
            np.concatenate([table[:, self.free], slope[:, None] * self.in_group[row]], axis=1)
            * self.sigma
        )
        return np.concatenate([derivative, np.eye(self.sigma.size)])

    def fitted(self, unknowns: Floats) -> Calibration:
        """Return the unknowns by name, except for unknowns that no row moved from the prior."""
        count = int(self.free.sum())
        logs = np.zeros(self.free.shape)
        logs[self.free] = (unknowns * self.sigma)[:count]
        deviations = [
            {
                name: float(value)
                for name, value, free in zip(NAMES, row, cells, strict=True)
                if free
            }
            for row, cells in zip(logs[1:], self.free[1:], strict=True)
        ]
        effects = (unknowns * self.sigma)[count:]
        return Calibration(
            common=dict(zip(NAMES, map(float, np.exp(logs[0] + self.log_centre)), strict=True)),
            engine_log_deviation=dict(zip(self.engines, deviations, strict=False)),
            vendor_log_deviation=dict(
                zip(self.vendors, deviations[len(self.engines) :], strict=True)
            ),
            group_log_effect=dict(zip(self.groups, map(float, effects), strict=True)),
        )


def _robust(error: Floats) -> Floats:
    """Return the signed root of the robust loss ρ, whose square the fit sums."""
    return np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0))


_LEVEL_SIGMA = (0.5, 0.3, 0.3, 0.15, 0.2, 0.3)
"""Prior spread of the effect of each level, in natural logarithms, the levels as ``labels_of`` has them."""
_CAMPAIGN_LEVEL = 4
_NOISE = 0.2
"""Log error from which a row counts less."""
_ROUNDS = 30  # of reweighting: effects stand to four digits after some ten


def fit_effects(labels: Sequence[predictions.Labels], log_ratio: Floats) -> dict[str, float]:
    """Return the effect of every group, fitted to ln(measured/predicted), shape (rows,), NaN for unused rows.

    Minimises Σ w·ρ(miss/0.2) + Σ effect²/σ², ρ(z) = 2·(√(1 + z²) − 1), by ridge regressions in which a row of miss m
    weighs w/√(1 + (m/0.2)²).
    """
    used = [row for row in np.flatnonzero(np.isfinite(log_ratio)).tolist() if labels[row]]
    sigma: dict[str, float] = {}
    for row in used:
        sigma.update(zip(labels[row], _LEVEL_SIGMA, strict=True))
    place = {label: number for number, label in enumerate(sigma)}
    inside = np.zeros((len(used), len(place)))
    for number, row in enumerate(used):
        inside[number, [place[label] for label in labels[row]]] = 1.0
    size = Counter(labels[row][_CAMPAIGN_LEVEL] for row in used)
    weight = np.array(
        [min(1.0, CAMPAIGN_ROWS / size[labels[row][_CAMPAIGN_LEVEL]]) for row in used]
    )
    shown = log_ratio[used]
    effects: Floats = np.zeros(len(place))
    prior = np.diag(np.array(list(sigma.values())) ** -2.0)
    for _ in range(_ROUNDS):
        miss = (shown - inside @ effects) / _NOISE
        scaled = inside * (weight / np.sqrt(1.0 + miss**2) / _NOISE**2)[:, None]
        effects = np.asarray(
            np.linalg.solve(prior + scaled.T @ inside, scaled.T @ shown), dtype=np.float64
        )
    return {label: round(float(effect), 4) for label, effect in zip(place, effects, strict=True)}


_FOLDS = 5
"""Parts into which the settings, and the layouts, of all campaigns are dealt, to be left out one at a time."""
_FEWEST_ROWS = 20
"""Rows below which a spread is not measured but taken from the fit's own prior."""
_POOL_WIDTH = 0.2
_POOL_SIGMA = 0.3
"""Log distance within which rows of separate pools are of one kind, and the prior spread of a campaign's effect."""
_TIMES = ("tpot_s", "output_tokens_per_s_per_accelerator")
_TERMS = ("setting", "layout", "pair", "model", "part")
_SPREAD = {DENSE: (0.085, 0.053, 0.065, 0.106, 0.032), MIXTURE: (0.11, 0.15, 0.153, 0.226, 0.0)}
"""What intervals are made of by class of models: with these they hold 85% or more of the shipped table's rows of every
vendor, whatever is left out. Dense models of vendors whose rows mix engine versions need the next line's."""
_MIXED_VERSIONS = (0.11, 0.08, 0.116, 0.15, 0.032)
BANDS = {
    "1 to 4": (0.0, 4.0),
    "5 to 16": (4.0, 16.0),
    "17 to 64": (16.0, 64.0),
    "65 to 256": (64.0, 256.0),
}
BANDS |= {"above 256": (256.0, np.inf)}
"""Requests in a replica, by which biases are told apart: above the one and up to the other."""


def fit_calibration(path: Path, cross_validation: bool = True) -> records.CalibrationFile:
    """Return the calibration fitted to a table of hundreds of rows, every one of which must be predictable.

    Some ten rows for each number: below that, regressions follow their noise.
    """
    catalog = load_catalog()
    frame = read_rows(path, catalog)
    dates = frame["measured_date"].tolist() if "measured_date" in frame.columns else []
    apart = frame["scenario"] == DISAGGREGATED_SCENARIO
    pools = frame[apart]
    frame = frame[~apart]
    rows = predictions.prepare(frame, catalog)
    data = measurements(frame, rows, coefficients.prior_calibration())
    vendors = sorted(set(data.vendor) - {REFERENCE_VENDOR})
    fitted = fit(data)
    specs = predictions.priced_rows(rows, coefficients.prior_calibration()).specs
    masks = _masks(specs)
    held = {}
    first_token = dict(fitted.calibration.first_token_log_effect)
    by_request = None
    if cross_validation:
        # A setting is a layout's lengths: its rows differ by concurrency alone and would give each other away.
        layouts = [group.layout for group in data.groups]
        lengths = (frame["input_tokens"], frame["output_tokens"])
        settings = [f"{layout} {i:g} {o:g}" for layout, i, o in zip(layouts, *lengths, strict=True)]
        left_out = {
            "setting": [str(zlib.crc32(label.encode()) % _FOLDS) for label in settings],
            "layout": [str(zlib.crc32(label.encode()) % _FOLDS) for label in layouts],
            "campaign": [group.campaign for group in data.groups],
            "model": [spec.shape.measured_as for spec in specs],
            "accelerator": [spec.part.name for spec in specs],
            "model on a vendor": [f"{spec.shape.measured_as} {spec.part.vendor}" for spec in specs],
            "engine on a vendor": [f"{spec.engine} {spec.part.vendor}" for spec in specs],
        }
        held = {
            name: cross_validate(data, labels, fitted.unknowns) for name, labels in left_out.items()
        }
        first_token[REQUESTS], by_request = _by_request(frame, rows, fitted.calibration, left_out)
    stated = {
        **_SPREAD,
        **dict.fromkeys((f"{vendor} {DENSE}" for vendor in vendors), _MIXED_VERSIONS),
    }
    spread = {}
    for name, terms in stated.items() if held else ():
        log_error = held["campaign"].log_errors(data, "ttft_s")[masks.get(name, masks["all"])]
        first = round(_sigma(log_error, 0.5), 4)
        spread[name] = records.ErrorSpread(
            **dict(zip(_TERMS, terms, strict=True)), first_token=first
        )
    groups = dict(fitted.calibration.group_log_effect)
    drafting: dict[str, float] = {}
    if len(pools):
        effects, drafting, spread_apart = _disaggregated(
            pools, predictions.prepare(pools, catalog), fitted.calibration
        )
        groups |= effects
        spread |= {coefficients.DISAGGREGATED: spread_apart} if held else {}
    cells = {
        f"{vendor} {label}": masks[label] & (np.asarray(data.vendor) == vendor)
        for vendor in dict.fromkeys(data.vendor)
        for label in (DENSE, MIXTURE)
        if label in masks
    }
    return records.CalibrationFile(
        measurements=path.name,
        rows=len(frame) + len(pools),
        measured_on=middle_date(dates),
        common=_rounded(fitted.calibration.common),
        engines={
            name: _rounded(table) for name, table in fitted.calibration.engine_log_deviation.items()
        },
        vendors={
            name: _rounded(table) for name, table in fitted.calibration.vendor_log_deviation.items()
        },
        groups={name: round(effect, 4) for name, effect in groups.items()},
        drafted=drafting,
        first_token={name: dict(effects) for name, effects in first_token.items()},
        spread=spread,
        coverage={name: _coverage(one, data, specs, cells, spread) for name, one in held.items()},
        bias=_biases(held["campaign"], data, specs, cells) if held else {},
        fitted=_errors_by(predict_with(data, fitted.calibration), data, masks),
        cross_validated={
            name: _errors_by(one.predicted, data, masks) for name, one in held.items()
        },
        by_request=by_request,
    )


def middle_date(texts: Sequence[str]) -> datetime.date | None:
    """Return the median of dates as tables write them: a day, a month (its 15th), or a range (its middle)."""
    days = []
    for text in texts:
        named = predictions.days_of(text)
        days += [sum(named) / len(named)] if named else []
    return datetime.date.fromordinal(int(sorted(days)[len(days) // 2])) if days else None


def _masks(specs: Sequence[ReplicaSpec]) -> dict[str, Bools]:
    """Return which rows belong to each architecture class, vendor, accelerator, engine and model."""
    mixture = np.array([spec.shape.experts > 0 for spec in specs])
    masks: dict[str, Bools] = {
        "all": np.ones(len(specs), dtype=bool),
        DENSE: ~mixture,
        MIXTURE: mixture,
    }
    for vendor in sorted({spec.part.vendor for spec in specs} - {REFERENCE_VENDOR}):
        theirs = np.array([spec.part.vendor == vendor for spec in specs])
        masks |= {
            vendor: theirs,
            f"{vendor} {DENSE}": theirs & ~mixture,
            f"{vendor} {MIXTURE}": theirs & mixture,
        }
    names = ([spec.part.name, spec.engine, spec.shape.name] for spec in specs)
    for labels in zip(*names, strict=True):
        masks |= {label: np.asarray(labels) == label for label in dict.fromkeys(labels)}
    return {name: mask for name, mask in masks.items() if mask.any()}


def _by_request(
    frame: pd.DataFrame,
    rows: predictions.BenchmarkRows,
    calibration: Calibration,
    left_out: Mapping[str, Sequence[str]],
) -> tuple[dict[str, float], records.ByRequest]:
    """Return TTFT effects by group beyond the request-level simulation, and the simulation's errors.

    Rows are left out of those effects alone: the times of a step are those fitted to all rows.
    """
    by_request = predict_by_request(rows, calibration)
    labels = predictions.first_token_labels(rows, predictions.priced_rows(rows, calibration))
    measured_s = frame["ttft_ms"].to_numpy() * MILLISECOND
    predicted_s = by_request["ttft_s"]
    log_ratio = np.log(measured_s / predicted_s)
    effects = fit_effects(labels, log_ratio)
    errors = {
        "fitted": np.abs(predicted_s * predictions.factors(labels, effects) / measured_s - 1.0)
    }
    for name in ("setting", "layout", "campaign"):
        label_of_row = np.asarray(left_out[name])
        errors[name] = np.full(len(frame), np.nan)
        for label in dict.fromkeys(left_out[name]):
            out = label_of_row == label
            without = fit_effects(labels, np.where(out, np.nan, log_ratio))
            first_s = predicted_s * predictions.factors(labels, without)
            errors[name][out] = np.abs(first_s / measured_s - 1.0)[out]
    names = ("model", "accelerator", "precision", "scenario", "output_tokens_per_s_per_gpu")
    columns = (
        *(frame[name].tolist() for name in names),
        by_request["tokens_per_s_per_accelerator"],
    )
    targeted = []
    for model, part, precision, scenario, measured, predicted in zip(*columns, strict=True):
        if scenario in OPEN_SCENARIOS and np.isfinite(measured * predicted):
            run = f"{model} on {part}, {precision}, {scenario}"
            tokens = round(float(predicted), 1)
            targeted.append(records.SloRow(run=run, measured=measured, predicted=tokens))
    first_token = {
        name: absolute_errors(error[np.isfinite(error)]) for name, error in errors.items()
    }
    return effects, records.ByRequest(first_token=first_token, within_slo=tuple(targeted))


def _disaggregated(
    pools: pd.DataFrame, rows: predictions.BenchmarkRows, calibration: Calibration
) -> tuple[dict[str, float], dict[str, float], records.ErrorSpread]:
    """Return each disaggregated campaign's effect beyond colocated serving, its share of drafting runs, and the spread.

    Such runs come in two kinds that nothing tells apart, with and without drafted tokens, and no coefficient must learn
    from a mixture of them. Of a campaign with the effect g and the share s, the log ratio x of measured to predicted
    time per token lies about g, or about g less what drafts gain in that row, d: g and s maximise

        Σ ln((1 − s)·φ((x − g)/0.2) + s·φ((x − g + d)/0.2) + 0.1) − g²/(2·0.3²) − s,   φ(z) = exp(−z²/2)

    Where workers are not stated the batch of a row is a guess, and so is what drafts gain: s is then 0.
    """
    plain, drafted = (
        predictions.predict_rows(one, calibration) for one in (rows, predictions.drafting(rows))
    )
    log_ratio = np.log(pools["tpot_ms"].to_numpy() * MILLISECOND / plain["tpot_s"])
    gain = np.log(plain["tpot_s"] / drafted["tpot_s"])
    campaigns = np.array(
        [groups.campaign for groups in predictions.priced_rows(rows, calibration).groups]
    )
    grid = np.linspace(-1.0, 1.0, 101)
    effects = dict[str, float]()
    drafting = dict[str, float]()
    middle = np.zeros(len(pools))
    for campaign in dict.fromkeys(campaigns.tolist()):
        known = (campaigns == campaign) & np.isfinite(log_ratio)
        off = log_ratio[known, None] - grid
        without, with_drafts = (
            np.exp(-0.5 * (x / _POOL_WIDTH) ** 2) for x in (off, off + gain[known, None])
        )
        shares = (
            np.zeros(1) if campaign.endswith(coefficients.UNSTATED) else np.linspace(0.0, 1.0, 11)
        )
        likely = np.array(
            [np.log((1.0 - s) * without + s * with_drafts + 0.1).sum(axis=0) - s for s in shares]
        )
        share, place = np.unravel_index(
            np.argmax(likely - grid**2 / (2 * _POOL_SIGMA**2)), likely.shape
        )
        effects[campaign], drafting[campaign] = float(grid[place]), float(shares[share])
        middle[campaigns == campaign] = grid[place] - shares[share] * gain[campaigns == campaign]
    setting = _sigma(log_ratio - middle, _POOL_SIGMA)
    first_token = _sigma(np.log(pools["ttft_ms"].to_numpy() * MILLISECOND / plain["ttft_s"]), 1.0)
    spread = records.ErrorSpread(
        setting=round(setting, 4),
        layout=0.0,
        pair=_POOL_SIGMA,
        model=0.2,
        part=0.1,
        first_token=round(first_token, 4),
    )
    return (
        effects,
        {name: round(share, 4) for name, share in drafting.items() if share > 0.0},
        spread,
    )


def _coverage(
    held: Held,
    data: Measurements,
    specs: Sequence[ReplicaSpec],
    cells: Mapping[str, Bools],
    spreads: Mapping[str, records.ErrorSpread],
) -> dict[str, records.Coverage]:
    """Return by cell how often intervals of left-out rows held what was measured, and how wide they were."""
    ends = []
    for spec, (model, part, pair, layout, *_, new) in zip(specs, held.unseen.tolist(), strict=True):
        label = MIXTURE if spec.shape.experts else DENSE
        one = spreads.get(f"{spec.part.vendor} {label}", spreads[label])
        begins_at, _ = spec.part.bring_up.get(spec.engine, (1.0, 0.0))
        lag = coefficients.lag_sigma(begins_at) if new and pair and spec.shape.experts else 0.0
        near = float(np.hypot(one.setting, one.pair if pair else one.layout * layout))
        ends.append(
            coefficients.Uncertainty(
                near, one.model * model, one.part * part, 0.0, False, lag
            ).interval(1.0)
        )
    low, high = np.array(ends).T
    faster = np.exp(
        [sign * held.log_errors(data, name) for name, sign in zip(_TIMES, (1.0, -1.0), strict=True)]
    )
    inside = (faster >= low) & (faster <= high)
    width = np.broadcast_to(0.5 * (high - low), faster.shape)
    table = {}
    for label, mask in cells.items():
        known = np.isfinite(faster) & mask
        if known.any():
            table[label] = records.Coverage(
                rows=int(known.sum()),
                covered_fraction=round(float(inside[known].mean()), 4),
                median_half_width_fraction=round(float(np.median(width[known])), 4),
            )
    return table


def _biases(
    held: Held, data: Measurements, specs: Sequence[ReplicaSpec], cells: Mapping[str, Bools]
) -> dict[str, records.Bias]:
    """Return the signed median error of time per token on left-out rows, by cell, precision and concurrency."""
    error = np.expm1(held.log_errors(data, "tpot_s"))
    precisions = np.array([spec.precision for spec in specs])
    table = {}
    for (label, mask), precision in itertools.product(
        cells.items(), sorted(set(precisions.tolist()))
    ):
        for band, (above, most) in BANDS.items():
            known = mask & (precisions == precision) & np.isfinite(error)
            known &= (data.concurrency > above) & (data.concurrency <= most)
            if known.any():
                cell = f"{label} {precision}, {band} at once"
                median = round(float(np.median(error[known])), 4)
                table[cell] = records.Bias(rows=int(known.sum()), median_fraction=median)
    return table


def _sigma(log_error: Floats, prior: float) -> float:
    """Return the 90th percentile of the absolute log error over 1.645; the prior for too few rows."""
    known = log_error[np.isfinite(log_error)]
    return (
        float(np.quantile(np.abs(known), 0.9)) / NORMAL_90 if known.size >= _FEWEST_ROWS else prior
    )


def _errors_by(
    predicted: dict[str, Floats], data: Measurements, masks: Mapping[str, Bools]
) -> dict[str, dict[str, records.Errors]]:
    """Return errors by quantity, then by every group of rows with some."""
    table = {}
    for name in QUANTITIES:
        error = np.abs(predicted[name] / data.measured[name] - 1.0)
        known = {label: error[mask & np.isfinite(error)] for label, mask in masks.items()}
        table[name] = {label: absolute_errors(some) for label, some in known.items() if some.size}
    return table


def _rounded(table: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{number:.6g}") for name, number in table.items()}


def calibration_table(file: records.CalibrationFile) -> str:
    """Return the errors of a calibration: of the fit, and on left-out rows by kind."""
    header = (
        "",
        "rows",
        "mean",
        "median",
        *(f"without its {group}" for group in file.cross_validated),
    )
    parts = []
    for name, errors in file.fitted.items():
        rows = []
        for label, fitted in errors.items():
            held = [members.get(name, {}).get(label) for members in file.cross_validated.values()]
            without = ("" if one is None else f"{one.mean_fraction:.1%}" for one in held)
            shown = (f"{fitted.mean_fraction:.1%}", f"{fitted.median_fraction:.1%}")
            rows.append((label, str(fitted.rows), *shown, *without))
        parts.append(f"{QUANTITY_TITLES[name.partition('_')[0]]}\n" + plain_table(header, rows))
    return "\n\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Fit the table named, write the calibration and print its errors; return the exit code."""
    if len(arguments) != 2:
        print(
            "usage: python -m docs.generate.throughput_fit MEASUREMENTS.csv OUT.yaml",
            file=sys.stderr,
        )
        return 2
    file = fit_calibration(Path(arguments[0]))
    records.write_calibration(file, Path(arguments[1]))
    print(calibration_table(file))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
