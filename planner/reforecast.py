"""Reforecast: actual months compared with their plan, and a new forecast of the remaining horizon.

Budget and actual are compared by account and cause, figures with the interval of the plan's study. The replications of
that study are weighed by what was seen; where the weights rest on few of them, new ones are drawn near what was seen
and run. Of each series two figures are compared: its mean over the months seen and its trend (later months less
earlier), in logarithms where it is positive throughout. The stated error holds twice: once for a series as a whole,
which months do not average out, and once for each month.

A run knows no more of its past than the fleet and the queue it carries, which a replication that fits the months seen
has too; the noise of demand forgets within days. So the remaining months of those replications are the forecast from
the state as it is; the months seen are replaced by what happened.

What the months say about uncertain inputs is a local linear model with importance weights. Inputs are written as
independent normal scores z (the study's points through the normal quantile), so their prior is N(0, I) whatever their
distributions and correlations. Over the replications the figures seen are regressed on z:

    x = a + B z + r,   r ~ N(0, S)

S is what chance, and the curvature of the model, leave: it is estimated, and months and figures that move together are
not counted twice. The months that happened are x* = a + B z* + r* + e with the stated error e ~ N(0, E), so a
replication's weight is prior · N(x*; a + B z, S + E) / density it was drawn from (a synthetic likelihood, Wood 2010).
Where the weights rest on few replications, new ones are drawn from the normal that the linear model implies, run, and
the model is fitted again around them (population Monte Carlo, Cappé and others 2004).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.errors import PlannerError, Problem, ScenarioError
from planner.finance.bridge import ARRIVED, DRIVERS, account_variance
from planner.finance.ledger import ACCOUNT_CODES, DATED_ACCOUNTS, NOT_COST_ACCOUNTS, Account, View, cents
from planner.run.measures import observed
from planner.run.simulate import RunResult, simulate
from planner.scenario.actuals import FLEET, Actuals, Seen
from planner.studies.designs import Design, Listed
from planner.studies.engines import run_batches
from planner.studies.prepare import Prepared
from planner.studies.runner import Workforce

Say = Callable[[str], None]
INTERVAL = (0.05, 0.95)
"""The interval that a figure is held against: nine replications in ten."""
_FAILED_FRACTION = 0.02
"""Share of a fleet that failures take in and out of service from month to month (assumption)."""
_FLEET = ("served_tokens", "energy_kwh", "accelerators_in_service", "peak_facility_kw", "demand_tokens")
FEWEST_EFFECTIVE = 0.5
"""Share of replications that the weights must rest on, or new ones are drawn."""
_MOST_ROUNDS = 5
COST = Seen("cluster", FLEET, "cost_usd")
TOKENS = Seen("cluster", FLEET, "served_tokens")
FORECAST = (COST, TOKENS, Seen("cluster", FLEET, "demand_tokens"), Seen("cluster", FLEET, "utilisation_fraction"))
"""What is forecast by month."""
_WIDER = 1.1
"""By how much new points spread more than the normal they are drawn from: tails of weights stay short."""
_SURE = 3.0
"""Standard errors by which a slope must differ from zero to count."""
_LOCAL = 9.0
"""Replications within about three standard deviations of the estimate decide the local model."""


def is_cost(account: Account) -> bool:
    """Return whether an account is part of accrued cost."""
    return View.ACCRUAL in account.views and account not in NOT_COST_ACCOUNTS


class AccountVariance(NamedTuple):
    """Budget and actual of one account over the observed months."""

    account: Account
    budget_cents: int
    actual_cents: int
    causes_cents: dict[str, int]
    """Actual less budget by cause; they sum to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualsReview:
    """A plan compared with its actual months."""

    result: RunResult
    """The plan as stated: its budget."""
    prepared: Prepared
    which: int
    actuals: Actuals
    seen: tuple[Seen, ...]
    budget: Floats
    """The plan's series as stated, shape (series, months)."""
    interval: Floats
    """P5 and P95 of the study's replications, shape (2, series, months)."""
    accounts: tuple[AccountVariance, ...]
    forecast: Forecast

    @property
    def months(self) -> tuple[str, ...]:
        """The observed months."""
        return self.actuals.months

    def outside(self, series: Seen) -> list[str]:
        """Return the months in which a series was outside its interval."""
        place, happened = self.seen.index(series), self.actuals.series[series]
        low, high = self.interval[:, place, : len(self.months)]
        slack = 1e-9 * np.abs(happened)
        beyond = (happened < low - slack) | (happened > high + slack)
        return [month for month, is_beyond in zip(self.months, beyond, strict=True) if is_beyond]


