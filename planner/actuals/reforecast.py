"""Reforecast: what actual months say about a study's uncertain inputs, and a new forecast of the months to come.

Figures are compared with the plan's study, whose replications are weighed by what was observed; where the weights rest
on few of them, new ones are drawn near it and run. Of each series two figures are compared: its mean over the observed
months and its trend (later months less earlier), in logarithms where it is positive throughout. The stated error holds
twice: once for a series as a whole, which months do not average out, and once for each month. Prices of machines
already paid are no longer uncertain, in the forecast before as in that after.

A run knows no more of its past than the fleet and the queue it carries, which a replication that fits the observed
months has too; the noise of demand forgets within days. So the remaining months of those replications are the forecast
from the state as it is; the observed months are replaced by what happened.

What the months say about uncertain inputs is a local linear model with importance weights. Inputs are written as
independent normal scores z (the study's points through the normal quantile), so their prior is N(0, I) whatever their
distributions and correlations. Over the replications the figures are regressed on z:

    x = a + B z + r,   r ~ N(0, S)

S is what replications, and the curvature of the model, leave: it is estimated, and months and figures that move
together are not counted twice. The months that happened are x* = a + B z* + r* + e with the stated error e ~ N(0, E),
so a replication's weight is prior · N(x*; a + B z, S + E) / density it was drawn from (a synthetic likelihood, Wood
2010). Where the weights rest on few replications, new ones are drawn from the normal that the linear model implies,
run, and the model is fitted again around them (population Monte Carlo, Cappé and others 2004).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.actuals.months import Actuals
from planner.arrays import Bools, Floats
from planner.errors import PlannerError, Problem, ScenarioError
from planner.finance.accounts import DATED_ACCOUNTS, Account, View
from planner.finance.measure_names import SeriesKey
from planner.progress import PrintLine, silent
from planner.records import record
from planner.studies.designs import Design, Listed
from planner.studies.engines import PIECE, Workforce, replicators
from planner.studies.prepare import Prepared
from planner.studies.replicate import Replicator, Setup

MIN_EFFECTIVE_FRACTION = 0.5
"""Share of replications that the weights must rest on, or new ones are drawn."""
_MAX_ROUNDS = 5
"""How often new replications are drawn at most: after a few rounds the weights no longer gain."""
_SPREAD = 1.1
"""By how much new points spread more than the normal they are drawn from: tails of weights stay short."""
_SIGNIFICANT_ERRORS = 3.0
"""Standard errors by which a slope must differ from zero to count."""
_LOCAL_VARIANCES = 9.0
"""Replications within about three standard deviations of the estimate decide the local model."""
_BATCH_ROWS = 16
"""Replications that a worker runs at a time."""
_MIN_VARIANCE = 1e-12
"""Error variance of a figure at the least, so that its inverse exists."""
_FORECAST_STREAM = 2**31 + 2
"""Number of the random stream of new replications, which no other draw uses."""


class StudyRuns(NamedTuple):
    """Runs of one scenario of a study."""

    scores: Floats
    """Normal scores of the inputs, shape (rows, inputs)."""
    inputs: Floats
    """Their values, shape (rows, inputs)."""
    monthly: Floats
    """Shape (rows, series, months)."""


@record
class PlanRuns:
    """A study's scenario, the series read from its runs, and the workers that run them."""

    prepared: Prepared
    scenario_index: int
    keys: tuple[SeriesKey, ...]
    force: Workforce

    def run(self, design: Design, rows: int) -> StudyRuns:
        """Run the rows of a design and return the successful ones."""
        from scipy.special import ndtri  # noqa: PLC0415 - takes most of a second, which only a forecast should wait for

        setup = self._setup(design)
        inputs = len(setup.inputs)
        # The local model needs more replications than it has slopes, or its residuals say nothing.
        min_rows = 2 * max(inputs, 4)
        if rows < min_rows:
            message = f"{rows} replications are too few for {inputs} uncertain inputs"
            hint = f"ask for {min_rows} or more with --replications"
            raise ScenarioError(Problem(message=message, hint=hint))
        starts = range(0, rows, _BATCH_ROWS)
        batches = [(start, min(start + _BATCH_ROWS, rows)) for start in starts]
        crew = replicators(setup, len(batches), self.force)
        with contextlib.closing(crew):
            results = [*crew.map(Replicator.run, batches, PIECE)]
        by_batch = [result.monthly[:, 0] for result in results]
        monthly = np.concatenate(by_batch)
        # A replication that could not be run has no figure at all.
        is_run = ~np.isnan(monthly).all(axis=(1, 2))
        if is_run.sum() < min_rows:
            errors = [result.errors for result in results if result.errors]
            reason = f": {errors[0][0][2]}" if errors else ""
            raise PlannerError(f"only {is_run.sum()} of {rows} replications could be run{reason}")
        points, _ = design.rows(0, rows)
        # Points at 0 and 1 have no finite score.
        inner_points = np.clip(points, 1e-12, 1 - 1e-12)
        scores = np.asarray(ndtri(inner_points), dtype=np.float64)
        inputs_by_batch = [result.inputs for result in results]
        return StudyRuns(
            scores=scores[is_run],
            inputs=np.concatenate(inputs_by_batch)[is_run],
            monthly=monthly[is_run],
        )

    def _setup(self, design: Design) -> Setup:
        """Return the study reduced to the one scenario and the series that are read."""
        setup = self.prepared.setup(design)
        # A slice, not an index: everything by scenario keeps its axis.
        own_scenario = slice(self.scenario_index, self.scenario_index + 1)
        entries = tuple(
            replace(entry, targets=entry.targets[own_scenario]) for entry in setup.inputs.entries
        )
        own_inputs = replace(setup.inputs, entries=entries)
        return replace(
            setup,
            scenarios=setup.scenarios[own_scenario],
            inputs=own_inputs,
            seen=self.keys,
        )


