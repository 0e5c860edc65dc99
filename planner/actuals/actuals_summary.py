"""What a comparison of actual months with their plan found, as its summary.json holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from planner.actuals.reforecast import effective, weighted_quantiles
from planner.actuals.review import COST, FORECAST, SLO, ActualsReview
from planner.actuals.variance import is_operating
from planner.answers.json_records import Json, fields_json, read_record
from planner.answers.tables import tables_of
from planner.arrays import Floats
from planner.finance.accounts import Account
from planner.finance.bridge import VARIANCE_CAUSE_MEANINGS, VARIANCE_CAUSES, to_the_cent
from planner.output.folder import SUMMARY, Contents
from planner.output.tables import SCHEMA_VERSION, Table, cents_column
from planner.output.words import input_words
from planner.records import record
from planner.units import MILLION

_CAUSE_COLUMNS = [
    cents_column(f"{cause}_usd", meaning) for cause, meaning in VARIANCE_CAUSE_MEANINGS.items()
]
ACTUALS_TABLES = tables_of("actuals", {"variance": _CAUSE_COLUMNS})
"""The files in which actual months are compared with a plan, by their names."""
_BAND = np.array([0.05, 0.5, 0.95])
_DECILES = np.array([0.1, 0.5, 0.9])
REMAINDER = "chance and curvature"
"""What moves the forecast and no input explains."""
PAID = "prices paid for machines"
FEW_EFFECTIVE = 20
"""Effective replications below which a forecast says that it rests on few."""
_LARGEST_PARTS = 4
"""Parts of a total that a sentence names."""
NOISE = "noise"
"""The part of a variance that replications of the plan as stated differ by, too."""


@record
class CostBand:
    """A cost in USD over replications: its mean, and the band that holds nine of ten."""

    mean: float
    p5: float
    p50: float
    p95: float


@record
class RemainingCost:
    """The cost of the months to come, as forecast before the actual months and after."""

    prior: CostBand
    posterior: CostBand


@record
class CapacityForecast:
    """The first month to come that misses the SLO target, over replications; None after the horizon's end."""

    p5: str | None
    p50: str | None
    p95: str | None
    met_fraction: float
    """Share of replications that meet the target in all months to come."""
    status: Literal["MET", "MISSED"]
    """Whether as many do as the target asks for."""
    prior_p50: str | None
    """The median of the forecast before the actual months."""


@record
class ActualsSummary:
    """The headline figures of actual months compared with their plan."""

    schema_version: str = SCHEMA_VERSION
    scenario: str
    months: list[str]
    horizon_months: int
    start: str
    seed: int
    budget_operating_income_usd: float
    """Of the accounts reported, as are the following."""
    actual_operating_income_usd: float
    difference_by_cause_usd: Mapping[str, float]
    """What raised operating income (positive) or lowered it, by cause; the largest first, noise last."""
    noise_two_sd_usd: float
    """Two standard deviations of operating income over replications of the plan: a cause within it is noise."""
    largest_account: Mapping[str, str]
    """The account that most of a cause lies in."""
    outside_interval: Mapping[str, list[str]]
    """Months in which a figure lay outside the plan's interval."""
    not_explained: list[str]
    """Accounts that no replication reaches."""
    capacity_runs_out: CapacityForecast | None
    """None where no month is to come."""
    remaining_cost_usd: RemainingCost
    moved_by_usd: Mapping[str, float]
    """By how much each input moved the expected cost of the months to come."""
    replications: int
    effective_replications: float
    rounds: int
    notes: list[str]
    sentences: list[str]

    def to_json(self) -> Json:
        """Return summary.json."""
        return fields_json(self)

    @staticmethod
    def from_json(contents: Contents) -> ActualsSummary:
        """Return the summary in a folder; raise ScenarioError where it does not fit."""
        return read_record(ActualsSummary, contents.summary, SUMMARY)


