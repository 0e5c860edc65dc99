"""Interval estimates, and the decision they support: which scenario, with what probability and regret.

Sobol points are not independent draws, so s/√n says nothing about their error. The estimate is
made once for each of R independent randomisations; those R figures are independent, and Student's t with R − 1 degrees
of freedom gives the interval about the estimate from all rows together (Owen 2013, chapter 17).

Scenarios are compared row by row: row i of all has the same inputs and the same random numbers, so
their difference is what the choice makes, not what the draw makes (common random numbers; Law 2015,
section 11.2). A figure of all scenarios has shape (scenarios, rows), NaN where a run failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.plan.attainment import Verdict, met_months_over, shortfall_over
from planner.records import record
from planner.studies.designs import Integers

CONFIDENCE = 0.95
"""Of every interval."""
PERCENTILES = (5, 10, 50, 90, 95)
"""Percentiles of every output that are reported."""
FEWEST_BEYOND = 3.0
"""Fewest rows of one randomisation beyond a percentile for which an interval is given."""


@record
class IntervalEstimate:
    """A figure and its confidence interval; NaN ends where there are too few rows."""

    value: float
    half_width: float = float("nan")
    completed: int = 0
    """Rows behind it: those that could be run and have the figure."""

    @property
    def low(self) -> float:
        """Lower end."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """Upper end."""
        return self.value + self.half_width

    @property
    def relative(self) -> float:
        """Half width over the figure's size."""
        # Nothing is relative to a figure of zero.
        if not self.value:
            return float("nan")
        return self.half_width / abs(self.value)


def half_width(replicates: Floats) -> float:
    """Return half the t-interval of the mean of independent figures, t · s / √n; NaN for fewer than two."""
    from scipy.special import stdtrit  # noqa: PLC0415 - a second that only who asks should wait for

    finite = replicates[np.isfinite(replicates)]
    if finite.size < 2:
        return float("nan")
    # Two-sided: half of what the interval leaves out lies beyond each end.
    probability = 0.5 + CONFIDENCE / 2.0
    quantile = float(stdtrit(finite.size - 1, probability))
    sd = float(finite.std(ddof=1))
    return quantile * sd / float(np.sqrt(finite.size))


def estimates(
    rows: Floats, scramblings: int, figures: Callable[[Floats], Sequence[float]], count: int = 1
) -> list[IntervalEstimate]:
    """Return ``count`` figures over all rows, each with the interval from its values by randomisation.

    Row i belongs to randomisation i modulo ``scramblings``; rows that failed are NaN and left out.
    """
    finite = _finite(rows)
    if finite.size == 0:
        return [IntervalEstimate(value=float("nan"))] * count
    by_scrambling = []
    for scrambling in range(scramblings):
        part = _finite(rows[scrambling::scramblings])
        # A randomisation whose rows all failed has no figures; the interval does without it.
        by_scrambling.append(figures(part) if part.size else [np.nan] * count)
    table = np.array(by_scrambling)
    widths = [half_width(values) for values in table.T]
    all_estimates = []
    for value, width in zip(figures(finite), widths, strict=True):
        estimate = IntervalEstimate(value=value, half_width=width, completed=finite.size)
        all_estimates.append(estimate)
    return all_estimates


def _finite(rows: Floats) -> Floats:
    """Return the rows that did not fail, without a copy where that is all of them."""
    # Most studies have no failure, and a copy of a million rows takes longer than to look.
    finite = np.isfinite(rows)
    is_whole = rows.flags.c_contiguous and finite.all()
    if is_whole:
        return rows
    return rows[finite]


def mean_estimate(rows: Floats, scramblings: int) -> IntervalEstimate:
    """Return the mean and its interval."""

    def mean_of(part: Floats) -> list[float]:
        return [float(part.mean())]

    (mean,) = estimates(rows, scramblings, mean_of)
    return mean


def share_estimate(rows: Floats, scramblings: int) -> IntervalEstimate:
    """Return the mean of zeros and ones, and its interval.

    Few randomisations may all count the same, and then say nothing of what they cannot resolve. So the interval is at
    least half a count of one of them, and at least 3/n, the rule of three for what n rows never showed (Hanley and
    Lippman-Hand 1983).
    """
    share = mean_estimate(rows, scramblings)
    count = int(np.count_nonzero(np.isfinite(rows)))
    # Without an interval from the randomisations there is nothing to widen.
    if count == 0 or np.isnan(share.half_width):
        return share
    half_a_count = 0.5 * scramblings / count
    width = max(share.half_width, half_a_count, 3.0 / count)
    return IntervalEstimate(value=share.value, half_width=width, completed=count)


