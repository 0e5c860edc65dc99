"""The calibration as a file: fitted coefficients, their errors, and where the measurements came from."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from planner.benchmarks.rows import measurements, prepare
from planner.benchmarks.table import read_benchmarks
from planner.catalog.load import FOLDER, load_catalog
from planner.documents import read_document
from planner.errors import Problem, ScenarioError
from planner.physics.calibration import QUANTITIES, cross_validate, fit, predict_with, residual_spread
from planner.physics.coefficients import COEFFICIENTS, NAMES, Calibration, prior_calibration
from planner.validation import Strict, validate

if TYPE_CHECKING:
    import pandas as pd

    from planner.catalog.load import Catalog
    from planner.physics.arrays import Bools, Floats
    from planner.physics.calibration import Measurements

SHIPPED_MEASUREMENTS = FOLDER / "measurements.csv"
SHIPPED_CALIBRATION = FOLDER / "calibration.yaml"
_DIGITS = 6


class Errors(Strict):
    """How far predictions are from measurements of one kind."""

    rows: int
    """Rows measured."""
    mean_fraction: NonNegativeFloat
    """Mean absolute error."""
    median_fraction: NonNegativeFloat
    """Median absolute error."""


class Spread(Strict):
    """Model error as a distribution: ln(measured/predicted) is normal with this median and standard deviation."""

    log_median: float
    """Median of the log ratio."""
    log_sigma: NonNegativeFloat
    """Robust standard deviation of the log ratio."""


class CalibrationFile(Strict):
    """What ``planner calibrate`` writes."""

    measurements: str
    """The table the coefficients were fitted to."""
    rows: int
    """Rows used."""
    common: dict[str, PositiveFloat]
    """Each coefficient's common value."""
    engines: dict[str, dict[str, float]]
    """Log deviations by engine."""
    vendors: dict[str, dict[str, float]]
    """Log deviations by vendor."""
    residuals: dict[str, Spread]
    """Model error by quantity and architecture class: what a Monte Carlo draws."""
    fitted: dict[str, dict[str, Errors]]
    """Errors on the rows fitted to, by quantity, then by all, accelerator, engine or model."""
    cross_validated: dict[str, dict[str, dict[str, Errors]]]
    """Errors on rows the fit never saw, leaving out one accelerator, engine or model at a time."""

    def calibration(self) -> Calibration:
        """Return the coefficients for the throughput formula."""
        return Calibration(common=self.common, engine_log_deviation=self.engines, vendor_log_deviation=self.vendors)


def read_calibration(path: Path) -> CalibrationFile:
    """Read a calibration file; raise ScenarioError when a coefficient is missing or unknown."""
    document = read_document(path)
    found = validate(CalibrationFile, document)
    tables = {"common": found.common, **found.engines, **found.vendors}
    problems = [
        Problem(file=str(path), path=f"{table}.{name}", message="is required and is not there")
        for table, names in tables.items()
        for name in NAMES
        if name not in names
    ]
    problems += [
        Problem(file=str(path), path=f"{table}.{name}", message="is not a coefficient")
        for table, names in tables.items()
        for name in names
        if name not in NAMES
    ]
    if problems:
        raise ScenarioError(problems)
    return found


@functools.cache
def shipped_calibration() -> Calibration:
    """Return the calibration that comes with the planner."""
    return read_calibration(SHIPPED_CALIBRATION).calibration()


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
        raise ScenarioError(problems[:50])
    data = measurements(frame, rows, prior_calibration())
    if not any(np.isfinite(data.measured[name]).any() for name in QUANTITIES):
        raise ScenarioError(Problem(file=str(path), message="no row has a measured quantity to fit to"))
    fitted = fit(data)
    groups = _groups(frame, rows.deployments, rows.deployment)
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


def write_calibration(found: CalibrationFile, path: Path) -> None:
    """Write a calibration file; nothing is left half written."""
    import yaml  # noqa: PLC0415

    meaning = "".join(f"#   {c.name}: {c.meaning}\n" for c in COEFFICIENTS)
    head = f"# Written by `planner calibrate`; do not edit. What the coefficients mean:\n{meaning}"
    text = head + yaml.safe_dump(found.model_dump(), sort_keys=False, allow_unicode=True, width=120)
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be written: {error.strerror}")) from None


def _groups(frame: pd.DataFrame, deployments: list[Any], number: Any) -> dict[str, list[str]]:
    """Return each row's accelerator, engine and model under their catalogue names."""
    del frame
    return {
        "accelerator": [deployments[n].part.name for n in number],
        "engine": [deployments[n].engine for n in number],
        "model": [deployments[n].shape.name for n in number],
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


def _rounded(table: Any) -> dict[str, float]:
    return {name: float(f"{number:.{_DIGITS}g}") for name, number in table.items()}


def load_shipped(catalog: Catalog) -> tuple[pd.DataFrame, Any]:
    """Return the shipped measurements and their prepared rows."""
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    return frame, prepare(frame, catalog)