def actuals_summary(review: ActualsReview) -> ActualsSummary:
    """Return the headline figures of a review."""
    forecast = review.forecast
    scenario = review.result.scenario
    operating = [row for row in review.accounts if is_operating(row.account)]
    budget_cents = -sum(row.budget_cents for row in operating)
    actual_cents = -sum(row.actual_cents for row in operating)
    causes_cents = operating_causes(review)
    outside = {key: review.outside(key) for key in review.actuals.series}
    not_explained = {
        str(key.figure) for key, reason in forecast.unused.items() if reason.startswith("outside")
    }
    moved_usd = input_table(review).rows("input", totals=["moved_usd"])
    effective_number = effective(forecast.weights)
    summary = ActualsSummary(
        scenario=scenario.name,
        months=list(review.actuals.months),
        horizon_months=scenario.horizon_months,
        start=str(scenario.start),
        seed=review.prepared.seed,
        budget_operating_income_usd=budget_cents / 100,
        actual_operating_income_usd=actual_cents / 100,
        difference_by_cause_usd={cause: part / 100 for cause, part in causes_cents.items()},
        noise_two_sd_usd=round(review.noise_usd, 2),
        largest_account={
            cause: _largest_account(review, cause) for cause in causes_cents if cause != NOISE
        },
        outside_interval={
            f"{key.entity} {key.figure}": months for key, months in outside.items() if months
        },
        not_explained=sorted(not_explained),
        capacity_runs_out=_capacity_forecast(review),
        remaining_cost_usd=_remaining_cost(review),
        moved_by_usd={name: usd for name, usd in moved_usd if usd},
        replications=len(forecast.posterior.scores),
        effective_replications=round(effective_number, 1),
        rounds=forecast.rounds,
        notes=list(review.actuals.notes),
        sentences=[],
    )
    # Sentences say the figures of the summary, so they come after it.
    return replace(summary, sentences=_sentences(review, summary))


def operating_causes(review: ActualsReview) -> dict[str, int]:
    """Return what raised operating income or lowered it by cause, in cents: the largest first, noise last.

    A cause within the noise of operating income is noise there, whatever it is of an account.
    """
    totals = dict.fromkeys(VARIANCE_CAUSES, 0)
    for row in review.accounts:
        if is_operating(row.account):
            for cause, part in row.causes_cents.items():
                totals[cause] -= part
    noise_cents = 100 * review.noise_usd
    causes = {
        cause: total
        for cause, total in totals.items()
        if cause != NOISE and abs(total) > noise_cents
    }
    by_size = dict(sorted(causes.items(), key=lambda item: -abs(item[1])))
    noise = sum(totals.values()) - sum(by_size.values())
    if noise:
        by_size[NOISE] = noise
    return by_size


def _largest_account(review: ActualsReview, cause: str) -> str:
    """Return the operating account that most of a cause lies in."""
    rows = [row for row in review.accounts if is_operating(row.account)]
    largest = max(rows, key=lambda row: abs(row.causes_cents.get(cause, 0)))
    return str(largest.account)


def _capacity_forecast(review: ActualsReview) -> CapacityForecast | None:
    """Return when capacity runs out."""
    labels = review.result.plan.months.labels
    if review.months == len(labels):
        return None
    weights = review.forecast.weights
    months = review.capacity_months()
    prior = review.capacity_months(is_prior=True)
    # Rank by rank, since a mean of two months is no month.
    p5, p50, p95 = (_reached(months, weights, share) for share in _BAND.tolist())
    equal_weights = np.ones(len(prior)) / len(prior)
    prior_p50 = _reached(prior, equal_weights, 0.5)

    def label(month: int) -> str | None:
        return labels[month] if month < len(labels) else None

    return CapacityForecast(
        p5=label(p5),
        p50=label(p50),
        p95=label(p95),
        met_fraction=round(review.met_fraction, 6),
        status="MET" if review.is_met() else "MISSED",
        prior_p50=label(prior_p50),
    )


def _reached(months: Floats, weights: Floats, share: float) -> int:
    """Return the first month by which a share of weighted replications has been reached."""
    order = np.argsort(months, kind="stable")
    mass = np.cumsum(weights[order])
    # Weights sum to one but for rounding.
    place = int(np.searchsorted(mass, share * mass[-1] - 1e-12))
    return int(months[order][place])


def _remaining_cost(review: ActualsReview) -> RemainingCost:
    """Return the cost of the months to come before and after."""
    prior, posterior = review.remaining_costs()
    # The study's own replications count alike.
    return RemainingCost(
        prior=_band(prior, np.ones(len(prior))),
        posterior=_band(posterior, review.forecast.weights),
    )


def _band(costs: Floats, weights: Floats) -> CostBand:
    """Return mean and band of weighted replications, to the cent."""
    low, middle, high = weighted_quantiles(costs, weights, _BAND)
    mean = float(weights @ costs / weights.sum())
    return CostBand(
        mean=round(mean, 2),
        p5=round(float(low), 2),
        p50=round(float(middle), 2),
        p95=round(float(high), 2),
    )


def _sentences(review: ActualsReview, summary: ActualsSummary) -> list[str]:
    """Return what there is to say, the most important first."""
    sentences = []
    if any(is_operating(row.account) for row in review.accounts):
        sentences.append(_income_sentence(summary))
    lines = _account_sentence(review, summary)
    if lines:
        sentences.append(lines)
    if summary.capacity_runs_out is not None:
        sentences.append(_capacity_sentence(review, summary.capacity_runs_out))
        sentences += [_remaining_cost_sentence(summary), _slo_sentence(review)]
    replications = effective(review.forecast.weights)
    if replications < FEW_EFFECTIVE:
        sentences.append(
            f"The forecast rests on only {replications:.0f} effective replications, so its bands are rough. "
            "For finer bands raise --replications."
        )
    return sentences


