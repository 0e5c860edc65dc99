"""Calibration of the throughput model by a few rows of one's own.

It is partial pooling of what groups of measurements show. A row's log time per token over the formula's is the sum of
the effects of its model, its part and its campaign, plus noise: y = H·u + e. Before the rows, an effect u is normal
about what the calibration says of it, with the spread that cross-validation found for a model, part or pair never
measured; a pair that was measured may still drift by what engine versions do. After them it is normal with

    covariance P = (Λ⁻¹ + Hᵀ·R⁻¹·H)⁻¹,   mean P·Hᵀ·R⁻¹·y

so that one row moves a pair by τ²/(τ² + σ²) of what it shows, and many rows by nearly all of it. No coefficient of the
formula moves: those are fitted to hundreds of rows (``docs/generate/throughput_fit.py``).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Sequence
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
_ROUNDS = 4  # throughput within an objective is not proportional to speed: the slope is taken again where it landed
_STEP = 0.02


def read_rows(path: Path, catalog: Catalog) -> pd.DataFrame:
    """Return a benchmark table for fitting, every row of which must be predictable."""
    frame = read_benchmarks(path)
    problems = [
        Problem(file=str(path), line=int(line), message=reason)
        for line, reason in zip(
            frame.index, predictions.prepare(frame, catalog).reasons, strict=True
        )
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
    return np.array([np.sqrt(min(1.0, CAMPAIGN_ROWS / size[row.campaign])) for row in groups])


def update_calibration(
    path: Path, base: records.CalibrationFile, catalog: Catalog | None = None
) -> records.CalibrationFile:
    """Return the calibration with group effects updated by a table of the user's own rows."""
    catalog = catalog or load_catalog()
    frame = read_rows(path, catalog)
    before = base.calibration()
    if not before.spread:
        raise ScenarioError(
            "the calibration to update has no spread: it was written without cross-validation"
        )
    # A row shows its time per token or, where that is blank, its inverse throughput.
    time = np.log(frame["tpot_ms"].to_numpy() * MILLISECOND)
    measured = np.where(
        np.isfinite(time), time, -np.log(frame["output_tokens_per_s_per_gpu"].to_numpy())
    )
    used = np.isfinite(measured)
    if not used.any():
        message = "no row has a tpot_ms or output_tokens_per_s_per_gpu to learn from"
        raise ScenarioError(Problem(file=str(path), message=message))
    rows = predictions.prepare(frame[used], catalog)
    measured = measured[used]
    is_time = np.isfinite(time[used])

    def predicted(calibration: Calibration) -> Floats:
        point = predictions.predict_rows(rows, calibration)
        return np.where(
            is_time, np.log(point["tpot_s"]), -np.log(point["tokens_per_s_per_accelerator"])
        )

    priced = predictions.priced_rows(rows, before)
    groups = priced.groups
    spreads = []
    for spec, kind in zip(priced.specs, priced.kinds, strict=True):
        stated = before.class_spread(spec.part.vendor, spec.shape.experts > 0)
        stated = (
            before.spread[coefficients.DISAGGREGATED]
            if kind.endswith(coefficients.DISAGGREGATED)
            else stated
        )
        assert stated is not None, (
            "a calibration with a spread states it for dense models and mixtures"
        )
        spreads.append(stated)
    drift = catalog.prior(_DRIFT_PRIOR).base  # the spread of each effect that rows may move
    prior = dict[str, float]()
    for group, spread in zip(groups, spreads, strict=True):
        # What was measured of a model or a part in general stays; of this very pair, versions still drift.
        terms = (
            (group.model, spread.model, 0.0),
            (group.part, spread.part, 0.0),
            (group.campaign, spread.pair, drift),
        )
        for label, unmeasured, known in terms:
            likely = known if label in before.group_log_effect else unmeasured
            if (likely := before.group_log_sigma.get(label, likely)) > 0.0:
                prior[label] = max(prior.get(label, 0.0), likely)
    labels = list(prior)
    sigma = np.array(list(prior.values()))
    inside = np.array([[float(label in group) for label in labels] for group in groups])
    noise = np.array([spread.setting for spread in spreads]) / weights(groups)
    mean = np.zeros(len(labels))
    covariance = np.diag(sigma**2)
    for _ in range(_ROUNDS):
        here = _shifted(before, labels, mean)
        at_mean = predicted(here)
        further = predicted(_shifted(here, list({group.campaign for group in groups}), _STEP))
        slope = inside * ((further - at_mean) / _STEP)[:, None]
        mean, covariance = posterior(slope, measured - at_mean + slope @ mean, noise, sigma)
    after = _shifted(before, labels, mean)
    # Rows show the sum of a pair's effects better than each of them, so a campaign carries the spread of that sum.
    by_campaign = {group.campaign: row for group, row in zip(groups, inside, strict=True)}
    counts = Counter(label for group in groups for label in group)
    updates = {}
    for label, unit in zip(labels, np.eye(len(labels)), strict=True):
        along = by_campaign.get(label, unit)
        updates[label] = records.GroupUpdate(
            rows=counts[label],
            before=round(before.group_log_effect.get(label, 0.0), 4),
            after=round(after.group_log_effect[label], 4),
            sigma=round(float(np.sqrt(along @ covariance @ along)), 4),
        )
    own_rows = records.OwnRows(
        measurements=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        rows=len(groups),
        groups=updates,
        error_before=absolute_errors(np.abs(np.expm1(predicted(before) - measured))),
        error_after=absolute_errors(np.abs(np.expm1(predicted(after) - measured))),
    )
    effects = base.groups | {name: update.after for name, update in updates.items()}
    return base.model_copy(update={"groups": effects, "own": own_rows})


def posterior(slope: Floats, shown: Floats, noise: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return mean and covariance of normal effects given rows with design ``slope``, shape (rows, effects).

    ``noise`` and ``prior`` are standard deviations, shapes (rows,) and (effects,).
    """
    scaled = slope / noise[:, None] ** 2
    covariance: Floats = np.asarray(
        np.linalg.inv(np.diag(prior**-2.0) + slope.T @ scaled), dtype=np.float64
    )
    return covariance @ (scaled.T @ shown), covariance


def _shifted(calibration: Calibration, labels: Sequence[str], by: Floats | float) -> Calibration:
    """Return a calibration with some effects changed."""
    start = calibration.group_log_effect
    moves = np.broadcast_to(by, len(labels)).tolist()
    effects = {
        **start,
        **{name: start.get(name, 0.0) + move for name, move in zip(labels, moves, strict=True)},
    }
    return dataclasses.replace(calibration, group_log_effect=effects)