def percentile_estimate(rows: Floats, scramblings: int, percentile: float) -> IntervalEstimate:
    """Return a percentile and its interval; without an interval where too few rows lie beyond it."""

    def percentile_of(part: Floats) -> list[float]:
        return percentiles(part, (percentile,))

    (quantile,) = estimates(rows, scramblings, percentile_of)
    rows_of_one = len(rows) / scramblings
    return _where_enough(quantile, percentile, rows_of_one)


def _where_enough(quantile: IntervalEstimate, percentile: float, rows: float) -> IntervalEstimate:
    """Return a percentile, without its interval where ``rows`` rows have too few beyond it."""
    # Of so few rows beyond it, a percentile's spread is that of one or two of them.
    percents_beyond = min(percentile, 100.0 - percentile)
    if percents_beyond / 100.0 * rows < FEWEST_BEYOND:
        return IntervalEstimate(value=quantile.value, completed=quantile.completed)
    return quantile


def percentiles(rows: Floats, percents: Sequence[float]) -> list[float]:
    """Return percentiles whose error has median zero whatever the distribution (Hyndman and Fan 1996, type 8)."""
    quantiles = np.percentile(rows, percents, method="median_unbiased")
    values: list[float] = quantiles.tolist()
    return values


def spread_estimates(
    rows: Floats, scramblings: int, *, upper: bool
) -> list[tuple[str, IntervalEstimate]]:
    """Return mean, standard deviation, percentiles and the mean of the worst twentieth (CVaR 95%) by name."""

    def figures(part: Floats) -> list[float]:
        # Percentiles and tail share one sort, which takes most of the time of a million rows.
        ordered = np.sort(part)
        # At least one row, however few there are.
        count = max(1, round(0.05 * len(part)))
        tail = ordered[:count]
        if upper:
            tail = ordered[-count:]
        # One row has no spread; numpy would warn.
        sd = float("nan")
        if part.size > 1:
            sd = float(part.std(ddof=1))
        mean = float(part.mean())
        worst = float(tail.mean())
        return [mean, sd, *percentiles(ordered, PERCENTILES), worst]

    percentile_names = [f"p{percentile}" for percentile in PERCENTILES]
    names = ["mean", "sd", *percentile_names, "cvar95"]
    spread = estimates(rows, scramblings, figures, len(names))
    rows_of_one = len(rows) / scramblings
    # The percentiles stand behind the mean and the standard deviation.
    for place, percentile in enumerate(PERCENTILES, start=2):
        spread[place] = _where_enough(spread[place], percentile, rows_of_one)
    return list(zip(names, spread, strict=True))


def sound_rows(objective: Floats) -> Bools:
    """Return the rows in which no scenario failed, shape (rows,)."""
    is_sound = np.isfinite(objective).all(axis=0)
    return np.asarray(is_sound)


class PairwiseDecision(NamedTuple):
    """One scenario against another, or against the best of all others."""

    scenario: str
    against: str
    """Empty for all others together that meet their SLO target."""
    probability_better: IntervalEstimate
    mean_difference: IntervalEstimate
    """The scenario's headline less the other's."""
    mean_regret: IntervalEstimate
    """Mean of what the scenario gives away where the other is better, nothing where it is not."""
    p95_regret: IntervalEstimate


class Targeted(NamedTuple):
    """A scenario of a study, and what its SLO target holds it to."""

    scenario: str
    attainment: float
    confidence: float
    """Share of replications that is to meet it."""


class SloStanding(NamedTuple):
    """Result of one scenario of a study against its SLO target."""

    scenario: str
    verdict: Verdict
    """By how many of the replications that could be run meet its SLO target."""
    shortfall_fraction: float
    """How far it falls short over the replications; 0 where enough of them keep it, NaN where none could be run."""
    met_months: float
    """Calendar months that enough replications keep it through."""
    best_fraction: IntervalEstimate
    """Share of replications in which its objective is best of the scenarios that are not MISSED; NaN for others."""
    past_mending: dict[str, int]
    """Replications that miss its SLO target whatever is bought, by cause; none where they are not counted."""

    @property
    def may_meet(self) -> bool:
        """Whether it is not MISSED."""
        return self.verdict.status != "MISSED"