def hold(
    prepared: Prepared,
    which: int,
    actuals: Actuals,
    replications: int,
    force: Workforce,
    progress: Say = lambda _: None,
) -> ActualsReview:
    """Run a plan as stated and under its study's uncertain inputs, compare it with actuals, and reforecast."""
    fleet = [Seen("cluster", FLEET, name) for name in _FLEET]
    seen = tuple(dict.fromkeys((*actuals.series, *FORECAST, *fleet)))
    progress("simulating the plan as stated")
    result = simulate(prepared.scenarios[which].scenario, prepared.seed)
    plan = PlanRuns(prepared=prepared, which=which, seen=seen, force=force)
    progress(f"running {replications:,} replications")
    old = plan.run(prepared.montecarlo(), replications)
    budget, count = observed(result, seen), len(actuals.months)
    parts = {
        "cluster": [cluster.name for cluster in result.plan.clusters],
        "workload": [workload.name for workload in result.plan.workloads],
    }
    quantities: dict[str, tuple[float, float]] = {}
    for name in {name for drivers in DRIVERS.values() for name in drivers}:
        happened = _fleet_series(actuals, name, parts)
        if happened is not None and np.isfinite(happened).all():
            planned = budget[seen.index(Seen("cluster", FLEET, name)), :count]
            quantities[name] = (float(planned.sum()), float(happened.sum()))
            if name == "accelerators_in_service":
                quantities[ARRIVED] = _as_many(float(planned[-1]), float(happened[-1]))
                quantities[name] = _as_many(*quantities[name])
    variances = []
    for account in (account for account in ACCOUNT_CODES if Seen("account", FLEET, account) in actuals.series):
        series = Seen("account", FLEET, account)
        planned = budget[seen.index(series)]
        both = (int(cents(planned[:count].sum())), int(cents(actuals.series[series].sum())))
        causes = account_variance(account, both, int(cents(planned.sum())), quantities)
        variances.append(AccountVariance(account, *both, causes_cents=causes))
    return ActualsReview(
        result=result,
        prepared=prepared,
        which=which,
        actuals=actuals,
        seen=seen,
        budget=budget,
        interval=weighted_quantiles(old.monthly, np.ones(len(old.monthly)), np.array(INTERVAL)),
        accounts=tuple(variances),
        forecast=reforecast(plan, old, actuals, progress),
    )


def _as_many(planned: float, happened: float) -> tuple[float, float]:
    """Return planned and actual machine counts, made equal where failures alone can explain the difference."""
    return (planned, planned) if abs(happened - planned) <= _FAILED_FRACTION * planned else (planned, happened)


def _fleet_series(actuals: Actuals, name: str, parts: Mapping[str, Sequence[str]]) -> Floats | None:
    """Return an observed figure of the fleet: its own, or the sum over all workloads or clusters."""
    if (stated := actuals.series.get(Seen("cluster", FLEET, name))) is not None or name == "peak_facility_kw":
        return stated
    for kind in ("workload", "cluster"):
        by_part = [actuals.series.get(Seen(kind, of, name)) for of in parts[kind]]
        if all(series is not None for series in by_part):
            return np.asarray(np.sum(np.array(by_part, dtype=np.float64), axis=0))
    return None


