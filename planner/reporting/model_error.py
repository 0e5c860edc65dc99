"""The throughput model's measured error as a table of the run, so that its report needs nothing else."""

from __future__ import annotations

from typing import Any

from planner.catalog.calibration import SHIPPED_CALIBRATION, CalibrationFile, read_calibration


def model_error(calibration: CalibrationFile | None = None) -> dict[str, list[Any]]:
    """Return the columns of model_error.csv: each quantity over all rows and by architecture class."""
    found = calibration or read_calibration(SHIPPED_CALIBRATION)
    unseen = found.cross_validated.get("model", {})
    columns: dict[str, list[Any]] = {
        name: [] for name in ("quantity", "group", "rows", "fitted_median_fraction", "fitted_mean_fraction",
                              "unseen_median_fraction", "unseen_mean_fraction")
    }  # fmt: skip
    for quantity, groups in found.fitted.items():
        for group in ("all", "dense", "mixture-of-experts"):
            if group not in groups:
                continue
            fitted, held_out = groups[group], unseen.get(quantity, {}).get(group)
            row = (quantity, group, fitted.rows, fitted.median_fraction, fitted.mean_fraction,
                   held_out.median_fraction if held_out else None,
                   held_out.mean_fraction if held_out else None)  # fmt: skip
            for column, cell in zip(columns.values(), row, strict=True):
                column.append(cell)
    return columns