@record
class Forecast:
    """The plan's forecast before and after the observed months."""

    prior: StudyRuns
    """The study's own replications."""
    posterior: StudyRuns
    """Those that carry the weights."""
    weights: Floats
    """Of the replications after, shape (rows,); they sum to one."""
    rounds: int
    """How often new replications were drawn; 0: the study's own carry the weights."""
    unused: dict[SeriesKey, str]
    """Series that did not move the forecast, and why."""
    informed: Bools
    """Inputs that the series used depend on, shape (inputs,)."""


def reforecast(
    plan: PlanRuns, prior: StudyRuns, actuals: Actuals, progress: PrintLine = silent
) -> Forecast:
    """Return the forecast before and after the observed months; ``prior`` are the study's own replications."""
    from scipy.special import ndtr  # noqa: PLC0415 - as above

    rows, inputs = prior.scores.shape
    unused = _unused_series(plan.keys, prior, actuals)
    used = [key for key in actuals.series if key not in unused]
    if not used or not inputs:
        # Nothing was learned: the forecast stays as it was.
        return Forecast(
            prior=prior,
            posterior=prior,
            weights=np.full(rows, 1.0 / rows),
            rounds=0,
            unused=unused,
            informed=np.zeros(inputs, np.bool_),
        )
    statistics = _SeriesStatistics(plan.keys, used, prior, actuals)
    all_runs = prior
    runs = prior
    estimate = standard_normal(inputs)
    proposal = estimate
    for rounds in range(_MAX_ROUNDS + 1):
        relevance = np.ones(rows)
        if rounds:
            # How much each replication has to say about the model near the estimate: 1 for the nearest.
            distance = estimate.distance(all_runs.scores) / _LOCAL_VARIANCES
            nearest = distance.min()
            relevance = np.exp(-0.5 * (distance - nearest))
        figures = statistics.figures(all_runs.monthly)
        model = fit_linear(all_runs.scores, figures, relevance)
        weights = importance_weights(runs.scores, model, statistics.target, proposal)
        enough = MIN_EFFECTIVE_FRACTION * len(weights)
        has_enough = effective(weights) >= enough
        if has_enough or rounds == _MAX_ROUNDS:
            break
        estimate = model.posterior(statistics.target)
        # A little wider than the estimate: rows in its tails would otherwise carry all the weight.
        wider = estimate.covariance * _SPREAD**2
        proposal = NormalScores(mean=estimate.mean, covariance=wider)
        progress(f"reweighting to the actual months, round {rounds + 1}")
        stream = (_FORECAST_STREAM, rounds + 1)
        sequence = np.random.SeedSequence(plan.prepared.seed, spawn_key=stream)
        generator = np.random.Generator(np.random.PCG64(sequence))
        scores = proposal.draw(generator, rows)
        points = np.asarray(ndtr(scores), dtype=np.float64)
        # Each has a replication number that none before had.
        design = Listed(listed=points, first_replication=rows * (rounds + 1))
        runs = plan.run(design, rows)
        columns_of_all = zip(all_runs, runs, strict=True)
        all_runs = StudyRuns(*(np.concatenate(columns) for columns in columns_of_all))
    return Forecast(
        prior=prior,
        posterior=runs,
        weights=weights,
        rounds=rounds,
        unused=unused,
        informed=(model.slopes != 0.0).any(axis=0),
    )


