"""Calibrating the throughput formula to a benchmark table."""

from __future__ import annotations

import contextlib
import datetime
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from planner.arrays import Bools, Floats
from planner.calibration.clients import predict_by_request
from planner.calibration.first_token import REQUESTS, corrected, factors, fit_effects
from planner.calibration.fit import (
    QUANTITIES,
    REFERENCE_VENDOR,
    Held,
    Measurements,
    cross_validate,
    fit,
    predict_with,
)
from planner.calibration.rows import (
    BenchmarkRows,
    first_token_labels,
    measurements,
    predict_rows,
    prepare,
    specs_of,
)
from planner.calibration.table import DISAGGREGATED_SCENARIO, MAX_PROBLEMS, OPEN_SCENARIOS, read_benchmarks
from planner.catalog.calibration import ByRequest, CalibrationFile, Coverage, Errors, ErrorSpread, PromisedRow
from planner.catalog.load import Catalog, load_catalog
from planner.errors import Problem, ScenarioError, raise_all
from planner.physics.coefficients import COEFFICIENTS, DISAGGREGATED, GROUP_SIGMA, Calibration, prior_calibration
from planner.physics.replica import ReplicaSpec
from planner.physics.uncertainty import DENSE, MIXTURE, NORMAL_90
from planner.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd


FOLDS = 5
"""Parts into which the settings, and the layouts, of all campaigns are dealt, to be left out one at a time."""
ROWS_PER_NUMBER = 10
"""Rows for each number of a refit: below some ten observations per parameter, regressions follow their noise."""
FEWEST_ROWS = 20
"""Rows below which a spread is not measured but taken from the fit's own prior."""
POOL_WIDTH, POOL_SIGMA = 0.2, 0.3
"""Log distance within which rows of separate pools are of one kind, and the prior spread of a campaign's effect."""
_DIGITS = 6
_TIMES = ("tpot_s", "output_tokens_per_s_per_accelerator")


def read_rows(path: Path, catalog: Catalog) -> tuple[pd.DataFrame, BenchmarkRows]:
    """Read a benchmark table to learn from; every row must be one the formula can predict."""
    frame = read_benchmarks(path)
    rows = prepare(frame, catalog)
    problems = [
        Problem(file=str(path), line=int(line), message=reason)
        for line, reason in zip(frame.index, rows.reasons, strict=True)
        if reason
    ]
    raise_all(problems[:MAX_PROBLEMS])
    return frame, rows


