"""Calibration of the throughput model by a few rows of one's own.

It is partial pooling of what groups of measurements show. A row's log time per token over the formula's is the sum of
the effects of its model, its part, its campaign and its layout, plus noise: y = H·u + e. Before the rows, an effect u
is normal about what the calibration says of it, with the spread that cross-validation found for a model, part, pair or
layout never measured; a pair that was measured may still drift by what engine versions do. After them it is normal with

    covariance P = (Λ⁻¹ + Hᵀ·R⁻¹·H)⁻¹,   mean P·Hᵀ·R⁻¹·y

so that one row moves a pair by τ²/(τ² + σ²) of what it shows, and many rows by nearly all of it. No coefficient of the
formula moves: those are fitted to hundreds of rows (``docs/generate/throughput_fit.py``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from planner.arrays import Floats
from planner.calibration import predictions
from planner.calibration.benchmarks import MAX_PROBLEMS, read_benchmarks
from planner.catalog import calibration as records
from planner.catalog.load import Catalog, load_catalog
from planner.errors import Problem, ScenarioError, raise_all
from planner.physics import coefficients
from planner.physics.coefficients import Calibration, Groups
from planner.units import MILLISECOND

CAMPAIGN_ROWS = 10.0
"""Rows that a campaign counts for at most, in all fits."""
_DRIFT_PRIOR = "engine_version_drift"
"""The catalogue's prior of how far versions of an engine lie apart on a pair that was measured."""
_ROUNDS = 4
"""Throughput within an objective is not proportional to speed: the slope is taken again where it landed."""
_STEP = 0.02
"""Change of the log effects by which a slope is measured."""


