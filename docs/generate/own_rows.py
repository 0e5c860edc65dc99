"""What five rows of one's own are worth: pairs that nobody measured, before and after ``planner calibrate``.

The rows of a campaign (model, accelerator, engine and precision) are left out of the fit. Five of them, drawn at
random, then stand for rows of one's own, and the others are predicted, by the fit as it is and as five rows update it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from docs.generate.left_out import Measured, Rows
from planner.arrays import Floats
from planner.calibration.calibrate import update_calibration
from planner.calibration.predictions import predict_rows, prepare, priced_rows
from planner.catalog.calibration import CalibrationFile
from planner.catalog.load import Catalog
from planner.physics.coefficients import NORMAL_90, Calibration
from planner.units import MILLISECOND

OWN_ROWS = 5
_FEWEST_ROWS = 10
"""Of a campaign: below it too few are left to be predicted."""
DRAWS = 2


class Pair(NamedTuple):
    """The rows of a campaign that were predicted: ln(predicted/measured) of time per token, shape (rows,)."""

    vendor: str
    is_mixture: bool
    before: Floats
    """By a fit that knows nothing of the campaign."""
    after: Floats
    """By the same with five rows of it."""
    log_error: Floats
    """Standard deviation that is stated after."""


def pairs_of_five(
    campaigns: set[str] | None,
    frame: pd.DataFrame,
    file: CalibrationFile,
    rows: Rows,
    catalog: Catalog,
) -> Iterator[Pair]:
    """Yield every campaign, or those named, with ten rows or more that serve requests, once for each draw of five.

    ``frame`` are the rows of the fit.
    """
    of_row = np.array([Measured(spec, 0, 0, 0, 0).group("campaign") for spec in rows.specs])
    is_serving = frame["tpot_ms"].notna().to_numpy() & np.isfinite(rows.data.concurrency)
    for campaign in dict.fromkeys(of_row.tolist()):
        of_campaign = frame[(of_row == campaign) & is_serving]
        is_wanted = campaigns is None or campaign in campaigns
        if not is_wanted or len(of_campaign) < _FEWEST_ROWS:
            continue
        base = _as_file(rows.without_group("campaign", campaign), file)
        for draw in range(DRAWS):
            generator = np.random.default_rng([draw, len(of_campaign)])
            is_own = np.zeros(len(of_campaign), dtype=bool)
            is_own[generator.choice(len(of_campaign), OWN_ROWS, replace=False)] = True
            updated = _updated(pd.DataFrame(of_campaign[is_own]), base, catalog)
            yield _pair(pd.DataFrame(of_campaign[~is_own]), base.calibration(), updated, catalog)


def _as_file(calibration: Calibration, file: CalibrationFile) -> CalibrationFile:
    """Return a calibration with what else a file states."""
    tables = {
        "common": dict(calibration.common),
        "engines": calibration.engine_log_deviation,
        "vendors": calibration.vendor_log_deviation,
        "groups": dict(calibration.group_log_effect),
        "group_rows": dict(calibration.group_rows),
    }
    return file.model_copy(update=tables)


def _updated(own: pd.DataFrame, base: CalibrationFile, catalog: Catalog) -> Calibration:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.csv"
        own.to_csv(path, index=False)
        return update_calibration(path, base, catalog).calibration()


def _pair(others: pd.DataFrame, before: Calibration, after: Calibration, catalog: Catalog) -> Pair:
    prepared = prepare(others, catalog)
    measured_s = others["tpot_ms"].to_numpy() * MILLISECOND
    priced = priced_rows(prepared, after)
    uncertainties = [
        spec.uncertainty(after, kind) for spec, kind in zip(priced.specs, priced.kinds, strict=True)
    ]
    log_errors = [one.sigma for one in uncertainties if one is not None]
    spec = priced.specs[0]
    return Pair(
        vendor=spec.part.vendor,
        is_mixture=spec.shape.experts > 0,
        before=np.log(predict_rows(prepared, before)["tpot_s"] / measured_s),
        after=np.log(predict_rows(prepared, after)["tpot_s"] / measured_s),
        log_error=np.array(log_errors),
    )


class Errors(NamedTuple):
    """Errors of time per token over the rows of some pairs."""

    rows: int
    mean_before: float
    median_before: float
    mean_after: float
    median_after: float
    covered: float
    """Share of rows inside the 90% interval that is stated after."""


def errors_of(pairs: Sequence[Pair]) -> Errors:
    """Return the errors of pairs."""
    before = np.abs(np.expm1(np.concatenate([pair.before for pair in pairs])))
    log_after = np.concatenate([pair.after for pair in pairs])
    after = np.abs(np.expm1(log_after))
    interval = NORMAL_90 * np.concatenate([pair.log_error for pair in pairs])
    return Errors(
        rows=before.size,
        mean_before=float(before.mean()),
        median_before=float(np.median(before)),
        mean_after=float(after.mean()),
        median_after=float(np.median(after)),
        covered=float((np.abs(log_after) <= interval).mean()),
    )
