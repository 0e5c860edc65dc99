"""Actual months beside the plan as an answer: tables, text and folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from planner.actuals.actuals_report import SIDE_BY_SIDE, actuals_sections, side_by_side
from planner.actuals.actuals_summary import (
    ACTUALS_TABLES,
    actuals_summary,
    forecast_table,
    input_table,
)
from planner.actuals.review import ActualsReview
from planner.actuals.variance import is_operating
from planner.answers.answer import Answer
from planner.answers.identity import run_identity
from planner.answers.report import answer_files
from planner.finance.bridge import VARIANCE_CAUSES
from planner.output.folder import Contents, write_folder
from planner.output.tables import Table
from planner.output.terminal import signed, text_table, wrapped

_MONTHS_SHOWN = 6
"""Months before and after the last actual one that a terminal shows."""


def actuals_text(review: ActualsReview) -> str:
    """Lay out what happened for a terminal of 80 columns."""
    months = review.actuals.months
    horizon = len(review.result.plan.months.labels)
    lines = [
        f"{months[0]} to {months[-1]}, {len(months)} of {horizon} months",
        *wrapped(actuals_summary(review).sentences),
    ]
    if review.accounts:
        title = "Actual less budget by cause, USD (costs positive, income negative):"
        lines += ["", title, _variance_text(review)]
    rows = side_by_side(forecast_table(review))
    # A terminal has room for the months around now.
    now = len(months)
    rows = rows[max(0, now - _MONTHS_SHOWN) : now + _MONTHS_SHOWN]
    lines += [
        "",
        "Cost in USD (accounts not reported count as budgeted) and SLO attainment:",
        text_table(SIDE_BY_SIDE, rows),
    ]
    figures = _figure_rows(review)
    if figures:
        header = ("of", "figure", "plan", "actual", "change", "outside")
        lines += [
            "",
            "Figures over the months; 'outside': outside nine of ten replications:",
            text_table(header, figures),
        ]
    return "\n".join(lines)


def _variance_text(review: ActualsReview) -> str:
    """Return budget, actual and their difference by cause, of the accounts that have any."""
    causes = [
        cause
        for cause in VARIANCE_CAUSES
        if any(cause in variance.causes_cents for variance in review.accounts)
    ]
    rows = []
    for variance in review.accounts:
        # Accounts without money on either side only lengthen the table.
        if variance.budget_cents or variance.actual_cents:
            by_cause = [variance.causes_cents.get(cause, 0) for cause in causes]
            cents = (variance.budget_cents, variance.actual_cents, *by_cause)
            amounts = [signed(amount / 100, ",.0f") for amount in cents]
            account = str(variance.account)
            rows.append((account[:18], *amounts))
    operating = [row for row in review.accounts if is_operating(row.account)]
    if len(operating) > 1:
        totals = [sum(row.causes_cents.get(cause, 0) for row in operating) for cause in causes]
        budget = sum(row.budget_cents for row in operating)
        actual = sum(row.actual_cents for row in operating)
        amounts = [signed(amount / 100, ",.0f") for amount in (budget, actual, *totals)]
        rows.append(("operating, in all", *amounts))
    return text_table(("account", "budget", "actual", *causes), rows)


def _figure_rows(review: ActualsReview) -> list[tuple[str, ...]]:
    """Return mean plan and actual of each figure, over the months that both have."""
    rows = list[tuple[str, ...]]()
    for key, actual in review.actuals.series.items():
        budget = review.budget_of(key)[: review.months]
        is_known = np.isfinite(actual) & np.isfinite(budget)
        if key.kind == "account" or not is_known.any():
            continue  # accounts stand in the table above
        plan_mean = budget[is_known].mean()
        actual_mean = actual[is_known].mean()
        outside = review.outside(key)
        rows.append(
            (
                key.entity[:12],
                key.figure,
                f"{plan_mean:,.4g}",
                f"{actual_mean:,.4g}",
                f"{actual_mean / plan_mean - 1:+.1%}" if plan_mean else "",
                f"{len(outside)} of {int(is_known.sum())}" if outside else "",
            )
        )
    return rows


def _variance_table(review: ActualsReview) -> Table:
    """Return variance.csv."""
    rows = []
    for variance in review.accounts:
        difference = variance.actual_cents - variance.budget_cents
        causes = [variance.causes_cents.get(cause, 0) for cause in VARIANCE_CAUSES]
        amounts = (variance.budget_cents, variance.actual_cents, difference, variance.noise_cents)
        rows.append((str(variance.account), *amounts, *causes))
    return ACTUALS_TABLES["variance"].of_rows(rows)


def _figures_table(review: ActualsReview) -> Table:
    """Return actuals.csv."""
    rows = []
    for key, actual in review.actuals.series.items():
        budget = review.budget_of(key)
        place = review.keys.index(key)
        low, high = review.interval[:, place]
        outside = review.outside(key)
        use = review.forecast.unused.get(key, "moves it")
        name = (key.kind, key.entity, str(key.figure))
        for m, month in enumerate(review.actuals.months):
            numbers = (budget[m], low[m], high[m], actual[m])
            rows.append((*name, month, *numbers, month in outside, use))
    return ACTUALS_TABLES["actuals"].of_rows(rows)


def write_actuals(review: ActualsReview, folder: Path, command: Sequence[str]) -> None:
    """Write the folder, whole or not at all."""
    tables = {
        "variance": _variance_table(review),
        "actuals": _figures_table(review),
        "forecast_monthly": forecast_table(review),
        "forecast_inputs": input_table(review),
    }
    manifest = {
        **run_identity(review.result.scenario, review.prepared.seed, 0),
        "kind": "actuals",
        "replications": len(review.forecast.prior.scores),
        "command": list(command),
    }
    summary = actuals_summary(review).to_json()
    contents = Contents(manifest=manifest, tables=tables, summary=summary)
    files = answer_files(contents, "actuals", own_sections=actuals_sections)
    write_folder(folder, files, manifest)


def actuals_answer(folder: Path, review: ActualsReview) -> Answer[ActualsReview]:
    """Return the comparison of actual months with their plan as an answer."""
    return Answer(
        folder=folder,
        result=review,
        warnings=review.prepared.warnings,
        notes=review.actuals.notes,
        is_met=review.is_met,
        summarise=lambda: actuals_summary(review).to_json(),
        say=lambda _: actuals_text(review),
        rows=lambda: forecast_table(review),
    )
