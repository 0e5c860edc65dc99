"""Calibration of the throughput formula: a new fit to a large table, or an update by a few rows.

An update is partial pooling of what groups of measurements show. A row's log time per token over the formula's is the
sum of the effects of its model, its part and its campaign, plus noise: y = H·u + e. Before the rows, an effect u is
normal about what the calibration says of it, with the spread that cross-validation found for a model, part or pair
never measured; a pair that was measured may still drift by what engine versions do. After them it is normal with

    covariance P = (Λ⁻¹ + Hᵀ·R⁻¹·H)⁻¹,   mean P·Hᵀ·R⁻¹·y

so that one row moves a pair by τ²/(τ² + σ²) of what it shows, and many rows by nearly all of it. No coefficient of the
formula moves: those need the hundreds of rows that a refit asks for.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from planner.arrays import Bools, Floats
from planner.calibration import fit as fitting
from planner.calibration import predictions
from planner.calibration.benchmarks import DISAGGREGATED_SCENARIO, MAX_PROBLEMS, OPEN_SCENARIOS, read_benchmarks
from planner.catalog import calibration as records
from planner.catalog.load import Catalog, load_catalog
from planner.errors import Problem, ScenarioError, raise_all
from planner.physics import coefficients
from planner.physics.coefficients import COEFFICIENTS, DENSE, MIXTURE, NORMAL_90, Calibration
from planner.physics.replica import ReplicaSpec
from planner.units import MILLISECOND

_FOLDS = 5
"""Parts into which the settings, and the layouts, of all campaigns are dealt, to be left out one at a time."""
_ROWS_PER_NUMBER = 10
"""Rows for each number of a refit: below some ten observations per parameter, regressions follow their noise."""
_FEWEST_ROWS = 20
"""Rows below which a spread is not measured but taken from the fit's own prior."""
_POOL_WIDTH, _POOL_SIGMA = 0.2, 0.3
"""Log distance within which rows of separate pools are of one kind, and the prior spread of a campaign's effect."""
_TIMES = ("tpot_s", "output_tokens_per_s_per_accelerator")
_TERMS = ("setting", "layout", "pair", "model", "part")
_SPREAD = {DENSE: (0.085, 0.053, 0.065, 0.106, 0.032), MIXTURE: (0.11, 0.15, 0.153, 0.226, 0.0)}
"""What intervals are made of by class of models: with these they hold 85% or more of the shipped table's rows of every
vendor, whatever is left out. Dense models of vendors whose rows mix engine versions need the next line's."""
_MIXED_VERSIONS = (0.11, 0.08, 0.116, 0.15, 0.032)
BANDS = {"1 to 4": (0.0, 4.0), "5 to 16": (4.0, 16.0), "17 to 64": (16.0, 64.0), "65 to 256": (64.0, 256.0)}
BANDS |= {"above 256": (256.0, np.inf)}
"""Requests in a replica, by which biases are told apart: above the one and up to the other."""


