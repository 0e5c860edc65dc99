"""The throughput model's measured error as a table of the run, so that its report needs nothing else."""

from __future__ import annotations

import math
from typing import Any

from planner.catalog.calibration import SHIPPED_CALIBRATION, CalibrationFile, ErrorSpread, read_calibration
from planner.physics.doubt import NORMAL_90


def model_error(calibration: CalibrationFile | None = None) -> dict[str, list[Any]]:
    """Return the columns of model_error.csv: each quantity over all rows and by architecture class.

    The half-widths are those of 90% intervals where the pair was measured, and where its model was not.
    """
    found = calibration or read_calibration(SHIPPED_CALIBRATION)
    unseen = found.cross_validated.get("model", {})
    columns: dict[str, list[Any]] = {
        name: [] for name in ("quantity", "group", "rows", "fitted_median_fraction", "fitted_mean_fraction",
                              "unseen_median_fraction", "unseen_mean_fraction", "measured_half_width_fraction",
                              "unseen_half_width_fraction")
    }  # fmt: skip
    for quantity, groups in found.fitted.items():
        for group in ("all", "dense", "mixture-of-experts"):
            if group not in groups:
                continue
            fitted, held_out = groups[group], unseen.get(quantity, {}).get(group)
            row = (quantity, group, fitted.rows, fitted.median_fraction, fitted.mean_fraction,
                   held_out.median_fraction if held_out else None,
                   held_out.mean_fraction if held_out else None,
                   *_half_widths(found.spread.get(group), quantity))  # fmt: skip
            for column, cell in zip(columns.values(), row, strict=True):
                column.append(cell)
    return columns


def _half_widths(spread: ErrorSpread | None, quantity: str) -> tuple[float | None, float | None]:
    """Return half the 90% interval over the prediction, for a pair measured and for a model never measured."""
    if spread is None:
        return None, None
    measured = spread.first_token if quantity == "ttft_s" else spread.setting
    unseen = measured if quantity == "ttft_s" else math.hypot(spread.setting, spread.pair, spread.model)
    return round(math.sinh(NORMAL_90 * measured), 4), round(math.sinh(NORMAL_90 * unseen), 4)