def _income_sentence(summary: ActualsSummary) -> str:
    """Say by how much operating income is above or below budget, and why."""
    difference = summary.actual_operating_income_usd - summary.budget_operating_income_usd
    months = f"After {len(summary.months)} months, operating income"
    noise = f"two standard deviations of the plan's own replications are {summary.noise_two_sd_usd:,.0f} USD"
    if not round(difference):
        return f"{months} is on budget in the accounts reported."
    direction = "above" if difference > 0 else "below"
    lead = f"{months} is {abs(round(difference)):,} USD {direction} budget in the accounts reported"
    causes = summary.difference_by_cause_usd
    # Cause by cause, rounded so that they add up to the difference as printed.
    parts = to_the_cent(causes, round(difference))
    named = [
        f"{cause} {parts.get(cause, 0):+,} USD ({summary.largest_account[cause].replace('_', ' ')})"
        for cause in causes
        if cause != NOISE
    ]
    if not named:
        return f"{lead}. That is within noise: {noise}."
    if NOISE in parts:
        named.append(f"noise {parts[NOISE]:+,} USD ({noise})")
    return f"{lead}: {'; '.join(named)}."


def _account_sentence(review: ActualsReview, summary: ActualsSummary) -> str:
    """Name what stands out of the noise of its own account, and not of operating income; empty for nothing."""
    parts = [
        (account, cause, part)
        for account, cause, part in _account_causes(review)
        if cause not in summary.difference_by_cause_usd
    ]
    parts.sort(key=lambda row: -abs(row[2]))
    if not parts:
        return ""
    words = [
        f"{account.replace('_', ' ')}: {cause}, {part / 100:+,.0f} USD of cost"
        for account, cause, part in parts[:_LARGEST_PARTS]
    ]
    return f"These exceed the noise of their own account, but not that of operating income: {'; '.join(words)}."


def _account_causes(review: ActualsReview) -> list[tuple[Account, str, int]]:
    """Return account, cause and cents of all that is no noise in an operating account."""
    rows = []
    for row in review.accounts:
        if is_operating(row.account):
            named = [(cause, part) for cause, part in row.causes_cents.items() if cause != NOISE]
            rows += [(row.account, cause, part) for cause, part in named]
    return rows


def _capacity_sentence(review: ActualsReview, capacity: CapacityForecast) -> str:
    """Say in which month capacity runs out."""
    end = review.result.plan.months.labels[-1]
    share = f"{capacity.met_fraction:.0%} of replications meet the SLO target in all months to come"
    if capacity.p5 is None:
        return f"Capacity lasts to the end of the horizon, {end}: {share} ({capacity.status})."
    beyond = f"after {end}"
    p5, p50, p95, prior = (
        month or beyond for month in (capacity.p5, capacity.p50, capacity.p95, capacity.prior_p50)
    )
    return (
        f"Capacity runs out in {p50} (P5 {p5}, P95 {p95}; the forecast before was {prior}): {share} "
        f"({capacity.status})."
    ).replace("in after", "after")


def _remaining_cost_sentence(summary: ActualsSummary) -> str:
    """Say what the months to come cost, what was forecast before, and what moved the forecast."""
    prior = summary.remaining_cost_usd.prior
    posterior = summary.remaining_cost_usd.posterior
    change = posterior.mean - prior.mean
    moved_by = {name: usd for name, usd in summary.moved_by_usd.items() if name != REMAINDER}
    parts = _largest_parts(moved_by, change)
    now_words = _band_words(posterior)
    return (
        f"The months to come are expected to cost {now_words} million USD (in brackets: nine of ten "
        f"replications). The forecast before was {_band_words(prior)}; the change is {change:+,.0f} USD"
        f"{parts}."
    )


def _band_words(band: CostBand) -> str:
    """Return a band in million USD."""
    return f"{band.mean / MILLION:,.3f} ({band.p5 / MILLION:,.3f} to {band.p95 / MILLION:,.3f})"


def _slo_sentence(review: ActualsReview) -> str:
    """Say what SLO attainment is forecast in its lowest month to come."""
    months = review.months
    to_come = review.posterior(SLO)[:, months:]
    # P5 and P50 alone: nobody fears attainment that is too good.
    low, middle = weighted_quantiles(to_come, review.forecast.weights, _BAND[:2])
    # The lowest month by its median: by P5 a single bad replication could choose it.
    lowest = int(np.argmin(middle))
    label = review.result.plan.months.labels[months + lowest]
    budget = review.budget_of(SLO)[months + lowest]
    return (
        f"In {label}, the weakest month to come, SLO attainment is forecast at {middle[lowest]:.2%} "
        f"(P5 {low[lowest]:.2%}); the budget has {budget:.2%}."
    )


