"""Months that happened beside the plan: tables, summary, text, the sections of the report, and the folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def variance_rows(held: ActualsReview) -> Table:
    """Return variance.csv."""
    rows = held.accounts
    budget, actual = (
        np.array([getattr(row, f"{name}_cents") for row in rows], dtype=np.int64) for name in ("budget", "actual")
    )
    causes = {
        f"{cause}_usd": np.array([row.causes_cents.get(cause, 0) for row in rows], dtype=np.int64)
        for cause in VARIANCE_CAUSES
    }
    names = [str(row.account) for row in rows]
    both = {"budget_usd": budget, "actual_usd": actual, "difference_usd": actual - budget}
    return Table(ACTUALS_TABLES["variance"], {"account": names, **both, **causes})


def variance_monthly_rows(held: ActualsReview) -> Table:
    """Return variance_monthly.csv."""
    series = [Seen("account", "fleet", row.account) for row in held.accounts]
    count = len(held.months)
    budget = cents(np.array([held.budget[held.seen.index(figure), :count] for figure in series]).reshape(-1))
    actual = cents(np.array([held.actuals.series[figure] for figure in series]).reshape(-1))
    columns: dict[str, Any] = {
        "account": [str(figure.name) for figure in series for _ in held.months],
        "month": list(held.months) * len(series),
        "budget_usd": budget,
        "actual_usd": actual,
        "difference_usd": actual - budget,
    }
    return Table(ACTUALS_TABLES["variance_monthly"], columns)


def held_rows(held: ActualsReview) -> Table:
    """Return actuals.csv."""
    rows = []
    for series, happened in held.actuals.series.items():
        place, outside = held.seen.index(series), held.outside(series)
        said = held.forecast.unused.get(series, "moves it")
        for m, month in enumerate(held.months):
            low, high = held.interval[:, place, m]
            rows.append(
                (
                    *series[:2],
                    str(series.name),
                    month,
                    held.budget[place, m],
                    low,
                    high,
                    happened[m],
                    month in outside,
                    said,
                )
            )
    return ACTUALS_TABLES["actuals"].of_rows(rows)


def forecast_rows(held: ActualsReview) -> Table:
    """Return forecast_monthly.csv."""
    columns: dict[str, Any] = {"figure": [], "month": [], "actual": []}
    columns |= {f"{age}_{place}": [] for age in ("old", "new") for place in ("p5", "p50", "p95")}
    labels, count = held.result.plan.months.labels, len(held.months)
    for series in FORECAST:
        old, new = _old(held, series), _new(held, series)
        happened = held.actuals.series.get(series, np.full(count, np.nan))
        columns["figure"] += [series.name] * len(labels)
        columns["month"] += labels
        columns["actual"] += [*happened, *[np.nan] * (len(labels) - count)]
        for age, table, weights in (("old", old, None), ("new", new, held.forecast.weights)):
            ends = weighted_quantiles(table, np.ones(len(table)) if weights is None else weights, _BAND)
            for place, line in zip(("p5", "p50", "p95"), ends, strict=True):
                columns[f"{age}_{place}"] += line.tolist()
    return Table(ACTUALS_TABLES["forecast_monthly"], columns)


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
        for figure, happened in _reported(held):
            table[:, :count] += happened - held.forecast.new.monthly[:, held.seen.index(figure), :count]
    return table


def _reported(held: ActualsReview) -> Iterator[tuple[Seen, Floats]]:
    """Yield the accounts of accrued cost that were reported."""
    for series, happened in held.actuals.series.items():
        if series.kind == "account" and is_cost(Account(series.name)):
            yield series, happened


def input_rows(held: ActualsReview) -> Table:
    """Return forecast_inputs.csv."""
    old, new, weights = held.forecast.old, held.forecast.new, held.forecast.weights
    even = np.ones(len(old.inputs))
    moved = weights @ new.scores - old.scores.mean(axis=0)
    count = len(held.months)
    before, after = _old(held, COST)[:, count:].sum(axis=1), _new(held, COST)[:, count:].sum(axis=1)
    # In the inputs' own units, over both samples: cost is nearer to linear in a price than in its normal score.
    inputs, cost = np.concatenate([old.inputs, new.inputs]), np.concatenate([before, after])
    slopes = np.linalg.lstsq(inputs - inputs.mean(axis=0), cost - cost.mean(), rcond=None)[0]
    parts = slopes * (weights @ new.inputs - old.inputs.mean(axis=0))
    total = float(weights @ after - before.mean())
    names = list(held.prepared.inputs.names)
    ends = [weighted_quantiles(old.inputs, even, _DECILES), weighted_quantiles(new.inputs, weights, _DECILES)]
    columns: dict[str, Any] = {"input": [*names, CHANCE]}
    for age, table in zip(("old", "new"), ends, strict=True):
        columns |= {f"{age}_{p}": [*line, None] for p, line in zip(("p10", "p50", "p90"), table, strict=True)}
    columns["moved_sd"] = [*moved, None]
    columns["moved_usd"] = [*parts, total - float(parts.sum())]
    return Table(ACTUALS_TABLES["forecast_inputs"], columns)


def actuals_summary(held: ActualsReview) -> dict[str, Any]:
    """Return summary.json."""
    rows, forecast = held.accounts, held.forecast
    count = len(held.months)
    costs = [row for row in rows if is_cost(row.account)]

    def band(table: Floats, weights: Floats) -> dict[str, float]:
        names = ("p5", "p50", "p95")
        ends = weighted_quantiles(table.sum(axis=1), weights, _BAND)
        mean = float(weights @ table.sum(axis=1) / weights.sum())
        return {"mean": round(mean, 2), **{name: round(float(end), 2) for name, end in zip(names, ends, strict=True)}}

    old, new = _old(held, COST), _new(held, COST)
    even = np.ones(len(old))
    outside = {
        f"{series.of} {series.name}": months for series in held.actuals.series if (months := held.outside(series))
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": held.result.scenario.name,
        "months": list(held.months),
        "horizon_months": held.result.scenario.horizon_months,
        "start": str(held.result.scenario.start),
        "seed": held.prepared.seed,
        "budget_usd": sum(row.budget_cents for row in costs) / 100,
        "actual_usd": sum(row.actual_cents for row in costs) / 100,
        "difference_by_cause_usd": {
            cause: total / 100
            for cause in VARIANCE_CAUSES
            if (total := sum(row.causes_cents.get(cause, 0) for row in costs))
        },
        "outside_interval": outside,
        "not_explained": sorted(
            {str(series.name) for series, why in forecast.unused.items() if why.startswith("outside")}
        ),
        "remaining_cost_usd": {
            "old": band(old[:, count:], even),
            "new": band(new[:, count:], forecast.weights),
        },
        "whole_cost_usd": {"old": band(old, even), "new": band(new, forecast.weights)},
        "replications": len(forecast.new.scores),
        "effective_replications": round(forecast.effective, 1),
        "rounds": forecast.rounds,
        "sentences": said_of(held),
        "notes": list(held.actuals.notes),
    }


def said_of(held: ActualsReview) -> list[str]:
    """Return what there is to say, the most important first."""
    costs = [row for row in held.accounts if is_cost(row.account)]
    said = []
    if costs:
        budget, actual = (sum(getattr(row, f"{name}_cents") for row in costs) / 100 for name in ("budget", "actual"))
        share = f" ({abs(actual / budget - 1):.1%})" if budget else ""
        word = "above" if actual > budget else "below"
        causes = {cause: sum(row.causes_cents.get(cause, 0) for row in costs) / 100 for cause in VARIANCE_CAUSES}
        largest = max(causes, key=lambda cause: abs(causes[cause]))
        said.append(
            f"After {len(held.months)} months cost is {abs(actual - budget):,.0f} USD{share} {word} budget in the "
            f"accounts reported; most of it is {largest}, {causes[largest]:+,.0f} USD."
        )
    rows, count = input_rows(held).columns, len(held.months)
    if count < len(held.result.plan.months.labels):
        old = _old(held, COST)[:, count:].sum(axis=1)
        new = _new(held, COST)[:, count:].sum(axis=1)
        before = np.quantile(old, _BAND)
        after = weighted_quantiles(new, held.forecast.weights, _BAND)
        said.append(
            f"The months to come cost {_millions(after)} million USD in nine of ten replications, where "
            f"{_millions(before)} was forecast."
        )
        order = np.argsort(-np.abs(rows["moved_usd"]))[:3]
        moved = [f"{rows['input'][i]} {rows['moved_usd'][i]:+,.0f} USD" for i in order if round(rows["moved_usd"][i])]
        if moved and held.forecast.used:
            said.append(f"What moved it: {', '.join(moved)}.")
    if held.forecast.effective < FEW_EFFECTIVE:
        said.append(
            f"The forecast rests on {held.forecast.effective:.0f} effective replications: take its bands with care, "
            "and run more with --replications."
        )
    return said


def _millions(band: Floats) -> str:
    """Return a median and its band in millions."""
    low, middle, high = (f"{end / MILLION:,.3f}" for end in band)
    return f"{middle} ({low} to {high})"


def actuals_text(held: ActualsReview) -> str:
    """Lay out what happened for a terminal of 80 columns."""
    parts = [
        f"{held.months[0]} to {held.months[-1]}, {len(held.months)} of {len(held.result.plan.months.labels)} months"
    ]
    if held.accounts:
        shown = [cause for cause in VARIANCE_CAUSES if any(cause in row.causes_cents for row in held.accounts)]
        rows = [
            (
                str(row.account)[:18],
                *(signed(amount / 100, ",.0f") for amount in (row.budget_cents, row.actual_cents)),
                *(signed(row.causes_cents.get(cause, 0) / 100, ",.0f") for cause in shown),
            )
            for row in held.accounts
            if row.budget_cents or row.actual_cents
        ]
        parts += ["", "USD, actual less budget by cause:", text_table(("account", "budget", "actual", *shown), rows)]
    figures = [series for series in held.actuals.series if series.kind != "account"]
    if figures:
        parts += [
            "",
            "Figures over the months, and those outside nine of ten replications:",
            _figure_table(held, figures),
        ]
    return "\n".join([*parts, "", *wrapped(said_of(held))])


def _figure_table(held: ActualsReview, figures: Sequence[Seen]) -> str:
    """Lay out the mean of each figure."""
    count = len(held.months)
    rows = []
    for series in figures:
        place, happened = held.seen.index(series), held.actuals.series[series]
        known = np.isfinite(happened) & np.isfinite(held.budget[place, :count])
        if known.any():
            plan, mean = held.budget[place, :count][known].mean(), happened[known].mean()
            change = f"{mean / plan - 1:+.1%}" if plan else ""
            months = held.outside(series)
            rows.append(
                (
                    series.of[:12],
                    series.name,
                    f"{plan:,.4g}",
                    f"{mean:,.4g}",
                    change,
                    f"{len(months)} of {int(known.sum())}" if months else "",
                )
            )
    return text_table(("of", "figure", "plan", "actual", "change", "outside"), rows)


def actuals_contents(held: ActualsReview, command: Sequence[str]) -> Contents:
    """Return what the folder of months held against their plan holds."""
    tables = (variance_rows(held), variance_monthly_rows(held), held_rows(held), forecast_rows(held), input_rows(held))
    identity = scenario_identity(held.result.scenario, held.prepared.seed, 0)
    return Contents(
        manifest={
            **identity,
            "kind": "actuals",
            "replications": len(held.forecast.old.scores),
            "command": list(command),
        },
        tables={table.name: table for table in tables},
        summary=actuals_summary(held),
    )


def write_actuals(held: ActualsReview, folder: Path, command: Sequence[str], form: CsvFormat = DEFAULT_FORMAT) -> None:
    """Write the folder, whole or not at all."""
    contents = actuals_contents(held, command)
    write_folder(folder, answer_files(contents, "actuals", form), contents.manifest)


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
