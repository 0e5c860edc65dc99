"""Checking the model against measurements: one entry per measured quantity, errors by group, and tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from planner.arrays import Floats
from planner.calibration.benchmarks import (
    COLUMNS,
    DISAGGREGATED_SCENARIO,
    MEASURED_COLUMNS,
    OPTIONAL_COLUMNS,
)
from planner.calibration.predictions import BenchmarkRows, predict_rows, prepare, priced_rows
from planner.catalog.calibration import OwnRows
from planner.catalog.load import Catalog
from planner.physics import coefficients
from planner.physics.coefficients import DENSE, DISAGGREGATED, MIXTURE, NORMAL_90, Calibration
from planner.units import MILLISECOND

Predict = Callable[[BenchmarkRows, Calibration], dict[str, Floats]]
"""From rows and coefficients to seconds and tokens: the formula, or the clients simulated request by request."""
KINDS = (DENSE, MIXTURE, DISAGGREGATED)
ERROR_HEADER = ("", "rows", "mean", "median", "worst", "bias", "within 90%")
QUANTITY_TITLES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "output": "output tokens/s per accelerator",
}
"""What is measured, by the first word of the quantity's name."""
_MAX_REASONS = 20
_WHY_NOT = {
    "": "nothing was measured",
    "ttft_ms": "an offline run has no time to first token: its queue has no bottom",
}
_NO_ROOM = "the weights and one sequence do not fit in memory"


def check_benchmarks(
    frame: pd.DataFrame, catalog: Catalog, calibration: Calibration, predict: Predict = predict_rows
) -> pd.DataFrame:
    """Return the predictions of every row of a benchmark table beside its measurements.

    The table has a row for each measured quantity, under the row's line in the file: its column's name (empty where
    nothing was measured), measured, predicted, their relative error, the prediction's 90% interval by cross-validation,
    the kind of deployment, how it stands to the measurements fitted to, in words, and why it has no prediction.
    """
    rows = prepare(frame, catalog)
    # One column per quantity, and a last one for rows in which nothing was measured.
    measured = np.column_stack(
        [frame[list(MEASURED_COLUMNS)].to_numpy(dtype=float), np.full(len(frame), np.nan)]
    )
    predicted = np.full_like(measured, np.nan)
    doubts: list[coefficients.Doubt | None] = [None] * len(frame)
    if (rows.deployment >= 0).any():
        points = predict(rows, calibration)
        predicted[:, 0] = points["ttft_s"] / MILLISECOND
        predicted[:, 1] = points["tpot_s"] / MILLISECOND
        predicted[:, 2] = points["tokens_per_s_per_accelerator"]
        priced = priced_rows(rows, calibration)
        for row, spec, kind in zip(
            np.flatnonzero(rows.deployment >= 0), priced.specs, priced.kinds, strict=True
        ):
            doubts[row] = spec.doubt(calibration, kind)
    is_there = ~np.isnan(measured)
    is_there[:, -1] = ~is_there.any(axis=1)
    column, position = np.nonzero(is_there.T)
    checked = frame.iloc[position].copy()
    checked["quantity"] = np.array([*MEASURED_COLUMNS, ""], dtype=object)[column]
    checked["measured"] = measured[position, column]
    value = predicted[position, column]
    checked["predicted"] = np.where(np.isfinite(value), value, np.nan)
    checked["error_fraction"] = checked["predicted"] / checked["measured"] - 1.0
    entry_doubts = [doubts[place] for place in position]
    ends = []  # of each entry's 90% interval, over the prediction: a time's slow end is the high one
    for doubt, name in zip(entry_doubts, checked["quantity"], strict=True):
        slow, fast = (np.nan, np.nan) if doubt is None else doubt.interval(1.0)
        if doubt is not None and name == "ttft_ms":
            slow, fast = np.exp(NORMAL_90 * np.array([-doubt.first_token, doubt.first_token]))
        ends.append((1.0 / fast, 1.0 / slow) if name == "tpot_ms" else (slow, fast))
    low, high = np.array(ends).reshape(-1, 2).T
    checked["low"], checked["high"] = checked["predicted"] * low, checked["predicted"] * high
    mixtures = np.array([d.shape.experts > 0 for d in rows.deployments] or [False])
    is_mixture = mixtures[rows.deployment][position] & (rows.deployment[position] >= 0)
    is_apart = checked["scenario"] == DISAGGREGATED_SCENARIO
    checked["kind"] = np.select([is_apart, is_mixture], [DISAGGREGATED, MIXTURE], DENSE)
    checked["standing"] = ["" if doubt is None else doubt.in_words() for doubt in entry_doubts]
    checked["reason"] = [
        rows.reasons[place] or ("" if np.isfinite(number) else _WHY_NOT.get(name, _NO_ROOM))
        for place, name, number in zip(position, checked["quantity"], value, strict=True)
    ]
    return checked


