"""Reforecast: actual months compared with their plan, and a new forecast of the remaining horizon.

**Budget against actual** is a flexible budget (:func:`flexible_budget`): the plan is run again, with the same random
numbers, at the traffic that came; its books are then written at the prices paid, and then also at the quantities
measured. What each step adds is volume, price and efficiency; what the last leaves is unexplained. So the causes of an
account sum to its difference to the cent. With Q of the run at actual traffic, price is (paid per unit − planned) · Q
and efficiency paid per unit · (quantity − Q). Machines already bought stand in the books at what was paid for them.

**Forecast.** Figures are compared with the interval of the plan's study, whose replications are weighed by what was
seen; where the weights rest on few of them, new ones are drawn near what was seen and run. Of each series two figures
are compared: its mean over the months seen and its trend (later months less earlier), in logarithms where it is
positive throughout. The stated error holds twice: once for a series as a whole, which months do not average out, and
once for each month. Prices of machines already paid are no longer uncertain, in the forecast before as in that after.

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

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.data_files import data_rows
from planner.errors import PlannerError, Problem, ScenarioError
from planner.finance import ledger as books
from planner.finance.ledger import ACCOUNT_CODES, CAPEX_ACCOUNTS, Account, Dimension, View, cents
from planner.plan.plan import Plan
from planner.run.measures import observed
from planner.run.simulate import RunResult, booked_anew, simulate, simulate_plan
from planner.scenario.actuals import FLEET, Actuals, Seen
from planner.studies.designs import Design, Listed
from planner.studies.engines import PIECE, Workforce, replicators
from planner.studies.prepare import Prepared
from planner.studies.replicate import Replicator
from planner.yaml_io import KeyPath

Say = Callable[[str], None]
INTERVAL = (0.05, 0.95)
"""The interval that a figure is held against: nine replications in ten."""
_FAILED_FRACTION = 0.02
"""Share of a fleet that failures take in and out of service from month to month (assumption)."""
FEWEST_EFFECTIVE = 0.5
"""Share of replications that the weights must rest on, or new ones are drawn."""
_MOST_ROUNDS = 5
COST = Seen("cluster", FLEET, "cost_usd")
SLO = Seen("cluster", FLEET, "slo_attainment_fraction")
_COURSE = ("served_tokens", "demand_tokens", "utilisation_fraction")
FORECAST = (COST, SLO, *(Seen("cluster", FLEET, name) for name in _COURSE))
"""What is forecast by month."""
_WIDER = 1.1
"""By how much new points spread more than the normal they are drawn from: tails of weights stay short."""
_SURE = 3.0
"""Standard errors by which a slope must differ from zero to count."""
_LOCAL = 9.0
"""Replications within about three standard deviations of the estimate decide the local model."""


def is_cost(account: Account) -> bool:
    """Return whether an account is part of accrued cost."""
    return View.ACCRUAL in account.views and account not in books.NOT_COST_ACCOUNTS


_NOT_RUNNING = {
    name for name in Account if name in books.DATED_ACCOUNTS or View.ACCRUAL not in name.views
}
QUANTITIES = {
    Account(row["account"]): row["figure"] for row in data_rows(__file__, "account_quantities.csv")
}
"""The figure that measures what an account pays for."""
PAID_FIELDS = (
    "accelerator_price_usd",
    "host_usd_per_node",
    "discount_fraction",
    "volume_discounts",
    "quotes",
)
"""Fields of a cluster that say what its machines cost when they are bought."""


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
    actuals: Actuals
    seen: tuple[Seen, ...]
    budget: Floats
    """The plan's series as stated, shape (series, months)."""
    interval: Floats
    """P5 and P95 of the study's replications, shape (2, series, months)."""
    accounts: tuple[AccountVariance, ...]
    forecast: Forecast
    paid_usd: Floats
    """What prices paid for machines already bought add to the cost of each month as planned, shape (months,)."""

    def outside(self, series: Seen) -> list[str]:
        """Return the months in which a series was outside its interval."""
        place = self.seen.index(series)
        happened = self.actuals.series[series]
        low, high = self.interval[:, place, : len(happened)]
        slack = 1e-9 * np.abs(happened)
        beyond = (happened < low - slack) | (happened > high + slack)
        return [
            month for month, is_beyond in zip(self.actuals.months, beyond, strict=True) if is_beyond
        ]