def _unused_series(
    keys: Sequence[SeriesKey], prior: StudyRuns, actuals: Actuals
) -> dict[SeriesKey, str]:
    """Return why series carry no information on the inputs; those that do are not in it."""
    reasons = {}
    for key, actual in actuals.series.items():
        observed_months = len(actuals.months)
        place = keys.index(key)
        runs = prior.monthly[:, place, :observed_months]
        # Stated reasons come first: they say more than a measure that happens to fit.
        reason = _stated_reason(key, actuals) or _measured_reason(key, actual, runs, actuals)
        if reason:
            reasons[key] = reason
    return reasons


def _stated_reason(key: SeriesKey, actuals: Actuals) -> str:
    """Return why a series is not used, whatever its figures are; nothing where it may be."""
    if key.figure in actuals.mapping.leave_out:
        return "left out in the mapping"
    files = actuals.mapping.files.values()
    is_vllm = any(file.kind == "vllm" for file in files)
    if is_vllm and key.figure == "slo_attainment_fraction":
        return "vLLM does not count refused requests"
    if key.kind == "account":
        account = Account(key.figure)
        if account in DATED_ACCOUNTS or View.ACCRUAL not in account.views:
            return "a purchase on a date, or not an accrued cost"
    return ""


def _measured_reason(key: SeriesKey, actual: Floats, runs: Floats, actuals: Actuals) -> str:
    """Return why the figures of a series say nothing about the inputs; nothing where they do."""
    # A month counts where the books have it and every replication does.
    is_simulated = np.isfinite(runs).all(axis=0)
    is_known = np.isfinite(actual) & is_simulated
    if not is_known.any():
        return "no month has a value in both plan and actuals"
    total = actual[is_known].sum()
    sums = runs[:, is_known].sum(axis=1)
    # Sums that differ by rounding alone are the same.
    rounding = 1e-9 * abs(sums).max() + 1e-12
    if np.ptp(sums) <= rounding:
        return "the same in every replication"
    room = 3.0 * actuals.error_fraction(key) * abs(total)
    is_reached = sums.min() - room <= total <= sums.max() + room
    if key.kind == "account" and not is_reached:
        # A price that the study holds for certain is wrong: no input may be bent to make up for it.
        return "no replication comes near it, so no uncertain input explains it"
    return ""


