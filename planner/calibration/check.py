"""Checking the model against measurements: one entry per measured quantity, errors by group, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from planner.arrays import Floats
from planner.calibration.benchmarks import DISAGGREGATED_SCENARIO
from planner.calibration.columns import COLUMNS, MEASURED_COLUMNS, OPTIONAL_COLUMNS
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
    "ttft_ms": "an offline run has no time to first token: its queue is never empty",
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
    quantities = frame[list(MEASURED_COLUMNS)].to_numpy(dtype=float)
    nothing = np.full(len(frame), np.nan)
    measured = np.column_stack([quantities, nothing])
    predicted = np.full_like(measured, np.nan)
    uncertainties: list[coefficients.Uncertainty | None] = [None] * len(frame)
    if (rows.deployment >= 0).any():
        points = predict(rows, calibration)
        predicted[:, 0] = points["ttft_s"] / MILLISECOND
        predicted[:, 1] = points["tpot_s"] / MILLISECOND
        predicted[:, 2] = points["tokens_per_s_per_accelerator"]
        priced = priced_rows(rows, calibration)
        predictable = np.flatnonzero(rows.deployment >= 0)
        for row, spec, kind in zip(predictable, priced.specs, priced.kinds, strict=True):
            uncertainties[row] = spec.uncertainty(calibration, kind)
    # By columns first, so that entries of one quantity stand together.
    is_there = ~np.isnan(measured)
    is_there[:, -1] = ~is_there.any(axis=1)
    column, position = np.nonzero(is_there.T)
    checked = frame.iloc[position].copy()
    names = np.array([*MEASURED_COLUMNS, ""], dtype=object)
    checked["quantity"] = names[column]
    checked["measured"] = measured[position, column]
    value = predicted[position, column]
    # What does not fit into memory is predicted as infinite: a table shows no figure.
    checked["predicted"] = np.where(np.isfinite(value), value, np.nan)
    checked["error_fraction"] = checked["predicted"] / checked["measured"] - 1.0
    entry_uncertainties = [uncertainties[place] for place in position]
    ends = []  # of each entry's 90% interval, over the prediction: a time's slow end is the high one
    for uncertainty, name in zip(entry_uncertainties, checked["quantity"], strict=True):
        # Of a prediction of one: the interval's ends are then factors.
        slow = np.nan
        fast = np.nan
        if uncertainty is not None:
            slow, fast = uncertainty.interval(1.0)
        if uncertainty is not None and name == "ttft_ms":
            error = uncertainty.first_token
            log_ends = NORMAL_90 * np.array([-error, error])
            slow, fast = np.exp(log_ends)
        ends.append((1.0 / fast, 1.0 / slow) if name == "tpot_ms" else (slow, fast))
    pairs = np.array(ends).reshape(-1, 2)
    low, high = pairs.T
    checked["low"] = checked["predicted"] * low
    checked["high"] = checked["predicted"] * high
    experts = [d.shape.experts > 0 for d in rows.deployments]
    mixtures = np.array(experts or [False])
    is_served = rows.deployment[position] >= 0
    is_mixture = mixtures[rows.deployment][position] & is_served
    is_disaggregated = checked["scenario"] == DISAGGREGATED_SCENARIO
    # Disaggregated first: such a deployment may also serve a mixture.
    checked["kind"] = np.select([is_disaggregated, is_mixture], [DISAGGREGATED, MIXTURE], DENSE)
    checked["standing"] = [
        "" if uncertainty is None else uncertainty.in_words() for uncertainty in entry_uncertainties
    ]
    checked["reason"] = [
        rows.reasons[place] or ("" if np.isfinite(number) else _WHY_NOT.get(name, _NO_ROOM))
        for place, name, number in zip(position, checked["quantity"], value, strict=True)
    ]
    return checked


def entries(checked: pd.DataFrame, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield one JSON-ready entry per measured quantity, worst error first, unpredicted entries last."""
    # A stable sort of the negative size: worst first, ties as in the file, no prediction last.
    size = np.abs(checked["error_fraction"].to_numpy())
    worst_first = -np.nan_to_num(size, nan=-1.0)
    order = np.argsort(worst_first, kind="stable")
    rows = checked.iloc[order[:limit]]
    names = [name for name in checked.columns if name in COLUMNS or name in OPTIONAL_COLUMNS]
    records = rows.to_dict("records")
    for line, row in zip(rows.index, records, strict=True):
        entry = {"row": int(line)}
        stated = (*names, "quantity", "measured")
        entry |= {name: _plain(row[name]) for name in stated}
        keys = ["predicted", "error_fraction"]
        if row["standing"]:
            keys += ["low", "high", "standing"]
        if row["reason"]:
            keys = ["reason"]
        yield entry | {key: row[key] for key in keys}


def _plain(cell: Any) -> Any:
    """Return a cell as JSON has it: whole numbers without a point, blanks as None."""
    if not isinstance(cell, float):
        return cell or None
    if np.isnan(cell):
        return None
    if cell.is_integer():
        return int(cell)
    return cell