def _largest_parts(parts: Mapping[str, float], total: float) -> str:
    """Return after a colon the largest parts of a total in whole dollars, and the rest; they sum to the total."""
    # Rounded together, so that a reader who adds them up finds the total.
    by_size = sorted(parts, key=lambda name: -abs(parts[name]))
    names = by_size[:_LARGEST_PARTS]
    largest = {name: parts[name] for name in names}
    rest = total - sum(largest.values())
    rounded = to_the_cent({**largest, "the rest": rest}, round(total))
    words = [f"{input_words(name)} {usd:+,} USD" for name, usd in rounded.items()]
    return f": {'; '.join(words)}" if words else ""


def forecast_table(review: ActualsReview) -> Table:
    """Return forecast_monthly.csv."""
    rows = []
    months = review.months
    for key in FORECAST:
        budget = review.budget_of(key)
        actual = np.full(budget.shape, np.nan)
        series = review.actuals.series
        actual[:months] = series.get(key, np.nan)
        costs = review.reported_costs()
        if key == COST and costs:
            # Accounts that were not reported count as budgeted.
            # Each account against its own budget: the rest of cost is as planned.
            changes = [usd - review.budget_of(account)[:months] for account, usd in costs.items()]
            actual[:months] = budget[:months] + sum(changes)
        prior = review.prior(key)
        equal_weights = np.ones(len(prior))
        prior_band = weighted_quantiles(prior, equal_weights, _BAND)
        posterior = review.posterior(key)
        posterior_band = weighted_quantiles(posterior, review.forecast.weights, _BAND)
        labels = review.result.plan.months.labels
        columns = zip(labels, budget, actual, *prior_band, *posterior_band, strict=True)
        rows += [(key.figure, *row) for row in columns]
    return ACTUALS_TABLES["forecast_monthly"].of_rows(rows)


def input_table(review: ActualsReview) -> Table:
    """Return forecast_inputs.csv."""
    prior = review.forecast.prior
    posterior = review.forecast.posterior
    weights = review.forecast.weights
    informed = review.forecast.informed
    prior_cost, posterior_cost = review.remaining_costs()
    paid_usd = float(review.paid_usd[review.months :].sum())
    # In the inputs' own units, over both samples: cost is nearer to linear in a price than in its normal score. What
    # was observed says nothing about the other inputs, whose means differ by sampling.
    inputs = np.concatenate([prior.inputs, posterior.inputs])
    cost = np.concatenate([prior_cost, posterior_cost - paid_usd])
    # Least squares of least norm: inputs that do not vary get no slope, where an inverse would
    # fail.
    centred_inputs = inputs - inputs.mean(axis=0)
    centred_cost = cost - cost.mean()
    fitted = np.linalg.lstsq(centred_inputs, centred_cost, rcond=None)
    slopes = fitted[0]
    mean_scores = weights @ posterior.scores
    prior_scores = prior.scores.mean(axis=0)
    moved_sd = informed * (mean_scores - prior_scores)
    mean_inputs = weights @ posterior.inputs
    moved_inputs = mean_inputs - prior.inputs.mean(axis=0)
    moved_cents = 100 * slopes * informed * moved_inputs
    bands = _remaining_cost(review)
    change_usd = bands.posterior.mean - bands.prior.mean
    total_cents = round(100 * change_usd)
    entries = review.prepared.inputs.entries
    names = review.prepared.inputs.names
    parts = dict(zip(names, moved_cents.tolist(), strict=True))
    parts[PAID] = 100 * paid_usd
    # What the linear model leaves, so that the rows sum to the headline.
    parts[REMAINDER] = total_cents - sum(parts.values())
    cents = to_the_cent(parts, total_cents)
    equal_weights = np.ones(len(prior.inputs))
    prior_deciles = weighted_quantiles(prior.inputs, equal_weights, _DECILES)
    posterior_deciles = weighted_quantiles(posterior.inputs, weights, _DECILES)
    rows = []
    columns = zip(entries, *prior_deciles, *posterior_deciles, moved_sd, strict=True)
    for entry, *cells in columns:
        # An input all of whose prices are paid moves nothing any more.
        is_open = entry.throughput_of is not None or any(entry.targets)
        if is_open:
            moved_usd = cents.get(entry.name, 0) / 100
            rows.append((entry.name, *cells, moved_usd))
    # Neither is an input, so that they have no deciles.
    blanks = [None] * 7
    for name in (PAID, REMAINDER):
        usd = cents.get(name, 0) / 100
        rows.append((name, *blanks, usd))
    return ACTUALS_TABLES["forecast_inputs"].of_rows(rows)
