"""Updating a calibration by a buyer's own rows: partial pooling of what groups of measurements show.

A row's log time per token over the formula's is the sum of the effects of its model, its part and its campaign, plus
noise: y = H·u + e. Before the rows, an effect u is normal about what the calibration says of it, with the spread that
cross-validation found for a model, part or pair never measured; a pair that was measured may still drift by what
engine versions do. After them it is normal with

    covariance P = (Λ⁻¹ + Hᵀ·R⁻¹·H)⁻¹,   mean P·Hᵀ·R⁻¹·y

so that one row moves a pair by τ²/(τ² + σ²) of what it shows, and many rows by nearly all of it. No coefficient of the
formula moves: those need the hundreds of rows that a refit asks for.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from planner.arrays import Floats
from planner.calibration.calibrate import read_rows
from planner.calibration.first_token import CAMPAIGN_ROWS
from planner.calibration.rows import BenchmarkRows, predict_rows, prepare, specs_of
from planner.catalog.calibration import CalibrationFile, Errors, GroupUpdate, OwnRows
from planner.catalog.load import load_catalog
from planner.errors import Problem, ScenarioError
from planner.physics.coefficients import DISAGGREGATED, Calibration
from planner.physics.uncertainty import DENSE, MIXTURE, Groups, Spread
from planner.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd


DRIFT_PRIOR = "engine_version_drift"
"""The catalogue's prior of how far versions of an engine lie apart on a pair that was measured."""
_ROUNDS = 4  # throughput within an objective is not proportional to speed: the slope is taken again where it landed
_STEP = 0.02


def update_calibration(path: Path, base: CalibrationFile) -> CalibrationFile:
    """Return the calibration with the effects of the groups in a table of one's own rows updated by them."""
    catalog = load_catalog()
    frame, _ = read_rows(path, catalog)
    before = base.calibration()
    if not before.spread:
        raise ScenarioError("the calibration to update has no spread: it was written without cross-validation")
    measured = _measured_log_time(frame)
    used = np.isfinite(measured)
    if not used.any():
        message = "no row has a tpot_ms or output_tokens_per_s_per_gpu to learn from"
        raise ScenarioError(Problem(file=str(path), message=message))
    frame, measured = frame[used], measured[used]
    rows = prepare(frame, catalog)
    groups, spreads = _standing(rows, before)
    prior = _prior(groups, spreads, before, catalog.prior(DRIFT_PRIOR).base)
    labels, sigma = list(prior), np.array(list(prior.values()))
    inside = np.array([[float(label in group) for label in labels] for group in groups])
    noise = np.array([spread.setting for spread in spreads]) * _widening(groups)
    mean, covariance = np.zeros(len(labels)), np.diag(sigma**2)
    for _ in range(_ROUNDS):
        here = _shifted(before, labels, mean)
        predicted = _predicted_log_time(frame, rows, here)
        further = _predicted_log_time(frame, rows, _shifted(here, list({group.campaign for group in groups}), _STEP))
        slope = inside * ((further - predicted) / _STEP)[:, None]
        mean, covariance = posterior(slope, measured - predicted + slope @ mean, noise, sigma)
    after = _shifted(before, labels, mean)
    # Rows show the sum of a pair's effects better than each of them, so a campaign carries the spread of that sum.
    by_campaign = {group.campaign: row for group, row in zip(groups, inside, strict=True)}
    counts = Counter(label for group in groups for label in group)
    updates = {}
    for label, unit in zip(labels, np.eye(len(labels)), strict=True):
        along = by_campaign.get(label, unit)
        updates[label] = GroupUpdate(
            rows=counts[label],
            before=round(before.group_log_effect.get(label, 0.0), 4),
            after=round(after.group_log_effect[label], 4),
            sigma=round(float(np.sqrt(along @ covariance @ along)), 4),
        )
    own_rows = OwnRows(
        measurements=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        rows=len(groups),
        groups=updates,
        error_before=_errors(measured - _predicted_log_time(frame, rows, before)),
        error_after=_errors(measured - _predicted_log_time(frame, rows, after)),
    )
    effects = base.groups | {name: update.after for name, update in updates.items()}
    return base.model_copy(update={"groups": effects, "own": own_rows})


