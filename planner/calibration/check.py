"""Holding the formula against a table of measurements: one entry per measured quantity, and errors by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.arrays import Bools, Floats
from planner.calibration.rows import PREDICTED, BenchmarkRows, predict_rows, prepare, row_doubts
from planner.calibration.table import COLUMNS, DISAGGREGATED_SCENARIO, MEASURED_COLUMNS, OPTIONAL_COLUMNS
from planner.catalog.load import Catalog
from planner.physics.coefficients import DISAGGREGATED, Calibration
from planner.physics.uncertainty import DENSE, MIXTURE, NORMAL_90
from planner.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd


Predict = Callable[[BenchmarkRows, "Calibration"], "dict[str, Floats]"]
"""From rows and coefficients to seconds and tokens: the formula, or the clients simulated request by request."""
GROUPS = ("accelerator", "engine", "model")


@dataclass(frozen=True, slots=True)
class Check:
    """Measured against predicted, one entry per measured quantity, shape (entries,)."""

    frame: pd.DataFrame
    """The table as read; its index is the line in the file."""
    position: Any
    """Each entry's position in the frame."""
    quantity: Any
    """Each entry's column name; the empty string for a row without any measurement."""
    measured: Floats
    predicted: Floats
    reason: list[str]
    """Why an entry has no prediction; the empty string where it has one."""
    is_mixture: Bools
    """Whether an entry's model is a mixture of experts."""
    sigma: Floats
    """Standard deviation of each entry's log error, by cross-validation; NaN where the calibration knows none."""
    standing: list[str]
    """How each entry stands to the measurements fitted to, in words; the empty string where nothing is known."""

    @property
    def error_fraction(self) -> Floats:
        """Predicted over measured, less one; NaN without a prediction."""
        return self.predicted / self.measured - 1.0

    @property
    def classes(self) -> dict[str, Bools]:
        """Entries of dense models, of mixtures, and of separate pools, whose runs say less of themselves."""
        apart = (self.frame["scenario"] == DISAGGREGATED_SCENARIO).to_numpy()[self.position]
        return {DENSE: ~self.is_mixture & ~apart, MIXTURE: self.is_mixture & ~apart, DISAGGREGATED: apart}

    @property
    def low(self) -> Floats:
        """Lower end of the 90% interval."""
        return self.predicted * np.exp(-NORMAL_90 * self.sigma)

    @property
    def high(self) -> Floats:
        """Upper end of the 90% interval."""
        return self.predicted * np.exp(NORMAL_90 * self.sigma)

    @property
    def is_predicted(self) -> Bools:
        """Whether an entry has a prediction."""
        return np.isfinite(self.predicted) & np.isfinite(self.measured)


def check_benchmarks(
    frame: pd.DataFrame, catalog: Catalog, calibration: Calibration, predict: Predict = predict_rows
) -> Check:
    """Predict every row of a benchmark table and put predictions beside what was measured."""
    rows = prepare(frame, catalog)
    size = len(frame)
    empty = {name: np.full(size, np.nan) for name in PREDICTED}
    points = predict(rows, calibration) if (rows.deployment >= 0).any() else empty
    predicted = {
        "ttft_ms": points["ttft_s"] / MILLISECOND,
        "tpot_ms": points["tpot_s"] / MILLISECOND,
        "output_tokens_per_s_per_gpu": points["tokens_per_s_per_accelerator"],
    }
    positions, quantities, measured, values = [], [], [], []
    for name in MEASURED_COLUMNS:
        column = frame[name].to_numpy(dtype=float)
        there = np.flatnonzero(~np.isnan(column))
        positions.append(there)
        quantities.append(np.full(there.size, name, dtype=object))
        measured.append(column[there])
        values.append(predicted[name][there])
    bare = np.flatnonzero(frame[list(MEASURED_COLUMNS)].isna().all(axis=1).to_numpy())
    nothing = np.full(bare.size, np.nan)
    position = np.concatenate([*positions, bare])
    quantity = np.concatenate([*quantities, np.full(bare.size, "", dtype=object)])
    value = np.concatenate([*values, nothing])
    reason = [
        _reason(rows.reasons[place], name, float(number))
        for place, name, number in zip(position, quantity, value, strict=True)
    ]
    value = np.where(np.isfinite(value), value, np.nan)
    doubts = row_doubts(rows, calibration) if (rows.deployment >= 0).any() else [None] * size
    entry_doubts = [doubts[place] for place in position]
    mixtures = np.array([d.shape.experts > 0 for d in rows.deployments] or [False])
    return Check(
        frame=frame,
        position=position,
        quantity=quantity,
        measured=np.concatenate([*measured, nothing]),
        predicted=value,
        reason=reason,
        is_mixture=mixtures[rows.deployment][position] & (rows.deployment[position] >= 0),
        sigma=np.array(
            [
                np.nan if doubt is None else doubt.first_token if name == "ttft_ms" else doubt.sigma
                for doubt, name in zip(entry_doubts, quantity, strict=True)
            ]
        ),
        standing=["" if doubt is None else doubt.in_words() for doubt in entry_doubts],
    )