def summary(checked: pd.DataFrame) -> dict[str, Any]:
    """Return errors by quantity: overall, and by architecture."""
    is_compared = checked["predicted"].notna() & checked["measured"].notna()
    predicted = checked[is_compared]
    quantities: dict[str, Any] = {}
    for name in MEASURED_COLUMNS:
        chosen = predicted[predicted["quantity"] == name]
        if chosen.empty:
            continue
        by_kind = {kind: chosen[chosen["kind"] == kind] for kind in KINDS}
        parts = {"all": chosen} | by_kind
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
    has_interval = chosen["low"].notna()
    is_inside = chosen["measured"].between(chosen["low"], chosen["high"])
    # Rows of a pair that was never measured have no interval, and say nothing of coverage.
    covered = None
    if has_interval.any():
        covered = float(is_inside[has_interval].mean())
    return {
        "count": int(size.size),
        "mean_absolute_error_fraction": float(size.mean()),
        "median_absolute_error_fraction": float(np.median(size)),
        "worst_absolute_error_fraction": float(size.max()),
        "bias_fraction": float(error.mean()),
        "within_interval_fraction": covered,
    }


def error_cells(label: str, errors: dict[str, Any]) -> tuple[str, ...]:
    """Return the number of predicted rows and their errors, as cells under ``ERROR_HEADER``."""
    covered = errors["within_interval_fraction"]
    return (
        label,
        str(errors["count"]),
        f"{errors['mean_absolute_error_fraction']:.1%}",
        f"{errors['median_absolute_error_fraction']:.1%}",
        f"{errors['worst_absolute_error_fraction']:.0%}",
        f"{errors['bias_fraction']:+.1%}",
        "" if covered is None else f"{covered:.0%}",
    )


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a text table: the first column left-aligned, the others right-aligned."""
    columns = zip(header, *rows, strict=True)
    widths = [max(map(len, cells)) for cells in columns]

    def line(cells: Sequence[str]) -> str:
        padded = list(map(str.rjust, cells, widths))
        padded[0] = cells[0].ljust(widths[0])
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(header), rule, *map(line, rows)])


def check_report(checked: pd.DataFrame, worst: int) -> str:
    """Return the error tables of a check, its worst rows and the rows it could not predict."""
    totals = summary(checked)
    parts = [
        f"{totals['predicted']} measurements predicted, {totals['unpredicted']} not, from {totals['rows']} rows"
    ]
    for name, errors in totals["quantities"].items():
        labels = [label for label in ("all", *KINDS) if label in errors]
        rows = [error_cells(label, errors[label]) for label in labels]
        title = QUANTITY_TITLES[name.partition("_")[0]]
        parts.append(f"{title}\n" + plain_table(ERROR_HEADER, rows))
    predicted = []
    for entry in entries(checked, worst):
        if "predicted" not in entry:
            continue
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
        line_number = str(entry["row"])
        predicted.append((run, line_number, entry["quantity"], *numbers, interval))
    if predicted:
        header = ("run", "row", "quantity", "measured", "predicted", "error", "90% interval")
        parts.append("worst rows\n" + plain_table(header, predicted))
    # A row with three quantities has its reason once.
    lines = dict.fromkeys(
        f"row {line}: {reason}" for line, reason in checked["reason"].items() if reason
    )
    if lines:
        reasons = list(lines)
        if len(reasons) > _MAX_REASONS:
            omitted = len(reasons) - _MAX_REASONS
            reasons[_MAX_REASONS:] = [f"and {omitted} more"]
        parts.append("not predicted\n" + "\n".join(reasons))
    return "\n\n".join(parts)


def update_table(own_rows: OwnRows, prior: Calibration, updated: Calibration) -> str:
    """Return a table of the user's own pairs: time per token over the formula's before and after, and its interval."""
    # Labels of campaigns and of their layouts have all names; those with fewer are shares of campaigns.
    pairs = [label for label in own_rows.groups if label.count(" / ") > 2]
    rows = []
    idle = 0
    for label in pairs:
        model, part, engine, precision, kind, *layouts = label.split(" / ")
        # A campaign's label ends in its kind.
        layout = layouts[0] if layouts else coefficients.ANY_LAYOUT
        idle += kind == coefficients.SATURATED and not layouts
        groups = coefficients.groups_of(model, part, engine, precision, kind, layout)
        update = own_rows.groups[label]
        # Effects are logarithms of time per token.
        old_effect = prior.log_effects([groups])[0]
        old_factor = float(np.exp(old_effect))
        new_effect = updated.log_effects([groups])[0]
        new_factor = float(np.exp(new_effect))
        cells = (
            label.replace(" / ", " "),
            str(update.rows),
            f"{old_factor:.3f}",
            f"{new_factor:.3f}",
            f"{old_factor / new_factor - 1:+.1%}",
            f"±{np.sinh(NORMAL_90 * update.sigma):.0%}",
        )
        rows.append(cells)
    header = ("pair", "rows", "before", "after", "speed", "90% of that")
    old = own_rows.error_before
    new = own_rows.error_after
    mean = f"mean {old.mean_fraction:.1%} before, {new.mean_fraction:.1%} after"
    median = f"median {old.median_fraction:.1%} before, {new.median_fraction:.1%} after"
    lines = [
        "Time per token divided by the formula's, before and after. The formula's own coefficients stay the same."
    ]
    errors = f"error on these {own_rows.rows} rows: {mean}; {median}"
    lines += [plain_table(header, rows), errors]
    if idle:
        lines.append(
            f"{idle} of these pairs were measured at saturation; plans, which serve requests as they come, ignore them."
        )
    return "\n\n".join(lines)