def of_simulations(figures: Floats, replications: Integers) -> Floats:
    """Return figures, shape (scenarios, rows), with NaN where an earlier row has the same simulation.

    Money moves no machine: a verdict counts each simulation once.
    """
    _, simulated = np.unique(replications, return_index=True)
    rows = np.arange(len(replications))
    is_simulated = np.isin(rows, simulated)
    return np.where(is_simulated, figures, np.nan)


def standings(
    columns: Sequence[Floats],
    targeted: Sequence[Targeted],
    scramblings: int,
    *,
    lower_is_better: bool,
) -> list[SloStanding]:
    """Return each scenario's result against its SLO target, and its probability of being best.

    ``columns`` are the objective, the shortfalls and the months in which the target is met.
    """
    objective, shortfalls, months = columns
    verdicts = []
    for shortfall, target in zip(shortfalls, targeted, strict=True):
        is_met = shortfall == 0.0
        met_replications = int(is_met.sum())
        completed = int(np.isfinite(shortfall).sum())
        verdicts.append(Verdict(met_replications, completed, target.confidence))
    # A scenario that misses its target is cheaper for that alone: it is no rival.
    eligible = [place for place, verdict in enumerate(verdicts) if verdict.status != "MISSED"]
    worse = _worse(objective, lower_is_better=lower_is_better)
    standings = []
    for place, target in enumerate(targeted):
        best = IntervalEstimate(value=float("nan"))
        if place in eligible:
            is_best = _is_better(_excess(worse, place, eligible))
            best = share_estimate(is_best, scramblings)
        standing = SloStanding(
            scenario=target.scenario,
            verdict=verdicts[place],
            shortfall_fraction=shortfall_over(shortfalls[place], target.confidence),
            met_months=met_months_over(months[place], target.confidence),
            best_fraction=best,
            past_mending={},
        )
        standings.append(standing)
    return standings


def _worse(objective: Floats, *, lower_is_better: bool) -> Floats:
    """Return the objective signed so that less is better, NaN in rows in which any scenario failed."""
    signed = objective if lower_is_better else -objective
    return np.where(sound_rows(objective), signed, np.nan)


def _excess(worse: Floats, place: int, rivals: Sequence[int]) -> Floats:
    """Return how much worse a scenario is than the best of its rivals; −∞ where it is alone, NaN if it failed."""
    rows = [rival for rival in rivals if rival != place]
    headline = worse[place]
    # Alone, it is the best of all in every row that it finished.
    if not rows:
        return np.where(np.isnan(headline), np.nan, -np.inf)
    best_rival = worse[rows].min(axis=0)
    return np.asarray(headline - best_rival)


def _is_better(excess: Floats) -> Floats:
    """Return 1 where a scenario is better, 0.5 where both are equal, NaN where one failed."""
    wins = (excess < 0.0) + 0.5 * (excess == 0.0)
    # NaN compares as neither, and would count as a loss.
    return np.where(np.isnan(excess), np.nan, wins)


def decisions(
    objective: Floats,
    names: tuple[str, ...],
    scramblings: int,
    eligible: Sequence[int],
    *,
    lower_is_better: bool,
) -> list[PairwiseDecision]:
    """Return the comparisons of all scenarios by the objective, which is NaN where a run failed.

    Each is compared with each other; of more than two that meet their SLO target, whose places are
    ``eligible``, each also with the best of all others of them.
    """
    worse = _worse(objective, lower_is_better=lower_is_better)
    pairs = []
    for place, name in enumerate(names):
        # By how much the scenario is worse, row by row.
        excesses = {}
        for rival, rival_name in enumerate(names):
            if rival != place:
                excesses[rival_name] = worse[place] - worse[rival]
        # Of two, the best of all others is the other one, which stands there already.
        if len(eligible) > 2 and place in eligible:
            excesses[""] = _excess(worse, place, eligible)
        for rival_name, excess in excesses.items():
            # Maximum keeps NaN, so a failed row has no regret rather than none.
            regret = np.maximum(excess, 0.0)
            difference = excess if lower_is_better else -excess
            decision = PairwiseDecision(
                scenario=name,
                against=rival_name,
                probability_better=share_estimate(_is_better(excess), scramblings),
                mean_difference=mean_estimate(difference, scramblings),
                mean_regret=mean_estimate(regret, scramblings),
                p95_regret=percentile_estimate(regret, scramblings, 95),
            )
            pairs.append(decision)
    return pairs