def _reason(of_row: str, quantity: str, predicted: float) -> str:
    """Return why an entry has no prediction, or the empty string."""
    if of_row:
        return of_row
    if not quantity:
        return "nothing was measured"
    if np.isfinite(predicted):
        return ""
    if quantity == "ttft_ms":
        return "an offline run has no time to first token: its queue has no bottom"
    return "the weights and one sequence do not fit in memory"


def entries(check: Check, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield one JSON-ready entry per measured quantity, worst error first, entries with a reason last."""
    error = check.error_fraction
    order = np.argsort(-np.nan_to_num(np.abs(error), nan=-1.0), kind="stable")[:limit]
    rows = check.frame.iloc[check.position[order]]
    names = [name for name in check.frame.columns if name in COLUMNS or name in OPTIONAL_COLUMNS]
    cells = zip(*(_plain(rows[name]) for name in names), strict=True)
    for index, line, values in zip(order, rows.index, cells, strict=True):
        entry: dict[str, Any] = {"row": int(line), **dict(zip(names, values, strict=True))}
        entry["quantity"] = check.quantity[index] or None
        entry["measured"] = _number(check.measured[index])
        if check.reason[index]:
            entry["reason"] = check.reason[index]
        else:
            entry["predicted"] = float(check.predicted[index])
            entry["error_fraction"] = float(error[index])
            if check.standing[index]:
                entry["low"], entry["high"] = float(check.low[index]), float(check.high[index])
                entry["standing"] = check.standing[index]
        yield entry


def summary(check: Check) -> dict[str, Any]:
    """Return errors by quantity: over all entries, by architecture, accelerator, engine and model."""
    result: dict[str, Any] = {
        "rows": len(check.frame),
        "entries": int(check.position.size),
        "predicted": int(check.is_predicted.sum()),
        "unpredicted": int(check.position.size - check.is_predicted.sum()),
        "quantities": {},
    }
    for name in MEASURED_COLUMNS:
        chosen = check.is_predicted & (check.quantity == name)
        if not chosen.any():
            continue
        table: dict[str, Any] = {"all": _errors(check, chosen)}
        for label, mask in check.classes.items():
            if (chosen & mask).any():
                table[label] = _errors(check, chosen & mask)
        for group in GROUPS:
            labels = check.frame[group].to_numpy(dtype=object)[check.position]
            members = {str(label): chosen & (labels == label) for label in dict.fromkeys(labels[chosen])}
            table[f"by_{group}"] = {label: _errors(check, mask) for label, mask in members.items()}
        result["quantities"][name] = table
    return result


def _errors(check: Check, chosen: Bools) -> dict[str, float | int | None]:
    """Return count, mean, median and worst absolute error, the mean signed one, and the share within 90% intervals."""
    error = check.error_fraction[chosen]
    size = np.abs(error)
    known = np.isfinite(check.sigma[chosen])
    inside = (check.low[chosen] <= check.measured[chosen]) & (check.measured[chosen] <= check.high[chosen])
    return {
        "count": int(size.size),
        "mean_absolute_error_fraction": float(size.mean()),
        "median_absolute_error_fraction": float(np.median(size)),
        "worst_absolute_error_fraction": float(size.max()),
        "bias_fraction": float(error.mean()),
        "within_interval_fraction": float(inside[known].mean()) if known.any() else None,
    }


def _plain(column: pd.Series[Any]) -> list[Any]:
    """Return a column as JSON values: whole numbers without a point, blanks as None."""
    if column.dtype == float:
        return [_number(cell) for cell in column.to_numpy()]
    return [cell or None for cell in column.astype(str)]


def _number(cell: float) -> float | int | None:
    if np.isnan(cell):
        return None
    return int(cell) if float(cell).is_integer() else float(cell)