def hold(
    prepared: Prepared,
    which: int,
    actuals: Actuals,
    replications: int,
    force: Workforce,
    progress: Say = lambda _: None,
) -> ActualsReview:
    """Run a plan as stated and under its study's uncertain inputs, compare it with actuals, and reforecast."""
    seen = tuple(dict.fromkeys((*actuals.series, *FORECAST)))
    progress("simulating the plan as stated")
    result = simulate(prepared.scenarios[which].scenario, prepared.seed)
    budget, accounts, paid_usd = observed(result, seen), *flexible_budget(result, actuals)
    prepared = _without_paid(prepared, result, len(actuals.months))
    plan = PlanRuns(prepared=prepared, which=which, seen=seen, force=force)
    progress(f"running {replications:,} replications")
    old = plan.run(prepared.montecarlo(), replications)
    return ActualsReview(
        result=result,
        prepared=prepared,
        actuals=actuals,
        seen=seen,
        budget=budget,
        interval=weighted_quantiles(old.monthly, np.ones(len(old.monthly)), np.array(INTERVAL)),
        accounts=accounts,
        forecast=reforecast(plan, old, actuals, progress),
        paid_usd=paid_usd,
    )


def flexible_budget(
    budget: RunResult, actuals: Actuals
) -> tuple[tuple[AccountVariance, ...], Floats]:
    """Return each reported account's variance by cause, and what prices paid for machines add by month in USD."""
    count = len(actuals.months)
    flexed = simulate_plan(budget.scenario, at_volume(budget, actuals), budget.seed)
    series = {account: Seen("account", FLEET, account) for account in ACCOUNT_CODES}
    booked = {
        account: actuals.series[seen] for account, seen in series.items() if seen in actuals.series
    }
    quantity = {
        account: ratio
        for account in booked
        if (ratio := _quantity(flexed, actuals, account)) is not None
    }
    paid = np.ones((2, len(CAPEX_ACCOUNTS)))  # at the prices paid, and for as many machines as came
    for place, account in enumerate(CAPEX_ACCOUNTS):
        planned = observed(flexed, [series[account]])[0, :count]
        happened = booked.get(account, np.zeros(count))
        if account in quantity or np.array_equal(planned > 0, happened > 0):
            quantity[account] = np.full(count, quantity.get(account, np.ones(1))[-1])
            if min(planned.sum(), happened.sum(), quantity[account][-1]) > 0:
                paid[:, place] = (
                    happened.sum() / planned.sum() / np.array([quantity[account][-1], 1.0])
                )
    runs = [budget, flexed, *(_repriced(flexed, count, ratios) for ratios in paid)]
    variances = []
    for account, happened in booked.items():
        by_month = [observed(run, [series[account]])[0, :count] for run in runs]
        if (ratio := quantity.get(account)) is not None and by_month[1].any():
            by_month[2:] = (
                np.divide(happened, ratio, out=by_month[1].copy(), where=ratio > 0),
                happened,
            )
        amounts = [int(cents(amount.sum())) for amount in (*by_month, happened)]
        names = (
            "volume",
            "price",
            "timing" if account in CAPEX_ACCOUNTS else "efficiency",
            "unexplained",
        )
        causes = {
            cause: part
            for cause, part in zip(names, np.diff(amounts).tolist(), strict=True)
            if part
        }
        variances.append(AccountVariance(account, amounts[0], amounts[-1], causes))
    added = _repriced(budget, count, paid[0]).cost_cents() - budget.cost_cents()
    return tuple(variances), books.usd(added.sum(axis=1))


def at_volume(budget: RunResult, actuals: Actuals) -> Plan:
    """Return a plan whose traffic of the observed months is what came: tokens demanded, or else those served."""
    plan = budget.plan
    ratio = np.ones((len(plan.workloads), plan.months.period_count))
    for w, workload in enumerate(plan.workloads):
        alone = [Seen("workload", workload.name, "")]
        for parts, figure in product((alone, *_fleet(plan)), ("demand_tokens", "served_tokens")):
            if (known := _over_run(budget, actuals, parts, [figure])) is not None:
                ratio[w, : known.size] = known
                break
    hourly = np.repeat(ratio, np.diff(plan.month_edges_h), axis=1)
    demand = plan.demand
    placement = plan.placement
    rates = {
        name: getattr(demand, name) * hourly
        for name in ("expected_requests_per_s", "noise_base_requests_per_s")
    }
    placement = placement and replace(placement, review_requests=placement.review_requests * ratio)
    return replace(plan, demand=replace(demand, **rates), placement=placement)


def _fleet(plan: Plan) -> tuple[list[Seen], list[Seen], list[Seen]]:
    """Return the parts whose figures sum to the fleet's: itself, its clusters, its workloads."""
    clusters = [Seen("cluster", cluster.name, "") for cluster in plan.clusters]
    return (
        [Seen("cluster", FLEET, "")],
        clusters,
        [Seen("workload", load.name, "") for load in plan.workloads],
    )


