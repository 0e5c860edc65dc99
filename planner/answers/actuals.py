"""Months that happened beside the plan: tables, summary, text, the sections of the report, and the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers.actuals_report import BESIDE, beside
from planner.answers.answer import Answer
from planner.answers.report import answer_files
from planner.answers.run import scenario_identity
from planner.answers.tables import tables_of
from planner.arrays import Floats
from planner.finance.bridge import VARIANCE_CAUSE_MEANINGS, VARIANCE_CAUSES, to_the_cent
from planner.finance.ledger import Account
from planner.output.folder import Contents, write_folder
from planner.output.tables import DEFAULT_FORMAT, SCHEMA_VERSION, CsvFormat, Table, cents_column
from planner.output.terminal import signed, text_table, wrapped
from planner.output.words import input_words
from planner.reforecast import (
    COST,
    FORECAST,
    SLO,
    ActualsReview,
    effective,
    is_cost,
    weighted_quantiles,
)
from planner.scenario.actuals import Seen
from planner.units import MILLION

ACTUALS_TABLES = tables_of(
    "actuals",
    {
        "variance": [
            cents_column(f"{cause}_usd", meaning)
            for cause, meaning in VARIANCE_CAUSE_MEANINGS.items()
        ]
    },
)
"""The files in which months that happened are held against a plan, by their names."""

_BAND = np.array([0.05, 0.5, 0.95])
_DECILES = np.array([0.1, 0.5, 0.9])
CHANCE = "chance and curvature"
PAID = "prices paid for machines"
_AGES = ("posterior", "prior")
_SHOWN = 6
"""Months before and after the last one seen that a terminal shows."""
FEW_EFFECTIVE = 20
"""Effective replications below which a forecast says that it rests on few."""


def forecast_rows(held: ActualsReview) -> Table:
    """Return forecast_monthly.csv."""
    rows: list[Sequence[Any]] = []
    for series in FORECAST:
        budget = held.budget[held.seen.index(series)]
        old = _old(held, series)
        count = len(held.actuals.months)
        actual = np.full(budget.shape, np.nan)
        actual[:count] = held.actuals.series.get(series, np.nan)
        if series == COST and (costs := _costs(held)):  # the other accounts as budgeted
            actual[:count] = budget[:count] + sum(
                actual - held.budget[place, :count] for place, actual in costs
            )
        prior = weighted_quantiles(old, np.ones(len(old)), _BAND)
        posterior = weighted_quantiles(_new(held, series), held.forecast.weights, _BAND)
        months = zip(
            held.result.plan.months.labels, budget, actual, *prior, *posterior, strict=True
        )
        rows += [(series.name, *month) for month in months]
    return ACTUALS_TABLES["forecast_monthly"].of_rows(rows)


def _costs(held: ActualsReview) -> list[tuple[int, Floats]]:
    """Return the cost accounts reported: place among the series, and amounts by month."""
    accounts = [
        (seen, happened) for seen, happened in held.actuals.series.items() if seen.kind == "account"
    ]
    return [
        (held.seen.index(seen), happened)
        for seen, happened in accounts
        if is_cost(Account(seen.name))
    ]


def _old(held: ActualsReview, series: Seen) -> Floats:
    """Return a series before the months seen, shape (replications, months)."""
    return np.asarray(held.forecast.old.monthly[:, held.seen.index(series)])


def _new(held: ActualsReview, series: Seen) -> Floats:
    """Return a series after them, what happened in its place, shape (replications, months).

    Of cost, the accounts reported are replaced, and machines already bought are at the prices paid.
    """
    table = held.forecast.new.monthly[:, held.seen.index(series)].copy()
    count = len(held.actuals.months)
    if series in held.actuals.series:
        happened = held.actuals.series[series]
        table[:, :count] = np.where(np.isfinite(happened), happened, table[:, :count])
    if series == COST:
        for place, happened in _costs(held):
            table[:, :count] += happened - held.forecast.new.monthly[:, place, :count]
        table[:, count:] += held.paid_usd[count:]
    return table


def _costs_to_come(held: ActualsReview) -> tuple[Floats, Floats]:
    """Return the cost of the months to come by replication, as forecast before and now."""
    count = len(held.actuals.months)
    return _old(held, COST)[:, count:].sum(axis=1), _new(held, COST)[:, count:].sum(axis=1)


def input_rows(held: ActualsReview) -> Table:
    """Return forecast_inputs.csv."""
    old = held.forecast.old
    new = held.forecast.new
    weights = held.forecast.weights
    informed = held.forecast.informed
    (before, after), paid_usd = (
        _costs_to_come(held),
        float(held.paid_usd[len(held.actuals.months) :].sum()),
    )
    # In the inputs' own units, over both samples: cost is nearer to linear in a price than in its normal score. What
    # was seen says nothing about the other inputs, whose means differ by chance.
    inputs = np.concatenate([old.inputs, new.inputs])
    cost = np.concatenate([before, after - paid_usd])
    slopes = np.linalg.lstsq(inputs - inputs.mean(axis=0), cost - cost.mean(), rcond=None)[0]
    moved = informed * (weights @ new.scores - old.scores.mean(axis=0))
    parts = 100 * slopes * informed * (weights @ new.inputs - old.inputs.mean(axis=0))
    total = round(
        100 * (_band(after, weights)["mean"] - _band(before, np.ones(len(before)))["mean"])
    )
    movers = dict(zip(held.prepared.inputs.names, parts.tolist(), strict=True)) | {
        PAID: 100 * paid_usd
    }
    movers = to_the_cent({**movers, CHANCE: total - sum(movers.values())}, total)
    prior = weighted_quantiles(old.inputs, np.ones(len(old.inputs)), _DECILES)
    posterior = weighted_quantiles(new.inputs, weights, _DECILES)
    rows = [
        (entry.name, *cells, movers.get(entry.name, 0) / 100)
        for entry, *cells in zip(
            held.prepared.inputs.entries, *prior, *posterior, moved, strict=True
        )
        if entry.throughput_of is not None
        or any(entry.targets)  # one that is paid moves nothing any more
    ]
    rows += [(name, *[None] * 7, movers.get(name, 0) / 100) for name in (PAID, CHANCE)]
    return ACTUALS_TABLES["forecast_inputs"].of_rows(rows)


def _movers(parts: Mapping[str, float], total: float) -> str:
    """Return the largest parts of a total in whole dollars, and the rest; what is shown sums to the total."""
    largest = {name: parts[name] for name in sorted(parts, key=lambda name: -abs(parts[name]))[:4]}
    shown = to_the_cent({**largest, "the rest": total - sum(largest.values())}, round(total))
    return "; ".join(f"{input_words(name)} {usd:+,} USD" for name, usd in shown.items())


def _band(totals: Floats, weights: Floats) -> dict[str, float]:
    """Return mean, P5, P50 and P95."""
    figures = (float(weights @ totals / weights.sum()), *weighted_quantiles(totals, weights, _BAND))
    return {
        name: round(float(end), 2)
        for name, end in zip(("mean", "p5", "p50", "p95"), figures, strict=True)
    }


def actuals_summary(held: ActualsReview) -> dict[str, Any]:
    """Return summary.json."""
    forecast = held.forecast
    scenario = held.result.scenario
    costs = [row for row in held.accounts if is_cost(row.account)]
    causes = {
        cause: sum(row.causes_cents.get(cause, 0) for row in costs) / 100
        for cause in VARIANCE_CAUSES
    }
    (before, after), even = _costs_to_come(held), np.ones(len(forecast.old.scores))
    not_explained = {
        str(series.name) for series, why in forecast.unused.items() if why.startswith("outside")
    }
    outside = {seen: held.outside(seen) for seen in held.actuals.series}
    summary = {
        "schema_version": SCHEMA_VERSION,
        "scenario": scenario.name,
        "months": list(held.actuals.months),
        "horizon_months": scenario.horizon_months,
        "start": str(scenario.start),
        "seed": held.prepared.seed,
        "budget_usd": sum(row.budget_cents for row in costs) / 100,
        "actual_usd": sum(row.actual_cents for row in costs) / 100,
        "difference_by_cause_usd": {cause: total for cause, total in causes.items() if total},
        "outside_interval": {
            f"{seen.of} {seen.name}": months for seen, months in outside.items() if months
        },
        "not_explained": sorted(not_explained),
        "remaining_cost_usd": {
            "prior": _band(before, even),
            "posterior": _band(after, forecast.weights),
        },
        "moved_by_usd": {
            row["input"]: row["moved_usd"] for row in input_rows(held).records() if row["moved_usd"]
        },
        "replications": len(forecast.new.scores),
        "effective_replications": round(effective(forecast.weights), 1),
        "rounds": forecast.rounds,
        "notes": list(held.actuals.notes),
    }
    return summary | {"sentences": said_of(held, summary)}


def said_of(held: ActualsReview, summary: Mapping[str, Any]) -> list[str]:
    """Return what there is to say, the most important first."""
    said = []
    count = len(held.actuals.months)
    labels = held.result.plan.months.labels
    budget, actual, causes = (
        summary[f"{name}_usd"] for name in ("budget", "actual", "difference_by_cause")
    )
    if _costs(held):
        share = f" ({abs(actual / budget - 1):.1%})" if budget else ""
        word = "above" if actual > budget else "below"
        why = _movers(causes, actual - budget)
        apart = f"{abs(round(actual - budget)):,} USD{share} {word} budget in the accounts reported"
        said.append(f"After {count} months cost is {apart}{why and ': '}{why}.")
    if count < len(labels):
        ends = summary["remaining_cost_usd"]
        form = "{mean:,.3f} ({p5:,.3f} to {p95:,.3f})"
        now, then = (
            form.format(**{name: usd / MILLION for name, usd in ends[age].items()}) for age in _AGES
        )
        total = ends["posterior"]["mean"] - ends["prior"]["mean"]
        why = _movers(
            {name: usd for name, usd in summary["moved_by_usd"].items() if name != CHANCE}, total
        )
        bands = (
            f"{now} million USD, in brackets nine of ten replications; {then} was forecast before"
        )
        said.append(
            f"The months to come are expected to cost {bands}, {total:+,.0f} USD{why and ': '}{why}."
        )
        low, middle = weighted_quantiles(
            _new(held, SLO)[:, count:], held.forecast.weights, _BAND[:2]
        )
        worst = int(np.argmin(middle))
        share = f"{middle[worst]:.2%} (P5 {low[worst]:.2%}) in its lowest month to come, {labels[count + worst]}"
        planned = held.budget[held.seen.index(SLO), count + worst]
        said.append(f"SLO attainment is forecast at {share}; the budget has {planned:.2%}.")
    if (few := effective(held.forecast.weights)) < FEW_EFFECTIVE:
        rests = f"The forecast rests on {few:.0f} effective replications"
        said.append(f"{rests}: take its bands with care, and run more with --replications.")
    return said


def actuals_text(held: ActualsReview) -> str:
    """Lay out what happened for a terminal of 80 columns."""
    count = len(held.actuals.months)
    labels = held.result.plan.months.labels
    parts = [
        f"{held.actuals.months[0]} to {held.actuals.months[-1]}, {count} of {len(labels)} months"
    ]
    if held.accounts:
        causes = [
            cause
            for cause in VARIANCE_CAUSES
            if any(cause in row.causes_cents for row in held.accounts)
        ]
        rows = []
        for row in held.accounts:
            amounts = (
                row.budget_cents,
                row.actual_cents,
                *(row.causes_cents.get(cause, 0) for cause in causes),
            )
            if any(amounts[:2]):
                rows.append(
                    (str(row.account)[:18], *(signed(amount / 100, ",.0f") for amount in amounts))
                )
        parts += [
            "",
            "USD, actual less budget by cause:",
            text_table(("account", "budget", "actual", *causes), rows),
        ]
    parts += ["", "Cost in USD (accounts not reported as budgeted) and SLO attainment:"]
    parts.append(
        text_table(BESIDE, beside(forecast_rows(held))[max(0, count - _SHOWN) : count + _SHOWN])
    )
    figures = []
    for series, happened in held.actuals.series.items():
        budget = held.budget[held.seen.index(series), :count]
        known = np.isfinite(happened) & np.isfinite(budget)
        if series.kind != "account" and known.any():
            plan = budget[known].mean()
            mean = happened[known].mean()
            months = held.outside(series)
            change = f"{mean / plan - 1:+.1%}" if plan else ""
            outside = f"{len(months)} of {int(known.sum())}" if months else ""
            figures.append(
                (series.of[:12], series.name, f"{plan:,.4g}", f"{mean:,.4g}", change, outside)
            )
    if figures:
        table = text_table(("of", "figure", "plan", "actual", "change", "outside"), figures)
        parts += ["", "Figures over the months, and those outside nine of ten replications:", table]
    return "\n".join([*parts, "", *wrapped(actuals_summary(held)["sentences"])])


def write_actuals(
    held: ActualsReview, folder: Path, command: Sequence[str], form: CsvFormat = DEFAULT_FORMAT
) -> None:
    """Write the folder, whole or not at all."""
    variance = list[Sequence[Any]]()
    figures = list[Sequence[Any]]()
    for row in held.accounts:
        both = (row.budget_cents, row.actual_cents, row.actual_cents - row.budget_cents)
        variance.append(
            (
                str(row.account),
                *both,
                *(row.causes_cents.get(cause, 0) for cause in VARIANCE_CAUSES),
            )
        )
    for series, happened in held.actuals.series.items():
        place = held.seen.index(series)
        outside = held.outside(series)
        said = held.forecast.unused.get(series, "moves it")
        for m, month in enumerate(held.actuals.months):
            seen = (held.budget[place, m], *held.interval[:, place, m], happened[m])
            figures.append((*series[:2], str(series.name), month, *seen, month in outside, said))
    tables = {
        name: ACTUALS_TABLES[name].of_rows(rows)
        for name, rows in (("variance", variance), ("actuals", figures))
    }
    tables |= {"forecast_monthly": forecast_rows(held), "forecast_inputs": input_rows(held)}
    manifest = {
        **scenario_identity(held.result.scenario, held.prepared.seed, 0),
        "kind": "actuals",
        "replications": len(held.forecast.old.scores),
        "command": list(command),
    }
    contents = Contents(manifest=manifest, tables=tables, summary=actuals_summary(held))
    write_folder(folder, answer_files(contents, "actuals", form), manifest)


def actuals_answer(folder: Path, held: ActualsReview) -> Answer[ActualsReview]:
    """Return months held against their plan as an answer."""
    return Answer(
        folder=folder,
        result=held,
        warnings=held.prepared.warnings,
        notes=held.actuals.notes,
        summarise=lambda: actuals_summary(held),
        say=lambda _: actuals_text(held),
        rows=lambda: forecast_rows(held),
    )