def calibrate(path: Path, catalog: Catalog | None = None, cross_validation: bool = True) -> records.CalibrationFile:
    """Return the coefficients fitted to a benchmark table, every row of which must be predictable."""
    catalog = catalog or load_catalog()
    frame = _read_rows(path, catalog)
    dates = frame["measured_date"].tolist() if "measured_date" in frame.columns else []
    apart = frame["scenario"] == DISAGGREGATED_SCENARIO
    pools, frame = frame[apart], frame[~apart]
    if len(frame) == 0:
        raise ScenarioError(Problem(file=str(path), message="no row is of a replica that serves its own prompts"))
    rows = predictions.prepare(frame, catalog)
    data = fitting.measurements(frame, rows, coefficients.prior_calibration())
    if not any(np.isfinite(data.measured[name]).any() for name in fitting.QUANTITIES):
        raise ScenarioError(Problem(file=str(path), message="no row has a measured quantity to fit to"))
    vendors = sorted(set(data.vendor) - {coefficients.REFERENCE_VENDOR})
    numbers = {"common to all": len(COEFFICIENTS)}
    numbers |= {f"of {engine}": sum(c.engine_sigma > 0 for c in COEFFICIENTS) for engine in sorted(set(data.engine))}
    numbers |= {f"of {vendor}": sum(c.vendor_sigma > 0 for c in COEFFICIENTS) for vendor in vendors}
    needed = sum(numbers.values()) * _ROWS_PER_NUMBER
    if data.rows < needed:
        told = f"{sum(numbers.values())} numbers ({', '.join(f'{count} {what}' for what, count in numbers.items())})"
        told = f"a refit fits {told} and each needs {_ROWS_PER_NUMBER} rows, so {needed} in all"
        hint = "leave --refit out: your rows then update one number for each pair they measured, from one row on"
        raise ScenarioError(Problem(file=str(path), message=f"{told}; there are {data.rows}", hint=hint))
    fitted = fitting.fit(data)
    specs = predictions.priced_rows(rows, coefficients.prior_calibration()).specs
    masks = _masks(specs)
    held, first_token, by_request = {}, dict(fitted.calibration.first_token_log_effect), None
    if cross_validation:
        # A setting is a layout's lengths: its rows differ by concurrency alone and would give each other away.
        layouts, lengths = [group.layout for group in data.groups], (frame["input_tokens"], frame["output_tokens"])
        settings = [f"{layout} {i:g} {o:g}" for layout, i, o in zip(layouts, *lengths, strict=True)]
        left_out = {
            "setting": [str(zlib.crc32(label.encode()) % _FOLDS) for label in settings],
            "layout": [str(zlib.crc32(label.encode()) % _FOLDS) for label in layouts],
            "campaign": [group.campaign for group in data.groups],
            "model": [spec.shape.measured_as for spec in specs],
            "accelerator": [spec.part.name for spec in specs],
            "model on a vendor": [f"{spec.shape.measured_as} {spec.part.vendor}" for spec in specs],
            "engine on a vendor": [f"{spec.engine} {spec.part.vendor}" for spec in specs],
        }
        held = {name: fitting.cross_validate(data, labels, fitted.unknowns) for name, labels in left_out.items()}
        first_token[predictions.REQUESTS], by_request = _by_request(frame, rows, fitted.calibration, left_out)
    stated = {**_SPREAD, **dict.fromkeys((f"{vendor} {DENSE}" for vendor in vendors), _MIXED_VERSIONS)}
    spread = {}
    for name, terms in stated.items() if held else ():
        log_error = held["campaign"].log_errors(data, "ttft_s")[masks.get(name, masks["all"])]
        first = round(_sigma(log_error, 0.5), 4)
        spread[name] = records.ErrorSpread(**dict(zip(_TERMS, terms, strict=True)), first_token=first)
    groups = dict(fitted.calibration.group_log_effect)
    drafting: dict[str, float] = {}
    if len(pools):
        effects, drafting, spread_apart = _disaggregated(pools, predictions.prepare(pools, catalog), fitted.calibration)
        groups |= effects
        spread |= {coefficients.DISAGGREGATED: spread_apart} if held else {}
    cells = {
        f"{vendor} {label}": masks[label] & (np.asarray(data.vendor) == vendor)
        for vendor in dict.fromkeys(data.vendor)
        for label in (DENSE, MIXTURE)
        if label in masks
    }
    return records.CalibrationFile(
        measurements=path.name,
        rows=len(frame) + len(pools),
        measured_on=middle_date(dates),
        common=_rounded(fitted.calibration.common),
        engines={name: _rounded(table) for name, table in fitted.calibration.engine_log_deviation.items()},
        vendors={name: _rounded(table) for name, table in fitted.calibration.vendor_log_deviation.items()},
        groups={name: round(effect, 4) for name, effect in groups.items()},
        drafted=drafting,
        first_token={name: dict(effects) for name, effects in first_token.items()},
        spread=spread,
        coverage={name: _coverage(one, data, specs, cells, spread) for name, one in held.items()},
        bias=_biases(held["campaign"], data, specs, cells) if held else {},
        fitted=_errors_by(fitting.predict_with(data, fitted.calibration), data, masks),
        cross_validated={name: _errors_by(one.predicted, data, masks) for name, one in held.items()},
        by_request=by_request,
    )


