"""Checking the model against measurements: one entry per measured quantity, errors by group, and tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from planner.arrays import Bools, Floats, Ints
from planner.calibration.benchmarks import COLUMNS, DISAGGREGATED_SCENARIO, MEASURED_COLUMNS, OPTIONAL_COLUMNS
from planner.calibration.predictions import BenchmarkRows, predict_rows, prepare, row_doubts
from planner.catalog.calibration import CalibrationFile, OwnRows
from planner.catalog.load import Catalog
from planner.physics import coefficients
from planner.physics.coefficients import DENSE, DISAGGREGATED, MIXTURE, NORMAL_90, Calibration
from planner.units import MILLISECOND

Predict = Callable[[BenchmarkRows, Calibration], dict[str, Floats]]
"""From rows and coefficients to seconds and tokens: the formula, or the clients simulated request by request."""
GROUPS = ("accelerator", "engine", "model")
ERROR_HEADER = ("", "rows", "mean", "median", "worst", "bias", "within 90%")
_TITLES = {"ttft": "time to first token", "tpot": "time per output token", "output": "output tokens/s per accelerator"}
"""What is measured, by the first word of the quantity's name."""
_MAX_REASONS = 20
_WHY_NOT = {"": "nothing was measured", "ttft_ms": "an offline run has no time to first token: its queue has no bottom"}
_NO_ROOM = "the weights and one sequence do not fit in memory"


@dataclass(frozen=True, slots=True)
class Check:
    """Measured against predicted, one entry per measured quantity, shape (entries,)."""

    frame: pd.DataFrame
    """The table as read; its index is the line in the file."""
    position: Ints
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
        """Masks of entries of dense models, of mixtures, and of disaggregated runs."""
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
    """Return the predictions of every row of a benchmark table beside its measurements."""
    rows = prepare(frame, catalog)
    # One column per quantity, and a last one for rows in which nothing was measured.
    measured = np.column_stack([frame[list(MEASURED_COLUMNS)].to_numpy(dtype=float), np.full(len(frame), np.nan)])
    predicted = np.full_like(measured, np.nan)
    doubts: list[coefficients.Doubt | None] = [None] * len(frame)
    if (rows.deployment >= 0).any():
        points = predict(rows, calibration)
        predicted[:, 0], predicted[:, 1] = points["ttft_s"] / MILLISECOND, points["tpot_s"] / MILLISECOND
        predicted[:, 2] = points["tokens_per_s_per_accelerator"]
        doubts = row_doubts(rows, calibration)
    is_there = ~np.isnan(measured)
    is_there[:, -1] = ~is_there.any(axis=1)
    column, position = np.nonzero(is_there.T)
    quantity = np.array([*MEASURED_COLUMNS, ""], dtype=object)[column]
    value = predicted[position, column]
    value = np.where(np.isfinite(value), value, np.nan)
    entry_doubts = [doubts[place] for place in position]
    mixtures = np.array([d.shape.experts > 0 for d in rows.deployments] or [False])
    sigma = [
        np.nan if doubt is None else doubt.first_token if name == "ttft_ms" else doubt.sigma
        for doubt, name in zip(entry_doubts, quantity, strict=True)
    ]
    return Check(
        frame=frame,
        position=position,
        quantity=quantity,
        measured=measured[position, column],
        predicted=value,
        reason=[
            rows.reasons[place] or ("" if np.isfinite(number) else _WHY_NOT.get(name, _NO_ROOM))
            for place, name, number in zip(position, quantity, value, strict=True)
        ],
        is_mixture=mixtures[rows.deployment][position] & (rows.deployment[position] >= 0),
        sigma=np.array(sigma),
        standing=["" if doubt is None else doubt.in_words() for doubt in entry_doubts],
    )