def _over_run(
    result: RunResult, actuals: Actuals, parts: list[Seen], figures: list[str]
) -> Floats | None:
    """Return actual over simulated Σ over parts of Π of figures, shape (observed months,); None where not all known."""
    series = [part._replace(name=figure) for part in parts for figure in figures]
    count = len(actuals.months)
    if not series or not all(seen in actuals.series for seen in series):
        return None
    both = np.array(
        [[actuals.series[seen] for seen in series], observed(result, series)[:, :count]]
    )
    happened, planned = both.reshape(2, len(parts), len(figures), count).prod(axis=2).sum(axis=1)
    return happened / planned if (planned > 0).all() and (happened >= 0).all() else None


def _quantity(flexed: RunResult, actuals: Actuals, account: Account) -> Floats | None:
    """Return an account's measured quantity over that at actual volume, of the clusters that bear it."""
    plan = flexed.plan
    figures = [QUANTITIES[account]] if account in QUANTITIES else []
    borne = (
        flexed.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)[
            :-1, ACCOUNT_CODES[account]
        ]
        != 0
    )
    if account is Account.RENT and all(
        plan.clusters[c].is_paid_by_the_hour for c in np.flatnonzero(borne)
    ):
        figures.append("utilisation_fraction")
    fleet, clusters, workloads = _fleet(plan)
    bearing = [clusters[c] for c in np.flatnonzero(borne)]
    for parts in [bearing] if 0 < len(bearing) < borne.size else [fleet, clusters, workloads]:
        if (ratio := _over_run(flexed, actuals, parts, figures)) is not None:
            little = _FAILED_FRACTION * (
                figures == ["accelerators_in_service"]
            )  # what failures alone may explain
            return np.where(np.abs(ratio - 1.0) <= little, 1.0, ratio)
    return None


def _repriced(result: RunResult, count: int, ratios: Floats) -> RunResult:
    """Return a run with its books written again, machines bought in the observed months at other prices.

    ``ratios`` are those of accelerators, hosts, network and storage.
    """
    plan, log, end_h = result.plan, result.run.log, result.plan.month_edges_h[count]
    purchases = []
    for bought in log.purchases:
        is_paid = 0 <= bought.time_h < end_h and plan.clusters[bought.cluster].lease is None
        purchases.append(
            bought._replace(prices_usd=tuple((ratios**is_paid * bought.prices_usd).tolist()))
        )
    return booked_anew(
        replace(result, run=replace(result.run, log=replace(log, purchases=purchases)))
    )


def _without_paid(prepared: Prepared, result: RunResult, count: int) -> Prepared:
    """Return a study whose inputs no longer set the prices of clusters that were bought in the observed months."""
    plan, end_h = result.plan, result.plan.month_edges_h[count]
    last_h = dict(
        sorted((purchase.cluster, purchase.time_h) for purchase in result.run.log.purchases)
    )
    paid = {plan.clusters[place].name for place, time_h in last_h.items() if time_h < end_h}
    paid -= {plan.clusters[rule.cluster].name for rule in plan.expansion.rules}

    def unpaid(paths: tuple[KeyPath, ...]) -> tuple[KeyPath, ...]:
        return tuple(
            path
            for path in paths
            if len(path) < 3 or path[1] not in paid or path[2] not in PAID_FIELDS
        )

    inputs = prepared.inputs
    entries = tuple(
        replace(entry, targets=tuple(map(unpaid, entry.targets))) for entry in inputs.entries
    )
    return replace(prepared, inputs=replace(inputs, entries=entries))


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

        setup = self.prepared.setup(design)  # one scenario alone
        which = slice(self.which, self.which + 1)
        alone = tuple(
            replace(uncertain, targets=uncertain.targets[which])
            for uncertain in setup.inputs.entries
        )
        inputs = replace(setup.inputs, entries=alone)
        setup = replace(setup, scenarios=setup.scenarios[which], inputs=inputs, seen=self.seen)
        fewest = 2 * max(len(setup.inputs), 4)
        if rows < fewest:
            message = f"{rows} replications are too few for {len(setup.inputs)} uncertain inputs"
            raise ScenarioError(
                Problem(message=message, hint=f"ask for {fewest} or more with --replications")
            )
        batches = [(first, min(first + 16, rows)) for first in range(0, rows, 16)]
        with contextlib.closing(replicators(setup, len(batches), self.force)) as crew:
            parts = [*crew.map(Replicator.run, batches, PIECE)]
        monthly = np.concatenate([part.monthly[:, 0] for part in parts])
        ran = ~np.isnan(monthly).all(axis=(1, 2))
        if ran.sum() < fewest:
            said = next((message for part in parts for _, _, message in part.errors), "")
            raise PlannerError(
                f"only {ran.sum()} of {rows} replications could be run{said and ': '}{said}"
            )
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
    unused: dict[Seen, str]
    """Series that did not move the forecast, and why."""
    informed: Bools
    """Inputs that the series used depend on, shape (inputs,)."""


