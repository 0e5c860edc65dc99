"""The throughput calibration file: fitted coefficients, their errors, and the measurements they came from."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import Field, NonNegativeFloat, PositiveFloat

from planner.catalog.entries import FOLDER, Fraction
from planner.errors import Problem, raise_all
from planner.files import write_file
from planner.physics.coefficients import (
    COEFFICIENTS,
    DENSE,
    MIXTURE,
    NAMES,
    Calibration,
    ClassSpread,
)
from planner.physics.replica import ReplicaSpec
from planner.validation import Strict, validate
from planner.yaml_io import MAX_BYTES, document_from, read_bytes

SHIPPED_MEASUREMENTS = FOLDER / "measurements.csv"
SHIPPED_CALIBRATION = FOLDER / "calibration.yaml"
BIAS_ROWS = 20
"""Rows from which a cell's signed error is known well enough to be named."""
BIAS_FRACTION = 0.10
"""Signed error from which a run that uses the cell names it."""


class Errors(Strict):
    """Prediction errors for one measured quantity."""

    rows: int
    """Rows measured."""
    mean_fraction: NonNegativeFloat
    """Mean absolute error."""
    median_fraction: NonNegativeFloat
    """Median absolute error."""


class ErrorSpread(Strict):
    """Standard deviations of ln(measured/predicted), by which factor was not measured; they add in squares."""

    setting: NonNegativeFloat
    """The pair was measured in this layout, at other lengths."""
    layout: NonNegativeFloat
    """The pair was measured, in other layouts (degree, groups of attention)."""
    pair: NonNegativeFloat
    """The pair (model, accelerator, engine, precision) was not, in any layout."""
    model: NonNegativeFloat
    """The model was not measured under this engine."""
    part: NonNegativeFloat
    """The accelerator was not measured under this engine."""
    first_token: NonNegativeFloat
    """Time to first token, whatever was measured."""


class Coverage(Strict):
    """Coverage of the 90% prediction intervals, on rows of pairs left out of the fit."""

    rows: int
    """Rows measured."""
    covered_fraction: Fraction
    """Share of rows inside their interval."""
    median_half_width_fraction: NonNegativeFloat
    """Half the interval over the prediction, in the median."""


class Bias(Strict):
    """Signed error of time per token, on rows of pairs left out of the fit."""

    rows: int
    """Rows measured."""
    median_fraction: float
    """Median of predicted over measured, less one: above zero the model predicts too little, below it too much."""


class GroupUpdate(Strict):
    """Change of a measurement group's effect due to the user's own rows."""

    rows: int
    """Rows of the group."""
    before: float
    """Log of measured time per token over the formula's, before these rows; 0 where nothing was measured."""
    after: float
    """The same after them: the posterior mean."""
    sigma: NonNegativeFloat
    """Posterior standard deviation: of the whole effect of a campaign or of its layout, or of a model's or part's share
    of it."""


class OwnRows(Strict):
    """The user's own rows that updated a calibration, and the changes they made."""

    measurements: str
    """The table."""
    sha256: str
    """Its hash."""
    rows: int
    """Rows used."""
    groups: dict[str, GroupUpdate]
    """By group of measurements."""
    error_before: Errors
    """Errors on these rows before the update, of time per token or, where that is blank, of throughput."""
    error_after: Errors
    """The same after it."""


class SloRow(Strict):
    """A measured throughput within an SLO, and the one predicted by request-level simulation."""

    run: str
    """Model, accelerator, precision and scenario."""
    measured: PositiveFloat
    """Output tokens/s per accelerator."""
    predicted: NonNegativeFloat
    """The same at the largest rate of which 99% of requests keep both objectives."""


class ByRequest(Strict):
    """Errors of the request-level simulation against the shipped measurements."""

    first_token: dict[str, Errors]
    """Time to first token of clients: of the rows fitted to, and leaving out one setting, layout or campaign."""
    within_slo: tuple[SloRow, ...]
    """Server and Interactive runs."""