def _read_rows(path: Path, catalog: Catalog) -> pd.DataFrame:
    """Return a benchmark table for fitting, every row of which must be predictable."""
    frame = read_benchmarks(path)
    problems = [
        Problem(file=str(path), line=int(line), message=reason)
        for line, reason in zip(frame.index, predictions.prepare(frame, catalog).reasons, strict=True)
        if reason
    ]
    raise_all(problems[:MAX_PROBLEMS])
    return frame


def middle_date(texts: Sequence[str]) -> datetime.date | None:
    """Return the median of dates as tables write them: a day, a month (its 15th), or a range (its middle)."""
    days = []
    for text in texts:
        named = predictions.days_of(text)
        days += [sum(named) / len(named)] if named else []
    return datetime.date.fromordinal(int(sorted(days)[len(days) // 2])) if days else None


def _masks(specs: Sequence[ReplicaSpec]) -> dict[str, Bools]:
    """Return which rows belong to each architecture class, vendor, accelerator, engine and model."""
    mixture = np.array([spec.shape.experts > 0 for spec in specs])
    masks: dict[str, Bools] = {"all": np.ones(len(specs), dtype=bool), DENSE: ~mixture, MIXTURE: mixture}
    for vendor in sorted({spec.part.vendor for spec in specs} - {coefficients.REFERENCE_VENDOR}):
        theirs = np.array([spec.part.vendor == vendor for spec in specs])
        masks |= {vendor: theirs, f"{vendor} {DENSE}": theirs & ~mixture, f"{vendor} {MIXTURE}": theirs & mixture}
    names = ([spec.part.name, spec.engine, spec.shape.name] for spec in specs)
    for labels in zip(*names, strict=True):
        masks |= {label: np.asarray(labels) == label for label in dict.fromkeys(labels)}
    return {name: mask for name, mask in masks.items() if mask.any()}


def _by_request(
    frame: pd.DataFrame,
    rows: predictions.BenchmarkRows,
    calibration: Calibration,
    left_out: Mapping[str, Sequence[str]],
) -> tuple[dict[str, float], records.ByRequest]:
    """Return TTFT effects by group beyond the request-level simulation, and the simulation's errors.

    Rows are left out of those effects alone: the times of a step are those fitted to all rows.
    """
    by_request = predictions.predict_by_request(rows, calibration)
    labels = predictions.first_token_labels(rows, predictions.priced_rows(rows, calibration))
    measured_s, predicted_s = frame["ttft_ms"].to_numpy() * MILLISECOND, by_request["ttft_s"]
    log_ratio = np.log(measured_s / predicted_s)
    effects = predictions.fit_effects(labels, log_ratio)
    errors = {"fitted": np.abs(predicted_s * predictions.factors(labels, effects) / measured_s - 1.0)}
    for name in ("setting", "layout", "campaign"):
        label_of_row = np.asarray(left_out[name])
        errors[name] = np.full(len(frame), np.nan)
        for label in dict.fromkeys(left_out[name]):
            out = label_of_row == label
            without = predictions.fit_effects(labels, np.where(out, np.nan, log_ratio))
            first_s = predicted_s * predictions.factors(labels, without)
            errors[name][out] = np.abs(first_s / measured_s - 1.0)[out]
    names = ("model", "accelerator", "precision", "scenario", "output_tokens_per_s_per_gpu")
    columns = (*(frame[name].tolist() for name in names), by_request["tokens_per_s_per_accelerator"])
    targeted = []
    for model, part, precision, scenario, measured, predicted in zip(*columns, strict=True):
        if scenario in OPEN_SCENARIOS and np.isfinite(measured * predicted):
            run, tokens = f"{model} on {part}, {precision}, {scenario}", round(float(predicted), 1)
            targeted.append(records.SloRow(run=run, measured=measured, predicted=tokens))
    first_token = {name: _errors(error[np.isfinite(error)]) for name, error in errors.items()}
    return effects, records.ByRequest(first_token=first_token, within_slo=tuple(targeted))


def _disaggregated(
    pools: pd.DataFrame, rows: predictions.BenchmarkRows, calibration: Calibration
) -> tuple[dict[str, float], dict[str, float], records.ErrorSpread]:
    """Return each disaggregated campaign's effect beyond colocated serving, its share of drafting runs, and the spread.

    Such runs come in two kinds that nothing tells apart, with and without drafted tokens, and no coefficient must learn
    from a mixture of them. Of a campaign with the effect g and the share s, the log ratio x of measured to predicted
    time per token lies about g, or about g less what drafts gain in that row, d: g and s maximise

        Σ ln((1 − s)·φ((x − g)/0.2) + s·φ((x − g + d)/0.2) + 0.1) − g²/(2·0.3²) − s,   φ(z) = exp(−z²/2)

    Where workers are not stated the batch of a row is a guess, and so is what drafts gain: s is then 0.
    """
    plain, drafted = (predictions.predict_rows(one, calibration) for one in (rows, predictions.drafting(rows)))
    log_ratio = np.log(pools["tpot_ms"].to_numpy() * MILLISECOND / plain["tpot_s"])
    gain = np.log(plain["tpot_s"] / drafted["tpot_s"])
    campaigns = np.array([groups.campaign for groups in predictions.priced_rows(rows, calibration).groups])
    grid = np.linspace(-1.0, 1.0, 101)
    effects, drafting, middle = dict[str, float](), dict[str, float](), np.zeros(len(pools))
    for campaign in dict.fromkeys(campaigns.tolist()):
        known = (campaigns == campaign) & np.isfinite(log_ratio)
        off = log_ratio[known, None] - grid
        without, with_drafts = (np.exp(-0.5 * (x / _POOL_WIDTH) ** 2) for x in (off, off + gain[known, None]))
        shares = np.zeros(1) if campaign.endswith(coefficients.UNSTATED) else np.linspace(0.0, 1.0, 11)
        likely = np.array([np.log((1.0 - s) * without + s * with_drafts + 0.1).sum(axis=0) - s for s in shares])
        share, place = np.unravel_index(np.argmax(likely - grid**2 / (2 * _POOL_SIGMA**2)), likely.shape)
        effects[campaign], drafting[campaign] = float(grid[place]), float(shares[share])
        middle[campaigns == campaign] = grid[place] - shares[share] * gain[campaigns == campaign]
    setting = _sigma(log_ratio - middle, _POOL_SIGMA)
    first_token = _sigma(np.log(pools["ttft_ms"].to_numpy() * MILLISECOND / plain["ttft_s"]), 1.0)
    spread = records.ErrorSpread(
        setting=round(setting, 4), layout=0.0, pair=_POOL_SIGMA, model=0.2, part=0.1, first_token=round(first_token, 4)
    )
    return effects, {name: round(share, 4) for name, share in drafting.items() if share > 0.0}, spread


def _coverage(
    held: fitting.Held,
    data: fitting.Measurements,
    specs: Sequence[ReplicaSpec],
    cells: Mapping[str, Bools],
    spreads: Mapping[str, records.ErrorSpread],
) -> dict[str, records.Coverage]:
    """Return by cell how often intervals of left-out rows held what was measured, and how wide they were."""
    ends = []
    for spec, (model, part, pair, layout, *_, new) in zip(specs, held.unseen.tolist(), strict=True):
        label = MIXTURE if spec.shape.experts else DENSE
        one = spreads.get(f"{spec.part.vendor} {label}", spreads[label])
        begins_at, _ = spec.part.bring_up.get(spec.engine, (1.0, 0.0))
        lag = coefficients.lag_sigma(begins_at) if new and pair and spec.shape.experts else 0.0
        near = float(np.hypot(one.setting, one.pair if pair else one.layout * layout))
        ends.append(coefficients.Doubt(near, one.model * model, one.part * part, 0.0, False, lag).interval(1.0))
    low, high = np.array(ends).T
    faster = np.exp([sign * held.log_errors(data, name) for name, sign in zip(_TIMES, (1.0, -1.0), strict=True)])
    inside, width = (faster >= low) & (faster <= high), np.broadcast_to(0.5 * (high - low), faster.shape)
    table = {}
    for label, mask in cells.items():
        known = np.isfinite(faster) & mask
        if known.any():
            table[label] = records.Coverage(
                rows=int(known.sum()),
                covered_fraction=round(float(inside[known].mean()), 4),
                median_half_width_fraction=round(float(np.median(width[known])), 4),
            )
    return table


def _biases(
    held: fitting.Held, data: fitting.Measurements, specs: Sequence[ReplicaSpec], cells: Mapping[str, Bools]
) -> dict[str, records.Bias]:
    """Return the signed median error of time per token on left-out rows, by cell, precision and concurrency."""
    error = np.expm1(held.log_errors(data, "tpot_s"))
    precisions = np.array([spec.precision for spec in specs])
    table = {}
    for (label, mask), precision in itertools.product(cells.items(), sorted(set(precisions.tolist()))):
        for band, (above, most) in BANDS.items():
            known = mask & (precisions == precision) & np.isfinite(error)
            known &= (data.concurrency > above) & (data.concurrency <= most)
            if known.any():
                cell, median = f"{label} {precision}, {band} at once", round(float(np.median(error[known])), 4)
                table[cell] = records.Bias(rows=int(known.sum()), median_fraction=median)
    return table


def _sigma(log_error: Floats, prior: float) -> float:
    """Return the 90th percentile of the absolute log error over 1.645; the prior for too few rows."""
    known = log_error[np.isfinite(log_error)]
    return float(np.quantile(np.abs(known), 0.9)) / NORMAL_90 if known.size >= _FEWEST_ROWS else prior


def _errors_by(
    predicted: dict[str, Floats], data: fitting.Measurements, masks: Mapping[str, Bools]
) -> dict[str, dict[str, records.Errors]]:
    """Return errors by quantity, then by every group of rows with some."""
    table = {}
    for name in fitting.QUANTITIES:
        error = np.abs(predicted[name] / data.measured[name] - 1.0)
        known = {label: error[mask & np.isfinite(error)] for label, mask in masks.items()}
        table[name] = {label: _errors(some) for label, some in known.items() if some.size}
    return table


def _errors(error: Floats) -> records.Errors:
    """Return number, mean and median of absolute errors."""
    mean, median = round(float(error.mean()), 4), round(float(np.median(error)), 4)
    return records.Errors(rows=error.size, mean_fraction=mean, median_fraction=median)


def _rounded(table: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{number:.6g}") for name, number in table.items()}


_DRIFT_PRIOR = "engine_version_drift"
"""The catalogue's prior of how far versions of an engine lie apart on a pair that was measured."""
_ROUNDS = 4  # throughput within an objective is not proportional to speed: the slope is taken again where it landed
_STEP = 0.02


def update_calibration(
    path: Path, base: records.CalibrationFile, catalog: Catalog | None = None
) -> records.CalibrationFile:
    """Return the calibration with group effects updated by a table of the user's own rows."""
    catalog = catalog or load_catalog()
    frame = _read_rows(path, catalog)
    before = base.calibration()
    if not before.spread:
        raise ScenarioError("the calibration to update has no spread: it was written without cross-validation")
    # A row shows its time per token or, where that is blank, its inverse throughput.
    time = np.log(frame["tpot_ms"].to_numpy() * MILLISECOND)
    measured = np.where(np.isfinite(time), time, -np.log(frame["output_tokens_per_s_per_gpu"].to_numpy()))
    used = np.isfinite(measured)
    if not used.any():
        message = "no row has a tpot_ms or output_tokens_per_s_per_gpu to learn from"
        raise ScenarioError(Problem(file=str(path), message=message))
    rows, measured, is_time = predictions.prepare(frame[used], catalog), measured[used], np.isfinite(time[used])

    def predicted(calibration: Calibration) -> Floats:
        point = predictions.predict_rows(rows, calibration)
        return np.where(is_time, np.log(point["tpot_s"]), -np.log(point["tokens_per_s_per_accelerator"]))

    priced = predictions.priced_rows(rows, before)
    groups = priced.groups
    spreads = []
    for spec, kind in zip(priced.specs, priced.kinds, strict=True):
        stated = before.class_spread(spec.part.vendor, spec.shape.experts > 0)
        stated = before.spread[coefficients.DISAGGREGATED] if kind.endswith(coefficients.DISAGGREGATED) else stated
        assert stated is not None, "a calibration with a spread states it for dense models and mixtures"
        spreads.append(stated)
    drift, prior = catalog.prior(_DRIFT_PRIOR).base, dict[str, float]()  # the spread of each effect that rows may move
    for group, spread in zip(groups, spreads, strict=True):
        # What was measured of a model or a part in general stays; of this very pair, versions still drift.
        terms = ((group.model, spread.model, 0.0), (group.part, spread.part, 0.0), (group.campaign, spread.pair, drift))
        for label, unmeasured, known in terms:
            likely = known if label in before.group_log_effect else unmeasured
            if (likely := before.group_log_sigma.get(label, likely)) > 0.0:
                prior[label] = max(prior.get(label, 0.0), likely)
    labels, sigma = list(prior), np.array(list(prior.values()))
    inside = np.array([[float(label in group) for label in labels] for group in groups])
    noise = np.array([spread.setting for spread in spreads]) / fitting.weights(groups)
    mean, covariance = np.zeros(len(labels)), np.diag(sigma**2)
    for _ in range(_ROUNDS):
        here = _shifted(before, labels, mean)
        at_mean = predicted(here)
        further = predicted(_shifted(here, list({group.campaign for group in groups}), _STEP))
        slope = inside * ((further - at_mean) / _STEP)[:, None]
        mean, covariance = posterior(slope, measured - at_mean + slope @ mean, noise, sigma)
    after = _shifted(before, labels, mean)
    # Rows show the sum of a pair's effects better than each of them, so a campaign carries the spread of that sum.
    by_campaign = {group.campaign: row for group, row in zip(groups, inside, strict=True)}
    counts = Counter(label for group in groups for label in group)
    updates = {}
    for label, unit in zip(labels, np.eye(len(labels)), strict=True):
        along = by_campaign.get(label, unit)
        updates[label] = records.GroupUpdate(
            rows=counts[label],
            before=round(before.group_log_effect.get(label, 0.0), 4),
            after=round(after.group_log_effect[label], 4),
            sigma=round(float(np.sqrt(along @ covariance @ along)), 4),
        )
    own_rows = records.OwnRows(
        measurements=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        rows=len(groups),
        groups=updates,
        error_before=_errors(np.abs(np.expm1(predicted(before) - measured))),
        error_after=_errors(np.abs(np.expm1(predicted(after) - measured))),
    )
    effects = base.groups | {name: update.after for name, update in updates.items()}
    return base.model_copy(update={"groups": effects, "own": own_rows})


def posterior(slope: Floats, shown: Floats, noise: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return mean and covariance of normal effects given rows with design ``slope``, shape (rows, effects).

    ``noise`` and ``prior`` are standard deviations, shapes (rows,) and (effects,).
    """
    scaled = slope / noise[:, None] ** 2
    covariance: Floats = np.asarray(np.linalg.inv(np.diag(prior**-2.0) + slope.T @ scaled), dtype=np.float64)
    return covariance @ (scaled.T @ shown), covariance


def _shifted(calibration: Calibration, labels: Sequence[str], by: Floats | float) -> Calibration:
    """Return a calibration with some effects changed."""
    start, moves = calibration.group_log_effect, np.broadcast_to(by, len(labels)).tolist()
    effects = {**start, **{name: start.get(name, 0.0) + move for name, move in zip(labels, moves, strict=True)}}
    return dataclasses.replace(calibration, group_log_effect=effects)