def _standing(rows: BenchmarkRows, calibration: Calibration) -> tuple[list[Groups], list[Spread]]:
    """Return each row's groups and the spreads that hold for it."""
    specs, kinds = specs_of(rows, calibration)
    groups = [spec.groups(kind) for spec, kind in zip(specs, kinds, strict=True)]
    classes = [MIXTURE if spec.shape.experts else DENSE for spec in specs]
    names = [kind if kind == DISAGGREGATED else name for kind, name in zip(kinds, classes, strict=True)]
    return groups, [calibration.spread[name] for name in names]


def _prior(
    groups: Sequence[Groups], spreads: Sequence[Spread], calibration: Calibration, drift: float
) -> dict[str, float]:
    """Return the standard deviation of each effect that rows may move, by group."""
    prior: dict[str, float] = {}
    for group, spread in zip(groups, spreads, strict=True):
        # What was measured of a model or a part in general stays; of this very pair, versions still drift.
        terms = ((group.model, spread.model, 0.0), (group.part, spread.part, 0.0), (group.campaign, spread.pair, drift))
        for label, unmeasured, known in terms:
            sigma = known if label in calibration.group_log_effect else unmeasured
            if (sigma := calibration.group_log_sigma.get(label, sigma)) > 0.0:
                prior[label] = max(prior.get(label, 0.0), sigma)
    return prior


def posterior(slope: Floats, shown: Floats, noise: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return mean and covariance of normal effects after rows that show them through ``slope``, shape (rows, effects).

    ``noise`` and ``prior`` are standard deviations, shapes (rows,) and (effects,).
    """
    scaled = slope / noise[:, None] ** 2
    covariance: Floats = np.asarray(np.linalg.inv(np.diag(prior**-2.0) + slope.T @ scaled), dtype=np.float64)
    return covariance @ (scaled.T @ shown), covariance


def _widening(groups: Sequence[Groups]) -> Floats:
    """Return by how much to widen each row's noise, so that a campaign counts as ten rows at most."""
    size = Counter(group.campaign for group in groups)
    return np.array([np.sqrt(max(1.0, size[group.campaign] / CAMPAIGN_ROWS)) for group in groups])


def _shifted(calibration: Calibration, labels: Sequence[str], by: Floats | float) -> Calibration:
    """Return a calibration with some effects moved."""
    start, moves = calibration.group_log_effect, np.broadcast_to(by, len(labels)).tolist()
    effects = {**start, **{name: start.get(name, 0.0) + move for name, move in zip(labels, moves, strict=True)}}
    return dataclasses.replace(calibration, group_log_effect=effects)


def _measured_log_time(frame: pd.DataFrame) -> Floats:
    """Return the log of each row's time per token or, where that is blank, of its inverse throughput; NaN for none."""
    time: Floats = np.log(frame["tpot_ms"].to_numpy() * MILLISECOND)
    rate: Floats = np.log(frame["output_tokens_per_s_per_gpu"].to_numpy())
    return np.where(np.isfinite(time), time, -rate)


def _predicted_log_time(frame: pd.DataFrame, rows: BenchmarkRows, calibration: Calibration) -> Floats:
    """Return the same as the formula says."""
    predicted = predict_rows(rows, calibration)
    is_time = np.isfinite(frame["tpot_ms"].to_numpy())
    return np.where(is_time, np.log(predicted["tpot_s"]), -np.log(predicted["tokens_per_s_per_accelerator"]))


def _errors(log_ratio: Floats) -> Errors:
    size = np.abs(np.expm1(-log_ratio))
    return Errors(
        rows=size.size, mean_fraction=round(float(size.mean()), 4), median_fraction=round(float(np.median(size)), 4)
    )