class _SeriesStatistics:
    """The figures by which replications are compared with actuals: mean and trend of each series."""

    def __init__(
        self,
        keys: Sequence[SeriesKey],
        used: Sequence[SeriesKey],
        prior: StudyRuns,
        actuals: Actuals,
    ) -> None:
        self.places = [keys.index(key) for key in used]
        self.months = len(actuals.months)
        actual = np.stack([actuals.series[key] for key in used])
        runs = prior.monthly[:, self.places, : self.months]
        has_all_runs = np.isfinite(runs).all(axis=0)
        self.is_known = np.isfinite(actual) & has_all_runs
        """Months that count, shape (series, months)."""
        shape = (len(used), 2, self.months)
        self.weights = np.zeros(shape)
        """What each month counts in a series' mean and trend, shape (series, 2, months)."""
        for place, is_known in enumerate(self.is_known):
            months = np.flatnonzero(is_known)
            self.weights[place, 0, months] = 1.0 / len(months)
            half = len(months) // 2
            if half:
                # The later half less the earlier; of an odd number the middle month counts for neither.
                self.weights[place, 1, months[:half]] = -1.0 / half
                self.weights[place, 1, months[-half:]] = 1.0 / half
        self.is_used = (self.weights != 0).any(axis=2)
        """False for the trend of a single month."""
        actual_and_runs = np.concatenate([actual[None], runs])
        values = np.where(self.is_known, actual_and_runs, np.inf)
        lowest = values.min(axis=(0, 2))
        # A thousandth of the lowest seen: a later run near zero would else have an endless
        # logarithm.
        self.floor = np.where(lowest > 0, 1e-3 * lowest, np.nan)
        """Below which a later run's logarithm is not followed, shape (series,); NaN for a series not in logarithms."""
        error = np.array([actuals.error_fraction(key) for key in used])
        known_actual = np.where(self.is_known, actual, 0.0)
        known_sums = np.abs(known_actual).sum(axis=1)
        mean_size = known_sums / self.is_known.sum(axis=1)
        # In logarithms an error is relative as it stands.
        deviation = np.where(lowest > 0, error, error * mean_size)
        squared_weights = (self.weights**2).sum(axis=2)
        variance = deviation[:, None] ** 2 * squared_weights
        # Once more for the series as a whole, which no number of months averages out.
        variance[:, 0] += deviation**2
        figures = self._figures(actual[None])[0]
        error_variance = np.maximum(variance[self.is_used], _MIN_VARIANCE)
        self.target = Target(figures, error_variance)

    def figures(self, monthly: Floats) -> Floats:
        """Return the figures of replications, shape (rows, figures)."""
        return self._figures(monthly[:, self.places, : self.months])

    def _figures(self, values: Floats) -> Floats:
        """Return mean and trend of series of shape (rows, series, months), without uninformative ones."""
        # Months that do not count weigh nothing, but NaN times nothing would be NaN.
        safe = np.where(self.is_known, values, 1.0)
        floor = self.floor[:, None]
        # fmax passes over NaN, and a series that is not in logarithms needs any floor above zero.
        finite_floor = np.nan_to_num(floor, nan=1.0)
        logarithms = np.log(np.fmax(safe, finite_floor))
        safe = np.where(np.isnan(floor), safe, logarithms)
        all_figures = np.einsum("rsm,skm->rsk", safe, self.weights)
        figures: Floats = all_figures[:, self.is_used]
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

    def draw(self, generator: np.random.Generator, count: int) -> Floats:
        """Return scores, shape (count, inputs), in antithetic pairs whose mean is exact."""
        pairs = -(-count // 2)
        half = generator.standard_normal((pairs, len(self.mean)))
        scores = np.concatenate([half, -half])[:count]
        return self.mean + scores @ self.root.T

    @property
    def root(self) -> Floats:
        """L with L Lᵀ the covariance."""
        root = np.linalg.cholesky(self.covariance)
        return np.asarray(root, dtype=np.float64)

    def distance(self, scores: Floats) -> Floats:
        """Return the squared Mahalanobis distance of scores, shape (rows,)."""
        deviations = (scores - self.mean).T
        whitened = np.linalg.solve(self.root, deviations)
        distances = (whitened**2).sum(axis=0)
        return np.asarray(distances, dtype=np.float64)

    def log_density(self, scores: Floats) -> Floats:
        """Return the log density of scores, without the constant common to all normals."""
        log_scales = np.log(np.diag(self.root))
        log_volume = float(log_scales.sum())
        return -0.5 * self.distance(scores) - log_volume


def standard_normal(inputs: int) -> NormalScores:
    """Return the prior distribution of the scores."""
    mean = np.zeros(inputs)
    return NormalScores(mean=mean, covariance=np.eye(inputs))


class LinearResponse(NamedTuple):
    """Summary figures as a linear function of scores, with the residual covariance."""

    intercept: Floats
    slopes: Floats
    """Shape (figures, inputs)."""
    residual_covariance: Floats
    """S, shape (figures, figures)."""

    def posterior(self, target: Target) -> NormalScores:
        """Return the posterior of the scores given the target: (I + Bᵀ R⁻¹ B)⁻¹ and its mean, R = S + E."""
        noise = self.residual_covariance + np.diag(target.error_variance)
        weighted_slopes = np.linalg.solve(noise, self.slopes)
        # The prior's precision is I: what the months say is added to it.
        prior_precision = np.eye(self.slopes.shape[1])
        precision = prior_precision + self.slopes.T @ weighted_slopes
        covariance = np.linalg.inv(precision)
        # Rounding leaves it a little askew, which a Cholesky root does not take.
        covariance = 0.5 * (covariance + covariance.T)
        difference = target.figures - self.intercept
        mean = covariance @ weighted_slopes.T @ difference
        return NormalScores(mean=mean, covariance=covariance)


def fit_linear(scores: Floats, figures: Floats, weights: Floats) -> LinearResponse:
    """Fit figures, shape (rows, figures), to scores by weighted least squares.

    A little of the prior's variance is added to the squares of the scores (a ridge), so that an input which the rows do
    not vary gets no slope. A slope within three standard errors of zero is taken as zero: a figure far outside the plan
    would else move inputs that have nothing to do with it. The residual covariance is drawn towards its diagonal as
    there are figures per row.
    """
    share = weights / weights.sum()
    # As many rows of equal weight as say the same.
    rows = 1.0 / float((share**2).sum())
    count = figures.shape[1]
    mean_scores = share @ scores
    mean_figures = share @ figures
    z = scores - mean_scores
    x = figures - mean_figures
    weighted_z = (z * share[:, None]).T
    ridge = np.eye(z.shape[1]) * 1e-3
    squares = weighted_z @ z + ridge
    slopes = np.linalg.solve(squares, weighted_z @ x).T
    residual = x - z @ slopes.T
    residual_variance = share @ residual**2
    inverse_squares = np.diag(np.linalg.inv(squares))
    error = np.sqrt(np.outer(residual_variance, inverse_squares) / rows)
    is_significant = np.abs(slopes) > _SIGNIFICANT_ERRORS * error
    slopes = np.where(is_significant, slopes, 0.0)
    # Again, now that some slopes are zero; as many degrees of freedom are lost as there are inputs.
    residual = x - z @ slopes.T
    freedom = max(rows - z.shape[1] - 1.0, 1.0)
    weighted_residual = (residual * share[:, None]).T
    covariance = weighted_residual @ residual * rows / freedom
    shrinkage = count / (count + rows)
    diagonal = np.diag(np.diag(covariance))
    covariance = (1.0 - shrinkage) * covariance + shrinkage * diagonal
    return LinearResponse(
        intercept=mean_figures - slopes @ mean_scores,
        slopes=slopes,
        residual_covariance=covariance,
    )


def importance_weights(
    scores: Floats, model: LinearResponse, target: Target, proposal: NormalScores
) -> Floats:
    """Return importance weights that sum to one: prior · likelihood / proposal density, shape (rows,)."""
    # log N(x*; a + B z, S + E) of scores, less a constant
    noise = model.residual_covariance + np.diag(target.error_variance)
    root = np.linalg.cholesky(noise)
    fitted = scores @ model.slopes.T
    residual = target.figures - model.intercept - fitted
    whitened = np.linalg.solve(root, residual.T)
    log_likelihood = 0.5 * (whitened**2).sum(axis=0)
    prior = standard_normal(scores.shape[1])
    log_weights = prior.log_density(scores) - log_likelihood
    log_weights -= proposal.log_density(scores)
    # The largest is one before all are scaled: no exponential overflows.
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def effective(weights: Floats) -> float:
    """Return the effective number of replications, 1 / Σ w² (Kong 1992)."""
    return float(1.0 / (weights**2).sum())


def weighted_quantiles(values: Floats, weights: Floats, probabilities: Floats) -> Floats:
    """Return quantiles along the first axis of values with weights, shape (probabilities, ...).

    Each replication stands at the middle of its weight; between them it is even.
    """
    # Stable: equal values keep the order of their rows, so that a forecast repeats to the bit.
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    mass = weights[order] / weights.sum()
    middles = np.cumsum(mass, axis=0) - 0.5 * mass
    # Every column has an order of its own, so each is interpolated alone.
    rows = len(values)
    flat_middles = middles.reshape(rows, -1).T
    flat_values = ordered.reshape(rows, -1).T
    columns = zip(flat_middles, flat_values, strict=True)
    by_column = [np.interp(probabilities, middle, column) for middle, column in columns]
    quantiles = np.array(by_column)
    return quantiles.T.reshape(len(probabilities), *values.shape[1:])