def read_rows(path: Path, catalog: Catalog, run: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return a benchmark table for fitting, every row of which must be predictable."""
    frame = read_benchmarks(path, run)
    reasons = predictions.prepare(frame, catalog).reasons
    lines_and_reasons = zip(frame.index, reasons, strict=True)
    problems = [
        Problem(file=str(path), line=int(line), message=reason)
        for line, reason in lines_and_reasons
        if reason
    ]
    raise_all(problems[:MAX_PROBLEMS])
    return frame


def absolute_errors(error: Floats) -> records.Errors:
    """Return number, mean and median of absolute errors."""
    mean = round(float(error.mean()), 4)
    median = round(float(np.median(error)), 4)
    return records.Errors(rows=error.size, mean_fraction=mean, median_fraction=median)


def weights(groups: Sequence[Groups]) -> Floats:
    """Return the weight of each row, with a campaign counting as ten rows at most."""
    size = Counter(row.campaign for row in groups)
    # Square roots, since weights are squared in a sum of squares.
    row_shares = [min(1.0, CAMPAIGN_ROWS / size[row.campaign]) for row in groups]
    return np.sqrt(row_shares)


def update_calibration(
    path: Path,
    base: records.CalibrationFile,
    catalog: Catalog | None = None,
    run: Mapping[str, str] | None = None,
) -> records.CalibrationFile:
    """Return the calibration with group effects updated by a table of the user's own rows."""
    catalog = catalog or load_catalog()
    frame = read_rows(path, catalog, run)
    prior = base.calibration()
    if not prior.spread:
        raise ScenarioError(
            "the calibration to update has no spread: it was written without cross-validation"
        )
    # A row shows its time per token or, where that is blank, its inverse throughput.
    tpot_s = frame["tpot_ms"].to_numpy() * MILLISECOND
    log_time = np.log(tpot_s)
    log_rate = np.log(frame["output_tokens_per_s_per_gpu"].to_numpy())
    measured = np.where(np.isfinite(log_time), log_time, -log_rate)
    is_used = np.isfinite(measured)
    if not is_used.any():
        message = "no row has a tpot_ms or output_tokens_per_s_per_gpu to learn from"
        raise ScenarioError(Problem(file=str(path), message=message))
    rows = predictions.prepare(frame[is_used], catalog)
    measured = measured[is_used]
    is_time = np.isfinite(log_time[is_used])

    def predicted(calibration: Calibration) -> Floats:
        point = predictions.predict_rows(rows, calibration)
        log_rate = np.log(point["tokens_per_s_per_accelerator"])
        return np.where(is_time, np.log(point["tpot_s"]), -log_rate)

    priced = predictions.priced_rows(rows, prior)
    groups = priced.groups
    spreads = _spreads(priced, prior)
    drift = catalog.prior(_DRIFT_PRIOR).base
    sigmas = _prior_sigmas(groups, spreads, prior, drift)
    labels = list(sigmas)
    sigma = np.array(list(sigmas.values()))
    memberships = [[float(label in group) for label in labels] for group in groups]
    membership = np.array(memberships)
    # Rows of a large campaign count for less: their noise is larger by as much.
    setting_sigmas = [spread.setting for spread in spreads]
    noise = np.array(setting_sigmas) / weights(groups)
    campaigns = list({group.campaign for group in groups})
    mean = np.zeros(len(labels))
    covariance = np.diag(sigma**2)
    # Newton's steps: rows are taken as linear about the mean of the round before.
    # Four rounds are enough: each starts where the one before landed, and effects are small.
    for _ in range(_ROUNDS):
        current = _shifted(prior, labels, mean)
        at_mean = predicted(current)
        # One campaign effect moves a row's whole sum, and its slope is that of every effect in it.
        step_up = _shifted(current, campaigns, _STEP)
        further = predicted(step_up)
        change = (further - at_mean) / _STEP
        slope = membership * change[:, None]
        # Linear about the mean: what the mean explains is added back, so that the prior stays that
        # of all of it.
        residual = measured - at_mean + slope @ mean
        mean, covariance = posterior(slope, residual, noise, sigma)
    updated = _shifted(prior, labels, mean)
    sums = _summed_effects(groups, labels)
    counts = Counter(itertools.chain(*groups))
    updates = {}
    units = np.eye(len(labels))
    for label, unit in zip(labels, units, strict=True):
        direction = sums.get(label, unit)
        variance = direction @ covariance @ direction
        updates[label] = records.GroupUpdate(
            rows=counts[label],
            before=round(prior.group_log_effect.get(label, 0.0), 4),
            after=round(updated.group_log_effect[label], 4),
            sigma=round(float(np.sqrt(variance)), 4),
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    error_before = np.abs(np.expm1(predicted(prior) - measured))
    error_after = np.abs(np.expm1(predicted(updated) - measured))
    own_rows = records.OwnRows(
        measurements=path.name,
        sha256=digest,
        rows=len(groups),
        groups=updates,
        error_before=absolute_errors(error_before),
        error_after=absolute_errors(error_after),
    )
    new_effects = {name: update.after for name, update in updates.items()}
    effects = base.groups | new_effects
    rows_of_group = dict(Counter(base.group_rows) + Counter(itertools.chain(*groups)))
    update = {"groups": effects, "group_rows": rows_of_group, "own": own_rows}
    return base.model_copy(update=update)


def _spreads(priced: predictions.PricedRows, prior: Calibration) -> list[coefficients.ClassSpread]:
    """Return how far measurements of each row's kind lie from the formula."""
    spreads = []
    for spec, kind in zip(priced.specs, priced.kinds, strict=True):
        spread = prior.class_spread(spec.part.vendor, spec.shape.experts > 0)
        # Two pools have a spread of their own, whatever the model's architecture.
        if kind.endswith(coefficients.DISAGGREGATED):
            spread = prior.spread[coefficients.DISAGGREGATED]
        assert spread is not None, (
            "a calibration with a spread states it for dense models and mixtures"
        )
        spreads.append(spread)
    return spreads


def _summed_effects(groups: Sequence[Groups], labels: Sequence[str]) -> dict[str, Floats]:
    """Return which effects a campaign's sum, and a layout's, is made of: of both the spread is stated as a whole.

    Rows show the sum of a pair's effects better than each of them.
    """
    sums = {}
    for group in groups:
        of_pair = (group.model, group.part, group.campaign)
        sums[group.campaign] = np.array([float(label in of_pair) for label in labels])
        sums[group.layout] = np.array(
            [float(label in (*of_pair, group.layout)) for label in labels]
        )
    return sums


def _prior_sigmas(
    groups: Sequence[Groups],
    spreads: Sequence[coefficients.ClassSpread],
    prior: Calibration,
    drift: float,
) -> dict[str, float]:
    """Return the standard deviation of each effect that rows may move."""
    sigmas = dict[str, float]()
    for group, spread in zip(groups, spreads, strict=True):
        # What was measured of a model or a part in general stays; of this very pair, versions still drift.
        for label, unmeasured, drifted in (
            (group.model, spread.model, 0.0),
            (group.part, spread.part, 0.0),
            (group.campaign, spread.pair, drift),
            (group.layout, spread.layout, 0.0),
        ):
            usual = drifted if label in prior.group_log_effect else unmeasured
            sigma = prior.group_log_sigma.get(label, usual)
            # Of a layout of one's own earlier rows the spread of the whole sum is known: its own share is no wider.
            if label == group.layout:
                sigma = min(sigma, spread.layout)
            # An effect that may not move has no column: its variance of zero has no inverse.
            if sigma > 0.0:
                # Rows of two classes may share a label: the wider spread is the safer.
                sigmas[label] = max(sigmas.get(label, 0.0), sigma)
    return sigmas


def posterior(
    slope: Floats, residual: Floats, noise: Floats, prior: Floats
) -> tuple[Floats, Floats]:
    """Return mean and covariance of normal effects given rows with design ``slope``, shape (rows, effects).

    ``noise`` and ``prior`` are standard deviations, shapes (rows,) and (effects,).
    """
    # Rows weigh by the inverse of their variance.
    scaled = slope / noise[:, None] ** 2
    precision = np.diag(prior**-2.0) + slope.T @ scaled
    inverse = np.linalg.inv(precision)
    covariance = np.asarray(inverse, dtype=np.float64)
    return covariance @ (scaled.T @ residual), covariance


def _shifted(calibration: Calibration, labels: Sequence[str], shift: Floats | float) -> Calibration:
    """Return a calibration with some effects changed."""
    effects = dict(calibration.group_log_effect)
    shifts = np.broadcast_to(shift, len(labels)).tolist()
    for label, change in zip(labels, shifts, strict=True):
        effects[label] = effects.get(label, 0.0) + change
    return dataclasses.replace(calibration, group_log_effect=effects)
