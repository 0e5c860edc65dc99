"""Months that happened beside the plan: tables, summary, text, the sections of the report, and the folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers.answer import Answer
from planner.answers.report import answer_files
from planner.answers.run import scenario_identity
from planner.answers.tables import tables_of
from planner.arrays import Floats
from planner.finance.bridge import VARIANCE_CAUSE_MEANINGS, VARIANCE_CAUSES
from planner.finance.ledger import Account, cents
from planner.output.folder import Contents, write_folder
from planner.output.tables import DEFAULT_FORMAT, SCHEMA_VERSION, CsvFormat, Table, cents_column
from planner.output.terminal import signed, text_table, wrapped
from planner.reforecast import COST, FORECAST, ActualsReview, is_cost, weighted_quantiles
from planner.scenario.actuals import Seen
from planner.units import MILLION

ACTUALS_TABLES = tables_of(
    "actuals",
    {"variance": [cents_column(f"{cause}_usd", meaning) for cause, meaning in VARIANCE_CAUSE_MEANINGS.items()]},
)
"""The files in which months that happened are held against a plan, by their names."""

_BAND = np.array([0.05, 0.5, 0.95])
_DECILES = np.array([0.1, 0.5, 0.9])
CHANCE = "chance and curvature"
FEW_EFFECTIVE = 20
"""Effective replications below which a forecast says that it rests on few."""


def forecast_rows(held: ActualsReview) -> Table:
    """Return forecast_monthly.csv."""
    rows: list[Sequence[Any]] = []
    labels, count, weights = held.result.plan.months.labels, len(held.months), held.forecast.weights
    for series in FORECAST:
        old, happened = _old(held, series), held.actuals.series.get(series, np.full(count, np.nan))
        prior = weighted_quantiles(old, np.ones(len(old)), _BAND)
        posterior = weighted_quantiles(_new(held, series), weights, _BAND)
        actual = [*happened, *[np.nan] * (len(labels) - count)]
        months = zip(labels, actual, *prior.tolist(), *posterior.tolist(), strict=True)
        rows += [(series.name, *month) for month in months]
    return ACTUALS_TABLES["forecast_monthly"].of_rows(rows)


def _old(held: ActualsReview, series: Seen) -> Floats:
    """Return a series before the months seen, shape (replications, months)."""
    return np.asarray(held.forecast.old.monthly[:, held.seen.index(series)])


def _new(held: ActualsReview, series: Seen) -> Floats:
    """Return a series after them, what happened in its place, shape (replications, months).

    Of cost, the accounts reported are replaced and the others stay as the replications have them.
    """
    table, count = held.forecast.new.monthly[:, held.seen.index(series)].copy(), len(held.months)
    if series in held.actuals.series:
        happened = held.actuals.series[series]
        table[:, :count] = np.where(np.isfinite(happened), happened, table[:, :count])
    if series == COST:
        for figure, happened in held.actuals.series.items():
            if figure.kind == "account" and is_cost(Account(figure.name)):
                table[:, :count] += happened - held.forecast.new.monthly[:, held.seen.index(figure), :count]
    return table


def input_rows(held: ActualsReview) -> Table:
    """Return forecast_inputs.csv."""
    old, new, weights, count = held.forecast.old, held.forecast.new, held.forecast.weights, len(held.months)
    moved = weights @ new.scores - old.scores.mean(axis=0)
    before, after = _old(held, COST)[:, count:].sum(axis=1), _new(held, COST)[:, count:].sum(axis=1)
    # In the inputs' own units, over both samples: cost is nearer to linear in a price than in its normal score.
    inputs, cost = np.concatenate([old.inputs, new.inputs]), np.concatenate([before, after])
    slopes = np.linalg.lstsq(inputs - inputs.mean(axis=0), cost - cost.mean(), rcond=None)[0]
    parts = slopes * (weights @ new.inputs - old.inputs.mean(axis=0))
    prior = weighted_quantiles(old.inputs, np.ones(len(old.inputs)), _DECILES)
    posterior = weighted_quantiles(new.inputs, weights, _DECILES)
    rest = float(weights @ after - before.mean()) - float(parts.sum())
    rows = zip(held.prepared.inputs.names, *prior, *posterior, moved, parts, strict=True)
    return ACTUALS_TABLES["forecast_inputs"].of_rows([*rows, (CHANCE, *[None] * 7, rest)])


def _against_budget(held: ActualsReview) -> tuple[float, float, dict[str, float]]:
    """Return budget and actual of the costs reported, and their difference by cause, in dollars."""
    costs = [row for row in held.accounts if is_cost(row.account)]
    causes = {cause: sum(row.causes_cents.get(cause, 0) for row in costs) / 100 for cause in VARIANCE_CAUSES}
    return sum(row.budget_cents for row in costs) / 100, sum(row.actual_cents for row in costs) / 100, causes


def actuals_summary(held: ActualsReview) -> dict[str, Any]:
    """Return summary.json."""
    forecast, scenario, count = held.forecast, held.result.scenario, len(held.months)
    budget, actual, causes = _against_budget(held)

    def band(table: Floats, weights: Floats) -> dict[str, float]:
        totals = table.sum(axis=1)
        figures = (float(weights @ totals / weights.sum()), *weighted_quantiles(totals, weights, _BAND))
        return {name: round(float(end), 2) for name, end in zip(("mean", "p5", "p50", "p95"), figures, strict=True)}

    old, new, weights = _old(held, COST), _new(held, COST), forecast.weights
    even = np.ones(len(old))
    not_explained = {str(series.name) for series, why in forecast.unused.items() if why.startswith("outside")}
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": scenario.name,
        "months": list(held.months),
        "horizon_months": scenario.horizon_months,
        "start": str(scenario.start),
        "seed": held.prepared.seed,
        "budget_usd": budget,
        "actual_usd": actual,
        "difference_by_cause_usd": {cause: total for cause, total in causes.items() if total},
        "outside_interval": {
            f"{series.of} {series.name}": months for series in held.actuals.series if (months := held.outside(series))
        },
        "not_explained": sorted(not_explained),
        "remaining_cost_usd": {"prior": band(old[:, count:], even), "posterior": band(new[:, count:], weights)},
        "whole_cost_usd": {"prior": band(old, even), "posterior": band(new, weights)},
        "replications": len(forecast.new.scores),
        "effective_replications": round(forecast.effective, 1),
        "rounds": forecast.rounds,
        "sentences": said_of(held),
        "notes": list(held.actuals.notes),
    }


def said_of(held: ActualsReview) -> list[str]:
    """Return what there is to say, the most important first."""
    said, count = [], len(held.months)
    if any(is_cost(row.account) for row in held.accounts):
        budget, actual, causes = _against_budget(held)
        share = f" ({abs(actual / budget - 1):.1%})" if budget else ""
        word = "above" if actual > budget else "below"
        largest = max(causes, key=lambda cause: abs(causes[cause]))
        said.append(
            f"After {count} months cost is {abs(actual - budget):,.0f} USD{share} {word} budget in the accounts "
            f"reported; most of it is {largest}, {causes[largest]:+,.0f} USD."
        )
    if count < len(held.result.plan.months.labels):
        before = np.quantile(_old(held, COST)[:, count:].sum(axis=1), _BAND)
        after = weighted_quantiles(_new(held, COST)[:, count:].sum(axis=1), held.forecast.weights, _BAND)
        bands = ([f"{end / MILLION:,.3f}" for end in band] for band in (after, before))
        now, then = (f"{middle} ({low} to {high})" for low, middle, high in bands)
        said.append(
            f"The months to come cost {now} million USD in nine of ten replications, where {then} was forecast."
        )
        rows = sorted(input_rows(held).records(), key=lambda row: -abs(row["moved_usd"]))[:3]
        moved = [f"{row['input']} {row['moved_usd']:+,.0f} USD" for row in rows if round(row["moved_usd"])]
        if moved and held.forecast.used:
            said.append(f"What moved it: {', '.join(moved)}.")
    if held.forecast.effective < FEW_EFFECTIVE:
        said.append(
            f"The forecast rests on {held.forecast.effective:.0f} effective replications: take its bands with care, "
            "and run more with --replications."
        )
    return said


def actuals_text(held: ActualsReview) -> str:
    """Lay out what happened for a terminal of 80 columns."""
    count = len(held.months)
    parts = [f"{held.months[0]} to {held.months[-1]}, {count} of {len(held.result.plan.months.labels)} months"]
    if held.accounts:
        shown = [cause for cause in VARIANCE_CAUSES if any(cause in row.causes_cents for row in held.accounts)]
        rows = []
        for row in held.accounts:
            amounts = (row.budget_cents, row.actual_cents, *(row.causes_cents.get(cause, 0) for cause in shown))
            if any(amounts[:2]):
                rows.append((str(row.account)[:18], *(signed(amount / 100, ",.0f") for amount in amounts)))
        parts += ["", "USD, actual less budget by cause:", text_table(("account", "budget", "actual", *shown), rows)]
    figures = []
    for series, happened in held.actuals.series.items():
        budget = held.budget[held.seen.index(series), :count]
        known = np.isfinite(happened) & np.isfinite(budget)
        if series.kind != "account" and known.any():
            plan, mean, months = budget[known].mean(), happened[known].mean(), held.outside(series)
            change = f"{mean / plan - 1:+.1%}" if plan else ""
            outside = f"{len(months)} of {int(known.sum())}" if months else ""
            figures.append((series.of[:12], series.name, f"{plan:,.4g}", f"{mean:,.4g}", change, outside))
    if any(series.kind != "account" for series in held.actuals.series):
        table = text_table(("of", "figure", "plan", "actual", "change", "outside"), figures)
        parts += ["", "Figures over the months, and those outside nine of ten replications:", table]
    return "\n".join([*parts, "", *wrapped(said_of(held))])


def write_actuals(held: ActualsReview, folder: Path, command: Sequence[str], form: CsvFormat = DEFAULT_FORMAT) -> None:
    """Write the folder, whole or not at all."""
    variance, monthly, figures = list[Sequence[Any]](), list[Sequence[Any]](), list[Sequence[Any]]()
    for row in held.accounts:
        both = (row.budget_cents, row.actual_cents, row.actual_cents - row.budget_cents)
        variance.append((str(row.account), *both, *(row.causes_cents.get(cause, 0) for cause in VARIANCE_CAUSES)))
        series = Seen("account", "fleet", row.account)
        budgets = cents(held.budget[held.seen.index(series), : len(held.months)]).tolist()
        actuals = cents(np.asarray(held.actuals.series[series])).tolist()
        for month, budget, actual in zip(held.months, budgets, actuals, strict=True):
            monthly.append((str(row.account), month, budget, actual, actual - budget))
    for series, happened in held.actuals.series.items():
        place, outside = held.seen.index(series), held.outside(series)
        said = held.forecast.unused.get(series, "moves it")
        for m, month in enumerate(held.months):
            seen = (held.budget[place, m], *held.interval[:, place, m], happened[m])
            figures.append((*series[:2], str(series.name), month, *seen, month in outside, said))
    rows = {"variance": variance, "variance_monthly": monthly, "actuals": figures}
    tables = {name: ACTUALS_TABLES[name].of_rows(cells) for name, cells in rows.items()}
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
        say=lambda *_: actuals_text(held),
        rows=lambda: forecast_rows(held),
    )