def middle_date(texts: Sequence[str]) -> datetime.date | None:
    """Return the median of dates as tables write them: a day, a month (its 15th), or a range (its middle)."""
    days = []
    for text in texts:
        dates = [(int(y), int(m), int(d or 15)) for y, m, d in re.findall(r"(\d{4})-(\d{2})(?:-(\d{2}))?", text)]
        with contextlib.suppress(ValueError):  # no such day: as if none were stated
            days += [sum(datetime.date(*parts).toordinal() for parts in dates) / len(dates)] if dates else []
    return datetime.date.fromordinal(int(sorted(days)[len(days) // 2])) if days else None


def refuse_few_rows(path: Path, data: Measurements) -> None:
    """Refuse to fit the coefficients to fewer rows than they need, and say how many that is."""
    vendors = sorted(set(data.vendor) - {REFERENCE_VENDOR})
    numbers = {
        "common to all": len(COEFFICIENTS),
        **{f"of {engine}": sum(c.engine_sigma > 0 for c in COEFFICIENTS) for engine in sorted(set(data.engine))},
        **{f"of {vendor}": sum(c.vendor_sigma > 0 for c in COEFFICIENTS) for vendor in vendors},
    }
    count = sum(numbers.values())
    if data.rows < count * ROWS_PER_NUMBER:
        told = ", ".join(f"{count} {what}" for what, count in numbers.items())
        message = (
            f"a refit fits {count} numbers ({told}) and each needs {ROWS_PER_NUMBER} rows, so "
            f"{count * ROWS_PER_NUMBER} in all; there are {data.rows}"
        )
        hint = "leave --refit out: your rows then update one number for each pair they measured, from one row on"
        raise ScenarioError(Problem(file=str(path), message=message, hint=hint))


def calibrate(path: Path, cross_validation: bool = True) -> CalibrationFile:
    """Fit the coefficients to a benchmark table; every row must be one the formula can predict."""
    catalog = load_catalog()
    frame, _ = read_rows(path, catalog)
    dates = frame["measured_date"].tolist() if "measured_date" in frame.columns else []
    apart = frame["scenario"] == DISAGGREGATED_SCENARIO
    pools, frame = frame[apart], frame[~apart]
    if len(frame) == 0:
        raise ScenarioError(Problem(file=str(path), message="no row is of a replica that serves its own prompts"))
    rows = prepare(frame, catalog)
    data = measurements(frame, rows, prior_calibration())
    if not any(np.isfinite(data.measured[name]).any() for name in QUANTITIES):
        raise ScenarioError(Problem(file=str(path), message="no row has a measured quantity to fit to"))
    refuse_few_rows(path, data)
    fitted = fit(data)
    specs, _ = specs_of(rows, prior_calibration())
    masks = _masks(specs)
    held, first_token, by_request = {}, dict(fitted.calibration.first_token_log_effect), None
    if cross_validation:
        left_out = _left_out(data, specs)
        held = {name: cross_validate(data, labels, fitted.unknowns) for name, labels in left_out.items()}
        first_token[REQUESTS], by_request = _by_request(frame, rows, fitted.calibration, left_out)
    spread = {name: _spread(held, data, masks[name]) for name in (DENSE, MIXTURE) if held and name in masks}
    groups = dict(fitted.calibration.group_log_effect)
    if len(pools):
        effects, spread_apart = _separate_pools(pools, prepare(pools, catalog), fitted.calibration)
        groups |= effects
        spread |= {DISAGGREGATED: spread_apart} if held else {}
    return CalibrationFile(
        measurements=path.name,
        rows=len(frame) + len(pools),
        measured_on=middle_date(dates),
        common=_rounded(fitted.calibration.common),
        engines={name: _rounded(table) for name, table in fitted.calibration.engine_log_deviation.items()},
        vendors={name: _rounded(table) for name, table in fitted.calibration.vendor_log_deviation.items()},
        groups={name: round(effect, 4) for name, effect in groups.items()},
        first_token={name: dict(effects) for name, effects in first_token.items()},
        spread=spread,
        coverage=_coverage(held["campaign"], data, masks, spread) if held else {},
        fitted=_errors_by(predict_with(data, fitted.calibration), data, masks),
        cross_validated={name: _errors_by(one.predicted, data, masks) for name, one in held.items()},
        by_request=by_request,
    )


def _by_request(
    frame: pd.DataFrame, rows: BenchmarkRows, calibration: Calibration, left_out: Mapping[str, Sequence[str]]
) -> tuple[dict[str, float], ByRequest]:
    """Return what first tokens show beyond their clients' simulation, by group, and the errors of such simulations.

    Rows are left out of those effects alone: the times of a step are those fitted to all rows.
    """
    by_request = predict_by_request(rows, calibration)
    labels = first_token_labels(rows, calibration)
    measured_s = frame["ttft_ms"].to_numpy() * MILLISECOND
    effects = fit_effects(labels, np.log(measured_s / by_request["ttft_s"]))
    errors = {"fitted": np.abs(by_request["ttft_s"] * factors(labels, effects) / measured_s - 1.0)}
    for name in ("setting", "layout", "campaign"):
        label_of_row = np.asarray(left_out[name])
        errors[name] = np.full(len(frame), np.nan)
        for label in dict.fromkeys(left_out[name]):
            out = label_of_row == label
            first_s = corrected(labels, by_request["ttft_s"], measured_s, ~out)
            errors[name][out] = np.abs(first_s / measured_s - 1.0)[out]
    names = ("model", "accelerator", "precision", "scenario", "output_tokens_per_s_per_gpu")
    promised = [
        PromisedRow(
            run=f"{model} on {part}, {precision}, {scenario}", measured=measured, predicted=round(float(predicted), 1)
        )
        for model, part, precision, scenario, measured, predicted in zip(
            *(frame[name].tolist() for name in names), by_request["tokens_per_s_per_accelerator"], strict=True
        )
        if scenario in OPEN_SCENARIOS and np.isfinite(measured * predicted)
    ]
    first_token = {name: _errors(error[np.isfinite(error)]) for name, error in errors.items()}
    return effects, ByRequest(first_token=first_token, promised=tuple(promised))


def _errors(error: Floats) -> Errors:
    """Return how many absolute errors there are, their mean and their median."""
    return Errors(
        rows=error.size,
        mean_fraction=round(float(error.mean()), _DIGITS - 2),
        median_fraction=round(float(np.median(error)), _DIGITS - 2),
    )


def _separate_pools(
    pools: pd.DataFrame, rows: BenchmarkRows, calibration: Calibration
) -> tuple[dict[str, float], ErrorSpread]:
    """Return what each campaign of separate pools shows beyond serving, and the spread of its rows about that.

    Such runs come in two kinds that nothing tells apart, with and without speculative decoding (1.6 times as fast), and
    the coefficients must not learn from a mixture of them. An effect is where most rows lie, not their mean: it
    maximises Σ exp(−((x − g)/0.2)²) − g²/(2·0.3²) over the log ratios x of measured to predicted time per token.
    """
    predicted = predict_rows(rows, calibration)
    log_ratio = np.log(pools["tpot_ms"].to_numpy() * MILLISECOND / predicted["tpot_s"])
    specs, kinds = specs_of(rows, calibration)
    campaigns = np.array([spec.groups(kind).campaign for spec, kind in zip(specs, kinds, strict=True)])
    candidates = np.linspace(-1.0, 1.0, 201)
    effects = {}
    for campaign in dict.fromkeys(campaigns.tolist()):
        ratios = log_ratio[(campaigns == campaign) & np.isfinite(log_ratio)]
        near = np.exp(-(((ratios[:, None] - candidates) / POOL_WIDTH) ** 2)).sum(axis=0)
        effects[campaign] = float(candidates[np.argmax(near - candidates**2 / (2 * POOL_SIGMA**2))])
    setting = _sigma_of(log_ratio - np.array([effects[campaign] for campaign in campaigns]), POOL_SIGMA)
    first_token = _sigma_of(np.log(pools["ttft_ms"].to_numpy() * MILLISECOND / predicted["ttft_s"]), 1.0)
    return effects, ErrorSpread(
        setting=round(setting, 4), layout=0.0, pair=POOL_SIGMA, model=0.2, part=0.1, first_token=round(first_token, 4)
    )


def _masks(specs: Sequence[ReplicaSpec]) -> dict[str, Bools]:
    """Return which rows are of each architecture class, vendor, accelerator, engine and model."""
    mixture = np.array([spec.shape.experts > 0 for spec in specs])
    masks: dict[str, Bools] = {"all": np.ones(len(specs), dtype=bool), DENSE: ~mixture, MIXTURE: mixture}
    for vendor in sorted({spec.part.vendor for spec in specs} - {REFERENCE_VENDOR}):
        theirs = np.array([spec.part.vendor == vendor for spec in specs])
        masks |= {vendor: theirs, f"{vendor} {DENSE}": theirs & ~mixture, f"{vendor} {MIXTURE}": theirs & mixture}
    for labels in (
        [spec.part.name for spec in specs],
        [spec.engine for spec in specs],
        [spec.shape.name for spec in specs],
    ):
        masks |= {label: np.asarray(labels) == label for label in dict.fromkeys(labels)}
    return {name: mask for name, mask in masks.items() if mask.any()}


def _left_out(data: Measurements, specs: Sequence[ReplicaSpec]) -> dict[str, list[str]]:
    """Return the labels of each way to leave rows out: one setting, layout, campaign, model or accelerator at a time.

    A setting is a layout's lengths: its rows differ by concurrency alone and would give each other away.
    """
    lengths = zip(np.atleast_1d(data.traffic.input_tokens), np.atleast_1d(data.traffic.output_tokens), strict=True)
    layouts = [group.layout for group in data.groups]
    settings = [f"{layout} {prompt:g} {output:g}" for layout, (prompt, output) in zip(layouts, lengths, strict=True)]

    def dealt(labels: Sequence[str]) -> list[str]:
        return [str(zlib.crc32(label.encode()) % FOLDS) for label in labels]

    return {
        "setting": dealt(settings),
        "layout": dealt(layouts),
        "campaign": [group.campaign for group in data.groups],
        "model": [spec.shape.measured_as for spec in specs],
        "accelerator": [spec.part.name for spec in specs],
    }


def _errors_by(
    predicted: dict[str, Floats], data: Measurements, masks: Mapping[str, Bools]
) -> dict[str, dict[str, Errors]]:
    """Return errors by quantity, then by every group of rows with some."""
    table: dict[str, dict[str, Errors]] = {}
    for name in QUANTITIES:
        error = np.abs(predicted[name] / data.measured[name] - 1.0)
        known = np.isfinite(error)
        table[name] = {label: _errors(error[known & mask]) for label, mask in masks.items() if (known & mask).any()}
    return table


def _spread(held: Mapping[str, Held], data: Measurements, mask: Bools) -> ErrorSpread:
    """Return what the fits that never saw a row miss it by, told apart by what else they had not seen.

    A spread is that of the normal distribution with the same share within 90%: the 90th percentile of the absolute
    log error over 1.645. What a missing pair, model or part adds is the difference of squares to what was there, times
    one factor by which all three together hold nine in ten rows of campaigns left out.
    """
    setting = _sigma(held["setting"], data, mask & ~held["setting"].unseen[:, 3], GROUP_SIGMA[3])
    by_layout, by_pair = held["layout"].unseen, held["campaign"].unseen
    moved = _sigma(
        held["layout"], data, mask & by_layout[:, 3] & ~by_layout[:, 2], float(np.hypot(setting, GROUP_SIGMA[3]))
    )
    near = _sigma(
        held["campaign"], data, mask & ~by_pair[:, 0] & ~by_pair[:, 1], float(np.hypot(setting, GROUP_SIGMA[2]))
    )
    beyond = []
    for level, name in ((0, "model"), (1, "accelerator")):
        unseen = held[name].unseen
        only = mask & unseen[:, level] & ~unseen[:, 1 - level]
        total = _sigma(held[name], data, only, float(np.hypot(near, GROUP_SIGMA[level])))
        beyond.append(float(np.sqrt(max(total**2 - near**2, 0.0))))
    terms = np.array([*beyond, np.sqrt(max(near**2 - setting**2, 0.0))])
    model, part, pair = (terms * _factor(held["campaign"], data, mask, setting, terms)).tolist()
    first_token = _sigma(held["campaign"], data, mask, 0.5, ("ttft_s",))
    return ErrorSpread(
        setting=round(setting, 4),
        layout=round(float(np.sqrt(max(moved**2 - setting**2, 0.0))), 4),
        pair=round(pair, 4),
        model=round(model, 4),
        part=round(part, 4),
        first_token=round(first_token, 4),
    )


def _factor(held: Held, data: Measurements, mask: Bools, setting: float, terms: Floats) -> float:
    """Return the factor on the terms of model, part and pair at which 90% of left-out rows lie in their intervals.

    A row does where (error/1.645)² ≤ σ_setting² + s²·Σ terms²: each has its own least s², and s² is their 90th
    percentile. Estimated one kind of row at a time, the terms alone held 84% of mixtures.
    """
    errors = np.concatenate([held.log_errors(data, name)[mask] for name in _TIMES])
    added = np.tile(held.unseen[mask][:, : terms.size] @ terms**2, len(_TIMES))
    least = ((errors / NORMAL_90) ** 2 - setting**2) / added
    known = least[np.isfinite(least)]
    return float(np.sqrt(max(np.quantile(known, 0.9), 0.0))) if known.size >= FEWEST_ROWS else 1.0


def _sigma(held: Held, data: Measurements, mask: Bools, prior: float, names: Sequence[str] = _TIMES) -> float:
    """Return the spread of what left-out rows of some quantities are missed by."""
    return _sigma_of(np.concatenate([held.log_errors(data, name)[mask] for name in names]), prior)


def _sigma_of(log_error: Floats, prior: float) -> float:
    """Return the 90th percentile of the absolute log error over 1.645; the prior where there are too few rows."""
    known = log_error[np.isfinite(log_error)]
    if known.size < FEWEST_ROWS:
        return prior
    return float(np.quantile(np.abs(known), 0.9)) / NORMAL_90


def _coverage(
    held: Held, data: Measurements, masks: Mapping[str, Bools], spread: Mapping[str, ErrorSpread]
) -> dict[str, Coverage]:
    """Return how often the intervals of left-out campaigns held what was measured, and how wide they were."""
    sigma = np.zeros(data.rows)
    for name, one in spread.items():
        if name not in masks:  # separate pools: not among these rows
            continue
        terms = np.array([one.model, one.part, one.pair, 0.0]) ** 2  # a campaign without rows has no layout either
        sigma = np.where(masks[name], np.sqrt(one.setting**2 + held.unseen @ terms), sigma)
    table = {}
    for label in (DENSE, MIXTURE, *sorted(set(data.vendor) - {REFERENCE_VENDOR})):
        if label not in masks:
            continue
        errors = np.stack([held.log_errors(data, name) for name in _TIMES])
        known = np.isfinite(errors) & masks[label]
        inside = np.abs(errors) <= NORMAL_90 * sigma
        width = np.broadcast_to(np.sinh(NORMAL_90 * sigma), errors.shape)[known]
        table[label] = Coverage(
            rows=int(known.sum()),
            covered_fraction=round(float(inside[known].mean()), 4),
            median_half_width_fraction=round(float(np.median(width)), 4),
        )
    return table


def _rounded(table: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{number:.{_DIGITS}g}") for name, number in table.items()}