class CalibrationFile(Strict):
    """The file that ``planner calibrate`` writes."""

    measurements: str
    """The table the coefficients were fitted to."""
    rows: int
    """Rows used."""
    measured_on: datetime.date | None = None
    """Middle of the dates of those that state one. Default: none does."""
    common: dict[str, PositiveFloat]
    """Each coefficient's common value."""
    engines: dict[str, dict[str, float]]
    """Log deviations by engine; a coefficient that is not there is the common one."""
    vendors: dict[str, dict[str, float]]
    """Log deviations by vendor; a coefficient that is not there is the common one."""
    groups: dict[str, float]
    """Log of measured time per token over the formula's, by group of measurements."""
    group_rows: dict[str, int] = Field(default_factory=dict)
    """Rows measured, by group of measurements. Default: unknown, and nothing counts as measured."""
    drafted: dict[str, Fraction] = Field(default_factory=dict)
    """Share of the runs of a campaign with separate pools that draft tokens and do not say so. Default: none."""
    first_token: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Log of measured time to first token of benchmark clients over the ``formula``'s, and over that of their
    simulation by ``requests``, by group of measurements. Default: nothing was measured."""
    spread: dict[str, ErrorSpread]
    """Spread of the model's error by architecture class: what intervals are made of and a Monte Carlo draws."""
    coverage: dict[str, dict[str, Coverage]]
    """How the intervals held on rows the fit never saw, by what was left out, then by vendor and class of models."""
    bias: dict[str, Bias] = Field(default_factory=dict)
    """Signed errors without a row's campaign, by vendor, class, precision and concurrency. Default: none is known."""
    fitted: dict[str, dict[str, Errors]]
    """Errors on the rows fitted to, by quantity, then by all, accelerator, engine or model."""
    cross_validated: dict[str, dict[str, dict[str, Errors]]]
    """Errors on rows the fit never saw, leaving out one setting, campaign, model or accelerator at a time."""
    by_request: ByRequest | None = None
    """Errors of the simulation request by request. Default: fitted without cross-validation, which leaves it out."""
    own: OwnRows | None = None
    """What one's own measurements changed in the groups. Default: none did."""

    def calibration(self) -> Calibration:
        """Return the coefficients for the throughput formula."""
        # Only one's own rows leave an uncertainty of a group; the shipped fit has it in the spread.
        updates = self.own.groups.items() if self.own else ()
        sigmas = {name: group.sigma for name, group in updates}
        spread = {}
        for name, errors in self.spread.items():
            spread[name] = ClassSpread(**errors.model_dump())
        return Calibration(
            common=self.common,
            engine_log_deviation=self.engines,
            vendor_log_deviation=self.vendors,
            group_log_effect=self.groups,
            group_rows=self.group_rows,
            spread=spread,
            measured_on=self.measured_on,
            drafted_share=self.drafted,
            first_token_log_effect=self.first_token,
            group_log_sigma=sigmas,
        )

    def biased(self, specs: Iterable[ReplicaSpec]) -> Iterator[str]:
        """Yield which of the cells that replicas belong to are off by more than a tenth, of twenty rows or more."""
        cells: dict[str, None] = {}  # each once, in the order of the replicas
        for spec in specs:
            architecture = MIXTURE if spec.shape.experts else DENSE
            cells[f"{spec.part.vendor} {architecture} {spec.precision}, "] = None
        for prefix in cells:
            for cell, bias in self.bias.items():
                error = bias.median_fraction
                is_large = bias.rows >= BIAS_ROWS and abs(error) > BIAS_FRACTION
                if cell.startswith(prefix) and is_large:
                    side = "slow" if error > 0.0 else "fast"
                    yield (
                        f"{cell}: the throughput model is {abs(error):.0%} too {side} per token "
                        f"(median of {bias.rows} measured runs that it was not fitted to)"
                    )


def read_calibration(path: Path) -> CalibrationFile:
    """Read a calibration file; raise ScenarioError when a coefficient is missing or unknown."""
    return calibration_from(read_bytes(path, MAX_BYTES), str(path))


@functools.lru_cache(maxsize=8)
def calibration_from(raw: bytes, path: str) -> CalibrationFile:
    """Return the calibration in a file's bytes, cached; ``path`` names it in messages."""
    # Cached by content: studies ask for it in every plan, and parsing takes longer than using it.
    file = validate(CalibrationFile, document_from(raw, path))
    problems = [
        Problem(file=path, path=f"common.{name}", message="is required and is not there")
        for name in NAMES
        if name not in file.common
    ]
    tables = {"common": file.common, **file.engines, **file.vendors}
    for table, names in tables.items():
        problems += [
            Problem(file=path, path=f"{table}.{name}", message="is not a coefficient")
            for name in names
            if name not in NAMES
        ]
    # All at once: a file from another version lacks or has several.
    raise_all(problems)
    return file


def shipped_file() -> CalibrationFile:
    """Return the shipped calibration, with its errors."""
    return read_calibration(SHIPPED_CALIBRATION)


def write_calibration(file: CalibrationFile, path: Path) -> None:
    """Write a calibration file atomically."""
    import yaml  # noqa: PLC0415

    # A reader of the file should not have to open the code for what a number is.
    meaning = "".join(f"#   {c.name}: {c.meaning}\n" for c in COEFFICIENTS)
    head = f"# Written by `planner calibrate`; do not edit. What the coefficients mean:\n{meaning}"
    content = file.model_dump(exclude_none=True)
    # In the order of the class, which goes from what is used to what is only reported.
    body = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
    write_file(path, (head + body).encode())