def reforecast(
    plan: PlanRuns, old: StudyRuns, actuals: Actuals, progress: Say = lambda _: None
) -> Forecast:
    """Return the forecast before and after the observed months; ``old`` are the study's own replications."""
    from scipy.special import ndtr  # noqa: PLC0415 - as above

    (used, unused), rows = _informing(plan.seen, old, actuals), len(old.scores)
    if not used or not old.scores.shape[1]:
        even = np.full(rows, 1.0 / rows)
        none = np.zeros(old.scores.shape[1], np.bool_)
        return Forecast(old=old, new=old, weights=even, rounds=0, unused=unused, informed=none)
    summary = _Summary(plan.seen, used, old, actuals)
    seen_all = old
    drawn = old
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
    informed = (model.slopes != 0.0).any(axis=0)
    return Forecast(
        old=old, new=drawn, weights=weights, rounds=turn, unused=unused, informed=informed
    )


def _informing(
    seen: Sequence[Seen], old: StudyRuns, actuals: Actuals
) -> tuple[tuple[Seen, ...], dict[Seen, str]]:
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
        elif series.kind == "account" and series.name in _NOT_RUNNING:
            unused[series] = "bought on a date, or no accrued cost"
        elif not both.any():
            unused[series] = "no month has it in plan and actuals"
        else:
            total = happened[both].sum()
            sums = runs[:, both].sum(axis=1)
            room = 3.0 * actuals.error_fraction(series) * abs(total)
            if np.ptp(sums) <= 1e-9 * abs(sums).max() + 1e-12:
                unused[series] = "the same in every replication"
            elif series.kind == "account" and not sums.min() - room <= total <= sums.max() + room:
                # A price that the study holds for certain is wrong: no input may be bent to make up for it.
                unused[series] = "outside every replication: no uncertain input explains it"
    return tuple(series for series in actuals.series if series not in unused), unused


class _Summary:
    """Summary figures to compare replications with actuals: mean and trend of each series."""

    def __init__(
        self, seen: Sequence[Seen], used: Sequence[Seen], old: StudyRuns, actuals: Actuals
    ) -> None:
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
                self.weights[place, 1, months[:half]], self.weights[place, 1, months[-half:]] = (
                    -1.0 / half,
                    1.0 / half,
                )
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
        self.target = Target(
            self._figures(happened[None])[0], np.maximum(variance[self.keep], 1e-12)
        )

    def figures(self, monthly: Floats) -> Floats:
        """Return the summary figures of replications, shape (rows, figures)."""
        return self._figures(monthly[:, self.places, : self.months])

    def _figures(self, values: Floats) -> Floats:
        """Return mean and trend of series of shape (rows, series, months), without uninformative ones."""
        safe = np.where(self.known, values, 1.0)
        floor = self.floor[:, None]
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
        return np.asarray(
            (np.linalg.solve(self.root, (scores - self.mean).T) ** 2).sum(axis=0), dtype=np.float64
        )

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
        return NormalScores(
            mean=covariance @ told.T @ (target.figures - self.intercept), covariance=covariance
        )


def fit_linear(scores: Floats, figures: Floats, weights: Floats) -> LinearResponse:
    """Fit figures, shape (rows, figures), to scores by weighted least squares.

    A little of the prior's variance is added to the squares of the scores (a ridge), so that an input which the rows do
    not vary gets no slope. A slope within three standard errors of zero is taken as zero: a figure far outside the plan
    would else move inputs that have nothing to do with it. The residual covariance is drawn towards its diagonal as
    there are figures per row.
    """
    share = weights / weights.sum()
    rows = 1.0 / float((share**2).sum())
    count = figures.shape[1]
    middle = share @ scores
    mean = share @ figures
    z = scores - middle
    x = figures - mean
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


def importance_weights(
    scores: Floats, model: LinearResponse, target: Target, drawn_from: NormalScores
) -> Floats:
    """Return importance weights that sum to one: prior · likelihood / proposal density, shape (rows,)."""
    # log N(x*; a + B z, S + E) of scores, less a constant
    root = np.linalg.cholesky(model.left + np.diag(target.error_variance))
    off = target.figures - model.intercept - scores @ model.slopes.T
    logs = prior(scores.shape[1]).log_density(scores) - 0.5 * (
        np.linalg.solve(root, off.T) ** 2
    ).sum(axis=0)
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
    columns = zip(
        places.reshape(len(values), -1).T, ordered.reshape(len(values), -1).T, strict=True
    )
    quantiles = np.array([np.interp(probabilities, at, figures) for at, figures in columns])
    return quantiles.T.reshape(len(probabilities), *values.shape[1:])
