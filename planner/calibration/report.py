"""Tables of errors for a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.calibration.check import GROUPS, Check, entries, summary
from planner.catalog.calibration import CalibrationFile, OwnRows
from planner.physics.coefficients import SATURATED, Calibration, groups_of
from planner.physics.uncertainty import NORMAL_90

_TITLES = {
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token",
    "output_tokens_per_s_per_gpu": "output tokens/s per accelerator",
}
_CALIBRATION_TITLES = {
    "tpot_s": "time per output token",
    "ttft_s": "time to first token",
    "output_tokens_per_s_per_accelerator": "output tokens/s per accelerator",
}
MAX_REASONS = 20


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows under a header: the first column to the left, the others to the right."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])


def check_report(check: Check, worst: int) -> str:
    """Return the error tables of a check, its worst rows and what it could not predict."""
    totals = summary(check)
    parts = [f"{totals['predicted']} measurements predicted, {totals['unpredicted']} not, from {totals['rows']} rows"]
    for name, errors in totals["quantities"].items():
        rows = [error_cells("all", errors["all"])]
        rows += [error_cells(label, errors[label]) for label in check.classes if label in errors]
        for group in GROUPS:
            rows += [error_cells(label or "(blank)", members) for label, members in errors[f"by_{group}"].items()]
        parts.append(f"{_TITLES[name]}\n" + table(("", "rows", "mean", "median", "worst", "bias", "within 90%"), rows))
    predicted = [entry for entry in entries(check, worst) if "predicted" in entry]
    if predicted:
        parts.append("worst rows\n" + table(_WORST_HEADER, [_worst_line(entry) for entry in predicted]))
    parts += _reasons(check)
    return "\n\n".join(parts)


_WORST_HEADER = ("run", "row", "quantity", "measured", "predicted", "error", "90% interval")


def _worst_line(entry: dict[str, Any]) -> tuple[str, ...]:
    tp = f"tp{entry['tp']}" if entry["tp"] else "tp?"
    load = f"c{entry['concurrency']:g}" if entry["concurrency"] else entry["scenario"]
    lengths = f"{entry['input_tokens']:g}/{entry['output_tokens']:g}"
    names = [entry[name] or "?" for name in ("model", "accelerator", "engine", "precision")]
    return (
        " ".join([*names, tp, lengths, load]),
        str(entry["row"]),
        entry["quantity"],
        f"{entry['measured']:,.1f}",
        f"{entry['predicted']:,.1f}",
        f"{entry['error_fraction']:+.0%}",
        f"{entry['low']:,.1f} to {entry['high']:,.1f}" if "low" in entry else "",
    )


def _reasons(check: Check) -> list[str]:
    """Return the rows without a prediction, a limited number of them."""
    lines = dict.fromkeys(
        f"row {check.frame.index[place]}: {reason}"
        for place, reason in zip(check.position, check.reason, strict=True)
        if reason
    )
    if not lines:
        return []
    shown = list(itertools.islice(lines, MAX_REASONS))
    more = [f"and {len(lines) - MAX_REASONS} more"] if len(lines) > MAX_REASONS else []
    return ["not predicted\n" + "\n".join([*shown, *more])]


def error_cells(label: str, errors: dict[str, Any]) -> tuple[str, ...]:
    """Return how many rows were predicted, and how well."""
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


def calibration_table(file: CalibrationFile) -> str:
    """Return the errors of a calibration: fitted, and on rows left out of the fit in each way."""
    parts = []
    for name, errors in file.fitted.items():
        rows = []
        for label, fitted in errors.items():
            held = [
                f"{members[name][label].mean_fraction:.1%}" if label in members.get(name, {}) else ""
                for members in file.cross_validated.values()
            ]
            rows.append(
                (label, str(fitted.rows), f"{fitted.mean_fraction:.1%}", f"{fitted.median_fraction:.1%}", *held)
            )
        header = ("", "rows", "mean", "median", *(f"without its {group}" for group in file.cross_validated))
        parts.append(f"{_CALIBRATION_TITLES[name]}\n" + table(header, rows))
    return "\n\n".join(parts)


def update_table(own_rows: OwnRows, before: Calibration, after: Calibration) -> str:
    """Return what one's own rows changed: time per token of each pair over the formula's, and how far it is trusted."""
    campaigns = [label for label in own_rows.groups if label.count(" / ") > 2]  # the others are shares of these
    rows = []
    for label in campaigns:
        model, part, engine, precision, kind = label.split(" / ")
        groups = groups_of(model, part, engine, precision, kind)
        factor = [float(np.exp(calibration.log_effects([groups])[0])) for calibration in (before, after)]
        width = np.sinh(NORMAL_90 * own_rows.groups[label].sigma)
        name = f"{model} {part} {engine} {precision} {kind}"
        told = (f"{factor[0]:.3f}", f"{factor[1]:.3f}", f"{factor[0] / factor[1] - 1:+.1%}", f"±{width:.0%}")
        rows.append((name, str(own_rows.groups[label].rows), *told))
    header = ("pair", "rows", "before", "after", "speed", "90% of that")
    lines = [
        "time per token over the formula's, before and after; no coefficient of the formula moves",
        table(header, rows),
        f"error on these {own_rows.rows} rows: mean {own_rows.error_before.mean_fraction:.1%} before, "
        f"{own_rows.error_after.mean_fraction:.1%} after; median {own_rows.error_before.median_fraction:.1%} before, "
        f"{own_rows.error_after.median_fraction:.1%} after",
    ]
    if idle := sum(label.endswith(SATURATED) for label in campaigns):
        lines.append(f"runs serve requests as they come: rows of saturation, {idle} of these pairs, do not reach them")
    return "\n\n".join(lines)


def throughput_table(records: Sequence[dict[str, Any]]) -> str:
    """Return operating points as a table, one line per case, and below it why some cases cannot be."""
    header = (
        "replica", "in/out", "concurrency", "TTFT ms", "TPOT ms", "tok/s/user", "tok/s/GPU", "90% interval",
        "waits for memory", "measured?",
    )  # fmt: skip
    rows = [
        (
            f"{r['model']} {r['accelerator']} × {r['tp']} {r['engine']} {r['precision']}"
            + (f" attention in {r['attention_dp']}" if r["attention_dp"] > 1 else ""),
            f"{r['input_tokens']:g}/{r['output_tokens']:g}",
            "full" if r["concurrency"] is None else f"{r['concurrency']:.4g}",
            "-" if r["ttft_ms"] is None else f"{r['ttft_ms']:,.0f}",
            f"{r['tpot_ms']:,.1f}",
            f"{r['tokens_per_s_per_user']:,.1f}",
            f"{r['output_tokens_per_s_per_gpu']:,.0f}",
            "" if r["low"] is None else f"{r['low']:,.0f} to {r['high']:,.0f}",
            "yes" if r["memory_limited"] else "",
            r["standing"] or "",
        )
        for r in records
        if r["problem"] is None
    ]
    impossible = [f"{_asked(r)}: {r['problem']}" for r in records if r["problem"] is not None]
    return "\n".join([table(header, rows), *(["", "cannot be:", *impossible] if impossible else [])])


def _asked(record: dict[str, Any]) -> str:
    """Name a case by what was asked for."""
    tp = "" if record["tp"] is None else f" × {record['tp']}"
    names = f"{record['model']} {record['accelerator']}{tp} {record['engine']} {record['precision'] or ''}".rstrip()
    return f"{names}, {record['input_tokens']:g}/{record['output_tokens']:g}"