def entries(check: Check, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield one JSON-ready entry per measured quantity, worst error first, unpredicted entries last."""
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


def _plain(column: pd.Series[Any]) -> list[Any]:
    """Return a column as JSON values: whole numbers without a point, blanks as None."""
    if column.dtype == float:
        return [_number(cell) for cell in column.to_numpy()]
    return [cell or None for cell in column.astype(str)]


def _number(cell: float) -> float | int | None:
    if np.isnan(cell):
        return None
    return int(cell) if float(cell).is_integer() else float(cell)


def summary(check: Check) -> dict[str, Any]:
    """Return errors by quantity: overall, and by architecture, accelerator, engine and model."""
    predicted = int(check.is_predicted.sum())
    quantities: dict[str, Any] = {}
    for name in MEASURED_COLUMNS:
        chosen = check.is_predicted & (check.quantity == name)
        if not chosen.any():
            continue
        classes = {label: chosen & mask for label, mask in check.classes.items() if (chosen & mask).any()}
        table: dict[str, Any] = {label: _errors(check, mask) for label, mask in {"all": chosen, **classes}.items()}
        for group in GROUPS:
            labels = check.frame[group].to_numpy(dtype=object)[check.position]
            members = {str(label): chosen & (labels == label) for label in dict.fromkeys(labels[chosen])}
            table[f"by_{group}"] = {label: _errors(check, mask) for label, mask in members.items()}
        quantities[name] = table
    return {
        "rows": len(check.frame),
        "entries": int(check.position.size),
        "predicted": predicted,
        "unpredicted": int(check.position.size) - predicted,
        "quantities": quantities,
    }


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


def error_cells(label: str, errors: dict[str, Any]) -> tuple[str, ...]:
    """Return the number of predicted rows and their errors, as cells under ``ERROR_HEADER``."""
    within = errors["within_interval_fraction"]
    return (
        label,
        str(errors["count"]),
        f"{errors['mean_absolute_error_fraction']:.1%}",
        f"{errors['median_absolute_error_fraction']:.1%}",
        f"{errors['worst_absolute_error_fraction']:.0%}",
        f"{errors['bias_fraction']:+.1%}",
        "" if within is None else f"{within:.0%}",
    )


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a text table: the first column left-aligned, the others right-aligned."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])


def check_report(check: Check, worst: int) -> str:
    """Return the error tables of a check, its worst rows and the rows it could not predict."""
    totals = summary(check)
    parts = [f"{totals['predicted']} measurements predicted, {totals['unpredicted']} not, from {totals['rows']} rows"]
    for name, errors in totals["quantities"].items():
        rows = [error_cells(label, errors[label]) for label in ("all", *check.classes) if label in errors]
        for group in GROUPS:
            rows += [error_cells(label or "(blank)", members) for label, members in errors[f"by_{group}"].items()]
        parts.append(f"{_TITLES[name.partition('_')[0]]}\n" + plain_table(ERROR_HEADER, rows))
    predicted = []
    for entry in (entry for entry in entries(check, worst) if "predicted" in entry):
        names = [entry[name] or "?" for name in ("model", "accelerator", "engine", "precision")]
        tp, lengths = f"tp{entry['tp'] or '?'}", f"{entry['input_tokens']:g}/{entry['output_tokens']:g}"
        load = f"c{entry['concurrency']:g}" if entry["concurrency"] else entry["scenario"]
        numbers = (f"{entry['measured']:,.1f}", f"{entry['predicted']:,.1f}", f"{entry['error_fraction']:+.0%}")
        interval = f"{entry['low']:,.1f} to {entry['high']:,.1f}" if "low" in entry else ""
        run = " ".join([*names, tp, lengths, load])
        predicted.append((run, str(entry["row"]), entry["quantity"], *numbers, interval))
    if predicted:
        header = ("run", "row", "quantity", "measured", "predicted", "error", "90% interval")
        parts.append("worst rows\n" + plain_table(header, predicted))
    reasons = zip(check.position, check.reason, strict=True)
    lines = dict.fromkeys(f"row {check.frame.index[place]}: {reason}" for place, reason in reasons if reason)
    if lines:
        more = [f"and {len(lines) - _MAX_REASONS} more"] if len(lines) > _MAX_REASONS else []
        parts.append("not predicted\n" + "\n".join([*itertools.islice(lines, _MAX_REASONS), *more]))
    return "\n\n".join(parts)


def calibration_table(file: CalibrationFile) -> str:
    """Return the errors of a calibration: of the fit, and on left-out rows by kind."""
    header = ("", "rows", "mean", "median", *(f"without its {group}" for group in file.cross_validated))
    parts = []
    for name, errors in file.fitted.items():
        rows = []
        for label, fitted in errors.items():
            held = [members.get(name, {}).get(label) for members in file.cross_validated.values()]
            without = ("" if one is None else f"{one.mean_fraction:.1%}" for one in held)
            shown = (f"{fitted.mean_fraction:.1%}", f"{fitted.median_fraction:.1%}")
            rows.append((label, str(fitted.rows), *shown, *without))
        parts.append(f"{_TITLES[name.partition('_')[0]]}\n" + plain_table(header, rows))
    return "\n\n".join(parts)


def update_table(own_rows: OwnRows, before: Calibration, after: Calibration) -> str:
    """Return a table of the user's own pairs: time per token over the formula's before and after, and its interval."""
    campaigns = [label for label in own_rows.groups if label.count(" / ") > 2]  # the others are shares of these
    rows = []
    for label in campaigns:
        groups, update = coefficients.groups_of(*label.split(" / ")), own_rows.groups[label]
        was, now = (float(np.exp(calibration.log_effects([groups])[0])) for calibration in (before, after))
        width = np.sinh(NORMAL_90 * update.sigma)
        told = (f"{was:.3f}", f"{now:.3f}", f"{was / now - 1:+.1%}", f"±{width:.0%}")
        rows.append((label.replace(" / ", " "), str(update.rows), *told))
    header = ("pair", "rows", "before", "after", "speed", "90% of that")
    old, new = own_rows.error_before, own_rows.error_after
    mean = f"mean {old.mean_fraction:.1%} before, {new.mean_fraction:.1%} after"
    median = f"median {old.median_fraction:.1%} before, {new.median_fraction:.1%} after"
    lines = ["time per token over the formula's, before and after; no coefficient of the formula moves"]
    lines += [plain_table(header, rows), f"error on these {own_rows.rows} rows: {mean}; {median}"]
    if idle := sum(label.endswith(coefficients.SATURATED) for label in campaigns):
        lines.append(f"runs serve requests as they come: rows of saturation, {idle} of these pairs, do not reach them")
    return "\n\n".join(lines)