class StudyRuns(NamedTuple):
    """Runs of one scenario of a study."""

    scores: Floats
    """Normal scores of the inputs, shape (rows, inputs)."""
    inputs: Floats
    """Their values, shape (rows, inputs)."""
    monthly: Floats
    """Shape (rows, series, months)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRuns:
    """A study's scenario, the series read from its runs, and the workers that run them."""

    prepared: Prepared
    which: int
    seen: tuple[Seen, ...]
    force: Workforce

    def run(self, design: Design, rows: int) -> StudyRuns:
        """Run the rows of a design and return the successful ones."""
        from scipy.special import ndtri  # noqa: PLC0415 - takes most of a second, which only a forecast should wait for

        setup, which = self.prepared.setup(design), slice(self.which, self.which + 1)  # one scenario alone
        alone = tuple(replace(uncertain, targets=uncertain.targets[which]) for uncertain in setup.inputs.entries)
        inputs = replace(setup.inputs, entries=alone)
        setup = replace(setup, scenarios=setup.scenarios[which], inputs=inputs, seen=self.seen)
        fewest = 2 * max(len(setup.inputs), 4)
        if rows < fewest:
            message = f"{rows} replications are too few for {len(setup.inputs)} uncertain inputs"
            raise ScenarioError(Problem(message=message, hint=f"ask for {fewest} or more with --replications"))
        batches = [(first, min(first + 16, rows)) for first in range(0, rows, 16)]
        ran_rows = run_batches(setup, batches, self.force.workers, self.force.scheduler)
        parts = sorted(ran_rows, key=lambda part: part.first)
        monthly = np.concatenate([part.monthly[:, 0] for part in parts])
        ran = ~np.isnan(monthly).all(axis=(1, 2))
        if ran.sum() < fewest:
            said = next((message for part in parts for _, _, message in part.errors), "")
            raise PlannerError(f"only {ran.sum()} of {rows} replications could be run{said and ': '}{said}")
        points, _ = design.rows(0, rows)
        return StudyRuns(
            scores=np.asarray(ndtri(np.clip(points, 1e-12, 1 - 1e-12)), dtype=np.float64)[ran],
            inputs=np.concatenate([part.inputs for part in parts])[ran],
            monthly=monthly[ran],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The plan's forecast before and after the observed months."""

    old: StudyRuns
    new: StudyRuns
    weights: Floats
    """Of the new replications, shape (rows,); they sum to one."""
    rounds: int
    """How often new replications were drawn; 0: the study's own carry the weights."""
    used: tuple[Seen, ...]
    """Series that moved the forecast."""
    unused: dict[Seen, str]
    """Series that did not, and why."""

    @property
    def effective(self) -> float:
        """Effective number of replications behind the new forecast."""
        return effective(self.weights)


def reforecast(plan: PlanRuns, old: StudyRuns, actuals: Actuals, progress: Say = lambda _: None) -> Forecast:
    """Return the forecast before and after the observed months; ``old`` are the study's own replications."""
    from scipy.special import ndtr  # noqa: PLC0415 - as above

    (used, unused), rows = _informing(plan.seen, old, actuals), len(old.scores)
    if not used or not old.scores.shape[1]:
        equal = np.full(rows, 1.0 / rows)
        return Forecast(old=old, new=old, weights=equal, rounds=0, used=(), unused=unused)
    summary = _Summary(plan.seen, used, old, actuals)
    seen_all, drawn = old, old
    around = drawn_from = prior(old.scores.shape[1])
    for turn in range(_MOST_ROUNDS + 1):
        local = np.ones(rows)
        if turn:  # how much each has to say about the model near the estimate
            distance = around.distance(seen_all.scores) / _LOCAL
            local = np.exp(-0.5 * (distance - distance.min()))
        model = fit_linear(seen_all.scores, summary.figures(seen_all.monthly), local)
        weights = importance_weights(drawn.scores, model, summary.target, drawn_from)
        if effective(weights) >= FEWEST_EFFECTIVE * len(weights) or turn == _MOST_ROUNDS:
            break
        around = model.posterior(summary.target)
        drawn_from = NormalScores(mean=around.mean, covariance=around.covariance * _WIDER**2)
        progress(f"drawing near what was seen, round {turn + 1}")
        sequence = np.random.SeedSequence(plan.prepared.seed, spawn_key=(2**31 + 2, turn + 1))
        scores = drawn_from.drawn(np.random.Generator(np.random.PCG64(sequence)), rows)
        near = np.asarray(ndtr(scores), dtype=np.float64)
        # Each has a chance that no replication before had.
        drawn = plan.run(Listed(listed=near, first_chance=rows * (turn + 1)), rows)
        seen_all = StudyRuns(*(np.concatenate(both) for both in zip(seen_all, drawn, strict=True)))
    return Forecast(old=old, new=drawn, weights=weights, rounds=turn, used=used, unused=unused)


def _informing(seen: Sequence[Seen], old: StudyRuns, actuals: Actuals) -> tuple[tuple[Seen, ...], dict[Seen, str]]:
    """Return the series that carry information on the inputs, and why the others do not."""
    unused: dict[Seen, str] = {}
    from_metrics = any(file.kind == "vllm" for file in actuals.mapping.files.values())
    count = len(actuals.months)
    for series, happened in actuals.series.items():
        runs = old.monthly[:, seen.index(series), :count]
        both = np.isfinite(happened) & np.isfinite(runs).all(axis=0)
        if series.name in actuals.mapping.leave_out:
            unused[series] = "left out in the mapping"
        elif from_metrics and series.name == "slo_attainment_fraction":
            unused[series] = "vLLM does not count what was refused"
        elif series.kind == "account" and (
            Account(series.name) in DATED_ACCOUNTS or View.ACCRUAL not in Account(series.name).views
        ):
            unused[series] = "bought on a date, or no accrued cost"
        elif not both.any():
            unused[series] = "no month has it in plan and actuals"
        else:
            total, error = happened[both].sum(), actuals.error_fraction(series)
            sums = runs[:, both].sum(axis=1)
            room = 3.0 * error * abs(total)
            if np.ptp(sums) <= 1e-9 * abs(sums).max() + 1e-12:
                unused[series] = "the same in every replication"
            elif series.kind == "account" and not sums.min() - room <= total <= sums.max() + room:
                # A price that the study holds for certain is wrong: no input may be bent to make up for it.
                unused[series] = "outside every replication: no uncertain input explains it"
    return tuple(series for series in actuals.series if series not in unused), unused


class _Summary:
    """Summary figures to compare replications with actuals: mean and trend of each series."""

    def __init__(self, seen: Sequence[Seen], used: Sequence[Seen], old: StudyRuns, actuals: Actuals) -> None:
        self.places = [seen.index(series) for series in used]
        self.months = len(actuals.months)
        happened = np.stack([actuals.series[series] for series in used])
        runs = old.monthly[:, self.places, : self.months]
        self.known = np.isfinite(happened) & np.isfinite(runs).all(axis=0)
        """Months that count, shape (series, months)."""
        self.weights = np.zeros((len(used), 2, self.months))
        """What each month counts in a series' mean and trend, shape (series, 2, months)."""
        for place, row in enumerate(self.known):
            months = np.flatnonzero(row)
            self.weights[place, 0, months] = 1.0 / len(months)
            if half := len(months) // 2:
                self.weights[place, 1, months[:half]], self.weights[place, 1, months[-half:]] = -1.0 / half, 1.0 / half
        self.keep = (self.weights != 0).any(axis=2)
        both = np.where(self.known, np.concatenate([happened[None], runs]), np.inf)
        least = both.min(axis=(0, 2))
        self.floor = np.where(least > 0, 1e-3 * least, np.nan)
        """Below which a later run's logarithm is not followed, shape (series,); NaN for a series not in logarithms."""
        error = np.array([actuals.error_fraction(series) for series in used])
        size = np.abs(np.where(self.known, happened, 0.0)).sum(axis=1) / self.known.sum(axis=1)
        sd = np.where(least > 0, error, error * size)
        variance = sd[:, None] ** 2 * (self.weights**2).sum(axis=2)
        variance[:, 0] += sd**2
        self.target = Target(self._figures(happened[None])[0], np.maximum(variance[self.keep], 1e-12))

    def figures(self, monthly: Floats) -> Floats:
        """Return the summary figures of replications, shape (rows, figures)."""
        return self._figures(monthly[:, self.places, : self.months])

    def _figures(self, values: Floats) -> Floats:
        """Return mean and trend of series of shape (rows, series, months), without uninformative ones."""
        safe, floor = np.where(self.known, values, 1.0), self.floor[:, None]
        safe = np.where(np.isnan(floor), safe, np.log(np.fmax(safe, np.nan_to_num(floor, nan=1.0))))
        figures: Floats = np.einsum("rsm,skm->rsk", safe, self.weights)[:, self.keep]
        return figures


class Target(NamedTuple):
    """The observed summary figures, and their error variance."""

    figures: Floats
    """x*, shape (figures,)."""
    error_variance: Floats
    """Diagonal of E, shape (figures,)."""


class NormalScores(NamedTuple):
    """A multivariate normal distribution of scores."""

    mean: Floats
    covariance: Floats

    def drawn(self, generator: np.random.Generator, count: int) -> Floats:
        """Return scores, shape (count, inputs), in antithetic pairs whose mean is exact."""
        half = generator.standard_normal((-(-count // 2), len(self.mean)))
        return self.mean + np.concatenate([half, -half])[:count] @ self.root.T

    @property
    def root(self) -> Floats:
        """L with L Lᵀ the covariance."""
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=np.float64)

    def distance(self, scores: Floats) -> Floats:
        """Return the squared Mahalanobis distance of scores, shape (rows,)."""
        return np.asarray((np.linalg.solve(self.root, (scores - self.mean).T) ** 2).sum(axis=0), dtype=np.float64)

    def log_density(self, scores: Floats) -> Floats:
        """Return the log density of scores, without the constant common to all normals."""
        return -0.5 * self.distance(scores) - float(np.log(np.diag(self.root)).sum())


def prior(inputs: int) -> NormalScores:
    """Return the prior distribution of the scores."""
    return NormalScores(mean=np.zeros(inputs), covariance=np.eye(inputs))


class LinearResponse(NamedTuple):
    """Summary figures as a linear function of scores, with the residual covariance."""

    intercept: Floats
    slopes: Floats
    """Shape (figures, inputs)."""
    left: Floats
    """S, shape (figures, figures)."""

    def posterior(self, target: Target) -> NormalScores:
        """Return the posterior of the scores given the target: (I + Bᵀ R⁻¹ B)⁻¹ and its mean, R = S + E."""
        noise = self.left + np.diag(target.error_variance)
        told = np.linalg.solve(noise, self.slopes)
        covariance = np.linalg.inv(np.eye(self.slopes.shape[1]) + self.slopes.T @ told)
        covariance = 0.5 * (covariance + covariance.T)
        return NormalScores(mean=covariance @ told.T @ (target.figures - self.intercept), covariance=covariance)


def fit_linear(scores: Floats, figures: Floats, weights: Floats) -> LinearResponse:
    """Fit figures, shape (rows, figures), to scores by weighted least squares.

    A little of the prior's variance is added to the squares of the scores (a ridge), so that an input which the rows do
    not vary gets no slope. A slope within three standard errors of zero is taken as zero: a figure far outside the plan
    would else move inputs that have nothing to do with it. The residual covariance is drawn towards its diagonal as
    there are figures per row.
    """
    share = weights / weights.sum()
    rows, count = 1.0 / float((share**2).sum()), figures.shape[1]
    middle, mean = share @ scores, share @ figures
    z, x = scores - middle, figures - mean
    squares = (z * share[:, None]).T @ z + np.eye(z.shape[1]) * 1e-3
    slopes = np.linalg.solve(squares, (z * share[:, None]).T @ x).T
    off = x - z @ slopes.T
    error = np.sqrt(np.outer(share @ off**2, np.diag(np.linalg.inv(squares))) / rows)
    slopes = np.where(np.abs(slopes) > _SURE * error, slopes, 0.0)
    off = x - z @ slopes.T
    left = (off * share[:, None]).T @ off * rows / max(rows - z.shape[1] - 1.0, 1.0)
    shrunk = count / (count + rows)
    left = (1.0 - shrunk) * left + shrunk * np.diag(np.diag(left))
    return LinearResponse(intercept=mean - slopes @ middle, slopes=slopes, left=left)


def importance_weights(scores: Floats, model: LinearResponse, target: Target, drawn_from: NormalScores) -> Floats:
    """Return importance weights that sum to one: prior · likelihood / proposal density, shape (rows,)."""
    # log N(x*; a + B z, S + E) of scores, less a constant
    root = np.linalg.cholesky(model.left + np.diag(target.error_variance))
    off = target.figures - model.intercept - scores @ model.slopes.T
    logs = prior(scores.shape[1]).log_density(scores) - 0.5 * (np.linalg.solve(root, off.T) ** 2).sum(axis=0)
    logs -= drawn_from.log_density(scores)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def effective(weights: Floats) -> float:
    """Return the effective number of replications, 1 / Σ w² (Kong 1992)."""
    return float(1.0 / (weights**2).sum())


def weighted_quantiles(values: Floats, weights: Floats, probabilities: Floats) -> Floats:
    """Return quantiles along the first axis of values with weights, shape (probabilities, ...).

    Each replication stands at the middle of its weight; between them it is even.
    """
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    mass = weights[order] / weights.sum()
    places = np.cumsum(mass, axis=0) - 0.5 * mass
    columns = zip(places.reshape(len(values), -1).T, ordered.reshape(len(values), -1).T, strict=True)
    quantiles = np.array([np.interp(probabilities, at, figures) for at, figures in columns])
    return quantiles.T.reshape(len(probabilities), *values.shape[1:])