def entries(checked: pd.DataFrame, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield one JSON-ready entry per measured quantity, worst error first, unpredicted entries last."""
    size = np.abs(checked["error_fraction"].to_numpy())
    rows = checked.iloc[np.argsort(-np.nan_to_num(size, nan=-1.0), kind="stable")[:limit]]
    names = [name for name in checked.columns if name in COLUMNS or name in OPTIONAL_COLUMNS]
    for line, told in zip(rows.index, rows.to_dict("records"), strict=True):
        entry = {"row": int(line)} | {
            name: _plain(told[name]) for name in (*names, "quantity", "measured")
        }
        interval = ("low", "high", "standing") if told["standing"] else ()
        shown = ("reason",) if told["reason"] else ("predicted", "error_fraction", *interval)
        entry |= {name: told[name] for name in shown}
        yield entry


def _plain(cell: Any) -> Any:
    """Return a cell as JSON has it: whole numbers without a point, blanks as None."""
    if isinstance(cell, float):
        return None if np.isnan(cell) else int(cell) if cell.is_integer() else cell
    return cell or None


def summary(checked: pd.DataFrame) -> dict[str, Any]:
    """Return errors by quantity: overall, and by architecture."""
    predicted = checked[checked["predicted"].notna() & checked["measured"].notna()]
    quantities: dict[str, Any] = {}
    for name in MEASURED_COLUMNS:
        chosen = predicted[predicted["quantity"] == name]
        if chosen.empty:
            continue
        parts = {"all": chosen} | {kind: chosen[chosen["kind"] == kind] for kind in KINDS}
        quantities[name] = {
            label: errors_of(part) for label, part in parts.items() if not part.empty
        }
    return {
        "rows": checked.index.nunique(),
        "entries": len(checked),
        "predicted": len(predicted),
        "unpredicted": len(checked) - len(predicted),
        "quantities": quantities,
    }


def errors_of(chosen: pd.DataFrame) -> dict[str, float | int | None]:
    """Return count, mean, median and worst absolute error, the mean signed one, and the share within 90% intervals."""
    error = chosen["error_fraction"].to_numpy()
    size = np.abs(error)
    known = chosen["low"].notna()
    inside = chosen["measured"].between(chosen["low"], chosen["high"])
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


def check_report(checked: pd.DataFrame, worst: int) -> str:
    """Return the error tables of a check, its worst rows and the rows it could not predict."""
    totals = summary(checked)
    parts = [
        f"{totals['predicted']} measurements predicted, {totals['unpredicted']} not, from {totals['rows']} rows"
    ]
    for name, errors in totals["quantities"].items():
        rows = [error_cells(label, errors[label]) for label in ("all", *KINDS) if label in errors]
        parts.append(
            f"{QUANTITY_TITLES[name.partition('_')[0]]}\n" + plain_table(ERROR_HEADER, rows)
        )
    predicted = []
    for entry in (entry for entry in entries(checked, worst) if "predicted" in entry):
        names = [entry[name] or "?" for name in ("model", "accelerator", "engine", "precision")]
        tp = f"tp{entry['tp'] or '?'}"
        lengths = f"{entry['input_tokens']:g}/{entry['output_tokens']:g}"
        load = f"c{entry['concurrency']:g}" if entry["concurrency"] else entry["scenario"]
        numbers = (
            f"{entry['measured']:,.1f}",
            f"{entry['predicted']:,.1f}",
            f"{entry['error_fraction']:+.0%}",
        )
        interval = f"{entry['low']:,.1f} to {entry['high']:,.1f}" if "low" in entry else ""
        run = " ".join([*names, tp, lengths, load])
        predicted.append((run, str(entry["row"]), entry["quantity"], *numbers, interval))
    if predicted:
        header = ("run", "row", "quantity", "measured", "predicted", "error", "90% interval")
        parts.append("worst rows\n" + plain_table(header, predicted))
    lines = dict.fromkeys(
        f"row {line}: {reason}" for line, reason in checked["reason"].items() if reason
    )
    if lines:
        more = [f"and {len(lines) - _MAX_REASONS} more"] if len(lines) > _MAX_REASONS else []
        parts.append("not predicted\n" + "\n".join([*itertools.islice(lines, _MAX_REASONS), *more]))
    return "\n\n".join(parts)


def update_table(own_rows: OwnRows, before: Calibration, after: Calibration) -> str:
    """Return a table of the user's own pairs: time per token over the formula's before and after, and its interval."""
    campaigns = [
        label for label in own_rows.groups if label.count(" / ") > 2
    ]  # the others are shares of these
    rows = []
    for label in campaigns:
        groups, update = coefficients.groups_of(*label.split(" / ")), own_rows.groups[label]
        was, now = (
            float(np.exp(calibration.log_effects([groups])[0])) for calibration in (before, after)
        )
        width = np.sinh(NORMAL_90 * update.sigma)
        told = (f"{was:.3f}", f"{now:.3f}", f"{was / now - 1:+.1%}", f"±{width:.0%}")
        rows.append((label.replace(" / ", " "), str(update.rows), *told))
    header = ("pair", "rows", "before", "after", "speed", "90% of that")
    old = own_rows.error_before
    new = own_rows.error_after
    mean = f"mean {old.mean_fraction:.1%} before, {new.mean_fraction:.1%} after"
    median = f"median {old.median_fraction:.1%} before, {new.median_fraction:.1%} after"
    lines = [
        "time per token over the formula's, before and after; no coefficient of the formula moves"
    ]
    lines += [plain_table(header, rows), f"error on these {own_rows.rows} rows: {mean}; {median}"]
    if idle := sum(label.endswith(coefficients.SATURATED) for label in campaigns):
        lines.append(
            f"runs serve requests as they come: rows of saturation, {idle} of these pairs, do not reach them"
        )
    return "\n\n".join(lines)
