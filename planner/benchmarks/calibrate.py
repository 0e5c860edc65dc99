"""Calibrating the throughput formula to a benchmark table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from planner.benchmarks.rows import measurements, prepare
from planner.benchmarks.table import MAX_PROBLEMS, read_benchmarks
from planner.catalog.calibration import CalibrationFile, Errors, Spread
from planner.catalog.load import load_catalog
from planner.errors import Problem, ScenarioError
from planner.physics.calibration import QUANTITIES, cross_validate, fit, predict_with, residual_spread
from planner.physics.coefficients import prior_calibration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.benchmarks.rows import BenchmarkRows
    from planner.physics.arrays import Bools, Floats
    from planner.physics.calibration import Measurements

_DIGITS = 6


def calibrate(path: Path, cross_validation: bool = True) -> CalibrationFile:
    """Fit the coefficients to a benchmark table; every row must be one the formula can predict."""
    catalog = load_catalog()
    frame = read_benchmarks(path)
    rows = prepare(frame, catalog)
    problems = [
        Problem(file=str(path), line=int(line), message=reason)
        for line, reason in zip(frame.index, rows.reasons, strict=True)
        if reason
    ]
    if problems:
        raise ScenarioError(problems[:MAX_PROBLEMS])
    data = measurements(frame, rows, prior_calibration())
    if not any(np.isfinite(data.measured[name]).any() for name in QUANTITIES):
        raise ScenarioError(Problem(file=str(path), message="no row has a measured quantity to fit to"))
    fitted = fit(data)
    groups = _groups(rows)
    dense = np.array([rows.deployments[number].shape.experts == 0 for number in rows.deployment])
    predicted = predict_with(data, fitted)
    held: dict[str, dict[str, dict[str, Errors]]] = {}
    if cross_validation:
        for key, labels in groups.items():
            held[key] = _errors_by(cross_validate(data, labels), data, {key: labels}, dense)
    return CalibrationFile(
        measurements=path.name,
        rows=len(frame),
        common=_rounded(fitted.common),
        engines={name: _rounded(table) for name, table in fitted.engine_log_deviation.items()},
        vendors={name: _rounded(table) for name, table in fitted.vendor_log_deviation.items()},
        residuals=_residuals(predicted, data, dense),
        fitted=_errors_by(predicted, data, groups, dense),
        cross_validated=held,
    )


def _groups(rows: BenchmarkRows) -> dict[str, list[str]]:
    """Return each row's accelerator, engine and model under their catalogue names."""
    deployed = [rows.deployments[number] for number in rows.deployment]
    return {
        "accelerator": [deployment.part.name for deployment in deployed],
        "engine": [deployment.engine for deployment in deployed],
        "model": [deployment.shape.name for deployment in deployed],
    }


def _errors_by(
    predicted: dict[str, Floats], data: Measurements, groups: dict[str, list[str]], dense: Bools
) -> dict[str, dict[str, Errors]]:
    """Return errors by quantity, then over all rows, dense and mixture rows, and every group's members."""
    masks: dict[str, Bools] = {"all": np.ones(dense.size, dtype=bool), "dense": dense, "mixture-of-experts": ~dense}
    for labels in groups.values():
        masks |= {label: np.asarray(labels) == label for label in dict.fromkeys(labels)}
    table: dict[str, dict[str, Errors]] = {}
    for name in QUANTITIES:
        error = np.abs(predicted[name] / data.measured[name] - 1.0)
        known = np.isfinite(error)
        table[name] = {
            label: Errors(
                rows=int((known & mask).sum()),
                mean_fraction=round(float(error[known & mask].mean()), _DIGITS - 2),
                median_fraction=round(float(np.median(error[known & mask])), _DIGITS - 2),
            )
            for label, mask in masks.items()
            if (known & mask).any()
        }
    return table


def _residuals(predicted: dict[str, Floats], data: Measurements, dense: Bools) -> dict[str, Spread]:
    """Return the spread of model error by quantity, for dense models and mixtures apart."""
    spreads = {}
    for name in QUANTITIES:
        for label, mask in (("dense", dense), ("mixture-of-experts", ~dense)):
            median, sigma = residual_spread(predicted[name][mask], data.measured[name][mask])
            if np.isfinite(sigma):
                spreads[f"{name} {label}"] = Spread(log_median=round(median, 4), log_sigma=round(sigma, 4))
    return spreads


def _rounded(table: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{number:.{_DIGITS}g}") for name, number in table.items()}
